"""Functions called in the engine's own process, while the engine waits. For tasks so small that handing them over would cost more
than doing them. Found by the registry; called by the engine.

What the function prints goes to a log. What its child processes print does not.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from penstock import rights
from penstock.artifacts.values import as_text
from penstock.backends import folders
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, BackendContext, LogPart
from penstock.backends.local.invoke import ERRORED, INVALID, SUCCEEDED, CallResult, FunctionCall, described, environment
from penstock.backends.local.loader import Loader
from penstock.graph.model import Function, Outcome, Step

_MANY = 10_000


class _StepCall(NamedTuple):
    step: Step
    bundle: str
    call: FunctionCall
    own: bool
    """Was the function already loaded in this process?"""


class InlineBackend:
    """A Backend whose attempts the engine waits for."""

    def __init__(self, context: BackendContext) -> None:
        self.abilities = Abilities(call=self.call)
        self._context = context
        self._blobs = context.blobs
        self._loader: Loader | None = None
        self._by_step: dict[int, _StepCall] = {}
        self._by_function: dict[Any, FunctionCall] = {}
        """Steps with the same function share what was worked out for it."""
        self._bytes = io.BytesIO()
        self._printed = self._new_stream()

    def room(self) -> int:
        return 1

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            self._context.inbox.put(self.call(spec))

    def stop(self, id: str, grace: float) -> None:
        """Nothing ever runs when this is called."""

    async def close(self) -> None:
        self._by_step.clear()

    def call(self, spec: AttemptSpec) -> AttemptEnded:
        action = spec.action
        assert isinstance(action, Function)
        known = self._by_step.get(id(spec.step))
        if known is None or known.step is not spec.step or known.bundle != spec.bundle:
            try:
                known = self._learn(spec, action)
            except Exception as error:
                exception, message, trace = described(error)
                return AttemptEnded(
                    id=spec.id, outcome=Outcome.ERRORED, exception=exception, message=message, traceback=trace
                )
        if self._loader is not None and not known.own:
            self._load(self._loader, spec, action)  # makes the modules of its bundle visible again
        if self._printed.closed:  # by a function
            self._printed = self._new_stream()
        out, err = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self._printed
        started = perf_counter()
        try:
            if action.env:
                with environment({name: as_text(value, self._blobs) for name, value in action.env.items()}):
                    result = known.call.run(spec.inputs, self._blobs, lambda: self._folder(spec))
            else:
                result = known.call.run(spec.inputs, self._blobs, lambda: self._folder(spec))
        finally:
            seconds = perf_counter() - started
            sys.stdout, sys.stderr = out, err
        log = self._log(spec) if not self._bytes.closed and self._bytes.tell() else ()
        if result[2] == "KeyboardInterrupt":
            raise KeyboardInterrupt
        return _ended(spec.id, result, log, seconds)

    def _learn(self, spec: AttemptSpec, action: Function) -> _StepCall:
        function = self._context.functions.get((action.module, action.name, action.code))
        own = function is not None
        if function is None:
            if self._loader is None:
                self._loader = Loader(self._blobs, self._context.home / "cache")
            function = self._load(self._loader, spec, action)
        outputs = tuple([(output.name, str(output.type)) for output in spec.step.outputs])
        texts = frozenset([given.name for given in spec.step.inputs if given.type.name == "str"])
        if len(self._by_step) > _MANY:
            self._by_step.clear()
        alike = (function, outputs, texts)
        call = self._by_function.get(alike)
        if call is None:
            if len(self._by_function) > _MANY:
                self._by_function.clear()
            call = self._by_function[alike] = FunctionCall(function, outputs, texts)
        known = self._by_step[id(spec.step)] = _StepCall(spec.step, spec.bundle, call, own)
        return known

    def _load(self, loader: Loader, spec: AttemptSpec, action: Function) -> Any:
        return loader.function(spec.bundle, action.module, action.name, action.code, spec.working_directory)

    def _folder(self, spec: AttemptSpec) -> Path:
        return folders.work_folder(self._context.home, spec)

    def _new_stream(self) -> io.TextIOWrapper:
        self._bytes = io.BytesIO()
        return io.TextIOWrapper(self._bytes, encoding="utf-8", errors="backslashreplace", write_through=True)

    def _log(self, spec: AttemptSpec) -> tuple[LogPart, ...]:
        data = self._bytes.getvalue()
        self._bytes.seek(0)
        self._bytes.truncate()
        name = folders.log_name(spec)
        path = self._context.home / name
        rights.make_folder(path.parent)
        with open(path, "wb", opener=rights.opener) as file:
            file.write(data)
        return ((name, 0, len(data)),)


def _ended(id: str, result: CallResult, log: tuple[LogPart, ...], seconds: float) -> AttemptEnded:
    outcome, outputs, exception, message, trace = result
    if outcome == SUCCEEDED:
        return AttemptEnded(id=id, outcome=Outcome.SUCCEEDED, outputs=outputs, log=log, seconds=seconds)
    kind = Outcome.ERRORED if outcome == ERRORED else Outcome.FAILED
    return AttemptEnded(
        id=id,
        outcome=kind,
        exception=exception,
        message=message,
        traceback=trace,
        invalid=outcome == INVALID,
        log=log,
        seconds=seconds,
    )
