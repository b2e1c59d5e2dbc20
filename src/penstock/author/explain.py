"""Workflow -> readable Python in the object form. Called by `wf.explain()` and, later, by `convert --to python`.

What it prints is code that builds the same workflow again, digest for digest: the proof that both forms mean one thing, and
the place to look when a compiled function does something unexpected. What Python cannot say with operators is written as the
text of an expression, which every field takes.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.author.options import GPU, set_left
from penstock.graph import model, quantity
from penstock.graph.expr import Binary, Call, Const, Expr, Index, Member, Node, Unary, path_of, references
from penstock.graph.model import MISSING, Input, Output, Step, Workflow
from penstock.graph.order import NotOrdered, topological
from penstock.graph.template import Template, show_template
from penstock.graph.types import Type

_PYTHON_TYPES = {"int": "int", "float": "float", "str": "str", "bool": "bool"}
_PUBLIC = frozenset("Backoff Cache Retry Toleration".split())
WIDTH = 110


def explain(workflow: Workflow) -> str:
    return _Writer(workflow).text()


def _all_steps(workflow: Workflow) -> Iterator[Step]:
    for one in (workflow, *workflow.definitions):
        yield from (*one.steps, *one.on_exit)


class _Writer:
    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.imports: dict[str, set[str]] = {"penstock": {"Workflow"}}
        self.modules: set[str] = set()
        self.taken = {
            step.action.module.partition(".")[0]
            for step in _all_steps(workflow)
            if isinstance(step.action, model.Function)
        }
        """Names in use; those of modules come first."""
        self.definitions: dict[str, str] = {}
        self.called_by_name: set[str] = set()

    def text(self) -> str:
        by_name = {each.name: each for each in self.workflow.definitions}
        uses = {
            name: {step.action.name for step in (*each.steps, *each.on_exit) if isinstance(step.action, model.Nested)}
            & by_name.keys()
            for name, each in by_name.items()
        }
        blocks = []
        for name in _callees_first(uses):
            blocks += self.one_workflow(by_name[name])
        blocks += self.one_workflow(self.workflow)
        head = [f"import {module}" for module in sorted(self.modules)]
        head += [
            f"from {module} import {', '.join(sorted(names))}"
            for module, names in sorted(self.imports.items())
            if names
        ]
        return "\n".join(head) + "\n\n" + "\n\n".join(blocks) + "\n"

    def use(self, name: str, module: str = "penstock") -> str:
        self.imports.setdefault(module, set()).add(name)
        return name

    def variable(self, name: str) -> str:
        base = re.sub(r"\W", "_", name)
        base = f"_{base}" if not base or base[0].isdigit() or keyword.iskeyword(base) else base
        found, number = base, 2
        while found in self.taken:
            found, number = f"{base}_{number}", number + 1
        self.taken.add(found)
        return found

    def one_workflow(self, workflow: Workflow) -> list[str]:
        scope = _Names(self, {}, {})
        blocks = []
        declared = []
        for param in workflow.params:
            scope.params[param.name] = self.variable(param.name)
            declared.append(
                f"{scope.params[param.name]} = {self.param(param.name, param.type, param.default, param.choices, param.doc)}"
            )
        if declared:
            blocks.append("\n".join(declared))
        everything = {step.name: step for step in (*workflow.steps, *workflow.on_exit)}
        for name in everything:
            scope.steps[name] = self.variable(name)
        scope.by_name = frozenset(
            name
            for name, step in everything.items()
            if isinstance(step.action, model.Nested) and step.action.name not in self.definitions
        )
        waits = {name: [up for up in model.edges_of(step) if up in everything] for name, step in everything.items()}
        for name in topological(waits):
            blocks.append(_StepWriter(self, scope, everything[name], scope.steps[name]).text())
        # What is only called by others is not to be mistaken for the workflow of the file.
        own = self.variable(workflow.name if workflow is self.workflow else f"_{workflow.name}")
        self.definitions[workflow.name] = own
        blocks.append(self.assembly(workflow, scope, own))
        return blocks

    def assembly(self, workflow: Workflow, scope: _Names, own: str) -> str:
        args = [repr(workflow.name), f"steps=[{', '.join(scope.steps[step.name] for step in workflow.steps)}]"]
        if workflow.params:
            args.append(f"params=[{', '.join(scope.params[param.name] for param in workflow.params)}]")
        if workflow.outputs:
            results = [
                self.param(o.name, o.type, o.value, (), "", scope) if o.default is MISSING else _built(self, o)
                for o in workflow.outputs
            ]
            args.append(f"outputs=[{', '.join(results)}]")
        if workflow.on_exit:
            args.append(f"on_exit=[{', '.join(scope.steps[step.name] for step in workflow.on_exit)}]")
        if workflow is self.workflow and self.called_by_name:
            args.append(f"uses=[{', '.join(self.definitions[name] for name in sorted(self.called_by_name))}]")
        if workflow.judged_by != "handled":
            args.append(f"judged_by={workflow.judged_by!r}")
        if workflow.locks:
            args.append(f"locks=[{', '.join(_built(self, lock) for lock in workflow.locks)}]")
        if workflow.extra:
            args.append(f"extra={_part(self, workflow.extra)}")
        for name in ("queue", "priority", "unit", "parallel", "timeout", "fail_fast", "labels", "doc"):
            value = getattr(workflow, name)
            if value or (name == "priority" and value is not None):
                args.append(f"{name}={str(value)!r}" if name == "unit" else f"{name}={value!r}")
        return call(f"{own} = Workflow", args)

    def param(
        self,
        name: str,
        type_: Type,
        default: Any = MISSING,
        choices: tuple[Any, ...] = (),
        doc: str = "",
        scope: _Names | None = None,
        path: str | None = None,
    ) -> str:
        args = [repr(name)]
        if type_.name != "any":
            args.append(python_type(type_))
        if default is not MISSING:
            text = (scope or _Names(self, {}, {})).value(default)
            args.append(text if len(args) == 2 else f"default={text}")
        if choices:
            args.append(f"choices={choices!r}")
        if path is not None:
            args.append(f"path={path!r}")
        if doc:
            args.append(f"doc={doc!r}")
        return f"{self.use('WorkflowParam')}({', '.join(args)})"


def _callees_first(uses: Mapping[str, set[str]]) -> list[str]:
    """Workflows in an order in which each can be written down; one that calls itself refers to itself by name."""
    left = {name: set(called) - {name} for name, called in uses.items()}
    while True:
        try:
            return topological(left)
        except NotOrdered as cycle:
            names = cycle.names
            for name, other in zip(names, [*names[1:], names[0]], strict=True):
                if other in left[name]:
                    left[name].discard(other)
                    break
                if name in left[other]:
                    left[other].discard(name)
                    break


def python_type(type_: Type) -> str:
    """`list[float]` as Python has it; what only Penstock has (file, object) in quotes."""
    return _annotation(type_) or repr(str(type_))


def _annotation(type_: Type) -> str | None:
    inner = [_annotation(arg) for arg in type_.args]
    if any(part is None for part in inner):
        return None
    parts = ", ".join(part for part in inner if part)
    match type_.name:
        case "list" | "tuple":
            return f"{type_.name}[{parts}]"
        case "dict":
            return f"dict[str, {parts}]"
        case "optional":
            return f"{parts} | None"
        case name:
            return _PYTHON_TYPES.get(name)


def call(head: str, args: list[str], indent: str = "") -> str:
    """On one line if it fits, else one argument to a line."""
    line = f"{head}({', '.join(args)})"
    if len(indent + line) <= WIDTH and "\n" not in line:
        return indent + line
    return f"{indent}{head}(\n" + "".join(f"{indent}    {arg},\n" for arg in args) + f"{indent})"


def _quoted(text: str) -> str:
    """A text of several lines as it is read, if nothing in it has to be escaped; any other in quotes."""
    if "\n" in text.strip("\n") and _stands_as_it_is(text) and not text.endswith('"'):
        return f'"""\\\n{text}"""'
    return repr(text)


def _stands_as_it_is(text: str) -> bool:
    return "\\" not in text and '"""' not in text and all(char in "\n\t" or char.isprintable() for char in text)


