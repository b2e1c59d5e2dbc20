"""Payloads on the command line: submit, list, show, invalidate, drive again; here, or on a server. Called by the commands, which import it when
they run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from penstock.backends.registry import check as check_backends
from penstock.cli.foreground import backends
from penstock.cli.ui import errors, render
from penstock.cli.ui.marks import STATES
from penstock.errors import InvalidWorkflow, NotFound, PlanError, Problem
from penstock.graph.check import errors as errors_in
from penstock.graph.model import Workflow
from penstock.service import parameters, run_records, stores, workflows
from penstock.service.background import ensure_worker
from penstock.service.following import RunFollower
from penstock.service.images import backends_if_allowed
from penstock.service.payloads import verbs
from penstock.service.payloads.identity import identity_of
from penstock.service.payloads.read import LARGEST, check_size, payload_from
from penstock.service.payloads.sender import PayloadSender
from penstock.service.payloads.submit import PayloadRequest
from penstock.service.remote import submit_payload
from penstock.service.remote_store import connection
from penstock.service.submission import local_actor
from penstock.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadOptions:
    """What the options of `penstock submit` ask for."""

    given: Sequence[str] = ()
    """Parameters: `key=value`."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """replace, version, label."""
    submission: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of Submission."""
    on: Sequence[str] = ()
    wait: bool = False
    worker: bool = True


def submit_file(file: str, payload: str | None, options: PayloadOptions, settings: Settings, output: str) -> None:
    workflow = workflows.load(file)
    problems = errors_in(workflow)
    if problems:
        raise InvalidWorkflow(problems)
    name = identity_of(workflow).param
    values = parameters.parse(workflow, options.given)
    if payload is not None:
        values[name] = payload_from(*_read(payload))
    elif name not in values:
        fix = f"name a file of JSON, - for standard input, or give -p {name}=…"
        raise PlanError(Problem("P512", "there is no payload", fix))
    on = backends(options.on)
    given = {**options.submission, "on": on}
    if settings.server:
        remote = connection(settings.server)
        found = submit_payload(remote, workflow, values.pop(name), values, given, options.asked)
        warned = [f"{one['code']} {one['message']}" for one in found.pop("warnings")]
        for line in warned:
            render.note(line)
    else:
        found = _submit_here(file, workflow, name, values, given, options, settings)
    _tell(found, output)
    if options.wait:
        _wait(found["run"], settings)


def _submit_here(
    file: str,
    workflow: Workflow,
    name: str,
    values: dict[str, Any],
    given: dict[str, Any],
    options: PayloadOptions,
    settings: Settings,
) -> dict[str, Any]:
    given["on"] = backends_if_allowed(settings, given["on"])
    check_backends(set(given["on"].values()), settings.home, settings.artifacts, os.environ)
    sender = PayloadSender(workflow, settings, {**given, "file": file}, options.worker)
    try:
        found = sender.submit(PayloadRequest(payload=values.pop(name), params=values, **options.asked))
        errors.problems(sender.warnings)
        return found.as_data()
    finally:
        sender.close()


def _read(payload: str) -> tuple[bytes, str]:
    """Its bytes, and where they are from. Raises UserError."""
    if payload == "-":
        data = sys.stdin.buffer.read(LARGEST + 1)
        check_size(len(data))
        return data, "<stdin>"
    try:
        check_size(Path(payload).stat().st_size)
        return Path(payload).read_bytes(), payload
    except OSError as error:
        message = f"the payload {payload!r} cannot be read: {error.strerror}"
        raise NotFound(Problem("P501", message, "check the path; - is standard input")) from None


def _tell(found: Mapping[str, Any], output: str) -> None:
    render.result(output, found, found["run"])
    if output == "json":
        return
    what = "is new" if found["attempt"] == 1 else f"is attempt {found['attempt']}"
    said = f"{found['run']} {what}" if found["created"] else f"{found['run']} is there already, and {found['state']}"
    render.note(f"{said}; penstock payload show {found['payload']}")


def _wait(run: str, settings: Settings) -> None:
    with stores.open_existing(settings) as store:
        follower = RunFollower(store, run_records.find(store, run))
        follower.wait(None)
        state = follower.run.state
        if state != "succeeded":
            render.note(f"{run} {state}" + (f": {follower.run.error}" if follower.run.error else ""))
            raise click.exceptions.Exit(3)


