"""What is asked about a workflow that is sent along: its plan, and the same in another format. Nothing is recorded. Taken in by app."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request

from penstock.errors import InvalidWorkflow
from penstock.graph.check import errors as problems_of
from penstock.plan.make import Plan, make
from penstock.server import models
from penstock.server.api.common import errors, needs, threads_of
from penstock.service import conversion
from penstock.service.intake import workflow_in
from penstock.service.sizing import sized
from penstock.service.views.outlook import outlook
from penstock.service.workflows import override
from penstock.store.sql import Store

router = APIRouter(tags=["verbs"])
LOOK = needs("viewer", "plan and convert")


def planned(given: models.SentDocument) -> Plan:
    """Raises UserError."""
    workflow, _ = workflow_in(given.document, given.name)
    workflow = override(workflow, given.queue, None, given.unit)
    found = problems_of(workflow)
    if found:
        raise InvalidWorkflow(found)
    workflow, _ = sized(workflow, given.params, "")
    return make(workflow, given.params)


@router.post("/plan", dependencies=[LOOK], response_model=models.PlanView, responses=errors(413))
async def plan(request: Request, given: models.SentDocument) -> Any:
    """What a run of it would need, stage by stage, and what its queues would say now: as `penstock plan FILE -o json`."""

    def do(store: Store) -> dict[str, Any]:
        found = planned(given)
        data = found.as_data()
        looks = outlook(found, store)
        for each in data["reservations"]:
            each["outlook"] = looks[each["name"]].as_data()
        return data

    return await threads_of(request).call(do)


@router.post("/convert", dependencies=[LOOK], response_model=models.ConvertedText, responses=errors(413))
async def convert(request: Request, given: models.Convert) -> Any:
    """The same workflow in another format, with a report of what that changes and loses: as `penstock convert FILE --to FORMAT`."""

    def do(_: Store) -> dict[str, Any]:
        workflow, report = workflow_in(given.document, given.name)
        found = problems_of(workflow)
        if found:
            raise InvalidWorkflow([replace(one) for one in found])
        made = conversion.write(workflow, given.to)
        entries = [*(report.entries if report is not None else ()), *made.report.entries]
        return {"text": made.text, "report": [one.as_data() for one in entries], "notes": list(made.notes)}

    return await threads_of(request).call(do)
