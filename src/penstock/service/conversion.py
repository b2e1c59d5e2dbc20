"""Workflows and manifests in another format, and gates in manifests. Called by the commands convert, gate and ungate, and by the
runners for clusters.

What a format cannot express is in the report of the conversion; if a workflow cannot be written at all, UserError is raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import DocumentError, InvalidWorkflow, Problem, UserError, nearest
from penstock.formats import registry
from penstock.formats.report import Report, joined
from penstock.service import workflows
from penstock.service.manifests import DOCUMENTS, is_penstock, library_of, read_document, read_workflow, with_neighbours
from penstock.service.sizing import with_endings

if TYPE_CHECKING:
    from penstock.formats.base import Written
    from penstock.formats.documents import Document, Library
    from penstock.graph.model import Workflow

TARGETS = ("argo", "tekton", "jobset", "job", "asl", "penstock", "python", "mermaid", "dot")
"""For the help. Formats of other packages come on top: see formats.registry."""
OPENING = "something must open these gates, or the workflow waits for ever. penstock gate --help says how; a cluster with the controller of Penstock needs no gates written: it queues what has the label"
"""For everything that Kueue does not open by itself."""
IDLE = "nothing here asks for resources (requests of cpu, memory, …), so nothing waits: there are no gates"
OWN = ("penstock", "python", "mermaid", "dot")
"""Targets that are no foreign format."""


@dataclass(slots=True)
class Conversion:
    text: str
    report: Report = field(default_factory=Report)
    notes: tuple[str, ...] = ()
    """What the user must know besides."""


# -- convert ----------------------------------------------------------------------------------------------------------


def convert(target: str, to: str) -> Conversion:
    """A workflow, or a file or folder of manifests, in another format. Raises UserError."""
    known = TARGETS if to in TARGETS else (*registry.writable(), *OWN)
    if to not in known:
        fix = f"use one of {', '.join(known)}.{nearest(to, known)}"
        raise UserError(Problem("P838", f"{to!r} is not a format", fix))
    path, name = workflows.existing(target)
    ours = path.suffix not in DOCUMENTS or is_penstock(read_document(path))
    return write(workflows.load(target), to) if ours and not path.is_dir() else _convert_manifests(path, name, to)


def _convert_manifests(path: Path, name: str | None, to: str) -> Conversion:
    own = library_of(path)
    if name is None and to not in OWN and own.documents and not any(map(registry.format_of, own.documents)):
        return _unchanged(own, None)  # a ConfigMap or a queue is the same for every system
    chosen = [registry.root(own, name, str(path))] if name is not None else _all(own, path, to)
    if {registry.format_of(document) for document in chosen} == {to}:
        return _unchanged(own, chosen if name is not None else None)
    library = with_neighbours(own, path)
    loaded = [read_workflow(library, document, plain=to not in OWN) for document in chosen]
    written = [write(one.workflow, to) for one in loaded]
    reports = [registry.vet(chosen), *(one.report for one in loaded), *(one.report for one in written)]
    report = joined([*reports, *(kept(one.workflow) for one in loaded)])
    return Conversion(_joined_texts([one.text for one in written], to), report)


def _all(library: Library, path: Path, to: str) -> list[Document]:
    """The documents to convert. If they are already in the target's format, this includes templates that nothing runs."""
    known = [document for document in library.documents if registry.format_of(document) == to]
    chosen = registry.roots(library)
    if known and (not chosen or all(document in known for document in chosen)):
        return known
    return chosen or [registry.root(library, None, str(path))]


def _unchanged(library: Library, chosen: list[Document] | None) -> Conversion:
    """The documents as they are. The report lists only what the owning project would not accept."""
    from penstock.formats.yaml_writer import dump_all

    documents = list(library.documents) if chosen is None else chosen
    report = registry.vet(documents)
    for document in documents:
        report.kept("", f"{document.kind} {document.name}: every field, as it is", document.source())
    return Conversion(dump_all([document.data for document in documents]), report)


def kept(workflow: Workflow) -> Report:
    """The steps that were converted, each with the place where it was written."""
    report = Report()
    for one in (workflow, *workflow.definitions):
        prefix = "" if one is workflow else f"definitions.{one.name}."
        for step in (*one.steps, *one.on_exit):
            report.kept(f"{prefix}steps.{step.name}", f"a {step.action.kind} step", step.source)
    return report


