"""Tekton's PipelineRun, TaskRun, Pipeline and Task -> Workflow. Called by tekton.format.

The values of a run are the defaults of the workflow's parameters. A Pipeline or Task alone is read like a run of it, with open parameters. What
is not among the documents (a Task of a catalogue or resolver) becomes a step that can be planned and dry-run, with the reason why it cannot be
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.expressions.parse import Expr
from penstock.expressions.types import Type, accepts, optional
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.formats.report import Report
from penstock.formats.tekton.read.mounts import Folder, folder_of
from penstock.formats.tekton.read.pipeline import (
    AT_ONCE,
    HOUR,
    Definitions,
    PipelineReader,
    PipelineSettings,
    around,
    pipeline_workflow,
)
from penstock.formats.tekton.read.refs import find, plain_inputs
from penstock.formats.tekton.read.scope import (
    KnownText,
    Located,
    Lookup,
    declared_type,
    frozen,
    legal,
    names_later,
    path_expr,
    value_at,
)
from penstock.formats.tekton.read.task import StepBody, read_task, stand_in
from penstock.formats.tekton.read.task_scope import TaskCall, TektonContext, with_default
from penstock.formats.tekton.variables import Var
from penstock.graph.model import MISSING, Output, Parameter, Retry, Workflow, expressions

KINDS = ("PipelineRun", "TaskRun", "Pipeline", "Task", "ClusterTask")


def read_tekton(library: Library, root: Document) -> Read:
    """Raises DocumentError with the line of what is wrong."""
    at = Located.root(root)
    if root.kind not in KINDS:
        raise at.error("P830", f"{root.kind or 'this'} is not something to run", f"give one of {', '.join(KINDS)}")
    metadata = at.map("metadata")
    context = TektonContext(library, Report(), root.namespace or "default", run=root.kind.endswith("Run"))
    reader = _Reader(context, at)
    workflow = reader.pipeline() if root.kind.startswith("Pipeline") else reader.task()
    labels = _texts(metadata.map("labels"))
    annotations = _texts(metadata.map("annotations"))
    extra = {"metadata": {"annotations": annotations}} if annotations else {}
    workflow = replace(
        workflow,
        labels=labels,
        queue=labels.get(QUEUE) or annotations.get(QUEUE),
        priority=labels.get(PRIORITY) or annotations.get(PRIORITY),
        extra={**extra, "tekton": {"kind": root.kind, **reader.leftovers()}},
        source=root.source("metadata"),
    )
    return Read(workflow, context.report)


def _texts(at: Located) -> dict[str, str]:
    return {str(name): value if isinstance(value, str) else str(value) for name, value in at.data.items()}


class _Reader:
    """One root."""

    def __init__(self, context: TektonContext, at: Located) -> None:
        self.context = context
        self.at = at
        self.spec = at.map("spec")
        self.name = legal(at.document.name or at.document.kind.lower())
        self.params: dict[str, Parameter] = {}
        self.known: dict[str, KnownText] = {}

    # -- parameters ---------------------------------------------------------------------------------------------------

    def declare(self, declared: Located, task: bool, name: str = "") -> None:
        """The parameters of the pipeline or task with the values of the run, and the other values, which embedded specs see."""
        given = {one.name(): one for one in self.spec.maps("params")} if self.context.run else {}
        specs = {one.name(): one for one in declared.maps("params")}
        opening: set[str] = set()
        bound = {one.name() for one in (self.spec if self.context.run else declared).maps("workspaces")}

        def value(name: str) -> KnownText | None:
            if name in self.known:
                return self.known[name]
            spec = specs.get(name)
            if name in opening and spec is not None:
                raise spec.error("P833", f"the default of {name!r} leads back to itself", "write a value")
            opening.add(name)
            self._declare(name, spec, given.get(name), read, later)
            return self.known.get(name)

        def read(var: Var) -> KnownText | None:
            if task or var.path[0] != "params" or len(var.path) < 2:
                return later(var)  # the defaults of a Task see one another in another way: TaskScope
            found = value(var.path[1])
            return None if found is None else found.picked(var.path[2:], var)

        def later(var: Var) -> KnownText | None:
            return None if task else around(var, self.context, name, "", bound)

        for one in (*specs, *given):
            value(one)

    def _declare(self, name: str, spec: Located | None, given: Located | None, read: Lookup, later: Lookup) -> None:
        if spec is None and given is None:
            return
        own = legal(name, self.params, variable=True)
        default = value_at(spec.at("default"), read) if spec is not None and spec.given("default") else None
        found = value_at(given.at("value"), later) if given is not None else default
        if found is not None and given is not None and default is not None and isinstance(found.value, dict):
            found = with_default(found, default)
        kind = declared_type(spec) if spec is not None else found.type if found is not None else Type("any")
        if found is default and found is not None and isinstance(found.value, str) and "$(params." in found.value:
            return  # TaskScope knows what it reads
        if found is not None and (any(True for _ in expressions(found.value)) or names_later(found.value)):
            self.known[name] = found  # it reads other parameters, or what is known in the run
            return
        if found is not None and not accepts(kind, found.fixed):
            at = given or spec
            assert at is not None
            raise at.error("P835", f"the parameter {name!r} is {found.type}, and {kind} is declared", f"give {kind}")
        choices = tuple(item.text() for item in spec.list("enum")) if spec is not None else ()
        self.params[own] = Parameter(
            name=own,
            type=kind,
            default=MISSING if found is None else found.fixed,
            choices=choices,
            doc=spec.word("description") if spec is not None else "",
        )
        fixed = found.fixed if found is not None and self.context.run else MISSING
        self.known[name] = KnownText(path_expr("params", own), kind, fixed)

    def lookup(self, var: Var) -> KnownText | None:
        if var.path[0] != "params" or len(var.path) < 2 or var.path[1] not in self.known:
            return None
        return self.known[var.path[1]].picked(var.path[2:], var)

    # -- workspaces ---------------------------------------------------------------------------------------------------

    def folders(self, declared: Located, shared: bool) -> dict[str, Folder]:
        """Workspaces that the run binds; for a Pipeline or Task alone, placeholder folders."""
        context = self.context
        if context.run:
            return {
                at.name(): folder_of(at, at.name(), context.library, context.report, self.lookup)
                for at in self.spec.maps("workspaces")
            }
        found = {}
        for at in declared.maps("workspaces"):
            if not at.flag("optional"):
                said = f"no run binds the workspace {at.name()!r}: a folder of the run stands in"
                context.report.changed(at.path, said, "", at.source)
                found[at.name()] = Folder("run" if shared else "task", legal(at.name()))
        return found

    # -- pipelines ----------------------------------------------------------------------------------------------------

    def pipeline(self) -> Workflow:
        spec, name, why = self.spec, self.name, ""
        if self.context.run and self.spec.given("pipelineSpec"):
            spec = self.spec.map("pipelineSpec")
        elif self.context.run:
            found, name, why = find(self.context, self.spec.map("pipelineRef"), ("Pipeline",), lambda _: None)
            spec = Located(self.at.document, "spec", {}) if found is None else found.map("spec")
        self.declare(spec, task=False, name=name)
        timeout, last = self._timeouts()
        if why:
            return self._alone(self._stand_in(why, "pipeline"), "pipeline", timeout, spec)
        settings = PipelineSettings(
            name=name,
            params=self.known,
            folders=self.folders(spec, shared=True),
            templates=self._templates(),
            settings={one.word("pipelineTaskName"): one for one in self._run().maps("taskRunSpecs")},
            account=(self._run().map("taskRunTemplate"), _account(self._run())),
            chain=(name,),
            choices={name: param.choices for name, param in self.params.items() if param.choices},
            finally_timeout=last,
        )
        definitions = Definitions()
        reader = PipelineReader(self.context, spec, settings, definitions)
        workflow = pipeline_workflow(reader, self.name, tuple(self.params.values()))
        doc = spec.word("description") or spec.word("displayName")
        return replace(workflow, timeout=timeout, doc=doc, definitions=tuple(definitions.made.values()))

    def _run(self) -> Located:
        """The spec of the run, or an empty one."""
        return self.spec if self.context.run else Located(self.at.document, "spec", {})

    def _templates(self) -> tuple[Located, ...]:
        run = self._run()
        return tuple(one for one in (run.map("taskRunTemplate").map("podTemplate"), run.map("podTemplate")) if one.data)

    def _timeouts(self) -> tuple[float | None, float | None]:
        """The timeouts of the tasks and of the final tasks. 0 means no limit."""
        run = self._run()
        said = run.map("timeouts")
        whole = said.seconds("pipeline")
        whole = run.seconds("timeout") if whole is None else whole
        whole = HOUR if whole is None else whole
        tasks, last = said.seconds("tasks"), said.seconds("finally")
        if tasks is None:
            tasks = max(whole - last, 1.0) if whole and last else whole
        elif last is None and whole and tasks:
            last = max(whole - tasks, 1.0)
        return tasks or None, last or None

    # -- tasks --------------------------------------------------------------------------------------------------------

    def task(self) -> Workflow:
        spec, name, why = self.spec, self.name, ""
        embedded = self.context.run and self.spec.given("taskSpec")
        if embedded:
            spec = self.spec.map("taskSpec")
        elif self.context.run:
            ref = self.spec.map("taskRef")
            found, name, why = find(self.context, ref, ("Task", "ClusterTask"), lambda _: None)
            spec = Located(self.at.document, "spec", {}) if found is None else found.map("spec")
        self.declare(spec, task=True)
        timeout = self._run().seconds("timeout")
        timeout = HOUR if timeout is None else timeout or None
        step = legal(name or self.name)
        if why:
            return self._alone(self._stand_in(why, step), step, timeout, spec)
        run = KnownText(path_expr("run", "id"))
        call = TaskCall(
            at=self.spec,
            step=step,
            spec=spec,
            task=name,
            embedded=bool(embedded),
            given=self.known,
            folders=self.folders(spec, shared=False),
            run_name=run,
            templates=self._templates(),
            settings=(self._run(),),
        )
        return self._alone(read_task(self.context, call), step, timeout, spec)

    def _stand_in(self, why: str, step: str) -> StepBody:
        return stand_in({"tekton": {"unresolved": why}}, why, {}, plain_inputs(self.known))

    def _alone(self, body: StepBody, name: str, timeout: float | None, spec: Located) -> Workflow:
        """A workflow of one step."""
        retries = self._run().whole("retries")
        step = body.step(
            name=name,
            timeout=timeout,
            retry=Retry(limit=retries, backoff=AT_ONCE) if retries else None,
            source=spec.source,
        )
        outputs = tuple(
            Output(name=one.name, value=_output(name, one.name), type=optional(one.type), default=None)
            for one in step.outputs
        )
        return Workflow(
            name=self.name,
            params=tuple(self.params.values()),
            steps=(step,),
            outputs=outputs,
            doc=spec.word("description"),
        )

    def leftovers(self) -> dict[str, Any]:
        """Fields of the run that the model has no place for."""
        known = (
            "params",
            "pipelineRef",
            "pipelineSpec",
            "taskRef",
            "taskSpec",
            "workspaces",
            "timeout",
            "timeouts",
            "taskRunTemplate",
            "taskRunSpecs",
            "podTemplate",
            "retries",
            "computeResources",
            "stepSpecs",
            "sidecarSpecs",
        )
        left = {name: frozen(value) for name, value in self._run().data.items() if name not in known}
        for name in left:
            self.context.report.kept(
                f"spec.{name}", f"{name} is handed on as it is", self.at.document.source(f"spec.{name}")
            )
        return {"spec": left} if left else {}


def _output(step: str, name: str) -> Expr:
    return path_expr("steps", step, "outputs", name)


def _account(run: Located) -> Located:
    """v1beta1 has the service account at the top."""
    account: Mapping[str, Any] = (
        {"serviceAccountName": run.data["serviceAccountName"]} if run.given("serviceAccountName") else {}
    )
    return Located(run.document, run.path, account)
