"""What is asked about a workflow that is sent along: its plan, and the same in another format. Nothing is recorded. Taken in by app."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from penstock.server import models
from penstock.server.api.common import errors, needs, settings_of, threads_of
from penstock.service import pasted
from penstock.service.views.outlook import outlook
from penstock.store.sql import Store

router = APIRouter(tags=["verbs"])
LOOK = needs("viewer", "plan and convert")


@router.post("/plan", dependencies=[LOOK], response_model=models.PlanView, responses=errors(413))
async def plan(request: Request, given: models.SentDocument) -> Any:
    """What a run of it would need, stage by stage, and what its queues would say now: as `penstock plan FILE -o json`."""

    def do(store: Store) -> dict[str, Any]:
        read = pasted.read(given.document, given.name)
        found = pasted.planned(read.workflow, given.params, given.queue, given.unit)
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
        made = pasted.converted(given.document, given.name, given.to)
        return {"text": made.text, "report": [one.as_data() for one in made.report.entries], "notes": list(made.notes)}

    return await threads_of(request).call(do)


@router.post("/simulate", dependencies=[LOOK], response_model=models.Simulated, responses=errors(404, 413))
async def simulate(request: Request, given: models.Simulate) -> Any:
    """Executes workflows on a virtual clock against the queues, and compares the units: as `penstock queue simulate FILE… -o json`. At most 500
    runs, and 10 seconds of computing."""
    settings = settings_of(request)
    fields = given.model_dump(exclude={"workflows"})

    def simulate_now(store: Store) -> Any:
        from penstock.service.simulation.ask import AskedWorkflow, Question, simulated

        workflows = [AskedWorkflow(**one.model_dump()) for one in given.workflows]
        return simulated(Question(workflows=workflows, **fields), store, settings)

    async with request.app.state.simulating:  # one at a time: each keeps a processor busy
        return await threads_of(request).call(simulate_now)
