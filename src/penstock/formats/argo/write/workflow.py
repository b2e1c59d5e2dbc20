"""A Workflow -> Argo documents with the same meaning. Called by argo.format.

Steps become tasks of a dag. Actions become templates, shared by all steps with the same action. Values are text: strings as they are, everything
else as JSON. Documents keep the limits of Argo 4: 200 tasks in a dag, 200 templates and a mebibyte in an object, names of letters, digits and
dashes. A larger workflow is split into nested dags (split), and its templates go into WorkflowTemplates.

    flow        one workflow: its values and tasks      dag, split   edges, clusters, borders
    templates   the template of a step                  leaf, pod    leaf templates
    expr        expressions                             items        loops
"""

from __future__ import annotations

from penstock.formats import shim
from penstock.formats.argo.write.context import WriteContext, object_name
from penstock.formats.argo.write.documents import DocumentWriter
from penstock.formats.argo.write.flow import WorkflowWriter, published_names
from penstock.formats.argo.write.slots import Varied, varied
from penstock.formats.argo.write.types import WorkflowTypes, refine
from penstock.formats.base import Written
from penstock.formats.report import Report
from penstock.formats.run_limits import report_run_limits
from penstock.graph.model import Container, Function, Nested, Outcome, Script, Step, Workflow, edges_of

MANY = 100
"""From so many different commands on, common words are searched."""
ENTRY = "main"
EXIT = "exit-handler"
_BAD = frozenset({Outcome.FAILED, Outcome.ERRORED})


def write_argo(workflow: Workflow, *, bundle: bytes | None = None, image: str = shim.IMAGE) -> Written:
    """`bundle`: the author's code, as author.pack makes it; b"" if all of it is installed. `image`: for functions and scripts without one.
    Raises UserError with every step that Argo cannot express."""
    shim.require_code(workflow, bundle, "P844")
    report = Report()
    context = WriteContext(report, shim.Bundle.of(bundle), image, object_name(workflow.name, 40))
    documents = DocumentWriter(context, workflow)
    if _has_functions(workflow):
        documents.ship(shim.payload(bundle))
    _written(context, workflow)
    _remarks(context, workflow)
    context.stop_if_wrong()
    found = documents.all(ENTRY, EXIT if workflow.on_exit else "")
    context.stop_if_wrong()
    context.report_all()
    return Written(found, report)


def _every(workflow: Workflow) -> list[Step]:
    return [step for one in (workflow, *workflow.definitions) for step in (*one.steps, *one.on_exit)]


def _has_functions(workflow: Workflow) -> bool:
    return any(isinstance(step.action, Function) for step in _every(workflow))


def _written(context: WriteContext, workflow: Workflow) -> None:
    """Writes all templates into the context."""
    definitions = {one.name: one for one in _reached(workflow)}
    typings = {name: WorkflowTypes(one, definitions, root=False) for name, one in definitions.items()}
    root = WorkflowTypes(workflow, definitions, root=True)
    refine([root, *typings.values()], typings)
    alike = _alike(workflow)
    main = WorkflowWriter(context, root, workflow, context.names.fresh(ENTRY), alike)
    exits = (
        WorkflowWriter(context, root, workflow, context.names.fresh(EXIT), alike, exits=True)
        if workflow.on_exit
        else None
    )
    called = {
        name: WorkflowWriter(context, typings[name], one, context.names.fresh(name), alike)
        for name, one in definitions.items()
    }
    for name, one in definitions.items():
        if one.on_exit:
            template = context.names.fresh(f"{name}-{EXIT}")
            called[name].handler = WorkflowWriter(context, typings[name], one, template, alike, exits=True)
    main.published = published_names(workflow)
    if exits is not None:
        exits.published = main.published
    handlers = [flow.handler for flow in called.values() if flow.handler is not None]
    for flow in (*handlers, *called.values(), *((exits,) if exits is not None else ()), main):
        flow.callees = called
        flow.write()


def _reached(workflow: Workflow) -> list[Workflow]:
    """Definitions that are called, callers first."""
    known = {one.name: one for one in workflow.definitions}
    found: dict[str, Workflow] = {}
    waiting = [workflow]
    while waiting:
        one = waiting.pop(0)
        for step in (*one.steps, *one.on_exit):
            if isinstance(step.action, Nested) and step.action.name in known and step.action.name not in found:
                found[step.action.name] = known[step.action.name]
                waiting.append(found[step.action.name])
    return list(found.values())


def _alike(workflow: Workflow) -> dict[int, Varied]:
    """Groups commands that differ only in some words, if there are many."""
    steps = [step for step in _every(workflow) if isinstance(step.action, Container | Script)]
    if len(steps) <= MANY or len({repr(step.action) for step in steps}) <= MANY:
        return {}
    return varied(steps)


def _remarks(context: WriteContext, workflow: Workflow) -> None:
    """Reports fields of workflows that a template cannot have."""
    for one in (workflow, *workflow.definitions):
        where = "" if one is workflow else f"definitions.{one.name}."
        if one is not workflow and one.timeout is not None:
            message = "Argo has no time limit for a call of a workflow"
            context.report.lost(f"{where}timeout", message, "Limit its steps, or the whole.", one.source)
        if one is not workflow and one.locks:
            context.report.lost(
                f"{where}locks", "a lock of a called workflow is not kept", "Lock its steps.", one.source
            )
        if one.enough is not None:
            message = "Argo ends when all of it has ended, not when enough has succeeded"
            context.report.lost(f"{where}enough", message, source=one.source)
        if one.judged_by == "handled":
            _judged(context, one, where)
    report_run_limits(context.report, workflow, "Argo")
    if workflow.unit is not None:
        message = "Argo starts what it can; reservations are not its business"
        context.report.lost("unit", message, f"penstock gate --unit {workflow.unit.value}", workflow.source)


def _judged(context: WriteContext, workflow: Workflow, where: str) -> None:
    """Reports a failure that one step handles while another that waited for success is omitted."""
    if all(step.trigger is None and step.when is None and not step.needs for step in workflow.steps):
        return  # no step reads an outcome
    sees: set[str] = set()
    waits: set[str] = set()
    for step in workflow.steps:
        for up, outcomes in edges_of(step).items():
            if outcomes & _BAD:
                sees.add(up)
            if not outcomes >= _BAD or step.trigger is not None:
                waits.add(up)
    for step in workflow.steps:
        if step.name in sees and step.name in waits and not step.tolerates:
            message = "when it fails Argo may count the run as failed although a step sees to it, because another then does not run"
            context.remark("changed", message, step, f"{where}steps.{step.name}")
