"""Waits as text: which queue or lock, which rule, what is short, who holds it, what would help. Called by the screens of run, watch, show,
why, plan and queue, so that all use the same words.

Pure. A reason is what `admission.explain.Hold.as_data` returns, as it is recorded in the log, or what a task records that waits for a lock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.service.amounts import amount, figure, short_name, spell, vector

Reason = Mapping[str, Any]
MACHINE = "machine"
"""The queue that exists as long as none is configured: this machine."""
_NUMBER = re.compile(r"\+\d+\Z")


def workload_name(key: str) -> str:
    """A Workload as users know it: `default/flow-1/train+2` is flow-1/train."""
    return _NUMBER.sub("", key.partition("/")[2])


def renamed(reason: Reason, name: Callable[[str], str]) -> dict[str, Any]:
    """A reason with other names for its Workloads. `workload_name` gives them back as they are."""
    found = dict(reason)
    for field in ("ahead", "waits_for"):
        if field in found:
            found[field] = [f"/{name(key)}" for key in found[field]]
    if "short" in found:
        found["short"] = [_renamed(one, name) for one in found["short"]]
    return found


def _renamed(one: Reason, name: Callable[[str], str]) -> dict[str, Any]:
    found = dict(one)
    if "holders" in found:
        found["holders"] = [{**each, "workload": f"/{name(each['workload'])}"} for each in found["holders"]]
    if "enough" in found:
        found["enough"] = [f"/{name(key)}" for key in found["enough"]]
    return found


def names(keys: Iterable[str], most: int = 3) -> str:
    """Workloads, each once."""
    found = list(dict.fromkeys(map(workload_name, keys)))
    rest = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + rest


def queue_name(reason: Reason) -> str:
    """`team-a`; in a namespace other than default `research/team-a`."""
    return str(reason.get("queue", "")).removeprefix("default/")


def ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


# -- in one line ------------------------------------------------------------------------------------------------------


def brief(reason: Reason) -> str:
    """`waiting in queue team-a: 2 cpu short (position 3)`, `waiting for lock m: flow-1/train holds it`"""
    place = reason.get("position", 0)
    position = f" (position {place:,})" if place > 1 else ""
    return f"waiting {place_of(reason)}: {cause(reason)}{position}"


def place_of(reason: Reason) -> str:
    """`in queue team-a`; as long as no queue is configured, `for this machine`; `for lock m`."""
    if reason.get("why") in ("lock", "worker"):
        return f"for lock {reason['lock']}" if reason["why"] == "lock" else "for a worker"
    return "for this machine" if is_machine(reason) else f"in queue {queue_name(reason)}"


def is_machine(reason: Reason) -> bool:
    """Does it wait for this machine, as long as no queue is configured?"""
    return reason.get("cluster_queue") == MACHINE and not reason.get("cluster")


def cause(reason: Reason) -> str:
    """Why it waits, as half a sentence."""
    kind = reason.get("why", "")
    detail = str(reason.get("detail", ""))
    match kind:
        case "quota" | "no candidates":
            missing = missing_of(reason.get("short", ()))
            return f"{missing} short" if missing else "not enough is free"
        case "never":
            return f"{too_much(reason)}: it can never start"
        case "no flavor":
            return f"no flavor matches{': ' if detail else ''}{detail or unsuitable(reason.get('short', ()))}"
        case "behind":
            ahead = names(reason.get("ahead", ()), 2)
            return f"behind {ahead}" if ahead else "it is next"
        case "preempting":
            victims = names(reason.get("waits_for", ()), 2)
            return f"{victims} {'is' if len(reason.get('waits_for', ())) < 2 else 'are'} being preempted for it"
        case "stopped":
            return f"the queue is stopped ({detail.rpartition(' ')[2]})" if detail else "the queue is stopped"
        case "leaving":
            return f"it was evicted ({detail})"
        case "checks":
            return f"admission check {detail}"
        case "backoff":
            return (
                f"it is tried again at {clock(reason['until'])}" if reason.get("until") else "it is tried again later"
            )
        case "inactive queue":
            return f"the queue is inactive: {detail}"
        case "gated":
            return f"gated by {detail}"
        case "deactivated":
            return f"it was deactivated{f' ({detail})' if detail else ''}"
        case "fits":
            return "it fits, and Kueue has not admitted it yet"
        case "unseen":
            return "you may not see the queues of the whole cluster; Kueue itself says why"
        case "lock":
            return lock_cause(reason)
        case "worker":
            return f"it has lock {reason['lock']}"
        case "new" | "":
            return "it has not been considered yet"
    return detail or str(kind)


def lock_cause(reason: Reason) -> str:
    """`flow-1/train holds it`, `3 of 3 hold it: flow-1/a, flow-1/b and 1 more`"""
    holders = [lock_holder(one) for one in reason.get("holders", ())]
    limit = int(reason.get("limit", 1))
    held = max(int(reason.get("held", 0)), len(holders))
    if held < limit or not holders:
        passed = "it is being passed on"
        return passed if limit == 1 or not held else f"{held:,} of {limit:,} hold it: {passed}"
    if limit == 1 and held == 1:
        return f"{holders[0]} holds it"
    rest = f" and {held - 2:,} more" if held > 2 else ""
    return f"{held:,} of {limit:,} hold it: {', '.join(holders[:2])}{rest}"


def lock_holder(one: Reason) -> str:
    """The task that holds a lock, or the run."""
    return f"{one['run']}/{one['task']}" if one.get("task") else str(one["run"])


def missing_of(shortages: Sequence[Reason]) -> str:
    """What is missing in the flavor that comes nearest to being enough."""
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
    machine = is_machine(reason)
    for one in reason.get("short", ()):
        asks = f"it asks for {amount(one['asked'], one['resource'])}"
        if one.get("kind") == "exceedsMax" and one["most"]:
            most = figure(one["most"], one["resource"])
            return f"{asks}, and {'this machine has' if machine else 'the queue can have'} {most} at most"
        if one.get("kind") in ("exceedsMax", "notCovered"):
            return f"{asks}, of which {'this machine' if machine else 'the queue'} has none"
    return "it asks for more than there is"


def unsuitable(shortages: Sequence[Reason]) -> str:
    """Flavors that do not match, each with the reason."""
    parts = [
        f"{one['flavor']} ({one['kind']}{' ' if one.get('detail') else ''}{one.get('detail', '')})"
        for one in shortages
        if one.get("kind") in ("taint", "affinity", "invalidAffinity", "flavorMissing")
    ]
    return ", ".join(dict.fromkeys(parts))


# -- in several lines -------------------------------------------------------------------------------------------------


def queue_facts(reason: Reason, who: Mapping[str, str] | None = None, me: str = "") -> list[tuple[str, str]]:
    """Everything about a wait in a queue, as (label, text). `who`: Workload -> its user and priority. `me`: the name of what waits."""
    place = reason.get("position", 0)
    ahead = f", behind {names(reason.get('ahead', ()))}" if reason.get("behind") else ""
    return _labelled(
        ("why", [_sentence(reason)]),
        ("short", [shortage(one) for one in reason.get("short", ())]),
        ("held by", holders(reason.get("short", ()), who or {})),
        ("limits", [str(one) for one in reason.get("limits", ())]),
        ("order", [f"{ordinal(place)} in the queue{ahead}"] if place else []),
        ("help", remedies(reason, me)),
    )


def lock_facts(reason: Reason) -> list[tuple[str, str]]:
    """Everything about a wait for a lock, as (label, text)."""
    limit = int(reason.get("limit", 1))
    named = reason.get("holders", ())
    rest = max(0, int(reason.get("held", 0)) - len(named))
    text = "one task at a time may hold it" if limit == 1 else f"{limit:,} tasks at a time may hold it"
    if len(named) + rest < limit:
        text += (f"; {len(named) + rest:,} hold it now" if named else "") + ", and it is being passed on"
    held = [_lock_held(one) for one in named] + ([f"{rest:,} more"] if rest else [])
    remedy = []
    if len(named) == 1 and not rest:
        remedy = [f"it can start when {lock_holder(named[0])} has ended"]
    elif named:
        remedy = ["it can start when one of them has ended"]
    return _labelled(("why", [text]), ("held by", held), ("help", remedy))


def _labelled(*parts: tuple[str, list[str]]) -> list[tuple[str, str]]:
    """The label stands only before the first of several texts."""
    return [(label if number == 0 else "", text) for label, texts in parts for number, text in enumerate(texts)]


def _sentence(reason: Reason) -> str:
    kind, rule = reason.get("why", ""), str(reason.get("rule", ""))
    by_rule = f" ({rule})" if rule else ""
    match kind:
        case "quota" if is_machine(reason):
            return "not enough of this machine is free"
        case "quota":
            return f"not enough of the {rule or 'quota'} is free"
        case "behind":
            return f"others are before it in the queue{by_rule}"
        case "no candidates":
            return f"not enough quota is free, and no Workload may be preempted for it{by_rule}"
        case "never":
            return f"{too_much(reason)}: it can never start with this queue"
        case "stopped":
            return f"{reason.get('detail', 'the queue is stopped')}: nothing is admitted"
    return cause(reason)


def shortage(one: Reason) -> str:
    """`cpu of flavor default: 2 asked, 1 free, 4 at most`"""
    resource, flavor = str(one["resource"]), one.get("flavor", "")
    what = short_name(resource) + (f" of flavor {flavor}" if flavor not in ("", MACHINE) else "")
    asked = figure(one["asked"], resource)
    match one.get("kind"):
        case "quota" | "exceedsMax":
            most = figure(one["most"], resource)
            return f"{what}: {asked} asked, {figure(max(0, one['available']), resource)} free, {most} at most"
        case "notCovered":
            return f"{what}: {asked} asked, and the queue has no quota for it"
    detail = f" {one['detail']}" if one.get("detail") else ""
    return f"flavor {flavor} does not match: {one.get('kind')}{detail}"


def _lock_held(one: Reason) -> str:
    since = f" since {clock(one['since'])}" if one.get("since") is not None else ""
    about = [str(one["user"])] if one.get("user") else []
    about += ["its process is gone"] if one.get("gone") else []
    return f"{lock_holder(one)}{since}" + (f"   ({', '.join(about)})" if about else "")


def holders(shortages: Sequence[Reason], who: Mapping[str, str]) -> list[str]:
    """Who holds what is short. Several Workloads of one stage are one line."""
    found: dict[str, dict[str, int]] = {}
    known: dict[str, str] = {}
    for one in shortages:
        for holder in one.get("holders", ()):
            name = workload_name(holder["workload"])
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
    enough = list(dict.fromkeys(workload_name(key) for one in reason.get("short", ()) for key in one.get("enough", ())))
    if enough == [me]:
        found.append("it can start when another of its own tasks ends")
    elif enough and kind in ("quota", "no candidates", "behind"):
        any_one = _each_enough(reason.get("short", ())) if len(enough) == 1 else []
        found.append(
            f"it can start when any one of {_any(any_one)} ends or releases quota"
            if len(any_one) > 1
            else f"it can start when {_all(enough)} {'ends or releases' if len(enough) == 1 else 'end or release'} quota"
        )
    waits = reason.get("waits_for", ())
    if waits:
        found.append(f"it starts when {names(waits)} {'has' if len(waits) == 1 else 'have'} stopped")
    return found + (_cluster_remedies(reason) if reason.get("cluster") else _local_remedies(reason))


def _local_remedies(reason: Reason) -> list[str]:
    """What can be done on this machine."""
    kind, found = reason.get("why", ""), []
    elsewhere = reason.get("elsewhere", ())
    if elsewhere:
        found.append(f"it would start now in queue {' or '.join(elsewhere)}: --queue {elsewhere[0]}")
    if kind == "stopped":
        found.append(f"penstock queue resume {_stopped(reason)[1].removeprefix('default/') or queue_name(reason)}")
    elif kind in ("never", "no flavor"):
        found.append("ask for less, or give the queue more: penstock queue apply FILE")
    elif kind in ("no queue", "inactive queue"):
        found.append("penstock queue apply FILE with what is missing")
    elif kind == "backoff" and reason.get("until"):
        found.append(f"it is tried again at {clock(reason['until'])}")
    return found


def _cluster_remedies(reason: Reason) -> list[str]:
    """What can be done in a cluster."""
    kind, found = reason.get("why", ""), []
    namespace = str(reason.get("queue", "")).partition("/")[0]
    elsewhere = reason.get("elsewhere", ())
    if elsewhere:
        found.append(f"it would start now in queue {' or '.join(elsewhere)}: submit it with that queue's label")
    match kind:
        case "stopped":
            of, name = _stopped(reason)
            where, _, name = name.rpartition("/")
            found.append(
                f"kubectl patch {of.lower()} {name}{f' -n {where}' if where else ''} --type merge "
                """-p '{"spec":{"stopPolicy":"None"}}'"""
            )
        case "never" | "no flavor":
            found.append(f"ask for less, or give it more: kubectl edit clusterqueue {reason.get('cluster_queue')}")
        case "no queue":
            found.append(f"kubectl get localqueues -n {namespace} lists those there are; or create it")
        case "inactive queue":
            found.append(f"kubectl describe clusterqueue {reason.get('cluster_queue')}")
        case "namespace":
            found.append(
                f"label the namespace as the queue's namespaceSelector wants: kubectl label namespace {namespace} …"
            )
        case "backoff" if reason.get("until"):
            found.append(f"it is tried again at {clock(reason['until'])}")
        case "deactivated":
            space, _, name = str(reason.get("workload", "")).partition("/")
            found.append(
                f"kubectl patch workload {name} -n {space} --type merge "
                """-p '{"spec":{"active":true}}' lets it wait again"""
            )
        case "leaving":
            found.append("it waits again as soon as its pods have ended")
        case "kueue":
            space, _, name = str(reason.get("object", "")).partition("/")
            found.append(f"penstock why workload/{name} -n {space} says who holds the quota")
        case "fits":
            found.append("Kueue tries again about once a second; if this stays, its own words below say more")
        case "new":
            found.append("if this stays, see whether Kueue runs: kubectl get pods -n kueue-system")
    return found


def _stopped(reason: Reason) -> tuple[str, str]:
    """Kind and name of the queue that is stopped: from `LocalQueue default/a: stopPolicy Hold`."""
    kind, _, name = str(reason.get("detail", "")).partition(":")[0].rpartition(" ")
    return kind, name


def _each_enough(shortages: Sequence[Reason]) -> list[str]:
    """Workloads of which each alone holds enough of everything that is short."""
    short = [one for one in shortages if one.get("holders")]
    if not short or any("available" not in one for one in short):
        return []
    groups = []
    for one in short:
        missing = one["asked"] - max(0, one["available"])
        groups.append([workload_name(each["workload"]) for each in one["holders"] if each["amount"] >= missing])
    return [name for name in dict.fromkeys(groups[0]) if all(name in group for group in groups)]


def _any(found: Sequence[str]) -> str:
    if len(found) > 5:
        return f"{', '.join(found[:4])} and {len(found) - 4} more"
    return " or ".join(found) if len(found) < 3 else f"{', '.join(found[:-1])} or {found[-1]}"


def _all(found: Sequence[str]) -> str:
    return " and ".join(found) if len(found) < 3 else f"{', '.join(found[:-1])} and {found[-1]}"


def eviction(data: Mapping[str, Any]) -> str:
    """`preempted by flow-2/train (InClusterQueue)`"""
    reason, by = str(data.get("reason", "")), str(data.get("by", ""))
    if by:
        return f"preempted by {workload_name(by)} ({reason})"
    words = {
        "ClusterQueueStopped": "its ClusterQueue was drained",
        "LocalQueueStopped": "its LocalQueue was drained",
        "PodsReadyTimeout": "it was not ready in time",
        "MaximumExecutionTimeExceeded": "it ran for too long",
        "Deactivated": "it was deactivated",
        "AdmissionCheck": "an admission check refused it",
        "lost": "its engine was considered dead",
    }
    return words.get(reason, reason)


# -- as data ----------------------------------------------------------------------------------------------------------


def spelled(reason: Reason) -> dict[str, Any]:
    """A reason for JSON output: amounts as Kubernetes spells them, where the log has numbers."""
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
