"""A run on the screen while it goes on: in place on a terminal, line by line in a pipe."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.cli.ui import progress, render
from penstock.cli.ui.board import Board
from penstock.cli.ui.marks import MARKS
from penstock.cli.ui.progress import Progress
from penstock.cli.ui.render import in_letters_of
from penstock.graph.model import Edge, ForEach, Script, Step, Suspend, Workflow
from penstock.service.views.outline import Outline
from tests.cli import history
from tests.cli.terminal import Terminal
from tests.support.speed import within

WAIT = Script(source="true")


def graph(*steps: Step) -> Workflow:
    return Workflow(name="w", steps=steps)


CHAIN = graph(
    Step(name="fetch", action=WAIT),
    Step(name="train", action=WAIT, needs=(Edge("fetch"),), each=ForEach(axes=({"x": (1, 2, 3, 4)},))),
    Step(name="report", action=WAIT, needs=(Edge("train"),)),
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    monkeypatch.setattr(progress, "SHARE", 1e9)
    found = Terminal()
    yield found
    found.close()


def test_a_terminal_shows_one_line_for_each_step_drawn_over_in_place(terminal: Terminal) -> None:
    terminal.write("before\n")
    shown = Progress("w-1", CHAIN, terminal)
    shown.update({}, {}, 0.0, "running")
    assert terminal.screen == [
        "before",
        "w-1  running 0ms  ▕░░░░░░░░░░░░░▏ 0 of 6 tasks",
        "  · fetch",
        "  · train  ×4         after fetch",
        "  · report            after train",
        "",
    ]
    tallies = {"fetch": {"reused": 1}, "train": {"tasks": 4, "succeeded": 1, "failed": 1, "running": 1}}
    shown.update(tallies, {}, 2.0, "running")
    shown.update(tallies, {}, 3.0, "running")
    assert terminal.screen == [
        "before",
        "w-1  running 3.0s  ▕██████▒▒░░░░░▏ 3 of 6 tasks · 1 failed · 1 running · 1 reu…",
        "  ✓ fetch             reused",
        "  ▶ train  ×4   1.0s  ██▒░  1 done · 1 failed · 1 running · 1 to go",
        "  · report            after train",
        "",
    ]
    done = {"fetch": {"reused": 1}, "train": {"tasks": 4, "succeeded": 3, "failed": 1}, "report": {"omitted": 1}}
    shown.update(done, {"train": [10.0, 14.5]}, 5.0, "failed")
    shown.close()
    shown.close()
    assert terminal.screen == [
        "before",
        "  ✓ fetch             reused",
        "  ✗ train  ×4   4.5s  3 done · 1 failed",
        "  · report            omitted: train failed",
        "",
    ]
    assert terminal.cursor_shown and terminal.wraps


def test_after_every_frame_the_terminal_is_as_it_should_be(terminal: Terminal) -> None:
    """The process may be killed at any time."""
    shown = Progress("w-1", CHAIN, terminal)
    for second in range(5):
        shown.update({"fetch": {"running": 1}}, {}, float(second), "running")
        assert terminal.screen and terminal.cursor_shown and terminal.wraps


def test_a_note_goes_above_the_steps(terminal: Terminal) -> None:
    shown = Progress("w-1", CHAIN, terminal)
    shown.update({"fetch": {"running": 1}}, {}, 1.0, "running")
    shown.note("stopping")
    shown.update({"fetch": {"running": 1}}, {}, 2.0, "running")
    assert terminal.screen[0] == "stopping"
    assert terminal.screen[1].startswith("w-1  running 2.0s")
    assert len(terminal.screen) == 6


def test_it_draws_no_more_than_ten_times_a_second(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    monkeypatch.setattr(progress, "PAUSE", 0.1)
    shown = Progress("w-1", CHAIN, terminal)
    for number in range(1000):
        shown.update({"fetch": {"running": 1}}, {}, number / 100, "running")
    assert terminal.getvalue().count("\x1b[J") <= 3
    shown.close()
    assert "9.99" not in terminal.screen[0] and "running 10s" in terminal.screen[0]


def test_a_thousand_steps_show_what_failed_what_runs_and_what_comes_next(terminal: Terminal) -> None:
    names = [f"s{number:03}" for number in range(1000)]
    steps = [
        Step(name=name, action=WAIT, needs=(Edge(names[at - 2]),) if at > 1 else ()) for at, name in enumerate(names)
    ]
    shown = Progress("w-1", graph(*steps), terminal)
    tallies = {name: {"succeeded": 1} for name in names[:500]}
    tallies |= {"s007": {"failed": 1}, "s500": {"running": 1}, "s501": {"running": 1}}
    shown.update(tallies, {}, 5.0, "running")
    screen = terminal.screen
    assert len(screen) == 24
    assert "500 of 1,000 tasks · 1 failed · 2 running" in screen[0]
    text = "\n".join(screen)
    for part in ("✗ s007", "▶ s500", "▶ s501", "· s502"):
        assert part in text
    rest = screen[-2]
    hidden = sum(
        int(many.replace(",", "")) for many in re.findall(r"([\d,]+) (?:done|failed|running|not run|to come)", rest)
    )
    assert hidden == 1000 - 21 and "979 more steps" in rest


def test_more_failures_than_fit_leave_room_for_what_runs(terminal: Terminal) -> None:
    steps = [Step(name=f"s{number}", action=WAIT) for number in range(200)]
    shown = Progress("w-1", graph(*steps), terminal)
    shown.update({**{f"s{at}": {"failed": 1} for at in range(100)}, "s150": {"running": 1}}, {}, 1.0, "running")
    text = "\n".join(terminal.screen)
    assert "▶ s150" in text and text.count("✗") >= 10


def test_steps_of_a_called_workflow_stand_below_it(terminal: Terminal) -> None:
    shown = Progress("deep-1", history.deep.graph, terminal)
    tallies = {
        "prepare": {"succeeded": 1},
        "row": {"tasks": 2, "succeeded": 1, "running": 1},
        "row/train": {"tasks": 4, "succeeded": 3, "running": 1},
        "row/total": {"succeeded": 1},
    }
    shown.update(tallies, {}, 1.0, "running")
    lines = terminal.screen
    assert [re.sub(r" {2,}", "  ", line[4:]) for line in lines[2:5]] == [
        "row  ×2  0ms  █▒  1 done · 1 running",
        "  train ×4  0ms  ███▒  3 done · 1 running",
        "  total ×2  0ms  █░  1 done · 1 to go",
    ]


def test_a_while_loop_is_not_over_between_two_rounds(terminal: Terminal) -> None:
    shown = Progress("looped-1", history.looped.graph, terminal)
    name = next(node.path for node in shown.board.nodes if node.looping)
    shown.update({"total": {"succeeded": 1}, name: {"succeeded": 2}}, {}, 1.0, "running")
    assert any(line.startswith(f"  ▶ {name}") for line in terminal.screen)
    shown.update({"total": {"succeeded": 1}, name: {"succeeded": 3}}, {}, 1.0, "succeeded")
    shown.close()
    assert any(line.startswith(f"  ✓ {name}") for line in terminal.screen)


def test_a_suspended_step_says_what_to_type(terminal: Terminal) -> None:
    steps = graph(Step(name="ok", action=Suspend()), Step(name="nap", action=Suspend(duration=60.0)))
    Progress("w-1", steps, terminal).update({"ok": {"suspended": 1}, "nap": {"suspended": 1}}, {}, 1.0, "running")
    assert "⏸ ok" in terminal.screen[1] and "penstock resume w-1/ok" in terminal.screen[1]
    assert "waits for a time" in terminal.screen[2]


def test_lines_are_cut_to_the_width_and_follow_it_when_it_changes(terminal: Terminal) -> None:
    shown = Progress("w-1", CHAIN, terminal)
    tallies = {"train": {"tasks": 4, "succeeded": 1, "failed": 1, "running": 1}}
    shown.update(tallies, {}, 1.0, "running")
    wide = terminal.screen
    assert max(map(len, wide)) > 50
    terminal.seek(0)
    terminal.truncate()
    terminal._read = 0
    broken = sum(-(-len(line) // 40) for line in wide if line)  # as a terminal breaks them
    terminal.resize(40, 24)
    shown.update(tallies, {}, 2.0, "running")
    assert f"\x1b[{broken}A" in terminal.getvalue()
    shown.close()
    for line in re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", terminal.getvalue()).splitlines():
        assert len(line) < 40


def test_a_pipe_gets_one_plain_line_for_each_step_that_ends() -> None:
    pipe = io.StringIO()
    shown = Progress("w-1", CHAIN, pipe)
    shown.update({"fetch": {"running": 1}}, {}, 0.0, "running")
    shown._next = 0.0
    shown.update(
        {"fetch": {"succeeded": 1}, "train": {"tasks": 4, "running": 2}}, {"fetch": [1.0, 1.4]}, 1.0, "running"
    )
    assert pipe.getvalue() == "w-1  running\nfetch  done  0.4s\n"
    tallies = {"fetch": {"succeeded": 1}, "train": {"tasks": 4, "succeeded": 3, "failed": 1}, "report": {"omitted": 1}}
    shown.update(tallies, {"fetch": [1.0, 1.4], "train": [1.4, 70.4]}, 70.0, "failed")
    shown.close()
    assert pipe.getvalue().splitlines()[2:] == ["train ×4  3 done · 1 failed  1m09s", "report  omitted: train failed"]
    assert "\x1b" not in pipe.getvalue() and "\r" not in pipe.getvalue()


def test_a_dumb_terminal_is_a_pipe(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with Progress("w-1", CHAIN, terminal) as shown:
        shown.update({"fetch": {"succeeded": 1}}, {"fetch": [0.0, 1.0]}, 1.0, "running")
    assert terminal.getvalue() == "w-1  running\nfetch  done  1.0s\n"


def test_colours_only_if_they_are_wanted(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    Progress("w-1", CHAIN, terminal).update({"fetch": {"failed": 1}}, {}, 1.0, "running")
    assert "\x1b[31m" not in terminal.getvalue()
    monkeypatch.delenv("NO_COLOR")
    Progress("w-1", CHAIN, terminal).update({"fetch": {"failed": 1}}, {}, 1.0, "running")
    assert "\x1b[31m" in terminal.getvalue()


def test_a_screen_that_went_away_does_not_stop_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    shown = Progress("w-1", CHAIN, Gone())
    shown.update({}, {}, 0.0, "running")
    shown.update({}, {}, 1.0, "failed")
    shown.close()


def test_an_old_encoding_gets_what_it_can_show() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    shown = Progress("w-1", CHAIN, out)
    shown.update({"fetch": {"succeeded": 1}, "train": {"tasks": 4, "succeeded": 4}}, {}, 1.0, "running")
    assert b"train x4  4 done" in raw.getvalue()


@pytest.mark.parametrize(("state", "sign"), [("succeeded", "ok"), ("failed", "x "), ("running", "> "), ("", "- ")])
def test_an_ascii_terminal_tells_states_apart_and_keeps_names_aligned(state: str, sign: str) -> None:
    mark = MARKS[state][0]
    assert in_letters_of(f"  {mark} fetch\n  \x1b[32m{mark}\x1b[0m fetch", "ascii") == (
        f"  {sign} fetch\n  \x1b[32m{sign}\x1b[0m fetch"
    )
    assert in_letters_of(f"{mark} ü", "utf-8") == f"{mark} ü" and in_letters_of("3 done · ü", "ascii") == "3 done - ?"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_names_leave_room_for_what_happens(width: int) -> None:
    names = ["prepare-all-the-rows-of-the-table", "prepare-all-the-rows-of-the-index"]
    outline = Outline(graph(*[Step(name=name, action=WAIT) for name in names]))
    outline.measure({names[0]: {"failed": 1}}, "running")
    board = Board(outline, {names[0]: "ValueError: bad row 7"})
    first, second = (render.plain(render.cut(line, width)) for line in board.lines({}, width=width))
    assert "failed: ValueError" in first and first.split()[1] != second.split()[1]
    assert (names[0] in first) == (width > 60)


def test_drawing_a_thousand_steps_is_quick(terminal: Terminal) -> None:
    steps = [Step(name=f"s{number}", action=WAIT) for number in range(1000)]
    shown = Progress("w-1", graph(*steps), terminal)
    tallies: dict[str, Any] = {f"s{number}": {"succeeded": 1} for number in range(1000)}
    shown.update(tallies, {}, 1.0, "running")
    with within(0.25):
        for number in range(5):
            shown.update(tallies, {}, 2.0 + number, "running")
