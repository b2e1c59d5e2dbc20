"""`@task`: a plain Python function that can also be a step. Called by authors, and by compiler for each call it finds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from penstock.author.annotations import hints_of, to_type
from penstock.author.blame import wrong
from penstock.author.jobs import FunctionJob
from penstock.author.options import KNOWN, Options, step_fields
from penstock.errors import instead
from penstock.graph.places import NAME
from penstock.graph.types import Type

P = ParamSpec("P")
R = TypeVar("R")

_TASK_OPTIONS = ("name", "image", "env", "parallel", "gang", *KNOWN)
"""`parallel` and `gang` speak of a loop over the task: how many at once, and whether all start together or none."""


class TaskOptions(Options, total=False):
    name: str
    image: str
    env: Mapping[str, Any]
    parallel: int
    gang: bool


class Task(Generic[P, R]):
    """A function that can be a step. Called plainly it is the function."""

    def __init__(self, function: Callable[P, R], given: Mapping[str, Any]) -> None:
        if not inspect.isfunction(function):
            raise wrong("P305", f"@task decorates functions, not {function!r}", "put @task right above a def")
        if (
            inspect.iscoroutinefunction(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise wrong(
                "P305", f"{function.__name__}() is asynchronous or a generator", "return a value from an ordinary def"
            )
        for name in given:
            if name not in _TASK_OPTIONS:
                raise wrong(
                    "P305",
                    f"there is no option {name!r}",
                    f"{instead(name, _TASK_OPTIONS)} Known: {', '.join(_TASK_OPTIONS)}",
                )
        self.function: Callable[P, R] = function
        self.given = dict(given)
        self.name = given.get("name") or function.__name__.strip("_") or function.__name__
        if not NAME.match(self.name):
            raise wrong(
                "P211",
                f"{self.name!r} is not a usable name",
                "use letters, digits, '-' and '_', beginning and ending with a letter or digit",
            )
        step_fields({key: value for key, value in given.items() if key in KNOWN})
        self.signature = inspect.signature(function)
        for parameter in self.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise wrong(
                    "P305",
                    f"{function.__name__}() takes {str(parameter)!r}; the inputs of a task have names",
                    "name each parameter",
                )
        functools.update_wrapper(self, function)

    @property
    def penstock_task(self) -> Task[P, R]:
        return self

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        return hints_of(self.function)

    @property
    def result_type(self) -> Type:
        return to_type(self.hints.get("return", Any))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def options(self, **options: Unpack[TaskOptions]) -> Task[P, R]:
        """The same function with other options, for one use: `train.options(gpu=4)(shard)`."""
        merged = {**self.given, **options}
        if "resources" in self.given and "resources" in options:
            merged["resources"] = {**self.given["resources"], **options["resources"]}
        return Task(self.function, merged)

    def after(self, *values: Any) -> Task[P, R]:
        """Inside a workflow: wait for what these values come from, without using them. `deploy.after(migrated)(region)`."""
        return self

    def job(self, name: str | None = None, **inputs: Any) -> FunctionJob:
        """This task as a job of the object form, with these inputs."""
        return FunctionJob(name or self.name, self, inputs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Make a function usable as a step. Without options it runs in the engine's own workers.

    Options: name, image, env, cpu, memory, gpu, resources, replicas, node_selector, tolerations, affinity, queue, priority,
    retry, timeout, cache, group, doc."""
    if function is not None:
        return Task(function, {})
    return lambda inner: Task(inner, options)
