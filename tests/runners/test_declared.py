"""A value of every type that functions declare: as a parameter, a default, a constant and a result it is what it is in plain Python,
wherever the function runs."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock import LocalRunner, RunFailed
from penstock.artifacts.blobs import Blobs
from penstock.errors import AuthorError, PlanError
from tests.support.declared import DECLARED, EXAMPLES
from tests.support.source import module

PASSED_ON = [name for name in DECLARED if name not in ("path", "paths", "config", "configs")]
"""Without paths: a path that a step returns stands for a file, which must be there."""
ALL = ", ".join(f"{name}: H[{name!r}]" for name in DECLARED)
FLOW = f"""
from tests.support.declared import DECLARED, EXAMPLES, Color
H = {{name: hint for name, (hint, _) in DECLARED.items()}}

@task
def show({ALL}) -> str:
    return repr([{", ".join(DECLARED)}])

@workflow
def given({ALL}):
    return show({", ".join(DECLARED)})

@workflow
def default({", ".join(f"{name}: H[{name!r}] = EXAMPLES[{name!r}]" for name in DECLARED)}):
    return show({", ".join(DECLARED)})

@workflow
def constant():
    return show({", ".join(f"EXAMPLES[{name!r}]" for name in DECLARED)})
""" + "".join(
    f"""
@task
def same_{name}(x: H[{name!r}]) -> H[{name!r}]:
    return x

@task
def show_{name}(x: H[{name!r}]) -> str:
    return repr(x)

@workflow
def pass_{name}(x: H[{name!r}]):
    return show_{name}(same_{name}(x))

@workflow
def result_{name}(x: H[{name!r}]):
    return same_{name}(x)
"""
    for name in PASSED_ON
)
SHOWN = repr(list(EXAMPLES.values()))


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("declared")
    (folder / "declared_flow.py").write_text("from penstock import task, workflow\n" + FLOW)
    sys.path.insert(0, str(folder))
    try:
        import declared_flow  # type: ignore[import-not-found]

        yield declared_flow
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("declared_flow", None)


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    with LocalRunner(home=tmp_path_factory.mktemp("home"), inline=True) as runner:
        yield runner


@pytest.mark.parametrize("where", ["inline", "workers", "process"])
def test_parameters_defaults_and_constants(flow: Any, tmp_path: Path, where: str) -> None:
    with LocalRunner(home=tmp_path / "home", on={"function": where}, fresh=True) as runner:
        runs = [runner.run(flow.given, **EXAMPLES), runner.run(flow.default), runner.run(flow.constant)]
        assert [run.check().outputs["result"] for run in runs] == [SHOWN] * 3
        assert flow.given(**EXAMPLES) == flow.default() == flow.constant() == SHOWN


@settings(max_examples=15, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_any_value_as_a_parameter(flow: Any, inline: LocalRunner, data: st.DataObject) -> None:
    drawn = {name: data.draw(values) for name, (_, values) in DECLARED.items()}
    assert inline.run(flow.given, **drawn).check().outputs["result"] == flow.given(**drawn)


@pytest.mark.parametrize("name", PASSED_ON)
def test_results_are_what_was_returned(flow: Any, inline: LocalRunner, name: str) -> None:
    value = EXAMPLES[name]
    assert inline.run(getattr(flow, f"pass_{name}"), x=value).check().outputs["result"] == repr(value)
    found = inline.run(getattr(flow, f"result_{name}"), x=value).check().outputs["result"]
    assert found == value and type(found) is type(value)


PICK = """
from enum import Enum, IntEnum
from typing import Literal
class Color(Enum):
    RED = "red"
    BLUE = "blue"

@task
def pick(n: int) -> Color:
    return Color.RED if n else Color.BLUE

@task
def word(n: int) -> Literal["a", "b"]:
    return "ab"[n] if n < 2 else "c"

@task
def name(c: Color) -> str:
    return c.name

@task
def undeclared(c):
    return c
"""


def test_conditions_and_loops_know_members(inline: LocalRunner) -> None:
    made = module(
        PICK
        + """
