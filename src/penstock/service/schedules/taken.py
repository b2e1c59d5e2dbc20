"""The schedules of other systems: a CronWorkflow of Argo, a CronJob of Kubernetes -> what `add` is asked for, the workflow, and a Report of what is
different here. Called by `penstock schedule take`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.errors import DocumentError, Problem
from penstock.formats import registry
from penstock.formats.documents import Document
from penstock.formats.report import Report
from penstock.graph.model import Workflow
from penstock.service.manifests import library_of, read_workflow, with_neighbours
from penstock.service.schedules.verbs import ScheduleTerms, requested
from penstock.service.workflows import existing

KINDS: Final = ("CronWorkflow", "CronJob")
_OVERLAP: Final[Mapping[str, str]] = {"Allow": "allow", "Forbid": "skip", "Replace": "replace"}
_SAID: Final = frozenset(
    "schedule schedules timezone timeZone concurrencyPolicy startingDeadlineSeconds suspend successfulJobsHistoryLimit "
    "failedJobsHistoryLimit when stopStrategy".split()
)
"""Fields of which this module says what becomes of them."""


class Taken(NamedTuple):
    request: ScheduleTerms
    workflow: Workflow
    report: Report


def take(target: str, now: float, name: str | None = None, replace: bool = False) -> Taken:
    """`cron.yaml`, or `cron.yaml:NAME` if it has several. `name`: of the schedule, if not that of the document. Raises UserError."""
    path, chosen = existing(target)
    own = library_of(path)
    cron = [one for one in registry.roots(own) if one.kind in KINDS and chosen in (None, one.name)]
    if len(cron) != 1:
        kinds = " or ".join(KINDS)
        found = ", ".join(one.name for one in cron)
        message = f"several of {kinds} in {path}: {found}" if cron else f"there is no {kinds} in {path}"
        fix = (
            f"name one: {path}:{cron[0].name}" if cron else f"of a workflow: penstock schedule add NAME {path} --cron …"
        )
        raise DocumentError(Problem("P559", message, fix))
    root = cron[0]
    read = read_workflow(with_neighbours(own, path), root)
    report = Report()
    for entry in read.report.entries:
        if entry.path.removeprefix("spec.") not in _SAID:
            report.add(entry.kind, entry.path, entry.message, entry.near, entry.source)
    return Taken(_request(root, report, now, name or root.name, replace), read.workflow, report)


def _request(root: Document, report: Report, now: float, name: str, replace: bool) -> ScheduleTerms:
    spec = root.spec
    field = "schedules" if spec.get("schedules") else "schedule"
    given = spec.get(field)
    crons = tuple(str(line) for line in given) if isinstance(given, list | tuple) else (str(given or ""),)
    report.kept(f"spec.{field}", f"due at {' and at '.join(crons)}", root.source(f"spec.{field}"))
    zone_field = "timeZone" if root.kind == "CronJob" else "timezone"
    zone = spec.get(zone_field)
    if zone:
        message = "where clocks are changed, times are those of cron: one that does not exist is due when the clock has jumped"
        report.changed(f"spec.{zone_field}", message, "", root.source(f"spec.{zone_field}"))
    else:
        message = "none is named: UTC here, that of the controller there"
        report.changed(f"spec.{zone_field}", message, "Name it in the document.", root.source("spec"))
    policy = str(spec.get("concurrencyPolicy") or "Allow")
    overlap = _OVERLAP.get(policy, "allow")
    report.kept("spec.concurrencyPolicy", f"{policy}: --overlap {overlap}", root.source("spec"))
    catch_up, grace = _lateness(root, report)
    for one in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if spec.get(one) is not None:
            report.lost(f"spec.{one}", "runs stay until penstock gc removes them", "", root.source(f"spec.{one}"))
    for one, said in (("when", "each time gets a run"), ("stopStrategy", "it does not end by itself")):
        if spec.get(one) is not None:
            near = "Begin the workflow with a condition." if one == "when" else "Give --end, or pause it."
            report.lost(f"spec.{one}", said, near, root.source(f"spec.{one}"))
    if spec.get("suspend"):
        report.kept("spec.suspend", f"paused; penstock schedule resume {name}", root.source("spec.suspend"))
    return requested(
        name,
        crons=crons,
        zone=None if zone is None else str(zone),
        now=now,
        grace=grace,
        policy={"overlap": overlap, "catch_up": catch_up},
        paused=spec.get("suspend") is True,
        replace=replace,
    )


def _lateness(root: Document, report: Report) -> tuple[str, float | None]:
    """catch_up and grace. A CronJob without a deadline makes up for the last time that it missed, however late; a CronWorkflow for none."""
    deadline: Any = root.spec.get("startingDeadlineSeconds")
    if isinstance(deadline, int | float) and not isinstance(deadline, bool) and (deadline or root.kind == "CronJob"):
        late = max(0.0, float(deadline))
        where = "spec.startingDeadlineSeconds"
        report.kept(where, f"a run may begin {late:g} seconds late: --grace {late:g}s", root.source(where))
        return "none", late
    return ("one", None) if root.kind == "CronJob" else ("none", None)
