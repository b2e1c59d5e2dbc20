"""Schedules here, or on a server. Called by the subcommands of `penstock schedule`, which import it when they run.

Both answer with the same data: those of the API.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.cli.foreground import ForegroundOptions, backends, submission_of
from penstock.cli.ui import errors, render
from penstock.errors import UserError
from penstock.formats.report import Report
from penstock.graph.model import Workflow
from penstock.service import parameters, remote, stores, workflows
from penstock.service.connection import ServerConnection
from penstock.service.manifests import unrunnable
from penstock.service.remote_store import connection
from penstock.service.schedules import verbs
from penstock.service.schedules.clockwork import is_there
from penstock.service.schedules.noun import StoredSchedule
from penstock.service.schedules.taken import take
from penstock.service.schedules.timing import told
from penstock.service.schedules.verbs import ScheduleTerms
from penstock.service.submission import user
from penstock.settings import Settings

Data = dict[str, Any]


class ScheduleDesk(Protocol):
    def add(
        self, request: ScheduleTerms, workflow: Workflow, report: Report | None, file: str, given: Any, options: Data
    ) -> Data: ...

    def all(self) -> list[Data]: ...

    def show(self, name: str) -> Data: ...

    def times(self, name: str, many: int) -> list[float]: ...

    def change(self, name: str, verb: str) -> Data: ...

    def remove(self, name: str) -> None: ...

    def run(self, name: str) -> str: ...


def desk(settings: Settings) -> ScheduleDesk:
    return There(connection(settings.server)) if settings.server else Here(settings)


class Here:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def add(
        self, request: ScheduleTerms, workflow: Workflow, report: Report | None, file: str, given: Any, options: Data
    ) -> Data:
        now = time.time()
        values = verbs.with_due(request, workflow, parameters.parse(workflow, given), now)
        on = options.pop("on", ())
        chosen = ForegroundOptions(given=given, submission=options, on=on)
        submission = submission_of(workflow, report, values, file, chosen, self._settings, quiet=False)
        submission.pack(self._settings)
        with stores.open_or_create(self._settings) as store:
            errors.problems(submission.vet(store))
            found = verbs.add(store, request, submission, now)
            if not is_there(store):
                render.note("it is run while penstock worker or penstock serve is: nobody seems to be there now")
            return verbs.details(store, found)

    def all(self) -> list[Data]:
        with stores.open_or_create(self._settings) as store:
            return [verbs.data(StoredSchedule.of(row)) for row in store.schedules.all()]

    def show(self, name: str) -> Data:
        with stores.open_or_create(self._settings) as store:
            return verbs.details(store, verbs.find(store, name))

    def times(self, name: str, many: int) -> list[float]:
        with stores.open_or_create(self._settings) as store:
            return verbs.times(verbs.find(store, name), time.time(), many)

    def change(self, name: str, verb: str) -> Data:
        with stores.open_or_create(self._settings) as store:
            found = verbs.pause(store, name) if verb == "pause" else verbs.resume(store, name, time.time())
            return verbs.data(found)

    def remove(self, name: str) -> None:
        with stores.open_or_create(self._settings) as store:
            verbs.remove(store, name)

    def run(self, name: str) -> str:
        with stores.open_or_create(self._settings) as store:
            made = verbs.run_now(store, name, user(), time.time())
            if not is_there(store):
                render.note(
                    f"no worker seems to be there now: penstock resume {made.id} runs it, or start penstock worker"
                )
            return made.id


class There:
    def __init__(self, server: ServerConnection) -> None:
        self._server = server

    def add(
        self, request: ScheduleTerms, workflow: Workflow, report: Report | None, file: str, given: Any, options: Data
    ) -> Data:
        if report is not None:
            errors.entries([*report.of("lost"), *report.of("changed")][:10])
        values = parameters.parse(workflow, given)
        verbs.with_due(request, workflow, values, time.time())
        sent = {name: value for name, value in options.items() if value}
        sent["on"] = backends(sent.get("on", ()))
        body = remote.parcel(self._server, workflow, values, sent)
        timing, policy = request.timing, request.policy
        when: Mapping[str, Any] = timing.as_data() | {
            "start": None if timing.start is None else told(timing.start, timing.zone),
            "end": None if timing.end is None else told(timing.end, timing.zone),
        }
        more = {
            "schedule": request.name,
            "due_param": request.due_param or None,
            "reuse": not options["fresh"],
            "paused": request.paused,
            "replace": request.replace,
        }
        asked = {name: value for name, value in when.items() if name != "anchor"} | policy._asdict() | more
        made: Data = self._server.post("schedules", body | asked)
        return made

    def all(self) -> list[Data]:
        found: list[Data] = []
        page: Data = {"next": ""}
        while page["next"] is not None:
            page = self._server.get("schedules", cursor=page["next"], limit=500)
            found += page["items"]
        return found

    def show(self, name: str) -> Data:
        found: Data = self._server.get(f"schedules/{name}")
        return found

    def times(self, name: str, many: int) -> list[float]:
        found: list[float] = self._server.get(f"schedules/{name}/times", limit=many)["times"]
        return found

    def change(self, name: str, verb: str) -> Data:
        found: Data = self._server.post(f"schedules/{name}/{verb}", {})
        return found

    def remove(self, name: str) -> None:
        self._server.delete(f"schedules/{name}")

    def run(self, name: str) -> str:
        return str(self._server.post(f"schedules/{name}/run", {})["run"])


def add(request: ScheduleTerms, file: str, given: tuple[str, ...], options: Data, settings: Settings) -> Data:
    """Raises UserError."""
    workflow, report = workflows.load_with_report(file)
    return desk(settings).add(request, workflow, report, file, given, options)


def taken(
    target: str, name: str | None, replace: bool, due: str, given: tuple[str, ...], options: Data, settings: Settings
) -> tuple[Data, Report]:
    """`due`: the parameter that is given the time. Raises UserError."""
    found = take(target, time.time(), name, replace)
    request = dataclasses.replace(found.request, due_param=due)
    problems = [*workflows.refused(target), *(() if settings.server else unrunnable(found.workflow))]
    if problems:
        raise UserError(problems)
    return desk(settings).add(request, found.workflow, None, target, given, options), found.report
