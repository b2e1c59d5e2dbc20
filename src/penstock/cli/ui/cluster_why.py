"""The report of `penstock why KIND/NAME` on the terminal: how each Workload of an object of a cluster stands.

The texts are those of service.wording, as for waits on this machine; here they are arranged.
"""

from __future__ import annotations

import dataclasses
import time

from penstock.cli.ui import errors, render
from penstock.cli.ui.render import duration
from penstock.cli.ui.why import fact, queue_wait
from penstock.controller.inspect.why import ClusterReport, WorkloadReport
from penstock.service import wording
from penstock.service.amounts import vector

SHOWN = 5
"""Pods that are named for each cause."""


def cluster_report(found: ClusterReport) -> None:
    now = time.time()
    if found.unseen is not None:
        errors.problem(found.unseen)
    if found.problem:
        render.print_wrapped(found.problem, {"bold": True})
        if found.fix:
            fact("help", found.fix)
        return
    if found.through:
        render.note(f"{found.object} is part of {found.through}, which waits as a whole")
    blocks = 0
    for one in found.parts:
        if one.state in ("ahead", "over") and len(found.parts) > 1:
            continue
        if blocks:
            render.data("")
        blocks += 1
        _part(one, now)
    if len(found.parts) > 1:
        ahead = [one.name for one in found.parts if one.state == "ahead"]
        over = [one.name for one in found.parts if one.state == "over"]
        rest = [f"not reached yet, and keeping their place: {render.listed(ahead, 6)}"] if ahead else []
        rest += [f"over: {render.listed(over, 6)}"] if over else []
        if blocks and rest:
            render.data("")
        for text in rest:
            render.print_wrapped(text)
    if found.warned is not None:
        since = f" ({duration(max(0.0, now - found.warned.at))} ago)" if found.warned.at is not None else ""
        fact("warning", f"{found.warned}{since}")


def _part(one: WorkloadReport, now: float) -> None:
    ago = duration(max(0.0, now - one.since)) if one.since is not None else ""
    match one.state:
        case "over":
            render.print_wrapped(
                f"{one.name} is over: {one.kueue.get('message') or one.kueue.get('reason', '')}", {"bold": True}
            )
        case "ahead":
            place = wording.queue_name({"queue": one.queue})
            text = f"{one.name} is not reached yet: it waits for what comes before it, and keeps its place in queue {place}."
            render.print_wrapped(text, {"bold": True})
        case "admitted":
            _admitted(one, ago)
        case _:
            assert one.wait is not None
            shown = dataclasses.replace(one.wait, reason=dict(one.shown), who=dict(one.who))
            queue_wait(shown, one.name, f" for {ago}" if ago else "", "pod")
            if one.held:
                fact("holds", _amounts(one))
            _pods(one)
    if one.stopped and one.state != "over":
        by = {"reason": one.stopped["reason"], "by": f"/{one.stopped['by']}" if one.stopped.get("by") else ""}
        verb = "is being stopped since" if one.state == "leaving" else "was stopped at"
        label = "stopped" if one.state == "leaving" else "earlier"
        fact(label, f"it {verb} {wording.clock(one.stopped['at'])}: {wording.eviction(by)}")
    if one.state not in ("over", "ahead", "admitted") and one.kueue.get("message"):
        fact("kueue", one.kueue["message"])


def _admitted(one: WorkloadReport, ago: str) -> None:
    when = f" {ago} ago" if ago else ""
    text = f"{one.name} was admitted{when} by ClusterQueue {one.cluster_queue}: it holds {_amounts(one) or 'nothing'}."
    render.print_wrapped(text, {"bold": True})
    _pods(one)


def _amounts(one: WorkloadReport) -> str:
    return "; ".join(f"{vector(amounts)} of flavor {flavor}" for flavor, amounts in one.held.items())


def _pods(one: WorkloadReport) -> None:
    pods = one.pods
    if pods is None:
        return
    words = [f"{pods.running:,} of {one.wanted:,} run"]
    words += [f"{pods.ended:,} ended"] if pods.ended else []
    if pods.there < one.wanted:
        words.append(f"{one.wanted - pods.there:,} not made yet")
    fact("pods", ", ".join(words))
    for why, some in pods.troubles.items():
        fact("", f"{render.listed(some, SHOWN)}: {why}")
