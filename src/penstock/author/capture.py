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

from penstock.author.annotations import hints_of
from penstock.author.code_digest import code_digest
from penstock.errors import Source
from penstock.expressions.parse import Expr, simple_path
from penstock.graph.model import Function, Step, Workflow

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


def declared_result(workflow: Workflow) -> Any:
    """What the @workflow function says that it returns; if it says nothing, the function of the step whose output it is."""
    hint = declared(workflow).get("return", Any)
    path = simple_path(workflow.outputs[0].value.text) if _is_expression(workflow) else None
    if hint is not Any or path is None or len(path) != 4 or path[0] != "steps":
        return hint
    step = next((one for one in workflow.steps if one.name == path[1]), None)
    if step is None or not isinstance(step.action, Function):
        return Any
    known = captured.get((step.action.module, step.action.name, step.action.code))
    hint = Any if known is None else hints_of(known.function).get("return", Any)
    return hint if step.each is None else types.GenericAlias(list, (hint,))


def _is_expression(workflow: Workflow) -> bool:
    return len(workflow.outputs) == 1 and isinstance(workflow.outputs[0].value, Expr)


def live_functions(workflow: Workflow) -> dict[FunctionKey, Callable[..., Any]]:
    """The functions of a workflow that this process has: it can call them without loading them."""
    return {key: captured[key].function for key in function_keys(workflow) if key in captured}
