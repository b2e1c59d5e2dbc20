"""The backends of an engine: which one runs a step, made when the first task for it is ready. Called by Engine and Dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.backends.attempt import CannotRun
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, Backend, BackendContext, BackendFactory
from penstock.backends.registry import ELSEWHERE, make_backend
from penstock.backends.secrets.reveal import guarded, revealed
from penstock.backends.secrets.sources import SecretSources
from penstock.graph.model import Action, Container, Function, Pod, Resource, Script, Step

SUSPEND = "suspend"
"""The lane of steps that wait for a person or a time. No backend runs it."""
LANES: Mapping[str, str] = {
    "function": "workers",
    "container": "container",
    "pod": "container",
    "script": "process",
    "resource": "resource",
    "http": "http",
    "suspend": SUSPEND,
}
"""Which backend runs which kind of step, unless the user says otherwise."""
HOST = ("process", "workers", "inline")
"""Backends that run a step on this machine as it is, whatever image it names."""
SUSPENDED = 1000
"""Suspended tasks that are taken in one turn."""


def names_image(action: Action) -> bool:
    if isinstance(action, Pod):
        return any(part.image is not None for part in action.parts)
    return isinstance(action, Container | Function | Script) and action.image is not None


class BackendPool:
    def __init__(
        self,
        context: BackendContext,
        on: Mapping[str, str],
        factories: Mapping[str, BackendFactory] | None = None,
        environ: Mapping[str, str] | None = None,
        scheduler: str = "",
    ) -> None:
        """`environ`: where secrets are looked for. The environment of tasks has none. `scheduler`: of the cluster of tasks that run on other machines,
        if it takes their pods by its own queues."""
        self.context = context
        self._scheduler = scheduler
        self.on = {**LANES, **on}
        """Kind of step -> backend."""
        self._factories = dict(factories or {})
        """Backends that the caller brings, by name."""
        self._secrets = SecretSources({} if environ is None else environ)
        self._backends: dict[str, Backend] = {}
        self._abilities: dict[str, Abilities] = {}
        self._immediate: dict[str, bool] = {}

    @property
    def is_default(self) -> bool:
        """Does every kind of step run where it runs by default?"""
        return self.on == LANES

    def use(self, lanes: Iterable[str], backend: Backend) -> None:
        """Run these lanes on one backend that exists."""
        self._backends.update(dict.fromkeys(lanes, backend))

    def lane_of(self, step: Step) -> str:
        action = step.action
        kind = action.kind
        if isinstance(action, Function):
            if action.image is not None and self.on["container"] != "process":
                kind = "container"
            elif step.replicas > 1:
                return self.on["script"] if self.on["function"] == LANES["function"] else self.on["function"]
        elif isinstance(action, Script) and action.image is not None:
            kind = "container"
        elif isinstance(action, Pod):
            if self.on["pod"] != LANES["pod"]:
                return self.on["pod"]
            kind = "container" if names_image(action) else "script"
        return self.on.get(kind, kind)

    def is_elsewhere(self, step: Step) -> bool:
        """Does it run on other machines? What a resource step makes always does."""
        return isinstance(step.action, Resource) or self.lane_of(step) in ELSEWHERE

    def may_queue_there(self, kind: str) -> bool:
        """May a queue of a cluster hold a task of this kind of action? False for nearly all."""
        return bool(self._scheduler) or kind == Resource.kind

    def queue_there(self, step: Step, named: str | None) -> str:
        """The queue of its cluster that holds a task of this step back; empty if none does, or quota is held for it here. `named`: by the workflow."""
        if isinstance(step.action, Resource):
            return step.queue or named or ""
        return (step.queue or named or "") if self._scheduler and self.is_elsewhere(step) else ""

    def variant_of(self, step: Step) -> str | None:
        """The result of an image and the result of the same command on this machine are not the same. A faked result is not kept."""
        lane = self.lane_of(step)
        if lane == "fake":
            return None
        return "on the host " if names_image(step.action) and lane in HOST else ""

    def lane_with_secrets(self, lane: str) -> str:
        """A function that is given secrets has a process of its own, whose output can be masked."""
        return self.on["script"] if lane in ("workers", "inline") else lane

    def revealed(self, spec: AttemptSpec, lane: str, manifest: str, known: Mapping[str, str]) -> AttemptSpec:
        """The attempt with the texts of its secrets; `known`: some of them. Raises CannotRun, UserError."""
        if not self.abilities(lane).masks_secrets:
            raise CannotRun(f"the backend {lane} does not keep secrets out of logs and arguments, so it gets none")
        return revealed(spec, self._secrets, manifest, known)

    def guarded(self, report: AttemptEnded, texts: Mapping[str, str]) -> AttemptEnded:
        return guarded(report, texts, self.context.blobs)

    def __getitem__(self, lane: str) -> Backend:
        found = self._backends.get(lane)
        if found is None:
            found = self._backends[lane] = make_backend(lane, self.context, self._factories)
        return found

    def abilities(self, lane: str) -> Abilities:
        known = self._abilities.get(lane)
        if known is None:
            known = self._abilities[lane] = Abilities() if lane == SUSPEND else self[lane].abilities
        return known

    def is_immediate(self, lane: str) -> bool:
        """Does this backend run a task while the engine waits?"""
        known = self._immediate.get(lane)
        if known is None:
            known = self._immediate[lane] = self.abilities(lane).call is not None
        return known

    def room(self, lane: str) -> int:
        return SUSPENDED if lane == SUSPEND else self[lane].room()

    def room_for(self, lane: str) -> Callable[[Step], int] | None:
        """Some backends take more of the steps that they know to be short."""
        return self.abilities(lane).room_for

    def start(self, lane: str, specs: Sequence[AttemptSpec]) -> None:
        self[lane].start(specs)

    def all_ahead(self) -> bool:
        """Do all backends that can tell have enough work for a moment?"""
        asked = [self.abilities(lane).is_ahead for lane in self._backends]
        known = [is_ahead for is_ahead in asked if is_ahead is not None]
        return bool(known) and all(is_ahead() for is_ahead in known)

    async def close(self) -> None:
        for backend in {id(one): one for one in self._backends.values()}.values():
            await backend.close()
