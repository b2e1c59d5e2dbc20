"""Running workflows on a cluster from Python: `ArgoRunner().run(workflow, **params)`. Called by authors, as LocalRunner is.

The manifests are those of `penstock convert`; they are submitted and followed by kubectl with the user's own kubeconfig, because
that is what the user has set up: contexts, logins, plugins, proxies.
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
from penstock.errors import InvalidWorkflow, NotFound, PlanError, Problem, UserError
from penstock.formats.documents import part
from penstock.formats.jobset_read import LABEL
from penstock.formats.kube import short_digest
from penstock.formats.pod_write import label
from penstock.formats.report import Report
from penstock.formats.status import FINAL, Status, TaskStatus, status_of, task_run_states
from penstock.graph.check import check_arguments, errors
from penstock.graph.model import MISSING, Workflow
from penstock.service.foreign import render
from penstock.service.local import RunFailed

FIRST, GROWTH, LONGEST = 0.5, 1.3, 5.0
"""Seconds between two looks at a run: at first, how they grow, and at most."""
PATIENCE = 300.0
"""Seconds that a cluster may be out of reach while a run is followed."""
_EXECUTOR = re.compile(r' argo=true\b|"argo":true\b')


class Manifests(list[dict[str, Any]]):
    """The documents of a workflow; `str()` of them is YAML."""

    def __init__(self, documents: Sequence[dict[str, Any]], report: Report) -> None:
        super().__init__(documents)
        self.report = report
        """What was kept, changed and lost."""

    def __str__(self) -> str:
        from penstock.formats.yaml_out import dump_all

        return dump_all(list(self))


class Kubectl:
    """One cluster, by the kubeconfig of the moment."""

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
        """Raises UserError with what the cluster says."""
        name = document.get("metadata", {}).get("name")
        verb = ("apply", "--server-side", "--force-conflicts") if name and _is_shared(document) else ("create",)
        code, out, err = self.ask(*verb, "--filename", "-", "--output", "json", given=json.dumps(document))
        if code:
            what = f"{document.get('kind')} {name or document.get('metadata', {}).get('generateName', '')}"
            raise UserError(
                Problem(
                    "P871", f"the cluster did not take {what}: {last_line(err) or 'no reason given'}",
                    "check `kubectl config current-context`, your rights there, and that the system is installed",
                )
            )  # fmt: skip
        found: dict[str, Any] = json.loads(out)
        return found

    def get(self, reference: Mapping[str, Any]) -> dict[str, Any] | None:
        """None if it cannot be reached now. Raises NotFound if it is gone."""
        code, out, err = self.ask("get", "--filename", "-", "--output", "json", given=json.dumps(reference))
        if code == 0:
            found: dict[str, Any] = json.loads(out)
            # Asked by file, kubectl answers with a list, also of one.
            if found.get("kind") == "List":
                found = found["items"][0]
            return found
        if "NotFound" in err:
            raise NotFound(
                Problem("P872", f"{reference['kind']} {reference['metadata']['name']} is gone", "submit it again")
            )
        return None

    def having(self, kind: str, labels: str, namespace: str) -> list[dict[str, Any]]:
        """The objects of a kind with these labels; none if it cannot be reached now."""
        code, out, _ = self.ask("get", kind, "--selector", labels, "--namespace", namespace, "--output", "json")
        return list(json.loads(out)["items"]) if code == 0 else []


def _of_the_program(text: str) -> str:
    """Without what Argo's executor says of itself, which is around the program in its container and marks its own lines."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not (line.startswith(("time=", "{")) and _EXECUTOR.search(line)))


def _is_shared(document: Mapping[str, Any]) -> bool:
    """What runs refer to may be there from before; a run itself must be new."""
    return document.get("kind") in ("WorkflowTemplate", "ConfigMap", "Task", "Pipeline")


