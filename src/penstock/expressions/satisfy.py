"""Can a condition ever hold? Called by graph.check for every `when`.

Sound, not complete: `never` answers True only if no values make the condition true. It handles constants, a value compared with several
constants, a condition together with its negation, and parameters with a list of choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.expressions.evaluate import ABSENT, EvaluationError, evaluate
from penstock.expressions.parse import Binary, Const, ListOf, Node, Unary, references, show
from penstock.expressions.types import Type

MOST_CASES = 64
CONSTANT_BUDGET = 10_000
"""The evaluation budget for finding that a part of a condition is constant."""
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}

TypeOf = Callable[[Node], Type]
ChoicesOf = Callable[[Node], tuple[Any, ...]]


def never(node: Node, type_of: TypeOf, choices_of: ChoicesOf) -> bool:
    """True if the condition cannot hold."""
    cases = _cases(node, True)
    if cases is None:
        return _constant(node) is False
    return all(_contradicts(case, type_of, choices_of) for case in cases)


def _constant(node: Node) -> Any:
    """Its value if it is constant; None otherwise."""
    roots = {path[0]: ABSENT for path in references(show(node))}
    try:
        return evaluate(node, roots, CONSTANT_BUDGET)
    except EvaluationError:
        return None


Atom = tuple[Node, bool]


def _cases(node: Node, wanted: bool) -> list[list[Atom]] | None:
    """Disjunctive normal form: the condition is `wanted` iff all atoms of one case are. None if there are too many."""
    match node:
        case Unary("!", of):
            return _cases(of, not wanted)
        case Binary("&&" | "||" as op, left, right):
            first, second = _cases(left, wanted), _cases(right, wanted)
            if first is None or second is None:
                return None
            if (op == "||") is wanted:
                both = first + second
            else:
                both = [a + b for a in first for b in second] if len(first) * len(second) <= MOST_CASES else []
                if not both:
                    return None
            return both if len(both) <= MOST_CASES else None
        case _:
            return [[(node, wanted)]]


@dataclass(slots=True)
class _Known:
    """What is known of one term in one case."""

    low: float | int | None = None
    low_open: bool = False
    high: float | int | None = None
    high_open: bool = False
    ordered: bool = False
    """It is an int, or a comparison of it holds. Otherwise it may be NaN, of which `<` and `>=` are both false."""
    only: list[Any] | None = None
    not_in: list[Any] = field(default_factory=list)


def _contradicts(case: list[Atom], type_of: TypeOf, choices_of: ChoicesOf) -> bool:
    known: dict[str, _Known] = {}
    for atom, wanted in case:
        value = _constant(atom)
        if isinstance(value, bool):
            if value is not wanted:
                return True
            continue
        for term, op, constant in _comparisons(atom, wanted):
            text = show(term)
            if text not in known:
                choices = choices_of(term)
                known[text] = _Known(only=list(choices) or None)
            whole = type_of(term).name == "int"
            known[text].ordered |= whole or wanted
            _learn(known[text], op, constant, whole)
    return any(_empty(facts) for facts in known.values())


def _comparisons(atom: Node, wanted: bool) -> Iterator[tuple[Node, str, Any]]:
    yield atom, "==", wanted
    match atom:
        case Binary("in", term, ListOf(items)) if all(isinstance(item, Const) for item in items):
            yield term, "in" if wanted else "not in", [item.value for item in items if isinstance(item, Const)]
        case Binary(op, left, Const(value)) if op in _FLIPPED:
            yield left, op if wanted else _NEGATED[op], value
        case Binary(op, Const(value), right) if op in _FLIPPED:
            yield right, _FLIPPED[op] if wanted else _NEGATED[_FLIPPED[op]], value


def _learn(facts: _Known, op: str, value: Any, whole: bool) -> None:
    if op in ("==", "in"):
        allowed = [value] if op == "==" else value
        facts.only = (
            list(allowed) if facts.only is None else [v for v in facts.only if any(_same(v, a) for a in allowed)]
        )
    elif op in ("!=", "not in"):
        facts.not_in += [value] if op == "!=" else value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        strict = op in ("<", ">")
        if whole and strict and isinstance(value, int):
            value, strict = value + (1 if op == ">" else -1), False
        if op[0] == ">" and (facts.low is None or (value, strict) > (facts.low, facts.low_open)):
            facts.low, facts.low_open = value, strict
        if op[0] == "<" and (facts.high is None or (value, not strict) < (facts.high, not facts.high_open)):
            facts.high, facts.high_open = value, strict


def _same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _empty(facts: _Known) -> bool:
    if facts.only is not None:
        return not any(_inside(facts, value) for value in facts.only)
    if facts.low is None or facts.high is None or not facts.ordered:
        return False
    return facts.low > facts.high or (facts.low == facts.high and (facts.low_open or facts.high_open))


def _inside(facts: _Known, value: Any) -> bool:
    if any(_same(value, other) for other in facts.not_in):
        return False
    if facts.low is None and facts.high is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    above = facts.low is None or value > facts.low or (value == facts.low and not facts.low_open)
    below = facts.high is None or value < facts.high or (value == facts.high and not facts.high_open)
    return above and below
