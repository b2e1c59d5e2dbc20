"""How `why` looks: what is waited for now, then what was waited for. Called by look.

The words are service.wording's; here they get their places on the screen.
"""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from penstock.cli import render
from penstock.cli.failures import quoted
from penstock.cli.render import DIM, duration
from penstock.service import wording
from penstock.service.why import Spell, Wait, Why

BLINK = 0.1
"""Seconds. Shorter waits are not worth a line."""
SHOWN = 8
"""Holds of the past that are listed on a screen: the last ones."""


def show_why(found: Why) -> None:
    now = time.time()
    about = f"{found.run.id}/{found.path}" if found.path else found.run.id
    head = _head(found, about)
    if head:
        render.print_line([(head, {})])
    for number, wait in enumerate(found.waits):
        if number or head:
            click.echo()
        _wait(found, wait, now)
    _past(found)


def _head(found: Why, about: str) -> str:
    """The state of things if nothing is waited for, or besides what is."""
    tasks = f"{found.running:,} task{'s' if found.running != 1 else ''}"
    if found.ended:
        return f"{about} is over: it {found.ended}." if found.path else f"{about} {found.ended}."
    if found.state in ("succeeded", "failed", "cancelled"):
        word = "was cancelled" if found.state == "cancelled" else found.state
        return f"{about} is over: it {word}."
    if not found.waits:
        runs = "runs" if found.running == 1 else "run"
        return f"nothing waits: {tasks} of {about} {runs}." if found.running else f"{about} waits for nothing."
    return f"{tasks} of {about} run{'s' if found.running == 1 else ''} now." if found.running else ""


def _wait(found: Why, wait: Wait, now: float) -> None:
    name = f"{found.run.id}/{wait.path}" if wait.path and wait.path != "workflow" else found.run.id
    many = f" ({wait.tasks:,} tasks)" if wait.tasks > 1 else ""
    since = f" for {duration(max(0.0, now - wait.since))}" if wait.since is not None else ""
    if wait.kind == "queue":
        _queue(wait, name, since)
        return
    if wait.kind == "lock":
        _lock(wait, f"{name}{many}", since)
        return
    reason, fix = wait.reason, ""
    said = f": {render.clean(str(reason['message']))}" if reason.get("message") else ""
    match wait.kind:
        case "slot":
            text = (
                f"{name}: {wait.tasks:,} task{'s' if wait.tasks != 1 else ''} could start, and {_room(found, reason)}."
            )
        case "shared":
            owner = f"{reason['run']}/{reason['task']}" if "run" in reason else "another task"
            text, fix = f"{name}{many} waits for {owner}, which computes the same.", f"penstock why {quoted(owner)}"
        case "retry":
            at = f" at {wording.clock(reason['until'])}" if reason.get("until") else ""
            text = f"{name}{many} failed{said}; it is tried again{at}."
        case "time":
            text = f"{name}{many} is suspended until {wording.clock(reason['until'])}{said}."
        case "somebody":
            text, fix = f"{name}{many} waits for somebody{since}{said}.", f"penstock resume {quoted(name)}"
        case "steps":
            text = f"{name} comes after {_listed(reason['steps'])}, which {_are(len(reason['steps']))} not over."
            if reason.get("exit"):
                text = f"{name} runs at the end: {_listed(reason['steps'])} {_are(len(reason['steps']))} not over."
            fix = f"penstock why {quoted(found.run.id + '/' + reason['steps'][0])}"
        case _:
            lost = reason.get("state") == "lost"
            text = f"nobody runs {found.run.id}: " + ("its process is gone." if lost else "it was stopped.")
            fix = f"penstock resume {found.run.id}"
    for part in textwrap.wrap(text, shutil.get_terminal_size().columns) if render.is_terminal() else [text]:
        render.print_line([(part, {})])
    if fix:
        _fact("help", fix)


def _room(found: Why, reason: Mapping[str, Any]) -> str:
    if reason.get("parallel"):
        return f"at most {reason['parallel']:,} of its tasks run at once"
    return "every worker is busy (-j says how many there are)" if found.running else "will in a moment"


