"""Rules for list and dict comprehensions. Added to the table of expressions by compile; for_loops calls it for loops of one call.

If the element calls a task, the comprehension is a step with a for-each. Otherwise it is a list written out, or an
expression over the list.
"""

from __future__ import annotations

import ast

from penstock.author.compiler.axes import Axes, loop_variable
from penstock.author.compiler.bindings import Bindings
from penstock.author.compiler.bodies import Bodies, BodyResult
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.conditions import Conditions
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions, Rules
from penstock.author.compiler.refusals import Located
from penstock.author.compiler.step_calls import StepCalls
from penstock.author.compiler.symbols import (
    Condition,
    Dynamic,
    Pairs,
    Seq,
    Static,
    Symbol,
    as_seq,
    combine,
    python,
    to_node,
    type_of,
)
from penstock.expressions.parse import Expr, ListOf, Macro, Name, Node
from penstock.expressions.types import ANY, Type, join, list_of
from penstock.graph.model import ForEach


class Comprehensions:
    def __init__(
        self,
        context: CompileContext,
        expressions: Expressions,
        conditions: Conditions,
        callees: Callees,
        steps: StepCalls,
        bodies: Bodies,
        bindings: Bindings,
        axes: Axes,
    ) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions
        self._conditions = conditions
        self._callees = callees
        self._steps = steps
        self._bodies = bodies
        self._bindings = bindings
        self._axes = axes
        self._variables: list[str] = []
        """Of the expressions over lists around the current one."""

    def rules(self) -> Rules:
        return {ast.ListComp: self.comprehension, ast.DictComp: self.dictionary}

    def comprehension(self, node: ast.ListComp) -> Symbol:
        if any(generator.is_async for generator in node.generators):
            raise self._refusals.error("P311", node, "async has no meaning in a workflow", "write a plain for")
        tests = [test for generator in node.generators for test in generator.ifs]
        if not self._callees.any_called(node.elt, *tests):
            return self._without_steps(node.generators, node.elt)
        if self._callees.any_called(*tests):
            message = "a task in the condition of a comprehension has no meaning in a workflow"
            raise self._refusals.error("P311", tests[0], message, "call it first: flags = [task(x) for x in items]")
        return self.for_each(node, node.generators, node.elt)

    # -- with steps

    def for_each(self, where: Located, generators: list[ast.comprehension], element: ast.expr) -> Symbol:
        """`[element for …]`, where the element calls tasks: one step, or a nested workflow, with a for-each."""
        label = self._scopes.assigned_name
        with self._scopes.shadowing():
            for generator in generators[1:]:
                if self._callees.any_called(generator.iter):
                    message = "a task in an inner loop of a comprehension has no meaning in a workflow"
                    fix = "nest two comprehensions: [[f(y) for y in task(x)] for x in items]"
                    raise self._refusals.error("P311", generator.iter, message, fix)
            axes = []
            keep: Condition = True
            for generator in generators:
                axes.append(self._axes.axis(generator.target, generator.iter))
                keep = combine(keep, self.kept(generator), "&&")
            if keep is False:
                return Static([])
            each = ForEach(axes=tuple(axes))
            results = self._results(where, label, element, each, None if isinstance(keep, bool) else Expr.tree(keep))
        if keep is True:
            self._axes.note_length(results, each)
        return results

    def _results(self, where: Located, label: str, element: ast.expr, each: ForEach, when: Expr | None) -> Symbol:
        if isinstance(element, ast.Call):
            callee = self._callees.find(element.func)
            arguments = (*element.args, *(keyword.value for keyword in element.keywords))
            if callee is not None and not self._callees.any_called(*arguments):
                return self._steps.call(element, callee, each, when)
        name = f"each-{label or self._callees.first_name(element)}"
        return self._bodies.call(where, name, lambda: self._element(element), each=each, when=when)["result"]

    def _element(self, element: ast.expr) -> dict[str, BodyResult]:
        return {"result": BodyResult(self._expressions.lower(element), element)}

    def kept(self, generator: ast.comprehension) -> Condition:
        """The filter of a loop whose variables are bound."""
        keep: Condition = True
        for test in generator.ifs:
            keep = combine(keep, self._conditions.lower(test), "&&")
        return keep

    # -- dicts

    def dictionary(self, node: ast.DictComp) -> Symbol:
        """`{key: value for …}`"""
        if self._callees.any_called(node.value) and not self._callees.any_called(node.key):
            with self._scopes.shadowing():
                return self._keys_and_values(node)
        pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node.key)
        pairs = ast.copy_location(ast.ListComp(pair, node.generators), node)
        return self.of_pairs(node.key, self.comprehension(pairs))

    def _keys_and_values(self, node: ast.DictComp) -> Symbol:
        """The values are one step; the keys are an expression over the same lists, each of which is made once."""
        generators = []
        for number, generator in enumerate(node.generators):
            iterable = generator.iter
            if number == 0 and self._callees.any_called(iterable):
                name = f"{self._scopes.assigned_name or 'dict'} keys"  # no name of the author's has a space
                self._scopes.bind(name, self._expressions.lower(iterable))
                iterable = ast.copy_location(ast.Name(name, ast.Load()), iterable)
            generators.append(ast.comprehension(generator.target, iterable, generator.ifs, generator.is_async))
        keys = self.comprehension(ast.copy_location(ast.ListComp(node.key, generators), node))
        self._check_key(node.key, type_of(keys).item)
        values = self.comprehension(ast.copy_location(ast.ListComp(node.value, generators), node))
        nodes = (self._expressions.node(node.key, keys), self._expressions.node(node.value, values))
        rows = python("zip", list_of(ANY), to_node(Static(True)), *nodes)
        return python("dict", Type("dict", (type_of(values).item,)), rows.node)

    def of_pairs(self, where: ast.expr, pairs: Symbol) -> Symbol:
        """The dict of a list of keys and values."""
        known = [as_seq(pair) for pair in found.items] if (found := as_seq(pairs)) is not None else [None]
        keys = [pair.items[0] for pair in known if pair is not None]
        if len(keys) == len(known) and all(isinstance(key, Static) and isinstance(key.value, str) for key in keys):
            items = {
                key.value: pair.items[1]
                for key, pair in zip(keys, known, strict=True)
                if isinstance(key, Static) and pair
            }
            if all(isinstance(item, Static) for item in items.values()):
                return Static({key: item.value for key, item in items.items() if isinstance(item, Static)})
            return Pairs(tuple(items.items()))
        pair_type = type_of(pairs).item
        key_type, value_type = pair_type.args if len(pair_type.args) == 2 else (ANY, ANY)
        self._check_key(where, key_type)
        return python("dict", Type("dict", (value_type,)), self._expressions.node(where, pairs))

    def _check_key(self, where: ast.expr, type_: Type) -> None:
        if type_.name not in ("str", "any", "optional"):
            message = f"the key of a dict must be text, and this is {type_}"
            raise self._refusals.error("P311", where, message, "write str(…) around it")

    # -- without steps

    def _without_steps(self, generators: list[ast.comprehension], element: ast.expr) -> Symbol:
        """The list of the elements. `generators`: the loops that are left."""
        if not generators:
            return Seq((self._expressions.lower(element),))
        generator, rest = generators[0], generators[1:]
        items = self._expressions.lower(generator.iter)
        with self._scopes.shadowing():
            known = self._axes.elements(generator.iter, items)
            found = None if known is None else self._written_out(generator, rest, element, known)
            return found if found is not None else self._mapped(generator, rest, element, items)

    def _written_out(
        self, generator: ast.comprehension, rest: list[ast.comprehension], element: ast.expr, items: list[Symbol]
    ) -> Symbol | None:
        """None if the filter is only known at run time."""
        parts: list[Symbol] = []
        for item in items:
            self._bindings.assign(generator.target, item)
            keep = self.kept(generator)
            if not isinstance(keep, bool):
                return None
            if keep:
                parts.append(self._without_steps(rest, element))
        lists = [as_seq(part) for part in parts]
        found = [item for one in lists if one is not None for item in one.items]
        if None in lists:
            nodes = tuple(self._expressions.node(element, part) for part in parts)
            type_ = join(*(type_of(part).item for part in parts))
            return python("chain", list_of(type_), ListOf(nodes))
        if all(isinstance(symbol, Static) for symbol in found):
            return Static([symbol.value for symbol in found if isinstance(symbol, Static)])
        return Seq(tuple(found))

    def _mapped(
        self, generator: ast.comprehension, rest: list[ast.comprehension], element: ast.expr, items: Symbol
    ) -> Symbol:
        """An expression over the list."""
        listed = items if type_of(items).name == "any" else self._axes.listed(generator.iter, items)
        variable = self._variable(generator.target)
        self._bindings.assign(generator.target, Dynamic(Name(variable), type_of(listed).item))
        source = self._expressions.node(generator.iter, listed)
        self._variables.append(variable)
        try:
            for test in generator.ifs:
                condition = self._conditions.lower(test)
                if not isinstance(condition, bool):
                    source = Macro("filter", source, variable, condition)
                elif not condition:
                    return Static([])
            mapped = self._expressions.lower(element) if not rest else self._without_steps(rest, element)
        finally:
            self._variables.pop()
        macro: Node = Macro("map", source, variable, self._expressions.node(element, mapped))
        if rest:
            return python("chain", list_of(type_of(mapped).item), macro)
        return Dynamic(macro, list_of(type_of(mapped)))

    def _variable(self, target: ast.expr) -> str:
        """In the expression. Several names have one variable, which no other loop around may have."""
        if isinstance(target, ast.Name) and not any("__" in known for known in self._variables):
            return f"{target.id}_"
        name = f"{loop_variable(target)}__"
        while name in self._variables:
            name += "_"
        return name
