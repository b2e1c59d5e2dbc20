"""The queues of a cluster as our admission code sees them: live objects -> a Scheduler that holds what Kueue holds. Called by why and by
`penstock queue --cluster`; pure but for the objects that it is given.

Kueue decides, we explain. So the Scheduler is asked for its decisions on a copy, and whatever it would admit or preempt and Kueue has not is
taken back: a Workload that would be admitted is said to fit, with what Kueue says about it. It may be a matter of a second (Kueue tries
again once a second), or something that only Kueue knows, such as topology.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.admission.assignment import Mode
from penstock.admission.explain import Lines
from penstock.admission.manifests.config import config_of
from penstock.admission.manifests.read import objects_of
from penstock.admission.manifests.requests import amount
from penstock.admission.model import PODS as POD_COUNT
from penstock.admission.model import Eviction, LocalQueue, PodSet, Workload
from penstock.admission.pending import shape_of
from penstock.admission.scheduler import Scheduler
from penstock.controller import names
from penstock.controller.inspect.kinds import ALL_WORKLOADS
from penstock.controller.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITIES,
    WORKLOADS,
    ApiResource,
    Object,
    annotations_of,
    condition,
    controller_of,
    holds,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.errors import Problem, UserError, nearest
from penstock.kueue.wanted import RESERVATION
from penstock.service import wording

COHORTS = ApiResource(WORKLOADS.api, "Cohort", "cohorts", namespaced=False)
CHECKS = ApiResource(WORKLOADS.api, "AdmissionCheck", "admissionchecks", namespaced=False)
QUEUE_KINDS = (FLAVORS, CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, PRIORITIES, CHECKS, NAMESPACES)
EVERYTHING = (*QUEUE_KINDS, ALL_WORKLOADS)
_PASSED_OVER = "Kueue has not admitted it"
_PREEMPTOR = re.compile(r"\(UID: ([\w-]+)")


class ClusterState:
    """The queues and Workloads of a cluster at one moment."""

    configured = True

    def __init__(
        self,
        objects: Mapping[ApiResource, Sequence[Object]],
        now: float,
        namespace: str = "",
        configuration: Mapping[str, Any] | None = None,
        unseen: Problem | None = None,
    ) -> None:
        """`namespace`: Workloads of others are called by their namespace too. `configuration`: Kueue's, if it is known. `unseen`: the rights
        that are missing, if these are only the objects of one namespace."""
        self.unseen = unseen
        self.now = now
        self.namespace = namespace
        self.workloads = {key_of(one): one for one in objects[ALL_WORKLOADS]}
        self.by_uid = {uid_of(one): key for key, one in self.workloads.items() if uid_of(one)}
        listed = [one for kind in QUEUE_KINDS for one in objects[kind]]
        self._queue_objects = [found for one in listed for found in _read(one)]
        self._inactive = dict(filter(None, map(_why_inactive, objects[CLUSTER_QUEUES])))
        # What time alone does to Workloads, Kueue has done already or does in a moment: not here.
        self.config = dataclasses.replace(config_of(configuration or {}), pods_ready_timeout=None)
        self.due: set[str] = set()
        """Workloads that Kueue would admit next, as far as we know, and has not."""
        self.scheduler = self._settled()
        self._lines: Lines = {}

    # -- queues -------------------------------------------------------------------------------------------------------

    def _settled(self) -> Scheduler:
        """With a decision about every Workload that waits, and nothing admitted or preempted but by Kueue."""
        scheduler = self._loaded()
        cycles = scheduler.settle(self.now)
        self.due = {key for cycle in cycles for key in cycle.reserved}
        if self.due:
            scheduler = self._loaded()
            fitting = _fitting(scheduler, {scheduler.queue_of(scheduler.workloads[key]) for key in self.due})
            for one in fitting:
                one.unfit = _PASSED_OVER
            cycles = scheduler.settle(self.now)
            for one in fitting:
                one.unfit = ""
                scheduler.decisions.pop(one.key, None)
        for cycle in cycles:
            for target in cycle.preempted:
                scheduler.spare(target.workload, self.now)
        return scheduler

    def _loaded(self) -> Scheduler:
        scheduler = Scheduler(self.config)
        scheduler.apply(self._queue_objects, self.now)
        for (
            name,
            why,
        ) in self._inactive.items():  # for a reason that only Kueue knows, such as a topology that is missing
            scheduler.cache.why_inactive.setdefault(name, why)
        for one in self.workloads.values():
            if not holds(one, "Finished") and not is_place(one):
                scheduler.submit(self._workload(one), self.now)
        return scheduler

    def _workload(self, one: Object) -> Workload:
        (found,) = _read(one)
        assert isinstance(found, Workload)
        found.max_seconds = None
        found.podsets = tuple(_as_counted(podset, one) for podset in found.podsets)
        for name in ("eviction", "last_eviction"):
            eviction = getattr(found, name)
            if eviction is not None and not eviction.by:
                setattr(found, name, self._with_preemptor(eviction, one))
        return found

    def _with_preemptor(self, eviction: Eviction, one: Object) -> Eviction:
        told = _PREEMPTOR.search(str(condition(one, "Preempted").get("message") or ""))
        by = self.by_uid.get(told[1], "") if told else ""
        return dataclasses.replace(eviction, by=by)

    # -- for screens (QueueSource) ------------------------------------------------------------------------------------

    def named_queues(self) -> list[LocalQueue]:
        return list(self.scheduler.local_queues.values())

    def owner_of(self, workload: Workload) -> tuple[str, str]:
        """What it is for; nobody knows the user."""
        return owner_name(self.workloads[workload.key]), ""

    def pods_left(self, workload: Workload) -> int | None:
        """Not known here: Kueue counts what the Workload says."""
        return None

    def kept_places(self, queue: str, only: LocalQueue | None) -> int:
        """Workloads of stages that are not reached yet."""
        return sum(
            is_place(one)
            and not holds(one, "Finished")
            and (local := self.scheduler.local_queues.get(local_queue_of(one))) is not None
            and local.cluster_queue == queue
            and only in (None, local)
            for one in self.workloads.values()
        )

    def reason(self, key: str) -> dict[str, Any]:
        """Why it waits, as `Hold.as_data`. `cluster` says that remedies are those of a cluster."""
        found = {**self.scheduler.explain(key, self.now, self._lines).as_data(), "cluster": True, "workload": key}
        one = self.workloads[key]
        told = condition(one, "QuotaReserved")
        if self.unseen is not None and found["cluster_queue"] and found["why"] in ("no queue", "inactive queue"):
            found = {**found, "why": "unseen"}
            found.pop("detail", None)
        elif found["why"] == "no queue" and not found["cluster_queue"]:
            here = [queue.name for queue in self.named_queues() if queue.namespace == namespace_of(one)]
            found["detail"] += nearest(str(part(one, "spec").get("queueName", "")), here).replace(" Did", ". Did")
        elif found["why"] == "deactivated":
            found["detail"] = str(condition(one, "Evicted").get("message") or "")
        elif key in self.due:
            found["why"] = "fits" if told else "new"
        elif found["why"] not in ("leaving", "checks") and told.get("reason") == "OnHold":
            found |= {"why": "unfit", "detail": f"it is on hold: {told.get('message') or 'its owner holds it back'}"}
        elif found["why"] == "behind" and not found.get("ahead") and not told:
            found["why"] = "new"
        elif found["why"] == "preempting":
            self._preempting(found)
        return found

    def _preempting(self, found: dict[str, Any]) -> None:
        """Only those that Kueue has told to stop are being preempted; if there are none, it is short of quota."""
        going = [key for key in found.get("waits_for", ()) if holds(self.workloads[key], "Evicted")]
        found["waits_for"] = going
        if not going:
            found["why"] = "quota"
            del found["waits_for"]

    def shown(self, reason: Mapping[str, Any]) -> dict[str, Any]:
        """The same for people: Workloads by the names of what they are for."""
        return wording.renamed(reason, self.name)

    def name(self, key: str) -> str:
        """`job/train`; of another namespace `research/job/train`; a stage `workflow/nightly/main[1]`."""
        one = self.workloads.get(key)
        if one is None:
            return key
        namespace = namespace_of(one)
        return owner_name(one) if namespace == self.namespace else f"{namespace}/{owner_name(one)}"

    def about(self, key: str) -> str:
        """Beside a holder: its priority, and if it is being stopped."""
        one = self.scheduler.workloads.get(key)
        if one is None:
            return ""
        leaving = ", being stopped" if one.eviction is not None else ""
        return f"queue {wording.queue_name({'queue': one.local_queue})}, priority {one.priority}{leaving}"


# -- one object -------------------------------------------------------------------------------------------------------


def key_of(one: Object) -> str:
    return f"{namespace_of(one)}/{name_of(one)}"


def local_queue_of(one: Object) -> str:
    return f"{namespace_of(one)}/{part(one, 'spec').get('queueName', '')}"


def is_place(one: Object) -> bool:
    """Was it made before its stage is reached, and is switched off until then?"""
    marked = names.PLACE in labels_of(one) or names.PLACE in annotations_of(one)
    return marked and part(one, "spec").get("active") is False


def stage_of(one: Object) -> str:
    return str(annotations_of(one).get(names.STAGE) or labels_of(one).get(names.STAGE) or "")


def owner_name(one: Object) -> str:
    """What a Workload is for: `job/train`, `workflow/nightly/main[1]`, `run/flow-1/train` of `penstock run`; without an owner, or with several, itself."""
    owner = controller_of(one)
    if not owner and (ours := annotations_of(one).get(RESERVATION)):
        return f"run/{ours}"
    several = len(rows(one, "metadata", "ownerReferences")) > 1 and not owner.get("controller")
    if not owner or several:
        return f"workload/{name_of(one)}"
    kept = str(annotations_of(one).get(names.PLACE) or "")
    stage = kept if is_place(one) and kept.startswith(names.REST) else stage_of(one)
    return f"{str(owner.get('kind', '')).lower()}/{owner.get('name', '')}" + (f"/{stage}" if stage else "")


def _why_inactive(queue: Object) -> tuple[str, str] | None:
    """The name of a ClusterQueue that Kueue says is inactive, and the reason."""
    active = condition(queue, "Active")
    if active.get("status") != "False":
        return None
    return name_of(queue), str(active.get("message") or active.get("reason") or "Kueue gives no reason")


def _read(one: Object) -> list[Any]:
    """Raises UserError for what a newer Kueue may have and we cannot read."""
    try:
        return objects_of([one])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{one.get('kind')} {namespace_of(one)}/{name_of(one)}".replace(" /", " ")
        message = f"{what} has something in it that Penstock cannot read: {error}"
        fix = "the rules here are those of Kueue 0.19; see whether there is a newer Penstock"
        raise UserError(Problem("P892", message, fix)) from None


def _fitting(scheduler: Scheduler, queues: set[str]) -> list[Workload]:
    """Those that wait in the trees of these ClusterQueues and need nothing but their turn."""
    roots = {scheduler.cache.roots.get(queue) for queue in queues}
    fits: dict[Any, bool] = {}
    found = []
    for queue, root in scheduler.cache.roots.items():
        for one in scheduler.pending(queue) if root in roots else ():
            shape = (queue, shape_of(one, scheduler.config) or one.key)
            if shape not in fits:
                fits[shape] = scheduler.fit_of(one, queue).mode is Mode.FIT
            found += [one] if fits[shape] else []
    return found


def _as_counted(podset: PodSet, one: Object) -> PodSet:
    """As Kueue has counted it: with limit ranges, runtime classes, and the exclusions and transformations of its configuration."""
    told = next((row for row in rows(one, "status", "resourceRequests") if row.get("name") == podset.name), None)
    returned = {str(row.get("name")): int(row.get("count") or 0) for row in rows(one, "status", "reclaimablePods")}
    pods = podset.count - returned.get(podset.name, 0)
    if told is None or pods <= 0:
        return podset
    total = {name: amount(name, text) for name, text in part(told, "resources").items() if name != POD_COUNT}
    return dataclasses.replace(podset, requests={name: number // pods for name, number in sorted(total.items())})
