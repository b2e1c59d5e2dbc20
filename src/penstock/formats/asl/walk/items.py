"""The items of a Map: from the data, or from the text that an ItemReader has read; and their batches. Called by maps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.formats.asl.language.failures import ITEM_READER, NoMatch, StateFailure
from penstock.formats.asl.language.intrinsics import compact
from penstock.formats.asl.language.paths import follow, read_path
from penstock.formats.asl.language.scope import Scope

LARGEST_BATCH: Final = 262_144
"""Bytes of the input of one execution."""
MAX_CELL: Final = 10_000_000


def read_items(config: Mapping[str, Any], content: Any) -> list[Any]:
    """The items in what was read. Raises StateFailure."""
    if isinstance(content, list):
        return content
    kind = str(config.get("InputType", "JSON")).upper()
    if not isinstance(content, str):
        raise StateFailure(ITEM_READER, "The item source is not text.")
    try:
        if kind == "CSV":
            return _csv(config, content)
        if kind == "JSONL":
            return [json.loads(line) for line in content.splitlines() if line.strip()]
        if kind == "JSON":
            return _json(config, json.loads(content))
    except StateFailure:
        raise
    except (ValueError, RecursionError, csv.Error) as error:
        raise StateFailure(ITEM_READER, f"The item source is not {kind}: {error}") from None
    raise StateFailure(ITEM_READER, f"Items of the type {kind} cannot be read here.")


def _json(config: Mapping[str, Any], data: Any) -> list[Any]:
    pointer = config.get("ItemsPointer")
    if isinstance(pointer, str):
        data = _pointed(data, pointer)
    if not isinstance(data, list):
        raise StateFailure(ITEM_READER, "Attempting to map over non-iterable node.")
    return data


def _pointed(data: Any, pointer: str) -> Any:
    """What a JSON pointer, or a path, picks."""
    if pointer.startswith("$"):
        try:
            return follow(read_path(pointer), data, Scope())
        except (NoMatch, ValueError) as error:
            raise StateFailure(ITEM_READER, f"ItemsPointer: {error}") from None
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(data, dict) and name in data:
            data = data[name]
        elif isinstance(data, list) and name.isdigit() and int(name) < len(data):
            data = data[int(name)]
        else:
            raise StateFailure(ITEM_READER, f"ItemsPointer {pointer} meets nothing.")
    return data


def _csv(config: Mapping[str, Any], content: str) -> list[Any]:
    delimiters = {"COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "SPACE": " ", "TAB": "\t"}
    delimiter = delimiters.get(str(config.get("CSVDelimiter", "COMMA")), ",")
    csv.field_size_limit(MAX_CELL)
    rows = [row for row in csv.reader(io.StringIO(content.removeprefix("\ufeff")), delimiter=delimiter) if row]
    headers = config.get("CSVHeaders")
    if config.get("CSVHeaderLocation", "FIRST_ROW") == "FIRST_ROW":
        headers, rows = (rows[0], rows[1:]) if rows else ([], [])
    if not isinstance(headers, list) or len(set(headers)) < len(headers):
        raise StateFailure(ITEM_READER, "CSV headers cannot contain duplicates.")
    return [{name: row[at] if at < len(row) else "" for at, name in enumerate(headers)} for row in rows]


def pairs(data: Mapping[str, Any]) -> list[Any]:
    """The items of an object in a distributed Map."""
    return [{"Key": key, "Value": value} for key, value in data.items()]


def batches(items: Sequence[Any], count: int | None, size: int | None, more: Any) -> list[Any]:
    """`{Items: […]}` of at most so many items and bytes; `more`: BatchInput, or None."""
    found: list[list[Any]] = []
    limit = min(size or LARGEST_BATCH, LARGEST_BATCH)
    used = 0
    for item in items:
        length = len(compact(item).encode("utf-8", "surrogatepass")) + 1
        if not found or (count and len(found[-1]) >= count) or used + length > limit:
            found.append([])
            used = 0
        found[-1].append(item)
        used += length
    return [{"Items": batch} if more is None else {"BatchInput": more, "Items": batch} for batch in found]
