"""The rules of a step that waits for an answer. Called by check.steps."""

from __future__ import annotations

from penstock.expressions.types import ANY
from penstock.graph.check.context import Context, ReadScope
from penstock.graph.check.scalars import check_seconds
from penstock.graph.check.values import check_value
from penstock.graph.model import ANSWER_BY, MISSING, Answer, Nested, Step, Suspend


def check_answer(context: Context, step: Step, answer: Answer, scope: ReadScope) -> None:
    for name in ("within", "heartbeat"):
        check_seconds(context, getattr(answer, name), scope.at(f"answer.{name}"), step.source)
    for name in ANSWER_BY:
        if (given := getattr(answer, name)) is not None:
            check_value(context, given, ANY, scope, f"answer.{name}")
    why, fix = _refused(step)
    if why:
        context.report("P530", why, fix, scope.at("answer"), step.source)


def _refused(step: Step) -> tuple[str, str]:
    """Why it cannot wait for an answer, and what to do."""
    if isinstance(step.action, Suspend):
        return (
            "a suspend step tells nobody its token",
            "leave `answer` out (penstock resume lets it go on), or have it run what hands the token on",
        )
    if isinstance(step.action, Nested):
        return "a called workflow is given no token", "put `answer` on the step in it that asks"
    if step.locks:
        return (
            "it holds a lock, and others would wait for it as long as nobody answers",
            "take the lock in the step before it",
        )
    if step.replicas != 1:
        return f"each of its {step.replicas} replicas would ask", "ask in a step of one replica"
    for output in step.outputs:
        if output.path is not None or output.value is not MISSING:
            return (
                f"its output {output.name!r} says where it comes from, and outputs are what the answer gives",
                "leave path and value out",
            )
    return "", ""
