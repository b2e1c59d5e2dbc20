"""Running workflows on a server, from Python: `Client("http://localhost:8080").run(workflow, **params)`. Called by authors."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Self

from penstock.errors import PlanError, Problem
from penstock.graph.model import Workflow
from penstock.runners.base import RunFailed, graph_of, single_result
from penstock.service.remote import OVER, ServerConnection


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

    def logs(self, path: str = "") -> str:
        """What its tasks printed, or those of a step, or one task."""
        return self._remote.text(f"runs/{self.id}/logs", path=path)

    def why(self, path: str = "") -> dict[str, Any]:
        """What it waits for: as `penstock why RUN -o json`."""
        found: dict[str, Any] = self._remote.get(f"runs/{self.id}/why", path=path)
        return found

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
        found = self._remote.submit(graph, params, options)
        return RemoteRun(self._remote, found["run"]["run"])

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
