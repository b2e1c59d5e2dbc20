"""The difference between a gated document and the original. Called by gates.marks and gates.documents.

The difference contains only what changed. It refers to items of lists by name, so the rest of the document may have changed
meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any

from penstock.formats.documents import part

_PLAIN = 512
"""Up to so many characters the difference is not compressed."""
_MOST_UNPACKED = 8 * 1024 * 1024


def difference(new: Any, old: Any) -> dict[str, Any] | None:
    """How to get from `new` to `old`. {"v": value} replaces the whole. Of a mapping: keys to remove ("-"), to set ("=") and to change
    ("d"). Of a list: items to remove ("x") and to change ("i"), by name. None if they are equal."""
    if _same(new, old):
        return None
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        found: dict[str, Any] = {}
        away = [key for key in new if key not in old]
        back = {key: old[key] for key in old if key not in new}
        inside = {key: change for key in new if key in old and (change := difference(new[key], old[key])) is not None}
        found |= {"-": away} if away else {}
        found |= {"=": back} if back else {}
        return found | ({"d": inside} if inside else {})
    if isinstance(new, list) and isinstance(old, list):
        return _lists(new, old)
    return {"v": old}


def _same(new: Any, old: Any) -> bool:
    return type(new) is type(old) and bool(new == old)


def _lists(new: list[Any], old: list[Any]) -> dict[str, Any]:
    named, before = _names(new), _names(old)
    if named is None or before is None or [name for name in named if name in before] != list(before):
        return {"v": old}
    inside = {}
    for name, at in before.items():
        change = difference(new[named[name]], old[at])
        if change is not None:
            inside[name] = change
    away = [name for name in named if name not in before]
    return ({"x": away} if away else {}) | ({"i": inside} if inside else {})


def _names(listed: list[Any]) -> dict[str, int] | None:
    """Name of an item -> its index; a group of steps has the name of its first step. None if a name is missing or occurs twice."""
    found: dict[str, int] = {}
    for at, item in enumerate(listed):
        first = item[0] if isinstance(item, list) and item else item
        name = first.get("name") if isinstance(first, Mapping) else None
        if not isinstance(name, str):
            return None
        found[name] = at
    return found if len(found) == len(listed) else None


def restore(new: Any, way: Mapping[str, Any] | None) -> Any:
    """Applies a difference. What is no longer there is skipped."""
    if way is None:
        return new
    if "v" in way:
        return way["v"]
    if isinstance(new, dict):
        found = {key: value for key, value in new.items() if key not in way.get("-", ())}
        for key, change in part(way, "d").items():
            if key in found:
                found[key] = restore(found[key], change)
        return found | dict(part(way, "="))
    if isinstance(new, list):
        away, inside = set(way.get("x", ())), part(way, "i")
        return [restore(item, inside.get(name)) for item, name in zip(new, _each(new), strict=True) if name not in away]
    return new


def _each(listed: list[Any]) -> list[str]:
    found = []
    for item in listed:
        first = item[0] if isinstance(item, list) and item else item
        found.append(str(first.get("name")) if isinstance(first, Mapping) else "")
    return found


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def packed(way: dict[str, Any] | None) -> str:
    """As text for an annotation. Raises ValueError if the text would not be exact."""
    try:
        text = compact(way)
        exact = json.loads(text) == way
    except (TypeError, ValueError, RecursionError):
        exact = False
    if not exact:
        raise ValueError("not plain text, numbers, lists and mappings")
    if len(text) <= _PLAIN:
        return text
    return "zlib:" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: Any) -> dict[str, Any] | None:
    """Raises ValueError if the text is damaged."""
    if not isinstance(text, str):
        raise ValueError("not text")
    try:
        if text.startswith("zlib:"):
            data = base64.b64decode(text.removeprefix("zlib:"), validate=True)
            text = zlib.decompressobj().decompress(data, _MOST_UNPACKED).decode()
        way = json.loads(text)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise ValueError("damaged") from None
    if way is not None and not isinstance(way, dict):
        raise ValueError("not a mapping")
    return way
