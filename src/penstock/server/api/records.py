"""What has been, and what would be: usage, queues over time, what-ifs, flows, the plan and the cost of a run. Taken in by app, before queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request

from penstock.server import record_models as models
from penstock.server.api.common import Limit, RunName, errors, needs, threads_of, with_run
from penstock.service import prices
from penstock.service.amounts import GUESS
from penstock.service.views.flows import definition, flow, page_of_flows
from penstock.service.views.quotas import QueueReader, StoreQueues
from penstock.service.views.run_plan import run_plan
from penstock.service.views.series import series
from penstock.service.views.usage import DAYS, cost_of, usage, way
from penstock.store.records import RunRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.service.simulation.what_if import QueueChange

router = APIRouter(tags=["records"])
LOOK = needs("viewer", "look at runs")
LOOK_AT_QUEUES = needs("viewer", "look at queues")
QueueName = Annotated[str, Path(max_length=300)]
Time = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="Seconds since 1970")]
Text = Annotated[str, Query(max_length=300)]
PATIENCE = 2.0
"""Seconds for which logs that nobody has counted yet are read for one request."""


@router.get("/usage", dependencies=[LOOK], response_model=models.UsageView, responses=errors())
async def show_usage(
    request: Request,
    by: Literal["person", "queue", "flow"] = "person",
    since: Time = None,
    until: Time = None,
    person: Text = "",
    queue: Text = "",
    flow: Text = "",
) -> Any:
    """What runs asked for and used, in whole hours; the last 30 days if nothing is said: as `penstock usage -o json`."""
    now = time.time()
    filters = {name: text for name, text in (("person", person), ("queue", queue), ("flow", flow)) if text}
    first = now - DAYS * 86400 if since is None else since
    last = now if until is None else until

    def look(store: Store) -> dict[str, Any]:
        return usage(store, way(by), first, last, prices.configured(), filters, seconds=PATIENCE).as_data()

    return await threads_of(request).call(look)


@router.get(
    "/queues/{name:path}/series", dependencies=[LOOK_AT_QUEUES], response_model=models.SeriesView, responses=errors(404)
)
async def show_series(
    request: Request,
    name: QueueName,
    since: Time = None,
    until: Time = None,
    step: Annotated[int, Query(ge=0, le=10**8, description="Seconds of a span; 0: what suits the time")] = 0,
) -> Any:
    """Use, quota, what was borrowed and how many waited over time; the last day if nothing is said: as `penstock queue history NAME -o json`."""
    last = time.time() if until is None else until

    def look(store: Store) -> dict[str, Any]:
        queue = QueueReader(StoreQueues(store)).one(name, 0).cluster_queue
        return series(store, queue, max(0.0, last - 86400) if since is None else since, last, step).as_data()

    return await threads_of(request).call(look)


@router.get(
    "/queues/{name:path}/what-if",
    dependencies=[LOOK_AT_QUEUES],
    response_model=models.WhatIfView,
    responses=errors(404),
)
async def try_what_if(
    request: Request,
    name: QueueName,
    tasks: Annotated[int, Query(ge=0, le=100_000)] = 1,
    asks: Annotated[str, Query(max_length=300, description="Of one task: cpu=2,memory=4Gi,gpu=1")] = "",
    seconds: Annotated[float, Query(ge=0, le=2_592_000, allow_inf_nan=False, description="How long one runs")] = GUESS,
    gang: bool = False,
    priority: Annotated[int, Query(ge=-(2**31), lt=2**31)] = 0,
    quota: Annotated[str, Query(max_length=300, description="Of the queue: cpu=64")] = "",
) -> Any:
    """When would more tasks start, and who would wait for them? Nothing is submitted: as `penstock queue what-if NAME -o json`."""

    def look(store: Store) -> dict[str, Any]:
        from penstock.service.simulation.what_if import what_if
        from penstock.service.simulation.wording import sentences

        found = what_if(store, name, change_in(tasks, asks, seconds, gang, priority, quota))
        return found.as_data() | {"sentences": sentences(found)}

    return await threads_of(request).call(look)


def change_in(tasks: int, asks: str, seconds: float, gang: bool, priority: int, quota: str) -> QueueChange:
    """Raises UserError."""
    from penstock.service.simulation.scenario import (
        parse_amounts,  # with the engine, which a server need not have to begin
    )
    from penstock.service.simulation.what_if import QueueChange

    return QueueChange(
        tasks=tasks,
        asks=parse_amounts(asks, "asks") if asks else {},
        seconds=seconds,
        gang=gang,
        priority=priority,
        quota=parse_amounts(quota, "quota") if quota else {},
    )


@router.get("/flows", dependencies=[LOOK], response_model=models.FlowPage, responses=errors())
async def list_flows(
    request: Request,
    limit: Limit = 50,
    cursor: Annotated[str, Query(max_length=300, description="`next` of the page before")] = "",
    find: Annotated[str, Query(max_length=100, description="Part of the name")] = "",
) -> Any:
    """Every workflow that was ever run, by name, with its last runs."""

    def look(store: Store) -> dict[str, Any]:
        found, following = page_of_flows(store, limit, cursor, find)
        return {"items": [one.as_data() for one in found], "next": following}

    return await threads_of(request).call(look)


@router.get("/flows/{name}", dependencies=[LOOK], response_model=models.FlowDetails, responses=errors(404))
async def show_flow(request: Request, name: QueueName) -> Any:
    def look(store: Store) -> dict[str, Any]:
        view, workflow = flow(store, name)
        return view.as_data() | {"definition": definition(workflow)}

    return await threads_of(request).call(look)


@router.get("/runs/{run}/cost", dependencies=[LOOK], response_model=models.RunCostView, responses=errors(404))
async def show_cost(request: Request, run: RunName) -> Any:
    """What its steps asked for and used, and the most wasteful of them: as `penstock usage --run RUN -o json`."""
    return await with_run(request, run, lambda store, record: cost_of(store, record, prices.configured()).as_data())


@router.get("/runs/{run}/plan", dependencies=[LOOK], response_model=models.RunPlanView, responses=errors(404))
async def show_plan(
    request: Request,
    run: RunName,
    against: Annotated[str, Query(max_length=300, description="A run; empty: the one of its workflow before it")] = "",
) -> Any:
    """Its plan, and how it differs from another run."""

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        return run_plan(store, record, against, request.app.state.settings).as_data()

    return await with_run(request, run, look)
