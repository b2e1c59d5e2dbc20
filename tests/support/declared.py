"""Classes that functions declare, and values of them. Imported by the tests of rebuilding, by workers and by the shim."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import typing
import uuid
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pydantic
from hypothesis import strategies as st


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Mode(str, enum.Enum):  # noqa: UP042
    FAST = "fast"
    SLOW = "slow"


class Planet(enum.Enum):
    """Its values are not plain: it is passed on by name."""

    EARTH = (1.0, "blue")
    MARS = (0.1, "red")


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float
    color: Color
    since: datetime.date
    home: Path | None = None
    limits: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plain:
    """All of its fields are plain data, in every way to declare it."""

    count: int
    rate: float
    name: str
    on: bool = False
    sizes: list[int] = dataclasses.field(default_factory=list)
    weights: dict[str, float] = dataclasses.field(default_factory=dict)
    by_number: dict[int, str] = dataclasses.field(default_factory=dict)
    most: int | None = None
    either: typing.Union[int, str] = 0  # noqa: UP007
    when: datetime.date | int | str = 0
    rest: list = dataclasses.field(default_factory=list)  # type: ignore[type-arg]
    more: dict = dataclasses.field(default_factory=dict)  # type: ignore[type-arg]
    anything: Any = None
    seen: typing.Sequence[str] = dataclasses.field(default_factory=list)


class Score(NamedTuple):
    loss: decimal.Decimal
    level: Level


class Model(pydantic.BaseModel):
    name: str
    mode: Mode
    at: datetime.datetime


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
PATHS = st.lists(st.text("abc.", min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda parts: Path("no such folder", *(f"x{part}" for part in parts))
)
NAIVE = st.datetimes().map(lambda time: time.replace(fold=0))  # text has no fold
TIMES = NAIVE | NAIVE.map(lambda time: time.replace(tzinfo=datetime.UTC))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
CONFIGS = st.builds(
    Config,
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(Color),
    st.dates(),
    st.none() | PATHS,
    st.lists(st.integers(), max_size=3).map(tuple),
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
PLAINS = st.builds(
    Plain,
    st.integers(),
    FINITE,
    TEXT,
    st.booleans(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(TEXT, FINITE, max_size=2),
    most=st.none() | st.integers(),
    either=st.integers() | TEXT,
    when=st.integers() | st.dates(),
    rest=st.lists(st.integers() | TEXT, max_size=2),
    more=st.dictionaries(TEXT, TEXT, max_size=2),
    anything=st.integers() | TEXT,
    seen=st.lists(TEXT, max_size=2),
)
DECLARED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "color": (Color, st.sampled_from(Color)),
    "level": (Level, st.sampled_from(Level)),
    "mode": (Mode, st.sampled_from(Mode)),
    "planet": (Planet, st.sampled_from(Planet)),
    "right": (Right, st.sampled_from([Right.READ, Right.READ | Right.WRITE])),
    "word": (Literal["a", "b", 1], st.sampled_from(["a", "b", 1])),
    "config": (Config, CONFIGS),
    "plain": (Plain, PLAINS),
    "score": (Score, st.builds(Score, DECIMALS, st.sampled_from(Level))),
    "model": (Model, st.builds(Model, name=TEXT, mode=st.sampled_from(Mode), at=NAIVE)),
    "day": (datetime.date, st.dates()),
    "at": (datetime.datetime, TIMES),
    "hour": (datetime.time, st.times().map(lambda time: time.replace(fold=0))),
    "price": (decimal.Decimal, DECIMALS),
    "id": (uuid.UUID, st.uuids()),
    "path": (Path, PATHS),
    "paths": (list[Path], st.lists(PATHS, max_size=3)),
    "colors": (list[Color], st.lists(st.sampled_from(Color), max_size=3)),
    "by_color": (dict[Color, int], st.dictionaries(st.sampled_from(Color), st.integers())),
    "maybe": (Level | None, st.none() | st.sampled_from(Level)),
    "either": (typing.Union[datetime.date, datetime.datetime], st.dates() | TIMES),  # noqa: UP007
    "pair": (tuple[Color, datetime.date], st.tuples(st.sampled_from(Color), st.dates())),
    "levels": (set[Level], st.sets(st.sampled_from(Level))),
    "configs": (dict[str, Config], st.dictionaries(TEXT, CONFIGS, max_size=2)),
}
"""Name -> an annotation, and its values."""

_DAY, _NOON = datetime.date(2024, 5, 17), datetime.datetime(2024, 5, 17, 12, 30, tzinfo=datetime.UTC)
_CONFIG = Config(0.5, Color.BLUE, _DAY, Path("a/b"), (1, 2))
EXAMPLES: dict[str, Any] = {
    "color": Color.RED,
    "level": Level.HIGH,
    "mode": Mode.SLOW,
    "planet": Planet.MARS,
    "right": Right.READ | Right.WRITE,
    "word": "b",
    "config": _CONFIG,
    "plain": Plain(1, 0.5, "n", sizes=[1], weights={"a": 1.5}),
    "score": Score(decimal.Decimal("1.10"), Level.LOW),
    "model": Model(name="m", mode=Mode.FAST, at=datetime.datetime(2024, 5, 17, 12, 30)),
    "day": _DAY,
    "at": _NOON,
    "hour": datetime.time(1, 2),
    "price": decimal.Decimal("12345678901234567890.10"),
    "id": uuid.UUID(int=7),
    "path": Path("a.csv"),
    "paths": [Path("a.csv"), Path("b")],
    "colors": [Color.BLUE, Color.RED],
    "by_color": {Color.RED: 1},
    "maybe": Level.LOW,
    "either": _DAY,
    "pair": (Color.RED, _DAY),
    "levels": {Level.LOW, Level.HIGH},
    "configs": {"a": _CONFIG},
}
