"""for, while and comprehensions -> for-each steps, while steps, or the rounds written out. Called by compiler.

Rounds that do not depend on one another are one step with a for-each, whether the list is known or not. Rounds over constants
that do are written out. A while loop is a nested workflow whose outputs feed its own inputs.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.author.calls import Calls
from penstock.author.lower import UNROLL
from penstock.author.scopes import Scope
from penstock.author.symbols import (
    NoValue,
    Seq,
    Static,
    Sym,
    Symbol,
    Unset,
    both,
    to_value,
    type_of,
)
from penstock.author.syntax import append_target, names_assigned, names_read, read_before_assigned
from penstock.graph import types
from penstock.graph.expr import Call, Const, Expr, Macro, Name, Node, reference
from penstock.graph.model import ForEach, While
from penstock.graph.types import ANY, BOOL, Type, list_of


class Loops(Calls):
    given: Mapping[str, Any]

    @abstractmethod
    def block(self, statements: list[ast.stmt], live: set[str]) -> Symbol | None:
        """The compiler knows the statements."""

    @abstractmethod
    def statement(self, statement: ast.stmt, live: set[str]) -> None:
        """The compiler knows the statements."""

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
            axes, tests = [], []
            for generator in generators:
                axes.append(self.axis(generator))
                tests += [self.condition(test) for test in generator.ifs]
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
            known = self.elements(node, items)
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

    def elements(self, where: ast.AST, symbol: Symbol) -> list[Symbol] | None:
        """One by one, if how many there are is known; refused if they are too many to write out."""
        if isinstance(symbol, Seq):
            return list(symbol.items)
        if not isinstance(symbol, Static) or not isinstance(symbol.value, list | tuple | range | dict | str):
            return None
        if len(symbol.value) > UNROLL:
            raise self.error(
                "P316",
                where,
                f"{len(symbol.value):,} rounds would be written out one by one (at most {UNROLL:,})",
                "make the rounds independent of one another, use a while loop, or build the list inside a @task",
            )
        return [Static(item) for item in symbol.value]

    def written_out(self, node: ast.ListComp, generator: ast.comprehension, items: list[Symbol]) -> Symbol:
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

    def refuse_alias(self, where: ast.AST, name: str) -> None:
        """A list that two names stand for would change under both in Python; here each name has its own."""
        symbol = self.scope.env.get(name)
        other = next((key for key, found in self.scope.env.items() if key != name and found is symbol), None)
        if symbol is not None and other is not None:
            raise self.error(
                "P311",
                where,
                f"{name!r} and {other!r} are one list, and it is changed here",
                f"make a list of its own: {name} = []",
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
        self.refuse_alias(statement, owner.id)
        before = self.elements(statement, current) if current is not None else None
        self.scope.env[owner.id] = Seq((*(before or []), self.lower(item)))

    def refuse_jumps(self, loop: ast.For | ast.While) -> None:
        """Rounds run to their end, side by side: nothing may leave one early."""
        if loop.orelse:
            raise self.error(
                "P311", loop.orelse[0], "else after a loop has no meaning in a workflow", "put it after the loop"
            )
        for statement in loop.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Return):
                    raise self.error(
                        "P311", node, "return inside a loop has no meaning in a workflow", "return after the loop"
                    )
                if isinstance(node, ast.Break | ast.Continue):
                    raise self.refused(node)

    def for_loop(self, statement: ast.For, live: set[str]) -> None:
        self.refuse_jumps(statement)
        changed = names_assigned(statement.body) | names_assigned([statement.target])
        collected = {name: item for name, item in self.collected(statement.body).items() if self.is_empty_list(name)}
        carried = (names_assigned(statement.body) & read_before_assigned(statement.body)) | {
            name for name in self.appended(statement.body) if name not in collected
        }
        for name in collected:
            self.refuse_alias(statement, name)
        depends = sorted(carried | (changed & live))
        generator = ast.comprehension(target=statement.target, iter=statement.iter, ifs=[], is_async=0)
        ast.copy_location(generator.target, statement.target)
        if depends or not self.calls_step(*statement.body):
            self.write_out(statement, live, depends)
            return
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
                    name = append_target(inner)
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
            if isinstance(node, ast.stmt) and (name := append_target(node))
        }

    def collected(self, body: list[ast.stmt]) -> dict[str, ast.expr]:
        """Lists that each round adds exactly one element to, at the top of the body."""
        found: dict[str, ast.expr] = {}
        for statement in body:
            name = append_target(statement)
            if name and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                found[name] = statement.value.args[0]
        everywhere = [
            name
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.stmt) and (name := append_target(node))
        ]
        read = names_read(body)
        return {
            name: item
            for name, item in found.items()
            if everywhere.count(name) == 1 and sum(1 for _ in _reads(body, name)) == 1 and name in read
        }

    def write_out(self, statement: ast.For, live: set[str], depends: list[str]) -> None:
        items = self.lower(statement.iter)
        known = self.elements(statement, items)
        if known is None:
            if not depends:
                raise self.error("P311", statement, "this loop calls no task", "remove it, or call a task in it")
            raise self.error(
                "P317",
                statement,
                f"each round runs on its own, and {depends[0]!r} would have to pass from one to the next or out of the loop",
                "collect results with a comprehension, or use a while loop that carries the value",
            )
        for item in known:
            self.assign(statement.target, item)
            self.block(statement.body, live | names_read(statement.body))

    # -- while

    def while_loop(self, statement: ast.While, live: set[str]) -> None:
        self.refuse_jumps(statement)
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
                types_.setdefault(name, _widened(type_of(symbol)))
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

        def loop(inner: Scope) -> tuple[While, dict[str, Type]]:
            names = [*start, *(["proceed"] if proceed is not None else [])]
            unsettled = [name for name in start if types_[name] != ANY and type_of(inner.env[name]) != types_[name]]
            if unsettled:
                types_.update(dict.fromkeys(unsettled, ANY))
                raise _OtherTypes
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

        label = f"while-{next(iter(start), 'condition').replace('_', '-').strip('-')}"
        uses = dict(self.uses)
        while True:
            try:
                results = self.body(statement, label, None, None, work, loop)
                break
            except _OtherTypes:
                # A value leaves the round as something else than it came in: read the body again without counting on its type.
                self.uses.clear()
                self.uses.update(uses)
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


class _OtherTypes(Exception):
    """The body of a while loop has to be compiled again with other types."""


def _widened(type_: Type) -> Type:
    """An empty list may become a list of anything; a tuple written out may be carried as a list."""
    return list_of(type_.item) if type_.name == "tuple" else type_


def _reads(body: list[ast.stmt], name: str) -> Iterator[ast.Name]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                yield node
