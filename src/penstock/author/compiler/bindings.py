"""Assignment targets -> variables. Called by assignments, axes, comprehensions and for_loops."""

from __future__ import annotations

import ast

from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.refusals import Located
from penstock.author.compiler.symbols import Dynamic, Pairs, Seq, Static, Symbol, chosen_from, element, type_of
from penstock.expressions.parse import Index, Member, Node, path_of


class Bindings:
    def __init__(self, context: CompileContext) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes

    def assign(self, target: ast.expr, symbol: Symbol) -> None:
        match target:
            case ast.Name(id=name):
                self._scopes.bind(name, symbol)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for one, part in zip(targets, self._unpack(target, symbol, len(targets)), strict=True):
                    if isinstance(one, ast.Starred):
                        message = "* in an assignment has no meaning in a workflow"
                        raise self._refusals.error("P311", one, message, "name each part")
                    self.assign(one, part)
            case _:
                message = "only names and items of lists and dicts can be assigned in a workflow"
                fix = "change objects inside a @task, and return them"
                raise self._refusals.error("P311", target, message, fix)

    def _unpack(self, target: ast.expr, symbol: Symbol, count: int) -> list[Symbol]:
        match symbol:
            case Seq(items):
                self._check_count(target, count, len(items))
                return list(items)
            case Static(value):
                try:
                    values = list(value)
                except TypeError:
                    message = f"{value!r:.40} cannot be unpacked"
                    raise self._refusals.error("P312", target, message, "give a list or tuple") from None
                self._check_count(target, count, len(values))
                return [Static(item) for item in values]
            case Dynamic(node, type_) if type_.name in ("any", "list", "tuple"):
                if type_.name == "tuple":
                    self._check_count(target, count, len(type_.args))
                return [element(node, type_, i) for i in range(count)]
            case _:
                message = f"{type_of(symbol)} cannot be unpacked"
                raise self._refusals.error("P312", target, message, "return a tuple from the task")

    def _check_count(self, target: ast.expr, names: int, values: int) -> None:
        if names != values:
            raise self._refusals.error("P312", target, f"{names} names for {values} values", "make them equally many")

    def is_changeable(self, name: str) -> bool:
        """Does the name stand for a list or dict that is no part of another value? One written out, the result of a step, a value that
        a loop carries, or what an operator made."""
        found = self._scopes.find(name)
        match found:
            case Seq(_, is_tuple):
                return not is_tuple
            case Static(value):
                return isinstance(value, list | dict) and name in self._scopes.variables
            case Pairs():
                return True
            case Dynamic(node, type_) if type_.name in ("list", "tuple", "dict", "any", "optional"):
                return all(map(_is_whole, chosen_from(node)))
            case _:
                return False

    def is_empty_list(self, name: str) -> bool:
        found = self._scopes.find(name)
        return (isinstance(found, Static) and found.value == []) or (isinstance(found, Seq) and not found.items)

    def is_empty_dict(self, name: str) -> bool:
        found = self._scopes.find(name)
        return isinstance(found, Static) and found.value == {}

    def refuse_alias(self, where: Located, name: str) -> None:
        """In Python a list that has two names changes under both. Here each name has its own value."""
        other = self._scopes.alias(name)
        if name in self._scopes.variables and other is not None:
            message = f"{name!r} and {other!r} are one list, and it is changed here"
            raise self._refusals.error("P311", where, message, f"make a list of its own: {name} = []")


def _is_whole(node: Node) -> bool:
    path = path_of(node)
    if path is None:
        return not isinstance(node, Member | Index)
    return (path[0], len(path)) in (("params", 2), ("steps", 4))
