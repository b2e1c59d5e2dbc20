"""Functions called here and now, in the engine's own process. For tasks so small that handing them over would cost more than
doing them. Chosen by the engine for function steps that ask for nothing (no image, no resources, no replicas).

What the function prints goes to a log, if it prints at all; what its child processes print does not.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from penstock.artifacts.values import as_text
from penstock.backends import places
from penstock.backends.base import Context, Ended, LogPart, Order
from penstock.backends.invoke import ERRORED, Call, Told, described, environment
from penstock.backends.loader import Loader
from penstock.graph.model import Function, Outcome

_MANY = 10_000


class Inline:
    """An Immediate backend."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._blobs = context.blobs
        self._loader: Loader | None = None
        self._calls: dict[int, tuple[Any, str, Call, bool]] = {}
        """By step: the step, its bundle, its function, and whether that is this process's own."""
        self._bytes = io.BytesIO()
        self._alike: dict[Any, Call] = {}
        self._printed = self._paper()

    def _paper(self) -> io.TextIOWrapper:
        self._bytes = io.BytesIO()
        return io.TextIOWrapper(self._bytes, encoding="utf-8", errors="backslashreplace", write_through=True)

    def call(self, order: Order) -> Ended:
        action = order.action
        assert isinstance(action, Function)
        known = self._calls.get(id(order.step))
        if known is None or known[0] is not order.step or known[1] != order.bundle:
            try:
                known = self._learn(order, action)
            except Exception as error:
                exception, message, trace = described(error)
                return Ended(
                    id=order.id, outcome=Outcome.ERRORED, exception=exception, message=message, traceback=trace
                )
        if self._loader is not None and not known[3]:
            self._loader.function(
                order.bundle, action.module, action.name, action.code, order.place
            )  # its modules, again
        if self._printed.closed:  # by a function
            self._printed = self._paper()
        out, err = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self._printed
        started = perf_counter()
        try:
            if action.env:
                with environment({name: as_text(value, self._blobs) for name, value in action.env.items()}):
                    told = known[2].run(order.inputs, self._blobs, lambda: self._folder(order))
            else:
                told = known[2].run(order.inputs, self._blobs, lambda: self._folder(order))
        finally:
            seconds = perf_counter() - started
            sys.stdout, sys.stderr = out, err
        log = self._log(order) if not self._bytes.closed and self._bytes.tell() else ()
        if told[2] == "KeyboardInterrupt":
            raise KeyboardInterrupt
        return self._ended(order, told, log, seconds)

    def _ended(self, order: Order, told: Told, log: tuple[LogPart, ...], seconds: float) -> Ended:
        outcome, outputs, exception, message, trace = told
        if outcome == "succeeded":
            return Ended(id=order.id, outcome=Outcome.SUCCEEDED, outputs=outputs, log=log, seconds=seconds)
        kind = Outcome.ERRORED if outcome == ERRORED else Outcome.FAILED
        return Ended(
            id=order.id, outcome=kind, exception=exception, message=message, traceback=trace, log=log, seconds=seconds
        )

    def _learn(self, order: Order, action: Function) -> tuple[Any, str, Call, bool]:
        function = self._context.functions.get((action.module, action.name, action.code))
        own = function is not None
        if function is None:
            if self._loader is None:
                self._loader = Loader(self._blobs, self._context.home / "cache")
            function = self._loader.function(order.bundle, action.module, action.name, action.code, order.place)
        outputs = tuple((output.name, str(output.type)) for output in order.step.outputs)
        texts = frozenset(given.name for given in order.step.inputs if given.type.name == "str")
        if len(self._calls) > _MANY:
            self._calls.clear()
        # Many steps may be made of one function: what was worked out for one serves all.
        alike = (function, outputs, texts)
        call = self._alike.get(alike)
        if call is None:
            if len(self._alike) > _MANY:
                self._alike.clear()
            call = self._alike[alike] = Call(function, outputs, texts)
        known = self._calls[id(order.step)] = (order.step, order.bundle, call, own)
        return known

    def _folder(self, order: Order) -> Path:
        return places.work_folder(self._context.home, order)

    def _log(self, order: Order) -> tuple[LogPart, ...]:
        data = self._bytes.getvalue()
        self._bytes.seek(0)
        self._bytes.truncate()
        name = places.log_name(order)
        path = self._context.home / name
        os.makedirs(path.parent, exist_ok=True)
        path.write_bytes(data)
        return ((name, 0, len(data)),)

    async def close(self) -> None:
        self._calls.clear()
