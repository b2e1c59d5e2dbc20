"""Functions as scripts, run for real by a bare Python in a temporary folder."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from penstock.author.load import load_graph
from penstock.author.pack import pack
from penstock.errors import UserError
from penstock.expressions.types import parse
from penstock.formats import shim
from penstock.graph.model import Function, Output, Step, Workflow

FLOW = '''
"""Imports penstock, which the image does not have, and a neighbour, which the bundle brings."""
import dataclasses
import datetime
import decimal
import enum
import pathlib
import typing
from penstock import Workflow, ContainerJob, for_loop, task, workflow
from helper import double

@dataclasses.dataclass
class Config:
    rate: float
    tags: typing.List[str]

job = ContainerJob(name="x", image="y", command=["z"])

@for_loop(items=[1, 2])
def looped(i):
    return ContainerJob(name="looped", image="y", args=[i, job.outputs["a"] if False else "b"])

@task(cpu=2, retry=3)
def train(x: int, words: list, config: Config, note: str = "") -> typing.Dict[str, typing.Any]:
    assert isinstance(config, Config), config
    return {"x": double(x), "words": words, "rate": config.rate, "note": note}

@task
def several(x: int) -> typing.Tuple[int, str]:
    print("on stdout")
    return x + 1, "3"

@task
def fails(kind: str) -> int:
    if kind == "value":
        raise ValueError("no")
    if kind == "os":
        raise FileNotFoundError("gone")
    if kind == "exit":
        raise SystemExit(0)
    return "not an int"

@task
def makes(text: str) -> pathlib.Path:
    pathlib.Path("made.txt").write_text(text)
    return pathlib.Path("made.txt")

@task
def measures(data: pathlib.Path) -> int:
    return len(data.read_text())

@task
def odd() -> set:
    return {3, 1, 2}

@task
def takes(values):
    return sorted(values)

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3

@task
def declared(color: Color, level: Level, day: datetime.date, price: decimal.Decimal, word: typing.Literal["a", "b"]) -> Color:
    print(color, repr(level), day.year, price, word)
    return Color.BLUE

@task
def chooses(x: int) -> typing.Literal["a", "b"]:
    return "abc"[x]

@workflow
def flow(x: int = 1, kind: str = "value"):
    a = train(x, ["a"], {"rate": 0.5, "tags": []})
    b = several(x)
    c = fails(kind)
    d = makes(kind)
    e = measures(d)
    f = takes(odd())
    g = declared(Color.RED, Level.LOW, datetime.date(2024, 5, 17), decimal.Decimal("1.10"), "a")
    h = chooses(x)
'''


class Shop:
    """A workflow's code, and a way to call its functions as a pod would."""

    def __init__(self, folder: Path) -> None:
        (folder / "flow.py").write_text(FLOW)
        (folder / "helper.py").write_text("def double(x):\n    return 2 * x\n")
        self.workflow = load_graph(folder / "flow.py")
        packed = pack(self.workflow)
        assert packed is not None
        self.bundle = packed[0]
        self.folder = folder
        code = folder / "code"
        code.mkdir()
        text = shim.payload(self.bundle)
        half = len(text) // 2 + 1
        (code / "000").write_text(text[:half])
        (code / "001").write_text(text[half:])

    def function(self, name: str) -> Function:
        steps = self.workflow.steps
        return next(s.action for s in steps if isinstance(s.action, Function) and s.action.name == name)

    def call(self, name: str, given: dict[str, tuple[str, str]], outputs: dict[str, str], **more: Any) -> Any:
        """(exit code, output -> text)"""
        out = self.folder / f"out-{name}"
        made = shim.function_container(
            self.function(name),
            [shim.FunctionInput(one, wire, json.dumps(text)) for one, (wire, text) in given.items()],
            [Output(name=one, type=parse(type_)) for one, type_ in outputs.items()],
            code=str(self.folder / "code"),
            folder=str(out),
            **more,
        )
        assert "{{" not in made.source
        script = self.folder / "script"
        script.write_text(made.source)
        words = [sys.executable, "-I", "-S", str(script)]
        self.done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert set(made.outputs) == set(outputs)
        found = {one: Path(path).read_text() for one, path in made.outputs.items() if Path(path).exists()}
        return self.done.returncode, found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"))


def test_values_of_all_kinds(shop: Shop) -> None:
    given = {
        "x": ("int", "21"),
        "words": ("list[str]", '["a","b"]'),
        "config": ("any", '{"rate":0.5,"tags":["t"]}'),
        "note": ("str", "3"),
    }
    code, found = shop.call("train", given, {"result": "dict[any]"})
    assert code == 0, shop.done.stderr
    assert json.loads(found["result"]) == {"x": 42, "words": ["a", "b"], "rate": 0.5, "note": "3"}


