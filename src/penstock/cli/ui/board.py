"""A run as lines, one for each step, however many tasks it has. Called by Progress and by the screens of runs.

Pure: a measured outline in, lines out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from penstock.cli.ui.marks import EMPHASIS, MARKS, WORDS
from penstock.cli.ui.render import DIM, Line, Piece, duration, listed
from penstock.graph.model import Suspend
from penstock.service.task_states import ACTIVE, ENDED
from penstock.service.views.outline import Outline, StepNode, Times
from penstock.store.records import FINAL

DETAILS = 30
"""Columns of a narrow terminal that the details of a step get at least."""
CELLS = 12
"""Of the bar of one step."""


class Board:
    """`bars`: with a bar for each step that has several tasks."""

    def __init__(
        self,
        outline: Outline,
        reasons: Mapping[str, str] | None = None,
        bars: bool = True,
        waits: Mapping[str, str] | None = None,
    ) -> None:
        self.outline = outline
        self.bars = bars
        self.waits = waits or {}
        """Step -> `waiting in queue …: why`, for those that wait; empty if it waits only for its own tasks. "" is the run as a whole."""
        self.reasons = reasons or {}
        """Step -> why it is in its state, if that is known."""
        self.nodes = outline.nodes
        self.by_path = outline.by_path

    def state_of(self, node: StepNode) -> str:
        """`queued` if all that is left of it waits in a queue."""
        waits = self.waits.get(node.path) and not node.over and not node.count(("running", "suspended", "retrying"))
        return "queued" if waits else node.state

    # -- lines --------------------------------------------------------------------------------------------------------

    def head(self, run: str, state: str, seconds: float, width: int) -> Line:
        leaves = [node for node in self.nodes if not node.nested]
        done = sum(node.count(ENDED) for node in leaves)
        total = sum(node.count(ENDED) if node.over else node.total or 1 for node in leaves)
        more = any(node.total is None and not node.over for node in leaves) and state not in FINAL
        busy = {one: sum(node.tally.get(one, 0) for node in leaves) for one in (*ACTIVE, "failed", "errored", "reused")}
        if any(node.path in self.waits for node in leaves):
            busy["waiting"] = 0  # tasks that were preempted wait in the queue again
        if state == "running" and any(self.waits.values()) and not busy["running"]:
            state = "queued"
        colour = MARKS.get(state, ("", ""))[1]
        line: Line = [
            (run, {"bold": True}),
            ("  ", {}),
            (state, {"fg": colour} if colour else {}),
            (f" {duration(seconds)}  ", {}),
        ]
        if state not in FINAL:
            cells = max(8, min(24, width // 6))
            line += [
                ("▕", DIM),
                *_bar(cells, done, busy["running"], busy["failed"] + busy["errored"], max(total, 1)),
                ("▏", DIM),
            ]
        line.append((f" {done:,} of {max(total, done):,}{'+' if more else ''} tasks", {}))
        for one in ("failed", "errored", "running", "suspended", "retrying", "waiting", "reused"):
            if busy[one]:
                line += [(" · ", DIM), (f"{busy[one]:,} {one}", {"fg": EMPHASIS[one]} if one in EMPHASIS else {})]
        if "" in self.waits:
            line += [(" · ", DIM), (self.waits[""], {"fg": "yellow"})]
        return line

    def lines(
        self,
        times: Times,
        nodes: Sequence[StepNode] | None = None,
        began: Mapping[str, float] | None = None,
        run: str = "",
        width: int = 120,
    ) -> list[Line]:
        """One for each of these steps, columns aligned. `began`: step -> seconds since it was first seen with a state. `width`: of the
        terminal; in a narrow one long names are shortened, so that there is room for what happens."""
        shown = self.nodes if nodes is None else nodes
        names = [("  " * node.depth + node.name) for node in shown]
        many = [f"×{node.total:,}" if node.many and node.total else "" for node in shown]
        name_width = min(max(map(len, names), default=0), 40, max(12, width - 12 - DETAILS))
        names = [shortened(name, name_width) for name in names]
        many_width = max(map(len, many), default=0)
        found = []
        for node, name, times_ in zip(shown, names, many, strict=True):
            mark, colour = MARKS[self.state_of(node)]
            quiet = self.state_of(node) in ("", "skipped", "omitted")
            line: Line = [
                ("  ", {}),
                (mark, {"fg": colour} if colour else DIM),
                (" ", {}),
                (name.ljust(name_width), DIM if quiet else {}),
            ]
            line.append((f" {times_:<{many_width}}" if many_width else "", {}))
            line.append((f" {self._spent(node, times, began or {}):>6}  ", DIM))
            found.append(line + self.details(node, run))
        return found

    def _spent(self, node: StepNode, times: Times, began: Mapping[str, float]) -> str:
        if not node.state and node.path in self.waits and node.path in began:
            return duration(began[node.path])
        return spent(node, times, began)

    def details(self, node: StepNode, run: str = "") -> Line:
        wait = self.waits.get(node.path, "")
        if not node.state and wait:
            return [(wait, {"fg": "yellow"})]
        if not node.state:
            waits = [up.rpartition("/")[2] for up in node.before if not self.by_path[up].over]
            if node.parent is not None and not node.parent.state:
                waits = [up.rpartition("/")[2] for up in node.before]
            return [(f"after {listed(waits)}", DIM)] if waits else []
        if node.total == 1 or (node.total is None and not node.each):
            return self._single(node, run)
        line: Line = []
        done, running = node.count(ENDED), node.tally.get("running", 0)
        bad = node.count(("failed", "errored"))
        if self.bars and not node.over and node.total is not None and not node.looping:
            line += [*_bar(min(CELLS, node.total), done, running, bad, node.total), ("  ", {})]
        words: list[Piece] = []
        queued = node.path in self.waits and not node.over
        for state in (*ENDED, *ACTIVE):
            if node.tally.get(state) and not (queued and state == "waiting"):
                style = {"fg": EMPHASIS[state]} if state in EMPHASIS else {}
                words.append((f"{node.tally[state]:,} {WORDS.get(state, state)}", style))
        left = (node.total or 0) - done - node.count(ACTIVE) + (node.tally.get("waiting", 0) if queued else 0)
        if left > 0 and wait and not node.over:
            words.append((f"{left:,} {wait}", {"fg": "yellow"}))
        elif left > 0:
            words.append((f"{left:,} {'not run' if node.over else 'to go'}", DIM))
        for number, word in enumerate(words):
            line += [(" · ", DIM), word] if number else [word]
        if node.tally.get("suspended") and run:
            line.append((f"   penstock resume {run}/{node.path}", DIM))
        elif self.reasons.get(node.path) and not wait:
            line.append((f": {self.reasons[node.path]}", DIM))
        return line

    def _single(self, node: StepNode, run: str) -> Line:
        state = node.state
        if state == "waiting" and self.waits.get(node.path):
            return [(self.waits[node.path], {"fg": "yellow"})]
        if state in ("succeeded", "running"):
            return []
        action = node.step.action
        if state == "suspended" and node.step.answer is not None:
            return [("waits for an answer", {"fg": "yellow"})]
        if state == "suspended" and isinstance(action, Suspend) and action.payloads is not None:
            return [("waits for payloads", {"fg": "yellow"})]
        if state == "suspended" and not (isinstance(action, Suspend) and action.duration is not None):
            message = self.reasons.get(node.path, "")
            hint = f"   penstock resume {run}/{node.path}" if run else ""
            return [(f"waits for you{': ' if message else ''}{message}", {"fg": "yellow"}), (hint, DIM)]
        words = {
            "retrying": "will be tried again",
            "waiting": "waits",
            "suspended": "waits for a time",
        }
        why = self.reasons.get(node.path) or self._why(node)
        style = {"fg": EMPHASIS[state]} if state in EMPHASIS else DIM
        return [(words.get(state, state), style), (f": {why}" if why else "", DIM)]

    def _why(self, node: StepNode) -> str:
        """Why it was omitted, if the steps before it show that."""
        if node.state != "omitted":
            return ""
        ups = [self.by_path[up] for up in node.before]
        return next(
            (f"{up.name} {up.state}" for up in ups if up.state not in ("", "succeeded", "reused", "skipped")), ""
        )

    # -- when there are more steps than rows ----------------------------------------------------------------------------

    def chosen(self, rows: int) -> tuple[list[StepNode], Line]:
        """The steps that matter most now, in the author's order, and a line about the rest (empty if all are shown)."""
        if len(self.nodes) <= rows:
            return self.nodes, []
        room = max(1, rows - 1)
        groups: list[list[StepNode]] = [[], [], [], []]
        for node in self.nodes:
            groups[1 if self.state_of(node) == "queued" else _weight(node, self.by_path)].append(node)
        bad, busy, coming, rest = groups
        rest.reverse()  # of these, what ended last comes first
        picked: dict[str, StepNode] = {}
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
            "queued": sum(self.state_of(node) == "queued" for node in left),
            "not run": sum(node.state in ("skipped", "omitted", "cancelled") for node in left),
            "to come": sum(not self.state_of(node) for node in left),
        }
        words = " · ".join(f"{many:,} {word}" for word, many in counts.items() if many)
        return nodes, [(f"    … {len(left):,} more steps: {words}", DIM)]

    def _pick(self, node: StepNode, picked: dict[str, StepNode], room: int) -> None:
        """Together with the steps around it; not at all if there is no room for these."""
        chain: list[StepNode] = []
        one: StepNode | None = node
        while one is not None and one.path not in picked:
            chain.append(one)
            one = one.parent
        if len(picked) + len(chain) <= room:
            picked.update((each.path, each) for each in chain)


def shortened(name: str, width: int) -> str:
    """Long names differ at their ends as often as at their beginnings: what is left out is in the middle."""
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _weight(node: StepNode, by_path: Mapping[str, StepNode]) -> int:
    if node.state in ("failed", "errored"):
        return 0
    if node.state in ACTIVE:
        return 1
    ready = (node.parent is None or node.parent.state) and all(by_path[up].state for up in node.before)
    return 2 if not node.state and ready else 3


def spent(node: StepNode, times: Times, began: Mapping[str, float]) -> str:
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
    """Each kind that exists gets at least one cell, as long as there are cells."""
    bad = min(cells, max(bool(failed), failed * cells // total))
    good = min(cells - bad, (done - failed) * cells // total)
    busy = min(cells - bad - good, max(bool(running), running * cells // total))
    for text, style in (("█" * good, {"fg": "green"}), ("█" * bad, {"fg": "red"}), ("▒" * busy, {"fg": "cyan"})):
        if text:
            yield text, style
    yield "░" * (cells - good - bad - busy), DIM