class _NotPython(ValueError):
    """No operators say this; the text of the expression does."""


@dataclasses.dataclass
class _Names:
    """What a path of an expression is called in the Python around it."""

    writer: _Writer
    params: dict[str, str]
    steps: dict[str, str]
    items: Mapping[str, str] = dataclasses.field(default_factory=dict)
    by_name: frozenset[str] = frozenset()
    """Steps whose outputs are not known where they are written: they call a workflow that is still being written."""

    def value(self, value: Any) -> str:
        if isinstance(value, Expr):
            try:
                return self.node(value.node)
            except _NotPython:
                return repr(show_template(value))
        if isinstance(value, Template):
            return self.template(value)
        if isinstance(value, str):
            return _quoted(show_template(value))
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.value(item)}" for key, item in value.items()) + "}"
        return repr(value)

    def template(self, value: Template) -> str:
        block = self._block(value)
        if block is not None:
            return block
        parts = []
        try:
            for part in value.parts:
                if isinstance(part, str):
                    parts.append(repr(part)[1:-1].replace("{", "{{").replace("}", "}}"))
                    if repr(part)[0] != "'" or "${{" in part or part.endswith("$"):
                        raise _NotPython
                else:
                    text = self.node(part.node)
                    if "'" in text or '"' in text or "\\" in text:
                        raise _NotPython
                    parts.append("{" + text + "}")
        except _NotPython:
            return repr(show_template(value))
        return "f'" + "".join(parts) + "'"

    def _block(self, value: Template) -> str | None:
        """A text of several lines as it is read, if nothing in it has to be escaped."""
        text = ""
        for part in value.parts:
            if isinstance(part, str):
                if not _stands_as_it_is(part) or "${{" in part:
                    return None
                text += part.replace("{", "{{").replace("}", "}}")
            else:
                try:
                    inner = self.node(part.node)
                except _NotPython:
                    return None
                if set(inner) & set("'\"\\"):
                    return None
                text += "{" + inner + "}"
        plain = "".join(part for part in value.parts if isinstance(part, str))
        if "\n" not in plain.strip("\n") or re.search(r"\$\{[^{]", text) or text.endswith('"'):
            return None
        return f'f"""\\\n{text}"""'

    def condition(self, expr: Expr) -> str:
        try:
            return self.node(expr.node)
        except _NotPython:
            return repr(expr.text)

    def node(self, node: Node) -> str:
        """Raises _NotPython unless building this with Refs gives the very same tree."""
        path = path_of(node)
        if path is not None:
            found = self.path(path)
            if found is not None:
                return found
        match node:
            case Member(of, name):
                return f"{self.node(of)}[{name!r}]"
            case Index(of, Const(value)) if (
                isinstance(value, str | int)
                and not isinstance(value, bool)
                and not (isinstance(value, int) and value < 0)
            ):
                return f"{self.node(of)}[{value!r}]"
            case Index(of, index):
                return f"{self.node(of)}[{self.node(index)}]"
            case Binary("==" | "!=" | "<" | "<=" | ">" | ">=" as op, left, right):
                return f"{self.operand(left)} {op} {self.operand(right) if not isinstance(right, Const) else self.constant(right)}"
            case Binary("&&" | "||" as op, left, right):
                return f"{self.operand(left)} {'&' if op == '&&' else '|'} {self.operand(right)}"
            case Unary("!", of):
                return f"~{self.operand(of)}"
            case Call("size", (of,), None):
                return f"{self.node(of)}.size()"
            case Binary("in", item, of):
                return (
                    f"{self.node(of)}.contains({self.constant(item) if isinstance(item, Const) else self.node(item)})"
                )
            case _:
                raise _NotPython

    def operand(self, node: Node) -> str:
        text = self.node(node)
        return f"({text})" if isinstance(node, Binary) and node.op != "in" else text

    def constant(self, node: Const) -> str:
        return repr(show_template(node.value)) if isinstance(node.value, str) else repr(node.value)

    def path(self, path: tuple[str, ...]) -> str | None:
        if path[0] == "params" and len(path) == 2 and path[1] in self.params:
            return self.params[path[1]]
        if path[0] == "item" and len(path) == 2 and path[1] in self.items:
            return self.items[path[1]]
        if path[0] == "steps" and path[1:2] and path[1] in self.by_name:
            raise _NotPython
        if path[0] == "steps" and len(path) == 4 and path[2] == "outputs" and path[1] in self.steps:
            return f"{self.steps[path[1]]}.outputs[{path[3]!r}]"
        if path[0] == "steps" and len(path) == 3 and path[2] == "outcome" and path[1] in self.steps:
            return f"{self.steps[path[1]]}.outcome"
        if len(path) == 1:
            raise _NotPython
        return None


