"""What is known of a workflow's stages before it runs, kept in an annotation. Written by `adjust`, read by the engine.

For each static stage: its shapes, the queue that it names (or `queues`, if its steps name different ones), the stages that follow it directly (`next`), and whether it may run more than once
(`many`). It serves places in the queue, reservations that are handed from stage to stage, and what a whole workflow still needs. A user might change
it: then places are wrong, but no pod runs without quota.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.controller.engines.argo.queues import queues_in
from penstock.formats.argo.gate.text import count
from penstock.formats.argo.language.depends import needs_of
from penstock.formats.argo.pods import loops
from penstock.formats.argo.scope import Resolved, calls_of, is_composite
from penstock.formats.argo.stages import StaticStage, StaticStages
from penstock.graph import quantity

STAGES = "penstock/stages"
MOST_BYTES = 64 * 1024
"""A larger description is left out: annotations of an object have 256 KiB together."""


def described(derived: StaticStages, queue: str, queues: Mapping[str, str]) -> str:
    """The annotation; empty if there is nothing to say, or too much. `queue`: of the workflow; `queues`: of templates that name their own."""
    repeated = _repeated(derived)
    follows = _followers(derived)
    told = []
    for stage in derived.queued():
        if stage.recursive:
            continue
        one = _told(stage, queue, queues)
        if stage.name in follows:
            one["next"] = follows[stage.name]
        if stage.template in repeated:
            one["many"] = True
        told.append(one)
    text = json.dumps(told, separators=(",", ":"), default=str)
    return text if told and len(text) <= MOST_BYTES else ""


def unsized_in(derived: StaticStages) -> list[str]:
    """For the user: stages whose size nobody can tell when they are reached, so their pods wait."""
    found = []
    for stage in derived.queued():
        for call in stage.calls if stage.asks else ():
            what = [*call.shape.open, *(["how often it runs"] if count(stage, call) == "null" else [])]
            if what:
                said = "so no Workload waits before its pods are there; write figures, or a list that is known by then"
                found.append(f"stage {stage.name}: only the run knows {', '.join(what)} of step {call.name}, {said}")
    return found


def read(text: Any) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(str(text or "[]"))
    except ValueError:
        return []
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _told(stage: StaticStage, queue: str, queues: Mapping[str, str]) -> dict[str, Any]:
    shapes = []
    for call in stage.calls:
        shown = {name: quantity.show(amount, name) for name, amount in sorted(call.shape.resources.items())}
        one: dict[str, Any] = {"n": call.size, "step": call.name, "template": call.template, "resources": shown}
        one |= {"pods": call.shape.pods} if call.shape.pods != 1 else {}
        one |= {"nodeSelector": dict(call.shape.node_selector)} if call.shape.node_selector else {}
        one |= {"tolerations": list(call.shape.tolerations)} if call.shape.tolerations else {}
        one |= {"open": list(call.shape.open)} if call.shape.open else {}
        shapes.append(one)
    own = queues_in(stage, queue, queues)
    named = {"queues": own} if len(own) > 1 else {"queue": own[0]} if own != [queue] else {}
    return {"stage": stage.name, "shape": shapes} | named


def _followers(derived: StaticStages) -> dict[str, list[str]]:
    """Stage -> stages of the same template that start when it ends: the next group of steps, or tasks that wait for it."""
    by_template: dict[str, list[StaticStage]] = {}
    for stage in derived.queued():
        by_template.setdefault(stage.template, []).append(stage)
    found: dict[str, list[str]] = {}
    for stages in by_template.values():
        groups = {_number(one.name): one.name for one in stages if one.kind == "group"}
        for number, name in groups.items():
            if number + 1 in groups:
                found[name] = [groups[number + 1]]
        tasks = {one.calls[0].name: one for one in stages if one.kind == "task"}
        for one in tasks.values():
            for before in needs_of(one.calls[0].call):
                if before in tasks:
                    found.setdefault(tasks[before].name, []).append(one.name)
    return found


def _number(name: str) -> int:
    return int(name[name.rfind("[") + 1 : -1])


def _repeated(derived: StaticStages) -> set[str]:
    """Templates that may be called more than once: by several calls, in a loop, or below such a template."""
    calls: dict[str, list[tuple[str, bool]]] = {}
    for here in derived.main.values():
        for number, call, path in calls_of(here.template, here.path):
            found = here.resolve(call, here.at(number, call), path)
            if isinstance(found, Resolved) and is_composite(found.template):
                calls.setdefault(found.qualified, []).append((here.qualified, loops(call)))
    found_many = {name for name, sites in calls.items() if len(sites) > 1 or any(loop for _, loop in sites)}
    found_many |= set(derived.recursive)
    while True:
        below = {name for name, sites in calls.items() if any(site in found_many for site, _ in sites)} - found_many
        if not below:
            return found_many
        found_many |= below


def order(told: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Which of these stages end before which start, by number."""
    at = {str(one.get("stage")): number for number, one in enumerate(told)}
    return [(number, at[str(name)]) for number, one in enumerate(told) for name in one.get("next") or () if name in at]
