"""Expands a workflow to its pods: parameters at their defaults, called workflows inlined, loops unrolled. Called by the writers of JobSet and
Job, which order pods and have no values.

What the format cannot express is a Problem with the step and its line; all Problems are collected. What it does differently, with the same
result, is in the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import Problem, Source
from penstock.expressions.evaluate import EvaluationError, resolve, to_text
from penstock.expressions.parse import Expr, references, simple_path
from penstock.expressions.secret import Secret
from penstock.formats.pods.secrets import as_written
from penstock.formats.report import Report
from penstock.formats.run_limits import report_run_limits
from penstock.graph.limits import MOST_PROBLEMS
from penstock.graph.model import (
    MISSING,
    Cache,
    Container,
    Function,
    Mount,
    Nested,
    Outcome,
    Pod,
    Script,
    Step,
    Workflow,
    action_values,
    edges_of,
    expressions,
    with_values,
)
from penstock.graph.order import topological

INDEX: Final = "$(PENSTOCK_INDEX)"
"""A placeholder for the number of a pod, among pods that differ in nothing else."""
OUTPUTS: Final = "/penstock/outputs"
FEW: Final = 32
"""Up to so many items of a loop become pods of their own."""
MOST: Final = 10_000
_DEEPEST: Final = 20
_FAILURES: Final = frozenset({Outcome.FAILED, Outcome.ERRORED, Outcome.CANCELLED})


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods that differ only in their number."""

    name: str
    step: Step
    """Every value in it is known; it has no loop, and inputs only if it is a function."""
    needs: tuple[str, ...]
    count: int | None = None
    """The number of pods, which differ in INDEX; 0: the step is skipped. None: its replicas, which are a gang."""
    parallel: int | None = None


class _Unknown(Exception):
    """This value is not known before the run; a Problem has been added."""


