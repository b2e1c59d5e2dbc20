"""The shapes of what the API takes and gives. FastAPI checks requests with them, and writes them into the OpenAPI document. Used by api.

The data itself comes from service: what `penstock … -o json` prints. So a field is named here as it is there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

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


class ClusterItems(BaseModel):
    """What a cluster beside the store has, if the server was given one."""

    cluster: str
    problem: str | None = Field(description="Why this may be out of date, or why something is missing")
    seen: float | None = Field(description="When this was put together; null: not yet")
    items: list[dict[str, Any]]


class RunPage(BaseModel):
    items: list[RunItem]
    next: str | None = Field(description="The cursor of the next page; null: this was the last")
    cluster: ClusterItems | None = Field(None, description="What is in the queues of the cluster; on the first page")


class RunDetails(RunItem):
    params: dict[str, Any]
    digest: str
    steps: list[dict[str, Any]]
    outputs: dict[str, Any]
    failed: int
    failures: list[dict[str, Any]]
    waits: list[dict[str, Any]]


class LineageItem(BaseModel):
    run: str | None = Field(description="null: the link has started none")
    workflow: str
    state: str = Field(description="Of the run; or skipped, omitted, dead, waiting, removed")
    link: str = Field(description="Its place in the chain; empty: the first run")
    parent: str | None = Field(description="The run whose end started it")
    depth: int
    why: str = Field(description="Why there is no run")
    error: str


class LineageView(BaseModel):
    root: str
    links: list[LineageItem] = Field(description="Each below what it follows from")


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
    cluster: ClusterItems | None = Field(None, description="The queues of Kueue in the cluster")


class ClusterWhy(_Open):
    object: str
    namespace: str
    problem: str | None
    workloads: list[dict[str, Any]]


class QueueObject(BaseModel):
    kind: str
    name: str


class QueueFile(_Strict):
    text: str = Field(max_length=4 * 2**20, description="Manifests, as YAML or JSON")
    name: str = Field("<request>", max_length=1000, description="What problems call it")


class QueueFiles(_Strict):
    files: list[QueueFile] = Field(max_length=100)


class QueuesChanged(QueueList):
    changed: list[QueueObject]
    warnings: list[ProblemItem] = []


class QueueStopped(QueueItem):
    changed: list[QueueObject]


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


class AnswerBody(_Strict):
    status: Literal["success", "failure", "heartbeat"]
    outputs: dict[str, Any] = Field({}, description="Of a success: the outputs of the step, by name")
    error: str = Field(
        "failed", description="Of a failure: its name, as retry policies and `steps.NAME.error.name` have it"
    )
    message: str = Field("", description="Of a failure: what went wrong")


class TakenAnswer(BaseModel):
    status: Literal["success", "failure", "heartbeat"]


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


class SimulatedDocument(_Strict):
    document: str = Field(description="As of a submission, or a recording in WfFormat")
    name: str | None = None
    params: dict[str, Any] = {}


class Simulate(_Strict):
    workflows: list[SimulatedDocument] = Field(min_length=1, max_length=500)
    queues: str = Field("", max_length=4 * 2**20, description="Manifests: what would be different in the queues")
    instead: bool = Field(False, description="Only the queues that were sent, not those of the store")
    capacity: str = Field("", max_length=1000, description="One queue of this size instead: cpu=64,memory=256Gi")
    queue: list[str] = Field([], max_length=100, description="Given to the runs in rotation")
    priority: list[str] = Field([], max_length=100, description="Likewise")
    units: list[Unit] = Field([], max_length=4, description="Empty: each of them")
    every: float = Field(0.0, ge=0, description="Seconds between two submissions")
    repeat: int = Field(1, ge=1, le=500)
    seconds: float = Field(60.0, ge=0, description="Of a task whose run time is not known")
    runtimes: dict[str, float] = Field({}, description="Step -> seconds")
    measured: bool = False


class Simulated(_Open):
    queues: str
    capacity: dict[str, Any]
    jobs: list[dict[str, Any]]
    remarks: list[str]
    units: list[dict[str, Any]]
    warnings: list[ProblemItem]


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
    groups: list[str]
    scopes: list[str]


class TokenView(BaseModel):
    id: str
    person: str
    role: str
    note: str
    created: float
    expires: float | None
    revoked: float | None
    groups: list[str]
    scopes: list[str]


class TokenList(BaseModel):
    items: list[TokenView]


class NewToken(_Strict):
    person: str
    role: Literal["viewer", "submitter", "operator", "admin"] = "submitter"
    days: float | None = Field(None, gt=0, le=3650, description="Until it expires; null: never")
    note: str = Field("", max_length=1000, pattern=r"^[^\x00]*$")
    groups: list[str] = Field([], max_length=200, description="For the lists of queues")
    scopes: list[Literal["runs", "queues", "cluster", "records", "verbs", "files", "people", "server", "store"]] = (
        Field([], description="The parts of the API that it is for, by their tags; empty: all")
    )


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


# -- what the commands read -------------------------------------------------------------------------------------------

Scalar = str | int | float | None
LogName = Annotated[str, Field(max_length=500)]
Offset = Annotated[int, Field(ge=0, le=1 << 53)]


class StoreAbout(BaseModel):
    version: str
    tables: int = Field(description="Their version: that of the schema of the store")
    capacity: dict[str, int]
    prices: dict[str, Any]


class Query(_Strict):
    args: list[Scalar] = Field(max_length=10)
    keys: list[str] | None = Field(None, max_length=10_000)


class Rows(BaseModel):
    rows: list[list[Scalar]]


class LogNames(_Strict):
    names: list[LogName] = Field(max_length=1000)


class LogSizes(BaseModel):
    sizes: dict[str, int]


class LogPieces(_Strict):
    pieces: list[tuple[LogName, Offset, Offset | None, Offset | None]] = Field(max_length=1000)


class LogText(BaseModel):
    start: int
    data: str = Field(description="In base64")
    more: bool


class LogTexts(BaseModel):
    pieces: list[LogText | None]


class EngineIds(_Strict):
    engines: list[LogName] = Field(max_length=1000)


class OrphanItem(BaseModel):
    pid: int
    run: str
    task: str


class Orphans(BaseModel):
    orphans: list[OrphanItem]
