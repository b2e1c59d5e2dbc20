"""An Argo template with defaults merged in, inputs and outputs by name, and their names in a Workflow. Made once for each template by
context.

Parameters and artifacts share one set of names in the model; where two collide the artifact is called `artifact-NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.expressions.types import FILE, Type
from penstock.formats.argo.scope import COMPOSITE_TYPES, Resolved, type_of
from penstock.formats.documents import Document, items, part
from penstock.graph.limits import NAME, VARIABLE

PARAMETERS: Final = "parameters"
ARTIFACTS: Final = "artifacts"
RESULT: Final = ("result", "")
"""The key of the printed result among the outputs."""
LOCATIONS: Final = ("artifactory", "azure", "gcs", "git", "hdfs", "http", "oss", "plugin", "s3")
"""Locations of artifacts."""
ARTIFACT: Final[Type] = FILE
"""The type of an artifact in the model: a file or a folder."""
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 128
WITH_FILES: Final = frozenset({"container", "script", "containerSet", "data", "plugin", "steps", "dag"})
"""Templates that can have output artifacts."""
_WITH_RESULT: Final = frozenset({"container", "script", "containerSet", "data", "http", "plugin"})


def text_of(value: Any) -> str | None:
    """A scalar as Argo's text: 3 is `3`, true is `true`. None if absent or not a scalar."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def legal(name: str, taken: Iterable[str] = (), *, variable: bool = False) -> str:
    """A name that the model allows and that is not taken; unchanged if possible."""
    pattern = VARIABLE if variable else NAME
    if not pattern.match(name):
        name = _ILLEGAL.sub("-", name)[:_LONGEST].strip("-" if variable else "-_") or "x"
    if name not in taken:
        return name
    number = 2
    while (found := f"{name[: _LONGEST - 8]}-{number}") in taken:
        number += 1
    return found


@dataclass(eq=False)
class TemplateSpec:
    """One template."""

    resolved: Resolved
    body: Mapping[str, Any]
    kind: str
    name: str
    """Its name; an inline template has the name of its step."""
    inputs: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """parameters and artifacts, by name, as they are written."""
    outputs: Mapping[str, Mapping[str, Mapping[str, Any]]]
    inline: bool = False
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(in.parameters, name) … -> its path within the template."""
    input_names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(parameters, x) -> the name of the input in the model."""
    output_names: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def document(self) -> Document:
        return self.resolved.document

    @property
    def path(self) -> str:
        return self.resolved.path

    @property
    def qualified(self) -> str:
        return self.resolved.qualified

    @property
    def composite(self) -> bool:
        return self.kind in COMPOSITE_TYPES

    @property
    def has_result(self) -> bool:
        """Does it have `outputs.result`?"""
        return self.kind in _WITH_RESULT

    def scope(self, side: str, kind: str, name: str) -> str:
        """The path of an input ("inputs") or output ("outputs")."""
        return self.places.get((f"{side}.{kind}", name), self.path)


def template_spec(resolved: Resolved, name: str) -> TemplateSpec:
    body = resolved.scope.effective(resolved.template)
    inline = resolved.qualified.startswith("inline:")
    own = name if inline else text_of(resolved.template.get("name")) or name
    places: dict[tuple[str, str], str] = {}
    inputs = {kind: _named(body, "inputs", kind, resolved.path, places) for kind in (PARAMETERS, ARTIFACTS)}
    outputs = {kind: _named(body, "outputs", kind, resolved.path, places) for kind in (PARAMETERS, ARTIFACTS)}
    output_names = _names(outputs)
    output_names[RESULT] = legal("result", output_names.values(), variable=True)
    return TemplateSpec(
        resolved, body, type_of(body), own, inputs, outputs, inline, places, _names(inputs), output_names
    )


def _named(
    body: Mapping[str, Any], side: str, kind: str, path: str, places: dict[tuple[str, str], str]
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for number, one in items(part(body, side), kind):
        name = text_of(one.get("name"))
        if name:
            found.setdefault(name, one)
            places.setdefault((f"{side}.{kind}", name), f"{path}.{side}.{kind}[{number}]")
    return found


def _names(given: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for name in given[PARAMETERS]:
        found[PARAMETERS, name] = legal(name, found.values(), variable=True)
    for name in given[ARTIFACTS]:
        wanted = f"artifact-{name}" if name in given[PARAMETERS] else name
        found[ARTIFACTS, name] = legal(wanted, found.values(), variable=True)
    return found
