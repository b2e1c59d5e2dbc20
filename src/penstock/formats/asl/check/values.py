"""Paths, templates and expressions of a definition: can they be read? Called by states and rules."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.errors import nearest
from penstock.formats.asl.check.findings import EXPRESSION, STRUCTURE, Findings
from penstock.formats.asl.language.failures import MalformedText
from penstock.formats.asl.language.intrinsics import read_call
from penstock.formats.asl.language.jsonata import inner, read_expression
from penstock.formats.asl.language.paths import read_path

Place = tuple[str | int, ...]
_EVAL: Final = re.compile(r"\$eval\s*\(")
_SUBSTITUTED: Final = re.compile(r"\$\{[^{}$]*\}")
"""`${Name}` of SAM and CDK: known only when the machine is deployed."""


def is_substituted(text: Any) -> bool:
    return isinstance(text, str) and _SUBSTITUTED.search(text) is not None


def path(found: Findings, value: Any, kind: str, place: Place) -> None:
    """A field that is a path; see fields.PATHS."""
    if value is None and kind in ("any", "write"):
        return
    if not isinstance(value, str):
        found.add(STRUCTURE, place, f"{place[-1]} is not a path", "give a path such as $.name")
        return
    if is_substituted(value) and value.startswith("${"):
        return
    if value.startswith("States."):
        if kind == "call":
            call(found, value, place)
        else:
            found.add(EXPRESSION, place, f"{place[-1]} is a call of a function, and must be a path", "use $.name")
        return
    try:
        read = read_path(value)
    except MalformedText as error:
        found.add(EXPRESSION, place, f"{value!r} is not a path: {error}", "give a path such as $.name")
        return
    if kind == "write" and (read.root != "$" or not read.reference):
        message = f"{value!r} is not a reference path into the data: no variable, wildcard, slice or filter"
        found.add(EXPRESSION, place, message, "give a path such as $.name")


def call(found: Findings, value: str, place: Place) -> None:
    try:
        read_call(value)
    except MalformedText as error:
        found.add(EXPRESSION, place, f"{value!r} is not a call of an intrinsic function: {error}", "correct the call")


def template(found: Findings, value: Any, place: Place) -> None:
    """A payload template of a JSONPath state."""
    rest: list[tuple[Any, Place]] = [(value, place)]
    while rest:
        one, here = rest.pop()
        if isinstance(one, list):
            rest += [(inside, (*here, at)) for at, inside in enumerate(one)]
        elif isinstance(one, dict):
            for key, inside in one.items():
                if str(key).endswith(".$"):
                    _dynamic(found, one, str(key), inside, here)
                else:
                    rest.append((inside, (*here, str(key))))


def _dynamic(found: Findings, around: dict[str, Any], key: str, value: Any, place: Place) -> None:
    here = (*place, key)
    if key[:-2] in around:
        fix = "keep one of the two"
        found.add(STRUCTURE, here, f"{key} and {key[:-2]} would both become {key[:-2]}", fix)
    if not isinstance(value, str):
        found.add(EXPRESSION, here, f"{key} is not a path or a call", "give a path, or drop the .$ of the name")
    elif value.startswith("$"):
        path(found, value, "value", here)
    elif value.startswith("States."):
        call(found, value, here)
    else:
        message = f"{value!r} is not a JSONPath or intrinsic function expression"
        found.add(EXPRESSION, here, message, "begin with $ or States., or drop the .$ of the name")


def expressions(found: Findings, value: Any, place: Place) -> None:
    """Everything inside a field of a JSONata state."""
    rest: list[tuple[Any, Place]] = [(value, place)]
    while rest:
        one, here = rest.pop()
        if isinstance(one, list):
            rest += [(inside, (*here, at)) for at, inside in enumerate(one)]
        elif isinstance(one, dict):
            rest += [(inside, (*here, str(key))) for key, inside in one.items()]
        elif isinstance(one, str) and (one.startswith("{%") or one.endswith("%}")):
            expression(found, one, here)


def expression(found: Findings, value: str, place: Place) -> None:
    """`{% … %}`."""
    if not (value.startswith("{%") and value.endswith("%}")) or len(value) < 4:
        found.add(EXPRESSION, place, "an expression begins with {% and ends with %}", "write {% … %}, no space outside")
        return
    text = inner(value)
    if _EVAL.search(text):
        found.add(EXPRESSION, place, "$eval is not available", "write the expression itself")
        return
    try:
        read_expression(text)
    except MalformedText as error:
        found.add(EXPRESSION, place, f"not JSONata: {error}", "correct the expression")


def one_of(found: Findings, value: Any, known: tuple[str, ...], place: Place) -> bool:
    if isinstance(value, str) and value in known:
        return True
    said = value if isinstance(value, str) else "not text"
    fix = f"use one of {', '.join(known)}.{nearest(str(value)[:80], known)}"
    found.add(STRUCTURE, place, f"{place[-1]} is {said!r}", fix)
    return False


def number(found: Findings, value: Any, least: float, most: float, place: Place, whole: bool = True) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        found.add(STRUCTURE, place, f"{place[-1]} must be a number from {least} to {most}", "correct the number")
    elif whole and int(value) != value:
        found.add(STRUCTURE, place, f"{place[-1]} must be a whole number", "correct the number")
