"""Files of Argo, Tekton, JobSet and Kubernetes: read, converted, gated. Called by service.load and by the commands convert, gate
and ungate.

The only module that knows both the file system and the formats. What a file refers to and does not hold is looked for in the files beside it.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from penstock.errors import DocumentError, InvalidWorkflow, NotFound, Problem, UserError
from penstock.formats import foreign
from penstock.formats.documents import Document, Library, read_text
from penstock.formats.reading import Written
from penstock.formats.report import Entry, Report, joined
from penstock.graph.model import Pod, Workflow
from penstock.graph.text import check_size, refuse

DOCUMENTS = (".yaml", ".yml", ".json")
MANIFESTS = ("argo", "tekton", "jobset", "job")
MOST_FILES = 2_000
MOST_BESIDE = 4 * 2**20
"""Bytes of a neighbour that is looked into for a missing reference."""
_OURS = re.compile(r"(?:^|[{,])\s*[\"']?apiVersion[\"']?\s*:\s*[\"']?penstock/", re.M)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A workflow as it came out of a foreign document."""

    workflow: Workflow
    report: Report
    document: Document


@dataclass(slots=True)
class Conversion:
    text: str
    report: Report = field(default_factory=Report)


def is_ours(text: str) -> bool:
    """Is this a Penstock document, or at least no other's? Looked at without reading it all."""
    return _OURS.search(text[:65_536]) is not None


def text_of(path: Path) -> str:
    """Raises UserError."""
    try:
        check_size(path.stat().st_size, str(path))
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(
            "P102", f"not text: {error.reason} at byte {error.start}", "save the file as UTF-8", str(path)
        ) from None
    except OSError as error:
        raise NotFound(
            Problem("P501", f"{str(path)!r} cannot be read: {error.strerror}", "check the file's permissions")
        ) from None


def library_of(path: Path) -> Library:
    """Of a file or of a folder with all below it. Raises UserError."""
    if not path.is_dir():
        return Library(_documents(text_of(path), str(path)))
    files = _files(path)
    if not files:
        raise NotFound(Problem("P501", f"there is no YAML or JSON in {str(path)!r}", "give a folder with manifests"))
    found: list[Document] = []
    problems: list[Problem] = []
    for file in files:
        try:
            found += read_text(text_of(file), str(file))
        except UserError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    return Library(tuple(found))


@lru_cache(maxsize=1)
def _documents(text: str, file: str) -> tuple[Document, ...]:
    """Kept for one file: a command asks which workflows it holds and then for one of them."""
    return tuple(read_text(text, file))


def _files(folder: Path) -> list[Path]:
    found = sorted(one for one in folder.rglob("*") if one.suffix in DOCUMENTS and one.is_file())
    if len(found) > MOST_FILES:
        raise UserError(Problem("P502", f"{len(found):,} documents in {str(folder)!r}", "name a smaller folder"))
    return found


def with_neighbours(library: Library, path: Path) -> Library:
    """With what lies beside the file, if the file refers to something that is not in it. What cannot be read there is none of it."""
    wanted = set() if path.is_dir() else foreign.unresolved(library)
    if not wanted:
        return library
    return Library((*library.documents, *_beside(path, wanted)))


def _beside(path: Path, wanted: set[tuple[str, str]]) -> Iterator[Document]:
    """Documents of these kinds and names, and what is in the same files with them, from the folder of a file and those below it."""
    names = {name for _, name in wanted}
    for file in sorted(itertools.islice(path.parent.rglob("*"), MOST_FILES)):
        if file.suffix in DOCUMENTS and file != path and file.is_file():
            try:
                text = file.read_text(encoding="utf-8-sig") if file.stat().st_size <= MOST_BESIDE else ""
                if any(name in text for name in names):
                    found = read_text(text, str(file))
                    if any((one.kind, one.name) in wanted for one in found):
                        yield from found
            except (UserError, OSError, UnicodeDecodeError):
                continue


def misspelt(path: Path) -> list[Entry]:
    return foreign.vet(library_of(path).documents).of("lost")


def names_in(path: Path) -> list[str]:
    """The workflows of a file or folder. Raises UserError."""
    return [document.name for document in foreign.roots(library_of(path))]


def load(path: Path, name: str | None = None) -> Loaded:
    """The one workflow of a file or folder, or the one called `name`. Raises UserError."""
    own = library_of(path)
    document = foreign.root(own, name, str(path))
    return _read(with_neighbours(own, path), document)


def _read(library: Library, document: Document) -> Loaded:
    found = foreign.read(library, document)
    return Loaded(found.workflow, found.report, document)


# -- convert ----------------------------------------------------------------------------------------------------------


def convert(path: Path, name: str | None, to: str) -> Conversion:
    """A file or folder of manifests in another format. Raises UserError for what cannot be said there at all."""
    own = library_of(path)
    if name is None and to in MANIFESTS and own.documents and not any(map(foreign.format_of, own.documents)):
        return _as_they_are(own, None)  # a config map, a queue: it goes where the workflow goes
    chosen = [foreign.root(own, name, str(path))] if name is not None else _all(own, path, to)
    if {foreign.format_of(document) for document in chosen} == {to}:
        return _as_they_are(own, chosen if name is not None else None)
    library = with_neighbours(own, path)
    loaded = [_read(library, document) for document in chosen]
    written = [write(one.workflow, to) for one in loaded]
    reports = [foreign.vet(chosen), *(one.report for one in loaded), *(one.report for one in written)]
    report = joined([*reports, *(_kept(one.workflow) for one in loaded)])
    return Conversion(_joined_texts([one.text for one in written], to), report)


