"""Configuration of queues: apply manifests, find a queue, stop it, delete it. Called by `penstock queue`, by each submission (the file
penstock.yaml) and by the views.

Queues are stored as Kueue's own objects, so that every engine on the store decides on the same ones. As long as none is stored, every
queue name means one queue as large as this machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.admission.model import Check, ClusterQueue, Cohort, LocalQueue, Namespace, Object, Stop, Workload
from penstock.admission.scheduler import Scheduler
from penstock.engine.checks import registered_checks
from penstock.engine.quota_replica import CONFIGURATION, KINDS, QuotaReplica
from penstock.errors import NotFound, Problem, UserError, nearest
from penstock.service import access_lists, policy, prices, yunikorn
from penstock.service.machine import machine
from penstock.service.policy import Actor
from penstock.service.tracking import target
from penstock.service.wording import MACHINE
from penstock.store.protocols import QueueStore
from penstock.store.queues import QueueRepository
from penstock.store.records import WorkloadRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.admission.manifests.read import Manifest

FILE = "penstock.yaml"
Row = tuple[str, str, str]
"""(kind, name, document as JSON text) of an object."""
_OTHERS: Mapping[type, str] = {Check: "AdmissionCheck", Namespace: "Namespace"}


def replica_of(store: QueueStore, now: float | None = None, gated: bool = True) -> QuotaReplica:
    """The queues as they are now, for reading. `gated`: with the Workloads of stages that are not ready yet; there may be thousands,
    and no decision depends on them."""
    there = store.capacity if isinstance(store, QueueRepository) else None
    replica = QuotaReplica(store if gated else _Ungated(store), "", machine(there() if there is not None else None))
    replica.load(time.time() if now is None else now)
    return replica


class _Ungated:
    """The queues of a store without gated Workloads."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store

    def last_decision(self) -> int:
        return self._store.last_decision()

    def queue_objects(self, after: int = -1) -> list[tuple[str, str, int, str | None]]:
        return self._store.queue_objects(after)

    def workloads(self, after: int | None = None) -> list[WorkloadRecord]:
        return [one for one in self._store.workloads(after) if one.state != "gated"]


def objects_in(queues: Scheduler, named: Iterable[LocalQueue]) -> list[Object]:
    """Everything that is configured, with these LocalQueues."""
    parts: Iterable[Mapping[str, Any]] = (
        queues.flavors,
        queues.cohorts,
        queues.cluster_queues,
        queues.priority_classes,
        queues.namespaces,
        queues.checks,
    )
    return [*(one for part in parts for one in part.values()), *named]


def named_queues(queues: Scheduler) -> list[LocalQueue]:
    """The LocalQueues that are configured, without those that were made so that a ClusterQueue can be named directly."""
    return [
        queue
        for queue in queues.local_queues.values()
        if queue != LocalQueue(name=queue.cluster_queue, cluster_queue=queue.cluster_queue)
    ]


# -- applying ---------------------------------------------------------------------------------------------------------


def apply(
    store: Store, *sources: tuple[str, str], by: Actor | None = None
) -> tuple[list[tuple[str, str]], tuple[Problem, ...]]:
    """Put the objects of manifests, each (text, file), into the store: all or none. Returns (kind, name) of each, and warnings. `by`: who must
    administer the queues; None: that is known. Raises UserError with all problems."""
    rows, warnings = rows_of(store, *sources)
    if by is not None:
        policy.check_change(store, by)
    if rows:
        gone = {(kind, name): (kind, name, None) for kind, name in _left_by_yunikorn(store, rows)}
        changed = {(kind, name): (kind, name, text) for kind, name, text in rows}
        store.queues.put_queue_objects({**gone, **changed}.values())
    return [(kind, name) for kind, name, _ in rows if kind != yunikorn.KIND], warnings


def _left_by_yunikorn(store: Store, rows: Iterable[Row]) -> set[tuple[str, str]]:
    """Queues of the configuration of YuniKorn that was applied before, if there is a new one: it takes the place of the old one."""
    if not any(kind == yunikorn.KIND for kind, _, _ in rows):
        return set()
    before = yunikorn.stored((kind, text) for kind, _, _, text in store.queues.queue_objects())
    return yunikorn.object_names(before) if before is not None else set()


def rows_of(store: Store | None, *sources: tuple[str, str]) -> tuple[list[Row], tuple[Problem, ...]]:
    """The objects of manifests as rows of the store, checked against what is stored, and warnings. Raises UserError with all
    problems."""
    from penstock.admission.manifests.read import manifest, objects_of
    from penstock.admission.manifests.write import document

    stored = [] if store is None else [json.loads(text) for kind, _, _, text in store.queues.queue_objects() if text]
    before = {(_kind(one), _name(one)): one for one in objects_of(stored)}
    wrong: list[Problem] = []
    known = list(before.values())
    sources = tuple((prices.split(target.split(text)[1])[1], file) for text, file in sources)
    sources, lists = _with_access(sources, wrong)
    sources, kept, said = _translated(sources, wrong)
    kept += lists
    for text, file in sources:
        try:
            found = manifest(text, file, known)
        except UserError as error:
            wrong += error.problems
        else:
            wrong += _refused(before, found)
            known += found.objects
    if wrong:
        raise UserError(wrong)
    rows: list[Row] = kept
    warnings: list[Problem] = said
    for text, file in sources:  # again, now that the objects of all files are known
        found = manifest(text, file, known)
        rows += [(_kind(one), _name(one), json.dumps(document(one))) for one in found.objects]
        if found.configuration is not None:
            rows.append((CONFIGURATION, "", json.dumps(found.configuration)))
        warnings += [*found.warnings, *_admitting_nothing(found)]
    unknown = [problem for row in lists for problem in access_lists.unknown(row, _named(known))]
    if unknown:
        raise UserError(unknown)
    return rows, tuple(warnings)


