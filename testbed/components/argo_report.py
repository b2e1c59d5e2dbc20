"""Plays the reports of Argo's executor for pods on fake nodes. Started as a process by components/argo.py when kwok is up; uses the
standard library and PyYAML only, so that it is up in a moment.

On a real node Argo's wait container tells the controller what a pod has left behind: it writes a WorkflowTaskResult, named like the node,
with the label report-outputs-completed. On a fake node no container runs, so nobody would, and a step that reads another one's result
would fail. This process does it instead, as soon as the pod is on a fake node, and then marks the pod as reported (the annotation REPORTED),
which is what kwok waits for before it ends the pod. So the controller has the report before the pod's end, as with a real one.

What is reported comes from the pod's annotation testbed.penstock/result:
- the text is the node's outputs.result, if a step of the workflow reads that (Argo decides, and says so in the pod's environment);
- an output parameter takes the member of its name if the text is a JSON object, the whole text otherwise; without the annotation its
  valueFrom.default, or an empty text;
- output artifacts are reported at the place where the executor would have put them. There is nothing at that place.
A pod that is told to fail (testbed.penstock/exit-code) and has no result reports no outputs. Resource, data, http and plugin templates do
their work in the executor itself; on a fake node nothing is done, and they just end.

    python argo_report.py KUBECONFIG REAL_NODE
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

RESULT = "testbed.penstock/result"
EXIT_CODE = "testbed.penstock/exit-code"
REPORTED = "testbed.penstock/reported"
WORKFLOW = "workflows.argoproj.io/workflow"
NODE_ID = "workflows.argoproj.io/node-id"
COMPLETED = "workflows.argoproj.io/report-outputs-completed"
OFFLOADED = "offloaded"
"""What Argo writes instead of a template that is too large for an environment variable; the text is in a ConfigMap named like the pod."""
PLACES = ("s3", "gcs", "oss", "azure", "hdfs", "http", "artifactory", "git", "raw", "plugin")


class Api:
    """The API server, with the client certificate of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        place = urlsplit(cluster["server"])
        self._host, self._port = place.hostname or "127.0.0.1", place.port or 443
        with tempfile.TemporaryDirectory() as folder:
            ca = _file(cluster, "certificate-authority", Path(folder))
            self._tls = ssl.create_default_context(cafile=ca)
            self._tls.load_cert_chain(
                _file(user, "client-certificate", Path(folder)), _file(user, "client-key", Path(folder))
            )
        self._kept: http.client.HTTPSConnection | None = None

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, context=self._tls)

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        self._kept = self._kept or self.connection()
        try:
            data = None if body is None else json.dumps(body)
            self._kept.request(method, path, data, {"Content-Type": kind, "Accept": "application/json"})
            answer = self._kept.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException):
            self._kept.close()
            self._kept = None
            raise

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """What is there now, and then every change, until the server ends it."""
        connection = self.connection()
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()


def _file(entry: Mapping[str, Any], name: str, folder: Path) -> str:
    """A kubeconfig holds the name of a file, or what is in it."""
    if f"{name}-data" not in entry:
        return str(entry[name])
    (folder / name).write_bytes(base64.b64decode(entry[f"{name}-data"]))
    return str(folder / name)


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """What Argo tells its executor. The template is given to the init container only."""
    spec = pod["spec"]
    every = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    return {one["name"]: one.get("value", "") for container in every for one in container.get("env", ())}


def outputs(pod: Mapping[str, Any], template: Mapping[str, Any], read_result: bool) -> dict[str, Any]:
    """What the executor would have reported."""
    annotations = pod["metadata"].get("annotations") or {}
    text = annotations.get(RESULT)
    if text is None and annotations.get(EXIT_CODE, "0") != "0":
        return {}
    declared = template.get("outputs") or {}
    found: dict[str, Any] = {}
    if read_result:
        found["result"] = text or ""
    parameters = [_parameter(one, text) for one in declared.get("parameters") or ()]
    if parameters:
        found["parameters"] = parameters
    artifacts = [_artifact(one, template.get("archiveLocation") or {}) for one in declared.get("artifacts") or ()]
    if artifacts:
        found["artifacts"] = artifacts
    return found


