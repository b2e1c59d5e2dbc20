"""A machine that is started by another one: what it is started with, and what the one that started it is told. Called by rounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.formats.asl.language.failures import StateFailure
from penstock.formats.asl.language.intrinsics import compact
from penstock.formats.asl.language.times import as_text
from penstock.formats.asl.walk.walker import MachineRun


def input_of(parameters: Any) -> Any:
    """Its input: JSON, or text with JSON in it."""
    given = parameters.get("Input") if isinstance(parameters, Mapping) else None
    if isinstance(given, str):
        try:
            return json.loads(given)
        except ValueError:
            return given
    return {} if given is None else given


def started(heading: Mapping[str, Any], parameters: Any, unique: str, now: datetime) -> MachineRun:
    """The execution. `unique`: which visit to which state of which run has started it."""
    given = parameters if isinstance(parameters, Mapping) else {}
    name = str(given.get("Name") or unique.replace("/", "-"))
    arn = str(given.get("StateMachineArn") or heading["Name"])
    return MachineRun(f"{unique}:{name}", name, as_text(now), arn, str(heading["Name"]))


def ended(
    resource: str, execution: Mapping[str, Any], parameters: Any, answer: Mapping[str, Any], now: datetime
) -> dict[str, Any] | StateFailure:
    """What a startExecution is told: that it has started; with .sync how it ended, as text or, with .sync:2, as JSON."""
    begun = {"ExecutionArn": execution["id"], "StartDate": execution["started"]}
    if ".sync" not in resource:
        return begun
    end = answer.get("answer") or {}
    failed = answer.get("error")
    if failed:
        end = {"status": "FAILED", "error": failed.get("name"), "cause": failed.get("message")}
    shown = (lambda value: value) if resource.endswith(".sync:2") else compact
    told = {
        **begun,
        "Input": shown(input_of(parameters)),
        "InputDetails": {"Included": True},
        "Name": execution["name"],
        "StateMachineArn": execution["machine_id"],
        "Status": end.get("status", "FAILED"),
        "StopDate": as_text(now),
    }
    if end.get("status") != "SUCCEEDED":
        return StateFailure(
            "States.TaskFailed", compact({**told, "Error": end.get("error"), "Cause": end.get("cause")})
        )
    more = {"OutputDetails": {"Included": True}, "RedriveCount": 0, "RedriveStatus": "NOT_REDRIVABLE"}
    why = "Execution is SUCCEEDED and cannot be redriven"
    return {**told, **more, "RedriveStatusReason": why, "Output": shown(end.get("output"))}