def _named(objects: Iterable[Any]) -> Iterable[str]:
    """What lists of `access:` may be for."""
    return (str(one.name) for one in objects if isinstance(one, ClusterQueue | LocalQueue | Cohort))


def _with_access(
    sources: tuple[tuple[str, str], ...], wrong: list[Problem]
) -> tuple[tuple[tuple[str, str], ...], list[Row]]:
    """The same without `access:`, and the row that keeps it."""
    found: list[tuple[str, str]] = []
    rows: list[Row] = []
    for text, file in sources:
        try:
            row, rest = access_lists.taken(text, file)
        except UserError as error:
            wrong += error.problems
            continue
        found.append((rest, file))
        rows += [row] if row is not None else []
    return tuple(found), rows[-1:]


def _translated(
    sources: tuple[tuple[str, str], ...], wrong: list[Problem]
) -> tuple[tuple[tuple[str, str], ...], list[Row], list[Problem]]:
    """The same with YuniKorn's configuration as Kueue's manifests, the row that keeps it, and warnings."""
    found: list[tuple[str, str]] = []
    rows: list[Row] = []
    warnings: list[Problem] = []
    for text, file in sources:
        try:
            other = yunikorn.translated(text, file)
        except UserError as error:
            wrong += error.problems
            continue
        found.append((text if other is None else other.text, file))
        if other is not None:
            rows.append(other.row)
            warnings += other.warnings
    return tuple(found), rows, warnings


def _admitting_nothing(found: Manifest) -> list[Problem]:
    """Warnings about objects that are valid in Kueue and would admit nothing here."""
    warnings = []
    for one, source in zip(found.objects, found.sources, strict=True):
        if isinstance(one, Check) and one.name not in registered_checks():
            message = (
                f"nothing answers the admission check {one.name!r} here: Workloads in queues that use it go on waiting"
            )
            fix = "register a function for it (docs/reference/queues.md), or leave it out of the queues that runs on this machine use"
        elif isinstance(one, ClusterQueue) and one.namespaces is None:
            message = f"ClusterQueue {one.name!r} has no namespaceSelector, so it admits nothing from any namespace"
            fix = "add `namespaceSelector: {}`, which matches all namespaces"
        else:
            continue
        warnings.append(Problem("P819", message, fix, source=source, severity="warning"))
    return warnings


def _refused(before: Mapping[tuple[str, str], Any], found: Manifest) -> list[Problem]:
    from penstock.admission.manifests.validate import changes

    wrong = []
    for one, source in zip(found.objects, found.sources, strict=True):
        if isinstance(one, Workload):
            message = f"{one.key} is a Workload: those are made by runs"
            wrong.append(Problem("P816", message, "leave it out of the file", source=source))
        elif (_kind(one), _name(one)) in before:
            wrong += changes(before[_kind(one), _name(one)], one, source)
    return wrong


def _kind(one: Any) -> str:
    return next((kind for kind, type in KINDS.items() if isinstance(one, type)), _OTHERS.get(type(one), ""))


def _name(one: Any) -> str:
    return one.key if isinstance(one, LocalQueue) else str(one.name)


def read_file(path: str | Path) -> str:
    """The text of a file with queues. Raises UserError."""
    try:
        return Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    except OSError as error:
        why = error.strerror or str(error)
    raise UserError(Problem("P817", f"cannot read {path}: {why}", "name a file with Kueue's manifests"))


def from_file(
    store: Store, path: str | Path | None, place: Path | None = None, by: Actor | None = None
) -> tuple[Problem, ...]:
    """Before a run: apply this file, or penstock.yaml of the folder where the run is started, if it has changed since it was last
    applied. So a run does not undo what was changed by hand in between. Returns warnings. `by`: as in `apply`."""
    found = Path(path) if path is not None else (place or Path.cwd()) / FILE
    if path is None and not found.is_file():
        return ()
    text = read_file(found)
    if is_applied(store, found, text):
        return ()
    _, warnings = apply(store, (text, str(found)), by=by)
    store.note(*_mark(found, text))
    return warnings


def changed_by(store: Store, rows: Iterable[Row]) -> tuple[str, ...]:
    """Which of these objects are new or different, in words."""
    known = {(kind, name): text for kind, name, _, text in store.queues.queue_objects()}
    changed = {(kind, name): None for kind, name, text in rows if known.get((kind, name)) != text}
    return tuple(f"{kind} {name}".strip() for kind, name in changed)


