"""Functions for the steps of test_tekton_real.py. They travel into pods that have nothing but Python, so this file imports nothing else."""

from __future__ import annotations

from pathlib import Path


def words(text: str) -> list[str]:
    print(f"splitting {len(text)} letters")
    return text.split()


def shouted(word: str) -> str:
    return word.upper()


def joined(parts: list[str], mark: str) -> str:
    return mark.join(parts)


def written(text: str) -> Path:
    file = Path("note.txt")
    file.write_text(text)
    return file


def read(file: Path) -> int:
    return len(file.read_text())


def breaks() -> None:
    raise ValueError("no such luck")
