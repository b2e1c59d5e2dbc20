"""Numbers, maps and lists out of documents that users wrote, and copies that are written into. Used by kinds and apply.

What is not there has the default that the API server would give it. What is there and of the wrong type is a problem with its place, never a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import DocumentError
from penstock.formats.documents import Document, part
from penstock.graph import quantity
from penstock.scheduling.model import Data, Named, Path, shown

WRONG = "P887"
MOST = 2**31 - 1
"""Counts are int32 in every one of these APIs."""


def at(data: Any, path: Path) -> Any:
    """The value at a place; None if there is none."""
    for one in path:
        if isinstance(one, Named):
            items = data if isinstance(data, list) else []
            data = next((item for item in items if part(item).get(one.key) == one.value), None)
        elif isinstance(one, int):
            data = data[one] if isinstance(data, list) and one < len(data) else None
        else:
            data = data.get(one) if isinstance(data, Mapping) else None
    return data


def wrong(document: Document, path: Path, message: str, fix: str) -> DocumentError:
    return DocumentError(document.problem(WRONG, shown(path), message, fix))


def count(document: Document, path: Path, default: int) -> int:
    """A number of pods. Raises DocumentError."""
    found = at(document.data, path)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MOST:
        message = f"{shown(path[-1:])} is {_told(found)}: a count of pods is a whole number, 0 or more"
        raise wrong(document, path, message, f"write a number: {default}")
    return found


def mapping(document: Document, path: Path, needed: str = "") -> Data:
    """A map; empty if there is none. `needed`: what it is for, if there must be one. Raises DocumentError."""
    found = at(document.data, path)
    if found is None and not needed:
        return {}
    if not isinstance(found, Mapping):
        message = (
            f"{shown(path)} is missing: {needed}" if found is None else f"{shown(path)} is {_told(found)}, not a map"
        )
        raise wrong(document, path, message, f"write {shown(path)} as a map")
    return found


def listed(document: Document, path: Path) -> Iterator[tuple[Path, Data]]:
    """The maps of a list, each with its place. Raises DocumentError."""
    found = at(document.data, path)
    if found is None:
        return
    if not isinstance(found, list):
        raise wrong(document, path, f"{shown(path)} is {_told(found)}, not a list", "write it as a list")
    for number, item in enumerate(found):
        if not isinstance(item, Mapping):
            place = (*path, number)
            raise wrong(document, place, f"{shown(place)} is {_told(item)}, not a map", "write it as a map")
        yield (*path, number), item


def text(document: Document, path: Path, default: str = "") -> str:
    """Text. Raises DocumentError."""
    found = at(document.data, path)
    if found is None:
        return default
    if not isinstance(found, str):
        raise wrong(document, path, f"{shown(path)} is {_told(found)}, not text", "write it as text, in quotes")
    return found


def template(document: Document, path: Path) -> Data:
    """A pod template whose amounts can be read. Raises DocumentError."""
    found = mapping(document, path, "it says what the pods are")
    check_pod(document, (*path, "spec"))
    return found


def check_pod(document: Document, path: Path) -> None:
    """The containers of a PodSpec are maps and their amounts are quantities. Raises DocumentError with the first that is not."""
    mapping(document, path)
    for name in ("containers", "initContainers"):
        for place, _ in listed(document, (*path, name)):
            check_resources(document, (*place, "resources"))
    check_resources(document, (*path, "resources"))
    check_amounts(document, (*path, "overhead"))


def check_resources(document: Document, path: Path) -> None:
    mapping(document, path)
    for name in ("requests", "limits"):
        check_amounts(document, (*path, name))


def check_amounts(document: Document, path: Path) -> None:
    for name, amount in mapping(document, path).items():
        place = (*path, str(name))
        try:
            if isinstance(amount, bool) or not isinstance(amount, str | int | float):
                raise ValueError(f"{_told(amount)} is no amount")
            if quantity.parse(amount) < 0:
                raise ValueError(f"{amount} is less than nothing")
        except ValueError as error:
            raise wrong(document, place, str(error), "write a quantity such as 500m or 4Gi") from None


def container(name: str, requests: Data, limits: Data | None = None) -> dict[str, Any]:
    """A container that an operator adds to a pod."""
    return {"name": name, "resources": {"requests": dict(requests), "limits": dict(limits or requests)}}


def with_containers(pod: Data, field: str, *more: Data) -> dict[str, Any]:
    """The pod with containers added at the end of `field`."""
    found = pod.get("spec")
    spec = dict(found) if isinstance(found, Mapping) else {}
    spec[field] = [*(spec.get(field) or []), *more]
    return {**pod, "spec": spec}


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list):
        return "a list"
    shown_value = repr(value)
    return shown_value if len(shown_value) <= 60 else f"{shown_value[:60]}…"
