"""Running workflows on a cluster from Python: `ArgoRunner().run(workflow, **params)`. Called by authors.

The manifests are those of `penstock convert`. They are submitted and followed with kubectl, because the user has set it up: contexts,
logins, plugins, proxies.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from penstock.author.jobs import Authored
from penstock.backends.tools import find, last_line
from penstock.errors import NotFound, PlanError, Problem, UserError
from penstock.formats.documents import part
from penstock.formats.pods.names import label
from penstock.formats.registry import status_of, watch_of
from penstock.formats.report import Report
from penstock.formats.status import FINAL, Status, TaskStatus
from penstock.formats.values import short_digest
from penstock.graph.check import check_arguments
from penstock.graph.model import MISSING, Workflow
from penstock.runners.base import RunFailed, graph_of
from penstock.service.conversion import render
from penstock.service.parameters import from_python

FIRST, GROWTH, LONGEST = 0.5, 1.3, 5.0
"""Seconds between two polls of a run: the first pause, the factor by which it grows, and the longest."""
PATIENCE = 300.0
"""Seconds that a cluster may be unreachable while a run is followed."""
_EXECUTOR = re.compile(r' argo=true\b|"argo":true\b')


class Manifests(list[dict[str, Any]]):
    """The documents of a workflow; `str()` of them is YAML."""

    def __init__(self, documents: Sequence[dict[str, Any]], report: Report) -> None:
        super().__init__(documents)
        self.report = report
        """What was kept, changed and lost."""

    def __str__(self) -> str:
        from penstock.formats.yaml_writer import dump_all

        return dump_all(list(self))


class ClusterKubectl:
    """One cluster, by the current kubeconfig."""

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        words = find(os.environ, "PENSTOCK_KUBECTL", ["kubectl"])
        if words is None:
            raise NotFound(
                Problem(
                    "P870", "there is no kubectl here", "install it, or name it in PENSTOCK_KUBECTL; or use LocalRunner"
                )
            )
        self._words = [*words, *(["--context", context] if context else []), *(["-n", namespace] if namespace else [])]

    def ask(self, *words: str, given: str = "", seconds: float = 60.0) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                [*self._words, *words], input=given, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return 1, "", f"kubectl did not answer within {seconds:g} seconds"
        return done.returncode, done.stdout, done.stderr

    def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Raises UserError with the message of the cluster."""
        name = document.get("metadata", {}).get("name")
        verb = ("apply", "--server-side", "--force-conflicts") if name and _is_shared(document) else ("create",)
        code, out, err = self.ask(*verb, "--filename", "-", "--output", "json", given=json.dumps(document))
        if code:
            what = f"{document.get('kind')} {name or document.get('metadata', {}).get('generateName', '')}"
            raise UserError(
                Problem(
                    "P871",
                    f"the cluster did not accept {what}: {last_line(err) or 'no reason given'}",
                    "check `kubectl config current-context`, your rights there, and that the system is installed",
                )
            )
        found: dict[str, Any] = json.loads(out)
        return found

    def get(self, reference: Mapping[str, Any]) -> dict[str, Any] | None:
        """None if the cluster cannot be reached now. Raises NotFound if the object is gone."""
        code, out, err = self.ask("get", "--filename", "-", "--output", "json", given=json.dumps(reference))
        if code == 0:
            found: dict[str, Any] = json.loads(out)
            # kubectl get --filename returns a list, even of one object.
            if found.get("kind") == "List":
                found = found["items"][0]
            return found
        if "NotFound" in err:
            raise NotFound(
                Problem("P872", f"{reference['kind']} {reference['metadata']['name']} is gone", "submit it again")
            )
        return None

    def with_labels(self, kind: str, labels: str, namespace: str) -> list[dict[str, Any]]:
        """The objects of a kind with these labels; none if the cluster cannot be reached now."""
        code, out, _ = self.ask("get", kind, "--selector", labels, "--namespace", namespace, "--output", "json")
        return list(json.loads(out)["items"]) if code == 0 else []


