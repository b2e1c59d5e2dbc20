"""Functions that do not return their value at once: coroutines are run to their end, generators give the list of what they yield. Called by
backends.local.invoke for every function, and by author.tasks when a workflow is called as ordinary Python.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any


def finishing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, or one that returns when all is done."""
    if inspect.iscoroutinefunction(function):
        return functools.wraps(function)(lambda *args, **kwargs: _run(function(*args, **kwargs)))
    if inspect.isasyncgenfunction(function):
        return functools.wraps(function)(lambda *args, **kwargs: _run(_listed(function(*args, **kwargs))))
    if inspect.isgeneratorfunction(function):
        return functools.wraps(function)(lambda *args, **kwargs: list(function(*args, **kwargs)))
    return function


async def _listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    # Slow to import, and few functions are coroutines.
    import asyncio
    import threading

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # A notebook, or functions called in the engine's process: this thread has a loop, so the work gets a thread of its own.
    answer: list[Any] = []

    def target() -> None:
        try:
            answer.extend((True, asyncio.run(work)))
        except BaseException as error:
            answer.extend((False, error))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if not answer[0]:
        raise answer[1]
    return answer[1]
