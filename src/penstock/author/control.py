"""`@for_loop`, `@while_loop` and `@when`: loops and conditions of the object form. Called by authors.

Each decorates a function that returns a job (or several jobs, or a Workflow, which then run as one nested step). The
function is called once, with loop variables in place of the items. The decorated name is the finished job.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from penstock.author.enclose import enclose
from penstock.author.errors import author_error, author_line
from penstock.author.jobs import Authored, BaseJob, JobSource, gather
from penstock.author.values import Computed, Reference, loop_variable, to_condition, to_value
from penstock.errors import AuthorError, Source
from penstock.expressions import types
from penstock.expressions.parse import Binary, Expr, Member, Name, references
from penstock.expressions.types import ANY, Type
from penstock.graph import model

Decorator = Callable[[Any], Any]


class PartialJob(JobSource):
    """A function that returns a job, until all its parameters have a loop variable."""

    def __init__(self, function: Callable[..., Any], source: Source | None) -> None:
        self.name = function.__name__
        self._function = function
        self._source = source
        self._parameters = [name for name, p in inspect.signature(function).parameters.items() if p.default is p.empty]
        self._axes: list[dict[str, Any]] = []
        self._conditions: list[Any] = []
        self._limits: dict[str, Any] = {}
        self._unpack: dict[str, list[str]] = {}
        """Loop variable -> the parameters that its parts go to."""

    # -- decorators, the innermost first

    def loop_over(self, items: Any) -> None:
        """All parameters that are still free take their values from these items."""
        free = self._free()
        if not free:
            raise self._error(f"{self.name}() takes no loop variable", "give it a parameter")
        variable = "_".join(free)
        if len(free) > 1:
            self._unpack[variable] = free
        self._axes.insert(0, {variable: items})

    def loop_over_each(self, axes: Mapping[str, Any], zipped: bool) -> None:
        """Each of these parameters takes its values from its own items."""
        free = self._free()
        for name in axes:
            if name not in free:
                message = f"{self.name}() has no parameter {name!r} left to loop over"
                raise self._error(message, f"it has: {', '.join(free) or 'none'}")
        self._axes[:0] = [dict(axes)] if zipped else [{name: value} for name, value in axes.items()]

    def limit(self, parallel: int | None, gang: bool) -> None:
        if parallel is not None:
            self._limits["parallel"] = parallel
        if gang:
            self._limits["gang"] = True

    def add_condition(self, condition: Any) -> None:
        self._conditions.append(condition)

    # -- the job

    def complete(self) -> Any:
        """The job, if every parameter has its loop variable; otherwise this object."""
        return self if self._free() else self._build()

    def as_job(self) -> BaseJob:
        """Raises AuthorError: a parameter has no loop variable."""
        free = self._free()
        message = f"{self.name}() has a parameter that nothing fills: {', '.join(free)}"
        raise self._error(message, f"add @for_loop({free[0]}=[…])")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def _bound(self) -> list[str]:
        return [name for axis in self._axes for variable in axis for name in self._unpack.get(variable, [variable])]

    def _free(self) -> list[str]:
        bound = self._bound()
        return [name for name in self._parameters if name not in bound]

    def _build(self) -> BaseJob:
        variables, axes = self._variables()
        made = self._function(**{name: variables[name] for name in self._bound()})
        job = _one_job(made, self.name, self._source)
        if axes:
            if job.each is not None:
                axes += [dict(axis) for axis in job.each.axes]
            job.each = model.ForEach(axes=tuple(axes), **self._limits)
        for condition in self._conditions:
            add_condition(job, call_with(condition, variables))
        return job

    def _variables(self) -> tuple[dict[str, Reference], list[dict[str, Any]]]:
        """The arguments of the function, and the axes of the loop."""
        known: dict[str, Reference] = {}
        axes = []
        for axis in self._axes:
            values = {}
            found: dict[str, Reference] = {}
            for name, items in axis.items():
                items = call_with(items, known)
                values[name] = to_value(items)
                item = loop_variable(name, _item_type(items))
                if name in self._unpack:
                    found |= {part: item[i] for i, part in enumerate(self._unpack[name])}
                else:
                    found[name] = item
            known |= found
            axes.append(values)
        return known, axes

    def _error(self, message: str, fix: str) -> AuthorError:
        return author_error("P310", message, fix, self._source)


def _item_type(items: Any) -> Type:
    if isinstance(items, Reference):
        return items.type.item
    return types.of_value(items).item if isinstance(items, list | tuple | range) else ANY


def call_with(thing: Any, variables: Mapping[str, Reference]) -> Any:
    """The result of a function of loop variables; anything else unchanged."""
    if not inspect.isfunction(thing):
        return thing
    names = list(inspect.signature(thing).parameters)
    for name in names:
        if name not in variables:
            raise author_error(
                "P310", f"there is no loop variable {name!r} here", f"known: {', '.join(variables) or 'none'}"
            )
    return thing(**{name: variables[name] for name in names})


def _one_job(made: Any, name: str, source: Source | None) -> BaseJob:
    if isinstance(made, BaseJob):
        made.source = made.source or source
        return made
    if isinstance(made, Authored):
        return made.as_job()
    if isinstance(made, list | tuple) and made and all(isinstance(item, BaseJob) for item in made):
        inner, inputs = enclose(name, [job.to_step() for job in made])
        job = BaseJob(name, model.Nested(name=name))
        job.inputs = inputs
        job.uses = (inner, *gather(made))
        job.source = source
        return job
    raise author_error(
        "P307", f"{name}() returned {made!r}, which is not a job", "return a job, a list of jobs, or a Workflow", source
    )


def _partial(thing: Any) -> PartialJob:
    return thing if isinstance(thing, PartialJob) else PartialJob(thing, author_line())


def add_condition(job: BaseJob, condition: Any) -> None:
    extra = to_condition(condition)
    job.when = extra if job.when is None else Expr.tree(Binary("&&", extra.node, job.when.node))


def for_loop(
    items: Any = None, *, zipped: bool = False, parallel: int | None = None, gang: bool = False, **axes: Any
) -> Decorator:
    """One task for each item.

    `@for_loop(items=[0.1, 0.01])` goes over a list, a range, a parameter or the output of an earlier job.
    `@for_loop(lr=[…], seed=[…])` takes every combination; with `zipped=True`, the first of each, the second of each, and so
    on. Decorators may be stacked, and items may be a function of the loop variables above:
    `@for_loop(file=lambda shard: shard["files"])`.
    `parallel` limits how many run at once; `gang=True` starts all or none."""
    if (items is None) == (not axes):
        raise author_error(
            "P310", "for_loop needs something to go over", "write @for_loop(items=[…]), or @for_loop(lr=[…], seed=[…])"
        )
    for name, value in {"items": items, **axes}.items():
        if (
            value is not None
            and not isinstance(value, Reference | list | tuple | range | str)
            and not inspect.isfunction(value)
            and not isinstance(value, BaseJob)
        ):
            raise author_error(
                "P310", f"{name}={value!r} is not a list", "give a list, a range, a parameter or the output of a job"
            )

    def decorate(thing: Any) -> Any:
        if isinstance(thing, BaseJob):
            raise author_error(
                "P310",
                f"the job {thing.name!r} is finished; its loop variables would be used nowhere",
                "decorate a function that takes them and returns the job",
            )
        partial = _partial(thing)
        if items is not None:
            partial.loop_over(items)
        else:
            partial.loop_over_each(axes, zipped)
        partial.limit(parallel, gang)
        return partial.complete()

    return decorate


def when(condition: Any) -> Decorator:
    """Run only if this holds. Otherwise the job is skipped, and the jobs after it run.

    A comparison of outputs and parameters, the text of an expression, or a function of the loop variables."""

    def decorate(thing: Any) -> Any:
        if isinstance(thing, BaseJob):
            add_condition(thing, call_with(condition, {}))
            return thing
        if isinstance(thing, Authored):
            job = thing.as_job()
            add_condition(job, condition)
            return job
        partial = _partial(thing)
        partial.add_condition(condition)
        return partial.complete()

    return decorate


class _Round:
    """What the condition of a while loop reads: one round."""

    def __init__(self, job: BaseJob) -> None:
        self.outputs = {
            name: Computed(Member(Name("outputs"), name), type_) for name, type_ in job.output_types().items()
        }
        self.inputs = {name: Computed(Member(Name("inputs"), name), given.type) for name, given in job.inputs.items()}


def while_loop(
    condition: Any,
    *,
    carry: Mapping[str, str] | None = None,
    max_iterations: int = 100,
    test: str | None = None,
    at_limit: str = "stop",
) -> Decorator:
    """Run again while this holds, at most `max_iterations` times. Later jobs see the outputs of the last round.

    The condition is a function of the round, `lambda r: r.outputs["loss"] > 0.1`, or text: "outputs.loss > 0.1". Over
    outputs it is tested after each round, over inputs alone before each. `carry={"weights": "new_weights"}` feeds an output
    of one round into an input of the next."""

    def decorate(thing: Any) -> Any:
        if isinstance(thing, BaseJob):
            job = thing
        else:
            job = thing.as_job() if isinstance(thing, Authored) else _partial(thing).complete()
        if isinstance(job, PartialJob):
            raise author_error(
                "P310",
                f"{job.name}() has parameters; a while loop has no loop variable",
                "return a job with inputs, and carry outputs into them",
            )
        try:
            found = condition(_Round(job)) if inspect.isfunction(condition) else condition
        except KeyError as error:
            raise author_error(
                "P202", f"the job {job.name!r} has no {error}", f"outputs: {', '.join(job.output_types())}"
            ) from None
        expr = to_condition(found)
        roots = {path[0] for path in references(expr.text)}
        when_tested = test or ("before" if "inputs" in roots and "outputs" not in roots else "after")
        job.loop = model.While(
            condition=expr, carry=dict(carry or {}), max_iterations=max_iterations, test=when_tested, at_limit=at_limit
        )
        return job

    return decorate
