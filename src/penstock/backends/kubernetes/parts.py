"""A step of several containers -> the programs of its pods. Called by work.

Where the parts run one after another, and no part reads of another one, has a condition, a time limit of its own, or may fail, they are init
containers: Kubernetes runs those in order and needs nothing of their images. Otherwise they are containers that wait for the word of the leader
(see lead), which needs a shell and a command in each. Sidecars are init containers that stay, where the cluster has such; a leader starts and stops them
elsewhere.

All parts see the same folders: what the step mounts, its inputs, $PENSTOCK_OUTPUTS, and the folders that parts write their results to. Outputs
with a path are taken from the part called `main`. If there is none, any part may write any of them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from penstock.artifacts.blobs import Blobs
from penstock.backends import folders
from penstock.backends.attempt import CannotRun, text_of
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes.lead import plan_text
from penstock.backends.kubernetes.options import KubernetesOptions
from penstock.backends.kubernetes.packing import Packing, env_of, image_of, no_command, parted
from penstock.backends.kubernetes.programs import INSIDE, MAIN, PLAN, SCRIPT, Place, Program, Work
from penstock.backends.kubernetes.shell import PIPES, Copies, has_shell, led, staying, wrapper
from penstock.backends.pods.parts import as_texts, script_words, texts_of
from penstock.backends.pods.references import PartReferences, ResultMissing
from penstock.backends.pods.sequence import holds
from penstock.graph.links import part_needs
from penstock.graph.model import Part, Pod

OURS = frozenset({"fetch", "put"})
"""Names of containers that are not the task's."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")


