"""A Pipeline with the settings of its run -> the steps of a Workflow. Called by workflow, and by itself for nested pipelines.

Dependencies are declared (runAfter) or follow from the results that a task reads. A task that is only ordered after another also runs if that one
was skipped by its `when`; a task that reads its results is then omitted, and so are its dependents (Tekton: "results were missing"). The first
failure stops everything that has not started, unless the task has `onError: continue`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import nearest
from penstock.expressions.parse import Binary, Const, Expr, ListOf, Node, reference
from penstock.expressions.types import STR, Type, fits, list_of, optional
from penstock.formats.tekton.outcomes import aggregate, how_many, reason, status
from penstock.formats.tekton.read.matrix import Matrix, read_matrix
from penstock.formats.tekton.read.mounts import Folder, join_path
from penstock.formats.tekton.read.refs import find, guessed, paths_read, plain_inputs, results_read, steps_read
from penstock.formats.tekton.read.scope import (
    KnownText,
    Located,
    Lookup,
    compose,
    declared_type,
    frozen,
    legal,
    path_expr,
    understood,
    value_at,
)
from penstock.formats.tekton.read.task import StepBody, read_task, stand_in
from penstock.formats.tekton.read.task_scope import TaskCall, TektonContext
from penstock.formats.tekton.read.when import conditions, together
from penstock.formats.tekton.variables import Var
from penstock.graph.model import (
    NORMAL,
    Backoff,
    Edge,
    Input,
    Nested,
    Outcome,
    Output,
    Parameter,
    Retry,
    Step,
    Value,
    Workflow,
)
from penstock.graph.order import NotOrdered, topological

HOUR = 3600.0
"""The default timeout of a PipelineRun or TaskRun."""
BAD = frozenset({Outcome.FAILED, Outcome.ERRORED})
AT_ONCE = Backoff(initial=0.0, factor=1.0, longest=0.0, jitter=0.0)
MOST_DEFINITIONS = 500


@dataclass(slots=True)
class Definitions:
    """Nested pipelines, each read once for each set of arguments."""

    made: dict[str, Workflow] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PipelineTask:
    """One task of a pipeline, with what it refers to."""

    at: Located
    name: str
    step: str
    spec: Located | None = None
    task: str = ""
    embedded: bool = False
    pipeline: Located | None = None
    """A pipeline in the pipeline: its spec."""
    unresolved: str = ""
    results: dict[str, Type] = field(default_factory=dict)
    looped: bool = False
    matrix: Matrix | None = None
    tolerates: bool = False


@dataclass(slots=True, kw_only=True)
class PipelineSettings:
    """The settings of a run of a pipeline."""

    name: str
    params: Mapping[str, KnownText]
    folders: Mapping[str, Folder]
    templates: tuple[Located, ...] = ()
    settings: Mapping[str, Located] = field(default_factory=dict)
    """taskRunSpecs by the name of the task."""
    account: tuple[Located, ...] = ()
    chain: tuple[str, ...] = ()
    prefix: str = ""
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    finally_timeout: float | None = None


class PipelineReader:
    def __init__(
        self, context: TektonContext, spec: Located, around: PipelineSettings, definitions: Definitions
    ) -> None:
        self.context = context
        self.spec = spec
        self.around = around
        self.definitions = definitions
        self.tasks: dict[str, PipelineTask] = {}
        self.finals: dict[str, PipelineTask] = {}
        self.by_step: dict[str, PipelineTask] = {}
        for field_, found in (("tasks", self.tasks), ("finally", self.finals)):
            for at in spec.maps(field_):
                name = at.name()
                if name in self.tasks or name in self.finals:
                    raise at.at("name").error("P835", f"two tasks are named {name!r}", "rename one")
                step = legal(name, self.by_step)
                found[name] = self.by_step[step] = self._resolved(PipelineTask(at, name, step))
        self.read = results_read(spec)
        for name, task in (*self.tasks.items(), *self.finals.items()):
            if task.unresolved:
                task.results |= guessed(self.read.get(name, {}))
        if not self.tasks:
            raise spec.error("P835", "the pipeline has no tasks", "give it at least one")

    # -- what a task refers to ----------------------------------------------------------------------------------------

    def _resolved(self, task: PipelineTask) -> PipelineTask:
        at = task.at
        task.looped = at.given("matrix")
        task.tolerates = self._goes_on(at)
        if at.given("pipelineSpec") or at.given("pipelineRef") or _names_a_pipeline(at):
            return self._with_pipeline(task)
        if at.given("taskSpec"):
            spec = at.map("taskSpec")
            if spec.given("apiVersion") or spec.given("kind"):
                return self._custom(task, spec)
            task.spec, task.task, task.embedded = spec, task.name, True
        else:
            self._by_reference(task)
        if task.spec is not None:
            task.results = {result.name(): declared_type(result) for result in task.spec.maps("results")}
        return task

    def _goes_on(self, at: Located) -> bool:
        """onError: continue"""
        if not at.given("onError"):
            return False
        known = understood(at.word("onError"), self._names(final=False))
        if known.fixed not in ("continue", "stopAndFail"):
            if known.is_fixed:
                raise at.at("onError").wrong("continue or stopAndFail")
            said = "it is known only when it runs: a failure stops the pipeline"
            self.context.report.changed(f"{at.path}.onError", said, "write it out", at.source)
        return bool(known.fixed == "continue")

    def _by_reference(self, task: PipelineTask) -> None:
        if not task.at.given("taskRef"):
            raise task.at.error("P835", f"the task {task.name!r} does nothing", "give it a taskRef or a taskSpec")
        ref = task.at.map("taskRef")
        group = ref.word("apiVersion").rpartition("/")[0]
        if group and group != "tekton.dev":
            self._custom(task, ref)
            return
        found, name, why = find(self.context, ref, ("Task", "ClusterTask"), self._names(final=False))
        task.task, task.unresolved = name, why
        if found is not None:
            task.spec = found.map("spec")

    def _custom(self, task: PipelineTask, at: Located) -> PipelineTask:
        task.unresolved = f"{at.word('kind') or 'a custom task'} ({at.word('apiVersion')}) is run by its own controller"
        self.context.report.lost(at.path, task.unresolved, "run it on the cluster", at.source)
        return task

    def _with_pipeline(self, task: PipelineTask) -> PipelineTask:
        at = task.at
        if at.given("pipelineSpec"):
            task.pipeline, task.task = at.map("pipelineSpec"), task.name
        else:
            ref = at.map("pipelineRef") if at.given("pipelineRef") else at.map("taskRef")
            found, name, why = find(self.context, ref, ("Pipeline",), self._names(final=False))
            task.task, task.unresolved = name, why
            if name in self.around.chain:
                path = " → ".join([*self.around.chain, name])
                raise ref.error("P833", f"the pipeline runs itself: {path}", "remove one of the references")
            task.pipeline = None if found is None else found.map("spec")
        if task.pipeline is not None:
            task.results = {one.name(): declared_type(one) for one in task.pipeline.maps("results")}
        for name_ in ("timeout", "retries"):
            if at.given(name_):
                self.context.report.changed(
                    f"{at.path}.{name_}", f"Tekton does not apply {name_} to a pipeline in a pipeline", "", at.source
                )
        return task

    # -- variables ----------------------------------------------------------------------------------------------------

    def _names(self, final: bool, retries: int = 0) -> Lookup:
        """The variables of the pipeline for its tasks or its final tasks."""

        def lookup(var: Var) -> KnownText | None:
            match var.path:
                case ("params", name, *rest):
                    known = self.around.params.get(name)
                    return None if known is None else known.picked(tuple(rest), var)
                case ("tasks" | "finally", name, "results", *rest) if rest:
                    return self.result(var, name, rest)
                case ("tasks", "status") if final:
                    return KnownText(aggregate([task.step for task in self.tasks.values()]))
                case ("tasks", name, "status" | "reason" as what) if final and name in self.tasks:
                    task = self.tasks[name]
                    if what == "status":
                        return KnownText(status(task.step))
                    return KnownText(reason(task.step, task.tolerates, task.pipeline is not None))
                case ("tasks", name, "matrix", *rest) if rest[-1:] == ["length"] and name in self.tasks:
                    return self._length(self.tasks[name], rest[:-1])
                case ("tasks", _, "outputs" | "inputs", *_):
                    self._artifact(var)
                case ("context", "pipelineTask", "retries"):
                    return KnownText.plain(str(retries))
                case ("context", "task", "retry-count"):
                    return KnownText(path_expr("attempt", "number"), Type("int"))
            return around(var, self.context, self.around.name, self.around.prefix, self.around.folders)

        return lookup

    def result(self, var: Var, name: str, rest: list[str]) -> KnownText:
        """`tasks.NAME.results.…`. Raises DocumentError if it is unknown."""
        every = {**self.tasks, **self.finals}
        task = every.get(name)
        if task is None:
            raise self.spec.error(
                "P832", f"{var.raw}: there is no task {name!r}", nearest(name, every).strip() or "name one of the tasks"
            )
        whole = ".".join(rest)
        key = () if whole in task.results else tuple(rest[1:])
        found = whole if whole in task.results else rest[0]
        kind = task.results.get(found)
        if kind is None:
            raise task.at.error(
                "P832",
                f"{var.raw}: the task {name!r} gives no result {found!r}",
                nearest(found, task.results).strip() or "declare it under its results",
            )
        kind = list_of(kind) if task.looped else kind
        known = KnownText(path_expr("steps", task.step, "outputs", legal(found, variable=True)), kind)
        picked = known.picked(key, var)
        if picked is None:
            raise task.at.error("P832", f"{var.raw}: the result {found!r} is {kind}", "read all of it")
        return picked

    def _length(self, task: PipelineTask, result: list[str]) -> KnownText | None:
        if result:
            name = legal(".".join(result), variable=True)
            if ".".join(result) not in task.results:
                near = nearest(name, task.results).strip() or "declare it under its results"
                raise task.at.error("P832", f"the task {task.name!r} gives no result {name!r}", near)
            return KnownText(Expr(how_many(reference("steps", task.step, "outputs", name))))
        if task.matrix is None and task.looped:
            self._matrix(task)
        return None if task.matrix is None else task.matrix.length

    def _artifact(self, var: Var) -> None:
        if self.context.once(f"artifact {var.raw}"):
            self.context.report.lost(
                self.spec.path,
                f"{var.raw}: artifacts of a task are not passed on",
                "pass the value as a result",
                self.spec.source,
            )

    # -- steps --------------------------------------------------------------------------------------------------------

    def steps(self) -> tuple[Step, ...]:
        found = [self._step(task, final=False) for task in self.tasks.values()]
        waits = {step.name: {edge.step for edge in step.needs} for step in found}
        try:
            topological(waits)
        except NotOrdered as cycle:
            first = next(task for task in self.tasks.values() if task.step == cycle.names[0])
            path = " → ".join([*cycle.names, cycle.names[0]])
            raise first.at.error(
                "P833", f"these tasks wait for one another: {path}", "remove one of the waits"
            ) from None
        return tuple(found)

    def on_exit(self) -> tuple[Step, ...]:
        return tuple(self._step(task, final=True) for task in self.finals.values())

    def _step(self, task: PipelineTask, final: bool) -> Step:
        at = task.at
        retries = at.whole("retries")
        names = self._names(final, retries)
        nodes, lost = conditions(at, names, self.context.report)
        if task.looped:
            self._matrix(task)
        given = {param.name(): value_at(param.at("value"), names) for param in at.maps("params")}
        if task.matrix is not None:
            given |= task.matrix.given
            lost = lost or task.matrix.lost
        body = self._body(task, given, names, final)
        if lost:
            body.extra = {**body.extra, "unrunnable": lost}
        step = body.step(
            name=task.step,
            each=None if task.matrix is None else task.matrix.each,
            retry=Retry(limit=retries, backoff=AT_ONCE) if retries and task.pipeline is None else None,
            timeout=self._timeout(task, final),
            tolerates=BAD if task.tolerates else frozenset(),
            doc=at.word("description") or understood(at.word("displayName"), lambda _: None).fixed,
            source=at.source,
        )
        if task.matrix is not None and any(map(task.matrix.is_number, paths_read(step))):
            step = replace(step, each=task.matrix.numbered())
        read = steps_read(step, nodes)
        if final:
            nodes = [*(self._guard(name, outputs) for name, outputs in read.items()), *nodes]
            return replace(step, when=together(nodes, at, self._choices))
        if task.tolerates:
            nodes = [*self._there(read), *nodes]
        return replace(step, when=together(nodes, at, self._choices), needs=self._needs(task, read))

    def _timeout(self, task: PipelineTask, final: bool) -> float | None:
        if task.pipeline is not None:
            return HOUR  # of the child run; Tekton ignores the task's own
        own = task.at.seconds("timeout")
        if task.name in self.around.settings:
            said = self.around.settings[task.name].seconds("timeout")
            own = own if said is None else said
        return (
            (own or None)
            if not final or not self.around.finally_timeout
            else min(own or 1e9, self.around.finally_timeout)
        )

    def _matrix(self, task: PipelineTask) -> None:
        if task.matrix is None:
            task.matrix = read_matrix(
                task.at.map("matrix"),
                self._names(final=task.name in self.finals),
                self._default(task),
                self.context.report,
            )
            task.looped = task.matrix is not None

    def _default(self, task: PipelineTask) -> Any:
        specs = {spec.name(): spec for spec in (task.spec.maps("params") if task.spec is not None else ())}

        def default(name: str) -> Value:
            spec = specs.get(name)
            if spec is None or not spec.given("default"):
                return ""
            return value_at(spec.at("default"), lambda _: None).value

        return default

    def _choices(self, node: Node) -> tuple[Any, ...]:
        from penstock.expressions.parse import path_of

        path = path_of(node)
        return (
            self.around.choices.get(path[1], ()) if path is not None and len(path) == 2 and path[0] == "params" else ()
        )

    # -- what a step waits for ----------------------------------------------------------------------------------------

    def _needs(self, task: PipelineTask, read: Mapping[str, set[str]]) -> tuple[Edge, ...]:
        found: dict[str, frozenset[Outcome]] = {}
        for item in task.at.list("runAfter"):
            name = item.text()
            if name not in self.tasks:
                raise item.error(
                    "P832", f"runAfter: there is no task {name!r}", nearest(name, self.tasks).strip() or "name a task"
                )
            up = self.tasks[name]
            found[up.step] = _ordering(up) | (BAD if up.tolerates else frozenset())
        for step in read:
            if self.by_step[step].name in self.finals:
                raise task.at.error(
                    "P832",
                    f"{task.name!r} reads a result of the final task {step!r}",
                    "read it in the pipeline's results",
                )
            found[step] = frozenset({Outcome.SUCCEEDED}) | (BAD if self.by_step[step].tolerates else frozenset())
        return tuple(Edge(step, outcomes) for step, outcomes in found.items())

    def _there(self, read: Mapping[str, set[str]]) -> Iterator[Node]:
        """If a tolerated task left no result, a task that may fail is skipped; every other task fails."""
        may_fail = {task.step for task in self.tasks.values() if task.tolerates}
        for step in sorted(read.keys() & may_fail):
            for output in sorted(read[step]):
                yield Binary("in", Const(output), reference("steps", step, "outputs"))

    def _guard(self, step: str, outputs: set[str]) -> Node:
        """A final task whose results are missing is skipped."""
        ran: Node = Binary(
            "in",
            reference("steps", step, "outcome"),
            ListOf(tuple(Const(one.value) for one in (Outcome.SUCCEEDED, *sorted(BAD)))),
        )
        for output in sorted(outputs):
            ran = Binary("&&", ran, Binary("in", Const(output), reference("steps", step, "outputs")))
        return ran

    # -- what a step does ---------------------------------------------------------------------------------------------

    def _body(self, task: PipelineTask, given: Mapping[str, KnownText], names: Lookup, final: bool) -> StepBody:
        if task.unresolved:
            return self._stand_in(task, given)
        folders = self._folders(task, names)
        if task.pipeline is not None:
            return self._nested(task, task.pipeline, given, folders)
        assert task.spec is not None
        templates = self.around.templates
        settings = self.around.account
        if task.name in self.around.settings:
            own = self.around.settings[task.name]
            templates = (*templates, own.map("podTemplate"), own.map("taskPodTemplate"))
            settings = (*settings, own)
        call = TaskCall(
            at=task.at,
            step=task.step,
            spec=task.spec,
            task=task.task,
            embedded=task.embedded,
            given=given,
            matrix=task.matrix,
            outer=self.around.params,
            folders=folders,
            spare=self.around.folders,
            names=names,
            run_name=compose([run_name(f"{self.around.prefix}-{task.name}".lstrip("-")), *_number(task)]),
            templates=templates,
            settings=settings,
            read=frozenset(self.read.get(task.name, ())),
        )
        return read_task(self.context, call)

    def _stand_in(self, task: PipelineTask, given: Mapping[str, KnownText]) -> StepBody:
        outputs = {legal(name, variable=True): kind for name, kind in task.results.items()}
        reference = task.at.data.get("taskRef")
        kept = {"taskRef": frozen(reference)} if isinstance(reference, Mapping) else {}
        extra: dict[str, Any] = {"tekton": {"unresolved": task.unresolved, **kept}}
        samples = {name: self._sample(task, name, kind) for name, kind in outputs.items() if kind.name != "str"}
        extra |= {"sample": samples} if samples else {}
        return stand_in(extra, task.unresolved, outputs, plain_inputs(given))

    def _sample(self, task: PipelineTask, name: str, kind: Type) -> Any:
        read = self.read.get(task.name, {}).get(name)
        if kind.name == "dict" and read is not None:
            return {read.path[4]: ""}
        return self.context.sample(kind, None)

    def _folders(self, task: PipelineTask, names: Lookup) -> dict[str, Folder]:
        """Workspace of the task -> the folder of the pipeline's workspace."""
        found: dict[str, Folder] = {}
        for at in task.at.maps("workspaces"):
            name = at.name()
            outer = at.word("workspace") or name
            folder = self.around.folders.get(outer)
            if folder is not None:
                inner = understood(at.word("subPath"), names).value
                found[name] = replace(folder, sub_path=join_path(folder.sub_path, inner))
        return found

    # -- pipelines in pipelines ---------------------------------------------------------------------------------------

    def _nested(
        self, task: PipelineTask, spec: Located, given: Mapping[str, KnownText], folders: Mapping[str, Folder]
    ) -> StepBody:
        if task.looped:
            raise task.at.at("matrix").error(
                "P835", "a pipeline in a pipeline takes no matrix", "put the matrix on a task inside it"
            )
        given = {**_child_defaults(self.context, task, spec, given, folders), **given}
        params, inputs = child_params(task, spec, given)
        folders = dict(folders)
        for name, folder in folders.items():
            if not isinstance(folder.sub_path, str):
                own = legal(f"workspace-{name}-sub-path", [one.name for one in inputs], variable=True)
                inputs.append(Input(name=own, value=folder.sub_path, type=STR))
                params.append(Parameter(name=own, type=STR))
                folders[name] = replace(folder, sub_path=path_expr("params", own))
        settings = PipelineSettings(
            name=task.task,
            params=_child_known(task, spec, given),
            folders=folders,
            templates=self.around.templates,
            account=self.around.account,
            chain=(*self.around.chain, task.task) if not task.at.given("pipelineSpec") else self.around.chain,
            prefix=task.task,
        )
        name = define(self.context, self.definitions, spec, settings, params, task)
        return StepBody(action=Nested(name=name), inputs=tuple(inputs), resources={}, extra={})


