"""A workflow that arrives as a document, from somebody else's machine: checked, recorded, and ordered from the workers. Called by the server.

Nothing of the sender's machine is here: code comes as a bundle, files as blobs. A path in a parameter would be one of this machine, so
it is refused.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock import rights
from penstock.artifacts.blobs import Blobs, digest_of
from penstock.backends.registry import find_backend
from penstock.errors import NotFound, PlanError, Problem, UserError
from penstock.expressions.types import Type
from penstock.formats import registry
from penstock.formats.documents import Library, read_text
from penstock.formats.report import Report
from penstock.graph import codec
from penstock.graph.check import errors
from penstock.graph.model import ACTIONS, Workflow
from penstock.graph.text import check_size
from penstock.service import stores, work
from penstock.service.images import backends_if_allowed
from penstock.service.intake_terms import BLOB
from penstock.service.manifests import is_penstock, read_workflow, unrunnable
from penstock.service.parameters import Given
from penstock.service.policy import Actor
from penstock.service.requests import resume_outputs, suspended_tasks
from penstock.service.run_records import RunConflict, workflow_of
from penstock.service.submission import Submission
from penstock.service.workflows import step_at
from penstock.settings import Settings
from penstock.store.orders import KeyReused
from penstock.store.records import RunRecord, TaskRow
from penstock.store.sql import Store

FILE = "<submitted>"
LARGEST_MANIFEST: Final = 16 * 2**20
"""Bytes of the list of what is in a bundle."""
OPTIONS = ("until", "fail_fast", "fresh", "dry", "queue", "priority", "unit", "on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What somebody submits."""

    document: str
    """A workflow in Penstock's form, as YAML or JSON, or a manifest of another system."""
    name: str | None = None
    """Which, of a manifest with several."""
    params: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of Submission: those in OPTIONS."""
    bundle: str = ""
    """The digest of the code, which is among the blobs."""

    @property
    def digest(self) -> str:
        """Of all that was sent."""
        parts = [self.document, self.name, dict(self.params), dict(self.options), self.bundle]
        return digest_of(json.dumps(parts, sort_keys=True).encode())


@dataclass(frozen=True, slots=True)
class Received:
    run: RunRecord
    created: bool
    """False: the same submission had arrived before."""
    warnings: tuple[Problem, ...] = ()


def workflow_in(document: str, name: str | None = None) -> tuple[Workflow, Report | None]:
    """What a document describes, and what its translation changed if it is another system's. Raises UserError."""
    check_size(len(document), FILE)
    if is_penstock(document):
        return codec.from_text(document, FILE), None
    library = Library(tuple(read_text(document, FILE)))
    root = registry.root(library, name, FILE)
    refused = registry.refused([root])
    if refused:
        raise UserError(refused)
    found = read_workflow(library, root)
    return found.workflow, found.report


def submit(
    store: Store,
    settings: Settings,
    parcel: Parcel,
    by: Actor,
    key: str = "",
    noted: Callable[[RunRecord], None] | None = None,
) -> Received:
    """Records a run, which the next free worker executes. `key`: the same submission with the same key makes one run, however often it is
    sent. `noted`: records more of a new run, in its transaction. Raises UserError, RunConflict."""
    submission, warnings = prepared(store, settings, parcel, checked(parcel), by)
    place = Path(submission.options["place"])

    def recorded() -> RunRecord:
        run = submission.record(store)
        if noted is not None:
            noted(run)
        return run

    try:
        run, number = store.orders.submit(recorded, by.person, key, parcel.digest)
    except KeyReused:
        message = f"the key {key!r} was used for another submission"
        raise RunConflict(Problem("P934", message, "send a new key with each new submission")) from None
    if run is not None:
        return Received(run, True, warnings)
    place.rmdir()
    before = store.runs.by_number(number)
    if before is None:
        raise NotFound(Problem("P505", "the run of this submission has been removed since", "send it with a new key"))
    return Received(before, False, warnings)


def checked(parcel: Parcel) -> Workflow:
    """What it describes. Raises UserError: it is no workflow that can be run."""
    workflow, report = workflow_in(parcel.document, parcel.name)
    problems = errors(workflow) or (list(unrunnable(workflow)) if report and not parcel.options.get("dry") else [])
    if problems:
        raise UserError(problems)
    return workflow


def prepared(
    store: Store,
    settings: Settings,
    parcel: Parcel,
    workflow: Workflow,
    by: Actor,
    more: Mapping[str, Any] | None = None,
) -> tuple[Submission, tuple[Problem, ...]]:
    """A Submission of it that can be recorded, with a folder of its own; and warnings. `more`: further parameters, as values. Raises UserError."""
    blobs = stores.blobs_of(settings)
    params = {
        param.name: placed(param.type, parcel.params[param.name], blobs, settings, param.name)
        for param in workflow.params
        if param.name in parcel.params
    }
    options = {name: value for name, value in parcel.options.items() if name in OPTIONS and value}
    check_backends(options.get("on") or {})
    options["on"] = backends_if_allowed(settings, options.get("on") or {})
    place = settings.home / "work" / f"served-{os.urandom(8).hex()}"
    unknown = {name: value for name, value in parcel.params.items() if name not in params}
    submission = Submission(
        workflow,
        {**params, **unknown, **(more or {})},
        person=by.person,
        groups=by.groups,
        place=str(place),
        scheduler=settings.scheduler,
        **options,
    )
    if parcel.bundle:
        stores.prepare(settings)
        check_bundle(blobs, parcel.bundle, settings.home / "work")
        submission.options["bundle"] = parcel.bundle
    # That a text names a file here says nothing about the sender's machine, and is none of the sender's business.
    warnings = tuple(one for one in submission.vet(store) if one.code != "P414")
    submission.track()
    stores.prepare(settings)
    rights.make_folder(place)
    return submission, warnings


