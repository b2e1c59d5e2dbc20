"""Argo's `depends` -> what a step waits for, and back. Called by the Argo reader and the Argo writer.

`A && (B.Succeeded || B.Failed)` asks for one set of outcomes of each task, and becomes edges. Whatever mixes tasks
(`A.Failed || B.Failed`) becomes edges that let every outcome pass, and a trigger over those outcomes.

A daemon counts as succeeded: that is how it is run here. `AnySucceeded` and `AllFailed` look at the items of a loop: at how many
of them succeeded (`steps.TASK.succeeded`), which a step without a loop has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.errors import nearest
from penstock.formats.lang.build import chain, checked, one_of
from penstock.graph.expr import Binary, Call, Const, ExpressionError, ListOf, Node, Unary, path_of, reference
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
"""What a task must have come to for `TASK.RESULT` to hold."""
MAX_TEXT = 65_536
MAX_NESTING = 100
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z0-9_][A-Za-z0-9_-]*)(?:\.(?P<result>[A-Za-z]+))?|(?P<op>&&|\|\||[!()]))", re.A
)
_WORDS = {"and": "&&", "or": "||", "not": "!"}


@dataclass(frozen=True, slots=True)
class Depends:
    needs: dict[str, frozenset[Outcome]]
    """Task -> the outcomes that let this one go on. Every task that is named is in it."""
    trigger: Node | None = None
    """Over `steps.TASK.outcome`, when edges cannot say it."""


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


def compile_dependencies(tasks: Collection[str], widened: Mapping[str, frozenset[Outcome]] | None = None) -> Depends:
    """The older `dependencies: [A, B]`."""
    return Depends({task: NORMAL | (widened or {}).get(task, frozenset()) for task in tasks})


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
            raise ExpressionError(f"there is no task {name[:140]!r}.{nearest(name[:140], self.names)}", start)
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
    """Rows of one operator flat, and tests of one task in them made one."""
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


# -- writing ----------------------------------------------------------------------------------------------------------

_WRITTEN = {
    Outcome.SUCCEEDED: "Succeeded", Outcome.FAILED: "Failed", Outcome.ERRORED: "Errored", Outcome.SKIPPED: "Skipped",
    Outcome.OMITTED: "Omitted",
}  # fmt: skip
_TASK = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]*\Z", re.A)


def show_depends(
    needs: Mapping[str, frozenset[Outcome]],
    trigger: Node | None = None,
    rename: Callable[[str], str] = lambda name: name,
) -> str:
    """Edges and a trigger as Argo's `depends`; "" for neither. Raises ValueError for what Argo cannot say.

    Argo knows no cancelled task: one that was stopped has failed. So `cancelled` goes without saying beside `failed`, and
    cannot be asked for by itself."""
    writer = _Writer(rename)
    inner = "" if trigger is None else writer.node(trigger, 0)
    parts = [
        writer.test(task, outcomes, 1)
        for task, outcomes in needs.items()
        if not (outcomes >= ALL and task in writer.seen)
    ]
    if inner:
        parts.append(f"({inner})" if parts and writer.level(trigger) < 1 else inner)
    return " && ".join(parts)


@dataclass(slots=True)
class _Writer:
    rename: Callable[[str], str]
    seen: set[str] = field(default_factory=set)

    def test(self, task: str, outcomes: frozenset[Outcome], level: int) -> str:
        self.seen.add(task)
        name = self.rename(task)
        if not _TASK.match(name):
            raise ValueError(f"{name!r} is not a name that `depends` can use")
        if outcomes == NORMAL:
            return name
        if Outcome.CANCELLED in outcomes and Outcome.FAILED not in outcomes:
            raise ValueError(f"Argo cannot tell whether {task!r} was cancelled")
        results = [f"{name}.{word}" for outcome, word in _WRITTEN.items() if outcome in outcomes]
        if not results:
            raise ValueError(f"nothing that {task!r} comes to would do")
        text = " || ".join(results)
        return f"({text})" if level and len(results) > 1 else text

    def level(self, node: Node | None) -> int:
        return 0 if isinstance(node, Binary) and node.op == "||" else 1

    def node(self, node: Node, level: int) -> str:
        """`level`: 0 inside `||`, 1 inside `&&`, 2 behind `!`."""
        inside = looks_inside(node)
        if inside is not None:
            self.seen.add(inside)
            return f"{self.rename(inside)}.AnySucceeded"
        match node:
            case Binary("&&" | "||" as op, left, right):
                own = int(op == "&&")
                text = f"{self.node(left, own)} {op} {self.node(right, own)}"
                return f"({text})" if level > own else text
            case Unary("!", of):
                return (
                    f"!{self.node(of, 2)}"
                    if isinstance(of, Binary) and of.op in ("&&", "||")
                    else self.negated(of, level)
                )
        task, outcomes = _read_test(node)
        return self.test(task, outcomes, level)

    def negated(self, of: Node, level: int) -> str:
        if isinstance(of, Unary) and of.op == "!":
            return self.node(of.of, level)
        task, outcomes = _read_test(of)
        return self.test(task, ALL - outcomes, level)


def looks_inside(node: Node) -> str | None:
    """The task of which this asks whether any item succeeded, as `_trigger` writes it."""
    match node:
        case Binary(
            "||", Binary("==", one, Const("succeeded")), Binary(">", Call("default", (many, Const(0))), Const(0))
        ):
            task, counted = path_of(one), path_of(many)
            if task is not None and counted == (*task[:2], "succeeded") and task[2:] == ("outcome",):
                return task[1]
    return None


def _read_test(node: Node) -> tuple[str, frozenset[Outcome]]:
    """`steps.A.outcome == "failed"` -> A and the outcomes that make it true."""
    match node:
        case Binary("==" | "!=" as op, left, Const(str(word))) if (path := _outcome_of(left)) and word in ALL:
            found = frozenset({Outcome(word)})
            return path, found if op == "==" else ALL - found
        case Binary("==" | "!=", Const(), right) if _outcome_of(right):
            return _read_test(Binary(node.op, right, node.left))
        case Binary("in", left, ListOf(items)) if path := _outcome_of(left):
            words = [str(item.value) for item in items if isinstance(item, Const)]
            if len(words) == len(items) and all(word in ALL for word in words):
                return path, frozenset(map(Outcome, words))
    raise ValueError("Argo's `depends` has no words for the trigger")


def _outcome_of(node: Node) -> str | None:
    path = path_of(node)
    return path[1] if path and len(path) == 3 and path[0] == "steps" and path[2] == "outcome" else None
