"""Running workflows from Python: `LocalRunner().run(workflow, **params)`; and recorded runs, `open_run("finetune-3")`. Called by
authors: scripts, notebooks, tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, overload

from penstock.artifacts.values import loads
from penstock.author import jobs as objects
from penstock.author.chains import Chain
from penstock.author.flow import WorkflowFunction
from penstock.backends.registry import kinds_for
from penstock.graph.model import Workflow
from penstock.graph.paths import parents
from penstock.runners.base import RunFailed, by_name, graph_of, single_result
from penstock.runners.declared import outputs_of_run
from penstock.runners.lineage import Lineage
from penstock.runners.notebook import LiveDrawing, notebook, page
from penstock.runners.payloads import Payload, PayloadSenders
from penstock.runners.results import StepResult, TaskResult, step_or_task
from penstock.service import requests, runs, stores
from penstock.service.following import RunFollower
from penstock.service.hosting import Host
from penstock.service.images import backends_if_allowed
from penstock.service.logs import log_text
from penstock.service.payloads.submit import PayloadRequest
from penstock.service.results import opened, outputs_of
from penstock.service.run_records import find, state_of, workflow_of
from penstock.service.submission import Submission, is_linked, user
from penstock.service.task_states import BAD
from penstock.service.views.runs import failures
from penstock.service.views.tallies import TallyReader
from penstock.settings import Settings, read
from penstock.store.records import FINAL, Event, RunRecord, TaskRow

P = ParamSpec("P")
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)  # so that `Run` alone is a type, too
else:
    from typing import TypeVar

    R = TypeVar("R")


class Run(Generic[R]):
    """One execution of a workflow, while it runs and afterwards. `run["train"]` is one of its steps."""

    def __init__(
        self, record: RunRecord, workflow: Workflow, settings: Settings, session: runs.HostedRun | None = None
    ) -> None:
        self._record = record
        self._workflow = workflow
        self._settings = settings
        self._session = session
        """If this process executes it. All else is read from the store."""
        self._drawing: LiveDrawing | None = None
        self.id = record.id

    @property
    def status(self) -> str:
        """running, stopped, lost, succeeded, failed or cancelled."""
        if self._session is not None:
            return self._session.state
        with stores.open_or_create(self._settings) as store:
            return state_of(store, find(store, self.id))

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    def wait(self, timeout: float | None = None) -> Self:
        """Returns when the run is over, or after `timeout` seconds. If this process executes it, Ctrl-C lets running tasks finish and
        leaves the rest for `penstock resume`; twice ends them now."""
        if self._session is None:
            with stores.open_or_create(self._settings) as store:
                RunFollower(store, find(store, self.id)).wait(timeout)
            return self
        try:
            shell = notebook()
            if shell is None:
                self._session.wait(timeout)
            else:
                self._drawing = LiveDrawing(shell, self._page)
                self._drawing.follow(self._session.wait, timeout)
        except KeyboardInterrupt:
            self._session.interrupt()
            note = f"stopping {self.id}: running tasks finish first, Ctrl-C again ends now; continue later: penstock resume {self.id}"
            print(note, file=sys.stderr)
            try:
                self._session.wait()
            except KeyboardInterrupt:
                self._session.abandon()
            raise
        return self

    def cancel(self, now: bool = False) -> None:
        """End it. `now`: kill running tasks and skip the exit handlers. Returns before it has ended: `wait()`."""
        if self._session is not None:
            self._session.host.cancel(self._session.live, now)
            return
        with stores.open_or_create(self._settings) as store:
            record = find(store, self.id)
            if record.state not in FINAL:
                requests.ask(store, record, "cancel", {"message": f"cancelled by {user() or 'somebody'}", "now": now})

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the workflow, as the types that it declares. Empty while it runs."""
        if self._session is not None:
            text = self._session.live.outputs_text
            outputs = {} if text is None else loads(text)
        else:
            with stores.open_or_create(self._settings) as store:
                outputs = outputs_of(find(store, self.id))
        return outputs_of_run(self._workflow, opened(self._settings, self.id, outputs))

    @property
    def result(self) -> R:
        """What the workflow returned. Raises RunFailed if it has not succeeded."""
        self.check()
        found: R = single_result(self.id, self.outputs)
        return found

    def __getitem__(self, path: str) -> StepResult | TaskResult:
        """A step: `run["train"]`, `run["outer/train"]`; or a task: `run["train[3]"]`. Raises NotFound."""
        return step_or_task(self._settings, self.id, path)

    @property
    def events(self) -> list[Event]:
        """Everything that was recorded, in order."""
        with stores.open_or_create(self._settings) as store:
            return list(store.runs.events(self._record.number))

    @property
    def tasks(self) -> list[TaskRow]:
        """The latest state of each task."""
        with stores.open_or_create(self._settings) as store:
            return store.runs.tasks(self._record.number)

    @property
    def failures(self) -> dict[str, str]:
        """Task -> why it failed; the first 20."""
        if self._session is not None:
            return {path: str(data.get("message", "")) for path, data in self._session.live.failures}
        with stores.open_or_create(self._settings) as store:
            found = failures(store, find(store, self.id), self._settings)
        return {path: str(data.get("message", "")) for path, data in found}

    def logs(self, task: str) -> str:
        """What a task printed."""
        row = next((one for one in self.tasks if one.task == task), None)
        return "" if row is None else log_text(self._settings, row.info.get("log") or ())

    def check(self) -> Self:
        """The run itself if it succeeded. Raises RunFailed if not."""
        if not self.ok:
            reasons = [f"{path}: {message}" for path, message in self.failures.items()]
            if not reasons and self._session is not None and self._session.live.why:
                reasons = [self._session.live.why]
            raise RunFailed(self.id, self.status, reasons)
        return self

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}>"

    def _repr_html_(self) -> str:
        """In a notebook: the drawing with the state of each step, and what failed. Nothing twice in the cell that drew it already."""
        shell = notebook()
        if shell is not None and self._drawing is not None and self._drawing.cell == shell.execution_count:
            return f"<p><b>{self.id}</b> {self.status}</p>"
        return self._page()

    def _page(self) -> str:
        if self._session is not None:
            state, tallies, times = self._session.progress()
        else:
            with stores.open_or_create(self._settings) as store:
                reader = TallyReader(store, find(store, self.id))
                reader.read()
                state, tallies, times = state_of(store, reader.run), reader.tallies, reader.times
        bad: dict[str, Any] = {}
        if any(tally.get(name) for tally in tallies.values() for name in BAD):
            with stores.open_or_create(self._settings) as store:
                found = failures(store, find(store, self.id), self._settings)
            callers = {above for path, _ in found for above in parents(path)}
            bad = {path: data for path, data in found if path not in callers}
        return page(self.id, self._workflow, state, tallies, times, bad)


