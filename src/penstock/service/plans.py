"""Plans of workflow files: make one, forecast a run of it, merge and compare several. Called by the commands plan, merge and diff."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import PlanError, Problem
from penstock.plan.make import Plan, make, uninterrupted
from penstock.service import parameters, stores
from penstock.service.sizing import sized
from penstock.service.workflows import load, override, unit_from
from penstock.settings import Settings, read

if TYPE_CHECKING:
    from penstock.plan.diff import PlanDiff
    from penstock.plan.merge import Merged
    from penstock.service.views.forecast import Forecast
    from penstock.service.views.outlook import Outlook


def plan(
    target: str,
    given: Sequence[str] = (),
    unit: str | None = None,
    queue: str | None = None,
    priority: str | None = None,
) -> Plan:
    """Raises UserError."""
    with uninterrupted():
        workflow = load(target)
    workflow = override(workflow, queue, priority)
    chosen = None if unit is None else unit_from(unit)
    params = parameters.parse(workflow, given)
    return make(sized(workflow, params, read().scheduler).workflow, params, chosen)


def sizes_of(found: Plan) -> tuple[Problem, ...]:
    """What resource steps ask for and is not counted here, as warnings."""
    return sized(found.workflow, found.params, read().scheduler).warnings


def forecast_of(found: Plan, settings: Settings) -> Forecast | None:
    """What a run of this plan would reuse, share or run now. None if there is no store yet, or a parameter has no value."""
    if any(param.name not in found.params for param in found.workflow.params) or not stores.exists(settings):
        return None
    from penstock.service.views.forecast import forecast

    with stores.open_existing(settings) as store:
        return forecast(found, store, settings)


def outlook_of(found: Plan, settings: Settings, queues: str | None = None) -> dict[str, Outlook]:
    """By reservation: whether it would be admitted now. `queues`: a file that a run would apply first."""
    if not found.reservations:
        return {}
    from penstock.service.views.outlook import outlook

    if not stores.exists(settings):
        return outlook(found, None, queues)
    with stores.open_existing(settings) as store:
        return outlook(found, store, queues)


def access_of(found: Plan, settings: Settings, queues: str | None = None) -> tuple[Problem, ...]:
    """What the queues' owner lets the user have, as warnings: whether a run would be refused, and what is more than a limit allows."""
    if not found.reservations:
        return ()
    from penstock.service import access
    from penstock.service.policy import Actor
    from penstock.service.submission import local_actor
    from penstock.service.views.outlook import QueueOverlay, overlaid

    by = local_actor()
    if settings.server:
        from penstock.service.remote_store import connection

        who = connection(settings.server).get("whoami")
        by = Actor(str(who["person"]), tuple(who.get("groups", ())))
    with ExitStack() as opened:
        known = stores.exists(settings)
        overlay = QueueOverlay(opened.enter_context(stores.open_existing(settings)) if known else None, queues)
        rows = [(kind, text) for kind, _, _, text in overlay.queue_objects()]
        try:
            return access.vet(rows, overlaid(overlay), found, by)
        except PlanError as refused:
            return tuple(replace(one, severity="warning") for one in refused.problems)


def merge(targets: Sequence[str], given: Sequence[str] = (), name: str | None = None) -> Merged:
    """Several files -> one workflow. Each parameter goes to every workflow that has it. Raises PlanError if none has it."""
    from penstock.plan.merge import merge as merge_workflows

    workflows = [load(target) for target in targets]
    values = parameters.parse_shared(workflows, given)
    return merge_workflows(list(zip(workflows, values, strict=True)), name)


def diff(before: str, after: str, given: Sequence[str] = ()) -> PlanDiff:
    """Compares two files. Each parameter goes to the workflows that have it."""
    from penstock.plan.diff import diff as diff_plans

    plans = []
    for target in (before, after):
        workflow = load(target)
        params = parameters.parse(workflow, parameters.own_of(workflow, given))
        plans.append(make(sized(workflow, params, read().scheduler).workflow, params))
    return diff_plans(*plans)
