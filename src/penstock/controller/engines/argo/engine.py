"""Argo Workflows behind the controller's interface. Found by the entry point `penstock.engines`.

By stage a Workflow has suspend gates (see adjust). A gate that is reached is a node of type Suspend in phase Running; setting it to Succeeded
lets the stage go. By task, or where gates cannot be, the pods themselves wait. As a whole the Workflow is suspended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.controller import names
from penstock.controller.engine import (
    Adjusted,
    Observed,
    Opening,
    Outcome,
    Shape,
    Stage,
    State,
    Task,
    Unit,
    View,
    unread,
)
from penstock.controller.engines.argo.adjust import CLUSTER_TEMPLATES, TEMPLATES, adjust
from penstock.controller.engines.argo.nodes import Node, Nodes, nodes_of
from penstock.controller.engines.argo.queues import queue_of_node
from penstock.controller.engines.argo.static import STAGES, order, read
from penstock.controller.engines.argo.stopping import OPENED, WHOLE, WORKFLOWS, Stopping, is_stopping, under_way
from penstock.controller.objects import Lookup, Object, Write, annotations_of, labels_of, name_of, namespace_of, part
from penstock.errors import UserError
from penstock.formats.documents import Document
from penstock.formats.gates.marks import MARK, MAX_RESOURCES, NODE_SELECTOR, TOLERATION, declared
from penstock.formats.gates.peak import peaks
from penstock.formats.pods.requests import amounts
from penstock.kueue.status import timestamp

_WHERE = {True: "Argo keeps them in its database", False: "they are compressed in an unknown way"}
_INSTEAD = {
    True: "Take nodeStatusOffLoad out of Argo's configuration, or queue the workflow whole (penstock/unit: workflow).",
    False: "Have Argo compress with gzip, its default, or queue the workflow whole (penstock/unit: workflow).",
}
_ENDS: Mapping[str, Outcome] = {"Succeeded": "Succeeded", "Failed": "Failed", "Error": "Failed"}


class ArgoEngine:
    name = "argo"
    main = (WORKFLOWS,)
    children = ()
    library = (TEMPLATES, CLUSTER_TEMPLATES)

    def queued(self, obj: Object) -> bool:
        return names.QUEUE in labels_of(obj)

    def adjust(self, obj: Object, unit: Unit, lookup: Lookup) -> Adjusted:
        return adjust(obj, unit, lookup)

    def view(self, seen: Observed, unit: Unit) -> View:
        over = _ENDS.get(str(part(seen.main, "status").get("phase") or ""), "")
        if over:
            return View((), over)
        if unit == "workflow":
            return _whole(seen)
        nodes = nodes_of(seen)
        if nodes.unreadable:
            said = f"the nodes in its status cannot be read: {_WHERE[nodes.elsewhere]}"
            return View(problem=said, fix=_INSTEAD[nodes.elsewhere])
        return View(_stages(seen, nodes), paused=_paused(seen.main), stopping=under_way(seen.main))

    def task_of(self, pod: Object, seen: Observed, unit: Unit) -> Task:
        nodes = nodes_of(seen)
        name = nodes.name_of_pod(pod)
        if not name:
            return Task(f"pod {name_of(pod)}", name_of(pod))
        found = nodes.stage_of(name)
        if found.exempt:
            return Task("", name)
        stage = WHOLE if unit == "workflow" else nodes.key_of.get(found.name, found.name)
        return Task(stage, nodes.task_name(name), queue_of_node(seen.main, nodes.by_name.get(name)))

    def open(self, seen: Observed, unit: Unit, stage: Stage, opening: Opening) -> Sequence[Write]:
        if is_stopping(seen.main):
            return ()
        if unit == "workflow":
            if annotations_of(seen.main).get(OPENED) == "true" and not part(seen.main, "spec").get("suspend"):
                return ()
            return [_patch(seen, {"metadata": {"annotations": {OPENED: "true"}}, "spec": {"suspend": None}})]
        nodes = nodes_of(seen)
        gates = [gate for key, gate, _ in nodes.gates if key == stage.key and not gate.over]
        opened = {gate.id: _opened(gate, seen, opening) for gate in gates}
        return [_patch(seen, nodes.changed(seen.main, opened))] if opened else ()

    def stop(self, seen: Observed, unit: Unit, stage: str, tasks: Sequence[str]) -> Sequence[Write] | None:
        here = [
            pod
            for pod in seen.pods
            if (task := self.task_of(pod, seen, unit)).stage == stage and (not tasks or task.name in tasks)
        ]
        return Stopping(seen, unit, stage, tuple(tasks), here).next()


def _paused(main: Object) -> bool:
    """The user has suspended it; while we stop a stage it is suspended by us."""
    return part(main, "spec").get("suspend") is True and not is_stopping(main)


def _patch(seen: Observed, body: Object) -> Write:
    return Write("patch", WORKFLOWS, namespace_of(seen.main), name_of(seen.main), body, why="the stage is let go")


def _opened(gate: Node, seen: Observed, opening: Opening) -> dict[str, Any]:
    """What `argo resume` writes, with the outputs that the stage reads. Without them nothing after the gate could start."""
    selector = json.dumps(dict(opening.node_selector), separators=(",", ":"), sort_keys=True)
    return {
        "phase": "Succeeded",
        "finishedAt": timestamp(seen.now),
        "message": "admitted",
        "outputs": {
            "parameters": [
                {"name": "flavor", "value": ",".join(opening.flavors)},
                {"name": "node-selector", "value": selector},
            ]
        },
    }


# -- stages -----------------------------------------------------------------------------------------------------------


def _stages(seen: Observed, nodes: Nodes) -> tuple[Stage, ...]:
    told = {str(one.get("stage")): one for one in read(annotations_of(seen.main).get(STAGES))}
    found = [_gated(nodes, told, key, gate, run) for key, gate, run in nodes.gates]
    reached = {one.key for one in found}
    by_pods = {run for pod in seen.pods if (run := _run_stage(nodes, pod)) and run not in nodes.key_of}
    found += [Stage(run, run, "done" if nodes.is_over(run) else "open", known=False) for run in sorted(by_pods)]
    # Before Argo has looked at it, nothing is ahead: the first stage is reached in a moment, and then queued at once.
    if "pods" not in str(annotations_of(seen.main).get(MARK)) and part(seen.main, "status").get("phase"):
        found += [_ahead(key, one) for key, one in told.items() if key not in reached]
    return tuple(found)


def _run_stage(nodes: Nodes, pod: Object) -> str:
    name = nodes.name_of_pod(pod)
    found = nodes.stage_of(name) if name else None
    return found.name if found and not found.exempt else ""


def _ahead(key: str, told: Mapping[str, Any]) -> Stage:
    shapes, unknown = _shapes(told.get("shape"))
    queue, follows = str(told.get("queue") or ""), tuple(map(str, told.get("next") or ()))
    known = not unknown and not told.get("queues")
    return Stage(key, key, "ahead", shapes, known, queue=queue, gang=_gang(shapes), next=follows, unknown=unknown)


def _gated(nodes: Nodes, told: Mapping[str, Mapping[str, Any]], key: str, gate: Node, run: str) -> Stage:
    members = read(gate.given("shape"))
    shapes, unknown = _shapes(members)
    state: State = "held" if not gate.over else "open"
    finished: tuple[int, ...] = ()
    outcome: Outcome = ""
    if gate.over:
        if gate.phase != "Succeeded" or nodes.is_over(run):
            here = nodes.by_name.get(run)
            state, outcome = "done", _ENDS.get(here.phase if here else gate.phase, "Succeeded")
        elif not unknown:
            finished = _finished(nodes, run, members)
    static = gate.given("stage")
    said = told.get(static, {})
    # Steps of different queues are let go as pods, which wait each in its own.
    known = not unknown and not said.get("queues")
    follows = tuple(map(str, said.get("next") or ())) if key == static else ()
    queue = str(said.get("queue") or "")
    return Stage(key, key, state, shapes, known, _gang(shapes), queue, finished, outcome, next=follows, unknown=unknown)


def _gang(shapes: Sequence[Shape]) -> bool:
    """The tasks of one loop are independent of one another: a part of them may start. Different steps of a group start together."""
    return len(shapes) != 1


def _shapes(members: Any) -> tuple[tuple[Shape, ...], str]:
    """The shapes of a gate's input, and why they are not complete."""
    found, unknown = [], []
    for one in members if isinstance(members, list) else ():
        if not isinstance(one, Mapping):
            unknown.append("its gate says nothing of a step")
            continue
        count, pods = one.get("n"), one.get("pods", 1)
        unknown += _unknown(one)
        each = amounts(part(one, "resources"))
        if isinstance(pods, int) and pods > 1:
            each = {name: -(-amount // pods) for name, amount in each.items()}
        number = (count if isinstance(count, int) else 0) * (pods if isinstance(pods, int) else 1)
        selector = {str(key): str(text) for key, text in part(one, "nodeSelector").items()}
        listed = one.get("tolerations")
        tolerations = tuple(t for t in listed if isinstance(t, Mapping)) if isinstance(listed, list) else ()
        found.append(Shape(max(0, number), each, selector, tolerations))
    return tuple(found), "; ".join(dict.fromkeys(unknown))


def _unknown(one: Mapping[str, Any]) -> list[str]:
    """What nobody knows of a step when its stage is reached."""
    found = []
    if not isinstance(one.get("n"), int) or not isinstance(one.get("pods", 1), int):
        found.append(f"only the run knows how many pods step {one.get('step')} has")
    later = one.get("open")  # such as an amount that is a parameter
    if later:
        listed = ", ".join(map(str, later)) if isinstance(later, list) else str(later)
        found.append(f"only the run knows {listed} of step {one.get('step')}")
    return found


def _finished(nodes: Nodes, run: str, members: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """For each member of the stage, its pods that are over for good."""
    over: dict[str, int] = {}
    for node in nodes.members(run):
        if node.over:
            step = str(node.data.get("displayName") or "").partition("(")[0]
            over[step] = over.get(step, 0) + 1
    return tuple(over.get(str(one.get("step")), 0) * int(one.get("pods", 1)) for one in members)


# -- the workflow as a whole ------------------------------------------------------------------------------------------


def _whole(seen: Observed) -> View:
    said, document = annotations_of(seen.main), Document(seen.main)
    try:
        resources = declared(document, MAX_RESOURCES) or {}
        tolerations = declared(document, TOLERATION) or ()
        selector = declared(document, NODE_SELECTOR) or {}
    except UserError as error:
        return unread(error)
    shape = Shape(1, amounts(resources), selector, tuple(tolerations))
    opened = said.get(OPENED) == "true"
    held = not opened and part(seen.main, "spec").get("suspend") is True
    by_user = '"held":"user"' in str(said.get(MARK))
    paused = by_user or (opened and _paused(seen.main))
    needed = () if held else (_still_needed(seen, shape.requests),)
    stage = Stage(WHOLE, "the whole workflow", "held" if held else "open", (shape,), vector=True, needed=needed)
    return View((stage,), paused=paused, stopping=under_way(seen.main))


def _still_needed(seen: Observed, most: Mapping[str, int]) -> Mapping[str, int]:
    """The peak of the stages that are not over. Those that may run again, and whatever is not described, count to the end."""
    told = read(annotations_of(seen.main).get(STAGES))
    if not told or any(_shapes(one.get("shape"))[1] for one in told):
        return most
    over = nodes_of(seen).static_over()
    left = [one for one in told if one.get("many") or str(one.get("stage")) not in over]
    demands = []
    for one in left:
        total: dict[str, int] = {}
        for shape in _shapes(one.get("shape"))[0]:
            for name, amount in shape.requests.items():
                total[name] = total.get(name, 0) + amount * shape.count
        demands.append(total)
    if any(one.get("many") for one in left):
        return most
    found = peaks(demands, order(left))
    return {name: min(amount, found.get(name, 0)) for name, amount in most.items()}


ENGINE = ArgoEngine()
