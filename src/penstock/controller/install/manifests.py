"""Everything that a cluster needs for the controller. Called by `penstock controller manifests` and `check`, by `chart`, and by the tests, which run the
controller with exactly these rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.controller.engine import Engine
from penstock.controller.install.policies import ENGINES, Manifest, policies
from penstock.controller.install.rights import SECRET, author_role, controller_rights
from penstock.controller.install.webhooks import Address, configuration
from penstock.controller.names import MANAGER

NAMESPACE: Final = "penstock-system"
IMAGE: Final = "penstock"
"""Without a tag: who installs names the version."""
WEBHOOK_PORT: Final = 9443
METRICS_PORT: Final = 8080
POD_LABELS: Final = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/component": "controller"}
NOBODY: Final = 65532
"""The user in the image (deploy/Containerfile)."""


@dataclass(frozen=True, slots=True)
class Install:
    namespace: str = NAMESPACE
    image: str = IMAGE
    replicas: int = 2
    engines: tuple[str, ...] = ENGINES
    others: tuple[Engine, ...] = ()
    """Engines of other packages."""
    url: str = ""
    """Where the webhook is, if the controller runs out of cluster. Then there is no Deployment."""

    @property
    def user(self) -> str:
        """The name under which the API server knows the controller."""
        return f"system:serviceaccount:{self.namespace}:{MANAGER}"


def manifests(install: Install) -> list[Manifest]:
    """In an order in which they can be applied. The webhook comes last: until the controller answers, new queued workflows are refused."""
    address = Address(url=install.url) if install.url else Address(service=f"{install.namespace}/{SECRET}")
    kinds = [kind for other in install.others for kind in other.main]
    return [
        _namespace(install),
        *controller_rights(install.namespace, install.engines, install.others),
        author_role(install.engines, install.others),
        *policies([install.user], install.engines, kinds),
        *([] if install.url else [_service(install), _deployment(install), _budget(install)]),
        configuration(address, install.engines, kinds),
    ]


def _namespace(install: Install) -> Manifest:
    labels = {**POD_LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": install.namespace, "labels": labels}}


def _meta(install: Install, name: str) -> Manifest:
    return {"name": name, "namespace": install.namespace, "labels": dict(POD_LABELS)}


def _service(install: Install) -> Manifest:
    ports = [
        {"name": "webhook", "port": 443, "targetPort": "webhook", "protocol": "TCP"},
        {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"},
    ]
    spec = {"selector": dict(POD_LABELS), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(install, SECRET), "spec": spec}


def _budget(install: Install) -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(POD_LABELS)}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta(install, MANAGER),
        "spec": spec,
    }


def _deployment(install: Install) -> Manifest:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    template = {"metadata": {"labels": dict(POD_LABELS)}, "spec": _pod(install)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(install, MANAGER),
        "spec": {
            "replicas": install.replicas,
            "selector": {"matchLabels": dict(POD_LABELS)},
            "strategy": rolling,
            "template": template,
        },
    }


def _pod(install: Install) -> Manifest:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(POD_LABELS)}}
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    return {
        "serviceAccountName": MANAGER,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "fsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": apart},
        "containers": [_container(install)],
        # The certificate passes through a file there: Python's TLS reads no other way.
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }


def _container(install: Install) -> Manifest:
    return {
        "name": "controller",
        "image": install.image,
        "args": [
            "controller",
            "run",
            f"--namespace={install.namespace}",
            f"--webhook-port={WEBHOOK_PORT}",
            f"--metrics-port={METRICS_PORT}",
            f"--engines={','.join([*install.engines, *(other.name for other in install.others)])}",
            "--leader-elect",
            "--log=json",
        ],
        # The address goes into the Lease: the other replicas ask the one that leads.
        "env": [_of_pod("POD_NAME", "metadata.name"), _of_pod("POD_IP", "status.podIP")],
        "ports": [
            {"name": "webhook", "containerPort": WEBHOOK_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": _probe("/healthz", 10),
        "readinessProbe": _probe("/readyz", 3),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _of_pod(name: str, field: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}


def _probe(path: str, seconds: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"},
        "periodSeconds": seconds,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
        "successThreshold": 1,
    }