class Unroller:
    """`target`: its name in messages, such as "a JobSet". `codes`: the error codes for graphs, values, actions and sizes that it cannot
    express."""

    def __init__(
        self, workflow: Workflow, target: str, codes: Sequence[str] = ("P855", "P856", "P857", "P858")
    ) -> None:
        self.root = workflow
        self.target = target
        self.definitions = {one.name: one for one in workflow.definitions}
        self.graph, self.values, self.actions, self.sizes = codes
        self.problems: list[Problem] = []
        self.report = Report()
        self.made: dict[str, PodKind] = {}
        self.visited = 0
        """Steps, each as often as it is written out."""

    def run(self) -> list[PodKind]:
        """In topological order. Complete only if there are no `problems`."""
        params: dict[str, Any] = {}
        for param in self.root.params:
            if param.default is not MISSING:
                params[param.name] = resolve(param.default, {})
                said = f"fixed at its default: {self.target} takes no parameters"
                self.report.changed(f"params.{param.name}", said, source=self.root.source)
        self.level(self.root, params, "", (), 0)
        if any(one.step.cache.enabled for one in self.made.values()):
            self.report.changed("steps", "every step is run: there is no cache of results", source=self.root.source)
        return list(self.made.values())

    def refuse(self, code: str, where: str, message: str, fix: str, source: Source | None) -> None:
        problem = Problem(code, message, fix, where=where, source=source)
        if len(self.problems) < MOST_PROBLEMS and problem not in self.problems:  # a step may be written out many times
            self.problems.append(problem)

    # -- one workflow, the root or a called one

    def level(
        self, workflow: Workflow, params: Mapping[str, Any], prefix: str, before: tuple[str, ...], depth: int
    ) -> tuple[str, ...]:
        """Adds its pods; returns those whose end is the end of the step."""
        self.whole(workflow, prefix)
        by_name = {step.name: step for step in workflow.steps}
        edges = {step.name: edges_of(step) for step in workflow.steps}
        stand: dict[str, tuple[str, ...]] = {}
        """The pods whose end is the end of a step."""
        for name in topological({name: set(found) & set(by_name) for name, found in edges.items()}):
            step = by_name[name]
            if self.is_too_large(step):
                return before
            needs = tuple(dict.fromkeys(one for up in edges[name] for one in stand.get(up, ()))) or before
            stand[name] = self.step(step, params, prefix, needs, depth)
        used = {one for name in by_name for one in self.needed(stand[name])}
        return tuple(dict.fromkeys(one for names in stand.values() for one in names if one not in used)) or before

    def is_too_large(self, step: Step) -> bool:
        """Calls that double at every level would be written out for ever."""
        self.visited += 1
        if self.visited == MOST + 1:
            said = f"written out, the workflow has more than {MOST} steps"
            self.refuse(self.sizes, f"steps.{step.name}", said, "split it", step.source)
        return self.visited > MOST

    def needed(self, names: tuple[str, ...]) -> Iterator[str]:
        for name in names:
            if name in self.made:
                yield from self.made[name].needs

    def whole(self, workflow: Workflow, prefix: str) -> None:
        """Reports the fields of the workflow itself."""
        where = f"{prefix}".rstrip("-")
        for handler in workflow.on_exit:
            said = f"{handler.name} runs when everything has ended; {self.target} has no such thing"
            self.refuse(self.graph, f"on_exit.{handler.name}", said, "make it a step, or write Argo", handler.source)
        for lock in workflow.locks:
            said = f"the workflow holds the lock {lock.name}; {self.target} knows no locks"
            self.refuse(self.graph, where or "locks", said, "remove it, or write Argo", workflow.source)
        for output in workflow.outputs if not prefix else ():
            near = "Let the step write it to a volume."
            self.report.lost(f"outputs.{output.name}", f"{self.target} gives nothing back", near, workflow.source)
        if workflow.enough is not None and (prefix or self.target != "a JobSet"):
            said = f"{self.target} ends when all of it has ended, not when enough has succeeded"
            self.refuse(self.graph, where or "enough", said, "remove it, or write a JobSet of its own", workflow.source)
        if workflow.parallel is not None:
            said = f"{self.target} starts all that may start, not {workflow.parallel} at a time"
            self.report.lost("parallel", said, "The quota of a queue limits it.", workflow.source)
        if not prefix:
            report_run_limits(self.report, workflow, self.target)
        if not workflow.fail_fast and not prefix and len(workflow.steps) > 1:
            self.report.changed("fail_fast", "the first failure ends all of it", source=workflow.source)

    # -- one step

    def step(
        self, step: Step, params: Mapping[str, Any], prefix: str, needs: tuple[str, ...], depth: int
    ) -> tuple[str, ...]:
        self.graph_of(step)
        scope: dict[str, Any] = {"params": params, "run": {"id": self.root.name}}
        try:
            runs = step.when is None or self.value(step.when, scope, step, "when") is True
        except _Unknown:
            runs = True
        if isinstance(step.action, Nested):
            return self.call(step, scope, prefix, needs, depth) if runs else needs
        self.leaf(step)
        if len(self.made) > MOST:
            self.refuse(self.sizes, f"steps.{step.name}", f"more than {MOST} kinds of pods", "split it", step.source)
            return needs
        name = f"{prefix}{step.name}"
        if not runs:
            return self.add(name, step, needs, {**scope, "item": {}}, count=0)
        if step.each is None:
            return self.add(name, step, needs, scope)
        return self.loop(name, step, needs, scope)

    def graph_of(self, step: Step) -> None:
        where, target = f"steps.{step.name}", self.target
        if step.trigger is not None:
            said = f"{step.name} looks at how others ended; {target} only knows that all went well"
            self.refuse(self.graph, f"{where}.trigger", said, "wait for their success, or write Argo", step.source)
        for edge in step.needs:
            if edge.outcomes & _FAILURES or Outcome.SUCCEEDED not in edge.outcomes:
                said = f"{step.name} goes on when {edge.step} has {' or '.join(sorted(edge.outcomes - {Outcome.SUCCEEDED}))}"
                fix = "wait for its success, or write Argo"
                self.refuse(self.graph, f"{where}.needs", f"{said}; {target} goes on after success", fix, step.source)
        if step.loop is not None:
            fix = "let the step itself repeat, or write Argo"
            self.refuse(
                self.graph,
                f"{where}.loop",
                f"{step.name} runs again and again; {target} has no loops",
                fix,
                step.source,
            )
        for lock in step.locks:
            said = f"{step.name} holds the lock {lock.name}; {target} knows no locks"
            self.refuse(self.graph, f"{where}.locks", said, "remove it, or write Argo", step.source)

    def leaf(self, step: Step) -> None:
        where = f"steps.{step.name}"
        action = step.action
        if not isinstance(action, Container | Script | Function | Pod):
            said = f"{step.name} is {action.kind}; {self.target} runs pods only"
            fix = "do it from a container, or write Argo"
            self.refuse(self.actions, f"{where}.{action.kind}", said, fix, step.source)
        elif isinstance(action, Script) and action.image is None:
            said = f"{step.name} has no image: it runs where the engine runs"
            self.refuse(self.actions, f"{where}.script", said, "give it one: image: python:3.12", step.source)
        if step.outputs:
            said = f"what {step.name} leaves ({', '.join(one.name for one in step.outputs)}) is not collected"
            self.report.lost(f"{where}.outputs", said, "Let it write to a volume that others mount.", step.source)
        if step.exempt:
            self.report.lost(f"{where}.exempt", f"{self.target} queues as a whole", source=step.source)
        cache: Cache = step.cache
        if cache.enabled and (cache.key is not None or cache.ttl is not None or cache.version):
            self.report.lost(f"{where}.cache", f"{self.target} is run every time", source=step.source)

    def call(
        self, step: Step, scope: Mapping[str, Any], prefix: str, needs: tuple[str, ...], depth: int
    ) -> tuple[str, ...]:
        """Inlines a called workflow."""
        assert isinstance(step.action, Nested)
        where = f"steps.{step.name}"
        target = self.definitions[step.action.name]
        if step.each is not None or step.retry is not None or step.tolerates:
            what = "repeated" if step.each else "tried again as a whole" if step.retry else "allowed to fail"
            said = f"the workflow that {step.name} calls is {what}; {self.target} cannot say that"
            self.refuse(self.graph, where, said, "say it of the steps inside, or write Argo", step.source)
        if step.timeout is not None:
            self.report.lost(f"{where}.timeout", "only single steps have a time limit", source=step.source)
        if depth >= _DEEPEST:
            said = f"{step.name} is called more than {_DEEPEST} levels deep"
            self.refuse(self.graph, where, said, "write the steps out", step.source)
            return needs
        params: dict[str, Any] = {}
        for param in target.params:
            if param.default is not MISSING:
                params[param.name] = resolve(param.default, {})
        for given in step.inputs:
            try:
                params[given.name] = self.value(given.value, scope, step, f"inputs.{given.name}")
            except _Unknown:
                params[given.name] = None
        return self.level(target, params, f"{prefix}{step.name}-", needs, depth + 1)

    # -- loops

    def loop(self, name: str, step: Step, needs: tuple[str, ...], scope: dict[str, Any]) -> tuple[str, ...]:
        assert step.each is not None
        where = f"steps.{step.name}.each"
        var = _index_of(step)
        try:
            if var is not None:
                items = self.value(step.each.axes[0][var], scope, step, f"each.{var}")
                if isinstance(items, range | list | tuple) and _counts(items):
                    if len(items) == 0:
                        return self.add(name, step, needs, {**scope, "item": {var: 0}}, count=0)
                    found = {**scope, "item": {var: INDEX}}
                    return self.add(name, step, needs, found, count=len(items), parallel=step.each.parallel)
            combined = self.combinations(step, scope)
        except _Unknown:
            return needs
        if not combined:
            return needs
        if len(combined) > FEW:
            said = f"{step.name} has {len(combined)} tasks that differ in more than their number"
            fix = "loop over range(n) and use the number as it is, so that the pods of one Job can do it, or write Argo"
            self.refuse(self.sizes, where, said, fix, step.source)
            return needs
        if step.each.parallel is not None and step.each.parallel < len(combined):
            said = f"all {len(combined)} tasks of {step.name} start together, not {step.each.parallel} at a time"
            self.report.lost(f"{where}.parallel", said, source=step.source)
        made = [
            self.add(f"{name}-{number}", step, needs, {**scope, "item": item}) for number, item in enumerate(combined)
        ]
        return tuple(one for names in made for one in names)

    def combinations(self, step: Step, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Every combination of the loop variables, up to the limit."""
        assert step.each is not None
        found: list[dict[str, Any]] = [{}]
        for axis in step.each.axes:
            wider: list[dict[str, Any]] = []
            for item in found:
                lists = {
                    name: self.value(items, {**scope, "item": item}, step, f"each.{name}")
                    for name, items in axis.items()
                }
                if not all(isinstance(one, range | list | tuple) for one in lists.values()):
                    raise _Unknown
                length = min(map(len, lists.values()), default=0)
                for number in range(min(length, MOST)):
                    wider.append({**item, **{name: one[number] for name, one in lists.items()}})
                if len(wider) > MOST:
                    break
            found = wider
        return found

    # -- values

    def value(self, value: Any, scope: Mapping[str, Any], step: Step, place: str) -> Any:
        """The value; raises _Unknown after adding a Problem."""
        where = f"steps.{step.name}.{place}"
        for expr in expressions(value):
            for path in references(expr.text):
                if path[0] == "steps" and len(path) > 1:
                    said = f"{step.name} reads {'.'.join(path)}; {self.target} passes nothing from step to step"
                    fix = f"let {path[1]} write it to a volume that {step.name} mounts too, or write Argo"
                    self.refuse(self.values, where, said, fix, step.source)
                    raise _Unknown
        try:
            return resolve(value, scope)
        except (EvaluationError, KeyError, TypeError) as error:
            said = f"{place} of {step.name} is not known before the run: {error}"
            fix = "give the parameter a default, or write the value out"
            self.refuse(self.values, where, said, fix, step.source)
            raise _Unknown from None

    def add(
        self, name: str, step: Step, needs: tuple[str, ...], scope: dict[str, Any], **counted: int | None
    ) -> tuple[str, ...]:
        while name in self.made:
            name = f"{name}-x"
        try:
            plain = self.known(step, scope)
        except _Unknown:
            plain = step
        self.made[name] = PodKind(name, plain, needs, **counted)
        return (name,)

    def known(self, step: Step, scope: dict[str, Any]) -> Step:
        """The step with every value evaluated, and file inputs as mounts."""
        inputs: dict[str, Any] = {}
        mounts = list(step.mounts)
        for given in step.inputs:
            inputs[given.name] = self.value(given.value, scope, step, f"inputs.{given.name}")
            if given.path is not None:
                text = _text(inputs[given.name])
                base = given.path.rstrip("/").rpartition("/")[2] or given.name
                name = f"input-{given.name}"
                mounts.append(Mount(name=name, path=given.path, scope="given", sub_path=base, files={base: text}))
                inputs[given.name] = given.path
        inside = {**scope, "inputs": inputs}
        values = {
            name: _texts(self.value(value, inside, step, f"{step.action.kind}.{name}"), name)
            for name, value in action_values(step.action)
        }
        action = with_values(step.action, values) if values else step.action
        if any(output.path is None for output in step.outputs) and isinstance(action, Container | Script):
            mounts.append(Mount(name="penstock-outputs", path=OUTPUTS))
            action = replace(action, env={**action.env, "PENSTOCK_OUTPUTS": OUTPUTS})
        known = tuple(
            replace(
                mount,
                sub_path=to_text(self.value(mount.sub_path, inside, step, f"mounts.{mount.name}")),
                files={
                    name: _text(self.value(text, inside, step, f"mounts.{mount.name}.{name}"))
                    for name, text in mount.files.items()
                },
            )
            for mount in mounts
        )
        kept = step.inputs if isinstance(action, Function) else ()
        values_of = tuple(replace(one, value=inputs[one.name]) for one in kept)
        return replace(step, action=action, inputs=values_of, outputs=(), needs=(), when=None, each=None, mounts=known)


def _text(value: Any) -> Any:
    return as_written(value) if isinstance(value, Secret) else to_text(value)


def _texts(value: Any, name: str) -> Any:
    """A value of an action as a pod needs it: text, words, a map of texts."""
    if name == "parts":
        return tuple({field: _texts(one, field) for field, one in part.items()} for part in value)
    if name in ("command", "args"):
        return tuple(map(_text, value))
    if name == "env":
        return {key: _text(one) for key, one in value.items()}
    if name == "when":
        return tuple(value)
    return None if value is None else _text(value)


def _counts(items: Sequence[Any]) -> bool:
    if isinstance(items, range):
        return items.start == 0 and items.step == 1
    return all(type(one) is int and one == number for number, one in enumerate(items))


def _index_of(step: Step) -> str | None:
    """The loop variable, if there is only one and it is used only where Kubernetes can insert a number."""
    assert step.each is not None
    if len(step.each.axes) != 1 or len(step.each.axes[0]) != 1 or step.each.gang or step.replicas > 1:
        return None
    (var,) = step.each.axes[0]
    marked = {("item", var)}
    for given in step.inputs:
        if isinstance(given.value, Expr) and simple_path(given.value.text) == ("item", var) and given.path is None:
            marked.add(("inputs", given.name))
        elif _reads(given.value, marked):
            return None
    for mount in step.mounts:
        if _reads((mount.sub_path, *mount.files.values()), marked):
            return None
    for name, value in action_values(step.action):
        parts = value if name == "parts" else ({name: value},)
        for part in parts:
            for field, one in part.items():
                if not _plainly(one, marked, field in ("command", "args", "env", "source")):
                    return None
    return var


def _reads(value: Any, marked: set[tuple[str, str]]) -> bool:
    return any(path[:2] in marked for expr in expressions(value) for path in references(expr.text))


def _plainly(value: Any, marked: set[tuple[str, str]], allowed: bool) -> bool:
    for expr in expressions(value):
        if any(path[:2] in marked or path == path[:1] == ("item",) for path in references(expr.text)) and not (
            allowed and simple_path(expr.text) in marked
        ):
            return False
    return True
