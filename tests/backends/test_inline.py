"""Functions called in the engine's own process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.local.inline import InlineBackend
from penstock.graph.model import Function, Outcome
from tests.backends import deeds
from tests.backends.harness import Play, bundle_of, function_step, play, spec_of
from tests.support.speed import within


def inline(tmp_path: Path, tale: Callable[[Play], None], *functions: Callable[..., Any]) -> None:
    steps = [function_step(function) for function in functions]
    known = {
        (step.action.module, step.action.name, step.action.code): function
        for step, function in zip(steps, functions, strict=True)
        if isinstance(step.action, Function)
    }

    async def main(play: Play) -> None:
        tale(play)

    play(tmp_path, InlineBackend, main, functions=known)


def test_a_function_is_called_here_and_now(tmp_path: Path) -> None:
    def tale(play: Play) -> None:
        ended = play.backend.call(spec_of(function_step(deeds.add, "int"), {"a": 1, "b": 2}))
        assert (ended.outcome, ended.outputs, ended.log) == (Outcome.SUCCEEDED, {"result": 3}, ())
        assert play.backend.call(spec_of(function_step(deeds.pid, "int"))).outputs["result"] == os.getpid()

    inline(tmp_path, tale, deeds.add, deeds.pid)
    assert not (tmp_path / "logs").exists()


def test_what_it_prints_is_its_log_and_goes_nowhere_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shout(text: str) -> None:
        print(text)
        print("more", file=sys.stderr)
        sys.stdout.buffer.write(b"bytes\n")

    def tale(play: Play) -> None:
        for text in ("one", "two"):
            ended = play.backend.call(spec_of(function_step(shout), {"text": text}, task=f"shout[{text}]"))
            assert play.text(ended) == f"{text}\nmore\nbytes\n"
        print("ours")

    inline(tmp_path, tale, shout)
    assert capsys.readouterr().out == "ours\n"


def test_failures_are_told_as_everywhere(tmp_path: Path) -> None:
    def tale(play: Play) -> None:
        ended = play.backend.call(spec_of(function_step(deeds.boom)))
        assert (ended.outcome, ended.exception, ended.message) == (
            Outcome.FAILED,
            "ValueError",
            "ValueError: a bad day",
        )
        assert "raise ValueError" in ended.traceback and "inline.py" not in ended.traceback
        ended = play.backend.call(spec_of(function_step(deeds.leaves), {"code": 3}))
        assert ended.message == "the function called sys.exit(3)"
        ended = play.backend.call(spec_of(function_step(deeds.wrong_type, "int")))
        assert ended.message == "what it returned is 'seven', which is not int"

    inline(tmp_path, tale, deeds.boom, deeds.leaves, deeds.wrong_type)


def test_the_users_interrupt_is_not_a_failure_of_the_task(tmp_path: Path) -> None:
    def tale(play: Play) -> None:
        with pytest.raises(KeyboardInterrupt):
            play.backend.call(spec_of(function_step(deeds.interrupts)))
        assert sys.stdout is not None and play.backend.call(spec_of(function_step(deeds.add), {"a": 1, "b": 1}))

    inline(tmp_path, tale, deeds.interrupts, deeds.add)


def test_a_function_that_is_not_at_hand_is_loaded(tmp_path: Path) -> None:
    def tale(play: Play) -> None:
        step = function_step(deeds.configured, "float")
        spec = spec_of(step, {"config": {"rate": 2.0}}, bundle=bundle_of(step, blobs=play.blobs))
        assert play.backend.call(spec).outputs == {"result": 4.0}

    inline(tmp_path, tale)


def test_environment(tmp_path: Path) -> None:
    def tale(play: Play) -> None:
        step = function_step(deeds.env, env={"COLOUR": "red"})
        assert play.backend.call(spec_of(step, {"name": "COLOUR"})).outputs == {"result": "red"}
        assert play.backend.call(spec_of(function_step(deeds.env), {"name": "COLOUR"})).outputs == {"result": None}

    inline(tmp_path, tale, deeds.env)


def test_it_costs_next_to_nothing(tmp_path: Path) -> None:
    def tale(play: Play) -> None:
        spec = spec_of(function_step(deeds.add, "int"), {"a": 1, "b": 2})
        with within(20_000 * 20e-6):
            for _ in range(20_000):
                play.backend.call(spec)

    inline(tmp_path, tale, deeds.add)
