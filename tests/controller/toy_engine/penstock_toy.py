"""An engine for a kind of its own: `Sequence.toy.example/v1` runs its steps one after the other.

spec.steps      [{name, pods, cpu}]
spec.open       how many steps may start. Its controller starts step i when all before it are done and i < open, and ends pods beyond it
spec.podLabels  on each pod, beside `step` and `index`
status          {"done": {"fetch": [0, 1]}, "phase": "Succeeded"}: finished pods by step
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plugins import (
    QUEUE_LABEL,
    QUEUED_LABEL,
    Adjusted,
    ApiObject,
    ApiResource,
    Lookup,
    Observed,
    Opening,
    Shape,
    Stage,
    State,
    Task,
    Unit,
    View,
    Write,
    labels_of,
    name_of,
    namespace_of,
    parse_quantity,
    part,
    rows,
)

SEQUENCES = ApiResource("toy.example/v1", "Sequence", "sequences", selector=QUEUE_LABEL)


class ToyEngine:
    name = "toy"
    main = (SEQUENCES,)
    children = ()
    library = ()

    def queued(self, obj: ApiObject) -> bool:
        return bool(labels_of(obj).get(QUEUE_LABEL))

    def adjust(self, obj: ApiObject, unit: Unit, lookup: Lookup) -> Adjusted:
        labels = {**part(obj, "spec", "podLabels"), QUEUED_LABEL: labels_of(obj)[QUEUE_LABEL]}
        return Adjusted({**obj, "spec": {**part(obj, "spec"), "open": 0, "podLabels": labels}})

    def view(self, seen: Observed, unit: Unit) -> View:
        steps, open_ = rows(seen.main, "spec", "steps"), int(part(seen.main, "spec").get("open") or 0)
        if part(seen.main, "status").get("phase"):
            return View(over="Succeeded")
        found, reached = [], True
        for number, step in enumerate(steps):
            finished = len(part(seen.main, "status", "done").get(str(step["name"])) or ())
            over = finished == step["pods"]
            state: State = "done" if over else "ahead" if not reached else "open" if number < open_ else "held"
            follows = (str(steps[number + 1]["name"]),) if number + 1 < len(steps) else ()
            shape = Shape(int(step.get("says", step["pods"])), {"cpu": parse_quantity(step["cpu"])})
            found.append(
                Stage(step["name"], step["name"], state, (shape,), finished=(min(finished, shape.count),), next=follows)
            )
            reached = reached and over
        return View(tuple(found))

    def task_of(self, pod: ApiObject, seen: Observed, unit: Unit) -> Task:
        return Task(str(labels_of(pod).get("step")), str(labels_of(pod).get("index")))

    def open(self, seen: Observed, unit: Unit, stage: Stage, opening: Opening) -> Sequence[Write]:
        number = self._number(seen, stage.key) + 1
        return [self._open(seen, number)] if int(part(seen.main, "spec").get("open") or 0) < number else ()

    def stop(self, seen: Observed, unit: Unit, stage: str, tasks: Sequence[str]) -> Sequence[Write] | None:
        number = self._number(seen, stage)
        if int(part(seen.main, "spec").get("open") or 0) > number:
            return [self._open(seen, number)]
        left = [pod for pod in seen.pods if labels_of(pod).get("step") == stage]
        active = [pod for pod in left if part(pod, "status").get("phase") not in ("Succeeded", "Failed")]
        return () if active else None

    def _number(self, seen: Observed, key: str) -> int:
        return [step["name"] for step in rows(seen.main, "spec", "steps")].index(key)

    def _open(self, seen: Observed, count: int) -> Write:
        return Write("patch", SEQUENCES, namespace_of(seen.main), name_of(seen.main), {"spec": {"open": count}})


ENGINE = ToyEngine()
