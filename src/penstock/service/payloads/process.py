"""Chains that a payload carries: `process: [A, [B1, B2], C]`. The first is what is done now; what comes after it are definitions of later
processes, and lists of them are branches. Called by submit and by service.chains. Pure.

A run hands on its output payload: so it may have changed what comes next. A definition names its `workflow`; with a `chain_filter` only features for which it
holds are handed on to it; `join: false` after branches has it run once for each of them, as in Cirrus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.errors import PlanError, Problem
from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import Expr, ExpressionError
from penstock.graph.model import Link

PROCESS: Final = "process"
FEATURES: Final = "features"
FILTER: Final = "chain_filter"
MOST: Final = 1000
"""Definitions in one process."""


class Definition(NamedTuple):
    """One process that follows, as a link."""

    link: Link
    process: tuple[Any, ...]
    """Of the payload that it is given: itself, and what comes after it."""


def carries(payload: Any) -> bool:
    return isinstance(payload, dict) and PROCESS in payload


def definitions(payload: Mapping[str, Any], taken: Iterable[str] = ()) -> list[Definition]:
    """What follows a run with this payload, in order. `taken`: names of links that are something else. Raises PlanError."""
    rest = list(_checked(payload)[1:])
    names = set(taken)
    found: list[Definition] = []
    before: tuple[str, ...] = ()
    while rest:
        following = rest.pop(0)
        branches = [following] if isinstance(following, dict) else following
        own = isinstance(following, dict) or not rest or not _joins(rest[0])
        last = []
        for one in branches:
            name = _name(str(one["workflow"]), names)
            link = Link(workflow=one["workflow"], name=name, after=before)
            found.append(Definition(link, (one, *rest) if own else (one,)))
            last.append(name)
        if own:
            break  # they carry the rest themselves
        before = tuple(last)
    return found


def handed_on(payloads: Sequence[Mapping[str, Any]], process: Sequence[Any]) -> dict[str, Any] | None:
    """The payload of the next process, made of those that the runs before it gave: of several, the features of all of them, each id once. None: its
    filter leaves no feature. Raises PlanError."""
    made: dict[str, Any] = {}
    for one in payloads:
        made = {**one, **made}
    features = [feature for one in payloads for feature in _features(one)]
    if len(payloads) > 1:
        features = list({_id_of(feature, place): feature for place, feature in enumerate(features)}.values())
    body = process[0].get(FILTER)
    if body is not None:
        features = [feature for feature in features if _holds(str(body), feature)]
        if not features:
            return None
    if features or any(FEATURES in one for one in payloads):
        made[FEATURES] = features
    return {**made, PROCESS: list(process)}


def _checked(payload: Mapping[str, Any]) -> list[Any]:
    process = payload.get(PROCESS)
    if not isinstance(process, list) or not process or not isinstance(process[0], dict):
        raise _wrong("it is a list that begins with the definition of the process that is due now", "")
    if sum(len(one) if isinstance(one, list) else 1 for one in process) > MOST:
        raise _wrong(f"it has more than {MOST:,} definitions", "")
    for place, one in enumerate(process):
        branches = one if isinstance(one, list) and one and place else [one]
        for branch in branches:
            if not isinstance(branch, dict) or not isinstance(branch.get("workflow"), str) or not branch["workflow"]:
                raise _wrong("it has definitions, {workflow: NAME, …}, and after the first lists of them", f"[{place}]")
            body = branch.get(FILTER)
            if body is not None and not isinstance(body, str):
                raise _wrong(f"{FILTER} is the text of an expression", f"[{place}].{FILTER}")
    return process


def _joins(following: Any) -> bool:
    return all(
        one.get("join", True) is not False for one in ([following] if isinstance(following, dict) else following)
    )


def _name(workflow: str, names: set[str]) -> str:
    name, number = workflow, 1
    while name in names:
        number += 1
        name = f"{workflow}-{number}"
    names.add(name)
    return name


def _features(payload: Mapping[str, Any]) -> list[Any]:
    found = payload.get(FEATURES, [])
    if not isinstance(found, list):
        raise PlanError(Problem("P549", f"`{FEATURES}` of the payload is no list", "hand on a list, or leave it out"))
    return found


def _id_of(feature: Any, place: int) -> Any:
    found = feature.get("id") if isinstance(feature, dict) else None
    return found if isinstance(found, str) else place


def _holds(body: str, feature: Any) -> bool:
    """A filter is an expression over `item`, or the inside of a JSONPath filter: `@.properties.cloud < 20`."""
    try:
        if "@" in body:
            path = f"$.items[?({body})]"
            return bool(evaluate(Expr.of("jsonpath(d, p)"), {"d": {"items": [feature]}, "p": path}))
        found = evaluate(Expr.of(body), {"item": feature})
    except (ExpressionError, EvaluationError) as error:
        raise _wrong(f"{FILTER} {body[:100]!r}: {error}", f".{FILTER}") from None
    if not isinstance(found, bool):
        raise _wrong(f"{FILTER} {body[:100]!r} is neither true nor false", f".{FILTER}")
    return found


def _wrong(message: str, place: str) -> PlanError:
    fix = "write process: [{workflow: a}, [{workflow: b1}, {workflow: b2}], {workflow: c}]"
    return PlanError(Problem("P549", f"`process` of the payload: {message}", fix, where=f"{PROCESS}{place}"))
