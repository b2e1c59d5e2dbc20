"""withItems, withParam and withSequence of an Argo step -> the items of a for-each, whose variable is called `item`. Called by graph.

Scalars become text, as every value in Argo does; maps and lists stay what they are, so that `{{item.field}}` can look into them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.formats.argo_in.drafts import Loop
from penstock.formats.argo_in.frame import SitePlace
from penstock.formats.argo_in.sheet import text_of
from penstock.formats.argo_in.values import deep, made, node_of
from penstock.formats.documents import part
from penstock.formats.kube import frozen
from penstock.graph.evaluate import EvaluationError, evaluate
from penstock.graph.expr import Binary, Call, Choice, Const, Expr, Macro, Name, Node
from penstock.graph.model import Value
from penstock.graph.template import Template

KINDS: Final = ("withItems", "withParam", "withSequence")
MOST: Final = 10_000_000
"""Items of one loop."""
WRITTEN_OUT: Final = 10_000
"""So many items of a sequence are written out; above, they are computed when they are needed."""
_WHOLE: Final = re.compile(r"\s*[+-]?\d{1,15}\s*\Z", re.A)

Items = tuple[Value, Loop]


def loop_of(raw: Mapping[str, Any], place: SitePlace, path: str) -> Items | None:
    """The items, and what is known of them; None without a loop."""
    given = [name for name in KINDS if raw.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        said = f"{' and '.join(given)} at the same time"
        place.notes.wrong(place.document, path, "P835", said, "keep one of them")
    name = given[0]
    value, here = raw[name], f"{path}.{name}"
    if name == "withSequence":
        return _sequence(part(raw, name), place, here)
    if isinstance(value, str):
        return _from_text(value, place, here)
    if isinstance(value, list):
        return _listed(value, place, here)
    place.notes.wrong(place.document, here, "P835", "this is no list", "give a list of items")
    return (), Loop("text")


def _listed(items: list[Any], place: SitePlace, path: str) -> Items:
    found = []
    for number, item in enumerate(items):
        text = "null" if item is None else text_of(item)
        found.append(deep(text if text is not None else frozen(item), place, f"{path}[{number}]"))
    return tuple(found), _kind(found)


def _kind(items: list[Value]) -> Loop:
    if all(isinstance(item, str | Expr | Template) for item in items):
        return Loop("text")
    if not all(isinstance(item, dict) for item in items):
        return Loop("any")
    fields = set(items[0])
    for item in items:
        fields &= {name for name, value in item.items() if isinstance(value, str | Expr | Template)}
    # A map whose other values are no texts has no one type; then each field is turned into text by itself.
    uniform = all(isinstance(value, str | Expr | Template) for item in items for value in item.values())
    return Loop("any", frozenset(fields) if uniform else frozenset())


def _from_text(text: str, place: SitePlace, path: str) -> Items:
    """JSON, written here or given by a step."""
    if "{{" in text:
        node = node_of(text, place, path)
        if not isinstance(node, Const):
            return made(Call("json", (node,)), place, path), Loop("any")
        text = str(node.value)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        place.notes.wrong(
            place.document, path, "P835", f"{text.strip()[:60]!r} is no list in JSON", "write '[1, 2, 3]'"
        )
        return (), Loop("text")
    return _listed(found, place, path)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _sequence(given: Mapping[str, Any], place: SitePlace, path: str) -> Items:
    start = _bound(given, "start", place, path) or Const(0)
    end, count = (_bound(given, name, place, path) for name in ("end", "count"))
    if end is None and count is None:
        place.notes.wrong(place.document, path, "P835", "the sequence has no end", "give it a count or an end")
        return (), Loop("text")
    if end is None:
        assert count is not None
        end = Binary("-", Binary("+", start, count), Const(1))
    numbers = _numbers(start, end, count)
    many = _how_many(numbers)
    if many > MOST:
        said = f"a sequence of {many:,} is more than any run can hold"
        place.notes.wrong(place.document, path, "P835", said, f"at most {MOST:,}; loop over fewer, larger pieces")
        return (), Loop("text")
    layout = text_of(given.get("format"))
    one: Node = Call("string", (Name("n"),))
    if layout:
        one = Call("sprintf", (node_of(layout, place, f"{path}.format"), Name("n")))
    node = Macro("map", numbers, "n", one)
    known = _known(node)
    return known if known is not None else made(node, place, path), Loop("text")


def _how_many(numbers: Node) -> int:
    """How many there are, if that is known."""
    try:
        found = evaluate(numbers, {})
        return int(max(0, -(-(found.stop - found.start) // found.step)))
    except (EvaluationError, AttributeError):
        return 0


def _numbers(start: Node, end: Node, count: Node | None) -> Node:
    """Up or down, whichever way the end lies."""
    up = Call("range", (start, Binary("+", end, Const(1))))
    down = Call("range", (start, Binary("-", end, Const(1)), Const(-1)))
    both = Choice(Binary("<=", start, end), up, down)
    return both if count is None else Choice(Binary("==", count, Const(0)), Call("range", (Const(0),)), both)


def _bound(given: Mapping[str, Any], name: str, place: SitePlace, path: str) -> Node | None:
    text = text_of(given.get(name))
    if text is None:
        return None
    here = f"{path}.{name}"
    if "{{" not in text:
        if not _WHOLE.match(text):
            place.notes.wrong(place.document, here, "P835", f"{text[:40]!r} is no whole number", 'write "3"')
            return Const(0)
        return Const(int(text))
    return Call("int", (node_of(text, place, here),))


def _known(node: Node) -> tuple[str, ...] | None:
    """Written out, if the numbers are known and not too many."""
    assert isinstance(node, Macro)
    try:
        numbers = evaluate(node.of, {})
        if len(numbers) <= WRITTEN_OUT:
            return tuple(evaluate(node, {}))
    except EvaluationError:
        pass
    return None
