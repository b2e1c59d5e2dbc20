"""An attempt's spec -> what its pods do. Called by attempt, in a thread: it reads and writes the artifact store.

Short texts (scripts, inputs, given files) travel in the pod itself. Everything else is in the artifact store, and a helper container
fetches it before the command starts. Another one stores what the command left, after it has ended: the command's container is then the
last of the init containers, so that the order needs nothing of its image. A function fetches and stores by itself.

An output with a path of its own is copied from there by a few lines of shell around the command. Without a command (the image's own
entrypoint, which only the container runtime knows) its folder is mounted instead.
"""

from __future__ import annotations

import dataclasses
import posixpath
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.backends import folders
from penstock.backends.attempt import STDOUT, CannotRun, starts_at_root, step_env, text_of
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes.boot import BOOT
from penstock.backends.kubernetes.names import attempt_key
from penstock.backends.kubernetes.options import KubernetesOptions
from penstock.backends.local import function_main
from penstock.errors import Problem, UserError
from penstock.expressions.types import Type
from penstock.graph.model import Container, Function, Input, Output, Script
from penstock.graph.stored import Stored

INSIDE: Final = "/tmp/penstock"
OUTPUTS: Final = f"{INSIDE}/outputs"
SCRIPT: Final = f"{INSIDE}/script"
LONGEST: Final = 60_000
"""Characters of a text that travels in the pod; all of them together may have three times as many."""
ALWAYS_THERE: Final = frozenset(
    "/ /bin /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/bin /usr/lib /usr/local /var /var/lib /var/log /var/run /var/tmp".split()
)
"""Folders of an image that nothing is mounted over."""


@dataclass(frozen=True, slots=True)
class TextFile:
    path: str
    text: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or file that a container sees."""

    path: str
    sub_path: str
    """In the pod's scratch folder; of a shared one, in the volume of the home."""
    shared: bool = False
    read_only: bool = False


@dataclass(slots=True, kw_only=True)
class Work:
    """What the pods of an attempt do. Plain data."""

    image: str
    command: list[str]
    args: list[str] = field(default_factory=list)
    workdir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    secret_env: dict[str, str] = field(default_factory=dict)
    files: list[TextFile] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    fetch: list[str] = field(default_factory=list)
    """The command of the helper that fetches inputs; empty: there is none."""
    put: list[str] = field(default_factory=list)
    """The same for outputs."""
    is_function: bool = False

    @property
    def needs_store(self) -> bool:
        return bool(self.fetch or self.put or self.is_function)


def work_of(spec: AttemptSpec, options: KubernetesOptions, blobs: Blobs, library: Callable[[], str]) -> Work:
    """`library`: stores the program of in_pod, and returns its digest. Raises CannotRun, UserError, ValueError, OSError."""
    action = spec.action
    if isinstance(action, Function):
        return _function(spec, action, options, blobs, library)
    if isinstance(action, Container | Script):
        return _Command(spec, action, options, blobs, library).work()
    fix = f"run these steps elsewhere: --on {action.kind}=container" if action.kind == "pod" else "use another backend"
    raise UserError(Problem("P726", f"the backend kubernetes does not run steps of the kind {action.kind}", fix))


def _reachable(options: KubernetesOptions, why: str) -> str:
    if options.store:
        return options.store
    fix = (
        "set PENSTOCK_ARTIFACTS to a URL that pods reach too, as in s3://bucket/penstock, or name the volume that holds PENSTOCK_HOME: "
        "PENSTOCK_KUBERNETES_VOLUME=pvc:CLAIM"
    )
    raise UserError(Problem("P726", f"pods cannot reach the artifact store of this engine, and {why}", fix))


def _helper(options: KubernetesOptions, library: str, verb: str, digest: str) -> list[str]:
    return [options.python, "-c", BOOT, options.store, library, verb, digest]


