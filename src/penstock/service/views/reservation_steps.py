"""The steps that a reservation is for, by its name. Called by `why` and queue_waits.

Steps of one group wait in the queue together, under the name of their group: a question about one of them, or about the group, is
answered with the same wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.graph.model import Unit, Workflow
from penstock.graph.paths import step_of
from penstock.service.views.outline import Outline, StepNode


def steps_of(workflow: Workflow, params: Mapping[str, Any], name: str, outline: Outline) -> tuple[str, ...]:
    """Paths of the steps that a reservation is for now; none if it is for the run as a whole."""
    if workflow.unit is Unit.WORKFLOW and name == "workflow":
        return ()
    prefix, _, last = name.rpartition("/")
    node = outline.by_path.get(f"{step_of(prefix)}/{last}".lstrip("/"))
    if node is None or node.step.group is not None:
        group = group_members(outline, name)
        if group or node is None:
            return tuple(map(step_of, group)) or (step_of(name),)
    path = node.path
    if workflow.unit is Unit.REUSE and node.over:
        from penstock.engine.allocation import chains_of

        prefix = prefix_of(node)
        chain = [f"{prefix}/{one}".lstrip("/") for one in chains_of(workflow, params).get(path, ())]
        return tuple(one for one in chain if not outline.by_path[one].over)[:1] or (path,)
    return (path,)


def group_members(outline: Outline, name: str) -> tuple[str, ...]:
    """The steps of a group, by the name under which it waits: `call[1]/main[0]` -> `call[1]/a`, `call[1]/b`. None if there is no such
    group. The last part is the group's own name, even if it ends like that of a task."""
    parts = name.split("/")
    for depth in reversed(range(len(parts))):
        prefix, group = "/".join(parts[:depth]), "/".join(parts[depth:])
        scope = step_of(prefix)
        found = [one.name for one in outline.groups.get(group, ()) if prefix_of(one) == scope]
        if found:
            return tuple(f"{prefix}/{one}".lstrip("/") for one in found)
    return ()


def prefix_of(node: StepNode) -> str:
    """The path of the step that calls the workflow it belongs to; "" at the top."""
    return node.path.rpartition("/")[0]
