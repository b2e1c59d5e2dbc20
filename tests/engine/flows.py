"""Workflows for the tests of crashes, sharing and the soak. Run by driver.py and by the tests themselves.

Every task writes a line when it starts, its own path, to the file `notes`, which all processes append to: who ran how often
is seen there and nowhere else. It stands by itself, because it is packed and shipped to workers.
"""

from __future__ import annotations

import os
import time

from penstock import Backoff, Retry, ScriptJob, Workflow, WorkflowParam, for_loop, task, workflow

AGAIN = Retry(limit=9, backoff=Backoff(initial=0.005, factor=1.0, jitter=0.5))


def note(notes: str, line: str) -> None:
    fd = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def lines(notes: str, line: str) -> int:
    with open(notes, encoding="utf-8") as file:
        return sum(one.rstrip("\n") == line for one in file)


# One after the other.


@task
def hop(notes: str, here: str, x: int) -> int:
    note(notes, here)
    time.sleep(0.003)
    return x + 1


@workflow
def chain(notes: str):
    x = hop(notes, "hop", 0)
    x = hop(notes, "hop-2", x)
    x = hop(notes, "hop-3", x)
    x = hop(notes, "hop-4", x)
    x = hop(notes, "hop-5", x)
    x = hop(notes, "hop-6", x)
    return hop(notes, "hop-7", x)


# Out and in again, through the queue of this machine. Each value is too large for a record, and is kept beside it.


@task
def shards(notes: str, n: int) -> list[int]:
    note(notes, "shards")
    return list(range(n))


@task(cpu=0.5)
def work(notes: str, i: int) -> str:
    note(notes, f"work[{i}]")
    time.sleep(0.002 * (i % 4))
    return str(i) * 20_000


@task(cpu=1)
def total(notes: str, xs: list[str]) -> int:
    note(notes, "total")
    return sum(map(len, xs))


@workflow
def fan(notes: str, n: int = 10):
    return total(notes, [work(notes, i) for i in shards(notes, n)])


# Workflows in a loop, with a loop of their own.


@task
def begin(notes: str, where: str) -> int:
    note(notes, f"{where}begin")
    return 0


@task
def grow(notes: str, where: str, x: int) -> int:
    note(notes, f"{where}while-y#{x + 1}/grow")
    time.sleep(0.002)
    return x + 1


@workflow
def inner(notes: str, where: str):
    y = begin(notes, where)
    while y < 3:
        y = grow(notes, where, y)
    return y


@task
def add(notes: str, xs: list[int]) -> int:
    note(notes, "add")
    return sum(xs)


@workflow
def nested(notes: str):
    return add(notes, [inner(notes, f"inner[{i}]/") for i in [0, 1, 2]])


# Tasks that fail twice before they succeed.


@task(retry=AGAIN)
def flaky(notes: str, here: str, x: int) -> int:
    note(notes, here)
    if lines(notes, here) <= 2:
        raise RuntimeError("not yet")
    return x + 1


@task(retry=AGAIN, cache=False)
def moody(notes: str, i: int) -> int:
    note(notes, f"moody[{i}]")
    if lines(notes, f"moody[{i}]") <= 2:
        raise RuntimeError("not yet")
    return i


@workflow
def retries(notes: str):
    x = flaky(notes, "flaky", 0)
    xs = [moody(notes, i) for i in [0, 1, 2]]
    return add(notes, [flaky(notes, "flaky-2", x), xs[2]])


# Commands.

_notes = WorkflowParam("notes", str)
_say = 'echo "$PENSTOCK_TASK" >> ${{ params.notes }}\n'
_until = "i=0; while [ ! -e ${{ params.go }} ] && [ $i -lt 3000 ]; do sleep 0.01; i=$((i+1)); done\n"


def commands() -> Workflow:
    first = ScriptJob("first", _say + "sleep 0.01; echo 3 > $PENSTOCK_OUTPUTS/n", outputs=[WorkflowParam("n", int)])

    @for_loop(i=[0, 1, 2, 3])
    def each(i: object) -> ScriptJob:
        source = _say + f"sleep 0.00{i}; expr {i} + {first.outputs['n']} > $PENSTOCK_OUTPUTS/m"
        return ScriptJob("each", source, outputs=[WorkflowParam("m", int)])

    # The one that runs on is left behind when its engine is killed, and must not outlive the run.
    long = ScriptJob("long", _say + "sleep 0.05 & sleep 0.03; wait", cache=False)
    words = " ".join(f"${{{{ steps.each.outputs.m[{i}] }}}}" for i in range(4))
    source = _say + f"s=0; for n in {words}; do s=$((s + n)); done; echo $s > $PENSTOCK_OUTPUTS/s"
    last = ScriptJob("last", source, outputs=[WorkflowParam("s", int)])
    return Workflow("commands", [first, each, long, last], params=[_notes], outputs={"result": last.outputs["s"]})


