"""Gangs and queues on the real YuniKorn: what it reserves with placeholders, and what becomes of a gang for which there is no room. Nodes are fake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed.api import MERGE
from testbed.components import yunikorn
from testbed.components.kwok import RUN_TIME
from testbed.instance import Testbed
from tests.cluster.support import fresh_namespace

Beds = Callable[..., Testbed]
DOMAIN = "yunikorn.apache.org"
PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
FOREVER = {RUN_TIME: "forever"}
QUEUES = """
partitions:
- name: default
  placementrules:
  - {name: provided, create: false}
  - {name: tag, value: namespace, create: true}
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: small
      resources: {max: {vcore: 4}}
"""


@pytest.fixture
def bed(testbed: Beds) -> Testbed:
    return testbed("kwok", "yunikorn")


@pytest.fixture
def ns(bed: Testbed) -> Iterator[str]:
    """A namespace, which is a queue of its own. All tests share one node of 32 processors, so each leaves it empty."""
    name = fresh_namespace(bed)
    yield name
    bed.delete(f"/api/v1/namespaces/{name}/pods")
    bed.wait(
        lambda: all(held(one) == 0 for one in yunikorn.rest(bed, "partition/default/nodes")), "the node to be empty"
    )


def held(node: dict[str, Any]) -> int:
    """Thousandths of a processor that its pods hold."""
    return int(node.get("allocated", {}).get("vcore", 0))


def gang(app: str, pods: int, cpu: int, parameters: str = "") -> dict[str, Any]:
    """Metadata of each pod of it."""
    group = {
        "name": "workers",
        "minMember": pods,
        "minResource": {"cpu": str(cpu), "memory": "1Gi"},
        "annotations": FOREVER,
    }
    annotations = {
        f"{DOMAIN}/task-group-name": "workers",
        f"{DOMAIN}/task-groups": json.dumps([group]),
        **({f"{DOMAIN}/schedulingPolicyParameters": parameters} if parameters else {}),
    }
    return {"labels": {f"{DOMAIN}/app-id": app}, "annotations": annotations}


def create(bed: Testbed, ns: str, name: str, cpu: float, metadata: dict[str, Any]) -> None:
    """A pod that runs until it is told to end."""
    size = {"cpu": str(cpu), "memory": "1Gi"}
    container = {"name": "main", "image": "busybox:testbed", "resources": {"requests": size}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": name, "annotations": metadata.get("annotations", {}) | FOREVER},
        "spec": {"schedulerName": "yunikorn", "restartPolicy": "Never", "containers": [container]},
    }
    bed.raw("POST", f"/api/v1/namespaces/{ns}/pods", pod)


def end(bed: Testbed, ns: str, name: str) -> None:
    """Lets a pod that runs come to its end."""
    bed.raw("PATCH", f"/api/v1/namespaces/{ns}/pods/{name}", {"metadata": {"annotations": {RUN_TIME: "0s"}}}, MERGE)


def pods(bed: Testbed, ns: str) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Those that were asked for by name, and the placeholders."""
    listed = bed.objects("v1", "pods", ns)
    real = {one["metadata"]["name"]: one for one in listed if PLACEHOLDER not in one["metadata"].get("annotations", {})}
    return real, [one for one in listed if one["metadata"]["name"] not in real]


def phases(bed: Testbed, ns: str) -> dict[str, str]:
    return {name: one["status"]["phase"] for name, one in pods(bed, ns)[0].items()}


def application(bed: Testbed, app: str) -> dict[str, Any]:
    """As YuniKorn shows it; empty while it does not know it."""
    for state in ("active", "completed", "rejected"):
        for one in yunikorn.rest(bed, f"partition/default/applications/{state}") or ():
            if one["applicationID"] == app:
                found: dict[str, Any] = one
                return found
    return {}


def states(bed: Testbed, app: str) -> list[str]:
    """Those it was in, in their order."""
    return [entry["applicationState"] for entry in application(bed, app)["stateLog"]]


def test_a_gang_takes_the_place_of_its_placeholders(bed: Testbed, ns: str) -> None:
    app = f"gang-{ns}"
    metadata = gang(app, pods=3, cpu=2)
    create(bed, ns, "worker-0", 2, metadata)
    # The room of all three is reserved before the first begins, although nobody has asked for the other two yet.
    bed.wait(
        lambda: phases(bed, ns) == {"worker-0": "Running"} and len(pods(bed, ns)[1]) == 2,
        "the first of the gang to run",
    )
    waiting = pods(bed, ns)[1]
    assert {one["spec"]["containers"][0]["image"] for one in waiting} == {"pause:testbed"}
    assert all(one["spec"]["nodeName"] == "kwok-0" and one["metadata"]["name"].startswith("tg-") for one in waiting)
    bed.wait(lambda: application(bed, app)["placeholderData"][0].get("replaced") == 1, "YuniKorn to count it")
    seen = application(bed, app)
    assert (seen["applicationState"], seen["queueName"], seen["user"]) == ("Running", f"root.{ns}", "nobody")
    assert seen["placeholderData"][0]["count"] == 3
    queue = yunikorn.rest(bed, f"partition/default/queue/root.{ns}")
    assert queue["allocatedResource"]["vcore"] == 6000 and queue["isLeaf"] and not queue["isManaged"]

    for name in ("worker-1", "worker-2"):
        create(bed, ns, name, 2, metadata)
    everyone = ("worker-0", "worker-1", "worker-2")
    bed.wait(lambda: phases(bed, ns) == dict.fromkeys(everyone, "Running"), "all three to run")
    bed.wait(lambda: not pods(bed, ns)[1], "the placeholders to be gone")
    bed.wait(lambda: application(bed, app)["placeholderData"][0].get("replaced") == 3, "YuniKorn to count them")
    for name in everyone:
        end(bed, ns, name)
    bed.wait(lambda: phases(bed, ns) == dict.fromkeys(everyone, "Succeeded"), "all three to end")
    # It takes it for completed half a minute later, for another pod might come.
    bed.wait(lambda: application(bed, app)["applicationState"] == "Completing", "the application to be over")


