"""What a good workflow satisfies. Returns every Problem at once and raises nothing.

Called by author (after building), by service (after reading) and by plan (before planning). `check` looks at the root and
at each definition, each in its own scope: names, references, types, order, conditions, numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.errors import Problem, Source, nearest
from penstock.graph import quantity, types
from penstock.graph.details import Details
from penstock.graph.expr import Expr
from penstock.graph.links import Links, links_of
from penstock.graph.model import (
    JUDGED_BY,
    MISSING,
    RESOURCE_ACTIONS,
    RETRY_ON,
    Container,
    Function,
    Http,
    Nested,
    Output,
    Parameter,
    Pod,
    Resource,
    Retry,
    Script,
    Step,
    Suspend,
    While,
    Workflow,
    action_values,
)
from penstock.graph.order import NotOrdered, topological
from penstock.graph.places import (
    ALWAYS,
    MOST_PROBLEMS,
    NAME,
    OBJECT,
    ROOTS,
    VARIABLE,
    Place,
    brief,
    output_types,
    own_output_types,
    problem,
)
from penstock.graph.reach import place_of
from penstock.graph.template import Template
from penstock.graph.types import ANY, BOOL, Type, list_of

PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage", "storage", "pods")
RESOURCE_NAME = re.compile(
    r"(?:cpu|memory|ephemeral-storage|storage|pods|hugepages-[0-9]+[KMG]i"
    r"|[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)\Z",
    re.A,
)
"""As in Kubernetes: a few plain names, and any name with a domain."""


def check(workflow: Workflow, links: Mapping[str, Links] | None = None) -> list[Problem]:
    """Errors and warnings, in the order of the document. `links`: those of the workflow, if they are at hand."""
    links = links_of(workflow) if links is None else links
    problems: list[Problem] = []
    definitions: dict[str, Workflow] = {}
    for definition in workflow.definitions:
        if definition.name in definitions:
            problems.append(
                problem(
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
                problem(
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


def _recursion(root: Workflow, definitions: Mapping[str, Workflow]) -> Iterator[Problem]:
    """A workflow may call itself under a condition; without one it would never end."""
    calls: dict[str, list[str]] = {}
    always: dict[str, set[str]] = {}
    for name, workflow in [("", root), *definitions.items()]:
        steps = (*workflow.steps, *workflow.on_exit)
        called = [step for step in steps if isinstance(step.action, Nested) and step.action.name in definitions]
        calls[name] = [step.action.name for step in called if isinstance(step.action, Nested)]
        always[name] = {
            step.action.name
            for step in called
            if isinstance(step.action, Nested) and step.when is None and step.trigger is None and step.each is None
        }
    reached: set[str] = set()
    frontier = [""]
    while frontier:
        name = frontier.pop()
        if name not in reached:
            reached.add(name)
            frontier += calls[name]
    try:
        topological(always)
    except NotOrdered as cycle:
        path = " → ".join([*cycle.names, cycle.names[0]])
        place = definitions[cycle.names[0]]
        yield problem(
            "P213",
            f"the workflow calls itself without end: {path}",
            "give one of the steps a `when`, or repeat with a while loop",
            f"definitions.{place.name}",
            place.source,
        )
    for name, definition in definitions.items():
        if name not in reached:
            yield problem(
                "P222",
                f"no step uses the definition {name!r}",
                "remove it, or use it",
                f"definitions.{name}",
                definition.source,
                "warning",
            )


class _Checker(Details):
    """One workflow in its own scope."""

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
            self.outputs[step.name] = output_types(step, self.definitions)
        exits = {step.name for step in workflow.on_exit}
        for step in everything:
            self.step(step, step.name in exits)
        for output in workflow.outputs:
            self.workflow_output(output)
        self.count(workflow.parallel, "parallel", None)
        self.seconds(workflow.timeout, "timeout", None)
        self.word(workflow.judged_by, JUDGED_BY, "judged_by", None)
        if workflow.locks:
            self.locks(workflow.locks, Place("", workflow.source, frozenset({"params", "run"}), {}), "")
        self.order(exits)
        return self.problems

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
                        f"{brief(value)} is not {param.type}",
                        f"give a value of type {param.type}, or change the type",
                        where,
                    )
            if param.choices and param.default is not MISSING and param.default not in param.choices:
                self.report(
                    "P220",
                    f"the default {brief(param.default)} is not among the choices",
                    f"choose one of {brief(param.choices)}",
                    where,
                )

    # -- one step

    def step(self, step: Step, on_exit: bool) -> None:
        where = place_of(step.name, {step.name} if on_exit else set())
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
        around, within = ROOTS[step.each is not None, on_exit]
        place = Place(where, step.source, around, own, on_exit)
        for given in step.inputs:
            if not VARIABLE.match(given.name):
                self.name(given.name, VARIABLE, f"{where}.inputs.{given.name}", step.source)
            self.value(given.value, given.type, place, "inputs." + given.name)
        inside = Place(where, step.source, within, own, on_exit)
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
            self.step_output(step, output, Place(where, step.source, within - {"attempt"}, own, on_exit))
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
        if _detailed(step):
            self.details(step, place, Place(where, step.source, within - {"attempt"}, own, on_exit))

    def amounts(self, step: Step, where: str) -> None:
        for name, amount in step.resources.items():
            if (name in ("cpu", "memory") and 2**20 * 1000 <= amount <= quantity.LARGEST) or (
                name == "cpu" and 0 <= amount < 2**20 * 1000
            ):
                continue  # nearly all of them
            place = f"{where}.resources.{name}"
            if name not in ("cpu", "memory") and not RESOURCE_NAME.match(name):
                near = "nvidia.com/gpu" if name.lower() == "gpu" else name.lower()
                hint = f"write {near!r}" if near in (*PLAIN_RESOURCES, "nvidia.com/gpu") else ""
                hint = (
                    hint
                    or f"write cpu, memory, or a name with a domain: nvidia.com/gpu.{nearest(name, PLAIN_RESOURCES)}"
                )
                self.report("P232", f"{name[:140]!r} is not the name of a resource", hint, place, step.source)
            if amount < 0:
                fix = "ask for nothing, or for more than nothing"
                self.report("P230", f"{name} is {quantity.show(amount, name)}", fix, place, step.source)
            elif amount > quantity.LARGEST:
                what = f"{name} is {quantity.show(amount, name)}, more than any machine has"
                self.report("P230", what, "check the unit", place, step.source)
            elif "/" in name and amount % 1000:
                what = f"{name} is {quantity.show(amount, name)}, and a device cannot be divided"
                self.report("P230", what, "ask for a whole number", place, step.source)
            elif name == "memory" and 0 < amount < 2**20 * 1000:
                what = f"memory is {quantity.show(amount, name)} bytes"
                self.report("P230", what, "say the unit: 4Gi, 512Mi", place, step.source, "warning")
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
        self.seconds(retry.within, f"{where}.retry.within", source)
        if retry.when is not None:
            self.value(retry.when, BOOL, Place(where, source, frozenset({"attempt"}), {}), "retry.when")

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
        if step.each.gang and step.each.parallel is not None:
            self.report(
                "P223",
                "a gang starts all of its tasks at once, and `parallel` forbids it",
                "remove one of the two",
                f"{where}.each",
                step.source,
            )
        roots = ALWAYS | {"item"} | ({"workflow"} if on_exit else set())
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
                    Place(where, step.source, frozenset(roots), own, on_exit),
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

    def loop(self, step: Step, loop: While, place: Place) -> None:
        self.count(loop.max_iterations, f"{place.where}.loop.max_iterations", place.source)
        self.word(loop.test, ("before", "after"), f"{place.where}.loop.test", place.source)
        self.word(loop.at_limit, ("stop", "fail"), f"{place.where}.loop.at_limit", place.source)
        own = {f"inputs.{given.name}": given.type for given in step.inputs}
        outs = own_output_types(step, self.definitions)
        if loop.test == "after":
            own |= {f"outputs.{name}": type_ for name, type_ in outs.items()}
        roots = ALWAYS | {"inputs"} | ({"outputs"} if loop.test == "after" else set())
        inner = Place(place.where, place.source, frozenset(roots), own, place.exit)
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

    def step_output(self, step: Step, output: Output, place: Place) -> None:
        where = f"outputs.{output.name}"
        if not VARIABLE.match(output.name):
            self.name(output.name, VARIABLE, f"{place.where}.{where}", step.source)
        if output.value is not MISSING:
            extra: frozenset[str] = frozenset()
            if isinstance(step.action, Resource):
                extra = OBJECT
            elif isinstance(step.action, Http):
                extra = frozenset({"response"})
            self.value(
                output.value,
                output.type,
                Place(place.where, place.source, place.roots | extra, place.own, place.exit),
                where,
            )
        whole = list_of(output.type) if step.each is not None else output.type
        if output.default is not MISSING and not types.accepts(whole, output.default):
            self.report(
                "P220",
                f"the default {brief(output.default)} is not {whole}",
                f"give a value of type {whole}",
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
        self.value(output.value, output.type, Place("", self.workflow.source, ALWAYS, {}), where)

    def action(self, step: Step, place: Place) -> None:
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
                roots = Place(place.where, place.source, OBJECT, {})
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
                        Place(place.where, place.source, frozenset({"response"}), {}),
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

    def nested(self, step: Step, action: Nested, place: Place) -> None:
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


def _detailed(step: Step) -> bool:
    """Most steps have nothing of this."""
    return bool(
        step.locks
        or step.mounts
        or step.cache.key is not None
        or type(step.action) is Pod
        or any(given.default is not MISSING for given in step.inputs)
    )


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
                    f"{name}={brief(value)} is not {known[name].type}",
                    f"give a value of type {known[name].type}",
                    where=f"params.{name}",
                )
            )
        elif known[name].choices and value not in known[name].choices:
            problems.append(
                Problem(
                    "P402",
                    f"{name}={brief(value)} is not among the choices",
                    f"choose one of {', '.join(map(str, known[name].choices))}",
                    where=f"params.{name}",
                )
            )
    return problems