@workflow
def flow(c: Color = Color.RED):
    found = [name(one) for one in [Color.RED, Color.BLUE]]
    if pick(1) == Color.RED and c != Color.BLUE:
        last = name(c)
    else:
        last = "neither"
    return [found, last]
"""
    )
    for color in (made.Color.RED, made.Color.BLUE):
        assert inline.run(made.flow, c=color).check().outputs["result"] == made.flow(color)


MEMBERS = """
import enum
from penstock import task, workflow

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5

class Pair(enum.Enum):
    A = (1, 2)
    B = "b"

@task
def same(c: Color) -> Color:
    return c

@task
def all_of(n: int) -> list[Color]:
    return list(Color)[:n]

@task
def show(text: str) -> str:
    return repr(text)

@task
def show_all(cs: list[Color], c: Color) -> str:
    return repr([cs, c])

@workflow
def flow(c: Color = Color.RED, level: Level = Level.HIGH, pair: Pair = Pair.B):
    found = [same(one) for one in Color]
    last = Color.BLUE
    for one in Color:
        last = same(one)
    if c is Color.RED and Color.BLUE is not c:
        a = "red"
    else:
        a = "not red"
    made = same(c)
    names = [show(one.name) for one in all_of(2) if one.value != "red"]
    if made.value == "red" or level.name == "LOW" or (c in (Color.BLUE,) and c not in [Color.RED]):
        b = c.value + level.name + pair.name
    else:
        b = c.name
    return [show_all(found, last), a, b, names, level.value, level < Level.HIGH, len(Color), [one.value for one in Color]]

@workflow
def unequal(c: Color = Color.RED):
    return "OTHER" == c

@workflow
def outside(c: Color = Color.RED):
    return c in [Color.RED, "OTHER"]
"""


@pytest.mark.parametrize(
    "given", [{}, {"c": "BLUE"}, {"c": "BLUE", "level": "LOW"}, {"level": "LOW", "pair": "A"}], ids=str
)
def test_members_have_names_and_values_and_an_enum_its_members(given: dict[str, str], inline: LocalRunner) -> None:
    made = module(MEMBERS)
    classes = {"c": made.Color, "level": made.Level, "pair": made.Pair}
    members = {name: classes[name][member] for name, member in given.items()}
    assert inline.run(made.flow, **members).check().outputs["result"] == json.loads(json.dumps(made.flow(**members)))


@pytest.mark.parametrize(
    ("other", "fix"), [('"red"', "write Color.RED"), ('"RED"', "write Color.RED"), ('"x"', "write .value or .name")]
)
def test_a_member_is_never_equal_to_something_else(other: str, fix: str) -> None:
    made = module(MEMBERS.replace('"OTHER"', other))
    with pytest.raises(AuthorError, match=f"P312 a member of an Enum is never equal.*{fix}"):
        made.unequal.graph
    with pytest.raises(AuthorError, match=f"P312 a member of an Enum is never equal.*{fix}"):
        made.outside.graph


def test_what_a_function_returns_is_one_of_its_values(inline: LocalRunner) -> None:
    made = module(PICK + "\n@workflow\ndef flow(n: int):\n    return word(n)\n")
    assert inline.run(made.flow, n=1).check().outputs["result"] == "b"
    with pytest.raises(RunFailed, match=r"what it returned is 'c', which is not one of the 2 values.*'a', 'b'"):
        inline.run(made.flow, n=2).check()


@pytest.mark.parametrize(
    ("call", "said", "fix"),
    [
        ('name("green")', "c of name() is 'green', which is not a Color", "use one of 'red', 'blue'"),
        (
            "undeclared(Color.RED)",
            "c of undeclared() is <Color.RED: 'red'>, which is not passed on as it is",
            "c: Color",
        ),
        ("undeclared([Color.RED])", "would arrive", "declare it"),
    ],
)
def test_a_constant_that_would_not_arrive_is_refused_at_its_line(call: str, said: str, fix: str) -> None:
    made = module(f"{PICK}\n@workflow\ndef flow():\n    return {call}\n")
    with pytest.raises(AuthorError) as caught:
        _ = made.flow.graph
    problem = caught.value.problems[0]
    assert problem.code == "P309" and said in problem.message and fix in problem.fix and problem.source is not None


def test_a_default_that_is_not_what_is_declared_is_refused() -> None:
    made = module(f'{PICK}\n@workflow\ndef flow(w: Literal["a", "b"] = "c"):\n    return undeclared(w)\n')
    with pytest.raises(AuthorError, match="P402 the default of w is 'c'"):
        _ = made.flow.graph


PARTS = """
import dataclasses, datetime, enum
from penstock import task, workflow

