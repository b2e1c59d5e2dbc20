"""How much of its quota each target of a preemption has to give back. The scheduler asks for the caller, which stops the pods.

Kueue's rules decide who is preempted, and then all of it stops. A Workload whose pods do not need each other (one pod set that may be
admitted in part) can do with less: it stops only as many pods as the preemptors need, and keeps the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.admission.decisions import Decision
from penstock.admission.model import FlavorResource, Usage, Workload
from penstock.admission.quota import QuotaNode, plus
from penstock.admission.snapshot import Snapshot, usage_of


def kept_pods(snapshot: Snapshot, workloads: Mapping[str, Workload], decisions: Iterable[Decision], key: str) -> int:
    """How many of its pods this target may keep so that its preemptors fit. 0: it must stop as a whole.

    `decisions`: about the Workloads that wait. Targets are looked at together: the one that was chosen last gives back first only what
    the others leave, so that none of them could give back one pod less."""
    asking = [one for one in decisions if one.decision == "preempt" and _in_force(one, workloads)]
    targets = {found.key: workloads[found.key] for one in asking for found in one.targets}
    if key not in targets or not is_elastic(targets[key]):
        return 0
    order = [targets[name] for name in sorted(targets)]
    kept = dict.fromkeys(targets, 0)
    if not _fit(snapshot, order, kept, asking):
        return 0
    for target in reversed(order):
        if is_elastic(target):
            kept[target.key] = _most(snapshot, order, kept, asking, target)
    return kept[key]


def is_elastic(workload: Workload) -> bool:
    """May it go on with fewer pods?"""
    return len(workload.podsets) == 1 and workload.podsets[0].min_count is not None and not workload.checks


def _in_force(decision: Decision, workloads: Mapping[str, Workload]) -> bool:
    """Are all its targets still on their way out?"""
    found = [workloads.get(target.key) for target in decision.targets]
    return all(one is not None and one.admission is not None and one.eviction is not None for one in found)


def _most(
    snapshot: Snapshot, order: Sequence[Workload], kept: dict[str, int], asking: Sequence[Decision], target: Workload
) -> int:
    """The most pods that one target may keep, if the others keep what they keep."""
    (podset,) = target.podsets
    assert target.admission is not None
    step = podset.min_count or 1
    least, most = 0, _pods(target) // step
    while least < most:
        middle = (least + most + 1) // 2
        if _fit(snapshot, order, {**kept, target.key: middle * step}, asking):
            least = middle
        else:
            most = middle - 1
    return least * step


def _pods(workload: Workload) -> int:
    """How many it has now."""
    assert workload.admission is not None
    (podset,), (given,) = workload.podsets, workload.admission.podsets
    return max(0, min(given.count, podset.count - workload.reclaimable.get(podset.name, 0)))


def _fit(snapshot: Snapshot, targets: Sequence[Workload], kept: Mapping[str, int], asking: Sequence[Decision]) -> bool:
    """Would all preemptors fit?"""
    done: list[tuple[QuotaNode, Usage, int]] = []
    nodes = snapshot.tree.queues
    fits = True
    for target in targets:
        assert target.admission is not None
        node = nodes[target.admission.cluster_queue]
        node.remove(target.held)
        done.append((node, target.held, 1))
        if kept[target.key]:
            rest = _usage(target, kept[target.key])
            node.add(rest)
            done.append((node, rest, -1))
    for decision in asking:
        node, asked = nodes[decision.cluster_queue], _asked(decision)
        fits = fits and all(amount <= node.available(fr) for fr, amount in asked.items())
        node.add(asked)
        done.append((node, asked, -1))
    for node, usage, sign in reversed(done):
        (node.add if sign > 0 else node.remove)(usage)
    return fits


def _usage(workload: Workload, pods: int) -> dict[FlavorResource, int]:
    """Of so many of its pods."""
    assert workload.admission is not None
    (podset,) = workload.podsets
    return usage_of(workload.admission, {podset.name: podset.count - pods}, workload.podsets)


def _asked(decision: Decision) -> dict[FlavorResource, int]:
    found: dict[FlavorResource, int] = {}
    for podset in decision.podsets:
        for resource, amount in podset.requests.items():
            choice = podset.flavors.get(resource)
            if choice is not None:
                fr = FlavorResource(choice.flavor, resource)
                found[fr] = plus(found.get(fr, 0), amount)
    return found
