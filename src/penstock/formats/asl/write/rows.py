"""What a step does, as a row of the table of resources: the step itself, with the fields of its payload as inputs. Called by steps.

So what is written runs here unchanged: the row is read back as that step (read.resources). On AWS its name is the name of a function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.expressions.parse import Expr, Node, reference, references
from penstock.expressions.parse import replace as swapped
from penstock.graph.codec import encode
from penstock.graph.model import (
    MISSING,
    Function,
    Input,
    Step,
    Value,
    action_values,
    expressions,
    with_values,
)
from penstock.graph.rewrite import map_value

OUTER: Final = ("params", "steps", "item", "workflow")
"""What is known to the machine alone: a row gets it as an input."""
STATE_FIELDS: Final = (
    "name",
    "needs",
    "trigger",
    "when",
    "each",
    "loop",
    "retry",
    "timeout",
    "timeout_by",
    "group",
    "tolerates",
    "doc",
)
"""What the state of a step says, and its row does not."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row, and the inputs that the step has not itself."""

    data: dict[str, Any]
    more: tuple[tuple[str, Expr], ...] = ()


def row_of(step: Step, queue: str | None, priority: str | int | None, exempt: bool) -> Row:
    names = {given.name for given in step.inputs}
    swap: dict[tuple[str, ...], Node] = {}
    more: list[tuple[str, Expr]] = []
    for path in _outer(step):
        own, number = "-".join(path), 2
        while own in names:
            own, number = f"{'-'.join(path)}-{number}", number + 1
        names.add(own)
        swap[path] = reference("inputs", own)
        more.append((own, Expr.tree(reference(*path))))

    def change(value: Value) -> Value:
        return map_value(value, lambda node: swapped(node, swap)) if swap else value

    made = replace(
        step,
        action=with_values(step.action, {name: change(value) for name, value in action_values(step.action)}),
        inputs=(
            *(Input(name=one.name, value=None, type=one.type, path=one.path) for one in step.inputs),
            *(Input(name=name, value=None) for name, _ in more),
        ),
        outputs=tuple(
            replace(one, default=MISSING, value=one.value if one.value is MISSING else change(one.value))
            for one in step.outputs
        ),
        cache=step.cache if step.cache.key is None else replace(step.cache, key=change(step.cache.key)),
        locks=tuple(replace(lock, name=change(lock.name)) for lock in step.locks),
        mounts=tuple(
            replace(one, sub_path=change(one.sub_path), files={name: change(text) for name, text in one.files.items()})
            for one in step.mounts
        ),
        queue=step.queue or queue,
        priority=step.priority if step.priority is not None else priority,
        resources_by={},  # what it reads is known to the machine alone; `resources` is the most of it
        exempt=step.exempt or exempt,
        source=None,
    )
    data = {name: value for name, value in encode(made).items() if name not in STATE_FIELDS}
    for given in data.get("inputs", ()):
        del given["value"]
    return Row({"step": data}, tuple(more))


def _outer(step: Step) -> Iterator[tuple[str, ...]]:
    """Every path outside of its inputs that what it does reads."""
    seen: dict[tuple[str, ...], None] = {}
    for value in _values(step):
        for expr in expressions(value):
            for path in references(expr.text):
                if path[0] in OUTER:
                    seen[path] = None
    yield from seen


def _values(step: Step) -> Iterator[Value]:
    yield from (value for _, value in action_values(step.action))
    yield from (one.value for one in step.outputs if one.value is not MISSING)
    yield step.cache.key
    yield from (lock.name for lock in step.locks)
    for mount in step.mounts:
        yield mount.sub_path
        yield dict(mount.files)


def spread(step: Step, more: tuple[tuple[str, Expr], ...]) -> bool:
    """Would it get arguments that it does not take?"""
    return bool(more) and isinstance(step.action, Function)
