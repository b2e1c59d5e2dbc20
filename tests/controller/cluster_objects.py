"""A cluster in a dictionary: objects as the API server has them, and a kubectl that answers from them. Used by the tests of inspect."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

Doc = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"
NOW = 1_795_000_000.0
PLURALS = {
    "ResourceFlavor": "resourceflavors",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "AdmissionCheck": "admissionchecks",
    "Workload": "workloads",
    "Namespace": "namespaces",
    "Pod": "pods",
    "Event": "events",
    "ConfigMap": "configmaps",
    "Job": "jobs",
    "JobSet": "jobsets",
    "Workflow": "workflows",
    "PipelineRun": "pipelineruns",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}
APIS = {
    "Namespace": "v1",
    "Pod": "v1",
    "Event": "v1",
    "ConfigMap": "v1",
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Workflow": "argoproj.io/v1alpha1",
    "PipelineRun": "tekton.dev/v1",
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
}


def time_text(ago: float = 0.0) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def obj(kind: str, name: str, namespace: str = "", **fields: Any) -> Doc:
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": time_text(100)}
    meta |= {"namespace": namespace} if namespace else {}
    meta |= fields.pop("metadata", {})
    return {"apiVersion": APIS.get(kind, KUEUE), "kind": kind, "metadata": meta, **fields}


def cluster_queue(name: str, cpu: int = 4, *, resources: dict[str, Any] | None = None, **spec: Any) -> Doc:
    status = spec.pop("status", {})
    quotas = [{"name": key, "nominalQuota": value} for key, value in (resources or {"cpu": cpu}).items()]
    groups = [
        {"coveredResources": [one["name"] for one in quotas], "flavors": [{"name": "default", "resources": quotas}]}
    ]
    return obj("ClusterQueue", name, spec={"namespaceSelector": {}, "resourceGroups": groups, **spec}, status=status)


def local_queue(name: str, to: str, namespace: str = "here", **spec: Any) -> Doc:
    return obj("LocalQueue", name, namespace, spec={"clusterQueue": to, **spec})


def said(kind: str, status: bool, reason: str = "", message: str = "", ago: float = 50) -> Doc:
    return {
        "type": kind,
        "status": str(status),
        "reason": reason,
        "message": message,
        "lastTransitionTime": time_text(ago),
    }


def pending(message: str = "Kueue's words", reason: str = "Pending") -> Doc:
    return said("QuotaReserved", False, reason, message)


def workload(
    name: str,
    cpu: int = 1,
    count: int = 1,
    *,
    queue: str = "team-a",
    namespace: str = "here",
    owner: str = "",
    held_in: str = "",
    ago: float = 100,
    status: Doc | None = None,
    conditions: tuple[Doc, ...] = (),
    metadata: Doc | None = None,
    requests: Doc | None = None,
    **spec: Any,
) -> Doc:
    """`owner`: `Job/name`. `held_in`: the ClusterQueue that has admitted it."""
    container = {"name": "main", "resources": {"requests": requests or {"cpu": str(cpu)}}}
    podsets = [{"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}]
    meta: Doc = {"creationTimestamp": time_text(ago), **(metadata or {})}
    if owner:
        kind, _, called = owner.partition("/")
        reference = {
            "apiVersion": APIS.get(kind, "example.com/v1"),
            "kind": kind,
            "name": called,
            "uid": f"uid-{called}",
        }
        meta["ownerReferences"] = [{**reference, "controller": True}]
    state: Doc = dict(status or {})
    if held_in:
        usage = {
            "name": "main",
            "count": count,
            "flavors": {"cpu": "default"},
            "resourceUsage": {"cpu": str(cpu * count)},
        }
        state["admission"] = {"clusterQueue": held_in, "podSetAssignments": [usage]}
        kinds = {one["type"] for one in conditions}
        conditions += (said("QuotaReserved", True),) if "QuotaReserved" not in kinds else ()
        conditions += (said("Admitted", True),) if "Admitted" not in kinds else ()
    state["conditions"] = list(conditions)
    return obj(
        "Workload", name, namespace, metadata=meta, spec={"queueName": queue, "podSets": podsets, **spec}, status=state
    )


BASE = [
    obj("ResourceFlavor", "default"),
    cluster_queue("shared"),
    local_queue("team-a", "shared"),
    obj("Namespace", "here", metadata={"labels": {"team": "a"}}),
    obj("Namespace", "there"),
]


class FakeCluster:
    """A `Lookup` over some objects."""

    def __init__(self, *objects: Doc) -> None:
        self.objects = objects

    def get(self, resource: Any, namespace: str, name: str) -> Doc | None:
        return next((one for one in self.list(resource, namespace) if one["metadata"]["name"] == name), None)

    def list(self, resource: Any, namespace: str = "") -> list[Doc]:
        return [
            one
            for one in self.objects
            if one["kind"] == resource.kind and (not namespace or one["metadata"].get("namespace") == namespace)
        ]


_KUBECTL = """#!{python} -S
import json, sys
from urllib.parse import unquote
answers = json.load(open({file!r}))
words = [word for word in sys.argv[1:] if not word.startswith("--request-timeout")]
if "--context" in words or "--kubeconfig" in words:
    at = words.index("--context" if "--context" in words else "--kubeconfig")
    open({file!r} + ".asked", "a").write(" ".join(words[at:at + 2]) + "\\n")
    del words[at:at + 2]
if words[0] == "config":
    print(answers["namespace"], end="")
    sys.exit()
path = unquote(words[2])
if answers.get("down"):
    sys.exit(answers["down"])
for part, message in answers["refused"].items():
    if part in path:
        sys.exit("Error from server (Forbidden): " + message)
if path in answers["paths"]:
    print(json.dumps(answers["paths"][path]))
elif path.rpartition("/")[0] in answers["paths"]:
    sys.exit("Error from server (NotFound): it is not found")
else:
    sys.exit("Error from server (NotFound): the server could not find the requested resource")
"""


def fake_kubectl(
    folder: Path,
    *objects: Doc,
    refused: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    down: str = "",
    groups: dict[str, list[str]] | None = None,
) -> str:
    """A program that answers as kubectl does. `refused`: kinds that may not be listed. `without`: kinds that the cluster does not have."""
    paths: Doc = {
        f"/apis/{group}": {"versions": [{"version": one} for one in found]} for group, found in (groups or {}).items()
    }
    spaces = {one["metadata"].get("namespace", "") for one in objects} | {"", "here", "kueue-system"}
    for kind, plural in PLURALS.items():
        if kind in without:
            continue
        api = APIS.get(kind, KUEUE)
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        for space in spaces:
            at = f"{root}/namespaces/{space}/{plural}" if space else f"{root}/{plural}"
            mine = [one for one in objects if one["kind"] == kind and space in ("", one["metadata"].get("namespace"))]
            paths[at] = {"items": [{key: one[key] for key in one if key not in ("kind", "apiVersion")} for one in mine]}
            paths |= {f"{at}/{one['metadata']['name']}": one for one in mine}
    message = '{0}.kueue.x-k8s.io is forbidden: User "ana" cannot list resource "{0}" in API group "kueue.x-k8s.io" at the cluster scope'
    answers = {
        "paths": paths,
        "refused": {f"/{one}": message.format(one.rpartition("/")[2]) for one in refused},
        "down": down,
        "namespace": "here",
    }
    file, program = folder / "answers.json", folder / "kubectl"
    file.write_text(json.dumps(answers))
    program.write_text(_KUBECTL.format(python=sys.executable, file=str(file)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)
