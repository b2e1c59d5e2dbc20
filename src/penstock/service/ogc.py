"""Workflows and runs as OGC API – Processes (18-062r2) calls them: processes and jobs. Called by the server.

A process is a workflow that was run before, as it was recorded last. A job is a run. Nothing is kept for this face of the server but what a client
asked for with a job: among the options of the run, under `ogc`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from penstock.artifacts.blobs import digest_of
from penstock.errors import NotFound, PlanError, Problem
from penstock.expressions.parse import Expr
from penstock.expressions.types import Type
from penstock.graph import codec
from penstock.graph.callback import Callback
from penstock.graph.check.callbacks import url_problem
from penstock.graph.codec import encode_value
from penstock.graph.model import MISSING, Workflow
from penstock.graph.stored import Stored
from penstock.service import intake, stores
from penstock.service.fetching import parts_of
from penstock.service.intake_terms import BLOB
from penstock.service.policy import Actor
from penstock.service.run_records import workflow_of
from penstock.settings import Settings
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

OPTION: Final = "ogc"
_OF_ONE_RUN = re.compile(r"(?:ogc-(?:success|failed|dismissed)|url-\d+)\Z")
"""Callbacks that were added for one run."""
STATUSES: Final = ("accepted", "running", "successful", "failed", "dismissed")
_FINAL: Final[Mapping[str, str]] = {"succeeded": "successful", "failed": "failed", "cancelled": "dismissed"}
BATCH: Final = 200
MOST_LOOKED_AT: Final = 5_000
"""Runs that are looked at for one page of a list with filters; then the page ends, with a link to where it goes on."""
_PLAIN: Final[Mapping[str, str]] = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "str": "string",
    "null": "null",
}


# -- processes --------------------------------------------------------------------------------------------------------


class Process(NamedTuple):
    workflow: Workflow
    run: RunRecord
    """The newest of it."""

    def summary(self) -> dict[str, Any]:
        doc = self.workflow.doc.strip()
        lasting = _lasting(self.workflow)
        digest = self.run.digest if lasting == self.workflow else codec.digest(lasting)
        return {
            "id": self.workflow.name,
            "version": digest.removeprefix("sha256:")[:12],
            "title": doc.split("\n")[0][:200] or self.workflow.name,
            "description": doc,
            "jobControlOptions": ["async-execute", "dismiss"],
            "outputTransmission": ["value"],
        }

    def description(self) -> dict[str, Any]:
        inputs = {}
        for param in self.workflow.params:
            schema = schema_of(param.type)
            if param.choices:
                schema["enum"] = [encode_value(one) for one in param.choices]
            if param.default is not MISSING:
                schema["default"] = encode_value(param.default)
            needed = int(param.default is MISSING)
            title = {"title": param.name} | ({"description": param.doc} if param.doc else {})
            inputs[param.name] = {**title, "schema": schema, "minOccurs": needed, "maxOccurs": 1}
        outputs = {one.name: {"title": one.name, "schema": schema_of(one.type)} for one in self.workflow.outputs}
        return self.summary() | {"inputs": inputs, "outputs": outputs}


def processes(store: Store, limit: int, after: str = "") -> tuple[list[Process], str | None]:
    """By name; and the last name, if there are more."""
    rows = store.runs.flows(limit + 1, after)
    found = []
    for _, _, number in rows[:limit]:
        run = store.runs.by_number(number)
        if run is not None:  # else removed meanwhile
            found.append(Process(workflow_of(store, run), run))
    return found, rows[limit - 1][0] if len(rows) > limit else None


def process(store: Store, name: str) -> Process:
    """Raises NotFound, P560."""
    newest = store.runs.newest(limit=1, workflow=name)
    if not newest:
        fix = "GET /ogc/processes lists them: workflows that were submitted here before"
        raise NotFound(Problem("P560", f"there is no process {name[:80]!r}", fix))
    return Process(workflow_of(store, newest[0]), newest[0])


def schema_of(kind: Type) -> dict[str, Any]:
    """JSON schema."""
    if kind.name in _PLAIN:
        return {"type": _PLAIN[kind.name]}
    if kind.name == "list":
        return {"type": "array", "items": schema_of(kind.args[0]) if kind.args else {}}
    if kind.name == "tuple":
        return (
            {"type": "array", "minItems": len(kind.args), "maxItems": len(kind.args)}
            if kind.args
            else {"type": "array"}
        )
    if kind.name == "dict":
        return {"type": "object", "additionalProperties": schema_of(kind.args[-1]) if kind.args else True}
    if kind.name == "optional":
        return {"oneOf": [schema_of(kind.args[0]), {"type": "null"}]}
    if kind.name == "file":
        return {"type": "string", "contentEncoding": "base64", "contentMediaType": "application/octet-stream"}
    return {}


# -- execution --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCall:
    """What a client asks for."""

    inputs: Mapping[str, Any]
    outputs: Sequence[str] | None = None
    """Only these; None: all."""
    raw: bool = True
    subscriber: Mapping[str, str] | None = None
    """successUri, failedUri: who is told of its end."""


def _lasting(workflow: Workflow) -> Workflow:
    """Without callbacks of one run alone."""
    return replace(workflow, callbacks=tuple(one for one in workflow.callbacks if not _OF_ONE_RUN.match(one.name)))


def _told(workflow: Workflow, asked: ProcessCall) -> Workflow:
    """With callbacks to the subscriber of this job, and without those of others: they are part of the document that was recorded last. Raises
    PlanError."""
    own = _lasting(workflow).callbacks
    given = dict(asked.subscriber or {})
    if "inProgressUri" in given or not given.keys() <= {"successUri", "failedUri"}:
        fix = "leave it out and ask for the job; successUri and failedUri are told of its end"
        raise PlanError(Problem("P565", "a subscriber is told of the end of a job alone", fix, where="subscriber"))
    for name, url in given.items():
        if wrong := url_problem(url):
            raise PlanError(
                Problem("P565", f"{name}: {wrong}", "give a URL of the form https://host/path", where="subscriber")
            )
    outputs = [one.name for one in workflow.outputs] if asked.outputs is None else asked.outputs
    if "successUri" in given:
        results = {name: Expr.of(f"outputs[{json.dumps(name)}]") for name in outputs}
        own += (Callback(name="ogc-success", url=given["successUri"], on=("succeeded",), body=results),)
    for status, ends in (
        (("failed", ("failed", "invalid")), ("dismissed", ("cancelled",))) if "failedUri" in given else ()
    ):
        about = {"type": "process", "processID": workflow.name, "jobID": Expr.of("run.id"), "status": status}
        body = about | {"message": Expr.of("run.error")}
        own += (Callback(name=f"ogc-{status}", url=given["failedUri"], on=ends, body=body),)
    return replace(workflow, callbacks=own)


def execute(store: Store, settings: Settings, name: str, asked: ProcessCall, by: Actor, noted: Any) -> RunRecord:
    """A job of a process, which the next free worker executes. Raises UserError."""
    found = process(store, name)
    known = {one.name for one in found.workflow.outputs}
    missing = [one for one in asked.outputs or () if one not in known]
    if missing:
        fix = f"it has {', '.join(sorted(known)) or 'none'}"
        raise PlanError(
            Problem("P562", f"{name} has no output {missing[0][:80]!r}", fix, where=f"outputs.{missing[0][:80]}")
        )
    kinds = {param.name: param.type for param in found.workflow.params}
    values = {one: _value(value, kinds.get(one), f"inputs.{one[:80]}", settings) for one, value in asked.inputs.items()}
    before = found.run.options
    parcel = intake.Parcel(
        document=codec.to_json(_told(found.workflow, asked)),
        params=values,
        options={"on": before.get("on") or {}, "dry": bool(before.get("dry"))},
        bundle=before.get("bundle") or "",
    )
    submission, _ = intake.prepared(store, settings, parcel, intake.checked(parcel), by)
    submission.options[OPTION] = {
        "outputs": None if asked.outputs is None else list(asked.outputs),
        "raw": asked.raw,
    }

    def recorded() -> RunRecord:
        run = submission.record(store)
        noted(run)
        return run

    run, _ = store.orders.submit(recorded, by.person)
    assert run is not None
    return run


def _value(given: Any, kind: Type | None, where: str, settings: Settings) -> Any:
    """An input as OGC has it: a value, {"value": …} around an object, a link, or a list of these. Raises PlanError."""
    inner = kind.args[0] if kind is not None and kind.name == "optional" else kind
    if isinstance(given, dict) and "href" in given:
        fix = "send the value itself; of a file, its content in base64"
        raise PlanError(
            Problem("P562", "an input by reference: this server fetches nothing for a client", fix, where=where)
        )
    if isinstance(given, list):
        item = inner.item if inner is not None else None
        return [_value(one, item, f"{where}[{number}]", settings) for number, one in enumerate(given)]
    if isinstance(given, dict) and "value" in given:
        given = given["value"]
    if inner is not None and inner.name == "file" and isinstance(given, str):
        try:
            content = base64.b64decode(given, validate=True)
        except (binascii.Error, ValueError):
            fix = "encode the content of the file so: base64 FILE"
            raise PlanError(Problem("P562", "the content of a file is not base64", fix, where=where)) from None
        stores.prepare(settings)
        stores.blobs_of(settings).put(content)
        return {BLOB: digest_of(content), "name": "input"}
    return given


# -- jobs -------------------------------------------------------------------------------------------------------------


class OgcJob(NamedTuple):
    run: RunRecord
    status: str
    started: float | None

    def seconds(self, now: float) -> float | None:
        """How long it took, or has taken until now. None: it has not begun."""
        if self.started is None:
            return None
        return max(0.0, (now if self.run.ended is None else self.run.ended) - self.started)

    def as_data(self) -> dict[str, Any]:
        run = self.run
        done = self.status in ("successful", "failed", "dismissed") and run.ended is not None
        data: dict[str, Any] = {
            "type": "process",
            "processID": run.workflow,
            "jobID": run.id,
            "status": self.status,
            "message": run.error if self.status == "failed" else "",
            "created": written(run.created),
        }
        if self.started is not None:
            data["started"] = written(self.started)
        if done and run.ended is not None:
            data["finished"] = written(run.ended)
        if self.status == "successful":
            data["progress"] = 100
        return data


def job(store: Store, run: RunRecord) -> OgcJob:
    first = next(store.runs.events(run.number, limit=1, kinds=["run.started"]), None)
    return OgcJob(run, _status(store, run, first is not None), None if first is None else first.at)


def _status(store: Store, run: RunRecord, started: bool) -> str:
    """Steps that are tried again are part of a running job. A failed job that somebody retries runs as soon as that is ordered; one that is
    to be cancelled is dismissed as soon as that is."""
    order = store.orders.of(run.number)
    if run.state in FINAL:
        retried = order is not None and order.verb == "retry" and order.data.get("seq") == run.seq
        return "running" if retried and run.state != "succeeded" else _FINAL[run.state]
    ordered = order is not None and order.verb == "cancel"
    asked = any(one.verb == "cancel" for one in store.runs.requests(0, [run.number]))
    if ordered or asked or _cancelling(store, run):
        return "dismissed"
    return "running" if started else "accepted"


def _cancelling(store: Store, run: RunRecord) -> bool:
    """Since it was begun, or retried, last."""
    last = ""
    for event in store.runs.events(run.number, kinds=["run.cancelling", "run.retried", "run.finished"]):
        last = event.kind
    return last == "run.cancelling"


class JobFilter(NamedTuple):
    processes: Sequence[str] = ()
    statuses: Sequence[str] = ()
    first: float | None = None
    last: float | None = None
    """When it was created, both ends included."""
    shortest: float | None = None
    longest: float | None = None
    """Seconds that it took."""

    def fits(self, found: OgcJob, now: float) -> bool:
        if self.statuses and found.status not in self.statuses:
            return False
        if self.shortest is None and self.longest is None:
            return True
        took = found.seconds(now)
        return took is not None and (self.shortest or 0.0) <= took <= (
            math.inf if self.longest is None else self.longest
        )

    def runs(self, run: RunRecord) -> bool:
        if self.processes and run.workflow not in self.processes:
            return False
        return (self.first is None or run.created >= self.first) and (self.last is None or run.created <= self.last)


def jobs(
    store: Store, wanted: JobFilter, limit: int, now: float, before: int | None = None
) -> tuple[list[OgcJob], int | None]:
    """The newest first; and the number of the run where the next page goes on, if there may be one."""
    found: list[OgcJob] = []
    for looked, run in enumerate(_pages(store, wanted, before)):
        if len(found) == limit or looked == MOST_LOOKED_AT:
            return found, run.number + 1
        if wanted.runs(run):
            one = job(store, run)
            if wanted.fits(one, now):
                found.append(one)
    return found, None


def _pages(store: Store, wanted: JobFilter, before: int | None) -> Iterator[RunRecord]:
    workflow = wanted.processes[0] if len(wanted.processes) == 1 else None
    while True:
        page = store.runs.page(BATCH, before, None, workflow, None, wanted.first)
        yield from page
        if len(page) < BATCH:
            return
        before = page[-1].number


def interval(text: str) -> tuple[float | None, float | None]:
    """`2026-01-01T00:00:00Z`, `a/b`, `../b`, `a/..` of RFC 3339. Raises PlanError."""
    first, slash, last = text.partition("/")
    try:
        if not slash:
            return _moment(first), _moment(first)
        found = tuple(None if one in ("", "..") else _moment(one) for one in (first, last))
        if found == (None, None) or (None not in found and found[0] > found[1]):  # type: ignore[operator]
            raise ValueError
        return found[0], found[1]
    except (ValueError, OverflowError, OSError):
        fix = "write it as 2026-01-01T00:00:00Z, or two of these with / between, .. for an open end"
        raise PlanError(Problem("P566", f"{text[:80]!r} is no time and no interval", fix, where="datetime")) from None


def _moment(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- results ----------------------------------------------------------------------------------------------------------


class Results(NamedTuple):
    outputs: dict[str, Any]
    """Plain data; files are Stored."""
    raw: bool


def results(store: Store, settings: Settings, found: OgcJob) -> Results:
    """Of a job that was successful. Raises NotFound, P563: it is not over."""
    run = found.run
    if found.status in ("accepted", "running"):
        fix = f"ask /ogc/jobs/{run.id} until it is successful"
        raise NotFound(Problem("P563", f"{run.id} is {found.status}: there are no results yet", fix))
    asked = run.options.get(OPTION) or {"outputs": None, "raw": False}
    outputs = {} if not run.outputs else {one.output: one.value for one in parts_of(store, run, "", settings)}
    wanted = asked["outputs"]
    return Results({name: value for name, value in outputs.items() if wanted is None or name in wanted}, asked["raw"])


def by_value(value: Any, blob_at: str) -> Any:
    """For JSON: files and objects as links below `blob_at`."""
    if isinstance(value, Stored):
        return {
            "href": f"{blob_at}/{value.digest}",
            "type": "application/octet-stream",
            "title": value.name or value.kind,
        }
    if isinstance(value, list):
        return [by_value(item, blob_at) for item in value]
    return {key: by_value(item, blob_at) for key, item in value.items()} if isinstance(value, dict) else value
