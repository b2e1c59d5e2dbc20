"""The shapes of OGC API – Processes, part 1: core. Used by api.ogc."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from penstock.server.models import _Open, _Strict

Status = Literal["accepted", "running", "successful", "failed", "dismissed"]


class Link(BaseModel):
    href: str
    rel: str
    type: str
    title: str


class Landing(BaseModel):
    title: str
    description: str
    links: list[Link]


class Conformance(BaseModel):
    conformsTo: list[str]


class ProcessSummary(_Open):
    id: str
    version: str
    title: str
    description: str
    jobControlOptions: list[str]
    outputTransmission: list[str]
    links: list[Link]


class ProcessList(BaseModel):
    processes: list[ProcessSummary]
    links: list[Link]


class ProcessDescription(ProcessSummary):
    inputs: dict[str, Any]
    outputs: dict[str, Any]


class OutputWanted(_Open):
    transmissionMode: Literal["value"] = "value"


class Execute(_Strict):
    inputs: dict[str, Any] = Field(
        {}, description='Values; an object as {"value": …}; of a file, its content in base64'
    )
    outputs: dict[str, OutputWanted] | None = Field(None, description="Only these; all, if nothing is said")
    response: Literal["raw", "document"] = "raw"
    mode: str | None = Field(None, description="Jobs are asynchronous, whatever it says")
    subscriber: dict[str, str] | None = Field(
        None, description="successUri, failedUri: told of its end. inProgressUri is refused"
    )


class StatusInfo(_Open):
    type: Literal["process"]
    processID: str
    jobID: str
    status: Status
    message: str
    created: str
    links: list[Link]


class JobList(BaseModel):
    jobs: list[StatusInfo]
    links: list[Link]
