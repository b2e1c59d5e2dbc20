"""Formats by name and by document, and which of several documents is the workflow. The only module that names concrete formats.
Called by service, runners and the gates.

Formats of others are found by the entry point `penstock.formats` (see base). A file or folder may hold several documents: runs, the
templates they refer to, config maps. What is run is the most concrete of them: a Workflow before a WorkflowTemplate, a PipelineRun
before a Pipeline, and of two alike the one that is asked for by name.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from penstock.errors import DocumentError, NotFound, Problem, UserError, nearest
from penstock.formats import metadata
from penstock.formats.base import Format, Read, RunWatch, TraceFormat, Written
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.formats.status import Status
from penstock.formats.vetting import vet_schema
from penstock.graph.model import Workflow

GROUP: Final = "penstock.formats"
"""The entry point of formats that are not ours."""
OURS: Final[Mapping[str, str]] = {
    "argo": "argo.format:FORMAT",
    "tekton": "tekton.format:FORMAT",
    "jobset": "kubernetes.format:JOBSET",
    "job": "kubernetes.format:JOB",
    "wfformat": "wfformat.format:FORMAT",
    "asl": "asl.format:FORMAT",
}
"""Our own. They are found without the metadata of all installed packages, which takes longer to read than most documents."""


# -- formats ----------------------------------------------------------------------------------------------------------


def find_format(name: str) -> Format:
    """Raises UserError if there is none of that name."""
    known = {one.name: one for one in (_ours() if name in OURS else every_format())}
    if name not in known:
        raise UserError(
            Problem("P838", f"{name!r} is not a format", f"use one of {', '.join(known)}.{nearest(name, known)}")
        )
    return known[name]


def every_format() -> tuple[Format, ...]:
    """Ours, and those that other packages have installed."""
    return (*_ours(), *_others())


@cache
def _ours() -> tuple[Format, ...]:
    return tuple(map(_load, OURS.values()))


def _load(place: str) -> Format:
    module, _, name = place.partition(":")
    found: Format = getattr(importlib.import_module(f"penstock.formats.{module}"), name)
    return found


@cache
def _others() -> tuple[Format, ...]:
    from importlib.metadata import entry_points  # takes long to read, and our own do not need it

    return tuple(point.load() for point in entry_points(group=GROUP) if point.name not in OURS)


def writable() -> list[str]:
    """The formats that a workflow can be written in."""
    return [one.name for one in every_format() if one.write is not None]


def format_for(document: Document) -> Format | None:
    """The format of a document; None for what is of none, such as a ConfigMap."""
    found = _ranked(document)
    return None if found is None else found[0]


def format_of(document: Document) -> str:
    """The name of its format; empty for what is of none."""
    found = format_for(document)
    return "" if found is None else found.name


def _ranked(document: Document) -> tuple[Format, int] | None:
    """The format of a document, and how far it is from a run."""
    for one in _candidates(document):
        rank = one.kinds.get(document.group, {}).get(document.kind)
        if rank is None and one.detect is not None:
            rank = one.detect(document)
        if rank is not None:
            return one, rank
    return None


def _candidates(document: Document) -> Iterator[Format]:
    yield from _ours()
    if document.api != "v1":  # Kubernetes' own kinds are nobody else's
        yield from _others()


def detects() -> bool:
    """Is there a format that recognises documents without apiVersion?"""
    return any(one.detect is not None for one in every_format())


def is_foreign(library: Library) -> bool:
    """Is there anything in it that a format knows, or that belongs to the project of one?"""
    return any(format_of(document) or _known_group(document) for document in library.documents)


def _known_group(document: Document) -> bool:
    return any(document.group in one.kinds for one in _candidates(document))


# -- the workflow of several documents --------------------------------------------------------------------------------


def roots(library: Library) -> list[Document]:
    """The documents that stand for themselves: the most concrete ones."""
    ranked = [
        (found[1], document)
        for document in library.documents
        if (found := _ranked(document)) is not None and found[0].starts(document)
    ]
    least = min((rank for rank, _ in ranked), default=0)
    # A file may hold a JobSet and a Workflow beside one another; runs of all formats are alike.
    return [document for rank, document in ranked if rank == least]


def root(library: Library, name: str | None, file: str) -> Document:
    """The workflow of a file, or the one called `name`. Raises DocumentError, NotFound."""
    if name is not None:
        known = {document.name: document for document in library.documents if format_of(document)}
        if name not in known:
            fix = f"known: {', '.join(known) or 'none'}.{nearest(name, known)}"
            raise NotFound(Problem("P303", f"there is no workflow {name!r} in {file}", fix))
        return known[name]
    found = roots(library)
    if not found:
        raise DocumentError(nothing(library, file))
    if len(found) > 1:
        names = [document.name for document in found]
        twice = len(set(names)) < len(names)
        fix = "give them different names" if twice else f"say which: {file}:{names[0]}"
        shown = f"{', '.join(names[:10])}{' …' if len(names) > 10 else ''}"
        message = f"there are {len(found)} workflows in {file}: {shown}"
        raise DocumentError(Problem("P831", message, fix, source=found[1].source("kind")))
    return found[0]


def nothing(library: Library, file: str) -> Problem:
    """Why there is nothing to run in these documents."""
    kinds = sorted({f"{document.kind or 'no kind'}" for document in library.documents})
    ours = [document for document in library.documents if document.group == "penstock"]
    if ours:
        return Problem("P502", f"{file} is a folder with Penstock documents", f"name one of its files: {ours[0].file}")
    first = next((document for document in library.documents if format_of(document)), None)
    if first is not None:
        return Problem(
            "P830",
            f"there is nothing to run in {file}: its templates name no entrypoint",
            "run a Workflow that refers to it, or give it spec.entrypoint",
            source=first.source("spec"),
        )
    known = ", ".join(kind for one in every_format() for kinds_of in one.kinds.values() for kind in kinds_of)
    source = library.documents[0].source("kind") if library.documents else None
    return Problem(
        "P830",
        f"there is no workflow in {file}; it holds {', '.join(kinds[:8]) or 'nothing'}",
        f"give a file with one of {known}, or a Penstock workflow",
        source=source,
    )


def unresolved(library: Library) -> set[tuple[str, str]]:
    """(kind, name) of documents that are referred to and not there. They may be in files beside these."""
    beside = {
        (kind, "")
        for document in library.documents
        if (known := format_for(document)) is not None
        for kind in known.beside
        if not library.of_kind(kind)
    }
    return beside | {
        (kind, name)
        for document in library.documents
        if (known := format_for(document)) is not None
        for kind, name in _references(document.data, known.references)
        if library.find(kind, name) is None
    }


def _references(data: Any, kind_of: Callable[[str, Mapping[str, Any]], str]) -> Iterator[tuple[str, str]]:
    """In every map of a document. Documents are dicts and lists, as read; asking for Mapping takes ten times as long."""
    rest = [data]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            for key, value in one.items():
                if isinstance(value, dict):
                    name = value.get("name") or value.get("secretName")
                    kind = kind_of(str(key), value) if isinstance(name, str) else ""
                    if kind:
                        yield kind, str(name)
                    rest.append(value)
                elif isinstance(value, list):
                    rest.append(value)
        elif isinstance(one, list):
            rest += one


# -- what a format does -----------------------------------------------------------------------------------------------


def read(library: Library, document: Document, plain: bool = False) -> Read:
    """The workflow that a document describes; `plain`: for other systems. Raises UserError with every problem found."""
    known = format_for(document)
    if known is None or known.read is None:
        raise DocumentError(nothing(Library((document,)), document.file))
    found = (known.plain if plain and known.plain is not None else known.read)(library, document)
    workflow = dataclasses.replace(found.workflow, extra={**found.workflow.extra, "format": known.name})
    return Read(workflow, found.report)


def write(workflow: Workflow, to: str, bundle: bytes | None = None) -> Written:
    """The documents of a workflow. Raises UserError with every step that the format cannot express."""
    known = find_format(to)
    if known.write is None:
        names = writable()
        raise UserError(
            Problem(
                "P838", f"a workflow cannot be written as {to}", f"use one of {', '.join(names)}.{nearest(to, names)}"
            )
        )
    return known.write(workflow, bundle=bundle)


def vet(documents: Sequence[Document]) -> Report:
    """What the documents' own projects would not take, each with its line: misspelt fields above all."""
    report = Report()
    for document in documents:
        known = format_for(document)
        (vet_schema if known is None or known.vet is None else known.vet)(document, report)
        for one in metadata.refused(document):  # not lost: it is written as it is
            report.changed(one.where, f"{one.message} ({one.code})", f"{one.fix[:1].upper()}{one.fix[1:]}.", one.source)
    return report


def refused(documents: Sequence[Document]) -> list[Problem]:
    """What Kubernetes' API server would refuse of the documents of all formats, whatever their project says."""
    return [one for document in documents if format_of(document) for one in metadata.refused(document)]


def status_of(data: Mapping[str, Any]) -> Status:
    """The state of a submitted run, from the object as the cluster shows it."""
    return watch_of(data).status(data)


def watch_of(data: Mapping[str, Any]) -> RunWatch:
    """How an object of this kind is followed."""
    kind = data.get("kind")
    for one in every_format() if data.get("apiVersion") not in (None, "") else _ours():
        if one.watch is not None and any(kind in kinds for kinds in one.kinds.values()):
            return one.watch
    raise LookupError(f"no format follows a {kind}")


def trace_format(text: str) -> TraceFormat | None:
    """The format of a recorded execution; None if the text is none."""
    for one in every_format():
        if one.trace is not None and one.trace.claims(text):
            return one.trace
    return None
