"""The shapes of what the API gives of records over time: usage, series of queues, what-ifs, flows, plans and costs of runs, callbacks. Used by api.records and api.callbacks."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from penstock.server.models import RunItem, _Open, _Strict


class UsageItem(_Open):
    name: str
    runs: int
    attempts: int
    reused: int = Field(description="Tasks whose result was known, so that nothing ran")
    hours: float
    asked: dict[str, float] = Field(description="Resource -> hours of a core, of a GiB, of a piece")
    cpu_used: float = Field(description="Core-hours, of attempts whose processor time was measured")
    cpu_measured: float = Field(description="Core-hours asked for by those of them that asked for cores")
    cpu_of_measured: float = Field(description="Core-hours that these used")
    lost: dict[str, float] = Field(description="Asked for by attempts that did not succeed")
    cost: float | None = Field(description="null: there are no prices")


class UsageView(BaseModel):
    by: str
    since: float
    until: float
    prices: dict[str, Any]
    items: list[UsageItem]
    total: UsageItem
    days: list[dict[str, Any]]
    uncounted: int = Field(description="Runs whose log has not been read yet; ask again")


class SeriesSpan(BaseModel):
    at: int
    waiting: dict[str, int] = Field(description="Workloads: mean, peak")
    quota: list[dict[str, str]]


class SeriesView(BaseModel):
    queue: str
    since: float
    until: float
    step: int = Field(description="Seconds of a span")
    spans: list[SeriesSpan] = Field(description="Those of which something is known")


class WhatIfView(_Open):
    queue: str
    tasks: int
    at_once: int
    waits_from: int | None = Field(description="The first task that has to wait")
    starts: list[dict[str, Any]]
    never: str | None
    waiting: list[dict[str, Any]]
    preempted: list[str]
    sentences: list[str]


class FlowItem(BaseModel):
    flow: str
    runs: int
    state: str
    usual: float | None = Field(description="The median of the last runs that succeeded")
    succeeded: float | None = Field(description="Part of the last runs")
    last: list[RunItem]


class FlowPage(BaseModel):
    items: list[FlowItem]
    next: str | None


class FlowDetails(FlowItem):
    definition: dict[str, Any]


class RunCostView(_Open):
    run: str
    prices: dict[str, Any]
    steps: list[dict[str, Any]]
    total: dict[str, Any]
    cost: float | None
    wasteful: list[dict[str, Any]]


class RunPlanView(BaseModel):
    run: str
    plan: dict[str, Any]
    against: str | None
    difference: dict[str, Any] | None = Field(description="To the run `against`: as penstock diff -o json")


class CallbackTry(_Open):
    attempt: int
    at: float
    status: int = Field(description="Of the answer; 0: there was none")
    error: str
    seconds: float


class CallbackItem(_Open):
    number: int
    run: str
    callback: str
    end: str
    place: int | None = Field(description="Of the item that it is about")
    state: str = Field(description="new: still to be delivered; done; dead: given up")
    attempts: int
    error: str
    next_at: float | None
    key: str = Field(description="What the receiver got as Idempotency-Key")
    tries: list[CallbackTry]


class CallbackPage(BaseModel):
    items: list[CallbackItem]
    next: str | None


class Redeliver(_Strict):
    numbers: list[Annotated[int, Field(ge=1, lt=1 << 53)]] = Field(
        default=[], max_length=10_000, description="Which; none: all of the run that were given up"
    )


class Redelivered(BaseModel):
    redelivered: int
