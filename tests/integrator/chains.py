"""What the tests of chains share: workflows of one step, and an engine's part played by hand, so that ends come in any order."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock import Chain, ScriptJob, Workflow, WorkflowParam
from penstock.engine import follow
from penstock.service.chains.delivery import LinkDelivery
from penstock.service.submission import Submission
from penstock.settings import Settings, read
from penstock.store import liveness
from penstock.store.records import RunRecord, WriteBatch
from penstock.store.sql import Store, open_store

ME = liveness.identity()


def work(name: str, **more: Any) -> Workflow:
    """Has a parameter `x` and an output `x`."""
    job = ScriptJob(f"{name}-work", "true", outputs=[WorkflowParam("x", default=1)])
    params = [WorkflowParam("x", default=0)]
    return Workflow(name, [job], params=params, outputs={"x": job.outputs["x"]}, **more)


def settings_of(home: Path, where: str, links: int = 1000) -> Settings:
    store = where if "://" in where else str(home)
    return read({"PENSTOCK_LINKS": str(links)}, home=home, store=store, jobs=2)


def begin(store: Store, chain: Chain | Workflow, **options: Any) -> RunRecord:
    submission = Submission(chain.graph, {}, person=options.pop("person", "ann"), place="/", **options)
    return submission.record(store)


def end(store: Store, number: int, state: str = "succeeded", outputs: str = '{"x":1}', again: bool = False) -> None:
    """As an engine ends a run, with what follows in the same transaction. `again`: it had ended, and is retried."""
    run = store.runs.by_number(number)
    assert run is not None
    assert store.runs.take(number, "e", run.engine)
    kept, invalid = ("failed", True) if state == "invalid" else (state, False)
    batch = WriteBatch()
    seq = run.seq
    if again:
        seq += 1
        batch.events.append((number, seq, 1.0, "run.retried", "", "{}"))
    seq += 1
    batch.events.append((number, seq, 2.0, "run.finished", "", "{}"))
    said = outputs if kept == "succeeded" else "{}"
    error = "" if kept == "succeeded" else "Broken: on purpose"
    batch.runs[number] = (seq, kept, 2.0, "{}", said, error, int(invalid))
    batch.outbox += follow.rows(number, run.id, seq, state, run.options, 2.0)
    store.journal.begin()
    store.journal.flush(batch, "e")
    store.journal.commit()
    assert store.runs.release(number, "e", kept)


def deliver(store: Store, settings: Settings) -> int:
    """As a courier does what is due. Returns how many rows it took."""
    taken = store.outbox.take("link", ME, 3.0, 100)
    LinkDelivery(settings, lambda: 3.0).deliver(store, taken)
    return len(taken)


def runs_of(store: Store) -> dict[str, list[RunRecord]]:
    """By workflow, in their order."""
    found: dict[str, list[RunRecord]] = {}
    for run in reversed(store.runs.newest()):
        found.setdefault(run.workflow, []).append(run)
    return found


def states(store: Store, head: int) -> dict[str, str]:
    return {name: row.state for name, row in store.links.of_head(head).items() if name}


# -- a courier that is killed -----------------------------------------------------------------------------------------

POINTS = ("taken", "planned", "locked", "recorded", "ordered", "settled", "committed")
"""Where the process of a courier dies: before and after each thing that it does."""


def _killed() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(point: str, home: str, where: str, run: int) -> None:
    """Does what follows from a run, and is killed at that point, for good."""
    settings = settings_of(Path(home), where)
    store = open_store(where)
    delivery = LinkDelivery(settings)
    links, runs, outbox = store.links, store.runs, store.outbox
    plan, put, create, settle = delivery.plan, store.orders.put, runs.create, outbox.settle

    def after(what: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            what(*args, **kwargs)
            _killed()

        return call

    if point == "taken":
        delivery.plan = lambda *_: _killed()  # type: ignore[method-assign]
    elif point == "planned":
        delivery.plan = after(plan)  # type: ignore[method-assign]
    elif point == "locked":
        delivery.record = lambda *_: _killed()  # type: ignore[method-assign]
    elif point == "recorded":
        runs.create = after(create)  # type: ignore[method-assign]
    elif point == "ordered":
        store.orders.put = after(put)  # type: ignore[method-assign]
    elif point == "settled":
        outbox.settle = after(settle)  # type: ignore[method-assign]
    elif point == "committed":
        links.deciding = after(links.deciding)  # type: ignore[method-assign]
    delivery.deliver(store, [one for one in outbox.take("link", liveness.identity(), 3.0, 100) if one.run == run])


if (
    __name__ == "__main__"
):  # HOME STORE RUN..., one run for each point; a process that has loaded everything forks one that dies
    for place, number in zip(POINTS, sys.argv[3:], strict=True):
        child = os.fork()
        if not child:
            die_at(place, sys.argv[1], sys.argv[2], int(number))
            os._exit(1)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            sys.exit(f"it was not killed: {place}")
