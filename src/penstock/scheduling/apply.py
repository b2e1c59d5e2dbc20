"""Writes the metadata of a scheduler into documents. Called by service.schedule, and by whoever submits a manifest for a user.

Only labels, annotations and schedulerNames change, and only if they differ: applied twice, the documents are the same. Everything that is set is in the report, and
everything that could not be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.errors import DocumentError, Problem, UserError
from penstock.formats.documents import Document, Library, part
from penstock.formats.labels import QUEUE
from penstock.formats.report import Report
from penstock.scheduling import fields, keys, operators, reading
from penstock.scheduling.carried import carried, misplaced
from penstock.scheduling.kinds.table import kind_of
from penstock.scheduling.model import (
    Binding,
    Data,
    Gang,
    JobObject,
    Marks,
    Named,
    Path,
    Role,
    SchedulerPlugin,
    amounts_text,
    shown,
)
from penstock.scheduling.objects import job_object
from penstock.scheduling.queueconfig import QueueConfig

NO_QUEUE: Final = "P888"
NOTHING: Final = "P889"
FIX: Final = "give an object of a known kind, such as a Job, RayJob or SparkApplication: penstock explain P889"
GANG_MARKS: Final = (keys.GROUPS, keys.GROUP, keys.PARAMETERS)


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """What the caller chose for all documents. `binding.queue`: empty, if organisation or the document say it."""

    binding: Binding = field(default_factory=Binding)
    organisation: str = ""
    config: QueueConfig | None = None


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job, what it was bound to, and its gang."""

    job: JobObject
    binding: Binding
    gang: Gang


@dataclass(slots=True)
class Scheduled:
    """Documents with their metadata; objects that must be made before a job come before it."""

    documents: list[Mapping[str, Any]]
    report: Report
    jobs: list[ScheduledJob] = field(default_factory=list)


def schedule(library: Library, plugin: SchedulerPlugin, options: ScheduleOptions) -> Scheduled:
    """All documents in order; those that make no pods as they are. Raises UserError with all that is wrong: P887, P888, P889."""
    result = Scheduled([], Report())
    problems: list[Problem] = []
    for document in library.documents:
        if kind_of(document) is None:
            said = f"{document.kind or 'this document'} {document.name}: as it is".replace("  ", " ")
            result.report.kept("kind", said, document.source())
            result.documents.append(document.data)
            continue
        try:
            one = schedule_one(document, plugin, options, library)
        except UserError as error:
            problems += [replace(each, source=each.source or document.source()) for each in error.problems]
            continue
        result.documents += one.documents
        result.report.extend(one.report)
        result.jobs += one.jobs
    if problems:
        raise DocumentError(problems)
    if not any(kind_of(document) for document in library.documents):
        source = library.documents[0].source() if library.documents else None
        raise DocumentError(Problem(NOTHING, "nothing here makes pods that a scheduler could take", FIX, source=source))
    return result


def schedule_one(
    document: Document, plugin: SchedulerPlugin, options: ScheduleOptions, library: Library | None = None
) -> Scheduled:
    """One document that makes pods; it is the last of the documents, after objects that must be made before it. Raises UserError."""
    result = Scheduled([], Report())
    job = job_object(document, library)
    if job is None:
        message = f"{document.kind} {document.name} makes no pods that are known"
        raise DocumentError(document.problem(NOTHING, "kind", message, FIX))
    _schedule(job, plugin, options, result)
    return result


