"""Text (YAML or JSON) -> Kubernetes documents, each with its position in the file. Called by read.manifest.

A file may hold several documents, and a document may be a list of documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import DocumentError, Problem, Source
from penstock.graph.text import Marks, read_all_yaml, read_json

LIMIT = 50
"""The most problems that are reported at a time."""
_SHORT = 2_000_000
"""JSON of up to this many characters is read a second time, as YAML, to know the lines of its fields."""


@dataclass(frozen=True, slots=True)
class KueueDocument:
    data: Any
    marks: Marks
    path: str
    """Where it begins in the file: `$`, or `$.items[3]`."""

    @property
    def api(self) -> str:
        return self._text(self.data, "apiVersion")

    @property
    def kind(self) -> str:
        return self._text(self.data, "kind")

    @property
    def name(self) -> str:
        return self._text(self._part("metadata"), "name")

    @property
    def namespace(self) -> str:
        return self._text(self._part("metadata"), "namespace") or "default"

    @property
    def spec(self) -> dict[str, Any]:
        return self._part("spec")

    @property
    def status(self) -> dict[str, Any]:
        return self._part("status")

    def _part(self, name: str) -> dict[str, Any]:
        found = self.data.get(name) if isinstance(self.data, dict) else None
        return found if isinstance(found, dict) else {}

    @staticmethod
    def _text(data: Any, name: str) -> str:
        found = data.get(name) if isinstance(data, dict) else None
        return found if isinstance(found, str) else ""


def documents(text: str, file: str) -> list[KueueDocument]:
    """Raises DocumentError if the text is neither YAML nor JSON. Empty documents are omitted."""
    text = text.removeprefix("\ufeff")
    return [found for data, marks in _parsed(text, file) for found in _flat(data, marks, "$")]


def _parsed(text: str, file: str) -> list[tuple[Any, Marks]]:
    if text.lstrip()[:1] not in ("{", "["):
        return read_all_yaml(text, file)
    try:
        data, _ = read_json(text, file)
    except DocumentError as wrong:
        # `{a: 1}` is YAML but not JSON.
        try:
            return read_all_yaml(text, file)
        except DocumentError:
            raise wrong from None
    marks: Marks = {}
    if len(text) <= _SHORT:
        with suppress(DocumentError):
            marks = next((marks for _, marks in read_all_yaml(text, file)), {})
    return [(data, marks)]


def _flat(data: Any, marks: Marks, path: str) -> Iterator[KueueDocument]:
    if data is None:
        return
    if isinstance(data, list):
        listed, under = data, path
    elif isinstance(data, dict) and str(data.get("kind")).endswith("List") and isinstance(data.get("items"), list):
        listed, under = data["items"], f"{path}.items"
    else:
        yield KueueDocument(data, marks, path)
        return
    for at, item in enumerate(listed):
        yield from _flat(item, marks, f"{under}[{at}]")


@dataclass(slots=True)
class ManifestReport:
    """The problems of a file: errors and warnings."""

    file: str
    lines: list[str]
    problems: list[Problem] = field(default_factory=list)
    errors: int = 0

    def add(
        self, code: str, document: KueueDocument, path: str, message: str, fix: str, *, warning: bool = False
    ) -> None:
        """`path` is relative to the document: `$.spec.cohortName`."""
        self.errors += not warning
        if len(self.problems) >= LIMIT:
            return
        who = f"{document.kind}/{document.name}" if document.name else document.kind
        field_path = path.removeprefix("$").removeprefix(".")
        where = f"{who} {field_path}".strip()
        source = self.source(document, path)
        excerpt = self.lines[source.line - 1][:200] if 0 < source.line <= len(self.lines) else ""
        self.problems.append(
            Problem(
                code,
                message,
                fix,
                where=where[:300],
                source=source,
                excerpt=excerpt,
                severity="warning" if warning else "error",
            )
        )

    def source(self, document: KueueDocument, path: str) -> Source:
        """The line of the field, or of the nearest field around it."""
        at = document.path + path.removeprefix("$")
        while at and at not in document.marks:
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        line, column = document.marks.get(at, (1, 0))
        return Source(self.file, line, column)
