"""Runs for tests: flows that are executed in the test, and runs that the test records itself, as an engine would. Used by the tests of commands."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from penstock import Backoff, LocalRunner, Retry, task, workflow
from penstock.graph import codec
from penstock.graph.model import Workflow
from penstock.store import liveness
from penstock.store.records import RunRecord, WriteBatch
from penstock.store.sql import Store, open_store


@task
def prepare(n: int) -> list[int]:
    print(f"prepare {n}")
    return list(range(n))


@task
def train(x: int) -> int:
    print(f"loading shard {x}")
    if x == 3:
        raise ValueError("bad row 7")
    return x * x


@task
def total(xs: list[int]) -> int:
    return sum(xs)


@task(retry=Retry(limit=2, backoff=Backoff(initial=0.0, jitter=0)))
def flaky(n: int) -> int:
    print("try")
    raise OSError("still broken")


@workflow
def row(xs: list[int]) -> int:
    ys = [train(x) for x in xs]
    return total(ys)


@workflow
def fine(n: int = 3):
    xs = prepare(n)
    ys = [train(x) for x in xs]
    return total(ys)


@workflow
def broken(n: int = 5):
    xs = prepare(n)
    y = row(xs)
    flaky(n)
    while y < 100:
        y = total([y, 50])
    return y


@workflow
def deep(m: int = 2):
    xs = prepare(m)
    ys = [row(xs) for x in xs]
    return total(ys)


@workflow
def looped(start: int = 1):
    t = total([start])
    while t < 10:
        t = total([t, t])
    return t


def run(home: Path, flow: Any, **params: Any) -> Any:
    return LocalRunner(home=home, inline=True).run(flow, **params)


class Hand:
    """A run that the test itself writes, event by event."""

    def __init__(self, home: Path, graph: Workflow, params: dict[str, Any] | None = None, ago: float = 0.0) -> None:
        self.home = home
        self.store: Store = open_store(str(home))
        self.me = liveness.identity()
        self.store.peers.register(self.me)
        document = codec.to_json(graph)
        self.at = time.time() - ago
        made = self.store.runs.create(
            graph.name, codec.digest_of_text(document), document, params or {}, {}, "ana", self.at
        )
        assert self.store.runs.take(made.number, self.me.id, None)
        self.number, self.id = made.number, made.id
        self.batch = WriteBatch()
        self.seq = 1
        self.state = "running"
        self.ended: float | None = None
        self.outputs: dict[str, Any] | None = None
        self.counts: dict[str, str] = {}
        self.event("run.started", "", engine=self.me.id)

    def event(self, kind: str, task: str, **data: Any) -> None:
        self.seq += 1
        self.batch.events.append((self.number, self.seq, self.at, kind, task, json.dumps(data)))

    def task(self, path: str, step: str, state: str, attempt: int = 1, took: float | None = 1.0, **info: Any) -> None:
        over = state not in ("running", "waiting", "retrying", "suspended")
        start = None if took is None else self.at
        end = (self.at + (took or 0.0)) if over else None
        self.batch.tasks[self.number, path] = (
            self.number,
            path,
            step,
            state,
            attempt,
            "",
            start,
            end,
            json.dumps(info),
        )
        self.counts[path] = state

    def log(self, path: str, text: str, mode: str = "w") -> str:
        """Text in a file of the home; its name."""
        name = f"logs/{self.id}/{path}.log"
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, mode, newline="") as out:
            out.write(text)
        return name

    def finish(self, state: str, took: float = 2.0, **outputs: Any) -> None:
        self.state, self.ended, self.outputs = state, self.at + took, outputs
        self.event("run.finished", "", outcome=state)

    def write(self) -> RunRecord:
        counts: dict[str, int] = {}
        for state in self.counts.values():
            counts[state] = counts.get(state, 0) + 1
        outputs = None if self.outputs is None else json.dumps(self.outputs)
        self.batch.runs[self.number] = (self.seq, self.state, self.ended, json.dumps(counts), outputs, "", 0)
        self.store.journal.begin()
        self.store.journal.flush(self.batch, self.me.id)
        self.store.journal.commit()
        self.batch.clear()
        found = self.store.runs.by_number(self.number)
        assert found is not None
        return found

    def die(self) -> None:
        """The engine is gone, and nobody has noticed."""
        self.write()
        self.store.peers.forget(self.me.id)
        self.store.close()

    def close(self) -> None:
        self.write()
        self.store.close()
