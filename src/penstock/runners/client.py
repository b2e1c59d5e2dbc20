"""Running workflows on a server, from Python: `Client("http://localhost:8080").run(workflow, **params)`. Called by authors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self
from urllib.parse import quote

from penstock.errors import PlanError, Problem
from penstock.graph import codec
from penstock.graph.model import Workflow
from penstock.graph.paths import step_of
from penstock.plan.make import uninterrupted
from penstock.runners.base import RunFailed, graph_of, single_result
from penstock.runners.payloads import Payload
from penstock.service import stores
from penstock.service.connection import OVER, ServerConnection
from penstock.service.log_tail import LogTail
from penstock.service.logs import LogFilter
from penstock.service.remote import placed, submit, submit_payload
from penstock.service.requests import outputs_asked
from penstock.service.run_records import find
from penstock.service.workflows import step_at
from penstock.settings import read


class RemoteRun:
    """A run on a server, while it runs and afterwards."""

    def __init__(self, remote: ServerConnection, id: str) -> None:
        self.id = id
        self._remote = remote

    @property
    def data(self) -> dict[str, Any]:
        """All that the server says of it now: as `penstock show RUN -o json`."""
        found: dict[str, Any] = self._remote.get(f"runs/{self.id}")
        return found

    @property
    def status(self) -> str:
        """starting, running, queued, stopped, lost, succeeded, failed or cancelled."""
        return str(self.data["state"])

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    def wait(self, timeout: float | None = None) -> Self:
        """Returns when it is over, or after `timeout` seconds. A server that is away for less than 30 seconds is waited for."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.status not in OVER:
            for _ in self._remote.follow(self.id):
                if until is not None and time.monotonic() > until:
                    return self
        return self

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the workflow. Files are {kind, name, size, digest}: see `fetch`."""
        found = self._remote.get(f"runs/{self.id}/outputs")
        return {one["output"]: one["value"] for one in found["outputs"] if one["task"] is None}

    @property
    def result(self) -> Any:
        """What the workflow returned. Raises RunFailed if it has not succeeded."""
        self.check()
        return single_result(self.id, self.outputs)

    @property
    def failures(self) -> dict[str, str]:
        """Task -> why it failed; the first 20."""
        return {one["task"]: str(one.get("message", "")) for one in self.data["failures"]}

    def check(self) -> Self:
        """The run itself if it succeeded. Raises RunFailed if not."""
        data = self.data
        if data["state"] != "succeeded":
            reasons = [f"{one['task']}: {one.get('message', '')}" for one in data["failures"]]
            raise RunFailed(self.id, data["state"], reasons)
        return self

    def tasks(self, step: str = "", state: str = "") -> Iterator[dict[str, Any]]:
        """Its tasks by path: as `penstock show RUN/STEP -o json`."""
        yield from pages(self._remote, f"runs/{self.id}/tasks", step=step, state=state)

    def events(self, follow: bool = False) -> Iterator[dict[str, Any]]:
        """Everything that was recorded, in order, each once. `follow`: go on until it is over."""
        if follow:
            yield from (event for event in self._remote.follow(self.id) if event is not None)
        else:
            yield from pages(self._remote, f"runs/{self.id}/events")

    def logs(self, path: str = "", *, failed: bool = False, grep: str = "", tail: int | None = None) -> str:
        """What its tasks printed, or those of a step, or one task. `tail`: so many lines of each task."""
        return self._remote.text(f"runs/{self.id}/logs", path=path, failed=failed or None, grep=grep, tail=tail)

    def follow_logs(self, path: str = "") -> Iterator[tuple[str, str]]:
        """(task, line) as they are printed, also of tasks that start later; until the run, or the step or task, has ended."""
        settings = replace(read(), server=self._remote.address)
        with stores.open_existing(settings) as store:
            for task, lines in LogTail(store, find(store, self.id), path, False, settings, LogFilter()).follow():
                yield from ((task, line) for line in lines)

    def why(self, path: str = "") -> dict[str, Any]:
        """What it waits for: as `penstock why RUN -o json`."""
        found: dict[str, Any] = self._remote.get(f"runs/{self.id}/why", path=path)
        return found

    def resume(self, path: str = "", **params: Any) -> None:
        """A suspended step or task, with values for its outputs; without a path, a run that was interrupted. Returns at once."""
        if path:
            workflow = codec.from_text(self._remote.text(f"runs/{self.id}/document"), self.id)
            step = step_at(workflow, step_of(path))
            params = placed(self._remote, outputs_asked(workflow, step), params)
        self._remote.post(f"runs/{self.id}/resume", {"task": path, "params": params})

    def fetch(self, value: Any) -> bytes:
        """The bytes of a file among the outputs."""
        if not isinstance(value, dict) or "digest" not in value:
            fix = "give a value of `outputs` that is a file"
            raise PlanError(Problem("P935", "this value is no file", fix))
        return self._remote.fetch(str(value["digest"]))

    def cancel(self, now: bool = False) -> None:
        """End it. Returns before it has ended: `wait()`."""
        self._remote.post(f"runs/{self.id}/cancel", {"now": now})

    def retry(self) -> None:
        """Try again what failed in it. Returns at once: `wait()`."""
        self._remote.post(f"runs/{self.id}/retry")

    def __repr__(self) -> str:
        return f"<RemoteRun {self.id} at {self._remote.base}>"


class Client:
    """A server of Penstock. `url` and `token`: $PENSTOCK_SERVER and $PENSTOCK_TOKEN if they are not given."""

    def __init__(self, url: str = "", token: str = "") -> None:
        self._remote = ServerConnection(url or os.environ.get("PENSTOCK_SERVER", ""), token)

    def submit(
        self,
        workflow: Any,
        /,
        *,
        queue: str | None = None,
        priority: str | int | None = None,
        unit: str | None = None,
        until: Sequence[str] = (),
        fail_fast: bool = False,
        fresh: bool = False,
        **params: Any,
    ) -> RemoteRun:
        """Send it with its code and the files among its parameters, and return at once."""
        graph: Workflow = graph_of(workflow)
        options = {
            "queue": queue,
            "priority": priority,
            "unit": unit,
            "until": list(until),
            "fail_fast": fail_fast,
            "fresh": fresh,
        }
        found = submit(self._remote, graph, params, options)
        return RemoteRun(self._remote, found["run"]["run"])

    def submit_payload(
        self,
        workflow: Any,
        payload: Any,
        /,
        *,
        replace: bool = False,
        version: int | None = None,
        label: str = "",
        queue: str | None = None,
        priority: str | int | None = None,
        **params: Any,
    ) -> Payload:
        """Have a payload worked on, unless it is or was: there is one run for each identity, however often it is submitted. `replace`: do it
        again. `version`: of the identity. `params`: the workflow's other parameters."""
        options = {"queue": queue, "priority": priority}
        asked = {"replace": replace, "version": version, "label": label}
        found = submit_payload(self._remote, graph_of(workflow), payload, params, options, asked)
        return Payload(found, lambda run: RemoteRun(self._remote, run))

    def payloads(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Those that were submitted last come first; `state`, `workflow`, `since` and `error` choose."""
        yield from pages(self._remote, "payloads", **filters)

    def run(self, workflow: Any, /, **given: Any) -> RemoteRun:
        """Run it to its end. Takes what `submit` takes."""
        return self.submit(workflow, **given).wait()

    def open_run(self, name: str = "@") -> RemoteRun:
        """A run of the server: `finetune-3`; `@` is the last one. Raises NotFound."""
        return RemoteRun(self._remote, self._remote.get(f"runs/{name}")["run"])

    def runs(self, **filters: Any) -> list[dict[str, Any]]:
        """The newest first; `state`, `workflow`, `user`, `limit` choose."""
        found: list[dict[str, Any]] = self._remote.get("runs", **filters)["items"]
        return found

    # -- queues -------------------------------------------------------------------------------------------------------

    def queues(self) -> list[dict[str, Any]]:
        """As `penstock queue ls -o json`."""
        found: list[dict[str, Any]] = self._remote.get("queues")["items"]
        return found

    def queue(self, name: str) -> dict[str, Any]:
        """Who holds its quota, who waits, in order, and why: as `penstock queue show NAME -o json`. Raises NotFound."""
        found: dict[str, Any] = self._remote.get(f"queues/{quote(name)}")
        return found

    def drain(self, queue: str, hold: bool = False) -> dict[str, Any]:
        """Stop a queue. `hold`: what runs in it may finish."""
        found: dict[str, Any] = self._remote.post(f"queues/{quote(queue)}/{'hold' if hold else 'drain'}")
        return found

    def resume_queue(self, queue: str) -> dict[str, Any]:
        """Let a queue that was stopped admit again."""
        found: dict[str, Any] = self._remote.post(f"queues/{quote(queue)}/resume")
        return found

    def apply_queues(self, manifests: str) -> list[tuple[str, str]]:
        """Kueue's manifests, or the configuration of YuniKorn. Returns (kind, name) of what was applied."""
        found = self._remote.post("queues", {"files": [{"text": manifests, "name": "<manifests>"}]})
        return [(one["kind"], one["name"]) for one in found["changed"]]

    def simulate(self, *workflows: Any, **options: Any) -> dict[str, Any]:
        """Workflows on a virtual clock against the queues of the server: as `penstock queue simulate -o json`. `options`: of POST
        /api/v1/simulate, as in capacity="cpu=8" or units=["stage"]."""
        with uninterrupted():
            sent = [{"document": codec.to_json(graph_of(one))} for one in workflows]
        found: dict[str, Any] = self._remote.post("simulate", {"workflows": sent, **options})
        return found


def pages(remote: ServerConnection, path: str, **query: Any) -> Iterator[dict[str, Any]]:
    """The items of a list, page by page."""
    cursor: str | None = ""
    while cursor is not None:
        page = remote.get(path, cursor=cursor, limit=500, **query)
        yield from page["items"]
        cursor = page["next"]
