"""What an admission adds to pods: the labels and tolerations of the flavors, and what admission checks ask for. Called by the engine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.kubernetes.objects import Object, part, rows
from penstock.kueue.wanted import flavors


@dataclass(frozen=True, slots=True)
class PodInjection:
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def injections(seen: Object, known: Mapping[str, Object]) -> list[PodInjection]:
    """For each pod set. `known`: the ResourceFlavors, by name."""
    found = []
    for number, one in enumerate(rows(seen, "spec", "podSets")):
        taken = dict.fromkeys(flavors(seen)[number].values())
        sources = [part(known.get(name, {}), "spec") for name in taken]
        updates = [
            update
            for check in rows(seen, "status", "admissionChecks")
            for update in rows(check, "podSetUpdates")
            if update.get("name") == one.get("name")
        ]
        found.append(
            PodInjection(
                _merged([part(source, "nodeLabels") for source in sources], updates, "nodeSelector"),
                _tolerations([*sources, *updates]),
                _merged([], updates, "labels"),
                _merged([], updates, "annotations"),
            )
        )
    return found


def _merged(first: Iterable[Object], updates: Iterable[Object], name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in (*first, *(part(update, name) for update in updates)):
        found.update({str(key): str(text) for key, text in one.items()})
    return found


def _tolerations(sources: Iterable[Object]) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    for source in sources:
        found += [one for one in rows(source, "tolerations") if one not in found]
    return tuple(found)