class _StepWriter:
    """One step: the job, and the decorators around it."""

    def __init__(self, writer: _Writer, scope: _Names, step: Step, variable: str) -> None:
        self.writer = writer
        self.step = step
        self.variable = variable
        self.outer = scope
        names = [name for axis in (step.each.axes if step.each else ()) for name in axis]
        self.decorated = bool(names) and all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
        shadowed = set(names) & ({*scope.params.values()} | {*scope.steps.values()})
        self.decorated = self.decorated and not shadowed
        self.scope = dataclasses.replace(scope, items={name: name for name in names} if self.decorated else {})

    def text(self) -> str:
        step = self.step
        after = self.after()
        if not self.decorated and step.loop is None:
            text = call(f"{self.variable} = {self.head()}", self.args(inline_when=True)) + after
            if step.each is not None:
                axes = ", ".join(
                    "{" + ", ".join(f"{name!r}: {self.raw(items)}" for name, items in axis.items()) + "}"
                    for axis in step.each.axes
                )
                limits = f", parallel={step.each.parallel}" if step.each.parallel else ""
                text += f"\n{self.variable}.each = {self.writer.use('ForEach', 'penstock.graph.model')}(axes=({axes},){limits}{', gang=True' if step.each.gang else ''})"
            return text
        decorators = list(self.decorators())
        parameters = ", ".join(self.scope.items)
        body = call(f"return {self.head()}", self.args(inline_when=False), "    ") + after
        return "\n".join([*decorators, f"def {self.variable}({parameters}):", body])

    def raw(self, value: Any) -> str:
        """A value as model data, for the rare case that no decorator can say it."""
        if isinstance(value, Expr):
            return f"{self.writer.use('Expr', 'penstock.graph.expr')}.of({value.text!r})"
        if isinstance(value, tuple):
            return f"({''.join(self.raw(item) + ', ' for item in value)})"
        return repr(value)

    def decorators(self) -> Iterator[str]:
        step = self.step
        if self.decorated and step.each is not None:
            yield from self.for_loops(step.each)
        if step.loop is not None:
            loop = step.loop
            args = [repr(loop.condition.text)]
            if loop.carry:
                args.append(f"carry={dict(loop.carry)!r}")
            args.append(f"max_iterations={loop.max_iterations}")
            args.append(f"test={loop.test!r}")
            if loop.at_limit != "stop":
                args.append(f"at_limit={loop.at_limit!r}")
            yield f"@{self.writer.use('while_loop')}({', '.join(args)})"
        if step.when is not None:
            inside = {path[1] for path in references(step.when.text) if path[0] == "item" and len(path) > 1}
            text = self.scope.condition(step.when)
            if inside and text[0] not in "'\"":
                text = f"lambda {', '.join(name for name in self.scope.items if name in inside)}: {text}"
            yield f"@{self.writer.use('when')}({text})"

    def for_loops(self, each: model.ForEach) -> Iterator[str]:
        limits = [f"parallel={each.parallel}"] if each.parallel is not None else []
        limits += ["gang=True"] if each.gang else []
        known: list[str] = []
        for axis in each.axes:
            args = []
            for name, items in axis.items():
                inside = {
                    path[1]
                    for expr in model.expressions(items)
                    for path in references(expr.text)
                    if path[0] == "item" and len(path) > 1
                }
                text = self.items(items)
                args.append(
                    f"{name}=lambda {', '.join(n for n in known if n in inside)}: {text}"
                    if inside and text[0] not in "'\""
                    else f"{name}={text}"
                )
            known += axis
            if len(axis) > 1:
                args.append("zipped=True")
            yield f"@{self.writer.use('for_loop')}({', '.join([*args, *limits])})"
            limits = []

    def items(self, items: Any) -> str:
        if isinstance(items, Expr):
            match items.node:
                case Call("range", args) if all(isinstance(arg, Const) for arg in args) and len(args) == 3:
                    return f"range({', '.join(str(arg.value) for arg in args if isinstance(arg, Const))})"
        return self.scope.value(items)

    def head(self) -> str:
        match self.step.action:
            case model.Container():
                return self.writer.use("ContainerJob")
            case model.Script(source=source) if not isinstance(source, str) or set_left(source) == source:
                return self.writer.use("ScriptJob")
            case model.Resource(manifest=manifest) if isinstance(manifest, Mapping):
                return self.writer.use("ResourceJob")
            case model.Function(name=name) if self.importable(name):
                return self.writer.use("FunctionJob")
            case model.Nested(name=name) if name in self.writer.definitions:
                return f"{self.writer.definitions[name]}.as_job"
            case _:
                return self.writer.use("BaseJob")

    def importable(self, name: str) -> bool:
        return (
            all(part.isidentifier() for part in name.split("."))
            and not self.step.outputs[1:]
            and bool(self.step.outputs)
        )

    def args(self, inline_when: bool) -> list[str]:
        step = self.step
        args = [repr(step.name), *self.action_args()]
        args += self.inputs()
        args += self.outputs()
        if inline_when and step.when is not None:
            args.append(f"when={self.scope.condition(step.when)}")
        if step.trigger is not None:
            args.append(f"trigger={self.scope.condition(step.trigger)}")
        return args + list(self.options())

    def action_args(self) -> Iterator[str]:
        value = self.scope.value
        match self.step.action:
            case model.Container(image=image, command=command, args=args, env=env, workdir=workdir):
                yield f"image={value(image)}"
                yield from (f"{name}={value(words)}" for name, words in (("command", command), ("args", args)) if words)
                yield from self.surroundings(env, workdir)
            case model.Script(source=source, command=command, image=image, env=env, workdir=workdir) if (
                self.head() == "ScriptJob"
            ):
                yield f"source={value(source)}"
                if command != ("sh",):
                    yield f"command={value(command)}"
                if image is not None:
                    yield f"image={value(image)}"
                yield from self.surroundings(env, workdir)
            case model.Resource(
                manifest=manifest, action=action, success_condition=success, failure_condition=failure
            ) if isinstance(manifest, Mapping):
                yield value(manifest)
                if action != "create":
                    yield f"action={action!r}"
                yield from (
                    f"{name}={expr.text!r}"
                    for name, expr in (("success_condition", success), ("failure_condition", failure))
                    if expr is not None
                )
            case model.Function(module=module, name=name, image=image, env=env) if self.importable(name):
                self.writer.modules.add(module)
                yield f"{module}.{name}"
                if image is not None:
                    yield f"image={value(image)}"
                yield from self.surroundings(env, None)
            case model.Nested(name=name) if name in self.writer.definitions:
                return
            case other:
                if isinstance(other, model.Nested):
                    self.writer.called_by_name.add(other.name)
                yield self.built(other)

    def surroundings(self, env: Mapping[str, Any], workdir: str | None) -> Iterator[str]:
        if env:
            yield f"env={self.scope.value(env)}"
        if workdir is not None:
            yield f"workdir={workdir!r}"

    def inputs(self) -> Iterator[str]:
        given = self.step.inputs
        if not given:
            return
        by_signature = self.head() == "FunctionJob" or self.head().endswith(".as_job")
        if by_signature and all(item.path is None and item.default is MISSING for item in given):
            yield "inputs={" + ", ".join(f"{item.name!r}: {self.scope.value(item.value)}" for item in given) + "}"
        else:
            yield f"inputs=[{', '.join(self.input(item) for item in given)}]"

    def input(self, item: Input) -> str:
        if item.default is not MISSING:
            return self.built(item)
        return self.writer.param(item.name, item.type, item.value, scope=self.scope, path=item.path)

    def outputs(self) -> Iterator[str]:
        outputs = self.step.outputs
        if not outputs or (self.head() == "FunctionJob" and outputs[0] == Output(name="result", type=outputs[0].type)):
            return
        yield f"outputs=[{', '.join(self.output(output) for output in outputs)}]"

    def output(self, output: Output) -> str:
        if output.value is MISSING:
            return self.writer.param(output.name, output.type, output.default, path=output.path)
        return self.built(output)

    def options(self) -> Iterator[str]:
        step = self.step
        rest = dict(step.resources)
        for name, resource in (("cpu", "cpu"), ("memory", "memory"), ("gpu", GPU)):
            if resource in rest:
                yield f"{name}={_amount(rest.pop(resource), resource)}"
        if rest:
            yield (
                "resources={"
                + ", ".join(f"{name!r}: {_amount(amount, name)}" for name, amount in sorted(rest.items()))
                + "}"
            )
        if step.replicas != 1:
            yield f"replicas={step.replicas}"
        if step.placement is not None:
            yield from self.placement(step.placement)
        for name in ("queue", "priority", "group", "timeout", "doc"):
            if getattr(step, name) or (name == "priority" and step.priority is not None):
                yield f"{name}={getattr(step, name)!r}"
        if step.retry is not None:
            yield f"retry={step.retry.limit if step.retry == model.Retry(limit=step.retry.limit) and step.retry.limit else self.built(step.retry)}"
        if step.exempt:
            yield "exempt=True"
        if step.tolerates:
            yield f"tolerates={sorted(map(str, step.tolerates))!r}"
        for name in ("locks", "mounts"):
            if getattr(step, name):
                yield f"{name}=[{', '.join(map(self.built, getattr(step, name)))}]"
        if step.extra:
            yield f"extra={self.part(step.extra)}"
        if step.cache != model.Cache():
            yield f"cache={'False' if step.cache == model.Cache(enabled=False) else self.built(step.cache)}"

    def placement(self, placement: model.Placement) -> Iterator[str]:
        if placement.node_selector:
            yield f"node_selector={dict(placement.node_selector)!r}"
        if placement.tolerations:
            yield f"tolerations=[{', '.join(map(self.built, placement.tolerations))}]"
        if placement.affinity is not None:
            yield f"affinity={self.scope.value(placement.affinity)}"

    def after(self) -> str:
        text = ""
        for edge in self.step.needs:
            outcomes = "" if edge.outcomes == model.NORMAL else f", outcomes={sorted(map(str, edge.outcomes))!r}"
            text += f".after({self.outer.steps[edge.step]}{outcomes})"
        return text

    def built(self, thing: Any) -> str:
        return _built(self.writer, thing)

    def part(self, value: Any) -> str:
        return _part(self.writer, value)


