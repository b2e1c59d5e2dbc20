"""Pods for the real node, and the snapshots that show whether it leaves the machine as it was. Used by test_node.py and test_leftovers.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from testbed.instance import Testbed
from testbed.leftovers import leftovers

# What a kubelet or a network plugin on the host itself would set.
_KERNEL = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def create(
    bed: Testbed, namespace: str, name: str, *command: str, container: dict[str, Any] | None = None, **spec: Any
) -> None:
    main = {
        "name": "main",
        "image": "busybox:testbed",
        "imagePullPolicy": "Never",
        "command": list(command),
        **(container or {}),
    }
    settings = {
        "nodeSelector": {"type": "real"},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [main],
        **spec,
    }
    bed.apply(
        [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": settings}]
    )


def running(bed: Testbed, namespace: str, name: str) -> dict[str, Any]:
    return _in_phase(bed, namespace, name, "Running")


def ended(bed: Testbed, namespace: str, name: str) -> dict[str, Any]:
    return _in_phase(bed, namespace, name, "Succeeded", "Failed")


def _in_phase(bed: Testbed, namespace: str, name: str, *phases: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        pod: dict[str, Any] = bed.get(path(namespace, name))
        return pod if pod["status"]["phase"] in phases else None

    return bed.wait(look, f"the pod {name} to be {' or '.join(phases)}")


def exit_code(pod: dict[str, Any]) -> int:
    code: int = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    return code


def log(bed: Testbed, namespace: str, name: str) -> str:
    text: str = bed.get(f"{path(namespace, name)}/log")
    return text


def machine() -> dict[str, Any]:
    """The machine's mounts, network devices and settings, as seen from outside the node."""
    return {
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "devices": sorted(device.name for device in Path("/sys/class/net").iterdir()),
        "kernel": {name: Path("/proc/sys", name).read_text() for name in _KERNEL},
    }


def cgroups(bed: Testbed) -> list[Path]:
    tops = (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/"))
    return [folder for top in tops for folder in top.glob(f"penstock-testbed-{bed.keeper}-*/")]


def wait_until_gone(bed: Testbed, timeout: float = 180) -> None:
    """After its keeper was killed: the instance itself can wait for nothing any more."""
    deadline = time.monotonic() + timeout
    while left := leftovers(bed):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
