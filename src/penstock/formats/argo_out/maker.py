"""From a step to the template that it calls: what it does itself, and the dags around that where one call is more than one pod.
Called by argo_out.flow, once for each step.

    while          a dag that runs the step's template and then calls itself, as long as the condition holds
    replicas       a dag that runs the template so many times, each told its number
    for-each       with a limit of its own, or read by an exit handler: a dag with the loop in it
    tries          of a workflow that is called: a dag around the call
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.formats.argo_out.around import memoize, retry_strategy, synchronization
from penstock.formats.argo_out.book import Access, Book, Made, Slot, section
from penstock.formats.argo_out.expr import Translator, condition, direct
from penstock.formats.argo_out.found import Find, Found, NotSaid, of_run, tagged
from penstock.formats.argo_out.items import items_of
from penstock.formats.argo_out.leaf import REPLICA, has_replicas, leaf
from penstock.formats.argo_out.pod import thawed
from penstock.formats.argo_out.slots import Varied, argument, slots_of
from penstock.formats.argo_out.typing import Typing
from penstock.formats.documents import part
from penstock.graph.expr import Expr, reference, references
from penstock.graph.model import MISSING, Function, Input, Nested, Step, Value, While, Workflow, expressions
from penstock.graph.types import STR, Type

CALL: Final = "call"
"""The one task of a dag around a call."""
ROUND: Final = "penstock-round"
DEEPEST: Final = 40
"""Calls inside one another that a loop may make. Argo allows a hundred, of which the workflow around needs some."""
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
    """What else they are given."""


class Maker:
    """`published`: step -> output -> global name."""

    def __init__(
        self,
        book: Book,
        typing: Typing,
        callees: Mapping[str, Callee],
        varied: Mapping[int, Varied],
        where: str,
    ) -> None:
        self.book = book
        self.typing = typing
        self.callees = callees
        self.varied = varied
        self.where = where
        self.published: dict[str, dict[str, str]] = {}
        self._made: dict[str, Made] = {}
        self._leaves: dict[Any, Made] = {}

    def made(self, step: Step) -> Made:
        found = self._made.get(step.name)
        if found is None:
            found = self._made[step.name] = self._make(step)
        return found

    def encloses(self, step: Step) -> bool:
        """Is its loop inside the template, not at the call?"""
        return step.each is not None and (step.each.parallel is not None or step.name in self.published)

    def _make(self, step: Step) -> Made:
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

    def _not_published(self, step: Step, made: Made) -> bool:
        """A leaf gives out its outputs under global names itself, but not what it prints."""
        inside = not isinstance(step.action, Nested) and not has_replicas(step) and step.loop is None
        return not inside or any(made.outputs[name].kind == "result" for name in self.published[step.name])

    # -- what it does itself

    def _leaf(self, step: Step) -> Made:
        extra: list[Slot] = []
        if id(step) in self.varied:
            step, extra = self.varied[id(step)]
        step, slots = slots_of(step, self.typing.typed(step))
        slots += extra
        if has_replicas(step):
            slots.append(Slot(REPLICA, "0", STR))
        published = self.published.get(step.name, {})
        key = _shape(step, slots, published)
        known = self._leaves.get(key) if key is not None else None
        if known is None:
            action = step.action
            hint = action.name.rpartition(".")[2] if isinstance(action, Function) else step.name
            known = leaf(self.book, step, slots, published, hint)
            if key is not None:
                self._leaves[key] = known
        return Made(known.template, slots, known.outputs)

    def _called(self, step: Step) -> Made:
        assert isinstance(step.action, Nested)
        callee = self.callees[step.action.name]
        workflow = callee.workflow
        params = {param.name: param for param in workflow.params}
        inputs = tuple(given for given in step.inputs if given.name in params)
        step = dataclasses.replace(step, inputs=tuple(_as_declared(given, params[given.name].type) for given in inputs))
        _, slots = slots_of(step, self.typing.typed(step))
        slots = [dataclasses.replace(slot, path=None) for slot in slots]
        outputs = {
            output.name: Access("artifacts" if _is_file(output.type) else "parameters", output.name, output.type)
            for output in workflow.outputs
        }
        made = Made(callee.template, slots, outputs)
        around = self._around_call(step)
        if not callee.handler:
            return self._wrapped(step, made, around) if around else made
        given = _arguments([slot for slot in slots if slot.name in callee.wanted], callee.outcome)
        return self._wrapped(step, made, around, {"hooks": {"exit": {"template": callee.handler, **given}}})

    def _around_call(self, step: Step) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if step.retry is not None:
            found["retryStrategy"] = retry_strategy(self.book, step, step.retry)
        if step.timeout is not None:
            said = "Argo has no time limit for a call of a workflow"
            self.book.remark(
                "lost", said, step, f"{self.where}steps.{step.name}.timeout", "Limit its steps, or the whole."
            )
        if step.locks or (step.cache.key is not None and step.cache.enabled):
            known = {given.name for given in step.inputs}

            def find(path: tuple[str, ...]) -> Found | None:
                inside = path[0] == "inputs" and path[1] in known
                return Found(("inputs", "parameters", path[1]), STR, 2) if inside else None

            if step.locks:
                found["synchronization"] = synchronization(self.book, step.locks, find)
            if step.cache.key is not None and step.cache.enabled:
                found["memoize"] = memoize(self.book, step, find)
        return {**found, **thawed(part(step.extra, "argo"))}

    # -- a dag around it

    def _wrapped(
        self, step: Step, inner: Made, around: Mapping[str, Any], hooks: Mapping[str, Any] | None = None
    ) -> Made:
        task = {"name": CALL, "template": inner.template, **_arguments(inner.slots), **(hooks or {})}
        outputs = self._passed_on(step, inner, lambda access: Found(_path(CALL, access)).tag)
        body = {**_inputs(inner.slots), **outputs, "dag": {"tasks": [task]}, **around}
        return Made(self.book.share(f"{step.name}-call", body), inner.slots, _as_parameters(inner))

    def _passed_on(self, step: Step, inner: Made, tag: Callable[[Access], str]) -> dict[str, Any]:
        """Outputs of a dag that are those of a task of it."""
        published = self.published.get(step.name, {})
        parameters, artifacts = [], []
        for name, access in inner.outputs.items():
            called = {"globalName": published[name]} if name in published else {}
            if access.kind == "artifacts":
                artifacts.append({"name": name, "from": tag(access), **called})
            else:
                parameters.append({"name": name, "valueFrom": {"parameter": tag(access)}, **called})
        return section("outputs", {"parameters": parameters, "artifacts": artifacts})

    def _replicated(self, step: Step, inner: Made) -> Made:
        """The first and the others, which start together. What comes out is what the first gave."""
        said = "Argo starts the replicas one by one; that all start or none is not kept"
        self.book.remark(
            "lost", said, step, f"{self.where}steps.{step.name}.replicas", "Gate the workflow: penstock gate."
        )
        slots = [slot for slot in inner.slots if slot.name != REPLICA]
        first = {"name": "first", "template": inner.template, **_arguments(slots, {REPLICA: "0"})}
        others = {"name": "others", "template": inner.template, **_arguments(slots, {REPLICA: "{{item}}"})}
        others["withSequence"] = {"start": "1", "end": str(step.replicas - 1)}
        outputs = self._passed_on(step, inner, lambda access: Found(_path("first", access)).tag)
        body = {**_inputs(slots), **outputs, "dag": {"tasks": [first, others]}}
        if step.retry is not None:
            body["retryStrategy"] = retry_strategy(self.book, step, step.retry)
        return Made(self.book.share(f"{step.name}-replicas", body), slots, _as_parameters(inner))

    def _looped(self, step: Step, inner: Made) -> Made:
        """A dag with the loop in it. Everything that the loop reads is an input of the dag."""
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

        def inside(path: tuple[str, ...]) -> Found | None:
            return items.find(path) if path[0] == "item" else find(path)

        task = {"name": "each", "template": inner.template, **arguments_of(inner.slots, inside), **items.fields}
        if step.when is not None and _reads_item(step.when):
            task["when"] = condition(step.when, inside)
        outputs = self._passed_on(step, inner, lambda access: Found(_path("each", access)).tag)
        if "artifacts" in outputs.get("outputs", {}):
            del outputs["outputs"]["artifacts"]
        body: dict[str, Any] = {**_inputs(slots), **outputs, "dag": {"failFast": False, "tasks": [task]}}
        if step.each.parallel is not None:
            body["parallelism"] = step.each.parallel
        kept = {name: access for name, access in _as_parameters(inner).items() if access.kind != "artifacts"}
        return Made(self.book.share(f"{step.name}-each", body), slots, kept)

    def _closed(self, step: Step, values: Iterable[Value], taken: Iterable[str] = ()) -> tuple[list[Slot], Find]:
        """What values read of the workflow around, as inputs of names that are not taken, and where they are then found."""
        typed = self.typing.typed(step)
        slots: dict[tuple[str, ...], Slot] = {}
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
                        slots[path[:depth]] = Slot(
                            name, read, type_, "raw", _is_file(type_), default=absent, gathered=gathered
                        )

        def find(path: tuple[str, ...]) -> Found | None:
            for depth in (4, 3, 2):
                slot = slots.get(path[:depth]) if len(path) >= depth else None
                if slot is not None:
                    kind = "artifacts" if slot.artifact else "parameters"
                    return Found(
                        ("inputs", kind, slot.name), slot.type, depth, slot.gathered, status=path[-1] == "outcome"
                    )
            return of_run(path)

        return list(slots.values()), find

    # -- while

    def _repeated(self, step: Step, loop: While, inner: Made) -> Made:
        template = self.book.names.fresh(f"{step.name}-while")
        each = min(MOST_BODIES, max(1, math.ceil(loop.max_iterations / DEEPEST)))
        if loop.max_iterations > each * DEEPEST * 2:
            said = f"calls inside one another are limited in Argo: the loop may go round about {each * DEEPEST * 2:,} times"
            self.book.remark("changed", said, step, f"{self.where}steps.{step.name}.loop", "Lower max_iterations.")
        writer = _Loop(self, step, loop, inner, template, each)
        self.book.put(template, writer.body())
        made = Made(template, writer.slots, _as_parameters(inner))
        return writer.guarded(made) if loop.test == "before" else made


class _Loop:
    """A dag of some rounds in a row and a call of itself. Each round starts if the one before went well and the condition holds."""

    def __init__(self, maker: Maker, step: Step, loop: While, inner: Made, template: str, rounds: int) -> None:
        self.maker, self.step, self.loop, self.inner = maker, step, loop, inner
        self.template = template
        self.names = [f"round-{number + 1}" for number in range(rounds)]
        self.own = {slot.name: slot for slot in inner.slots}
        outer, self.outer = maker._closed(step, [loop.condition], self.own)
        self.slots = [*inner.slots, *outer, Slot(ROUND, "1", STR)]

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
            {"name": "again", "template": self.template, **passed, "depends": f"{last}.Succeeded", "when": self.again(last, count)}
        )  # fmt: skip
        if self.loop.at_limit == "fail":
            tasks.append(self.limit())
        return {**_inputs(self.slots), **self.outputs(), "dag": {"tasks": tasks}}

    def given(self, slots: Sequence[Slot], before: str | None) -> dict[str, Any]:
        """Inputs of a round: those of the dag, or what the round before has made of them."""
        carried = {} if before is None else {
            name: Found(_path(before, self.inner.outputs[output])).tag
            for name, output in self.loop.carry.items()
            if output in self.inner.outputs
        }  # fmt: skip
        return _arguments(slots, carried)

    def again(self, before: str, number: int) -> str:
        """May another round start after `number` rounds of this dag?"""
        code = Translator(self.after(before)).code(self.loop.condition.node)
        if not self.may_be_last(number):
            return tagged(code.text)
        return tagged(f"{code.at(3)} && {self.rounds(number)} < {self.loop.max_iterations}")

    def may_be_last(self, number: int) -> bool:
        """Every call of the dag makes the same number of rounds, so the limit is always reached at the same place in it."""
        return (self.loop.max_iterations - number) % len(self.names) == 0

    def rounds(self, number: int) -> str:
        """How many there have been, all in all."""
        return f"asInt(inputs.parameters['{ROUND}']) + {number - 1}"

    def after(self, name: str) -> Find:
        """What the condition reads once a round is over."""
        carried = self.loop.carry if self.loop.test == "before" else {}

        def find(path: tuple[str, ...]) -> Found | None:
            match path:
                case ("outputs", output, *_) if output in self.inner.outputs:
                    return self._output(name, output)
                case ("inputs", one, *_) if one in carried and carried[one] in self.inner.outputs:
                    return self._output(name, carried[one])
                case ("inputs", one, *_) if one in self.own:
                    return Found(("inputs", "parameters", one), self.own[one].type, 2, self.own[one].gathered)
            return self.outer(path)

        return find

    def _output(self, name: str, output: str) -> Found:
        access = self.inner.outputs[output]
        if access.kind == "artifacts":
            raise NotSaid(
                f"the condition of the loop looks into the file {output}", "give out what it needs as a value"
            )
        return Found(_path(name, access), access.type, 2)

    def outputs(self) -> dict[str, Any]:
        """Of the last round there was."""
        parameters, artifacts = [], []
        for output, access in self.inner.outputs.items():
            as_parameter = Access("parameters" if access.kind == "result" else access.kind, output)
            code = Found(_path(self.names[0], access)).text
            for name in self.names[1:]:
                code = f"tasks['{name}'].status == 'Succeeded' ? {Found(_path(name, access)).text} : ({code})"
            code = f"tasks['again'].status == 'Succeeded' ? {Found(_path('again', as_parameter)).text} : ({code})"
            if access.kind == "artifacts":
                artifacts.append({"name": output, "fromExpression": code})
            else:
                parameters.append({"name": output, "valueFrom": {"expression": code}})
        return section("outputs", {"parameters": parameters, "artifacts": artifacts})

    def limit(self) -> dict[str, Any]:
        """Fails if the condition still holds when there may be no further round."""
        book = self.maker.book
        words = f"the condition still holds after {self.loop.max_iterations} rounds"
        code = f"import sys; sys.exit({words!r})"
        name = book.share("penstock-limit", {"container": {"image": book.image, "command": ["python3", "-c", code]}})
        number = (self.loop.max_iterations - 1) % len(self.names) + 1
        before = self.names[number - 1]
        holds = Translator(self.after(before)).code(self.loop.condition.node).at(3)
        when = tagged(f"{holds} && {self.rounds(number)} >= {self.loop.max_iterations}")
        return {"name": "limit", "template": name, "depends": f"{before}.Succeeded", "when": when}

    def guarded(self, made: Made) -> Made:
        """A condition that is looked at before the first round too: perhaps there is none, and what was given comes out."""

        def find(path: tuple[str, ...]) -> Found | None:
            if path[0] == "inputs" and path[1] in self.own:
                return Found(("inputs", "parameters", path[1]), self.own[path[1]].type, 2, self.own[path[1]].gathered)
            return self.outer(path)

        slots = [slot for slot in self.slots if slot.name != ROUND]
        when = tagged(Translator(find).boolean(self.loop.condition.node))
        task = {"name": "loop", "template": made.template, **_arguments(slots, {ROUND: "1"}), "when": when}
        back = {output: name for name, output in self.loop.carry.items()}
        parameters = []
        for output, access in made.outputs.items():
            if access.kind == "artifacts":
                raise NotSaid(
                    f"{output} is a file, and the loop may go round not once", "test the condition after each round"
                )
            inner = Found(_path("loop", access)).text
            other = Found(("inputs", "parameters", back[output])).text if output in back else "''"
            code = f"tasks['loop'].status == 'Succeeded' ? {inner} : {other}"
            parameters.append({"name": output, "valueFrom": {"expression": code}})
        body = {**_inputs(slots), **section("outputs", {"parameters": parameters}), "dag": {"tasks": [task]}}
        return Made(self.maker.book.share(f"{self.step.name}-guarded", body), slots, made.outputs)


# -- pieces -----------------------------------------------------------------------------------------------------------


def _as_declared(given: Input, wanted: Type) -> Input:
    return dataclasses.replace(given, type=wanted) if given.type.name == "any" else given


def _is_file(type_: Type) -> bool:
    bare = type_.args[0] if type_.name == "optional" else type_
    return bare.name in ("file", "dir")


def _reads_item(value: Value) -> bool:
    return any(path[0] == "item" for expr in expressions(value) for path in references(expr.text))


def _path(task: str, access: Access) -> tuple[str, ...]:
    if access.kind == "result":
        return ("tasks", task, "outputs", "result")
    return ("tasks", task, "outputs", access.kind, access.name)


def _as_parameters(inner: Made) -> dict[str, Access]:
    """The face of a dag around a template: what was printed is a parameter now."""
    return {
        name: dataclasses.replace(access, kind="parameters", name=name) if access.kind == "result" else access
        for name, access in inner.outputs.items()
    }


def _inputs(slots: Iterable[Slot]) -> dict[str, Any]:
    """Of a dag: nothing is laid anywhere."""
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


def _arguments(slots: Iterable[Slot], given: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The inputs of a dag handed on to a task of it, some with another text."""
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


def arguments_of(slots: Iterable[Slot], find: Find) -> dict[str, Any]:
    """What a step gives to its template. Raises NotSaid."""
    parameters, artifacts = [], []
    for slot in slots:
        if slot.artifact:
            found = direct(slot.value, find)
            if found is None or found.code:
                raise NotSaid(f"the file {slot.name} is not handed on as it is", "hand it on by itself", "P846")
            artifacts.append({"name": slot.name, "from": found.tag})
        else:
            parameters.append({"name": slot.name, "value": argument(slot, find)})
    return section("arguments", {"parameters": parameters, "artifacts": artifacts})


def _shape(step: Step, slots: Sequence[Slot], published: Mapping[str, str]) -> Any:
    """What two steps have in common that share a template; None if that is not told quickly."""
    if step.extra or step.mounts or step.locks or step.cache.key is not None:
        return None
    return (
        repr(step.action), tuple(slot.shape() for slot in slots), repr(step.outputs) if step.outputs else "", step.each is not None,
        step.retry, step.timeout, tuple(step.resources.items()), repr(step.placement), step.queue, step.priority,
        tuple(published.items()), step.replicas,
    )  # fmt: skip
