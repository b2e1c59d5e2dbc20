"""The template of a step: its leaf template, and dags around it if one call is more than one pod. Called by flow, once for each step.

while          a dag that runs the step's template and then calls itself while the condition holds
replicas       a dag that runs the template once for each replica, with its number
for-each       with a limit of its own, or read by an exit handler: a dag with the loop in it
retries        of a called workflow: a dag around the call
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.expressions.parse import Expr, reference, references
from penstock.expressions.types import STR, Type
from penstock.formats.argo.write.context import InputSlot, OutputAccess, TemplateInterface, WriteContext, section
from penstock.formats.argo.write.expr import ExprWriter, condition, direct
from penstock.formats.argo.write.items import items_of
from penstock.formats.argo.write.leaf import REPLICA, has_replicas, leaf
from penstock.formats.argo.write.pod import thawed
from penstock.formats.argo.write.policies import memoize, retry_strategy, synchronization
from penstock.formats.argo.write.slots import Varied, argument, slots_of
from penstock.formats.argo.write.types import WorkflowTypes
from penstock.formats.argo.write.variables import ArgoVariable, Find, NotInArgo, of_run, tagged
from penstock.formats.documents import part
from penstock.graph.model import MISSING, Function, Input, Nested, Step, Value, While, Workflow, expressions

CALL: Final = "call"
"""The one task of a dag around a call."""
ROUND: Final = "penstock-round"
DEEPEST: Final = 40
"""The most nested calls of a loop. Argo allows a hundred, and the workflow around it needs some."""
MOST_BODIES: Final = 50
_DEPTH: Final = {"params": 2, "steps": 4, "item": 2, "workflow": 2}


@dataclass(frozen=True, slots=True)
class Callee:
    """A workflow that can be called."""

    template: str
    workflow: Workflow
    handler: str = ""
    """The template of its exit handlers."""
    wanted: Collection[str] = ()
    """Parameters that those read."""
    outcome: Mapping[str, str] = field(default_factory=dict)
    """Their other arguments."""


class TemplateWriter:
    """`published`: step -> output -> global name."""

    def __init__(
        self,
        context: WriteContext,
        typing: WorkflowTypes,
        callees: Mapping[str, Callee],
        varied: Mapping[int, Varied],
        where: str,
    ) -> None:
        self.context = context
        self.typing = typing
        self.callees = callees
        self.varied = varied
        self.where = where
        self.published: dict[str, dict[str, str]] = {}
        self._made: dict[str, TemplateInterface] = {}
        self._leaves: dict[Any, TemplateInterface] = {}

    def made(self, step: Step) -> TemplateInterface:
        found = self._made.get(step.name)
        if found is None:
            found = self._made[step.name] = self._make(step)
        return found

    def encloses(self, step: Step) -> bool:
        """Is its loop inside the template?"""
        return step.each is not None and (step.each.parallel is not None or step.name in self.published)

    def _make(self, step: Step) -> TemplateInterface:
        made = self._called(step) if isinstance(step.action, Nested) else self._leaf(step)
        if has_replicas(step):
            made = self._replicated(step, made)
        if step.loop is not None:
            made = self._repeated(step, step.loop, made)
        if self.encloses(step):
            return self._looped(step, made)
        if step.name in self.published and self._not_published(step, made):
            return self._wrapped(step, made, {})
        return made

    def _not_published(self, step: Step, made: TemplateInterface) -> bool:
        """A leaf publishes its outputs under global names itself, except its printed result."""
        inside = not isinstance(step.action, Nested) and not has_replicas(step) and step.loop is None
        return not inside or any(made.outputs[name].kind == "result" for name in self.published[step.name])

    # -- what it does itself

    def _leaf(self, step: Step) -> TemplateInterface:
        extra: list[InputSlot] = []
        if id(step) in self.varied:
            step, extra = self.varied[id(step)]
        step, slots = slots_of(step, self.typing.typed(step))
        slots += extra
        if has_replicas(step):
            slots.append(InputSlot(REPLICA, "0", STR))
        published = self.published.get(step.name, {})
        key = _shape(step, slots, published)
        known = self._leaves.get(key) if key is not None else None
        if known is None:
            action = step.action
            hint = action.name.rpartition(".")[2] if isinstance(action, Function) else step.name
            known = leaf(self.context, step, slots, published, hint)
            if key is not None:
                self._leaves[key] = known
        return TemplateInterface(known.template, slots, known.outputs)

    def _called(self, step: Step) -> TemplateInterface:
        assert isinstance(step.action, Nested)
        callee = self.callees[step.action.name]
        workflow = callee.workflow
        params = {param.name: param for param in workflow.params}
        inputs = tuple(given for given in step.inputs if given.name in params)
        step = dataclasses.replace(step, inputs=tuple(_as_declared(given, params[given.name].type) for given in inputs))
        _, slots = slots_of(step, self.typing.typed(step))
        slots = [dataclasses.replace(slot, path=None) for slot in slots]
        outputs = {
            output.name: OutputAccess("artifacts" if _is_file(output.type) else "parameters", output.name, output.type)
            for output in workflow.outputs
        }
        made = TemplateInterface(callee.template, slots, outputs)
        around = self._around_call(step)
        if not callee.handler:
            return self._wrapped(step, made, around) if around else made
        given = _arguments([slot for slot in slots if slot.name in callee.wanted], callee.outcome)
        return self._wrapped(step, made, around, {"hooks": {"exit": {"template": callee.handler, **given}}})

    def _around_call(self, step: Step) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if step.retry is not None:
            found["retryStrategy"] = retry_strategy(self.context, step, step.retry)
        if step.timeout is not None:
            message = "Argo has no time limit for a call of a workflow"
            self.context.remark(
                "lost", message, step, f"{self.where}steps.{step.name}.timeout", "Limit its steps, or the whole."
            )
        if step.locks or (step.cache.key is not None and step.cache.enabled):
            known = {given.name for given in step.inputs}

            def find(path: tuple[str, ...]) -> ArgoVariable | None:
                inside = path[0] == "inputs" and path[1] in known
                return ArgoVariable(("inputs", "parameters", path[1]), STR, 2) if inside else None

            if step.locks:
                found["synchronization"] = synchronization(self.context, step.locks, find)
            if step.cache.key is not None and step.cache.enabled:
                found["memoize"] = memoize(self.context, step, find)
        return {**found, **thawed(part(step.extra, "argo"))}

    # -- a dag around it

    def _wrapped(
        self, step: Step, inner: TemplateInterface, around: Mapping[str, Any], hooks: Mapping[str, Any] | None = None
    ) -> TemplateInterface:
        task = {"name": CALL, "template": inner.template, **_arguments(inner.slots), **(hooks or {})}
        outputs = self._passed_on(step, inner, lambda access: ArgoVariable(_path(CALL, access)).tag)
        body = {**_inputs(inner.slots), **outputs, "dag": {"tasks": [task]}, **around}
        return TemplateInterface(self.context.share(f"{step.name}-call", body), inner.slots, _as_parameters(inner))

    def _passed_on(self, step: Step, inner: TemplateInterface, tag: Callable[[OutputAccess], str]) -> dict[str, Any]:
        """Outputs of a dag that are outputs of one of its tasks."""
        published = self.published.get(step.name, {})
        parameters, artifacts = [], []
        for name, access in inner.outputs.items():
            called = {"globalName": published[name]} if name in published else {}
            if access.kind == "artifacts":
                artifacts.append({"name": name, "from": tag(access), **called})
            else:
                parameters.append({"name": name, "valueFrom": {"parameter": tag(access)}, **called})
        return section("outputs", {"parameters": parameters, "artifacts": artifacts})

    def _replicated(self, step: Step, inner: TemplateInterface) -> TemplateInterface:
        """The first replica and the others, which start together. The outputs are those of the first."""
        message = "Argo starts the replicas one by one; that all start or none is not kept"
        self.context.remark(
            "lost", message, step, f"{self.where}steps.{step.name}.replicas", "Gate the workflow: penstock gate."
        )
        slots = [slot for slot in inner.slots if slot.name != REPLICA]
        first = {"name": "first", "template": inner.template, **_arguments(slots, {REPLICA: "0"})}
        others = {"name": "others", "template": inner.template, **_arguments(slots, {REPLICA: "{{item}}"})}
        others["withSequence"] = {"start": "1", "end": str(step.replicas - 1)}
        outputs = self._passed_on(step, inner, lambda access: ArgoVariable(_path("first", access)).tag)
        body = {**_inputs(slots), **outputs, "dag": {"tasks": [first, others]}}
        if step.retry is not None:
            body["retryStrategy"] = retry_strategy(self.context, step, step.retry)
        return TemplateInterface(self.context.share(f"{step.name}-replicas", body), slots, _as_parameters(inner))

    def _looped(self, step: Step, inner: TemplateInterface) -> TemplateInterface:
        """A dag with the loop in it. Every value that the loop reads is an input of the dag."""
        assert step.each is not None
        values: list[Value] = [slot.value for slot in inner.slots]
        values += [value for axis in step.each.axes for value in axis.values()]
        if step.when is not None and _reads_item(step.when):
            values.append(step.when)
        slots, find = self._closed(step, values)
        as_values = isinstance(step.action, Function)
        reads = [
            path
            for value in values
            for expr in expressions(value)
            for path in references(expr.text)
            if path[0] == "item"
        ]
        items = items_of(step.each, find, self.typing.variables(step), reads, as_values)

        def inside(path: tuple[str, ...]) -> ArgoVariable | None:
            return items.find(path) if path[0] == "item" else find(path)

        task = {"name": "each", "template": inner.template, **arguments_of(inner.slots, inside), **items.fields}
        if step.when is not None and _reads_item(step.when):
            task["when"] = condition(step.when, inside)
        outputs = self._passed_on(step, inner, lambda access: ArgoVariable(_path("each", access)).tag)
        if "artifacts" in outputs.get("outputs", {}):
            del outputs["outputs"]["artifacts"]
        body: dict[str, Any] = {**_inputs(slots), **outputs, "dag": {"failFast": False, "tasks": [task]}}
        if step.each.parallel is not None:
            body["parallelism"] = step.each.parallel
        kept = {name: access for name, access in _as_parameters(inner).items() if access.kind != "artifacts"}
        return TemplateInterface(self.context.share(f"{step.name}-each", body), slots, kept)

    def _closed(self, step: Step, values: Iterable[Value], taken: Iterable[str] = ()) -> tuple[list[InputSlot], Find]:
        """The values that are read from the workflow around, as inputs with new names, and their variables."""
        typed = self.typing.typed(step)
        slots: dict[tuple[str, ...], InputSlot] = {}
        names = set(taken)
        for value in values:
            for expr in expressions(value):
                for path in references(expr.text):
                    depth = _DEPTH.get(path[0], 0) if path[0] != "item" else 0
                    depth = 3 if path[0] == "steps" and path[2:3] != ("outputs",) else depth
                    if depth and path[:depth] not in slots:
                        read = Expr.tree(reference(*path[:depth]))
                        type_, gathered, absent = typed(read)
                        name = "-".join(part for part in path[1:depth] if part != "outputs")
                        while name in names:
                            name += "-"
                        names.add(name)
                        slots[path[:depth]] = InputSlot(
                            name, read, type_, "raw", _is_file(type_), default=absent, gathered=gathered
                        )

        def find(path: tuple[str, ...]) -> ArgoVariable | None:
            for depth in (4, 3, 2):
                slot = slots.get(path[:depth]) if len(path) >= depth else None
                if slot is not None:
                    kind = "artifacts" if slot.artifact else "parameters"
                    return ArgoVariable(
                        ("inputs", kind, slot.name), slot.type, depth, slot.gathered, status=path[-1] == "outcome"
                    )
            return of_run(path)

        return list(slots.values()), find

    # -- while

    def _repeated(self, step: Step, loop: While, inner: TemplateInterface) -> TemplateInterface:
        template = self.context.names.fresh(f"{step.name}-while")
        each = min(MOST_BODIES, max(1, math.ceil(loop.max_iterations / DEEPEST)))
        if loop.max_iterations > each * DEEPEST * 2:
            message = f"calls inside one another are limited in Argo: the loop may go round about {each * DEEPEST * 2:,} times"
            self.context.remark(
                "changed", message, step, f"{self.where}steps.{step.name}.loop", "Lower max_iterations."
            )
        writer = _Loop(self, step, loop, inner, template, each)
        self.context.put(template, writer.body())
        made = TemplateInterface(template, writer.slots, _as_parameters(inner))
        return writer.guarded(made) if loop.test == "before" else made


class _Loop:
    """A dag of some rounds in a row and a call of itself. A round starts if the one before succeeded and the condition holds."""

    def __init__(
        self, templates: TemplateWriter, step: Step, loop: While, inner: TemplateInterface, template: str, rounds: int
    ) -> None:
        self.templates, self.step, self.loop, self.inner = templates, step, loop, inner
        self.template = template
        self.names = [f"round-{number + 1}" for number in range(rounds)]
        self.own = {slot.name: slot for slot in inner.slots}
        outer, self.outer = templates._closed(step, [loop.condition], self.own)
        self.slots = [*inner.slots, *outer, InputSlot(ROUND, "1", STR)]

    def body(self) -> dict[str, Any]:
        tasks = []
        for number, name in enumerate(self.names):
            before = self.names[number - 1] if number else None
            task: dict[str, Any] = {
                "name": name,
                "template": self.inner.template,
                **self.given(self.inner.slots, before),
            }
            if before is not None:
                task |= {"depends": f"{before}.Succeeded", "when": self.again(before, number)}
            tasks.append(task)
        last, count = self.names[-1], len(self.names)
        passed = self.given([slot for slot in self.slots if slot.name != ROUND], last)
        parameters = passed.setdefault("arguments", {}).setdefault("parameters", [])
        parameters.append({"name": ROUND, "value": tagged(f"toJson(asInt(inputs.parameters['{ROUND}']) + {count})")})
        tasks.append(
            {
                "name": "again",
                "template": self.template,
                **passed,
                "depends": f"{last}.Succeeded",
                "when": self.again(last, count),
            }
        )
        if self.loop.at_limit == "fail":
            tasks.append(self.limit())
        return {**_inputs(self.slots), **self.outputs(), "dag": {"tasks": tasks}}

    def given(self, slots: Sequence[InputSlot], before: str | None) -> dict[str, Any]:
        """Inputs of a round: those of the dag, or outputs of the round before."""
        carried = (
            {}
            if before is None
            else {
                name: ArgoVariable(_path(before, self.inner.outputs[output])).tag
                for name, output in self.loop.carry.items()
                if output in self.inner.outputs
            }
        )
        return _arguments(slots, carried)

    def again(self, before: str, number: int) -> str:
        """May another round start after `number` rounds of this dag?"""
        code = ExprWriter(self.after(before)).code(self.loop.condition.node)
        if not self.may_be_last(number):
            return tagged(code.text)
        return tagged(f"{code.at(3)} && {self.rounds(number)} < {self.loop.max_iterations}")

    def may_be_last(self, number: int) -> bool:
        """Every call of the dag has the same number of rounds, so the limit is always reached at the same round."""
        return (self.loop.max_iterations - number) % len(self.names) == 0

    def rounds(self, number: int) -> str:
        """The number of rounds so far."""
        return f"asInt(inputs.parameters['{ROUND}']) + {number - 1}"

    def after(self, name: str) -> Find:
        """The variables of the condition after a round."""
        carried = self.loop.carry if self.loop.test == "before" else {}

        def find(path: tuple[str, ...]) -> ArgoVariable | None:
            match path:
                case ("outputs", output, *_) if output in self.inner.outputs:
                    return self._output(name, output)
                case ("inputs", one, *_) if one in carried and carried[one] in self.inner.outputs:
                    return self._output(name, carried[one])
                case ("inputs", one, *_) if one in self.own:
                    return ArgoVariable(("inputs", "parameters", one), self.own[one].type, 2, self.own[one].gathered)
            return self.outer(path)

        return find

    def _output(self, name: str, output: str) -> ArgoVariable:
        access = self.inner.outputs[output]
        if access.kind == "artifacts":
            raise NotInArgo(
                f"the condition of the loop looks into the file {output}", "give out what it needs as a value"
            )
        return ArgoVariable(_path(name, access), access.type, 2)

    def outputs(self) -> dict[str, Any]:
        """The outputs of the last round."""
        parameters, artifacts = [], []
        for output, access in self.inner.outputs.items():
            as_parameter = OutputAccess("parameters" if access.kind == "result" else access.kind, output)
            code = ArgoVariable(_path(self.names[0], access)).text
            for name in self.names[1:]:
                code = f"tasks['{name}'].status == 'Succeeded' ? {ArgoVariable(_path(name, access)).text} : ({code})"
            code = (
                f"tasks['again'].status == 'Succeeded' ? {ArgoVariable(_path('again', as_parameter)).text} : ({code})"
            )
            if access.kind == "artifacts":
                artifacts.append({"name": output, "fromExpression": code})
            else:
                parameters.append({"name": output, "valueFrom": {"expression": code}})
        return section("outputs", {"parameters": parameters, "artifacts": artifacts})

    def limit(self) -> dict[str, Any]:
        """Fails if the condition still holds at the limit."""
        context = self.templates.context
        words = f"the condition still holds after {self.loop.max_iterations} rounds"
        code = f"import sys; sys.exit({words!r})"
        name = context.share(
            "penstock-limit", {"container": {"image": context.image, "command": ["python3", "-c", code]}}
        )
        number = (self.loop.max_iterations - 1) % len(self.names) + 1
        before = self.names[number - 1]
        holds = ExprWriter(self.after(before)).code(self.loop.condition.node).at(3)
        when = tagged(f"{holds} && {self.rounds(number)} >= {self.loop.max_iterations}")
        return {"name": "limit", "template": name, "depends": f"{before}.Succeeded", "when": when}

    def guarded(self, made: TemplateInterface) -> TemplateInterface:
        """A condition that is also tested before the first round: there may be no round, and then the inputs are the outputs."""

        def find(path: tuple[str, ...]) -> ArgoVariable | None:
            if path[0] == "inputs" and path[1] in self.own:
                return ArgoVariable(
                    ("inputs", "parameters", path[1]), self.own[path[1]].type, 2, self.own[path[1]].gathered
                )
            return self.outer(path)

        slots = [slot for slot in self.slots if slot.name != ROUND]
        when = tagged(ExprWriter(find).boolean(self.loop.condition.node))
        task = {"name": "loop", "template": made.template, **_arguments(slots, {ROUND: "1"}), "when": when}
        back = {output: name for name, output in self.loop.carry.items()}
        parameters = []
        for output, access in made.outputs.items():
            if access.kind == "artifacts":
                raise NotInArgo(
                    f"{output} is a file, and the loop may go round not once", "test the condition after each round"
                )
            inner = ArgoVariable(_path("loop", access)).text
            other = ArgoVariable(("inputs", "parameters", back[output])).text if output in back else "''"
            code = f"tasks['loop'].status == 'Succeeded' ? {inner} : {other}"
            parameters.append({"name": output, "valueFrom": {"expression": code}})
        body = {**_inputs(slots), **section("outputs", {"parameters": parameters}), "dag": {"tasks": [task]}}
        return TemplateInterface(self.templates.context.share(f"{self.step.name}-guarded", body), slots, made.outputs)


# -- pieces -----------------------------------------------------------------------------------------------------------


def _as_declared(given: Input, wanted: Type) -> Input:
    return dataclasses.replace(given, type=wanted) if given.type.name == "any" else given


def _is_file(type_: Type) -> bool:
    bare = type_.args[0] if type_.name == "optional" else type_
    return bare.name in ("file", "dir")


def _reads_item(value: Value) -> bool:
    return any(path[0] == "item" for expr in expressions(value) for path in references(expr.text))


def _path(task: str, access: OutputAccess) -> tuple[str, ...]:
    if access.kind == "result":
        return ("tasks", task, "outputs", "result")
    return ("tasks", task, "outputs", access.kind, access.name)


def _as_parameters(inner: TemplateInterface) -> dict[str, OutputAccess]:
    """The interface of a dag around a template: the printed result is a parameter."""
    return {
        name: dataclasses.replace(access, kind="parameters", name=name) if access.kind == "result" else access
        for name, access in inner.outputs.items()
    }


def _inputs(slots: Iterable[InputSlot]) -> dict[str, Any]:
    """An input of a dag: it has no path."""
    parameters, artifacts = [], []
    for slot in slots:
        if slot.artifact:
            artifacts.append({"name": slot.name, **({"optional": True} if slot.type.name == "optional" else {})})
        else:
            default = (
                {}
                if slot.default is MISSING
                else {"default": argument(dataclasses.replace(slot, value=slot.default), of_run)}
            )
            parameters.append({"name": slot.name, **default})
    return section("inputs", {"parameters": parameters, "artifacts": artifacts})


def _arguments(slots: Iterable[InputSlot], given: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Passes the inputs of a dag on to one of its tasks, some with another value."""
    given = dict(given or {})
    parameters: list[dict[str, str]] = []
    artifacts: list[dict[str, str]] = []
    for slot in slots:
        kind = "artifacts" if slot.artifact else "parameters"
        text = given.pop(slot.name, "{{inputs." + kind + "." + slot.name + "}}")
        (artifacts if slot.artifact else parameters).append(
            {"name": slot.name, "from" if slot.artifact else "value": text}
        )
    parameters += [{"name": name, "value": text} for name, text in given.items()]
    return section("arguments", {"parameters": parameters, "artifacts": artifacts})


def arguments_of(slots: Iterable[InputSlot], find: Find) -> dict[str, Any]:
    """The arguments of a step's template. Raises NotInArgo."""
    parameters, artifacts = [], []
    for slot in slots:
        if slot.artifact:
            found = direct(slot.value, find)
            if found is None or found.code:
                raise NotInArgo(f"the file {slot.name} is not handed on as it is", "hand it on by itself", "P846")
            artifacts.append({"name": slot.name, "from": found.tag})
        else:
            parameters.append({"name": slot.name, "value": argument(slot, find)})
    return section("arguments", {"parameters": parameters, "artifacts": artifacts})


def _shape(step: Step, slots: Sequence[InputSlot], published: Mapping[str, str]) -> Any:
    """A key of steps that share a template; None if it cannot be computed quickly."""
    if step.extra or step.mounts or step.locks or step.cache.key is not None:
        return None
    return (
        repr(step.action),
        tuple(slot.shape() for slot in slots),
        repr(step.outputs) if step.outputs else "",
        step.each is not None,
        step.retry,
        step.timeout,
        tuple(step.resources.items()),
        repr(step.placement),
        step.queue,
        step.priority,
        tuple(published.items()),
        step.replicas,
    )
