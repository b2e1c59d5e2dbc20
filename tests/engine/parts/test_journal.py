"""Journal: a batch is written once, whatever happens to the connection."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.journal import Journal
from penstock.store.records import Disconnected


class Flaky:
    """A store whose connection breaks when the test says so. Keeps what was committed."""

    alone = True

    def __init__(self, breaks: dict[str, int] | None = None, done: bool = False) -> None:
        self.breaks = dict(breaks or {})
        self.done = done
        """What broke in a commit had been committed all the same."""
        self.calls: list[str] = []
        self.written: list[Any] = []
        self.decisions = 0

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.breaks.get(name, 0) > 0:
            self.breaks[name] -= 1
            raise Disconnected

    def be_patient(self, seconds: float) -> None: ...

    def begin(self) -> None:
        self._call("begin")

    def flush(self, batch: Any, engine: str) -> None:
        self._call("flush")
        self.pending = (list(batch.events), dict(batch.workloads))

    def commit(self) -> None:
        try:
            self._call("commit")
        except Disconnected:
            if self.done:
                self.written.append(self.pending)
            raise
        if self.calls.count("flush") > len(self.written) and not (self.done and self.written):
            self.written.append(self.pending)

    def committed(self, run: int, seq: int) -> bool:
        self._call("committed")
        return self.done

    def reconnect(self, patience: float) -> None:
        self._call("reconnect")

    def next_decision(self) -> int:
        self._call("decision")
        self.decisions += 1
        return self.decisions


def filled(store: Flaky) -> Journal:
    journal = Journal(store, "me")
    journal.batch.events.append((1, 1, 0.0, "run.started", "", "{}"))
    journal.batch.runs[1] = (1, "running", None, "{}", None, "", 0)
    return journal


def test_a_batch_is_written_and_empty_afterwards() -> None:
    store = Flaky()
    journal = filled(store)
    journal.begin()
    assert journal.commit() is False
    assert len(store.written) == 1 and not journal.batch


@pytest.mark.parametrize("where", ["begin", "flush", "commit"])
def test_a_broken_connection_is_waited_for_and_the_batch_written_again(where: str) -> None:
    store = Flaky({where: 2})
    journal = filled(store)
    journal.begin()
    journal.commit()
    assert len(store.written) == 1 and "reconnect" in store.calls and not journal.batch


def test_a_commit_that_had_been_done_is_not_done_again() -> None:
    store = Flaky({"commit": 1}, done=True)
    journal = filled(store)
    journal.begin()
    journal.commit()
    assert len(store.written) == 1 and store.calls.count("flush") == 1


def test_a_transaction_makes_one_decision_and_a_repeated_one_gets_a_new_number() -> None:
    store = Flaky({"commit": 1})
    journal = filled(store)
    journal.begin()
    assert (journal.take_decision(), journal.take_decision()) == (1, None)
    journal.batch.workloads["w"] = ("w", 1, 1, "me", "held", "{}")
    assert journal.commit() is True, "others may have decided since"
    assert store.written[-1][1]["w"][1] == 2
    assert journal.take_decision() == 3, "the next transaction decides anew"


def test_a_read_is_asked_again() -> None:
    store = Flaky()
    journal = Journal(store, "me")
    answers = iter([Disconnected(), Disconnected(), "found"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert journal.read(ask) == "found" and store.calls.count("reconnect") == 2
