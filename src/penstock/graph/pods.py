"""The resources that a pod requests, from those of its containers. Called by formats.pods. Exact: the caller rounds once, at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

Exact = Mapping[str, Fraction]
"""Amounts by resource."""


def pod_total(containers: Iterable[Exact], first: Iterable[tuple[Exact, bool]], own: Exact, overhead: Exact) -> Exact:
    """As Kubernetes counts. Containers run side by side and add up. Of the init containers (`first`, with whether each stays) the
    largest counts, on top of those that were started before it and stay. `own`: what the pod itself requests instead."""
    running = _sum(containers)
    staying: Exact = {}
    largest: Exact = {}
    for asked, stays in first:
        if stays:
            staying = _sum((staying, asked))
            running = _sum((running, asked))
        largest = _most(largest, staying if stays else _sum((asked, staying)))
    whole = _most(running, largest)
    replaced = {name: value for name, value in own.items() if is_pod_level(name)}
    return _sum(({**whole, **replaced}, overhead))


def is_pod_level(resource: str) -> bool:
    """Can a pod request this for all of its containers together?"""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _sum(parts: Iterable[Exact]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for one in parts:
        for name, amount in one.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _most(one: Exact, other: Exact) -> Exact:
    return {**one, **{name: max(one.get(name, amount), amount) for name, amount in other.items()}}
