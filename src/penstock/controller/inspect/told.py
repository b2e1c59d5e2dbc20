"""Why an object of a cluster waits, in sentences: the same on terminals and pages. Called by the screen of `penstock why KIND/NAME` and by watched; pure.

The texts are those of service.wording, as for waits on this machine; here they are put together for a whole report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from penstock.controller.inspect.why import ClusterReport, WorkloadReport
from penstock.phrases import duration, listed
from penstock.service import wording
from penstock.service.amounts import vector
from penstock.service.why_text import Said, queue_wait

SHOWN = 5
"""Pods that are named for each cause."""


def parts_told(found: ClusterReport, now: float) -> list[Said]:
    """Each Workload that waits, holds or leaves; of several, those not reached yet and those that are over are in `rest_told`."""
    several = len(found.parts) > 1
    return [_part(one, now) for one in found.parts if not several or one.state not in ("ahead", "over")]


def rest_told(found: ClusterReport) -> list[str]:
    if len(found.parts) < 2:
        return []
    ahead = [one.name for one in found.parts if one.state == "ahead"]
    over = [one.name for one in found.parts if one.state == "over"]
    rest = [f"not reached yet, and keeping their place: {listed(ahead, 6)}"] if ahead else []
    return rest + ([f"over: {listed(over, 6)}"] if over else [])


def warning_told(found: ClusterReport, now: float) -> str:
    if found.warned is None:
        return ""
    since = f" ({duration(max(0.0, now - found.warned.at))} ago)" if found.warned.at is not None else ""
    return f"{found.warned}{since}"


def _part(one: WorkloadReport, now: float) -> Said:
    ago = duration(max(0.0, now - one.since)) if one.since is not None else ""
    match one.state:
        case "over":
            why = one.kueue.get("message") or one.kueue.get("reason", "")
            said = Said(f"{one.name} is over: {why}", strong=True)
        case "ahead":
            place = wording.queue_name({"queue": one.queue})
            text = f"{one.name} is not reached yet: it waits for what comes before it, and keeps its place in queue {place}."
            said = Said(text, strong=True)
        case "admitted":
            when = f" {ago} ago" if ago else ""
            holds = _amounts(one) or "nothing"
            text = f"{one.name} was admitted{when} by ClusterQueue {one.cluster_queue}: it holds {holds}."
            said = Said(text, _pods(one), strong=True)
        case _:
            assert one.wait is not None
            shown = dataclasses.replace(one.wait, reason=dict(one.shown), who=dict(one.who))
            said = queue_wait(shown, one.name, f" for {ago}" if ago else "", "pod")
            said.facts += [("holds", _amounts(one))] if one.held else []
            said.facts += _pods(one)
    said.facts += _stopped(one)
    if one.state not in ("over", "ahead", "admitted") and one.kueue.get("message"):
        said.facts.append(("kueue", one.kueue["message"]))
    return said


def _stopped(one: WorkloadReport) -> list[tuple[str, str]]:
    if not one.stopped or one.state == "over":
        return []
    by = {"reason": one.stopped["reason"], "by": f"/{one.stopped['by']}" if one.stopped.get("by") else ""}
    verb = "is being stopped since" if one.state == "leaving" else "was stopped at"
    label = "stopped" if one.state == "leaving" else "earlier"
    return [(label, f"it {verb} {wording.clock(one.stopped['at'])}: {wording.eviction(by)}")]


def _amounts(one: WorkloadReport) -> str:
    return "; ".join(f"{vector(amounts)} of flavor {flavor}" for flavor, amounts in one.held.items())


def _pods(one: WorkloadReport) -> list[tuple[str, str]]:
    pods = one.pods
    if pods is None:
        return []
    words = [f"{pods.running:,} of {one.wanted:,} run"]
    words += [f"{pods.ended:,} ended"] if pods.ended else []
    if pods.there < one.wanted:
        words.append(f"{one.wanted - pods.there:,} not made yet")
    return [("pods", ", ".join(words)), *(("", f"{_some(pods)}: {why}") for why, pods in pods.troubles.items())]


def _some(names: Sequence[str]) -> str:
    return listed(names, SHOWN)
