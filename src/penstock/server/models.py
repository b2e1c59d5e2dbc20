"""The shapes of what the API takes and gives. FastAPI checks requests with them, and writes them into the OpenAPI document. Used by api.

The data itself comes from service: what `penstock … -o json` prints. So a field is named here as it is there.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Unit = Literal["workflow", "stage", "task", "reuse"]


class _Open(BaseModel):
    """What service gives. It may have fields that are not listed."""

    model_config = ConfigDict(extra="allow")


class _Strict(BaseModel):
    """What somebody sends. A field that nobody knows is a mistake."""

    model_config = ConfigDict(extra="forbid")


class ProblemItem(_Open):
    code: str
    message: str
    fix: str
    severity: Literal["error", "warning"]


class ProblemDetails(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Explained by GET /api/v1/errors/{code} and penstock explain CODE")
    fix: str
    problems: list[ProblemItem]


class RunItem(_Open):
    run: str
    workflow: str
    state: str = Field(description="starting, running, queued, stopped, lost, succeeded, failed or cancelled")
    user: str
    created: float
    ended: float | None
    seconds: float | None
    tasks: dict[str, int] = Field(description="State of a task -> how many")


class RunPage(BaseModel):
    items: list[RunItem]
    next: str | None = Field(description="The cursor of the next page; null: this was the last")


class RunDetails(RunItem):
    params: dict[str, Any]
    digest: str
    steps: list[dict[str, Any]]
    outputs: dict[str, Any]
    failed: int
    failures: list[dict[str, Any]]
    waits: list[dict[str, Any]]


class Task(_Open):
    task: str
    step: str
    state: str
    attempt: int
    started: float | None
    ended: float | None
    reason: str


class TaskPage(BaseModel):
    items: list[Task]
    next: str | None


class TaskDetails(Task):
    attempts: list[dict[str, Any]]
    inputs: dict[str, Any]
    outputs: dict[str, Any]


class EventItem(BaseModel):
    seq: int
    at: float
    kind: str
    task: str
    data: dict[str, Any]


class EventPage(BaseModel):
    items: list[EventItem]
    next: str | None


class Why(_Open):
    run: str
    state: str
    waits: list[dict[str, Any]]
    history: list[dict[str, Any]]


class RunOutputs(BaseModel):
    run: str
    outputs: list[dict[str, Any]]


class QueueItem(_Open):
    queue: str
    kind: str
    state: str
    pending: int
    admitted: int
    quota: list[dict[str, Any]]


class QueueList(BaseModel):
    items: list[QueueItem]


class SubmitOptions(_Strict):
    until: list[str] = []
    fail_fast: bool = False
    fresh: bool = False
    dry: bool = False
    queue: str | None = None
    priority: str | int | None = None
    unit: Unit | None = None
    on: dict[str, str] = {}


class Submit(_Strict):
    document: str = Field(description="A workflow as YAML or JSON, or a manifest of Argo, Tekton, JobSet or Kubernetes")
    name: str | None = Field(None, description="Which, of a manifest with several workflows")
    params: dict[str, Any] = Field({}, description='A file is {"$blob": DIGEST, "name": NAME}')
    options: SubmitOptions = SubmitOptions()
    bundle: str = Field("", description="The digest of the code of its functions, sent as a blob before")


class Submitted(BaseModel):
    run: RunItem
    created: bool = Field(description="false: the same submission, by its Idempotency-Key, had arrived before")
    warnings: list[ProblemItem]


class Cancel(_Strict):
    now: bool = Field(False, description="Kill running tasks at once and skip the exit handlers")


class Resume(_Strict):
    task: str = Field("", description="A suspended step or task; empty: go on with a run that was interrupted")
    params: dict[str, Any] = Field({}, description="Values for its outputs")


class Accepted(BaseModel):
    run: str
    state: str
    ordered: str = Field(description="What will be done: cancel, retry or resume")


class SentDocument(_Strict):
    document: str
    name: str | None = None
    params: dict[str, Any] = {}
    unit: Unit | None = None
    queue: str | None = None


class PlanView(_Open):
    workflow: str
    stages: list[dict[str, Any]]


class Convert(_Strict):
    document: str
    name: str | None = None
    to: str


class ConvertedText(BaseModel):
    text: str
    report: list[dict[str, Any]]
    notes: list[str]


class Digests(_Strict):
    digests: list[str] = Field(max_length=10_000)


class MissingBlobs(BaseModel):
    missing: list[str]


class Kept(BaseModel):
    digest: str
    size: int


class Who(BaseModel):
    person: str
    role: str
    token: str


class TokenView(BaseModel):
    id: str
    person: str
    role: str
    note: str
    created: float
    expires: float | None
    revoked: float | None


class TokenList(BaseModel):
    items: list[TokenView]


class NewToken(_Strict):
    person: str
    role: Literal["viewer", "submitter", "operator", "admin"] = "submitter"
    days: float | None = Field(None, gt=0, le=3650, description="Until it expires; null: never")
    note: str = ""


class MadeToken(TokenView):
    secret: str = Field(description="The token. It is shown this once")


class AuditItem(BaseModel):
    number: int
    at: float
    person: str
    token: str
    verb: str
    target: str
    status: int


class AuditPage(BaseModel):
    items: list[AuditItem]
    next: str | None


class ErrorCode(BaseModel):
    code: str
    title: str
    text: str