def around(var: Var, context: TektonContext, name: str, prefix: str, bound: Container[str]) -> KnownText | None:
    """The variables of a run of a pipeline: what Tekton also replaces in the values of its parameters."""
    match var.path:
        case ("context", "pipelineRun", "name" | "uid"):
            return run_name(prefix)
        case ("context", "pipelineRun", "namespace"):
            return KnownText.plain(context.namespace)
        case ("context", "pipeline", "name"):
            return KnownText.plain(name)
        case ("workspaces", workspace, "bound"):
            return KnownText.plain("true" if workspace in bound else "false")
    return None


def run_name(suffix: str) -> KnownText:
    run = KnownText(path_expr("run", "id"))
    return compose([run, f"-{suffix}"]) if suffix else run


def _number(task: PipelineTask) -> list[KnownText]:
    suffix = None if task.matrix is None else task.matrix.suffix
    return [] if suffix is None or suffix.value == "" else [suffix]


def _ordering(up: PipelineTask) -> frozenset[Outcome]:
    """A matrix without combinations is skipped with its dependents: only after a `when` do dependents run."""
    if up.matrix is not None and up.matrix.may_be_empty and not up.at.given("when"):
        return frozenset({Outcome.SUCCEEDED})
    return NORMAL


def _names_a_pipeline(at: Located) -> bool:
    ref = at.data.get("taskRef") if isinstance(at.data, Mapping) else None
    return (
        isinstance(ref, Mapping)
        and ref.get("kind") == "Pipeline"
        and str(ref.get("apiVersion")).startswith("tekton.dev/")
    )


