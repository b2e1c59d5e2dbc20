"""Retry, Catch and the rules of a Choice. Called by states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.formats.asl.check import values
from penstock.formats.asl.check.findings import EXPRESSION, STRUCTURE, Findings
from penstock.formats.asl.check.values import Place
from penstock.formats.asl.language.choices import OPERATORS
from penstock.formats.asl.language.failures import MalformedText
from penstock.formats.asl.language.paths import read_path
from penstock.formats.asl.language.times import read_timestamp

_RETRY: Final = frozenset(
    {"ErrorEquals", "IntervalSeconds", "MaxAttempts", "BackoffRate", "MaxDelaySeconds", "JitterStrategy", "Comment"}
)
_CATCH: Final = frozenset({"ErrorEquals", "Next", "Comment", "Assign"})
_RULE: Final = frozenset({"Next", "Comment", "Assign"})
_DEEPEST: Final = 100


def retry(found: Findings, state: Mapping[str, Any], place: Place) -> None:
    for at, rule, here, last in _members(found, state, "Retry", place):
        _known(found, rule, _RETRY, here)
        _errors(found, rule, here, last)
        limits = {
            "IntervalSeconds": (1, 99_999_999),
            "MaxAttempts": (0, 99_999_999),
            "MaxDelaySeconds": (1, 31_622_400),
        }
        for name, (least, most) in limits.items():
            if name in rule:
                values.number(found, rule[name], least, most, (*here, name))
        if "BackoffRate" in rule:
            values.number(found, rule["BackoffRate"], 1, 1e9, (*here, "BackoffRate"), whole=False)
        if "JitterStrategy" in rule:
            values.one_of(found, rule["JitterStrategy"], ("FULL", "NONE"), (*here, "JitterStrategy"))
        del at


def catch(found: Findings, state: Mapping[str, Any], place: Place, is_jsonata: bool) -> None:
    more = {"Output"} if is_jsonata else {"ResultPath"}
    for _, rule, here, last in _members(found, state, "Catch", place):
        _known(found, rule, _CATCH | more, here)
        _errors(found, rule, here, last)
        if "Next" not in rule:
            found.add(STRUCTURE, here, "a catcher without Next", "name the state that handles the error")
        if is_jsonata:
            for name in ("Output", "Assign"):
                values.expressions(found, rule.get(name), (*here, name))
        else:
            if "ResultPath" in rule:
                values.path(found, rule["ResultPath"], "write", (*here, "ResultPath"))
            values.template(found, rule.get("Assign"), (*here, "Assign"))


def _members(
    found: Findings, state: Mapping[str, Any], name: str, place: Place
) -> Iterator[tuple[int, Mapping[str, Any], Place, bool]]:
    """(number, rule, place, is it the last) of a list of rules."""
    given = state.get(name, [])
    if not isinstance(given, list):
        found.add(STRUCTURE, (*place, name), f"{name} is not a list", "give a list of rules")
        return
    for at, rule in enumerate(given):
        here = (*place, name, at)
        if isinstance(rule, Mapping):
            yield at, rule, here, at == len(given) - 1
        else:
            found.add(STRUCTURE, here, f"a rule of {name} is not an object", "give an object with ErrorEquals")


def _known(found: Findings, rule: Mapping[str, Any], known: frozenset[str], place: Place) -> None:
    for name in rule:
        if name not in known:
            fix = f"remove it; known are {', '.join(sorted(known))}"
            found.add(STRUCTURE, (*place, str(name)), f"{name} is not a field of this rule", fix)


def _errors(found: Findings, rule: Mapping[str, Any], place: Place, last: bool) -> None:
    names = rule.get("ErrorEquals")
    here = (*place, "ErrorEquals")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        target = here if "ErrorEquals" in rule else place
        found.add(
            STRUCTURE, target, "ErrorEquals must be a list of error names, not empty", 'give names, or ["States.ALL"]'
        )
        return
    for alone in ("States.ALL", "States.DataLimitExceeded"):
        if alone == "States.ALL" and alone in names and (len(names) > 1 or not last):
            found.add(STRUCTURE, here, "States.ALL must stand alone, in the last rule", "move it into a last rule")


# -- choices ----------------------------------------------------------------------------------------------------------


def choices(found: Findings, state: Mapping[str, Any], place: Place, is_jsonata: bool) -> None:
    given = state.get("Choices")
    if not isinstance(given, list) or not given:
        found.add(
            STRUCTURE, (*place, "Choices") if "Choices" in state else place, "a Choice needs Choices", "give rules"
        )
        return
    for at, rule in enumerate(given):
        here = (*place, "Choices", at)
        if not isinstance(rule, Mapping):
            found.add(STRUCTURE, here, "a rule is not an object", "give an object with Next")
            continue
        if not isinstance(rule.get("Next"), str):
            found.add(STRUCTURE, here, "a rule without Next", "name the state that follows")
        if is_jsonata:
            _jsonata_rule(found, rule, here)
        else:
            _rule(found, {key: value for key, value in rule.items() if key not in _RULE}, here, 0)
            values.template(found, rule.get("Assign"), (*here, "Assign"))


def _jsonata_rule(found: Findings, rule: Mapping[str, Any], place: Place) -> None:
    _known(found, rule, _RULE | {"Condition", "Output"}, place)
    if "Condition" not in rule:
        found.add(STRUCTURE, place, "a rule without Condition", "give {% … %} that is true or false")
    elif not isinstance(rule["Condition"], bool):
        if not isinstance(rule["Condition"], str) or not rule["Condition"].startswith("{%"):
            found.add(EXPRESSION, (*place, "Condition"), "Condition is not an expression", "write {% … %}")
        else:
            values.expression(found, rule["Condition"], (*place, "Condition"))
    for name in ("Output", "Assign"):
        values.expressions(found, rule.get(name), (*place, name))


def _rule(found: Findings, rule: Mapping[str, Any], place: Place, depth: int) -> None:
    """A comparison, or And, Or, Not."""
    if depth > _DEEPEST:
        found.add(STRUCTURE, place, f"rules nested deeper than {_DEEPEST}", "use more states")
        return
    inner = {key: value for key, value in rule.items() if key not in ("Comment",)}
    joined = [name for name in ("And", "Or", "Not") if name in inner]
    if joined:
        name = joined[0]
        parts = inner[name] if name != "Not" else [inner[name]]
        if len(inner) > 1 or not isinstance(parts, list) or not parts:
            found.add(STRUCTURE, place, f"{name} stands alone, with rules in it", "put the other rules into it")
            return
        for at, part in enumerate(parts):
            here: Place = (*place, name) if name == "Not" else (*place, name, at)
            if isinstance(part, Mapping):
                _rule(found, part, here, depth + 1)
            else:
                found.add(STRUCTURE, here, "a rule is not an object", "give an object with Variable")
        return
    _comparison(found, inner, place)


def _comparison(found: Findings, rule: Mapping[str, Any], place: Place) -> None:
    used = [name for name in rule if name in OPERATORS]
    for name in rule:
        if name not in OPERATORS and name != "Variable":
            found.add(STRUCTURE, place, f"{name} is not a field of a rule", "remove it")
    if len(used) != 1:
        found.add(STRUCTURE, place, f"a rule compares once, this one {len(used)} times", "use one operator")
    if "Variable" not in rule:
        found.add(STRUCTURE, place, "a rule without Variable", "name what is compared")
    else:
        _reference(found, rule["Variable"], (*place, "Variable"))
    for name in used:
        _operand(found, name, rule[name], (*place, name))


def _reference(found: Findings, value: Any, place: Place) -> None:
    if not isinstance(value, str) or value.startswith("States."):
        found.add(EXPRESSION, place, f"{place[-1]} is not a reference path", "give a path such as $.name")
        return
    try:
        read_path(value)
    except MalformedText as error:
        found.add(EXPRESSION, place, f"{value!r} is not a path: {error}", "give a path such as $.name")


_KINDS: Final = {"String": (str, "text"), "Numeric": (int | float, "a number"), "Boolean": (bool, "true or false")}


def _operand(found: Findings, name: str, value: Any, place: Place) -> None:
    if name.endswith("Path"):
        _reference(found, value, place)
        return
    if values.is_substituted(value):
        return
    if name.startswith("Timestamp"):
        if read_timestamp(value) is None:
            found.add(STRUCTURE, place, f"{name} is not a timestamp of RFC 3339", "write 2026-01-31T12:00:00Z")
        return
    wanted, said = _KINDS[
        "Boolean" if name.startswith("Is") else next(kind for kind in _KINDS if name.startswith(kind))
    ]
    if not isinstance(value, wanted) or (isinstance(value, bool) and said == "a number"):
        found.add(STRUCTURE, place, f"{name} needs {said}", "correct the value")
