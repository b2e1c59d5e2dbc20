"""`@for_loop`, `@while_loop` and `@when`: how often a job runs, and whether. Called by authors in the object form.

Each decorates a function that returns a job (or several jobs, or a Workflow, which then run as one nested step). The
function is called once, with loop variables standing in for the items; what is left in its name is the finished job.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from penstock.author.blame import here, wrong
from penstock.author.enclose import enclose
from penstock.author.jobs import Authored, BaseJob, gather
from penstock.author.values import Computed, Ref, loop_variable, to_condition, to_value
from penstock.errors import Source
from penstock.graph import model, types
from penstock.graph.expr import Binary, Expr, Member, Name, references
from penstock.graph.types import ANY, Type

Decorator = Callable[[Any], Any]


class Pending:
    """A function whose parameters are not all bound to loop variables yet."""

    def __init__(self, function: Callable[..., Any], source: Source | None) -> None:
        self.function = function
        self.source = source
        self.parameters = [name for name, p in inspect.signature(function).parameters.items() if p.default is p.empty]
        self.axes: list[dict[str, Any]] = []
        self.conditions: list[Any] = []
        self.limits: dict[str, Any] = {}
        self.unpack: dict[str, list[str]] = {}

    def bound(self) -> list[str]:
        return [name for axis in self.axes for variable in axis for name in self.unpack.get(variable, [variable])]

    def complete(self) -> Any:
        """The job, once every parameter has its loop variable; until then, this."""
        return self if set(self.parameters) - set(self.bound()) else self.build()

    def build(self) -> BaseJob:
        variables, axes = self.variables()
        made = self.function(**{name: variables[name] for name in self.bound()})
        job = _one_job(made, self.function.__name__, self.source)
        if axes:
            if job.each is not None:
                axes += [dict(axis) for axis in job.each.axes]
            job.each = model.ForEach(axes=tuple(axes), **self.limits)
        for condition in self.conditions:
            add_condition(job, call_with(condition, variables))
        return job

    def variables(self) -> tuple[dict[str, Ref], list[dict[str, Any]]]:
        known: dict[str, Ref] = {}
        axes = []
        for axis in self.axes:
            values = {}
            found: dict[str, Ref] = {}
            for name, items in axis.items():
                items = call_with(items, known)
                values[name] = to_value(items)
                item = loop_variable(name, _item_type(items))
                if name in self.unpack:
                    found |= {part: item[i] for i, part in enumerate(self.unpack[name])}
                else:
                    found[name] = item
            known |= found
            axes.append(values)
        return known, axes

    def penstock_pending(self) -> BaseJob:
        left = ", ".join(name for name in self.parameters if name not in self.bound())
        raise wrong(
            "P310",
            f"{self.function.__name__}() has a parameter that nothing fills: {left}",
            f"add @for_loop({left.partition(',')[0]}=[…])",
            self.source,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _item_type(items: Any) -> Type:
    return (
        items.type.item
        if isinstance(items, Ref)
        else types.of_value(items).item
        if isinstance(items, list | tuple | range)
        else ANY
    )


def call_with(thing: Any, variables: Mapping[str, Ref]) -> Any:
    """A lambda over loop variables -> what it gives; anything else as it is."""
    if not inspect.isfunction(thing):
        return thing
    names = list(inspect.signature(thing).parameters)
    for name in names:
        if name not in variables:
            raise wrong("P310", f"there is no loop variable {name!r} here", f"known: {', '.join(variables) or 'none'}")
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
    raise wrong(
        "P307", f"{name}() returned {made!r}, which is not a job", "return a job, a list of jobs, or a Workflow", source
    )


def _pending(thing: Any) -> Pending:
    return thing if isinstance(thing, Pending) else Pending(thing, here())


def add_condition(job: BaseJob, condition: Any) -> None:
    extra = to_condition(condition)
    job.when = extra if job.when is None else Expr.tree(Binary("&&", extra.node, job.when.node))


def for_loop(
    items: Any = None, *, zipped: bool = False, parallel: int | None = None, gang: bool = False, **axes: Any
) -> Decorator:
    """One task for each item.

    `@for_loop(items=[0.1, 0.01])` goes over a list, a range, a parameter or the output of an earlier job.
    `@for_loop(lr=[…], seed=[…])` takes every combination; `zipped=True` takes them in step instead. Decorators may be
    stacked, and items may be a function of the loop variables above: `@for_loop(file=lambda shard: shard["files"])`.
    `parallel` limits how many run at once; `gang=True` starts all or none."""
    if (items is None) == (not axes):
        raise wrong(
            "P310", "for_loop needs something to go over", "write @for_loop(items=[…]), or @for_loop(lr=[…], seed=[…])"
        )
    for name, value in {"items": items, **axes}.items():
        if (
            value is not None
            and not isinstance(value, Ref | list | tuple | range | str)
            and not inspect.isfunction(value)
            and not hasattr(value, "result_ref")
        ):
            raise wrong(
                "P310", f"{name}={value!r} is not a list", "give a list, a range, a parameter or the output of a job"
            )

    def decorate(thing: Any) -> Any:
        if isinstance(thing, BaseJob):
            raise wrong(
                "P310",
                f"the job {thing.name!r} is finished; its loop variables would be used nowhere",
                "decorate a function that takes them and returns the job",
            )
        pending = _pending(thing)
        free = [name for name in pending.parameters if name not in pending.bound()]
        if items is not None:
            if not free:
                raise wrong(
                    "P310",
                    f"{pending.function.__name__}() takes no loop variable",
                    "give it a parameter",
                    pending.source,
                )
            variable = "_".join(free)
            if len(free) > 1:
                pending.unpack[variable] = free
            pending.axes.insert(0, {variable: items})
        else:
            for name in axes:
                if name not in free:
                    raise wrong(
                        "P310",
                        f"{pending.function.__name__}() has no parameter {name!r} left to loop over",
                        f"it has: {', '.join(free) or 'none'}",
                        pending.source,
                    )
            pending.axes[:0] = [dict(axes)] if zipped else [{name: value} for name, value in axes.items()]
        if parallel is not None:
            pending.limits["parallel"] = parallel
        if gang:
            pending.limits["gang"] = True
        return pending.complete()

    return decorate


def when(condition: Any) -> Decorator:
    """Run only if this holds; otherwise the job is skipped, and what follows goes on.

    A comparison of outputs and parameters, the text of an expression, or a function of the loop variables."""

    def decorate(thing: Any) -> Any:
        if isinstance(thing, BaseJob):
            add_condition(thing, call_with(condition, {}))
            return thing
        if isinstance(thing, Authored):
            job = thing.as_job()
            add_condition(job, condition)
            return job
        pending = _pending(thing)
        pending.conditions.append(condition)
        return pending.complete()

    return decorate


class _Round:
    """One round of a while loop, as its condition sees it."""

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
    """Run again while this holds, and at most `max_iterations` times; what follows sees the last round's outputs.

    The condition is a function of the round, `lambda r: r.outputs["loss"] > 0.1`, or text: "outputs.loss > 0.1". Over
    outputs it is tested after each round, over inputs alone before each. `carry={"weights": "new_weights"}` feeds an output
    of one round into an input of the next."""

    def decorate(thing: Any) -> Any:
        job = thing if isinstance(thing, BaseJob) else _pending(thing).complete()
        if isinstance(thing, Authored):
            job = thing.as_job()
        if isinstance(job, Pending):
            raise wrong(
                "P310",
                f"{job.function.__name__}() has parameters; a while loop has no loop variable",
                "return a job with inputs, and carry outputs into them",
            )
        try:
            found = condition(_Round(job)) if inspect.isfunction(condition) else condition
        except KeyError as error:
            raise wrong(
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
