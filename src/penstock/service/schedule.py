"""Manifests with the metadata of a scheduler. Called by `penstock schedule`.

What is written is decided in `scheduling`; here files are read, and the queues that were given are asked whether a gang can ever fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import NotFound, Problem, UserError
from penstock.service.conversion import Conversion

if TYPE_CHECKING:
    from penstock.formats.documents import Library
    from penstock.formats.report import Report
    from penstock.scheduling.model import Binding, Gang
    from penstock.scheduling.queueconfig import QueueConfig


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """What the user typed."""

    scheduler: str
    """Empty: the one that the queueconfig names."""
    binding: Binding
    organisation: str = ""
    queueconfig: Path | None = None
    queues: Path | None = None
    """A file with the queues; then a gang that can never fit is refused."""


def schedule(target: str, request: ScheduleRequest, text: str | None = None) -> Conversion:
    """The manifests of a file or folder, or `text` that was read from standard input. Raises UserError with all that is wrong."""
    from penstock.formats.report import Report
    from penstock.formats.yaml_writer import dump_all
    from penstock.scheduling.apply import ScheduleOptions
    from penstock.scheduling.apply import schedule as scheduled
    from penstock.scheduling.registry import scheduler

    library = _library(target, text)
    report = Report()
    config = _config(request.queueconfig, report)
    name = _scheduler(request.scheduler, config, report)
    found = scheduled(library, scheduler(name), ScheduleOptions(request.binding, request.organisation, config))
    report.extend(found.report)
    if request.queues is not None:
        from penstock.service.fitting import check
        from penstock.service.queues import read_file

        check(read_file(request.queues), str(request.queues), found.jobs)
    gangs = tuple(f"gang  {one.job.title}: {_told(one.gang)}" for one in found.jobs if one.gang.members)
    return Conversion(dump_all(found.documents), report, gangs)


def _told(gang: Gang) -> str:
    from penstock.scheduling.model import amounts_text

    return ", ".join(f"{one.name} {one.count} × ({amounts_text(one.requests)})" for one in gang.members)


def _library(target: str, text: str | None) -> Library:
    from penstock.formats.documents import library
    from penstock.service.manifests import library_of
    from penstock.service.workflows import existing

    if text is not None:
        return library([("standard input", text)])
    path, _ = existing(target)
    if path.suffix == ".py":
        message = f"{path} is Python, and metadata is written into manifests"
        raise UserError(Problem("P837", message, f"penstock convert {path} --to jobset"))
    return library_of(path)


def _config(path: Path | None, report: Report) -> QueueConfig | None:
    if path is None:
        return None
    from penstock.scheduling.queueconfig import queue_config
    from penstock.scheduling.registry import names
    from penstock.service.manifests import read_document

    if not path.is_file():
        raise NotFound(Problem("P501", f"there is no file {str(path)!r}", "check the path"))
    return queue_config(read_document(path), str(path), names(), report)


def _scheduler(chosen: str, config: QueueConfig | None, report: Report) -> str:
    written = config.scheduler if config is not None else ""
    if not chosen and not written:
        message = "it is not said which scheduler the metadata is for"
        raise UserError(Problem("P884", message, "say which: --with kueue, or --with yunikorn"))
    if chosen and written and chosen != written:
        said = f"the queueconfig is for {written}, and --with {chosen} was chosen"
        report.changed("queueconfig.scheduler", said)
    return chosen or written