def is_applied(store: Store, path: Path, text: str) -> bool:
    """Was the file applied with this text last, and are there queues?"""
    name, mark = _mark(path, text)
    return store.note(name) == mark and any(document is not None for *_, document in store.queues.queue_objects())


def _mark(path: Path, text: str) -> tuple[str, str]:
    return f"queues {path.absolute()}", hashlib.sha256(text.encode()).hexdigest()


# -- one queue --------------------------------------------------------------------------------------------------------


def find_queue(
    queues: Scheduler, named: Iterable[LocalQueue], name: str, configured: bool = True
) -> ClusterQueue | LocalQueue:
    """A ClusterQueue, or one of the LocalQueues (`team-a`, or `namespace/team-a`). A ClusterQueue wins over a LocalQueue of the same name.
    Raises NotFound, or UserError if several LocalQueues have the name."""
    if name in queues.cluster_queues:
        return queues.cluster_queues[name]
    found = [one for one in named if name in (one.name, one.key)]
    if not found:
        if not configured:
            message = f"there is no queue {name!r}, only this machine itself ({MACHINE})"
            raise NotFound(Problem("P812", message, "penstock queue apply FILE makes queues"))
        raise NotFound(no_such_queue(queues, name))
    if len(found) > 1:
        raise _ambiguous(name, [one.key for one in found])
    return found[0]


def no_such_queue(queues: Scheduler, name: str | None, where: str = "") -> Problem:
    """`name`: None if none was given, and it is not clear which queue is meant."""
    known = sorted({queue.name for queue in queues.local_queues.values()} | set(queues.cluster_queues))
    if name is None and known:
        fix = f"say which: --queue {known[0]}; there are: {', '.join(known)}"
        return Problem("P813", "there are several queues, and none is named", fix, where=where)
    fix = f"there are: {', '.join(known)}.{nearest(name or '', known)}"
    if not known:
        fix = "apply a ClusterQueue; or, to go back to this machine: penstock queue delete --all"
    return Problem("P812", f"there is no queue {name!r}" if name else "there is no queue", fix, where=where)


def _ambiguous(name: str, keys: Iterable[str]) -> UserError:
    return UserError(Problem("P813", f"several queues are called {name!r}", f"say which: {', '.join(sorted(keys))}"))


def set_stop(store: Store, name: str, stop: Stop, by: Actor | None = None) -> str:
    """Stop a queue, or let it go on. Returns what was changed: "ClusterQueue shared". `by`: who must administer it; None: that is known. Raises
    UserError."""
    from penstock.admission.manifests.write import document

    replica = replica_of(store.queues)
    found = find_queue(replica.scheduler, named_queues(replica.scheduler), name, replica.configured)
    if by is not None:
        policy.check_queue(policy.policy_of(store), replica.scheduler, found, by)
    if not replica.configured:
        fix = "penstock queue apply FILE makes queues that can be stopped"
        raise UserError(Problem("P812", "this machine itself cannot be drained or stopped", fix))
    changed = dataclasses.replace(found, stop=stop)
    store.queues.put_queue_objects([(_kind(changed), _name(changed), json.dumps(document(changed)))])
    return f"{_kind(changed)} {_name(changed)}"


def delete(store: Store, names: Sequence[str], by: Actor | None = None) -> list[tuple[str, str]]:
    """`team-a` is a queue, `Cohort/all` an object of another kind. Returns (kind, name) of each. If one does not exist, none is
    deleted and NotFound is raised. `by`: as in `apply`."""
    if by is not None:
        policy.check_change(store, by)
    rows = _stored(store)
    chosen: list[tuple[str, str]] = []
    for name in names:
        of_kind = [(kind, key) for kind, key in rows if f"{kind}/{key}".lower() == name.lower()]
        queues = [row for row in rows if row == ("ClusterQueue", name)] or [
            (kind, key) for kind, key in rows if kind == "LocalQueue" and name in (key, key.partition("/")[2])
        ]
        found = of_kind or queues
        if not found:
            known = [key if kind in ("ClusterQueue", "LocalQueue") else f"{kind}/{key}" for kind, key in rows]
            short = [one.removeprefix("default/") for one in known]
            fix = f"there are: {', '.join(short) or 'none'}.{nearest(name, short)}"
            raise NotFound(Problem("P812", f"there is no queue {name!r}", fix))
        if len(found) > 1:
            raise _ambiguous(name, [key for _, key in found])
        chosen += found
    return _deleted(store, chosen)


def delete_all(store: Store, by: Actor | None = None) -> list[tuple[str, str]]:
    """Afterwards only this machine itself is left as a queue. `by`: as in `apply`."""
    if by is not None:
        policy.check_change(store, by)
    return _deleted(store, _stored(store))


def _stored(store: Store) -> list[tuple[str, str]]:
    return [(kind, key) for kind, key, _, text in store.queues.queue_objects() if text is not None]


def _deleted(store: Store, rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if rows:
        store.queues.put_queue_objects([(kind, key, None) for kind, key in dict.fromkeys(rows)])
    return list(dict.fromkeys(rows))
