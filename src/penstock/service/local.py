"""Running workflows from Python: `LocalRunner().run(workflow, **params)`. Called by authors: scripts, notebooks, tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.author.jobs import Authored
from penstock.errors import PenstockError
from penstock.graph.model import Workflow
from penstock.service import runs as verbs
from penstock.service.hosting import Host
from penstock.settings import Settings, read
from penstock.store.base import Event, TaskRow
from penstock.store.sql import open_store


class RunFailed(PenstockError):
    """A run did not succeed. Raised by Run.check()."""

    exit_code = 3


class Run:
    """One execution of a workflow, while it goes on and after."""

    def __init__(self, session: verbs.Session, settings: Settings, workflow: Workflow) -> None:
        self._session = session
        self._settings = settings
        self._workflow = workflow
        self.id = session.run.id

    @property
    def status(self) -> str:
        """running, stopped, succeeded, failed or cancelled."""
        return self._session.state

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    def wait(self, timeout: float | None = None) -> Run:
        """Until it is over. Ctrl-C lets what runs finish and leaves the rest for `penstock resume`; twice ends it now."""
        try:
            self._session.wait(timeout)
        except KeyboardInterrupt:
            self._session.interrupt()
            note = f"stopping {self.id}: running tasks finish first, Ctrl-C again ends now; go on later with: penstock resume {self.id}"
            print(note, file=sys.stderr)
            try:
                self._session.wait()
            except KeyboardInterrupt:
                self._session.abandon()
            raise
        return self

    def cancel(self, now: bool = False) -> None:
        self._session.host.cancel(self._session.live, now)

    @property
    def outputs(self) -> dict[str, Any]:
        """What the workflow gave. Empty while it runs."""
        from penstock.artifacts.blobs import Blobs
        from penstock.artifacts.values import load, loads

        text = self._session.live.outputs_text
        if text is None:
            return {}
        blobs, folder = Blobs(self._settings.artifacts), self._settings.home / "work" / "outputs" / self.id
        return {name: load(value, blobs, folder) for name, value in loads(text).items()}

    @property
    def events(self) -> list[Event]:
        """Everything that was recorded, in order."""
        with open_store(self._settings.store) as store:
            return list(store.events(self._session.run.number))

    @property
    def tasks(self) -> list[TaskRow]:
        """The last that is known of each task."""
        with open_store(self._settings.store) as store:
            return store.tasks(self._session.run.number)

    @property
    def failures(self) -> dict[str, str]:
        """Task -> what went wrong with it; the first few."""
        return {path: str(data.get("message", "")) for path, data in self._session.live.failures}

    def logs(self, task: str) -> str:
        """What a task printed."""
        row = next((one for one in self.tasks if one.task == task), None)
        return "" if row is None else verbs.log_text(self._settings, row.info.get("log") or ())

    def check(self) -> Run:
        """The run itself if it succeeded. Raises RunFailed if not."""
        if not self.ok:
            lines = [f"{path}: {message}" for path, message in self.failures.items()]
            if not lines and self._session.live.why:
                lines = [self._session.live.why]
            raise RunFailed(f"{self.id} {self.status}" + "".join(f"\n  {line}" for line in lines))
        return self

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}>"

    def _repr_html_(self) -> str:
        from html import escape

        from penstock.formats.svg import svg

        counts = ", ".join(f"{many} {state}" for state, many in sorted(self._counts().items()))
        return f"<p><b>{escape(self.id)}</b> {escape(self.status)} <small>{escape(counts)}</small></p>{svg(self._workflow)}"

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for tally in self._session.live.progress.values():
            for state, many in tally.items():
                if state != "tasks" and many:
                    counts[state] = counts.get(state, 0) + many
        return counts


class LocalRunner:
    """Runs workflows on this machine, recorded in `.penstock` (or where PENSTOCK_HOME and PENSTOCK_STORE say).

    `inline=True` calls Python functions inside the engine instead of in worker processes: for tiny, trusted functions. `on` says
    which backend runs which kind of step, as in `on={"container": "process"}`; `backends` hands in your own by name (a class). `queue`, `priority` and `unit` stand in for what the
    workflow says; `queues` is a file with Kueue's manifests, applied before. As a context manager it keeps its workers warm
    from one run to the next. `dry` walks through workflows without running anything."""

    def __init__(
        self, *, home: str | Path | None = None, store: str | None = None, jobs: int | None = None, inline: bool = False,
        on: Mapping[str, str] | None = None, until: str | Sequence[str] = (), fail_fast: bool = False, fresh: bool = False, dry: bool = False,
        backends: Mapping[str, Callable[[Any], Any]] | None = None, queue: str | None = None, priority: str | int | None = None,
        unit: str | None = None, queues: str | Path | None = None,
    ) -> None:  # fmt: skip
        self.settings = read(home=home, store=store, jobs=jobs)
        self._on = {**({"function": "inline"} if inline else {}), **(on or {})}
        self._until = (until,) if isinstance(until, str) else tuple(until)
        self._fail_fast = fail_fast
        self._fresh = fresh
        self._dry = dry
        self._backends = backends
        self._queueing: dict[str, Any] = {"queue": queue, "priority": priority, "unit": unit, "queues": queues}
        self._host: Host | None = None
        self._kept = False

    def __enter__(self) -> LocalRunner:
        self._kept = True
        return self

    def __exit__(self, *_: object) -> None:
        self._kept = False
        self.close()

    def close(self) -> None:
        """Wait for what was submitted, and end the workers."""
        if self._host is not None:
            host, self._host = self._host, None
            host.close()

    def submit(self, workflow: Authored | Workflow, /, **params: Any) -> Run:
        """Start it and return at once; `wait()` on what comes back."""
        graph = workflow.graph if isinstance(workflow, Authored) else workflow
        if self._host is None:
            self._host = Host(self.settings, self._on, self._backends)
            self._host.start()
        submission = verbs.Submission(
            graph, params, until=self._until, fail_fast=self._fail_fast, fresh=self._fresh, dry=self._dry, **self._queueing
        )  # fmt: skip
        functions = submission.pack(self.settings)
        session = verbs.begin(self._host, submission, functions, again=False)
        return Run(session, self.settings, submission.workflow)

    def run(self, workflow: Authored | Workflow, /, **params: Any) -> Run:
        """Run it to its end."""
        try:
            return self.submit(workflow, **params).wait()
        finally:
            if not self._kept:
                self.close()