def test_a_gang_waits_until_there_is_room_for_all_of_it(bed: Testbed, ns: str) -> None:
    create(bed, ns, "other", 16, {"labels": {f"{DOMAIN}/app-id": f"other-{ns}"}})
    bed.wait(lambda: phases(bed, ns) == {"other": "Running"}, "the other pod to run")
    app = f"gang-{ns}"
    everyone = ("worker-0", "worker-1", "worker-2")
    for name in everyone:
        create(bed, ns, name, 8, gang(app, pods=3, cpu=8))

    def bound() -> bool:
        return sorted(one["spec"].get("nodeName", "") for one in pods(bed, ns)[1]) == ["", "kwok-0", "kwok-0"]

    bed.wait(bound, "two of three placeholders to find room")
    assert phases(bed, ns) == {"other": "Running", **dict.fromkeys(everyone, "Pending")}
    assert application(bed, app)["applicationState"] == "Accepted"
    end(bed, ns, "other")
    bed.wait(lambda: phases(bed, ns) == {"other": "Succeeded", **dict.fromkeys(everyone, "Running")}, "the gang to run")


def test_a_hard_gang_that_finds_no_room_in_time_fails(bed: Testbed, ns: str) -> None:
    app = f"gang-{ns}"
    everyone = ("worker-0", "worker-1", "worker-2")
    for name in everyone:
        create(bed, ns, name, 12, gang(app, 3, 12, "placeholderTimeoutInSeconds=3 gangSchedulingStyle=Hard"))
    bed.wait(lambda: phases(bed, ns) == dict.fromkeys(everyone, "Failed"), "the gang to fail")
    real, _ = pods(bed, ns)
    assert {one["status"]["reason"] for one in real.values()} == {"ResourceReservationTimeout"}
    assert not any("nodeName" in one["spec"] for one in real.values())
    bed.wait(lambda: not pods(bed, ns)[1], "the placeholders to be gone")
    bed.wait(lambda: application(bed, app).get("applicationState") == "Failed", "the application to have failed")
    assert states(bed, app) == ["Accepted", "Failing", "Failed"]


def test_of_a_soft_gang_that_finds_no_room_in_time_those_run_that_fit(bed: Testbed, ns: str) -> None:
    app = f"gang-{ns}"
    everyone = ("worker-0", "worker-1", "worker-2")
    for name in everyone:
        create(bed, ns, name, 12, gang(app, 3, 12, "placeholderTimeoutInSeconds=3 gangSchedulingStyle=Soft"))
    bed.wait(lambda: sorted(phases(bed, ns).values()) == ["Pending", "Running", "Running"], "two of three to run")
    bed.wait(lambda: not pods(bed, ns)[1], "the placeholders to be gone")
    assert states(bed, app) == ["Accepted", "Resuming", "Accepted", "Running"]
    end(bed, ns, next(name for name, phase in phases(bed, ns).items() if phase == "Running"))
    bed.wait(lambda: sorted(phases(bed, ns).values()) == ["Running", "Running", "Succeeded"], "the third to run")


def test_a_gang_larger_than_its_queue_is_rejected_at_once(bed: Testbed, ns: str) -> None:
    yunikorn.configure(bed, QUEUES)
    app = f"gang-{ns}"
    metadata = gang(app, pods=3, cpu=2)
    metadata["labels"][f"{DOMAIN}/queue"] = "root.small"
    create(bed, ns, "worker-0", 2, metadata)
    bed.wait(lambda: phases(bed, ns) == {"worker-0": "Failed"}, "the pod to fail")
    status = pods(bed, ns)[0]["worker-0"]["status"]
    assert status["reason"] == "ApplicationRejected"
    assert application(bed, app)["applicationState"] == "Rejected"
    assert "larger than max queue allocation" in application(bed, app)["rejectedMessage"]
    queue = yunikorn.rest(bed, "partition/default/queue/root.small")
    assert queue["maxResource"]["vcore"] == 4000 and queue["isManaged"]
