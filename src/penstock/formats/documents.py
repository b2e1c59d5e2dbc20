"""Foreign documents as they were written, with the line of every value. Called by every reader.

The data of a document is never changed. Several documents that may refer to one another (a file with `---`, a folder) are a Library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.errors import Problem, Source
from penstock.graph.text import Marks, read_all_yaml, read_json


@dataclass(frozen=True)
class Document:
    """One document."""

    data: Mapping[str, Any]
    file: str = "<text>"
    marks: Marks = field(default_factory=dict, repr=False, compare=False)
    repeated: tuple[tuple[int, str], ...] = field(default=(), compare=False)
    """(line, path) of keys that occur twice; as in Kubernetes the last one counts."""

    @property
    def api(self) -> str:
        return str(self.data.get("apiVersion") or "")

    @property
    def group(self) -> str:
        """`tekton.dev` of `tekton.dev/v1`; empty for Kubernetes' own."""
        return self.api.rpartition("/")[0]

    @property
    def kind(self) -> str:
        return str(self.data.get("kind") or "")

    @property
    def metadata(self) -> Mapping[str, Any]:
        return part(self.data, "metadata")

    @property
    def spec(self) -> Mapping[str, Any]:
        return part(self.data, "spec")

    @property
    def name(self) -> str:
        """metadata.name, or generateName without the dash at its end; of what has neither kind nor metadata, that of its file."""
        found = self.metadata.get("name") or self.metadata.get("generateName") or ""
        if not found and not self.data.keys() & {"apiVersion", "kind", "metadata"}:
            return self.file.rpartition("/")[2].partition(".")[0]
        return found.rstrip("-") if isinstance(found, str) else ""

    @property
    def namespace(self) -> str:
        found = self.metadata.get("namespace")
        return found if isinstance(found, str) else ""

    def source(self, path: str = "") -> Source:
        """The line of `spec.templates[0].name`, or of the nearest known value around it."""
        at = f"$.{path}" if path and not path.startswith("[") else f"${path}"
        while at not in self.marks and at != "$":
            at = at[: max(at.rfind("."), at.rfind("["))] or "$"
        line, column = self.marks.get(at, (1, 0))
        return Source(self.file, line, column)

    def problem(self, code: str, path: str, message: str, fix: str) -> Problem:
        return Problem(code, message, fix, where=path, source=self.source(path))


def part(data: Any, *names: str) -> Mapping[str, Any]:
    """A mapping inside mappings; empty if there is none."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def items(data: Any, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The mappings in a list, with their numbers; everything else is skipped (schema.check reports it)."""
    found = data.get(name) if isinstance(data, Mapping) else None
    for number, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, Mapping):
            yield number, item


@dataclass(frozen=True)
class Library:
    """Documents that may refer to one another."""

    documents: tuple[Document, ...]

    @cached_property
    def _index(self) -> dict[tuple[str, str], Document]:
        found: dict[tuple[str, str], Document] = {}
        for document in self.documents:
            found.setdefault((document.kind, document.name), document)
        return found

    def find(self, kind: str, name: str) -> Document | None:
        """The first of this kind and name. Namespaces are ignored: the documents of one folder belong together."""
        return self._index.get((kind, name))

    def of_kind(self, *kinds: str) -> list[Document]:
        return [document for document in self.documents if document.kind in kinds]


def read_text(text: str, file: str) -> list[Document]:
    """YAML, one or several documents, or JSON. Empty documents are left out. Raises DocumentError."""
    text = text.removeprefix("\ufeff")
    repeated: list[tuple[int, str]] = []
    if text.lstrip()[:1] in ("{", "["):
        data, marks = read_json(text, file)
        read = [(one, marks) for one in (data if isinstance(data, list) else [data])]
    else:
        read = read_all_yaml(text, file, repeated)
    found = []
    for data, marks in read:
        if isinstance(data, Mapping) and data.get("kind") == "List" and isinstance(data.get("items"), list):
            for number, item in enumerate(data["items"]):
                if isinstance(item, Mapping):
                    found.append(Document(item, file, _below(marks, f"$.items[{number}]")))
        elif data is not None:
            found.append(Document(data if isinstance(data, Mapping) else {}, file, marks, tuple(repeated)))
            repeated = []
    return found


def _below(marks: Marks, prefix: str) -> Marks:
    return {f"${path[len(prefix) :]}": mark for path, mark in marks.items() if path.startswith(prefix)}


def library(texts: Iterable[tuple[str, str]]) -> Library:
    """(file, text) of each file. Raises DocumentError."""
    return Library(tuple(document for file, text in texts for document in read_text(text, file)))
