"""What the commands about queues do, and how queues look. Called by queue, which is only the way to call them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from penstock.admission.model import Stop
from penstock.cli import render
from penstock.cli.render import DIM, Line
from penstock.service import queueing, runs, wording
from penstock.service.quotas import Amount, Looking, Member, QueueView
from penstock.service.wording import MACHINE
from penstock.settings import FOLDER, Settings, read
from penstock.store.sql import Store

EXPLAINED = 20
"""Of so many that wait the reason is shown on a screen."""
_COLOURS = {"draining": "yellow", "holding": "yellow", "inactive": "red"}


def _store(settings: Settings) -> Store:
    return runs.open_here(settings)


def _look() -> Looking:
    """The queues, also where nothing has been run yet: then this machine's own."""
    settings = read()
    if "://" not in settings.store and not Path(settings.store, "state.db").exists():
        from penstock.service.outlook import nowhere

        return Looking(nowhere())
    return Looking(_store(settings))


# -- looking --------------------------------------------------------------------------------------------------------------


def ls(output: str) -> None:
    looking = _look()
    if output == "yaml":
        _yaml(looking.everything())
        return
    views = looking.all()
    if output == "json":
        render.json_out([view.as_data(whole=False) for view in views])
        return
    if not views:
        render.note(
            "there are no queues: penstock queue apply FILE with a ClusterQueue, or penstock queue delete --all"
        )
        return
    resources = [name for name in _resources(views) if any(_matters(view, name) for view in views)]
    head = [
        "QUEUE",
        "COHORT",
        "STRATEGY",
        "WAIT",
        "HOLD",
        *(_short(name).upper() for name in resources),
        "BORROWED",
        "STATE",
    ]
    rows = [_row(view, resources) for view in views]
    # What says nothing of any queue is left out on a screen.
    blank = ("COHORT", "BORROWED")
    kept = [at for at, name in enumerate(head) if name not in blank or any(row[at] for row in rows)]
    if render.is_terminal():
        head, rows = [head[at] for at in kept], [[row[at] for at in kept] for row in rows]
    render.table(head, rows, colours=_COLOURS)
    if not looking.book.configured:
        render.note("this machine is the only queue; penstock queue apply FILE makes others")


def _resources(views: Iterable[QueueView]) -> list[str]:
    found = dict.fromkeys(amount.resource for view in views for amount in view.amounts)
    return sorted(found, key=lambda name: ({"cpu": 0, "memory": 1}.get(name, 2), name))


def _matters(view: QueueView, resource: str) -> bool:
    """Not what nobody has, or nobody counts and nobody uses."""
    return any(one.used or 0 < one.nominal < wording.UNLIMITED for one in view.amounts if one.resource == resource)


def _short(resource: str) -> str:
    return wording.amount(0, resource).partition(" ")[2]


def _row(view: QueueView, resources: Sequence[str]) -> list[str]:
    cells = []
    for resource in resources:
        mine = [one for one in view.amounts if one.resource == resource]
        used, nominal = sum(one.used for one in mine), sum(one.nominal for one in mine)
        cells.append(f"{wording.figure(used, resource)}/{wording.figure(nominal, resource)}" if mine else "")
    borrowed: dict[str, int] = {}
    for one in view.amounts:
        borrowed[one.resource] = borrowed.get(one.resource, 0) + one.borrowed
    state = f"{view.state}: {view.why}" if view.state == "inactive" else view.state
    counts = [f"{len(each):,}" for each in (view.waiting, view.holding)]
    return [view.name, view.cohort, view.strategy, *counts, *cells, wording.vector(borrowed) if any(borrowed.values()) else "", state]  # fmt: skip


def show(name: str, output: str) -> None:
    looking = _look()
    if output == "yaml":
        _yaml(looking.manifest(name))
        return
    view = looking.one(name, EXPLAINED if output == "table" and render.is_terminal() else 1000)
    if output == "json":
        render.json_out(view.as_data())
        return
    _title(view)
    indent = "  " if render.is_terminal() else ""
    _quotas(view.amounts, indent)
    _queues(view)
    click.echo()
    _holding(view, indent)
    _waiting(view, indent)


def _title(view: QueueView) -> None:
    words = [view.kind, view.strategy]
    if view.kind == "LocalQueue":
        words.insert(1, f"of ClusterQueue {view.cluster_queue}")
    words += [f"cohort {view.cohort}"] if view.cohort else []
    state = f"{view.state}: {view.why}" if view.state == "inactive" else view.state
    colour = _COLOURS.get(view.state, "green")
    line: Line = [(view.name, {"bold": True}), ("  ", {}), (state, {"fg": colour})]
    render.print_line([*line, (f"   {', '.join(filter(None, words))}", DIM)])


def _quotas(amounts: Iterable[Amount], indent: str) -> None:
    shown = [one for one in amounts if one.used or 0 < one.nominal < wording.UNLIMITED]
    rows = []
    for one in shown:
        figures = [wording.figure(value, one.resource) for value in (one.used, one.nominal, one.free)]
        limits = [
            "" if value is None else wording.figure(value, one.resource) for value in (one.borrowing, one.lending)
        ]
        borrowed = wording.figure(one.borrowed, one.resource) if one.borrowed else ""
        rows.append([one.flavor, _short(one.resource), *figures, borrowed, *limits])
    if rows:
        click.echo()
        head = ["FLAVOR", "RESOURCE", "USED", "NOMINAL", "FREE NOW", "BORROWED", "MAY BORROW", "MAY LEND"]
        kept = [at for at in range(len(head)) if at < 5 or any(row[at] for row in rows) or not render.is_terminal()]
        render.table([head[at] for at in kept], [[row[at] for at in kept] for row in rows], indent)