def test_what_a_function_declares(shop: Shop) -> None:
    given = {
        "color": ("str", "red"),
        "level": ("int", "3"),
        "day": ("object", "2024-05-17"),
        "price": ("object", "12345678901234567890.10"),
        "word": ("str", "b"),
    }
    code, found = shop.call("declared", given, {"result": "str"})
    assert (code, found) == (0, {"result": "blue"}), shop.done.stderr
    assert shop.done.stdout.split() == ["Color.RED", "<Level.HIGH:", "3>", "2024", "12345678901234567890.10", "b"]
    for name, (wire, text), said in (
        ("color", ("str", "green"), "color of declared() is 'green', which is not a Color; use one of ['red', 'blue']"),
        ("level", ("int", "2"), "level of declared() is 2, which is not a Level; use one of [1, 3]"),
        ("day", ("object", "x"), "day of declared() is 'x', which is not a date; write it as 2024-05-17"),
        ("word", ("str", "c"), "word of declared() is 'c', which is not one of ['a', 'b']"),
    ):
        code, _ = shop.call("declared", {**given, name: (wire, text)}, {"result": "str"})
        assert code == 1 and said in shop.done.stderr
    assert shop.call("chooses", {"x": ("int", "1")}, {"result": "str"}) == (0, {"result": "b"})
    code, found = shop.call("chooses", {"x": ("int", "2")}, {"result": "str"})
    assert code == 1 and "'c', which is not one of ['a', 'b']" in shop.done.stderr


def test_text_under_any_is_told_from_numbers(shop: Shop) -> None:
    code, found = shop.call("several", {"x": ("int", "1")}, {"first": "int", "second": "any"})
    assert (code, found, shop.done.stdout) == (0, {"first": "2", "second": '"3"'}, "on stdout\n")
    code, found = shop.call("several", {"x": ("int", "1")}, {"first": "int", "second": "str"})
    assert found["second"] == "3"


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("value", 75, "ValueError: no"),
        ("os", 1, "FileNotFoundError"),
        ("exit", 1, "SystemExit"),
        ("", 1, "which is not int"),
    ],
)
def test_failures(shop: Shop, kind: str, code: int, said: str) -> None:
    got, found = shop.call("fails", {"kind": ("str", kind)}, {"result": "int"}, retry_on=["ValueError", "OSError"])
    assert (got, found) == (code, {}) and said in shop.done.stderr


def test_files(shop: Shop) -> None:
    code, found = shop.call("makes", {"text": ("str", "häh")}, {"result": "file"})
    assert (code, found) == (0, {"result": "häh"}), shop.done.stderr
    path = str(shop.folder / "out-makes" / "result")
    assert shop.call("measures", {"data": ("file", path)}, {"result": "int"}) == (0, {"result": "3"})


def test_objects_and_gathered_results(shop: Shop) -> None:
    code, found = shop.call("odd", {}, {"result": "object"})
    assert code == 0 and "$pickle" in found["result"]
    assert (
        shop.call("takes", {"values": ("object", found["result"])}, {"result": "list[int]"})[1]["result"] == "[1,2,3]"
    )
    gathered = json.dumps(["1", "2", '"3"'])
    assert (
        shop.call("takes", {"values": ("each int", json.dumps(["2", "1"]))}, {"result": "any"})[1]["result"] == "[1,2]"
    )
    assert shop.call("takes", {"values": ("each str", gathered)}, {"result": "any"})[1]["result"] == json.dumps(
        ['"3"', "1", "2"], separators=(",", ":")
    )


def test_a_function_of_pythons_own(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "000").write_text(shim.payload(None))
    function = Function(module="math", name="hypot", code="sha256:0")
    made = shim.function_container(
        Function(module="json", name="loads"),
        [shim.FunctionInput("s", "str", "'[1]'")],
        [Output(name="o")],
        code=str(tmp_path),
        folder=str(tmp_path / "o"),
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", made.source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and (tmp_path / "o" / "o").read_text() == "[1]", done.stderr
    assert not shim.missing_code(Workflow(name="w", steps=(Step(name="a", action=function),)), None, "P844")


def test_code_that_is_not_at_hand(shop: Shop) -> None:
    with pytest.raises(UserError, match="P844 the code of flow.train"):
        shim.require_code(shop.workflow, None, "P844")
    shim.require_code(shop.workflow, shop.bundle, "P844")
    known = shim.Bundle.of(shop.bundle)
    assert len(known.functions) == 9 and not known.by_value


def test_the_program_is_old_python() -> None:
    """No syntax that Python 3.8 does not know, and nothing but the standard library."""
    import ast

    text = Path(shim.__file__).with_name("shim_main.txt").read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    modules = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert modules <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match | ast.NamedExpr)]
    source = shim.function_container(Function(module="m", name="f"), [], []).source
    ast.parse(textwrap.dedent(source), feature_version=(3, 8))
