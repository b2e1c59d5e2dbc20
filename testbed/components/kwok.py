"""Fake nodes: kwok plays the kubelet, so that pods are scheduled, run and end without any machine under them. Called by instance.py.

How a pod behaves is said by annotations on it:
    testbed.penstock/run-time    how long it runs (a Go duration; default 200ms); `forever`: until it is deleted
    testbed.penstock/exit-code   the exit code of its containers (default 0)
    testbed.penstock/result      what its first container leaves as its termination message
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed import manifests
from testbed.errors import ApiError

if TYPE_CHECKING:
    from testbed.api import Object
    from testbed.instance import Testbed

MODULE = "sigs.k8s.io/kwok"
USER = "system:serviceaccount:kube-system:kwok-controller"
RUN_TIME, EXIT_CODE, RESULT = (f"testbed.penstock/{name}" for name in ("run-time", "exit-code", "result"))
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
DEFAULT_RUN_TIME = 200

_COMPLETED = """
{{ $now := Now }}
{{ $root := . }}
{{ $notes := or .metadata.annotations dict }}
{{ $code := or (index $notes "%(code)s") "0" }}
{{ $result := or (index $notes "%(result)s") "" }}
containerStatuses:
{{ range $index, $item := .spec.containers }}
- image: {{ $item.image | Quote }}
  name: {{ $item.name | Quote }}
  ready: false
  restartCount: 0
  started: false
  state:
    terminated:
      exitCode: {{ $code }}
      reason: {{ if eq $code "0" }}Completed{{ else }}Error{{ end }}
      startedAt: {{ $root.status.startTime | Quote }}
      finishedAt: {{ $now | Quote }}
      {{ if and (eq $index 0) $result }}
      message: {{ $result | Quote }}
      {{ end }}
{{ end }}
conditions:
- lastTransitionTime: {{ $now | Quote }}
  status: "False"
  reason: PodCompleted
  type: Ready
- lastTransitionTime: {{ $now | Quote }}
  status: "False"
  reason: PodCompleted
  type: ContainersReady
phase: {{ if eq $code "0" }}Succeeded{{ else }}Failed{{ end }}
"""


def ending(name: str, over: Object) -> Object:
    """A stage that ends running pods after their run time; `over` adds to its selector or replaces parts of its spec."""
    expressions = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
        {"key": f'.metadata.annotations["{RUN_TIME}"]', "operator": "NotIn", "values": ["forever"]},
    ]
    spec: Object = {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {"matchExpressions": expressions + over.get("matchExpressions", [])},
        "delay": {
            "durationMilliseconds": DEFAULT_RUN_TIME,
            "durationFrom": {"expressionFrom": f'.metadata.annotations["{RUN_TIME}"]'},
        },
        "next": over.get("next", {"statusTemplate": _COMPLETED % {"code": EXIT_CODE, "result": RESULT}}),
    }
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


class Kwok:
    name = "kwok"
    binaries = ("kwok",)
    needs = ()

    def install(self, bed: Testbed) -> None:
        folder = bed.module(MODULE) / "kustomize"
        shipped = manifests.kustomize(folder / "crd") + manifests.kustomize(folder / "rbac")
        bed.apply(manifests.without(shipped, (*manifests.DEPLOYED, "FlowSchema")))
        stages = manifests.kustomize(folder / "stage" / "node" / "fast")
        stages += manifests.kustomize(folder / "stage" / "node" / "heartbeat-with-lease")
        stages += [
            stage
            for stage in manifests.kustomize(folder / "stage" / "pod" / "fast")
            if stage["metadata"]["name"] != "pod-complete"
        ]
        bed.apply([*stages, ending("pod-complete", {})])

    def start(self, bed: Testbed) -> None:
        bed.run(
            "kwok",
            [
                bed.binary("kwok"),
                f"--kubeconfig={bed.kubeconfig_for(USER)}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-label-selector=type=kwok",
                f"--server-address=127.0.0.1:{bed.port()}",
                "--node-ip=127.0.0.1",
                "--cidr=10.128.0.0/16",
                "--node-lease-duration-seconds=40",
                "--enable-crds=Stage",
            ],
        )
        bed.apply(self._node(f"kwok-{number}", tainted="node" in bed.components) for number in range(bed.nodes))

    def _node(self, name: str, tainted: bool) -> Object:
        size = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "type": "kwok",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux",
                },
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            },
            "spec": {"taints": [TAINT] if tainted else []},
            "status": {"allocatable": size, "capacity": size},
        }

    def ready(self, bed: Testbed) -> None:
        def all_ready() -> bool:
            try:
                nodes = bed.objects("v1", "nodes", labels="type=kwok")
            except ApiError:
                return False
            ready = [
                node
                for node in nodes
                for condition in node["status"].get("conditions", [])
                if condition["type"] == "Ready" and condition["status"] == "True"
                if not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", []))
            ]
            return len(ready) == bed.nodes

        bed.wait(all_ready, "the fake nodes to be ready")
