"""What goes into the containers of a pod and what comes out of them. Called by container, which does the running; the turns
themselves are in podding. One PodCrate is one replica of a pod; each of its parts is a container, with a PartCrate.

All containers of a pod have the same folders: what the step mounts, its inputs, $PENSTOCK_OUTPUTS, and the folders that parts
write their results to. Outputs with a path are taken from the container of the part called `main`, or from another in which
they are found; if no part is called so, any part may write any of them, and the folders that they go to are shared too. (A folder
that is shared hides what an image has at its place. Folders that every image has, as /tmp, never are.)

If there are sidecars, the parts are in the network of the first, so that they find each other at localhost, as in Kubernetes.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from pathlib import Path

from penstock.backends import places, podding
from penstock.backends.base import Context, Order
from penstock.backends.command import Unfit
from penstock.backends.crate import ALWAYS_THERE, INSIDE, SCRIPT, Crate, Mount, container_name
from penstock.backends.podding import Failure
from penstock.graph import model
from penstock.graph.model import Part

CODES = f"{INSIDE}/parts"


class PodCrate(Crate):
    """`pack`, `next`, `ended` and `read` touch files: not in the engine's thread."""

    turns: podding.Turns

    def __init__(self, order: Order, number: int, context: Context) -> None:
        super().__init__(order, number, context)
        action = self.order.action
        assert isinstance(action, model.Pod)
        self.parts = action.parts
        self.log = podding.Log(context.home, order, number, self.parts)
        self.out, self.err = self.log.out, self.log.err
        self._has_main = any(part.name == "main" for part in self.parts)

    def pack(self) -> None:
        self._pack_folders()
        os.makedirs((self.context.home / self.err).parent, exist_ok=True)
        self._pack_inputs()
        self._pack_outputs()
        for part in self.parts:
            for path in part.results.values():
                self._share(posixpath.dirname(self._inside(path)))
        codes = self.folder / "codes"
        codes.mkdir()
        parts = [podding.written(part, self._text) for part in self.parts]
        self.turns = podding.Turns(parts, self._read, lambda name: f"{CODES}/{places.mangled(name)}/exitCode")
        if self.turns.wants_codes:
            self._mount(codes, CODES, read_only=True)

    def _pack_outputs(self) -> None:
        super()._pack_outputs()
        if not self._has_main:
            for folder in sorted(self.folders):
                self._share(folder)
            self.folders = []

    def _share(self, folder: str) -> None:
        """One folder for all parts."""
        if folder in ALWAYS_THERE:
            return
        if self._host(folder) is not None:
            self._make(folder)
            return
        source = self.folder / "shared" / str(len(self.mounts))
        os.makedirs(source)
        source.chmod(0o777)
        self._mount(source, folder)

    # -- one part after another ---------------------------------------------------------------------------------------

    def next(self, network: str) -> PartCrate | None:
        """A part to be started now. `network`: the container whose network it is to have."""
        for part in self.turns.next():
            self._tell_skipped()
            return PartCrate(self, part, network)
        self._tell_skipped()
        return None

    def _tell_skipped(self) -> None:
        while self.turns.skipped:
            self.log.note(self.turns.skipped.pop(0), "skipped")

    def ended(self, name: str, code: int, timed_out: bool) -> None:
        self.turns.ended(name, code, timed_out)
        if self.turns.wants_codes:
            folder = self.folder / "codes" / places.mangled(name)
            folder.mkdir(exist_ok=True)
            (folder / "exitCode").write_text(str(code), encoding="ascii")
        if code and self.turns.parts[name].on_error == "continue" and not timed_out:
            self.log.note(name, f"exit code {code}; the pod goes on")

    def explain(self, failure: Failure, how: str) -> str:
        """`how`: what is said of its exit code."""
        said = failure.message or how
        return f"part {failure.part}: {said}" if len(self.parts) > 1 else said

    def results_to_copy(self, part: Part) -> list[tuple[str, Path]]:
        """(path in its container, where to) of results that are in no folder of ours."""
        paths = [self._inside(path) for path in part.results.values()]
        return [(path, self._copied(part, path)) for path in paths if self._host(path) is None]

    def _copied(self, part: Part, path: str) -> Path:
        return self.folder / "results" / places.mangled(part.name) / path.lstrip("/")

    def _read(self, part: Part, path: str) -> str | None:
        inside = self._inside(path)
        place, root = self._host(inside) or (self._copied(part, inside), self.folder / "results")
        return podding.read_small(place, root)


class PartCrate(Crate):
    """One container. Everything about it is known when it is made."""

    def __init__(self, pod: PodCrate, part: Part, network: str) -> None:
        super().__init__(pod.order, pod.number, pod.context)
        self.pod = pod
        self.part = part
        self.name = container_name(str(pod.context.home), pod.order.id, pod.number, part.name)
        self.folder = pod.folder / "parts" / places.mangled(part.name)
        self.mounts, self.laid = list(pod.mounts), pod.laid
        self.folders = pod.folders if part.name == "main" else []
        self.network = network
        if part.workdir is not None:
            self.workdir = posixpath.normpath(posixpath.join(self.place, part.workdir))
            self._make(self.workdir)
        self.image = part.image or ""
        if not self.image:
            raise Unfit(f"part {part.name} has no image, as other parts of the pod have: give it one too")
        if self.image.startswith("-"):
            raise Unfit(f"part {part.name}: {self.image!r} is not the name of an image")
        self._pack_part()
        self.out, self.err = pod.log.open(part.name)

    def _pack_part(self) -> None:
        part = self.part
        words, rest = list(part.command), list(part.args)
        if part.source is not None:
            os.makedirs(self.folder, exist_ok=True)
            file = self.folder / "script"
            file.write_text(part.source, encoding="utf-8")
            file.chmod(0o755)
            self.mounts.append(Mount(file, SCRIPT, read_only=True))
            words, rest = podding.script_words(part, SCRIPT), []
        self.command = ["--entrypoint", words[0], self.image, *words[1:]] if words else [self.image]
        self.command += rest

    def create_words(self, options: Sequence[str]) -> list[str]:
        if not self.network:
            return super().create_words(options)
        return super().create_words([*_without_network(options), "--network", f"container:{self.network}"])

    def _env(self) -> dict[str, str]:
        return super()._env() | dict(self.part.env)


def _without_network(options: Sequence[str]) -> list[str]:
    """The user's own options, which hold for the container whose network it is."""
    kept: list[str] = []
    skip = False
    for word in options:
        if skip:
            skip = False
        elif word in ("--network", "--net"):
            skip = True
        elif not word.startswith(("--network=", "--net=")):
            kept.append(word)
    return kept
