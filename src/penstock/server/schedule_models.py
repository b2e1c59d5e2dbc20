"""The shapes of what the API takes and gives of schedules. Used by api.schedules."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from penstock.server.models import Submit, _Open

CatchUp = Literal["none", "one", "all"]
Overlap = Literal["skip", "wait", "replace", "allow"]


class NewSchedule(Submit):
    """What is submitted each time, and when."""

    schedule: str = Field(description="Its name", max_length=100)
    cron: list[str] = Field([], max_length=50, description="Lines of cron; or give `every`")
    zone: str | None = Field(None, max_length=100, description="IANA name; UTC if there is none")
    every: float | None = Field(None, allow_inf_nan=False, description="Seconds")
    start: str | None = Field(None, max_length=100, description="ISO 8601: not before")
    end: str | None = Field(None, max_length=100, description="ISO 8601: not after")
    catch_up: CatchUp = "none"
    overlap: Overlap = "skip"
    grace: float | None = Field(
        None, allow_inf_nan=False, description="Seconds that a run may begin late with catch_up none"
    )
    due_param: str | None = Field(None, max_length=300, description="The parameter that is given the time that is due")
    reuse: bool = Field(False, description="Take stored results of steps that did not change; else all is run anew")
    paused: bool = False
    replace: bool = Field(False, description="In place of the schedule of this name")


class ScheduleItem(_Open):
    schedule: str
    workflow: str
    state: str = Field(description="active, paused or over")
    cron: list[str]
    zone: str
    every: float | None
    catch_up: str
    overlap: str
    next: float | None = Field(description="When it is due next, in seconds since 1970")
    last: float | None
    note: str = Field(description="Why it last made no run")
    owner: str


class SchedulePage(BaseModel):
    items: list[ScheduleItem]
    next: str | None


class ScheduleDetails(ScheduleItem):
    params: dict[str, Any]
    options: dict[str, Any]
    runs: list[dict[str, Any]] = Field(description="The last ones: run, due, state")


class ScheduleTimes(BaseModel):
    times: list[float]


class ScheduledRun(BaseModel):
    run: str
