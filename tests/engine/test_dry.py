"""A walk in which nothing is run: to the end of everything, whatever hangs on values that nobody has computed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.values import loads
from penstock.engine.active_run import ActiveRun
from penstock.engine.dry import DryValues
from penstock.engine.replay import replay
from penstock.expressions.parse import Expr
from penstock.expressions.template import parse_template
from penstock.expressions.types import INT, STR, list_of
from penstock.graph.model import (
    Cache,
    Container,
    ForEach,
    Function,
    Http,
    Input,
    Lock,
    Mount,
    Output,
    Parameter,
    Part,
    Pod,
    Resource,
    Script,
    Suspend,
    While,
    Workflow,
)
from penstock.store.sql import open_store
from tests.engine.test_outcomes import call, countdown, given, replayed, s
from tests.engine.yard import CPU, Yard, flow

E, T = Expr.of, parse_template


class Walked:
    def __init__(self, yard: Yard, live: ActiveRun) -> None:
        self.live = live
        self.state = live.status
        self.outputs = loads(live.outputs_text or "{}")
        with open_store(yard.where) as store:
            self.rows = {row.task: row for row in store.runs.tasks(live.number)}
            self.left = store.queues.workloads()
        self.states = {path: row.state for path, row in self.rows.items()}


def walk(place: Path, workflow: Workflow, params: Mapping[str, Any] | None = None, times: int = 1) -> Walked:
    yard = Yard(place / ".penstock", cpu=1)

    async def main(yard: Yard) -> ActiveRun:
        engine = yard.go(yard.engine(lambda order: pytest.fail(f"{order.task} was run")))
        for _ in range(times):
            live = yard.submit(engine, workflow, params, dry=True, fresh=False)
        return live

    live = yard.play(main)
    assert yard.clock.elapsed < 2, "no time passes"
    walked = Walked(yard, live)
    with open_store(yard.where) as store:
        again = replayed(live, workflow, DryValues(live.state.values.fetch))
        assert replay(again, store.runs, store.results) == []
    assert again.state.ignored == 0
    assert again.state.outcome is not None and again.state.outcome.value == live.status
    return walked


def test_every_kind_of_step_is_walked_and_none_is_run(tmp_path: Path) -> None:
    out = (Output(name="x", type=STR), Output(name="n", type=INT), Output(name="l", type=list_of(STR)))
    work = flow(
        s("container", action=Container(image="i"), outputs=out, resources={"cpu": CPU}),
        s("script", action=Script(source=T("${{ steps.container.outputs.x }}")), outputs=out),
        s("function", action=Function(module="m", name="f"), outputs=out),
        s(
            "resource",
            action=Resource(manifest={"kind": "Job"}),
            outputs=(Output(name="x", value=E("object.status.x")),),
        ),
        s("http", action=Http(url="http://nowhere"), outputs=(Output(name="x", value=E("response.body")),)),
        s("wait", action=Suspend(duration=10_000)),
        s("ask", action=Suspend(), outputs=(Output(name="x", default="yes"), Output(name="y", type=INT))),
        s("pod", action=Pod(parts=(Part(name="p", image="i"),)), outputs=out),
        s("last", inputs=given(a=E("steps.ask.outputs.x"), b=E("steps.ask.outputs.y"))),
        on_exit=(s("z"),),
        locks=(Lock(name="m"),),
        outputs=(
            Output(name="x", value=E("steps.ask.outputs.x")),
            Output(name="n", type=INT, value=E("steps.function.outputs.n")),
            Output(name="l", value=E("steps.pod.outputs.l")),
        ),
    )
    walked = walk(tmp_path, work)
    assert walked.state == "succeeded"
    assert set(walked.states.values()) == {"succeeded"}
    assert len(walked.states) == 10
    assert walked.outputs == {"x": "yes", "n": 0, "l": []}
    assert walked.left == []


def test_what_has_no_value_ends_nothing(tmp_path: Path) -> None:
    made = s("made", outputs=(Output(name="x", type=STR), Output(name="l", type=list_of(STR)), Output(name="any")))
    unknown = E("steps.made.outputs.any.deep.down")
    item = ForEach(axes=({"i": unknown, "j": (1, 2)},))
    work = flow(
        made,
        s("when", when=E("steps.made.outputs.any.deep == 1")),
        s("trigger", "made", trigger=E("steps.made.outputs.any.deep == 1")),
        s("each", each=item, inputs=given(i=E("item.i.key"), j=E("item.j"))),
        s("none", each=ForEach(axes=({"i": E("steps.made.outputs.l")},)), inputs=given(i=E("item.i"))),
        s("item", each=ForEach(axes=({"i": E("params.two")},)), when=E("item.i.deep == 1")),
        s(
            "input",
            inputs=(Input(name="i", value=unknown), Input(name="n", value=unknown, type=INT), Input(name="j", value=1)),
        ),
        s("action", action=Script(source=T("say ${{ steps.made.outputs.any.deep }}"))),
        s(
            "mount",
            mounts=(Mount(name="m", path="/m", files={"f": unknown}),),
            cache=Cache(key=unknown),
            locks=(Lock(name=unknown),),
        ),
        s(
            "before",
            inputs=(Input(name="i", value=E("params.two")),),
            loop=While(condition=E("inputs.i.deep"), test="before"),
        ),
        s("after", outputs=(Output(name="x", type=INT),), loop=While(condition=E("outputs.x == 0"), at_limit="fail")),
        outputs=(Output(name="x", type=INT, value=unknown), Output(name="l", value=E("steps.each.outcome"))),
        params=(Parameter(name="two", default=(1, 2)),),
    )
    walked = walk(tmp_path, work)
    assert walked.state == "succeeded", walked.live.why
    assert set(walked.states.values()) == {"succeeded"}
    assert {
        "when",
        "trigger",
        "each[0]",
        "none[0]",
        "item[0]",
        "item[1]",
        "before#1",
        "after#2",
    } <= walked.states.keys()
    assert "after#3" not in walked.states
    assert walked.outputs == {"x": 0, "l": "succeeded"}


def test_what_is_known_to_be_empty_or_false_is_not_walked(tmp_path: Path) -> None:
    work = flow(
        s("never", when=E("params.no"), outputs=(Output(name="x"),)),
        s("empty", each=ForEach(axes=({"i": E("params.l")},))),
        s("reader", inputs=given(x=E("steps.never.outputs.x"))),
        params=(Parameter(name="no", default=False), Parameter(name="l", default=())),
    )
    walked = walk(tmp_path, work)
    assert walked.states == {"never": "skipped", "empty": "skipped", "reader": "succeeded"}


@pytest.mark.parametrize("how", ["unknown", "true", "each", "trigger"])
def test_a_workflow_that_calls_itself_is_walked_a_few_calls_deep(tmp_path: Path, how: str) -> None:
    flip = s("flip", outputs=(Output(name="x"),))
    fields: dict[str, Any] = {
        "unknown": {"when": E("steps.flip.outputs.x.deep == 1")},
        "true": {"when": E("params.n != 'x'"), "inputs": given(n="y")},
        "each": {"each": ForEach(axes=({"i": E("steps.flip.outputs.x")},))},
        "trigger": {"trigger": E("steps.flip.outcome == 'succeeded'")},
    }[how]
    again = call("again", "coin", **fields)
    coin = Workflow(name="coin", params=(Parameter(name="n", default="y"),), steps=(flip, again))
    walked = walk(tmp_path, flow(call("first", "coin"), definitions=(coin,)))
    assert walked.state == "succeeded"
    flips = [path for path in walked.states if path.endswith("/flip")]
    assert len(flips) == 3


def test_nothing_of_it_is_kept(tmp_path: Path) -> None:
    step = s("a", cache=Cache(), outputs=(Output(name="x", type=STR),))
    keyed = s("b", cache=Cache(key="k"))
    walked = walk(tmp_path, flow(step, keyed), times=2)
    assert walked.states == {"a": "succeeded", "b": "succeeded"}, "not reused"
    assert not any(row.key for row in walked.rows.values())


def test_a_countdown_that_counts_on_values_ends(tmp_path: Path) -> None:
    assert walk(tmp_path, countdown(50)).state == "succeeded"


def test_a_thousand_items_and_nested_calls(tmp_path: Path) -> None:
    inner = Workflow(name="inner", steps=(s("x"), s("y", "x")))
    work = flow(call("c", "inner", each=ForEach(axes=({"i": tuple(range(300))},))), definitions=(inner,), parallel=7)
    walked = walk(tmp_path, work)
    assert walked.state == "succeeded"
    assert len(walked.states) == 900
