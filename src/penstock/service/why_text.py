"""Why something waits, in sentences: the same on terminals and pages. Called by the screen of `penstock why` and by the server.

The parts of a reason are those of wording; here they are put together for a whole report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.phrases import clean, duration, listed, plural, quoted
from penstock.service import wording
from penstock.service.amounts import vector
from penstock.service.views.wait_history import PastWait
from penstock.service.views.waits import Wait
from penstock.service.views.why import WaitReport
from penstock.store.records import FINAL

SHORTEST = 0.1
"""Seconds. Shorter waits are not told."""
_AFTER = {
    "withdrawn": "; not needed any more",
    "handed on": "; then each task that ended let the next one start",
    "stopped": "; then the engine stopped",
}


_DONE_TO = ("omitted", "skipped", "cancelled", "reused")
"""Ends that a step comes to by others."""


@dataclass(slots=True)
class Said:
    """One wait."""

    text: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    """(label, text); the label stands only before the first of several."""
    strong: bool = False


def head(found: WaitReport) -> str:
    """The state if nothing is waited for, or what runs besides. May be empty."""
    about = f"{found.run.id}/{found.path}" if found.path else found.run.id
    tasks = plural(found.running, "task")
    verb = "runs" if found.running == 1 else "run"
    if found.ended:
        word = f"was {found.ended}" if found.ended in _DONE_TO else found.ended
        return f"{about} is over: it {word}." if found.path else f"{about} {word}."
    if found.state in FINAL:
        word = "was cancelled" if found.state == "cancelled" else found.state
        return f"{about} is over: it {word}."
    if not found.waits:
        return f"nothing waits: {tasks} of {about} {verb}." if found.running else f"{about} waits for nothing."
    return f"{tasks} of {about} {verb} now." if found.running else ""


def waits(found: WaitReport, now: float) -> list[Said]:
    return [_wait(found, wait, now) for wait in found.waits]


def _wait(found: WaitReport, wait: Wait, now: float) -> Said:
    name = f"{found.run.id}/{wait.path}" if wait.path and wait.path != "workflow" else found.run.id
    tasks = f"{name} ({wait.tasks:,} tasks)" if wait.tasks > 1 else name
    since = f" for {duration(max(0.0, now - wait.since))}" if wait.since is not None else ""
    if wait.kind == "queue":
        return queue_wait(wait, name, since)
    if wait.kind == "lock":
        text = f"{tasks} {'has waited' if since else 'waits'}{since} {wording.place_of(wait.reason)}."
        return Said(text, wording.lock_facts(wait.reason), strong=True)
    reason, fix = wait.reason, ""
    message = f": {clean(str(reason['message']))}" if reason.get("message") else ""
    match wait.kind:
        case "slot":
            text = f"{name}: {plural(wait.tasks, 'task')} could start, and {_slot(found, reason)}."
        case "shared":
            owner = f"{reason['run']}/{reason['task']}" if "run" in reason else "another task"
            text, fix = f"{tasks} waits for {owner}, which computes the same.", f"penstock why {quoted(owner)}"
        case "retry":
            at = f" at {wording.clock(reason['until'])}" if reason.get("until") else ""
            text = f"{tasks} failed{message}; it is tried again{at}."
        case "there":
            text = f"{tasks} has not begun{message}."
        case "time":
            text = f"{tasks} is suspended until {wording.clock(reason['until'])}{message}."
        case "answer":
            verb = f"has waited{since}" if since else "waits"
            end = f", until {wording.clock(reason['until'])} at most" if reason.get("until") else ""
            what = plural(reason["payloads"], "payload") if reason.get("payloads") else "an answer"
            text = f"{tasks} {verb} for {what}{end}."
        case "somebody":
            verb = f"has waited{since}" if since else "waits"
            end = "" if message.endswith(("?", "!", ".")) else "."
            text, fix = f"{tasks} {verb} to be resumed{message}{end}", f"penstock resume {quoted(name)}"
        case "steps":
            before = reason["steps"]
            which, are = listed(before, 6), "is" if len(before) == 1 else "are"
            text = f"{name} comes after {which}, which {are} not over."
            if reason.get("exit"):
                text = f"{name} runs at the end: {which} {are} not over."
            fix = f"penstock why {quoted(found.run.id + '/' + before[0])}"
        case _:
            text, fix = _no_engine(found.run.id, reason)
    return Said(text, [*_left(reason), *([("help", fix)] if fix else [])])


def _left(reason: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for one in reason.get("orphans", ()):
        task = f" of {one['task']}" if one["task"] else ""
        yield (
            "left",
            f"process {one['pid']}{task} still runs; it ends when the run is resumed or cancelled, and its task starts again",
        )


def _no_engine(run: str, reason: Mapping[str, Any]) -> tuple[str, str]:
    """What to say of a run that no engine executes, and what to do."""
    if reason.get("problem"):
        return f"{run} could not be started: {reason['problem']}", "it is tried again; penstock cancel ends it"
    if reason.get("ordered"):
        return f"{run} waits for a worker that is free.", "start one more: penstock worker"
    if reason.get("state") == "starting":
        return (
            f"{run} is starting: it was submitted a moment ago, and a process for it is on its way.",
            f"penstock watch {run}",
        )
    gone = "its process is gone." if reason.get("state") == "lost" else "it was stopped."
    return f"no engine runs {run}: {gone}", f"penstock resume {run}"


def _slot(found: WaitReport, reason: Mapping[str, Any]) -> str:
    if reason.get("parallel"):
        return f"at most {reason['parallel']:,} of its tasks run at once"
    return "every worker is busy (-j sets how many there are)" if found.running else "will start in a moment"


def queue_wait(wait: Wait, name: str, since: str, unit: str = "task") -> Said:
    """A wait in a queue, of this machine or of a cluster, where pods wait."""
    reason = wait.reason
    cluster_queue = reason.get("cluster_queue", "")
    other = cluster_queue not in ("", wording.queue_name(reason)) and not wording.is_machine(reason)
    of = f" (ClusterQueue {cluster_queue})" if other else ""
    tasks = f"{wait.tasks:,} {unit}s, " if wait.tasks > 1 else ""
    verb = "has waited" if since else "waits"
    text = f"{name} {verb}{since} {wording.place_of(reason)}{of}: {tasks}{vector(wait.asks)}."
    own = "its own tasks hold the quota: each that ends lets the next one start"
    facts = wording.queue_facts(reason, wait.who, name)
    return Said(text, [(label, own if label == "why" and wait.own else said) for label, said in facts], strong=True)


# -- past waits -------------------------------------------------------------------------------------------------------


def past(found: WaitReport) -> list[tuple[int, str]]:
    """(when it began, what it was), in order; each once."""
    rows = [(wait.start, _past_wait(wait)) for wait in found.history if (wait.end or 0.0) - wait.start >= SHORTEST]
    rows += [(one["at"], f"{one['path']} was stopped: {wording.eviction(one)}") for one in found.evictions]
    return sorted(dict.fromkeys((int(at), text) for at, text in rows))  # Workloads of one stage may give the same line


def _past_wait(wait: PastWait) -> str:
    end = wait.end if wait.end is not None else wait.start
    queue = next((wording.place_of(reason) for reason in wait.reasons), "")
    what = "; then ".join(_distinct(wording.cause(reason) for reason in wait.reasons))
    text = f"{wait.path} waited {duration(end - wait.start)} {queue}: {what}"
    if wait.outcome == "admitted":
        tasks = f" with {plural(wait.tasks, 'task')}" if wait.tasks else ""
        flavors = ", ".join(flavor for flavor in wait.held if flavor not in ("default", wording.MACHINE))
        return f"{text}; admitted{tasks}{f' on {flavors}' if flavors else ''}"
    return text + _AFTER.get(wait.outcome, "")


def _distinct(texts: Iterable[str]) -> list[str]:
    """Without repetitions; of more than three, the first and the last."""
    found: list[str] = []
    for text in texts:
        if not found or found[-1] != text:
            found.append(text)
    return found if len(found) <= 3 else [found[0], "…", found[-1]]
