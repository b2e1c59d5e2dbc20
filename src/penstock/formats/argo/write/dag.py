"""Writes a workflow as dags: dependencies, clusters if there are too many tasks, inputs and outputs of clusters. Called by flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.expressions.parse import Expr, references
from penstock.expressions.template import Template
from penstock.formats.argo.write.context import WriteContext, section
from penstock.formats.argo.write.depends import ALWAYS, depends_text, task_text
from penstock.formats.argo.write.split import MOST_TASKS, MOST_TOGETHER, DagScope, StepCluster, cut, nodes_of
from penstock.formats.argo.write.variables import ArgoVariable
from penstock.graph.model import NORMAL, Outcome, Step, Workflow, edges_of, expressions, step_values

_ENDS: Final = (("outcome",), ("exit_code",))
Task = Callable[[DagScope, Step], dict[str, Any]]


class DagWriter:
    """The steps of one workflow, or its exit handlers."""

    def __init__(
        self, context: WriteContext, workflow: Workflow, steps: Iterable[Step], template: str, where: str
    ) -> None:
        self.context = context
        self.workflow = workflow
        self.where = where
        self.template = template
        self.steps = {step.name: step for step in steps}
        self.edges = {
            name: {up: outcomes for up, outcomes in edges_of(step).items() if up in self.steps}
            for name, step in self.steps.items()
        }
        self.listed = self._by_lists()
        self.top = DagScope(None, template)
        self.bodies: dict[str, dict[str, Any]] = {}

    def _by_lists(self) -> bool:
        """Can lists of dependencies and continueOn express it? `depends` cannot be mixed with either."""
        if not any(step.tolerates for step in self.steps.values()):
            return False
        return all(step.trigger is None for step in self.steps.values()) and all(
            outcomes in (NORMAL, NORMAL | self.steps[up].tolerates)
            for ups in self.edges.values()
            for up, outcomes in ups.items()
        )

    # -- clusters

    def arrange(self) -> None:
        """Assigns every step to a dag. Raises NotInArgo."""
        if (
            sum(map(self._weight, self.steps)) <= MOST_TASKS
            and sum(self._size(name) for name in self.steps) <= MOST_TOGETHER
        ):
            self._fill(self.top, [StepCluster([step], 1, 0, set(), set()) for step in self.steps])
            return
        message = (
            f"its {len(self.steps):,} steps are cut into dags of at most {MOST_TASKS}: what waits for one step of such a dag"
            " waits for all of it, and does not start if any step of it fails"
        )
        self.context.report.changed(f"{self.where}steps", message, "", self.workflow.source)
        asks = {step: self._asks(step) for step in self.steps}
        together = [
            (step, up)
            for step, ups in self.edges.items()
            for up, outcomes in ups.items()
            if (outcomes != NORMAL and not outcomes >= ALWAYS and not self.listed) or up in asks[step]
        ]
        alone = {step for step, ups in self.edges.items() if any(outcomes >= ALWAYS for outcomes in ups.values())}
        alone -= {step for pair in together for step in pair}
        ups = {step: tuple(known) for step, known in self.edges.items()}
        nodes = nodes_of(list(self.steps), ups, together, alone, self._weight, self._size, self._reads)
        self._fill(self.top, cut(nodes))

    def _asks(self, name: str) -> set[str]:
        """The steps whose outcome it reads."""
        step = self.steps[name]
        found = set()
        for value in (step.trigger, step.when, *(given.value for given in step.inputs)):
            for expr in () if value is None or type(value) is str else expressions(value):
                if "outcome" in expr.text or "exit_code" in expr.text:
                    paths = references(expr.text)
                    found |= {path[1] for path in paths if path[0] == "steps" and path[2:3] in _ENDS}
        return found

    def _weight(self, name: str) -> int:
        return 2 if self.needs_nothing(self.steps[name]) else 1

    def _size(self, name: str) -> int:
        """The approximate bytes of its task."""
        step = self.steps[name]
        found = 150 + 12 * len(self.edges[name]) + sum(80 + _bytes(given.value) for given in step.inputs)
        return found + (_bytes([*step.each.axes]) if step.each is not None else 0)

    def _reads(self, name: str) -> Iterator[tuple[str, str]]:
        for _, value in step_values(self.steps[name]):
            for expr in expressions(value):
                for path in references(expr.text):
                    if path[0] == "steps" and len(path) > 3 and path[1] in self.steps:
                        yield path[1], path[3]

    def _fill(self, scope: DagScope, nodes: Iterable[StepCluster]) -> None:
        for node in nodes:
            if node.inner and node.weight == 1:
                name = scope.names.fresh(f"part-{len(scope.children) + 1}")
                template = self.context.names.fresh(f"{scope.template}-{name}")
                child = DagScope(scope, template, name, homes=scope.homes)
                scope.children.append(child)
                self._fill(child, node.inner)
                continue
            for step in node.steps:
                scope.homes[step] = scope
                scope.tasks[step] = scope.names.fresh(step)
                if scope.tasks[step] != step:
                    message = "Argo knows no '_' in names, and no digit at the beginning: they are written with '-'"
                    self.context.remark("changed", message, self.steps[step], f"{self.where}steps.{step}")

    # -- tasks

    def emit(self, task: Task) -> None:
        """The bodies of all dags. The inputs of a cluster are known only when its tasks are written."""
        self._emit(self.top, task)

    def _emit(self, scope: DagScope, task: Task) -> None:
        for child in scope.children:
            self._emit(child, task)
        tasks: list[dict[str, Any]] = []
        for name in scope.tasks:
            step = self.steps[name]
            with self.context.about(f"{self.where}steps.{name}", step):
                tasks.append(task(scope, step))
                tasks += self._after(scope, step)
        tasks += [self._cluster(scope, child) for child in scope.children]
        if not tasks:  # an Argo dag must not be empty
            tasks.append({"name": "nothing", "template": self._nothing()})
        fail_fast = {} if self.workflow.fail_fast else {"failFast": False}
        self.bodies[scope.template] = {"dag": {**fail_fast, "tasks": tasks}}

    def _cluster(self, scope: DagScope, child: DagScope) -> dict[str, Any]:
        parameters, artifacts = [], []
        for key, name in child.imports.items():
            path = scope.path(key)
            if path[-2] == "artifacts":
                artifacts.append({"name": name, "from": ArgoVariable(path).tag})
            else:
                parameters.append({"name": name, "value": ArgoVariable(path).tag})
        task = {"name": child.task, "template": child.template}
        task |= section("arguments", {"parameters": parameters, "artifacts": artifacts})
        return task | self.waits(scope, list(_steps_in(child)), child.task)

    def waits(self, scope: DagScope, names: list[str], task: str) -> dict[str, Any]:
        """`depends` of a task, which is a step or a cluster of steps. Raises NotInArgo."""
        asked: dict[str, frozenset[Outcome]] = {}
        for name in names:
            for up, outcomes in self.edges[name].items():
                sibling = scope.sibling(up)
                if sibling is None or sibling == task:
                    continue
                inside = scope.tasks.get(up) != sibling or scope.tasks.get(name) != task
                wanted = ALWAYS if outcomes >= ALWAYS else NORMAL if inside else outcomes & ALWAYS
                asked[sibling] = asked.get(sibling, ALWAYS) & wanted
        if self.listed:
            return {"dependencies": list(asked)} if asked else {}
        own = self.steps[names[0]].trigger if scope.tasks.get(names[0]) == task else None
        read = [] if own is None else [path[1] for path in references(own.text) if path[0] == "steps"]
        named = {sibling for step in read if (sibling := scope.sibling(step)) is not None}
        trigger = None if own is None else own.node
        text = depends_text(asked, trigger, lambda step: scope.path(("status", step, ""))[1], named)
        return {"depends": text} if text else {}

    # -- what a step may fail for

    def continues_on(self, step: Step) -> dict[str, Any]:
        if not self.listed or not step.tolerates:
            return {}
        words = (("failed", Outcome.FAILED), ("error", Outcome.ERRORED))
        return {"continueOn": {name: True for name, outcome in words if outcome in step.tolerates}}

    def needs_nothing(self, step: Step) -> bool:
        """Does it need a successor that succeeds, so that its failure does not fail the dag?"""
        return bool(step.tolerates) and not self.listed

    def _after(self, scope: DagScope, step: Step) -> list[dict[str, Any]]:
        if not self.needs_nothing(step):
            return []
        name = scope.tasks[step.name]
        held_up = any(step.name in ups and not ups[step.name] >= step.tolerates & ALWAYS for ups in self.edges.values())
        if held_up:
            message = "when it fails Argo counts the run as failed, because other steps wait for it to go well"
            self.context.remark("changed", message, step, f"{self.where}steps.{step.name}.tolerates")
        return [
            {
                "name": scope.names.fresh(f"{name}-tolerated"),
                "template": self._nothing(),
                "depends": task_text(name, ALWAYS),
            }
        ]

    def _nothing(self) -> str:
        """A template that does nothing and succeeds."""
        return self.context.share("penstock-nothing", {"suspend": {"duration": "1"}})

    # -- borders

    def close(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], around: Mapping[str, Any]) -> None:
        """Adds all dags to the context: the outermost with these inputs and outputs."""
        self.context.put(self.template, {**inputs, **outputs, **self.bodies[self.template], **around})
        for child in self.top.children:
            self._close(child)

    def _close(self, scope: DagScope) -> None:
        kinds: dict[str, list[dict[str, Any]]] = {"parameters": [], "artifacts": []}
        for (kind, _, name), own in scope.imports.items():
            kinds[name if kind == "param" else "artifacts" if kind == "artifacts" else "parameters"].append(
                {"name": own}
            )
        self.context.put(
            scope.template,
            {**section("inputs", kinds), **section("outputs", self._exports(scope)), **self.bodies[scope.template]},
        )
        for child in scope.children:
            self._close(child)

    def _exports(self, scope: DagScope) -> dict[str, list[dict[str, Any]]]:
        parameters: list[dict[str, Any]] = []
        artifacts: list[dict[str, Any]] = []
        for key, name in scope.exports.items():
            tag = ArgoVariable(scope.path(key)).tag
            lacking = self.may_lack(key[1])
            if key[0] == "artifacts":
                artifacts.append({"name": name, "from": tag, **({"optional": True} if lacking else {})})
            else:
                absent = {"default": "[]" if self.steps[key[1]].each is not None else ""} if lacking else {}
                parameters.append({"name": name, "valueFrom": {"parameter": tag, **absent}})
        return {"parameters": parameters, "artifacts": artifacts}

    def may_lack(self, name: str) -> bool:
        """Can the step end normally without outputs?"""
        step = self.steps[name]
        return (
            step.when is not None
            or step.trigger is not None
            or step.each is not None
            or any(outcomes != NORMAL and not outcomes >= ALWAYS for outcomes in self.edges[name].values())
        )


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    return (
        sum(map(_bytes, value.values())) if isinstance(value, dict) else 50 if isinstance(value, Expr | Template) else 5
    )


def _steps_in(scope: DagScope) -> Iterator[str]:
    yield from scope.tasks
    for child in scope.children:
        yield from _steps_in(child)
