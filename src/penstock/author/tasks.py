"""Python functions as steps: `@task`, and FunctionJob for the object form. Called by authors, and by the compiler for calls."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, Unpack, get_args, overload

from penstock.artifacts.finish import finishing
from penstock.artifacts.rebuild import hints_of
from penstock.author.annotations import to_type
from penstock.author.capture import module_of, recorded
from penstock.author.errors import author_error, or_broken
from penstock.author.jobs import BaseJob, Inputs, JobSource, plain_call, usable_name
from penstock.author.options import KNOWN, JobOptions, Options, step_fields
from penstock.author.secrets import secret_defaults, with_texts
from penstock.author.values import Reference, WorkflowParam, holds_secret, to_value
from penstock.errors import instead, nearest
from penstock.expressions.types import ANY, Type, list_of
from penstock.graph import model
from penstock.graph.model import MISSING

P = ParamSpec("P")
R = TypeVar("R")

_TASK_OPTIONS = ("name", "image", "env", "parallel", "gang", *KNOWN)
"""`parallel` and `gang` are of a loop over the task: how many run at once, and whether all start together or none."""


class TaskOptions(Options, total=False):
    name: str
    image: str
    env: Mapping[str, Any]
    parallel: int
    gang: bool


class TaskFunction(JobSource, Generic[P, R]):
    """A function that can be a step. A call runs it as ordinary Python."""

    def __init__(self, function: Callable[P, R], given: Mapping[str, Any]) -> None:
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            raise author_error("P305", f"@task decorates functions, not {function!r}", "put @task right above a def")
        for name in given:
            if name not in _TASK_OPTIONS:
                fix = f"{instead(name, _TASK_OPTIONS)} Known: {', '.join(_TASK_OPTIONS)}"
                raise author_error("P305", f"there is no option {name!r}", fix)
        self.function: Callable[P, R] = function
        self.given = dict(given)
        self.name = usable_name(given.get("name") or _own_name(function))
        step_fields({key: value for key, value in given.items() if key in KNOWN})
        self.signature = inspect.signature(function)
        for parameter in self.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                message = f"{function.__name__}() takes {str(parameter)!r}; the inputs of a task have names"
                raise author_error("P305", message, "name each parameter")
        self.secret_defaults = dict(secret_defaults(self.signature))
        """Parameter -> its default that holds a secret. A step gets it as an input: only those are filled in."""
        functools.update_wrapper(self, function)

    @property
    def penstock_task(self) -> TaskFunction[P, R]:
        """Workers recognise a task by this attribute: they find it without importing this module."""
        return self

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        return hints_of(self.function)

    @property
    def result_type(self) -> Type:
        return _result_type(self.function, self.hints)

    def __get__(self, instance: Any, owner: type | None = None) -> TaskFunction[..., R]:
        """A method that is a task: `model.train(rows)`."""
        if instance is None:
            return self
        return TaskFunction(types.MethodType(self.function, instance), self.given)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.secret_defaults:
            bound = self.signature.bind(*args, **kwargs).arguments
            missing = {name: with_texts(value) for name, value in self.secret_defaults.items() if name not in bound}
            kwargs = {**kwargs, **missing}  # type: ignore[assignment]
        if plain_call.get():
            named = {name: _in_plain_call(arg) for name, arg in kwargs.items()}
            return finishing(self.function)(*map(_in_plain_call, args), **named)  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)

    def options(self, **options: Unpack[TaskOptions]) -> TaskFunction[P, R]:
        """The same function with other options, for one use: `train.options(gpu=4)(shard)`."""
        merged = {**self.given, **options}
        if "resources" in self.given and "resources" in options:
            merged["resources"] = {**self.given["resources"], **options["resources"]}
        return TaskFunction(self.function, merged)

    def after(self, *values: Any) -> TaskFunction[P, R]:
        """Inside a workflow: wait for the steps that these values come from. `deploy.after(migrated)(region)`."""
        return self

    def job(self, name: str | None = None, **inputs: Any) -> FunctionJob:
        """This task as a job of the object form, with these inputs."""
        return FunctionJob(name or self.name, self, inputs)

    def as_job(self) -> FunctionJob:
        return self.job()

    def __repr__(self) -> str:
        return f"<task {self.name}>"


@overload
def task(function: Callable[P, R], /, **options: Unpack[TaskOptions]) -> TaskFunction[P, R]: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Make a function usable as a step. Without options it runs in the engine's own workers.

    Options: name, image, env, cpu, memory, gpu, resources, replicas, node_selector, tolerations, affinity, queue, priority,
    retry, timeout, cache, group, doc."""
    if function is not None:
        return or_broken(lambda: TaskFunction(function, options))
    return lambda inner: or_broken(lambda: TaskFunction(inner, options))


