"""The page that starts a run: a workflow is pasted, chosen as a file, or taken from an earlier run. Taken in by site."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.datastructures import UploadFile
from starlette.responses import RedirectResponse, Response

from penstock.errors import UserError
from penstock.graph import codec
from penstock.graph.model import MISSING, Workflow
from penstock.server.access import actor_of, entry_of
from penstock.server.api.common import needs, settings_of, threads_of, who_of
from penstock.server.pages.pasting import Sent, sent, sketch
from penstock.server.pages.site import page
from penstock.server.problems import status_of
from penstock.service import intake, parameters, pasted, stores
from penstock.service.intake_terms import BLOB
from penstock.service.parameters import Given
from penstock.service.queues import named_queues, replica_of
from penstock.service.run_records import find, workflow_of
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
MAY = needs("submitter", "submit runs")
LEAD = "p-"
"""What the names of fields for parameters begin with."""
COMMAND = "penstock run FILE --server URL"
UNITS = ("", "workflow", "stage", "task", "reuse")
NOTHING: dict[str, Any] = {
    "found": None,
    "params": (),
    "document": "",
    "name": "",
    "bundle": "",
    "queue": "",
    "priority": "",
    "unit": "",
    "dry": False,
    "problems": (),
}


@router.get("/submit", dependencies=[MAY])
async def form(request: Request, run: Annotated[str, Query(alias="from", max_length=300)] = "") -> Response:
    """`from`: a run whose workflow, parameters and code are taken."""

    def look(store: Store) -> dict[str, Any]:
        again = _again(store, run) if run else {}
        return {**NOTHING, "queues": _queues(store), **again, "key": os.urandom(12).hex()}

    data = await threads_of(request).call(look)
    shown = {name: data[name] for name in ("document", "queues", "bundle")}
    return page(request, "submit.html", {**data, "data": shown}, COMMAND)


@router.post("/submit", dependencies=[MAY])
async def submit(request: Request) -> Response:
    """Looks at what was sent, or with `do=submit` starts it. The same form that is sent twice starts one run."""
    given, settings, who = await sent(request), settings_of(request), who_of(request)
    files = await _files(given)
    starting = given.field("do") == "submit"

    def do(store: Store) -> dict[str, Any] | str:
        found = pasted.read(given.document, given.name or None)
        params = _params(found.workflow, given)
        if starting:
            sent_files = {name: _blob(settings, name, *file) for name, file in files.items()}
            parcel = intake.Parcel(
                document=given.document,
                name=given.name or None,
                params=params | sent_files,
                options=_options(given),
                bundle=given.field("bundle"),
            )

            def noted(run: RunRecord) -> None:
                store.tokens.note(entry_of(who, "submit", run.id, 303))

            return intake.submit(store, settings, parcel, actor_of(who), given.field("key"), noted).run.id
        return {"found": sketch(found, params, given.field("queue")), "params": _fields(found.workflow, given)}

    try:
        done = await threads_of(request).call(do)
    except UserError as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return page(request, "submit.html", await _shown(request, given, error), COMMAND, status_of(error))
    if isinstance(done, str):
        request.app.state.nudge()
        return RedirectResponse(f"/runs/{done}", 303)
    data = {**await _shown(request, given), **done}
    plan = done["found"]["plan"]
    return page(request, "submit.html", {**data, "data": {"plan": plan}}, "penstock plan FILE")


async def _shown(request: Request, given: Sent, error: UserError | None = None) -> dict[str, Any]:
    """The form as it was sent."""

    def look(store: Store) -> dict[str, Any]:
        fields: list[dict[str, Any]] = []
        if error is not None:
            try:
                fields = _fields(pasted.read(given.document, given.name or None).workflow, given)
            except UserError:
                fields = []
        return {"queues": _queues(store), "params": fields}

    said = {name: given.field(name) for name in ("bundle", "queue", "priority", "unit", "key")}
    problems = error.problems if error is not None else ()
    looked = await threads_of(request).call(look)
    kept = {"document": given.document, "name": given.name, "dry": bool(given.field("dry")), "problems": problems}
    return {**NOTHING, **looked, **said, **kept}


def _again(store: Store, name: str) -> dict[str, Any]:
    """Raises NotFound."""
    record = find(store, name)
    workflow = workflow_of(store, record)
    values = {one: _text(value) for one, value in record.params.items() if one in _texts(workflow)}
    return {
        "document": codec.to_yaml(workflow),
        "bundle": record.options.get("bundle", ""),
        "params": [{**one, "value": values.get(one["name"], one["value"])} for one in _fields(workflow)],
    }


def _texts(workflow: Workflow) -> set[str]:
    return {param.name for param in workflow.params if param.type.name not in ("file", "dir")}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fields(workflow: Workflow, given: Sent | None = None) -> list[dict[str, Any]]:
    """One for each parameter."""
    found = []
    for param in workflow.params:
        default = "" if param.default is MISSING else _text(codec.encode_value(param.default))
        said = given.value(LEAD + param.name) if given is not None else ""
        file = param.type.name == "file"
        row = {"name": param.name, "type": str(param.type), "doc": param.doc, "default": default, "file": file}
        found.append({**row, "value": said, "needed": param.default is MISSING})
    return found


def _params(workflow: Workflow, given: Sent) -> dict[str, Any]:
    """Of the fields that were filled in. Raises PlanError."""
    said = {param.name: given.value(LEAD + param.name) for param in workflow.params}
    return parameters.parse(workflow, [Given(name, "", text, "") for name, text in said.items() if text])


def _options(given: Sent) -> dict[str, Any]:
    priority = given.field("priority")
    number = priority.removeprefix("-").isdecimal() and len(priority) < 11
    said = {"queue": given.field("queue") or None, "unit": given.field("unit") or None, "dry": bool(given.field("dry"))}
    return {**said, "priority": (int(priority) if number else priority) if priority else None}


async def _files(given: Sent) -> dict[str, tuple[str, bytes]]:
    """Parameter -> the name and the content of its file."""
    found = {}
    for name, value in given.form.multi_items():
        if name.startswith(LEAD) and isinstance(value, UploadFile) and value.filename:
            found[name.removeprefix(LEAD)] = (value.filename, await value.read())
    return found


def _blob(settings: Settings, name: str, called: str, content: bytes) -> Mapping[str, str]:
    return {BLOB: stores.blobs_of(settings).put(content), "name": called.replace("\\", "/").rpartition("/")[2]}


def _queues(store: Store) -> list[str]:
    replica = replica_of(store.queues, 0.0)
    return (
        sorted(one.key.removeprefix("default/") for one in named_queues(replica.scheduler))
        if replica.configured
        else []
    )
