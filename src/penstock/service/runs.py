"""The verbs on runs: submit, follow, resume, retry, cancel, find. Called by cli and local.

A run is recorded before anything happens to it, so starting one and going on with one are the same thing: an engine takes it
and folds its log. `Session` is that engine with the run in it, for whoever wants to watch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.backends.fake import empty
from penstock.engine.blueprint import Blueprint, blueprints
from penstock.engine.live import Live
from penstock.engine.loop import Engine
from penstock.errors import NotFound, PlanError, Problem, UserError, nearest
from penstock.graph import codec
from penstock.graph.evaluate import resolve
from penstock.graph.links import links_of
from penstock.graph.model import Workflow
from penstock.service.hosting import Host
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.base import FINAL, Run, TaskRow
from penstock.store.driver import read_only
from penstock.store.sql import Store, open_store

if TYPE_CHECKING:
    from penstock.engine.book import Book
    from penstock.plan.make import Plan

Functions = Mapping[tuple[str, str, str], Any]


class Refused(UserError):
    """What was asked does not go with the state the run is in."""


# -- submitting -------------------------------------------------------------------------------------------------------


class Submission:
    """A workflow with its parameters, checked and packed, not yet recorded."""

    warnings: tuple[Problem, ...] = ()

    def __init__(
        self,
        workflow: Workflow,
        params: Mapping[str, Any],
        *,
        file: str = "",
        until: Sequence[str] = (),
        fail_fast: bool = False,
        fresh: bool = False,
        dry: bool = False,
        on: Mapping[str, str] | None = None,
        queue: str | None = None,
        priority: str | int | None = None,
        unit: str | None = None,
        queues: str | Path | None = None,
    ) -> None:
        from penstock.plan.make import make, uninterrupted

        if queue is not None or priority is not None or unit is not None:
            from penstock.service.queueing import chosen

            workflow = chosen(workflow, queue, priority, unit)
        self.queue = queue
        self.queues = queues
        """A file with queues, to be applied before."""
        with uninterrupted():
            self.links = links_of(workflow)
        if until:
            from penstock.plan.prune import prune

            make(workflow, params)
            workflow = prune(workflow, until, self.links)
            self.links = links_of(workflow)
        self.plan: Plan = make(workflow, params, links=self.links)
        missing = [param.name for param in workflow.params if param.name not in self.plan.params]
        if missing and dry:
            made_up = {param.name: empty(param.type) for param in workflow.params if param.name in missing}
            self.plan = make(workflow, {**params, **made_up}, links=self.links)
        elif missing:
            raise PlanError(
                [
                    Problem(
                        "P408",
                        f"the parameter {name!r} has no value",
                        f"give it one: -p {name}=…",
                        where=f"params.{name}",
                    )
                    for name in missing
                ]
            )
        self.workflow = workflow
        self.params = {name: resolve(value, {}) for name, value in self.plan.params.items()}
        # What was written for another system starts at the root of its images, not where somebody happens to stand.
        self.options: dict[str, Any] = {"place": "/" if "format" in workflow.extra else os.getcwd()}
        for name, value in (
            ("file", file),
            ("until", list(until)),
            ("fail_fast", fail_fast),
            ("fresh", fresh),
            ("dry", dry),
            ("on", dict(on or {})),
        ):
            if value:
                self.options[name] = value

    def pack(self, settings: Settings) -> Functions:
        """Put the author's code and the files given as parameters aside, so that later edits do not reach this run. The
        functions that are at hand anyway."""
        for param in self.workflow.params:
            value = self.params.get(param.name)
            if param.type.name in ("file", "dir") and isinstance(value, str | os.PathLike) and os.path.exists(value):
                self.params[param.name] = _aside(Path(value), settings.home)
        from penstock.author.capture import live_functions
        from penstock.author.pack import pack

        packed = pack(self.workflow)
        if packed is not None:
            from penstock.artifacts.blobs import Blobs

            try:
                self.options["bundle"] = Blobs(settings.artifacts).put(packed[0])
            except OSError as error:
                raise read_only(settings.artifacts, error.strerror or str(error)) from None
        return live_functions(self.workflow)

    def vet(self, store: Store, book: Book | None = None) -> tuple[Problem, ...]:
        """Bring the queues up to date, and refuse what could never start in them. What is worth a word. `book`: the queues to
        look at, if not those of the store."""
        warnings: tuple[Problem, ...] = ()
        if self.options.get("dry"):
            return warnings  # nothing of it will ask for anything
        if self.queues is not None or os.path.isfile("penstock.yaml"):
            from penstock.service.queueing import from_file

            warnings = from_file(store, self.queues)
        if any(step.resources for one in (self.workflow, *self.workflow.definitions) for step in one.steps):
            from penstock.service.queueing import book_of, vet

            warnings += vet(book or book_of(store), self.plan, self.queue)
        return warnings

    def record(self, store: Store, now: float | None = None) -> Run:
        from penstock.plan.make import uninterrupted

        with uninterrupted():
            document = codec.to_json(self.workflow)
            digest = codec.digest_of_text(document)
        return store.create_run(
            self.workflow.name, digest, document, self.params, self.options, user(), time.time() if now is None else now
        )

    def unfinished(self, store: Store) -> Run | None:
        """The last run of the same workflow with the same parameters, if it was interrupted and nobody is at it."""
        runs = store.runs(limit=1, workflow=self.workflow.name)
        if not runs or runs[0].state in FINAL:
            return None
        run = runs[0]
        if run.params != json.loads(json.dumps(self.params)) or run.options != self.options:
            return None
        if owner_alive(store, run) is not False:
            return None
        return run if run.digest == codec.digest(self.workflow) else None


def _aside(path: Path, home: Path) -> str:
    """A copy of a file or folder, under a name that has its content's digest in it: what is done with it is done again when
    the content has changed, and only then."""
    import shutil

    digest = _digest_of(path)
    target = home / "inputs" / digest[:24] / path.absolute().name
    if not target.exists():
        try:
            scratch = target.with_name(f".{os.getpid()}-{target.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, scratch, symlinks=True)
            else:
                shutil.copy2(path, scratch)
            os.rename(scratch, target)
        except OSError as error:
            if not target.exists():  # unless somebody else was as fast
                raise read_only(str(home), error.strerror or str(error)) from None
    return str(target)


def _digest_of(path: Path) -> str:
    import hashlib

    found = hashlib.sha256()
    for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
        found.update(str(one.relative_to(path)).encode("utf-8", "surrogateescape") + b"\0")
        if one.is_file():
            with open(one, "rb") as file:
                while data := file.read(1 << 20):
                    found.update(data)
    return found.hexdigest()


def user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def blueprint_of(store: Store, run: Run) -> Blueprint:
    workflow = workflow_of(store, run)
    return blueprints(workflow, links_of(workflow))


def workflow_of(store: Store, run: Run) -> Workflow:
    return codec.from_data(json.loads(store.document(run.digest)), run.id)


# -- an engine with a run in it ----------------------------------------------------------------------------------------


class Session:
    """One run, being executed by this process."""

    def __init__(self, host: Host, live: Live) -> None:
        self.host = host
        self.live = live

    @property
    def run(self) -> Run:
        return self.live.run

    def wait(self, timeout: float | None = None) -> bool:
        return self.host.wait(self.live, timeout)

    @property
    def state(self) -> str:
        return self.live.state

    def interrupt(self) -> None:
        self.host.interrupt()

    def abandon(self) -> None:
        self.host.abandon()


def begin(host: Host, submission: Submission, functions: Functions, again: bool = True) -> Session:
    """Record the run, or find the one that was interrupted, and start it."""
    from penstock.plan.make import uninterrupted

    with uninterrupted():
        ready = blueprints(submission.workflow, submission.links)

    def start(engine: Engine) -> Live:
        submission.warnings = submission.vet(engine.store)
        run = submission.unfinished(engine.store) if again else None
        run = run or submission.record(engine.store)
        return engine.adopt(own(engine, run), ready, submission.params)

    return Session(host, host.take(start, functions))


def go_on(
    host: Host,
    id: str,
    retried: str = "",
    cancelled: str = "",
    now: bool = False,
    resumed: Mapping[str, Any] | None = None,
) -> Session:
    """Take up a run that nobody is at."""

    def start(engine: Engine) -> Live:
        run = find(engine.store, id)
        if run.state in FINAL and not retried:  # somebody else was faster
            raise Refused(Problem("P413", f"{run.id} is over: it {run.state}", f"penstock show {run.id}"))
        run = own(engine, run)
        live = engine.adopt(run, blueprint_of(engine.store, run), run.params, retried)
        if cancelled:
            engine.cancel(live, cancelled, now)
        for path, outputs in (resumed or {}).items():
            engine.resume(live, path, outputs)
        return live

    return Session(host, host.take(start))


def own(engine: Engine, run: Run) -> Run:
    """Make a run this engine's. Raises Refused if somebody else is at it."""
    store = engine.store
    if run.state not in FINAL and run.engine and run.engine != engine.me.id and owner_alive(store, run) is not False:
        raise Refused(busy(store, run))
    if not store.take(run.number, engine.me.id, run.engine):
        current = store.run_by_number(run.number) or run
        raise Refused(busy(store, current))
    found = store.run_by_number(run.number)
    assert found is not None
    return found


