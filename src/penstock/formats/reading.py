"""What a reader and a writer of a foreign format give back. Shared by all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.formats.report import Report
from penstock.graph.model import Workflow


@dataclass(frozen=True, slots=True)
class Read:
    workflow: Workflow
    report: Report


@dataclass(frozen=True, slots=True)
class Written:
    documents: list[dict[str, Any]]
    report: Report = field(default_factory=Report)
