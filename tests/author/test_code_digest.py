"""The digest of a function's code: changes when what it runs changes, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.author.code_digest import code_digest, strip_comments
from tests.support.source import module

BASE = "LIMIT = 3\n\ndef helper(x):\n    return x + LIMIT\n\ndef f(x):\n    return helper(x)\n"


def of(source: str, name: str = "f") -> str:
    found = getattr(module(source), name)
    return code_digest(getattr(found, "function", found))


def test_comments_blank_lines_and_decorators_do_not_count() -> None:
    base = of(BASE)
    assert of(BASE.replace("    return helper(x)", "    # a remark\n\n    return helper(x)  # another")) == base
    assert of(BASE.replace("def f(x)", "@task(cpu=4)\ndef f(x)")) == base
    assert of(BASE + "\ndef unrelated(): pass\n") == base


def test_what_the_function_runs_counts() -> None:
    base = of(BASE)
    assert of(BASE.replace("return helper(x)", "return helper(x) + 1")) != base
    assert of(BASE.replace("return x + LIMIT", "return x - LIMIT")) != base
    assert of(BASE.replace("LIMIT = 3", "LIMIT = 4")) != base
    assert of(BASE.replace("    return helper(x)", "    return 'a # b' + helper(x)")) != of(
        BASE.replace("    return helper(x)", "    return 'a # c' + helper(x)")
    )


def test_helpers_of_helpers_tasks_classes_and_closures_count() -> None:
    deep = "class Box:\n    def get(self):\n        return inner()\n\ndef inner():\n    return 1\n\n@task\ndef f(x):\n    return [Box().get() for _ in range(x)]\n"
    assert of(deep) != of(deep.replace("return 1", "return 2"))
    closed = "def make(n):\n    def f(x):\n        return x + n\n    return f\nf = make({})\n"
    assert of(closed.format(1)) != of(closed.format(2))
    calls = "@task\ndef g(x):\n    return {}\n\n@task\ndef f(x):\n    return g(x)\n"
    assert of(calls.format(1)) != of(calls.format(2))


def test_functions_that_call_one_another_end() -> None:
    assert of("def f(x):\n    return g(x)\n\ndef g(x):\n    return f(x - 1)\n").startswith("sha256:")


def test_it_is_the_same_in_every_process_and_under_every_module_name(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("def help(x):\n    return x * 2\n")
    (tmp_path / "flow.py").write_text(
        "import helpers\nimport json\nTABLE = {'b': [1, 2], 'a': None}\ndef f(x):\n    return helpers.help(x), TABLE, json.dumps(x)\n"
        "from penstock.author.code_digest import code_digest\nif __name__ == '__main__':\n    print(code_digest(f))\n"
    )

    def run(*args: str, seed: str) -> str:
        return subprocess.run(
            [sys.executable, *args],
            cwd=tmp_path,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    as_main = run("flow.py", seed="1")
    imported = run("-c", "import flow; print(flow.code_digest(flow.f))", seed="2")
    assert as_main == imported
    (tmp_path / "helpers.py").write_text("def help(x):\n    return x * 3\n")
    assert run("flow.py", seed="1") != as_main


def test_comments_are_cut_out_of_code_and_left_in_text() -> None:
    text = 'x = """\n# not a comment\n\n"""  # a comment\n\n# gone\ny = "#"\n'
    assert strip_comments(text) == 'x = """\n# not a comment\n\n"""\ny = "#"\n'


CHANGES = {
    "a set": ("S = {0}\ndef f(x): return x in S\n", "{1, 2}", "{1, 3}"),
    "bytes": ("B = {0}\ndef f(x): return B\n", "b'a'", "b'b'"),
    "a dispatch table": ("def g(): return {0}\nT = {{'a': g}}\ndef f(x): return T[x]()\n", "1", "2"),
    "a cached helper": ("import functools\n@functools.cache\ndef g(): return {0}\ndef f(x): return g()\n", "1", "2"),
    "a partial": (
        "import functools\ndef g(n): return n\nP = functools.partial(g, {0})\ndef f(x): return P()\n",
        "1",
        "2",
    ),
    "a default": ("N = {0}\ndef f(x, n=N): return n\n", "1", "2"),
    "a base class": ("class A:\n    def m(self): return {0}\nclass B(A): pass\ndef f(x): return B().m()\n", "1", "2"),
    "an object": ("class A:\n    def __init__(self, n): self.n = n\nO = A({0})\ndef f(x): return O.n\n", "1", "2"),
    "a path": ("import pathlib\nP = pathlib.Path({0})\ndef f(x): return P\n", "'a'", "'b'"),
    "a property": (
        "def g(): return {0}\nclass A:\n    @property\n    def m(self): return g()\ndef f(x): return A().m\n",
        "1",
        "2",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_function_reaches_counts(name: str) -> None:
    source, one, two = CHANGES[name]
    assert of(source.format(one)) == of(source.format(one))
    assert of(source.format(one)) != of(source.format(two))


@pytest.mark.parametrize(
    ("imports", "reads"),
    [
        ("from cfg import CFG", "CFG"),
        ("import cfg", "cfg.CFG"),
        ("import cfg as c", "(lambda: c.CFG)()"),
        ("import cfg", "cfg.get()"),
        ("import pkg.inner", "pkg.inner.CFG"),
        ("from pkg import inner", "inner.CFG"),
    ],
)
def test_what_a_module_read_at_import_counts_however_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str, reads: str
) -> None:
    data = tmp_path / "data.txt"
    text = f"import pathlib\nCFG = pathlib.Path({str(data)!r}).read_text()\nOTHER = CFG + '!'\ndef get():\n    return CFG\n"
    (tmp_path / "cfg.py").write_text(text)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "inner.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest(content: str) -> str:
        data.write_text(content)
        for name in ("cfg", "pkg", "pkg.inner"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return of(f"{imports}\ndef f(x):\n    return {reads}\n")

    assert digest("1") == digest("1") != digest("2")


def test_classes_that_parameters_are_declared_as_count() -> None:
    source = (
        "import dataclasses\n@dataclasses.dataclass\nclass Inner:\n    def twice(self):\n        return 2\n\n"
        "@dataclasses.dataclass\nclass Config:\n    inner: Inner\n    def rate(self):\n        return 1\n\n"
        "def f(c: {}):\n    return c.rate() + c.inner.twice()\n"
    )
    for note in ("Config", "list[Config]", "Config | None"):
        base = source.format(note)
        assert of(base) != of(base.replace("return 1", "return 3"))
        assert of(base) != of(base.replace("return 2", "return 3"))
        assert of(base) == of(base + "\nclass Other: pass\n")
