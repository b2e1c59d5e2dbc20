"""One container, as podman or docker is told to create it. Made by step and pod; used by run."""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.backends.attempt import CannotRun, penstock_env, step_env
from penstock.backends.container.files import INSIDE, OUTPUTS, BindMount, ContainerFiles
from penstock.backends.local import function_main
from penstock.backends.own_error import NAME

SCRIPT = f"{INSIDE}/script"


@dataclass(slots=True, kw_only=True)
class ContainerSpec:
    name: str
    command: list[str]
    """The image with the words around it, from `--entrypoint` on."""
    workdir: str
    """Empty: the image's own."""
    mounts: list[BindMount]
    env: dict[str, str]
    labels: dict[str, str]
    out: str
    err: str
    """Logs, below the home; the same unless an output is what is printed."""
    folders: list[str] = field(default_factory=list)
    """To be made in the container before it starts."""
    network: str = ""
    """The container whose network it uses."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Texts that must not be among the arguments of the tool, nor in the log."""

    @property
    def hidden(self) -> dict[str, str]:
        """The variables that hold secrets. The tool gets them by its own environment."""
        return {
            key: value
            for key, value in self.env.items()
            if key == function_main.SECRETS or any(text in value for text in self.secrets)
        }

    def create_words(self, options: Sequence[str]) -> list[str]:
        """What follows the name of the tool. The user's own options come last, so that they take precedence."""
        words = ["create", "--name", self.name, "--pull", "missing"]
        for key, value in self.labels.items():
            words += ["--label", f"penstock.{key}={value}"]
        words += ["--log-driver", "none"]  # we keep the log: a second copy is of no use
        if self.workdir:
            words += ["--workdir", self.workdir]
        for mount in self.mounts:
            words += mount.words()
        hidden = self.hidden
        for key, value in self.env.items():
            words += ["--env", key if key in hidden else f"{key}={value}"]
        if self.network:
            options = [*_without_network(options), "--network", f"container:{self.network}"]
        return [*words, *options, *self.command]

    def folders_tar(self) -> bytes:
        """The folders to make, in the form that `cp` takes."""
        import tarfile

        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for folder in self.folders:
                info = tarfile.TarInfo(folder.lstrip("/"))
                info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o777, int(time.time())
                tar.addfile(info)
        return data.getvalue()


def command_of(image: str, words: Sequence[str], args: Sequence[str]) -> list[str]:
    """As in Kubernetes: `words` replace the image's entrypoint, `args` what it is given."""
    return [*(["--entrypoint", words[0], image, *words[1:]] if words else [image]), *args]


def check_image(image: str, part: str = "") -> str:
    """Raises CannotRun."""
    if not image or image.startswith("-"):
        raise CannotRun(f"{f'part {part}: ' if part else ''}{image!r} is not the name of an image")
    return image


def labels_of(files: ContainerFiles) -> dict[str, str]:
    return {"home": str(files.context.home), "engine": files.context.engine, "order": files.spec.id}


def env_of(files: ContainerFiles) -> dict[str, str]:
    ours = penstock_env(files.spec, files.context, files.number, OUTPUTS, f"{OUTPUTS}/{NAME}")
    del ours["PENSTOCK_HOME"]  # the container need not have that folder
    return ours | step_env(files.spec.action, files.context.blobs) | function_main.secret_env(files.spec)


def container_name(home: str, id: str, number: int, part: str = "") -> str:
    """Readable, the same for the same attempt, and different for an attempt of the same id from another home."""
    whole = f"{home}\0{id}\0{part}" if part else f"{home}\0{id}"
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", f"{id}-{part}").strip("-")[:60]
    return f"penstock-{readable}-{digest}{f'-{number}' if number else ''}"


def _without_network(options: Sequence[str]) -> list[str]:
    """The user's options about the network apply to the container whose network is used."""
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
