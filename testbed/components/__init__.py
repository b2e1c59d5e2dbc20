"""The controllers that can run in a testbed, by name. Each has a file of its own with a class that installs its objects and starts its programs."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from testbed.binaries import CONTROL_PLANE
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.instance import Testbed


class Component(Protocol):
    name: str
    binaries: tuple[str, ...]
    needs: tuple[str, ...]  # components to be started before this one, if they are to be started at all

    def install(self, bed: Testbed) -> None: ...
    def start(self, bed: Testbed) -> None: ...
    def ready(self, bed: Testbed) -> None: ...


# In the order of starting.
NAMES = {
    "crds": "Crds",
    "kwok": "Kwok",
    "kueue": "Kueue",
    "jobset": "JobSet",
    "tekton": "Tekton",
    "argo": "Argo",
    "yunikorn": "YuniKorn",
    "ray": "Ray",
    "mpi": "Mpi",
    "node": "Node",
}

# What runs in pods, and is wanted only where there is a node to run them on.
IN_PODS = {
    "argo": ("argoexec",),
    "tekton": ("tekton-entrypoint", "tekton-nop", "tekton-workingdirinit", "tekton-sidecarlogresults"),
}


def programs(names: Iterable[str]) -> list[str]:
    """All programs that an instance with these components needs."""
    chosen = list(names)
    needed = [*CONTROL_PLANE, *(program for name in chosen for program in component(name).binaries)]
    if "node" in chosen:
        needed += [program for name in chosen for program in IN_PODS.get(name, ())]
    return needed


def component(name: str) -> Component:
    if name not in NAMES:
        raise TestbedError(f"there is no component {name}; there are: {', '.join(NAMES)}")
    made: Component = getattr(importlib.import_module(f"testbed.components.{name}"), NAMES[name])()
    return made


def ordered(names: Sequence[str]) -> list[Component]:
    """The components in the order of starting."""
    chosen = {name: component(name) for name in names}
    return [chosen[name] for name in NAMES if name in chosen]