def _all(library: Library, path: Path, to: str) -> list[Document]:
    """What a file or folder is about. In its own format everything counts, templates that nobody runs as well."""
    known = [document for document in library.documents if foreign.format_of(document) == to]
    chosen = foreign.roots(library)
    if known and (not chosen or all(document in known for document in chosen)):
        return known
    return chosen or [foreign.root(library, None, str(path))]


def _as_they_are(library: Library, chosen: list[Document] | None) -> Conversion:
    """Nothing is translated, so nothing is lost but what the project itself would not take."""
    from penstock.formats.yaml_out import dump_all

    documents = list(library.documents) if chosen is None else chosen
    report = foreign.vet(documents)
    for document in documents:
        report.kept("", f"{document.kind} {document.name}: every field, as it is", document.source())
    return Conversion(dump_all([document.data for document in documents]), report)


def _kept(workflow: Workflow) -> Report:
    """The steps that came through, each with the place where it was written."""
    report = Report()
    for one in (workflow, *workflow.definitions):
        around = "" if one is workflow else f"definitions.{one.name}."
        for step in (*one.steps, *one.on_exit):
            report.kept(f"{around}steps.{step.name}", f"a {step.action.kind} step", step.source)
    return report


def _joined_texts(texts: list[str], to: str) -> str:
    between = "---\n" if to in (*MANIFESTS, "penstock") else "\n"
    return between.join(text if text.endswith("\n") else text + "\n" for text in texts)


def write(workflow: Workflow, to: str) -> Conversion:
    from penstock.graph.check import errors

    problems = errors(workflow)
    if problems:
        raise InvalidWorkflow(problems)
    if to == "penstock":
        from penstock.graph.codec import to_yaml

        return Conversion(to_yaml(workflow))
    if to == "python":
        from penstock.author.explain import explain

        return Conversion(explain(workflow))
    if to in ("mermaid", "dot"):
        from penstock.formats import draw

        return Conversion({"mermaid": draw.mermaid, "dot": draw.dot}[to](workflow))
    from penstock.formats.yaml_out import dump_all

    written = render(workflow, to)
    return Conversion(dump_all(written.documents), written.report)


def render(workflow: Workflow, to: str) -> Written:
    """The manifests of a workflow. Raises UserError with every step that cannot be said there."""
    bundle = _bundle(workflow)
    if to == "argo":
        from penstock.formats.argo_write import write_argo

        return write_argo(workflow, bundle=bundle)
    if to == "tekton":
        from penstock.formats.tekton_write import write_tekton

        return write_tekton(workflow, bundle=bundle)
    if to == "jobset":
        from penstock.formats.jobset_write import write_jobset

        return write_jobset(workflow, bundle=bundle)
    from penstock.formats.job import write_job

    return write_job(workflow, bundle=bundle)


def _bundle(workflow: Workflow) -> bytes | None:
    from penstock.graph.model import Function

    steps = (step for one in (workflow, *workflow.definitions) for step in (*one.steps, *one.on_exit))
    if not any(isinstance(step.action, Function) for step in steps):
        return None
    from penstock.author.capture import function_keys, live_functions
    from penstock.author.pack import pack

    packed = pack(workflow)
    if packed is None and set(function_keys(workflow)) <= set(live_functions(workflow)):
        return b""  # all of it is installed, and the image must have it too
    return None if packed is None else packed[0]


# -- gates ------------------------------------------------------------------------------------------------------------


def gate(path: Path, unit: str, by: str) -> Conversion:
    from penstock.formats.gating import gate_documents

    library = _manifests(path)
    return _dumped(gate_documents(with_neighbours(library, path), unit, by), len(library.documents))


def ungate(path: Path) -> Conversion:
    from penstock.formats.gating import ungate_documents

    library = _manifests(path)
    return _dumped(ungate_documents(library), len(library.documents))


def _manifests(path: Path) -> Library:
    if path.suffix == ".py":
        raise UserError(
            Problem("P837", f"{path} is Python, and gates are put into manifests", f"penstock convert {path} --to argo")
        )
    library = library_of(path)
    if not foreign.is_foreign(library):
        raise DocumentError(foreign.nothing(library, str(path)))
    return library


def _dumped(written: Written, own: int) -> Conversion:
    """Only the documents of the file itself: its neighbours were read, not asked for."""
    from penstock.formats.yaml_out import dump_all

    return Conversion(dump_all(written.documents[:own]), written.report)


def unrunnable(workflow: Workflow) -> Iterable[Problem]:
    """Steps that stand for something that this machine cannot do; --dry walks over them."""
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


def images_of(workflow: Workflow) -> list[str]:
    """Every image that is named as it is; what is put together at run time is not known yet."""
    found: dict[str, None] = {}
    for one in (workflow, *workflow.definitions):
        for step in (*one.steps, *one.on_exit):
            parts = step.action.parts if isinstance(step.action, Pod) else (step.action,)
            found |= {image: None for each in parts if isinstance(image := getattr(each, "image", None), str)}
    return list(found)


def why_no_images(images: Iterable[str], pulling: Callable[[str], None]) -> str:
    """Why these images cannot be run on this machine; empty if they can. What is not here is fetched; `pulling` is told before."""
    from penstock.backends.container import TOOLS
    from penstock.backends.tools import find, last_line

    tool = find(os.environ, "PENSTOCK_CONTAINER_TOOL", TOOLS)
    if tool is None:
        return "there is no podman or docker here"
    name = os.path.basename(tool[0])
    for image in images:
        if subprocess.run([*tool, "image", "inspect", image], capture_output=True, check=False).returncode == 0:
            continue
        pulling(image)
        done = subprocess.run(
            [*tool, "pull", "-q", image], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            why = last_line(done.stderr).rpartition(": ")[2]
            return f"{name} cannot get {image} ({why[:80]})"
    return ""