def _parameter(declared: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    members = _members(text)
    name = declared["name"]
    if members is not None and name in members:
        value = members[name] if isinstance(members[name], str) else json.dumps(members[name])
    elif text is not None and members is None:
        value = text
    else:
        value = (declared.get("valueFrom") or {}).get("default", "")
    return {**declared, "value": value}


def _members(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _artifact(declared: Mapping[str, Any], archive: Mapping[str, Any]) -> dict[str, Any]:
    if any(place in declared for place in PLACES):
        return dict(declared)
    end = "" if "none" in (declared.get("archive") or {}) else ".tgz"
    for place in PLACES:
        if place in archive:
            where = dict(archive[place])
            field = "url" if "url" in where else "key"
            where[field] = f"{where.get(field, '').rstrip('/')}/{declared['name']}{end}"
            return {**declared, place: where}
    return dict(declared)


def report(api: Api, pod: Mapping[str, Any]) -> None:
    """The report of one pod, and the mark that it is done. Doing it twice does no harm."""
    meta, namespace = pod["metadata"], pod["metadata"]["namespace"]
    told = environment(pod)
    template = _template(api, pod, told)
    owner = next(one for one in meta["ownerReferences"] if one["kind"] == "Workflow")
    found = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTaskResult",
        "metadata": {
            "name": meta["annotations"][NODE_ID],
            "labels": {WORKFLOW: meta["labels"][WORKFLOW], COMPLETED: "true"},
            "ownerReferences": [{key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}],
        },
    }
    reported = outputs(pod, template, told.get("ARGO_INCLUDE_SCRIPT_OUTPUT") == "true")
    if reported:
        found["outputs"] = reported
    code, answer = api.ask("POST", f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflowtaskresults", found)
    if code not in (200, 201, 409):
        print(f"{namespace}/{meta['name']}: {answer.get('message')}", flush=True)
    mark = {"metadata": {"annotations": {REPORTED: "true"}}}
    path = f"/api/v1/namespaces/{namespace}/pods/{meta['name']}"
    code, answer = api.ask("PATCH", path, mark, "application/merge-patch+json")
    if code not in (200, 404):
        print(f"{namespace}/{meta['name']}: {answer.get('message')}", flush=True)


def _template(api: Api, pod: Mapping[str, Any], told: Mapping[str, str]) -> dict[str, Any]:
    text = told.get("ARGO_TEMPLATE") or "{}"
    if text == OFFLOADED:
        _, answer = api.ask(
            "GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{pod['metadata']['name']}"
        )
        text = (answer.get("data") or {}).get("ARGO_TEMPLATE") or "{}"
    found: dict[str, Any] = json.loads(text)
    return found


def due(event: Mapping[str, Any], real: str) -> bool:
    """Whether the event shows a pod of a workflow that has come to a fake node and has not been reported."""
    pod = event["object"]
    if event["type"] not in ("ADDED", "MODIFIED") or pod.get("kind") != "Pod":
        return False
    annotations = pod["metadata"].get("annotations") or {}
    at = pod["spec"].get("nodeName")
    return bool(at) and at != real and REPORTED not in annotations and NODE_ID in annotations


def main() -> None:
    api, real = Api(Path(sys.argv[1])), sys.argv[2]
    path = f"/api/v1/pods?watch=true&labelSelector={quote(WORKFLOW)}"
    while True:
        try:
            for event in api.watch(path):
                if due(event, real):
                    report(api, event["object"])
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The server ends a watch now and then, and is away while it is started anew; the next watch begins with what is there.
            print(f"watching again: {error}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
