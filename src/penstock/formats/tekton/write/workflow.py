"""A Workflow -> a Tekton Pipeline and a PipelineRun. Called by tekton.format.

Every step becomes a pipeline task with an embedded spec; called workflows are inlined (flatten). What Tekton cannot express is refused with its line,
or reported if the pipeline does the same without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from penstock.errors import InvalidWorkflow, Problem, UserError
from penstock.expressions.evaluate import EvaluationError, resolve, to_text
from penstock.expressions.parse import Binary, Const, Expr, ListOf, Node, path_of, references
from penstock.expressions.template import Template
from penstock.formats import shim
from penstock.formats.base import Written
from penstock.formats.documents import items, part
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.formats.pods.names import label
from penstock.formats.pods.placement import placement_fields
from penstock.formats.report import Report
from penstock.formats.run_limits import report_run_limits
from penstock.formats.tekton.variables import texts_in
from penstock.formats.tekton.write.flatten import FlatWorkflow, combinations, flatten
from penstock.formats.tekton.write.names import BAD, PipelineNames
from penstock.formats.tekton.write.spec import SpecWriter, TaskContext, TaskSpec, duration
from penstock.formats.tekton.write.texts import (
    EMPTY,
    NOTHING,
    Kind,
    NotInTekton,
    TektonPath,
    TextWriter,
    guarded,
    looks_like_a_variable,
)
from penstock.formats.values import short_digest, thawed
from penstock.graph.check import errors
from penstock.graph.model import (
    MISSING,
    NORMAL,
    Backoff,
    Http,
    Nested,
    Outcome,
    Parameter,
    Resource,
    Step,
    Suspend,
    Value,
    Workflow,
    edges_of,
    expressions,
    step_values,
)

MOST_COMBINATIONS = 256
_CHUNK = 700_000
"""The most characters of one ConfigMap, which may have a mebibyte."""
_STORAGE = "1Gi"
_POD_FIELDS = frozenset(
    "securityContext volumes runtimeClassName automountServiceAccountToken dnsPolicy dnsConfig enableServiceLinks priorityClassName"
    " schedulerName imagePullSecrets hostAliases hostNetwork topologySpreadConstraints hostUsers".split()
)


def write_tekton(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    """Raises UserError with every step that Tekton cannot express."""
    wrong = errors(workflow)
    if wrong:
        raise InvalidWorkflow(wrong)
    shim.require_code(workflow, bundle, "P854")
    writer = _Writer(workflow, bundle)
    documents = writer.documents()
    if writer.problems:
        raise UserError(writer.problems)
    return Written(documents, writer.report)


class _Writer:
    def __init__(self, workflow: Workflow, bundle: bytes | None) -> None:
        self.workflow = workflow
        self.report = Report()
        self.problems: list[Problem] = []
        self.payload = bundle
        self.flat: FlatWorkflow = flatten(workflow, self.report, self.problems)
        self.name = label(workflow.name, 52)
        self.names = PipelineNames(workflow, self.flat)
        self.steps, self.exits, self.tasks = self.names.steps, self.names.exits, self.names.tasks
        self.special = {final: self.names.special(final) for final in (False, True)}
        self.beside: dict[str, dict[str, Any]] = {}
        self.shared: set[str] = set()
        self.run_specs: list[dict[str, Any]] = []

    # -- documents ----------------------------------------------------------------------------------------------------

    def documents(self) -> list[dict[str, Any]]:
        tasks = [task for step in self.flat.steps if (task := self._task(step, False)) is not None]
        final = [task for step in self.flat.on_exit if (task := self._task(step, True)) is not None]
        spec: dict[str, Any] = {}
        if self.workflow.doc:
            spec["description"] = self.workflow.doc
        if self.workflow.params:
            spec["params"] = [self._param(param) for param in self.workflow.params]
        if self.shared:
            spec["workspaces"] = [{"name": name} for name in sorted(self.shared)]
        spec["tasks"] = tasks
        if final:
            spec["finally"] = final
        results = [result for name, value in self.flat.outputs.items() if (result := self._result(name, value))]
        if results:
            spec["results"] = results
        self._tell_of_the_whole()
        pipeline = {"apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": self.name}, "spec": spec}
        return [*self.beside.values(), pipeline, self._run()]

    def _run(self) -> dict[str, Any]:
        labels = {**self.workflow.labels}
        if self.workflow.queue:
            labels[QUEUE] = self.workflow.queue
        if isinstance(self.workflow.priority, str) and self.workflow.priority:
            labels[PRIORITY] = self.workflow.priority
        metadata: dict[str, Any] = {"generateName": f"{self.name}-"}
        if labels:
            metadata["labels"] = labels
        annotations = thawed(part(self.workflow.extra, "metadata", "annotations"))
        if annotations:
            metadata["annotations"] = annotations
        spec: dict[str, Any] = {"pipelineRef": {"name": self.name}, "timeouts": self._timeouts()}
        # The run refers to the pipeline by name, and it may change while this run waits.
        values = [
            {
                "name": self.names.params[param.name],
                "value": _default(param.default, self.names.kind_of(("params", param.name))),
            }
            for param in self.workflow.params
            if param.default is not MISSING
        ]
        if values:
            spec["params"] = values
        if self.shared:
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": _STORAGE}}}
            spec["workspaces"] = [
                {"name": name, "volumeClaimTemplate": {"spec": thawed(claim)}} for name in sorted(self.shared)
            ]
        if self.run_specs:
            spec["taskRunSpecs"] = self.run_specs
        return {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata, "spec": spec}

    def _timeouts(self) -> dict[str, str]:
        """The timeout of a PipelineRun runs while its tasks queue, so a run with a queue has none."""
        timeout = self.workflow.timeout
        queued = self.workflow.queue or any(step.queue for step in self.steps.values())
        if timeout is None or queued:
            if timeout is not None:
                said = "a PipelineRun that queues has no timeout: its clock would run while it waits"
                self.report.lost("timeout", said, "give the steps timeouts", self.workflow.source)
            return {"pipeline": "0"}
        return {"pipeline": "0", "tasks": duration(timeout)} if self.flat.on_exit else {"pipeline": duration(timeout)}

    def _tell_of_the_whole(self) -> None:
        workflow, tell = self.workflow, self.report
        if not workflow.fail_fast and len(self.flat.steps) > 1:
            said = "the first failure stops all that has not begun"
            tell.changed("fail_fast", said, "run steps that must go on with tolerates", workflow.source)
        if workflow.parallel is not None:
            tell.lost("parallel", "how many tasks run at a time is not limited", "give them a queue", workflow.source)
        report_run_limits(tell, workflow, "Tekton")
        if any(one.enough is not None for one in (workflow, *workflow.definitions)):
            said = "a PipelineRun ends when all of it has ended, not when enough has succeeded"
            tell.lost("enough", said, source=workflow.source)
        if workflow.locks:
            tell.lost("locks", "Tekton has no locks", source=workflow.source)
        if workflow.priority is not None and not isinstance(workflow.priority, str):
            said = "a priority is the name of a class, not a number"
            tell.lost("priority", said, "make a WorkloadPriorityClass and name it", workflow.source)
        if workflow.unit is not None:
            tell.changed(
                "unit", "how it is cut into reservations is for whoever admits it to say", source=workflow.source
            )
        for name in sorted(set(workflow.extra) - {"metadata", "tekton", "format"}):
            tell.lost(f"extra.{name}", f"what only {name} has a word for", source=workflow.source)

    def _param(self, param: Parameter) -> dict[str, Any]:
        kind = self.names.kind_of(("params", param.name))
        found: dict[str, Any] = {"name": self.names.params[param.name], "type": kind}
        if param.doc:
            found["description"] = param.doc
        if kind == "object":
            keys = sorted(self.names.kinds.objects["params", param.name])
            found["properties"] = {key: {"type": "string"} for key in keys}
        if param.default is not MISSING:
            found["default"] = _default(param.default, kind)
            if any(looks_like_a_variable(text) for text in texts_in(found["default"])):
                said = f"the default of {param.name!r} would be taken for a variable, and there is no escape"
                fix = "give it to the step as a value"
                self.problems.append(
                    Problem("P851", said, fix, where=f"params.{param.name}", source=self.workflow.source)
                )
        if param.choices:
            said = f"that {param.name!r} is one of {len(param.choices)} values is not checked"
            self.report.lost(
                f"params.{param.name}.choices", said, "Tekton's enum is behind a flag", self.workflow.source
            )
        return found

    def _result(self, name: str, value: Value) -> dict[str, Any] | None:
        try:
            given, kind = TextWriter(self._results()).whole(value)
        except NotInTekton as error:
            said = f"the output {name!r}: {error}"
            self.report.lost(f"outputs.{name}", said, "let a step give the value", self.workflow.source)
            return None
        return {"name": self.names.result_name(name), "type": kind, "value": given}

    def _results(self) -> Any:
        """Results of final tasks have another prefix."""
        inner = self.names.resolve(False)

        def resolve_path(path: tuple[str, ...]) -> tuple[TektonPath, tuple[str, ...]] | None:
            found = inner(path)
            if found is not None and path[0] == "steps" and path[1] in self.exits:
                return TektonPath(found[0].text.replace("tasks.", "finally.", 1), found[0].kind), found[1]
            return found

        return resolve_path

    # -- one task -----------------------------------------------------------------------------------------------------

    def _wrong(self, code: str, step: Step, message: str, fix: str) -> None:
        self.problems.append(Problem(code, message, fix, where=f"steps.{step.name}", source=step.source))

    def _task(self, step: Step, final: bool) -> dict[str, Any] | None:
        if not self._can_be_said(step, final):
            return None
        try:
            return self._said(step, final)
        except NotInTekton as error:
            fix = "work it out in a step and hand it on as a result"
            self._wrong("P851", step, f"{step.name!r}: {error}", fix)
            return None

    def _can_be_said(self, step: Step, final: bool) -> bool:
        before = len(self.problems)
        fixes: Mapping[type, str] = {
            Suspend: "use a custom task that waits for approval",
            Http: "call it from a container: curl, python",
            Resource: "call kubectl from a container",
            Nested: "write it out",
        }
        fix = fixes.get(type(step.action))
        if fix is not None:
            self._wrong("P850", step, f"{step.name!r}: Tekton has no {step.action.kind} steps", fix)
        if step.loop is not None:
            self._wrong(
                "P850", step, f"{step.name!r}: a while loop", "loop inside the program, or run it with Penstock"
            )
        if step.replicas > 1:
            fix = "use a JobSet, or run it with Penstock"
            self._wrong("P850", step, f"{step.name!r}: a task of Tekton is one pod, not {step.replicas}", fix)
        if step.trigger is not None:
            fix = "use `when` over results, or move the step to on_exit"
            self._wrong("P852", step, f"{step.name!r}: it depends on how other steps ended", fix)
        if final:
            self._check_handler(step)
        else:
            self._check_edges(step)
        return len(self.problems) == before

    def _check_handler(self, step: Step) -> None:
        for up in edges_of(step):
            if up in self.exits:
                fix = "put both into one step"
                self._wrong("P852", step, f"{step.name!r} waits for {up!r}: what runs at the end has no order", fix)

    def _check_edges(self, step: Step) -> None:
        for up, outcomes in edges_of(step).items():
            producer = self.steps.get(up)
            if producer is None or up in self.exits:
                fix = "name a step that the workflow has"
                self._wrong("P852", step, f"{step.name!r} waits for {up!r}, which has no form in Tekton", fix)
            elif producer.tolerates & BAD:
                if not outcomes >= BAD:
                    said = f"{step.name!r} runs also after {up!r} has failed, which is tolerated"
                    self.report.changed(f"steps.{step.name}.needs", said, "", step.source)
            elif outcomes & BAD or Outcome.SUCCEEDED not in outcomes or Outcome.OMITTED in outcomes:
                said = ", ".join(sorted(outcomes))
                fix = "let it tolerate failure, or move what follows a failure to on_exit"
                self._wrong("P852", step, f"{step.name!r} goes on when {up!r} is {said}", fix)

    def _said(self, step: Step, final: bool) -> dict[str, Any]:
        outer = TextWriter(self.names.resolve(final), self.special[final])
        task: dict[str, Any] = {"name": self.tasks[step.name]}
        if step.doc:
            task["description"] = step.doc
        when = self._when(step, outer)
        named = part(step.extra, "tekton").get("taskRef")
        if isinstance(named, Mapping):
            spec = TaskSpec({}, [{"name": one.name, "value": outer.text(one.value)} for one in step.inputs])
            task["taskRef"] = thawed(named)
        else:
            spec = self._spec(step, outer)
            task["taskSpec"] = spec.task
        if spec.params:
            task["params"] = spec.params
        if step.each is not None:
            task["matrix"] = self._matrix(step, spec, outer)
        if when:
            task["when"] = when
        after = [] if final else self._after(step, task)
        if after:
            task["runAfter"] = after
        self._policies(step, task)
        if spec.workspaces:
            task["workspaces"] = spec.workspaces
        if "taskSpec" in task and any(NOTHING in text for text in texts_in(task)):
            spec.task.setdefault("workspaces", []).append({"name": EMPTY, "optional": True})
        self.shared |= spec.shared
        self._run_spec(step, task["name"], spec.task)
        return task

    def _spec(self, step: Step, outer: TextWriter) -> TaskSpec:
        shop = TaskContext(
            self.report,
            outer,
            self.names.kind_of,
            self.names.keys_of,
            self.names.file_of,
            self._config_map,
            self._code,
            self.names.result_name,
        )
        return SpecWriter(shop, step, self.tasks[step.name]).made()

    def _when(self, step: Step, outer: TextWriter) -> list[dict[str, Any]]:
        """Its own conditions, and those of steps that must have succeeded and not only been skipped."""
        found = [] if step.when is None else self._conditions(step, step, outer)
        read = {
            path[1]
            for _, value in step_values(step)
            for one in expressions(value)
            for path in references(one.text)
            if path[0] == "steps" and path[2:3] == ("outputs",)
        }
        for edge in step.needs:
            producer = self.steps.get(edge.step)
            if producer is None or edge.step in read or Outcome.SKIPPED in edge.outcomes or producer.when is None:
                continue
            found += [one for one in self._conditions(producer, step, outer) if one not in found]
        for up in read - self.exits:
            self._tell_of_skips(step, self.steps.get(up))
        return found

    def _conditions(self, owner: Step, step: Step, outer: TextWriter) -> list[dict[str, Any]]:
        assert owner.when is not None
        try:
            guarded = owner.name in self.exits or owner.tolerates
            condition = _without_guards(owner.when) if guarded else owner.when
            return [] if condition is None else outer.when(condition)
        except NotInTekton as error:
            said = f"{step.name!r}: the condition {owner.when.text[:120]} cannot be said with in and notin: {error}"
            fix = 'let a step work it out, give it as a result, and compare that: steps.check.outputs.ok == "true"'
            self._wrong("P851", step, said, fix)
            return []

    def _tell_of_skips(self, step: Step, producer: Step | None) -> None:
        if producer is None or (producer.when is None and producer.each is None) or producer.name in self.exits:
            return
        edges = edges_of(step)
        if Outcome.SKIPPED in edges.get(producer.name, NORMAL):
            said = f"{step.name!r} is left out if {producer.name!r} is skipped, for it reads what that gives"
            near = "Tekton knows no default for a result that is missing"
            self.report.changed(f"steps.{step.name}", said, near, step.source)

    def _after(self, step: Step, task: Mapping[str, Any]) -> list[str]:
        """Dependencies that do not follow from results in parameters and conditions."""
        text = to_text(thawed({key: task.get(key) for key in ("params", "matrix", "when")}))
        found = []
        for up in edges_of(step):
            name = self.tasks.get(up, up)
            if f"$(tasks.{name}.results." not in text:
                found.append(name)
        return found

    def _policies(self, step: Step, task: dict[str, Any]) -> None:
        where, tell = f"steps.{step.name}", self.report
        if step.retry is not None and step.retry.limit:
            self._retries(step, task)
        if step.timeout is not None:
            task["timeout"] = duration(step.timeout)
        if step.tolerates & BAD:
            task["onError"] = "continue"
            if task.pop("retries", None) is not None:
                tell.lost(f"{where}.retry", "Tekton takes onError: continue or retries, not both", source=step.source)
        if step.locks:
            tell.lost(f"{where}.locks", "Tekton has no locks", source=step.source)
        if step.cache.key is not None or step.cache.ttl is not None:
            tell.lost(f"{where}.cache", "Tekton keeps no results for later", source=step.source)
        if step.group is not None:
            tell.changed(f"{where}.group", "each task is a stage of its own", source=step.source)
        for given in step.inputs:
            if given.default is not MISSING:
                tell.lost(
                    f"{where}.inputs.{given.name}.default",
                    "Tekton knows no default for a missing result",
                    source=step.source,
                )
        for name in sorted(
            set(step.extra) - {"metadata", "pod", "container", "containers", "tekton", "sample", "unrunnable"}
        ):
            tell.lost(f"{where}.extra.{name}", f"what only {name} has a word for", source=step.source)

    def _retries(self, step: Step, task: dict[str, Any]) -> None:
        retry, where = step.retry, f"steps.{step.name}.retry"
        assert retry is not None
        task["retries"] = retry.limit
        lost = [
            name
            for name, is_lost in (
                ("backoff", retry.backoff.initial > 0 and retry.backoff != Backoff()),
                ("on", set(retry.on) < {"failed", "errored", "timeout"}),
                ("exit_codes", bool(retry.exit_codes)),
                ("exceptions", bool(retry.exceptions)),
                ("when", retry.when is not None),
                ("within", retry.within is not None),
            )
            if is_lost
        ]
        for name in lost:
            self.report.lost(f"{where}.{name}", "Tekton tries again at once, whatever went wrong", source=step.source)

    def _run_spec(self, step: Step, task: str, spec: dict[str, Any]) -> None:
        pod = {**placement_fields(step.placement)}
        kept = part(step.extra, "pod")
        found: dict[str, Any] = {"pipelineTaskName": task}
        for name, value in kept.items():
            if name in _POD_FIELDS:
                pod[name] = thawed(value)
            elif name == "serviceAccountName":
                found["serviceAccountName"] = value
            elif name not in ("nodeSelector", "tolerations", "affinity", "restartPolicy"):
                said = f"a pod template of Tekton has no {name}"
                self.report.lost(f"steps.{step.name}.pod.{name}", said, source=step.source)
        if pod:
            found["podTemplate"] = pod
            _once(spec, pod)
        labels = {}
        if step.queue and step.queue != self.workflow.queue:
            labels[QUEUE] = step.queue
        if isinstance(step.priority, str) and step.priority != self.workflow.priority:
            labels[PRIORITY] = step.priority
        if labels:
            found["metadata"] = {"labels": labels}
        if len(found) > 1:
            self.run_specs.append(found)

    # -- loops --------------------------------------------------------------------------------------------------------

    def _matrix(self, step: Step, spec: TaskSpec, outer: TextWriter) -> dict[str, Any]:
        assert step.each is not None
        where = f"steps.{step.name}.each"
        if step.each.parallel is not None:
            said = "how many of its tasks run at a time is not limited"
            self.report.lost(f"{where}.parallel", said, "give the step a queue", step.source)
        if step.each.gang:
            self.report.lost(f"{where}.gang", "its tasks need not start together", source=step.source)
        names = dict(spec.carriers)
        for variable in (variable for axis in step.each.axes for variable in axis):
            if not any(key.partition(".")[0] == variable for key in names):  # it is not read, but it must exist
                taken = {one["name"] for one in spec.task.get("params", ())}
                names[variable] = variable if variable not in taken else f"{variable}-item"
                spec.task.setdefault("params", []).append({"name": names[variable], "type": "string"})
        plain = all(len(axis) == 1 and set(axis) <= set(names) for axis in step.each.axes)
        if not plain or len(names) > len(step.each.axes) or _dependent(step):
            return {"include": self._written_out(step, names)}
        pairs = [(variable, items) for axis in step.each.axes for variable, items in axis.items()]
        params = [
            {"name": names[variable], "value": self._items(step, variable, items, outer)}
            for variable, items in reversed(pairs)
        ]
        sizes = [len(one["value"]) for one in params if isinstance(one["value"], list)]
        if len(sizes) == len(params):
            self._tell_of_size(step, prod(sizes))
        return {"params": params}

    def _items(self, step: Step, variable: str, items: Value, outer: TextWriter) -> Any:
        try:
            return outer.given(items, "array")
        except NotInTekton as error:
            said = f"{step.name!r}: the items of {variable!r}: {error}"
            fix = "let a step give the list as its result, declared as list[str]"
            self._wrong("P853", step, said, fix)
            return []

    def _written_out(self, step: Step, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Variables that advance together, depend on one another, or have fields: literal combinations."""
        assert step.each is not None
        try:
            found = list(combinations(step.each.axes, lambda value: value))
        except (EvaluationError, ValueError):
            said = f"{step.name!r}: variables that advance together or have fields, over lists known only when it runs"
            self._wrong("P853", step, said, "loop over one list, or write the items out")
            return []
        self._tell_of_size(step, len(found))
        return [
            {
                "name": f"item-{number}",
                "params": [{"name": name, "value": guarded(to_text(_field(one, key)))} for key, name in names.items()],
            }
            for number, one in enumerate(found)
        ]

    def _tell_of_size(self, step: Step, size: int) -> None:
        if size > MOST_COMBINATIONS:
            said = f"{size} tasks: Tekton takes {MOST_COMBINATIONS}"
            near = "raise default-max-matrix-combinations-count in its config-defaults"
            self.report.changed(f"steps.{step.name}.each", said, near, step.source)

    # -- beside it ----------------------------------------------------------------------------------------------------

    def _config_map(self, name: str, files: Mapping[str, Value], words: TextWriter) -> str:
        """Files of a mount as a ConfigMap."""
        data = {}
        for path, text in files.items():
            if isinstance(text, Expr | Template):
                raise NotInTekton(f"the file {path!r} would have to be made while it runs")
            data[path.replace("/", "..")] = to_text(text)
        digest = short_digest(repr(sorted(data.items())))
        own = label(f"{self.name}-{name}-{digest}")
        self.beside[own] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": own}, "data": data}
        return own

    def _code(self) -> list[str]:
        """The author's code, in as many ConfigMaps as needed. Changed code gets other names, so a waiting run keeps its own code."""
        text = shim.payload(self.payload)
        digest = short_digest(text)
        names = []
        for number, at in enumerate(range(0, max(1, len(text)), _CHUNK)):
            name = label(f"{self.name}-code-{digest}-{number}")
            data = {f"{number:03}": text[at : at + _CHUNK]}
            self.beside[name] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
            names.append(name)
        return names


