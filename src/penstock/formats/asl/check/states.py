"""One state: its fields and their values. Called by machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import instead
from penstock.formats.asl.check import rules, values
from penstock.formats.asl.check.fields import (
    ACTIONS,
    EXPRESSIONS,
    JSONATA,
    JSONPATH,
    NUMBERS,
    PAIRS,
    PATHS,
    TEMPLATES,
)
from penstock.formats.asl.check.findings import EXPRESSION, MISSING, STRUCTURE, Findings
from penstock.formats.asl.check.values import Place
from penstock.formats.asl.language.times import read_timestamp

_BAD_LABEL: Final = re.compile(r"[\s?*<>{}\[\]:;,\\|^~$#%&`\"\x00-\x1f\x7f-\x9f/]")
_OPTIMISED: Final = re.compile(r"arn:[^:]*:states:::([\w-]+):(\w+)")
_FUNCTION: Final = re.compile(r"arn:[^:]*:lambda:[^:]*:[^:]*:function:")
_ALIAS: Final = re.compile(r"arn:[^:]*:lambda:[^:]*:[^:]*:function:[^:]+(:([\w$-]+|<[^>]*>))?\Z", re.A)
_ENDED: Final = ("Choice", "Succeed", "Fail")


def check_state(
    found: Findings, name: str, state: Mapping[str, Any], language: str, place: Place, express: bool
) -> None:
    """Everything but where it leads."""
    kind = str(state["Type"])
    is_jsonata = language == "JSONata"
    known = (JSONATA if is_jsonata else JSONPATH)[kind]
    for field in state:
        if field not in known:
            other = field in (JSONPATH if is_jsonata else JSONATA)[kind]
            message = f"a {kind} state has no field {field}" + (f" with {language}" if other else "")
            found.add(STRUCTURE, (*place, str(field)), message, instead(str(field), known))
    for first, second in PAIRS:
        if first in state and second in state and {first, second} <= known:
            found.add(STRUCTURE, (*place, second), f"{first} and {second} exclude one another", "keep one of them")
    if kind not in _ENDED:
        _ends(found, state, place)
    _numbers(found, state, place, is_jsonata)
    if is_jsonata:
        for field in EXPRESSIONS:
            if field in state:
                values.expressions(found, state[field], (*place, field))
    else:
        _json_path(found, state, place)
    _kind(found, kind, state, place, is_jsonata, express)
    if "Retry" in state and "Retry" in known:
        rules.retry(found, state, place)
    if "Catch" in state and "Catch" in known:
        rules.catch(found, state, place, is_jsonata)


def _ends(found: Findings, state: Mapping[str, Any], place: Place) -> None:
    if "Next" in state and state.get("End"):
        found.add(STRUCTURE, (*place, "End"), "Next and End exclude one another", "keep one of them")
    elif "Next" not in state and state.get("End") is not True:
        found.add(MISSING, place, "nothing follows: neither Next nor End", 'add "Next", or "End": true')
    if "Next" in state and not isinstance(state["Next"], str):
        found.add(STRUCTURE, (*place, "Next"), "Next is not the name of a state", "give a name")


def _numbers(found: Findings, state: Mapping[str, Any], place: Place, is_jsonata: bool) -> None:
    for name, (least, most) in NUMBERS.items():
        value = state.get(name)
        if name not in state or values.is_substituted(value):
            continue
        if is_jsonata and isinstance(value, str):
            if not value.startswith("{%"):
                found.add(STRUCTURE, (*place, name), f"{name} is neither a number nor an expression", "write {% … %}")
            continue
        values.number(found, value, least, most, (*place, name), whole=name != "ToleratedFailurePercentage")
    timeout, heartbeat = state.get("TimeoutSeconds"), state.get("HeartbeatSeconds")
    if isinstance(timeout, int) and isinstance(heartbeat, int) and heartbeat >= timeout:
        found.add(STRUCTURE, (*place, "HeartbeatSeconds"), "HeartbeatSeconds must be below TimeoutSeconds", "lower it")


def _json_path(found: Findings, state: Mapping[str, Any], place: Place) -> None:
    for name, kind in PATHS.items():
        if name in state:
            values.path(found, state[name], kind, (*place, name))
    for name in TEMPLATES:
        if name in state:
            values.template(found, state[name], (*place, name))
    for name in ("ItemReader", "ItemBatcher", "ResultWriter"):
        if isinstance(state.get(name), Mapping):
            for field in ("Parameters", "BatchInput"):
                values.template(found, state[name].get(field), (*place, name, field))
    if "Assign" in state and not isinstance(state["Assign"], Mapping):
        found.add(STRUCTURE, (*place, "Assign"), "Assign is not an object", "give variables and their values")


def _kind(found: Findings, kind: str, state: Mapping[str, Any], place: Place, is_jsonata: bool, express: bool) -> None:
    match kind:
        case "Task":
            _task(found, state, place, is_jsonata, express)
        case "Choice":
            rules.choices(found, state, place, is_jsonata)
        case "Wait":
            _wait(found, state, place, is_jsonata)
        case "Fail":
            _fail(found, state, place)
        case "Parallel":
            branches = state.get("Branches")
            if not isinstance(branches, list) or not branches:
                here = (*place, "Branches") if "Branches" in state else place
                found.add(STRUCTURE, here, "a Parallel needs Branches", "give a list of machines")
        case "Map":
            _map(found, state, place)


def _fail(found: Findings, state: Mapping[str, Any], place: Place) -> None:
    for name in ("Error", "Cause"):
        if name in state and not isinstance(state[name], str):
            found.add(STRUCTURE, (*place, name), f"{name} is not text", "put it in quotes")


def _wait(found: Findings, state: Mapping[str, Any], place: Place, is_jsonata: bool) -> None:
    given = [name for name in ("Seconds", "SecondsPath", "Timestamp", "TimestampPath") if name in state]
    if len(given) != 1:
        message = f"a Wait needs one of Seconds, SecondsPath, Timestamp, TimestampPath, and has {len(given)}"
        found.add(STRUCTURE, place, message, "keep one of them")
    text = state.get("Timestamp")
    if "Timestamp" in state and not values.is_substituted(text):
        expression = is_jsonata and isinstance(text, str) and text.startswith("{%")
        if not expression and read_timestamp(text) is None:
            message = "Timestamp is not a timestamp of RFC 3339"
            found.add(STRUCTURE, (*place, "Timestamp"), message, "write 2026-01-31T12:00:00Z")


def _task(found: Findings, state: Mapping[str, Any], place: Place, is_jsonata: bool, express: bool) -> None:
    resource, here = state.get("Resource"), (*place, "Resource")
    if not isinstance(resource, str) or not resource:
        found.add(STRUCTURE, here if "Resource" in state else place, "a Task needs a Resource", "give an ARN")
    else:
        _resource(found, resource, here, express)
    if "Credentials" not in state:
        return
    credentials = state["Credentials"]
    if not isinstance(credentials, Mapping):
        found.add(STRUCTURE, (*place, "Credentials"), "Credentials is not an object", "give RoleArn")
    elif is_jsonata and "RoleArn" not in credentials:
        found.add(STRUCTURE, (*place, "Credentials"), "Credentials without RoleArn", "give RoleArn")


def _resource(found: Findings, resource: str, place: Place, express: bool) -> None:
    if "${" in resource and not values.is_substituted(resource):
        found.add(STRUCTURE, place, "${ is not closed", "write ${Name}")
    if _FUNCTION.match(resource) and "${" not in resource and not _ALIAS.match(resource):
        found.add(STRUCTURE, place, f"{resource!r} is not the ARN of a function", "correct what follows the last colon")
    named = _OPTIMISED.match(resource)
    if named is not None and named.group(1) in ACTIONS and named.group(2) not in ACTIONS[named.group(1)]:
        known = ACTIONS[named.group(1)]
        message = f"{named.group(1)} has no action {named.group(2)}; it has {', '.join(known)}"
        fix = f"use one of them, or arn:aws:states:::aws-sdk:{named.group(1)}:{named.group(2)}"
        found.add(MISSING, place, message, fix)
    waits = next((form for form in (".waitForTaskToken", ".sync") if form in resource), None)
    if express and (waits or ":activity:" in resource):
        message = f"an Express machine does not wait: {waits or 'an activity'}"
        found.add(STRUCTURE, place, message, "use a Standard machine, or a plain call")


def _map(found: Findings, state: Mapping[str, Any], place: Place) -> None:
    name = "ItemProcessor" if "ItemProcessor" in state else "Iterator"
    if not isinstance(state.get(name), Mapping):
        found.add(STRUCTURE, place, "a Map needs an ItemProcessor", "give the machine that handles one item")
    config = state[name].get("ProcessorConfig") if isinstance(state.get(name), Mapping) else None
    if isinstance(config, Mapping) and "Mode" in config:
        values.one_of(found, config["Mode"], ("INLINE", "DISTRIBUTED"), (*place, name, "ProcessorConfig", "Mode"))
    label = state.get("Label")
    if "Label" in state and (not isinstance(label, str) or not 0 < len(label) <= 40 or _BAD_LABEL.search(label)):
        message = 'a Label has 1 to 40 characters, no space and none of ?*<>{}[]:;,\\|^~$#%&`"/'
        found.add(STRUCTURE, (*place, "Label"), message, "shorten it, use letters, digits, - and _")
    for field, names in (
        ("ItemReader", ("MaxItems",)),
        ("ItemBatcher", ("MaxItemsPerBatch", "MaxInputBytesPerBatch")),
    ):
        given = state.get(field)
        if given is not None and not isinstance(given, Mapping):
            found.add(STRUCTURE, (*place, field), f"{field} is not an object", "give its fields")
            continue
        inside = given.get("ReaderConfig") if field == "ItemReader" and given else given
        for one in names:
            if isinstance(inside, Mapping) and one in inside and f"{one}Path" in inside:
                message = f"{one} and {one}Path exclude one another"
                found.add(STRUCTURE, (*place, field, f"{one}Path"), message, "keep one of them")
    if isinstance(state.get("ItemReader"), Mapping) and "Resource" not in state["ItemReader"]:
        found.add(
            EXPRESSION, (*place, "ItemReader"), "an ItemReader needs a Resource", "give arn:aws:states:::s3:getObject"
        )
