"""A workflow with its parameters and options, checked, ready to be recorded as a run. Called by the run command, LocalRunner, the
simulator and run_virtually.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.artifacts.empty import empty_value
from penstock.errors import PlanError, Problem
from penstock.expressions.evaluate import resolve
from penstock.graph import codec
from penstock.graph.links import links_of
from penstock.graph.model import Workflow
from penstock.plan.make import Plan, make, uninterrupted
from penstock.service import input_files, parameters, stores
from penstock.service.policy import Actor
from penstock.service.run_records import owner_alive
from penstock.service.sizing import makes_an_object, not_queued_there, on_this_machine, sized
from penstock.service.tracking.target import configured
from penstock.service.workflows import override
from penstock.settings import Settings
from penstock.store.drivers.base import read_only
from penstock.store.records import ACTIVE, Origin, RunRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.engine.cluster_quota import ClusterQueues
    from penstock.engine.quota_replica import QuotaReplica
    from penstock.store.protocols import QueueStore

Functions = Mapping[tuple[str, str, str], Callable[..., Any]]
"""The author's functions that are loaded in this process, by (module, name, digest)."""


class Submission:
    """Raises UserError when it is made if the workflow, its parameters or its options are wrong."""

    warnings: tuple[Problem, ...] = ()
    """What `vet` found, once it was called."""
    tracked: tuple[str, str] | None = None
    """The tracking server that is told of the run, and the experiment there, once `track` was called."""
    changed_queues: tuple[str, ...] = ()
    """What the file of queues changed, once `vet` has applied it: `ClusterQueue shared`."""

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
        scheduler: str = "",
        person: str = "",
        groups: tuple[str, ...] | None = None,
        place: str = "",
    ) -> None:
        """`person`: who submits it, if not the user of this process; then `groups` are those of the person. `place`: the folder that its tasks run in, if not the current one."""
        workflow = override(workflow, queue, priority, unit)
        params = parameters.from_python(workflow, params)
        workflow, self._sizes = sized(workflow, params, scheduler)
        self._scheduler = scheduler
        self.queue = queue
        """The queue that was chosen for this run, if it is not the workflow's own."""
        self.queues = queues
        """A file with queues, to be applied before the run starts."""
        self.person = person or user()
        self.actor = Actor(self.person, groups)
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
            made_up = {param.name: empty_value(param.type) for param in workflow.params if param.name in missing}
            self.plan = make(workflow, {**params, **made_up}, links=self.links)
        elif missing:
            raise PlanError([_without_value(name) for name in missing])
        self.workflow = workflow
        self.params = {name: resolve(value, {}) for name, value in self.plan.params.items()}
        # A workflow of another system starts in the root folder of its images, not in the current folder. But a state machine is bound
        # to functions and commands that are here.
        elsewhere = workflow.extra.get("format") not in (None, "asl")
        self.options: dict[str, Any] = {"place": "/" if elsewhere else place or os.getcwd()}
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

    @cached_property
    def _document(self) -> str:
        """The workflow as it is recorded. Written when it is needed first: what is only simulated has none."""
        with uninterrupted():
            return codec.to_json(self.workflow)

    def _note_secrets(self) -> None:
        """When it is to be run: which secrets it is given. Raises UserError if one is not there."""
        if "secrets" in self.options or "secrets" not in self._document:
            return
        from penstock.service import secrets

        found = secrets.option(self.workflow)
        if found:
            self.options["secrets"] = found
            if not self.options.get("dry"):
                secrets.check(self.workflow, found)

    def track(self) -> None:
        """Note the tracking server that is configured here: it is told of the run. Raises UserError if what is configured is none."""
        target = None if self.options.get("dry") else configured()
        self.tracked = None if target is None else (target.url, target.experiment or self.workflow.name)

    def pack(self, settings: Settings) -> Functions:
        """Store copies of the author's code and of the files given as parameters, so that later edits do not reach this run. Returns
        the functions that are loaded in this process. Raises UserError if a secret is not given."""
        self._note_secrets()
        self.track()
        stores.prepare(settings)
        for param in self.workflow.params:
            if param.name in self.params:
                try:
                    self.params[param.name] = input_files.copied(param.type, self.params[param.name], settings.home)
                except ValueError as error:
                    raise PlanError(_no_file(param.name, error)) from None
        from penstock.author.capture import live_functions
        from penstock.author.pack import pack

        packed = pack(self.workflow)
        if packed is not None:
            by_value = [entry["name"] for entry in packed[1]["functions"] if "pickle" in entry]
            if by_value and not settings.pickles:
                fix = "move it into a module, or set PENSTOCK_PICKLES=yes"
                message = (
                    f"{by_value[0]}() can only be sent to a worker as a pickle, and PENSTOCK_PICKLES=no forbids pickles"
                )
                raise PlanError(Problem("P749", message, fix))
            try:
                self.options["bundle"] = stores.blobs_of(settings).put(packed[0])
            except OSError as error:
                raise read_only(settings.artifacts, error.strerror or str(error)) from None
        return live_functions(self.workflow)

    def vet(
        self, store: Store, replica: QuotaReplica | None = None, cluster: ClusterQueues | None = None
    ) -> tuple[Problem, ...]:
        """Refuse what could never be admitted, then apply the file of queues. Returns warnings. `replica`: the queues to check against,
        if not those of the store. `cluster`: the queues that decide in place of them. Raises UserError; then no queue has changed."""
        if self.options.get("dry"):
            return ()  # a dry run asks for no quota
        warnings = self._sizes + (() if "format" in self.workflow.extra else self._untracked(store))
        plan = self._plan_here()
        asks = any(step.resources for one in (plan.workflow, *plan.workflow.definitions) for step in one.steps)
        if cluster is not None:
            from penstock.service.feasibility import vet_cluster

            vet_cluster(cluster, self.plan)
            asks = False
        if self.queues is not None or os.path.isfile("penstock.yaml"):
            from penstock.service.queues import changed_by, from_file
            from penstock.service.views.outlook import QueueOverlay, overlaid

            overlay = QueueOverlay(store, self.queues)
            if overlay.rows:
                found = self._vet_demand(plan, overlay, replica or overlaid(overlay)) if asks else ()
                self.changed_queues = changed_by(store, overlay.rows)
                return warnings + from_file(store, self.queues, by=self.actor) + found
        if not asks:
            return warnings
        from penstock.service.queues import replica_of

        return warnings + self._vet_demand(plan, store.queues, replica or replica_of(store.queues))

    def _plan_here(self) -> Plan:
        """Without steps that a scheduler of the cluster queues: these ask for nothing here."""
        if not self._scheduler or not self.options.get("on"):
            return self.plan
        return not_queued_there(self.plan, self._scheduler, self.options["on"])

    def _vet_demand(self, plan: Plan, queues: QueueStore, replica: QuotaReplica) -> tuple[Problem, ...]:
        from penstock.backends.registry import ELSEWHERE, KINDS
        from penstock.service import access
        from penstock.service.feasibility import vet

        on = self.options.get("on") or {}
        elsewhere = all(on.get(kind) in ELSEWHERE for kind in KINDS["kubernetes"])
        here = plan if replica.configured else on_this_machine(plan)
        there = any(makes_an_object(step) for step in self.workflow.steps)  # the queue may be the cluster's
        found = vet(replica, here, None if there else self.queue, elsewhere)
        rows = ((kind, text) for kind, _, _, text in queues.queue_objects())
        return found + access.vet(rows, replica, plan, self.actor)

    def _untracked(self, store: Store) -> tuple[Problem, ...]:
        """Parameters whose text names a file. It is said once: not if the last run had the same."""
        found = parameters.untracked(self.workflow, self.params)
        last = store.runs.newest(limit=1, workflow=self.workflow.name) if found else []
        before = last[0].params if last else {}
        return tuple(one for name, one in found.items() if before.get(name) != self.params[name])

    def record(self, store: Store, now: float | None = None, origin: Origin | None = None) -> RunRecord:
        self._note_secrets()
        document = self._document
        with uninterrupted():
            digest = codec.digest_of_text(document)
        return store.runs.create(
            self.workflow.name,
            digest,
            document,
            self.params,
            self.options,
            self.person,
            time.time() if now is None else now,
            self.tracked,
            origin,
        )

    def unfinished(self, store: Store) -> RunRecord | None:
        """The last run of the same workflow with the same parameters, if it was interrupted and no engine owns it. Runs with other
        parameters may have been started since."""
        self._note_secrets()
        name = self.workflow.name
        run = next(filter(self._repeats, store.runs.newest(state=ACTIVE, workflow=name)), None)
        if run is None or owner_alive(store, run) is not False:
            return None
        later = store.runs.newest(workflow=name, since=run.created)
        return run if next(filter(self._repeats, later), run).number == run.number else None

    def _repeats(self, run: RunRecord) -> bool:
        """Was the run started with the same command?"""
        if run.params != json.loads(json.dumps(self.params)) or run.options != self.options:
            return False
        return run.digest == codec.digest(self.workflow)


def _without_value(name: str) -> Problem:
    return Problem("P408", f"the parameter {name!r} has no value", f"give it one: -p {name}=…", where=f"params.{name}")


def local_actor() -> Actor:
    """The user of this process."""
    return Actor(user())


def user() -> str:
    """The user's name, as runs record it."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if os.name == "posix" else ""


# -- files that are parameters ----------------------------------------------------------------------------------------


def _no_file(name: str, error: ValueError) -> Problem:
    fix = "give files and folders that you can read; of a pipe, write what it gives to a file first"
    return Problem("P425", f"the parameter {name!r}: {error}", fix, where=f"params.{name}")
