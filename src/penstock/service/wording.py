"""Waits in plain words: which queue or lock, which rule, what is short, who has it, what would help. Called by the screens of run,
watch, show, why, plan and queue; later by the pages, so that all say the same.

Pure: what `Hold.as_data` gives, as it stands in the log too, becomes text; likewise what a task records that waits for a lock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.graph import quantity

Reason = Mapping[str, Any]
UNLIMITED = 2**63 - 1
MACHINE = "machine"
"""The queue that there is as long as nobody has made any."""
_SHORT = {"nvidia.com/gpu": "gpu"}
_LOT = re.compile(r"\+\d+\Z")


def called(key: str) -> str:
    """A Workload as people call it: `default/flow-1/train+2` is flow-1/train."""
    return _LOT.sub("", key.partition("/")[2])


def names(keys: Iterable[str], most: int = 3) -> str:
    found = list(dict.fromkeys(map(called, keys)))
    rest = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + rest


def amount(number: int, resource: str) -> str:
    """`2 cpu`, `1.5Gi memory`, `4 gpu`."""
    return f"{figure(number, resource)} {_SHORT.get(resource, resource)}"


def figure(number: int, resource: str) -> str:
    if number >= UNLIMITED:
        return "unlimited"
    milli = number if resource == "cpu" else number * 1000
    return quantity.short(milli, resource) if milli >= 0 else "-" + quantity.short(-milli, resource)


def vector(amounts: Mapping[str, int]) -> str:
    order = sorted(amounts, key=lambda name: ({"cpu": 1, "memory": 2}.get(name, 0), name))
    return ", ".join(amount(amounts[name], name) for name in order if amounts[name]) or "nothing"


def queue_name(reason: Reason) -> str:
    """`team-a`; of a namespace of its own `research/team-a`."""
    return str(reason.get("queue", "")).removeprefix("default/")


def ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


# -- in one line ----------------------------------------------------------------------------------------------------------


def brief(reason: Reason) -> str:
    """`waiting in queue team-a: 2 cpu short (position 3)`, `waiting for lock m: flow-1/train holds it`"""
    place = reason.get("position", 0)
    line = f" (position {place:,})" if place > 1 else ""
    return f"waiting {line_of(reason)}: {cause(reason)}{line}"


def line_of(reason: Reason) -> str:
    """`in queue team-a`; as long as nobody has made queues, `for this machine`; `for lock m`."""
    if reason.get("why") in ("lock", "worker"):
        return f"for lock {reason['lock']}" if reason["why"] == "lock" else "for a worker"
    return "for this machine" if reason.get("cluster_queue") == MACHINE else f"in queue {queue_name(reason)}"


def cause(reason: Reason) -> str:
    """Why it is held, in half a sentence."""
    kind = reason.get("why", "")
    detail = str(reason.get("detail", ""))
    missing = short_of(reason.get("short", ()))
    match kind:
        case "quota" | "no candidates":
            return f"{missing} short" if missing else "too little is free"
        case "never":
            return f"{too_much(reason)}: it can never start"
        case "no flavor":
            return f"no flavor goes with it{': ' if detail else ''}{detail or unfitting(reason.get('short', ()))}"
        case "behind":
            ahead = names(reason.get("ahead", ()), 2)
            return f"behind {ahead}" if ahead else "its turn comes next"
        case "preempting":
            others = names(reason.get("waits_for", ()), 2)
            return f"{others} {'is' if len(reason.get('waits_for', ())) < 2 else 'are'} being stopped for it"
        case "stopped":
            return f"it is stopped ({detail.rpartition(' ')[2]})" if detail else "it is stopped"
        case "leaving":
            return f"its place was taken ({detail})"
        case "checks":
            return f"admission check {detail}"
        case "backoff":
            return f"it may try again at {clock(reason['until'])}" if reason.get("until") else "it may try again later"
        case "inactive queue":
            return f"the queue admits nobody: {detail}"
        case "gated":
            return f"gated by {detail}"
        case "deactivated":
            return "it was deactivated"
        case "lock":
            return locked(reason)
        case "worker":
            return f"it has lock {reason['lock']}"
        case "new" | "":
            return "nobody has looked at it yet"
    return detail or str(kind)


def locked(reason: Reason) -> str:
    """Who holds the lock: `flow-1/train holds it`, `3 of 3 hold it: flow-1/a, flow-1/b and 1 more`."""
    holders = [holder(one) for one in reason.get("holders", ())]
    limit = int(reason.get("limit", 1))
    held = max(int(reason.get("held", 0)), len(holders))
    if held < limit or not holders:
        return (
            "it is being handed on"
            if limit == 1 or not held
            else f"{held:,} of {limit:,} hold it: it is being handed on"
        )
    if limit == 1 and held == 1:
        return f"{holders[0]} holds it"
    rest = f" and {held - 2:,} more" if held > 2 else ""
    return f"{held:,} of {limit:,} hold it: {', '.join(holders[:2])}{rest}"


def holder(one: Reason) -> str:
    """A task that holds a lock as people call it, or the run that does."""
    return f"{one['run']}/{one['task']}" if one.get("task") else str(one["run"])


def short_of(shortages: Sequence[Reason]) -> str:
    """What is missing, of the flavor that comes nearest."""
    flavors: dict[str, dict[str, int]] = {}
    for one in shortages:
        if one.get("kind") == "quota" and one["asked"] > one["available"]:
            flavors.setdefault(one["flavor"], {})[one["resource"]] = one["asked"] - one["available"]
    if not flavors:
        return ""
    nearest = min(flavors.values(), key=lambda missing: (len(missing), sorted(missing.values())))
    return vector(nearest)


def too_much(reason: Reason) -> str:
    """What it asks for that it can never have."""
    machine = reason.get("cluster_queue") == MACHINE
    for one in reason.get("short", ()):
        asks = f"it asks for {amount(one['asked'], one['resource'])}"
        if one.get("kind") == "exceedsMax" and one["most"]:
            most = figure(one["most"], one["resource"])
            return f"{asks}, and {'this machine has' if machine else 'the queue can have'} {most} at most"
        if one.get("kind") in ("exceedsMax", "notCovered"):
            return f"{asks}, of which {'this machine' if machine else 'the queue'} has none"
    return "it asks for more than there is"


def unfitting(shortages: Sequence[Reason]) -> str:
    parts = [
        f"{one['flavor']} ({one['kind']}{' ' if one.get('detail') else ''}{one.get('detail', '')})"
        for one in shortages
        if one.get("kind") in ("taint", "affinity", "invalidAffinity", "flavorMissing")
    ]
    return ", ".join(dict.fromkeys(parts))


# -- at length ------------------------------------------------------------------------------------------------------------


def lines(reason: Reason, who: Mapping[str, str] | None = None, me: str = "") -> list[tuple[str, str]]:
    """What there is to say about a wait in a queue: (what it is about, text). `who`: Workload -> its user and priority. `me`: what
    the one that waits is called."""
    place = reason.get("position", 0)
    order = f"{ordinal(place)} in line" + (f", behind {names(reason.get('ahead', ()))}" if reason.get("behind") else "")
    parts: list[tuple[str, list[str]]] = [
        ("why", [_sentence(reason)]),
        ("short", [shortage(one) for one in reason.get("short", ())]),
        ("held by", holders(reason.get("short", ()), who or {})),
        ("order", [order] if place else []),
        ("help", remedies(reason, me)),
    ]
    return [(name if number == 0 else "", text) for name, texts in parts for number, text in enumerate(texts)]


def _sentence(reason: Reason) -> str:
    kind, rule = reason.get("why", ""), str(reason.get("rule", ""))
    behind = f" ({rule})" if rule else ""
    match kind:
        case "quota" if reason.get("cluster_queue") == MACHINE:
            return "too little of this machine is free"
        case "quota":
            return f"too little of the {rule or 'quota'} is free"
        case "behind":
            return f"others stand before it{behind}"
        case "no candidates":
            return f"too little quota is free, and nobody may be stopped for it{behind}"
        case "never":
            return f"{too_much(reason)}: it can never start as the queue is"
        case "stopped":
            return f"{reason.get('detail', 'the queue is stopped')}: it admits nobody"
    return cause(reason)


def shortage(one: Reason) -> str:
    """`cpu of flavor default: 2 asked, 1 free, 4 at most`"""
    resource, flavor = str(one["resource"]), one.get("flavor", "")
    what = _SHORT.get(resource, resource) + (f" of flavor {flavor}" if flavor not in ("", MACHINE) else "")
    asked = figure(one["asked"], resource)
    match one.get("kind"):
        case "quota" | "exceedsMax":
            most = figure(one["most"], resource)
            return f"{what}: {asked} asked, {figure(max(0, one['available']), resource)} free, {most} at most"
        case "notCovered":
            return f"{what}: {asked} asked, and the queue has no quota for it"
    detail = f" {one['detail']}" if one.get("detail") else ""
    return f"flavor {flavor} does not go with it: {one.get('kind')}{detail}"


def lock_lines(reason: Reason) -> list[tuple[str, str]]:
    """What there is to say about a wait for a lock: (what it is about, text)."""
    limit = int(reason.get("limit", 1))
    named = reason.get("holders", ())
    rest = max(0, int(reason.get("held", 0)) - len(named))
    text = "one at a time may hold it" if limit == 1 else f"{limit:,} at a time may hold it"
    if len(named) + rest < limit:
        text += (f"; {len(named) + rest:,} now do" if named else "") + ", and it is being handed on"
    held = [_held(one) for one in named] + ([f"{rest:,} more"] if rest else [])
    names_ = [holder(one) for one in named]
    help_ = []
    if len(names_) == 1 and not rest:
        help_ = [f"its turn may come when {names_[0]} is over"]
    elif names_:
        help_ = ["its turn may come when one of them is over"]
    parts = [("why", [text]), ("held by", held), ("help", help_)]
    return [(name if number == 0 else "", text) for name, texts in parts for number, text in enumerate(texts)]


def _held(one: Reason) -> str:
    since = f" since {clock(one['since'])}" if one.get("since") is not None else ""
    about = [str(one["user"])] if one.get("user") else []
    about += ["its process is gone"] if one.get("gone") else []
    return f"{holder(one)}{since}" + (f"   ({', '.join(about)})" if about else "")


def holders(shortages: Sequence[Reason], who: Mapping[str, str]) -> list[str]:
    """Who has what is short: of each resource, several lots of one stage taken together."""
    found: dict[str, dict[str, int]] = {}
    known: dict[str, str] = {}
    for one in shortages:
        for holder in one.get("holders", ()):
            name = called(holder["workload"])
            known.setdefault(name, who.get(holder["workload"], ""))
            held = found.setdefault(name, {})
            held[one["resource"]] = held.get(one["resource"], 0) + holder["amount"]
    return [
        f"{name} has {vector(held)}" + (f"   ({known[name]})" if known[name] else "") for name, held in found.items()
    ]


def remedies(reason: Reason, me: str = "") -> list[str]:
    """What would let it start."""
    kind = reason.get("why", "")
    found = []
    enough = list(dict.fromkeys(called(key) for one in reason.get("short", ()) for key in one.get("enough", ())))
    if enough == [me]:
        found.append("it can start when another of its own tasks ends")
    elif enough and kind in ("quota", "no candidates", "behind"):
        found.append(
            f"it can start when {_all(enough)} {'ends or gives' if len(enough) == 1 else 'end or give'} that back"
        )
    waits = reason.get("waits_for", ())
    if waits:
        found.append(f"it starts when {names(waits)} {'has' if len(waits) == 1 else 'have'} stopped")
    elsewhere = reason.get("elsewhere", ())
    if elsewhere:
        found.append(f"it would start now in queue {' or '.join(elsewhere)}: --queue {elsewhere[0]}")
    if kind == "stopped":
        detail = str(reason.get("detail", ""))
        name = detail.partition(":")[0].rpartition(" ")[2].removeprefix("default/") or queue_name(reason)
        found.append(f"penstock queue resume {name}")
    elif kind in ("never", "no flavor"):
        found.append("ask for less, or give the queue more: penstock queue apply FILE")
    elif kind in ("no queue", "inactive queue"):
        found.append("penstock queue apply FILE with what is missing")
    elif kind == "backoff" and reason.get("until"):
        found.append(f"it may try again at {clock(reason['until'])}")
    return found


def _all(found: Sequence[str]) -> str:
    return " and ".join(found) if len(found) < 3 else f"{', '.join(found[:-1])} and {found[-1]}"


def eviction(data: Mapping[str, Any]) -> str:
    """`preempted by flow-2/train (InClusterQueue)`"""
    reason, by = str(data.get("reason", "")), str(data.get("by", ""))
    if by:
        return f"preempted by {called(by)} ({reason})"
    words = {
        "ClusterQueueStopped": "its ClusterQueue was drained",
        "LocalQueueStopped": "its LocalQueue was drained",
        "PodsReadyTimeout": "it was not ready in time",
        "MaximumExecutionTimeExceeded": "it ran for too long",
        "Deactivated": "it was deactivated",
        "AdmissionCheck": "an admission check said no",
        "lost": "its engine was held for dead",
    }
    return words.get(reason, reason)


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


# -- as data --------------------------------------------------------------------------------------------------------------


def spelled(reason: Reason) -> dict[str, Any]:
    """With amounts as Kubernetes spells them, as everywhere in our JSON; the log has numbers."""
    found = dict(reason)
    if "short" in found:
        found["short"] = [_spelled(one) for one in found["short"]]
    return found


def _spelled(one: Reason) -> dict[str, Any]:
    found = dict(one)
    for name in ("asked", "available", "most"):
        if name in found:
            found[name] = spell(found[name], one["resource"])
    if "holders" in found:
        found["holders"] = [{**each, "amount": spell(each["amount"], one["resource"])} for each in found["holders"]]
    return found


def spell(number: int, resource: str) -> str:
    if number >= UNLIMITED:
        return "unlimited"
    return quantity.show(number if resource == "cpu" else number * 1000, resource)
