"""Any Workflow -> Argo documents that say the same. Called by service.foreign for `penstock convert --to argo` and by ArgoRunner.

Steps become tasks of a dag, and whatever steps do becomes templates, shared by all steps that do the same. Values are text there:
text as it is, everything else as JSON. Documents keep to what Argo 4 takes: 200 tasks in a dag, 200 templates and a mebibyte in
an object, names of letters, digits and dashes. A workflow that is larger is cut into dags of dags (argo_out.split), and its
templates go into WorkflowTemplates that the Workflow refers to.

    argo_out.flow     one workflow: its values, its tasks        argo_out.dag, split    edges, clusters, borders
    argo_out.maker    a step's template, and dags around it      argo_out.leaf, pod     what a template does
    argo_out.expr     expressions                                argo_out.items         loops
"""

from __future__ import annotations

from penstock.formats import shim
from penstock.formats.argo_out.book import Book, object_name
from penstock.formats.argo_out.documents import Documents
from penstock.formats.argo_out.flow import Flow, published_names
from penstock.formats.argo_out.slots import Varied, varied
from penstock.formats.argo_out.typing import Typing, refine
from penstock.formats.reading import Written
from penstock.formats.report import Report
from penstock.graph.model import Container, Function, Nested, Outcome, Script, Step, Workflow, edges_of

MANY = 100
"""Different commands that are not yet worth being looked at for what they have in common."""
ENTRY = "main"
EXIT = "exit-handler"
_BAD = frozenset({Outcome.FAILED, Outcome.ERRORED})


def write_argo(workflow: Workflow, *, bundle: bytes | None = None, image: str = shim.IMAGE) -> Written:
    """`bundle`: the author's code, as author.pack makes it; b"" if there is none to be packed. `image`: for functions and scripts
    that name none. Raises UserError with every step that Argo cannot say."""
    shim.require_code(workflow, bundle, "P844")
    report = Report()
    book = Book(report, shim.Bundle.of(bundle), image, object_name(workflow.name, 40))
    documents = Documents(book, workflow)
    if _has_functions(workflow):
        documents.ship(shim.payload(bundle))
    _written(book, workflow)
    _remarks(book, workflow)
    book.stop_if_wrong()
    found = documents.all(ENTRY, EXIT if workflow.on_exit else "")
    book.stop_if_wrong()
    book.report_all()
    return Written(found, report)


def _every(workflow: Workflow) -> list[Step]:
    return [step for one in (workflow, *workflow.definitions) for step in (*one.steps, *one.on_exit)]


def _has_functions(workflow: Workflow) -> bool:
    return any(isinstance(step.action, Function) for step in _every(workflow))


def _written(book: Book, workflow: Workflow) -> None:
    """All templates, into the book."""
    definitions = {one.name: one for one in _reached(workflow)}
    typings = {name: Typing(one, definitions, root=False) for name, one in definitions.items()}
    root = Typing(workflow, definitions, root=True)
    refine([root, *typings.values()], typings)
    alike = _alike(workflow)
    main = Flow(book, root, workflow, book.names.fresh(ENTRY), alike)
    exits = Flow(book, root, workflow, book.names.fresh(EXIT), alike, exits=True) if workflow.on_exit else None
    called = {name: Flow(book, typings[name], one, book.names.fresh(name), alike) for name, one in definitions.items()}
    for name, one in definitions.items():
        if one.on_exit:
            template = book.names.fresh(f"{name}-{EXIT}")
            called[name].handler = Flow(book, typings[name], one, template, alike, exits=True)
    main.published = published_names(workflow)
    if exits is not None:
        exits.published = main.published
    handlers = [flow.handler for flow in called.values() if flow.handler is not None]
    for flow in (*handlers, *called.values(), *((exits,) if exits is not None else ()), main):
        flow.callees = called
        flow.write()


def _reached(workflow: Workflow) -> list[Workflow]:
    """Definitions that are called, those who call before those who are called."""
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
    """Commands that differ in some words, if there are so many that each would be a template."""
    steps = [step for step in _every(workflow) if isinstance(step.action, Container | Script)]
    if len(steps) <= MANY or len({repr(step.action) for step in steps}) <= MANY:
        return {}
    return varied(steps)


def _remarks(book: Book, workflow: Workflow) -> None:
    """What holds for whole workflows and has no place in a template."""
    for one in (workflow, *workflow.definitions):
        where = "" if one is workflow else f"definitions.{one.name}."
        if one is not workflow and one.timeout is not None:
            said = "Argo has no time limit for a call of a workflow"
            book.report.lost(f"{where}timeout", said, "Limit its steps, or the whole.", one.source)
        if one is not workflow and one.locks:
            book.report.lost(f"{where}locks", "a lock of a called workflow is not kept", "Lock its steps.", one.source)
        if one.judged_by == "handled":
            _judged(book, one, where)
    if workflow.unit is not None:
        said = "Argo starts what it can; reservations are not its business"
        book.report.lost("unit", said, f"penstock gate --unit {workflow.unit.value}", workflow.source)


def _judged(book: Book, workflow: Workflow, where: str) -> None:
    """A failure that one step sees to, while another that waited for success is left out."""
    if all(step.trigger is None and step.when is None and not step.needs for step in workflow.steps):
        return  # nobody asks how another ended
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
            said = "when it fails Argo may count the run as failed although a step sees to it, because another then does not run"
            book.remark("changed", said, step, f"{where}steps.{step.name}")
