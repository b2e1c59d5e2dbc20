"""Two plans -> what was added, removed, changed and kept. Called by service.plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.graph import codec, quantity
from penstock.plan.dedupe import why_differ
from penstock.plan.expand import Planned
from penstock.plan.make import Plan


@dataclass(frozen=True, slots=True)
class Difference:
    """A step that both plans have and that differs."""

    step: str
    content: tuple[str, ...]
    """Why its key differs. The step runs again."""
    other: tuple[str, ...]
    """Differences that do not change its result: resources, queue, conditions."""

    def as_data(self) -> dict[str, Any]:
        return {"step": self.step, "content": list(self.content), "other": list(self.other)}


@dataclass(frozen=True, slots=True)
class PlanDiff:
    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    """Steps with the same content and another name."""
    changed: tuple[Difference, ...]
    same: tuple[str, ...]
    peaks: tuple[str, ...]
    params: tuple[str, ...]
    workflow: tuple[str, ...] = ()
    """Changes of the workflow itself: queue, unit, outputs, …"""

    @property
    def empty(self) -> bool:
        return not (
            self.added or self.removed or self.renamed or self.changed or self.peaks or self.params or self.workflow
        )

    def as_data(self) -> dict[str, Any]:
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "renamed": [list(pair) for pair in self.renamed],
            "changed": [difference.as_data() for difference in self.changed],
            "same": list(self.same),
            "demand": list(self.peaks),
            "params": list(self.params),
            "workflow": list(self.workflow),
        }


def diff(before: Plan, after: Plan) -> PlanDiff:
    old = {planned.path: planned for planned, _ in before.level.walk()}
    new = {planned.path: planned for planned, _ in after.level.walk()}
    removed, added = [path for path in old if path not in new], [path for path in new if path not in old]
    by_key: dict[str, list[str]] = {}
    for path in added:
        by_key.setdefault(after.keys.keys[path], []).append(path)
    renamed = []
    gone, come = set(), set()
    for path in removed:
        alike = by_key.get(before.keys.keys[path])
        if alike:
            renamed.append((path, alike.pop(0)))
            gone.add(path)
            come.add(renamed[-1][1])
    removed, added = [path for path in removed if path not in gone], [path for path in added if path not in come]
    changed, same = [], []
    for path in (path for path in old if path in new):
        content = tuple(why_differ(before.keys, after.keys, path, path))
        other = tuple(_other(old[path], new[path]))
        if content or other:
            changed.append(Difference(path, content, other))
        else:
            same.append(path)
    return PlanDiff(
        tuple(added),
        tuple(removed),
        tuple(renamed),
        tuple(changed),
        tuple(same),
        _peaks(before, after),
        _params(before, after),
        _whole(before, after),
    )


def _other(a: Planned, b: Planned) -> list[str]:
    found = []
    for resource in sorted({*a.step.resources, *b.step.resources}):
        x, y = a.step.resources.get(resource, 0), b.step.resources.get(resource, 0)
        if x != y:
            found.append(f"{resource}: {quantity.show(x, resource)} → {quantity.show(y, resource)}")
    if a.tasks != b.tasks:
        found.append(f"tasks: {a.tasks} → {b.tasks}")
    for name in (
        "when",
        "trigger",
        "queue",
        "priority",
        "timeout",
        "retry",
        "placement",
        "needs",
        "group",
        "exempt",
        "tolerates",
        "locks",
        "answer",
    ):
        x, y = getattr(a.step, name), getattr(b.step, name)
        if x != y:
            found.append(f"{name}: {_shown(x)} → {_shown(y)}")
    return found


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "none"
    return "none" if value is None else str(value)


def _peaks(before: Plan, after: Plan) -> tuple[str, ...]:
    found = []
    for resource in sorted({*before.peaks, *after.peaks}):
        x = before.peaks[resource].amount if resource in before.peaks else 0
        y = after.peaks[resource].amount if resource in after.peaks else 0
        if x != y:
            found.append(f"{resource}: {quantity.show(x, resource)} → {quantity.show(y, resource)}")
    return tuple(found)


def _whole(before: Plan, after: Plan) -> tuple[str, ...]:
    found = []
    for name in ("queue", "priority", "parallel", "timeout", "fail_fast", "judged_by", "enough", "locks", "links"):
        x, y = getattr(before.workflow, name), getattr(after.workflow, name)
        if x != y:
            found.append(f"{name}: {_shown(x)} → {_shown(y)}")
    if before.unit != after.unit:
        found.append(f"unit: {before.unit} → {after.unit}")
    told = [
        {one.name: codec.canonical(codec.encode(one)) for one in plan.workflow.callbacks} for plan in (before, after)
    ]
    found += [
        f"callbacks: {name} changed"
        for name in told[0].keys() | told[1].keys()
        if told[0].get(name) != told[1].get(name)
    ]
    old, new = ({o.name: codec.canonical(codec.encode(o)) for o in plan.workflow.outputs} for plan in (before, after))
    found += [f"output {name}: changed" for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    return tuple(sorted(found))


def _params(before: Plan, after: Plan) -> tuple[str, ...]:
    names = [*before.params, *(name for name in after.params if name not in before.params)]
    return tuple(
        f"{name}: {before.params.get(name, 'none')} → {after.params.get(name, 'none')}"
        for name in names
        if before.params.get(name) != after.params.get(name)
    )
