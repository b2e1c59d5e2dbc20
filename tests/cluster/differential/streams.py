"""A number -> queues, and what happens to them: the streams that are played on both sides. Called by run (and by shrink, for parts of one).

A stream is plain data, so that one that fails can be printed, cut down and played again. Who an operation is about is left open
(`pick`) where nobody can know beforehand who will be running; `Stream.fixed` puts the names in that were picked in a play.

What is left out, because the answer of Kueue itself is not the same twice:
  * several Workloads created at once in a queue that is open: the first may be decided on before the second is there. A `burst`
    stops the queue, creates, and opens it again;
  * two queues opened at the same time, or two LocalQueues of one ClusterQueue: whichever event comes first is decided on first;
  * sibling cohorts of one weight with fair sharing: a tie between them is broken by the iteration over a map.
And because Penstock says in its reference that it differs there: `pods` as a covered resource, `preference` with several resources, pod sets
that ask for nothing. Several pod sets may send Kueue's search through the flavors round for ever; a stream ends where that happens.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

Doc = dict[str, Any]
API = "kueue.x-k8s.io/v1beta2"
GATE = "kueue.x-k8s.io/admission-gated-by"
GPU = "example.com/gpu"
STEPS = (5, 8)


@dataclass
class Stream:
    seed: int
    fair: bool
    objects: list[Doc]
    """Flavors, Cohorts, ClusterQueues and LocalQueues, under names that are made the stream's own by `named`."""
    steps: list[Doc]
    trouble: str = ""
    """What was wrong with it, for who reads it."""
    picked: dict[int, str] = field(default_factory=dict)
    """Step -> the Workload that a play has picked for it."""

    def to_json(self) -> Doc:
        return {"seed": self.seed, "fair": self.fair, "objects": self.objects, "steps": self.steps}

    @classmethod
    def from_json(cls, doc: Doc) -> Stream:
        return cls(doc["seed"], doc["fair"], doc["objects"], doc["steps"])

    def fixed(self) -> Stream:
        """The same with the names of those who were picked, so that it means the same when other steps are left out."""
        steps = copy.deepcopy(self.steps)
        for at, step in enumerate(steps):
            if "pick" in step and at in self.picked:
                del step["pick"]
                step["name"] = self.picked[at]
        return Stream(self.seed, self.fair, copy.deepcopy(self.objects), steps)


def named(doc: Doc, prefix: str, namespace: str) -> Doc:
    """A document of the stream as it stands in the cluster, where streams that run side by side share nothing."""
    found = copy.deepcopy(doc)
    meta, spec = found["metadata"], found.get("spec", {})
    if found["kind"] in ("LocalQueue", "Workload"):
        meta["namespace"] = namespace
    else:
        meta["name"] = prefix + meta["name"]
    for key in ("cohortName", "parentName", "clusterQueue"):
        if key in spec:
            spec[key] = prefix + spec[key]
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            flavor["name"] = prefix + flavor["name"]
    return found