def _without_executor_lines(text: str) -> str:
    """Argo's executor wraps the program in its container, and marks the lines that it prints itself."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not (line.startswith(("time=", "{")) and _EXECUTOR.search(line)))


def _is_shared(document: Mapping[str, Any]) -> bool:
    """Objects that runs refer to may exist already; the run itself must be new."""
    return document.get("kind") in ("WorkflowTemplate", "ConfigMap", "Task", "Pipeline")


class ClusterRun:
    """One execution on a cluster. It has the interface of Run."""

    def __init__(
        self, kubectl: ClusterKubectl, data: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        meta = data["metadata"]
        self._kubectl, self._sleep = kubectl, sleep
        self.name, self.namespace = str(meta["name"]), str(meta.get("namespace") or "default")
        self.id = f"{self.namespace}/{self.name}"
        self._reference = {name: data[name] for name in ("apiVersion", "kind")}
        self._reference["metadata"] = {"name": self.name, "namespace": self.namespace}
        self._watch = watch_of(data)
        self._seen = status_of(data)

    def look(self) -> Status:
        """The current status."""
        if self._seen.state not in FINAL:
            data = self._kubectl.get(self._reference)
            if data is not None:
                self._seen = status_of(data)
        return self._seen

    @property
    def status(self) -> str:
        """pending, suspended, running, succeeded or failed."""
        return self.look().state

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    def wait(self, timeout: float | None = None) -> ClusterRun:
        """Returns when the run is over, or after `timeout` seconds. The run does not depend on this process."""
        until = None if timeout is None else time.monotonic() + timeout
        pause, seen = FIRST, time.monotonic()
        while self._seen.state not in FINAL:
            if until is not None and time.monotonic() >= until:
                return self
            data = self._kubectl.get(self._reference)
            if data is not None:
                before, self._seen = self._seen, status_of(data)
                seen = time.monotonic()
                pause = FIRST if before != self._seen else min(pause * GROWTH, LONGEST)
            elif time.monotonic() - seen > PATIENCE:
                raise UserError(
                    Problem(
                        "P873",
                        f"the cluster of {self.id} has not answered for {PATIENCE:g} s",
                        "call wait() again later",
                    )
                )
            if self._seen.state not in FINAL:
                self._sleep(pause)
        return self

    @property
    def outputs(self) -> dict[str, Any]:
        return dict(self.look().outputs)

    @property
    def tasks(self) -> list[TaskStatus]:
        known = self.look().tasks
        if self._watch.children is not None and self._watch.with_children is not None:
            kind, run_label = self._watch.children
            children = self._kubectl.with_labels(kind, f"{run_label}={self.name}", self.namespace)
            known = self._watch.with_children(known, children)
        return list(known)

    @property
    def failures(self) -> dict[str, str]:
        failed = [task for task in self.tasks if task.state == "failed"]
        # A JobSet has one message for all its jobs.
        found = {task.name: task.message or self._seen.message for task in failed}
        return found or ({self.name: self._seen.message} if self._seen.state == "failed" else {})

    def logs(self, task: str) -> str:
        """What a task printed, if its pod still exists."""
        found = next((one for one in self.tasks if one.name == task and one.pod), None)
        which = [found.pod] if found else []
        if self._watch.pod_labels is not None:
            # Its status does not name its pods, but their labels name the run and the task.
            run_label, task_label = self._watch.pod_labels
            which = ["--selector", f"{run_label}={self.name},{task_label}={task}", "--tail=-1"]
        if not which:
            return ""
        own = [["--container", name] for name in found.containers] if found else []
        answers = [
            self._kubectl.ask("logs", *which, "-n", self.namespace, *words, "--prefix=false")
            for words in own or [["--all-containers"]]
        ]
        text = "".join(out for _, out, _ in answers)
        return _without_executor_lines(text) if self._reference["kind"] == "Workflow" else text

    def cancel(self, now: bool = False) -> None:
        """Deletes it, with its pods."""
        grace = ("--grace-period=0", "--force") if now else ()
        self._kubectl.ask("delete", "--filename", "-", "--wait=false", *grace, given=json.dumps(self._reference))

    def check(self) -> ClusterRun:
        """The run itself if it succeeded. Raises RunFailed if not."""
        if not self.ok:
            reasons = [f"{task}: {message}" for task, message in self.failures.items()]
            raise RunFailed(self.id, self._seen.state, reasons)
        return self

    def __repr__(self) -> str:
        return f"<ClusterRun {self.id} {self._seen.state}>"


class _ClusterRunner:
    format: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    """The kind of the document that is the run."""

    def __init__(self, *, context: str | None = None, namespace: str | None = None) -> None:
        self._context, self._namespace = context, namespace

    def render(self, workflow: Authored | Workflow, /, **params: Any) -> Manifests:
        """The manifests, with these values of the parameters. Raises UserError with every step that cannot be expressed there."""
        written = render(self._named(_bound(graph_of(workflow), params)), self.format)
        return Manifests(written.documents, written.report)

    def _named(self, graph: Workflow) -> Workflow:
        """Gives each run a name of its own. For Argo and Tekton the writer does that."""
        return graph

    def _pinned(self, documents: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Makes a waiting run independent of later submissions. Other objects that it refers to have a digest in their name."""
        return documents

    def submit(self, workflow: Authored | Workflow, /, **params: Any) -> ClusterRun:
        """Create it in the cluster and return at once; call `wait()` on the result."""
        graph = graph_of(workflow)
        missing = [one.name for one in graph.params if one.default is MISSING and one.name not in params]
        if missing:
            raise PlanError(
                [Problem("P408", f"the parameter {name!r} has no value", f"give it: {name}=…") for name in missing]
            )
        manifests = self.render(workflow, **params)
        kubectl = ClusterKubectl(self._context, self._namespace)
        made: ClusterRun | None = None
        # The run comes last, after the objects that it refers to.
        for document in sorted(self._pinned(manifests), key=lambda one: one.get("kind") in self.kinds):
            answer = kubectl.create(document)
            if document.get("kind") in self.kinds:
                made = ClusterRun(kubectl, answer)
        assert made is not None
        return made

    def run(self, workflow: Authored | Workflow, /, **params: Any) -> ClusterRun:
        """Submit it with the current kubeconfig and wait for its end."""
        return self.submit(workflow, **params).wait()


