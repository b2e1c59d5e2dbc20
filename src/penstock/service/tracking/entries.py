"""Values of Penstock as what MLflow keeps of a run: parameters, metrics, tags and files. Pure. Called by teller.

A number is a metric, and a map of numbers one for each; a short text is a tag; what is larger, or of another shape, is a file. Names are given the
characters that MLflow allows, values are cut to the lengths that it takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.expressions.secret import Secret
from penstock.graph.stored import Stored, stored_in

LONGEST_NAME = 250
LONGEST_PARAM = 6000
LONGEST_TAG = 5000
SHORT = 500
"""Characters of a text that is a tag. A longer one is a file."""
_ODD = re.compile(r"[^\w.\- :]")
_ODD_IN_FILE = re.compile(r"[^\w.\-]")


@dataclass(slots=True)
class FileEntry:
    """`content`: a stored value, or the bytes themselves."""

    path: str
    content: Stored | bytes


@dataclass(slots=True)
class Entries:
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    files: list[FileEntry] = field(default_factory=list)


def of_inputs(values: Mapping[str, Any]) -> dict[str, str]:
    """Parameters. Secrets are not shown."""
    return {name: cut(_text(value), LONGEST_PARAM) for name, value in _named(values.items())}


def of_outputs(outputs: Mapping[str, Any]) -> Entries:
    found = Entries()
    for name, value in _named(outputs.items()):
        if isinstance(value, dict) and value and all(_number(item) is not None for item in value.values()):
            # What a function returns has no name of its own: {"loss": 0.1} is the metric loss.
            before = "" if name == "result" else f"{name}."
            inside = _named((f"{before}{key}", item) for key, item in value.items())
            found.metrics |= {key: number for key, item in inside if (number := _number(item)) is not None}
        else:
            _add(found, name, value)
    return found


def _add(found: Entries, name: str, value: Any) -> None:
    number = _number(value)
    if number is not None:
        found.metrics[name] = number
    elif isinstance(value, str) and len(value) > SHORT:
        found.files.append(FileEntry(f"{name}.txt", value.encode()))
    elif value is None or isinstance(value, bool | int | str | Secret):
        found.tags[f"output.{name}"[:LONGEST_NAME]] = _text(value)
    elif isinstance(value, Stored):
        _add_stored(found, name, value)
    else:
        inside = list(stored_in(value))
        for number_of, one in enumerate(inside):
            if one.kind in ("file", "dir"):
                _add_stored(found, f"{name}/{number_of}", one)
        found.files.append(FileEntry(f"{name}.json", json.dumps(shown(value)).encode()))


def _add_stored(found: Entries, name: str, value: Stored) -> None:
    if value.kind == "pickle":  # nobody but Python, with the same classes, could read it
        found.tags[f"output.{name}"[:LONGEST_NAME]] = described(value)
    elif value.kind == "json":
        found.files.append(FileEntry(f"{name}.json", value))
    else:
        last = _ODD_IN_FILE.sub("_", value.name.rpartition("/")[2]).lstrip(".") or "file"
        found.files.append(FileEntry(f"{name}/{last}{'.tar' * (value.kind == 'dir')}", value))


def described(value: Stored) -> str:
    return f"<{value.kind} of {value.size:,} bytes, {value.digest[:19]}>"


def shown(value: Any) -> Any:
    """Plain data: stored values are described, secrets hidden."""
    if isinstance(value, Stored):
        return described(value)
    if isinstance(value, Secret):
        return "***"
    if isinstance(value, list | tuple | range):
        return [shown(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): shown(item) for key, item in value.items()}
    return value


def cut(text: str, longest: int) -> str:
    """It says so itself if it was cut."""
    if len(text) <= longest:
        return text
    said = f"… (cut: {len(text):,} characters)"
    return text[: longest - len(said)] + said


def _text(value: Any) -> str:
    plain = shown(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _named(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    """With names that MLflow takes, no two the same."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        allowed = _ODD.sub("_", str(name)).lstrip(".")[: LONGEST_NAME - 10] or "_"
        number, free = 1, allowed
        while free in found:
            number += 1
            free = f"{allowed}_{number}"
        found[free] = value
    return list(found.items())
