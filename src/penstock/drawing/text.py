"""A workflow drawn as text: Mermaid, Graphviz DOT, and a tree for the terminal. Called by service.workflows.

All drawings, the one in svg included, show the same things of a step. They share `picture`, which arranges nested workflows as a tree
of boxes, and `label`, the text of a step. Names and expressions come from foreign files: no text reaches the output without `clean`
and then the escape of that format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.expressions.parse import Call, Const, Expr, ListOf
from penstock.graph import quantity
from penstock.graph.labels import cut
from penstock.graph.model import NORMAL, Nested, Outcome, Step, Suspend, Value, Workflow, edges_of
from penstock.graph.order import NotOrdered, topological

DEEPEST: Final = 12
"""Nested workflows are drawn no deeper than this: nobody can read it, and Python's stack is finite."""
MOST_BOXES: Final = 50_000
"""Definitions that call each other twice double at each level. Beyond so many boxes they stay closed."""
MOST_NAMED: Final = 8
"""The most steps that are named after `after`; of a larger fan-in only the number is shown."""

Edges: TypeAlias = dict[str, dict[str, frozenset[Outcome]]]
"""By step: the steps it waits for and the outcomes it accepts."""


# -- the boxes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    """One step at one place where it is drawn."""

    id: str
    step: Step
    ups: tuple[tuple[str, frozenset[Outcome]], ...]
    """The ids of the boxes that it waits for, all in the same Picture."""
    inside: Picture | None
    """The content of a nested workflow; None if it stays closed."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One workflow: its steps in topological order, and its exit handlers."""

    boxes: tuple[Box, ...]
    exits: tuple[Box, ...]

    def every(self) -> Iterator[Box]:
        """All boxes, those of a nested workflow after the step that calls it."""
        for box in (*self.boxes, *self.exits):
            yield box
            if box.inside is not None:
                yield from box.inside.every()


def picture(workflow: Workflow) -> Picture:
    return _Builder({definition.name: definition for definition in workflow.definitions}).build(workflow, ())


@dataclass(slots=True)
class _Builder:
    definitions: Mapping[str, Workflow]
    made: int = 0
    orders: dict[str, tuple[list[Step], list[Step], Edges]] = field(default_factory=dict)
    """By definition: sorting is expensive, and a definition may be drawn many times."""

    def build(self, workflow: Workflow, stack: tuple[str, ...]) -> Picture:
        key = stack[-1] if stack else ""
        if key not in self.orders:
            self.orders[key] = _ordered(workflow)
        steps, exits, edges = self.orders[key]
        # Ids first, so that edges can name them; then what is inside, which takes further ids.
        numbers = range(self.made, self.made + len(steps) + len(exits))
        self.made = numbers.stop
        ids = {step.name: f"n{number}" for step, number in zip((*steps, *exits), numbers, strict=True)}
        boxes = [
            Box(
                f"n{number}",
                step,
                tuple((ids[up], outcomes) for up, outcomes in edges[step.name].items()),
                self.open(step, stack),
            )
            for step, number in zip((*steps, *exits), numbers, strict=True)
        ]
        return Picture(tuple(boxes[: len(steps)]), tuple(boxes[len(steps) :]))

    def open(self, step: Step, stack: tuple[str, ...]) -> Picture | None:
        if not isinstance(step.action, Nested):
            return None
        name = step.action.name
        target = self.definitions.get(name)
        if target is None or name in stack or len(stack) >= DEEPEST or not (target.steps or target.on_exit):
            return None
        if self.made + len(target.steps) + len(target.on_exit) > MOST_BOXES:
            return None
        return self.build(target, (*stack, name))


