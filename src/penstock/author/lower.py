"""Python expressions -> Symbols. The half of the compiler that deals with one expression at a time; compiler.py has the
statements, the scopes and the steps that calls leave behind.
"""

from __future__ import annotations

import ast
import builtins
import enum
import operator
import types as python_types
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.author.jobs import Authored, BaseJob
from penstock.author.symbols import (
    NoValue,
    Pairs,
    Seq,
    Static,
    Sym,
    Symbol,
    Text,
    Unset,
    both,
    choose,
    condition_symbol,
    negate,
    to_node,
    to_value,
    truth,
    type_of,
)
from penstock.author.syntax import Refuser
from penstock.errors import AuthorError
from penstock.graph import types
from penstock.graph.expr import Binary, Call, Const, Index, Member, Node, Unary, is_identifier
from penstock.graph.model import Value
from penstock.graph.types import BOOL, FLOAT, INT, STR, Type, list_of

UNROLL = 10_000
"""A loop over constants that has to be written out may have so many rounds."""
_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul), ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod), ast.Pow: ("**", operator.pow),
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge), ast.Is: ("is", operator.is_), ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda a, b: a in b), ast.NotIn: ("not in", lambda a, b: a not in b),
}  # fmt: skip
_PURE: dict[str, Callable[..., Any]] = {
    name: getattr(builtins, name)
    for name in "abs bool dict enumerate float int len list max min range reversed round sorted str sum tuple zip".split()
}
_PURE_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        "split upper lower strip lstrip rstrip replace join startswith endswith removeprefix removesuffix title format".split()
    ),
    dict: frozenset("items keys values get".split()),
    list: frozenset("index count".split()),
    tuple: frozenset("index count".split()),
}


