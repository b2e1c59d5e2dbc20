"""The rules of a step's for-each and of its while loop. Called by check.steps."""

from __future__ import annotations

from typing import Final

from penstock.errors import nearest
from penstock.expressions import types
from penstock.expressions.types import ANY, BOOL, INT, Type, list_of
from penstock.graph.check.context import ALWAYS, Context, ReadScope
from penstock.graph.check.scalars import check_count, check_name, check_word
from penstock.graph.check.values import check_value
from penstock.graph.limits import VARIABLE
from penstock.graph.model import ForEach, Step, While
from penstock.graph.outputs import task_output_types

TESTS: Final = ("before", "after")
AT_LIMIT: Final = ("stop", "fail")


def declare_loop_variables(context: Context, step: Step, where: str, on_exit: bool) -> dict[str, Type]:
    """The types of the loop variables, by path (`item.x`). Items of a later axis may read the variables of an earlier one."""
    own: dict[str, Type] = {}
    if step.each is None:
        return own
    _check_each(context, step, step.each, where)
    roots = ALWAYS | {"item"} | ({"workflow"} if on_exit else set())
    for axis in step.each.axes:
        scope = ReadScope(where, step.source, roots, own)
        found: dict[str, Type] = {}
        lengths: dict[str, int] = {}
        for name, items in axis.items():
            check_name(context, name, VARIABLE, f"{where}.each.{name}", step.source)
            if f"item.{name}" in own:
                context.report(
                    "P210", f"two loop variables are named {name!r}", "rename one", f"{where}.each.{name}", step.source
                )
            given = check_value(context, items, list_of(ANY), scope, f"each.{name}", "P223")
            found[f"item.{name}"] = given.item
            if isinstance(items, tuple):
                lengths[name] = len(items)
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            context.report(
                "P223",
                f"lists that advance together differ in length: {shown}",
                "make them equally long, or put them on two axes to cross them",
                f"{where}.each",
                step.source,
            )
        own |= found
    _check_limits(context, step, step.each, where, on_exit)
    return own


def _check_limits(context: Context, step: Step, each: ForEach, where: str, on_exit: bool) -> None:
    """What only the run knows: how many at once, and when it has enough of them."""
    roots = ALWAYS | ({"workflow"} if on_exit else set())
    outside = ReadScope(where, step.source, roots, {})
    if each.at_once is not None:
        check_value(context, each.at_once, INT, outside, "each.at_once")
    if each.enough is not None:
        outputs = task_output_types(step, context.definitions)
        own = {f"outputs.{name}": type_ for name, type_ in outputs.items()}
        inside = ReadScope(where, step.source, roots | {"outputs"}, own)
        check_value(context, each.enough.when, BOOL, inside, "each.enough.when")
        check_value(context, each.enough.beyond, INT, outside, "each.enough.beyond")


def _check_each(context: Context, step: Step, each: ForEach, where: str) -> None:
    if step.loop is not None:
        context.report(
            "P223",
            "a step cannot have both a for-each and a while loop",
            "put one of them into a nested workflow",
            f"{where}.loop",
            step.source,
        )
    if not each.axes or not all(each.axes):
        context.report(
            "P223", "the for-each has no variables", "give it something to go over", f"{where}.each", step.source
        )
    check_count(context, each.parallel, f"{where}.each.parallel", step.source)
    if each.gang and each.parallel is not None:
        context.report(
            "P223",
            "a gang starts all of its tasks at once, and `parallel` forbids it",
            "remove one of the two",
            f"{where}.each",
            step.source,
        )


def check_while(context: Context, step: Step, loop: While, where: str) -> None:
    check_count(context, loop.max_iterations, f"{where}.loop.max_iterations", step.source)
    check_word(context, loop.test, TESTS, f"{where}.loop.test", step.source)
    check_word(context, loop.at_limit, AT_LIMIT, f"{where}.loop.at_limit", step.source)
    inputs = {given.name: given.type for given in step.inputs}
    outputs = task_output_types(step, context.definitions)
    own = {f"inputs.{name}": type_ for name, type_ in inputs.items()}
    roots = ALWAYS | {"inputs"}
    if loop.test == "after":
        own |= {f"outputs.{name}": type_ for name, type_ in outputs.items()}
        roots |= {"outputs"}
    check_value(context, loop.condition, BOOL, ReadScope(where, step.source, roots, own), "loop.condition")
    for name, output in loop.carry.items():
        _check_carry(context, step, name, output, inputs, outputs, f"{where}.loop.carry")


def _check_carry(
    context: Context,
    step: Step,
    name: str,
    output: str,
    inputs: dict[str, Type],
    outputs: dict[str, Type],
    where: str,
) -> None:
    """`output` of one round becomes the input `name` of the next."""
    if name not in inputs:
        context.report(
            "P205",
            f"{name!r} is not an input of this step",
            f"carry into one of its inputs.{nearest(name, inputs)}",
            where,
            step.source,
        )
    if output not in outputs:
        context.report(
            "P202",
            f"{output!r} is not an output of this step",
            f"carry one of its outputs.{nearest(output, outputs)}",
            where,
            step.source,
        )
    elif name in inputs and not types.fits(outputs[output], inputs[name]):
        context.report(
            "P220",
            f"the output {output!r} is {outputs[output]} and is carried into {name!r}, which is {inputs[name]}",
            "make the types equal",
            where,
            step.source,
        )
