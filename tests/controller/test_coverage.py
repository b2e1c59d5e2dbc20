"""Which pods may run, and where: the nodes of the flavors that they take from."""

from __future__ import annotations

from typing import Any

from penstock.controller.coverage import Coverage, Grant
from penstock.controller.engine import Shape, Stage, Task
from penstock.controller.workload import Workload
from tests.controller.engine_objects import Shelf, admitted

MAIN = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "w", "namespace": "team", "uid": "u"},
}
GPU = "nvidia.com/gpu"
FLAVORS = Shelf(
    {"kind": "ResourceFlavor", "metadata": {"name": "plain"}, "spec": {"nodeLabels": {"pool": "plain"}}},
    {
        "kind": "ResourceFlavor",
        "metadata": {"name": "a100"},
        "spec": {"nodeLabels": {"gpu": "a100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    },
)


def whole() -> Workload:
    """Four cpu of one flavor and two GPUs of another, held as unit pods."""
    stage = Stage("*", "w", "open", (Shape(1, {"cpu": 4000, GPU: 2000}),), vector=True)
    made = admitted(MAIN, stage)
    for one in made["status"]["admission"]["podSetAssignments"]:
        one["flavors"] = {"cpu": "plain"} if "cpu" in one["name"] else {GPU: "a100"}
    return Workload(made)


def pod(selector: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    asked = {GPU if name == "gpu" else name: amount for name, amount in requests.items()}
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"resources": {"requests": asked}}], "nodeSelector": selector or {}},
    }


def decide(one: dict[str, Any]) -> Any:
    return Coverage([whole()], [], FLAVORS).decide(Task("*", "t"), one)


def test_a_pod_gets_the_nodes_of_every_flavor_that_it_takes_from() -> None:
    both = decide(pod(cpu="1", gpu="1"))
    assert isinstance(both, Grant) and both.pod_set.endswith("/g0")
    assert both.node_selector == {"pool": "plain", "gpu": "a100"} and both.tolerations[0]["key"] == "gpu"
    assert decide(pod(cpu="1")).node_selector == {"pool": "plain"}
    assert decide(pod(gpu="1")).node_selector == {"gpu": "a100"}


def test_a_pod_that_chose_other_nodes_is_not_covered() -> None:
    assert decide(pod({"pool": "spot"}, cpu="1")) == "uncovered"
    assert isinstance(decide(pod({"pool": "plain", "zone": "a"}, cpu="1")), Grant)