def _schedule(job: JobObject, plugin: SchedulerPlugin, options: ScheduleOptions, result: Scheduled) -> None:
    report = result.report
    options = replace(options, binding=carried(job, options.binding, report))
    binding = bound(job, plugin, options)
    if job.unknown and plugin.set_scheduler_name(job):
        raise fields.wrong(job.document, ("spec",), job.unknown, job.notes[0][2])
    labels = plugin.create_labels(job, binding, report)
    gang = plugin.create_group_labels(job, binding, report)
    writer = _Writer(job, report)
    writer.marks(("metadata", "labels"), ("metadata", "annotations"), labels.object | gang.object)
    queued = job.kind.queue_labels
    writer.marks(queued, (*queued[:-1], "annotations"), labels.queued)
    for role in job.roles:
        own = labels.pods | plugin.get_group_labels(job, gang, role)
        if role.slot.labels:
            _write_role(writer, role, own, plugin.set_scheduler_name(job))
        elif own:
            said = f"the pods of {role.name} have no template here, so nothing is written for them"
            report.lost("spec", f"{job.title}: {said}", "write their template", job.document.source("spec"))
    if not binding.gang:
        writer.without_gang(job)
    writer.without_misplaced(bool(plugin.set_scheduler_name(job)))
    _tell(job, gang, report, bool(plugin.set_scheduler_name(job)))
    result.documents += [*gang.documents, writer.data]
    result.jobs.append(ScheduledJob(job, binding, gang))
    check_written(job, writer.data, report)


def _write_role(writer: _Writer, role: Role, own: Marks, scheduler: str) -> None:
    writer.marks(role.slot.labels, role.slot.annotations, own)
    if scheduler and role.slot.scheduler:
        writer.scheduler(role.slot.scheduler, scheduler)


def bound(job: JobObject, plugin: SchedulerPlugin, options: ScheduleOptions) -> Binding:
    """The queue: as chosen, or of the organisation, or as the object says already. Raises UserError, P888."""
    binding = options.binding
    config = options.config
    rule = config.rule(job.kind) if config is not None else None
    if rule is not None:
        binding = rule.bind(binding)
    if binding.queue:
        return binding
    if options.organisation:
        last = config.job_type(job.kind) if config is not None else job.kind.job_type
        return replace(binding, queue=plugin.queue_name(options.organisation, last))
    known = queue_of(job)
    if known:
        return replace(binding, queue=known)
    problem = job.document.problem(
        NO_QUEUE,
        "metadata.labels",
        f"{job.title}: it is not clear which queue is meant",
        "say which: --queue QUEUE, or --org ORGANISATION",
    )
    raise UserError(problem)


def queue_of(job: JobObject) -> str:
    """The queue that the object names already; empty if it names none."""
    data = job.document.data
    places = [(*job.kind.queue_labels, QUEUE), ("metadata", "labels", keys.YK_QUEUE)]
    for role in job.roles:
        places += [(*role.slot.labels, keys.YK_QUEUE), (*role.slot.labels, keys.OLD_QUEUE)] if role.slot.labels else []
    found = (fields.at(data, place) for place in places)
    return next((one for one in found if isinstance(one, str) and one), "")


