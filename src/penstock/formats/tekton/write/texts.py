"""Values and conditions of the model in Tekton's syntax: `$(params.x)`, `$(tasks.a.results.r[0])`, `when` with in and notin.
Called by workflow and spec.

Tekton only substitutes values in texts. A value that must be computed is refused, with its step; a step can compute it and pass it on as a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.expressions.evaluate import EvaluationError, evaluate, to_text
from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    Expr,
    Index,
    ListOf,
    Member,
    Node,
    Unary,
    path_of,
    references,
    show,
)
from penstock.expressions.template import Template
from penstock.formats.tekton.outcomes import without_elements
from penstock.formats.tekton.variables import ROOTS
from penstock.graph.model import Value, expressions

Kind = Literal["string", "array", "object"]


EMPTY = "penstock-empty"
"""A workspace that no run binds. Its path is empty, and Tekton replaces it last of all: between a dollar sign and a parenthesis it keeps a text from
being taken for a variable. There is no other escape."""
NOTHING = f"$(workspaces.{EMPTY}.path)"
_VARIABLE = re.compile(r"\$(?=\((?:" + "|".join(sorted(ROOTS)) + r")[.\[])")
_OF_STEPS = re.compile(r"\$\(steps[.\[]")


class TektonText(str):
    """Text in Tekton's syntax, which is not escaped again."""

    __slots__ = ()


class NotInTekton(ValueError):
    """Tekton cannot express a value: the reason."""


def looks_like_a_variable(text: str) -> bool:
    return _VARIABLE.search(text) is not None


def guarded(text: str, of_pod: bool = False) -> TektonText:
    """A literal inside a task. The texts of a pod may name what its earlier steps gave: those are variables. Raises NotInTekton."""
    if _OF_STEPS.search(text):
        if not of_pod:
            raise NotInTekton("the text $(steps. would be filled in when the pod runs, and there is no escape")
        pieces = re.split(r"(\$\(steps?[.\[])", text)
        return TektonText("".join(one if n % 2 else _VARIABLE.sub("$" + NOTHING, one) for n, one in enumerate(pieces)))
    return TektonText(_VARIABLE.sub("$" + NOTHING, text))


@dataclass(frozen=True, slots=True)
class TektonPath:
    """The Tekton variable of a path, without `$()`."""

    text: str
    kind: Kind = "string"
    outcomes: dict[str, tuple[str, ...]] | None = None
    """For an outcome: Penstock's name -> Tekton's."""


Resolve = Callable[[tuple[str, ...]], tuple[TektonPath, tuple[str, ...]] | None]
"""The variable of the longest known prefix of a path, and the rest of it. None: there is none here."""


