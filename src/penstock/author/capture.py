"""The functions that steps are made of. Called by tasks and the compiler for every function step; read by pack and service.

A step names its function by module, name and code digest. This module remembers the function itself, so that the process
that built a workflow can call its functions, and pack can ship them to other processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.artifacts.rebuild import hints_of
from penstock.author.code_digest import code_digest
from penstock.errors import Source
from penstock.expressions.parse import Expr, path_of
from penstock.graph.model import Function, Nested, Step, Value, Workflow

FunctionKey = tuple[str, str, str]
"""Module, name and code, as a Function step has them."""


@dataclasses.dataclass(frozen=True, slots=True)
class CapturedFunction:
    """A function and its surroundings. They are kept because load removes the modules of a file, and its folder from
    sys.path, once the workflow in it is known."""

    function: Callable[..., Any]
    module: types.ModuleType | None
    path: tuple[str, ...]
    """sys.path when the step was made."""


captured: dict[FunctionKey, CapturedFunction] = {}
"""Every function of this process that a step was made of."""
compiled: dict[tuple[str, Source | None], Callable[..., Any]] = {}
"""Every @workflow function of this process whose graph was read, by the name and source of its workflow."""
_digests: dict[Callable[..., Any], str] | None = None


@contextlib.contextmanager
def cached_digests() -> Iterator[None]:
    """Inside, the code of each function is read once. For the time that a file is loaded: its code does not change then."""
    global _digests
    before, _digests = _digests, {}
    try:
        yield
    finally:
        _digests = before


def is_loading() -> bool:
    """Is a file being loaded? Nothing that was compiled changes meanwhile."""
    return _digests is not None


def recorded(function: Callable[..., Any]) -> str:
    """Remembers the function. Returns the digest of its code."""
    if _digests is not None and function in _digests:
        return _digests[function]
    code = code_digest(function)
    if _digests is not None:
        _digests[function] = code
    module = sys.modules.get(function.__module__ or "__main__")
    captured[module_of(function), function.__qualname__, code] = CapturedFunction(function, module, tuple(sys.path))
    return code


def module_of(function: Callable[..., Any]) -> str:
    """The name that the function's module is imported by. For the program that is being run, its file's name."""
    name = function.__module__ or "__main__"
    if name != "__main__":
        return name
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    stem = Path(file).stem if file else ""
    return stem if stem.isidentifier() and stem != "__main__" else name


def function_keys(workflow: Workflow) -> list[FunctionKey]:
    """Of every function step in the workflow and its definitions; each once, in order."""
    found: dict[FunctionKey, None] = {}
    for part in (workflow, *workflow.definitions):
        for step in (*part.steps, *part.on_exit):
            if isinstance(step.action, Function):
                found[step.action.module, step.action.name, step.action.code] = None
    return list(found)


def as_it_is_now(workflow: Workflow) -> Workflow:
    """The workflow with the code of its functions as it is now: since its jobs were made, what they read may have been set anew."""
    now: dict[FunctionKey, str] = {}
    for key in function_keys(workflow):
        if key in captured and (code := recorded(captured[key].function)) != key[2]:
            now[key] = code
    return _with_code(workflow, now) if now else workflow


def _with_code(workflow: Workflow, now: dict[FunctionKey, str]) -> Workflow:
    def changed(step: Step) -> Step:
        action = step.action
        if not isinstance(action, Function) or (action.module, action.name, action.code) not in now:
            return step
        code = now[action.module, action.name, action.code]
        return dataclasses.replace(step, action=dataclasses.replace(action, code=code))

    return dataclasses.replace(
        workflow,
        steps=tuple(map(changed, workflow.steps)),
        on_exit=tuple(map(changed, workflow.on_exit)),
        definitions=tuple(_with_code(one, now) for one in workflow.definitions),
    )


def declared(workflow: Workflow) -> dict[str, Any]:
    """The annotations of the @workflow function that this workflow was made of; `return` is among them. Empty if there is none."""
    function = compiled.get((workflow.name, workflow.source))
    return {} if function is None else hints_of(function)


def declared_of(workflow: Workflow, value: Value) -> Any:
    """The annotation of a value that one step or parameter of the workflow gives. Any if there is none."""
    path = path_of(value.node) if isinstance(value, Expr) else None
    if path is not None and len(path) == 2 and path[0] == "params":
        return declared(workflow).get(path[1], Any)
    return declared_output(workflow, path[1]) if path is not None and len(path) == 4 and path[0] == "steps" else Any


def declared_output(workflow: Workflow, name: str) -> Any:
    """What the function of a step says that it returns, or the workflow that the step calls. Any if that is not known."""
    step = next((one for one in (*workflow.steps, *workflow.on_exit) if one.name == name), None)
    if step is not None and isinstance(step.action, Function):
        known = captured.get((step.action.module, step.action.name, step.action.code))
        return Any if known is None else hints_of(known.function).get("return", Any)
    if step is None or not isinstance(step.action, Nested):
        return Any
    wanted = step.action.name
    called = next((one for one in workflow.definitions if one.name == wanted), None)
    if called is None or len(called.outputs) != 1:
        return Any
    return declared(called).get("return") or declared_of(called, called.outputs[0].value)


def live_functions(workflow: Workflow) -> dict[FunctionKey, Callable[..., Any]]:
    """The functions of a workflow that this process has: it can call them without loading them."""
    return {key: captured[key].function for key in function_keys(workflow) if key in captured}