def _once(spec: dict[str, Any], pod: Mapping[str, Any]) -> None:
    """A volume that the pod template has is not declared in the task again."""
    there = {one["name"] for _, one in items(pod, "volumes") if "name" in one}
    volumes = [one for one in spec.pop("volumes", ()) if one["name"] not in there]
    if volumes:
        spec["volumes"] = volumes


def _without_guards(condition: Expr) -> Expr | None:
    """Tekton itself skips a final task whose results are missing."""
    kept: Node | None = None
    rest = [condition.node]
    while rest:
        node = rest.pop(0)
        match node:
            case Binary("&&", left, right):
                rest[:0] = [left, right]
            case Binary("in", Const(str()), of) if (path_of(of) or ())[0::2] == ("steps", "outputs"):
                continue
            case Binary("in", of, ListOf(items)) if (path_of(of) or ())[0::2] == ("steps", "outcome") and len(
                items
            ) == 3:
                continue
            case _:
                kept = node if kept is None else Binary("&&", kept, node)
    return None if kept is None else Expr.tree(kept)


def _default(value: Value, kind: Kind) -> Any:
    plain = resolve(value, {})
    if kind == "array":
        return [to_text(one) for one in plain]
    return {key: to_text(one) for key, one in plain.items()} if kind == "object" else to_text(plain)


def _field(item: Mapping[str, Any], key: str) -> Any:
    """`x.os` of the variables of one task."""
    found: Any = item
    for name in key.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise NotInTekton(f"an item has no {key!r}")
        found = found[name]
    return found


def _dependent(step: Step) -> bool:
    assert step.each is not None
    return any(
        path[0] == "item"
        for axis in step.each.axes
        for items in axis.values()
        for one in expressions(items)
        for path in references(one.text)
    )
