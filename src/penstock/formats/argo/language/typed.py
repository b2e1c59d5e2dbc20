"""Translated nodes with what is known of their values. Shared by translate and functions, which call each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.errors import nearest
from penstock.expressions.parse import Call, Const, ExpressionError, Node, reference
from penstock.expressions.signatures import SIGNATURES
from penstock.formats.argo.language.grammar import Tree
from penstock.formats.expression_trees import is_condition


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A translated node, and what is known of its value."""

    node: Node
    kind: str = "any"
    """int, float, str, bool, list, map, nil; time (a text), duration (seconds); any."""
    loose: bool = False
    """Its last step reads a field of data, which may be missing."""
    plain: bool = False
    """It is only a variable, so it is text."""


_KINDS = {"int": "int", "float": "float", "str": "str", "bool": "bool", "list": "list", "dict": "map"}


def kind_of(node: Node) -> str:
    """A node from outside, with what is known of it."""
    if is_condition(node):
        return "bool"
    match node:
        case Const(str()):
            return "str"
        case Call(name, _, None) if name in SIGNATURES:
            return _KINDS.get(SIGNATURES[name][2].partition("[")[0], "any")
    return "any"


class FunctionTranslator(Protocol):
    """What functions needs of translate.ExprTranslation."""

    pointers: list[dict[str, Node]]
    """The meaning of `#`, `#acc` and `#index`, innermost predicate last."""
    lets: dict[str, TypedNode]

    def part(self, tree: Tree) -> TypedNode: ...

    def node(self, tree: Tree) -> Node: ...

    def nullable(self, tree: Tree) -> TypedNode:
        """Like `part`, and null if it is missing."""
        ...

    def fresh(self) -> str:
        """A variable name that is not used."""
        ...


NOW = TypedNode(reference("run", "created"), "time")


def unknown(name: str, known: list[str], at: int) -> ExpressionError:
    return ExpressionError(f"the function {name[:80]}() has no counterpart here.{nearest(name[:80], known)}", at)