class Color(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Row:
    n: int
    day: datetime.date = datetime.date(2024, 5, 17)

@task
def color() -> Color:
    return Color.RED

@task
def row(n: int) -> Row:
    return Row(n)

@workflow
def inner(n: int):
    return row(n)

@workflow
def flow(c: Color = Color.RED):
    called = inner(3)
    many = [inner(n) for n in [4, 5]]
    return {"a": [color(), row(1)], "b": row(2), "c": c, "called": called, "many": many, "rows": [row(n) for n in [6]], "n": 7}
"""


def test_parts_of_a_result_are_what_their_steps_declare(inline: LocalRunner) -> None:
    made = module(PARTS)
    run = inline.run(made.flow).check()
    assert repr(run.result) == repr(made.flow())
    steps = {name: run[name].result for name in ("color", "row", "inner", "inner-2", "inner-2/row", "row-3")}
    row = made.row
    assert repr(steps) == repr(
        {
            "color": made.Color.RED,
            "row": row(1),
            "inner": row(3),
            "inner-2": [row(4), row(5)],
            "inner-2/row": [row(4), row(5)],
            "row-3": [row(6)],
        }
    )
    assert repr(run["inner-2"][1].result) == repr(run["inner-2[1]/row"].result) == repr(row(5))


def test_parameters_from_python_are_checked_before_the_run(inline: LocalRunner) -> None:
    made = module(PICK + "\n@workflow\ndef flow(c: Color):\n    return name(c)\n")
    with pytest.raises(PlanError, match="P402 c is 'green', which is not a Color.*'red', 'blue'"):
        inline.run(made.flow, c="green")
    with pytest.raises(PlanError, match="P402 c=<object object.*cannot be recorded as a parameter"):
        inline.run(made.flow, c=object())
    assert inline.run(made.flow, c="blue").check().outputs["result"] == "BLUE"


def test_files_in_a_list_are_tracked_by_their_content(inline: LocalRunner, tmp_path: Path) -> None:
    made = module(
        """
from pathlib import Path
@task
def read(files: list[Path]) -> list[str]:
    return [file.read_text() for file in files]

@workflow
def flow(files: list[Path]):
    return read(files)
"""
    )
    files = [tmp_path / "a", tmp_path / "b"]
    for text in ("one", "two"):
        files[1].write_text(text)
        files[0].write_text("zero")
        assert inline.run(made.flow, files=files).check().outputs["result"] == ["zero", text]


def test_a_recorded_result_that_is_not_of_the_declared_type_is_not_reused(tmp_path: Path) -> None:
    """Whoever can write to the store could put a pickle where a number is expected."""
    made = module(
        """
@task
def count(n: int) -> int:
    return n + 1

@task
def words(n: int) -> list[int]:
    return [n]

@workflow
def flow(n: int):
    return [count(n), words(n)]
"""
    )
    pickled = '{"$stored":{"kind":"pickle","digest":"%s","size":5,"name":"Evil"}}'
    with LocalRunner(home=tmp_path, inline=True) as runner:
        assert runner.run(made.flow, n=1).check().outputs["result"] == [2, [1]]
        bomb = Blobs(runner.settings.artifacts).put(b"bomb!")
        for wrong in (pickled % bomb, '"text"', "null", "[1]"):
            with closing(sqlite3.connect(tmp_path / "state.db")) as db, db:
                done = db.execute("UPDATE results SET outputs = ?", [f'{{"result":{wrong}}}'])
                assert done.rowcount == 2
            assert runner.run(made.flow, n=1).check().outputs["result"] == [2, [1]]