class PodPacking:
    """Raises CannotRun, UserError, ValueError, OSError."""

    def __init__(
        self,
        spec: AttemptSpec,
        action: Pod,
        options: KubernetesOptions,
        blobs: Blobs,
        library: Callable[[], str],
        native_sidecars: bool,
    ) -> None:
        self.spec = spec
        self.options = options
        self.blobs = blobs
        parts = [as_texts(part, lambda value: text_of(value, blobs)) for part in action.parts]
        self.native = native_sidecars
        self.leads = leads(parts, native_sidecars)
        self.parts = [self._whole(part, parts) for part in parts]
        env, hidden = env_of(spec, blobs)
        self.work_ = Work(programs=[], env=env, secret_env=hidden, leads=self.leads)
        self.packing = Packing(spec, options, blobs, library, self.work_)

    def work(self) -> Work:
        work, packing = self.work_, self.packing
        packing.mounts()
        packing.inputs()
        led_ones = [part for part in self.parts if not (part.sidecar and self.native)]
        plain = [part for part in self.parts if not part.sidecar]
        if not plain:
            raise CannotRun("all parts of the pod are sidecars: nothing would end it")
        printer = next((part.name for part in plain if part.name == MAIN), plain[-1].name)
        has_main = any(part.name == MAIN for part in plain)
        writers = [part for part in plain if part.name == MAIN or not has_main]
        results = self._share_results()
        copies, printed = packing.outputs(any(_has_command(part) for part in writers), shared=not has_main)
        for part in self.parts:
            program = self._program(part)
            own = [*(copies if part in writers else ()), *results.get(part.name, ())]
            self._wrap(program, part, own, printed if part.name == printer else "")
            if not program.sidecar or all(map(holds, part.when)):
                work.programs.append(program)
        if self.leads:
            work.places.append(Place(PIPES, "pod"))
            read = {part.name: self._read_at(part) for part in led_ones}
            packing.file(PLAN, plan_text(led_ones, read), work.plan, work.plan_places)
            packing.put("lead", "the parts of this pod are led by a helper that comes from there")
        elif self.spec.step.outputs:
            packing.put("put", "the outputs of this step are handed on there")
        packing.fetch()
        return work

    # -- one part

    def _whole(self, part: Part, parts: list[Part]) -> Part:
        """A sidecar with what it reads of other parts: nothing but where their exit codes will be. They have not run."""
        if not part.sidecar:
            return part
        known = {one.name: one for one in parts}
        references = PartReferences(known, lambda *_: None, lambda name: f"{PIPES}/{folders.mangled(name)}/exitCode")
        try:
            return references.filled(part)
        except ResultMissing as error:
            raise CannotRun(f"part {part.name}: {error}") from None

    def _program(self, part: Part) -> Program:
        if part.image is None and part.source is None:
            raise CannotRun(f"part {part.name} has no image, as other parts of the pod have: give it one too")
        env, hidden = parted({key: text for key, text in part.env.items() if "$(steps" not in text}, self.spec)
        program = Program(
            name=self._name(part),
            part=part.name,
            image=image_of(part.image or self.options.image),
            workdir=posixpath.normpath(part.workdir) if part.workdir and "$(steps" not in part.workdir else "",
            env=env,
            secret_env=hidden,
            sidecar=part.sidecar and self.native,
        )
        if self.leads and not program.sidecar:
            return program  # its words come from the leader
        program.command, program.args = list(part.command), list(part.args)
        if part.source is not None:
            self.packing.file(SCRIPT, part.source, program.files, program.places)
            program.command, program.args = script_words(part, SCRIPT), []
        return program

    def _name(self, part: Part) -> str:
        if _LABEL.match(part.name) and part.name not in OURS:
            return part.name
        return f"part-{self.parts.index(part)}"

    def _wrap(self, program: Program, part: Part, copies: Copies, printed: str) -> None:
        if self.leads and not program.sidecar:
            if not _has_command(part):
                raise CannotRun(
                    f"part {part.name} runs its image's own command, and has to wait for other parts there: give it a command"
                )
            folder = f"{PIPES}/{folders.mangled(part.name)}"
            goes_on = part.on_error == "continue" or part.sidecar
            program.command = ["sh", "-c", led(folder, copies, printed, goes_on), "penstock"]
        elif program.sidecar:
            if has_shell(program.command):
                program.command = ["sh", "-c", staying(), "penstock", *program.command]
        elif printed and not program.command:
            raise no_command(self.spec)
        elif (copies or printed) and program.command:
            program.command = ["sh", "-c", wrapper(copies, printed, again=True), "penstock", *program.command]

    # -- results

    def _share_results(self) -> dict[str, list[tuple[str, str]]]:
        """Gives all parts the folders that results are written to. Returns what must be copied, by part."""
        copied: dict[str, list[tuple[str, str]]] = {}
        for at, part in enumerate(self.parts):
            for number, path in enumerate(part.results.values()):
                inside = self.packing.inside(path)
                folder = posixpath.dirname(inside)
                self.packing.share(folder, f"results/{at}-{number}")
                if self.packing.place_of(inside) is None:
                    copied.setdefault(part.name, []).append((inside, self._copy_of(part, path)))
        if copied and self.leads:
            self.work_.places.append(Place(f"{INSIDE}/results", "results"))
        return copied if self.leads else {}

    def _copy_of(self, part: Part, path: str) -> str:
        return f"results/copied/{self.parts.index(part)}{self.packing.inside(path)}"

    def _read_at(self, part: Part) -> dict[str, str]:
        """Where the leader finds the results of a part."""
        found: dict[str, str] = {}
        for path in part.results.values():
            place = self.packing.place_of(self.packing.inside(path))
            if place is None:
                found[path] = f"{INSIDE}/{self._copy_of(part, path)}"
            elif place.shared:
                folder = Place(
                    f"{INSIDE}/shared/{len(self.work_.plan_places)}", posixpath.dirname(place.sub_path), shared=True
                )
                self.work_.plan_places.append(folder)
                found[path] = f"{folder.path}/{posixpath.basename(path)}"
            else:
                found[path] = f"{INSIDE}/{place.sub_path}"
        return found


def leads(parts: list[Part], native_sidecars: bool) -> bool:
    """Must something in the pod say when each part runs?"""
    plain = [part for part in parts if not part.sidecar]
    needs = part_needs(tuple(plain))
    one_by_one = [(), *((part.name,) for part in plain[:-1])]
    return (
        [needs[part.name] for part in plain] != one_by_one[: len(plain)]
        or any(part.when or part.timeout is not None or part.on_error == "continue" for part in plain)
        or any("$(steps" in text for part in parts for text in texts_of(part))
        or (not native_sidecars and len(plain) < len(parts))
    )


def _has_command(part: Part) -> bool:
    return part.source is not None or bool(part.command)