def open_run(name: str = "@", *, home: str | Path | None = None, store: str | None = None) -> Run:
    """A run that was recorded, by this process or any other: `finetune-3`; `@` is the last one, `@2` the one before it. `home` and
    `store` as for LocalRunner. Raises NotFound."""
    settings = read(home=home, store=store)
    with stores.open_existing(settings) as opened_store:
        record = find(opened_store, name)
        return Run(record, workflow_of(opened_store, record), settings)


class LocalRunner:
    """Runs workflows on this machine, recorded in `.penstock` (or where PENSTOCK_HOME and PENSTOCK_STORE say).

    `inline=True` calls Python functions in the engine's process instead of in worker processes: for tiny, trusted functions. `on` maps
    kinds of steps to backends, as in `on={"container": "process"}`, or names one for all, as in `on="kubernetes"`; `backends` adds your own by name (a class). `queue`, `priority` and
    `unit` override those of the workflow; `queues` is a file with Kueue's manifests that is applied first. As a context manager it keeps
    its workers for the next run. `dry` walks through workflows without executing anything."""

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        store: str | None = None,
        jobs: int | None = None,
        inline: bool = False,
        on: Mapping[str, str] | str | None = None,
        until: str | Sequence[str] = (),
        fail_fast: bool = False,
        fresh: bool = False,
        dry: bool = False,
        backends: Mapping[str, Callable[[Any], Any]] | None = None,
        queue: str | None = None,
        priority: str | int | None = None,
        unit: str | None = None,
        queues: str | Path | None = None,
    ) -> None:
        self.settings = read(home=home, store=store, jobs=jobs)
        chosen = dict.fromkeys(kinds_for(on, backends or ()), on) if isinstance(on, str) else on or {}
        self._on = backends_if_allowed(self.settings, {**({"function": "inline"} if inline else {}), **chosen})
        self._backends = backends
        self._options: dict[str, Any] = {
            "until": (until,) if isinstance(until, str) else tuple(until),
            "fail_fast": fail_fast,
            "fresh": fresh,
            "dry": dry,
            "queue": queue,
            "priority": priority,
            "unit": unit,
            "queues": queues,
            "on": chosen if isinstance(on, str) and on not in (backends or ()) else None,
        }
        """Keyword arguments of Submission."""
        there = {kind: name for kind, name in self._on.items() if name not in (backends or ())}
        self._senders = PayloadSenders(self.settings, {**self._options, "on": there})  # a worker executes them
        self._host: Host | None = None
        self._kept = False

    def __enter__(self) -> LocalRunner:
        self._kept = True
        return self

    def __exit__(self, *_: object) -> None:
        self._kept = False
        self.close()

    def close(self) -> None:
        """Wait for the runs that were submitted, and end the workers."""
        self._senders.close()
        if self._host is not None:
            host, self._host = self._host, None
            host.close()

    @overload
    def submit(self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def submit(self, workflow: objects.Workflow | Workflow, /, **params: Any) -> Run[Any]: ...
    def submit(self, workflow: Any, /, *args: Any, **params: Any) -> Any:
        """Start it and return at once; call `wait()` on the result."""
        if self._host is None:
            self._host = Host(self.settings, self._on, self._backends)
            self._host.start()
        given = {**by_name(workflow, args, params), **params} if args else params
        submission = Submission(graph_of(workflow), given, scheduler=self.settings.scheduler, **self._options)
        functions = submission.pack(self.settings)
        session = runs.begin(self._host, submission, functions, again=False)
        return Run[Any](session.run, submission.workflow, self.settings, session)

    def submit_payload(
        self,
        workflow: Any,
        payload: Any,
        /,
        *,
        replace: bool = False,
        version: int | None = None,
        label: str = "",
        worker: bool = True,
        **params: Any,
    ) -> Payload:
        """Have a payload worked on, unless it is or was: there is one run for each identity, however often it is submitted. A worker in the
        background executes it; with `worker=False` one that is there, as `penstock serve` has it. `replace`: do it again. `version`: of the
        identity. `params`: the workflow's other parameters."""
        sender = self._senders.of(graph_of(workflow), worker)
        request = PayloadRequest(payload=payload, params=params, replace=replace, version=version, label=label)
        return Payload(sender.submit(request).as_data(), self._open)

    def _open(self, run: str) -> Run[Any]:
        with stores.open_existing(self.settings) as store:
            record = find(store, run)
            return Run(record, workflow_of(store, record), self.settings)

    @overload
    def run(self, workflow: Chain, /, *args: Any, **params: Any) -> Lineage[Run[Any]]: ...
    @overload
    def run(self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def run(self, workflow: objects.Workflow | Workflow, /, **params: Any) -> Run[Any]: ...
    def run(self, workflow: Any, /, *args: Any, **params: Any) -> Any:
        """Run it to its end, and what follows from it by links. Of a chain, the runs are returned as a Lineage."""
        try:
            run = self.submit(workflow, *args, **params).wait()
            if run._session is not None and is_linked(run._session.run):
                self._follow(run._session)
            return self._lineage(run) if isinstance(workflow, Chain) else run
        finally:
            if not self._kept:
                self.close()

    def _lineage(self, run: Run[Any]) -> Lineage[Run[Any]]:
        settings = self.settings
        return Lineage(settings, run.id, lambda name: open_run(name, home=settings.home, store=settings.store))

    def _follow(self, first: runs.HostedRun) -> None:
        """Execute what follows from a run. Ctrl-C leaves the rest to `penstock resume` and workers."""
        from penstock.service.chain_runs import ChainFollower

        begun: list[runs.HostedRun] = []
        try:
            for session in ChainFollower(first.host, self.settings, first.run.number).sessions(lambda: False):
                begun.append(session)
        except KeyboardInterrupt:
            first.interrupt()
            for session in begun:
                session.wait()
            raise
