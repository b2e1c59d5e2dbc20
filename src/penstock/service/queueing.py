"""The verbs on queues: what this machine has to share, what an administrator applies, what a workflow may ask for. Called by runs
(every submission), cli, local and simulate.

Queues are kept in the store as Kueue's own objects, so that every engine on it decides on the same ones. With none there, all
names mean one queue that is as large as this machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock.admission.explain import Shortage, fits_ever
from penstock.admission.model import (
    UNLIMITED,
    Check,
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Stop,
    Workload,
)
from penstock.admission.queues import Queues
from penstock.engine.book import CONFIGURATION, KINDS, Book, queue_called, registered_checks, with_own_names
from penstock.engine.reserved import base, where
from penstock.errors import NotFound, PlanError, Problem, UserError, nearest
from penstock.graph.model import Unit, Workflow
from penstock.service.wording import MACHINE, amount, figure
from penstock.store.base import Standing
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.plan.make import Plan
    from penstock.plan.reserve import Reservation
    from penstock.plan.stages import Stage

FILE = "penstock.yaml"
GPU = "nvidia.com/gpu"
TOLD = 10
"""Steps that are named of many that ask for too much."""


# -- this machine -------------------------------------------------------------------------------------------------------


def capacity() -> dict[str, int]:
    """Cores in thousandths, bytes of memory, cards."""
    try:
        cores = len(os.sched_getaffinity(0)) * 1000
    except AttributeError:
        cores = (os.cpu_count() or 1) * 1000
    limit = _number("/sys/fs/cgroup/cpu.max", 0), _number("/sys/fs/cgroup/cpu.max", 1)
    if limit[0] and limit[1]:
        cores = min(cores, max(1, limit[0] * 1000 // limit[1]))
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = UNLIMITED
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        memory = min(memory, _number(file, 0) or memory)
    cards = sum(1 for path in Path("/dev").glob("nvidia[0-9]*"))
    return {"cpu": cores, "memory": memory, GPU: cards, "ephemeral-storage": UNLIMITED}


def _number(file: str, word: int) -> int:
    try:
        return int(Path(file).read_text().split()[word])
    except (OSError, ValueError, IndexError):
        return 0


def machine(amounts: Mapping[str, int] | None = None) -> list[Object]:
    """One queue with what this machine has."""
    found = capacity() if amounts is None else amounts
    quotas = FlavorQuotas(MACHINE, {name: Quota(amount) for name, amount in found.items()})
    return [
        ResourceFlavor(name=MACHINE),
        ClusterQueue(name=MACHINE, groups=(ResourceGroup(tuple(found), (quotas,)),)),
        LocalQueue(name="default", cluster_queue=MACHINE),
    ]


def book_of(store: Store, now: float | None = None, gated: bool = True) -> Book:
    """The queues as they are now, to look at. `gated`: with the stages whose time has not come, of which there may be thousands and
    on which nothing depends."""
    book = Book(store if gated else cast(Store, _Ungated(store)), "", machine())
    book.load(time.time() if now is None else now)
    return book


class _Ungated:
    """A store as a book reads it, without those that are gated."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last_decision = store.last_decision
        self.queue_objects = store.queue_objects

    def workloads(self, after: int | None = None) -> list[Standing]:
        return [one for one in self.store.workloads(after) if one.state != "gated"]


def objects_in(queues: Queues) -> list[Object]:
    """Everything that is configured, without the LocalQueues that stand only for the name of a ClusterQueue."""
    parts: Iterable[Mapping[str, Any]] = (
        queues.flavors, queues.cohorts, queues.cluster_queues, queues.priority_classes, queues.namespaces, queues.checks,
    )  # fmt: skip
    return [*(one for part in parts for one in part.values()), *(named_queues(queues))]


def named_queues(queues: Queues) -> list[LocalQueue]:
    return [
        queue
        for queue in queues.local_queues.values()
        if queue != LocalQueue(name=queue.cluster_queue, cluster_queue=queue.cluster_queue)
    ]


# -- applying -------------------------------------------------------------------------------------------------------------


