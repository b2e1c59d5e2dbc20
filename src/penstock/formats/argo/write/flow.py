"""Writes one workflow as templates: the root, a definition, or the exit handlers of either. Made by workflow.

It maps every value of the workflow to an Argo variable, and writes a task for each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.expressions.evaluate import to_text
from penstock.expressions.parse import Expr, references
from penstock.expressions.types import INT, STR
from penstock.formats.argo.write.context import TemplateInterface, WriteContext, section
from penstock.formats.argo.write.dag import DagWriter
from penstock.formats.argo.write.expr import ExprWriter, condition, direct
from penstock.formats.argo.write.items import LoopFields, items_of
from penstock.formats.argo.write.slots import Varied
from penstock.formats.argo.write.split import DagScope
from penstock.formats.argo.write.templates import CALL, Callee, TemplateWriter, arguments_of
from penstock.formats.argo.write.types import WorkflowTypes
from penstock.formats.argo.write.variables import ArgoVariable, Find, NotInArgo, literal, of_run
from penstock.graph.model import MISSING, Function, Output, Step, Value, Workflow, expressions, step_values
from penstock.graph.rewrite import as_node

OUTCOME: Final = "penstock-outcome"
"""The parameter with the outcome of a called workflow, for its exit handlers."""


class WorkflowWriter:
    """One workflow, or its exit handlers."""

    def __init__(
        self,
        context: WriteContext,
        typing: WorkflowTypes,
        workflow: Workflow,
        template: str,
        varied: Mapping[int, Varied],
        exits: bool = False,
    ) -> None:
        """`exits`: its exit handlers, not its steps."""
        self.context = context
        self.typing = typing
        self.workflow = workflow
        self.template = template
        self.exits = exits
        self.where = "" if typing.root else f"definitions.{workflow.name}."
        self.callees: dict[str, WorkflowWriter] = {}
        """The workflows that it may call, by name."""
        self.handler: WorkflowWriter | None = None
        """The exit handlers of a definition: a hook of every call."""
        self.published: dict[str, dict[str, str]] = {}
        """Step -> output -> its global name, for exit handlers."""
        self.reads_outcome = False
        self.dag = DagWriter(context, workflow, workflow.on_exit if exits else workflow.steps, template, self.where)
        self.templates = TemplateWriter(context, typing, {}, varied, self.where)
        self._params: set[str] = set()
        """Parameters that are inputs of its dag."""

    # -- writing

    def write(self) -> None:
        self.templates.callees = {name: flow.as_callee() for name, flow in self.callees.items()}
        if not self.exits:
            self.templates.published = self.published
        with self.context.about(self.where.rstrip("."), None, f"the workflow {self.workflow.name!r}"):
            self.dag.arrange()
            self.dag.emit(self.task)
            outputs = {} if self.exits else self._outputs()
            self.dag.close(self._inputs(), outputs, self._around())

    def _around(self) -> dict[str, Any]:
        if self.typing.root or self.workflow.parallel is None or self.exits:
            return {}
        if self.dag.top.children:
            message = "how many tasks may run at a time is not kept where a workflow is cut"
            self.context.report.lost(f"{self.where}parallel", message, "Limit the whole run.", self.workflow.source)
            return {}
        return {"parallelism": self.workflow.parallel}

    def _inputs(self) -> dict[str, Any]:
        parameters, artifacts = [], []
        for param in self.workflow.params:
            if self.typing.is_file(param.name):
                artifacts.append({"name": param.name})
            elif param.name in self._params or not (self.typing.root or self.exits):
                default = {} if param.default is MISSING else {"default": literal(to_text(param.default))}
                parameters.append({"name": param.name, **default})
        if self.exits:
            artifacts = [one for one in artifacts if one["name"] in self._params]
        if self.reads_outcome:
            parameters.append({"name": OUTCOME})
        return section("inputs", {"parameters": parameters, "artifacts": artifacts})

    def as_callee(self) -> Callee:
        handler = self.handler
        if handler is None:
            return Callee(self.template, self.workflow)
        outcome = {OUTCOME: "{{tasks." + CALL + ".status}}"} if handler.reads_outcome else {}
        return Callee(self.template, self.workflow, handler.template, handler._wanted(), outcome)

    def _wanted(self) -> set[str]:
        """Parameters that its exit handlers read."""
        return {
            path[1]
            for step in self.workflow.on_exit
            for value in _all_values(step)
            for expr in expressions(value)
            for path in references(expr.text)
            if path[0] == "params" and len(path) > 1
        }

    # -- outputs

    def _outputs(self) -> dict[str, Any]:
        parameters, artifacts = [], []
        find = self.find(self.dag.top, as_inputs=True)
        for output in self.workflow.outputs:
            with self.context.about(f"{self.where}outputs.{output.name}", None, f"the output {output.name!r}"):
                found = direct(output.value, find)
                if found is not None and found.path[-2] == "artifacts":
                    artifacts.append({"name": output.name, "from": found.tag, **self._optional(output)})
                else:
                    parameters.append({"name": output.name, "valueFrom": self._source(output, found, find)})
        return section("outputs", {"parameters": parameters, "artifacts": artifacts})

    def _optional(self, output: Output) -> dict[str, Any]:
        return {"optional": True} if output.type.name == "optional" or self._lacks(output) else {}

    def _source(self, output: Output, found: ArgoVariable | None, find: Find) -> dict[str, Any]:
        default: dict[str, Any] = {}
        if output.default is not MISSING:
            default = {"default": literal(to_text(output.default))}
        elif self._lacks(output):
            gathered = found is not None and found.gathered
            default = {"default": "[]" if gathered else ""}
        plain = (
            found is not None
            and not found.code
            and not found.status
            and not (found.gathered and found.type.item.name in ("int", "float", "bool"))
        )
        if plain and found is not None and found.path[0] == "tasks":
            return {"parameter": found.tag, **default}
        node = output.value.node if isinstance(output.value, Expr) else as_node(output.value)
        return {"expression": ExprWriter(find).as_text(node), **default}

    def _lacks(self, output: Output) -> bool:
        """Does it read a step that may be skipped?"""
        return any(
            path[0] == "steps" and path[1] in self.dag.steps and self.dag.may_lack(path[1])
            for expr in expressions(output.value)
            for path in references(expr.text)
        )

    # -- one task

    def task(self, scope: DagScope, step: Step) -> dict[str, Any]:
        """Raises NotInArgo."""
        made = self.templates.made(step)
        find = self.find(scope)
        task: dict[str, Any] = {"name": scope.tasks[step.name], "template": made.template}
        inside = self.templates.encloses(step)
        items: LoopFields | None = None
        if step.each is not None and not inside:
            items = self._items(step, made, find)
            find = _with_items(find, items)
        task |= arguments_of(made.slots, find)
        task |= self.dag.waits(scope, [step.name], task["name"])
        if step.when is not None and not (inside and _reads_item(step.when)):
            task["when"] = condition(step.when, find)
        if items is not None:
            task |= items.fields
        task |= self.dag.continues_on(step)
        if step.doc:
            message = "what is said about single steps has no place in Argo"
            self.context.remark("changed", message, step, f"{self.where}steps.{step.name}.doc")
        if step.each is not None and step.each.gang:
            message = "Argo starts the tasks of a loop one by one; that all start or none is not kept"
            path = f"{self.where}steps.{step.name}.each.gang"
            self.context.remark("lost", message, step, path, "Gate the workflow: penstock gate.")
        return task

    def _items(self, step: Step, made: TemplateInterface, find: Find) -> LoopFields:
        assert step.each is not None
        values: list[Value] = [*(slot.value for slot in made.slots), step.when]
        reads = [
            path
            for value in values
            if value is not None
            for expr in expressions(value)
            for path in references(expr.text)
            if path[0] == "item"
        ]
        return items_of(step.each, find, self.typing.variables(step), reads, isinstance(step.action, Function))

    # -- where values are found

    def find(self, scope: DagScope, as_inputs: bool = False) -> Find:
        """`as_inputs`: parameters of the root are inputs of its dag: outputs of a dag can read nothing else."""

        def find(path: tuple[str, ...]) -> ArgoVariable | None:
            root = path[0]
            if root == "steps" and len(path) > 2:
                return self._step_value(scope, path)
            if root == "params" and len(path) > 1:
                return self._param(scope, path[1], as_inputs)
            match path:
                case ("workflow", "outcome" | "phase" as word) if self.exits:
                    where: tuple[str, ...] = ("workflow", "status")
                    if not self.typing.root:
                        self.reads_outcome = True
                        where = scope.path(("param", OUTCOME, "parameters"))
                    return ArgoVariable(where, STR, 2, status=word == "outcome")
            return of_run(path)

        return find

    def _param(self, scope: DagScope, name: str, as_input: bool) -> ArgoVariable:
        type_ = self.typing.params[name]
        if self.typing.is_file(name):
            self._params.add(name)
            if self.exits and self.typing.root:
                raise NotInArgo(f"an exit handler reads the file {name}", "publish it from a step", "P846")
            return ArgoVariable(scope.path(("param", name, "artifacts")), type_, 2)
        if self.typing.root and not as_input:
            return ArgoVariable(("workflow", "parameters", name), type_, 2)
        self._params.add(name)
        return ArgoVariable(scope.path(("param", name, "parameters")), type_, 2)

    def _step_value(self, scope: DagScope, path: tuple[str, ...]) -> ArgoVariable | None:
        name, what = path[1], path[2]
        step = self.dag.steps.get(name)
        if step is None:
            return self._published(path)
        if what in ("outcome", "phase"):
            return ArgoVariable(scope.path(("status", name, "")), STR, 3, status=what == "outcome")
        if what == "exit_code":
            return ArgoVariable(scope.path(("exitCode", name, "")), INT, 3)
        access = self.templates.made(step).outputs.get(path[3]) if len(path) > 3 else None
        if step.each is not None and (access is None or access.kind == "artifacts"):
            why = f"the files that the tasks of {name} give are several, and Argo does not gather files"
            raise NotInArgo(why, "let the tasks write into a folder that they share", "P846")
        if access is None:
            return None
        type_ = self.typing.output(name, path[3])
        where = scope.path((access.kind, name, access.name))
        if step.each is None:
            return ArgoVariable(where, type_, 4)
        return ArgoVariable(where, type_, 4, True, to_text(self.typing.absent(name, path[3])))

    def _published(self, path: tuple[str, ...]) -> ArgoVariable | None:
        """A value of a step that an exit handler reads."""
        if not self.exits:
            why = f"{'.'.join(path)} is given by an exit handler, and outputs come from the steps before"
            raise NotInArgo(why, "make it a step that waits for the others, whatever happens")
        if path[2] != "outputs" or len(path) < 4:
            raise NotInArgo(f"an exit handler asks how {path[1]} ended, and Argo only tells it how the workflow did")
        known = self.published.get(path[1], {}).get(path[3])
        if known is None:
            why = f"an exit handler of a workflow that is called reads {'.'.join(path)}"
            raise NotInArgo(why, "let an exit handler of the whole workflow do it")
        type_ = self.typing.output(path[1], path[3])
        kind = "artifacts" if type_.name in ("file", "dir") else "parameters"
        return ArgoVariable(("workflow", "outputs", kind, known), type_, 4, gathered=self.typing.loops(path[1]))


def published_names(workflow: Workflow) -> dict[str, dict[str, str]]:
    """Outputs of steps that exit handlers read -> global names."""
    main = {step.name for step in workflow.steps}
    found: dict[str, dict[str, str]] = {}
    for step in workflow.on_exit:
        for value in _all_values(step):
            for expr in expressions(value):
                for path in references(expr.text):
                    if path[0] == "steps" and path[1] in main and len(path) > 3 and path[2] == "outputs":
                        found.setdefault(path[1], {})[path[3]] = f"{path[1]}-{path[3]}"
    return found


def _all_values(step: Step) -> Iterable[Value]:
    for _, value in step_values(step):
        yield value


def _with_items(find: Find, items: LoopFields) -> Find:
    return lambda path: items.find(path) if path[0] == "item" else find(path)


def _reads_item(value: Value) -> bool:
    return any(path[0] == "item" for expr in expressions(value) for path in references(expr.text))
