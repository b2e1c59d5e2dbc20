"""Several workflows -> one graph with the shared part in it once. Called by service.plans.

Two steps become one if their content keys are equal and they run under the same conditions: same `when`, and same accepted outcomes of the
same merged steps. The result does not depend on the order of the workflows, and merging a merged workflow again changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.expressions.parse import Expr, Node, reference, replace
from penstock.graph import codec
from penstock.graph.codec import canonical, digest_of, encode, encode_value
from penstock.graph.model import MISSING, Edge, Enough, Lock, Nested, Output, Parameter, Retry, Step, Workflow, edges_of
from penstock.graph.order import topological
from penstock.graph.rewrite import as_node, map_step, map_value
from penstock.plan.dedupe import content_keys
from penstock.plan.make import Plan, make
from penstock.plan.stages import amounts


@dataclass(frozen=True)
class Merged:
    workflow: Workflow
    origin: Mapping[str, tuple[str, ...]]
    """Merged step -> the `workflow/step` paths that it replaces."""
    plans: tuple[Plan, ...]
    notes: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        return make(self.workflow)

    @property
    def shared(self) -> dict[str, tuple[str, ...]]:
        return {name: origins for name, origins in self.origin.items() if len(origins) > 1}

    def as_data(self) -> dict[str, Any]:
        plan = self.plan
        before, after = _weight(self.plans), _weight([plan])
        saved = {resource: before["sum"].get(resource, 0) - after["sum"].get(resource, 0) for resource in before["sum"]}
        return {
            "workflows": [each.workflow.name for each in self.plans],
            "steps": {"before": before["steps"], "after": after["steps"]},
            "tasks": {"before": before["tasks"], "after": after["tasks"]},
            "peak": {"before": amounts(before["peak"]), "after": amounts(after["peak"])},
            "saved": amounts({resource: amount for resource, amount in saved.items() if amount}),
            "unknown": before["unknown"],
            "shared": {name: list(origins) for name, origins in self.shared.items()},
            "notes": list(self.notes),
        }


def _weight(plans: Iterable[Plan]) -> dict[str, Any]:
    found: dict[str, Any] = {"steps": 0, "tasks": 0, "peak": {}, "sum": {}, "unknown": False}
    for plan in plans:
        for planned, calls in plan.level.walk():
            if planned.recursive:
                found["unknown"] = True
            elif planned.inner is None:
                found["steps"] += 1
                found["tasks"] += planned.tasks.times(calls).count or 1
                found["unknown"] |= planned.tasks.times(calls).count is None
        for resource, peak in plan.peaks.items():
            found["peak"][resource] = found["peak"].get(resource, 0) + peak.amount
            found["sum"][resource] = found["sum"].get(resource, 0) + peak.total
    return found


@dataclass(slots=True)
class _Member:
    """One step of one workflow, to be merged."""

    plan: Plan
    label: str
    step: Step
    exit: bool
    identity: str = ""


def merge(workflows: Sequence[tuple[Workflow, Mapping[str, Any]]], name: str | None = None) -> Merged:
    """Raises InvalidWorkflow or PlanError if one of them has errors."""
    plans = _distinct([make(workflow, params) for workflow, params in workflows])
    labels = _labels(plans)
    params, renamed = _parameters(plans, labels)
    members: list[_Member] = []
    notes: list[str] = []
    definitions, defined = _definitions(plans)
    for plan, label, names in zip(plans, labels, renamed, strict=True):
        members += _identify(plan, label, names)
    groups: dict[str, list[_Member]] = {}
    for member in members:
        groups.setdefault(member.identity, []).append(member)
    called = _step_names(groups)
    steps: dict[str, Step] = {}
    names_of = {id(member): called[identity] for identity, group in groups.items() for member in group}
    by_plan: dict[int, dict[str, str]] = {}
    for member in members:
        by_plan.setdefault(id(member.plan), {})[member.step.name] = names_of[id(member)]
    rewrite = [
        _Rewrite(by_plan.get(id(plan), {}), names, defs)
        for plan, names, defs in zip(plans, renamed, defined, strict=True)
    ]
    change = {id(plan): each for plan, each in zip(plans, rewrite, strict=True)}
    queue, priority = _common(plans, "queue"), _common(plans, "priority")
    if len(plans) > 1 and any(plan.workflow.enough is not None for plan in plans):
        notes.append("enough was left out: what is enough for one of the workflows is not enough for all")
    if len(plans) > 1 and any(plan.workflow.callbacks for plan in plans):
        notes.append(
            "callbacks were left out: each is about the end of one of the workflows, which the merged one has not"
        )
    for attribute in ("unit", "fail_fast", "judged_by", "labels", "extra"):
        if len({canonical(encode_value(getattr(plan.workflow, attribute))) for plan in plans}) > 1:
            notes.append(f"{attribute} differs between the workflows; what is not the same in all was left out")
    for identity, group in groups.items():
        steps[identity] = _one_step(group, called[identity], change[id(group[0].plan)], queue, priority, notes)
    exits = {identity for identity, group in groups.items() if group[0].exit}
    if exits and len(plans) > 1:
        notes.append("exit handlers run when every one of the merged workflows has ended")
    workflow = Workflow(
        name=name or "-and-".join(sorted({plan.workflow.name for plan in plans}))[:128].rstrip("-_"),
        params=tuple(params),
        steps=_ordered([steps[i] for i in steps if i not in exits]),
        outputs=tuple(_outputs(plans, labels, rewrite)),
        on_exit=_ordered([steps[i] for i in steps if i in exits]),
        queue=queue,
        priority=priority,
        unit=_common(plans, "unit"),
        parallel=_limit(plans, "parallel", notes),
        timeout=_limit(plans, "timeout", notes),
        fail_fast=bool(_common(plans, "fail_fast")),
        judged_by=_common(plans, "judged_by") or "handled",
        locks=_locks(plans, rewrite),
        callbacks=plans[0].workflow.callbacks if len(plans) == 1 else (),
        extra=plans[0].workflow.extra if all(plan.workflow.extra == plans[0].workflow.extra for plan in plans) else {},
        definitions=definitions,
        labels={
            key: value
            for key, value in plans[0].workflow.labels.items()
            if all(p.workflow.labels.get(key) == value for p in plans)
        },
        enough=_enough(plans, by_plan),
        doc=plans[0].workflow.doc if len(plans) == 1 else "",
    )
    origin = {
        called[identity]: tuple(f"{member.label}/{member.step.name}" for member in group)
        for identity, group in groups.items()
    }
    return Merged(workflow, origin, tuple(plans), tuple(dict.fromkeys(notes)))


def _enough(plans: Sequence[Plan], names: Mapping[int, Mapping[str, str]]) -> Enough | None:
    enough = plans[0].workflow.enough if len(plans) == 1 else None
    if enough is None:
        return None
    return dataclasses.replace(enough, steps=tuple(names[id(plans[0])][name] for name in enough.steps))


def _distinct(plans: Iterable[Plan]) -> list[Plan]:
    """Without duplicates (same workflow, same parameters). Sorted, so that the order of the arguments does not matter."""
    found = {
        (plan.workflow.name, plan.digest, canonical(codec.encode_value(dict(plan.params)))): plan for plan in plans
    }
    return [found[key] for key in sorted(found)]


def _labels(plans: Sequence[Plan]) -> list[str]:
    names = [plan.workflow.name for plan in plans]
    salted = [digest_of([plan.digest, codec.encode_value(dict(plan.params))])[7:13] for plan in plans]
    return [name if names.count(name) == 1 else f"{name}-{salt}" for name, salt in zip(names, salted, strict=True)]


def _parameters(plans: Sequence[Plan], labels: Sequence[str]) -> tuple[list[Parameter], list[dict[str, str]]]:
    """One name for a parameter that has the same value everywhere; otherwise each workflow's own."""
    entries: dict[str, list[tuple[int, Parameter]]] = {}
    for i, plan in enumerate(plans):
        for param in plan.workflow.params:
            bound = dataclasses.replace(param, default=plan.params.get(param.name, MISSING))
            entries.setdefault(param.name, []).append((i, bound))
    params: dict[str, Parameter] = {}
    renamed: list[dict[str, str]] = [{} for _ in plans]
    for name, found in entries.items():
        same = all(
            param.default is not MISSING and canonical(encode(param)) == canonical(encode(found[0][1]))
            for _, param in found
        )
        for i, param in found:
            new = (
                name
                if same or len(found) == 1
                else _apart(f"{name}_{labels[i]}".replace("-", "_"), {*entries, *params})
            )
            renamed[i][name] = new
            params[new] = dataclasses.replace(param, name=new)
    return [params[name] for name in sorted(params)], renamed


