"""The report of `penstock why` on the terminal: what is waited for now, then what was waited for.

The texts are those of service.why_text; here they are arranged.
"""

from __future__ import annotations

import shutil
import textwrap
import time
from datetime import datetime

from penstock.cli.ui import render
from penstock.cli.ui.render import DIM
from penstock.service import why_text
from penstock.service.views.why import WaitReport
from penstock.service.why_text import Said
from penstock.store.records import FINAL

SHOWN = 8
"""Past waits that are shown on a terminal: the last ones."""


def wait_report(found: WaitReport) -> None:
    head = why_text.head(found)
    if head:
        render.print_line([(head, {})])
    for number, one in enumerate(why_text.waits(found, time.time())):
        if number or head:
            render.data("")
        said(one)
    _history(found)


def said(one: Said) -> None:
    render.print_wrapped(one.text, {"bold": True} if one.strong else {})
    for label, text in one.facts:
        fact(label, text)


def fact(label: str, text: str, lead: str = "") -> None:
    """On a terminal in as many lines as it takes, because a reason is never cut; in a pipe in one line."""
    whole = render.clean(text)
    room = max(30, shutil.get_terminal_size().columns - 11 - len(lead))
    for number, part in enumerate(textwrap.wrap(whole, room) if render.is_terminal() else [whole]):
        head = f"  {'' if number else label:<8} "
        render.print_line([(head, DIM), (lead if not number else " " * len(lead), DIM), (part, {})])


def _history(found: WaitReport) -> None:
    rows = why_text.past(found)
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


def _clock(at: float) -> str:
    moment = datetime.fromtimestamp(at).astimezone()
    if not render.is_terminal():
        return moment.isoformat(timespec="seconds")
    today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if today else "%b %d %H:%M")
