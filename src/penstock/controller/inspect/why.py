"""What an object of a cluster waits for: each of its Workloads, or why it has none. Called by `penstock why KIND/NAME`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.admission.manifests.times import time_of
from penstock.admission.model import Workload
from penstock.controller import names
from penstock.controller.inspect.events import WarningEvent, last_warning
from penstock.controller.inspect.kinds import KINDS, Target, is_ours
from penstock.controller.inspect.live import state_for
from penstock.controller.inspect.pods import PodCount, count, pods_of
from penstock.controller.inspect.state import ClusterState, is_place, key_of, local_queue_of, owner_name, stage_of
from penstock.controller.inspect.subject import Subject, find, read_object
from penstock.controller.objects import (
    ApiResource,
    Lookup,
    Object,
    condition,
    holds,
    labels_of,
    part,
    rows,
    uid_of,
)
from penstock.errors import Problem, UserError, nearest
from penstock.formats.registry import status_of
from penstock.formats.status import FINAL
from penstock.service.amounts import added, spell
from penstock.service.views.waits import Wait

State = Literal["waiting", "checks", "leaving", "admitted", "ahead", "over"]
_PODS = next(one for one in KINDS if one.kind == "Pod")
WEBHOOKS = ApiResource(
    "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
)
WEBHOOK = "admission.penstock"
"""The name of the controller's MutatingWebhookConfiguration: where it is, the controller is installed."""


@dataclass(slots=True)
class WorkloadReport:
    """How one Workload stands."""

    workload: str
    name: str
    """What it is for: `workflow/nightly/train`."""
    stage: str
    state: State
    queue: str
    """The LocalQueue, with its namespace."""
    since: float | None
    """When it began to wait, was admitted, or was over."""
    wait: Wait | None = None
    """If it waits."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """The reason of the wait, for people."""
    who: Mapping[str, str] = field(default_factory=dict)
    """Workload, as in `shown` -> its queue and priority."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Workload that the reason names -> what it is for."""
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Flavor -> resource -> amount."""
    cluster_queue: str = ""
    pods: PodCount | None = None
    wanted: int = 0
    """Pods that were admitted and are not given back."""
    kueue: Mapping[str, str] = field(default_factory=dict)
    """The reason and the message of Kueue's own condition."""
    stopped: Mapping[str, Any] = field(default_factory=dict)
    """The last eviction: reason, by, at."""

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "workload": self.workload,
            "of": self.name,
            "stage": self.stage or None,
            "state": self.state,
            "queue": self.queue,
            "cluster_queue": self.cluster_queue or None,
            "since": self.since,
        }
        if self.wait is not None:
            waits = self.wait.as_data()
            data |= {"pods": self.wait.tasks, **{name: waits[name] for name in ("asks", "priority", "reason")}}
            data["names"] = dict(self.others)
        if self.held:
            data["held"] = {
                flavor: {name: spell(amount, name) for name, amount in amounts.items()}
                for flavor, amounts in self.held.items()
            }
        if self.pods is not None:
            data["running_pods"] = {"wanted": self.wanted, **self.pods.as_data()}
        if self.stopped:
            data["evicted"] = dict(self.stopped)
        return data | {"kueue": dict(self.kueue) or None}


@dataclass(slots=True)
class ClusterReport:
    object: str
    namespace: str
    parts: list[WorkloadReport]
    through: str = ""
    """The object that the Workloads belong to, if it is another one."""
    problem: str = ""
    """Why there is no Workload."""
    fix: str = ""
    unseen: Problem | None = None
    """Rights that are missing to say more."""
    warned: WarningEvent | None = None
    """The last warning about it among the Events, while it has Workloads that are not over."""

    def as_data(self) -> dict[str, Any]:
        return {
            "object": self.object,
            "namespace": self.namespace,
            "part_of": self.through or None,
            "problem": self.problem or None,
            "fix": self.fix or None,
            "unseen": self.unseen.as_data() if self.unseen is not None else None,
            "warning": self.warned.as_data() if self.warned is not None else None,
            "workloads": [one.as_data() for one in self.parts],
        }


def why(lookup: Lookup, target: Target, namespace: str, now: float, state: ClusterState | None = None) -> ClusterReport:
    """`state`: the queues, if the caller has them. Raises NotFound if there is no such object, UserError if the cluster cannot be read."""
    found = read_object(lookup, target, namespace)
    state = state or state_for(lookup, namespace, now)
    subject = find(lookup, state, target, found, namespace)
    parts = [standing(state, one) for one in subject.workloads]
    if any(part.state in ("admitted", "leaving") for part in parts):
        _add_pods(lookup, state, namespace, parts)
    report = ClusterReport(str(target), namespace, parts, subject.through, unseen=_as_warning(state.unseen))
    if not parts:
        report.problem, report.fix = absence(lookup, state, subject, namespace)
    elif any(part.state != "over" for part in parts):
        report.warned = last_warning(lookup, _uids(subject), namespace)
    return report


def _uids(subject: Subject) -> set[str]:
    """Of the object, and of what its Workloads belong to."""
    owners = {str(one.get("uid")) for each in subject.workloads for one in rows(each, "metadata", "ownerReferences")}
    return (owners | {uid_of(subject.object)}) - {""}


def _as_warning(problem: Problem | None) -> Problem | None:
    return None if problem is None else replace(problem, severity="warning")


# -- one Workload -----------------------------------------------------------------------------------------------------