def _in_plain_call(arg: Any) -> Any:
    """Secrets of the module are its constants; those that the workflow names in the call are texts already."""
    return with_texts(arg) if isinstance(arg, str | Reference) and holds_secret(arg) else arg


def _own_name(function: Callable[..., Any]) -> str:
    """Of the def, or of the name that a lambda is assigned to: `double = task(lambda x: 2 * x)`."""
    if function.__name__ != "<lambda>":
        return function.__name__.strip("_") or function.__name__
    try:
        statement = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError, IndexError):
        statement = None
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Lambda(), *_])):
            return name
    raise author_error(
        "P305", "a task made of a lambda needs a name", 'write task(lambda …, name="double"), or use def'
    )


def _result_type(function: Callable[..., Any], hints: Mapping[str, Any]) -> Type:
    """What a call gives. A generator gives the list of what it yields."""
    declared = hints.get("return", Any)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        args = get_args(declared)
        return list_of(to_type(args[0]) if args else ANY)
    return to_type(declared)


class FunctionJob(BaseJob):
    """A Python function, called with the inputs as keyword arguments. Its output is `result`, typed by its annotation."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Inputs = (),
        *,
        image: str | None = None,
        env: Mapping[str, Any] | None = None,
        outputs: Iterable[WorkflowParam] | None = None,
        **options: Unpack[JobOptions],
    ) -> None:
        base: dict[str, Any] = {}
        if isinstance(function, TaskFunction):
            base = {key: value for key, value in function.given.items() if key in KNOWN}
            image = image if image is not None else function.given.get("image")
            env = env if env is not None else function.given.get("env")
            function = function.function
        if not isinstance(function, types.FunctionType | types.MethodType):
            raise author_error("P307", f"{function!r} is not a Python function", "give a function defined with def")
        action = model.Function(
            module=module_of(function),
            name=function.__qualname__,
            code=recorded(function),
            image=to_value(image),
            env=to_value(env or {}),
        )
        declared = _declared(function)
        returned: Iterable[Any] = outputs if outputs is not None else (declared.result,)
        super().__init__(name, action, inputs=inputs, outputs=returned, **{**base, **options})
        self._type_inputs(function.__name__, declared)

    def _type_inputs(self, function: str, declared: _Declared) -> None:
        """Inputs have the types of the function's parameters; those without a value and a default are still missing."""
        parameters = declared.signature.parameters
        for name, given in self.inputs.items():
            if name not in parameters:
                fix = f"remove the input.{nearest(name, parameters)}"
                raise author_error("P309", f"{function}() has no parameter {name!r}", fix)
            self.inputs[name] = model.Input(name=name, value=given.value, type=declared.type(name), path=given.path)
        for name, parameter in parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if name not in self.inputs and parameter.default is parameter.empty:
                self.inputs[name] = model.Input(name=name, value=MISSING, type=declared.type(name))
        for name, default in declared.secret_defaults.items():
            if name not in self.inputs:
                self.inputs[name] = model.Input(name=name, value=to_value(default), type=declared.type(name))


class _Declared(NamedTuple):
    """What a function declares."""

    hints: dict[str, Any]
    signature: inspect.Signature
    result: model.Output
    secret_defaults: dict[str, Any]

    def type(self, parameter: str) -> Type:
        return to_type(self.hints.get(parameter, Any))


_known: weakref.WeakKeyDictionary[Any, _Declared] = weakref.WeakKeyDictionary()
"""Many jobs may be made of one function."""


def _declared(function: Callable[..., Any]) -> _Declared:
    found = _known.get(function)
    if found is None:
        hints = hints_of(function)
        result = model.Output(name="result", type=_result_type(function, hints))
        signature = inspect.signature(function)
        found = _known[function] = _Declared(hints, signature, result, dict(secret_defaults(signature)))
    return found
