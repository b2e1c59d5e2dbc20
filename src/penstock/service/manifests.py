"""Manifests of Argo, Tekton, JobSet and Kubernetes: from files to documents and workflows. Called by `workflows`, `conversion` and the
run command.

What a file refers to and does not contain is searched in the files beside it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from penstock.errors import DocumentError, NotFound, Problem, UserError
from penstock.formats import registry
from penstock.formats.documents import Document, Library, read_text
from penstock.formats.report import Entry, Report
from penstock.graph.model import Workflow
from penstock.graph.text import check_size, refuse

DOCUMENTS = (".yaml", ".yml", ".json")
MOST_FILES = 2_000
LARGEST_NEIGHBOUR = 4 * 2**20
"""Bytes. Larger files are not searched for a missing reference."""
_PENSTOCK = re.compile(r"(?:^|[{,])\s*[\"']?apiVersion[\"']?\s*:\s*[\"']?penstock/", re.M)


@dataclass(frozen=True, slots=True)
class ForeignWorkflow:
    """A workflow that was read from a manifest of another system."""

    workflow: Workflow
    report: Report


def is_penstock(text: str) -> bool:
    """Is this a Penstock document? Only its beginning is searched."""
    return _PENSTOCK.search(text[:65_536]) is not None


def is_foreign(text: str, file: str) -> bool:
    """Is a text that is not Penstock's own in a foreign format? Most have an apiVersion; the others are recognised by their content."""
    if "apiVersion" in text:
        return True
    try:
        return registry.detects() and registry.is_foreign(Library(_documents(text, file)))
    except UserError:
        return False


def read_document(path: Path) -> str:
    """Raises UserError."""
    try:
        check_size(path.stat().st_size, str(path))
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"not text: {error.reason} at byte {error.start}"
        raise refuse("P102", message, "save the file as UTF-8", str(path)) from None
    except OSError as error:
        message = f"{str(path)!r} cannot be read: {error.strerror}"
        raise NotFound(Problem("P501", message, "check the file's permissions")) from None


def library_of(path: Path) -> Library:
    """The documents of a file, or of a folder and all folders below it. Raises UserError."""
    if not path.is_dir():
        return Library(_documents(read_document(path), str(path)))
    files = _files(path)
    if not files:
        raise NotFound(Problem("P501", f"there is no YAML or JSON in {str(path)!r}", "give a folder with manifests"))
    found: list[Document] = []
    problems: list[Problem] = []
    for file in files:
        try:
            found += read_text(read_document(file), str(file))
        except UserError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    return Library(tuple(found))


@lru_cache(maxsize=1)
def _documents(text: str, file: str) -> tuple[Document, ...]:
    """Cached for one file: a command asks which workflows it contains and then for one of them."""
    return tuple(read_text(text, file))


def _files(folder: Path) -> list[Path]:
    found = sorted(one for one in folder.rglob("*") if one.suffix in DOCUMENTS and one.is_file())
    if len(found) > MOST_FILES:
        raise UserError(Problem("P502", f"{len(found):,} documents in {str(folder)!r}", "name a smaller folder"))
    return found


def with_neighbours(library: Library, path: Path) -> Library:
    """Adds documents from the files beside `path` if it refers to something that it does not contain. Unreadable neighbours are
    ignored."""
    wanted = set() if path.is_dir() else registry.unresolved(library)
    if not wanted:
        return library
    return Library((*library.documents, *_beside(path, wanted)))


def _beside(path: Path, wanted: set[tuple[str, str]]) -> Iterator[Document]:
    """All documents of each file in the same folder, or below it, that has a document of a wanted kind and name."""
    names = {name for _, name in wanted}
    for file in sorted(itertools.islice(path.parent.rglob("*"), MOST_FILES)):
        if file.suffix in DOCUMENTS and file != path and file.is_file():
            try:
                text = file.read_text(encoding="utf-8-sig") if file.stat().st_size <= LARGEST_NEIGHBOUR else ""
                if any(name in text for name in names):
                    found = read_text(text, str(file))
                    if any((one.kind, one.name) in wanted for one in found):
                        yield from found
            except (UserError, OSError, UnicodeDecodeError):
                continue


def unknown_fields(path: Path) -> list[Entry]:
    """What the owning project would not accept in these manifests."""
    return registry.vet(library_of(path).documents).of("lost")


def refused(path: Path, name: str | None = None) -> list[Problem]:
    """What the API server would refuse of the workflow in this file or folder. Raises UserError."""
    return registry.refused([registry.root(library_of(path), name, str(path))])


def names_in(path: Path) -> list[str]:
    """The workflows of a file or folder. Raises UserError."""
    return [document.name for document in registry.roots(library_of(path))]


def load(path: Path, name: str | None = None) -> ForeignWorkflow:
    """The one workflow of a file or folder, or the one called `name`. Raises UserError."""
    own = library_of(path)
    return read_workflow(with_neighbours(own, path), registry.root(own, name, str(path)))


def read_workflow(library: Library, document: Document, plain: bool = False) -> ForeignWorkflow:
    """`plain`: as other systems can have it."""
    found = registry.read(library, document, plain)
    return ForeignWorkflow(found.workflow, found.report)


def unrunnable(workflow: Workflow) -> Iterable[Problem]:
    """A problem for each step that this machine cannot run. `--dry` skips over them."""
    for one in (workflow, *workflow.definitions):
        for step in (*one.steps, *one.on_exit):
            why = step.extra.get("unrunnable")
            if why:
                yield Problem(
                    "P836",
                    f"the step {step.name!r} cannot be run here: {why}",
                    "run it on its cluster, or walk through it here with --dry",
                    where=f"steps.{step.name}",
                    source=step.source,
                )
