"""Argo's `depends` -> what a step waits for. Called by the Argo reader, by the gate and by demand; write.depends is the way back.

`A && (B.Succeeded || B.Failed)` accepts one set of outcomes of each task, and becomes edges. An expression that mixes tasks
(`A.Failed || B.Failed`) becomes edges that accept every outcome, and a trigger over those outcomes.

A daemon counts as succeeded: here it runs like any other step. `AnySucceeded` and `AllFailed` read how many items of a loop succeeded
(`steps.TASK.succeeded`), which a step without a loop does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.errors import nearest
from penstock.expressions.parse import Binary, Call, Const, ExpressionError, Node, Unary, path_of, reference
from penstock.formats.expression_trees import chain, checked, one_of
from penstock.graph.model import NORMAL, Outcome

ALL = frozenset(Outcome)
RESULTS: Mapping[str, frozenset[Outcome]] = {
    "Succeeded": frozenset({Outcome.SUCCEEDED}),
    "Failed": frozenset({Outcome.FAILED}),
    "Errored": frozenset({Outcome.ERRORED}),
    "Skipped": frozenset({Outcome.SKIPPED}),
    "Omitted": frozenset({Outcome.OMITTED}),
    "Daemoned": frozenset({Outcome.SUCCEEDED}),
    "AnySucceeded": frozenset({Outcome.SUCCEEDED}),
    "AllFailed": frozenset({Outcome.FAILED}),
}
"""The outcomes for which `TASK.RESULT` holds."""
MAX_TEXT = 65_536
MAX_NESTING = 100
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z0-9_][A-Za-z0-9_-]*)(?:\.(?P<result>[A-Za-z]+))?|(?P<op>&&|\|\||[!()]))", re.A
)
_WORDS = {"and": "&&", "or": "||", "not": "!"}


class UnknownTask(ExpressionError):
    """The text names a task that is not there."""


@dataclass(frozen=True, slots=True)
class Depends:
    """The dependencies of a task."""

    needs: dict[str, frozenset[Outcome]]
    """Task -> the outcomes that are accepted. It has every task that is named."""
    trigger: Node | None = None
    """Over `steps.TASK.outcome`, if edges cannot express it."""


@dataclass(frozen=True, slots=True)
class _Test:
    task: str
    outcomes: frozenset[Outcome]


@dataclass(frozen=True, slots=True)
class _Both:
    op: str
    parts: tuple[_Formula, ...]


@dataclass(frozen=True, slots=True)
class _Inside:
    """Did any item of a loop succeed?"""

    task: str
    holds: bool = True


_Formula = _Test | _Both | _Inside


def compile_depends(
    text: str, names: Collection[str], widened: Mapping[str, frozenset[Outcome]] | None = None
) -> Depends:
    """`names`: the tasks there are. `widened`: what a task's continueOn adds to its bare name. Raises ExpressionError."""
    parser = _Parser(text, names, widened or {})
    formula = parser.whole()
    factors = formula.parts if isinstance(formula, _Both) and formula.op == "&&" else (formula,)
    needs: dict[str, frozenset[Outcome]] = {}
    for factor in factors:
        if not isinstance(factor, _Test):
            break
        needs[factor.task] = needs.get(factor.task, ALL) & factor.outcomes
    else:
        if all(needs.values()):
            return Depends(needs, None)
    return Depends(dict.fromkeys(parser.tasks, ALL), checked(_trigger(formula)))


def needs_of(task: Mapping[str, object]) -> list[str]:
    """The tasks that must have ended before this one is considered: `depends` waits for every task that it names."""
    listed, text = task.get("dependencies"), task.get("depends")
    found = [str(name) for name in listed] if isinstance(listed, list) else []
    if isinstance(text, str):
        found += [match["name"] for match in _TOKEN.finditer(text) if match["name"]]
    return found