def busy(store: Store, run: Run) -> Problem:
    """Who is at it."""
    holder = next((one for one in store.engines() if one.id == run.engine), None)
    who = f"process {holder.pid} on {holder.host.partition('/')[0]}" if holder is not None else "another engine"
    return Problem(
        "P411",
        f"{run.id} is being run by {who}",
        f"watch it: penstock watch {run.id}; or end it: penstock cancel {run.id}",
    )


def owner_alive(store: Store, run: Run) -> bool | None:
    """Is somebody at this run? None if that cannot be told from here."""
    if run.engine is None:
        return False
    holder = next((one for one in store.engines() if one.id == run.engine), None)
    return False if holder is None else liveness.alive(holder)


def owner_watched(store: Store, run: Run) -> bool:
    """Is somebody at this run? Where that cannot be told from here, the heartbeat is watched until it moves, or has stood
    still for too long: then that engine is forgotten, and the run can be taken."""
    watch, first = liveness.Watch(liveness.PATIENCE), None
    while (alive := owner_alive(store, run)) is None:
        holder = next((one for one in store.engines() if one.id == run.engine), None)
        if holder is None:
            return False
        first = holder.beat if first is None else first
        if holder.beat != first:
            return True
        if watch.dead(holder.id, holder.beat, time.monotonic()):
            store.forget(holder.id)
            return False
        time.sleep(0.1)
    return alive


