"""Two other users of this machine, for tests of rights: numbers that nobody has, in one group. Only root can become them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import penstock

ANA, BEN, TEAM = 61001, 61002, 61100


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own are root's alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can become two other users")
    folder = Path(tempfile.mkdtemp(prefix="penstock-users-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # a process that is just ending may still write


def penstock_as(
    user: int, folder: Path, *words: str, umask: int = 0o022, **env: str
) -> subprocess.CompletedProcess[str]:
    """`penstock …` in the folder, as this user in the group TEAM."""
    return _as(user, [python(), "-m", "penstock", *words], folder, umask, env)


@cache
def python() -> str:
    """One that other users may execute: ours may lie in root's home."""
    for program in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = _as(ANA, [program, "-c", "import penstock, click, sys; print(sys.version_info[:2])"], Path("/"))
        except OSError:
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return program
    pytest.skip("other users can execute no Python of this version here")


def start_as(user: int, folder: Path, *words: str, umask: int = 0o022) -> subprocess.Popen[str]:
    """Python with these words, left running."""
    return subprocess.Popen(
        [python(), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environ(),
        cwd=folder,
        user=user,
        group=user,
        extra_groups=[TEAM],
        umask=umask,
    )


def _as(
    user: int, words: list[str], folder: Path, umask: int = 0o022, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env=_environ() | (env or {}),
        user=user,
        group=user,
        extra_groups=[TEAM],
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _environ() -> dict[str, str]:
    paths = (Path(penstock.__file__).parents[1], sysconfig.get_path("purelib"))
    return {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PENSTOCK_JOBS": "2",
    }