def stream(seed: int) -> Stream:
    """Odd seeds are with fair sharing."""
    return _Maker(seed).make()


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"stream {seed}")
        self.seed = seed
        self.fair = seed % 2 == 1
        self.crowded = seed % 10 in (2, 3, 7, 8)
        """Small queues of one kind that contend for everything: rules about who goes first decide more often here than where there is much to choose from."""
        self.made = 0
        self.stopped: dict[str, str] = {}
        self.gated: list[str] = []
        self.inactive = 0
        self.shapes: list[list[Doc]] = []

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def make(self) -> Stream:
        self.layout = self.random.choice([["cpu"], ["cpu", "memory"], ["cpu", GPU], ["cpu", "memory", GPU]])
        flavors = self.random.randint(1, 3)
        if self.crowded:
            self.layout, flavors = ["cpu"], 1
        self.groups: list[tuple[list[str], list[str]]] = []
        names = [f"f{i}" for i in range(flavors)]
        if GPU in self.layout and flavors > 1:
            self.groups = [([r for r in self.layout if r != GPU], names[:-1]), ([GPU], names[-1:])]
        else:
            self.layout = [r for r in self.layout if r != GPU]
            self.groups = [(self.layout, names)]
        objects = [self._flavor(name, alone=flavors == 1) for name in names]
        cohorts = self._cohorts(objects)
        many = self.random.choice([2, 2, 3] if self.crowded else [1, 2, 2, 3, 3, 4, 5])
        self.queues = [f"q{i}" for i in range(many)]
        for at, name in enumerate(self.queues):
            objects.append(self._queue(name, cohorts[at % len(cohorts)] if cohorts else None))
            objects.append(_local_queue(name))
        self.objects = objects
        steps: list[Doc] = [self._burst() if self.chance(0.4) else self._create() for _ in range(3)]
        for _ in range(self.random.randint(*STEPS)):
            steps += self._step()
        for step in steps[:-1]:
            if self.chance(0.3):
                step["slow"] = True  # who is evicted by it stops only after the next step
        return Stream(self.seed, self.fair, objects, steps)

    # -- queues -------------------------------------------------------------------------------------------------------

    def _flavor(self, name: str, alone: bool) -> Doc:
        spec: Doc = {}
        if self.chance(0.8):
            spec["nodeLabels"] = {"pool": name}
        if not alone and self.chance(0.3):
            spec["nodeTaints"] = [{"key": "tier", "value": "spot", "effect": "NoSchedule"}]
            if self.chance(0.3):
                spec["tolerations"] = [{"key": "tier", "operator": "Exists"}]
        return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}

    def _cohorts(self, objects: list[Doc]) -> list[str]:
        """Where ClusterQueues may be: nowhere, in one cohort that is only a name, in one that is an object, or in a tree."""
        kind = self.random.choice(["none", "name", "name", "object", "tree", "tree", "tree"])
        if self.crowded:
            kind = self.random.choice(["name", "name", "tree"])
        if kind == "none":
            return []
        if kind == "name":
            return ["c0"]
        objects.append(self._cohort("c0", None, 0))
        if kind == "object":
            return ["c0"]
        inner = self.random.randint(1, 2)
        for at in range(inner):
            objects.append(self._cohort(f"c{at + 1}", "c0", at + 1))
        places = [f"c{at + 1}" for at in range(inner)] + (["c0"] if self.chance(0.6) else [])
        if self.chance(0.25):
            objects.append(self._cohort("c9", "c1", 9))
            places.append("c9")
        self.random.shuffle(places)
        return places

    def _cohort(self, name: str, parent: str | None, at: int) -> Doc:
        spec: Doc = {}
        if parent is not None:
            spec["parentName"] = parent
        if self.chance(0.35):
            spec["resourceGroups"] = self._groups(limits=parent is not None, most=4, lending_at_most_nominal=False)
        if self.fair:
            spec["fairSharing"] = {"weight": {0: "1", 1: "1.3", 2: "0.7", 9: "2.1"}[at]}
        return {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}

    def _groups(self, limits: bool, most: int = 8, lending_at_most_nominal: bool = True) -> list[Doc]:
        return [
            {
                "coveredResources": resources,
                "flavors": [
                    {"name": f, "resources": [self._quota(r, limits, most, lending_at_most_nominal) for r in resources]}
                    for f in flavors
                ],
            }
            for resources, flavors in self.groups
        ]

    def _quota(self, resource: str, limits: bool, most: int, bound: bool) -> Doc:
        nominal = self.random.choice([0, *range(2, most + 1)]) if most > 4 else self.random.randint(0, most)
        if self.crowded:
            nominal, limits = self.random.randint(1, 4), limits and self.chance(0.3)
        found: Doc = {"name": resource, "nominalQuota": _amount(resource, nominal)}
        if limits and self.chance(0.3):
            found["borrowingLimit"] = _amount(resource, self.random.randint(0, 5))
        if limits and self.chance(0.25):
            found["lendingLimit"] = _amount(resource, self.random.randint(0, nominal if bound else 5))
        return found

    def _queue(self, name: str, cohort: str | None) -> Doc:
        spec: Doc = {
            "namespaceSelector": {},
            "queueingStrategy": "StrictFIFO" if self.chance(0.3) else "BestEffortFIFO",
            "resourceGroups": self._groups(limits=cohort is not None),
            "preemption": self._preemption(cohort),
            "flavorFungibility": self._fungibility(),
        }
        if cohort is not None:
            spec["cohortName"] = cohort
        if self.fair:
            spec["fairSharing"] = {"weight": self.random.choice(["1", "1", "2", "0.5", "3.3", "0"])}
        return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}

    def _preemption(self, cohort: str | None) -> Doc:
        policies = ["LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority", "LowerOrNewerEqualPriority"]
        never = [] if self.crowded else ["Never"]
        found: Doc = {"withinClusterQueue": self.random.choice([*policies, *never])}
        found["reclaimWithinCohort"] = (
            self.random.choice([*never, "LowerPriority", "Any", "Any"]) if cohort else "Never"
        )
        if not self.fair and found["reclaimWithinCohort"] != "Never" and self.chance(0.5):
            found["borrowWithinCohort"] = {"policy": "LowerPriority"}
            if self.chance(0.5):
                found["borrowWithinCohort"]["maxPriorityThreshold"] = self.random.choice([0, 10])
        return found

    def _fungibility(self) -> Doc:
        choice = ["MayStopSearch", "TryNextFlavor"]
        found: Doc = {"whenCanBorrow": self.random.choice(choice), "whenCanPreempt": self.random.choice(choice)}
        searched = found["whenCanBorrow"] == found["whenCanPreempt"] == "TryNextFlavor"
        if searched and self.layout == ["cpu"] and self.chance(0.5):
            found["preference"] = self.random.choice(["BorrowingOverPreemption", "PreemptionOverBorrowing"])
        return found

    # -- Workloads ----------------------------------------------------------------------------------------------------

    def _workload(self, queue: str) -> Doc:
        name = f"w{self.made:02d}"
        self.made += 1
        if self.shapes and self.chance(0.2):
            podsets = copy.deepcopy(self.random.choice(self.shapes))
        else:
            podsets = self._podsets()
            self.shapes.append(podsets)
        meta: Doc = {"name": name}
        if self.chance(0.12):
            meta["annotations"] = {GATE: "penstock.example/later"}
            self.gated.append(name)
        spec: Doc = {"queueName": queue, "priority": self._priority(), "podSets": podsets}
        if self.chance(0.5):
            # Nobody looks the class up but who sets the number; that there is one makes Kueue heed a change of it.
            spec["priorityClassRef"] = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "any"}
        return {"apiVersion": API, "kind": "Workload", "metadata": meta, "spec": spec}

    def _podsets(self) -> list[Doc]:
        many = self.random.choice([1, 1, 1, 2, 3]) if self._may_be_several() else 1
        podsets = [self._podset(f"p{at}", small=many > 1) for at in range(many)]
        if self.chance(0.25):
            some = self.random.choice(podsets)
            some["count"] = self.random.randint(2, 5)
            some["minCount"] = self.random.randint(1, some["count"] - 1)
        return podsets

    def _priority(self) -> int:
        """Who comes later is more important, more often than not, so that there is somebody to push out; in some streams all are equal."""
        if self.seed % 10 in (4, 5):
            return 0
        return self.random.choice([0, 0, 0, 10, 100] if self.made < 5 else [0, 10, 10, 100, 100, 200])

    def _may_be_several(self) -> bool:
        """Seldom where there are flavors to choose from: several pod sets may send Kueue's search through them round for ever."""
        return all(len(flavors) == 1 for _, flavors in self.groups) or self.chance(0.3)

    def _podset(self, name: str, small: bool) -> Doc:
        requests = {"cpu": str(self.random.randint(1, 2 if small else 3))}
        if self.crowded:
            requests = {"cpu": str(self.random.choice([1, 1, 2]))}
        if "memory" in self.layout and self.chance(0.7):
            requests["memory"] = _amount("memory", self.random.randint(1, 2 if small else 4))
        if GPU in self.layout and self.chance(0.5):
            requests[GPU] = str(self.random.randint(1, 2))
        template: Doc = {
            "containers": [{"name": "main", "image": "example/main:1", "resources": {"requests": requests}}]
        }
        template["restartPolicy"] = "Never"
        if self.chance(0.15):
            template["nodeSelector"] = {"pool": self.random.choice(self.groups[0][1])}
        if self.chance(0.4):
            template["tolerations"] = [{"key": "tier", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}]
        count = self.random.choice([1, 1, 2] if self.crowded else [1, 1, 2, 2, 3])
        return {"name": name, "count": count, "template": {"spec": template}}

    # -- what happens -------------------------------------------------------------------------------------------------

    def _step(self) -> list[Doc]:
        if self.stopped and self.chance(0.5):
            queue = self.random.choice(sorted(self.stopped))
            del self.stopped[queue]
            return [{"do": "resume", "queue": queue}]
        weights = {"create": 34, "burst": 12, "finish": 17, "delete": 4, "priority": 10, "deactivate": 5, "activate": 6}
        weights |= {"quota": 7, "stop": 5, "ungate": 8, "reclaim": 5}
        kind = self.random.choices(list(weights), list(weights.values()))[0]
        match kind:
            case "create":
                return [self._create()]
            case "burst":
                return [self._burst()]
            case "priority":
                return [
                    {"do": kind, "pick": self.random.random(), "priority": self.random.choice([-5, 0, 10, 50, 200])}
                ]
            case "quota":
                return [self._new_quota()]
            case "stop":
                queue = self.random.choice(self.queues)
                if queue in self.stopped:
                    return [self._create()]
                self.stopped[queue] = self.random.choice(["Hold", "HoldAndDrain"])
                return [{"do": "stop", "queue": queue, "policy": self.stopped[queue]}]
            case "ungate" if not self.gated:
                return [self._create()]
            case "activate" if not self.inactive:
                return [self._create()]
            case "ungate":
                return [{"do": "ungate", "name": self.gated.pop(0)}]
        self.inactive += {"deactivate": 1, "activate": -1}.get(kind, 0)
        return [{"do": kind, "pick": self.random.random()}]

    def _create(self) -> Doc:
        return {"do": "create", "workload": self._workload(self.random.choice(self.queues))}

    def _burst(self) -> Doc:
        queue = self.random.choice(self.queues)
        return {
            "do": "burst",
            "queue": queue,
            "workloads": [self._workload(queue) for _ in range(self.random.randint(2, 4))],
        }

    def _new_quota(self) -> Doc:
        queue = self.random.choice(self.queues)
        spec = next(
            doc["spec"] for doc in self.objects if doc["kind"] == "ClusterQueue" and doc["metadata"]["name"] == queue
        )
        return {"do": "quota", "queue": queue, "resourceGroups": self._groups(limits="cohortName" in spec)}


def _local_queue(name: str) -> Doc:
    return {"apiVersion": API, "kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": name}}


def _amount(resource: str, n: int) -> str:
    return f"{n}Gi" if resource == "memory" else str(n)
