"""A cluster beside the store: what lists and pages show of it. The server asks a ClusterSource; `controller.inspect.watched` is one.

Nothing here waits for the cluster: a source answers from what it has seen, and says how old that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.service.views.quotas import QueueView
from penstock.service.why_text import Said


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    name: str
    """The context."""
    problem: str = ""
    """Why what is shown may be out of date, or is missing."""
    seen: float | None = None
    """When what is shown was put together; None: not yet."""

    def as_data(self) -> dict[str, Any]:
        return {"cluster": self.name, "problem": self.problem or None, "seen": self.seen}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterItem:
    """Something in the queues of a cluster: a workflow of Argo or Tekton, a JobSet, a Job, a run of `penstock run`; or what asks to be."""

    namespace: str
    target: str
    """`workflow/nightly`"""
    name: str = ""
    """What people know it by, if that is something else: `run/flow-1/train`."""
    state: str
    """queued · running: some of it is admitted · stopping"""
    queue: str
    since: float | None
    reason: str = ""
    """Why it, or the part of it that waits, waits; in one line."""
    parts: int = 1
    """Workloads that are not over."""

    def as_data(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "object": self.target,
            "name": self.name or self.target,
            "state": self.state,
            "queue": self.queue or None,
            "since": self.since,
            "reason": self.reason or None,
            "workloads": self.parts,
        }


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """All that is known of why one object waits."""

    object: str
    namespace: str
    head: str
    """What is to be said of it as a whole; may be empty."""
    said: Sequence[Said]
    rest: Sequence[str]
    """What is not reached yet, or is over."""
    data: dict[str, Any]
    """As `penstock why KIND/NAME -o json`."""


class ClusterSource(Protocol):
    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called by a thread of the source whenever it has something new."""

    def stop(self) -> None: ...

    def status(self) -> ClusterStatus: ...

    def queues(self) -> Sequence[QueueView]:
        """Every ClusterQueue; none as long as nothing has been seen."""

    def queue(self, name: str, explained: int) -> QueueView:
        """A ClusterQueue, or a LocalQueue as `namespace/name`. Raises NotFound."""

    def items(self) -> Sequence[ClusterItem]:
        """Those that wait come first, in the order in which they began."""

    def why(self, target: str, namespace: str) -> ClusterAnswer:
        """Raises NotFound."""
