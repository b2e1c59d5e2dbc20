"""Running at size: chains and fan-outs of functions that do nothing, commands that do nothing, large blobs, and what is felt at the prompt.

The bare limits are what nobody can do without: recording each step in SQLite (WAL) from an asyncio loop, once with a commit for
each step and once with one for many; spawning the same commands; starting Python with the same standard libraries.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.measure import Figure, best

CHAIN = """
from penstock import FunctionJob, Workflow, task

@task
def step(x: int) -> int:
    return x + 1

def chain(n):
    jobs = []
    for i in range(n):
        jobs.append(FunctionJob(f"s{i}", step, {"x": jobs[-1].outputs["result"] if jobs else 0}))
    return Workflow("chain", jobs, outputs={"result": jobs[-1].outputs["result"]})
"""
FAN = """
from penstock import task, workflow

@task
def start() -> int:
    return 1

@task
def each(x: int, y: int) -> int:
    return x + y

@task
def gather(xs: list[int]) -> int:
    return len(xs)

@workflow
def fan(n: int):
    first = start()
    return gather([each(i, first) for i in range(n)])
"""
HELLO = """
from penstock import task, workflow

@task
def hello() -> str:
    return "hello, world"

@workflow
def greet():
    return hello()
"""


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, text in (("chain", CHAIN), ("fan", FAN), ("hello", HELLO)):
            (place / f"{name}_flow.py").write_text(textwrap.dedent(text).lstrip())
        (place / "chain_file.py").write_text("from chain_flow import chain\n\nflow = chain(1000)\n")
        sys.path.insert(0, folder)
        try:
            yield from _inline(place)
            yield from _workers(place)
            yield from _commands(place)
            yield from _blobs(place)
            yield from _prompt(place)
        finally:
            sys.path.remove(folder)


# -- functions inside the engine ---------------------------------------------------------------------------------------


def _inline(place: Path) -> Iterator[Figure]:
    single, grouped = (
        1e6 * best(lambda: _bare(place, 2000, 1)) / 2000,
        1e6 * best(lambda: _bare(place, 20_000, 500)) / 20_000,
    )
    yield Figure("bare asyncio + SQLite, a commit for each step", single, None, "µs")
    yield Figure("bare asyncio + SQLite, a commit for 500 steps", grouped, None, "µs")
    per_step: dict[tuple[str, int], float] = {}
    for shape, size, times in (
        ("chain", 1000, 7),
        ("fan-out", 1000, 7),
        ("chain", 10_000, 3),
        ("fan-out", 10_000, 3),
        ("fan-out", 100_000, 2),
    ):
        found = min(_child(place, shape, size)["seconds"] for _ in range(times))
        per_step[shape, size] = 1e6 * found / size
        bar = 120.0 if size == 1000 else 1.3 * per_step[shape, 1000]
        yield Figure(
            f"{shape} of {size:,} functions, durable, per step", per_step[shape, size], bar, "µs", single, "bare"
        )
    most = _child(place, "fan-out", 1_000_000)
    yield Figure(
        "fan-out of 1,000,000 functions, per step",
        1e6 * most["seconds"] / 1_000_000,
        None,
        "µs",
        grouped,
        "bare grouped",
    )
    yield Figure("  its memory", most["memory"] / 1e9, 1.5, "GB")
    disk = _child(place, "fan-out", 10_000)
    yield Figure("disk taken by a run of 10,000 tasks", disk["disk"] / 1e6, 25, "MB")


def _child(place: Path, shape: str, size: int, workers: bool = False) -> dict[str, Any]:
    """One run in a fresh process and store, the engine being up: seconds of LocalRunner.run, planning included; memory; disk."""
    home = place / "home"
    shutil.rmtree(home, ignore_errors=True)
    code = f"""
        import json, resource, sys, time
        sys.path.insert(0, {str(place)!r})
        from penstock import LocalRunner
        if {shape!r} == "chain":
            from chain_flow import chain
            flow, params = chain({size}), {{}}
        else:
            from fan_flow import fan
            flow, params = fan, {{"n": {size}}}
        flow.graph
        runner = LocalRunner(home={str(home)!r}, inline={not workers})
        runner.__enter__()  # the engine is up, as in a script that runs more than one workflow; starting has rows of its own
        warm = chain(20) if {shape!r} == "chain" else fan
        runner.run(warm, **({{"n": 100}} if params else {{}})).check()
        began = time.perf_counter()
        run = runner.run(flow, **params).check()
        seconds = time.perf_counter() - began
        assert run.outputs == {{"result": {size}}}, run.outputs
        runner.close()
        print(json.dumps({{"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}}))
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    found["disk"] = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    return found


def _bare(place: Path, steps: int, together: int) -> None:
    path = place / "bare.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)

    async def step(number: int) -> str:
        return json.dumps({"result": number})

    async def main() -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL, kind TEXT, task TEXT, data TEXT)")
        waiting: list[tuple[Any, ...]] = []
        for number in range(steps):
            waiting.append((number, time.time(), "task.succeeded", f"s{number}", await step(number)))
            if len(waiting) >= together:
                db.execute("BEGIN IMMEDIATE")
                db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", waiting)
                db.execute("COMMIT")
                waiting.clear()
        db.close()

    asyncio.run(main())


# -- worker processes and commands -------------------------------------------------------------------------------------


def _workers(place: Path) -> Iterator[Figure]:
    size = 20_000
    seconds = min(_child(place, "fan-out", size, workers=True)["seconds"] for _ in range(3))
    yield Figure("20,000 functions through warm workers, per task (5,000/s is 200)", 1e6 * seconds / size, 200, "µs")


def _commands(place: Path) -> Iterator[Figure]:
    from penstock import LocalRunner, Workflow
    from penstock.author.jobs import BaseJob
    from penstock.graph.model import Container

    count, width = 200, len(os.sched_getaffinity(0))
    jobs = [BaseJob(f"c{i}", Container(image="host", command=("true",)), cache=False) for i in range(count)]
    flow = Workflow("commands", jobs)

    bare, ours = [], []
    with LocalRunner(home=place / "commands", on={"container": "process"}, jobs=width) as runner:
        for _ in range(7):
            bare.append(best(lambda: _spawn(count, width), 1))
            ours.append(best(lambda: runner.run(flow).check(), 1))
    yield Figure(f"{count} × true, durable, as a multiple of bare posix_spawn", min(ours) / min(bare), 1.4, "×", None)
    yield Figure("  the same in seconds", min(ours), None, "s", min(bare), "bare posix_spawn")


def _spawn(count: int, width: int) -> None:
    """As many at a time as there are processors, without waiting for anything else."""
    running: set[int] = set()
    left = count
    path = shutil.which("true") or "/bin/true"
    while left or running:
        while left and len(running) < width:
            running.add(os.posix_spawn(path, ["true"], os.environ))
            left -= 1
        pid, _ = os.wait()
        running.discard(pid)


# -- blobs ---------------------------------------------------------------------------------------------------------------


def _blobs(place: Path) -> Iterator[Figure]:
    """Reading a large blob, which is compared with its digest, and a file of the same size, which is not. Both are in the system's memory."""
    from penstock.artifacts.blobs import Blobs

    size = 256 << 20
    plain = place / "plain"
    plain.write_bytes(os.urandom(1 << 20) * (size >> 20))
    blobs = Blobs(place / "blobs")
    digest, _ = blobs.put_file(plain)
    bare, noted, hashed = [], [], []
    for _ in range(7):
        bare.append(best(plain.read_bytes, 1))
        noted.append(best(lambda: blobs.get(digest), 1))
    for note in (place / "blobs").rglob("*.ok"):
        note.unlink()
    for _ in range(2):
        hashed.append(best(lambda: blobs.get(digest), 1))
        for note in (place / "blobs").rglob("*.ok"):
            note.unlink()
    yield Figure("a blob of 256 MiB, verified, as a multiple of a plain read", min(noted) / min(bare), 1.05, "×", None)
    yield Figure("  the first read of a day, which hashes it", min(hashed) / min(bare), None, "×", None)
    yield Figure("  the plain read in seconds", min(bare), None, "s", None)


# -- at the prompt ------------------------------------------------------------------------------------------------------


def _prompt(place: Path) -> Iterator[Figure]:
    # Python keeps what it has compiled, unless it is told not to; users do not tell it.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = str(Path(sys.executable).with_name("penstock"))

    def call(*words: str) -> Callable[[], Any]:
        return lambda: subprocess.run([command, *words], cwd=place, env=env, check=True, capture_output=True)

    bare = best(lambda: subprocess.run([sys.executable, "-c", "import asyncio, sqlite3"], env=env, check=True), 7)
    call("run", "hello_flow.py")()
    yield Figure(
        "hello, world: from the prompt to the exit",
        best(call("run", "hello_flow.py", "--fresh"), 9),
        0.35,
        "s",
        bare,
        "bare Python",
    )
    first = best(call("run", "chain_file.py"), 1)
    yield Figure("first run of 1,000 steps, from the prompt", first, None, "s", bare, "bare Python")
    yield Figure(
        "second run of 1,000 unchanged steps, from the prompt",
        best(call("run", "chain_file.py"), 7),
        0.3,
        "s",
        bare,
        "bare Python",
    )