def apply(store: Store, *sources: tuple[str, str]) -> tuple[list[tuple[str, str]], tuple[Problem, ...]]:
    """Put the objects of manifests, each (text, file), into the store: all or none. Returns (kind, name) of each, and what is worth
    a word."""
    rows, warnings = rows_of(store, *sources)
    if rows:
        store.put_queue_objects({(kind, name): (kind, name, text) for kind, name, text in rows}.values())
    return [(kind, name) for kind, name, _ in rows], warnings


def rows_of(store: Store | None, *sources: tuple[str, str]) -> tuple[list[tuple[str, str, str]], tuple[Problem, ...]]:
    """(kind, name, document) of each object in manifests, checked against what is in the store, and what is worth a word.
    Raises UserError with all that is wrong."""
    from penstock.admission.read import manifest, objects_of
    from penstock.admission.write import document

    stored = [] if store is None else [json.loads(text) for kind, _, _, text in store.queue_objects() if text]
    before = {(_kind(one), _name(one)): one for one in objects_of(stored)}
    wrong: list[Problem] = []
    known = list(before.values())
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
    rows: list[tuple[str, str, str]] = []
    warnings: list[Problem] = []
    for text, file in sources:  # again, now that everything that is named anywhere is known
        found = manifest(text, file, known)
        rows += [(_kind(one), _name(one), json.dumps(document(one))) for one in found.objects]
        if found.configuration is not None:
            rows.append((CONFIGURATION, "", json.dumps(found.configuration)))
        warnings += [*found.warnings, *_idle(found)]
    return rows, tuple(warnings)


def _idle(found: Any) -> list[Problem]:
    """Queues that are right as Kueue sees it, and would let nobody in."""
    warnings = []
    for one, source in zip(found.objects, found.sources, strict=True):
        if isinstance(one, Check) and one.name not in registered_checks():
            message = f"nobody answers the admission check {one.name!r} here: what queues that ask for it would admit goes on waiting"
            fix = "register a function for it (docs/reference/queues.md), or leave it out of the queues that runs on this machine use"
        elif isinstance(one, ClusterQueue) and one.namespaces is None:
            message = f"ClusterQueue {one.name!r} has no namespaceSelector, and so it takes nothing from anybody"
            fix = "add `namespaceSelector: {}`, which takes from all"
        else:
            continue
        warnings.append(Problem("P819", message, fix, source=source, severity="warning"))
    return warnings


def _refused(before: Mapping[tuple[str, str], Any], found: Any) -> list[Problem]:
    from penstock.admission.validate import changes

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


_OTHERS: Mapping[type, str] = {Check: "AdmissionCheck", Namespace: "Namespace"}


def _name(one: Any) -> str:
    return one.key if isinstance(one, LocalQueue) else str(one.name)


def read_file(path: str | Path) -> str:
    try:
        return Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(Problem("P817", f"cannot read {path}: {said}", "name a file with Kueue's manifests")) from None


def from_file(store: Store, path: str | Path | None, place: Path | None = None) -> tuple[Problem, ...]:
    """Before a run: the file that was named, or penstock.yaml where the run is started, applied if it has changed since it was last
    applied. What was done to the queues by hand in between is not undone by running again."""
    found = Path(path) if path is not None else (place or Path.cwd()) / FILE
    if path is None and not found.is_file():
        return ()
    text = read_file(found)
    if is_applied(store, found, text):
        return ()
    _, warnings = apply(store, (text, str(found)))
    store.note(*_mark(found, text))
    return warnings


def is_applied(store: Store, path: Path, text: str) -> bool:
    name, mark = _mark(path, text)
    return store.note(name) == mark and any(document is not None for *_, document in store.queue_objects())


def _mark(path: Path, text: str) -> tuple[str, str]:
    return f"queues {path.absolute()}", hashlib.sha256(text.encode()).hexdigest()


# -- one queue ------------------------------------------------------------------------------------------------------------