def _env(spec: AttemptSpec, blobs: Blobs) -> tuple[dict[str, str], dict[str, str]]:
    """(open, secret)"""
    ours = {
        "PENSTOCK_RUN": spec.run,
        "PENSTOCK_TASK": spec.task,
        "PENSTOCK_ATTEMPT": attempt_key(spec),
        "PENSTOCK_OUTPUTS": OUTPUTS,
        "PENSTOCK_REPLICAS": str(spec.step.replicas),
    }
    both = ours | step_env(spec.action, blobs) | function_main.secret_env(spec)
    texts = [text for text in spec.secrets.values() if text]
    hidden = {
        name: value
        for name, value in both.items()
        if name == function_main.SECRETS or any(text in value for text in texts)
    }
    return {name: value for name, value in both.items() if name not in hidden}, hidden


def _function(
    spec: AttemptSpec, action: Function, options: KubernetesOptions, blobs: Blobs, library: Callable[[], str]
) -> Work:
    _reachable(options, "functions take their code and their inputs from there")
    inside = Blobs(options.store, pickles=blobs.pickles, limits=blobs.limits)
    inputs = dict(spec.inputs)
    for given in spec.step.inputs:
        if given.name in inputs:
            inputs[given.name] = _with_files(given.type, inputs[given.name], blobs)
    spec = dataclasses.replace(spec, inputs=inputs)
    call = blobs.put(function_main.call_text(spec, inside, f"{INSIDE}/cache").encode())
    env, hidden = _env(spec, blobs)
    return Work(
        image=_image(text_of(action.image, blobs) if action.image is not None else options.image),
        command=_helper(options, library(), "call", call),
        env=env,
        secret_env=hidden,
        is_function=True,
    )


def warm_work_of(spec: AttemptSpec, options: KubernetesOptions, blobs: Blobs, library: str, settings: str) -> Work:
    """A pod that makes calls like this one until there are none for a while. `settings`: the blob that says of which mailbox. Raises
    CannotRun, UserError."""
    action = spec.action
    assert isinstance(action, Function)
    store = _reachable(options, "functions take their code and their inputs from there")
    image = _image(text_of(action.image, blobs) if action.image is not None else options.image)
    command = [options.python, "-c", BOOT, store, library, "serve", settings]
    return Work(image=image, command=command, env=fixed_env(spec, blobs), is_function=True)


def fixed_env(spec: AttemptSpec, blobs: Blobs) -> dict[str, str]:
    """The variables of its step that are the same for every task: a library may read them when it is imported."""
    written: Mapping[str, Any] = spec.step.action.env if isinstance(spec.step.action, Function) else {}
    given: Mapping[str, Any] = spec.action.env if isinstance(spec.action, Function) else {}
    return {
        name: text_of(value, blobs)
        for name, value in given.items()
        if type(value) is str and written.get(name) == value
    }


def warm_call_of(spec: AttemptSpec, blobs: Blobs) -> dict[str, Any]:
    """A call, for a letter to a warm pod. It stores what the call reads. Raises CannotRun, UserError, ValueError, OSError."""
    action = spec.action
    assert isinstance(action, Function)
    inputs = dict(spec.inputs)
    for given in spec.step.inputs:
        if given.name in inputs:
            inputs[given.name] = _with_files(given.type, inputs[given.name], blobs)
    return {
        "key": attempt_key(spec),
        "alone": spec.attempt > 1,
        "bundle": spec.bundle,
        "module": action.module,
        "name": action.name,
        "code": action.code,
        "inputs": inputs,
        "texts": [given.name for given in spec.step.inputs if given.type.name == "str"],
        "outputs": [[output.name, str(output.type)] for output in spec.step.outputs],
        "env": _env(spec, blobs)[0],
    }


def _with_files(type_: Type, value: Any, blobs: Blobs) -> Any:
    """A value with stored files in place of paths on this machine, where its type says that it names files."""
    if type_.name in ("file", "dir"):
        named = isinstance(value, str) and values.leads_somewhere(value)
        return values.store_path(Path(value), blobs) if named else value
    if type_.name == "optional":
        return _with_files(type_.args[0], value, blobs)
    if type_.name in ("list", "tuple") and type_.args and isinstance(value, list | tuple):
        each = type_.args if type_.name == "tuple" and len(type_.args) == len(value) else [type_.item] * len(value)
        return [_with_files(inner, item, blobs) for inner, item in zip(each, value, strict=True)]
    if type_.name == "dict" and type_.args and isinstance(value, dict):
        return {key: _with_files(type_.item, item, blobs) for key, item in value.items()}
    return value


