"""withItems, withParam and withSequence of an Argo step -> the items of a for-each, whose variable is called `item`. Called by graph.

Scalars become text, like every value in Argo; maps and lists stay, so that `{{item.field}}` can read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import Binary, Call, Choice, Const, Expr, ListOf, Macro, MapOf, Name, Node
from penstock.expressions.plain import Spelled
from penstock.expressions.template import Template
from penstock.formats.argo.read.builder import CallScope
from penstock.formats.argo.read.steps import LoopItems
from penstock.formats.argo.read.template import text_of
from penstock.formats.argo.read.values import as_expr, deep, node_of, node_of_value
from penstock.formats.documents import part
from penstock.formats.values import frozen
from penstock.graph.model import Value

KINDS: Final = ("withItems", "withParam", "withSequence")
MOST: Final = 10_000_000
"""The most items of one loop."""
WRITTEN_OUT: Final = 10_000
"""Up to so many items of a sequence are literal; above, they are computed when needed."""
_WHOLE: Final = re.compile(r"\s*[+-]?\d{1,15}\s*\Z", re.A)

Items = tuple[Value, LoopItems]


def loop_of(raw: Mapping[str, Any], scope: CallScope, path: str) -> Items | None:
    """The items, and what is known of them; None without a loop."""
    given = [name for name in KINDS if raw.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        message = f"{' and '.join(given)} at the same time"
        scope.notes.wrong(scope.document, path, "P835", message, "keep one of them")
    name = given[0]
    value, here = raw[name], f"{path}.{name}"
    if name == "withSequence":
        return _sequence(part(raw, name), scope, here)
    if isinstance(value, str):
        return _from_text(value, scope, here)
    if isinstance(value, list):
        return _listed(value, scope, here)
    scope.notes.wrong(scope.document, here, "P835", "this is not a list", "give a list of items")
    return (), LoopItems("text")


def named(items: Value, name: str, scope: CallScope, path: str) -> Value:
    """The name of the step for each item, as Argo makes it: l(0:x)."""
    node = Call("loop_names", (Const(name), _node(items)))
    try:
        return tuple(evaluate(node, {}))
    except EvaluationError:
        return as_expr(node, scope, path)


def _node(value: Value) -> Node:
    if isinstance(value, Mapping):
        return MapOf(tuple((Const(key), _node(item)) for key, item in value.items()))
    return ListOf(tuple(map(_node, value))) if isinstance(value, tuple) else node_of_value(value)


def _listed(items: list[Any], scope: CallScope, path: str) -> Items:
    found = []
    for number, item in enumerate(items):
        text = "null" if item is None else text_of(item)
        found.append(deep(text if text is not None else frozen(item), scope, f"{path}[{number}]"))
    return tuple(found), _kind(found)


def _kind(items: list[Value]) -> LoopItems:
    if all(isinstance(item, str | Expr | Template) for item in items):
        return LoopItems("text")
    if not all(isinstance(item, dict) for item in items):
        return LoopItems("any")
    fields = set(items[0])
    for item in items:
        fields &= {name for name, value in item.items() if isinstance(value, str | Expr | Template)}
    # A map with other values than text has no single type; then each field is converted to text by itself.
    uniform = all(isinstance(value, str | Expr | Template) for item in items for value in item.values())
    return LoopItems("any", frozenset(fields) if uniform else frozenset())


def _from_text(text: str, scope: CallScope, path: str) -> Items:
    """JSON, literal or from a step."""
    if "{{" in text:
        node = node_of(text, scope, path)
        if not isinstance(node, Const):
            return as_expr(_spelled(node), scope, path), LoopItems("any")
        text = str(node.value)
    try:
        found = json.loads(text, parse_float=Spelled)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        scope.notes.wrong(
            scope.document, path, "P835", f"{text.strip()[:60]!r} is not a list in JSON", "write '[1, 2, 3]'"
        )
        return (), LoopItems("text")
    if any(isinstance(item, list | dict) and _has_spelled(item) for item in found):
        return as_expr(_spelled(Const(text)), scope, path), LoopItems("any")
    return _listed([item.written if isinstance(item, Spelled) else item for item in found], scope, path)


def _spelled(text: Node) -> Node:
    """Argo passes on 1.50 and 1e3 as they are."""
    return Call("json", (text, Const(True)))


def _has_spelled(item: Any) -> bool:
    inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return isinstance(item, Spelled) or any(map(_has_spelled, inner))


# -- numbers ----------------------------------------------------------------------------------------------------------


def _sequence(given: Mapping[str, Any], scope: CallScope, path: str) -> Items:
    start = _bound(given, "start", scope, path) or Const(0)
    end, count = (_bound(given, name, scope, path) for name in ("end", "count"))
    if end is None and count is None:
        scope.notes.wrong(scope.document, path, "P835", "the sequence has no end", "give it a count or an end")
        return (), LoopItems("text")
    if end is None:
        assert count is not None
        end = Binary("-", Binary("+", start, count), Const(1))
    numbers = _numbers(start, end, count)
    many = _how_many(numbers)
    if many > MOST:
        message = f"a sequence of {many:,} is more than any run can hold"
        scope.notes.wrong(scope.document, path, "P835", message, f"at most {MOST:,}; loop over fewer, larger pieces")
        return (), LoopItems("text")
    layout = text_of(given.get("format"))
    one: Node = Call("string", (Name("n"),))
    if layout:
        one = Call("sprintf", (node_of(layout, scope, f"{path}.format"), Name("n")))
    node = Macro("map", numbers, "n", one)
    known = _known(node)
    return known if known is not None else as_expr(node, scope, path), LoopItems("text")


def _how_many(numbers: Node) -> int:
    """The number of items, if known."""
    try:
        found = evaluate(numbers, {})
        return int(max(0, -(-(found.stop - found.start) // found.step)))
    except (EvaluationError, AttributeError):
        return 0


def _numbers(start: Node, end: Node, count: Node | None) -> Node:
    """Up or down to the end."""
    up = Call("range", (start, Binary("+", end, Const(1))))
    down = Call("range", (start, Binary("-", end, Const(1)), Const(-1)))
    both = Choice(Binary("<=", start, end), up, down)
    return both if count is None else Choice(Binary("==", count, Const(0)), Call("range", (Const(0),)), both)


def _bound(given: Mapping[str, Any], name: str, scope: CallScope, path: str) -> Node | None:
    text = text_of(given.get(name))
    if text is None:
        return None
    here = f"{path}.{name}"
    if "{{" not in text:
        if not _WHOLE.match(text):
            scope.notes.wrong(scope.document, here, "P835", f"{text[:40]!r} is not a whole number", 'write "3"')
            return Const(0)
        return Const(int(text))
    return Call("int", (node_of(text, scope, here),))


def _known(node: Node) -> tuple[str, ...] | None:
    """The literal items, if they are known and not too many."""
    assert isinstance(node, Macro)
    try:
        numbers = evaluate(node.of, {})
        if len(numbers) <= WRITTEN_OUT:
            return tuple(evaluate(node, {}))
    except EvaluationError:
        pass
    return None
