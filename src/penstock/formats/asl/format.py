"""Amazon States Language as a format. Loaded by formats.registry."""

from __future__ import annotations

from penstock.formats.base import Format, Read, Written
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.graph.model import Workflow


def _detect(document: Document) -> int | None:
    """A machine says neither apiVersion nor kind: it is known by where it starts."""
    data = document.data
    if "apiVersion" in data or "kind" in data:
        return None
    return 0 if "States" in data and ("StartAt" in data or isinstance(data["States"], dict)) else None


def _vet(document: Document, report: Report) -> None:
    """Reading refuses what Step Functions refuses; nothing is left to say here."""


def _read(library: Library, document: Document) -> Read:
    from penstock.formats.asl.read.machine import read_machine

    return read_machine(library, document)


def _plain(library: Library, document: Document) -> Read:
    from penstock.formats.asl.read.plain import read_plain

    return read_plain(library, document)


def _write(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    from penstock.formats.asl.write.machine import write_machine

    return write_machine(workflow, bundle=bundle)


FORMAT = Format(
    name="asl",
    detect=_detect,
    beside=("StateMachineResources",),
    vet=_vet,
    read=_read,
    plain=_plain,
    write=_write,
)
