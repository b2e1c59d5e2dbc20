"""Containers that outlived their engine. `end_orphan_containers` is called by the registry for engines that are dead."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from penstock import rights
from penstock.backends import folders


def _marker(home: Path, engine: str) -> Path:
    """Exists while the engine may have containers. Without it nobody asks the tool, which takes time."""
    return home / "cache" / "containers" / folders.mangled(engine)


def mark(home: Path, engine: str, tool: Sequence[str]) -> None:
    marker = _marker(home, engine)
    rights.make_folder(marker.parent)
    marker.write_text(json.dumps(tool), encoding="utf-8")


def unmark(home: Path, engine: str) -> None:
    _marker(home, engine).unlink(missing_ok=True)


def end_orphan_containers(
    home: Path, engines: Collection[str], environ: Mapping[str, str] | None = None, seconds: float = 30.0
) -> int:
    """Removes the containers of these engines and returns how many there were. Runs no tool if there are none."""
    count = 0
    for engine in engines:
        try:
            tool: list[str] = json.loads(_marker(home, engine).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        try:
            count += _remove(tool, engine, environ, seconds)
            unmark(home, engine)
        except (OSError, subprocess.SubprocessError):
            continue  # the tool is missing or does not answer: the next engine tries again
    return count


def _remove(tool: Sequence[str], engine: str, environ: Mapping[str, str] | None, seconds: float) -> int:
    def run(*words: str) -> str:
        done = subprocess.run(
            [*tool, *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return done.stdout

    search = ("ps", "--all", "--quiet", "--filter", f"label=penstock.engine={engine}")
    found = left = run(*search).split()
    if found:
        run("kill", "--signal", "KILL", *found)
    for _ in range(2):  # a container whose network others use cannot be removed before them
        if left:
            run("rm", "--force", "--volumes", *left)
            left = run(*search).split()
    return len(found)
