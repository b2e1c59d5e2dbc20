"""What `penstock controller manifests` prints, on a real API server: that it takes it, what the controller and a user may do with it, and what
`penstock controller check` says."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from penstock.controller.install.check import path_of
from testbed.api import JSON_PATCH, MERGE, Api
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import argo_runs
from tests.cluster.policies import CONTAINER, CONTROLLER, person
from tests.cluster.support import fresh_namespace

HOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/admission.penstock"
DEPLOYMENT = "/apis/apps/v1/namespaces/penstock-system/deployments/penstock-controller"


def penstock(bed: Testbed, *words: str) -> tuple[int, str, str]:
    environment = {**os.environ, "KUBECONFIG": str(bed.kubeconfig), "PENSTOCK_KUBECTL": str(bed.binary("kubectl"))}
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def apply(bed: Testbed, documents: list[dict[str, Any]], *words: str) -> None:
    """As a user does it; with every field checked."""
    command = [
        str(bed.binary("kubectl")),
        "--kubeconfig",
        str(bed.kubeconfig),
        "apply",
        "--validate=strict",
        *words,
        "-f",
        "-",
    ]
    text = yaml.safe_dump_all(documents)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr


def printed(bed: Testbed, *words: str) -> list[dict[str, Any]]:
    code, out, err = penstock(bed, "controller", "manifests", *words)
    assert code == 0, err
    documents = list(yaml.safe_load_all(out))
    for one in documents:
        if one["kind"] == "Deployment":  # a fake pod ends at once unless it is told not to
            one["spec"]["template"]["metadata"]["annotations"] = {"testbed.penstock/run-time": "forever"}
    return documents


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Iterator[Testbed]:
    bed = testbed("kueue", "kwok", "argo", "tekton", "jobset")
    apply(bed, printed(bed))
    yield bed
    for path in (HOOK, DEPLOYMENT):
        bed.delete(path)


def check(bed: Testbed, *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    code, out, err = penstock(bed, "controller", "check", "-o", "json", *words)
    assert out, err
    return code, {one["check"]: (one["state"], one["text"]) for one in json.loads(out)["findings"]}


def test_check_is_content_once_the_controller_has_said_who_vouches_for_it(bed: Testbed) -> None:
    bed.wait(lambda: bed.get(DEPLOYMENT)["status"].get("readyReplicas") == 2, "the fake pods to be ready")
    code, found = check(bed)
    problems = {name for name, (state, _) in found.items() if state == "problem"}
    assert (code, problems) == (1, {"certificate"}), found
    hooks = bed.get(HOOK)["webhooks"]
    change = [
        {
            "op": "add",
            "path": f"/webhooks/{number}/clientConfig/caBundle",
            "value": base64.b64encode(bed.ca).decode(),
        }
        for number in range(len(hooks))
    ]
    with contextlib.closing(person(bed, CONTROLLER)) as controller:
        controller.raw("PATCH", HOOK, change, JSON_PATCH)
    assert check(bed) == (0, {**found, "certificate": ("ok", "the webhook has the controller's certificate authority")})


def test_applying_again_changes_nothing_and_keeps_the_certificate_authority(bed: Testbed) -> None:
    documents = printed(bed)
    before = {path_of(one): content(bed, path_of(one)) for one in documents}
    apply(bed, documents)
    apply(bed, documents, "--server-side", "--force-conflicts")
    assert {path: content(bed, path) for path in before} == before


def content(bed: Testbed, path: str) -> dict[str, Any]:
    return {key: value for key, value in bed.get(path).items() if key not in ("metadata", "status")}


def test_check_names_what_was_changed(bed: Testbed) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/penstock-controller"
    more = [{"op": "add", "path": "/rules/-", "value": {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}}]
    bed.raw("PATCH", role, more, JSON_PATCH)
    binding = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/penstock-hold-pods"
    bed.delete(binding)
    code, found = check(bed)
    assert code == 1
    assert found["rights"] == ("problem", "not as this version installs it: ClusterRole penstock-controller (rules)")
    assert found["policies"] == ("problem", "not installed: MutatingAdmissionPolicyBinding penstock-hold-pods")
    apply(bed, printed(bed))
    assert check(bed)[1]["policies"][0] == "ok" and check(bed)[1]["rights"][0] == "ok"


def may(bed: Testbed, user: str, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
    kind, _, sub = resource.partition("/")
    what = {"verb": verb, "group": group, "resource": kind, "subresource": sub, "namespace": namespace, "name": name}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    body |= {"spec": {"user": user, "resourceAttributes": what}}  # type: ignore[dict-item]
    return bool(bed.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


def test_the_rights_of_the_service_account(bed: Testbed, ns_of: str) -> None:
    kueue = "kueue.x-k8s.io"
    for verb, group, resource in (
        ("create", kueue, "workloads"),
        ("patch", kueue, "workloads/status"),
        ("watch", kueue, "clusterqueues"),
        ("patch", "argoproj.io", "workflows"),
        ("list", "argoproj.io", "clusterworkflowtemplates"),
        ("delete", "tekton.dev", "taskruns"),
        ("watch", "jobset.x-k8s.io", "jobsets"),
        ("patch", "batch", "jobs"),
        ("delete", "", "pods"),
        ("create", "events.k8s.io", "events"),
        ("list", "", "namespaces"),
    ):
        assert may(bed, CONTROLLER, verb, group, resource, "" if resource == "namespaces" else ns_of), (verb, resource)
    own = "penstock-system"
    assert may(bed, CONTROLLER, "patch", "coordination.k8s.io", "leases", own, "penstock-controller")
    assert may(bed, CONTROLLER, "get", "", "secrets", own, "penstock-webhooks")
    for verb, group, resource, namespace, name in (
        ("get", "", "secrets", own, "another"),
        ("get", "", "secrets", ns_of, "penstock-webhooks"),
        ("create", "", "pods", ns_of, ""),
        ("create", "argoproj.io", "workflows", ns_of, ""),
        ("delete", "argoproj.io", "workflows", ns_of, ""),
        ("update", "argoproj.io", "workflows/finalizers", ns_of, ""),
        ("delete", "tekton.dev", "pipelineruns", ns_of, ""),
        ("patch", "jobset.x-k8s.io", "jobsets", ns_of, ""),
        ("create", "", "events", ns_of, ""),
        ("get", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "admission.penstock"),
        ("patch", kueue, "clusterqueues", "", ""),
        ("update", kueue, "clusterqueues/status", "", ""),
        ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "another"),
        ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", "penstock-keep-pods"),
        ("create", "", "pods/exec", ns_of, ""),
        ("impersonate", "", "users", "", ""),
    ):
        assert not may(bed, CONTROLLER, verb, group, resource, namespace, name), (verb, resource, name)


@pytest.fixture
def ns_of(bed: Testbed) -> str:
    return fresh_namespace(bed)


def test_an_author_of_workflows_cannot_reach_their_pods(bed: Testbed, ns_of: str) -> None:
    subject = {"kind": "User", "name": "ana", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "penstock-workflow-author", "apiGroup": "rbac.authorization.k8s.io"}
    bind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": role, "subjects": [subject]}
    bed.apply([{**bind, "metadata": {"name": "ana", "namespace": ns_of}}])
    bed.wait(lambda: may(bed, "ana", "create", "argoproj.io", "workflows", ns_of), "the binding to count")
    with contextlib.closing(person(bed, "ana")) as ana:
        tried(bed, ns_of, ana)


def tried(bed: Testbed, ns_of: str, ana: Api) -> None:
    document = argo_runs.flow("free", [argo_runs.step("a", "work")], argo_runs.fake("work"), suspend=True)
    ana.raw("POST", argo_runs.path(ns_of), document)
    pods = f"/api/v1/namespaces/{ns_of}/pods"
    pod = {"metadata": {"name": "held", "labels": {"penstock/queue": "q"}}, "spec": {"containers": [CONTAINER]}}
    bed.raw("POST", pods, pod)
    assert ana.raw("GET", f"{pods}/held")["spec"]["schedulingGates"] == [{"name": "penstock/admission"}]
    for method, path, body, kind in (
        ("PATCH", f"{pods}/held", {"spec": {"schedulingGates": None}}, MERGE),
        ("PATCH", f"{pods}/held", {"metadata": {"labels": None}}, MERGE),
        ("POST", f"{pods}/held/binding", {"target": {"name": "n"}}, "application/json"),
        ("PATCH", f"{pods}/held/resize", {"spec": {}}, MERGE),
        ("POST", pods, pod, "application/json"),
        ("PATCH", f"/apis/tekton.dev/v1/namespaces/{ns_of}/taskruns/x/status", {"status": {}}, MERGE),
        ("POST", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{ns_of}/workloads", {}, "application/json"),
        ("PATCH", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{ns_of}/workloads/x/status", {}, MERGE),
        ("PATCH", f"/apis/batch/v1/namespaces/{ns_of}/jobs/x", {"spec": {"parallelism": 9}}, MERGE),
    ):
        with pytest.raises(ApiError) as refusal:
            ana.raw(method, path, body, kind)
        assert refusal.value.code == 403 and "cannot" in str(refusal.value), path
