"""The rules of one workflow, in the order in which they are applied. Called by graph.check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.errors import nearest
from penstock.expressions import types
from penstock.expressions.parse import references
from penstock.expressions.secret import ROOT as SECRETS
from penstock.graph.check.context import ALWAYS, Context, ReadScope
from penstock.graph.check.order import check_order
from penstock.graph.check.scalars import brief, check_count, check_name, check_seconds, check_word
from penstock.graph.check.steps import check_step
from penstock.graph.check.storage import check_locks
from penstock.graph.check.values import check_value
from penstock.graph.limits import NAME, VARIABLE
from penstock.graph.model import ENOUGH_OF, JUDGED_BY, MISSING, Output, Parameter, expressions
from penstock.graph.payload_paths import Parts, parse_path


def _name(context: Context) -> None:
    check_name(context, context.workflow.name, NAME, "name", context.workflow.source)


def _parameters(context: Context) -> None:
    seen: set[str] = set()
    for param in context.workflow.params:
        where = f"params.{param.name}"
        check_name(context, param.name, VARIABLE, where, None)
        if param.name in seen:
            context.report("P210", f"two parameters are named {param.name!r}", "rename one", where)
        seen.add(param.name)
        _parameter_values(context, param, where)


def _parameter_values(context: Context, param: Parameter, where: str) -> None:
    for value in (param.default, *param.choices):
        read = next((path for expr in expressions(value) for path in references(expr.text)), None)
        if read is not None:
            message = f"the default of a parameter is known before the run, and this one reads {'.'.join(read)}"
            fix = "give it in the step that needs it" if read[0] == SECRETS else "write a constant"
            context.report("P204", message, fix, where)
        elif value is not MISSING and not types.accepts(param.type, value):
            context.report(
                "P220",
                f"{brief(value)} is not {param.type}",
                f"give a value of type {param.type}, or change the type",
                where,
            )
    if param.choices and param.default is not MISSING and param.default not in param.choices:
        context.report(
            "P220",
            f"the default {brief(param.default)} is not among the choices",
            f"choose one of {brief(param.choices)}",
            where,
        )


def _step_names(context: Context) -> None:
    seen: set[str] = set()
    for step in (*context.workflow.steps, *context.workflow.on_exit):
        if step.name in seen:
            context.report(
                "P210",
                f"two steps are named {step.name!r}",
                "rename one; outputs are read by step name",
                f"steps.{step.name}",
                step.source,
            )
        seen.add(step.name)


def _steps(context: Context) -> None:
    for step in (*context.workflow.steps, *context.workflow.on_exit):
        check_step(context, step)


def _outputs(context: Context) -> None:
    for output in context.workflow.outputs:
        _output(context, output, f"outputs.{output.name}")


def _output(context: Context, output: Output, where: str) -> None:
    check_name(context, output.name, VARIABLE, where, None)
    if output.value is MISSING:
        context.report(
            "P106",
            f"the output {output.name!r} has no value",
            "say which step's output it is: ${{ steps.NAME.outputs.OUTPUT }}",
            where,
        )
        return
    check_value(context, output.value, output.type, ReadScope("", context.workflow.source, ALWAYS, {}), where)


def _settings(context: Context) -> None:
    workflow = context.workflow
    check_count(context, workflow.parallel, "parallel", None)
    check_seconds(context, workflow.timeout, "timeout", None)
    check_word(context, workflow.judged_by, JUDGED_BY, "judged_by", None)
    _enough(context)
    check_locks(context, workflow.locks, ReadScope("", workflow.source, frozenset({"params", "run"}), {}))


def _enough(context: Context) -> None:
    enough = context.workflow.enough
    if enough is None:
        return
    check_word(context, enough.of, ENOUGH_OF, "enough.of", None)
    known = [step.name for step in context.workflow.steps]
    if not enough.steps:
        fix = "name the steps whose success is enough, or leave enough out"
        context.report("P106", "enough names no steps", fix, "enough.steps")
    for name in sorted(set(enough.steps) - set(known)):
        fix = f"name a step of this workflow that is no exit handler.{nearest(name, known)}"
        context.report("P201", f"there is no step {name!r}", fix, "enough.steps")


def _payload(context: Context) -> None:
    identity = context.workflow.payload
    if identity is None:
        return
    known = [param.name for param in context.workflow.params]
    if identity.param not in known:
        fix = f"name the parameter that is the payload.{nearest(identity.param, known)}"
        context.report("P510", f"there is no parameter {identity.param!r}", fix, "payload.param")
    if not 0 <= identity.version < 1 << 53:
        context.report("P510", f"version {identity.version} is out of range", "count up from 1", "payload.version")
    seen: dict[Parts, str] = {}
    for kind, paths in (("include", identity.include), ("exclude", identity.exclude)):
        for number, text in enumerate(paths):
            where = f"payload.{kind}[{number}]"
            try:
                path = parse_path(text)
            except ValueError as error:
                context.report("P511", f"{text!r}: {error}", "write a path such as .features[].id", where)
                continue
            if path.parts in seen:
                fix = "leave one of them out"
                context.report("P511", f"{text!r} stands in {seen[path.parts]} already", fix, where)
            seen[path.parts] = kind


RULES: Final[tuple[Callable[[Context], None], ...]] = (
    _name,
    _parameters,
    _step_names,
    _steps,
    _outputs,
    _settings,
    _payload,
    check_order,
)
