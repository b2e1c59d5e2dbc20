"""A run that this process executes: what other threads may read of it while the engine changes it."""

from __future__ import annotations

from typing import Any, cast

from penstock.engine.active_run import ActiveRun
from penstock.graph.model import Script, Step, Workflow
from penstock.runners.notebook import page
from penstock.service.hosting import Host
from penstock.service.runs import HostedRun


class Growing(dict[str, Any]):
    """A dictionary to which another thread adds while it is iterated over in Python."""

    def __iter__(self) -> Any:
        for key in super().__iter__():
            self[f"{key}+"] = {}
            yield key

    def items(self) -> Any:
        return ((key, self[key]) for key in self)

    def values(self) -> Any:
        return (self[key] for key in self)


class Live:
    """As much of an ActiveRun as a HostedRun reads."""

    def __init__(self) -> None:
        self.status = "running"
        self.progress = Growing({"train": Growing({"running": 2, "tasks": 3})})
        self.times = Growing({"train": [1.0, 2.0]})
        self.prompts = Growing({"ok": "ship it?"})


def session() -> HostedRun:
    return HostedRun(cast(Host, None), cast(ActiveRun, Live()))


def test_progress_is_a_snapshot_that_the_engine_does_not_change() -> None:
    one = session()
    found = one.progress()
    assert found.tallies == {"train": {"running": 2, "tasks": 3}} and found.times == {"train": [1.0, 2.0]}
    one.live.progress["train"]["running"] = 0
    one.live.progress["new"] = {}
    assert found.tallies == {"train": {"running": 2, "tasks": 3}}


def test_questions_are_read_while_the_engine_adds_some() -> None:
    assert session().asking() == {"ok": "ship it?"}


def test_a_notebook_counts_tasks_while_the_engine_does() -> None:
    workflow = Workflow(name="w", steps=(Step(name="train", action=Script(source="true")),))
    assert "2 running" in page("w-1", workflow, *session().progress(), {})
