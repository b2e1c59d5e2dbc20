"""The operator of MPIJobs, with the type and the rights that its module ships. Started by `Testbed.start(…, "mpi")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed import manifests

if TYPE_CHECKING:
    from testbed.instance import Netns, Testbed

MODULE = "github.com/kubeflow/mpi-operator"
NAMESPACE = "mpi-operator"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:mpi-operator"
HEALTH = 8080


class Mpi:
    name = "mpi"
    binaries = ("mpi-operator",)
    needs: tuple[str, ...] = ()

    def install(self, bed: Testbed) -> None:
        shipped = manifests.kustomize(bed.module(MODULE) / "manifests" / "overlays" / "standalone")
        bed.apply(manifests.without(shipped))

    def start(self, bed: Testbed) -> None:
        # Its health is told on all interfaces, on a port that cannot be set.
        self.netns: Netns = bed.netns("mpi-operator", expose=(HEALTH,))
        who = bed.kubeconfig_for(ACCOUNT, server="https://127.0.0.1:6443")
        words = [f"-lock-namespace={NAMESPACE}", "-kube-api-qps=50", "-kube-api-burst=100"]
        env = {"KUBECONFIG": str(who)}
        bed.run("mpi-operator", [bed.binary("mpi-operator"), *words], env=env, netns=self.netns)

    def ready(self, bed: Testbed) -> None:
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/mpi-operator"
        bed.wait(lambda: bed.found(lease), "mpi-operator to lead")
