"""What a step waits for, as Argo's `depends`. Called by write.dag. language.depends reads it back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from penstock.expressions.parse import Binary, Const, ListOf, Node, Unary, path_of, show
from penstock.formats.argo.language.depends import looks_inside
from penstock.formats.argo.write.variables import NotInArgo
from penstock.graph.model import Outcome

WORDS: Final[Mapping[Outcome, str]] = {
    Outcome.SUCCEEDED: "Succeeded",
    Outcome.FAILED: "Failed",
    Outcome.ERRORED: "Errored",
    Outcome.SKIPPED: "Skipped",
    Outcome.OMITTED: "Omitted",
}
"""How `depends` calls an outcome. There is no word for cancelled: then nothing more starts anyway."""
ALWAYS: Final = frozenset(WORDS)
"""Every outcome that Argo has a word for."""


def depends_text(
    needs: Mapping[str, frozenset[Outcome]],
    trigger: Node | None,
    name_of: Callable[[str], str],
    named: Collection[str],
) -> str:
    """`needs`: task -> the outcomes that let this one run. `named`: the tasks that the trigger names; if every outcome of one is accepted,
    naming it is enough. Raises NotInArgo."""
    parts = [task_text(name, outcomes) for name, outcomes in needs.items() if outcomes != ALWAYS or name not in named]
    if trigger is not None:
        parts.append(trigger_text(trigger, name_of, 2))
    return " && ".join(parts)


def task_text(name: str, outcomes: frozenset[Outcome]) -> str:
    """`a.Succeeded || a.Skipped` …, or just `a` for the outcomes of a plain dependency."""
    if outcomes == {Outcome.SUCCEEDED, Outcome.SKIPPED}:
        return name
    words = [f"{name}.{word}" for outcome, word in WORDS.items() if outcome in outcomes]
    if not words:
        raise NotInArgo("it waits for a step to be cancelled, after which Argo starts nothing more")
    return words[0] if len(words) == 1 else f"({' || '.join(words)})"


def trigger_text(node: Node, name_of: Callable[[str], str], level: int = 0) -> str:
    """A condition over outcomes as `depends`. Raises NotInArgo."""
    looped = looks_inside(node)
    if looped is not None:
        return f"{name_of(looped)}.AnySucceeded"
    match node:
        case Binary("&&" | "||" as op, left, right):
            own = 2 if op == "&&" else 1
            text = f"{trigger_text(left, name_of, own)} {op} {trigger_text(right, name_of, own)}"
            return f"({text})" if level > own else text
        case Unary("!", of):
            return f"!{trigger_text(of, name_of, 3)}"
        case Binary("==" | "!=" | "in" as op, left, right):
            step = path_of(left)
            if step is None and op != "in":
                step, right = path_of(right), left
            if step is not None and len(step) == 3 and step[0] == "steps" and step[2] == "outcome":
                asked = _asked(right)
                chosen = frozenset(Outcome) - asked if op == "!=" else asked
                words = [f"{name_of(step[1])}.{word}" for outcome, word in WORDS.items() if outcome in chosen]
                if words:
                    return words[0] if len(words) == 1 else f"({' || '.join(words)})"
    raise NotInArgo(f"{show(node)} is more than how steps ended")


def _asked(node: Node) -> frozenset[Outcome]:
    parts = node.items if isinstance(node, ListOf) else (node,)
    try:
        return frozenset(
            Outcome(part.value) for part in parts if isinstance(part, Const) and isinstance(part.value, str)
        )
    except ValueError:
        raise NotInArgo(f"{show(node)} is no outcome") from None