# -- lists ------------------------------------------------------------------------------------------------------------


def list_payloads(
    settings: Settings,
    state: str | None,
    workflow: str | None,
    since: float | None,
    error: str,
    number: int,
    output: str,
) -> None:
    first = None if since is None else time.time() - since
    rows: list[dict[str, Any]] = []
    if settings.server:
        chosen = {"state": state, "workflow": workflow, "since": first, "error": error or None}
        rows = connection(settings.server).get("payloads", limit=min(number, 500), **chosen)["items"]
    elif stores.exists(settings):
        with stores.open_existing(settings) as store:
            found, _ = verbs.page(store, number, None, state, workflow, first, error)
            rows = list(map(verbs.payload_data, found))
    if output == "json":
        render.json_out(rows)
        return
    now = time.time()
    table = [
        [
            *(one[name] or "" for name in ("payload", "workflow", "label", "state", "run")),
            str(one["attempts"]),
            render.when(one["ended"] or one["created"], now),
            render.clean(one["error"]),
        ]
        for one in rows
    ]
    heads = ["PAYLOAD", "WORKFLOW", "LABEL", "STATE", "RUN", "ATTEMPTS", "SINCE", "ERROR"]
    if table or not render.is_terminal():
        render.table(heads, table, colours=STATES)
    else:
        render.note("there are no such payloads")


def show_payload(settings: Settings, name: str, output: str) -> None:
    if settings.server:
        found = connection(settings.server).get(f"payloads/{name}")
    else:
        with stores.open_existing(settings) as store:
            found = verbs.history(store, verbs.find(store, name))
    if output == "json":
        render.json_out(found)
        return
    label = f"   {render.clean(found['label'])}" if found["label"] else ""
    render.data(f"{found['payload']}  {found['workflow']}  {found['state']}{label}")
    if found["invalid_after"] is not None:
        after = f" after {render.when(found['invalid_after'])}" if found["invalid_after"] else ""
        render.data(f"what came of it does not count{after}")
    now = time.time()
    rows = [
        [
            str(one["attempt"]),
            *(one[name] for name in ("run", "state")),
            render.when(one["created"], now),
            *(render.clean(one[name]) for name in ("user", "error")),
        ]
        for one in found["history"]
    ]
    render.table(["ATTEMPT", "RUN", "STATE", "SUBMITTED", "USER", "ERROR"], rows, colours=STATES)


def invalidate_payload(settings: Settings, name: str, after: float | None, output: str) -> None:
    if settings.server:
        found = connection(settings.server).post(f"payloads/{name}/invalidate", {"after": after})
    else:
        with stores.open_existing(settings) as store:
            found = verbs.payload_data(verbs.invalidate(store, verbs.find(store, name), local_actor(), after))
    said = "counts again" if after is None else "does not count: the next submission makes a new run"
    render.result(output, found, f"what came of {found['payload']} {said}")


# -- driving again ----------------------------------------------------------------------------------------------------


def redrive_runs(
    settings: Settings, selection: Mapping[str, Any], since: float, dry_run: bool, worker: bool, output: str
) -> None:
    first = time.time() - since
    if settings.server:
        body = {**selection, "since": first, "dry_run": dry_run}
        found = connection(settings.server).post("payloads/redrive", body)
    else:
        found = _redrive_here(settings, verbs.Selection(**selection, since=first), dry_run, worker)
    if output == "json":
        render.json_out(found)
        return
    for run in found["chosen" if dry_run else "started"]:
        render.data(run)
    many = render.plural(len(found["chosen"]), "run")
    render.note(f"{many} would be driven again" if dry_run else f"{many} chosen, {len(found['started'])} go on now")


def _redrive_here(settings: Settings, selection: verbs.Selection, dry_run: bool, worker: bool) -> dict[str, Any]:
    with stores.open_existing(settings) as store:
        if dry_run:
            return {"chosen": [one.id for one in verbs.chosen(store, selection)], "started": []}
        found = verbs.redrive(store, settings, selection, local_actor())
    if worker and found.started:
        ensure_worker(settings)
    return found.as_data()
