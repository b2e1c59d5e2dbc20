"""The JobSet controller, outside of the cluster, with the objects and the rights that its own release ships. Started by `Testbed.start(…, "jobset")`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx2

from testbed import manifests
from testbed.errors import ApiError

if TYPE_CHECKING:
    from testbed.instance import Testbed

MODULE = "sigs.k8s.io/jobset"
NAMESPACE = "jobset-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:jobset-controller-manager"
API = "jobset.x-k8s.io/v1alpha2"


class JobSet:
    name = "jobset"
    binaries = ("jobset",)
    needs: tuple[str, ...] = ()

    def install(self, bed: Testbed) -> None:
        self.webhook, self.health = bed.port(), bed.port()
        shipped = manifests.without(manifests.kustomize(bed.module(MODULE) / "config" / "default"))
        bed.apply(manifests.webhooks(shipped, lambda path: f"https://127.0.0.1:{self.webhook}{path}", bed.ca))

    def start(self, bed: Testbed) -> None:
        certificates = str(bed.server_certificate("jobset"))
        config = bed.dir / "jobset.yaml"
        # JSON is YAML. Of the metrics server nothing is needed, and its certificate would be looked for in a fixed folder.
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                    "kind": "Configuration",
                    "internalCertManagement": {"enable": False},
                    "webhook": {"host": "127.0.0.1", "port": self.webhook, "certDir": certificates},
                    "metrics": {"bindAddress": "0"},
                    "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"},
                    "leaderElection": {"leaderElect": False},
                }
            )
        )
        who = bed.kubeconfig_for(ACCOUNT)
        bed.run("jobset", [bed.binary("jobset"), "--kubeconfig", who, "--config", config, "--zap-log-level=2"])

    def ready(self, bed: Testbed) -> None:
        bed.wait(lambda: self._ready(), "the JobSet controller to be ready")
        bed.wait(lambda: _takes(bed), "the API server to take a JobSet")

    def _ready(self) -> bool:
        try:
            return httpx2.get(f"http://127.0.0.1:{self.health}/readyz", trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False


def _takes(bed: Testbed) -> bool:
    """The API server learns of webhooks a moment after they were applied, and only then a JobSet gets its defaults."""
    empty = {"apiVersion": API, "kind": "JobSet", "metadata": {"name": "probe"}, "spec": {}}
    try:
        made = bed.raw("POST", f"/apis/{API}/namespaces/default/jobsets", empty, params={"dryRun": "All"})
    except ApiError:
        return False
    return "successPolicy" in made["spec"]
