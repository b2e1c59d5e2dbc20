"""Backends by name, and what a dead engine's backends left behind. Nobody outside of this package names a concrete backend. Called by the
engine, and by the command line, which starts a worker early and checks names.

It imports everything when it is needed and nothing before: the command line calls `prestarted` before anything else is loaded,
and a workflow needs one or two of the backends.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.backends.base import Backend, BackendContext, BackendFactory, Orphan
    from penstock.backends.kubernetes.queues import Queues

OURS: Mapping[str, str] = {
    "inline": "local.inline:InlineBackend",
    "workers": "local.workers:WorkersBackend",
    "process": "local.process:ProcessBackend",
    "container": "container.backend:ContainerBackend",
    "http": "http:HttpBackend",
    "resource": "resource:ResourceBackend",
    "kubernetes": "kubernetes.backend:KubernetesBackend",
    "fake": "fake:FakeBackend",
}
"""Our own. They are found without the metadata of all installed packages, which takes longer to read than many workflows run."""
KINDS: Mapping[str, Collection[str]] = {"kubernetes": ("function", "container", "pod", "script")}
"""Backends that are meant for steps of these kinds when they are named alone. Steps of other kinds run where they run by default."""
ELSEWHERE: Collection[str] = frozenset(KINDS)
"""Backends whose tasks run on other machines: what this one has is no limit for them."""


def make_backend(name: str, context: BackendContext, factories: Mapping[str, BackendFactory] | None = None) -> Backend:
    """The backend of that name, from `factories` or from those installed. Raises PlanError if there is none, or if it declares
    no abilities."""
    from penstock.backends.base import Abilities
    from penstock.errors import PlanError, Problem

    given = (factories or {}).get(name)
    made = (given or find_backend(name))(context)
    if not isinstance(getattr(made, "abilities", None), Abilities):  # code of others: its types were not checked
        kind = type(made).__name__
        raise PlanError(
            Problem(
                "P708",
                f"the backend {name!r} ({kind}) declares no abilities",
                f"add to the class {kind}: `abilities = Abilities()`, from penstock.plugins",
            )
        )
    return made


def find_backend(name: str) -> BackendFactory:
    """Raises PlanError if there is none of that name."""
    if name in OURS:
        module, _, cls = OURS[name].partition(":")
        found: BackendFactory = getattr(importlib.import_module(f"penstock.backends.{module}"), cls)
        return found
    from importlib.metadata import entry_points  # takes long to read, and our own do not need it

    installed = {point.name: point for point in entry_points(group="penstock.backends")}
    if name not in installed:
        from penstock.errors import PlanError, Problem, nearest

        known = sorted({*OURS, *installed})
        raise PlanError(
            Problem("P703", f"there is no backend {name!r}", f"known: {', '.join(known)}.{nearest(name, known)}")
        )
    loaded: BackendFactory = installed[name].load()
    return loaded


def kinds_for(name: str, brought: Collection[str] = ()) -> Collection[str]:
    """The kinds of step that a backend is for when it is named alone. `brought`: names of backends that the caller has. Raises PlanError
    if there is none of that name."""
    from penstock.graph.model import ACTIONS

    if name not in brought:
        find_backend(name)
    return KINDS.get(name) or [kind for kind in ACTIONS if kind not in ("workflow", "suspend")]


def check(names: Collection[str], home: Path, artifacts: str, environ: Mapping[str, str]) -> str:
    """Can these backends be used at all? For those that can tell without running anything. Returns what was found, in words; empty if
    there was nothing to look at. Raises UserError."""
    if "kubernetes" not in names:
        return ""
    from penstock.backends.kubernetes import preflight

    return preflight.check(home, artifacts, environ)


def cluster_queues(
    on: Mapping[str, str], home: Path, artifacts: str, environ: Mapping[str, str], engine: str
) -> Queues | None:
    """The queues of the cluster that all tasks run on, by kind of step -> backend. None: they run elsewhere, or have none there. Raises
    UserError."""
    if any(on.get(kind) != "kubernetes" for kind in KINDS["kubernetes"]):
        return None
    from penstock.backends.environment import for_tasks
    from penstock.backends.kubernetes import options, queues
    from penstock.backends.owner import owner_in

    given = for_tasks(environ)
    return queues.connect(options.read(given, home, artifacts), given, owner_in(home, given), engine)


def reap(home: Path, engine_ids: Collection[str]) -> None:
    """Ends the processes and removes the containers that these engines left. They are dead, and their tasks may start again."""
    from penstock.backends.container.orphans import end_orphan_containers
    from penstock.backends.local.orphans import end_orphans

    end_orphans(home, engine_ids)
    end_orphan_containers(home, engine_ids)


def orphans(home: Path, engine_ids: Collection[str]) -> list[Orphan]:
    """The processes that these dead engines left, and that `reap` would end. Containers are not listed: to find them takes long."""
    from penstock.backends.local.orphans import name_orphans

    return name_orphans(home, engine_ids)


@contextmanager
def prestarted(home: Path, engine_id: str) -> Iterator[None]:
    """Starts the first worker of an engine that is made inside the block. A worker takes as long to start as the rest of
    Penstock takes to load. If the engine does not claim it, it ends with the block."""
    from penstock.backends.local import prestart

    prestart.start_ahead(home, engine_id)
    try:
        yield
    finally:
        prestart.end_unclaimed()
