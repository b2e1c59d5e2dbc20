"""A document that is being read: typed access to its fields, the report, and the problems found. Called by the readers of JobSets,
Jobs and pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.errors import DocumentError, Problem
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.formats.values import brief, scalar
from penstock.graph.limits import MOST_PROBLEMS

LARGEST: Final = 2**31 - 1
"""The largest count that Kubernetes accepts."""


class DocumentReader:
    """Reads the fields of a document and collects the report and the problems."""

    def __init__(self, library: Library, document: Document) -> None:
        self.library = library
        self.document = document
        self.report = Report()
        self.problems: list[Problem] = []

    def wrong(self, code: str, path: str, message: str, fix: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(self.document.problem(code, path.lstrip("."), message, fix))

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise DocumentError(self.problems)

    def kept(self, path: str, message: str = "handed on as it is") -> None:
        self.report.kept(path, message, self.document.source(path))

    def changed(self, path: str, message: str, near: str = "") -> None:
        self.report.changed(path, message, near, self.document.source(path))

    def lost(self, path: str, message: str, near: str = "") -> None:
        self.report.lost(path, message, near, self.document.source(path))

    def whole(self, data: Mapping[str, Any], name: str, path: str, least: int = 0) -> int | None:
        """A whole number, or None if absent; a Problem if it is something else."""
        value = data.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            said = f"{name} is {brief(value)}"
            self.wrong("P835", f"{path}.{name}", said, f"give a whole number from {least} to {LARGEST}")
            return None
        return value

    def text(self, data: Mapping[str, Any], name: str, path: str) -> str:
        """A text, empty if absent; a Problem if it is something else."""
        value = data.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not text", "put it in quotes")
        return ""

    def mapping(self, data: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
        value = data.get(name)
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not a mapping", "give its fields")
        return {}

    def members(self, data: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """(path, mapping) for each item of a list; a Problem for every other item."""
        value = data.get(name)
        if value is not None and not isinstance(value, list):
            self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not a list", "give a list")
            return
        for number, item in enumerate(value or ()):
            here = f"{path}.{name}[{number}]"
            if isinstance(item, Mapping):
                yield here, item
            else:
                self.wrong("P835", here, f"this is {brief(item)}, not a mapping", "give its fields")

    def words(self, data: Mapping[str, Any], name: str, path: str) -> list[str]:
        value = data.get(name)
        if value is None:
            return []
        if isinstance(value, list) and not any(isinstance(one, list | Mapping) for one in value):
            return list(map(scalar, value))
        self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not a list of words", "give a list of texts")
        return []
