"""The webhook configuration: which new objects the API server shows to the controller. Used by `manifests`, and by a controller that runs out of cluster.

Its name sorts before Kueue's webhooks, so that a JobSet that is ours is out of Kueue's hands before Kueue sees it. Nothing is asked about objects without
the label. The certificate authority is filled in by the controller, which makes and renews its own certificate.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.controller.install import cel
from penstock.controller.install.policies import ENGINES, LABELS, Manifest, target_of
from penstock.controller.names import QUEUE, QUEUED
from penstock.controller.objects import ApiResource

NAME: Final = "admission.penstock"
WORKFLOWS_PATH: Final = "/workflows"
PODS_PATH: Final = "/pods"
DECIDED_PATH: Final = "/pods/decided"
"""The same, asked by another replica."""

_MAIN = {
    "argo": [("argoproj.io", "v1alpha1", ["workflows"])],
    "tekton": [("tekton.dev", "v1", ["pipelineruns", "taskruns"])],
    "jobset": [("jobset.x-k8s.io", "v1alpha2", ["jobsets"])],
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the controller answers: by its Service, or by a URL if it runs out of cluster."""

    service: str = ""
    """`namespace/name`; port 443."""
    url: str = ""
    """`https://127.0.0.1:9443`."""
    authority: bytes = b""
    """The certificate (PEM) that vouches for it. Empty: the controller fills it in when it starts."""

    def client(self, path: str) -> Manifest:
        to: Manifest
        if self.url:
            to = {"url": f"{self.url}{path}"}
        else:
            namespace, _, name = self.service.partition("/")
            to = {"service": {"namespace": namespace, "name": name, "path": path, "port": 443}}
        if self.authority:
            to["caBundle"] = base64.b64encode(self.authority).decode()
        return to


def configuration(address: Address, engines: Collection[str] = ENGINES, others: Sequence[ApiResource] = ()) -> Manifest:
    """New workflows wait for an answer: without one they would not be queued. New pods do not: without an answer they keep their gate. `others`: the main
    kinds of engines that are not ours."""
    rules = [_rule(*one) for engine in ENGINES if engine in engines for one in _MAIN[engine]]
    for group, version, plural in map(target_of, others):
        rules.append(_rule(group, version, [plural]))
    # What belongs to a run is held by a policy. A run that a user creates has no owner.
    no_child = {"name": "not-a-child", "expression": "!has(object.metadata.ownerReferences)"}
    no_task = "request.resource.resource != 'taskruns' || !has(object.metadata.ownerReferences)"
    main = _hook("workflows", address.client(WORKFLOWS_PATH), rules, QUEUE, "Fail", 10)
    main["matchConditions"] = [{"name": "not-a-child", "expression": no_task}]
    hooks = [main] if rules else []
    if copied := [rule for rule in rules if rule["apiGroups"] != ["argoproj.io"]]:
        # A copy of a queued run has our label, and perhaps no longer Kueue's. What it says of itself proves nothing.
        copies = _hook("copies", address.client(WORKFLOWS_PATH), copied, QUEUED, "Fail", 10)
        once = {"name": "not-asked-already", "expression": f"!{cel.has(cel.label('object', QUEUE))}"}
        copies["matchConditions"] = [no_child, once]
        hooks.append(copies)
    hooks.append(_hook("pods", address.client(PODS_PATH), [_rule("", "v1", ["pods"])], QUEUED, "Ignore", 2))
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": dict(LABELS)},
        "webhooks": hooks,
    }


def _rule(group: str, version: str, plurals: list[str]) -> Manifest:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE"],
        "resources": plurals,
        "scope": "Namespaced",
    }


def _hook(name: str, client: Manifest, rules: list[Manifest], label: str, failure: str, seconds: int) -> dict[str, Any]:
    return {
        "name": f"{name}.{NAME}.dev",
        "clientConfig": client,
        "rules": rules,
        "objectSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]},
        "namespaceSelector": {},
        "matchPolicy": "Equivalent",
        "failurePolicy": failure,
        "sideEffects": "None",
        "reinvocationPolicy": "Never",
        "timeoutSeconds": seconds,
        "admissionReviewVersions": ["v1"],
    }
