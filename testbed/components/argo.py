"""Argo Workflows beside the control plane: its controller as a process, its objects from its own module. Started by Testbed when "argo" is
among the components.

The controller runs as the ServiceAccount that Argo ships, with the rights that Argo ships (cluster-install). It binds all interfaces for
its health and metrics, so it has a network namespace of its own. Argo's server and its command line are left out: both only read and write
the objects that are here.

Argo's types come without their schemas. A full one, of which a release installs eight, costs the API server some five seconds of processor
time and 100 MiB; `Testbed.start("argo", argo={"schemas": ["workflows"]})` installs those that are named, and then a Workflow that a real
cluster refuses is refused here. Without, the controller still checks what it runs, and says so in the workflow's status.

Argo looks at a workflow some time after it has changed: ten seconds by its own default, a tenth of one here, so that tests take no longer than
they must. `argo={"requeue": "10s"}` is what users have.

Pods on fake nodes: Argo counts a node as done when its pod is, but takes outputs from a WorkflowTaskResult that the executor in the
pod writes. Where no pod runs for real, components/argo_report.py writes it, from the pod's annotation testbed.penstock/result; see there.
Stages of kwok that end a pod are told to wait for that report, if the pod belongs to a workflow.

Pods on the real node run Argo's own executor, from the image argoexec:testbed. Artifacts without a place of their own go to
components/argo_store.py; a namespace whose workflows use that needs the secret of `artifact_secret(namespace)`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import manifests
from testbed.api import JSON_PATCH
from testbed.components import argo_report, argo_store, node
from testbed.tunnel import API_PORT

if TYPE_CHECKING:
    from testbed.instance import Testbed

MODULE = "github.com/argoproj/argo-workflows/v4"
NAMESPACE = "argo"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:argo"
API = "argoproj.io/v1alpha1"
IMAGE = "argoexec:testbed"
REQUEUE = "100ms"
USER, PASSWORD = "argo", "not-a-secret"
"""Of the store of artifacts, which only listens here and lives as long as the testbed."""
EVERYONE = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccounts"}
OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
"""A schema that takes anything."""
WAIT_FOR_REPORT = {
    "key": f'.metadata | select(.labels["{argo_report.WORKFLOW}"] != null and .annotations["{argo_report.REPORTED}"] == null) | .name',
    "operator": "DoesNotExist",
}
"""For the selector of a stage of kwok: not a workflow's pod that has yet to be reported."""
PROBE = {
    "apiVersion": API,
    "kind": "Workflow",
    "metadata": {"name": "testbed-probe", "namespace": NAMESPACE},
    "spec": {"entrypoint": "main", "templates": [{"name": "main", "suspend": {}}]},
}
"""Never gets a pod: its status shows that the controller works."""


class Argo:
    name = "argo"
    binaries = ("workflow-controller",)
    needs: tuple[str, ...] = ("kwok",)

    def install(self, bed: Testbed) -> None:
        self.store = bed.port()
        module = bed.module(MODULE)
        full = bed.options.get("argo", {}).get("schemas", ())
        bed.apply([*_types(module, full), *_rights(module), _config(bed, self.store)])
        if "kwok" in bed.components:
            more = [{"op": "add", "path": "/spec/selector/matchExpressions/-", "value": WAIT_FOR_REPORT}]
            bed.raw("PATCH", "/apis/kwok.x-k8s.io/v1alpha1/stages/pod-complete", more, JSON_PATCH)

    def start(self, bed: Testbed) -> None:
        who = bed.kubeconfig_for(ACCOUNT, server=f"https://127.0.0.1:{API_PORT}")
        argv: list[str | Path] = [bed.binary("workflow-controller"), f"--kubeconfig={who}", f"--namespace={NAMESPACE}"]
        argv += ["--qps=200", "--burst=300"]
        # A change of a workflow is looked at after this time. Without rivals there is no leader to elect.
        env = {"DEFAULT_REQUEUE_TIME": bed.options.get("argo", {}).get("requeue", REQUEUE)}
        env["LEADER_ELECTION_DISABLE"] = "true"
        bed.run("workflow-controller", argv, env=env, netns=bed.netns("argo"))
        if "kwok" in bed.components:
            bed.run("argo-report", [sys.executable, argo_report.__file__, bed.kubeconfig, node.NAME])
        if "node" in bed.components:
            folder = bed.dir / "artifacts"
            bed.run("argo-store", [sys.executable, argo_store.__file__, folder, str(self.store), USER, PASSWORD])

    def ready(self, bed: Testbed) -> None:
        path = f"/apis/{API}/namespaces/{NAMESPACE}/workflows"
        bed.raw("POST", path, PROBE)
        probe = f"{path}/{PROBE['metadata']['name']}"  # type: ignore[index]
        bed.wait(
            lambda: bed.get(probe).get("status", {}).get("phase") == "Running",
            "Argo's controller to take up a workflow",
        )
        bed.delete(probe)


def artifact_secret(namespace: str) -> dict[str, Any]:
    """What the executor needs in a namespace to put artifacts into the store."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "testbed-artifacts", "namespace": namespace},
        "stringData": {"user": USER, "password": PASSWORD},
    }


def _types(module: Path, full: Sequence[str]) -> list[dict[str, Any]]:
    """The types; those named in `full` (plural) with their schemas."""
    shipped = module / "manifests" / "base" / "crds"
    found = []
    for file in sorted((shipped / "minimal").glob("argoproj.io_*.yaml")):
        named = file.stem.partition("_")[2] in full
        (one,) = manifests.files(shipped / "full" / file.name if named else file)
        if not named:
            for version in one["spec"]["versions"]:
                version["schema"] = OPEN
        found.append(one)
    return found


def _rights(module: Path) -> list[dict[str, Any]]:
    """Of the controller, as shipped; and of the executor in every pod, whatever the namespace, where Argo's example says `default` only."""
    shipped = module / "manifests"
    found = manifests.files(
        shipped / "cluster-install-no-crds" / "workflow-controller-rbac",
        shipped / "base" / "workflow-controller" / "workflow-controller-sa.yaml",
    )
    found = [one for one in found if one["kind"] != "Kustomization"]
    for one in found:
        if one["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
            one["metadata"]["namespace"] = NAMESPACE
        for subject in one.get("subjects", ()):
            subject["namespace"] = NAMESPACE
    (executor,) = manifests.files(shipped / "quick-start" / "base" / "executor" / "emissary" / "executor-role.yaml")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "testbed-argo-executor"}
    meta = {"metadata": {"name": role["name"]}}
    api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *found,
        {**api, "kind": "ClusterRole", **meta, "rules": executor["rules"]},
        {**api, "kind": "ClusterRoleBinding", **meta, "roleRef": role, "subjects": [EVERYONE]},
    ]


def _config(bed: Testbed, store: int) -> dict[str, Any]:
    secret = artifact_secret("")["metadata"]["name"]
    config: dict[str, Any] = {
        "executor": {"image": IMAGE, "imagePullPolicy": "IfNotPresent"},
        # What an image runs by default would be asked of its registry.
        "images": {"busybox:testbed": {"cmd": ["sh"]}},
        "metricsConfig": {"enabled": False},
        "telemetryConfig": {"enabled": False},
        "artifactRepository": {
            "artifactory": {
                "repoURL": f"http://{node.reach(bed, store)}",
                "usernameSecret": {"name": secret, "key": "user"},
                "passwordSecret": {"name": secret, "key": "password"},
            }
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "workflow-controller-configmap", "namespace": NAMESPACE},
        # JSON is YAML.
        "data": {name: json.dumps(value) for name, value in config.items()},
    }