def _image(image: str) -> str:
    if not image or image.startswith("-") or image != image.strip():
        raise CannotRun(f"{image!r} is not the name of an image")
    return image


class _Command:
    """A container or a script."""

    def __init__(
        self,
        spec: AttemptSpec,
        action: Container | Script,
        options: KubernetesOptions,
        blobs: Blobs,
        library: Callable[[], str],
    ) -> None:
        self.spec = spec
        self.action = action
        self.options = options
        self.blobs = blobs
        self.library = library
        self.workdir = posixpath.normpath(action.workdir) if action.workdir else ""
        self.fetched: list[Any] = []
        self.length = 0
        """Of the texts in the pod."""
        env, hidden = _env(spec, blobs)
        image = text_of(action.image, blobs) if action.image is not None else options.image
        self.made = Work(image=_image(image), command=[], workdir=self.workdir, env=env, secret_env=hidden)

    def work(self) -> Work:
        made, action = self.made, self.action
        self._mounts()
        self._inputs()
        made.command = [text_of(word, self.blobs) for word in action.command]
        if isinstance(action, Script):
            made.command = [*(made.command or ["sh"]), SCRIPT]
            self._file(SCRIPT, text_of(action.source, self.blobs))
        else:
            made.args = [text_of(word, self.blobs) for word in action.args]
        self._outputs()
        if self.fetched:
            _reachable(self.options, "inputs of this step are files")
            digest = self.blobs.put(values.dumps(self.fetched).encode())
            made.fetch = _helper(self.options, self.library(), "fetch", digest)
        return made

    def _inside(self, path: str) -> str:
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

    def _file(self, path: str, text: str) -> None:
        """A text that the container finds at this path."""
        self.length += len(text)
        if any(secret and secret in text for secret in self.spec.secrets.values()):
            self.made.files.append(TextFile(path, text, secret=True))
        elif len(text) <= LONGEST and self.length <= 3 * LONGEST:
            self.made.files.append(TextFile(path, text))
        else:
            self._fetch(Input(name=posixpath.basename(path), value=None), path, text)

    def _fetch(self, given: Input, path: str, value: Any) -> None:
        number = len(self.fetched)
        sub = f"inputs/{number}/{posixpath.basename(path)}"
        self.fetched.append([sub, given.name, str(given.type), value])
        self.made.places.append(Place(path, sub))

    def _inputs(self) -> None:
        for given in self.spec.step.inputs:
            if given.path is None or given.name not in self.spec.inputs:
                continue
            path, value = self._inside(given.path), self.spec.inputs[given.name]
            value = _with_files(given.type, value, self.blobs)
            if isinstance(value, Stored) and value.kind != "json":
                self._fetch(given, path, value)
            else:
                self._file(path, values.as_text(value, self.blobs))

    def _mounts(self) -> None:
        for number, mount in enumerate(self.spec.step.mounts):
            path = self._inside(mount.path)
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
            self.made.places.append(Place(path, f"mounts/{number}/{sub}".rstrip("/"), read_only=mount.read_only))
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
        self.made.places.append(Place(path, f"{folder}/{sub}".rstrip("/"), shared=True, read_only=read_only))

    # -- after its end

    def _outputs(self) -> None:
        outputs = self.spec.step.outputs
        if not outputs:
            self.made.places.append(Place(OUTPUTS, "outputs"))
            return
        copies: list[tuple[str, str]] = []
        printed = ""
        told = []
        for number, output in enumerate(outputs):
            if output.path is None:
                place, shown = f"outputs/{output.name}", f"$PENSTOCK_OUTPUTS/{output.name}"
            elif output.path == STDOUT:
                printed = printed or f"collected/{number}/stdout"
                place, shown = printed, STDOUT
            else:
                path = self._inside(output.path)
                place, shown = self._collected(number, path, copies), output.path
            told.append([output.name, str(output.type), place, shown])
        self.made.places.append(Place(OUTPUTS, "outputs"))
        if copies or printed:
            self._wrap(copies, printed, outputs)
        _reachable(self.options, "the outputs of this step are handed on there")
        limits = [self.blobs.limits.value, self.blobs.limits.file]
        said = {"outputs": told, "loosely": starts_at_root(self.spec), "limits": limits}
        digest = self.blobs.put(values.dumps(said).encode())
        self.made.put = _helper(self.options, self.library(), "put", digest)

    def _collected(self, number: int, path: str, copies: list[tuple[str, str]]) -> str:
        """Where the helper finds an output, in the scratch folder."""
        for one in self.made.places:
            if not one.shared and one.sub_path.startswith("mounts/") and folders.is_below(path, one.path):
                return one.sub_path + path.removeprefix(one.path)
        place = f"collected/{number}/{posixpath.basename(path)}"
        if self.made.command:
            copies.append((path, place))
            return place
        folder = posixpath.dirname(path)
        if folder in ALWAYS_THERE:
            raise CannotRun(
                f"the output {path} cannot be taken from a container whose command is its image's own: give the step a command, "
                "or write to $PENSTOCK_OUTPUTS or to a folder that the image has not"
            )
        same = next((one for one in self.made.places if one.path == folder), None)
        if same is None:
            same = Place(folder, f"collected/{number}")
            self.made.places.append(same)
        return f"{same.sub_path}/{posixpath.basename(path)}"

    def _wrap(self, copies: list[tuple[str, str]], printed: str, outputs: tuple[Output, ...]) -> None:
        made = self.made
        if not made.command:
            names = ", ".join(output.name for output in outputs if output.path == STDOUT)
            raise CannotRun(
                f"what an image's own command prints cannot be an output ({names}): give the step a command"
            )
        made.places.append(Place(f"{INSIDE}/collected", "collected"))
        made.command = ["sh", "-c", wrapper(copies, printed), "penstock", *made.command]


