"""YuniKorn, as a second scheduler beside Kubernetes' own, for pods with `schedulerName: yunikorn`. Started by `Testbed.start(…, "yunikorn")`.

Its configuration and its rights are those in the deployments folder of its module. Queues come of namespaces, as that configuration says;
`configure` puts others in their place. Its placeholders of gangs are pods that never end, on fake nodes too: the stage of kwok that ends pods leaves them alone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import httpx2

from testbed import manifests
from testbed.api import JSON_PATCH

if TYPE_CHECKING:
    from testbed.instance import Netns, Testbed

MODULE = "github.com/apache/yunikorn-k8shim"
NAMESPACE = "yunikorn"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:yunikorn-admin"
REST = 9080
CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding")
PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
NO_PLACEHOLDER = {"key": f'.metadata.annotations["{PLACEHOLDER}"]', "operator": "DoesNotExist"}
"""For the selector of a stage of kwok."""


class YuniKorn:
    name = "yunikorn"
    binaries = ("yunikorn",)
    # It would see nodes that come later as well, but is only ready once it knows them.
    needs: tuple[str, ...] = ("kwok",)

    def install(self, bed: Testbed) -> None:
        folder = bed.module(MODULE) / "deployments" / "scheduler"
        shipped = manifests.files(folder / "yunikorn-rbac.yaml", folder / "yunikorn-configs.yaml")
        for thing in shipped:
            if thing["kind"] not in CLUSTER_WIDE:
                thing["metadata"]["namespace"] = NAMESPACE
        # Gangs and queues wait for the next round of scheduling; once a second is too slow for tests.
        settings = {"service.placeholderImage": "pause:testbed", "service.schedulingInterval": "100ms"}
        bed.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "yunikorn-defaults", "namespace": NAMESPACE},
                    "data": settings,
                },
                *shipped,
            ]
        )
        if "kwok" in bed.components:
            more = [{"op": "add", "path": "/spec/selector/matchExpressions/-", "value": NO_PLACEHOLDER}]
            bed.raw("PATCH", "/apis/kwok.x-k8s.io/v1alpha1/stages/pod-complete", more, JSON_PATCH)

    def start(self, bed: Testbed) -> None:
        # Its REST service listens on all interfaces, on a port that cannot be set.
        self.netns: Netns = bed.netns("yunikorn", expose=(REST,))
        who = bed.kubeconfig_for(ACCOUNT, server="https://127.0.0.1:6443")
        (bed.dir / "yunikorn.url").write_text(f"http://127.0.0.1:{self.netns.exposed[REST]}")
        bed.run(
            "yunikorn", [bed.binary("yunikorn")], env={"KUBECONFIG": str(who), "NAMESPACE": NAMESPACE}, netns=self.netns
        )

    def ready(self, bed: Testbed) -> None:
        fake = bed.nodes if "kwok" in bed.components else 0

        def knows() -> bool:
            nodes = rest(bed, "partition/default/nodes")
            return nodes is not None and len(nodes) >= fake

        bed.wait(knows, "YuniKorn to know the nodes")


def rest(bed: Testbed, path: str) -> Any:
    """What its REST service says under /ws/v1, or None where it does not answer or has no such thing."""
    url = (bed.dir / "yunikorn.url").read_text()
    try:
        answer = httpx2.get(f"{url}/ws/v1/{path}", headers={"Accept": "application/json"}, trust_env=False)
    except httpx2.HTTPError:
        return None
    return answer.json() if answer.status_code == 200 else None


def configure(bed: Testbed, queues: str) -> None:
    """Puts these queues (the text of a queues.yaml) in the place of those there are, and waits until YuniKorn has taken them."""
    meta = {"name": "yunikorn-configs", "namespace": NAMESPACE}
    bed.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"queues.yaml": queues}}])
    digest = hashlib.sha256(queues.encode()).hexdigest().upper()
    bed.wait(lambda: (rest(bed, "config") or {}).get("Checksum") == digest, "YuniKorn to take its new queues")
