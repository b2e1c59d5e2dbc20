"""Outputs of a recorded run, brought to a folder or as data. Called by `penstock get`."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.errors import NotFound, Problem, UserError
from penstock.graph.stored import Stored
from penstock.service import stores
from penstock.service.results import RunResults, named
from penstock.service.run_records import state_of
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store


@dataclass(slots=True)
class FetchedPart:
    """One output, of a task or (`task` is "") of the run."""

    run: str
    task: str
    output: str
    value: Any
    """Plain data; it may have Stored in it: files, folders and Python objects."""

    @property
    def name(self) -> str:
        """As a user reads it: `train[3].result`, `score`."""
        return f"{self.task}.{self.output}" if self.task else self.output


@dataclass(slots=True)
class Fetched:
    part: FetchedPart
    value: Any
    """Without files: these are among `paths`."""
    paths: list[Path]
    objects: list[Stored]
    """Python objects: they are not opened here, since that runs code."""


def parts_of(store: Store, run: RunRecord, path: str, settings: Settings) -> list[FetchedPart]:
    """What `RUN/PATH` names. Raises NotFound if there is no such output, or not yet."""
    results = RunResults(store, run, settings)
    _, found = named(results, path)
    blobs = stores.blobs_of(settings)
    parts = [
        FetchedPart(run.id, task, name, _whole(value, blobs))
        for task, outputs in found.items()
        for name, value in outputs.items()
    ]
    if not parts:
        about = f"{run.id}/{path}" if path else run.id
        state = state_of(store, run)
        fix = f"penstock show {about} shows how it ended"
        if state in ("running", "queued"):
            fix = f"{run.id} is running: penstock watch {run.id} waits for it"
        raise NotFound(Problem("P581", f"{about} has no output", fix))
    return parts


def _whole(value: Any, blobs: Blobs) -> Any:
    """Plain data that is kept as a blob, because it is large, is read; files and objects stay what they are."""
    if isinstance(value, Stored) and value.kind == "json":
        return _whole(values.loads(blobs.get(value.digest).decode()), blobs)
    if isinstance(value, list):
        return [_whole(item, blobs) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item, blobs) for key, item in value.items()}
    return value


def as_data(run: RunRecord, parts: Sequence[FetchedPart]) -> dict[str, Any]:
    rows = [{"task": part.task or None, "output": part.output, "value": _described(part.value)} for part in parts]
    return {"run": run.id, "outputs": rows}


def _described(value: Any) -> Any:
    if isinstance(value, Stored):
        return {"kind": value.kind, "name": value.name, "size": value.size, "digest": value.digest}
    if isinstance(value, list):
        return [_described(item) for item in value]
    return {key: _described(item) for key, item in value.items()} if isinstance(value, dict) else value


def fetch(parts: Sequence[FetchedPart], folder: Path, settings: Settings, force: bool = False) -> list[Fetched]:
    """Copies files and folders below `folder`, which is made if needed. Nothing is copied if something is in the way and not `force`.
    Raises UserError."""
    several = len({part.task for part in parts}) > 1
    wanted: list[tuple[Stored, Path]] = []
    found = []
    for part in parts:
        place = folder / part.task.replace("[", "-").replace("]", "").replace("#", "-round-") if several else folder
        files: list[Stored] = []
        objects: list[Stored] = []
        rest = _without(part.value, files, objects)
        targets = _targets(part, files, place, {path for _, path in wanted})
        wanted += zip(files, targets, strict=True)
        found.append(Fetched(part, rest, targets, objects))
    wanted = [(stored, path) for stored, path in wanted if not _is_it(stored, path)]
    there = [path for _, path in wanted if path.exists() or path.is_symlink()]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise UserError(
            Problem(
                "P582", f"{str(there[0])!r}{more} is there already", "choose another folder with -o, or say --force"
            )
        )
    blobs = stores.blobs_of(settings)
    for stored, path in wanted:
        _lay(stored, path, blobs)
    return found


def _is_it(stored: Stored, path: Path) -> bool:
    """Is this file there already, with this content? A task that ran in this folder may have left it."""
    if stored.kind != "file" or path.is_symlink() or not path.is_file() or path.stat().st_size != stored.size:
        return False
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == stored.digest


def _targets(part: FetchedPart, files: Sequence[Stored], place: Path, taken: set[Path]) -> list[Path]:
    """Under their own names; where two have the same, behind the name of the output and a number."""
    found: list[Path] = []
    for number, stored in enumerate(files):
        path = place / _file_name(stored, part)
        if path in taken or path in found:
            path = place / f"{part.output}-{number}" / path.name
        found.append(path)
    return found


def _file_name(stored: Stored, part: FetchedPart) -> str:
    """The last part of its name. Who made it may have called it anything: `..` would be the folder above."""
    name = Path(stored.name).name
    if name in ("", ".", "..") or not name.isprintable():
        return part.output
    return name


def _lay(stored: Stored, path: Path, blobs: Blobs) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        values.fetch(stored, blobs, path)
    except OSError as error:
        message = f"{str(path)!r} cannot be written: {error.strerror or error}"
        raise UserError(Problem("P504", message, "choose another place with -o")) from None


def _without(value: Any, files: list[Stored], objects: list[Stored]) -> Any:
    """The value without what is no plain data, which goes to the two lists. A list of files alone leaves nothing: None."""
    if isinstance(value, Stored):
        (objects if value.kind == "pickle" else files).append(value)
        return None
    if isinstance(value, list):
        rest = [_without(item, files, objects) for item in value]
        return None if value and all(isinstance(item, Stored) for item in value) else rest
    if isinstance(value, dict):
        named = {key: _without(item, files, objects) for key, item in value.items()}
        return None if value and all(isinstance(item, Stored) for item in value.values()) else named
    return value
