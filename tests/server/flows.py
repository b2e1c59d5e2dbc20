"""Workflows that the tests of the client send. The functions come from this file, as those of an author would."""

from __future__ import annotations

from pathlib import Path

from penstock import task, workflow


@task
def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()


@task
def shout(line: str) -> str:
    print("shouting", line)
    if line == "bad":
        raise ValueError("a bad line")
    return line.upper()


@task
def written(lines: list[str]) -> Path:
    Path("loud.txt").write_text("\n".join(lines))
    return Path("loud.txt")


@workflow
def loud(file: Path):  # type: ignore[no-untyped-def]
    found = [shout(line) for line in lines_of(file)]
    return written(found)


@workflow
def twice(word: str = "a"):  # type: ignore[no-untyped-def]
    return shout(word)
