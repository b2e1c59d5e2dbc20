"""What a good workflow satisfies. Returns every Problem at once and raises nothing.

Called by author (after building), by service (after reading) and by plan (before planning). `check` looks at the root and
at each definition, each in its own scope: names, references, types, order, conditions, numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import Problem, Source, nearest
from penstock.graph import quantity, types
from penstock.graph.expr import Expr, Node, Template, path_of, references, show, simple_path
from penstock.graph.infer import Lookup, TypeMismatch, infer
from penstock.graph.links import Links, links_of
from penstock.graph.model import (
    MISSING,
    RESOURCE_ACTIONS,
    RETRY_ON,
    Container,
    Function,
    Http,
    Nested,
    Outcome,
    Output,
    Parameter,
    Resource,
    Retry,
    Script,
    Step,
    Suspend,
    Value,
    While,
    Workflow,
    action_values,
    expressions,
    upstream_in,
)
from penstock.graph.order import NotOrdered, topological
from penstock.graph.satisfy import never
from penstock.graph.types import ANY, BOOL, STR, Type, list_of

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9])?\Z", re.A)
VARIABLE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9_])?\Z", re.A)
RESOURCE_NAME = re.compile(
    r"(?:[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?\Z", re.A
)
LARGEST_COUNT = 10_000_000
MOST_PROBLEMS = 200


def check(workflow: Workflow, links: Mapping[str, Links] | None = None) -> list[Problem]:
    """Errors and warnings, in the order of the document. `links`: those of the workflow, if they are at hand."""
    links = links_of(workflow) if links is None else links
    problems: list[Problem] = []
    definitions: dict[str, Workflow] = {}
    for definition in workflow.definitions:
        if definition.name in definitions:
            problems.append(
                _problem(
                    "P210",
                    f"two definitions are named {definition.name!r}",
                    "rename one",
                    f"definitions.{definition.name}",
                    definition.source,
                )
            )
        definitions[definition.name] = definition
        if definition.definitions:
            problems.append(
                _problem(
                    "P213",
                    f"the definition {definition.name!r} has definitions of its own",
                    "move them to the root",
                    f"definitions.{definition.name}",
                    definition.source,
                )
            )
    own = links[""] if "" not in definitions else links_of(replace(workflow, definitions=()))[""]
    problems += _Checker(workflow, definitions, "", own).run()
    for definition in definitions.values():
        problems += _Checker(definition, definitions, f"definitions.{definition.name}.", links[definition.name]).run()
    problems += _recursion(workflow, definitions)
    return problems[:MOST_PROBLEMS]


def errors(workflow: Workflow) -> list[Problem]:
    return [problem for problem in check(workflow) if problem.severity == "error"]


def _problem(code: str, message: str, fix: str, where: str, source: Source | None, severity: str = "error") -> Problem:
    return Problem(
        code, message, fix, where=where, source=source, severity="warning" if severity == "warning" else "error"
    )


def _recursion(root: Workflow, definitions: Mapping[str, Workflow]) -> Iterator[Problem]:
    calls: dict[str, list[str]] = {}
    for name, workflow in [("", root), *definitions.items()]:
        steps = (*workflow.steps, *workflow.on_exit)
        calls[name] = [
            step.action.name for step in steps if isinstance(step.action, Nested) and step.action.name in definitions
        ]
    reached: set[str] = set()
    frontier = [""]
    while frontier:
        name = frontier.pop()
        if name not in reached:
            reached.add(name)
            frontier += calls[name]
    try:
        topological({name: set(used) for name, used in calls.items()})
    except NotOrdered as cycle:
        path = " → ".join([*cycle.names, cycle.names[0]])
        place = definitions[cycle.names[0]]
        yield _problem(
            "P213",
            f"the workflow calls itself: {path}",
            "repeat with a while loop instead of recursion",
            f"definitions.{place.name}",
            place.source,
        )
    for name, definition in definitions.items():
        if name not in reached:
            yield _problem(
                "P222",
                f"no step uses the definition {name!r}",
                "remove it, or use it",
                f"definitions.{name}",
                definition.source,
                "warning",
            )


@dataclass(slots=True)
class _Place:
    """Where an expression stands: what it may read there."""

    where: str
    source: Source | None
    roots: frozenset[str]
    own: Mapping[str, Type]
    """Types of `item.x`, `inputs.x`, `outputs.x`, keyed by both names with a dot."""
    exit: bool = False


_ALWAYS = frozenset({"params", "steps"})
_OBJECT = frozenset({"object", "status", "spec", "metadata"})
_ROOTS = {
    (looped, on_exit): (around, around | {"inputs"})
    for looped in (False, True)
    for on_exit in (False, True)
    for around in [_ALWAYS | ({"item"} if looped else set()) | ({"workflow"} if on_exit else set())]
}
"""(has a for-each, is an exit handler) -> what its inputs may read, and what its action may read besides."""


class _Checker:
    """One workflow in its own scope."""

    def __init__(self, workflow: Workflow, definitions: Mapping[str, Workflow], prefix: str, links: Links) -> None:
        self.workflow = workflow
        self.links = links
        self.definitions = definitions
        self.prefix = prefix
        self.problems: list[Problem] = []
        self.params = {param.name: param for param in workflow.params}
        self.steps: dict[str, Step] = {}
        self.outputs: dict[str, dict[str, Type]] = {}

    def report(
        self, code: str, message: str, fix: str, where: str, source: Source | None = None, severity: str = "error"
    ) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(
                _problem(code, message, fix, self.prefix + where, source or self.workflow.source, severity)
            )

    def run(self) -> list[Problem]:
        workflow = self.workflow
        self.name(workflow.name, NAME, "name", workflow.source)
        self.parameters()
        everything = (*workflow.steps, *workflow.on_exit)
        for step in everything:
            if step.name in self.steps:
                self.report(
                    "P210",
                    f"two steps are named {step.name!r}",
                    "rename one; outputs are read by step name",
                    f"steps.{step.name}",
                    step.source,
                )
            self.steps[step.name] = step
            self.outputs[step.name] = _output_types(step, self.definitions)
        exits = {step.name for step in workflow.on_exit}
        for step in everything:
            self.step(step, step.name in exits)
        for output in workflow.outputs:
            self.workflow_output(output)
        self.count(workflow.parallel, "parallel", None)
        self.seconds(workflow.timeout, "timeout", None)
        self.order(exits)
        return self.problems

    # -- names and numbers

    def name(self, name: str, pattern: re.Pattern[str], where: str, source: Source | None) -> None:
        if not pattern.match(name):
            self.report(
                "P211",
                f"{name[:140]!r} is not a usable name",
                "use letters, digits, '-' and '_', at most 128, beginning and ending with a letter or digit",
                where,
                source,
            )

    def parameters(self) -> None:
        seen: set[str] = set()
        for param in self.workflow.params:
            where = f"params.{param.name}"
            self.name(param.name, VARIABLE, where, None)
            if param.name in seen:
                self.report("P210", f"two parameters are named {param.name!r}", "rename one", where)
            seen.add(param.name)
            for value in (param.default, *param.choices):
                if value is not MISSING and not types.accepts(param.type, value):
                    self.report(
                        "P220",
                        f"{_brief(value)} is not {param.type}",
                        f"give a value of type {param.type}, or change the type",
                        where,
                    )
            if param.choices and param.default is not MISSING and param.default not in param.choices:
                self.report(
                    "P220",
                    f"the default {_brief(param.default)} is not among the choices",
                    f"choose one of {_brief(param.choices)}",
                    where,
                )

    def count(self, value: int | None, where: str, source: Source | None, low: int = 1) -> None:
        if value is not None and not low <= value <= LARGEST_COUNT:
            self.report(
                "P231",
                f"{where.rpartition('.')[2]} is {value}",
                f"give a whole number from {low} to {LARGEST_COUNT}",
                where,
                source,
            )

    def seconds(self, value: float | None, where: str, source: Source | None) -> None:
        if value is not None and not 0 < value < 10**10:
            self.report(
                "P231", f"{where.rpartition('.')[2]} is {value} seconds", "give more than 0 seconds", where, source
            )

    def word(self, value: str, known: tuple[str, ...], where: str, source: Source | None) -> None:
        if value not in known:
            self.report(
                "P233",
                f"{value!r} is not one of {', '.join(known)}",
                f"use one of those.{nearest(value, known)}",
                where,
                source,
            )

    # -- one step

    def step(self, step: Step, on_exit: bool) -> None:
        where = _where(step.name, {step.name} if on_exit else set())
        self.name(step.name, NAME, where, step.source)
        if step.resources or step.replicas != 1:
            self.amounts(step, where)
        if step.timeout is not None:
            self.seconds(step.timeout, f"{where}.timeout", step.source)
        if step.retry is not None:
            self.retry(step.retry, where, step.source)
        own = self.loop_variables(step, where, on_exit)
        own |= {f"inputs.{given.name}": given.type for given in step.inputs}
        if len(step.inputs) > 1:
            self.unique([given.name for given in step.inputs], "input", where, step.source)
        if len(step.outputs) > 1:
            self.unique([output.name for output in step.outputs], "output", where, step.source)
        around, within = _ROOTS[step.each is not None, on_exit]
        place = _Place(where, step.source, around, own, on_exit)
        for given in step.inputs:
            if not VARIABLE.match(given.name):
                self.name(given.name, VARIABLE, f"{where}.inputs.{given.name}", step.source)
            self.value(given.value, given.type, place, "inputs." + given.name)
        inside = _Place(where, step.source, within, own, on_exit)
        for name, value in action_values(step.action):
            if value and type(value) is not str:
                self.value(value, ANY, inside, f"{step.action.kind}.{name}")
        if step.when is not None:
            self.condition(step.when, place)
        if step.trigger is not None:
            self.value(step.trigger, BOOL, place, "trigger")
        if step.loop is not None:
            self.loop(step, step.loop, inside)
        for output in step.outputs:
            self.step_output(step, output, inside)
        for edge in step.needs:
            self.known_step(edge.step, place, "needs")
            if not edge.outcomes:
                self.report(
                    "P222",
                    f"the step waits for {edge.step!r} to end in no outcome at all",
                    "name an outcome",
                    f"{where}.needs",
                    step.source,
                )
        self.action(step, inside)

    def unique(self, names: list[str], noun: str, where: str, source: Source | None) -> None:
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            self.report("P210", f"two {noun}s are named {twice!r}", "rename one", f"{where}.{noun}s.{twice}", source)

    def amounts(self, step: Step, where: str) -> None:
        for name, amount in step.resources.items():
            if name not in ("cpu", "memory") and not RESOURCE_NAME.match(name):
                self.report(
                    "P232",
                    f"{name[:140]!r} is not the name of a resource",
                    "write cpu, memory, or a name with a domain: nvidia.com/gpu",
                    f"{where}.resources",
                    step.source,
                )
            if amount < 0:
                self.report(
                    "P230",
                    f"{name} is {quantity.show(amount, name)}",
                    "ask for nothing, or for more than nothing",
                    f"{where}.resources.{name}",
                    step.source,
                )
            elif amount > quantity.LARGEST:
                self.report(
                    "P230",
                    f"{name} is {quantity.show(amount, name)}, more than any machine has",
                    "check the unit",
                    f"{where}.resources.{name}",
                    step.source,
                )
        self.count(step.replicas, f"{where}.replicas", step.source)

    def retry(self, retry: Retry, where: str, source: Source | None) -> None:
        self.count(retry.limit, f"{where}.retry.limit", source, low=0)
        for kind in retry.on:
            self.word(kind, RETRY_ON, f"{where}.retry.on", source)
        backoff = retry.backoff
        if backoff.initial < 0 or backoff.factor < 1 or backoff.longest < 0 or not 0 <= backoff.jitter <= 1:
            self.report(
                "P231",
                "this backoff makes no sense",
                "initial and longest ≥ 0, factor ≥ 1, jitter from 0 to 1",
                f"{where}.retry.backoff",
                source,
            )
        if retry.when is not None:
            self.value(retry.when, BOOL, _Place(where, source, frozenset({"attempt"}), {}), "retry.when")

    def loop_variables(self, step: Step, where: str, on_exit: bool) -> dict[str, Type]:
        """The types of `item.x`; reports items that are not lists, and zipped lists of different lengths."""
        own: dict[str, Type] = {}
        if step.each is None:
            return own
        if step.loop is not None:
            self.report(
                "P223",
                "a step cannot have both a for-each and a while loop",
                "put one of them into a nested workflow",
                f"{where}.loop",
                step.source,
            )
        if not step.each.axes or not all(step.each.axes):
            self.report(
                "P223", "the for-each has no variables", "give it something to go over", f"{where}.each", step.source
            )
        self.count(step.each.parallel, f"{where}.each.parallel", step.source)
        roots = _ALWAYS | {"item"} | ({"workflow"} if on_exit else set())
        for axis in step.each.axes:
            found: dict[str, Type] = {}
            lengths: dict[str, int] = {}
            for name, items in axis.items():
                self.name(name, VARIABLE, f"{where}.each.{name}", step.source)
                if f"item.{name}" in own:
                    self.report(
                        "P210",
                        f"two loop variables are named {name!r}",
                        "rename one",
                        f"{where}.each.{name}",
                        step.source,
                    )
                given = self.value(
                    items,
                    list_of(ANY),
                    _Place(where, step.source, frozenset(roots), own, on_exit),
                    f"each.{name}",
                    "P223",
                )
                found[f"item.{name}"] = given.item
                if isinstance(items, tuple):
                    lengths[name] = len(items)
            if len(set(lengths.values())) > 1:
                said = ", ".join(f"{name} has {length}" for name, length in lengths.items())
                self.report(
                    "P223",
                    f"lists that advance together differ in length: {said}",
                    "make them equally long, or put them on two axes to cross them",
                    f"{where}.each",
                    step.source,
                )
            own |= found
        return own

    def loop(self, step: Step, loop: While, place: _Place) -> None:
        self.count(loop.max_iterations, f"{place.where}.loop.max_iterations", place.source)
        self.word(loop.test, ("before", "after"), f"{place.where}.loop.test", place.source)
        self.word(loop.at_limit, ("stop", "fail"), f"{place.where}.loop.at_limit", place.source)
        own = {f"inputs.{given.name}": given.type for given in step.inputs}
        outs = _own_output_types(step, self.definitions)
        if loop.test == "after":
            own |= {f"outputs.{name}": type_ for name, type_ in outs.items()}
        roots = _ALWAYS | {"inputs"} | ({"outputs"} if loop.test == "after" else set())
        inner = _Place(place.where, place.source, frozenset(roots), own, place.exit)
        self.value(loop.condition, BOOL, inner, "loop.condition")
        inputs = {given.name: given.type for given in step.inputs}
        for name, output in loop.carry.items():
            where = f"{place.where}.loop.carry"
            if name not in inputs:
                self.report(
                    "P205",
                    f"{name!r} is not an input of this step",
                    f"carry into one of its inputs.{nearest(name, inputs)}",
                    where,
                    place.source,
                )
            if output not in outs:
                self.report(
                    "P202",
                    f"{output!r} is not an output of this step",
                    f"carry one of its outputs.{nearest(output, outs)}",
                    where,
                    place.source,
                )
            elif name in inputs and not types.fits(outs[output], inputs[name]):
                self.report(
                    "P220",
                    f"the output {output!r} is {outs[output]} and is carried into {name!r}, which is {inputs[name]}",
                    "make the types equal",
                    where,
                    place.source,
                )

    def step_output(self, step: Step, output: Output, place: _Place) -> None:
        where = f"outputs.{output.name}"
        if not VARIABLE.match(output.name):
            self.name(output.name, VARIABLE, f"{place.where}.{where}", step.source)
        if output.value is not MISSING:
            extra: frozenset[str] = frozenset()
            if isinstance(step.action, Resource):
                extra = _OBJECT
            elif isinstance(step.action, Http):
                extra = frozenset({"response"})
            self.value(
                output.value,
                output.type,
                _Place(place.where, place.source, place.roots | extra, place.own, place.exit),
                where,
            )
        if output.default is not MISSING and not types.accepts(output.type, output.default):
            self.report(
                "P220",
                f"the default {_brief(output.default)} is not {output.type}",
                f"give a value of type {output.type}",
                f"{place.where}.{where}",
                step.source,
            )

    def workflow_output(self, output: Output) -> None:
        where = f"outputs.{output.name}"
        self.name(output.name, VARIABLE, where, None)
        if output.value is MISSING:
            self.report(
                "P106",
                f"the output {output.name!r} has no value",
                "say which step's output it is: ${{ steps.NAME.outputs.OUTPUT }}",
                where,
            )
            return
        self.value(output.value, output.type, _Place("", self.workflow.source, _ALWAYS, {}), where)

    def action(self, step: Step, place: _Place) -> None:
        match step.action:
            case Nested():
                self.nested(step, step.action, place)
            case Resource(action=verb, manifest=manifest, success_condition=success, failure_condition=failure):
                self.word(verb, RESOURCE_ACTIONS, f"{place.where}.resource.action", step.source)
                if not isinstance(manifest, dict | Expr | Template | str) or not manifest:
                    self.report(
                        "P233",
                        "the manifest is empty",
                        "give a Kubernetes object",
                        f"{place.where}.resource.manifest",
                        step.source,
                    )
                roots = _Place(place.where, place.source, _OBJECT, {})
                for name, condition in (("success_condition", success), ("failure_condition", failure)):
                    if condition is not None:
                        self.value(condition, BOOL, roots, f"resource.{name}")
            case Http(success_condition=success, url=url) if success is not None or not url:
                if not url:
                    self.report("P233", "the url is empty", "give a url", f"{place.where}.http.url", step.source)
                if success is not None:
                    self.value(
                        success,
                        BOOL,
                        _Place(place.where, place.source, frozenset({"response"}), {}),
                        "http.success_condition",
                    )
            case Suspend(duration=duration):
                self.seconds(duration, f"{place.where}.suspend.duration", step.source)
            case Container(image=image) if not image or not isinstance(image, str | Expr | Template):
                self.report(
                    "P233",
                    "the container has no image",
                    "name one: python:3.12",
                    f"{place.where}.container.image",
                    step.source,
                )
            case Script(source=source) if not isinstance(source, str | Expr | Template):
                self.report(
                    "P233",
                    "the script is not text",
                    "give its source as text",
                    f"{place.where}.script.source",
                    step.source,
                )
            case Function(module=module, name=name) if not module or not name:
                self.report(
                    "P233",
                    "the function has no name",
                    "give its module and name",
                    f"{place.where}.function",
                    step.source,
                )

    def nested(self, step: Step, action: Nested, place: _Place) -> None:
        target = self.definitions.get(action.name)
        if target is None:
            self.report(
                "P214",
                f"there is no workflow named {action.name!r}",
                f"define it under `definitions`.{nearest(action.name, self.definitions)}",
                f"{place.where}.workflow",
                step.source,
            )
            return
        params = {param.name: param for param in target.params}
        given = {item.name: item for item in step.inputs}
        for name in (name for name in given if name not in params):
            self.report(
                "P215",
                f"{action.name!r} has no parameter {name!r}",
                f"remove it.{nearest(name, params)}",
                f"{place.where}.inputs.{name}",
                step.source,
            )
        for name, param in params.items():
            if name not in given and param.default is MISSING:
                self.report(
                    "P215",
                    f"{action.name!r} needs the parameter {name!r} ({param.type})",
                    f"add an input {name!r}",
                    f"{place.where}.inputs",
                    step.source,
                )
            elif name in given:
                found = self.type_of(given[name].value, place)
                if found is not None and not types.fits(found, param.type):
                    self.report(
                        "P220",
                        f"{name!r} is {found}, and {action.name!r} takes {param.type}",
                        f"pass a value of type {param.type}",
                        f"{place.where}.inputs.{name}",
                        step.source,
                    )

    # -- expressions

    def known_step(self, name: str, place: _Place, what: str) -> bool:
        if name in self.steps:
            return True
        self.report(
            "P201",
            f"there is no step {name!r}",
            f"add it to the workflow, or name another.{nearest(name, self.steps)}",
            f"{place.where}.{what}".lstrip("."),
            place.source,
        )
        return False

    def value(self, value: Value, wanted: Type, place: _Place, what: str, code: str = "P220") -> Type:
        """Checks every expression in `value`, and that the whole fits `wanted`. Returns the type found."""
        before = len(self.problems)
        simple = simple_path(value.text) if type(value) is Expr else None
        if simple is not None:
            if len(simple) == 4 and "steps" in place.roots:
                # By far the most frequent case, looked up without ceremony when it is good.
                known = self.outputs.get(simple[1], {}).get(simple[3])
                if known is not None and types.fits(known, wanted):
                    return known
            if not self.path(simple, place, what):
                return ANY
            found, _ = self.find(simple, place)
            if types.fits(found, wanted):
                return found
        elif type(value) is str and wanted.name == "any":
            return ANY
        elif not isinstance(value, Expr):
            for expr in expressions(value):
                self.expression(expr, place, what)
        elif not self.references(value, place, what):
            return ANY
        if len(self.problems) > before or (wanted.name == "any" and not isinstance(value, Expr)):
            return ANY
        where = f"{place.where}.{what}".lstrip(".")
        try:
            found = self.raw_type(value, place)
        except TypeMismatch as error:
            self.report("P220", str(error), "make the types fit", where, place.source)
            return ANY
        if not types.fits(found, wanted) and not (
            not isinstance(value, Expr | Template) and types.accepts(wanted, value)
        ):
            given = value.text if isinstance(value, Expr) else _brief(value)
            self.report(
                code,
                f"{given} is {found}, and {wanted} is needed here",
                f"give a value of type {wanted}",
                where,
                place.source,
            )
        return found

    def expression(self, expr: Expr, place: _Place, what: str) -> None:
        if self.references(expr, place, what):
            try:
                infer(expr.node, self.lookup(place))
            except TypeMismatch as error:
                self.report("P220", str(error), "make the types fit", f"{place.where}.{what}".lstrip("."), place.source)

    def type_of(self, value: Value, place: _Place) -> Type | None:
        try:
            return self.raw_type(value, place)
        except TypeMismatch:
            return None

    def raw_type(self, value: Value, place: _Place) -> Type:
        if isinstance(value, Expr):
            return infer(value.node, self.lookup(place))
        if isinstance(value, Template):
            return STR
        if isinstance(value, tuple) and any(True for _ in expressions(value)):
            return list_of(types.join(*(self.raw_type(item, place) for item in value)))
        if isinstance(value, dict) and any(True for _ in expressions(value)):
            return Type("dict", (types.join(*(self.raw_type(item, place) for item in value.values())),))
        return types.of_value(value)

    def references(self, expr: Expr, place: _Place, what: str) -> bool:
        good = True
        for path in references(expr.text):
            good = self.path(path, place, what) and good
        return good

    def path(self, path: tuple[str, ...], place: _Place, what: str) -> bool:
        root = path[0]
        where = f"{place.where}.{what}".lstrip(".")
        if root not in place.roots:
            known = sorted(place.roots)
            hint = (
                "write steps.NAME.outputs.OUTPUT"
                if root in self.steps
                else f"read one of {', '.join(known)}.{nearest(root, known)}"
            )
            if root in self.params:
                hint = f"write params.{root}"
            self.report("P204", f"{root!r} cannot be read here", hint, where, place.source)
            return False
        if len(path) == 1:
            return True
        if root == "params" and path[1] not in self.params:
            self.report(
                "P203",
                f"there is no parameter {path[1]!r}",
                f"declare it under `params`.{nearest(path[1], self.params)}",
                where,
                place.source,
            )
            return False
        if root == "steps":
            return self.step_path(path, place, what, where)
        if root in ("item", "inputs", "outputs") and f"{root}.{path[1]}" not in place.own:
            known = sorted(key.partition(".")[2] for key in place.own if key.startswith(root + "."))
            noun = {"item": "loop variable", "inputs": "input", "outputs": "output"}[root]
            self.report(
                "P205",
                f"this step has no {noun} {path[1]!r}",
                f"known: {', '.join(known) or 'none'}.{nearest(path[1], known)}",
                where,
                place.source,
            )
            return False
        return True

    def step_path(self, path: tuple[str, ...], place: _Place, what: str, where: str) -> bool:
        if not self.known_step(path[1], place, what):
            return False
        if len(path) < 3 or path[2] not in ("outputs", "outcome"):
            self.report(
                "P202",
                f"{'.'.join(path)} is neither an output nor an outcome",
                f"write steps.{path[1]}.outputs.OUTPUT or steps.{path[1]}.outcome",
                where,
                place.source,
            )
            return False
        if path[2] == "outcome" or len(path) == 3:
            return True
        known = self.outputs[path[1]]
        if path[3] not in known:
            self.report(
                "P202",
                f"the step {path[1]!r} has no output {path[3]!r}",
                f"declare it under its `outputs`.{nearest(path[3], known)} Known: {', '.join(known) or 'none'}",
                where,
                place.source,
            )
            return False
        return True

    def lookup(self, place: _Place) -> Lookup:
        return lambda path: self.find(path, place)

    def find(self, path: tuple[str, ...], place: _Place) -> tuple[Type, int]:
        """The type of the longest part of a path that has one, and how long that part is."""
        if path[0] == "params" and len(path) > 1 and path[1] in self.params:
            return self.params[path[1]].type, 2
        if path[0] == "steps" and len(path) > 3 and path[2] == "outputs":
            return self.outputs.get(path[1], {}).get(path[3], ANY), 4
        if path[0] == "steps" and len(path) > 2 and path[2] == "outcome":
            return STR, 3
        if path[0] in ("item", "inputs", "outputs") and len(path) > 1:
            return place.own.get(f"{path[0]}.{path[1]}", ANY), 2
        return ANY, len(path)

    def condition(self, when: Expr, place: _Place) -> None:
        before = len(self.problems)
        self.value(when, BOOL, place, "when")
        if len(self.problems) > before:
            return

        def choices(node: Node) -> tuple[Any, ...]:
            path = path_of(node)
            known = path is not None and len(path) == 2 and path[0] == "params"
            return self.params[path[1]].choices if known and path is not None else ()

        def type_of(node: Node) -> Type:
            return self.type_of(Expr(show(node)), place) or ANY

        if never(when.node, type_of, choices):
            self.report(
                "P221",
                f"{when.text} can never hold",
                "correct the condition, or remove the step",
                f"{place.where}.when",
                place.source,
            )

    # -- order

    def order(self, exits: set[str]) -> None:
        edges = self.links.edges
        for step in self.workflow.steps:
            for name in (name for name in edges[step.name] if name in exits):
                self.report(
                    "P222",
                    f"the step {step.name!r} waits for the exit handler {name!r}, which runs after everything else",
                    "move one of them",
                    f"steps.{step.name}",
                    step.source,
                )
        try:
            ordered = self.links.order
        except NotOrdered as cycle:
            path = " → ".join([*cycle.names, cycle.names[0]])
            first = self.steps[cycle.names[0]]
            self.report(
                "P212",
                f"these steps wait for one another: {path}",
                "remove one of the dependencies; to repeat steps, use a while loop",
                _where(first.name, exits),
                first.source,
            )
            return
        self.reachable(ordered, edges, exits)

    def reachable(
        self, ordered: list[str], edges: Mapping[str, Mapping[str, frozenset[Outcome]]], exits: set[str]
    ) -> None:
        """Which outcomes can each step have? A step that waits for an impossible one never runs."""
        dead = {problem.where for problem in self.problems if problem.code == "P221"}
        possible: dict[str, frozenset[Outcome]] = {}
        for name in ordered:
            step = self.steps[name]
            starved = [
                up for up, wanted in edges[name].items() if up in possible and wanted and not possible[up] & wanted
            ]
            if starved and step.trigger is None:
                up = starved[0]
                wanted = ", ".join(sorted(edges[name][up]))
                self.report(
                    "P222", f"the step {name!r} can never run: it waits for {up!r} to be {wanted}, and {up!r} can only be {', '.join(sorted(possible[up]))}",
                    "correct the outcomes, or remove the step", _where(name, exits), step.source,
                )  # fmt: skip
                possible[name] = frozenset({Outcome.OMITTED})
                continue
            outcomes = (
                {Outcome.SKIPPED}
                if f"{self.prefix}{_where(name, exits)}.when" in dead
                else {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED, Outcome.CANCELLED}
            )
            if step.when is not None or step.each is not None or step.loop is not None:
                outcomes.add(Outcome.SKIPPED)
            if step.trigger is not None or any(
                possible.get(up, frozenset()) - wanted for up, wanted in edges[name].items()
            ):
                outcomes.add(Outcome.OMITTED)
            possible[name] = frozenset(outcomes)


def _where(name: str, exits: set[str]) -> str:
    return f"on_exit.{name}" if name in exits else f"steps.{name}"


def _own_output_types(step: Step, definitions: Mapping[str, Workflow]) -> dict[str, Type]:
    """What one task of the step gives."""
    found = {output.name: output.type for output in step.outputs}
    if isinstance(step.action, Nested) and step.action.name in definitions:
        for output in definitions[step.action.name].outputs:
            found.setdefault(output.name, output.type)
    return found


def _output_types(step: Step, definitions: Mapping[str, Workflow]) -> dict[str, Type]:
    """What others read of the step: a list for each output if it has a for-each."""
    found = _own_output_types(step, definitions)
    return {name: list_of(type_) for name, type_ in found.items()} if step.each is not None else found


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def check_arguments(params: tuple[Parameter, ...], given: Mapping[str, object]) -> list[Problem]:
    """Do these values fit these parameters? Called by plan and by every runner before anything starts."""
    known = {param.name: param for param in params}
    problems = []
    for name, value in given.items():
        if name not in known:
            problems.append(
                Problem(
                    "P401",
                    f"the workflow has no parameter {name!r}",
                    f"known: {', '.join(known) or 'none'}.{nearest(name, known)}",
                    where=f"params.{name}",
                )
            )
        elif not types.accepts(known[name].type, value):
            problems.append(
                Problem(
                    "P402",
                    f"{name}={_brief(value)} is not {known[name].type}",
                    f"give a value of type {known[name].type}",
                    where=f"params.{name}",
                )
            )
        elif known[name].choices and value not in known[name].choices:
            problems.append(
                Problem(
                    "P402",
                    f"{name}={_brief(value)} is not among the choices",
                    f"choose one of {', '.join(map(str, known[name].choices))}",
                    where=f"params.{name}",
                )
            )
    return problems


Predicate = Callable[[Step], bool]
__all__ = ["check", "check_arguments", "errors", "upstream_in"]
