"""Schedules as tables and lines. Called by the subcommands of `penstock schedule`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.ui import render
from penstock.cli.ui.marks import STATES
from penstock.phrases import duration
from penstock.service.schedules.timing import told


def when_of(data: Mapping[str, Any]) -> str:
    """`0 6 * * 1-5 Europe/Berlin`, `every 10m00s`."""
    if data["every"]:
        return f"every {duration(data['every'])}"
    return f"{', '.join(data['cron'])} {data['zone']}"


def next_line(data: Mapping[str, Any]) -> str:
    name = render.clean(data["schedule"])
    if data["next"] is None:
        return f"{name} is {data['state']}"
    left = max(0.0, data["next"] - time.time())
    return f"{name} is due next at {told(data['next'], data['zone'])}, in {duration(left)}"


def schedule_table(found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [
            render.clean(one["schedule"]),
            one["state"],
            "" if one["next"] is None else told(one["next"], one["zone"]),
            "" if one["last"] is None else told(one["last"], one["zone"]),
            when_of(one),
            render.clean(one["workflow"]),
            render.clean(one["owner"]),
        ]
        for one in found
    ]
    if rows or not render.is_terminal():
        render.table(["SCHEDULE", "STATE", "NEXT", "LAST", "WHEN", "WORKFLOW", "OWNER"], rows, colours=STATES)
    else:
        render.note("there are no schedules; penstock schedule add NAME FILE --cron '0 6 * * *' makes one")


def schedule_screen(data: Mapping[str, Any]) -> None:
    zone = data["zone"]
    moments = [(name, data[name]) for name in ("next", "waiting", "last", "start", "end") if data[name] is not None]
    lines = [
        ("schedule", f"{data['schedule']}  {data['state']}"),
        ("workflow", f"{data['workflow']}  {data['digest'][:19]}"),
        ("when", when_of(data)),
        *((name, told(at, zone)) for name, at in moments),
        ("catch up", f"{data['catch_up']}, {duration(data['grace'])} may be late"),
        ("overlap", data["overlap"]),
        *([("due as", data["due_param"])] if data["due_param"] else []),
        *(
            [("params", ", ".join(f"{name}={render.brief(value)}" for name, value in data["params"].items()))]
            if data["params"]
            else []
        ),
        ("owner", data["owner"]),
        *([("note", data["note"])] if data["note"] else []),
    ]
    for name, text in lines:
        render.data(f"{name:<10}{render.clean(text)}")
    if data["runs"]:
        render.data("")
        render.table(
            ["DUE", "RUN", "STATE"],
            [[told(one["due"], zone), one["run"], one["state"]] for one in data["runs"]],
            colours=STATES,
        )


def time_lines(found: Sequence[float], zone: str) -> None:
    for at in found:
        render.data(told(at, zone))
