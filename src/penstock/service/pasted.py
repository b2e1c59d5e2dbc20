"""A workflow that somebody pastes: what it describes, its plan, and the same in another format. Nothing of it is recorded or executed. Called by the
server, for its verbs and its pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import InvalidWorkflow
from penstock.formats import registry
from penstock.formats.documents import Library, read_text
from penstock.formats.report import Report, joined
from penstock.graph.check import errors
from penstock.graph.model import Workflow
from penstock.plan.make import Plan, make
from penstock.service import conversion
from penstock.service.conversion import Conversion
from penstock.service.intake import FILE, workflow_in
from penstock.service.manifests import is_penstock
from penstock.service.sizing import sized
from penstock.service.workflows import override


@dataclass(frozen=True, slots=True)
class Pasted:
    workflow: Workflow
    """Without problems."""
    report: Report
    """What its translation kept, changed and lost; empty if it is in Penstock's own form."""


def read(document: str, name: str | None = None) -> Pasted:
    """`name`: which, of a manifest with several workflows. Raises UserError with every problem."""
    workflow, report = workflow_in(document, name)
    found = errors(workflow)
    if found:
        raise InvalidWorkflow(found)
    if report is None:
        return Pasted(workflow, Report())
    return Pasted(workflow, joined([registry.vet([_root(document, name)]), report, conversion.kept(workflow)]))


def planned(workflow: Workflow, params: Mapping[str, Any], queue: str | None = None, unit: str | None = None) -> Plan:
    """Raises UserError."""
    workflow, _ = sized(override(workflow, queue, None, unit), params, "")
    return make(workflow, params)


def converted(document: str, name: str | None, to: str) -> Conversion:
    """With one report of reading and writing. Raises UserError."""
    found = read(document, name)
    made = conversion.write(found.workflow, to)
    made.report = joined([found.report, made.report])
    return made


def _root(document: str, name: str | None) -> Any:
    assert not is_penstock(document)
    return registry.root(Library(tuple(read_text(document, FILE))), name, FILE)