def _ordered(workflow: Workflow) -> tuple[list[Step], list[Step], Edges]:
    """Steps and exit handlers in topological order, and their edges. Names of steps that do not exist are left out."""
    known = {step.name for step in workflow.steps}
    reachable = known | {step.name for step in workflow.on_exit}
    edges: Edges = {}
    for step in (*workflow.steps, *workflow.on_exit):
        around = known if step.name in known else reachable
        edges[step.name] = {up: outcomes for up, outcomes in edges_of(step).items() if up in around and up != step.name}
    try:
        order = topological(edges)
    except NotOrdered:
        order = list(edges)  # a workflow that graph.check refuses; a drawing helps to fix it
    rank = {name: position for position, name in enumerate(order)}
    steps = sorted(workflow.steps, key=lambda step: rank[step.name])
    exits = sorted(workflow.on_exit, key=lambda step: rank[step.name])
    return steps, exits, edges


# -- the words --------------------------------------------------------------------------------------------------------


def fan_out(step: Step) -> str:
    """`×3`, or `×?` when the number is only known at run time. Nothing for a step without a for-each."""
    if step.each is None:
        return ""
    total = 1
    for axis in step.each.axes:
        lengths = [length for length in map(_length, axis.values()) if length is not None]
        if not lengths:
            return "×?"
        total *= lengths[0]  # variables of one axis advance together
    return f"×{total:,}" if total < 10**9 else "×many"


