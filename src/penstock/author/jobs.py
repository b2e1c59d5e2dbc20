"""The object form: jobs, and the Workflow that holds them. Called by authors; tasks and flow build on it.

A job is a step that is being described. It depends on the jobs whose outputs it uses; `.after()` adds more.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Self, Unpack

from penstock.author.errors import author_error, author_line
from penstock.author.links import chain_of, defining, with_links
from penstock.author.options import FOR_JOBS, JobOptions, callbacks_of, dedented, locks_of, seconds, step_fields
from penstock.author.values import Computed, Reference, SingleValue, WorkflowParam, to_object_condition, to_value
from penstock.errors import AuthorError, Problem, nearest
from penstock.expressions import types
from penstock.expressions.parse import Expr, reference
from penstock.graph import codec, model
from penstock.graph.limits import NAME
from penstock.graph.model import MISSING, NORMAL, Edge, Outcome, Unit
from penstock.graph.payload_paths import PayloadIdentity

plain_call: ContextVar[str] = ContextVar("plain_call", default="")
"""The name of the @workflow function that is being called as ordinary Python, if any."""

Inputs = Mapping[str, Any] | Sequence[WorkflowParam | model.Input]


class Outputs:
    """`job.outputs["rows"]`"""

    def __init__(self, job: BaseJob) -> None:
        self._job = job

    def __getitem__(self, name: str) -> Reference:
        known = self._job.output_types()
        if name not in known:
            raise author_error(
                "P202",
                f"the job {self._job.name!r} has no output {name!r}",
                f"declare it: outputs=[WorkflowParam({name!r}, …)].{nearest(name, known)}",
            )
        type_ = types.list_of(known[name]) if self._job.each is not None else known[name]
        return Computed(reference("steps", self._job.name, "outputs", name), type_)


def usable_name(name: Any) -> str:
    """The name of a step. Raises AuthorError P211."""
    if not isinstance(name, str) or not NAME.match(name):
        raise author_error(
            "P211",
            f"{name!r} is not a usable name",
            "use a-z, A-Z, 0-9, '-' and '_', beginning and ending with a letter or digit; @task(name=…) and @workflow(name=…) give a "
            "function another name",
        )
    return name


class BaseJob(SingleValue):
    """One step. Use ContainerJob, ScriptJob, FunctionJob or ResourceJob; BaseJob itself takes any action of the graph, such
    as `penstock.graph.model.Suspend(message="ship it?")` or `Http(url=…)`."""

    def __init__(
        self,
        name: str,
        action: model.Action,
        *,
        inputs: Inputs = (),
        outputs: Iterable[WorkflowParam] = (),
        **options: Unpack[JobOptions],
    ) -> None:
        self.name = usable_name(name)
        # Subclasses have turned References into expressions already; a bare BaseJob takes them as they are written.
        self.action = (
            action
            if type(self) is not BaseJob
            else model.with_values(action, {key: to_value(v) for key, v in model.action_values(action)})
        )
        self.source = author_line()
        self.declared: tuple[model.Output, ...] = tuple(_output(item) for item in outputs)
        self.inputs = _inputs(inputs)
        self.needs: tuple[Edge, ...] = ()
        self.each: model.ForEach | None = None
        self.loop: model.While | None = None
        self.fields = step_fields(options, FOR_JOBS)
        self.when: Expr | None = self.fields.pop("when", None)
        self.uses: tuple[model.Workflow, ...] = ()
        """Workflows that the step calls. They go to the definitions of the root workflow."""

    @property
    def outputs(self) -> Outputs:
        return Outputs(self)

    @property
    def outcome(self) -> Reference:
        """How it ended, as text: succeeded, failed, skipped, …"""
        return Computed(reference("steps", self.name, "outcome"), types.STR)

    def output_types(self) -> dict[str, types.Type]:
        found = {output.name: output.type for output in self.declared}
        if isinstance(self.action, model.Nested):
            for workflow in self.uses:
                if workflow.name == self.action.name:
                    found = {output.name: output.type for output in workflow.outputs} | found
        return found

    def result_ref(self) -> Reference:
        """The job as a value: its only output."""
        known = self.output_types()
        if len(known) != 1:
            raise author_error(
                "P307",
                f"the job {self.name!r} has {len(known)} outputs, so it does not stand for one value",
                f"say which: outputs[{next(iter(known), 'NAME')!r}]",
            )
        return self.outputs[next(iter(known))]

    def after(self, *jobs: BaseJob | str, outcomes: Iterable[Outcome | str] = NORMAL) -> Self:
        """Wait for these, too, and run only if each ended in one of `outcomes`. Returns the job itself."""
        try:
            wanted = frozenset(Outcome(outcome) for outcome in ([outcomes] if isinstance(outcomes, str) else outcomes))
        except ValueError as error:
            raise author_error("P305", str(error), f"known outcomes: {', '.join(Outcome)}") from None
        for job in jobs:
            if not isinstance(job, BaseJob | str):
                raise author_error("P307", f"{job!r} is not a job", "give jobs, or names of steps")
            name = job if isinstance(job, str) else job.name
            self.needs = (*(edge for edge in self.needs if edge.step != name), Edge(name, wanted))
        return self

    def options(self, *, name: str | None = None, **options: Unpack[JobOptions]) -> Self:
        """A copy with other options: the same work, used elsewhere with other resources."""
        job = copy.copy(self)
        if name is not None:
            job.name = usable_name(name)
        changed = step_fields(options, FOR_JOBS)
        job.when = changed.pop("when", self.when)
        if "resources" in changed:
            changed["resources"] = {**self.fields.get("resources", {}), **changed["resources"]}
        job.fields = {**self.fields, **changed}
        job.source = author_line() or self.source
        return job

    def __call__(self, **inputs: Any) -> Self:
        """A copy with these inputs bound."""
        if plain_call.get():
            raise author_error(
                "P308",
                f"{self.name!r} is a {self.action.kind}; a plain call of {plain_call.get()!r} cannot run it",
                "use `penstock run`, or make it a @task function",
            )
        job = copy.copy(self)
        for name in inputs:
            if name not in self.inputs:
                raise author_error(
                    "P309",
                    f"the job {self.name!r} has no input {name!r}",
                    f"declare it: inputs=[WorkflowParam({name!r}, …)].{nearest(name, self.inputs)}",
                )
        job.inputs = self.inputs | {
            name: model.Input(
                name=name, value=to_value(value), type=self.inputs[name].type, path=self.inputs[name].path
            )
            for name, value in inputs.items()
        }
        return job

    def to_step(self) -> model.Step:
        for given in self.inputs.values():
            if given.value is MISSING:
                raise author_error(
                    "P309",
                    f"the job {self.name!r} has no value for its input {given.name!r}",
                    f"bind it: {self.name}({given.name}=…)",
                    self.source,
                )
        return model.Step(
            name=self.name,
            action=self.action,
            inputs=tuple(self.inputs.values()),
            outputs=self.declared,
            needs=self.needs,
            when=self.when,
            each=self.each,
            loop=self.loop,
            source=self.source,
            **self.fields,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ContainerJob(BaseJob):
    """A command in an image."""

    def __init__(
        self,
        name: str,
        image: str,
        command: Sequence[Any] = (),
        args: Sequence[Any] = (),
        *,
        env: Mapping[str, Any] | None = None,
        workdir: str | None = None,
        inputs: Inputs = (),
        outputs: Iterable[WorkflowParam] = (),
        **options: Unpack[JobOptions],
    ) -> None:
        action = model.Container(
            image=to_value(image),
            command=_words(command, "command"),
            args=_words(args, "args"),
            env=to_value(env or {}),
            workdir=workdir,
        )
        super().__init__(name, action, inputs=inputs, outputs=outputs, **options)


class ScriptJob(BaseJob):
    """A script and its interpreter, by default a shell. Without an image it runs on the machine of the engine."""

    def __init__(
        self,
        name: str,
        source: str,
        command: Sequence[Any] = ("sh",),
        *,
        image: str | None = None,
        env: Mapping[str, Any] | None = None,
        workdir: str | None = None,
        inputs: Inputs = (),
        outputs: Iterable[WorkflowParam] = (),
        **options: Unpack[JobOptions],
    ) -> None:
        action = model.Script(
            source=to_value(dedented(source)),
            command=_words(command, "command"),
            image=to_value(image),
            env=to_value(env or {}),
            workdir=workdir,
        )
        super().__init__(name, action, inputs=inputs, outputs=outputs, **options)


class ResourceJob(BaseJob):
    """A Kubernetes object that is created and then watched. It succeeds when `success_condition` holds and fails when
    `failure_condition` holds. Conditions read `status`, `spec`, `metadata` or the whole `object`; `"status.phase == Succeeded, status.failed < 1"`,
    as in Argo, is one too. Without conditions, kinds whose end is known (Job, JobSet, RayJob, SparkApplication, …) are waited for, and others are done
    when the cluster has accepted them; `success_condition=True` waits for nothing."""

    def __init__(
        self,
        name: str,
        manifest: Mapping[str, Any] | str,
        action: str = "create",
        *,
        success_condition: str | bool | None = None,
        failure_condition: str | bool | None = None,
        inputs: Inputs = (),
        outputs: Iterable[WorkflowParam] = (),
        **options: Unpack[JobOptions],
    ) -> None:
        if isinstance(manifest, str):
            from penstock.graph.text import read_yaml

            manifest, _ = read_yaml(inspect.cleandoc(manifest), f"<manifest of {name}>")
        if not isinstance(manifest, Mapping):
            raise author_error(
                "P307",
                f"the manifest of {name!r} is not a Kubernetes object",
                "give a mapping, or YAML with one object",
            )
        built = model.Resource(
            manifest=to_value(manifest),
            action=action,
            success_condition=_condition(success_condition, "success_condition"),
            failure_condition=_condition(failure_condition, "failure_condition"),
        )
        super().__init__(name, built, inputs=inputs, outputs=outputs, **options)


def _condition(given: Any, field: str) -> Expr | None:
    return None if given is None else to_object_condition(given, field)


def _words(words: Sequence[Any], what: str) -> tuple[Any, ...]:
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise author_error("P305", f"{what}={words!r} is not a list", f'write {what}=["python", "prep.py"]')
    return tuple(to_value(word) for word in words)


def _output(item: Any) -> model.Output:
    if isinstance(item, model.Output):
        return item
    if not isinstance(item, WorkflowParam):
        raise author_error("P307", f"{item!r} does not declare an output", f"write WorkflowParam({item!r}, str)")
    return item.as_output()


def _inputs(given: Inputs) -> dict[str, model.Input]:
    if isinstance(given, Mapping):
        return {
            name: model.Input(name=name, value=to_value(value), type=_type_of(value)) for name, value in given.items()
        }
    found = {}
    for item in given:
        if isinstance(item, model.Input):
            found[item.name] = item
            continue
        if not isinstance(item, WorkflowParam):
            raise author_error(
                "P307",
                f"{item!r} does not declare an input",
                "give WorkflowParam(name, type), or a mapping of names to values",
            )
        found[item.name] = model.Input(name=item.name, value=item.default, type=item.type, path=item.path)
    return found


def _type_of(value: Any) -> types.Type:
    """An input has the type of the Reference it is given. For a constant the type stays open: 1 and 1.0 both fit."""
    return value.type if isinstance(value, Reference) else types.ANY


class JobSource(ABC):
    """What a list of steps may contain besides jobs."""

    @abstractmethod
    def as_job(self) -> BaseJob: ...


class Authored(JobSource):
    """What Workflow and @workflow functions have in common: a graph, and ways to look at it."""

    name: str

    @property
    @abstractmethod
    def graph(self) -> model.Workflow:
        """The workflow as data."""

    @property
    def signature(self) -> inspect.Signature:
        """How a @workflow function calls it."""
        kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(param.name, kind, default=empty if param.default is MISSING else param.default)
                for param in self.graph.params
            ]
        )

    def __rshift__(self, other: Any) -> Any:
        """`A >> B`, `A >> [B1, B2] >> C`: a Chain."""
        return chain_of(self, other)

    def __rrshift__(self, other: Any) -> Any:
        return chain_of(other, self)

    @property
    def digest(self) -> str:
        return codec.digest(self.graph)

    def to_yaml(self) -> str:
        return codec.to_yaml(self.graph)

    def to_json(self) -> str:
        return codec.to_json(self.graph)

    def check(self) -> list[Problem]:
        """All problems of the workflow."""
        from penstock.graph.check import check

        return check(self.graph)

    def explain(self) -> str:
        """The workflow as readable Python in the object form."""
        from penstock.author.explain import explain

        return explain(self.graph)

    def run_locally(self, *args: Any, **params: Any) -> Any:
        """What `run` does; it is typed where the types of the parameters are known."""
        # Looked up at run time: this package may not depend on runners.
        return importlib.import_module("penstock").LocalRunner().run(self, *args, **params)

    def _repr_svg_(self) -> str:
        """In a notebook the workflow draws itself."""
        from penstock.drawing.svg import svg

        return svg(self.graph)

    def as_job(
        self, name: str | None = None, inputs: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> BaseJob:
        """This workflow as one step of another."""
        graph = self.graph
        # A definition has no queue and no priority; its steps have.
        steps = tuple(
            dataclasses.replace(
                step,
                queue=step.queue or graph.queue,
                priority=graph.priority if step.priority is None else step.priority,
            )
            for step in graph.steps
        )
        inner = model.Workflow(
            name=graph.name,
            params=graph.params,
            steps=steps,
            outputs=graph.outputs,
            on_exit=graph.on_exit,
            parallel=graph.parallel,
            fail_fast=graph.fail_fast,
            judged_by=graph.judged_by,
            enough=graph.enough,
            locks=graph.locks,
            extra=graph.extra,
            doc=graph.doc,
            source=graph.source,
        )
        if graph.timeout is not None:
            options.setdefault("timeout", graph.timeout)
        job = BaseJob(name or graph.name, model.Nested(name=graph.name), inputs=inputs or {}, **options)
        typed = {param.name: param.type for param in graph.params}
        job.inputs = {
            key: dataclasses.replace(given, type=typed.get(key, given.type)) for key, given in job.inputs.items()
        }
        job.uses = (inner, *graph.definitions)
        return job


class Workflow(Authored):
    """Steps, and what they share: parameters, a queue, a unit of admission. `links`: what is run when it has ended. `catalogue`: workflows
    that the process of its payload may name. `uses`: workflows that steps call only by name
    (`BaseJob("again", Nested(name="loop"))`), as a workflow that calls itself does."""

    def __init__(
        self,
        name: str,
        steps: Iterable[Any],
        *,
        params: Iterable[WorkflowParam] = (),
        outputs: Mapping[str, Any] | Iterable[WorkflowParam | model.Output] = (),
        on_exit: Iterable[Any] = (),
        queue: str | None = None,
        priority: str | int | None = None,
        unit: Unit | str | None = None,
        parallel: int | None = None,
        timeout: int | float | str | None = None,
        fail_fast: bool = False,
        judged_by: str = "handled",
        enough: model.Enough | None = None,
        locks: Sequence[Any] = (),
        links: Iterable[Any] = (),
        catalogue: Iterable[Authored] = (),
        payload: PayloadIdentity | None = None,
        uses: Iterable[Authored] = (),
        extra: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        callbacks: Sequence[Any] = (),
        doc: str = "",
    ) -> None:
        self.name = name
        self.params = tuple(params)
        for param in self.params:
            if not isinstance(param, WorkflowParam):
                raise author_error("P307", f"{param!r} does not declare a parameter", "write WorkflowParam(name, type)")
        if unit is not None and unit not in list(Unit):
            raise author_error(
                "P305", f"unit={unit!r} is not a unit", f"use one of {', '.join(Unit)}.{nearest(str(unit), Unit)}"
            )
        jobs = [to_job(item) for item in steps]
        exits = [to_job(item) for item in on_exit]
        self.jobs = {job.name: job for job in jobs}
        graph = model.Workflow(
            name=name,
            params=tuple(param.as_parameter() for param in self.params),
            steps=tuple(job.to_step() for job in jobs),
            outputs=_results(outputs),
            on_exit=tuple(job.to_step() for job in exits),
            queue=queue,
            priority=priority,
            unit=None if unit is None else Unit(unit),
            parallel=parallel,
            timeout=None if timeout is None else seconds(timeout),
            fail_fast=fail_fast,
            judged_by=judged_by,
            enough=enough,
            locks=locks_of(locks),
            payload=payload,
            callbacks=callbacks_of(callbacks),
            extra=dict(extra or {}),
            definitions=gather(itertools.chain(jobs, exits, (one.as_job() for one in uses))),
            labels=dict(labels or {}),
            doc=doc,
            source=author_line(),
        )
        self._graph = defining(with_links(graph, links), [one.graph for one in catalogue])

    @property
    def graph(self) -> model.Workflow:
        return self._graph

    def run(self, **params: Any) -> Any:
        """Run it on this machine, to its end: `LocalRunner().run(self, **params)`."""
        return self.run_locally(**params)

    def __repr__(self) -> str:
        return f"<Workflow {self.name}: {len(self.jobs)} steps>"


def _results(given: Mapping[str, Any] | Iterable[WorkflowParam | model.Output]) -> tuple[model.Output, ...]:
    """`{"score": best.outputs["result"]}`, or with a type: `[WorkflowParam("score", float, best.outputs["result"])]`."""
    if not isinstance(given, Mapping):
        return tuple(
            item if isinstance(item, model.Output) else model.Output(name=item.name, type=item.type, value=item.default)
            for item in given
        )
    found = []
    for name, value in given.items():
        value = value.result_ref() if isinstance(value, BaseJob) else value
        found.append(
            model.Output(
                name=name, value=to_value(value), type=value.type if isinstance(value, Reference) else types.ANY
            )
        )
    return tuple(found)


def to_job(item: Any) -> BaseJob:
    """An item of a list of steps, as a job."""
    if isinstance(item, BaseJob):
        return item
    if isinstance(item, JobSource):
        return item.as_job()
    raise author_error(
        "P307",
        f"{item!r} is not a step",
        "give jobs, functions decorated with @for_loop, @while_loop or @when, or workflows",
    )


def gather(jobs: Iterable[BaseJob]) -> tuple[model.Workflow, ...]:
    """The workflows that these jobs call, each once. Two different ones of the same name are an error."""
    found: dict[str, model.Workflow] = {}
    for job in jobs:
        for workflow in job.uses:
            known = found.setdefault(workflow.name, workflow)
            if known is not workflow and codec.digest(known) != codec.digest(workflow):
                raise AuthorError(
                    Problem(
                        "P210",
                        f"two different workflows are named {workflow.name!r}",
                        "rename one",
                        where=f"steps.{job.name}",
                        source=job.source,
                    )
                )
    return tuple(found[name] for name in sorted(found))
