"""Http steps: one request, one answer. Found by the registry; called by the engine.

    response.status     200
    response.headers    by name in lower case; values of a repeated header are joined by commas
    response.body       data if it is JSON, text otherwise

The step succeeds if its success_condition holds over `response` and `inputs`, or without one if the status is below 400. A redirect that
is not followed is a failure in any case: what was asked for is not in it. An
output is its `value`, an expression over the same, or without one the body; of type file, the exact bytes of the body. A body
that is not text is sent as JSON.

Each request has a thread, since a name lookup blocks. Nobody waits for the threads: a request that was stopped is over at once, and
its answer is ignored.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.regular import NotTaken
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, AttemptStarted, BackendContext
from penstock.backends.http_client import Connections, HttpAnswer, NotAnswered, send
from penstock.expressions.evaluate import evaluate, resolve
from penstock.graph import model
from penstock.graph.model import MISSING, Outcome, Output
from penstock.graph.stored import Stored

MOST = 32
"""Requests at the same time: they mostly wait."""


@dataclass(slots=True, eq=False)
class HttpAttempt:
    """One attempt, while its request waits for an answer."""

    spec: AttemptSpec
    stopped: bool = False
    connections: Connections = field(default_factory=Connections)


class HttpBackend:
    """A Backend."""

    abilities = Abilities(masks_secrets=True)

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._requests: dict[str, HttpAttempt] = {}

    def room(self) -> int:
        return max(0, MOST - len(self._requests))

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            request = self._requests[spec.id] = HttpAttempt(spec)
            self._context.inbox.put(AttemptStarted(id=spec.id))
            threading.Thread(target=self._work, args=(request,), daemon=True, name=f"http {spec.id}").start()

    def stop(self, id: str, grace: float) -> None:
        request = self._requests.pop(id, None)
        if request is not None:
            request.stopped = True
            request.connections.close()
            self._context.inbox.put(AttemptEnded(id=id, outcome=Outcome.CANCELLED, message="stopped"))

    async def close(self) -> None:
        for request in self._requests.values():
            request.stopped = True
            request.connections.close()
        self._requests.clear()

    def _work(self, request: HttpAttempt) -> None:
        """Called in the request's own thread."""
        started = perf_counter()
        ended = AttemptEnded(id=request.spec.id, outcome=Outcome.SUCCEEDED)
        try:
            action = request.spec.action
            assert isinstance(action, model.Http)
            answer = send(action, request.connections, self._context)
            judge(request.spec, answer, ended, self._context)
        except NotAnswered as error:
            ended.outcome, ended.message = Outcome.ERRORED, str(error)
        except NotTaken as error:
            ended.outcome, ended.message = Outcome.FAILED, str(error)
        except Exception as error:  # nobody would see an exception in this thread
            ended.outcome, ended.message = Outcome.ERRORED, f"{type(error).__name__}: {error}"
        ended.seconds = perf_counter() - started
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._report, request, ended)

    def _report(self, request: HttpAttempt, ended: AttemptEnded) -> None:
        if not request.stopped:
            del self._requests[ended.id]
            self._context.inbox.put(ended)


def judge(spec: AttemptSpec, answer: HttpAnswer, ended: AttemptEnded, context: BackendContext) -> None:
    """Sets the outcome, the outputs and the message."""
    action = spec.action
    assert isinstance(action, model.Http)
    scope = {
        "response": answer.as_data(),
        "inputs": {name: _seen(value, context) for name, value in spec.inputs.items()},
    }
    try:
        if answer.unfollowed:
            raise ValueError(
                f"{answer.what} answered {answer.status} {answer.reason}, a redirect that is not followed: {answer.unfollowed}"
            )
        good = answer.status < 400
        if action.success_condition is not None:
            found = evaluate(action.success_condition, scope)
            if not isinstance(found, bool):
                raise ValueError(f"its success condition is {found!r}, which is neither true nor false")
            good = found
        if not good:
            raise ValueError(f"{answer.what} answered {_brief(answer)}")
        ended.outputs = {output.name: _output(output, answer, scope, context) for output in spec.step.outputs}
    except ValueError as error:
        ended.outcome, ended.message = Outcome.FAILED, str(error)


def _seen(value: Any, context: BackendContext) -> Any:
    if isinstance(value, Stored) and value.kind == "json":
        return values.load_value(value, context.blobs, context.home / "work")
    return value


def _output(output: Output, answer: HttpAnswer, scope: Mapping[str, Any], context: BackendContext) -> Any:
    name = f"the output {output.name!r}"
    if output.value is not MISSING:
        try:
            value = resolve(output.value, scope)
        except ValueError as error:
            raise ValueError(f"{name} of {answer.what}: {error}") from None
    elif output.type.name == "file":
        return Stored("file", context.blobs.put(answer.data), len(answer.data), output.name)
    else:
        value = answer.text() if output.type.name == "str" else scope["response"]["body"]
    return values.store_value(value, context.blobs, type_=output.type, name=name)


def _brief(answer: HttpAnswer) -> str:
    text = " ".join(answer.text().split())
    said = f": {text if len(text) <= 200 else text[:199] + '…'}" if text else ""
    return f"{answer.status} {answer.reason}".strip() + said