def _length(items: Value) -> int | None:
    """The length of a list that is written out, or of a range of plain numbers."""
    if isinstance(items, tuple | list):
        return len(items)
    if not isinstance(items, Expr):
        return None
    match items.node:
        case ListOf(written):
            return len(written)
        case Call("range", args, None):
            numbers = [arg.value for arg in args if isinstance(arg, Const) and type(arg.value) is int]
            if len(numbers) < len(args):
                return None
            start, stop, step = {1: (0, *numbers, 1), 2: (*numbers, 1), 3: tuple(numbers)}[len(numbers)]
            # Not len(range(…)), which refuses numbers beyond 64 bits.
            return max(0, -((start - stop) // step)) if step else None
        case _:
            return None


def needs(step: Step) -> str:
    """`2 cpu, 4Gi memory, 8 gpu ×4 replicas`."""
    first = {"cpu": 0, "memory": 1}
    named = sorted(step.resources.items(), key=lambda item: (first.get(item[0], 2), item[0]))
    amounts = [f"{quantity.short(amount, name)} {_resource_name(name)}" for name, amount in named if amount]
    words = ", ".join(amounts)
    return f"{words} ×{step.replicas:,} replicas".lstrip() if step.replicas != 1 else words


def _resource_name(name: str) -> str:
    return "gpu" if name == "nvidia.com/gpu" else cut(name, 40)


def kind(step: Step) -> str:
    return f"workflow {cut(step.action.name, 40)}" if isinstance(step.action, Nested) else step.action.kind


def condition(step: Step) -> str:
    """The conditions under which it runs: `when …`, `trigger …`."""
    trigger = f"trigger {cut(step.trigger.text)}" if step.trigger is not None else ""
    when = f"when {cut(step.when.text)}" if step.when is not None else ""
    return _joined(trigger, when)


def rounds(step: Step) -> str:
    return f"≤{step.loop.max_iterations:,}" if step.loop is not None else ""


def headline(step: Step) -> str:
    return f"{cut(step.name, 128)} {fan_out(step)}".rstrip()


def details(step: Step) -> str:
    """Its kind, its resources, its number of rounds."""
    return _joined(kind(step), needs(step), f"while {rounds(step)}" if step.loop is not None else "")


def label(step: Step) -> list[str]:
    """The lines of text in a box."""
    return [line for line in (headline(step), details(step), condition(step)) if line]


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def outcomes_text(outcomes: frozenset[Outcome]) -> str:
    """The label of an edge: empty for the default."""
    if outcomes == NORMAL:
        return ""
    if len(outcomes) == len(Outcome):
        return "any outcome"
    return ", ".join(outcome.value for outcome in Outcome if outcome in outcomes) or "never"


# -- Mermaid ----------------------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[^\w .,/+=×≤?…·()-]")
_MEANT = re.compile(r"\$(?=\$)|:(?=fa-)|\\(?=n)")
"""Formulas, icons and line ends: Mermaid looks for these after it has decoded the characters."""
_NAMED = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;"}
_BODIES = {"suspend": ('(["', '"])'), "workflow": ('[["', '"]]')}


def mermaid(workflow: Workflow) -> str:
    """A Mermaid flowchart. Ids are generated (`n0`, `n1`…), so that no name can be a keyword."""
    drawn = picture(workflow)
    title = json.dumps(cut(workflow.name, 128), ensure_ascii=False)
    lines = ["---", f"title: {title}", "---", "flowchart LR", *_mermaid_level(drawn, 1)]
    conditional = []
    for box in drawn.every():
        for up, outcomes in box.ups:
            asked = outcomes_text(outcomes)
            lines.append(f'    {up} -.->|"{asked}"| {box.id}' if asked else f"    {up} --> {box.id}")
        if condition(box.step):
            conditional.append(box.id)
    lines += [f"    {last.id} ~~~ {first.id}" for last, first in _behind(drawn)]
    if conditional:
        lines += ["    classDef conditional stroke-dasharray: 5 4", f"    class {','.join(conditional)} conditional"]
    return "\n".join(lines) + "\n"


def _mermaid_level(level: Picture, depth: int) -> Iterator[str]:
    pad = "    " * depth
    for box in level.boxes:
        yield from _mermaid_box(box, depth)
    if level.exits:
        yield f'{pad}subgraph {level.exits[0].id}x["on exit"]'
        for box in level.exits:
            yield from _mermaid_box(box, depth + 1)
        yield f"{pad}end"


def _mermaid_box(box: Box, depth: int) -> Iterator[str]:
    pad = "    " * depth
    words = [_mermaid_text(line) for line in label(box.step)]
    if box.inside is None:
        opening, closing = _BODIES.get(box.step.action.kind, ('["', '"]'))
        yield f"{pad}{box.id}{opening}{'<br/>'.join(words)}{closing}"
        return
    yield f'{pad}subgraph {box.id}["{" · ".join(words)}"]'
    yield f"{pad}    direction LR"
    yield from _mermaid_level(box.inside, depth + 1)
    yield f"{pad}end"


def _mermaid_text(text: str) -> str:
    """Mermaid reads `#NUMBER;` as a character; everything with a meaning in Mermaid or HTML is written that way.

    What has a meaning even then is split by a zero-width space."""
    broken = _MEANT.sub(lambda match: match[0] + "\u200b", text)
    return _PLAIN.sub(lambda match: _NAMED.get(match[0], f"#{ord(match[0])};"), broken)


def _behind(drawn: Picture) -> Iterator[tuple[Box, Box]]:
    """Pairs that must stay in order although no edge orders them: exit handlers come after the last step."""
    pictures = [drawn, *(box.inside for box in drawn.every() if box.inside is not None)]
    for level in pictures:
        if level.boxes and level.exits and not level.exits[0].ups:
            yield level.boxes[-1], level.exits[0]


# -- Graphviz ---------------------------------------------------------------------------------------------------------

_DOT_HEAD = (
    '    graph [rankdir=LR, compound=true, fontname="Helvetica", fontsize=12, style=rounded, color="#94a3b8"];',
    '    node [shape=box, style=rounded, fontname="Helvetica", fontsize=11, color="#64748b"];',
    '    edge [fontname="Helvetica", fontsize=10, color="#64748b"];',
)


def dot(workflow: Workflow) -> str:
    """A Graphviz digraph. A nested workflow is a cluster; its edges start and end at the cluster's border."""
    drawn = picture(workflow)
    by_id = {box.id: box for box in drawn.every()}
    lines = [f"digraph {_dot_text(cut(workflow.name, 128))} {{", *_DOT_HEAD, *_dot_level(drawn, 1)]
    for box in by_id.values():
        for up, outcomes in box.ups:
            asked = outcomes_text(outcomes)
            extra = [f"label={_dot_text(asked)}", "style=dashed"] if asked else []
            lines.append(_dot_edge(by_id[up], box, extra))
    lines += [_dot_edge(last, first, ["style=invis"]) for last, first in _behind(drawn)]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_edge(up: Box, down: Box, extra: Sequence[str]) -> str:
    """Graphviz joins nodes only, so an edge to a cluster goes to a node in it and is clipped at the border."""
    tail, head = up, down
    while tail.inside is not None:
        tail = (tail.inside.boxes or tail.inside.exits)[-1]
    while head.inside is not None:
        head = (head.inside.boxes or head.inside.exits)[0]
    clipped = [f"ltail=cluster_{up.id}"] if tail is not up else []
    clipped += [f"lhead=cluster_{down.id}"] if head is not down else []
    options = ", ".join([*extra, *clipped])
    return f"    {tail.id} -> {head.id} [{options}];" if options else f"    {tail.id} -> {head.id};"


def _dot_level(level: Picture, depth: int) -> Iterator[str]:
    pad = "    " * depth
    for box in level.boxes:
        yield from _dot_box(box, depth)
    if level.exits:
        yield f"{pad}subgraph cluster_exit_{level.exits[0].id} {{"
        yield f'{pad}    label="on exit"; style="rounded,dashed"; penwidth=1;'
        for box in level.exits:
            yield from _dot_box(box, depth + 1)
        yield f"{pad}}}"


def _dot_box(box: Box, depth: int) -> Iterator[str]:
    pad = "    " * depth
    dashed = ",dashed" if condition(box.step) else ""
    if box.inside is None:
        double = ", peripheries=2" if isinstance(box.step.action, Nested) else ""
        shape = ", shape=ellipse" if isinstance(box.step.action, Suspend) else ""
        yield f'{pad}{box.id} [label={_dot_text(*label(box.step))}, style="rounded{dashed}"{double}{shape}];'
        return
    yield f"{pad}subgraph cluster_{box.id} {{"
    yield f'{pad}    label={_dot_text(*label(box.step))}; style="rounded{dashed}"; penwidth=2;'
    yield from _dot_level(box.inside, depth + 1)
    yield f"{pad}}}"


def _dot_text(*lines: str) -> str:
    """A quoted string. Graphviz reads backslashes and HTML entities in labels, so both are spelled out."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines)
    return '"' + "\\n".join(escaped) + '"'


# -- a tree for the terminal ------------------------------------------------------------------------------------------


def tree(workflow: Workflow) -> str:
    """Each step once, in topological order, with what it waits for: a diamond stays readable."""
    drawn = picture(workflow)
    lines = [cut(workflow.name, 128), *_branches(drawn)]
    if len(lines) == 1:
        lines.append("└─ no steps")
    return "\n".join(lines) + "\n"


def _branches(level: Picture) -> Iterator[str]:
    names = {box.id: cut(box.step.name, 128) for box in (*level.boxes, *level.exits)}
    yield from _siblings(level.boxes, names, more=bool(level.exits))
    if level.exits:
        yield "└─ on exit"
        yield from ("   " + line for line in _siblings(level.exits, names, more=False))


def _siblings(boxes: Sequence[Box], names: Mapping[str, str], more: bool) -> Iterator[str]:
    """Details are aligned in one column. A very long name does not push the details of the others."""
    width = max((length for length in (len(headline(box.step)) for box in boxes) if length <= 28), default=0)
    for i, box in enumerate(boxes):
        last = i == len(boxes) - 1 and not more
        words = _joined(details(box.step), condition(box.step), _after(box, names))
        yield f"{'└─' if last else '├─'} {headline(box.step):<{width}}  {words}"
        if box.inside is not None:
            yield from (("   " if last else "│  ") + line for line in _branches(box.inside))


def _after(box: Box, names: Mapping[str, str]) -> str:
    shown = []
    for up, outcomes in box.ups[:MOST_NAMED]:
        asked = outcomes_text(outcomes)
        shown.append(f"{names[up]} ({asked})" if asked else names[up])
    more = len(box.ups) - MOST_NAMED
    rest = f" and {more:,} more" if more > 0 else ""
    return f"after {', '.join(shown)}{rest}" if shown else ""
