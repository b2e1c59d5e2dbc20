"""Which pods may run, and where: the nodes of the flavors that they take from."""

from __future__ import annotations

from typing import Any

from penstock.controller.coverage import Coverage, Grant, opening, released
from penstock.controller.engine import Shape, Stage, Task
from penstock.controller.workload import OwnWorkload
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


def whole() -> OwnWorkload:
    """Four cpu of one flavor and two GPUs of another, held as unit pods."""
    stage = Stage("*", "w", "open", (Shape(1, {"cpu": 4000, GPU: 2000}),), vector=True)
    made = admitted(MAIN, stage)
    for one in made["status"]["admission"]["podSetAssignments"]:
        one["flavors"] = {"cpu": "plain"} if "cpu" in one["name"] else {GPU: "a100"}
    return OwnWorkload(made)


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


# -- what admission checks add ------------------------------------------------------------------------------------------

SPOT = {"key": "spot", "operator": "Exists"}


def checked(*updates: dict[str, Any], state: str = "Ready") -> OwnWorkload:
    """One cpu of the flavor `plain`, and a check that has said this."""
    made = admitted(MAIN, Stage("train", "train", "open", (Shape(2, {"cpu": 1000}),)))
    for one in made["status"]["admission"]["podSetAssignments"]:
        one["flavors"] = {"cpu": "plain"}
    made["status"]["admissionChecks"] = [{"name": "check", "state": state, "podSetUpdates": list(updates)}]
    return OwnWorkload(made)


def granted(workload: OwnWorkload, one: dict[str, Any]) -> Grant:
    found = Coverage([workload], [], FLAVORS).decide(Task("train", "t"), one)
    assert isinstance(found, Grant)
    return found


def test_a_pod_gets_what_an_admission_check_adds_beside_its_flavor() -> None:
    (pod_set,) = [one.name for one in checked().pod_sets]
    update = {
        "name": pod_set,
        "nodeSelector": {"node-pool": "p-1"},
        "tolerations": [SPOT],
        "labels": {"consumes": "p-1"},
        "annotations": {"example.com/request": "r-1"},
    }
    grant = granted(checked(update), pod(cpu="1"))
    assert grant.node_selector == {"pool": "plain", "node-pool": "p-1"} and list(grant.tolerations) == [SPOT]
    waiting = pod(cpu="1")
    waiting["spec"] |= {"tolerations": [{**SPOT, "effect": ""}], "schedulingGates": [{"name": "penstock/admission"}]}
    change = released(waiting, grant)
    assert change["metadata"]["labels"] == {"consumes": "p-1"}
    assert change["metadata"]["annotations"] == {"example.com/request": "r-1", "penstock/pod-set": grant.pod_set}
    assert change["spec"]["nodeSelector"] == {"pool": "plain", "node-pool": "p-1"}
    assert change["spec"]["schedulingGates"] is None and "tolerations" not in change["spec"], "it has that one"


def test_several_checks_add_up_and_each_pod_set_has_its_own() -> None:
    (pod_set,) = [one.name for one in checked().pod_sets]
    one = checked({"name": pod_set, "nodeSelector": {"a": "1"}}, {"name": "another", "nodeSelector": {"b": "2"}})
    one.obj["status"]["admissionChecks"].append(
        {"name": "second", "state": "Ready", "podSetUpdates": [{"name": pod_set, "labels": {"c": "3"}}]}
    )
    grant = granted(one, pod(cpu="1"))
    assert grant.node_selector == {"pool": "plain", "a": "1"} and grant.labels == {"c": "3"}


def test_a_pod_that_chose_other_nodes_than_a_check_is_not_covered() -> None:
    (pod_set,) = [one.name for one in checked().pod_sets]
    one = checked({"name": pod_set, "nodeSelector": {"node-pool": "p-1"}})
    assert Coverage([one], [], FLAVORS).decide(Task("train", "t"), pod({"node-pool": "p-2"}, cpu="1")) == "uncovered"


def test_the_engine_that_opens_the_stage_is_told_what_a_check_adds() -> None:
    (pod_set,) = [one.name for one in checked().pod_sets]
    one = checked({"name": pod_set, "nodeSelector": {"node-pool": "p-1"}, "tolerations": [SPOT]})
    found = opening(Coverage([one], [], FLAVORS), one)
    assert found.node_selector == {"pool": "plain", "node-pool": "p-1"} and list(found.tolerations) == [SPOT]