def _joined_texts(texts: list[str], to: str) -> str:
    between = "---\n" if to == "penstock" or to not in OWN else "\n"
    return between.join(text if text.endswith("\n") else text + "\n" for text in texts)


# -- write ------------------------------------------------------------------------------------------------------------


def write(workflow: Workflow, to: str) -> Conversion:
    """A workflow as text (`to`: a format, or one of OWN). Raises UserError."""
    if to not in OWN:
        from penstock.formats.yaml_writer import dump_all

        written = render(workflow, to)
        return Conversion(dump_all(written.documents), written.report)
    _check(workflow)
    if to == "penstock":
        from penstock.graph.codec import to_yaml

        return Conversion(to_yaml(workflow))
    if to == "python":
        from penstock.author.explain import explain

        return Conversion(explain(workflow))
    from penstock.drawing import text

    return Conversion({"mermaid": text.mermaid, "dot": text.dot}[to](workflow))


def render(workflow: Workflow, to: str) -> Written:
    """The documents of a workflow in a foreign format. Raises UserError with every step that cannot be expressed there."""
    _check(workflow)
    report = Report()
    if to == "argo":
        workflow = with_endings(workflow, report)
    for one in (workflow, *workflow.definitions):
        for step in (*one.steps, *one.on_exit):
            if step.resources_by:
                said = f"{step.name} always asks for the most, not for what the run finds"
                report.lost(f"steps.{step.name}.resources_by", said, source=step.source)
    written = registry.write(workflow, to, _bundle(workflow))
    written.report.extend(report)
    return written


def _check(workflow: Workflow) -> None:
    from penstock.graph.check import errors

    problems = errors(workflow)
    if problems:
        raise InvalidWorkflow(problems)


def _bundle(workflow: Workflow) -> bytes | None:
    """The author's code that the manifests carry. None: there is none, or it cannot be packed. Empty: the image must have it."""
    from penstock.graph.model import Function

    steps = (step for one in (workflow, *workflow.definitions) for step in (*one.steps, *one.on_exit))
    if not any(isinstance(step.action, Function) for step in steps):
        return None
    from penstock.author.capture import function_keys, live_functions
    from penstock.author.pack import pack

    packed = pack(workflow)
    if packed is None and set(function_keys(workflow)) <= set(live_functions(workflow)):
        return b""  # all of it comes from installed packages
    return None if packed is None else packed[0]


# -- gates ------------------------------------------------------------------------------------------------------------


def gate(target: str, unit: str, by: str) -> Conversion:
    """Manifests that wait in a queue before each of their stages. Raises UserError."""
    from penstock.formats.gates.documents import gate_documents
    from penstock.formats.gates.marks import is_gated

    path, _ = workflows.existing(target)
    library = _manifests(path)
    problems = registry.refused(library.documents)
    if problems:
        raise DocumentError(problems)
    written = gate_documents(with_neighbours(library, path), unit, by)
    found = _dumped(written, len(library.documents))
    if not any(map(is_gated, written.documents[: len(library.documents)])):
        found.notes = (IDLE,)
    waits = [document for document in library.documents if document.kind not in ("JobSet", "Job") or by == "pods"]
    if waits and not found.notes and any(entry.kind == "changed" for entry in found.report.entries):
        found.notes = (OPENING,)
    return found


def ungate(target: str) -> Conversion:
    """Removes what `gate` added. Raises UserError."""
    from penstock.formats.gates.documents import ungate_documents

    library = _manifests(workflows.existing(target)[0])
    return _dumped(ungate_documents(library), len(library.documents))


def _manifests(path: Path) -> Library:
    if path.suffix == ".py":
        message = f"{path} is Python, and gates are put into manifests"
        raise UserError(Problem("P837", message, f"penstock convert {path} --to argo"))
    library = library_of(path)
    if not registry.is_foreign(library):
        raise DocumentError(registry.nothing(library, str(path)))
    return library


def _dumped(written: Written, own: int) -> Conversion:
    """The first `own` documents: those of the file itself, without the neighbours that were read with it."""
    from penstock.formats.yaml_writer import dump_all

    return Conversion(dump_all(written.documents[:own]), written.report)
