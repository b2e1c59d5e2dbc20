"""What resource steps ask for: the pods of the objects that they make, as their operators will make them. Called by each submission and by `penstock plan`.

A RayJob of a head and two workers asks for three pods and its submitter, sidecars and overhead included (scheduling.objects), so that plan and admission count it like any
other step. All of them together are one amount: the cluster, not the queue, places each pod. What the author says of the step itself wins.

What a scheduler of the cluster queues is counted there, and holds nothing here: with PENSTOCK_SCHEDULER, or if the manifest names its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import Problem, UserError
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template, show_template
from penstock.graph.model import MISSING, Placement, Resource, Step, Workflow

if TYPE_CHECKING:
    from penstock.formats.report import Report
    from penstock.plan.make import Plan
    from penstock.scheduling.model import JobObject

MADE = ("create", "apply")
NONE = "none"
"""PENSTOCK_SCHEDULER, if no scheduler of the cluster is to queue anything."""


class Sized(NamedTuple):
    workflow: Workflow
    warnings: tuple[Problem, ...] = ()
    """P906: not known; P908: counted on the cluster."""


@dataclass(slots=True)
class _Sizer:
    scheduler: str
    queue: str | None
    warnings: list[Problem] = field(default_factory=list)

    def steps(self, steps: Iterable[Step], params: Mapping[str, Any]) -> tuple[Step, ...]:
        return tuple(self.step(one, params) if makes_an_object(one) and not one.exempt else one for one in steps)

    def step(self, step: Step, params: Mapping[str, Any]) -> Step:
        job, why = job_of(step, params)
        if job is None and not why:
            return step  # no kind that makes pods
        if job is not None and self._queued_there(step, job):
            self.warnings.append(_counted_there(step, job))
            return replace(step, resources={}) if step.resources else step
        if step.resources:
            return step
        if job is None:
            self.warnings.append(_unknown(step, why))
            return step
        return replace(step, resources=demand(job), placement=step.placement or place(job))

    def _queued_there(self, step: Step, job: JobObject) -> bool:
        from penstock.scheduling.apply import queue_of

        if self.scheduler == NONE:
            return False
        return bool(queue_of(job) or (self.scheduler and (step.queue or self.queue)))


def sized(workflow: Workflow, params: Mapping[str, Any], scheduler: str = "") -> Sized:
    """`params`: those that were given. `scheduler`: of the settings."""
    every = (workflow, *workflow.definitions)
    if not any(makes_an_object(step) for one in every for step in one.steps):
        return Sized(workflow)
    sizer = _Sizer(scheduler, workflow.queue)
    known = {one.name: one.default for one in workflow.params if one.default is not MISSING} | dict(params)
    steps = sizer.steps(workflow.steps, known)
    definitions = tuple(replace(one, steps=sizer.steps(one.steps, {})) for one in workflow.definitions)
    return Sized(replace(workflow, steps=steps, definitions=definitions), tuple(sizer.warnings))


def makes_an_object(step: Step) -> bool:
    return isinstance(step.action, Resource) and step.action.action in MADE


def on_this_machine(plan: Plan) -> Plan:
    """The plan without what never runs on this machine."""
    from penstock.plan.elsewhere import of_this_machine
    from penstock.plan.make import make

    workflow = of_this_machine(plan.workflow)
    return plan if workflow is plan.workflow else make(workflow, plan.params, plan.unit)


def not_queued_there(plan: Plan, scheduler: str, on: Mapping[str, str]) -> Plan:
    """The plan without what a scheduler of the cluster queues, of the tasks that run there. `on`: kind of step -> backend."""
    from penstock.backends.registry import ELSEWHERE
    from penstock.plan.elsewhere import without_demand
    from penstock.plan.make import make
    from penstock.scheduling.registry import takes_pods

    if not takes_pods(scheduler):
        return plan
    named = plan.workflow.queue

    def there(step: Step) -> bool:
        return on.get(step.action.kind) in ELSEWHERE and bool(step.queue or named)

    workflow = without_demand(plan.workflow, there)
    return plan if workflow is plan.workflow else make(workflow, plan.params, plan.unit)


def with_endings(workflow: Workflow, report: Report) -> Workflow:
    """For Argo, which knows the end of no kind: with the conditions that steps have by their kind, as far as Argo's form can say them. What it cannot is lost."""
    every = (workflow, *workflow.definitions)
    if not any(makes_an_object(step) for one in every for step in (*one.steps, *one.on_exit)):
        return workflow

    def ended(steps: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(_with_ending(step, report) if makes_an_object(step) else step for step in steps)

    definitions = tuple(replace(one, steps=ended(one.steps)) for one in workflow.definitions)
    return replace(workflow, steps=ended(workflow.steps), on_exit=ended(workflow.on_exit), definitions=definitions)


def _with_ending(step: Step, report: Report) -> Step:
    from penstock.scheduling.kinds.outcomes import ending_of

    action = step.action
    assert isinstance(action, Resource)
    try:
        data = _manifest(action.manifest, {})
    except UserError:
        return step
    known = ending_of(data) if isinstance(data, Mapping) else None
    if known is None or (action.success_condition is not None and action.success_condition.text == "true"):
        return step
    kind, where = data["kind"], f"steps.{step.name}.resource"
    changes: dict[str, Any] = {}
    for field_, text in (("success_condition", known.success), ("failure_condition", known.failure)):
        if getattr(action, field_) is not None or not text:
            continue
        if "exists(" in text or " && " in text:
            said = f"the end of a {kind} is in its conditions, which a condition of Argo's cannot read: Argo does not wait for it"
            report.lost(f"{where}.{field_}", said, f"Give {field_}, such as status.succeeded > 0.", step.source)
        else:
            changes[field_] = Expr.of(text)
    return replace(step, action=replace(action, **changes)) if changes else step


# -- one manifest -----------------------------------------------------------------------------------------------------


def job_of(step: Step, params: Mapping[str, Any]) -> tuple[JobObject | None, str]:
    """The job that the manifest is; or why that is not known. Neither: it makes no pods that we know."""
    from penstock.formats.documents import Document
    from penstock.scheduling.objects import job_object

    assert isinstance(step.action, Resource)
    try:
        data = _manifest(step.action.manifest, {"params": params})
        if not isinstance(data, Mapping):
            return None, ""
        job = job_object(Document(data, f"the manifest of {step.name}"))
    except UserError as error:
        return None, error.problems[0].message
    if job is not None and job.unknown:
        return None, job.unknown
    return job, ""


def demand(job: JobObject) -> dict[str, int]:
    """Of all pods that there are when the whole object runs."""
    total: dict[str, int] = {}
    for role in job.roles:
        for name, amount in role.requests.items():
            if amount * role.count:
                total[name] = total.get(name, 0) + amount * role.count
    return total


def place(job: JobObject) -> Placement | None:
    """The machines that all of its pods may run on, if they say the same; None if they differ: then any flavor will do."""
    from penstock.formats.pods.placement import placement_of

    found = [placement_of(role.spec) for role in job.roles if role.count]
    return found[0] if found and all(one == found[0] for one in found) else None


def _manifest(value: Any, scope: Mapping[str, Any]) -> Any:
    """As data. What only the run knows is text, which is no number where one is needed. Raises UserError."""
    if isinstance(value, Template):
        value = "".join(one if isinstance(one, str) else str(_known(one, scope, "unknown")) for one in value.parts)
    if isinstance(value, Expr):
        value = _known(value, scope, None)
    if isinstance(value, str):
        from penstock.graph.text import read_all_yaml

        found = [one for one, _ in read_all_yaml(value, "the manifest") if one is not None]
        return found[0] if len(found) == 1 else None
    return _settled(value, scope)


def _settled(value: Any, scope: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _settled(item, scope) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_settled(item, scope) for item in value]
    if isinstance(value, Expr | Template):
        return _known(value, scope, show_template(value))
    return value


def _known(value: Any, scope: Mapping[str, Any], otherwise: Any) -> Any:
    try:
        return resolve(value, scope)
    except (EvaluationError, KeyError, TypeError):
        return otherwise


# -- what is said -----------------------------------------------------------------------------------------------------


def _unknown(step: Step, why: str) -> Problem:
    fix = "say what all of its pods ask for together: cpu=…, memory=… of the step"
    message = f"what the pods of {step.name!r} ask for is not known, so it asks for nothing: {why}"
    return Problem("P906", message, fix, where=f"steps.{step.name}", source=step.source, severity="warning")


def _counted_there(step: Step, job: JobObject) -> Problem:
    from penstock.scheduling.model import amounts_text

    pods = sum(role.count for role in job.roles)
    said = f"{step.name!r} makes a {job.document.kind} of {pods} pods ({amounts_text(demand(job))}), which is queued on the cluster: nothing is held for it here"
    fix = "nothing is to be done; PENSTOCK_SCHEDULER=none holds its quota in the queues here instead"
    return Problem("P908", said, fix, where=f"steps.{step.name}", severity="warning")
