"""What the controller may do in a cluster, and a role for people who write workflows. Used by `manifests`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from penstock.controller.engine import Engine
from penstock.controller.install.policies import ENGINES, LABELS, Manifest, target_of
from penstock.controller.install.webhooks import NAME
from penstock.controller.names import MANAGER
from penstock.controller.objects import ApiResource

API: Final = "rbac.authorization.k8s.io/v1"
SECRET: Final = "penstock-webhooks"
"""Has the webhook's certificate. The Service is called the same."""
AUTHOR: Final = "penstock-workflow-author"

_SEE = ("get", "list", "watch")
_ALL = (*_SEE, "create", "update", "patch", "delete")

_ENGINES: dict[str, list[tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "argo": [
        ("argoproj.io", ("workflows",), (*_SEE, "patch")),
        ("argoproj.io", ("workflowtemplates", "clusterworkflowtemplates"), _SEE),
    ],
    "tekton": [
        ("tekton.dev", ("pipelineruns",), (*_SEE, "patch")),
        ("tekton.dev", ("taskruns",), (*_SEE, "patch", "delete")),
        ("tekton.dev", ("pipelines", "tasks"), _SEE),
        ("apps", ("statefulsets",), _SEE),  # Tekton's affinity assistants
    ],
    "jobset": [
        ("jobset.x-k8s.io", ("jobsets",), _SEE),
        ("batch", ("jobs",), (*_SEE, "patch")),
    ],
}


def controller_rights(namespace: str, engines: Collection[str], others: Sequence[Engine] = ()) -> list[Manifest]:
    """Least rights: what it writes, what it reads, and two objects of its own namespace by name. A Workload names its owner without blocking the owner's
    deletion, so no right on finalizers is asked for."""
    queues = ("localqueues", "clusterqueues", "resourceflavors", "workloadpriorityclasses")
    rules = [
        _may("kueue.x-k8s.io", ("workloads",), (*_SEE, "create", "patch", "delete")),
        _may("kueue.x-k8s.io", ("workloads/status",), ("get", "patch")),
        _may("kueue.x-k8s.io", queues, _SEE),
        _may("", ("pods",), (*_SEE, "patch", "delete")),
        _may("", ("namespaces",), _SEE),
        _may("events.k8s.io", ("events",), ("create", "patch")),
        _may("admissionregistration.k8s.io", ("mutatingwebhookconfigurations",), ("get", "patch"), NAME),
    ]
    for engine in (one for one in ENGINES if one in engines):
        rules += [_may(*one) for one in _ENGINES[engine]]
    for other in others:
        rules += _of(other.main, (*_SEE, "patch"))
        rules += _of([one for one in other.children if one not in other.main], (*_SEE, "patch", "delete"))
        rules += _of(other.library, _SEE)
    own = [
        _may("coordination.k8s.io", ("leases",), ("create",)),
        _may("coordination.k8s.io", ("leases",), ("get", "patch"), MANAGER),
        _may("", ("secrets",), ("create",)),
        _may("", ("secrets",), ("get", "patch"), SECRET),
    ]
    account = {"kind": "ServiceAccount", "name": MANAGER, "namespace": namespace}
    inside = {"name": MANAGER, "namespace": namespace, "labels": dict(LABELS)}
    everywhere = {"name": MANAGER, "labels": dict(LABELS)}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": inside},
        {"apiVersion": API, "kind": "ClusterRole", "metadata": everywhere, "rules": rules},
        _binding("ClusterRoleBinding", everywhere, "ClusterRole", account),
        {"apiVersion": API, "kind": "Role", "metadata": inside, "rules": own},
        _binding("RoleBinding", inside, "Role", account),
    ]


def author_role(engines: Collection[str], others: Sequence[Engine] = ()) -> Manifest:
    """For users: bind it in their namespaces. They create, change and delete workflows and see everything, but do not write pods, nor the status
    of anything. Workflows of Argo have their status in the object itself; the policies keep what matters there."""
    rules = []
    if "argo" in engines:
        rules.append(_may("argoproj.io", ("workflows", "workflowtemplates", "cronworkflows"), _ALL))
        rules.append(_may("argoproj.io", ("clusterworkflowtemplates", "workflowtaskresults"), _SEE))
    if "tekton" in engines:
        rules.append(_may("tekton.dev", ("pipelineruns", "taskruns", "pipelines", "tasks"), _ALL))
    if "jobset" in engines:
        rules.append(_may("jobset.x-k8s.io", ("jobsets",), _ALL))
    for other in others:
        rules += [*_of(other.main, _ALL), *_of(other.library, _ALL)]
    seen = ("workloads", "localqueues", "clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses")
    rules += [
        _may("batch", ("jobs",), _SEE),
        _may("kueue.x-k8s.io", seen, _SEE),
        _may("visibility.kueue.x-k8s.io", ("localqueues/pendingworkloads",), ("get",)),
        _may("", ("pods", "pods/log", "events"), _SEE),
        _may("events.k8s.io", ("events",), _SEE),
    ]
    meta = {"name": AUTHOR, "labels": dict(LABELS)}
    return {"apiVersion": API, "kind": "ClusterRole", "metadata": meta, "rules": rules}


def _of(resources: Sequence[ApiResource], verbs: Sequence[str]) -> list[Manifest]:
    """For engines that are not ours: what every engine does with its kinds."""
    found = [target_of(one) for one in resources]
    return [_may(group, (plural,), verbs) for group, _, plural in found]


def _may(group: str, resources: Sequence[str], verbs: Sequence[str], name: str = "") -> Manifest:
    rule: Manifest = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": [name]} if name else rule


def _binding(kind: str, meta: Manifest, role: str, subject: Manifest) -> dict[str, Any]:
    to = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": MANAGER}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "roleRef": to, "subjects": [subject]}
