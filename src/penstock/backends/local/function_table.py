"""The functions that workers run, with the time that each takes. Called by workers."""

from __future__ import annotations

from penstock.backends.base import AttemptSpec
from penstock.backends.local.worker_protocol import FunctionSpec
from penstock.graph.model import Function, Step

UNKNOWN = 1.0
"""Seconds that a function is expected to take before it has been measured."""
_MANY = 10_000


class KnownFunction:
    """What all attempts of one step have in common."""

    __slots__ = ("estimate", "function", "number", "step")

    def __init__(self, number: int, step: Step, function: FunctionSpec, estimate: float) -> None:
        self.number = number
        """By which workers know the function. Steps with the same function share it."""
        self.step = step
        self.function = function
        self.estimate = estimate
        """Seconds."""


class FunctionTable:
    def __init__(self) -> None:
        self._by_step: dict[tuple[int, str, str], KnownFunction] = {}
        self._by_function: dict[FunctionSpec, KnownFunction] = {}
        self._by_id: dict[int, KnownFunction] = {}
        self._count = 0
        self.average = UNKNOWN
        """Seconds that functions took lately."""

    def of(self, spec: AttemptSpec) -> KnownFunction:
        key = (id(spec.step), spec.bundle, spec.working_directory)
        known = self._by_step.get(key)
        return known if known is not None and known.step is spec.step else self._add(spec, key)

    def _add(self, spec: AttemptSpec, key: tuple[int, str, str]) -> KnownFunction:
        action = spec.action
        assert isinstance(action, Function)
        function: FunctionSpec = (
            spec.bundle,
            action.module,
            action.name,
            action.code,
            spec.working_directory,
            tuple((output.name, str(output.type)) for output in spec.step.outputs),
            tuple(given.name for given in spec.step.inputs if given.type.name == "str"),
        )
        if len(self._by_step) > _MANY:
            self._by_step.clear()
            self._by_function.clear()
            self._by_id.clear()
        same = self._by_function.get(function)
        if same is None:
            self._count += 1
            known = KnownFunction(self._count, spec.step, function, UNKNOWN)
        else:
            known = KnownFunction(same.number, spec.step, function, same.estimate)
        self._by_function[function] = self._by_step[key] = self._by_id[id(spec.step)] = known
        return known

    def estimate(self, step: Step) -> float:
        """Seconds that an attempt of this step is expected to take."""
        known = self._by_id.get(id(step))
        return known.estimate if known is not None and known.step is step else UNKNOWN

    def measure(self, known: KnownFunction, seconds: float) -> None:
        known.estimate = seconds if known.estimate == UNKNOWN else known.estimate * 0.8 + seconds * 0.2
        self.average = seconds if self.average == UNKNOWN else self.average * 0.9 + seconds * 0.1
