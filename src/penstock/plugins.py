"""Public names for authors of backends, formats and lock policies. A test pins the list: a change here is a change of the interface.

Other modules of Penstock may change without notice; these names do not. Import them from here, never from where they live.
docs/howto/write-a-backend.md shows a complete backend.
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
from penstock.errors import Problem, UserError
from penstock.formats.base import Format, Gate, Read, RunWatch, Trace, TraceFormat, TraceNote, Written
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.formats.status import Status, TaskStatus
from penstock.graph.model import Action, Container, Function, Http, Outcome, Pod, Resource, Script, Step, Workflow
from penstock.graph.stored import Stored
from penstock.store.lock_policies import LockPolicy
from penstock.store.records import LockRequest

__all__ = [
    "Abilities",
    "Action",
    "AttemptEnded",
    "AttemptReport",
    "AttemptSpec",
    "AttemptStarted",
    "Backend",
    "BackendContext",
    "BackendFactory",
    "Blobs",
    "Container",
    "Document",
    "Format",
    "Function",
    "Gate",
    "Http",
    "Inbox",
    "Library",
    "LockPolicy",
    "LockRequest",
    "LogPart",
    "Outcome",
    "Pod",
    "Problem",
    "Read",
    "Report",
    "Resource",
    "RunWatch",
    "Script",
    "Status",
    "Step",
    "Stored",
    "TaskStatus",
    "Trace",
    "TraceFormat",
    "TraceNote",
    "UserError",
    "Workflow",
    "Written",
    "as_text",
    "load_value",
    "read_output",
    "store_path",
    "store_value",
    "write_input",
]