def needed_for(targets: Iterable[str], needs: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """A dag's target tasks and everything that they wait for. `needs` is asked once for each."""
    found: dict[str, None] = {}
    rest = list(targets)
    while rest:
        name = rest.pop()
        if name not in found:
            found[name] = None
            rest += needs(name)
    return found


def _trigger(formula: _Formula) -> Node:
    if isinstance(formula, _Both):
        return chain(formula.op, [_trigger(part) for part in formula.parts])
    if isinstance(formula, _Inside):
        one = Binary("==", reference("steps", formula.task, "outcome"), Const(Outcome.SUCCEEDED.value))
        many = Binary(">", Call("default", (reference("steps", formula.task, "succeeded"), Const(0))), Const(0))
        found: Node = Binary("||", one, many)
        return found if formula.holds else Unary("!", found)
    if formula.outcomes == ALL or not formula.outcomes:
        return Const(bool(formula.outcomes))
    outcome = reference("steps", formula.task, "outcome")
    if len(formula.outcomes) > len(ALL) // 2 and len(ALL - formula.outcomes) == 1:
        (missing,) = ALL - formula.outcomes
        return Binary("!=", outcome, Const(missing.value))
    return one_of(outcome, [one.value for one in Outcome if one in formula.outcomes])


class _Parser:
    def __init__(self, text: str, names: Collection[str], widened: Mapping[str, frozenset[Outcome]]) -> None:
        self.text = text
        self.names = names if isinstance(names, set | frozenset | Mapping) else frozenset(names)
        self.widened = widened
        self.tasks: dict[str, None] = {}
        self.at = 0
        self.depth = 0
        self.kind, self.token, self.result, self.start = "", "", "", 0

    def whole(self) -> _Formula:
        if len(self.text) > MAX_TEXT:
            raise ExpressionError(f"`depends` of more than {MAX_TEXT} characters", 0)
        self.advance()
        if not self.kind:
            raise ExpressionError("`depends` is empty", 0)
        formula = self.row("||", "&&")
        if self.kind:
            raise ExpressionError(f"{self.token!r} cannot stand here; write && or || before it", self.start)
        return formula

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            rest = self.text[self.at :].lstrip()
            self.start = len(self.text) - len(rest)
            if rest:
                raise ExpressionError(f"{rest[:1]!r} has no meaning in `depends`", self.start)
            self.kind = self.token = ""
            return
        self.kind = "op" if match["op"] else "name"
        self.token, self.result = match["op"] or match["name"], match["result"] or ""
        self.start, self.at = match.start(self.kind), match.end()
        if self.token in _WORDS and not self.result and self.token not in self.names:
            self.kind, self.token = "op", _WORDS[self.token]

    def take(self, op: str) -> bool:
        if self.kind == "op" and self.token == op:
            self.advance()
            return True
        return False

    def row(self, op: str, tighter: str | None) -> _Formula:
        parts = [self.row(tighter, None) if tighter else self.factor()]
        while self.take(op):
            parts.append(self.row(tighter, None) if tighter else self.factor())
        return _joined(op, parts)

    def factor(self) -> _Formula:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ExpressionError(f"nested deeper than {MAX_NESTING}", self.start)
        start = self.start
        if self.take("!"):
            formula = _negated(self.factor())
        elif self.take("("):
            formula = self.row("||", "&&")
            if not self.take(")"):
                raise ExpressionError("'(' without ')'", start)
        elif self.kind == "name":
            formula = self.task()
        else:
            raise ExpressionError(
                f"a task is missing{f' before {self.token!r}' if self.token else ' at the end'}", self.start
            )
        self.depth -= 1
        return formula

    def task(self) -> _Formula:
        name, result, start = self.token, self.result, self.start
        if name not in self.names:
            raise UnknownTask(f"there is no task {name[:140]!r}.{nearest(name[:140], self.names)}", start)
        if result and result not in RESULTS:
            raise ExpressionError(f"a task has no result {result[:80]!r}.{nearest(result[:80], RESULTS)}", start)
        self.tasks[name] = None
        self.advance()
        if result == "AnySucceeded":
            return _Inside(name)
        if result == "AllFailed":
            return _joined("&&", [_Test(name, RESULTS[result]), _Inside(name, holds=False)])
        return _Test(name, RESULTS[result] if result else NORMAL | self.widened.get(name, frozenset()))


def _joined(op: str, parts: list[_Formula]) -> _Formula:
    """Flattens rows of one operator, and merges tests of one task in them."""
    flat: list[_Formula] = []
    tests: dict[str, int] = {}
    for part in _flat(op, parts):
        if isinstance(part, _Test) and part.task in tests:
            known = flat[tests[part.task]]
            assert isinstance(known, _Test)
            both = known.outcomes & part.outcomes if op == "&&" else known.outcomes | part.outcomes
            flat[tests[part.task]] = _Test(part.task, both)
            continue
        if isinstance(part, _Test):
            tests[part.task] = len(flat)
        flat.append(part)
    return flat[0] if len(flat) == 1 else _Both(op, tuple(flat))


def _flat(op: str, parts: list[_Formula]) -> Iterator[_Formula]:
    for part in parts:
        if isinstance(part, _Both) and part.op == op:
            yield from part.parts
        else:
            yield part


def _negated(formula: _Formula) -> _Formula:
    if isinstance(formula, _Test):
        return _Test(formula.task, ALL - formula.outcomes)
    if isinstance(formula, _Inside):
        return _Inside(formula.task, not formula.holds)
    return _joined("||" if formula.op == "&&" else "&&", [_negated(part) for part in formula.parts])


def looks_inside(node: Node) -> str | None:
    """The task whose items this tests for any success, in the form that `_trigger` writes."""
    match node:
        case Binary(
            "||", Binary("==", one, Const("succeeded")), Binary(">", Call("default", (many, Const(0))), Const(0))
        ):
            task, counted = path_of(one), path_of(many)
            if task is not None and counted == (*task[:2], "succeeded") and task[2:] == ("outcome",):
                return task[1]
    return None