def _queues(view: QueueView) -> None:
    if not view.queues:
        return
    waits = _by_queue(view.waiting)
    holds = _by_queue(view.holding)
    parts = []
    for name, stop in view.queues.items():
        words = [f"{holds[name]:,} hold"] if holds.get(name) else []
        words += [f"{waits[name]:,} wait"] if waits.get(name) else []
        words += [{"Hold": "holding", "HoldAndDrain": "draining"}[stop]] if stop != "None" else []
        parts.append(name + (f" ({', '.join(words)})" if words else ""))
    click.echo()
    render.print_line([("  local queues  ", DIM), (", ".join(parts), {})])


def _by_queue(members: Iterable[Member]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in members:
        found[one.queue] = found.get(one.queue, 0) + 1
    return found


def _holding(view: QueueView, indent: str) -> None:
    if not view.holding:
        render.note(f"{indent}nobody holds anything")
        return
    now = time.time()
    together: dict[tuple[str, ...], list[Member]] = {}
    for one in view.holding:  # several Workloads of one stage are one line
        together.setdefault((one.name, one.queue, _priority(one), one.user, one.leaving), []).append(one)
    rows = [
        [name, queue, priority, render.when(min(one.since for one in some), now), _held(some), user, leaving]
        for (name, queue, priority, user, leaving), some in together.items()
    ]
    head = ["HOLDS", "QUEUE", "PRIORITY", "SINCE", "AMOUNT", "USER", "BEING STOPPED"]
    width = len(head) if any(row[-1] for row in rows) or not render.is_terminal() else len(head) - 1
    render.table(head[:width], [row[:width] for row in rows], indent)


def _held(some: Iterable[Member]) -> str:
    flavors: dict[str, dict[str, int]] = {}
    for one in some:
        for flavor, amounts in one.amounts.items():
            held = flavors.setdefault(flavor, {})
            for resource, amount in amounts.items():
                held[resource] = held.get(resource, 0) + amount
    if len(flavors) == 1 and not (set(flavors) - {"default", MACHINE}):
        return wording.vector(next(iter(flavors.values())))
    return "; ".join(f"{wording.vector(held)} of {flavor}" for flavor, held in flavors.items()) or "nothing"


def _waiting(view: QueueView, indent: str) -> None:
    click.echo()
    gated = f"; {view.gated:,} gated" if view.gated else ""
    if not view.waiting:
        render.note(f"{indent}nobody waits{gated}")
        return
    now = time.time()
    rows = [
        [
            str(place),
            one.name,
            one.queue,
            _priority(one),
            render.when(one.since, now),
            wording.vector(one.total),
            _why(one),
        ]
        for place, one in enumerate(view.waiting, 1)
    ]
    render.table(["", "WAITS", "QUEUE", "PRIORITY", "SUBMITTED", "ASKS FOR", "WHY"], rows, indent)
    if gated:
        render.note(indent + gated.removeprefix("; "))


def _priority(one: Member) -> str:
    return f"{one.priority} ({one.priority_class})" if one.priority_class else str(one.priority)


def _why(one: Member) -> str:
    return "" if one.hold is None else wording.cause(one.hold.as_data())


def _yaml(documents: Sequence[Mapping[str, Any]]) -> None:
    import yaml

    click.echo(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True), nl=False)


# -- changing -------------------------------------------------------------------------------------------------------------


def apply(files: Sequence[str], output: str) -> None:
    sources = [(_text(file), "standard input" if file == "-" else file) for file in files]
    with _store(read()) as store:
        done, warnings = queueing.apply(store, *sources)
    for problem in warnings:
        render.problem(problem)
    if output == "json":
        render.json_out([{"kind": kind, "name": name} for kind, name in done])
    else:
        for kind, name in done:
            click.echo(f"applied {kind} {_called(kind, name)}".rstrip())
        _say_where()


def _text(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    return queueing.read_file(file)


def _called(kind: str, name: str) -> str:
    return name.removeprefix("default/") if kind == "LocalQueue" else name


def stop(name: str, policy: str, output: str) -> None:
    with _store(read()) as store:
        changed = queueing.set_stop(store, name, Stop(policy))
        view = Looking(store).one(name)
    kind, _, called = changed.partition(" ")
    if output == "json":
        render.json_out({"kind": kind, "name": called, "stop": policy})
        return
    running, waiting = len(view.holding), len(view.waiting)
    words = {
        "None": f"{name} goes on" + (f"; {waiting:,} waiting" if waiting else ""),
        "Hold": f"{name} holds: nothing new starts" + (f", {running:,} may finish" if running else ""),
        "HoldAndDrain": f"{name} drains: nothing new starts" + (f", {running:,} being ended" if running else ""),
    }
    click.echo(words[policy])
    if policy != "None":
        render.note(f"  undo   penstock queue resume {name}")
    _say_where()


def delete(names: Sequence[str], everything: bool, output: str) -> None:
    with _store(read()) as store:
        gone = queueing.delete_all(store) if everything else queueing.delete(store, names)
    if output == "json":
        render.json_out([{"kind": kind, "name": name} for kind, name in gone])
        return
    for kind, name in gone:
        click.echo(f"deleted {kind} {_called(kind, name)}".rstrip())
    if not gone:
        render.note("there are no queues but this machine itself")
    _say_where()


def _say_where() -> None:
    """Whose queues these are, if they are not those of this folder: others may share them."""
    settings = read()
    if settings.store != str(Path.cwd() / FOLDER):
        from penstock.service.runs import place_of

        render.note(f"  in     {place_of(settings)}")
