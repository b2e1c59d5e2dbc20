"""Runs and batches for the tests of the store, and what its processes do. Spoken of by name, so that a process can be
started with it: `python -m tests.store.work VERB WHERE …`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from penstock.store.records import RunRecord, WriteBatch
from penstock.store.sql import Store, open_store


def new_run(store: Store, workflow: str = "flow", owner: str | None = None) -> RunRecord:
    run = store.runs.create(workflow, f"digest-of-{workflow}", '{"steps":[]}', {"n": 1}, {"file": "f.py"}, "me", 100.0)
    if owner is not None:
        assert store.runs.take(run.number, owner, None)
    return run


def event_count(store: Store, run: int) -> int:
    return sum(1 for _ in store.runs.events(run))


def batch(run: int, seqs: Iterable[int], state: str = "running") -> WriteBatch:
    """An event, a task row and a result for each number."""
    made, last = WriteBatch(), 1
    for last in seqs:
        task = f"t[{last}]"
        made.events.append((run, last, 100.0 + last, "task.succeeded", task, json.dumps({"n": last})))
        made.tasks[run, task] = (
            run,
            task,
            "t",
            "succeeded",
            1,
            f"key-{run}-{last}",
            1.0,
            2.0 + last,
            '{"exit_code":0}',
        )
        made.results.append((f"key-{run}-{last}", json.dumps({"out": last}), run, task, 5.0))
    made.runs[run] = (last, state, None, json.dumps({"succeeded": last}), None, "", 0)
    return made


def write(store: Store, made: WriteBatch, engine: str) -> None:
    store.journal.begin()
    store.journal.flush(made, engine)
    store.journal.commit()


def start(verb: str, where: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store.work", verb, where, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def processes(verb: str, where: str, count: int, *args: object) -> list[list[Any]]:
    """Runs the verb in so many processes, which begin their work at the same moment, and returns what each printed."""
    started = [start(verb, where, n, *args) for n in range(count)]
    for process in started:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    said = []
    for process in started:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        said.append([json.loads(line) for line in out.splitlines()])
    return said


def open_many(where: str, me: str) -> None:
    with ready(), open_store(where) as store:
        print(json.dumps(store.id))


def create_many(where: str, me: str, count: str) -> None:
    with open_store(where) as store, ready():
        for n in range(int(count)):
            run = new_run(store, ("one", "other")[n % 2])
            print(json.dumps([run.number, run.id]))


def claim_all(where: str, me: str, run: str, count: str) -> None:
    """Claims all keys in pieces, in an order of its own, and says which it got."""
    engine = f"engine-{me}"
    with open_store(where) as store, ready():
        keys = [f"shared-{n}" for n in range(int(count))]
        turn = int(me) * 7 % len(keys)
        keys = keys[turn:] + keys[:turn]
        for start in range(0, len(keys), 10):
            piece = keys[start : start + 10]
            store.journal.begin()
            found = store.results.claim([(key, int(run), f"{me}-{key}") for key in piece], engine)
            store.journal.commit()
            for key, what in found.items():
                print(json.dumps([key, what.holder.engine if what.holder else engine]))


def compute_all(where: str, me: str, count: str) -> None:
    """Goes through all keys, in an order of its own, until each has a result, and says which it has computed."""
    engine = f"engine-{me}"
    hold = int(me) % 2 == 0
    with open_store(where) as store, ready():
        left = [f"shared-{n}" for n in range(int(count))]
        while left:
            turn = int(me) * 5 % len(left)
            left = left[turn:] + left[:turn]
            piece = left[:5]
            store.journal.begin()
            found = store.results.claim([(key, 1, f"{me}-{key}") for key in piece], engine, hold=hold)
            mine = [key for key, what in found.items() if not what.result and not what.holder]
            if hold:
                store.journal.commit()
                store.journal.begin()
            rows = [(key, "{}", 1, me, 1.0) for key in mine]
            served = [(key, 1, f"{me}-{key}") for key in piece]
            store.journal.flush(WriteBatch(results=rows, released=mine, served=served), engine)
            store.journal.commit()
            for key in mine:
                print(json.dumps(key))
            left = [key for key in left if key not in mine and not (key in found and found[key].result)]


def die(where: str, me: str, run: str) -> None:
    """Writes, and waits in the middle of the transaction to be killed."""
    with open_store(where) as store:
        store.journal.begin()
        store.journal.flush(batch(int(run), [2, 3]), "e")
        store.results.claim([("k", int(run), "t")], "e")
        with ready():
            pass


class ready:
    """Says that everything is imported, and waits for the start signal."""

    def __enter__(self) -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {"open": open_many, "create": create_many, "claim": claim_all}
    verbs |= {"compute": compute_all, "die": die}
    verbs[sys.argv[1]](*sys.argv[2:])