# -- definitions ------------------------------------------------------------------------------------------------------


def child_params(
    task: PipelineTask, spec: Located, given: Mapping[str, KnownText]
) -> tuple[list[Parameter], list[Input]]:
    """The parameters of a nested pipeline, and their arguments."""
    params: list[Parameter] = []
    inputs: list[Input] = []
    for one in spec.maps("params"):
        name = legal(one.name(), [param.name for param in params], variable=True)
        kind = declared_type(one)
        known = given.get(one.name())
        if known is None:
            raise task.at.error(
                "P832",
                f"the pipeline {task.task!r} needs the parameter {one.name()!r}",
                f"give it under {task.at.path}.params",
            )
        if not fits(known.type, kind):
            raise task.at.error("P835", f"the parameter {one.name()!r} is {known.type}, not {kind}", f"give {kind}")
        params.append(Parameter(name=name, type=kind, doc=one.word("description")))
        inputs.append(Input(name=name, value=known.value, type=kind))
    return params, inputs


def _child_known(task: PipelineTask, spec: Located, given: Mapping[str, KnownText]) -> dict[str, KnownText]:
    found: dict[str, KnownText] = {}
    taken: list[str] = []
    for one in spec.maps("params"):
        name = legal(one.name(), taken, variable=True)
        taken.append(name)
        known = given[one.name()]
        found[one.name()] = KnownText(path_expr("params", name), declared_type(one), known.fixed)
    return found


