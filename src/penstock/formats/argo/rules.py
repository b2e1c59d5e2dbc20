"""What Argo refuses beyond its CRD, and forms of Argo 3 that are still read. Called by formats.registry, through Format.vet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.formats.argo.scope import TYPES
from penstock.formats.documents import Document, items, part
from penstock.formats.report import Report
from penstock.formats.schema import SchemaFinding
from penstock.formats.vetting import vet_schema

_ARGO_3: Final = {"mutex": "mutexes", "semaphore": "semaphores", "schedule": "schedules"}
_VALUE: Final = re.compile(r"parameters\[\d+\]\.(value|default|enum\[\d+\])$")


def vet(document: Document, report: Report) -> None:
    vet_schema(document, report, older=_of_argo_3)
    for path, message, near in refused(document):
        report.lost(path, f"Argo refuses this: {message}", near, document.source(path))


def _of_argo_3(finding: SchemaFinding) -> str:
    """What Argo 4 has in place of a form that is still read; empty for a mistake."""
    around, _, name = finding.path.rpartition(".")
    if name in _ARGO_3 and finding.kind == "unknown field" and around.endswith(("synchronization", "spec")):
        return f"Argo 4 says {_ARGO_3[name]}, a list."
    if finding.kind == "type" and _VALUE.search(finding.path):
        return "Argo 4 takes text only: write it in quotes."
    return ""


def refused(document: Document) -> Iterator[tuple[str, str, str]]:
    """(path, what is wrong, what to do) of each."""
    inner = "workflowSpec" if document.kind == "CronWorkflow" else ""
    spec = part(document.spec, inner) if inner else document.spec
    path = f"spec.{inner}" if inner else "spec"
    seen: dict[str, int] = {}
    for number, template in items(spec, "templates"):
        here = f"{path}.templates[{number}]"
        name = template.get("name")
        if isinstance(name, str) and name in seen:
            yield f"{here}.name", f"two templates are named {name[:60]!r}", "Rename one."
        elif isinstance(name, str):
            seen[name] = number
        yield from _of_template(template, here)


def _of_template(template: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    kinds = [name for name in TYPES if template.get(name) is not None]
    if len(kinds) > 1:
        yield path, f"a template does one thing, and this one has {' and '.join(kinds)}", "Make two templates of it."
    tasks = list(items(part(template, "dag"), "tasks"))
    if any(task.get("depends") for _, task in tasks):
        for number, task in tasks:
            here = f"{path}.dag.tasks[{number}]"
            if task.get("dependencies"):
                yield f"{here}.dependencies", "depends and dependencies do not go together in one dag", "Write depends."
            if task.get("depends") and task.get("continueOn"):
                yield f"{here}.continueOn", "continueOn does not go with depends", "Write depends: A || A.Failed."
