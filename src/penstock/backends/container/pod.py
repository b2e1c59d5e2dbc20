"""One replica of a pod: its files, and the container of each part when it is about to start. Made by backend, which runs the
containers.

All containers of a pod have the same folders: what the step mounts, its inputs, $PENSTOCK_OUTPUTS, and the folders that parts
write their results to. Outputs with a path are taken from the container of the part called `main`, or from another one in which
they are found. If no part has that name, any part may write any of them, and the folders for them are shared too. (A shared
folder hides what an image has in its place. Folders that every image has, such as /tmp, are never shared.)

If there are sidecars, the parts use the network of the first one, so that they find each other at localhost, as in Kubernetes.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from pathlib import Path

from penstock import rights
from penstock.backends import folders
from penstock.backends.attempt import CannotRun, text_of
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.container.files import INSIDE, BindMount, ContainerFiles
from penstock.backends.container.spec import (
    SCRIPT,
    ContainerSpec,
    check_image,
    command_of,
    container_name,
    env_of,
    labels_of,
)
from penstock.backends.container.step import write_script
from penstock.backends.pods.log import PodLog
from penstock.backends.pods.parts import as_texts, read_small, script_words
from penstock.backends.pods.progress import PodProgress
from penstock.backends.pods.sequence import PodSequence
from penstock.graph import model
from penstock.graph.model import Part

CODES = f"{INSIDE}/parts"


@dataclass(frozen=True, slots=True)
class PartContainer:
    """One part, ready to start."""

    part: Part
    container: ContainerSpec


class PodContainers:
    """Its methods touch files: do not call them in the engine's thread. Making it raises CannotRun, MountError, ValueError,
    OSError, and what the blobs raise."""

    def __init__(self, spec: AttemptSpec, number: int, context: BackendContext) -> None:
        self.number = number
        self.files = files = ContainerFiles(spec, number, context)
        action = files.spec.action
        assert isinstance(action, model.Pod)
        log = PodLog(context.home, spec, number, action.parts)
        self.stdout = context.home / log.out
        rights.make_folder((context.home / log.err).parent)
        files.prepare()
        files.write_inputs()
        files.make_outputs()
        if not any(part.name == "main" for part in action.parts):
            for folder in sorted(files.new_folders):
                files.share(folder)
            files.new_folders = []
        for part in action.parts:
            for path in part.results.values():
                files.share(posixpath.dirname(files.inside(path)))
        codes = files.folder / "codes"
        codes.mkdir()
        parts = [as_texts(part, lambda value: text_of(value, context.blobs)) for part in action.parts]
        sequence = PodSequence(parts, self._read, lambda name: f"{CODES}/{folders.mangled(name)}/exitCode")
        if sequence.wants_codes:
            files.mount(codes, CODES, read_only=True)
        self.progress = PodProgress(sequence, log, lambda name: codes / folders.mangled(name) / "exitCode")

    def next(self, network: str) -> PartContainer | None:
        """A part to start now, if there is one. `network` is the container whose network it uses. Raises CannotRun, OSError."""
        for part in self.progress.next():
            return PartContainer(part, self._container(part, network))
        return None

    def _container(self, part: Part, network: str) -> ContainerSpec:
        files = self.files
        mounts, workdir = list(files.mounts), files.workdir
        if part.workdir is not None:
            workdir = files.workdir_of(part.workdir)
            files.make(workdir)
        if not part.image:
            raise CannotRun(f"part {part.name} has no image, as other parts of the pod have: give it one too")
        image = check_image(part.image, part.name)
        words, args = list(part.command), list(part.args)
        if part.source is not None:
            folder = files.folder / "parts" / folders.mangled(part.name)
            os.makedirs(folder, exist_ok=True)
            write_script(folder / "script", part.source)
            mounts.append(BindMount(folder / "script", SCRIPT, read_only=True))
            words, args = script_words(part, SCRIPT), []
        out, err = self.progress.log.open(part.name)
        return ContainerSpec(
            name=container_name(str(files.context.home), files.spec.id, self.number, part.name),
            command=command_of(image, words, args),
            workdir=workdir,
            mounts=mounts,
            env=env_of(files) | dict(part.env),
            labels=labels_of(files),
            out=out,
            err=err,
            secrets=tuple(files.spec.secrets.values()),
            folders=files.new_folders if part.name == "main" else [],
            network=network,
        )

    def results_to_copy(self, part: Part) -> list[tuple[str, Path]]:
        """(path in its container, destination) of results that are not below a mount."""
        paths = [self.files.inside(path) for path in part.results.values()]
        return [(path, self._copied(part, path)) for path in paths if self.files.on_host(path) is None]

    def _copied(self, part: Part, path: str) -> Path:
        return self.files.folder / "results" / folders.mangled(part.name) / path.lstrip("/")

    def _read(self, part: Part, path: str) -> str | None:
        inside = self.files.inside(path)
        place, root = self.files.on_host(inside) or (self._copied(part, inside), self.files.folder / "results")
        return read_small(place, root)
