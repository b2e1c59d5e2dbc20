"""Kueue, out of its cluster: its own objects, its own roles, its webhooks and its visibility API on 127.0.0.1. Called by instance.py.

Two paths of certificates are fixed in its program (/etc/kueue/metrics/certs and /visibility), so it runs in a root folder that has these, the
program, and nothing else. `Testbed.start("kueue", kueue={...})` merges the dictionary into the configuration it ships.
"""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from testbed import manifests
from testbed.errors import ApiError

if TYPE_CHECKING:
    from testbed.instance import Testbed

MODULE = "sigs.k8s.io/kueue"
NAMESPACE = "kueue-system"
USER = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
VISIBILITY = "kueue-visibility-server"


def merged(base: Any, over: Any) -> Any:
    """`over` on top of `base`: dictionaries key by key, all else replaced."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: merged(base.get(key), value) for key, value in over.items()}
    return over


class Kueue:
    name = "kueue"
    binaries = ("kueue",)
    needs = ()

    def install(self, bed: Testbed) -> None:
        self._webhook, self._visibility, self._health, self.metrics = (bed.port() for _ in range(4))
        shipped = manifests.kustomize(bed.module(MODULE) / "config" / "default")
        address = f"https://127.0.0.1:{self._webhook}"
        objects = list(manifests.webhooks(manifests.without(shipped), lambda path: address + path, bed.ca))
        for thing in objects:
            if thing["kind"] == "APIService":
                thing["spec"]["service"]["port"] = self._visibility
                thing["spec"].pop("insecureSkipTLSVerify", None)
                thing["spec"]["caBundle"] = base64.b64encode(bed.ca).decode()
        # The API server follows a service of this type by its name, and needs no network of pods for it.
        service = {"type": "ExternalName", "externalName": "localhost"}
        meta = {"name": VISIBILITY, "namespace": NAMESPACE}
        objects.append({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
        # Its webhooks refuse Jobs and Pods until it answers, as in any cluster; they come last so that nobody waits longer than that.
        late = [thing for thing in objects if "Webhook" in thing["kind"]]
        bed.apply(thing for thing in objects if thing not in late)
        self._late = late

    def start(self, bed: Testbed) -> None:
        root = bed.dir / "kueue"
        webhook = bed.authority.issue("kueue-webhook", hosts=("127.0.0.1", "localhost"))
        visibility = bed.authority.issue(VISIBILITY, hosts=(f"{VISIBILITY}.{NAMESPACE}.svc", "localhost", "127.0.0.1"))
        webhook.write(root / "webhook", bed.ca)
        webhook.write(root / "etc" / "kueue" / "metrics" / "certs", bed.ca)
        visibility.write(root / "visibility", bed.ca)
        (root / "tmp").mkdir()
        place(bed.binary("kueue"), root / "kueue")
        shutil.copy(bed.kubeconfig_for(USER), root / "kubeconfig")
        (root / "config.yaml").write_text(yaml.safe_dump(self._configuration(bed)))
        enter = (
            ["chroot"]
            if os.geteuid() == 0
            else ["unshare", "--map-root-user", "setpriv", "--pdeathsig", "KILL", "chroot"]
        )
        arguments = ["--config=/config.yaml", "--kubeconfig=/kubeconfig", "--zap-log-level=2"]
        bed.run("kueue", [*enter, str(root), "/kueue", *arguments])
        bed.apply(self._late)

    def _configuration(self, bed: Testbed) -> Any:
        shipped = bed.module(MODULE) / "config" / "components" / "manager" / "controller_manager_config.yaml"
        ours = {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": f"127.0.0.1:{self.metrics}", "enableClusterQueueResources": True},
            "webhook": {"host": "127.0.0.1", "port": self._webhook, "certDir": "/webhook"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": self._visibility},
        }
        return merged(merged(yaml.safe_load(shipped.read_text()), ours), bed.options.get(self.name, {}))

    def ready(self, bed: Testbed) -> None:
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "probe"}}

        def accepts() -> bool:
            try:
                bed.raw("POST", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors", flavor, params={"dryRun": "All"})
                bed.get("/apis/visibility.kueue.x-k8s.io/v1beta2")
            except ApiError:
                return False
            return True

        bed.wait(accepts, "Kueue's webhooks and its visibility API to answer")


def place(program: Path, target: Path) -> None:
    """Puts a program into a root folder: by a link where the file system allows, since programs are large."""
    try:
        os.link(program, target)
    except OSError:
        shutil.copy(program, target)