# -- writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    """A copy of a document, and what was written into it."""

    def __init__(self, job: JobObject, report: Report) -> None:
        self.job, self.report = job, report
        self.data: dict[str, Any] = _copied(job.document.data)

    def marks(self, labels: Path, annotations: Path, own: Marks) -> None:
        for path, texts in ((labels, own.labels), (annotations, own.annotations)):
            if texts:
                self._texts(path, texts)

    def _texts(self, path: Path, texts: Mapping[str, str]) -> None:
        here = self._map(path)
        before = {key: here.get(key) for key in texts}
        set_now = {key: text for key, text in texts.items() if before[key] != text}
        source = self.job.document.source(shown(path))
        if not set_now:
            self.report.kept(shown(path), f"{self.job.title}: {', '.join(texts)}, as they are", source)
            return
        here.update(set_now)
        was = {key: before[key] for key in set_now if before[key] is not None}
        told = ", ".join(f"{key}={_short(text)}" for key, text in set_now.items())
        self.report.changed(shown(path), f"{self.job.title}: {told}{_was(was)}", "", source)

    def scheduler(self, path: Path, name: str) -> None:
        here = self._map(path[:-1])
        last = str(path[-1])
        before = here.get(last)
        if before != name:
            here[last] = name
            was = _was({"schedulerName": before}) if before is not None else ""
            self.report.changed(
                shown(path), f"{self.job.title}: schedulerName={name}{was}", "", self.job.document.source(shown(path))
            )

    def without_gang(self, job: JobObject) -> None:
        """Takes out what an earlier gang has left."""
        for place in {("metadata", "annotations"), *(role.slot.annotations for role in job.roles)}:
            here = fields.at(self.data, place) if place else None
            if not isinstance(here, dict):
                continue
            stale = [key for key in GANG_MARKS if key in here]
            for key in stale:
                del here[key]
            if stale:
                said = f"{job.title}: {', '.join(stale)} taken out, because there is to be no gang"
                self.report.changed(shown(place), said, "", job.document.source(shown(place)))

    def without_misplaced(self, yunikorn: bool) -> None:
        """Takes out what nothing reads where it is. The total of a pod group becomes the annotation that it was meant to be."""
        job = self.job
        for place, key, said in list(misplaced(job, self.data, yunikorn)):
            here = self._map(place)
            value = here.pop(key)
            if key == keys.POD_GROUP_TOTAL and keys.POD_GROUP in here:
                self._map((*place[:-1], "annotations")).setdefault(key, str(value))
            if not here:
                del self._map(place[:-1])[str(place[-1])]
            self.report.changed(shown(place), f"{job.title}: {said}", "", job.document.source(shown(place)))

    def _map(self, path: Path) -> dict[str, Any]:
        """The map at a place; what is missing on the way is made. Raises DocumentError if something else is in the way."""
        here: Any = self.data
        for number, step in enumerate(path):
            following = path[number + 1] if number + 1 < len(path) else ""
            here = _step(here, step, [] if isinstance(following, Named) else {})
            wanted = dict if isinstance(following, str) else list
            if not isinstance(here, wanted):
                place = path[: number + 1]
                word = "map" if wanted is dict else "list"
                raise fields.wrong(self.job.document, place, f"{shown(place)} is no {word}", f"write a {word}")
        found: dict[str, Any] = here
        return found


def _step(here: Any, step: str | int | Named, missing: Any) -> Any:
    if isinstance(step, Named):
        found = next((one for one in here if part(one).get(step.key) == step.value), None)
        if found is None:
            found = {step.key: step.value}
            here.append(found)
        return found
    if isinstance(step, int):
        return here[step]
    if here.get(step) is None:
        here[step] = missing
    return here[step]


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _was(before: Data) -> str:
    return f" (was {', '.join(_short(str(one)) for one in before.values())})" if before else ""


# -- what is said -----------------------------------------------------------------------------------------------------


def _tell(job: JobObject, gang: Gang, report: Report, groups: bool) -> None:
    source = job.document.source()
    for where, said, advice in job.notes:
        report.changed(where, f"{job.title}: {said}", advice, job.document.source(where))
    for one in gang.members:
        said = f"{one.name}: {one.count} × {amounts_text(one.requests)} = {amounts_text(one.total)}"
        report.kept("spec", f"{job.title}: gang: {said}", source)
    for role in job.roles:
        if gang.members and role.late:
            report.kept("spec", f"{job.title}: the gang does not wait for {role.name}: {role.late}", source)
    if groups and gang.members:
        for said in operators.differences(job, gang):
            report.kept("spec", f"{job.title}: other than its operator would write: {said}", source)


def check_written(job: JobObject, data: Mapping[str, Any], report: Report) -> None:
    """What is in the document now that YuniKorn would drop without a word: left by the user, and not ours to change."""
    for role in job.roles:
        labels = fields.at(data, role.slot.labels) if role.slot.labels else None
        notes = fields.at(data, role.slot.annotations) if role.slot.annotations else None
        pod = {"metadata": {"labels": labels or {}, "annotations": notes or {}}, "spec": role.spec}
        for key, said, fix in reading.faults(pod):
            where = f"{shown(role.slot.annotations)}.{key}"
            report.lost(where, f"{job.title}: {said}", fix, job.document.source(where))
