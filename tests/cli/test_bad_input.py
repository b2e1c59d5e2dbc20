"""One clear error with a code and a fix, exit 2, nothing written: whatever is thrown at the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.cli.main import run
from penstock.graph import text

Run = Callable[..., object]

HEAD = "apiVersion: penstock/v1\nkind: Workflow\nname: w\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
)

FILES = {
    # name: (file, content, code, part of the message or fix)
    "broken python": ("f.py", "def flow(:\n", "P301", "correct the line"),
    "python that raises": ("f.py", "x = 1\nraise ValueError('no luck')\n", "P302", "no luck"),
    "python that exits": ("f.py", "import sys\nsys.exit(3)\n", "P302", "__main__"),
    "python that recurses": ("f.py", "def f(): f()\nf()\n", "P302", "RecursionError"),
    "a module that is missing": ("f.py", "import no_such_module_anywhere\n", "P302", "install"),
    "python with a zero byte": ("f.py", "x = 1\0\n", "P30", "correct"),
    "not utf-8": ("f.py", b"x = '\xff'\n", "P301", "correct"),
    "no workflow": ("f.py", "x = 1\n", "P304", "@workflow"),
    "several workflows": (
        "f.py",
        "from penstock import *\na = Workflow('a', [])\nb = Workflow('b', [])\n",
        "P303",
        "f.py:b",
    ),
    "python without a meaning": (
        "f.py",
        "from penstock import *\n@workflow\ndef f(x: int):\n    import os\n",
        "P311",
        "top of the file",
    ),
    "a negative amount in python": (
        "f.py",
        "from penstock import *\n@task(cpu=-1)\ndef f(): pass\n",
        "P230",
        "nothing",
    ),
    "recursion in python": (
        "f.py",
        "from penstock import *\n@workflow\ndef f(x: int):\n    f(x)\n",
        "P314",
        "while loop",
    ),
    "empty": ("f.yaml", "", "P105", "apiVersion"),
    "not yaml": ("f.yaml", "a: [1, 2\nb: {", "P102", "fix the line"),
    "a tab": ("f.yaml", "a:\n\t- b\n", "P102", "fix the line"),
    "not json": ("f.json", '{"a": 1,}', "P102", "fix the line"),
    "json too deep": ("f.json", "[" * 100_000, "P101", "flatten"),
    "yaml too deep": ("f.yaml", "[" * 5_000 + "]" * 5_000, "P101", "flatten"),
    "an alias bomb": ("f.yaml", HEAD + BOMB, "P101", "write"),
    "another kind of document": ("f.yaml", "apiVersion: apps/v1\nkind: Deployment\n", "P830", "Penstock workflow"),
    "a newer version": ("f.yaml", "apiVersion: penstock/v9\nkind: Workflow\n", "P104", "newer"),
    "an unknown field": ("f.yaml", HEAD + "stepps: []\n", "P103", 'Did you mean "steps"'),
    "an unknown field far down": (
        "f.yaml",
        HEAD + "steps:\n- name: a\n  container: {image: i, comand: [x]}\n",
        "P103",
        'Did you mean "command"',
    ),
    "a wrong quantity": (
        "f.yaml",
        HEAD + "steps:\n- name: a\n  container: {image: i}\n  resources: {memory: 4GB}\n",
        "P108",
        "4Gi",
    ),
    "a negative amount": (
        "f.yaml",
        HEAD + "steps:\n- name: a\n  container: {image: i}\n  resources: {cpu: -2}\n",
        "P230",
        "nothing",
    ),
    "recursion": (
        "f.yaml",
        HEAD
        + "steps:\n- {name: a, workflow: {name: b}}\ndefinitions:\n- {name: b, steps: [{name: a, workflow: {name: b}}]}\n",
        "P213",
        "while loop",
    ),
    "a cycle": (
        "f.yaml",
        HEAD
        + "steps:\n- {name: a, needs: [b], container: {image: i}}\n- {name: b, needs: [a], container: {image: i}}\n",
        "P212",
        "while loop",
    ),
    "a broken expression": (
        "f.yaml",
        HEAD + "steps:\n- {name: a, when: 'a and b', container: {image: i}}\n",
        "P110",
        "explain",
    ),
    "binary": ("f.yaml", bytes(range(256)), "P102", "UTF-8"),
    "a kind of file nobody knows": ("f.txt", "x", "P502", ".py"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_one_clear_error(penstock: Run, tmp_path: Path, name: str) -> None:
    file, content, code, words = FILES[name]
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = {path.name for path in tmp_path.iterdir()} | {"__pycache__"}
    for args in (
        ("plan", file),
        ("draw", file, "--to", "svg", "--out", "out.svg"),
        ("merge", file, file, "--out", "out.yaml"),
    ):
        result = penstock(*args)
        assert result.code == 2, result
        assert result.out == ""
        assert f"error[{code}" in result.err, result.err
        assert words in result.err, result.err
        assert "  fix    " in result.err and "penstock explain P" in result.err
    assert {path.name for path in tmp_path.iterdir()} <= before


def test_a_document_of_a_hundred_megabytes_is_refused_before_it_is_read(penstock: Run, tmp_path: Path) -> None:
    with open(tmp_path / "big.yaml", "wb") as file:
        file.truncate(100 * 1024 * 1024)
    result = penstock("plan", "big.yaml")
    assert result.code == 2
    assert "error[P101]" in result.err and "105 MB" in result.err
    assert text.MAX_BYTES < 100 * 1024 * 1024


def test_the_line_and_the_place_in_it_are_shown(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(
        "from penstock import *\n\n@task\ndef t(x: int) -> int:\n    return x\n\n@workflow\ndef f(x: int):\n    y = t(x @ 2)\n    return y\n"
    )
    error = penstock("plan", "f.py").err.splitlines()
    assert error[1] == "  at     f.py:9:11"
    assert error[2] == "         y = t(x @ 2)"
    assert error[3].index("^") == error[2].index("x @ 2")


def test_every_mistake_in_a_document_is_named_at_once_with_its_line(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        HEAD + "quue: x\nsteps:\n- name: a\n  container: {image: i}\n  retries: 3\n  resources: {cpu: two}\n- name: b\n"
    )
    result = penstock("plan", "f.yaml")
    for line, code in ((4, "P103"), (8, "P103"), (9, "P108"), (10, "P107")):
        assert f"f.yaml:{line}:" in result.err, result.err
        assert code in result.err


COMMANDS = {
    "no file": (["plan", "nowhere.py"], 4, "P501"),
    "a folder": (["plan", "."], 2, "P502"),
    "an unknown parameter": (["plan", "ok.yaml", "-p", "m=1"], 2, "P401"),
    "a parameter without a value": (["plan", "ok.yaml", "-p", "n"], 2, "P403"),
    "a parameter of the wrong type": (["plan", "ok.yaml", "-p", "n=x"], 2, "P402"),
    "a unit that is none": (["plan", "ok.yaml", "--unit", "stag"], 2, 'Did you mean "stage"'),
    "an unknown command": (["paln"], 2, 'Did you mean "plan"'),
    "an unknown option": (["plan", "--frob"], 2, "--help"),
    "no argument": (["plan"], 2, "--help"),
    "an unknown format": (["plan", "ok.yaml", "-o", "xml"], 2, "--help"),
    "an unknown drawing": (["draw", "ok.yaml", "--to", "png"], 2, "--help"),
    "an unknown code": (["explain", "P999"], 4, "P503"),
    "a place that cannot be written": (["draw", "ok.yaml", "--out", "no/such/folder/x"], 2, "P504"),
    "a merge into a picture": (["merge", "ok.yaml", "--out", "x.png"], 2, "P502"),
    "a parameter that no workflow has": (["merge", "ok.yaml", "-p", "m=1"], 2, "P401"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_command_line_is_one_clear_error(penstock: Run, tmp_path: Path, name: str) -> None:
    args, code, words = COMMANDS[name]
    (tmp_path / "ok.yaml").write_text(HEAD + "params: [{name: n, type: int}]\n")
    result = penstock(*args)
    assert (result.code, result.out) == (code, "")
    assert words in result.err, result.err


@pytest.mark.parametrize(
    "words",
    [
        "cancel @",
        "retry @",
        "resume @",
        "watch @",
        "show",
        "logs @",
        "queue drain a",
        "queue resume a",
        "queue delete a",
    ],
)
def test_where_nothing_was_run_nothing_is_made(penstock: Run, tmp_path: Path, words: str) -> None:
    """Whoever types it in the wrong folder would find a .penstock there, and use it from then on."""
    found = penstock(*words.split())
    assert found.code == 4 and "P505" in found.err and "nothing has been run here" in found.err
    assert not (tmp_path / ".penstock").exists()


def test_escape_codes_in_a_file_do_not_reach_the_terminal(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(HEAD + '"\\e[31mred\\a": 1\n')
    result = penstock("plan", "f.yaml")
    assert result.code == 2
    assert "\x1b" not in result.err and "\a" not in result.err


def test_a_file_that_cannot_be_read_says_so(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(HEAD)
    (tmp_path / "f.yaml").chmod(0)
    if os.access(tmp_path / "f.yaml", os.R_OK):
        pytest.skip("this user may read everything")
    assert penstock("plan", "f.yaml").code == 4


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda s: (HEAD + s).encode("utf-8", "replace"))),
    st.sampled_from([".yaml", ".json"]),
)
def test_random_documents_never_end_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / f"f{suffix}"
    path.write_bytes(content)
    assert run(["plan", str(path)]) in (0, 2)


PIECES = [
    "@task",
    "@workflow",
    "def f(x: int):",
    "    return",
    "    x = 1",
    "    f(x)",
    "f = Workflow('a', [])",
    "import os",
    "1/0",
    "\t",
    "(",
    "'''",
    "    yield",
    "class A:",
    "f()",
]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_random_python_never_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, pieces: list[str]) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "f.py"
    path.write_text("from penstock import *\n" + "\n".join(pieces) + "\n")
    assert run(["plan", str(path)]) in (0, 2)