# -- finding ------------------------------------------------------------------------------------------------------------


def open_here(settings: Settings) -> Store:
    return open_store(settings.store)


def find(store: Store, name: str) -> Run:
    """`finetune-3`, `@` for the last run, `@2` for the one before it. Raises NotFound."""
    if name.startswith("@"):
        back = name[1:] or "1"
        if not back.isdecimal() or int(back) < 1:
            raise NotFound(Problem("P505", f"{name!r} names no run", "@ is the last run, @2 the one before it"))
        runs = store.runs(limit=int(back))
        if len(runs) < int(back):
            fix = "start one: penstock run FILE" if not runs else f"there are {len(runs)}; penstock ls shows them"
            raise NotFound(Problem("P505", "there is no run yet" if not runs else f"there is no run {name}", fix))
        return runs[-1]
    run = store.run(name)
    if run is None:
        known = [one.id for one in store.runs(limit=200)]
        raise NotFound(Problem("P505", f"there is no run {name!r}", f"penstock ls shows them.{nearest(name, known)}"))
    return run


def split(target: str) -> tuple[str, str]:
    """`@/train[3]` -> run and the rest."""
    run, _, path = target.partition("/")
    return run, path


def state_of(store: Store, run: Run) -> str:
    """As people see it: `lost` is a run whose engine is gone."""
    if run.state in FINAL or run.state == "stopped":
        return run.state
    if owner_alive(store, run) is not False:
        return run.state
    now = store.run_by_number(run.number)  # it may just have ended, and its engine with it
    return now.state if now is not None and now.state != run.state else "lost"