def _apart(name: str, taken: Collection[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _identify(plan: Plan, label: str, renamed: Mapping[str, str]) -> list[_Member]:
    """Each step with the digest by which steps are merged."""
    stand: dict[str, Any] = {
        param.name: plan.params[param.name]
        if param.name in plan.params
        else Expr.tree(reference("params", renamed[param.name]))
        for param in plan.workflow.params
    }
    keys = content_keys(plan.workflow, stand, plan.orders, salt=label)
    swap: dict[tuple[str, ...], Node] = {("steps", path): reference("steps", key) for path, key in keys.keys.items()}
    swap |= {("params", name): as_node(value) for name, value in stand.items()}
    by_name = {step.name: step for step in (*plan.workflow.steps, *plan.workflow.on_exit)}
    exits = {step.name for step in plan.workflow.on_exit}
    definitions = {definition.name: definition for definition in plan.workflow.definitions}
    found: dict[str, _Member] = {}
    for name in plan.orders[""][0]:
        step = by_name[name]
        conditions = [
            None if expr is None else Expr.tree(replace(expr.node, swap)).text for expr in (step.when, step.trigger)
        ]
        edges = sorted([found[up].identity, sorted(outcomes)] for up, outcomes in edges_of(step).items())
        salt = label if name in exits else ""
        if step.exempt or step.tolerates or step.locks:
            held = [
                [encode_value(map_value(lock.name, lambda node: replace(node, swap))), lock.limit]
                for lock in step.locks
            ]
            salt += canonical([step.exempt, sorted(step.tolerates), held])
        if isinstance(step.action, Nested):
            # The same work may be requested with other resources inside; such calls stay separate.
            salt += _closure_digest(definitions[step.action.name], plan.workflow)
        found[name] = _Member(plan, label, step, name in exits, digest_of([keys.keys[name], conditions, edges, salt]))
    return list(found.values())


def _step_names(groups: Mapping[str, list[_Member]]) -> dict[str, str]:
    """A step keeps its name unless another step has it; then the names of its workflows are added."""
    wanted = {identity: min(member.step.name for member in group) for identity, group in groups.items()}
    taken = Counter(wanted.values())
    called = {}
    used: set[str] = {name for name, times in taken.items() if times == 1}
    for identity in sorted(groups, key=lambda i: (wanted[i], i)):
        name = wanted[identity]
        if taken[name] > 1:
            longer = f"{name}-{'-'.join(sorted({member.label for member in groups[identity]}))}"
            name = longer if longer not in used and len(longer) <= 60 else f"{name[:100]}-{identity[7:15]}"
            used.add(name)
        called[identity] = name
    return called


def _definitions(plans: Sequence[Plan]) -> tuple[tuple[Workflow, ...], list[dict[str, str]]]:
    """Definitions with the same name and content become one. If the contents differ, a digest is added to the name."""
    contents: dict[str, set[str]] = {}
    digests: list[dict[str, str]] = []
    for plan in plans:
        own = {definition.name: _closure_digest(definition, plan.workflow) for definition in plan.workflow.definitions}
        digests.append(own)
        for name, digest in own.items():
            contents.setdefault(name, set()).add(digest)
    renamed = [
        {name: name if len(contents[name]) == 1 else f"{name[:100]}-{digest[7:15]}" for name, digest in own.items()}
        for own in digests
    ]
    found: dict[str, Workflow] = {}
    for plan, names in zip(plans, renamed, strict=True):
        for definition in plan.workflow.definitions:
            steps = tuple(_recalled(step, names) for step in definition.steps)
            exits = tuple(_recalled(step, names) for step in definition.on_exit)
            found[names[definition.name]] = dataclasses.replace(
                definition, name=names[definition.name], steps=steps, on_exit=exits, source=None
            )
    return tuple(found[name] for name in sorted(found)), renamed


def _closure_digest(definition: Workflow, root: Workflow) -> str:
    """The digest of a definition and of everything it calls, independent of names."""
    by_name = {each.name: each for each in root.definitions}
    around: list[str] = []

    def content(one: Workflow) -> str:
        if one.name in around:  # recursion: so many levels up
            return f"{len(around) - around.index(one.name)} up"
        around.append(one.name)
        called = {
            step.action.name: content(by_name[step.action.name])
            for step in (*one.steps, *one.on_exit)
            if isinstance(step.action, Nested)
        }
        around.pop()
        steps = tuple(_recalled(step, called) for step in one.steps)
        exits = tuple(_recalled(step, called) for step in one.on_exit)
        return digest_of(encode(dataclasses.replace(one, name="", steps=steps, on_exit=exits)))

    return content(definition)


def _recalled(step: Step, names: Mapping[str, str]) -> Step:
    return (
        dataclasses.replace(step, action=Nested(name=names[step.action.name]))
        if isinstance(step.action, Nested)
        else step
    )


@dataclass(slots=True)
class _Rewrite:
    """Replaces the names of one workflow by those of the merged one."""

    steps: Mapping[str, str]
    params: Mapping[str, str]
    definitions: Mapping[str, str]
    swap: dict[tuple[str, ...], Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.swap = {("steps", old): reference("steps", new) for old, new in self.steps.items() if old != new}
        self.swap |= {("params", old): reference("params", new) for old, new in self.params.items() if old != new}

    def value(self, value: Any) -> Any:
        return map_value(value, lambda node: replace(node, self.swap)) if self.swap else value

    def step(self, step: Step) -> Step:
        changed = _recalled(map_step(step, self.value), self.definitions)
        return dataclasses.replace(
            changed, needs=tuple(Edge(self.steps[edge.step], edge.outcomes) for edge in step.needs)
        )


def _one_step(group: list[_Member], name: str, change: _Rewrite, queue: Any, priority: Any, notes: list[str]) -> Step:
    """The first member's step, with the largest resources of any member."""
    first = change.step(group[0].step)
    resources: dict[str, int] = {}
    for member in group:
        for resource, amount in member.step.resources.items():
            resources[resource] = max(resources.get(resource, 0), amount)
    if any(dict(member.step.resources) != resources for member in group):
        notes.append(f"{name}: resources differ; the larger of each was taken")
    queues = sorted({str(member.step.queue or member.plan.workflow.queue or "") for member in group})
    if len(queues) > 1:
        notes.append(
            f"{name}: queues differ ({', '.join(each or 'none' for each in queues)}); {queues[-1]!r} was taken"
        )
    for attribute in ("placement", "priority", "timeout", "retry"):
        if (
            len(
                {
                    canonical(encode_value(None) if (v := getattr(m.step, attribute)) is None else encode(v))
                    for m in group
                }
            )
            > 1
        ):
            which = "that of the first" if attribute == "placement" else "the larger"
            notes.append(f"{name}: {attribute} differs; {which} was taken")
    own_priority = [
        p
        for p in (m.step.priority if m.step.priority is not None else m.plan.workflow.priority for m in group)
        if p is not None
    ]
    chosen = max(own_priority, key=lambda p: (isinstance(p, int), p if isinstance(p, int) else 0, str(p)), default=None)
    retries = [member.step.retry for member in group if member.step.retry is not None]
    timeouts = [member.step.timeout for member in group]
    kept_queue = queues[-1] or None
    return dataclasses.replace(
        first,
        name=name,
        resources=resources,
        queue=None if kept_queue == queue else kept_queue,
        priority=None if chosen == priority else chosen,
        retry=max(retries, key=_retry_order, default=None),
        timeout=None if None in timeouts else max(t for t in timeouts if t is not None),
        source=group[0].step.source if len(group) == 1 else None,
    )


def _retry_order(retry: Retry) -> tuple[int, str]:
    return retry.limit, canonical(encode(retry))


def _common(plans: Sequence[Plan], attribute: str) -> Any:
    found = {getattr(plan.workflow, attribute) for plan in plans}
    return found.pop() if len(found) == 1 else None


def _locks(plans: Sequence[Plan], rewrite: Sequence[_Rewrite]) -> tuple[Lock, ...]:
    """The locks of all members."""
    found: dict[str, Lock] = {}
    for plan, change in zip(plans, rewrite, strict=True):
        for lock in plan.workflow.locks:
            moved = dataclasses.replace(lock, name=change.value(lock.name))
            found.setdefault(canonical(encode(moved)), moved)
    return tuple(found[key] for key in sorted(found))


def _limit(plans: Sequence[Plan], attribute: str, notes: list[str]) -> Any:
    values = {getattr(plan.workflow, attribute) for plan in plans}
    if len(values) == 1:
        return values.pop()
    notes.append(f"{attribute} differs between the workflows and was left out")
    return None


def _outputs(plans: Sequence[Plan], labels: Sequence[str], rewrite: Sequence[_Rewrite]) -> Iterable[Output]:
    found: dict[str, list[tuple[str, Output]]] = {}
    for plan, label, change in zip(plans, labels, rewrite, strict=True):
        for output in plan.workflow.outputs:
            moved = dataclasses.replace(output, value=change.value(output.value))
            found.setdefault(output.name, []).append((label, moved))
    named: dict[str, Output] = {}
    for name, variants in found.items():
        same = len({canonical(encode(output)) for _, output in variants}) == 1
        for label, output in variants:
            new = name if same else f"{label}-{name}"
            named[new] = dataclasses.replace(output, name=new)
    return [named[name] for name in sorted(named)]


def _ordered(steps: Sequence[Step]) -> tuple[Step, ...]:
    """By depth in the graph, then by name: independent of the order of the arguments."""
    by_name = {step.name: step for step in steps}
    depth: dict[str, int] = {}
    waits = {step.name: [up for up in edges_of(step) if up in by_name] for step in steps}
    for name in topological(waits):
        depth[name] = 1 + max((depth[up] for up in waits[name]), default=-1)
    return tuple(sorted(steps, key=lambda step: (depth[step.name], step.name)))
