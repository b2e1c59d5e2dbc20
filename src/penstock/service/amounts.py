"""Amounts of resources as text. Called by `wording`, the views and the screens.

Queues count cpu in thousandths and everything else in whole units; `resource` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.graph import quantity

UNLIMITED = 2**63 - 1
"""As in admission.model, which is not imported here: commands that only print need not load it."""
GUESS = 60.0
"""Seconds that a task takes whose run time is not known, in simulations."""
_SHORT_NAMES = {"nvidia.com/gpu": "gpu"}


def short_name(resource: str) -> str:
    return _SHORT_NAMES.get(resource, resource)


def amount(number: int, resource: str) -> str:
    """`2 cpu`, `1.5Gi memory`, `4 gpu`."""
    return f"{figure(number, resource)} {short_name(resource)}"


def figure(number: int, resource: str) -> str:
    """For people: `2`, `1.5Gi`, `unlimited`."""
    if number >= UNLIMITED:
        return "unlimited"
    milli = number if resource == "cpu" else number * 1000
    return quantity.short(milli, resource) if milli >= 0 else "-" + quantity.short(-milli, resource)


def spell(number: int, resource: str) -> str:
    """For programs: exactly, as Kubernetes spells quantities."""
    if number >= UNLIMITED:
        return "unlimited"
    return quantity.show(number if resource == "cpu" else number * 1000, resource)


def vector(amounts: Mapping[str, int]) -> str:
    """`4 gpu, 2 cpu, 1Gi memory`"""
    return ", ".join(amount(amounts[name], name) for name in in_sentence(amounts) if amounts[name]) or "nothing"


def in_sentence(resources: Iterable[str]) -> list[str]:
    """The scarcest first: gpu and the like, then cpu, then memory."""
    return sorted(resources, key=lambda name: ({"cpu": 1, "memory": 2}.get(name, 0), name))


def in_table(resources: Iterable[str]) -> list[str]:
    """The most common first: cpu, memory, then the rest."""
    return sorted(resources, key=lambda name: ({"cpu": 0, "memory": 1}.get(name, 2), name))


def added(some: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several vectors."""
    found: dict[str, int] = {}
    for one in some:
        for resource, number in one.items():
            found[resource] = found.get(resource, 0) + number
    return found


def hours(number: float) -> str:
    """Core-hours and the like: `0.03`, `1.5`, `1,204`."""
    if 0 < number < 0.005:
        return "<0.01"
    return f"{number:,.2f}" if number < 10 else f"{number:,.1f}" if number < 100 else f"{number:,.0f}"


def resource_hours(resource: str) -> str:
    """`cpu-h`, `GiB-h`, `gpu-h`."""
    return "GiB-h" if resource == "memory" else f"{short_name(resource)}-h"


def money(cost: float | None, currency: str) -> str:
    if cost is None:
        return ""
    return f"{'<0.01' if 0 < cost < 0.005 else f'{cost:,.2f}'} {currency}".rstrip()