class ClusterRun:
    """One execution on a cluster; looks like a Run of LocalRunner."""

    def __init__(self, kubectl: Kubectl, data: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep) -> None:
        meta = data["metadata"]
        self._kubectl, self._sleep = kubectl, sleep
        self.name, self.namespace = str(meta["name"]), str(meta.get("namespace") or "default")
        self.id = f"{self.namespace}/{self.name}"
        self._reference = {name: data[name] for name in ("apiVersion", "kind")}
        self._reference["metadata"] = {"name": self.name, "namespace": self.namespace}
        self._seen = status_of(data)

    def look(self) -> Status:
        """How it stands now."""
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
        """Until it is over. It goes on in the cluster whatever happens here."""
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
                        "P873", f"the cluster of {self.id} has not answered for {PATIENCE:g} s", "wait() again later"
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
        if self._reference["kind"] == "PipelineRun":
            runs = self._kubectl.having("taskruns.tekton.dev", f"tekton.dev/pipelineRun={self.name}", self.namespace)
            known = task_run_states(known, runs)
        return list(known)

    @property
    def failures(self) -> dict[str, str]:
        failed = [task for task in self.tasks if task.state == "failed"]
        # A JobSet says what went wrong for the whole only.
        found = {task.name: task.message or self._seen.message for task in failed}
        return found or ({self.name: self._seen.message} if self._seen.state == "failed" else {})

    def logs(self, task: str) -> str:
        """What a task printed, as far as its pod is still there."""
        found = next((one for one in self.tasks if one.name == task and one.pod), None)
        which = [found.pod] if found else []
        if self._reference["kind"] == "JobSet":
            # It does not name its pods, but they carry its name and that of their job.
            which = ["--selector", f"{LABEL}jobset-name={self.name},{LABEL}replicatedjob-name={task}", "--tail=-1"]
        if not which:
            return ""
        own = [["--container", name] for name in found.containers] if found else []
        answers = [
            self._kubectl.ask("logs", *which, "-n", self.namespace, *words, "--prefix=false")
            for words in own or [["--all-containers"]]
        ]
        text = "".join(out for _, out, _ in answers)
        return _of_the_program(text) if self._reference["kind"] == "Workflow" else text

    def cancel(self, now: bool = False) -> None:
        """Deletes it, with its pods."""
        grace = ("--grace-period=0", "--force") if now else ()
        self._kubectl.ask("delete", "--filename", "-", "--wait=false", *grace, given=json.dumps(self._reference))

    def check(self) -> ClusterRun:
        if not self.ok:
            lines = "".join(f"\n  {task}: {message}" for task, message in self.failures.items())
            raise RunFailed(f"{self.id} {self._seen.state}{lines}")
        return self

    def __repr__(self) -> str:
        return f"<ClusterRun {self.id} {self._seen.state}>"


class _ClusterRunner:
    format: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    """What stands for the run among the documents."""

    def __init__(self, *, context: str | None = None, namespace: str | None = None) -> None:
        self._context, self._namespace = context, namespace

    def render(self, workflow: Authored | Workflow, /, **params: Any) -> Manifests:
        """The manifests, with these parameters as their values. Raises UserError with every step that cannot be said there."""
        graph = workflow.graph if isinstance(workflow, Authored) else workflow
        problems = errors(graph)
        if problems:
            raise InvalidWorkflow(problems)
        written = render(self._named(_bound(graph, params)), self.format)
        return Manifests(written.documents, written.report)

    def _named(self, graph: Workflow) -> Workflow:
        """So that each run of it gets a name of its own. What is written for Argo and Tekton does so anyway."""
        return graph

    def _pinned(self, documents: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """So that a run which waits means what was submitted, whatever is submitted after it. What else it refers to has names by content."""
        return documents

    def submit(self, workflow: Authored | Workflow, /, **params: Any) -> ClusterRun:
        """Hand it to the cluster and return at once; `wait()` on what comes back."""
        graph = workflow.graph if isinstance(workflow, Authored) else workflow
        missing = [one.name for one in graph.params if one.default is MISSING and one.name not in params]
        if missing:
            raise PlanError(
                [Problem("P408", f"the parameter {name!r} has no value", f"give it: {name}=…") for name in missing]
            )
        manifests = self.render(workflow, **params)
        kubectl = Kubectl(self._context, self._namespace)
        made: ClusterRun | None = None
        # What the run refers to first, the run itself last.
        for document in sorted(self._pinned(manifests), key=lambda one: one.get("kind") in self.kinds):
            answer = kubectl.create(document)
            if document.get("kind") in self.kinds:
                made = ClusterRun(kubectl, answer)
        assert made is not None
        return made

    def run(self, workflow: Authored | Workflow, /, **params: Any) -> ClusterRun:
        """Submit with the current kubeconfig and follow it to its end."""
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
        """A PipelineRun looks its Pipeline up when it starts, which may be long after it was submitted."""
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
    """With the values as defaults. Raises PlanError."""
    problems = check_arguments(workflow.params, params)
    if problems:
        raise PlanError(problems)
    given = tuple(
        dataclasses.replace(one, default=params[one.name]) if one.name in params else one for one in workflow.params
    )
    return dataclasses.replace(workflow, params=given)