class ArgoRunner(_ClusterRunner):
    """Runs workflows with Argo Workflows."""

    format = "argo"
    kinds = ("Workflow",)


class TektonRunner(_ClusterRunner):
    """Runs workflows with Tekton Pipelines."""

    format = "tekton"
    kinds = ("PipelineRun",)

    def _pinned(self, documents: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """A PipelineRun reads its Pipeline when it starts, which may be long after it was submitted."""
        found = [copy.deepcopy(one) for one in documents]
        names: dict[str, str] = {}
        for one in (one for one in found if one["kind"] == "Pipeline"):
            name = one["metadata"]["name"]
            names[name] = label(f"{name}-{short_digest(json.dumps(one['spec'], sort_keys=True))}")
            one["metadata"]["name"] = names[name]
        for one in (one for one in found if one["kind"] in self.kinds):
            one["spec"]["pipelineRef"]["name"] = names[one["spec"]["pipelineRef"]["name"]]
        return found


class JobSetRunner(_ClusterRunner):
    """Runs workflows as a JobSet: gangs, one after another."""

    format = "jobset"
    kinds = ("JobSet",)

    def _named(self, graph: Workflow) -> Workflow:
        kept = {key: value for key, value in part(graph.extra, "metadata").items() if key != "name"}
        kept.setdefault("generateName", f"{label(graph.name)}-")
        return dataclasses.replace(graph, extra={**graph.extra, "metadata": kept})


def _bound(workflow: Workflow, params: Mapping[str, Any]) -> Workflow:
    """The workflow with the values as defaults. Raises PlanError."""
    params = from_python(workflow, params)
    problems = check_arguments(workflow.params, params)
    if problems:
        raise PlanError(problems)
    given = tuple(
        dataclasses.replace(one, default=params[one.name]) if one.name in params else one for one in workflow.params
    )
    return dataclasses.replace(workflow, params=given)