def resume(store: Store, settings: Settings, run: RunRecord, task: str, params: Mapping[str, Any]) -> None:
    """Orders that a suspended step or task goes on, with values for its outputs. Raises UserError, RunConflict."""
    workflow = workflow_of(store, run)
    ordered = {
        row.task: resume_outputs(workflow, row, given_outputs(workflow, settings, row, params))
        for row in suspended_tasks(store, run, task)
    }
    for name, outputs in ordered.items():
        work.resume_task(store, run, name, outputs)


def given_outputs(workflow: Workflow, settings: Settings, row: TaskRow, values: Mapping[str, Any]) -> list[Given]:
    """Values for the outputs of a task that waits for them. As values, not as texts of a command line: an @ at the beginning would name a file of
    this machine. Raises PlanError."""
    step, blobs = step_at(workflow, row.step), stores.blobs_of(settings)
    kinds = {output.name: output.type for output in step.outputs} if step is not None else {}
    return [
        Given(name, "", placed(kinds[name], value, blobs, settings, name) if name in kinds else value, "")
        for name, value in values.items()
    ]


def placed(type_: Type, value: Any, blobs: Blobs, settings: Settings, name: str) -> Any:
    """The value with files in place of blobs. Raises PlanError."""
    if isinstance(value, dict) and BLOB in value:
        return _file_of(value, blobs, settings, name)
    if type_.name in ("file", "dir") and isinstance(value, str):
        fix = "send the file first (PUT /api/v1/blobs/DIGEST) and give its digest; penstock run --server does so"
        raise PlanError(
            Problem("P935", f"the parameter {name!r} names a file of the server: {value}", fix, where=f"params.{name}")
        )
    if type_.name == "optional":
        return placed(type_.args[0], value, blobs, settings, name)
    if type_.args and isinstance(value, list):
        return [placed(type_.item, item, blobs, settings, name) for item in value]
    if type_.args and isinstance(value, dict):
        return {key: placed(type_.item, item, blobs, settings, name) for key, item in value.items()}
    return value


def _file_of(value: Mapping[str, Any], blobs: Blobs, settings: Settings, name: str) -> str:
    digest, called = str(value[BLOB]), str(value.get("name", "file"))
    if called in ("", ".", "..") or "/" in called or "\0" in called or len(called.encode()) > 255:
        fix = 'give the last part of its path alone: {"$blob": "sha256:…", "name": "rows.csv"}'
        raise PlanError(
            Problem("P935", f"the parameter {name!r}: {called[:80]!r} is no file name", fix, where=f"params.{name}")
        )
    target = settings.home / "inputs" / digest.removeprefix("sha256:")[:24] / called
    if not target.exists():
        _known(blobs, digest, f"the parameter {name!r}")
        scratch = target.with_name(f".{os.getpid()}-{os.urandom(4).hex()}")
        rights.make_folder(target.parent)
        blobs.fetch(digest, scratch)
        os.replace(scratch, target)
    return str(target)


def check_backends(on: Mapping[str, str]) -> None:
    """Kind of step -> backend. Raises UserError."""
    for kind, name in on.items():
        if kind not in ACTIONS:
            raise PlanError(Problem("P409", f"{kind!r} is not a kind of step", f"known: {', '.join(ACTIONS)}"))
        find_backend(name)


def check_bundle(blobs: Blobs, digest: str, folder: Path) -> None:
    """Raises PlanError: it is not there, or no bundle. It is read from a file: it may be of any size, and so may what is packed in it."""
    _known(blobs, digest, "the code")
    scratch = folder / f"bundle-{os.urandom(8).hex()}"
    try:
        blobs.fetch(digest, scratch)
        with zipfile.ZipFile(scratch) as archive:
            listed = archive.getinfo("manifest.json")
            if listed.file_size <= LARGEST_MANIFEST and json.loads(archive.read(listed))["version"] == 1:
                return
    except (
        zipfile.BadZipFile,
        KeyError,
        TypeError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        EOFError,
        zlib.error,
    ):
        pass
    finally:
        scratch.unlink(missing_ok=True)
    fix = "send the code with penstock run --server or Client; both must be of the same version as the server"
    raise PlanError(Problem("P936", f"{digest[:19]}… is not a bundle of code", fix))


def _known(blobs: Blobs, digest: str, what: str) -> None:
    if not blobs.has(digest):
        fix = "send it first: PUT /api/v1/blobs/DIGEST"
        raise PlanError(Problem("P937", f"{what} is not here: there is no blob {digest[:80]}", fix))