def wrapper(copies: list[tuple[str, str]], printed: str) -> str:
    """Shell that runs its arguments, hands SIGTERM on, and copies what they left. Needs sh, mkdir and cp; for `printed` mkfifo and tee."""
    # The end may be asked for before there is a process to hand it to.
    lines = ["task= ended=", """trap 'if [ -n "$task" ]; then kill -TERM $task 2>/dev/null; else ended=1; fi' TERM"""]
    for path, place in copies:
        lines.append(
            f"mkdir -p {shlex.quote(posixpath.dirname(path))} {shlex.quote(posixpath.dirname(f'{INSIDE}/{place}'))}"
        )
    if printed:
        target = shlex.quote(f"{INSIDE}/{printed}")
        pipe = shlex.quote(f"{INSIDE}/collected/pipe")
        lines.append(
            f"mkdir -p {shlex.quote(posixpath.dirname(f'{INSIDE}/{printed}'))} && rm -f {pipe} && mkfifo {pipe} || exit 126"
        )
        lines.append('[ -z "$ended" ] || exit 143')
        lines.append(f"tee {target} < {pipe} & tee=$!")
        lines.append(f'"$@" > {pipe} & task=$!')
    else:
        lines.append('[ -z "$ended" ] || exit 143')
        lines.append('"$@" & task=$!')
    # A process that has just been forked loses a signal: it is given a moment.
    lines.append('[ -z "$ended" ] || { sleep 0.1; kill -TERM $task; } 2>/dev/null')
    lines.append("while :; do wait $task; code=$?; kill -0 $task 2>/dev/null || break; done")
    if printed:
        lines.append("wait $tee")
    lines.append("[ $code -eq 0 ] || exit $code")
    for path, place in copies:
        source = shlex.quote(path)
        target = shlex.quote(f"{INSIDE}/{place}")
        lines.append(f"if [ -e {source} ] || [ -L {source} ]; then cp -R {source} {target} || exit 126; fi")
    return "\n".join([*lines, "exit 0"])
