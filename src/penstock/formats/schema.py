"""Checks a foreign document against the CRD of its project. Called by vetting and by the gates.

crds.json (made by scripts/crds) is a compact form of the CRDs: field names, types, required fields, enums and limits. Every finding has its
path, so that a misspelt field is reported and not silently dropped.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from penstock.errors import nearest

DEEPEST = 200
"""The most levels of a document that are checked."""


@dataclass(frozen=True, slots=True)
class SchemaFinding:
    path: str
    """Within the document: `spec.templates[0].container.imag`."""
    kind: str
    """unknown field · type · required · enum · limit"""
    message: str
    near: str = ""
    """What was probably meant, as a sentence."""


def check(document: Mapping[str, Any]) -> list[SchemaFinding]:
    """Everything in the document that its project would not accept. Empty for an unknown project. `metadata` and `status` are not
    checked."""
    number = _crds()["kinds"].get(f"{document.get('apiVersion')} {document.get('kind')}")
    if number is None:
        return _kubernetes(document)
    fields = _node(number)["fields"]
    found: list[SchemaFinding] = []
    for name, value in document.items():
        if name not in fields:
            found.append(_unknown(str(name), str(name), fields))
        elif name not in ("metadata", "status"):
            found += _walk(value, fields[name], str(name), 0)
    missing = [name for name in _node(number).get("required", ()) if name not in document]
    return [*found, *(SchemaFinding(name, "required", f"{name} is missing") for name in missing)]


def _kubernetes(document: Mapping[str, Any]) -> list[SchemaFinding]:
    """Jobs and Pods: their schema is part of that of a JobSet."""
    job = _inside(_crds()["kinds"].get("jobset.x-k8s.io/v1alpha2 JobSet"), "spec", "replicatedJobs", "template", "spec")
    known = {
        "batch/v1 Job": (("spec",), job),
        "batch/v1 CronJob": (("spec", "jobTemplate", "spec"), job),
        "v1 Pod": (("spec",), _inside(job, "template", "spec")),
    }
    path, number = known.get(f"{document.get('apiVersion')} {document.get('kind')}", ((), None))
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return [] if number is None else list(_walk(value, number, ".".join(path), 0))


def _inside(number: int | None, *names: str) -> int | None:
    """The schema node of a nested field; lists are entered."""
    for name in names:
        if number is None:
            return None
        number = _node(number).get("fields", {}).get(name)
        if number is not None and "items" in _node(number):
            number = _node(number)["items"]
    return number


def _walk(value: Any, number: int, path: str, depth: int) -> Iterator[SchemaFinding]:
    node = _node(number)
    if value is None or depth > DEEPEST:  # null counts as absent
        return
    wrong = _wrong_type(value, node)
    if wrong:
        yield SchemaFinding(path, "type", wrong)
        return
    yield from _limits(value, node, path)
    if isinstance(value, dict):
        yield from _fields(value, node, path, depth)
    elif isinstance(value, list) and "items" in node:
        for at, item in enumerate(value):
            yield from _walk(item, node["items"], f"{path}[{at}]", depth + 1)


def _fields(value: dict[Any, Any], node: Mapping[str, Any], path: str, depth: int) -> Iterator[SchemaFinding]:
    fields = node.get("fields", {})
    for name, inner in value.items():
        here = f"{path}.{name}"
        if name in fields:
            yield from _walk(inner, fields[name], here, depth + 1)
        elif "values" in node:
            yield from _walk(inner, node["values"], here, depth + 1)
        elif fields and not node.get("open"):
            yield _unknown(str(name), here, fields)
    for name in node.get("required", ()):
        if name not in value:
            yield SchemaFinding(f"{path}.{name}", "required", f"{name} is missing")


def _unknown(name: str, path: str, fields: Mapping[str, int]) -> SchemaFinding:
    return SchemaFinding(path, "unknown field", f"there is no field {name!r}", nearest(name, fields))


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "int-or-string": (int, str),
}
_SAID: Mapping[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def _wrong_type(value: Any, node: Mapping[str, Any]) -> str:
    wanted = _TYPES.get(node.get("type", ""))
    if wanted is None:
        return ""
    fits = isinstance(value, wanted) and not (isinstance(value, bool) and bool not in wanted)
    if fits or (node["type"] == "integer" and isinstance(value, float) and value.is_integer()):
        return ""
    return (
        f"it is {_SAID.get(type(value), type(value).__name__)}, and must be {' or '.join(_SAID[one] for one in wanted)}"
    )


def _limits(value: Any, node: Mapping[str, Any], path: str) -> Iterator[SchemaFinding]:
    if "enum" in node and value not in node["enum"]:
        yield SchemaFinding(
            path,
            "enum",
            f"{str(value)[:60]!r} is none of {', '.join(map(str, node['enum']))}",
            nearest(str(value), map(str, node["enum"])),
        )
    if isinstance(value, str):
        yield from _between(len(value), node, "minLength", "maxLength", path, "characters")
        if "pattern" in node and "{{" not in value and not _pattern(node["pattern"]).search(value):
            yield SchemaFinding(path, "limit", f"{value[:60]!r} does not match {node['pattern']}")
    elif isinstance(value, list):
        yield from _between(len(value), node, "minItems", "maxItems", path, "items")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _between(value, node, "minimum", "maximum", path, "")


def _between(
    size: float, node: Mapping[str, Any], least: str, most: str, path: str, what: str
) -> Iterator[SchemaFinding]:
    of = f" {what}" if what else ""
    if least in node and size < node[least]:
        yield SchemaFinding(path, "limit", f"{size}{of}, and at least {node[least]} are asked for")
    if most in node and size > node[most]:
        yield SchemaFinding(path, "limit", f"{size}{of}, and at most {node[most]} are allowed")


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


@cache
def _crds() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pkgutil.get_data("penstock.formats", "crds.json") or b"{}")
    return found


def _node(number: int) -> dict[str, Any]:
    found: dict[str, Any] = _crds()["nodes"][number]
    return found
