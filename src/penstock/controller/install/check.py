"""What a cluster lacks for the controller, and how to put it right. Called by `penstock controller check`; pure but for what it is given to ask with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.controller.install.manifests import Install, manifests
from penstock.controller.install.policies import Manifest
from penstock.controller.names import MANAGER

Get = Callable[[str], Any | None]
"""A path of the API -> what is there, or None. Raises UserError if the cluster does not answer or forbids it."""
State = Literal["ok", "note", "problem"]
VERSION = (1, 36)
"""Of Kubernetes: since then MutatingAdmissionPolicies are part of `admissionregistration.k8s.io/v1`."""

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PLURALS = {
    "Namespace": ("/api/v1", "namespaces"),
    "Service": ("/api/v1", "services"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "MutatingAdmissionPolicy": (_ADMISSION, "mutatingadmissionpolicies"),
    "MutatingAdmissionPolicyBinding": (_ADMISSION, "mutatingadmissionpolicybindings"),
    "ValidatingAdmissionPolicy": (_ADMISSION, "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": (_ADMISSION, "validatingadmissionpolicybindings"),
    "MutatingWebhookConfiguration": (_ADMISSION, "mutatingwebhookconfigurations"),
}
_ENGINES = {
    "argo": ("Argo Workflows", "argoproj.io/v1alpha1", "workflows"),
    "tekton": ("Tekton Pipelines", "tekton.dev/v1", "pipelineruns"),
    "jobset": ("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets"),
}
_GROUPS = {
    "rights": ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    "policies": tuple(kind for kind in _PLURALS if "Policy" in kind),
    "webhook": ("MutatingWebhookConfiguration", "Service"),
    "deployment": ("Namespace", "Deployment", "PodDisruptionBudget"),
}
KUEUE_CONFIG = "/api/v1/namespaces/{}/configmaps/kueue-manager-config"


@dataclass(frozen=True, slots=True)
class InstallFinding:
    check: str
    state: State
    text: str
    fix: str = ""


def findings(get: Get, install: Install) -> list[InstallFinding]:
    found = [*_kubernetes(get), *_kueue(get), *_engines(get, install)]
    if any(one.check == "kubernetes" and one.state == "problem" for one in found):
        return found  # what is installed cannot be what it should be
    return [*found, *_installed(get, install), *_answering(get, install)]


def _kubernetes(get: Get) -> Iterator[InstallFinding]:
    version = get("/version") or {}
    number = tuple(int(re.sub(r"\D", "", str(version.get(part, ""))) or 0) for part in ("major", "minor"))
    name = version.get("gitVersion", "unknown")
    served = {one["name"] for one in (get(_ADMISSION) or {}).get("resources", ())}
    if "mutatingadmissionpolicies" in served:
        yield InstallFinding("kubernetes", "ok", f"{name}, with MutatingAdmissionPolicies")
    elif number >= VERSION:
        fix = "remove MutatingAdmissionPolicy=false from --feature-gates, and the API from --runtime-config, of the API server"
        yield InstallFinding("kubernetes", "problem", f"{name} does not serve MutatingAdmissionPolicies", fix)
    else:
        yield InstallFinding(
            "kubernetes",
            "problem",
            f"{name} is too old: it has no MutatingAdmissionPolicies in v1",
            "Kubernetes 1.36 or newer",
        )


def _kueue(get: Get) -> Iterator[InstallFinding]:
    group = get("/apis/kueue.x-k8s.io")
    if group is None:
        yield InstallFinding("kueue", "problem", "Kueue is not there", "install Kueue 0.19 or newer")
        return
    versions = [one["version"] for one in group.get("versions", ())]
    if "v1beta2" not in versions:
        text = f"Kueue is older than we know it: its API has {', '.join(versions)}"
        yield InstallFinding(
            "kueue", "problem", text, "upgrade to Kueue 0.19 or newer, which has kueue.x-k8s.io/v1beta2"
        )
        return
    manager = _kueue_manager(get)
    yield InstallFinding("kueue", "ok", f"kueue.x-k8s.io/v1beta2{f', {_image(manager)}' if manager else ''}")
    config = _kueue_config(get, manager) if manager else ""
    if re.search(r"^\s*manageJobsWithoutQueueName:\s*true", config, re.M):
        text = "Kueue manages Jobs without a queue name: Jobs of a queued JobSet are suspended by it"
        fix = "leave the namespaces of such JobSets out with managedJobsNamespaceSelector"
        yield InstallFinding("kueue configuration", "note", text, fix)
    if config and not re.search(r"^waitForPodsReady:", config, re.M):
        text = "waitForPodsReady is not set: Kueue takes quota back from a stage whose pods do not all run within half an hour"
        yield InstallFinding(
            "kueue configuration", "note", text, "set waitForPodsReady.timeout if stages need longer to start"
        )
    if re.search(r"""^\s*-\s*["']?pod["']?\s*$""", config, re.M):
        text = "Kueue's own integration of pods is on. Pods of queued workflows are kept out of it by the policies"
        yield InstallFinding("kueue configuration", "note", text)


def _kueue_manager(get: Get) -> Manifest | None:
    listing = get("/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Dkueue") or {}
    return next((one for one in listing.get("items", ()) if "controller" in one["metadata"]["name"]), None)


def _image(deployment: Manifest) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0].get("image", "")).rpartition("/")[2]


