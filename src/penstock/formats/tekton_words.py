"""Values and conditions of the model as Tekton writes them: `$(params.x)`, `$(tasks.a.results.r[0])`, `when` with in and notin.
Called by tekton_write and tekton_spec.

Tekton puts values into texts and does nothing else with them. Whatever would have to be worked out is refused, with the step that
it belongs to; it can be worked out in a step and handed on as a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.graph.evaluate import EvaluationError, evaluate, to_text
from penstock.graph.expr import Binary, Call, Const, Expr, Index, ListOf, Member, Node, Unary, path_of, references, show
from penstock.graph.model import Value
from penstock.graph.template import Template

Kind = Literal["string", "array", "object"]


class NotSayable(ValueError):
    """Why a value has no form in Tekton."""


@dataclass(frozen=True, slots=True)
class Ref:
    """What a path is called, without the brackets."""

    text: str
    kind: Kind = "string"
    outcomes: dict[str, tuple[str, ...]] | None = None
    """For how something ended: our word -> Tekton's."""


Resolve = Callable[[tuple[str, ...]], tuple[Ref, tuple[str, ...]] | None]
"""The longest part of a path that has a name, and the rest of it. None: it has none here."""


class Wording:
    """One place in a pipeline, or the inside of a task."""

    def __init__(self, resolve: Resolve, special: Mapping[str, Ref] | None = None) -> None:
        self._resolve = resolve
        self._special = special or {}
        """Whole expressions that Tekton has a variable for."""

    # -- texts --------------------------------------------------------------------------------------------------------

    def text(self, value: Value) -> str:
        """A value as text. Raises NotSayable."""
        if isinstance(value, Template):
            return "".join(one if isinstance(one, str) else self._node(one.node) for one in value.parts)
        if isinstance(value, Expr):
            return self._node(value.node)
        if isinstance(value, tuple | list | dict) and any(True for _ in _exprs(value)):
            raise NotSayable("a list or map in the middle of a text")
        return to_text(value)

    def words(self, values: Iterable[Value]) -> list[str]:
        """An array among them stands for all its elements."""
        found = []
        for value in values:
            ref = self.array(value)
            found.append(f"$({ref.text}[*])" if ref is not None else self.text(value))
        return found

    def array(self, value: Value) -> Ref | None:
        """The array that a value is, if it is one."""
        found = self._find(value.node) if isinstance(value, Expr) else None
        return found[0] if found is not None and not found[1] and found[0].kind == "array" else None

    def given(self, value: Value, kind: Kind) -> Any:
        """A value for a parameter of this kind."""
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
        raise NotSayable("an array that is put together" if kind == "array" else "a map that is put together")

    def _find(self, node: Node) -> tuple[Ref, tuple[str, ...]] | None:
        path = path_of(node)
        if path is None:
            known = self._special.get(show(node)) if self._special else None
            return None if known is None else (known, ())
        return self._resolve(path)

    def whole(self, value: Value) -> tuple[Any, Kind]:
        """A value with the kind that it has by itself."""
        found = self._find(value.node) if isinstance(value, Expr) else None
        if found is not None and not found[1] and found[0].kind != "string":
            return f"$({found[0].text}[*])", found[0].kind
        kind: Kind = "array" if isinstance(value, tuple | list) else "object" if isinstance(value, dict) else "string"
        return self.given(value, kind), kind

    def _node(self, node: Node) -> str:
        known = _constant(node)
        if known is not _NOTHING:
            return to_text(list(known) if isinstance(known, range) else known)
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
        raise NotSayable(f"{show(node)[:160]} would have to be worked out")

    def _named(self, ref: Ref, rest: tuple[str, ...]) -> str:
        if not rest and ref.kind == "string":
            return f"$({ref.text})"
        if len(rest) == 1 and ref.kind == "object":
            return f"$({ref.text}.{rest[0]})"
        raise NotSayable(f"{ref.text} is an {ref.kind}, and only a part of it can stand in a text")

    # -- conditions ---------------------------------------------------------------------------------------------------

    def when(self, condition: Expr) -> list[dict[str, Any]]:
        """All must hold. Raises NotSayable."""
        known = False if _never(condition.node) else _constant(condition.node)
        if isinstance(known, bool):
            return [{"input": "true" if known else "false", "operator": "in", "values": ["true"]}]
        return list(self._conditions(condition.node, True))

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
                yield self._test(left, self.given(Expr.tree(right), "array"), wanted)
            case Call("bool", (of,), None):
                yield self._in(of, [Const(one) for one in ("true", "True", "TRUE", "t", "1")], wanted)
            case Index() | Member():
                yield self._in(node, [Const(True)], wanted)
            case Const(bool(known)):
                yield {"input": to_text(known), "operator": "in" if wanted else "notin", "values": ["true"]}
            case _:
                raise NotSayable(f"{show(node)[:160]} is neither `in` nor `notin`")

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
        raise NotSayable(f"{show(node)[:160]}: one of several things, which `when` has no word for")

    def _in(self, subject: Node, items: Iterable[Node], wanted: bool) -> dict[str, Any]:
        found = self._find(subject)
        if found is not None and found[0].outcomes is not None and not found[1]:
            return self._ended(found[0], items, wanted)
        return self._test(subject, [self._node(item) for item in items], wanted)

    def _ended(self, ref: Ref, items: Iterable[Node], wanted: bool) -> dict[str, Any]:
        assert ref.outcomes is not None
        values: list[str] = []
        for item in items:
            known = _constant(item)
            if known not in ref.outcomes:
                raise NotSayable(f"{known!r} is told from nothing else in Tekton")
            values += ref.outcomes[known]
        return {"input": f"$({ref.text})", "operator": "in" if wanted else "notin", "values": values}

    def _test(self, subject: Node, values: Any, wanted: bool) -> dict[str, Any]:
        listed = values if isinstance(values, list) else [values]
        return {"input": self._node(subject), "operator": "in" if wanted else "notin", "values": listed}


_NOTHING: Any = object()


def _constant(node: Node) -> Any:
    """The value of an expression that reads nothing; `_NOTHING` if it reads something or has no value."""
    if isinstance(node, Const):
        return node.value
    if path_of(node) is not None or any(True for _ in references(show(node))):
        return _NOTHING
    try:
        return evaluate(node, {})
    except EvaluationError:
        return _NOTHING


def _never(node: Node) -> bool:
    """As the readers write a condition that cannot hold."""
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


def _exprs(value: Any) -> Iterator[Expr | Template]:
    if isinstance(value, Expr | Template):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _exprs(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _exprs(one)
