"""Public names for authors of backends, formats, lock policies, engines and schedulers. A test pins the list: a change here is a change of the interface.

Other modules of Penstock may change without notice; these names do not. Import them from here, never from where they live.
docs/howto/write-a-backend.md shows a complete backend, docs/howto/write-an-engine.md an engine for the controller,
docs/howto/write-a-scheduler.md a scheduler.
"""

from __future__ import annotations

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import as_text, load_value, read_output, store_path, store_value, write_input
from penstock.backends.base import (
    Abilities,
    AttemptEnded,
    AttemptReport,
    AttemptSpec,
    AttemptStarted,
    Backend,
    BackendContext,
    BackendFactory,
    Inbox,
    LogPart,
)
from penstock.controller.engine import (
    Adjusted,
    Engine,
    Observed,
    Opening,
    Shape,
    Stage,
    State,
    Task,
    Unit,
    View,
)
from penstock.controller.names import PRIORITY as PRIORITY_LABEL
from penstock.controller.names import QUEUE as QUEUE_LABEL
from penstock.controller.names import QUEUED as QUEUED_LABEL
from penstock.controller.objects import (
    ApiResource,
    Lookup,
    Write,
    annotations_of,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.controller.objects import Object as ApiObject
from penstock.controller.objects import condition as condition_of
from penstock.errors import DocumentError, Problem, UserError
from penstock.formats.base import Format, Gate, Read, RunWatch, Trace, TraceFormat, TraceNote, Written
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.formats.status import Status, TaskStatus
from penstock.graph.model import Action, Container, Function, Http, Outcome, Pod, Resource, Script, Step, Workflow
from penstock.graph.quantity import parse as parse_quantity
from penstock.graph.quantity import show as quantity_text
from penstock.graph.stored import Stored
from penstock.scheduling.model import (
    Binding,
    Gang,
    JobLabels,
    JobObject,
    Marks,
    Role,
    SchedulerPlugin,
)
from penstock.scheduling.model import GangMember as Member
from penstock.scheduling.model import JobPodSet as PodSet
from penstock.store.lock_policies import LockPolicy
from penstock.store.records import LockRequest

__all__ = [
    "PRIORITY_LABEL",
    "QUEUED_LABEL",
    "QUEUE_LABEL",
    "Abilities",
    "Action",
    "Adjusted",
    "ApiObject",
    "ApiResource",
    "AttemptEnded",
    "AttemptReport",
    "AttemptSpec",
    "AttemptStarted",
    "Backend",
    "BackendContext",
    "BackendFactory",
    "Binding",
    "Blobs",
    "Container",
    "Document",
    "DocumentError",
    "Engine",
    "Format",
    "Function",
    "Gang",
    "Gate",
    "Http",
    "Inbox",
    "JobLabels",
    "JobObject",
    "Library",
    "LockPolicy",
    "LockRequest",
    "LogPart",
    "Lookup",
    "Marks",
    "Member",
    "Observed",
    "Opening",
    "Outcome",
    "Pod",
    "PodSet",
    "Problem",
    "Read",
    "Report",
    "Resource",
    "Role",
    "RunWatch",
    "SchedulerPlugin",
    "Script",
    "Shape",
    "Stage",
    "State",
    "Status",
    "Step",
    "Stored",
    "Task",
    "TaskStatus",
    "Trace",
    "TraceFormat",
    "TraceNote",
    "Unit",
    "UserError",
    "View",
    "Workflow",
    "Write",
    "Written",
    "annotations_of",
    "as_text",
    "condition_of",
    "is_deleted",
    "labels_of",
    "load_value",
    "name_of",
    "namespace_of",
    "parse_quantity",
    "part",
    "quantity_text",
    "read_output",
    "rows",
    "store_path",
    "store_value",
    "uid_of",
    "write_input",
]
