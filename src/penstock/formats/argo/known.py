"""The values that an Argo document itself gives to its tags. Called by stages, pods and demand.

`{{workflow.parameters.memory}}` is known where the workflow's arguments give it, `{{inputs.parameters.n}}` where the call or a
default does. What only the run knows (`{{steps.a.outputs.result}}`) stays a tag and is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.formats.argo.scope import Resolved, WorkflowRoot
from penstock.formats.documents import items, part

_SIMPLE_TAG = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")

Values = Mapping[str, str]
"""Simple tag (`inputs.parameters.n`) -> its text."""


def workflow_values(root: WorkflowRoot) -> dict[str, str]:
    """The parameters that the workflow's own arguments give."""
    found: dict[str, str] = {}
    for _, one in items(part(root.spec, "arguments"), "parameters"):
        text = _text(one.get("value"), found)
        if text is not None:
            found[f"workflow.parameters.{one.get('name')}"] = text
    return found


def entry_call(root: WorkflowRoot) -> Mapping[str, Any]:
    """The entrypoint is called with the workflow's arguments."""
    return {"arguments": part(root.spec, "arguments")}


def values_inside(callee: Resolved, call: Mapping[str, Any], around: Values) -> dict[str, str]:
    """The values that are known inside a template, where `around` is known in the template that calls it."""
    found = {name: text for name, text in around.items() if name.startswith("workflow.")}
    outside = dict(found)
    arguments = {str(one.get("name")): one for _, one in items(part(call, "arguments"), "parameters")}
    for _, declared in items(part(callee.template, "inputs"), "parameters"):
        name = str(declared.get("name"))
        if name in arguments:
            text = _text(arguments[name].get("value"), around)
        else:
            text = _text(_first_scalar(declared.get("value"), declared.get("default")), outside)
        if text is not None:
            found[f"inputs.parameters.{name}"] = text
    return found


def _first_scalar(*values: Any) -> Any:
    return next((value for value in values if isinstance(value, str | int | float)), None)


def _text(value: Any, known: Values) -> str | None:
    """A parameter's value as text; None if it is not known."""
    if not isinstance(value, str | int | float):
        return None
    text = fill(str(value).lower() if isinstance(value, bool) else str(value), known)
    return None if "{{" in text else str(text)


def fill(value: Any, known: Values) -> Any:
    """Replaces simple tags by what is known, in text and in every value that holds text."""
    if isinstance(value, str):
        return _SIMPLE_TAG.sub(lambda tag: known.get(tag[1], tag[0]), value) if "{{" in value else value
    if isinstance(value, Mapping):
        return {key: fill(item, known) for key, item in value.items()}
    return [fill(item, known) for item in value] if isinstance(value, list) else value


def split_tags(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and whether each is a tag (`{{…}}`, braces included). Takes one pass, whatever the text is."""
    pieces = text.split("}}")
    for piece in pieces[:-1]:
        plain, opened, tag = piece.partition("{{")
        if opened:
            yield plain, False
            yield f"{{{{{tag}}}}}", True
        else:
            yield f"{piece}}}}}", False
    yield pieces[-1], False