def _listed(steps: Sequence[str]) -> str:
    return ", ".join(steps[:5]) + (f" and {len(steps) - 5:,} more" if len(steps) > 5 else "")


def _are(many: int) -> str:
    return "is" if many == 1 else "are"


def _queue(wait: Wait, name: str, since: str) -> None:
    reason = wait.reason
    cluster_queue = reason.get("cluster_queue", "")
    other = cluster_queue not in ("", wording.queue_name(reason), wording.MACHINE)
    behind = f" (ClusterQueue {cluster_queue})" if other else ""
    tasks = f"{wait.tasks:,} tasks, " if wait.tasks > 1 else ""
    verb = "has waited" if since else "waits"
    head = f"{name} {verb}{since} {wording.line_of(reason)}{behind}: {tasks}{wording.vector(wait.asks)}."
    for part in textwrap.wrap(head, shutil.get_terminal_size().columns) if render.is_terminal() else [head]:
        render.print_line([(part, {"bold": True})])
    for label, text in wording.lines(reason, wait.who, name):
        if label == "why" and wait.own:
            text = "its own tasks hold what there is: each that ends lets the next one start"
        _fact(label, text)


def _lock(wait: Wait, name: str, since: str) -> None:
    head = f"{name} {'has waited' if since else 'waits'}{since} {wording.line_of(wait.reason)}."
    for part in textwrap.wrap(head, shutil.get_terminal_size().columns) if render.is_terminal() else [head]:
        render.print_line([(part, {"bold": True})])
    for label, text in wording.lock_lines(wait.reason):
        _fact(label, text)


def _fact(label: str, text: str, lead: str = "") -> None:
    """In a pipe one line; on a terminal as many as it takes: nothing of a reason is cut."""
    whole = render.clean(text)
    room = max(30, shutil.get_terminal_size().columns - 11 - len(lead))
    for number, part in enumerate(textwrap.wrap(whole, room) if render.is_terminal() else [whole]):
        head = f"  {'' if number else label:<8} "
        render.print_line([(head, DIM), (lead if not number else " " * len(lead), DIM), (part, {})])


# -- what was -------------------------------------------------------------------------------------------------------------


def _past(found: Why) -> None:
    rows = [(spell.start, _spell(spell)) for spell in found.history if (spell.end or 0.0) - spell.start >= BLINK]
    rows += [(one["at"], f"{one['path']} was stopped: {wording.eviction(one)}") for one in found.evictions]
    rows = sorted(dict.fromkeys((int(at), text) for at, text in rows))  # several lots of a stage may say the same
    if not rows:
        if not found.waits and (found.ended or found.state in ("succeeded", "failed", "cancelled")):
            render.note("it never waited in a queue")
        return
    click.echo()
    shown = rows if not render.is_terminal() else rows[-SHOWN:]
    if len(shown) < len(rows):
        render.print_line([(f"  … {len(rows) - len(shown):,} earlier ones; -o json has all", DIM)])
    for number, (at, text) in enumerate(shown):
        _fact("earlier" if number == 0 else "", text, f"{_clock(at)}  ")


def _spell(spell: Spell) -> str:
    end = spell.end if spell.end is not None else spell.start
    queue = next((wording.line_of(reason) for reason in spell.reasons), "")
    what = "; then ".join(_distinct(wording.cause(reason) for reason in spell.reasons))
    text = f"{spell.path} waited {duration(end - spell.start)} {queue}: {what}"
    if spell.outcome == "admitted":
        tasks = f" with {spell.tasks:,} task{'s' if spell.tasks != 1 else ''}" if spell.tasks else ""
        flavors = ", ".join(flavor for flavor in spell.held if flavor not in ("default", "machine"))
        return f"{text}; admitted{tasks}{f' on {flavors}' if flavors else ''}"
    return text + {"withdrawn": "; not needed any more", "stopped": "; then the engine stopped"}.get(spell.outcome, "")


def _distinct(texts: Iterable[str]) -> list[str]:
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
