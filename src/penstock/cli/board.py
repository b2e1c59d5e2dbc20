"""A run as lines, one for each step the author wrote, however many tasks it has. Called by progress, show and watch.

Pure: tallies in, lines out. A line is a list of (text, style) pieces, so that it can be cut to a width before it is painted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from penstock.graph.model import Nested, Step, Workflow, edges_of

Piece = tuple[str, dict[str, Any]]
Line = list[Piece]
Tallies = Mapping[str, Mapping[str, int]]
Times = Mapping[str, Sequence[float]]

ACTIVE = ("running", "suspended", "retrying", "waiting")
ENDED = ("succeeded", "reused", "failed", "errored", "skipped", "omitted", "cancelled")
OVER = ("succeeded", "failed", "cancelled")
"""States of a run in which nothing more happens."""
MARKS: Mapping[str, tuple[str, str]] = {
    "": ("·", ""), "running": ("▶", "cyan"), "suspended": ("⏸", "yellow"), "retrying": ("▶", "yellow"), "waiting": ("▶", "yellow"),
    "succeeded": ("✓", "green"), "reused": ("✓", "green"), "failed": ("✗", "red"), "errored": ("✗", "red"), "skipped": ("·", ""),
    "omitted": ("·", ""), "cancelled": ("✗", "yellow"), "stopped": ("⏸", "yellow"), "lost": ("✗", "red"),
}  # fmt: skip
WORDS: Mapping[str, str] = {"succeeded": "done"}
COLOURS: Mapping[str, str] = {
    "failed": "red",
    "errored": "red",
    "suspended": "yellow",
    "retrying": "yellow",
    "cancelled": "yellow",
}
DEEPEST = 12
MOST_STEPS = 20_000
"""Workflows that call each other twice double at each level; nobody reads so many lines."""
CELLS = 12
DIM = {"dim": True}


class Node:
    """One step, with how far it has come."""

    __slots__ = (
        "before",
        "depth",
        "each",
        "items",
        "looping",
        "name",
        "nested",
        "parent",
        "path",
        "state",
        "tally",
        "total",
    )

    def __init__(self, step: Step, path: str, parent: Node | None, before: tuple[str, ...]) -> None:
        self.name = step.name
        self.path = path
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.before = before
        """Paths of the steps that it waits for."""
        self.each = step.each is not None
        self.items = _items(step)
        self.looping = step.loop is not None or (parent is not None and parent.looping)
        self.nested = isinstance(step.action, Nested)
        self.state = ""
        """Of the whole step: one of the states of a task, or "" if its time has not come."""
        self.total: int | None = None
        """Tasks that it has, as far as is known."""
        self.tally: Mapping[str, int] = {}

    @property
    def over(self) -> bool:
        return self.state in ENDED

    def count(self, states: Collection[str]) -> int:
        many = 0
        for state, some in [*self.tally.items()]:  # a copy: the engine writes into it meanwhile
            if state in states:
                many += some
        return many


def _items(step: Step) -> int | None:
    """How often it runs, if the author's own text says so; None if that shows only later."""
    if step.each is None:
        return 1
    product = 1
    for axis in step.each.axes:
        lengths = [len(items) for items in axis.values() if isinstance(items, tuple | list)]
        if len(lengths) < len(axis) or not lengths:
            return None
        product *= min(lengths)
    return product


