"""The scripts that judge the source: they must find what they are for."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.fixture(scope="module")
def structure() -> ModuleType:
    loader = SourceFileLoader("structure", str(SCRIPTS / "structure"))
    spec = spec_from_loader("structure", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["structure"] = module  # dataclasses look there
    loader.exec_module(module)
    return module


def measured(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "structure"), "--root", str(root), *words], capture_output=True, text=True
    )


def package(root: Path, **files: str) -> Path:
    (root / "pkg/sub").mkdir(parents=True)
    for name, text in {"__init__": "", "sub/__init__": "", **files}.items():
        (root / f"pkg/{name}.py").write_text(text)
    return root / "pkg"


def test_a_chain_is_followed_through_imports_of_every_form(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        a="class A: ...\n",
        b="from pkg.a import A as First\nclass B(First): ...\n",
        **{
            "sub/__init__": "from pkg.b import B\n",
            "sub/c": "from . import B\nclass C(B): ...\n",
            "d": "import pkg.sub.c\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\nclass D(Generic[T], pkg.sub.c.C[T]): ...\n",
        },
    )
    done = measured(root)
    assert done.returncode == 1
    assert done.stderr == "d.py:4: D has 3 classes of ours above it; the limit is 2\n"
    assert "3  d.py:4 D < C < B < A" in done.stdout


def test_a_public_class_has_a_name_of_its_own(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        a="class Plan: ...\nclass _Part: ...\nclass Stage: ...\n",
        b="class Plan: ...\nclass _Part: ...\nclass Stage:\n    class Plan: ...\n",
    )
    done = measured(root)
    assert done.returncode == 1
    assert done.stderr == "a.py:1, b.py:1: Plan has 2 classes of this name; the limit is 1\n"


def test_what_is_kept_from_the_formatter_is_counted(structure: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("a = 1\nb = [  1]  # fmt: " + "skip\n")
    assert structure.skips(tmp_path) == ["tests/test_a.py:2"]


def test_methods_count_once_and_with_those_of_the_classes_above(tmp_path: Path) -> None:
    many = "".join(f"    def m{number}(self): ...\n" for number in range(40))
    root = package(
        tmp_path,
        a=f"class A:\n{many}",
        b="from pkg.a import A\nclass Same(A):\n    def m1(self): ...\nclass More(A):\n    def other(self): ...\n",
    )
    done = measured(root)
    assert done.returncode == 1
    assert done.stderr == "b.py:4: More has 41 methods; the limit is 40\n"


def test_long_files_are_refused_and_long_functions_shown(tmp_path: Path) -> None:
    root = package(tmp_path, a="def f():\n" + "    pass\n" * 700, b="x = 1\n" * 700)
    done = measured(root, "--top", "1")
    assert done.returncode == 1
    assert done.stderr == "a.py: a.py has 701 lines; the limit is 700\n"
    assert "701  a.py:1 f" in done.stdout


def test_what_cannot_be_read_is_said_in_a_line(tmp_path: Path) -> None:
    done = measured(package(tmp_path, a="def f(:\n"))
    assert done.returncode == 1
    assert done.stderr.startswith("structure: ") and "a.py:1:" in done.stderr and "Traceback" not in done.stderr


def test_an_exception_bounds_and_must_be_needed(structure: ModuleType) -> None:
    sizes = {"Large": (50, "a.py:1"), "Small": (3, "b.py:1")}
    assert structure.judge("methods", 40, sizes, "KNOWN", {"Large": 50}) == []
    assert structure.judge("methods", 40, sizes, "KNOWN", {"Large": 49}) == [
        "a.py:1: Large has 50 methods; known with 49"
    ]
    for name in ("Small", "Gone"):
        (fault,) = structure.judge("methods", 40, sizes, "KNOWN", {"Large": 50, name: 60})
        assert fault == f"scripts/structure: {name} needs no exception any more; take it out of KNOWN"


@pytest.mark.parametrize("script", ["setup", "test-pythons"])
def test_a_wrong_word_is_answered_in_a_line(script: str) -> None:
    done = subprocess.run([str(SCRIPTS / script), "nonsense"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{script}: nonsense is ") and done.stderr.count("\n") == 1


def test_the_bench_says_what_it_measures_and_measures_only_what_is_asked_for() -> None:
    def bench(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bench", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=SCRIPTS.parent, timeout=60)

    told = bench("--help")
    assert told.returncode == 0 and "startup" in told.stdout and "bars met" not in told.stdout
    refused = bench("startups")
    assert refused.returncode == 2 and "startup" in refused.stderr
