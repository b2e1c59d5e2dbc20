"""Payload templates and single paths of JSONPath states: Parameters, ResultSelector, ItemSelector, Assign, InputPath. Called by walk."""

from __future__ import annotations

from typing import Any, Final

from penstock.formats.asl.language.failures import RUNTIME, NoMatch, StateFailure
from penstock.formats.asl.language.intrinsics import call, compact, read_call
from penstock.formats.asl.language.paths import follow, place, read_path
from penstock.formats.asl.language.scope import Scope

DEEPEST: Final = 100


def fill(template: Any, data: Any, scope: Scope, depth: int = 0) -> Any:
    """The template with every `name.$` replaced. Raises StateFailure."""
    if depth > DEEPEST:
        raise StateFailure(RUNTIME, f"a template nested deeper than {DEEPEST}")
    if isinstance(template, dict):
        found = {}
        for key, value in template.items():
            if key.endswith(".$") and isinstance(value, str):
                found[key[:-2]] = value_of(value, data, scope, key)
            else:
                found[key] = fill(value, data, scope, depth + 1)
        return found
    return [fill(one, data, scope, depth + 1) for one in template] if isinstance(template, list) else template


def value_of(text: str, data: Any, scope: Scope, field: str) -> Any:
    """The value of a path or of a call of an intrinsic function. Raises StateFailure."""
    try:
        if text.startswith("States."):
            return call(read_call(text), data, scope)
        return follow(read_path(text), data, scope)
    except NoMatch:
        cause = (
            f"The JSONPath '{text}' specified for the field '{field}' could not be found in the input '{compact(data)}'"
        )
        raise StateFailure(RUNTIME, cause, field) from None
    except ValueError as error:  # MalformedText: check has missed it
        raise StateFailure(RUNTIME, f"{text!r}: {error}", field) from None


def picked(text: str | None, data: Any, scope: Scope) -> Any:
    """What InputPath or OutputPath picks; null picks an empty object. Raises StateFailure."""
    if text is None:
        return {}
    if text == "$":
        return data
    if text.startswith("States."):
        return value_of(text, data, scope, "")
    try:
        return follow(read_path(text), data, scope)
    except (NoMatch, ValueError) as error:
        raise StateFailure(RUNTIME, f"Invalid path '{text}' : {error}") from None


def placed(text: str | None, data: Any, value: Any) -> Any:
    """What ResultPath makes of the raw input; null discards the result. Raises StateFailure."""
    if text is None:
        return data
    try:
        return place(read_path(text), data, value)
    except (NoMatch, ValueError) as error:
        name = "States.ResultPathMatchFailure"
        raise StateFailure(name, f"Unable to apply ResultPath '{text}' to the input: {error}") from None
