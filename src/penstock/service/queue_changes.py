"""Changes of queues, here or on a server: apply, stop, delete. Called by `penstock queue` and `Client`; what they do is in `queues`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.admission.model import Stop
from penstock.errors import Problem
from penstock.service import queues, stores
from penstock.service.policy import Actor
from penstock.service.submission import local_actor
from penstock.service.views.quotas import QueueReader, StoreQueues
from penstock.settings import Settings
from penstock.store.sql import Store

VERBS: Final = {"drain": Stop.DRAIN, "hold": Stop.HOLD, "resume": Stop.NONE}
Named = list[tuple[str, str]]
"""(kind, name) of objects."""


def apply(settings: Settings, sources: Sequence[tuple[str, str]]) -> tuple[Named, tuple[Problem, ...]]:
    """Each (text, file); all or none. Returns what was applied, and warnings. Raises UserError."""
    if settings.server:
        return apply_there(settings.server, sources)
    with stores.open_or_create(settings) as store:
        return queues.apply(store, *sources, by=local_actor())


def apply_there(server: str, sources: Sequence[tuple[str, str]]) -> tuple[Named, tuple[Problem, ...]]:
    from penstock.service.connection import problem_in
    from penstock.service.remote_store import connection

    given = {"files": [{"text": text, "name": name} for text, name in sources]}
    found = connection(server).post("queues", given)
    warnings = tuple(problem_in(one) for one in found["warnings"])
    return _named(found["changed"]), warnings


def stop(settings: Settings, name: str, verb: str) -> tuple[tuple[str, str], int, int]:
    """`verb`: of VERBS. What was stopped, or let go on, and how many held quota and waited before. Raises UserError."""
    with stores.open_existing(settings) as store:
        # Counted before: engines evict as soon as the queue is stopped.
        view = QueueReader(StoreQueues(store)).one(name, explained=0)
        changed = (
            _stop_there(settings.server, name, verb) if settings.server else stop_in(store, name, verb, local_actor())
        )
    return changed, len(view.holding), len(view.waiting)


def stop_in(store: Store, name: str, verb: str, by: Actor | None = None) -> tuple[str, str]:
    """`by`: whom the lists of the queue are asked about; None: that was done."""
    kind, _, called = queues.set_stop(store, name, VERBS[verb], by).partition(" ")
    return kind, called


def _stop_there(server: str, name: str, verb: str) -> tuple[str, str]:
    from urllib.parse import quote

    from penstock.service.remote_store import connection

    found = connection(server).post(f"queues/{quote(name)}/{verb}")
    return _named(found["changed"])[0]


def delete(settings: Settings, names: Sequence[str], everything: bool) -> Named:
    """Raises UserError."""
    if settings.server:
        from penstock.service.remote_store import connection

        return _named(connection(settings.server).delete("queues", name=names, all=everything or None)["changed"])
    with stores.open_existing(settings) as store:
        by = local_actor()
        return queues.delete_all(store, by) if everything else queues.delete(store, names, by)


def _named(rows: Any) -> Named:
    return [(one["kind"], one["name"]) for one in rows]