def _child_defaults(
    context: TektonContext, task: PipelineTask, spec: Located, given: Mapping[str, KnownText], bound: Container[str]
) -> dict[str, KnownText]:
    """The defaults of a nested pipeline. They see its other parameters, and the child run."""
    found: dict[str, KnownText] = {}
    specs = {one.name(): one for one in spec.maps("params") if one.given("default") and one.name() not in given}
    opening: set[str] = set()

    def read(var: Var) -> KnownText | None:
        if var.path[0] != "params" or len(var.path) < 2:
            return around(var, context, task.task, task.task, bound)
        known = given.get(var.path[1]) or value(var.path[1])
        return None if known is None else known.picked(var.path[2:], var)

    def value(name: str) -> KnownText | None:
        if name in found or name not in specs:
            return found.get(name)
        if name in opening:
            raise specs[name].error("P833", f"the default of {name!r} leads back to itself", "write a value")
        opening.add(name)
        found[name] = value_at(specs[name].at("default"), read)
        return found[name]

    for name in specs:
        value(name)
    return found


def define(
    context: TektonContext,
    definitions: Definitions,
    spec: Located,
    around: PipelineSettings,
    params: list[Parameter],
    task: PipelineTask,
) -> str:
    """The name of the definition for a nested pipeline with these arguments."""
    fixed = sorted((name, repr(known.fixed)) for name, known in around.params.items())
    folders = sorted((name, folder.key) for name, folder in around.folders.items())
    key = repr((spec.document.file, spec.document.name, spec.path, fixed, folders))
    if key in definitions.names:
        return definitions.names[key]
    if len(definitions.names) >= MOST_DEFINITIONS or len(around.chain) > 50:
        raise task.at.error("P833", "the pipelines are nested too deep", "call fewer of them")
    name = legal(task.task, definitions.names.values())
    definitions.names[key] = name
    reader = PipelineReader(context, spec, around, definitions)
    definitions.made[name] = replace(
        pipeline_workflow(reader, name, tuple(params)), doc=spec.word("description"), source=spec.source
    )
    return name


def pipeline_workflow(reader: PipelineReader, name: str, params: tuple[Parameter, ...]) -> Workflow:
    """Without fields that only the root has."""
    return Workflow(
        name=name,
        params=params,
        steps=reader.steps(),
        on_exit=reader.on_exit(),
        outputs=tuple(_results(reader)),
        fail_fast=True,
    )


def _results(reader: PipelineReader) -> Iterator[Output]:
    """A pipeline result that reads a skipped task is absent."""
    names = reader._names(final=True)
    taken: list[str] = []
    for at in reader.spec.maps("results"):
        known = value_at(at.at("value"), names)
        name = legal(at.name(), taken, variable=True)
        taken.append(name)
        yield Output(name=name, value=known.value, type=optional(known.type), default=None)