# -- asking ---------------------------------------------------------------------------------------------------------------


def ask(store: Store, run: Run, verb: str, data: Mapping[str, Any], patience: float = 30.0) -> Run:
    """Ask the engine that has the run in hand, and wait until it has heard."""
    number = store.ask(run.number, verb, data)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        current = store.run_by_number(run.number)
        if current is None or current.state in FINAL or not store.requests(number - 1, [run.number]):
            return current or run
        time.sleep(0.05)
    raise Refused(
        Problem(
            "P412",
            f"the engine of {run.id} does not answer",
            "if its process hangs, end it (kill -9) and resume the run",
        )
    )


def suspended(store: Store, run: Run, path: str = "") -> list[TaskRow]:
    """The tasks that wait for somebody. Raises Refused if there are none, or several and none was named."""
    waiting = store.tasks(run.number, states=["suspended"])
    if path:
        chosen = [row for row in waiting if row.task == path or row.step == path]
        if not chosen:
            known = [row.task for row in waiting]
            fix = f"waiting: {', '.join(known) or 'none'}.{nearest(path, known)}"
            raise NotFound(Problem("P506", f"{run.id} has no step {path!r} that waits to be resumed", fix))
        return chosen
    return waiting


def resume_outputs(workflow: Workflow, row: TaskRow, given: Sequence[str]) -> dict[str, Any]:
    """`name=value` for the outputs of a suspend step, checked against what it declares."""
    from penstock.graph.model import MISSING, Parameter
    from penstock.service import parameters

    step = _step_at(workflow, row.step)
    declared = step.outputs if step is not None else ()
    asked = Workflow(name=workflow.name, params=tuple(Parameter(name=o.name, type=o.type) for o in declared))
    found = parameters(asked, given)
    for output in declared:
        if output.name not in found:
            if output.default is MISSING:
                raise PlanError(
                    Problem(
                        "P408",
                        f"{row.task} waits for a value of {output.name!r}",
                        f"give it: -p {output.name}=…",
                        where=row.task,
                    )
                )
            found[output.name] = output.default
    return found


def _step_at(workflow: Workflow, path: str) -> Any:
    from penstock.graph.model import Nested

    level = workflow
    definitions = {definition.name: definition for definition in workflow.definitions}
    step = None
    for name in path.split("/"):
        step = next((one for one in (*level.steps, *level.on_exit) if one.name == name), None)
        if step is None:
            return None
        if isinstance(step.action, Nested):
            level = definitions[step.action.name]
    return step


def spawn(settings: Settings, id: str) -> int:
    """An engine for this run in a process of its own, that outlives this one. Returns its pid."""
    import subprocess
    import sys

    log = settings.home / "logs" / f"{id}.engine.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "penstock", "resume", id, "--quiet", "-j", str(settings.jobs)]
    env = {
        **os.environ,
        "PENSTOCK_HOME": str(settings.home),
        "PENSTOCK_STORE": settings.store,
        "PENSTOCK_ARTIFACTS": settings.artifacts,
    }
    with open(log, "ab") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
        )
    process.returncode = 0  # it is not ours to wait for
    return process.pid


def place_of(settings: Settings) -> str:
    """How to call the store in a sentence."""
    if settings.store == str(settings.home):
        near = os.path.relpath(settings.home)
        return near if not near.startswith("..") else str(settings.home)
    return settings.store.partition("?")[0].rpartition("@")[2]


def log_text(settings: Settings, parts: Sequence[Sequence[Any]], last: int | None = None) -> str:
    """What a task printed. `last`: only so many lines of it."""
    found = []
    for name, start, end in parts:
        path = Path(settings.home, name)
        try:
            with open(path, "rb") as file:
                size = path.stat().st_size if end is None else end
                if last is not None and size - start > 65536:
                    start = size - 65536
                file.seek(start)
                found.append(file.read() if end is None else file.read(max(0, end - start)))
        except FileNotFoundError:
            continue
    text = b"".join(found).decode("utf-8", "replace")
    return text if last is None else "\n".join(text.rstrip("\n").split("\n")[-last:])
