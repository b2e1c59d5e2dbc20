"""`@workflow`: a Python function whose source is also a graph. Called by authors.

A call of the function runs it as ordinary Python. `.graph` compiles its source when it is first read, and again when something that it
names was defined anew since: in a notebook, a cell with a task or a constant is run again and again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from penstock.author.capture import is_loading
from penstock.author.errors import author_error, author_line, or_broken
from penstock.author.jobs import Authored, plain_call
from penstock.author.links import defining, with_links
from penstock.errors import instead, nearest
from penstock.graph import model
from penstock.graph.model import Unit
from penstock.graph.payload_paths import PayloadIdentity

if TYPE_CHECKING:
    from penstock.runners.local import Run  # for type checkers alone: this package does not depend on runners

P = ParamSpec("P")
R = TypeVar("R")

_checked: ContextVar[set[int] | None] = ContextVar("checked", default=None)
"""Workflow functions that were looked at since somebody asked for a graph: one that is called a thousand times is looked at once."""

OPTIONS = (
    "name",
    "queue",
    "priority",
    "unit",
    "parallel",
    "timeout",
    "fail_fast",
    "max_iterations",
    "on_exit",
    "labels",
    "links",
    "catalogue",
    "payload",
    "callbacks",
)


class WorkflowFunction(Authored, Generic[P, R]):
    """A function whose source is a workflow. A call runs it as ordinary Python."""

    def __init__(self, function: Callable[P, R], given: Mapping[str, Any]) -> None:
        if not inspect.isfunction(function):
            raise author_error(
                "P305", f"@workflow decorates functions, not {function!r}", "put @workflow right above a def"
            )
        for name in given:
            if name not in OPTIONS:
                raise author_error(
                    "P305",
                    f"there is no option {name!r}",
                    f"{instead(name, OPTIONS)} Known: {', '.join(OPTIONS)}",
                )
        if given.get("unit") is not None and given["unit"] not in list(Unit):
            raise author_error(
                "P305",
                f"unit={given['unit']!r} is not a unit",
                f"use one of {', '.join(Unit)}.{nearest(str(given['unit']), Unit)}",
            )
        self.function: Callable[P, R] = function
        self.given = dict(given)
        self.name = given.get("name") or function.__name__.strip("_") or function.__name__
        self.source = author_line()
        self._graph: model.Workflow | None = None
        self._made_of: Any = None
        """The fingerprint of what the graph was made of; None: not known yet."""
        functools.update_wrapper(self, function)

    @property
    def graph(self) -> model.Workflow:
        checked = _checked.get()
        if is_loading() or (checked is not None and id(self) in checked):
            return self._compiled() if self._graph is None else self._graph
        token = _checked.set(checked if checked is not None else set())
        try:
            return self._as_it_is_now()
        finally:
            _checked.reset(token)

    def _as_it_is_now(self) -> model.Workflow:
        from penstock.author.reached import fingerprint, same

        checked = _checked.get()
        assert checked is not None
        checked.add(id(self))
        made_of = fingerprint(self.function)
        if self._made_of is not None and not same(made_of, self._made_of):
            self._graph = None
        self._made_of = made_of
        return self._compiled() if self._graph is None else self._graph

    def _compiled(self) -> model.Workflow:
        from penstock.author.compiler.compile import compile_workflow

        compiled = compile_workflow(self.function, self.name, self.given, self.source)
        linked = with_links(compiled, self.given.get("links") or ())
        self._graph = defining(linked, [one.graph for one in self.given.get("catalogue") or ()])
        return self._graph

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        token = plain_call.set(self.name)
        try:
            return self.function(*args, **kwargs)
        finally:
            plain_call.reset(token)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Run it on this machine, to its end: `LocalRunner().run(self, …)`. `.result` is what the function returns."""
        found: Run[R] = self.run_locally(*args, **kwargs)
        return found

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


@overload
def workflow(function: Callable[P, R], /) -> WorkflowFunction[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    queue: str | None = None,
    priority: str | int | None = None,
    unit: Unit | str | None = None,
    parallel: int | None = None,
    timeout: int | float | str | None = None,
    fail_fast: bool = False,
    max_iterations: int = 1000,
    on_exit: Sequence[Any] = (),
    labels: Mapping[str, str] | None = None,
    links: Sequence[Any] = (),
    catalogue: Sequence[Authored] = (),
    payload: PayloadIdentity | None = None,
    callbacks: Sequence[Any] = (),
) -> Callable[[Callable[P, R]], WorkflowFunction[P, R]]: ...
def workflow(function: Any = None, /, **options: Any) -> Any:
    """Make a function's source a workflow. `max_iterations` limits its while loops. `on_exit` is a list of jobs, or of tasks
    without parameters, that run when all other steps have ended: `on_exit=[clean.job(outcome="${{ workflow.outcome }}")]`. `links`: workflows,
    or Links, that are run when this one has ended. `payload` says which parameter, and what of it, identifies the work that a run does;
    `catalogue`: workflows that the process of a payload may name. `callbacks`: URLs, or Callbacks, that are told how a run has ended."""
    if function is not None:
        return or_broken(lambda: WorkflowFunction(function, {}))
    return lambda inner: or_broken(lambda: WorkflowFunction(inner, options))
