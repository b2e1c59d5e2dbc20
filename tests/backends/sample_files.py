"""Functions that the tests of the container backend run in an image that has Python and nothing else."""

from __future__ import annotations

from pathlib import Path


def count_lines(table: Path, note: str) -> Path:
    """A file in, a file out."""
    result = Path("/tmp/counted.txt")
    result.write_text(f"{note} {len(table.read_text().splitlines())} {type(table).__name__}")
    return result


def big(n: int) -> list[str]:
    return ["x" * 1000] * n
