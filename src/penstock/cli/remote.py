"""`penstock run --server`: a run on a server, followed from here as if it were executed here. Called by the command run, which imports it
when it runs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import click

from penstock.cli.foreground import ForegroundOptions
from penstock.cli.ui import errors, render
from penstock.cli.ui.progress import Progress
from penstock.errors import PlanError, Problem
from penstock.graph.model import Workflow
from penstock.service import parameters, workflows
from penstock.service.remote import OVER, ServerConnection

LOOK = 0.5
"""Seconds between two looks at a run that is drawn."""
_HERE = ("queues", "dry")
"""Options that mean this machine."""


def run_there(file: str, options: ForegroundOptions, url: str, quiet: bool, output: str) -> None:
    """Raises UserError."""
    remote = ServerConnection(url)
    for name in _HERE:
        if options.submission.get(name):
            fix = "leave it out; an admin changes the queues of a server" if name == "queues" else "leave out --server"
            raise PlanError(Problem("P409", f"--{name} does not go with --server", fix))
    workflow, report = workflows.load_with_report(file)
    if report is not None:
        errors.entries([*report.of("lost"), *report.of("changed")][:10])
    values = parameters.parse(workflow, options.given)
    chosen = {name: value for name, value in options.submission.items() if name not in _HERE}
    on = dict(item.split("=", 1) for item in options.on if "=" in item)
    made = remote.submit(workflow, values, {**chosen, "until": list(chosen.get("until") or ()), "on": on})
    id = made["run"]["run"]
    for one in made["warnings"]:
        render.note(f"{one['code']} {one['message']}")
    if options.detach:
        render.result(output, {"run": id, "server": remote.base}, id)
        if output != "json":
            render.note(f"{remote.base}/runs/{id}")
        return
    _follow(remote, id, workflow, quiet, output)


def _follow(remote: ServerConnection, id: str, workflow: Workflow, quiet: bool, output: str) -> None:
    progress = None if quiet else Progress(id, workflow)
    began = time.monotonic()
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    data: dict[str, Any] = remote.get(f"runs/{id}")
    drawn = 0.0
    try:
        while data["state"] not in OVER and not stop.is_set():
            for _ in remote.follow(id, data.get("seq", 0)):
                if stop.is_set():
                    break
                if progress is not None and time.monotonic() - drawn > LOOK:
                    data = remote.get(f"runs/{id}")
                    _draw(progress, data, began)
                    drawn = time.monotonic()
            data = remote.get(f"runs/{id}")
            if data["state"] not in OVER:
                stop.wait(LOOK)
    finally:
        signal.signal(signal.SIGINT, before)
        if progress is not None:
            _draw(progress, data, began)
            progress.close()
    if stop.is_set():
        render.note(f"{id} goes on there: {remote.base}/runs/{id}")
        raise click.exceptions.Exit(130)
    _summary(remote, data, output, quiet)
    if data["state"] != "succeeded":
        raise click.exceptions.Exit(3)


def _draw(progress: Progress, data: Mapping[str, Any], began: float) -> None:
    tallies = {
        one["step"]: {
            **one["tasks"],
            **({"tasks": one["total"]} if one["total"] is not None and one["total"] > 1 else {}),
        }
        for one in data["steps"]
    }
    times = {
        one["step"]: [one["started"], *([one["ended"]] if one["ended"] is not None else [])]
        for one in data["steps"]
        if one["started"] is not None
    }
    reasons = {
        one["step"]: one["reason"] for one in data["steps"] if one["reason"] and one["state"] in ("waiting", "queued")
    }
    progress.update(tallies, times, time.monotonic() - began, data["state"], reasons)


def _summary(remote: ServerConnection, data: Mapping[str, Any], output: str, quiet: bool) -> None:
    if output == "json":
        render.json_out({name: data[name] for name in ("run", "state", "seconds", "tasks", "outputs", "failures")})
        return
    for name, value in data["outputs"].items():
        render.data(f"{name}: {value}")
    for one in data["failures"][:5]:
        render.note(f"✗ {one['task']}: {render.clean(str(one.get('message') or 'failed'))}")
        for line in str(one.get("log_end") or "").splitlines()[-6:]:
            render.note(f"    │ {render.clean(line)}")
    if not quiet:
        good = data["state"] == "succeeded"
        head = render.paint(
            f"{'✓' if good else '✗'} {data['run']}", sys.stderr, fg="green" if good else "red", bold=True
        )
        took = render.duration(data["seconds"] or 0.0)
        render.note(f"{head} {'done' if good else data['state']} in {took} · {remote.base}/runs/{data['run']}")
