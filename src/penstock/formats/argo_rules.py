"""What Argo refuses although every field of it is one that Argo has. Called by foreign.vet for each document with templates in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.formats.argo_scope import TYPES
from penstock.formats.documents import Document, items, part


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
