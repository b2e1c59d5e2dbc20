"""A crowd of workflows for tests of the controller under trouble: three teams in two cohorts that borrow from and preempt one another.

crowd = Crowd(bed, 20, seed=1)      queues, priorities, workflows of random form; what each must do is known
crowd.submit() ; crowd.until_over()
crowd.check(witness)                all succeeded, every task once, never more than the quota
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.argo_runs import OVER, fake, flow, path
from tests.cluster.controlled import Witness
from tests.cluster.kueue_protocol import Desk, condition, holds

Object = dict[str, Any]
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
NODE = "workflows.argoproj.io/node-name"
CLASSES = {"chaos-low": 0, "chaos-middle": 100, "chaos-high": 1000}
PREEMPTION = {
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "Any",
    "borrowWithinCohort": {"policy": "LowerPriority"},
}


class Crowd:
    """Workflows of three teams, all from one seed."""

    def __init__(self, bed: Testbed, number: int, seed: int) -> None:
        self.bed, self.dice = bed, random.Random(seed)
        self.desks = [Desk(bed) for _ in range(3)]
        red, blue, green = self.desks
        for cohort, members in (("one", ((red, "main"), (blue, "main"))), ("two", ((green, "main"), (green, "spare")))):
            for desk, name in members:
                desk.queue(name, "3", cohortName=f"{red.namespace}-{cohort}", preemption=PREEMPTION)
        classes = [
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in CLASSES.items()
        ]
        bed.apply(classes)
        self.tasks: dict[tuple[str, str], int] = {}
        """How many pods each workflow needs, by namespace and name."""
        self.documents = [(self.desks[one % 3].namespace, self._document(f"w{one}")) for one in range(number)]

    @property
    def namespaces(self) -> list[str]:
        return [desk.namespace for desk in self.desks]

    def _document(self, name: str) -> Object:
        dice = self.dice
        steps, count = [], 0
        for number in range(dice.randint(2, 3)):
            width = dice.randint(1, 3)
            if dice.random() < 0.5:
                steps.append(
                    [
                        {
                            "name": f"s{number}",
                            "template": dice.choice(("short", "long")),
                            "withItems": list("xyz"[:width]),
                        }
                    ]
                )
            else:
                steps.append(
                    [{"name": f"s{number}{one}", "template": dice.choice(("short", "long"))} for one in "abc"[:width]]
                )
            count += width
        short = fake("short", run_time=f"{dice.uniform(0.1, 0.6):.1f}s", cpu="500m")
        long = fake("long", run_time=f"{dice.uniform(1, 3):.1f}s", cpu="1")
        made = flow(name, steps, short, long)
        made["metadata"]["labels"] = {QUEUE: "main", PRIORITY: dice.choice(list(CLASSES))}
        unit = dice.choices(("stage", "task", "workflow", "reuse"), (7, 1, 1, 1))[0]
        made["metadata"]["annotations"] = {"penstock/unit": unit}
        self.tasks[self.desks[int(name[1:]) % 3].namespace, name] = count
        return made

    # running

    def submit(self) -> None:
        """Low priorities first, so that there is somebody to preempt. Where the webhook is down, again until it is back."""
        order = sorted(self.documents, key=lambda one: CLASSES[one[1]["metadata"]["labels"][PRIORITY]])
        for namespace, document in order:
            self.bed.wait(lambda n=namespace, d=document: self._created(n, d), "a workflow to be taken")  # type: ignore[misc]

    def _created(self, namespace: str, document: Object) -> bool:
        try:
            self.bed.raw("POST", path(namespace), document)
        except ApiError as error:
            return error.reason == "AlreadyExists" or "already exists" in str(error)
        except OSError:
            return False
        return True

    def phases(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for namespace in self.namespaces:
            for one in self.bed.get(path(namespace))["items"]:
                found[one.get("status", {}).get("phase", "new")] += 1
        return found

    def over(self) -> bool:
        try:
            found = self.phases()
        except Exception:  # the server is away
            return False
        return sum(count for phase, count in found.items() if phase in OVER) == len(self.documents)

    def until_over(self, timeout: float = 300) -> None:
        self.bed.wait(self.over, "all workflows to end", timeout)

    def finished(self) -> bool:
        """Has everything been given back?"""
        return all(
            holds(one, "Finished") for desk in self.desks for one in desk.read(desk.path("workloads"))["items"]
        ) and all(desk.used() == "0" for desk in self.desks)

    # what must hold

    def check(self, witness: Witness) -> dict[str, int]:
        phases = self.phases()
        assert phases == {"Succeeded": len(self.documents)}, (phases, self._failed())
        self.bed.wait(self.finished, "all that was held to be given back", 60)
        ended: dict[tuple[str, str], dict[str, set[str]]] = {}
        evicted = set()
        for _, _, kind, obj in witness.events:
            meta = obj["metadata"]
            if kind == "Workload" and condition(dict(obj), "Evicted").get("status") == "True":
                evicted.add((meta["uid"], condition(dict(obj), "Evicted")["lastTransitionTime"]))
            if kind == "Pod" and obj.get("status", {}).get("phase") == "Succeeded":
                workflow = meta["namespace"], meta["labels"]["workflows.argoproj.io/workflow"]
                ended.setdefault(workflow, {}).setdefault(meta["annotations"][NODE], set()).add(meta["uid"])
        twice = {(key, name) for key, names in ended.items() for name, uids in names.items() if len(uids) > 1}
        assert not twice, f"tasks that ran to their end more than once: {sorted(twice)}"
        assert {key: len(names) for key, names in ended.items()} == self.tasks, "tasks that were never run"
        return {**witness.check(), "workflows": len(self.documents), "evictions": len(evicted)}

    def _failed(self) -> list[str]:
        every = [one for namespace in self.namespaces for one in self.bed.get(path(namespace))["items"]]
        return [
            f"{one['metadata']['namespace']}/{one['metadata']['name']}: {one['status'].get('message')}: "
            + "; ".join(
                f"{node.get('displayName', node)} {node.get('message')} at {node.get('finishedAt')}"
                for node in one["status"].get("nodes", {}).values()
                if node["phase"] in ("Failed", "Error")
            )
            for one in every
            if one.get("status", {}).get("phase") != "Succeeded"
        ]


@contextmanager
def meanwhile(what: Callable[[], None], pause: Callable[[], float]) -> Iterator[Sequence[float]]:
    """Does something again and again in another thread. Gives the times at which it was done."""
    stop = threading.Event()
    done: list[float] = []
    failed: list[BaseException] = []

    def again() -> None:
        while not stop.wait(pause()):
            try:
                what()
            except BaseException as error:
                failed.append(error)
                return
            done.append(time.monotonic())

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(60)
    assert not failed, failed
