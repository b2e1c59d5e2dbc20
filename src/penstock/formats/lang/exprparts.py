"""Pieces of a translated expression, and what is known of their values. Shared by exprlang and exprcalls, which call each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.errors import nearest
from penstock.formats.lang.build import is_condition
from penstock.formats.lang.exprparse import Tree
from penstock.graph.expr import Call, Const, ExpressionError, Node, reference
from penstock.graph.signatures import SIGNATURES


@dataclass(frozen=True, slots=True)
class Part:
    """A translated piece, and what is known of its value."""

    node: Node
    kind: str = "any"
    """int, float, str, bool, list, map, nil; time (a text), duration (seconds); any."""
    loose: bool = False
    """The last step of it looks into data, where nothing may be."""
    plain: bool = False
    """A variable and nothing more, so a text."""


_KINDS = {"int": "int", "float": "float", "str": "str", "bool": "bool", "list": "list", "dict": "map"}


def kind_of(node: Node) -> str:
    """What is known of a node that came from outside."""
    if is_condition(node):
        return "bool"
    match node:
        case Const(str()):
            return "str"
        case Call(name, _, None) if name in SIGNATURES:
            return _KINDS.get(SIGNATURES[name][2].partition("[")[0], "any")
    return "any"


class Translator(Protocol):
    """exprlang's Translation, as exprcalls sees it."""

    pointers: list[dict[str, Node]]
    """What `#` and its kin stand for, innermost predicate last."""
    lets: dict[str, Part]

    def part(self, tree: Tree) -> Part: ...

    def node(self, tree: Tree) -> Node: ...

    def nullable(self, tree: Tree) -> Part:
        """Like `part`, and null where there is nothing."""
        ...

    def fresh(self) -> str:
        """A variable that nobody has."""
        ...


NOW = Part(reference("run", "created"), "time")


def unknown(name: str, known: list[str], at: int) -> ExpressionError:
    return ExpressionError(f"the function {name[:80]}() has no counterpart here.{nearest(name[:80], known)}", at)
