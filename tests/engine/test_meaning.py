"""The engine gives what the reference interpreter gives, for random programs; and the same again after a crash at any event."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import loads
from penstock.author.capture import live_functions
from penstock.engine.blueprint import blueprints
from penstock.engine.engine import Engine
from penstock.errors import AuthorError
from penstock.graph.links import links_of
from penstock.graph.model import Workflow
from penstock.service.runs import own
from penstock.service.submission import Submission
from penstock.store.sql import open_store
from tests.author.test_programs import _in, block
from tests.support.interpret import plain
from tests.support.source import module


def execute(
    graph: Workflow, params: dict[str, Any], home: Path, stop_after: int | None = None
) -> tuple[str, dict[str, Any], list[str]]:
    """Run inline; `stop_after`: leave after so many turns, as if killed between two commits."""

    async def main() -> tuple[str, dict[str, Any], list[str]]:
        with open_store(str(home)) as store:
            engine = Engine(
                store,
                home,
                Blobs(home / "artifacts"),
                jobs=2,
                on={"function": "inline"},
                functions=live_functions(graph),
            )
            runs = store.runs.newest(limit=1)
            if runs:
                engine.peers.reap({runs[0].engine or ""})
                run = own(engine.store, engine.me.id, runs[0])
            else:
                run = own(engine.store, engine.me.id, Submission(graph, params).record(store))
            live = engine.adopt(run, blueprints(graph, links_of(graph)), run.params)
            turns = 0
            while engine.runs and (stop_after is None or turns < stop_after):
                engine.turn()
                turns += 1
                assert turns < 5000, f"stuck: {live.state.lanes} {list(live.state.live)} {live.failures}"
            assert live.state.ignored == 0, "an event of the log had no place in the fold"
            outputs = loads(live.outputs_text) if live.outputs_text else {}
            return live.status, outputs, [f"{event.kind} {event.task}" for event in store.runs.events(run.number)]

    return asyncio.run(main())


def made(body: list[str]) -> Any:
    lines = [
        "@workflow(max_iterations=50)",
        "def flow(x: int, xs: list[int]):",
        "    y = 1",
        "    z = inc(x)",
        "    ys = [2, x]",
        *_in(body),
    ]
    flow = module("\n".join([*lines, "    return [x, y, z, xs, ys]"]) + "\n").flow
    try:
        bad = [problem for problem in flow.check() if problem.severity == "error"]
    except AuthorError:
        return None
    return None if bad else flow


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(block(), st.integers(0, 5), st.lists(st.integers(0, 3), max_size=3))
def test_random_programs_mean_the_same_run_and_plain(body: list[str], x: int, xs: list[int]) -> None:
    flow = made(body)
    if flow is None:
        return
    with tempfile.TemporaryDirectory() as home:
        state, outputs, _ = execute(flow.graph, {"x": x, "xs": xs}, Path(home))
    assert state == "succeeded"
    assert outputs.get("result") == plain(flow(x=x, xs=xs))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    block(),
    st.integers(0, 5),
    st.lists(st.integers(0, 3), max_size=3),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_a_run_that_dies_between_two_commits_goes_on_where_it_was(
    body: list[str], x: int, xs: list[int], deaths: list[int]
) -> None:
    flow = made(body)
    if flow is None:
        return
    with tempfile.TemporaryDirectory() as home, mock.patch("penstock.engine.engine.WINDOW", 0.0):
        seen: list[str] = []
        for turns in deaths:
            _, _, events = execute(flow.graph, {"x": x, "xs": xs}, Path(home), stop_after=turns)
            assert events[: len(seen)] == seen, "a recorded event was lost or changed"
            seen = events
            if "run.finished " in events:
                break
        if "run.finished " not in seen:
            state, outputs, seen = execute(flow.graph, {"x": x, "xs": xs}, Path(home))
            assert state == "succeeded"
            assert outputs.get("result") == plain(flow(x=x, xs=xs))
        with tempfile.TemporaryDirectory() as other:
            _, _, whole = execute(flow.graph, {"x": x, "xs": xs}, Path(other))
        assert {event for event in seen if not event.startswith("run.")} == {
            event for event in whole if not event.startswith("run.")
        }
        doubled = [event for event, count in Counter(seen).items() if count > 1 and not event.startswith("run.")]
        assert not doubled
