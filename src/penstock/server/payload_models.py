"""The shapes of what the API takes and gives about payloads. Used by api.payloads."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from penstock.server.models import EventItem, ProblemItem, Submit, _Open, _Strict

_TEXT = r"^[^\x00]*$"
"""PostgreSQL takes no other."""
PayloadState = Literal["queued", "running", "succeeded", "failed", "cancelled", "invalid"]


class SubmitPayload(Submit):
    payload: Any = Field(description="The payload itself, or null")
    replace: bool = Field(False, description="Do it again, unless it is in flight")
    version: int | None = Field(None, ge=0, le=1 << 52, description="Of the identity; null: that of the workflow")
    label: str = Field("", max_length=200, description="What its sender calls it")


class PayloadAnswer(BaseModel):
    payload: str = Field(description="Its id")
    run: str = Field(description="The run that works on it, or has")
    state: PayloadState
    attempt: int
    created: bool = Field(description="false: the run was there already")
    warnings: list[ProblemItem]


class PayloadItem(_Open):
    payload: str
    workflow: str
    label: str
    state: str = Field(description="queued, running, succeeded, failed, cancelled or invalid: that of its newest run")
    run: str | None
    attempts: int
    version: int
    user: str | None
    created: float
    ended: float | None
    invalid_after: float | None
    error: str


class PayloadPage(BaseModel):
    items: list[PayloadItem]
    next: str | None = Field(description="The cursor of the next page; null: this was the last")


class PayloadDetails(PayloadItem):
    history: list[dict[str, Any]] = Field(description="Its attempts, in order")
    events: list[EventItem] = Field(description="What happened to it besides: submitted, invalidated")


class Invalidate(_Strict):
    after: float | None = Field(
        0.0,
        ge=0,
        le=1e11,
        allow_inf_nan=False,
        description="What came of it does not count after this time, in seconds since 1970; 0: from now on, null: it counts again",
    )


class Redrive(_Strict):
    state: Literal["failed", "cancelled", "invalid"] = "failed"
    workflow: str | None = Field(None, max_length=300, pattern=_TEXT)
    since: float = Field(ge=0, le=1e11, allow_inf_nan=False, description="They ended at this time or later")
    error: str = Field("", max_length=300, pattern=_TEXT, description="How their error begins, or a pattern: Timeout*")
    dry_run: bool = False


class RedrivenRuns(BaseModel):
    chosen: list[str] = Field(description="The runs that fit")
    started: list[str] = Field(description="What goes on now: of a payload a new run, otherwise the run itself")