def find_queue(book: Book, name: str) -> ClusterQueue | LocalQueue:
    """A ClusterQueue, or a LocalQueue (`team-a`, or `namespace/team-a`); if both are called so, the larger of the two. Raises
    NotFound, or UserError if it is not clear which is meant."""
    if name in book.queues.cluster_queues:
        return book.queues.cluster_queues[name]
    found = [one for one in named_queues(book.queues) if name in (one.name, one.key)]
    if not found:
        raise no_queue(book, name)
    if len(found) > 1:
        which = ", ".join(sorted(one.key for one in found))
        raise UserError(Problem("P813", f"several queues are called {name!r}", f"say which: {which}"))
    return found[0]


def no_queue(book: Book, name: str) -> NotFound:
    if not book.configured:
        fix = "penstock queue apply FILE makes some"
        return NotFound(Problem("P812", f"there is no queue {name!r}, only this machine itself ({MACHINE})", fix))
    return NotFound(no_such(book, name))


def _known(book: Book) -> list[str]:
    """Every name that `--queue` takes."""
    return sorted({queue.name for queue in book.queues.local_queues.values()} | set(book.queues.cluster_queues))


def set_stop(store: Store, name: str, stop: Stop) -> str:
    """Stop a queue, or let it go on. Returns what was changed: "ClusterQueue shared"."""
    from penstock.admission.write import document

    book = book_of(store)
    found = find_queue(book, name)
    if not book.configured:
        fix = "penstock queue apply FILE makes queues that can be"
        raise UserError(Problem("P812", "this machine itself cannot be drained or stopped", fix))
    changed = dataclasses.replace(found, stop=stop)
    store.put_queue_objects([(_kind(changed), _name(changed), json.dumps(document(changed)))])
    return f"{_kind(changed)} {_name(changed)}"


def delete(store: Store, names: Sequence[str]) -> list[tuple[str, str]]:
    """`team-a` is a queue, `Cohort/all` an object of another kind. Returns (kind, name) of each; none is gone if one is not there."""
    rows = [(kind, key) for kind, key, _, text in store.queue_objects() if text is not None]
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
            which = ", ".join(key for _, key in found)
            raise UserError(Problem("P813", f"several queues are called {name!r}", f"say which: {which}"))
        chosen += found
    return _deleted(store, chosen)


def delete_all(store: Store) -> list[tuple[str, str]]:
    """Back to this machine alone."""
    return _deleted(store, [(kind, key) for kind, key, _, text in store.queue_objects() if text is not None])


