"""A payload that was submitted from Python: its id, and the run that works on it. Made by LocalRunner and Client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from penstock.errors import InvalidWorkflow
from penstock.graph.check import errors
from penstock.graph.model import Workflow
from penstock.service.payloads.sender import PayloadSender
from penstock.settings import Settings


class PayloadSenders:
    """Of a runner: one for each workflow, thread and way to execute it, kept open."""

    def __init__(self, settings: Settings, options: Mapping[str, Any]) -> None:
        self._settings = settings
        self._options = options
        self._local = threading.local()

    def of(self, graph: Workflow, worker: bool) -> PayloadSender:
        """Raises UserError."""
        known: dict[Any, PayloadSender] = self._local.__dict__
        sender = known.get((id(graph), worker))
        if sender is None:  # it keeps the graph, so that no other one gets its id
            problems = errors(graph)
            if problems:
                raise InvalidWorkflow(problems)
            sender = known[id(graph), worker] = PayloadSender(graph, self._settings, self._options, worker)
        return sender

    def close(self) -> None:
        """Those of this thread; the others end with theirs."""
        known: dict[Any, PayloadSender] = self._local.__dict__
        while known:
            known.popitem()[1].close()


class Payload:
    """`created`: this submission has made the run. `open`: run -> what LocalRunner or Client gives for it."""

    def __init__(self, data: Mapping[str, Any], open: Callable[[str], Any]) -> None:
        self.id: str = data["payload"]
        self.created: bool = data["created"]
        self.attempt: int = data["attempt"]
        self.state: str = data["state"]
        """When it was submitted: queued, running, succeeded or invalid."""
        self.run_id: str = data["run"]
        self._open = open

    @property
    def run(self) -> Any:
        """The run that works on it, or has: Run or RemoteRun."""
        return self._open(self.run_id)

    def wait(self, timeout: float | None = None) -> Self:
        """Returns when the run is over, or after `timeout` seconds."""
        self.run.wait(timeout)
        return self

    @property
    def result(self) -> Any:
        """What the workflow returned. Raises RunFailed if it has not succeeded."""
        return self.run.result

    def __repr__(self) -> str:
        return f"<Payload {self.id} {self.run_id} {'new' if self.created else self.state}>"
