"""A @workflow function's source -> Workflow. Called by flow the first time a graph is asked for.

Reads the AST, never runs the body. Names keep a Symbol each; a call of a task leaves a step behind and stands for its
output; branches put conditions on steps and meet in a choice; loops over values become for-each steps, loops over constants
that depend on one another are written out; a body of several steps becomes a nested workflow that is given what it reads.
Everything else is refused, with the line and what to write instead (syntax.py).
"""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from penstock.author.annotations import hints_of, to_type
from penstock.author.blame import wrong
from penstock.author.capture import code_digest
from penstock.author.jobs import Authored, BaseJob
from penstock.author.lower import UNROLL, Lowering
from penstock.author.options import KNOWN, seconds, step_fields
from penstock.author.symbols import (
    NoValue,
    Pairs,
    Seq,
    Static,
    Sym,
    Symbol,
    Unset,
    both,
    choose,
    negate,
    plain,
    to_value,
    type_of,
)
from penstock.author.syntax import always_returns, has_return, names_assigned, names_read, read_before_assigned
from penstock.author.tasks import Task
from penstock.errors import AuthorError, Source
from penstock.graph import codec, model, types
from penstock.graph.expr import Call, Const, Expr, Macro, Name, Node, reference
from penstock.graph.model import ForEach, Input, Output, Parameter, Step, Unit, While, Workflow
from penstock.graph.types import ANY, BOOL, Type, list_of

_compiling: ContextVar[tuple[Any, ...]] = ContextVar("compiling", default=())


def compile_workflow(
    function: Callable[..., Any], name: str, given: Mapping[str, Any], defined: Source | None
) -> Workflow:
    """`given`: the options of @workflow. Raises AuthorError at the line that has no meaning."""
    stack = _compiling.get()
    if function in stack:
        names = " → ".join(each.__name__ for each in (*stack[stack.index(function) :], function))
        raise wrong(
            "P314", f"the workflow calls itself: {names}", "repeat with a while loop instead of recursion", defined
        )
    token = _compiling.set((*stack, function))
    try:
        return _Compiler(function, name, given, defined).run()
    finally:
        _compiling.reset(token)


@dataclass
class _Scope:
    """One workflow being built: the function's own, or the body of a loop in it."""

    name: str
    outer: _Scope | None = None
    env: dict[str, Symbol] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    params: dict[str, Parameter] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    """For a body: what its call has to pass in."""
    guard: bool | Node = True
    local: frozenset[str] = frozenset()

    def free(self, wanted: str) -> str:
        taken = {step.name for step in self.steps}
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted}-{number}", number + 1
        return name

    def give(self, wanted: str, value: Any, type_: Type) -> Sym:
        """A new parameter of this body, filled with `value` from outside."""
        name, number = wanted, 2
        while name in self.params:
            name, number = f"{wanted}_{number}", number + 1
        self.params[name] = Parameter(name=name, type=type_)
        self.inputs[name] = Input(name=name, value=value, type=type_)
        return Sym(reference("params", name), type_)


