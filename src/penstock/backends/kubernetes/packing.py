"""What the pod of a command is given and what is taken out of it: mounts, inputs, texts, outputs. Made by work and parts.

An output with a path of its own is copied from there by a few lines of shell around the command. Without a command (the image's own
entrypoint, which only the container runtime knows) its folder is mounted instead.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.backends import folders
from penstock.backends.attempt import STDOUT, CannotRun, starts_at_root, step_env
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes.boot import BOOT
from penstock.backends.kubernetes.names import attempt_key
from penstock.backends.kubernetes.options import KubernetesOptions
from penstock.backends.kubernetes.programs import ALWAYS_THERE, INSIDE, LONGEST, OUTPUTS, Place, TextFile, Work
from penstock.backends.local import function_main
from penstock.backends.own_error import ERROR
from penstock.errors import Problem, UserError
from penstock.expressions.types import Type
from penstock.graph.model import Input
from penstock.graph.stored import Stored


def reachable(options: KubernetesOptions, why: str) -> str:
    if options.store:
        return options.store
    fix = (
        "set PENSTOCK_ARTIFACTS to a URL that pods reach too, as in s3://bucket/penstock, or name the volume that holds PENSTOCK_HOME: "
        "PENSTOCK_KUBERNETES_VOLUME=pvc:CLAIM"
    )
    raise UserError(Problem("P726", f"pods cannot reach the artifact store of this engine, and {why}", fix))


def helper(options: KubernetesOptions, library: str, verb: str, digest: str) -> list[str]:
    return [options.python, "-c", BOOT, options.store, library, verb, digest]


def env_of(spec: AttemptSpec, blobs: Blobs) -> tuple[dict[str, str], dict[str, str]]:
    """(open, secret) variables of all programs."""
    ours = {
        "PENSTOCK_RUN": spec.run,
        "PENSTOCK_TASK": spec.task,
        "PENSTOCK_ATTEMPT": attempt_key(spec),
        "PENSTOCK_OUTPUTS": OUTPUTS,
        ERROR: "/dev/termination-log",
        "PENSTOCK_REPLICAS": str(spec.step.replicas),
    }
    return parted(ours | step_env(spec.action, blobs) | function_main.secret_env(spec), spec)


def parted(env: Mapping[str, str], spec: AttemptSpec) -> tuple[dict[str, str], dict[str, str]]:
    """(open, secret)"""
    hidden = {name for name, text in env.items() if name == function_main.SECRETS or holds_secret(text, spec)}
    return {name: env[name] for name in env if name not in hidden}, {name: env[name] for name in env if name in hidden}


def holds_secret(text: str, spec: AttemptSpec) -> bool:
    return any(secret and secret in text for secret in spec.secrets.values())


def with_files(type_: Type, value: Any, blobs: Blobs) -> Any:
    """A value with stored files in place of paths on this machine, where its type says that it names files."""
    if type_.name in ("file", "dir"):
        named = isinstance(value, str) and values.leads_somewhere(value)
        return values.store_path(Path(value), blobs) if named else value
    if type_.name == "optional":
        return with_files(type_.args[0], value, blobs)
    if type_.name in ("list", "tuple") and type_.args and isinstance(value, list | tuple):
        each = type_.args if type_.name == "tuple" and len(type_.args) == len(value) else [type_.item] * len(value)
        return [with_files(inner, item, blobs) for inner, item in zip(each, value, strict=True)]
    if type_.name == "dict" and type_.args and isinstance(value, dict):
        return {key: with_files(type_.item, item, blobs) for key, item in value.items()}
    return value


def image_of(image: str) -> str:
    if not image or image.startswith("-") or image != image.strip():
        raise CannotRun(f"{image!r} is not the name of an image")
    return image


def no_command(spec: AttemptSpec) -> CannotRun:
    names = ", ".join(output.name for output in spec.step.outputs if output.path == STDOUT)
    return CannotRun(f"what an image's own command prints cannot be an output ({names}): give the step a command")


class Packing:
    """For the programs of one step. Its methods raise CannotRun, UserError, ValueError, OSError."""

    def __init__(
        self,
        spec: AttemptSpec,
        options: KubernetesOptions,
        blobs: Blobs,
        library: Callable[[], str],
        work: Work,
        workdir: str = "",
    ) -> None:
        self.spec = spec
        self.options = options
        self.blobs = blobs
        self.library = library
        self.work = work
        self.workdir = workdir
        self._fetched: list[Any] = []
        self._told: list[list[str]] = []
        """Of the outputs, for the helper that stores them."""
        self._length = 0
        """Of the texts in the pod."""

    def inside(self, path: str) -> str:
        found = posixpath.normpath(posixpath.join(self.workdir, path))
        if not found.startswith("/"):
            raise CannotRun(
                f"the path {path!r} is relative, and to what is not known: make it absolute, or give `workdir`"
            )
        found = "/" + found.lstrip("/")
        if found == "/":
            raise CannotRun(f"{path!r} is not the path of a file or folder")
        return found

    # -- before it starts

    def file(self, path: str, text: str, files: list[TextFile], places: list[Place]) -> None:
        """A text that is found at this path. `files`, `places`: of those who find it."""
        self._length += len(text)
        if holds_secret(text, self.spec):
            files.append(TextFile(path, text, secret=True))
        elif len(text) <= LONGEST and self._length <= 3 * LONGEST:
            files.append(TextFile(path, text))
        else:
            places.append(self._fetch(Input(name=posixpath.basename(path), value=None), path, text))

    def _file(self, path: str, text: str) -> None:
        self.file(path, text, self.work.files, self.work.places)

    def _fetch(self, given: Input, path: str, value: Any) -> Place:
        number = len(self._fetched)
        sub = f"inputs/{number}/{posixpath.basename(path)}"
        self._fetched.append([sub, given.name, str(given.type), value])
        return Place(path, sub)

    def inputs(self) -> None:
        for given in self.spec.step.inputs:
            if given.path is None or given.name not in self.spec.inputs:
                continue
            path, value = self.inside(given.path), self.spec.inputs[given.name]
            value = with_files(given.type, value, self.blobs)
            if isinstance(value, Stored) and value.kind != "json":
                self.work.places.append(self._fetch(given, path, value))
            else:
                self._file(path, values.as_text(value, self.blobs))

    def mounts(self) -> None:
        for number, mount in enumerate(self.spec.step.mounts):
            path = self.inside(mount.path)
            sub = posixpath.normpath("/" + values.as_text(mount.sub_path, self.blobs)).lstrip("/")
            if mount.scope == "run":
                self._shared(mount.name, path, sub, mount.read_only)
                continue
            texts = {
                posixpath.normpath("/" + name).lstrip("/"): values.as_text(text, self.blobs)
                for name, text in mount.files.items()
            }
            if sub in texts:
                self._file(path, texts[sub])
                continue
            base = f".{number}" if mount.scope == "given" else folders.mangled(mount.name)
            self.work.places.append(Place(path, f"mounts/{base}/{sub}".rstrip("/"), read_only=mount.read_only))
            for name, text in texts.items():
                if not sub or name.startswith(f"{sub}/"):
                    self._file(posixpath.join(path, name.removeprefix(f"{sub}/") if sub else name), text)

    def _shared(self, name: str, path: str, sub: str, read_only: bool) -> None:
        volume = self.options.volume
        if volume is None:
            fix = "name a volume that holds PENSTOCK_HOME and that several nodes can mount: PENSTOCK_KUBERNETES_VOLUME=pvc:CLAIM"
            message = f"the tasks of this run share the folder {name!r}, and pods have no volume in common"
            raise UserError(Problem("P726", message, fix))
        folder = f"work/{folders.mangled(self.spec.run)}/volumes/{folders.mangled(name)}"
        self.work.places.append(Place(path, f"{folder}/{sub}".rstrip("/"), shared=True, read_only=read_only))

    def fetch(self) -> None:
        """Call it when all else is packed."""
        if self._fetched:
            reachable(self.options, "inputs of this step are files")
            digest = self.blobs.put(values.dumps(self._fetched).encode())
            self.work.fetch = helper(self.options, self.library(), "fetch", digest)

    # -- after its end

    def outputs(self, has_command: bool, shared: bool = False) -> tuple[list[tuple[str, str]], str]:
        """(what is to be copied from its path to a place, the place for what is printed). `has_command`: can something be copied?
        `shared`: may any of several programs write it?"""
        copies: list[tuple[str, str]] = []
        printed = ""
        told = []
        for number, output in enumerate(self.spec.step.outputs):
            if output.path is None:
                place, shown = f"outputs/{output.name}", f"$PENSTOCK_OUTPUTS/{output.name}"
            elif output.path == STDOUT:
                printed = printed or f"collected/{number}/stdout"
                place, shown = printed, STDOUT
            else:
                path = self.inside(output.path)
                place, shown = self._collected(number, path, copies, has_command, shared), output.path
            told.append([output.name, str(output.type), place, shown])
        self.work.places.append(Place(OUTPUTS, "outputs"))
        if copies or printed:
            self.work.places.append(Place(f"{INSIDE}/collected", "collected"))
        self._told = told
        return copies, printed

    def put(self, verb: str, why: str) -> None:
        """The helper that stores the outputs. `why`: it needs the artifact store."""
        reachable(self.options, why)
        limits = [self.blobs.limits.value, self.blobs.limits.file]
        said = {"outputs": self._told, "loosely": starts_at_root(self.spec), "limits": limits}
        digest = self.blobs.put(values.dumps(said).encode())
        self.work.put = helper(self.options, self.library(), verb, digest)

    def place_of(self, path: str) -> Place | None:
        """Where a file is that a program writes at this path, if it is in a folder that is mounted there."""
        below = [one for one in self.work.places if not one.read_only and folders.is_below(path, one.path)]
        if not below:
            return None
        found = max(below, key=lambda one: len(one.path))
        return Place(path, found.sub_path + path.removeprefix(found.path), found.shared)

    def share(self, folder: str, sub_path: str) -> None:
        """One folder of the scratch for all programs, unless they have it or need that of their image."""
        if folder not in ALWAYS_THERE and self.place_of(folder) is None:
            self.work.places.append(Place(folder, sub_path))

    def _collected(self, number: int, path: str, copies: list[tuple[str, str]], has_command: bool, shared: bool) -> str:
        """Where the helper finds an output, in the scratch folder."""
        for one in self.work.places:
            if not one.shared and one.sub_path.startswith("mounts/") and folders.is_below(path, one.path):
                return one.sub_path + path.removeprefix(one.path)
        place = f"collected/{number}/{posixpath.basename(path)}"
        folder = posixpath.dirname(path)
        if has_command and (not shared or folder in ALWAYS_THERE or self._on_volume(path)):
            copies.append((path, place))
            return place
        if folder in ALWAYS_THERE:
            raise CannotRun(
                f"the output {path} cannot be taken from a container whose command is its image's own: give the step a command, "
                "or write to $PENSTOCK_OUTPUTS or to a folder that the image has not"
            )
        same = next((one for one in self.work.places if one.path == folder), None)
        if same is None:
            same = Place(folder, f"collected/{number}")
            self.work.places.append(same)
        return f"{same.sub_path}/{posixpath.basename(path)}"

    def _on_volume(self, path: str) -> bool:
        found = self.place_of(path)
        return found is not None and found.shared
