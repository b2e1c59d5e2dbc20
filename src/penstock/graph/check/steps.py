"""The rules of one step. Called by check.workflow for each step and each exit handler.

FIELD_RULES need the step alone. Then the loop variables are declared, and SCOPE_RULES check what its expressions read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.errors import nearest
from penstock.expressions import types
from penstock.expressions.secret import CALLBACK
from penstock.expressions.types import ANY, BOOL, list_of
from penstock.graph import quantity
from penstock.graph.check.actions import check_action
from penstock.graph.check.answers import check_answer
from penstock.graph.check.context import ALWAYS, OBJECT, Context, ReadScope
from penstock.graph.check.loops import check_while, declare_loop_variables
from penstock.graph.check.paths import check_known_step
from penstock.graph.check.pods import check_pod
from penstock.graph.check.scalars import brief, check_count, check_name, check_seconds, check_unique, check_word
from penstock.graph.check.storage import check_cache, check_defaults, check_locks, check_mounts
from penstock.graph.check.values import check_condition, check_value
from penstock.graph.limits import NAME, VARIABLE
from penstock.graph.model import MISSING, RETRY_ON, Http, Nested, Output, Pod, Resource, Step, action_values
from penstock.graph.quantity import PLAIN_RESOURCES, RESOURCE_NAME

_ROOTS: Final = {
    (looped, on_exit): (around, around | {"inputs", "attempt"}, around | {"inputs"})
    for looped in (False, True)
    for on_exit in (False, True)
    for around in [ALWAYS | ({"item"} if looped else set()) | ({"workflow"} if on_exit else set())]
}
"""(has a for-each, is an exit handler) -> the roots outside, inside and after its action."""


@dataclass(slots=True)
class StepScopes:
    """A step and what its expressions may read."""

    step: Step
    where: str
    outside: ReadScope
    """Inputs and conditions."""
    inside: ReadScope
    """The action."""
    roots_after: frozenset[str]

    @property
    def after(self) -> ReadScope:
        """Outputs, cache key, locks and mounts: no attempt has a say in them."""
        return ReadScope(self.where, self.step.source, self.roots_after, self.outside.own)


def check_step(context: Context, step: Step) -> None:
    where = context.place_of(step.name)
    for rule in FIELD_RULES:
        rule(context, step, where)
    scopes = _scopes(context, step, where)
    for scope_rule in SCOPE_RULES:
        scope_rule(context, scopes)


def _scopes(context: Context, step: Step, where: str) -> StepScopes:
    on_exit = step.name in context.exits
    own = declare_loop_variables(context, step, where, on_exit) if step.each is not None else {}
    for given in step.inputs:
        own[f"inputs.{given.name}"] = given.type
    outside, inside, after = _ROOTS[step.each is not None, on_exit]
    if step.answer is not None:
        outside, inside = outside | {CALLBACK}, inside | {CALLBACK}
    source = step.source
    return StepScopes(
        step,
        where,
        ReadScope(where, source, outside, own),
        ReadScope(where, source, inside, own),
        after,
    )


# -- the step alone ---------------------------------------------------------------------------------------------------


def _name(context: Context, step: Step, where: str) -> None:
    check_name(context, step.name, NAME, where, step.source)


def _resources(context: Context, step: Step, where: str) -> None:
    for name, amount in step.resources.items():
        if (name in ("cpu", "memory") and 2**20 * 1000 <= amount <= quantity.LARGEST) or (
            name == "cpu" and 0 <= amount < 2**20 * 1000
        ):
            continue  # nearly all of them
        place = f"{where}.resources.{name}"
        if name not in ("cpu", "memory") and not RESOURCE_NAME.match(name):
            fix = _resource_hint(name)
            context.report("P232", f"{name[:140]!r} is not the name of a resource", fix, place, step.source)
        if amount < 0:
            fix = "ask for nothing, or for more than nothing"
            context.report("P230", _amount(name, amount), fix, place, step.source)
        elif amount > quantity.LARGEST:
            what = f"{_amount(name, amount)}, more than any machine has"
            context.report("P230", what, "check the unit", place, step.source)
        elif "/" in name and amount % 1000:
            what = f"{_amount(name, amount)}, and a device cannot be divided"
            context.report("P230", what, "ask for a whole number", place, step.source)
        elif name == "memory" and 0 < amount < 2**20 * 1000:
            what = f"{_amount(name, amount)} bytes"
            context.report("P230", what, "say the unit: 4Gi, 512Mi", place, step.source, "warning")
    if step.replicas != 1:
        check_count(context, step.replicas, f"{where}.replicas", step.source)


def _amount(name: str, amount: int) -> str:
    return f"{name} is {quantity.show(amount, name)}"


def _resource_hint(name: str) -> str:
    near = "nvidia.com/gpu" if name.lower() == "gpu" else name.lower()
    if near in (*PLAIN_RESOURCES, "nvidia.com/gpu"):
        return f"write {near!r}"
    return f"write cpu, memory, or a name with a domain: nvidia.com/gpu.{nearest(name, PLAIN_RESOURCES)}"


def _timeout(context: Context, step: Step, where: str) -> None:
    if step.timeout is not None:
        check_seconds(context, step.timeout, f"{where}.timeout", step.source)


def _retry(context: Context, step: Step, where: str) -> None:
    retry = step.retry
    if retry is None:
        return
    source = step.source
    check_count(context, retry.limit, f"{where}.retry.limit", source, low=0)
    for kind in retry.on:
        check_word(context, kind, RETRY_ON, f"{where}.retry.on", source)
    backoff = retry.backoff
    if backoff.initial < 0 or backoff.factor < 1 or backoff.longest < 0 or not 0 <= backoff.jitter <= 1:
        context.report(
            "P231",
            "this backoff has a value that is not allowed",
            "initial and longest ≥ 0, factor ≥ 1, jitter from 0 to 1",
            f"{where}.retry.backoff",
            source,
        )
    check_seconds(context, retry.within, f"{where}.retry.within", source)
    if retry.when is not None:
        check_value(context, retry.when, BOOL, ReadScope(where, source, frozenset({"attempt"}), {}), "retry.when")


FIELD_RULES: Final[tuple[Callable[[Context, Step, str], None], ...]] = (_name, _resources, _timeout, _retry)


# -- what its expressions read ----------------------------------------------------------------------------------------


def _unique_names(context: Context, at: StepScopes) -> None:
    step = at.step
    if len(step.inputs) > 1:
        check_unique(context, [given.name for given in step.inputs], "input", f"{at.where}.inputs", step.source)
    if len(step.outputs) > 1:
        check_unique(context, [output.name for output in step.outputs], "output", f"{at.where}.outputs", step.source)


def _inputs(context: Context, at: StepScopes) -> None:
    for given in at.step.inputs:
        field = f"inputs.{given.name}"
        check_name(context, given.name, VARIABLE, f"{at.where}.{field}", at.step.source)
        check_value(context, given.value, given.type, at.outside, field)


def _action_values(context: Context, at: StepScopes) -> None:
    action = at.step.action
    for name, value in action_values(action):
        if value and type(value) is not str:
            check_value(context, value, ANY, at.inside, f"{action.kind}.{name}")


def _conditions(context: Context, at: StepScopes) -> None:
    if at.step.when is not None:
        check_condition(context, at.step.when, at.outside)
    if at.step.trigger is not None:
        check_value(context, at.step.trigger, BOOL, at.outside, "trigger")


def _while(context: Context, at: StepScopes) -> None:
    if at.step.loop is not None:
        check_while(context, at.step, at.step.loop, at.where)


def _outputs(context: Context, at: StepScopes) -> None:
    step = at.step
    for output in step.outputs:
        field = f"outputs.{output.name}"
        check_name(context, output.name, VARIABLE, f"{at.where}.{field}", step.source)
        if output.value is not MISSING:
            check_value(context, output.value, output.type, _output_scope(at), field)
        if output.default is not MISSING:
            _output_default(context, step, output, f"{at.where}.{field}")


def _output_scope(at: StepScopes) -> ReadScope:
    after = at.after
    if isinstance(at.step.action, Resource):
        return ReadScope(after.where, after.source, after.roots | OBJECT, after.own)
    if isinstance(at.step.action, Http):
        return ReadScope(after.where, after.source, after.roots | {"response"}, after.own)
    return after


def _output_default(context: Context, step: Step, output: Output, where: str) -> None:
    whole = list_of(output.type) if step.each is not None else output.type
    if not types.accepts(whole, output.default):
        context.report(
            "P220",
            f"the default {brief(output.default)} is not {whole}",
            f"give a value of type {whole}",
            where,
            step.source,
        )


def _needs(context: Context, at: StepScopes) -> None:
    for edge in at.step.needs:
        check_known_step(context, edge.step, at.outside, "needs")
        if not edge.outcomes:
            context.report(
                "P222",
                f"the step waits for {edge.step!r} to end in no outcome at all",
                "name an outcome",
                f"{at.where}.needs",
                at.step.source,
            )


def _action(context: Context, at: StepScopes) -> None:
    check_action(context, at.step, at.inside)


def _storage(context: Context, at: StepScopes) -> None:
    step = at.step
    if step.cache.key is not None:
        check_cache(context, step, at.after)
    if step.locks:
        check_locks(context, step.locks, at.after)
    if step.mounts:
        check_mounts(context, step.mounts, at.after)
    check_defaults(context, step, at.outside)


def _pod(context: Context, at: StepScopes) -> None:
    if isinstance(at.step.action, Pod):
        check_pod(context, at.step.action, at.after)


def _answer(context: Context, at: StepScopes) -> None:
    if at.step.answer is not None:
        check_answer(context, at.step, at.step.answer, at.inside)


def _timeout_by(context: Context, at: StepScopes) -> None:
    step = at.step
    if step.timeout_by is None:
        return
    check_value(context, step.timeout_by, ANY, at.inside, "timeout_by")
    if isinstance(step.action, Nested):
        fix = "give the workflow a timeout, or its steps"
        context.report("P231", "a called workflow has no timeout_by", fix, f"{at.where}.timeout_by", step.source)


def _resources_by(context: Context, at: StepScopes) -> None:
    step = at.step
    for name, amount in step.resources_by.items():
        where = f"{at.where}.resources_by.{name}"
        scope = ReadScope(at.where, step.source, ALWAYS, {})
        check_value(context, amount, ANY, scope, f"resources_by.{name}")
        if isinstance(step.action, Nested):
            fix = "give it to the steps of the workflow"
            context.report("P231", "a called workflow has no resources_by", fix, where, step.source)
        elif name not in step.resources:
            said = f"the most that {name} may be is not said"
            context.report("P230", said, f"give resources.{name}: a plan counts with it", where, step.source)


SCOPE_RULES: Final[tuple[Callable[[Context, StepScopes], None], ...]] = (
    _unique_names,
    _inputs,
    _action_values,
    _conditions,
    _timeout_by,
    _resources_by,
    _answer,
    _while,
    _outputs,
    _needs,
    _action,
    _storage,
    _pod,
)