def _built(writer: _Writer, thing: Any) -> str:
    """A part of the model, with the fields that are not as usual."""
    name = type(thing).__name__
    writer.use(name, "penstock" if name in _PUBLIC else "penstock.graph.model")
    args = []
    for each in dataclasses.fields(thing):
        value = getattr(thing, each.name)
        default = each.default_factory() if each.default_factory is not dataclasses.MISSING else each.default
        if value is default or value == default:
            continue
        args.append(f"{each.name}={_part(writer, value)}")
    return f"{name}({', '.join(args)})"


def _part(writer: _Writer, value: Any) -> str:
    if isinstance(value, Expr):
        return f"{writer.use('Expr', 'penstock.graph.expr')}.of({value.text!r})"
    if isinstance(value, Template):
        return f"{writer.use('parse_template', 'penstock.graph.template')}({show_template(value)!r})"
    if isinstance(value, Type):
        return f"{writer.use('parse', 'penstock.graph.types')}({str(value)!r})"
    if dataclasses.is_dataclass(value):
        return _built(writer, value)
    if isinstance(value, tuple):
        return f"({''.join(_part(writer, item) + ', ' for item in value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_part(writer, item)}" for key, item in value.items()) + "}"
    return repr(value)


def _amount(milli: int, resource: str) -> str:
    text = quantity.show(milli, resource)
    return text if text.isdigit() else repr(text)
