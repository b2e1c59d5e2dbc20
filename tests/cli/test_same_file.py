"""Function tasks that run at the same time and return the same file: each might be given what the other wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Result

Penstock = Callable[..., Result]
FLOW = '''
import time
from pathlib import Path
from penstock import task, workflow

def wait(*names):
    end = time.monotonic() + 30
    while not all(Path(name).exists() for name in names) and time.monotonic() < end:
        time.sleep(0.005)

@task({options})
def pack(x: str) -> Path:
    """a writes, b writes over it, a returns what b wrote. b returns when somebody has read what a returned."""
    out = Path({out})
    if x == "b":
        wait("a-wrote")
    out.write_text(x)
    Path(f"{{x}}-wrote").touch()
    wait("b-wrote" if x == "a" else "a-was-read")
    return out

@task({options})
def read(x: str, file: Path) -> str:
    Path(f"{{x}}-was-read").touch()
    return file.read_text()

@workflow
def flow():
    a = read("a", pack("a"))
    b = read("b", pack("b"))
    return [a, b]
'''


@pytest.mark.parametrize("options", ["", "cache=False", "retry=5, tolerates=['failed']"])
def test_neither_result_counts(options: str, penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.format(options=options, out='"out.txt"'))
    failed = penstock("run", "flow.py", "-j", "3")
    assert failed.code == 3, failed.out
    assert "P710" in failed.err and "out.txt" in failed.err and "tempfile" in failed.err
    again = penstock("retry", "@", "-j", "1")
    assert again.code == 0, again.err
    assert "['a', 'b']" in again.out, "also the one that had ended well was run again, and who had read it"


def test_nor_is_it_reused_by_another_run(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.format(options="", out='"out.txt"'))
    assert penstock("run", "flow.py", "-j", "3").code == 3
    again = penstock("run", "flow.py", "-j", "1")
    assert again.code == 0 and "['a', 'b']" in again.out


@pytest.mark.parametrize("out", ['f"{x}.txt"', '__import__("tempfile").mkdtemp() + "/out.txt"'])
def test_files_of_their_own_are_fine(out: str, penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW.format(options="", out=out))
    done = penstock("run", "flow.py", "-j", "3")
    assert done.code == 0 and "['a', 'b']" in done.out, done.err


def test_so_is_a_file_that_was_there_before_and_one_after_the_other(penstock: Penstock, tmp_path: Path) -> None:
    text = FLOW.format(options="", out='"out.txt"')
    (tmp_path / "flow.py").write_text(text)
    for name in ("a-wrote", "b-wrote", "a-was-read"):
        (tmp_path / name).touch()
    done = penstock("run", "flow.py", "-j", "1")
    assert done.code == 0 and "['a', 'b']" in done.out, done.err
