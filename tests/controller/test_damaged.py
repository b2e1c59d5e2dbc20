"""Objects that are not as they should be, whoever has written them: an engine says that it cannot read one, or reads what it can. It never fails, so
an eviction of such a workflow is answered like any other."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from penstock.controller.admit import PodAdmitter
from penstock.controller.core import Seen, reconcile
from penstock.controller.engine import Unit
from penstock.controller.objects import annotations_of, name_of, part
from tests.controller.model import Cluster, control, observed

TIMES = 400
STEPS = [{"name": "s", "pods": 3, "cpu": "1"}, {"name": "t", "pods": 2, "cpu": "1"}]
UNITS: tuple[Unit, ...] = ("stage", "task", "workflow", "reuse")
OWN = frozenset({"name", "namespace", "uid", "ownerReferences", "resourceVersion", "creationTimestamp"})
"""Fields that the API server keeps in order."""
JUNK: tuple[Any, ...] = (
    *(None, "", 0, -1, True, 3.5, [], {}, [None], [[]], ["x"], {"a": "b"}, {"name": None}),
    *([{"name": "a"}, {"name": "a"}], "x" * 300, "{{x}}", "1e400", "{", "[1]", '{"stage":1}', "Running", "Succeeded"),
)


@cache
def moments(engine: str) -> list[tuple[Unit, Cluster]]:
    """A workflow in each unit, a few rounds after it was submitted."""
    found: list[tuple[Unit, Cluster]] = []
    for unit in UNITS:
        for rounds in (1, 3, 5, 8, 12):
            cluster = Cluster(cpu=6)
            cluster.submit("a", STEPS, engine, unit)
            for _ in range(rounds):
                cluster.now += 2
                cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
                for pod in list(cluster.of("pods")):
                    cluster.pod_step(name_of(pod))
            found.append((unit, cluster))
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of everything in an object, the way to it."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*path, key)
        yield from places(one, (*path, key))


@pytest.mark.parametrize("engine", ["argo", "tekton", "jobset"])
def test_whatever_it_says_it_can_be_looked_at(engine: str) -> None:
    dice = random.Random(15)
    for _ in range(TIMES):
        unit, before = dice.choice(moments(engine))
        cluster = before.snapshot()
        kinds = {"taskruns", "jobs", cluster.machines[engine].plural}
        obj = cluster.objects[dice.choice([key for key in cluster.objects if key[0] in kinds])]
        field = dice.choice(["status", "status", "metadata", "spec"])
        ways = [way for way in places(part(obj, field)) if not OWN & set(map(str, way))]
        if ways:
            *way, last = dice.choice(ways)
            here = obj[field]
            for key in way:
                here = here[key]
            here[last] = copy.deepcopy(dice.choice(JUNK))
        (main,) = cluster.mains
        seen = Seen(cluster.machines[engine].engine, observed(cluster, main), unit, cluster.of("workloads"))
        reconcile(seen)
        sight = PodAdmitter(seen)
        for pod in cluster.of("pods"):
            sight.decide(pod)
        for one in cluster.of("workloads"):
            seen.engine.stop(seen.observed, unit, annotations_of(one)["penstock/stage"], ())
