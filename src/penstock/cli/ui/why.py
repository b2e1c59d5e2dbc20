"""The report of `penstock why` on the terminal: what is waited for now, then what was waited for.

The texts are those of service.wording; here they are arranged.
"""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from penstock.cli.ui import render
from penstock.cli.ui.failures import quoted
from penstock.cli.ui.render import DIM, duration, plural
from penstock.service import wording
from penstock.service.amounts import vector
from penstock.service.views.wait_history import PastWait
from penstock.service.views.waits import Wait
from penstock.service.views.why import WaitReport
from penstock.store.records import FINAL

_AFTER = {
    "withdrawn": "; not needed any more",
    "handed on": "; then each task that ended let the next one start",
    "stopped": "; then the engine stopped",
}
SHORTEST = 0.1
"""Seconds. Shorter waits are not shown."""
SHOWN = 8
"""Past waits that are shown on a terminal: the last ones."""


def wait_report(found: WaitReport) -> None:
    now = time.time()
    about = f"{found.run.id}/{found.path}" if found.path else found.run.id
    head = _head(found, about)
    if head:
        render.print_line([(head, {})])
    for number, wait in enumerate(found.waits):
        if number or head:
            render.data("")
        _wait(found, wait, now)
    _history(found)


def _head(found: WaitReport, about: str) -> str:
    """The state if nothing is waited for, or what runs besides."""
    tasks = plural(found.running, "task")
    verb = "runs" if found.running == 1 else "run"
    if found.ended:
        return f"{about} is over: it {found.ended}." if found.path else f"{about} {found.ended}."
    if found.state in FINAL:
        word = "was cancelled" if found.state == "cancelled" else found.state
        return f"{about} is over: it {word}."
    if not found.waits:
        return f"nothing waits: {tasks} of {about} {verb}." if found.running else f"{about} waits for nothing."
    return f"{tasks} of {about} {verb} now." if found.running else ""


def _wait(found: WaitReport, wait: Wait, now: float) -> None:
    name = f"{found.run.id}/{wait.path}" if wait.path and wait.path != "workflow" else found.run.id
    tasks = f"{name} ({wait.tasks:,} tasks)" if wait.tasks > 1 else name
    since = f" for {duration(max(0.0, now - wait.since))}" if wait.since is not None else ""
    if wait.kind == "queue":
        queue_wait(wait, name, since)
        return
    if wait.kind == "lock":
        _lock(wait, tasks, since)
        return
    reason, fix = wait.reason, ""
    message = f": {render.clean(str(reason['message']))}" if reason.get("message") else ""
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
        case "somebody":
            verb = f"has waited{since}" if since else "waits"
            end = "" if message.endswith(("?", "!", ".")) else "."
            text, fix = f"{tasks} {verb} to be resumed{message}{end}", f"penstock resume {quoted(name)}"
        case "steps":
            before = reason["steps"]
            which, are = render.listed(before, 6), "is" if len(before) == 1 else "are"
            text = f"{name} comes after {which}, which {are} not over."
            if reason.get("exit"):
                text = f"{name} runs at the end: {which} {are} not over."
            fix = f"penstock why {quoted(found.run.id + '/' + before[0])}"
        case _:
            text, fix = _no_engine(found.run.id, reason)
    render.print_wrapped(text)
    for one in reason.get("orphans", ()):
        task = f" of {one['task']}" if one["task"] else ""
        fact(
            "left",
            f"process {one['pid']}{task} still runs; it ends when the run is resumed or cancelled, and its task starts again",
        )
    if fix:
        fact("help", fix)


def _no_engine(run: str, reason: Mapping[str, Any]) -> tuple[str, str]:
    """What to say of a run that no engine executes, and what to do."""
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


def queue_wait(wait: Wait, name: str, since: str, unit: str = "task") -> None:
    """A wait in a queue, of this machine or of a cluster, where pods wait."""
    reason = wait.reason
    cluster_queue = reason.get("cluster_queue", "")
    other = cluster_queue not in ("", wording.queue_name(reason)) and not wording.is_machine(reason)
    of = f" (ClusterQueue {cluster_queue})" if other else ""
    tasks = f"{wait.tasks:,} {unit}s, " if wait.tasks > 1 else ""
    verb = "has waited" if since else "waits"
    text = f"{name} {verb}{since} {wording.place_of(reason)}{of}: {tasks}{vector(wait.asks)}."
    render.print_wrapped(text, {"bold": True})
    for label, text in wording.queue_facts(reason, wait.who, name):
        if label == "why" and wait.own:
            text = "its own tasks hold the quota: each that ends lets the next one start"
        fact(label, text)


def _lock(wait: Wait, name: str, since: str) -> None:
    text = f"{name} {'has waited' if since else 'waits'}{since} {wording.place_of(wait.reason)}."
    render.print_wrapped(text, {"bold": True})
    for label, text in wording.lock_facts(wait.reason):
        fact(label, text)


def fact(label: str, text: str, lead: str = "") -> None:
    """On a terminal in as many lines as it takes, because a reason is never cut; in a pipe in one line."""
    whole = render.clean(text)
    room = max(30, shutil.get_terminal_size().columns - 11 - len(lead))
    for number, part in enumerate(textwrap.wrap(whole, room) if render.is_terminal() else [whole]):
        head = f"  {'' if number else label:<8} "
        render.print_line([(head, DIM), (lead if not number else " " * len(lead), DIM), (part, {})])


# -- past waits -------------------------------------------------------------------------------------------------------


def _history(found: WaitReport) -> None:
    rows = [(wait.start, _past_wait(wait)) for wait in found.history if (wait.end or 0.0) - wait.start >= SHORTEST]
    rows += [(one["at"], f"{one['path']} was stopped: {wording.eviction(one)}") for one in found.evictions]
    rows = sorted(dict.fromkeys((int(at), text) for at, text in rows))  # Workloads of one stage may give the same line
    if not rows:
        if not found.waits and (found.ended or found.state in FINAL):
            render.note("it never waited in a queue")
        return
    render.data("")
    shown = rows if not render.is_terminal() else rows[-SHOWN:]
    if len(shown) < len(rows):
        render.print_line([(f"  … {len(rows) - len(shown):,} earlier ones; -o json has all", DIM)])
    for number, (at, text) in enumerate(shown):
        fact("earlier" if number == 0 else "", text, f"{_clock(at)}  ")


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


def _clock(at: float) -> str:
    moment = datetime.fromtimestamp(at).astimezone()
    if not render.is_terminal():
        return moment.isoformat(timespec="seconds")
    today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if today else "%b %d %H:%M")
