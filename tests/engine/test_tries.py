"""What a task knows of the run and of its tries, what the author holds to be the same, what is laid for it and where it runs. On the
scripted backend and a clock that jumps.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.engine.backend_pool import BackendPool
from penstock.expressions.parse import Expr
from penstock.expressions.template import parse_template
from penstock.expressions.types import INT, STR
from penstock.graph.model import (
    Backoff,
    Cache,
    Container,
    ForEach,
    Http,
    Mount,
    Outcome,
    Output,
    Parameter,
    Part,
    Pod,
    Retry,
    Script,
    Step,
    Workflow,
)
from penstock.store.sql import open_store
from tests.engine.test_outcomes import call, failing, given, run, s
from tests.engine.yard import Yard, flow

E, T = Expr.of, parse_template
FAILED = Outcome.FAILED
PLAIN = Backoff(initial=10, factor=1, jitter=0)


# -- the run and the try --------------------------------------------------------------------------------------------------


def test_every_step_knows_its_run_and_when_it_began(tmp_path: Path) -> None:
    text = T("${{ run.id }} ${{ run.created }}")
    inner = Workflow(name="inner", steps=(s("x", inputs=given(i=text)),), on_exit=(s("y", inputs=given(i=text)),))
    work = flow(call("c", "inner"), definitions=(inner,), on_exit=(s("z", action=Script(source=text)),))
    ran = run(tmp_path, work)
    said = f"{ran.live.record.id} 2001-09-09T01:46:40Z"
    assert [ran.order(path).inputs["i"] for path in ("c/x", "c/y")] == [said] * 2
    assert ran.order("z").action.source == said  # type: ignore[union-attr]


def test_an_action_is_worked_out_anew_for_each_try(tmp_path: Path) -> None:
    action = Script(source=T("try ${{ attempt.number }} of ${{ inputs.n }}"))
    step = s("a", action=action, inputs=given(n="x"), retry=Retry(limit=3, backoff=PLAIN), cache=Cache())
    ran = run(tmp_path, flow(step), lambda order: FAILED if order.attempt < 3 else None)
    assert [order.action.source for order in ran.orders] == ["try 0 of x", "try 1 of x", "try 2 of x"]  # type: ignore[union-attr]


def test_a_try_whose_action_has_no_value_is_a_failed_try(tmp_path: Path) -> None:
    action = Script(source=E("params.words[attempt.number]"))
    step = s("a", action=action, retry=Retry(limit=5, backoff=PLAIN))
    ran = run(tmp_path, flow(step, params=(Parameter(name="words", default=("x", "y")),)), failing("a"))
    assert [order.action.source for order in ran.orders] == ["x", "y"]  # type: ignore[union-attr]
    assert ran.state == "failed"
    assert ran.rows["a"].state == "errored"


@pytest.mark.parametrize(
    "retry, tries",
    [
        (Retry(limit=9, backoff=PLAIN, within=35), 3),
        (Retry(limit=9, backoff=PLAIN, within=4), 1),
        (Retry(limit=2, backoff=PLAIN, within=1000), 3),
        (Retry(limit=9, backoff=PLAIN, when=E("attempt.number < 3 && attempt.seconds > 4.0")), 3),
        (Retry(limit=9, backoff=PLAIN, when=E("attempt.seconds > 6.0")), 1),
        (Retry(limit=9, backoff=PLAIN, when=E("attempt.exit_code == 7 && attempt.number <= 1")), 2),
    ],
)
def test_when_it_is_not_tried_any_more(tmp_path: Path, retry: Retry, tries: int) -> None:
    """Each try takes five seconds, and ten pass between them."""
    broken = AttemptEnded(id="", outcome=FAILED, exit_code=7, message="broken", seconds=5.0)
    ran = run(tmp_path / "a", flow(s("a", retry=retry)), lambda order: (5.0, broken))
    assert len(ran.orders) == tries
    if "exit_code" not in str(retry.when):
        inner = Workflow(name="inner", steps=(s("x"),))
        ran = run(
            tmp_path / "b", flow(call("c", "inner", retry=retry), definitions=(inner,)), lambda order: (5.0, broken)
        )
        assert len(ran.orders) == tries


def test_the_time_for_tries_goes_on_over_a_crash(tmp_path: Path) -> None:
    from tests.engine.test_locks import adopt

    work = flow(s("a", retry=Retry(limit=9, backoff=PLAIN, within=40)))
    yard = Yard(tmp_path / ".penstock")

    async def main(yard: Yard) -> Any:
        doomed = yard.go(yard.engine(lambda order: (5.0, FAILED)))
        live = yard.submit(doomed, work)
        await asyncio.sleep(8)
        await yard.die(doomed)
        await asyncio.sleep(20)
        return adopt(yard.go(yard.engine(lambda order: (5.0, FAILED))), live, work)

    live = yard.play(main)
    assert live.status == "failed"
    assert len(yard.times(live.record.id, "a")) == 2, "at 0 and at 28 s; the next would be after 43"


# -- what the author holds to be the same -----------------------------------------------------------------------------------


def memo(name: str, key: Any, *needs: str, **fields: Any) -> Step:
    fields.setdefault("outputs", (Output(name="x", type=STR),))
    return s(name, *needs, cache=Cache(key=key, ttl=fields.pop("ttl", None)), **fields)


def numbered(order: AttemptSpec) -> Any:
    return {"x": order.id} if order.step.outputs else None


def test_what_has_the_same_key_is_the_same_whatever_it_does(tmp_path: Path) -> None:
    http = memo("c", "k", "b", action=Http(url="http://nowhere"))
    work = flow(
        memo("a", T("k${{ inputs.i }}"), inputs=given(i="")),
        memo("b", "k", "a", action=Script(source="something else")),
        http,
        memo("d", "other", "c"),
        outputs=tuple(Output(name=name, value=E(f"steps.{name}.outputs.x")) for name in "abcd"),
    )
    ran = run(tmp_path, work, numbered)
    assert ran.states == {"a": "succeeded", "b": "reused", "c": "reused", "d": "succeeded"}
    assert ran.outputs["a"] == ran.outputs["b"] == ran.outputs["c"] != ran.outputs["d"]


def test_the_key_holds_from_run_to_run_until_it_is_too_old(tmp_path: Path) -> None:
    yard = Yard(tmp_path / ".penstock")
    work = flow(memo("a", "k", ttl=100.0))

    async def main(yard: Yard) -> Any:
        engine = yard.go(yard.engine(numbered))
        states = []
        for _ in range(3):
            live = yard.submit(engine, work, fresh=False)
            await asyncio.sleep(60)
            row = engine.store.runs.task(live.number, "a")
            assert row is not None
            states.append(row.state)
        return states

    assert yard.play(main) == ["succeeded", "reused", "succeeded"]


def test_two_that_have_the_same_key_at_the_same_time_are_computed_once(tmp_path: Path) -> None:
    each = ForEach(axes=({"i": (1, 2, 3)},))
    ran = run(tmp_path, flow(memo("a", "k", each=each, inputs=given(i=E("item.i")))), lambda order: (5.0, {"x": "y"}))
    assert len(ran.orders) == 1
    assert sorted(ran.states.values()) == ["reused", "reused", "succeeded"]


def test_a_key_without_a_value_is_an_error_of_the_task(tmp_path: Path) -> None:
    ran = run(tmp_path, flow(memo("a", E("params.m.x"), inputs=given(i=1)), params=(Parameter(name="m", default={}),)))
    assert ran.states["a"] == "errored"


def test_an_exit_handler_with_a_key_runs_each_time(tmp_path: Path) -> None:
    ran = run(tmp_path, flow(memo("a", "k"), on_exit=(memo("z", "k"),)), numbered)
    assert ran.states == {"a": "succeeded", "z": "succeeded"}


# -- what is laid for it, and where it runs ---------------------------------------------------------------------------------

MOUNT = Mount(
    name="m",
    path="/m",
    scope="given",
    sub_path=T("of/${{ inputs.i }}"),
    files={"a": T("${{ params.p }} ${{ run.id }}"), "b": "plain", "c": E("1 + 1")},
)


def test_a_backend_gets_mounts_as_plain_text(tmp_path: Path) -> None:
    params = (Parameter(name="p", default="v"),)
    ran = run(tmp_path, flow(s("a", mounts=(MOUNT,), inputs=given(i=7)), params=params))
    (mount,) = ran.order("a").step.mounts
    assert mount.sub_path == "of/7"
    assert mount.files == {"a": f"v {ran.live.record.id}", "b": "plain", "c": "2"}


def test_a_mount_without_a_value_is_an_error_of_the_task(tmp_path: Path) -> None:
    mount = Mount(name="m", path="/m", files={"a": E("params.p.x")})
    ran = run(tmp_path, flow(s("a", mounts=(mount,)), params=(Parameter(name="p", default={}),)))
    assert ran.states["a"] == "errored"


def test_what_is_mounted_is_part_of_what_is_the_same(tmp_path: Path) -> None:
    def one(name: str, text: Any, **fields: Any) -> Step:
        mount = Mount(name="m", path="/m", files={"a": text}, **fields)
        return s(name, mounts=(mount,), action=Script(source="x"), cache=Cache())

    work = flow(one("a", "1"), one("b", "2"), params=(Parameter(name="p", default="1"),))
    assert set(run(tmp_path / "a", work).states.values()) == {"succeeded"}
    dynamic = flow(one("a", E("params.p")), one("b", T("${{ params.p }}2")), params=work.params)
    assert set(run(tmp_path / "b", dynamic).states.values()) == {"succeeded"}
    shared = flow(one("a", "1", scope="run"), one("b", "1", scope="run"))
    ran = run(tmp_path / "c", shared)
    assert set(ran.states.values()) == {"succeeded"}, "it reads and leaves what is not in its inputs"
    assert not ran.rows["a"].key


def test_the_folders_that_tasks_share_go_with_the_run_unless_it_failed(tmp_path: Path) -> None:
    for state, script in (("succeeded", None), ("failed", FAILED)):
        place = tmp_path / state

        def leave(order: AttemptSpec, place: Path = place, answer: Any = script) -> Any:
            (place / ".penstock" / "work" / order.run / "volumes" / "m").mkdir(parents=True)
            return answer

        ran = run(place, flow(s("a", mounts=(Mount(name="m", path="/m", scope="run"),))), leave)
        assert ran.state == state
        assert (place / ".penstock" / "work" / ran.live.record.id / "volumes").exists() == (state == "failed")


def pod(*images: str | None) -> Step:
    parts = tuple(Part(name=f"p{number}", image=image, command=("c",)) for number, image in enumerate(images))
    return s("a", action=Pod(parts=parts))


@pytest.mark.parametrize(
    "on, step, lane, variant",
    [
        ({}, pod("i"), "container", ""),
        ({}, pod(None, "i"), "container", ""),
        ({}, pod(None, None), "process", ""),
        ({"container": "process"}, pod("i"), "process", "on the host "),
        ({"container": "process"}, pod(None), "process", ""),
        ({"pod": "fake"}, pod("i"), "fake", None),
        ({"container": "fake"}, pod("i"), "fake", None),
        ({"script": "fake"}, pod(None), "fake", None),
        ({"container": "process"}, s("b", action=Container(image="i")), "process", "on the host "),
    ],
)
def test_where_a_pod_runs(on: dict[str, str], step: Step, lane: str, variant: str | None) -> None:
    pool = BackendPool(mock.Mock(), on)
    assert (pool.lane_of(step), pool.variant_of(step)) == (lane, variant)


def test_a_pod_gets_its_texts_with_their_values(tmp_path: Path) -> None:
    parts = (
        Part(name="p", image=T("i:${{ inputs.v }}"), command=("c", E("inputs.v")), env={"K": E("params.k")}),
        Part(
            name="q",
            source=T("echo ${{ attempt.number }}"),
            when=({"input": E("inputs.v"), "operator": "in", "values": ("1",)},),
        ),
    )
    work = flow(s("a", action=Pod(parts=parts), inputs=given(v="1")), params=(Parameter(name="k", default="w"),))
    action = run(tmp_path, work).order("a").action
    assert isinstance(action, Pod)
    first, second = action.parts
    assert (first.image, first.command, first.env) == ("i:1", ("c", "1"), {"K": "w"})
    assert (second.source, second.when) == ("echo 0", ({"input": "1", "operator": "in", "values": ["1"]},))


def fibonacci(n: int, **fields: Any) -> Workflow:
    """Calls itself twice; by its key each number is computed once."""
    here = given(n=E("params.n"))
    smaller = (Output(name="x", type=INT),)
    half = Workflow(
        name="fib",
        params=(Parameter(name="n", type=INT),),
        steps=(
            s("one", inputs=here, outputs=smaller, when=E("params.n > 2")),
            call(
                "a",
                "fib",
                when=E("params.n > 2"),
                inputs=given(n=E("steps.one.outputs.x - 1")),
                cache=Cache(key=T("fib-${{ inputs.n }}")),
            ),
            call(
                "b",
                "fib",
                "a",
                when=E("params.n > 2"),
                inputs=given(n=E("steps.one.outputs.x - 2")),
                cache=Cache(key=T("fib-${{ inputs.n }}")),
            ),
        ),
        outputs=(Output(name="f", type=INT, value=E("params.n > 2 ? steps.a.outputs.f + steps.b.outputs.f : 1")),),
    )
    first = call("first", "fib", inputs=given(n=n), cache=Cache(key=T("fib-${{ inputs.n }}"), **fields))
    return flow(first, definitions=(half,), outputs=(Output(name="f", type=INT, value=E("steps.first.outputs.f")),))


def test_a_call_whose_result_is_known_is_not_entered(tmp_path: Path) -> None:
    ran = run(tmp_path, fibonacci(12), lambda order: {"x": order.inputs["n"]})
    assert ran.outputs == {"f": 144}
    assert len(ran.orders) == 10, "each number once"
    assert ran.states["first/b"] == "reused"
    assert not any(path.startswith("first/b/") for path in ran.states)


def test_calls_that_are_known_one_after_the_other(tmp_path: Path) -> None:
    one = Workflow(name="one", steps=(s("x"),))
    names = [f"c{number}" for number in range(9)]
    calls = [call(name, "one", *([names[at - 1]] if at else []), cache=Cache(key="k")) for at, name in enumerate(names)]
    ran = run(tmp_path, flow(*calls, definitions=(one,)))
    assert ran.state == "succeeded"
    assert len(ran.orders) == 1


def test_a_call_whose_result_was_removed_is_entered_after_all(tmp_path: Path) -> None:
    from tests.engine.test_locks import adopt

    yard = Yard(tmp_path / ".penstock")
    tail = s("tail", "first", "second")
    again = call("second", "fib", "first", inputs=given(n=3), cache=Cache(key="fib-3"))
    work = fibonacci(3)
    work = Workflow(name="w", steps=(*work.steps, again, tail), definitions=work.definitions)

    def script(order: AttemptSpec) -> Any:
        return 50.0 if order.step.name == "tail" else {"x": order.inputs["n"]}

    async def main(yard: Yard) -> Any:
        doomed = yard.go(yard.engine(script))
        live = yard.submit(doomed, work, fresh=False)
        await asyncio.sleep(5)
        await yard.die(doomed)
        doomed.store._db.statement("DELETE FROM results")
        return adopt(yard.go(yard.engine(script)), live, work)

    live = yard.play(main)
    assert live.status == "succeeded"
    with open_store(yard.where) as store:
        assert {row.task: row.state for row in store.runs.tasks(live.number)}["second/one"] == "succeeded"