def _kueue_config(get: Get, deployment: Manifest) -> str:
    found = get(KUEUE_CONFIG.format(deployment["metadata"]["namespace"])) or {}
    return "\n".join((found.get("data") or {}).values())


def _engines(get: Get, install: Install) -> Iterator[InstallFinding]:
    others = [(one.name, (one.name, one.main[0].api, one.main[0].plural)) for one in install.others if one.main]
    for engine, (name, api, plural) in [*((one, _ENGINES[one]) for one in install.engines), *others]:
        served = {one["name"] for one in (get(f"/apis/{api}") or {}).get("resources", ())}
        if plural in served:
            yield InstallFinding(engine, "ok", f"{name} is there ({api})")
        else:
            fix = f"install it; the controller takes it up by itself. Or leave it out: --without {engine}"
            yield InstallFinding(engine, "note", f"{name} is not there: no {plural} in {api}", fix)


def _installed(get: Get, install: Install) -> Iterator[InstallFinding]:
    """Is everything there, and as this version would install it?"""
    fix = "penstock controller manifests | kubectl apply -f -"
    wanted = manifests(install)
    for check, kinds in _GROUPS.items():
        ours = [one for one in wanted if one["kind"] in kinds]
        missing, different = [], []
        for one in ours:
            there = get(path_of(one))
            if there is None:
                missing.append(_name(one))
            elif places := list(_differences(_comparable(one), there)):
                different.append(f"{_name(one)} ({places[0]})")
        if missing:
            yield InstallFinding(check, "problem", f"not installed: {_some(missing)}", fix)
        if different:
            yield InstallFinding(check, "problem", f"not as this version installs it: {_some(different)}", fix)
        if not missing and not different:
            yield InstallFinding(check, "ok", f"{len(ours)} objects as they should be")


def path_of(manifest: Mapping[str, Any]) -> str:
    root, plural = _PLURALS[manifest["kind"]]
    meta = manifest["metadata"]
    where = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{where}/{plural}/{meta['name']}"


def _name(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _comparable(manifest: Manifest) -> Manifest:
    """Without what people set for the Deployment."""
    made: Manifest = json.loads(json.dumps(manifest))
    if made["kind"] == "Deployment":
        del made["spec"]["replicas"]
        container = made["spec"]["template"]["spec"]["containers"][0]
        del container["image"], container["resources"]
    return made


def _differences(wanted: Any, there: Any, at: str = "") -> Iterator[str]:
    """Places where something that is wanted is not there. What the cluster adds (defaults, status, labels of others) is no difference; an entry too
    many in a list is."""
    if isinstance(wanted, Mapping):
        for key, value in wanted.items():
            place = f"{at}.{key}" if at else str(key)
            if not isinstance(there, Mapping) or key not in there:
                if value not in ({}, []):
                    yield place
            else:
                yield from _differences(value, there[key], place)
    elif isinstance(wanted, list):
        if not isinstance(there, list) or len(there) != len(wanted):
            yield at
        else:
            for number, value in enumerate(wanted):
                yield from _differences(value, there[number], f"{at}[{number}]")
    elif wanted != there:
        yield at


def _answering(get: Get, install: Install) -> Iterator[InstallFinding]:
    webhook = get(f"{_ADMISSION}/mutatingwebhookconfigurations/admission.penstock")
    if webhook and not all((hook.get("clientConfig") or {}).get("caBundle") for hook in webhook.get("webhooks", ())):
        text = "the webhook has no certificate authority yet: the controller has not started, so queued workflows are refused"
        fix = f"kubectl -n {install.namespace} logs deployment/{MANAGER}"
        yield InstallFinding("certificate", "problem", text, fix)
    elif webhook:
        yield InstallFinding("certificate", "ok", "the webhook has the controller's certificate authority")
    if install.url:
        return
    deployment = get(f"/apis/apps/v1/namespaces/{install.namespace}/deployments/{MANAGER}")
    if deployment is None:
        return
    wanted, status = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
    ready = status.get("readyReplicas", 0)
    if ready == wanted and wanted > 0:
        yield InstallFinding("controller", "ok", f"{ready} of {wanted} replicas are ready")
        return
    state: State = "note" if ready else "problem"
    fix = f"kubectl -n {install.namespace} describe pods; kubectl -n {install.namespace} logs deployment/{MANAGER}"
    yield InstallFinding("controller", state, f"{ready} of {wanted} replicas are ready", fix)