class TextWriter:
    """Writes texts for one place: in a pipeline, where a text that looks like a variable has no escape, or inside a task, where it has one."""

    def __init__(
        self,
        resolve: Resolve,
        special: Mapping[str, TektonPath] | None = None,
        inside: bool = False,
        of_pod: bool = False,
    ) -> None:
        self._resolve = resolve
        self._inside = inside
        self._of_pod = of_pod
        self._special = special or {}
        """Whole expressions that Tekton has a variable for."""

    # -- texts --------------------------------------------------------------------------------------------------------

    def text(self, value: Value) -> str:
        """A value as text. Raises NotInTekton."""
        if isinstance(value, Template):
            return "".join(self._literal(one) if isinstance(one, str) else self._node(one.node) for one in value.parts)
        if isinstance(value, Expr):
            return self._node(value.node)
        if isinstance(value, tuple | list | dict) and any(True for _ in expressions(value)):
            raise NotInTekton("a list or map in the middle of a text")
        return self._literal(value if isinstance(value, str) else to_text(value))

    def _literal(self, text: str) -> str:
        if isinstance(text, TektonText):
            return text
        if self._inside:
            return guarded(text, self._of_pod)
        if looks_like_a_variable(text):
            raise NotInTekton(f"the text {text[:80]!r} would be taken for a variable, and there is no escape here")
        return text

    def words(self, values: Iterable[Value]) -> list[str]:
        """An array among them is replaced by all its elements."""
        found = []
        for value in values:
            ref = self.array(value)
            found.append(f"$({ref.text}[*])" if ref is not None else self.text(value))
        return found

    def array(self, value: Value) -> TektonPath | None:
        """The variable, if a value is only an array."""
        found = self._find(value.node) if isinstance(value, Expr) else None
        return found[0] if found is not None and not found[1] and found[0].kind == "array" else None

    def given(self, value: Value, kind: Kind) -> Any:
        """A value for a parameter of a task of this kind."""
        return TextWriter(self._resolve, self._special, inside=True)._given(value, kind)

    def _given(self, value: Value, kind: Kind) -> Any:
        if kind == "string":
            return self.text(value)
        if isinstance(value, Expr):
            found = self._find(value.node)
            if found is not None and not found[1] and found[0].kind == kind:
                return f"$({found[0].text}[*])"
            known = _constant(value.node)
            value = list(known) if isinstance(known, list | tuple | range) else known
        if kind == "array" and isinstance(value, tuple | list | range):
            return self.words(value)
        if kind == "object" and isinstance(value, dict):
            return {key: self.text(one) for key, one in value.items()}
        raise NotInTekton("an array that is put together" if kind == "array" else "a map that is put together")

    def _find(self, node: Node) -> tuple[TektonPath, tuple[str, ...]] | None:
        path = path_of(node)
        if path is None:
            known = self._special.get(show(node)) if self._special else None
            return None if known is None else (known, ())
        return self._resolve(path)

    def whole(self, value: Value) -> tuple[Any, Kind]:
        """A value with its own kind."""
        found = self._find(value.node) if isinstance(value, Expr) else None
        if found is not None and not found[1] and found[0].kind != "string":
            return f"$({found[0].text}[*])", found[0].kind
        kind: Kind = "array" if isinstance(value, tuple | list) else "object" if isinstance(value, dict) else "string"
        return self._given(value, kind), kind

    def _node(self, node: Node) -> str:
        known = _constant(node)
        if known is not _NOTHING:
            return self._literal(to_text(list(known) if isinstance(known, range) else known))
        if show(node) in self._special:
            return f"$({self._special[show(node)].text})"
        match node:
            case Index(of, Const(int(index))) if not isinstance(index, bool):
                found = self._find(of)
                if found is not None and not found[1] and found[0].kind == "array":
                    return f"$({found[0].text}[{index}])"
            case Call("string" | "text", (of,), None) | Call("format", (of, Const("")), None):
                return self._node(of)
            case Binary("+", left, right) if _is_text(left) or _is_text(right):
                return self._node(left) + self._node(right)
            case _:
                found = self._find(node)
                if found is not None:
                    return self._named(*found)
        raise NotInTekton(f"{show(node)[:160]} would have to be worked out")

    def _named(self, ref: TektonPath, rest: tuple[str, ...]) -> str:
        if not rest and ref.kind == "string":
            return f"$({ref.text})"
        if len(rest) == 1 and ref.kind == "object":
            return f"$({ref.text}.{rest[0]})"
        raise NotInTekton(f"{ref.text} is an {ref.kind}, and only a part of it can stand in a text")

    # -- conditions ---------------------------------------------------------------------------------------------------

    def when(self, condition: Expr) -> list[dict[str, Any]]:
        """All must hold. Raises NotInTekton."""
        known = False if _never(condition.node) else _constant(condition.node)
        if isinstance(known, bool):
            return [{"input": "true" if known else "false", "operator": "in", "values": ["true"]}]
        return list(self._conditions(without_elements(condition.node), True))

    def _conditions(self, node: Node, wanted: bool) -> Iterator[dict[str, Any]]:
        match node:
            case Unary("!", of):
                yield from self._conditions(of, not wanted)
            case Binary("&&", left, right) if wanted:
                yield from self._conditions(left, True)
                yield from self._conditions(right, True)
            case Binary("||", left, right) if not wanted:
                yield from self._conditions(left, False)
                yield from self._conditions(right, False)
            case Binary("||", left, right) if wanted and _never(right):
                yield from self._conditions(left, True)
            case Binary("||" | "&&", _, _):
                yield self._either(node, wanted)
            case Binary("==" | "!=" as op, left, right):
                same = (op == "==") is wanted
                left, right = (right, left) if isinstance(left, Const) else (left, right)
                yield self._in(left, [right], same)
            case Binary("in", left, ListOf(items)):
                yield self._in(left, items, wanted)
            case Binary("in", left, right):
                yield self._test(left, self._given(Expr.tree(right), "array"), wanted)
            case Call("bool", (of,), None):
                yield self._in(of, [Const(one) for one in ("true", "True", "TRUE", "t", "1")], wanted)
            case Index() | Member():
                yield self._in(node, [Const(True)], wanted)
            case Const(bool(known)):
                yield {"input": to_text(known), "operator": "in" if wanted else "notin", "values": ["true"]}
            case _:
                raise NotInTekton(f"{show(node)[:160]} is neither `in` nor `notin`")

    def _either(self, node: Node, wanted: bool) -> dict[str, Any]:
        """`x == 1 || x == 2`, or the opposite of `x != 1 && x != 2`: one input, several values."""
        assert isinstance(node, Binary)
        sides = [list(self._conditions(side, wanted)) for side in _sides(node, node.op)]
        found = [one for side in sides for one in side]
        if all(len(side) == 1 for side in sides) and all(
            one["input"] == found[0]["input"] and one["operator"] == "in" for one in found
        ):
            values = [value for one in found for value in _as_list(one["values"])]
            return {**found[0], "values": list(dict.fromkeys(values))}
        raise NotInTekton(f"{show(node)[:160]}: one of several values, which `when` cannot express")

    def _in(self, subject: Node, items: Iterable[Node], wanted: bool) -> dict[str, Any]:
        found = self._find(subject)
        if found is not None and found[0].outcomes is not None and not found[1]:
            return self._ended(found[0], items, wanted)
        return self._test(subject, [self._node(item) for item in items], wanted)

    def _ended(self, ref: TektonPath, items: Iterable[Node], wanted: bool) -> dict[str, Any]:
        assert ref.outcomes is not None
        values: list[str] = []
        for item in items:
            known = _constant(item)
            if known not in ref.outcomes:
                raise NotInTekton(f"{known!r} is told from nothing else in Tekton")
            values += ref.outcomes[known]
        return {"input": f"$({ref.text})", "operator": "in" if wanted else "notin", "values": values}

    def _test(self, subject: Node, values: Any, wanted: bool) -> dict[str, Any]:
        listed = values if isinstance(values, list) else [values]
        return {"input": self._node(subject), "operator": "in" if wanted else "notin", "values": listed}


_NOTHING: Any = object()


def _constant(node: Node) -> Any:
    """The value of a constant expression; `_NOTHING` if it is not constant or has no value."""
    if isinstance(node, Const):
        return node.value
    if path_of(node) is not None or any(True for _ in references(show(node))):
        return _NOTHING
    try:
        return evaluate(node, {})
    except EvaluationError:
        return _NOTHING


def _never(node: Node) -> bool:
    """The form in which the readers write a condition that never holds."""
    return show(node) in ('run.id == ""', "size(params) < 0")


def _is_text(node: Node) -> bool:
    match node:
        case Const(str()):
            return True
        case Call("string" | "text" | "format", _, None):
            return True
        case Binary("+", left, right):
            return _is_text(left) or _is_text(right)
    return False


def _sides(node: Node, op: str) -> Iterator[Node]:
    if isinstance(node, Binary) and node.op == op:
        yield from _sides(node.left, op)
        yield from _sides(node.right, op)
    else:
        yield node


def _as_list(values: Any) -> list[str]:
    return values if isinstance(values, list) else [values]