# Some of everything.


@task
def same(notes: str) -> int:
    note(notes, "same")
    time.sleep(0.005)
    return 5


@task(cache=False)
def impure(notes: str, x: int) -> int:
    note(notes, "impure")
    return x


@task
def clean(notes: str) -> None:
    note(notes, "clean")


@task
def big(notes: str, x: int) -> bool:
    note(notes, "big")
    return x > 3


@task
def never(notes: str) -> int:
    note(notes, "never")
    return 0


command = ScriptJob("command", _say + "echo 7 > $PENSTOCK_OUTPUTS/n", inputs=[], outputs=[WorkflowParam("n", int)])


@workflow(on_exit=[clean.job(notes="${{ params.notes }}")])
def mixed(notes: str):
    x = same(notes)
    y = same(notes)
    seven = command()
    x = impure(notes, x)
    if big(notes, x):
        x = flaky(notes, "flaky", x)
    else:
        x = never(notes)
    xs = [inner(notes, f"inner[{i}]/") for i in [0, 1]]
    return add(notes, [x, y, seven, xs[0], xs[1]])


RESULTS = {
    "chain": 7,
    "fan": 10 * 20_000,
    "nested": 9,
    "retries": 4,
    "commands": 0 + 1 + 2 + 3 + 4 * 3,
    "mixed": 6 + 5 + 7 + 3 + 3,
}


# What two runs share. `heavy` runs until somebody makes the file `go`.


def wait(go: str) -> None:
    deadline = time.monotonic() + 30
    while not os.path.exists(go) and time.monotonic() < deadline:
        time.sleep(0.002)


@task
def heavy(notes: str, go: str) -> int:
    note(notes, "heavy")
    wait(go)
    if os.path.exists(f"{go}.fail"):
        raise ValueError("too heavy")
    return 42


@task(cache=False)
def alone(notes: str, go: str) -> int:
    note(notes, "alone")
    wait(go)
    return 42


@task
def light(notes: str, go: str) -> int:
    note(notes, "light")
    return 42


@task
def mine(notes: str, who: str, x: int) -> int:
    note(notes, f"mine {who}")
    return x


@workflow
def shared(notes: str, go: str, who: str):
    return mine(notes, who, heavy(notes, go))


@workflow
def unshared(notes: str, go: str, who: str):
    return mine(notes, who, alone(notes, go))


@workflow
def twice(notes: str, go: str, who: str):
    return add(notes, [heavy(notes, go), heavy(notes, go)])


@workflow
def quick(notes: str, go: str, who: str):
    return mine(notes, who, light(notes, go))


def shared_command() -> Workflow:
    source = _say + _until + "[ ! -e ${{ params.go }}.fail ] || exit 1\n"
    job = ScriptJob("heavy", source + "echo 42 > $PENSTOCK_OUTPUTS/n", outputs=[WorkflowParam("n", int)])
    params = [WorkflowParam("notes", str), WorkflowParam("go", str), WorkflowParam("who", str)]
    return Workflow("shared-command", [job], params=params, outputs={"result": job.outputs["n"]})


# Many runs at once, each of which needs some of the same things. All wait for one gate first, so that they are there at once.

KEYS = 40
gate = ScriptJob("gate", _say + _until + "echo 0 > $PENSTOCK_OUTPUTS/n", outputs=[WorkflowParam("n", int)])


@task
def item(notes: str, k: int, zero: int) -> int:
    note(notes, f"item {k}")
    return k + zero


@task
def double(notes: str, k: int, x: int) -> int:
    note(notes, f"double {k}")
    return 2 * x


@task(cache=False)
def own(notes: str, who: int, xs: list[int]) -> int:
    note(notes, f"own {who}")
    return sum(xs) + who


@task
def pair(notes: str, k: int) -> list[int]:
    note(notes, f"pair {k}")
    return [k, (k + 1) % 40]


@workflow
def soak(notes: str, go: str, who: int, keys: list[int]):
    zero = gate()
    doubled = [double(notes, k, item(notes, k, zero)) for k in keys]
    few = [item(notes, k, zero) for k in pair(notes, keys[0])]
    return own(notes, who, [doubled[0], doubled[1], doubled[2], doubled[3], few[0], few[1]])


def soak_keys(who: int) -> list[int]:
    return [(who * 3 + n) % KEYS for n in range(4)]


def soak_result(who: int) -> int:
    keys = soak_keys(who)
    return 2 * sum(keys) + keys[0] + (keys[0] + 1) % KEYS + who