class _Compiler(Lowering):
    hint = ""
    """The name that the current statement assigns, for naming what it leaves behind."""

    def __init__(
        self, function: Callable[..., Any], name: str, given: Mapping[str, Any], defined: Source | None
    ) -> None:
        self.function = function
        self.workflow_name = name
        self.given = given
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError):
            raise wrong(
                "P315",
                f"the source of {function.__name__}() cannot be read",
                "define it in a file; code typed into a prompt or made by exec has none",
                defined,
            ) from None
        except SyntaxError:
            raise wrong(
                "P315",
                f"the source of {function.__name__}() cannot be read on its own",
                "put the def on lines of its own",
                defined,
            ) from None
        if not isinstance(tree.body[0], ast.FunctionDef):
            raise wrong("P315", "only functions made with def can be workflows", "write def name(...):", defined)
        self.definition = tree.body[0]
        ast.increment_lineno(tree, first - 1)
        indent = len(lines[0]) - len(lines[0].lstrip())
        for node in ast.walk(tree):
            if hasattr(node, "col_offset"):
                node.col_offset += indent
        super().__init__(
            inspect.getsourcefile(function) or "<source>", {first + i: line for i, line in enumerate(lines)}
        )
        self.globals = function.__globals__
        self.closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        self.uses: dict[str, Workflow] = {}
        self.digests: dict[Any, str] = {}
        self.scope = _Scope(name)

    # -- the whole function

    def run(self) -> Workflow:
        function, given = self.function, self.given
        hints = hints_of(function)
        params = []
        for parameter in inspect.signature(function).parameters.values():
            params.append(self.parameter(parameter, to_type(hints.get(parameter.name, ANY))))
            self.scope.env[parameter.name] = Sym(reference("params", parameter.name), params[-1].type)
        self.scope.local = frozenset(names_assigned(self.definition.body))
        returned = self.block(self.body_without_docstring(), set())
        outputs: tuple[Output, ...] = ()
        if returned is not None and not (isinstance(returned, Static) and returned.value is None):
            outputs = (self.output("result", returned, self.last_return(), to_type(hints.get("return", ANY))),)
        return Workflow(
            name=self.workflow_name, params=tuple(params), steps=tuple(self.scope.steps), outputs=outputs, queue=given.get("queue"),
            priority=given.get("priority"), unit=None if given.get("unit") is None else Unit(given["unit"]), parallel=given.get("parallel"),
            timeout=None if given.get("timeout") is None else seconds(given["timeout"]), fail_fast=given.get("fail_fast", False),
            labels=dict(given.get("labels") or {}), definitions=tuple(self.uses[name] for name in sorted(self.uses)),
            doc=inspect.getdoc(function) or "", source=Source(self.file, self.definition.lineno),
        )  # fmt: skip

    def parameter(self, parameter: inspect.Parameter, type_: Type) -> Parameter:
        where: ast.AST = next(
            (arg for arg in ast.walk(self.definition.args) if isinstance(arg, ast.arg) and arg.arg == parameter.name),
            self.definition,
        )
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise self.error("P311", where, f"{str(parameter)!r} has no meaning in a workflow", "name each parameter")
        if parameter.default is parameter.empty:
            return Parameter(name=parameter.name, type=type_)
        try:
            return Parameter(name=parameter.name, type=type_, default=plain(parameter.default))
        except NoValue as error:
            raise self.error(
                "P307",
                where,
                f"the default {error} cannot be written into a workflow",
                "use text, numbers, true/false, lists or dicts",
            ) from None

    def body_without_docstring(self) -> list[ast.stmt]:
        body = self.definition.body
        first = body[0]
        has_docstring = (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        )
        return body[1:] if has_docstring else body

    def last_return(self) -> ast.expr:
        found = [
            node.value for node in ast.walk(self.definition) if isinstance(node, ast.Return) and node.value is not None
        ]
        return found[-1]

    def output(self, name: str, symbol: Symbol, where: ast.expr, declared: Type = ANY) -> Output:
        found = type_of(symbol)
        return Output(name=name, value=self.value(where, symbol), type=declared if declared.name != "any" else found)

    # -- names

    def name(self, node: ast.Name) -> Symbol:
        found = self.find(node.id, self.scope)
        if found is not None:
            return found
        if self.is_local(node.id):
            raise self.error("P312", node, f"{node.id!r} is read before it is assigned", f"assign {node.id!r} first")
        if node.id in self.closure:
            try:
                return Static(self.closure[node.id].cell_contents)
            except ValueError:
                raise self.error(
                    "P312", node, f"{node.id!r} has no value yet", "define it before the workflow is used"
                ) from None
        if node.id in self.globals:
            return Static(self.globals[node.id])
        if hasattr(builtins, node.id):
            return Static(getattr(builtins, node.id))
        raise self.error("P312", node, f"{node.id!r} is not defined", "check the spelling")

    def is_local(self, name: str) -> bool:
        scope: _Scope | None = self.scope
        while scope is not None:
            if name in scope.local:
                return True
            scope = scope.outer
        return False

    def find(self, name: str, scope: _Scope) -> Symbol | None:
        if name in scope.env:
            return scope.env[name]
        if scope.outer is None:
            return None
        found = self.find(name, scope.outer)
        if found is None or isinstance(found, Static | Unset):
            return found
        scope.env[name] = self.carry_in(name, found, scope)
        return scope.env[name]

    def carry_in(self, name: str, symbol: Symbol, scope: _Scope) -> Symbol:
        """The same value as the body sees it: a parameter that its call fills."""
        match symbol:
            case Seq(items, is_tuple):
                return Seq(tuple(self.carry_in(f"{name}_{i}", item, scope) for i, item in enumerate(items)), is_tuple)
            case Pairs(items):
                return Pairs(tuple((key, self.carry_in(f"{name}_{key}", item, scope)) for key, item in items))
            case Static():
                return symbol
            case _:
                return scope.give(name, to_value(symbol), type_of(symbol))

    # -- statements

    def block(self, statements: list[ast.stmt], live: set[str]) -> Symbol | None:
        """Compiles in order. Returns what the block returns, or None if it falls through its end.

        `live`: the names that are read after the block."""
        for i, statement in enumerate(statements):
            rest = statements[i + 1 :]
            if isinstance(statement, ast.Return):
                return Static(None) if statement.value is None else self.lower(statement.value)
            if isinstance(statement, ast.If) and has_return([statement]):
                return self.branch_and_return(statement, rest, live)
            self.statement(statement, names_read(rest) | live)
        return None

    def statement(self, statement: ast.stmt, live: set[str]) -> None:
        self.hint = ""
        match statement:
            case ast.Assign(targets=targets, value=value):
                self.hint = targets[0].id if isinstance(targets[0], ast.Name) else ""
                symbol = self.lower(value)
                for target in targets:
                    self.assign(target, symbol)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.assign(target, self.lower(value))
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                current = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                self.assign(
                    target, self.arithmetic(statement, op, self.lower(current), self.lower(value), current, value)
                )
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name() as owner), args=[item], keywords=[])
            ) if self.is_list(owner):
                self.append(statement, owner, item)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.Expr(value=value):
                self.lower(value)
            case ast.If():
                self.branch(statement, live)
            case ast.For():
                self.for_loop(statement, live)
            case ast.While():
                self.while_loop(statement, live)
            case _:
                raise self.refused(statement)

    def assign(self, target: ast.expr, symbol: Symbol) -> None:
        match target:
            case ast.Name(id=name):
                self.scope.env[name] = symbol
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element, part in zip(elements, self.unpack(target, symbol, len(elements)), strict=True):
                    if isinstance(element, ast.Starred):
                        raise self.error(
                            "P311", element, "* in an assignment has no meaning in a workflow", "name each part"
                        )
                    self.assign(element, part)
            case _:
                raise self.error(
                    "P311",
                    target,
                    "only names can be assigned in a workflow",
                    "change lists and dicts inside a @task, and return them",
                )

    def unpack(self, target: ast.expr, symbol: Symbol, count: int) -> list[Symbol]:
        def check(found: int) -> None:
            if found != count:
                raise self.error("P312", target, f"{count} names for {found} values", "make them equally many")

        match symbol:
            case Seq(items):
                check(len(items))
                return list(items)
            case Static(value):
                try:
                    values = list(value)
                except TypeError:
                    raise self.error(
                        "P312", target, f"{value!r:.40} cannot be unpacked", "give a list or tuple"
                    ) from None
                check(len(values))
                return [Static(item) for item in values]
            case Sym(node, type_) if type_.name in ("any", "list", "tuple"):
                if type_.name == "tuple":
                    check(len(type_.args))
                return [self.element(node, type_, i) for i in range(count)]
            case _:
                raise self.error(
                    "P312", target, f"{type_of(symbol)} cannot be unpacked", "return a tuple from the task"
                )

    # -- branches

    @contextmanager
    def guarded(self, condition: bool | Node) -> Iterator[None]:
        before = self.scope.guard
        self.scope.guard = both(before, condition, "&&")
        try:
            yield
        finally:
            self.scope.guard = before

    def under(self, condition: bool | Node, work: Callable[[], Symbol]) -> Symbol:
        with self.guarded(condition):
            return work()

    def branch(self, statement: ast.If, live: set[str]) -> None:
        condition = self.condition(statement.test)
        if isinstance(condition, bool):
            self.block(statement.body if condition else statement.orelse, live)
            return
        before = dict(self.scope.env)
        with self.guarded(condition):
            self.block(statement.body, live)
        yes, self.scope.env = self.scope.env, dict(before)
        with self.guarded(negate(condition)):
            self.block(statement.orelse, live)
        self.scope.env = self.meet(statement, condition, yes, self.scope.env)

    def meet(self, where: ast.If, condition: Node, yes: dict[str, Symbol], no: dict[str, Symbol]) -> dict[str, Symbol]:
        met: dict[str, Symbol] = {}
        for name in [*yes, *(other for other in no if other not in yes)]:
            a, b = yes.get(name, Unset(name)), no.get(name, Unset(name))
            if isinstance(a, Unset) or isinstance(b, Unset):
                met[name] = Unset(name)
                continue
            try:
                met[name] = choose(condition, a, b)
            except NoValue as error:
                raise self.error(
                    "P307",
                    where.test,
                    f"{name!r} would be {error} in one branch, which cannot be passed between steps",
                    "use text, numbers, lists or dicts",
                ) from None
        return met

    def branch_and_return(self, statement: ast.If, rest: list[ast.stmt], live: set[str]) -> Symbol | None:
        """An if that returns: what comes after it is the other branch."""
        condition = self.condition(statement.test)
        yes_body = statement.body if always_returns(statement.body) else [*statement.body, *rest]
        no_body = statement.orelse if always_returns(statement.orelse) else [*statement.orelse, *rest]
        if isinstance(condition, bool):
            return self.block(yes_body if condition else no_body, live)
        before = dict(self.scope.env)
        with self.guarded(condition):
            yes = self.block(yes_body, live)
        self.scope.env = dict(before)
        with self.guarded(negate(condition)):
            no = self.block(no_body, live)
        self.scope.env = before
        try:
            return choose(condition, yes or Static(None), no or Static(None))
        except NoValue as error:
            raise self.error(
                "P307", statement.test, f"{error} cannot be returned", "return text, numbers, lists or dicts"
            ) from None

    # -- steps

    def emit(self, step: Step) -> None:
        when = self.scope.guard
        if not isinstance(when, bool):
            own = step.when.node if step.when is not None else True
            whole = both(when, own, "&&")
            step = dataclasses.replace(step, when=None if isinstance(whole, bool) else Expr.tree(whole))
        self.scope.steps.append(step)

    def call_step(self, node: ast.Call, target: Any, each: ForEach | None = None, when: Expr | None = None) -> Symbol:
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                raise self.refused(arg)
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.error("P311", node, "** has no meaning in a workflow", "write the arguments out")
        if isinstance(target, BaseJob):
            step, result = self.job_step(node, target)
        elif isinstance(target, Authored):
            step, result = self.workflow_step(node, target)
        else:
            step, result = self.task_step(node, target)
        path, type_ = result
        self.emit(dataclasses.replace(step, each=each, when=when))
        return Sym(reference(*path), list_of(type_) if each is not None else type_)

    def bind(self, node: ast.Call, signature: inspect.Signature, name: str) -> dict[str, ast.expr]:
        try:
            bound = signature.bind(*node.args, **{keyword.arg or "": keyword.value for keyword in node.keywords})
        except TypeError as error:
            raise self.error("P309", node, f"{name}(): {error}", f"call it as {name}{signature}"[:200]) from None
        return dict(bound.arguments)

    def arguments(self, given: dict[str, ast.expr], wanted: dict[str, Type]) -> tuple[Input, ...]:
        inputs = []
        for name, node in given.items():
            symbol = self.lower(node)
            inputs.append(Input(name=name, value=self.value(node, symbol), type=wanted.get(name, ANY)))
        return tuple(inputs)

    def task_step(self, node: ast.Call, task: Task[..., Any]) -> tuple[Step, tuple[tuple[str, ...], Type]]:
        given = self.bind(node, task.signature, task.name)
        inputs = self.arguments(given, {name: to_type(hint) for name, hint in task.hints.items()})
        name = self.scope.free(task.name)
        function = task.function
        if function not in self.digests:
            self.digests[function] = code_digest(function)
        action = model.Function(
            module=function.__module__ or "__main__", name=function.__qualname__, code=self.digests[function],
            image=task.given.get("image"), env=plain(dict(task.given.get("env") or {})),
        )  # fmt: skip
        fields = step_fields({key: value for key, value in task.given.items() if key in KNOWN})
        outputs = (Output(name="result", type=task.result_type),)
        step = Step(name=name, action=action, inputs=inputs, outputs=outputs, source=self.source(node), **fields)
        return step, (("steps", name, "outputs", "result"), task.result_type)

    def workflow_step(self, node: ast.Call, target: Authored) -> tuple[Step, tuple[tuple[str, ...], Type]]:
        try:
            graph = target.graph
        except AuthorError as error:
            if error.code == "P314":
                raise self.error("P314", node, error.problems[0].message, error.problems[0].fix) from None
            raise
        function = getattr(target, "function", None)
        signature = (
            inspect.signature(function)
            if function is not None
            else inspect.Signature(
                [
                    inspect.Parameter(
                        p.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=inspect.Parameter.empty if p.default is model.MISSING else p.default,
                    )
                    for p in graph.params
                ]
            )
        )
        inputs = self.arguments(
            self.bind(node, signature, graph.name), {param.name: param.type for param in graph.params}
        )
        job = target.as_job(self.scope.free(graph.name))
        for workflow in job.uses:
            self.define(node, workflow)
        result = {output.name: output.type for output in graph.outputs}
        step = Step(name=job.name, action=job.action, inputs=inputs, source=self.source(node))
        return step, self.result_of(job.name, result)

    def job_step(self, node: ast.Call, job: BaseJob) -> tuple[Step, tuple[tuple[str, ...], Type]]:
        if node.args:
            raise self.error(
                "P309", node.args[0], f"the inputs of the job {job.name!r} have names", f"write {job.name}(name=…)"
            )
        given = {}
        for keyword in node.keywords:
            if keyword.arg not in job.inputs:
                raise self.error(
                    "P309",
                    keyword.value,
                    f"the job {job.name!r} has no input {keyword.arg!r}",
                    f"known: {', '.join(job.inputs) or 'none'}",
                )
            given[keyword.arg] = self.value(keyword.value, self.lower(keyword.value))
        missing = [name for name, item in job.inputs.items() if item.value is model.MISSING and name not in given]
        if missing:
            raise self.error(
                "P309",
                node,
                f"the job {job.name!r} needs the input {missing[0]!r}",
                f"write {job.name}({missing[0]}=…)",
            )
        inputs = tuple(
            dataclasses.replace(item, value=given.get(name, item.value)) for name, item in job.inputs.items()
        )
        name = self.scope.free(job.name)
        for workflow in job.uses:
            self.define(node, workflow)
        bound = copy.copy(job)
        bound.inputs = {item.name: item for item in inputs}
        step = dataclasses.replace(bound.to_step(), name=name, source=self.source(node))
        return step, self.result_of(name, job.output_types())

    def result_of(self, step: str, outputs: dict[str, Type]) -> tuple[tuple[str, ...], Type]:
        """One output is the value of the call; several are looked up by name; none is nothing worth having."""
        if len(outputs) == 1:
            name, type_ = next(iter(outputs.items()))
            return ("steps", step, "outputs", name), type_
        return ("steps", step, "outputs"), Type("dict", (ANY,))

    def define(self, node: ast.AST, workflow: Workflow) -> None:
        known = self.uses.setdefault(workflow.name, workflow)
        if known is not workflow and codec.digest(known) != codec.digest(workflow):
            raise self.error("P210", node, f"two different workflows are named {workflow.name!r}", "rename one")

    # -- loops over items

    def comprehension(self, node: ast.ListComp) -> Symbol:
        if any(generator.is_async for generator in node.generators):
            raise self.error("P311", node, "async has no meaning in a workflow", "write a plain for")
        conditions = [test for generator in node.generators for test in generator.ifs]
        if not self.calls_step(node.elt, *conditions):
            return self.plain_comprehension(node)
        if self.calls_step(*conditions):
            raise self.error(
                "P311",
                conditions[0],
                "a task in the condition of a comprehension has no meaning in a workflow",
                "call it first: flags = [task(x) for x in items]",
            )
        return self.over(node, node.generators, node.elt)

    def over(self, node: ast.AST, generators: list[ast.comprehension], element: ast.expr) -> Symbol:
        """`[element for …]`, where the element calls tasks: a for-each step, or a for-each over a nested workflow."""
        hint = self.hint
        saved = self.scope.env
        self.scope.env = dict(saved)
        try:
            for generator in generators[1:]:
                if self.calls_step(generator.iter):
                    raise self.error(
                        "P311",
                        generator.iter,
                        "a task in an inner loop of a comprehension has no meaning in a workflow",
                        "nest two comprehensions: [[f(y) for y in task(x)] for x in items]",
                    )
            axes = [self.axis(generator) for generator in generators]
            tests = [self.condition(test) for generator in generators for test in generator.ifs]
            when: bool | Node = True
            for test in tests:
                when = both(when, test, "&&")
            if when is False:
                return Static([])
            each = ForEach(axes=tuple(axes))
            target = self.target(element.func) if isinstance(element, ast.Call) else None
            expr = None if isinstance(when, bool) else Expr.tree(when)
            if (
                isinstance(element, ast.Call)
                and target is not None
                and not self.calls_step(*element.args, *(k.value for k in element.keywords))
            ):
                return self.call_step(element, target, each, expr)
            return self.body(
                node,
                f"each-{hint or self.first_call(element)}",
                each,
                expr,
                lambda: {"result": (self.lower(element), element)},
            )["result"]
        finally:
            self.scope.env = saved

    def first_call(self, node: ast.AST) -> str:
        for child in ast.walk(node):
            if isinstance(child, ast.Call):
                target = self.target(child.func)
                if target is not None:
                    return str(target.name)
        return "body"

    def axis(self, generator: ast.comprehension) -> dict[str, Any]:
        """The variables of one `for`, bound to `item.NAME`; returns what each goes over."""
        if isinstance(generator.iter, ast.Call) and isinstance(generator.target, ast.Tuple):
            together = self.together(generator.iter, generator.target)
            if together is not None:
                return together
        items = self.lower(generator.iter)
        value, item_type = self.items(generator.iter, items)
        if isinstance(generator.target, ast.Name):
            variable = generator.target.id
            self.scope.env[variable] = Sym(reference("item", variable), item_type)
        else:
            variable = "_".join(sorted(names_assigned([generator.target]))) or "item"
            self.assign(generator.target, Sym(reference("item", variable), item_type))
        return {variable: value}

    def together(self, call: ast.Call, target: ast.Tuple) -> dict[str, Any] | None:
        """`for a, b in zip(x, y)` and `for i, a in enumerate(x)`: variables that advance in step."""
        function = self.static_object(call.func)
        strict = [keyword.arg for keyword in call.keywords] == ["strict"]
        if not all(isinstance(element, ast.Name) for element in target.elts) or (call.keywords and not strict):
            return None
        names = [element.id for element in target.elts if isinstance(element, ast.Name)]
        if function is zip and len(names) == len(call.args):
            lists = [(arg, self.lower(arg)) for arg in call.args]
        elif function is enumerate and len(names) == 2 and len(call.args) == 1:
            source = self.lower(call.args[0])
            size: Symbol = (
                Static(range(len(source.value)))
                if isinstance(source, Static)
                else (
                    Static(range(len(source.items)))
                    if isinstance(source, Seq)
                    else Sym(Call("range", (Call("size", (self.node(call.args[0], source),)),)), list_of(types.INT))
                )
            )
            lists = [(call, size), (call.args[0], source)]
        else:
            return None
        lengths = {
            len(s.items) if isinstance(s, Seq) else len(s.value)
            for _, s in lists
            if isinstance(s, Seq) or (isinstance(s, Static) and hasattr(s.value, "__len__"))
        }
        if len(lengths) > 1:
            raise self.error(
                "P312",
                call,
                f"zip() of lists that differ in length: {', '.join(map(str, sorted(lengths)))}",
                "make them equally long",
            )
        axis = {}
        for name, (node, symbol) in zip(names, lists, strict=True):
            value, item_type = self.items(node, symbol)
            axis[name] = value
            self.scope.env[name] = Sym(reference("item", name), item_type)
        return axis

    def items(self, node: ast.expr, symbol: Symbol) -> tuple[Any, Type]:
        if isinstance(symbol, Static) and isinstance(symbol.value, dict | set | frozenset | str):
            symbol = Static(
                list(symbol.value) if not isinstance(symbol.value, set | frozenset) else sorted(symbol.value)
            )
        type_ = type_of(symbol)
        if type_.name not in ("any", "list", "tuple") or (
            isinstance(symbol, Static) and not isinstance(symbol.value, list | tuple | range)
        ):
            what = f"{symbol.value!r:.40}" if isinstance(symbol, Static) else str(type_)
            raise self.error("P312", node, f"this is {what}, and a loop needs a list", "loop over a list")
        return self.value(node, symbol), type_.item

    def plain_comprehension(self, node: ast.ListComp) -> Symbol:
        """No task inside: written out if the list is known, otherwise an expression over it."""
        if len(node.generators) > 1:
            raise self.error(
                "P311", node, "two loops without a task have no meaning in a workflow", "build the list inside a @task"
            )
        generator = node.generators[0]
        items = self.lower(generator.iter)
        saved, self.scope.env = self.scope.env, dict(self.scope.env)
        try:
            known = _elements(items)
            if known is not None:
                return self.written_out(node, generator, known)
            _, item_type = self.items(generator.iter, items)
            if not isinstance(generator.target, ast.Name):
                raise self.error(
                    "P311",
                    generator.target,
                    "a loop with several variables and no task has no meaning in a workflow",
                    "build the list inside a @task",
                )
            variable = generator.target.id
            self.scope.env[variable] = Sym(Name(f"{variable}_"), item_type)
            source = self.node(generator.iter, items)
            for test in generator.ifs:
                condition = self.condition(test)
                if not isinstance(condition, bool):
                    source = Macro("filter", source, f"{variable}_", condition)
                elif not condition:
                    return Static([])
            element = self.lower(node.elt)
            return Sym(Macro("map", source, f"{variable}_", self.node(node.elt, element)), list_of(type_of(element)))
        finally:
            self.scope.env = saved

    def written_out(self, node: ast.ListComp, generator: ast.comprehension, items: list[Symbol]) -> Symbol:
        if len(items) > UNROLL:
            raise self.error(
                "P316",
                node,
                f"a list of {len(items)} elements would be written out (at most {UNROLL})",
                "build the list outside the workflow, or inside a @task",
            )
        found: list[Symbol] = []
        for item in items:
            self.assign(generator.target, item)
            tests = [self.condition(test) for test in generator.ifs]
            if not all(isinstance(test, bool) for test in tests):
                raise self.error(
                    "P311",
                    generator.ifs[0],
                    "whether an element is in the list is only known at run time",
                    "build the list inside a @task",
                )
            if all(tests):
                found.append(self.lower(node.elt))
        if all(isinstance(symbol, Static) for symbol in found):
            return Static([symbol.value for symbol in found if isinstance(symbol, Static)])
        return Seq(tuple(found))

    def is_list(self, owner: ast.Name) -> bool:
        found = self.find(owner.id, self.scope)
        return (isinstance(found, Seq) and not found.is_tuple) or (
            isinstance(found, Static) and isinstance(found.value, list)
        )

    def append(self, statement: ast.stmt, owner: ast.Name, item: ast.expr) -> None:
        """`names.append(x)`: the name now stands for a longer list. Outside of loops and branches only."""
        current = self.find(owner.id, self.scope)
        if owner.id not in self.scope.env or not isinstance(self.scope.guard, bool):
            raise self.error(
                "P311",
                statement,
                "append works on a list that starts empty, once in each round of a loop",
                "write [task(x) for x in items]",
            )
        before = _elements(current) if current is not None else None
        self.scope.env[owner.id] = Seq((*(before or []), self.lower(item)))

    def for_loop(self, statement: ast.For, live: set[str]) -> None:
        if statement.orelse:
            raise self.error(
                "P311", statement.orelse[0], "else after a loop has no meaning in a workflow", "put it after the loop"
            )
        found = has_return(statement.body)
        if found is not None:
            raise self.error(
                "P311", found, "return inside a loop has no meaning in a workflow", "return after the loop"
            )
        changed = names_assigned(statement.body) | names_assigned([statement.target])
        collected = self.collected(statement.body)
        carried = (names_assigned(statement.body) & read_before_assigned(statement.body)) | {
            name for name in self.appended(statement.body) if name not in collected
        }
        depends = sorted(carried | (changed & live))
        generator = ast.comprehension(target=statement.target, iter=statement.iter, ifs=[], is_async=0)
        ast.copy_location(generator.target, statement.target)
        if depends or not self.calls_step(*statement.body):
            self.write_out(statement, live, depends)
            return
        for name in collected:
            if not self.is_empty_list(name):
                raise self.error(
                    "P311",
                    statement,
                    f"{name!r} is not empty before the loop",
                    "collect into a list that starts empty: names = []",
                )
        self.loop_body(statement, generator, collected)

    def loop_body(self, statement: ast.For, generator: ast.comprehension, collected: dict[str, ast.expr]) -> None:
        only = statement.body[0] if len(statement.body) == 1 else None
        if isinstance(only, ast.Expr) and isinstance(only.value, ast.Call):
            name = next(iter(collected), None)
            result = self.over(statement, [generator], collected[name] if name else only.value)
            if name:
                self.scope.env[name] = result
            return
        saved = self.scope.env
        self.scope.env = dict(saved)
        try:
            each = ForEach(axes=(self.axis(generator),))

            def work() -> dict[str, tuple[Symbol, ast.expr]]:
                appended: dict[str, tuple[Symbol, ast.expr]] = {}
                for i, inner in enumerate(statement.body):
                    name = _append_target(inner)
                    if name in collected:
                        appended[name] = (self.lower(collected[name]), collected[name])
                    else:
                        self.statement(inner, names_read(statement.body[i + 1 :]))
                return appended

            variable = "_".join(sorted(names_assigned([statement.target]))) or "item"
            results = self.body(statement, f"for-{variable.replace('_', '-').strip('-')}", each, None, work)
        finally:
            self.scope.env = saved
        self.scope.env |= results

    def is_empty_list(self, name: str) -> bool:
        found = self.find(name, self.scope)
        return (isinstance(found, Static) and found.value == []) or (isinstance(found, Seq) and not found.items)

    def appended(self, body: list[ast.stmt]) -> set[str]:
        return {
            name
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.stmt) and (name := _append_target(node))
        }

    def collected(self, body: list[ast.stmt]) -> dict[str, ast.expr]:
        """Lists that each round adds exactly one element to, at the top of the body."""
        found: dict[str, ast.expr] = {}
        for statement in body:
            name = _append_target(statement)
            if name and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                found[name] = statement.value.args[0]
        everywhere = [
            name
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.stmt) and (name := _append_target(node))
        ]
        read = names_read(body)
        return {
            name: item
            for name, item in found.items()
            if everywhere.count(name) == 1 and sum(1 for _ in _reads(body, name)) == 1 and name in read
        }

    def write_out(self, statement: ast.For, live: set[str], depends: list[str]) -> None:
        items = self.lower(statement.iter)
        known = _elements(items)
        if known is None:
            if not depends:
                raise self.error("P311", statement, "this loop calls no task", "remove it, or call a task in it")
            raise self.error(
                "P317",
                statement,
                f"each round runs on its own, and {depends[0]!r} would have to pass from one to the next or out of the loop",
                "collect results with a comprehension, or use a while loop that carries the value",
            )
        if len(known) > UNROLL:
            raise self.error(
                "P316",
                statement,
                f"a loop of {len(known)} rounds would be written out, because {', '.join(depends) or 'its body'} passes from round to round (at most {UNROLL})",
                "use a while loop",
            )
        for item in known:
            self.assign(statement.target, item)
            self.block(statement.body, live | names_read(statement.body))

    def body(
        self, where: ast.AST, name: str, each: ForEach | None, when: Expr | None, work: Callable[[], dict[str, tuple[Symbol, ast.expr]]],
        loop: Callable[[_Scope], tuple[While, dict[str, Type]]] | None = None,
    ) -> dict[str, Symbol]:  # fmt: skip
        """Compiles `work` into a workflow of its own and calls that as one step. Returns the outputs as seen from here."""
        outer = self.scope
        step_name = outer.free(name)
        self.scope = _Scope(step_name, outer=outer)
        try:
            results = work()
            inner = self.scope
            repeat, declared = loop(inner) if loop is not None else (None, {})
            outputs = tuple(
                self.output(key, symbol, node, declared.get(key, ANY)) for key, (symbol, node) in results.items()
            )
        finally:
            self.scope = outer
        label, number = f"{self.workflow_name}-{step_name}", 2
        workflow = Workflow(
            name=label,
            params=tuple(inner.params.values()),
            steps=tuple(inner.steps),
            outputs=outputs,
            source=self.source(where),
        )
        while label in self.uses and self.uses[label] != workflow:
            label, number = f"{self.workflow_name}-{step_name}-{number}", number + 1
            workflow = dataclasses.replace(workflow, name=label)
        self.uses[label] = workflow
        self.emit(
            Step(
                name=step_name,
                action=model.Nested(name=label),
                inputs=tuple(inner.inputs.values()),
                each=each,
                when=when,
                loop=repeat,
                source=self.source(where),
            )
        )
        return {
            output.name: Sym(
                reference("steps", step_name, "outputs", output.name),
                list_of(output.type) if each is not None else output.type,
            )
            for output in outputs
        }

    # -- while

    def while_loop(self, statement: ast.While, live: set[str]) -> None:
        if statement.orelse:
            raise self.error(
                "P311", statement.orelse[0], "else after a loop has no meaning in a workflow", "put it after the loop"
            )
        found = has_return(statement.body)
        if found is not None:
            raise self.error(
                "P311", found, "return inside a loop has no meaning in a workflow", "return after the loop"
            )
        assigned = names_assigned(statement.body) | self.appended(statement.body)
        wanted = (
            read_before_assigned(statement.body) | names_read([statement.test]) | live | self.appended(statement.body)
        )
        carried = sorted(assigned & wanted)
        start: dict[str, Symbol] = {}
        for name in carried:
            symbol = self.find(name, self.scope)
            if symbol is None or isinstance(symbol, Unset):
                raise self.error(
                    "P312",
                    statement,
                    f"{name!r} has no value before the loop, which may not run at all",
                    f"assign {name!r} before the loop",
                )
            start[name] = symbol
        rotated = self.calls_step(statement.test)
        first = self.condition(statement.test)
        if isinstance(first, bool) and not first and not carried:
            return
        if not carried and not rotated:
            raise self.error(
                "P317",
                statement.test,
                "nothing in the loop changes this condition, so the loop would never end"
                if first is not False
                else "this never runs",
                "call a task in the condition, or change a value in the loop",
            )
        self.repeat(statement, start, first if rotated else None)

    def repeat(self, statement: ast.While, start: dict[str, Symbol], proceed: bool | Node | None) -> None:
        """A step that runs its body while the condition holds. A condition that calls tasks is asked once before the loop and
        once at the end of each round, and carried along as `proceed`."""
        saved = self.scope.env
        types_: dict[str, Type] = {}

        def work() -> dict[str, tuple[Symbol, ast.expr]]:
            inner = self.scope
            for name, symbol in start.items():
                types_[name] = _widened(type_of(symbol))
                try:
                    inner.env[name] = inner.give(name, to_value(symbol), types_[name])
                except NoValue as error:
                    raise self.unusable(statement, symbol, error) from None
            if proceed is not None:
                inner.give("proceed", proceed if isinstance(proceed, bool) else Expr.tree(proceed), BOOL)
            self.block(statement.body, set(start) | names_read([statement.test]))
            results: dict[str, tuple[Symbol, ast.expr]] = {name: (inner.env[name], statement.test) for name in start}
            if proceed is not None:
                again = self.condition(statement.test)
                results["proceed"] = (Static(again) if isinstance(again, bool) else Sym(again, BOOL), statement.test)
            return results

        def loop(inner: _Scope) -> tuple[While, dict[str, Type]]:
            names = [*start, *(["proceed"] if proceed is not None else [])]
            for name in start:
                ended = type_of(inner.env[name])
                if types_[name].name == "any" or not types.fits(ended, types_[name]):
                    types_[name] = types.join(types_[name], ended) if types.fits(types_[name], ended) else ANY
                    inner.params[name] = Parameter(name=name, type=types_[name])
                    inner.inputs[name] = dataclasses.replace(inner.inputs[name], type=types_[name])
            condition: Node = (
                reference("inputs", "proceed") if proceed is not None else self.test_over_inputs(statement, types_)
            )
            limit = self.given.get("max_iterations", 1000)
            return While(
                condition=Expr.tree(condition),
                carry={name: name for name in names},
                max_iterations=limit,
                test="before",
                at_limit="fail",
            ), types_

        label = next(iter(start), "condition")
        results = self.body(statement, f"while-{label.replace('_', '-').strip('-')}", None, None, work, loop)
        self.scope.env = saved | {name: results[name] for name in start}

    def test_over_inputs(self, statement: ast.While, carried: dict[str, Type]) -> Node:
        """The condition as the step itself sees it: carried names are its inputs, all else is read where the loop stands."""
        body, self.scope = self.scope, self.scope.outer or self.scope
        saved, self.scope.env = self.scope.env, dict(self.scope.env)
        try:
            for name, type_ in carried.items():
                self.scope.env[name] = Sym(reference("inputs", name), type_)
            condition = self.condition(statement.test)
            return Const(condition) if isinstance(condition, bool) else condition
        finally:
            self.scope.env = saved
            self.scope = body


def _widened(type_: Type) -> Type:
    """An empty list may become a list of anything; a tuple written out may be carried as a list."""
    return list_of(type_.item) if type_.name == "tuple" else type_


def _elements(symbol: Symbol) -> list[Symbol] | None:
    """The elements, if how many there are is known."""
    if isinstance(symbol, Seq):
        return list(symbol.items)
    if isinstance(symbol, Static) and isinstance(symbol.value, list | tuple | range | dict | str):
        return (
            [Static(item) for item in symbol.value]
            if len(symbol.value) <= UNROLL
            else [Static(None)] * len(symbol.value)
        )
    return None


def _append_target(statement: ast.AST) -> str:
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[_], keywords=[])
        ):
            return name
        case _:
            return ""


def _reads(body: list[ast.stmt], name: str) -> Iterator[ast.Name]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                yield node
