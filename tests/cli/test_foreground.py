"""Ctrl-C while a run is executed."""

from __future__ import annotations

import signal
from typing import Any, cast

import pytest

from penstock.cli import foreground
from penstock.cli.foreground import StopSignals
from penstock.service.runs import HostedRun
from tests.service.test_runs import session


class Recorder:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def abandon(self) -> None:
        self.calls.append("abandon")


def test_running_tasks_are_counted_while_the_engine_starts_more() -> None:
    notes: list[str] = []
    foreground._note_stopping(session(), notes.append)
    assert notes == ["stopping: waiting for 2 running tasks; Ctrl-C again ends now"]


def test_the_first_signal_interrupts_and_the_second_abandons() -> None:
    before = signal.getsignal(signal.SIGINT)
    recorder: Any = Recorder()
    with StopSignals() as signals:
        signals.started(cast(HostedRun, recorder))
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
    assert recorder.calls == ["interrupt", "abandon"] and signals.count == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_before_the_start_interrupts_at_the_start_and_a_second_raises() -> None:
    recorder: Any = Recorder()
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signals.started(cast(HostedRun, recorder))
    assert recorder.calls == ["interrupt"]