class Board:
    def __init__(self, workflow: Workflow) -> None:
        self.nodes: list[Node] = []
        self._definitions = {definition.name: definition for definition in workflow.definitions}
        self._add(workflow, "", None)
        self.by_path = {node.path: node for node in self.nodes}
        self._followers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for up in node.before:
                self._followers.setdefault(up, []).append(node)

    def _add(self, workflow: Workflow, prefix: str, parent: Node | None) -> None:
        steps = (*workflow.steps, *workflow.on_exit)
        known = {step.name for step in steps}
        for step in steps:
            before = tuple(prefix + up for up in edges_of(step) if up in known)
            node = Node(step, prefix + step.name, parent, before)
            self.nodes.append(node)
            if isinstance(step.action, Nested) and node.depth < DEEPEST and len(self.nodes) < MOST_STEPS:
                inner = self._definitions.get(step.action.name)
                if inner is not None:
                    self._add(inner, node.path + "/", node)

    # -- how far each step has come -------------------------------------------------------------------------------------

    def measure(self, tallies: Tallies, state: str) -> None:
        """`state`: of the run."""
        over = state in OVER
        for node in self.nodes:  # parents come first
            node.tally = tallies.get(node.path) or {}
        for node in self.nodes:
            self._measure(node, over)

    def _measure(self, node: Node, run_over: bool) -> None:
        parent = node.parent
        tally = node.tally
        done, busy = node.count(ENDED), node.count(ACTIVE)
        calls = 1 if parent is None else parent.total
        if node.each:
            known = tally.get("tasks") or (node.items * calls if node.items is not None and calls is not None else None)
        else:
            known = calls
        if node.looping:
            known = None
        if node.each and "tasks" not in tally and done:
            known = done  # skipped or left out as a whole
        node.total = max(known, done + busy) if known is not None else (done + busy or None)
        inherited = run_over if parent is None else parent.over
        if inherited:
            over = True
        elif node.looping:
            # Between two rounds nothing is active either.
            top = parent is None or not parent.looping
            over = top and bool(done) and not busy and any(one.tally for one in self._followers.get(node.path, ()))
        elif parent is not None and (parent.each or parent.looping):
            over = False
        else:
            over = bool(done) and not busy and done >= (known or 0)
        node.state = _ended_as(tally) if over else _going_on_as(tally, done)

    # -- lines --------------------------------------------------------------------------------------------------------

    def head(self, run: str, state: str, seconds: float, width: int) -> Line:
        leaves = [node for node in self.nodes if not node.nested]
        done = sum(node.count(ENDED) for node in leaves)
        total = sum(node.count(ENDED) if node.over else node.total or 1 for node in leaves)
        more = any(node.total is None and not node.over for node in leaves) and state not in OVER
        busy = {one: sum(node.tally.get(one, 0) for node in leaves) for one in (*ACTIVE, "failed", "errored", "reused")}
        colour = MARKS.get(state, ("", ""))[1]
        line: Line = [
            (run, {"bold": True}),
            ("  ", {}),
            (state, {"fg": colour} if colour else {}),
            (f" {duration(seconds)}  ", {}),
        ]
        if state not in OVER:
            cells = max(8, min(24, width // 6))
            line += [
                ("▕", DIM),
                *_bar(cells, done, busy["running"], busy["failed"] + busy["errored"], max(total, 1)),
                ("▏", DIM),
            ]
        line.append((f" {done:,} of {max(total, done):,}{'+' if more else ''} tasks", {}))
        for one in ("failed", "errored", "running", "suspended", "retrying", "waiting", "reused"):
            if busy[one]:
                line += [(" · ", DIM), (f"{busy[one]:,} {one}", {"fg": COLOURS[one]} if one in COLOURS else {})]
        return line

    def lines(
        self, times: Times, nodes: Sequence[Node] | None = None, began: Mapping[str, float] | None = None, run: str = ""
    ) -> list[Line]:
        """One for each of these steps, columns aligned. `began`: seconds since a step was first seen at work."""
        shown = self.nodes if nodes is None else nodes
        names = [("  " * node.depth + node.name) for node in shown]
        many = [f"×{node.total:,}" if node.total and (node.each or node.total > 1) else "" for node in shown]
        name_width = min(max(map(len, names), default=0), 40)
        many_width = max(map(len, many), default=0)
        found = []
        for node, name, times_ in zip(shown, names, many, strict=True):
            mark, colour = MARKS[node.state]
            quiet = node.state in ("", "skipped", "omitted")
            line: Line = [
                ("  ", {}),
                (mark, {"fg": colour} if colour else DIM),
                (" ", {}),
                (name.ljust(name_width), DIM if quiet else {}),
            ]
            line.append((f" {times_:<{many_width}}" if many_width else "", {}))
            line.append((f" {spent(node, times, began or {}):>6}  ", DIM))
            found.append(line + self.details(node, run))
        return found

    def details(self, node: Node, run: str = "") -> Line:
        if not node.state:
            waits = [up.rpartition("/")[2] for up in node.before if not self.by_path[up].over]
            if node.parent is not None and not node.parent.state:
                waits = [up.rpartition("/")[2] for up in node.before]
            return [(f"after {_names(waits)}", DIM)] if waits else []
        if node.total == 1 or (node.total is None and not node.each):
            return self._single(node, run)
        line: Line = []
        done, running = node.count(ENDED), node.tally.get("running", 0)
        bad = node.count(("failed", "errored"))
        if not node.over and node.total is not None and not node.looping:
            line += [*_bar(min(CELLS, node.total), done, running, bad, node.total), ("  ", {})]
        words: list[Piece] = []
        for state in (*ENDED, *ACTIVE):
            if node.tally.get(state):
                style = {"fg": COLOURS[state]} if state in COLOURS else {}
                words.append((f"{node.tally[state]:,} {WORDS.get(state, state)}", style))
        left = (node.total or 0) - done - node.count(ACTIVE)
        if left > 0:
            words.append((f"{left:,} {'not run' if node.over else 'to go'}", DIM))
        for number, word in enumerate(words):
            line += [(" · ", DIM), word] if number else [word]
        if node.tally.get("suspended") and run:
            line.append((f"   penstock resume {run}/{node.path}", DIM))
        return line

    def _single(self, node: Node, run: str) -> Line:
        state = node.state
        if state in ("succeeded", "running"):
            return []
        if state == "suspended":
            hint = f": penstock resume {run}/{node.path}" if run else ""
            return [("waits for you", {"fg": "yellow"}), (hint, {})]
        word = {"retrying": "will be tried again", "waiting": "another task computes the same"}.get(state, state)
        return [(word, {"fg": COLOURS[state]} if state in COLOURS else DIM)]

    # -- when there are more steps than rows ----------------------------------------------------------------------------

    def chosen(self, rows: int) -> tuple[list[Node], Line]:
        """The steps that matter most now, in the author's order, and a line about the rest (empty if all are there)."""
        if len(self.nodes) <= rows:
            return self.nodes, []
        room = max(1, rows - 1)
        groups: list[list[Node]] = [[], [], [], []]
        for node in self.nodes:
            groups[_weight(node, self.by_path)].append(node)
        bad, busy, coming, rest = groups
        rest.reverse()  # what ended last is the most interesting of it
        picked: dict[str, Node] = {}
        half = max(1, room // 2)
        for group, most in ((bad, half), (busy, room), (bad, room), (coming, room), (rest, room)):
            for node in sorted(group, key=lambda one: one.depth)[:most]:
                self._pick(node, picked, room)
        nodes = [node for node in self.nodes if node.path in picked]
        left = [node for node in self.nodes if node.path not in picked]
        counts = {
            "done": sum(node.state in ("succeeded", "reused") for node in left),
            "failed": sum(node.state in ("failed", "errored") for node in left),
            "running": sum(node.state in ACTIVE for node in left),
            "not run": sum(node.state in ("skipped", "omitted", "cancelled") for node in left),
            "to come": sum(not node.state for node in left),
        }
        words = " · ".join(f"{many:,} {word}" for word, many in counts.items() if many)
        return nodes, [(f"    … {len(left):,} more steps: {words}", DIM)]

    def _pick(self, node: Node, picked: dict[str, Node], room: int) -> None:
        """Together with the steps that it stands below; not at all if there is no room for these."""
        chain: list[Node] = []
        one: Node | None = node
        while one is not None and one.path not in picked:
            chain.append(one)
            one = one.parent
        if len(picked) + len(chain) <= room:
            picked.update((each.path, each) for each in chain)


def _weight(node: Node, by_path: Mapping[str, Node]) -> int:
    if node.state in ("failed", "errored"):
        return 0
    if node.state in ACTIVE:
        return 1
    ready = (node.parent is None or node.parent.state) and all(by_path[up].state for up in node.before)
    return 2 if not node.state and ready else 3


def _ended_as(tally: Mapping[str, int]) -> str:
    for state in ("failed", "errored", "cancelled", "succeeded", "reused", "omitted", "skipped"):
        if tally.get(state):
            return state
    return "omitted" if not any(tally.get(state) for state in ACTIVE) else "cancelled"


def _going_on_as(tally: Mapping[str, int], done: int) -> str:
    return next((state for state in ACTIVE if tally.get(state)), "running" if done or tally.get("tasks") else "")


def spent(node: Node, times: Times, began: Mapping[str, float]) -> str:
    stamps = times.get(node.path)
    if node.over:
        if node.state in ("reused", "skipped", "omitted") or not stamps or len(stamps) < 2:
            return ""
        return duration(max(0.0, stamps[1] - stamps[0]))
    if not node.state:
        return ""
    if stamps:
        return duration(max(0.0, time.time() - stamps[0]))
    return duration(began[node.path]) if node.path in began else ""


def _bar(cells: int, done: int, running: int, failed: int, total: int) -> Iterator[Piece]:
    """Whatever there is of a kind gets one cell at least, as long as there are cells."""
    bad = min(cells, max(bool(failed), failed * cells // total))
    good = min(cells - bad, (done - failed) * cells // total)
    busy = min(cells - bad - good, max(bool(running), running * cells // total))
    for text, style in (("█" * good, {"fg": "green"}), ("█" * bad, {"fg": "red"}), ("▒" * busy, {"fg": "cyan"})):
        if text:
            yield text, style
    yield "░" * (cells - good - bad - busy), DIM


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3:,} more"


def duration(seconds: float) -> str:
    """0.4s, 12.3s, 1m12s, 1h05m, 2d03h: never more than six characters or so."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 59.5:
        return f"{seconds:.0f}s"
    whole = int(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def cut(line: Line, width: int) -> Line:
    found: Line = []
    left = width
    for text, style in line:
        if len(text) > left:
            found.append((text[: max(0, left - 1)] + "…" if left else "", style))
            return found
        found.append((text, style))
        left -= len(text)
    return found


def plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def painted(line: Line, paint: Callable[..., str]) -> str:
    return "".join(paint(text, **style) if style else text for text, style in line)