def _deleted(store: Store, rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if rows:
        store.put_queue_objects([(kind, key, None) for kind, key in dict.fromkeys(rows)])
    return list(dict.fromkeys(rows))


# -- what a workflow may ask for --------------------------------------------------------------------------------------


def vet(book: Book, plan: Plan, queue: str | None = None) -> tuple[Problem, ...]:
    """Refuse what could never start. Raises PlanError with all of it. Returns what is worth a word. `queue`: named by hand."""
    unknown = _queue_names(plan) if book.configured else []
    problems = [no_such(book, *one) for one in unknown if queue_called(book.queues, one[0]) is None]
    problems += no_priority(book, plan)
    if plan.unit is Unit.WORKFLOW and len(_queue_names(plan)) > 1:
        message = "its steps are in several queues, and the unit is the whole workflow, which can be in one only"
        problems.append(Problem("P815", message, "use --unit stage, or one queue", where="unit"))
    if not problems:
        problems = _never(book, plan)
    if problems:
        raise PlanError(problems)
    if queue is None or book.configured:
        return ()
    message = f"there are no queues here but this machine itself: {queue!r} means nothing yet"
    return (Problem("P812", message, "penstock queue apply FILE makes queues", severity="warning"),)


def _never(book: Book, plan: Plan) -> list[Problem]:
    empty = emptied(book)
    seen: dict[Any, tuple[Shortage, ...]] = {}
    problems: list[Problem] = []
    more = 0
    for one in asked(book, plan):
        shut = shut_out(book, one.workload)
        if shut:
            return [Problem("P819", shut, "change its namespaceSelector: `{}` takes from all", where="queue")]
        if one.shape not in seen:
            seen[one.shape] = fits_ever(empty, one.workload)
        if seen[one.shape]:
            if len(problems) < TOLD:
                problems.append(impossible(book, plan, one, seen[one.shape]))
            else:
                more += 1
    if more:
        last = problems[-1]
        problems[-1] = dataclasses.replace(last, message=f"{last.message}; and {more:,} more like it")
    return problems


def shut_out(book: Book, workload: Workload) -> str:
    """Why its queue takes nothing from its namespace, if that is so."""
    queue = book.queues.queue_of(workload)
    admits = book.queues.admits(queue) if queue in book.queues.cluster_queues else None
    if admits is None or admits(workload.namespace):
        return ""
    return f"ClusterQueue {queue!r} takes nothing from namespace {workload.namespace!r}"


def _queue_names(plan: Plan) -> list[tuple[str | None, str]]:
    found: dict[str | None, str] = {}
    for stage in plan.stages:
        if stage.demand() and not stage.exempt and not stage.skipped:
            own = stage.queue is not None and stage.queue != plan.workflow.queue
            found.setdefault(stage.queue, f"steps.{stage.name}.queue" if own else "queue")
    return list(found.items())


def no_priority(book: Book, plan: Plan) -> list[Problem]:
    """Classes that are named and do not exist."""
    if not book.configured:
        return []
    named: dict[str, str] = {}
    for stage in plan.stages:
        if isinstance(stage.priority, str):
            own = stage.priority != plan.workflow.priority
            named.setdefault(stage.priority, f"steps.{stage.name}.priority" if own else "priority")
    known = sorted(book.queues.priority_classes)
    return [
        Problem(
            "P814",
            f"there is no priority class {name!r}",
            f"there are: {', '.join(known) or 'none'}; or give a number.{nearest(name, known)}",
            where=where_,
        )
        for name, where_ in named.items()
        if name not in book.queues.priority_classes
    ]


def no_such(book: Book, name: str | None, where_: str = "") -> Problem:
    """What is wrong with a name that leads to no queue."""
    known = _known(book)
    if name is None and known:
        fix = f"say which: --queue {known[0]}; there are: {', '.join(known)}"
        return Problem("P813", "there are several queues, and none is named", fix, where=where_)
    fix = f"there are: {', '.join(known)}.{nearest(name or '', known)}"
    if not known:
        fix = "apply a ClusterQueue; or, to go back to this machine: penstock queue delete --all"
    return Problem("P812", f"there is no queue {name!r}" if name else "there is no queue", fix, where=where_)


class Asked(NamedTuple):
    """What a workflow will put in line, as its engine will."""

    name: str
    workload: Workload
    shape: Any
    """The same for what is decided in the same way."""
    queue: str | None
    """As the author calls it."""
    replicas: int = 1


def asked(book: Book, plan: Plan) -> Iterator[Asked]:
    stages = {stage.name: stage for stage in plan.stages}
    now = time.time()
    for reservation in plan.reservations:
        stage = stages[reservation.stages[0]]
        if reservation.unit is Unit.WORKFLOW:
            podsets, queue, named = _vector(reservation), plan.workflow.queue or stage.queue, plan.workflow.priority
        else:
            podsets, queue, named = _podsets(stage, reservation.unit, reservation.name), stage.queue, stage.priority
        priority, priority_class = book.priority_of(named)
        space, local = book.queue_for(queue)
        workload = Workload(
            name=f"(plan)/{reservation.name}",
            namespace=space,
            queue=local,
            podsets=podsets,
            priority=priority,
            priority_class=priority_class,
            created=now,
        )
        shape = (queue, space, local, priority, priority_class, tuple(map(_shape, podsets)))
        yield Asked(reservation.name, workload, shape, queue, stage.pods[0].replicas if len(podsets) == 1 else 1)


def _shape(podset: PodSet) -> tuple[Any, ...]:
    return (
        tuple(sorted(podset.requests.items())), podset.count, podset.min_count, podset.group,
        tuple(sorted(podset.selector.items())), podset.affinity, podset.tolerations,
    )  # fmt: skip


def _vector(reservation: Reservation) -> tuple[PodSet, ...]:
    return tuple(
        PodSet(name=f"{number}-{resource}", requests={resource: amount}, group=f"pool-{number}", **where(pool.placement))
        for number, pool in enumerate(reservation.pools)
        for resource, amount in sorted(base(pool.amounts).items())
    )  # fmt: skip


def _podsets(stage: Stage, unit: Unit, name: str) -> tuple[PodSet, ...]:
    """One for each kind of pods; of one kind alone fewer may be admitted, unless they are a gang."""
    kinds: dict[Any, list[Any]] = {}
    for pods in stage.pods:
        if pods.resources and (unit is not Unit.TASK or pods.step == name):
            shape = tuple(sorted(pods.resources.items())), repr(pods.placement), pods.replicas
            kinds.setdefault(shape, []).append(pods)
    found = []
    for members in kinds.values():
        first = members[0]
        gang = len(kinds) > 1 or any(pods.gang_of_tasks for pods in members)
        tasks = 1 if unit is Unit.TASK and not gang else sum(pods.width.count or 1 for pods in members)
        found.append(
            PodSet(
                name=first.step.replace("/", "-") if len(kinds) > 1 else "main",
                count=tasks * first.replicas,
                min_count=None if gang or tasks <= 1 else first.replicas,
                requests=base(first.resources),
                **where(first.placement),
            )
        )
    return tuple(found)


def emptied(book: Book) -> Queues:
    """The same queues with nobody in them."""
    queues = Queues(book.queues.config)
    queues.apply(objects_in(book.queues), 0.0)
    queues.apply(with_own_names(queues), 0.0)
    return queues


def impossible(book: Book, plan: Plan, one: Asked, never: Sequence[Shortage]) -> Problem:
    queue = book.queues.queue_of(one.workload)
    parts = []
    for short in never:
        who = "the whole workflow" if plan.unit is Unit.WORKFLOW else one.name
        asks = f"{who} asks for {amount(short.asked, short.resource)}"
        if short.kind == "exceedsMax" and short.potential:
            there = "this machine has" if not book.configured else f"queue {queue} can have"
            flavor = "" if not book.configured else f" of flavor {short.flavor}"
            parts.append(f"{asks}, and {there} {figure(short.potential, short.resource)} at most{flavor}")
        elif short.kind in ("exceedsMax", "notCovered"):
            parts.append(f"{asks}, of which {'this machine' if not book.configured else f'queue {queue}'} has none")
        elif short.kind == "flavorMissing":
            parts.append(f"queue {queue} names a flavor {short.flavor}, and there is none")
        else:
            what = "taints" if short.kind == "taint" else "labels"
            detail = f": {short.detail}" if short.detail else ""
            parts.append(f"the {what} of flavor {short.flavor} do not go with {who}{detail}")
    fix = "ask for less, or declare more: penstock queue apply FILE"
    if plan.unit is Unit.WORKFLOW:
        return Problem(
            "P818", "; ".join(dict.fromkeys(parts)), f"{fix}; or --unit stage, which asks for less at a time"
        )
    return Problem("P818", "; ".join(dict.fromkeys(parts)), fix, where=f"steps.{one.name}.resources")


def chosen(workflow: Workflow, queue: str | None, priority: str | int | None, unit: str | None) -> Workflow:
    """The workflow with what was said on the command line."""
    changes: dict[str, Any] = {}
    if queue is not None:
        changes["queue"] = queue
    if priority is not None:
        text = str(priority)
        changes["priority"] = int(text) if text.lstrip("-").isdecimal() else text
    if unit is not None:
        if unit not in list(Unit):
            fix = f"use one of {', '.join(Unit)}.{nearest(unit, Unit)}"
            raise PlanError(Problem("P404", f"{unit!r} is not a unit", fix))
        changes["unit"] = Unit(unit)
    return dataclasses.replace(workflow, **changes) if changes else workflow
