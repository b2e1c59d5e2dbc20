"""The scripted backend."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.values import load_value
from penstock.backends.base import AttemptEnded
from penstock.backends.fake import FakeBackend
from penstock.expressions.types import parse
from penstock.graph import model
from penstock.graph.model import Outcome, Output
from tests.backends.harness import Play, play, spec_of, types_of

STEP = model.Step(name="s", action=model.Script(source="true"), outputs=types_of({"n": "int", "xs": "list[int]"}))


def raises(spec: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("answer", "outcome", "outputs"),
    [
        (None, Outcome.SUCCEEDED, {"n": 0, "xs": []}),
        ({"n": 3}, Outcome.SUCCEEDED, {"n": 3, "xs": []}),
        (Outcome.FAILED, Outcome.FAILED, {}),
        (KeyError("x"), Outcome.FAILED, {}),
        (0.001, Outcome.SUCCEEDED, {"n": 0, "xs": []}),
        ((0.001, Outcome.ERRORED), Outcome.ERRORED, {}),
        ((0.001, {"n": 1}), Outcome.SUCCEEDED, {"n": 1, "xs": []}),
        (AttemptEnded(id="", outcome=Outcome.FAILED, exit_code=3), Outcome.FAILED, {}),
    ],
)
def test_it_does_as_it_is_told(tmp_path: Path, answer: Any, outcome: Outcome, outputs: dict[str, Any]) -> None:
    async def tale(play: Play) -> None:
        spec = spec_of(STEP)
        ended = await play.one(spec)
        assert (ended.id, ended.outcome, ended.outputs) == (spec.id, outcome, outputs)
        assert play.backend.specs == [spec] and play.began(spec.id)

    play(tmp_path, lambda context: FakeBackend(context, lambda spec: answer), tale)


def test_a_script_that_raises_is_a_task_that_fails(tmp_path: Path) -> None:
    async def tale(play: Play) -> None:
        ended = await play.one(spec_of(STEP))
        assert (ended.exception, ended.message) == ("ValueError", "ValueError: no")

    play(tmp_path, lambda context: FakeBackend(context, raises), tale)


def test_it_can_be_stopped_and_is_full_when_it_is_full(tmp_path: Path) -> None:
    async def tale(play: Play) -> None:
        specs = [spec_of(STEP, task=f"s[{n}]") for n in range(2)]
        assert play.backend.room() == 2
        play.backend.start(specs)
        assert play.backend.room() == 0
        play.backend.stop(specs[0].id, 5)
        (ended,) = await play.end_of(specs[0])
        assert ended.outcome is Outcome.CANCELLED and play.backend.stopped == [specs[0].id]
        await asyncio.sleep(0)
        assert play.ended(specs[1].id) is None and play.backend.most == 2

    play(tmp_path, lambda context: FakeBackend(context, lambda spec: 3600), tale)


def test_a_pod_gives_an_empty_value_of_every_type(tmp_path: Path) -> None:
    names = "any null bool int float str file dir object list[int] dict[str] optional[int] tuple[int,file]".split()
    outputs = tuple(Output(name=f"o{number}", type=parse(name)) for number, name in enumerate(names))
    step = model.Step(name="s", action=model.Pod(parts=(model.Part(name="a", image="x"),)), outputs=outputs)

    async def tale(play: Play) -> None:
        ended = await play.one(spec_of(step))
        *found, both = ended.outputs.values()
        file, folder = found[6:8]
        assert found == ["", None, False, 0, 0.0, "", file, folder, None, [], {}, None] and both == [0, file]
        assert load_value(file, play.blobs, tmp_path / "x").read_bytes() == b""
        assert list(load_value(folder, play.blobs, tmp_path / "x").iterdir()) == []
        again = await play.one(spec_of(step, attempt=2))
        assert again.outputs == ended.outputs
        again.outputs["o9"].append(1)
        assert (await play.one(spec_of(step, attempt=3))).outputs["o9"] == []

    play(tmp_path, FakeBackend, tale)