def standing(state: ClusterState, one: Object) -> WorkloadReport:
    key = key_of(one)
    known = state.scheduler.workloads.get(key)
    local = state.scheduler.local_queues.get(local_queue_of(one))
    found = WorkloadReport(
        workload=key,
        name=owner_name(one),
        stage=stage_of(one),
        state="waiting",
        queue=local_queue_of(one),
        since=time_of(part(one, "metadata").get("creationTimestamp")),
        cluster_queue=state.scheduler.queue_of(known) if known is not None else local.cluster_queue if local else "",
    )
    if holds(one, "Finished"):
        found.state, found.since, found.kueue = "over", _since(one, "Finished"), _told(one, "Finished")
    elif is_place(one):
        found.state = "ahead"
    elif known is not None:
        _add_wait(state, one, known, found)
    return found


def _add_wait(state: ClusterState, one: Object, known: Workload, found: WorkloadReport) -> None:
    if known.admission is not None:
        for pair, number in sorted(known.held.items()):
            found.held = {**found.held, pair.flavor: {**found.held.get(pair.flavor, {}), pair.resource: number}}
        found.wanted = sum(max(0, each.count - known.reclaimable.get(each.name, 0)) for each in known.admission.podsets)
    gone = known.eviction or known.last_eviction
    if gone is not None:
        by = {"by": state.name(gone.by)} if gone.by else {}
        found.stopped = {"reason": gone.preempted or gone.reason, "at": gone.at, **by}
    if known.admission is not None and known.eviction is None and known.admitted_at is not None:
        found.state, found.since, found.kueue = "admitted", known.admitted_at, _told(one, "Admitted")
        return
    if known.admission is not None:
        found.state = "leaving" if known.eviction is not None else "checks"
        found.since = known.eviction.at if known.eviction is not None else known.reserved_at
    elif gone is not None:
        found.since = gone.at or found.since
    found.kueue = _told(one, {"leaving": "Evicted", "checks": "Admitted"}.get(found.state, "QuotaReserved"))
    reason = state.reason(known.key)
    asks = added(
        {resource: number * podset.count for resource, number in podset.requests.items()} for podset in known.podsets
    )
    pods = sum(podset.count for podset in known.podsets)
    found.wait = Wait("", "queue", found.since, reason, pods, asks, priority=known.priority)
    found.shown = state.shown(reason)
    holders = [holder["workload"] for short in reason.get("short", ()) for holder in short.get("holders", ())]
    found.who = {f"/{state.name(key)}": state.about(key) for key in holders}
    others = [*holders, *reason.get("ahead", ()), *reason.get("waits_for", ())]
    found.others = {key: state.name(key) for key in dict.fromkeys(others)}


def _since(one: Object, kind: str) -> float | None:
    return time_of(condition(one, kind).get("lastTransitionTime"))


def _told(one: Object, kind: str) -> dict[str, str]:
    """What Kueue itself says."""
    found = condition(one, kind)
    return {name: str(found[name]) for name in ("reason", "message") if found.get(name)}


def _add_pods(lookup: Lookup, state: ClusterState, namespace: str, parts: Sequence[WorkloadReport]) -> None:
    try:
        pods = lookup.list(_PODS, namespace)
    except UserError:  # not everybody may list pods
        return
    for one in parts:
        if one.state in ("admitted", "leaving"):
            one.pods = count(pods_of(state.workloads[one.workload], pods))


# -- no Workload ------------------------------------------------------------------------------------------------------


def absence(lookup: Lookup, state: ClusterState, subject: Subject, namespace: str) -> tuple[str, str]:
    """Why an object has no Workload, and what to do."""
    target, found = subject.target, subject.object
    over = over_word(found)
    if over:
        return f"{target} is over: it {over}. It has no Workload any more.", ""
    queues = sorted(one.name for one in state.scheduler.local_queues.values() if one.namespace == namespace)
    queue = str(labels_of(found).get(names.QUEUE) or labels_of(found).get(names.QUEUED) or "")
    listed = f"queues of namespace {namespace}: {', '.join(queues) or 'none'}"
    if not queue:
        fix = f"submit it with the label {names.QUEUE}: {queues[0] if queues else 'QUEUE'}   ({listed})"
        return f"{target} is in no queue: it has no label {names.QUEUE}.", fix
    if queue not in queues:
        fix = f"create the queue, or submit it with another label; {listed}.{nearest(queue, queues)}"
        return f"{target} names queue {queue!r}, and namespace {namespace} has no LocalQueue of that name.", fix
    warned = last_warning(lookup, _uids(subject), namespace)
    if warned is not None:
        return f"{target} has no Workload: {warned}", f"kubectl describe {target} -n {namespace}"
    if is_ours(target.kind):
        return _no_controller(lookup, target)
    fix = f"kubectl describe {target} -n {namespace}; Kueue's setting integrations.frameworks lists the kinds that it queues"
    return f"{target} names queue {queue!r}, and Kueue has made no Workload for it.", fix


def over_word(found: Object) -> str:
    """succeeded or failed, if it is."""
    if found.get("kind") == "Pod":
        phase = str(part(found, "status").get("phase")).lower()
        return phase if phase in ("succeeded", "failed") else ""
    try:
        status = status_of(dict(found))
    except (UserError, LookupError, ValueError):
        return ""
    return status.state if status.state in FINAL else ""


def _no_controller(lookup: Lookup, target: Target) -> tuple[str, str]:
    try:
        installed = lookup.get(WEBHOOKS, "", WEBHOOK) is not None
    except UserError:
        installed = True
    if installed:
        fix = "penstock controller check says whether it runs, and what is missing"
        return f"{target} is labelled, and the controller has made no Workload for it.", fix
    fix = "install it, then submit again: penstock controller manifests | kubectl apply -f -"
    return f"{target} is labelled, and nobody acts on it: Penstock's controller is not in this cluster.", fix
