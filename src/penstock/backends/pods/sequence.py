"""The order in which the parts of a pod run. Called by the pods of local and container, which start the parts and report how they
ended.

Sidecars start first and are stopped last; how they end is never a failure. The other parts run when those they need have
succeeded or were skipped: one after another, or with `needs` also side by side. The first failure ends the pod. A part with
`on_error: continue` counts as succeeded whatever its exit code is, unless its time ran out: that is always a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.backends.pods.references import CodePath, PartReferences, ReadResult, ResultMissing
from penstock.graph.links import part_needs
from penstock.graph.model import Part


@dataclass(frozen=True, slots=True)
class PodFailure:
    """Why a pod has failed."""

    part: str
    code: int | None
    message: str = ""
    """Empty: the code says it all."""


class PodSequence:
    """The state of one replica of a pod."""

    def __init__(self, parts: Sequence[Part], read: ReadResult, code_path: CodePath) -> None:
        self.parts = {part.name: part for part in parts}
        self._references = PartReferences(self.parts, read, code_path)
        self._needs = {name: set(names) for name, names in part_needs(tuple(parts)).items()}
        self._waiting = [part.name for part in parts if not part.sidecar]
        self._sidecars = [part.name for part in parts if part.sidecar]
        self._running: set[str] = set()
        self._done: set[str] = set()
        self.failure: PodFailure | None = None
        self.skipped: list[str] = []
        """Parts whose condition did not hold, in order. The caller empties it when it has reported them."""

    @property
    def wants_codes(self) -> bool:
        """Does any part read the exit code of another?"""
        return self._references.wants_codes

    @property
    def over(self) -> bool:
        """Is there nothing more to start, and does nothing but sidecars run?"""
        return self.failure is not None or not (self._waiting or self._running)

    def next(self) -> Iterator[Part]:
        """The parts to start now, with their references replaced. The caller starts each before it asks for the next."""
        while self._sidecars and self.failure is None:
            yield from self._take(self._sidecars.pop(0))
        while not self.over:
            name = next((name for name in self._waiting if self._needs[name] <= self._done), None)
            if name is None:
                if not self._running:
                    self.failure = PodFailure(self._waiting[0], None, "it waits for parts that never run")
                return
            self._waiting.remove(name)
            yield from self._take(name)

    def _take(self, name: str) -> Iterator[Part]:
        try:
            part = self._references.filled(self.parts[name])
        except ResultMissing as error:
            self.failure = PodFailure(name, None, str(error))
            return
        if not all(holds(test) for test in part.when):
            self._done.add(name)
            self.skipped.append(name)
            return
        if not part.sidecar:
            self._running.add(name)
        yield part

    def ended(self, name: str, code: int, timed_out: bool = False) -> None:
        """A part has ended. The end of a sidecar changes nothing."""
        part = self.parts[name]
        if part.sidecar:
            return
        self._running.discard(name)
        if timed_out:
            self.failure = self.failure or PodFailure(name, code, f"timed out after {part.timeout:g} s")
        elif code == 0 or part.on_error == "continue":
            self._done.add(name)
        else:
            self.failure = self.failure or PodFailure(name, code)

    def explain(self, failure: PodFailure, how: str) -> str:
        """`how` describes its exit code."""
        message = failure.message or how
        return f"part {failure.part}: {message}" if len(self.parts) > 1 else message


def holds(test: Mapping[str, Any]) -> bool:
    """Does one of the conditions of a part hold?"""
    return bool(test["input"] in test["values"]) is (test["operator"] != "notin")
