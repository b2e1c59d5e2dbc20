"""The Report and the problems of an Argo document. Every part of the Argo reader adds to it.

A template is read once for each step that calls it, so a remark may come many times; it is kept once. Problems are collected, so that a file
with five mistakes can be fixed at once.
"""

from __future__ import annotations

from penstock.errors import InvalidWorkflow, Problem
from penstock.formats.documents import Document
from penstock.formats.report import Kind, Report
from penstock.graph.limits import MOST_PROBLEMS


class ReadNotes:
    """Remarks and problems, each once."""

    def __init__(self) -> None:
        self.report = Report()
        self.problems: list[Problem] = []
        self._said: set[tuple[str, str, str, str]] = set()

    def wrong(self, document: Document, path: str, code: str, message: str, fix: str) -> None:
        key = ("wrong", document.file, path, message)
        if key not in self._said and len(self.problems) < MOST_PROBLEMS:
            self._said.add(key)
            self.problems.append(document.problem(code, path, message, fix))

    def kept(self, document: Document, path: str, message: str) -> None:
        self._add("kept", document, path, message, "")

    def changed(self, document: Document, path: str, message: str, near: str = "") -> None:
        self._add("changed", document, path, message, near)

    def lost(self, document: Document, path: str, message: str, near: str = "") -> None:
        self._add("lost", document, path, message, near)

    def _add(self, kind: Kind, document: Document, path: str, message: str, near: str) -> None:
        key = (kind, document.file, path, message)
        if key not in self._said:
            self._said.add(key)
            self.report.add(kind, path, message, near, document.source(path))

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise InvalidWorkflow(self.problems)
