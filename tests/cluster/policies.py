"""Penstock's admission policies in a testbed, and people to try them with: what the tests of the policies and of the controller have in common."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.controller.install.policies import policies
from testbed.api import Api
from testbed.errors import ApiError
from testbed.instance import Testbed

CONTROLLER = "system:serviceaccount:penstock-system:penstock-controller"
EDITOR = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "policies-editor"},
    "rules": [
        {
            "apiGroups": ["", "batch", "argoproj.io", "tekton.dev", "jobset.x-k8s.io"],
            "resources": ["*"],
            "verbs": ["*"],
        },
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "workloads/status"], "verbs": ["*"]},
    ],
}
"""Rights to change everything that the policies keep, so that nothing but a policy refuses."""


def installed(bed: Testbed, users: Sequence[str] = (CONTROLLER,)) -> None:
    """Applies the policies, and waits until they count."""
    bed.apply(policies(users))
    pod = {"metadata": {"name": "probe", "labels": {"penstock/queue": "q"}}, "spec": {"containers": [CONTAINER]}}
    where = "/api/v1/namespaces/default/pods"
    bed.wait(lambda: _gates(bed.raw("POST", where, pod, params={"dryRun": "All"})), "the policies to count")
    made = bed.raw("POST", where, pod)
    del made["metadata"]["labels"]
    bed.wait(lambda: refused(bed.api, "PUT", f"{where}/probe", made), "the policies to refuse")
    bed.raw("DELETE", f"{where}/probe", {"gracePeriodSeconds": 0})


CONTAINER = {"name": "main", "image": "none", "command": ["none"], "resources": {"requests": {"cpu": "1"}}}


def _gates(pod: Mapping[str, Any]) -> list[str]:
    return [one["name"] for one in pod["spec"].get("schedulingGates", ())]


gates = _gates


def person(bed: Testbed, user: str, groups: Sequence[str] = ()) -> Api:
    """The API as somebody else sees it."""
    folder = bed.authority.issue(user, groups).write(bed.dir / "certificates" / user.replace(":", "-"), bed.ca)
    return Api(bed.url, folder / "ca.crt", folder / "tls.crt", folder / "tls.key")


def editor(bed: Testbed, user: str = "editor") -> Api:
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "policies-editor", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "policies-editor"},
        "subjects": [subject],
        "roleRef": role,
    }
    bed.apply([EDITOR, binding])
    return person(bed, user)


def refused(api: Api, method: str, path: str, body: Any, content_type: str = "application/json") -> str:
    """What a policy of Penstock says against it; empty if it is allowed. Tried without effect."""
    try:
        api.raw(method, path, body, content_type, {"dryRun": "All"})
    except ApiError as error:
        assert error.code in (403, 422) and "ValidatingAdmissionPolicy 'penstock-" in str(error), str(error)
        return str(error)
    return ""


class Hook:
    """A webhook on this machine that answers as it is told: `answer(review request) -> JSON patch`."""

    def __init__(self, bed: Testbed, answer: Callable[[Mapping[str, Any]], list[dict[str, Any]]]) -> None:
        self.asked: list[Mapping[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                request = review["request"]
                hook.asked.append(request)
                response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
                if patch := answer(request):
                    response["patchType"] = "JSONPatch"
                    response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
                said = json.dumps({**review, "request": None, "response": response}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.port = bed.port()
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        folder = bed.server_certificate("penstock-hook")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
