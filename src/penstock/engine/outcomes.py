"""How a call of a workflow ended, and its outputs. Called by RunState. Pure: reads a WorkflowScope and changes nothing."""

from __future__ import annotations

from typing import Any, Final

from penstock.engine.blueprint import passed_on
from penstock.engine.steps import StepState, WorkflowScope
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.expressions.parse import references
from penstock.graph.model import MISSING, NORMAL, Outcome, expressions

BAD: Final = frozenset({Outcome.FAILED, Outcome.ERRORED})
ENOUGH: Final = "the for-each has enough"
RAN: Final = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED})


def outcome_of(scope: WorkflowScope) -> Outcome:
    """Of the workflow proper, once all of it is over."""
    if scope.halt in ("cancelled", "now", "dropped"):
        return Outcome.CANCELLED
    if scope.halt == "timeout":
        return Outcome.FAILED
    if scope.halt == "enough":
        return Outcome.SUCCEEDED
    if scope.blueprint.workflow.judged_by == "leaves":
        return _by_leaves(scope)
    return _by_failures(scope)


def _by_failures(scope: WorkflowScope) -> Outcome:
    """Failed if a step failed and nothing that asked for that has run. A hook that follows it whatever happens has not asked."""
    plans, outcomes = scope.blueprint.plans, scope.outcomes
    for number in set(scope.failures):
        if number >= scope.blueprint.main or outcomes[number] in plans[number].tolerates:
            continue
        handlers = (follower for follower in plans[number].followers if not plans[follower].step.exempt)
        if outcomes[number] in BAD and not any(outcomes[follower] in RAN for follower in handlers):
            return Outcome.FAILED
    return Outcome.SUCCEEDED


def _by_leaves(scope: WorkflowScope) -> Outcome:
    """As the first branch that ended badly: by its last step that ran. A step that did not run passes on how those before it
    ended, the worst of them."""
    blueprint = scope.blueprint
    branch: list[Outcome] = []
    for plan in blueprint.plans[: blueprint.main]:  # in topological order
        own = scope.outcomes[plan.number]
        if own in RAN:
            assert own is not None
            branch.append(own)
        else:
            before = [branch[up] for up, _ in plan.edges]
            branch.append(next((one for one in before if one in BAD), Outcome.SUCCEEDED))
    for leaf in blueprint.leaves:
        found = branch[leaf.number]
        if found in BAD and found not in leaf.tolerates:
            return found
    return Outcome.SUCCEEDED


def enough_of(scope: WorkflowScope) -> str:
    """Which steps have succeeded, if that is enough for the whole, in words. Otherwise nothing."""
    enough = scope.blueprint.workflow.enough
    if enough is None:
        return ""
    number, outcomes = scope.blueprint.number, scope.outcomes
    if enough.of == "any":
        found = next((name for name in enough.steps if outcomes[number[name]] is Outcome.SUCCEEDED), "")
        return found and f"{found} has succeeded, and that is enough"
    if not all(outcomes[number[name]] in NORMAL for name in enough.steps):
        return ""
    found = ", ".join(name for name in enough.steps if outcomes[number[name]] is Outcome.SUCCEEDED)
    return found and f"{found} succeeded, and that is enough"


def failures_of(scope: WorkflowScope) -> list[dict[str, str]]:
    """What exit handlers are told of: the steps that failed, also where that was tolerated."""
    found = []
    for plan in scope.blueprint.plans[: scope.blueprint.main]:
        outcome = scope.outcomes[plan.number]
        if outcome in BAD:
            assert outcome is not None
            message = scope.messages.get(plan.number, "")
            found.append({"step": plan.step.name, "outcome": outcome.value, "message": message})
    return found


def handlers_failed(scope: WorkflowScope) -> bool:
    main = scope.blueprint.main
    return any(
        outcome in BAD and outcome not in plan.tolerates
        for plan, outcome in zip(scope.blueprint.plans[main:], scope.outcomes[main:], strict=True)
    )


def results_of(scope: WorkflowScope) -> tuple[dict[str, Any], str]:
    """The outputs of the workflow; and what is missing of them, in words."""
    found: dict[str, Any] = {}
    problem = ""
    for output in scope.blueprint.workflow.outputs:
        if scope.outcome is not Outcome.SUCCEEDED and not _stands(scope, output.value):
            continue  # a list from which failed items are missing would pass for the whole
        try:
            found[output.name] = passed_on(output.value, scope.view)
        except (EvaluationError, KeyError, TypeError) as error:
            if output.default is not MISSING:
                found[output.name] = resolve(output.default, {})
            else:
                problem = problem or f"the output {output.name} has no value: {said(error)}"
    return found, problem


def _stands(scope: WorkflowScope, value: Any) -> bool:
    """Did every step that this value reads succeed, or was skipped?"""
    names = {
        path[1] for expr in expressions(value) for path in references(expr.text) if path[0] == "steps" and path[1:]
    }
    return all(
        scope.outcomes[scope.blueprint.number[name]] in NORMAL for name in names if name in scope.blueprint.number
    )


def gathered(state: StepState) -> tuple[Outcome, dict[str, Any]]:
    """How a looped step ended, and its outputs as lists of what succeeded, in order."""
    tally = state.tally
    if state.enough is not None and state.enough < 0:
        tally = {one: count for one, count in tally.items() if one is not Outcome.CANCELLED}
    order = (Outcome.FAILED, Outcome.ERRORED, Outcome.CANCELLED, Outcome.SUCCEEDED)
    outcome = next((one for one in order if tally.get(one)), Outcome.SKIPPED)
    outputs: dict[str, Any] = {}
    for output in state.plan.named_outputs:
        column = state.columns.get(output.name, ())
        outputs[output.name] = [value for value in column if value is not MISSING]
    return outcome, outputs


def said(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)
