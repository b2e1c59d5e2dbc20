"""What passes between steps: small data as it is, the rest by reference, all of it faithful."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.rebuild import builder
from penstock.artifacts.values import LIMIT, dumps, load_value, loads, read_output, store_value, write_input
from penstock.errors import UserError
from penstock.expressions.types import parse
from penstock.graph.model import Input, Output
from penstock.graph.stored import Stored


@dataclasses.dataclass
class Config:
    rate: float
    tags: list[str]
    home: Path | None = None
    total: int = dataclasses.field(default=0, init=False)


class Score(NamedTuple):
    loss: float
    config: Config


class Model(pydantic.BaseModel):
    name: str
    when: datetime.date


class Colour(enum.Enum):
    RED = 1


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def through(value: Any, blobs: Blobs, folder: Path, type_: str = "any") -> Any:
    """Out of one step, through the store as text, into another."""
    return load_value(loads(dumps(store_value(value, blobs, type_=parse(type_)))), blobs, folder)


KEYS = st.text(max_size=6) | st.just("$stored") | st.just("pairs")
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | st.just("$stored"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
NOTES = st.builds(
    Stored, st.sampled_from(["json", "file"]), st.text(max_size=5), st.integers(0, 9), st.text(max_size=5)
)
NOTED = st.recursive(
    st.integers() | NOTES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
ODD = st.recursive(
    st.integers() | st.text(max_size=5) | st.binary(max_size=5) | st.dates() | st.frozensets(st.integers(), max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers() | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_data_survives_being_written(value: Any) -> None:
    assert loads(dumps(value)) == value


@given(NOTED)
def test_notes_survive_beside_any_data_of_the_users(value: Any) -> None:
    assert loads(dumps(value)) == value


@given(PLAIN)
def test_what_has_no_notes_in_it_is_ordinary_json(value: Any) -> None:
    if "$stored" not in json.dumps(value):
        assert json.loads(dumps(value)) == value


@settings(max_examples=60, deadline=None)
@given(PLAIN | ODD, st.sampled_from([40, LIMIT]))
def test_any_value_comes_out_as_it_went_in(value: Any, limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        blobs = Blobs(folder)
        kept = store_value(value, blobs, limit=limit)
        assert len(dumps(kept)) <= max(limit, 2000)
        found = load_value(loads(dumps(kept)), blobs, Path(folder, "in"))
        assert found == value and type(found) is type(value)


def test_infinities_and_nan_survive(blobs: Blobs, tmp_path: Path) -> None:
    found = through([math.inf, -math.inf, math.nan], blobs, tmp_path)
    assert found[:2] == [math.inf, -math.inf] and math.isnan(found[2])


def test_small_data_is_kept_as_it_is_and_large_data_by_reference(blobs: Blobs, tmp_path: Path) -> None:
    assert store_value([1, "a", None], blobs) == [1, "a", None]
    large = list(range(50_000))
    kept = store_value(large, blobs)
    assert isinstance(kept, Stored) and kept.kind == "json" and len(dumps(kept)) < 200
    assert load_value(kept, blobs, tmp_path) == large
    assert isinstance(store_value("x" * 100_000, blobs), Stored)


def test_tuples_and_ranges_become_lists(blobs: Blobs, tmp_path: Path) -> None:
    assert store_value((1, (2, 3)), blobs) == [1, [2, 3]]
    assert store_value(range(3), blobs) == [0, 1, 2]


def test_objects_stand_apart_inside_lists_and_maps_so_that_the_rest_can_be_read(blobs: Blobs, tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 2)
    kept = store_value((day, {"n": 1, "days": {day}}), blobs)
    assert isinstance(kept[0], Stored) and kept[1]["n"] == 1 and kept[1]["days"].kind == "pickle"
    assert load_value(kept, blobs, tmp_path) == [day, {"n": 1, "days": {day}}]


def test_a_crowd_of_objects_is_one_blob(blobs: Blobs) -> None:
    kept = store_value([datetime.date(2026, 1, 1) + datetime.timedelta(n) for n in range(1000)], blobs)
    assert isinstance(kept, Stored) and kept.kind == "pickle"
    assert len(list(blobs.all())) < 300


def test_a_declared_list_of_objects_can_still_be_looped_over(blobs: Blobs) -> None:
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(n) for n in range(400)]
    kept = store_value(days, blobs, type_=parse("list[object]"))
    assert len(kept) == 400 and all(item.kind == "pickle" for item in kept)


def test_a_value_that_contains_itself_passes(blobs: Blobs, tmp_path: Path) -> None:
    knot: list[Any] = [1]
    knot.append(knot)
    found = through(knot, blobs, tmp_path)
    assert found[0] == 1 and found[1] is found


def test_local_classes_and_functions_pass(blobs: Blobs, tmp_path: Path) -> None:
    class Here:
        number = 7

    assert through(Here(), blobs, tmp_path).number == 7
    assert through(lambda x: x + 1, blobs, tmp_path)(1) == 2


def test_what_cannot_be_passed_is_said_in_a_sentence(blobs: Blobs) -> None:
    import threading

    with pytest.raises(ValueError, match="is a lock, which cannot be passed on: .* Return plain data"):
        store_value(threading.Lock(), blobs)


def test_classes_with_fields_are_maps_between_steps_and_themselves_again_for_who_asks(
    blobs: Blobs, tmp_path: Path
) -> None:
    config = Config(0.1, ["a"])
    config.total = 5
    kept = store_value(Score(0.5, config), blobs)
    assert kept == {"loss": 0.5, "config": {"rate": 0.1, "tags": ["a"], "home": None, "total": 5}}

    def task(
        score: Score, others: list[Config], maybe: Config | None, ids: set[int], pair: tuple[int, str]
    ) -> None: ...

    convert = builder(task)
    assert convert is not None
    plain = {"score": kept, "others": [kept["config"]], "maybe": None, "ids": [1, 1], "pair": [1, "x"]}
    found = convert(plain)
    assert found == {"score": Score(0.5, config), "others": [config], "maybe": None, "ids": {1}, "pair": (1, "x")}
    assert found["score"].config.total == 5


def test_pydantic_models_are_maps_too(blobs: Blobs, tmp_path: Path) -> None:
    def task(model: Model) -> None: ...

    model = Model(name="m", when=datetime.date(2026, 1, 1))
    convert = builder(task)
    assert convert is not None
    assert convert({"model": through(model, blobs, tmp_path)}) == {"model": model}
    assert store_value(model, blobs)["name"] == "m"


def test_functions_that_ask_for_plain_data_are_not_held_up() -> None:
    def task(a: int, b: list[str], c: dict[str, float], d=None) -> Config: ...  # type: ignore[no-untyped-def, empty-body]

    assert builder(task) is None


def test_subclasses_of_plain_types_become_plain_where_that_was_declared(blobs: Blobs, tmp_path: Path) -> None:
    assert store_value(Counter("aab"), blobs, type_=parse("dict[int]")) == {"a": 2, "b": 1}
    assert store_value({3, 1, 2}, blobs, type_=parse("list[int]")) == [1, 2, 3]
    assert store_value(map(abs, [-1]), blobs, type_=parse("list[int]")) == [1]
    assert store_value(True, blobs, type_=parse("int")) == 1
    assert through(Counter("aab"), blobs, tmp_path) == Counter("aab")
    assert through(Colour.RED, blobs, tmp_path) is Colour.RED


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("x", "int"),
        (None, "int"),
        ([1, "a"], "list[int]"),
        ({"a": 1}, "list[int]"),
        ([1], "tuple[int, int]"),
        (1.5, "int"),
    ],
)
def test_a_value_of_another_type_than_declared_is_refused_in_a_sentence(value: Any, type_: str, blobs: Blobs) -> None:
    with pytest.raises(ValueError, match="which is not"):
        store_value(value, blobs, type_=parse(type_))


def test_files_and_folders_pass_by_content(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "deep" / "a.txt").write_text("a")
    (tmp_path / "out" / "run").write_text("#!/bin/sh\n")
    (tmp_path / "out" / "run").chmod(0o755)
    (tmp_path / "out" / "link").symlink_to("deep/a.txt")
    kept = store_value({"file": tmp_path / "out" / "run", "dir": tmp_path / "out"}, blobs)
    assert (kept["file"].kind, kept["file"].name, kept["dir"].kind) == ("file", "run", "dir")
    found = load_value(kept, blobs, tmp_path / "in")
    assert found["file"].read_text() == "#!/bin/sh\n" and found["file"].name == "run"
    assert (found["dir"] / "deep" / "a.txt").read_text() == (found["dir"] / "link").read_text() == "a"
    assert (found["dir"] / "run").stat().st_mode & 0o100
    (found["dir"] / "deep" / "a.txt").write_text("changed")
    assert (load_value(kept, blobs, tmp_path / "again")["dir"] / "deep" / "a.txt").read_text() == "a"


def test_the_same_folder_has_the_same_digest_whenever_it_was_made(blobs: Blobs, tmp_path: Path) -> None:
    import os

    for name, when in (("one", 1_000_000), ("two", 2_000_000)):
        (tmp_path / name / "d").mkdir(parents=True)
        for file in ("b", "a") if name == "one" else ("a", "b"):
            (tmp_path / name / "d" / file).write_text(file)
            os.utime(tmp_path / name / "d" / file, (when, when))
    assert store_value(tmp_path / "one", blobs).digest == store_value(tmp_path / "two", blobs).digest


def test_a_path_to_nothing_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        store_value(tmp_path / "nowhere", blobs)


def test_text_declared_to_be_a_file_is_its_path(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hi")
    kept = store_value(str(tmp_path / "x"), blobs, type_=parse("file"))
    assert kept.kind == "file"
    assert store_value([str(tmp_path / "x")], blobs, type_=parse("list[file]"))[0].kind == "file"


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("hello\n", "str", "hello"),
        ("a\n\n", "str", "a\n"),
        (" 42 \n", "int", 42),
        ("1e3", "float", 1000.0),
        ("true\n", "bool", True),
        ("False", "bool", False),
        ("[1, 2]\n", "list[int]", [1, 2]),
        ("plain", "any", "plain"),
        ("3", "any", 3),
        ("", "optional[int]", None),
        ("null", "optional[int]", None),
        ("7", "optional[int]", 7),
        ('{"a": 1}', "dict[int]", {"a": 1}),
        ("x y", "optional[str]", "x y"),
    ],
)
def test_what_a_command_wrote_is_read_as_declared(
    text: str, type_: str, value: Any, blobs: Blobs, tmp_path: Path
) -> None:
    (tmp_path / "o").write_text(text)
    assert read_output(Output(name="o", type=parse(type_)), tmp_path / "o", blobs) == value


@pytest.mark.parametrize(
    ("text", "type_", "said"),
    [
        ("many", "int", "the output 'o' is 'many', which is not int"),
        ("yes", "bool", "which is not bool"),
        ("[1, 'a']", "list[int]", "it is not JSON"),
        ('["a"]', "list[int]", "which is not"),
        ("1,5", "float", "not float"),
    ],
)
def test_what_it_should_not_have_written_is_told(
    text: str, type_: str, said: str, blobs: Blobs, tmp_path: Path
) -> None:
    (tmp_path / "o").write_text(text)
    with pytest.raises(ValueError, match=said):
        read_output(Output(name="o", type=parse(type_)), tmp_path / "o", blobs)


def test_an_output_that_was_not_written_is_told(blobs: Blobs, tmp_path: Path) -> None:
    for type_ in ("str", "file", "dir"):
        with pytest.raises(ValueError, match="the output 'o' was not written"):
            read_output(Output(name="o", type=parse(type_)), tmp_path / "o", blobs)
    (tmp_path / "o").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="declare its type as file"):
        read_output(Output(name="o", type=parse("str")), tmp_path / "o", blobs)
    with pytest.raises(ValueError, match="is a file, which is not dir"):
        read_output(Output(name="o", type=parse("dir")), tmp_path / "o", blobs)


def test_inputs_are_laid_as_files(blobs: Blobs, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "x"
    given = Input(name="x", value=None)
    write_input(given, "text", place, blobs)
    assert place.read_text() == "text"
    write_input(given, {"b": 1, "a": [True]}, place, blobs)
    assert json.loads(place.read_text()) == {"b": 1, "a": [True]}
    write_input(given, store_value(list(range(50_000)), blobs), place, blobs)
    assert json.loads(place.read_text()) == list(range(50_000))
    (tmp_path / "f").write_bytes(b"\x00\x01")
    write_input(given, store_value(tmp_path / "f", blobs), tmp_path / "g", blobs)
    assert (tmp_path / "g").read_bytes() == b"\x00\x01"


def test_a_class_that_is_not_here_is_named(blobs: Blobs, tmp_path: Path) -> None:
    data = b"cno_such_module\nThing\n."
    kept = Stored("pickle", blobs.put(data), len(data), "Thing")
    with pytest.raises(UserError, match="a value of class Thing cannot be read by this step") as error:
        load_value(kept, blobs, tmp_path)
    assert error.value.code == "P702"