class Lowering(Refuser, ABC):
    """Expressions. What a name means, and what a call of a task does, is left to the compiler."""

    @abstractmethod
    def name(self, node: ast.Name) -> Symbol:
        """The compiler knows the scopes."""

    @abstractmethod
    def call_step(self, node: ast.Call, target: Any) -> Symbol:
        """The compiler knows the graph."""

    @abstractmethod
    def comprehension(self, node: ast.ListComp) -> Symbol:
        """The compiler knows the loops."""

    @abstractmethod
    def under(self, condition: bool | Node, work: Callable[[], Symbol]) -> Symbol:
        """The compiler knows the branches."""

    def lower(self, node: ast.expr) -> Symbol:
        method: Callable[[Any], Symbol] | None = getattr(self, "lower_" + type(node).__name__.lower(), None)
        if method is None:
            raise self.refused(node)
        return method(node)

    def value(self, node: ast.expr, symbol: Symbol) -> Value:
        """The symbol as an input of a step, or an error at `node`."""
        try:
            return to_value(symbol)
        except NoValue as error:
            raise self.unusable(node, symbol, error) from None

    def node(self, node: ast.expr, symbol: Symbol) -> Node:
        try:
            return to_node(symbol)
        except NoValue as error:
            raise self.unusable(node, symbol, error) from None

    def unusable(self, node: ast.AST, symbol: Symbol, error: NoValue) -> AuthorError:
        if isinstance(symbol, Unset):
            return self.error(
                "P312",
                node,
                f"{symbol.name!r} is not assigned on every way that leads here",
                f"assign {symbol.name!r} before the if, or in every branch",
            )
        return self.error(
            "P307",
            node,
            f"{error} cannot be passed between steps",
            "pass text, numbers, true/false, lists or dicts; make anything else inside a @task",
        )

    def condition(self, node: ast.expr) -> bool | Node:
        if isinstance(node, ast.BoolOp):
            return self.logic(node)
        return self.truth_of(node, self.lower(node))

    def truth_of(self, node: ast.expr, symbol: Symbol) -> bool | Node:
        try:
            return truth(symbol)
        except NoValue as error:
            raise self.unusable(node, symbol, error) from None

    # -- leaves

    def lower_constant(self, node: ast.Constant) -> Symbol:
        if node.value is Ellipsis or isinstance(node.value, bytes | complex):
            raise self.error(
                "P311", node, f"{node.value!r} has no meaning in a workflow", "use text, numbers, true/false or None"
            )
        return Static(node.value)

    def lower_name(self, node: ast.Name) -> Symbol:
        found = self.name(node)
        if isinstance(found, Unset):
            raise self.unusable(node, found, NoValue(found.name))
        return found

    def lower_joinedstr(self, node: ast.JoinedStr) -> Symbol:
        parts: list[str | Sym] = []
        for item in node.values:
            if isinstance(item, ast.Constant):
                parts.append(str(item.value))
                continue
            assert isinstance(item, ast.FormattedValue)
            parts.append(self.formatted(item))
        merged: list[str | Sym] = []
        for part in parts:
            if isinstance(part, str) and merged and isinstance(merged[-1], str):
                merged[-1] += part
            elif part != "":
                merged.append(part)
        if all(isinstance(part, str) for part in merged):
            return Static("".join(str(part) for part in merged))
        if len(merged) == 1 and isinstance(merged[0], Sym):
            only = merged[0]
            return only if only.type == STR else Sym(Call("format", (only.node, Const(""))), STR)
        return Text(tuple(merged))

    def formatted(self, item: ast.FormattedValue) -> str | Sym:
        symbol = self.lower(item.value)
        spec = ""
        if item.format_spec is not None:
            given = self.lower(item.format_spec)
            if not isinstance(given, Static):
                raise self.error(
                    "P311",
                    item,
                    "a format that is only known at run time has no meaning in a workflow",
                    "write the format out",
                )
            spec = given.value
        if isinstance(symbol, Static):
            value = repr(symbol.value) if item.conversion == ord("r") else symbol.value
            try:
                return format(str(value) if item.conversion == ord("s") else value, spec)
            except (ValueError, TypeError) as error:
                raise self.error("P311", item, f"this does not format: {error}", "mend the format") from None
        if item.conversion not in (-1, ord("s")):
            raise self.error("P311", item, "!r of a value has no meaning in a workflow", "drop the !r")
        node = self.node(item.value, symbol)
        if spec:
            return Sym(Call("format", (node, Const(spec))), STR)
        return Sym(node, type_of(symbol))

    # -- containers

    def lower_list(self, node: ast.List) -> Symbol:
        return self.sequence(node.elts, False)

    def lower_tuple(self, node: ast.Tuple) -> Symbol:
        return self.sequence(node.elts, True)

    def sequence(self, elements: list[ast.expr], is_tuple: bool) -> Symbol:
        items = tuple(self.lower(element) for element in elements)
        if all(isinstance(item, Static) for item in items):
            values = [item.value for item in items if isinstance(item, Static)]
            return Static(tuple(values) if is_tuple else values)
        return Seq(items, is_tuple)

    def lower_dict(self, node: ast.Dict) -> Symbol:
        pairs: list[tuple[str, Symbol]] = []
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                raise self.error("P311", value_node, "** has no meaning in a workflow", "write the keys out")
            key = self.lower(key_node)
            if not isinstance(key, Static) or not isinstance(key.value, str):
                raise self.error(
                    "P311", key_node, "the key of a dict must be text that is known now", "write a constant"
                )
            pairs.append((key.value, self.lower(value_node)))
        if all(isinstance(value, Static) for _, value in pairs):
            return Static({key: value.value for key, value in pairs if isinstance(value, Static)})
        return Pairs(tuple(dict(pairs).items()))

    def lower_listcomp(self, node: ast.ListComp) -> Symbol:
        return self.comprehension(node)

    # -- looking into values

    def lower_attribute(self, node: ast.Attribute) -> Symbol:
        of = self.lower(node.value)
        if isinstance(of, Static):
            try:
                return Static(getattr(of.value, node.attr))
            except AttributeError:
                raise self.error(
                    "P312", node, f"{_called(of.value)} has no attribute {node.attr!r}", "check the spelling"
                ) from None
        if not isinstance(of, Sym):
            raise self.error(
                "P311",
                node,
                f"the attribute {node.attr!r} of this has no meaning in a workflow",
                "use it inside a @task",
            )
        self.looked_into(node, of)
        step = Member(of.node, node.attr) if is_identifier(node.attr) else Index(of.node, Const(node.attr))
        return Sym(step, of.type.item if of.type.name == "dict" else types.ANY)

    def looked_into(self, node: ast.expr, of: Sym) -> None:
        if of.type.name in ("int", "float", "bool", "str", "null", "object", "file", "dir"):
            instead = (
                "do it inside a @task"
                if of.type.name != "object"
                else "return a dict or a dataclass instead, or use it inside a @task"
            )
            raise self.error(
                "P311", node, f"this looks into {_article(of.type)} that is only known at run time", instead
            )

    def lower_subscript(self, node: ast.Subscript) -> Symbol:
        of = self.lower(node.value)
        if isinstance(node.slice, ast.Slice):
            return self.slice(node, of, node.slice)
        index = self.lower(node.slice)
        if isinstance(of, Static) and isinstance(index, Static):
            return self.now(node, operator.getitem, of.value, index.value)
        if isinstance(of, Seq) and isinstance(index, Static):
            return self.pick(node, of, index.value)
        if isinstance(of, Pairs) and isinstance(index, Static):
            found = dict(of.items)
            if index.value not in found:
                raise self.error("P312", node, f"this dict has no {index.value!r}", "check the spelling")
            return found[index.value]
        container = self.node(node.value, of)
        type_ = type_of(of)
        if isinstance(of, Sym):
            self.looked_into(node, of)
        if isinstance(index, Static) and isinstance(index.value, int) and not isinstance(index.value, bool):
            return self.element(container, type_, index.value)
        if isinstance(index, Static) and isinstance(index.value, str):
            return Sym(
                Member(container, index.value) if is_identifier(index.value) else Index(container, Const(index.value)),
                type_.item,
            )
        return Sym(Index(container, self.node(node.slice, index)), type_.item)

    def element(self, container: Node, type_: Type, index: int) -> Sym:
        item = type_.item
        if type_.name == "tuple" and -len(type_.args) <= index < len(type_.args):
            item = type_.args[index]
            index %= len(type_.args)
        if index < 0:
            return Sym(Index(container, Binary("-", Call("size", (container,)), Const(-index))), item)
        return Sym(Index(container, Const(index)), item)

    def pick(self, node: ast.expr, of: Seq, index: Any) -> Symbol:
        if not isinstance(index, int) or not -len(of.items) <= index < len(of.items):
            raise self.error(
                "P312", node, f"there is no element {index!r} in this list of {len(of.items)}", "check the index"
            )
        return of.items[index]

    def slice(self, node: ast.Subscript, of: Symbol, part: ast.Slice) -> Symbol:
        bounds = [
            self.lower(bound) if bound is not None else Static(None) for bound in (part.lower, part.upper, part.step)
        ]
        if not all(isinstance(bound, Static) for bound in bounds) or not isinstance(of, Static | Seq):
            raise self.refused(part if hasattr(part, "lineno") else node)
        cut = slice(*(bound.value for bound in bounds if isinstance(bound, Static)))
        if isinstance(of, Seq):
            return Seq(of.items[cut], of.is_tuple)
        return self.now(node, operator.getitem, of.value, cut)

    # -- operators

    def now(self, node: ast.AST, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Symbol:
        """Python's own answer, at compile time, on constants."""
        try:
            return Static(function(*args, **kwargs))
        except Exception as error:
            raise self.error("P312", node, f"{type(error).__name__}: {error}", "mend the expression") from None

    def lower_binop(self, node: ast.BinOp) -> Symbol:
        return self.arithmetic(node, node.op, self.lower(node.left), self.lower(node.right), node.left, node.right)

    def arithmetic(
        self, node: ast.AST, op: ast.operator, left: Symbol, right: Symbol, left_node: ast.expr, right_node: ast.expr
    ) -> Symbol:
        if type(op) not in _ARITHMETIC:
            raise self.error("P311", node, "this operator has no meaning in a workflow", "compute it inside a @task")
        sign, function = _ARITHMETIC[type(op)]
        if isinstance(left, Static) and isinstance(right, Static):
            if sign == "**" and not (isinstance(right.value, int | float) and abs(right.value) <= 1000):
                raise self.error("P311", node, "this power is too large to compute here", "compute it inside a @task")
            if (
                sign == "*"
                and any(isinstance(side.value, str | list | tuple) for side in (left, right))
                and any(isinstance(side.value, int) and side.value > 1_000_000 for side in (left, right))
            ):
                raise self.error("P311", node, "this is too large to build here", "build it inside a @task")
            return self.now(node, function, left.value, right.value)
        sequences = [_as_seq(side) for side in (left, right)]
        if sign == "+" and sequences[0] is not None and sequences[1] is not None:
            return Seq(sequences[0].items + sequences[1].items, sequences[0].is_tuple)
        if sign not in ("+", "-", "*", "/"):
            raise self.error(
                "P311",
                node,
                f"{sign} on a value that is only known at run time has no meaning in a workflow",
                "compute it inside a @task",
            )
        return self.compute(node, sign, (left, left_node), (right, right_node))

    def compute(
        self, node: ast.AST, sign: str, left: tuple[Symbol, ast.expr], right: tuple[Symbol, ast.expr]
    ) -> Symbol:
        a, b = type_of(left[0]), type_of(right[0])
        x, y = self.node(left[1], left[0]), self.node(right[1], right[0])
        names = {a.name, b.name}
        if names <= {"int", "float"}:
            if sign == "/" or "float" in names:
                # Where a float is declared an int may come; Python computes with both alike.
                return Sym(Binary(sign, _as_double(x), _as_double(y)), FLOAT)
            return Sym(Binary(sign, x, y), a)
        if sign == "+" and names == {"str"}:
            return Sym(Binary("+", x, y), STR)
        if sign == "+" and names <= {"list", "tuple"}:
            return Sym(Binary("+", x, y), list_of(types.join(a.item, b.item)))
        raise self.error(
            "P311",
            node,
            f"{a} {sign} {b} is only known at run time and has no meaning in a workflow",
            "annotate the types of the tasks it comes from, or compute it inside a @task",
        )

    def lower_unaryop(self, node: ast.UnaryOp) -> Symbol:
        if isinstance(node.op, ast.Not):
            condition = self.condition(node.operand)
            return condition_symbol(not condition if isinstance(condition, bool) else negate(condition))
        of = self.lower(node.operand)
        if isinstance(of, Static):
            return self.now(
                node,
                operator.neg
                if isinstance(node.op, ast.USub)
                else operator.pos
                if isinstance(node.op, ast.UAdd)
                else operator.invert,
                of.value,
            )
        if isinstance(node.op, ast.USub) and type_of(of).name in ("int", "float"):
            return Sym(Unary("-", self.node(node.operand, of)), type_of(of))
        raise self.error(
            "P311",
            node,
            "this operator has no meaning on a value that is only known at run time",
            "compute it inside a @task",
        )

    def lower_boolop(self, node: ast.BoolOp) -> Symbol:
        """As a value: `a or b` is a itself if a is true, else b."""
        is_or = isinstance(node.op, ast.Or)
        symbol = self.lower(node.values[0])
        for operand in node.values[1:]:
            test = self.truth_of(node.values[0], symbol)
            if isinstance(test, bool):
                symbol = symbol if test is is_or else self.lower(operand)
                continue
            right = self.under(negate(test) if is_or else test, lambda operand=operand: self.lower(operand))  # type: ignore[misc]
            if type_of(symbol).name == type_of(right).name == "bool":
                symbol = Sym(Binary("||" if is_or else "&&", test, self.node(operand, right)), BOOL)
                continue
            try:
                symbol = choose(test, symbol, right) if is_or else choose(test, right, symbol)
            except NoValue as error:
                raise self.unusable(operand, right, error) from None
        return symbol

    def logic(self, node: ast.BoolOp) -> bool | Node:
        """As a condition: b is looked at only if a leaves it open, so a task called in b runs only then."""
        is_or = isinstance(node.op, ast.Or)
        result = self.condition(node.values[0])
        for operand in node.values[1:]:
            if isinstance(result, bool):
                if result is is_or:
                    return result
                result = self.condition(operand)
                continue
            gate = negate(result) if is_or else result
            right = self.under(gate, lambda operand=operand: condition_symbol(self.condition(operand)))  # type: ignore[misc]
            result = both(result, truth(right), "||" if is_or else "&&")
        return result

    def lower_compare(self, node: ast.Compare) -> Symbol:
        left_node, left = node.left, self.lower(node.left)
        result: bool | Node = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.under(result, lambda right_node=right_node: self.lower(right_node))  # type: ignore[misc]
            result = both(result, self.comparison(node, op, (left, left_node), (right, right_node)), "&&")
            left_node, left = right_node, right
        return condition_symbol(result)

    def comparison(
        self, node: ast.Compare, op: ast.cmpop, left: tuple[Symbol, ast.expr], right: tuple[Symbol, ast.expr]
    ) -> bool | Node:
        sign, function = _COMPARE[type(op)]
        if isinstance(left[0], Static) and isinstance(right[0], Static):
            answer = self.now(node, function, left[0].value, right[0].value)
            return bool(answer.value) if isinstance(answer, Static) else True
        if sign in ("is", "is not"):
            if not (isinstance(right[0], Static) and right[0].value is None):
                raise self.error(
                    "P311", node, f"{sign!r} has a meaning only with None", f"write {'==' if sign == 'is' else '!='}"
                )
            sign = "==" if sign == "is" else "!="
        x, y = self.node(left[1], left[0]), self.node(right[1], right[0])
        if sign in ("in", "not in"):
            if type_of(right[0]).name == "str":
                inside: Node = Call("contains", (x,), y)
            else:
                inside = Binary("in", x, y)
            return negate(inside) if sign == "not in" else inside
        return Binary(sign, x, y)

    def lower_ifexp(self, node: ast.IfExp) -> Symbol:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            return self.lower(node.body if condition else node.orelse)
        yes = self.under(condition, lambda: self.lower(node.body))
        no = self.under(negate(condition), lambda: self.lower(node.orelse))
        try:
            return choose(condition, yes, no)
        except NoValue as error:
            raise self.unusable(node, yes, error) from None

    # -- calls

    def target(self, node: ast.expr) -> Any:
        """The task, workflow or job that this names, or None. Does not lower anything that could leave a step behind."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and self.target(node.func.value) is not None:
                if node.func.attr == "options":
                    return self.with_options(node)
                if node.func.attr == "after":
                    return self.target(node.func.value)
            return None
        if isinstance(node, ast.Name):
            try:
                found = self.name(node)
            except AuthorError:
                return None
            value = found.value if isinstance(found, Static) else None
        elif isinstance(node, ast.Attribute):
            holder = self.static_object(node.value)
            value = getattr(holder, node.attr, None) if holder is not None else None
        else:
            return None
        is_step = isinstance(value, Authored | BaseJob) or (
            getattr(value, "penstock_task", None) is value and value is not None
        )
        return value if is_step else None

    def static_object(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            try:
                found = self.name(node)
            except AuthorError:
                return None
            return found.value if isinstance(found, Static) else None
        if isinstance(node, ast.Attribute):
            holder = self.static_object(node.value)
            return getattr(holder, node.attr, None) if holder is not None else None
        return None

    def with_options(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Attribute)
        task = self.target(node.func.value)
        given = {}
        for keyword in node.keywords:
            value = self.lower(keyword.value)
            if keyword.arg is None or not isinstance(value, Static):
                raise self.error(
                    "P311", keyword.value, "options must be known when the workflow is compiled", "use constants"
                )
            given[keyword.arg] = value.value
        if node.args:
            raise self.error("P311", node.args[0], "options have names", "write .options(cpu=2)")
        try:
            return task.options(**given)
        except AuthorError as error:
            problem = error.problems[0]
            raise self.error(problem.code, node, problem.message, problem.fix) from None

    def calls_step(self, *nodes: ast.AST) -> bool:
        """Is a task, workflow or job called anywhere in here?"""
        return any(
            isinstance(child, ast.Call) and self.target(child.func) is not None
            for node in nodes
            for child in ast.walk(node)
        )

    def lower_call(self, node: ast.Call) -> Symbol:
        target = self.target(node.func)
        if target is not None:
            return self.call_step(node, target)
        if self.target(node) is not None:
            raise self.error("P311", node, "a task with options is not called", "add the arguments: task.options(…)(…)")
        if isinstance(node.func, ast.Attribute):
            return self.method(node, node.func)
        function = self.lower(node.func)
        if not isinstance(function, Static):
            raise self.error("P311", node, "only tasks and workflows can be called", "decorate the function with @task")
        name = getattr(function.value, "__name__", "")
        if function.value is not _PURE.get(name):
            raise self.error(
                "P313",
                node,
                f"{_called(function.value)} is not a task",
                _task_hint(function.value),
            )
        return self.builtin(node, name)

    def builtin(self, node: ast.Call, name: str) -> Symbol:
        if node.keywords and any(keyword.arg is None for keyword in node.keywords):
            raise self.error("P311", node, "** has no meaning in a workflow", "write the arguments out")
        args = [self.lower(arg) for arg in node.args]
        keywords = {keyword.arg or "": self.lower(keyword.value) for keyword in node.keywords}
        if all(isinstance(arg, Static) for arg in (*args, *keywords.values())):
            given = [arg.value for arg in args if isinstance(arg, Static)]
            named = {key: arg.value for key, arg in keywords.items() if isinstance(arg, Static)}
            answer = self.now(node, _PURE[name], *given, **named)
            assert isinstance(answer, Static)
            lazy = isinstance(answer.value, enumerate | zip | reversed)
            return Static(list(answer.value)) if lazy else answer
        if keywords or not args:
            raise self.not_now(node, name)
        return self.symbolic_builtin(node, name, args)

    def symbolic_builtin(self, node: ast.Call, name: str, args: list[Symbol]) -> Symbol:
        nodes = [self.node(arg_node, arg) for arg_node, arg in zip(node.args, args, strict=True)]
        kinds = [type_of(arg).name for arg in args]
        if name == "len" and len(args) == 1:
            return (
                Static(len(args[0].items)) if isinstance(args[0], Seq | Pairs) else Sym(Call("size", (nodes[0],)), INT)
            )
        if name == "range" and len(args) <= 3 and all(kind in ("int", "any") for kind in kinds):
            return Sym(Call("range", tuple(nodes)), list_of(INT))
        if name == "str" and len(args) == 1:
            return Sym(Call("format", (nodes[0], Const(""))), STR)
        if name == "float" and kinds in (["int"], ["float"], ["str"]):
            return Sym(Call("double", (nodes[0],)), FLOAT)
        if name == "int" and kinds in (["int"], ["float"], ["str"]):
            return Sym(Call("int", (nodes[0],)), INT)
        if name == "bool" and len(args) == 1:
            return condition_symbol(truth(args[0]))
        if name == "list" and kinds in (["list"], ["tuple"]):
            return Seq(args[0].items) if isinstance(args[0], Seq) else args[0]
        if (
            name in ("min", "max")
            and len(args) == 2
            and all(kind in ("int", "float") for kind in kinds)
            and kinds[0] == kinds[1]
        ):
            return Sym(Call(name, tuple(nodes)), type_of(args[0]))
        raise self.not_now(node, name)

    def not_now(self, node: ast.Call, name: str) -> AuthorError:
        return self.error(
            "P311",
            node,
            f"{name}() of a value that is only known at run time has no meaning in a workflow",
            f"call {name}() inside a @task",
        )

    def method(self, node: ast.Call, function: ast.Attribute) -> Symbol:
        of = self.lower(function.value)
        if isinstance(of, Static) and function.attr in _PURE_METHODS.get(type(of.value), ()) and not node.keywords:
            args = [self.lower(arg) for arg in node.args]
            if all(isinstance(arg, Static) for arg in args):
                answer = self.now(
                    node, getattr(of.value, function.attr), *(arg.value for arg in args if isinstance(arg, Static))
                )
                assert isinstance(answer, Static)
                return Static(list(answer.value)) if isinstance(of.value, dict) and function.attr != "get" else answer
        if isinstance(of, Static):
            found = getattr(of.value, function.attr, None)
            raise self.error(
                "P313",
                node,
                f"{_called(found) if found is not None else function.attr + '()'} is not a task",
                _task_hint(found),
            )
        if function.attr == "append":
            raise self.error(
                "P311",
                node,
                "append works on a list that starts empty, once in each round of a loop",
                "write [task(x) for x in items]",
            )
        if (
            isinstance(of, Sym)
            and of.type.name in ("str", "any")
            and function.attr in ("startswith", "endswith")
            and len(node.args) == 1
        ):
            return Sym(
                Call(
                    {"startswith": "startsWith", "endswith": "endsWith"}[function.attr],
                    (self.node(node.args[0], self.lower(node.args[0])),),
                    of.node,
                ),
                BOOL,
            )
        raise self.error(
            "P311",
            node,
            f".{function.attr}() of a value that is only known at run time has no meaning in a workflow",
            "call it inside a @task",
        )


def _as_seq(symbol: Symbol) -> Seq | None:
    if isinstance(symbol, Seq):
        return symbol
    if isinstance(symbol, Static) and isinstance(symbol.value, list | tuple):
        return Seq(tuple(map(Static, symbol.value)), isinstance(symbol.value, tuple))
    return None


def _as_double(node: Node) -> Node:
    match node:
        case Const(int(value)):
            return Const(float(value))
        case Const(float()) | Call("double", _):
            return node
        case _:
            return Call("double", (node,))


def _article(type_: Type) -> str:
    return f"{'an' if str(type_)[0] in 'aeio' else 'a'} {type_}"


def _called(value: Any) -> str:
    if isinstance(value, python_types.ModuleType):
        return f"the module {value.__name__!r}"
    if isinstance(value, enum.Enum):
        return str(value)
    name = getattr(value, "__name__", None)
    return f"{name}()" if callable(value) and name else f"{type(value).__name__} {value!r:.40}"


def _task_hint(value: Any) -> str:
    if isinstance(value, python_types.FunctionType):
        return "decorate it with @task (or with @workflow, if it calls tasks), or call it outside the workflow"
    return "call it inside a @task, or outside the workflow"
