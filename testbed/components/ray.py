"""KubeRay's operator, with the types and the rights that its module ships. Started by `Testbed.start(…, "ray")`.

Beside YuniKorn its own plugin for YuniKorn is on, so that what a Ray object says reaches its pods by KubeRay's code. Heads are asked for nothing: nobody answers in
fake pods, so a RayCluster becomes ready, and a RayJob never submits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from testbed import manifests

if TYPE_CHECKING:
    from testbed.instance import Testbed

MODULE = "github.com/ray-project/kuberay/ray-operator"
NAMESPACE = "ray-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:kuberay-operator"


class Ray:
    name = "ray"
    binaries = ("ray-operator",)
    needs: tuple[str, ...] = ()

    def install(self, bed: Testbed) -> None:
        self.health = bed.port()
        folder = bed.module(MODULE) / "config"
        types = manifests.files(folder / "crd" / "bases")
        bed.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        bed.apply(manifests.unconverted(one for one in types if one["kind"] == "CustomResourceDefinition"))
        bed.apply(manifests.in_namespace(manifests.kustomize(folder / "rbac"), NAMESPACE))

    def start(self, bed: Testbed) -> None:
        who = bed.kubeconfig_for(ACCOUNT)
        scheduler = ["--batch-scheduler=yunikorn"] if "yunikorn" in bed.components else []
        words = [
            "--metrics-addr=0",
            f"--health-probe-bind-address=127.0.0.1:{self.health}",
            "--enable-leader-election=false",
        ]
        bed.run("ray-operator", [bed.binary("ray-operator"), f"--kubeconfig={who}", *words, *scheduler])

    def ready(self, bed: Testbed) -> None:
        bed.wait(self._ready, "KubeRay to be ready")

    def _ready(self) -> bool:
        try:
            return httpx2.get(f"http://127.0.0.1:{self.health}/readyz", trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False
