"""One replica of a step with an image: a container, a script or a function. Made by backend, which runs its container."""

from __future__ import annotations

from pathlib import Path

from penstock import rights
from penstock.backends.attempt import replica_logs, text_of
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.container.files import ContainerFiles
from penstock.backends.container.function import prepare_function
from penstock.backends.container.spec import (
    SCRIPT,
    ContainerSpec,
    check_image,
    command_of,
    container_name,
    env_of,
    labels_of,
)
from penstock.graph.model import Container, Function, Script


class StepContainer:
    """Making it writes files: do not do it in the engine's thread. Raises CannotRun, MountError, ValueError, OSError, and what
    the blobs raise."""

    def __init__(self, spec: AttemptSpec, number: int, context: BackendContext) -> None:
        self.number = number
        self.files = files = ContainerFiles(spec, number, context)
        out, err = replica_logs(spec, number)
        self.stdout = context.home / out
        action = files.spec.action
        assert isinstance(action, Container | Script | Function)
        image = check_image(text_of(action.image, context.blobs))
        files.prepare()
        if isinstance(action, Function):
            command = prepare_function(files, image)
        else:
            files.write_inputs()
            files.make_outputs()
            command = self._command(action, image)
        self.container = ContainerSpec(
            name=container_name(str(context.home), spec.id, number),
            command=command,
            workdir=files.workdir,
            mounts=files.mounts,
            env=env_of(files),
            labels=labels_of(files),
            out=out,
            err=err,
            secrets=tuple(spec.secrets.values()),
            folders=files.new_folders,
        )
        rights.make_folder(self.stdout.parent)
        if out != err:
            self.stdout.unlink(missing_ok=True)  # left by the same attempt before a crash

    def _command(self, action: Container | Script, image: str) -> list[str]:
        blobs = self.files.context.blobs
        words = [text_of(word, blobs) for word in action.command]
        if isinstance(action, Container):
            return command_of(image, words, [text_of(word, blobs) for word in action.args])
        file = self.files.folder / "script"
        write_script(file, text_of(action.source, blobs))
        self.files.mount(file, SCRIPT, read_only=True)
        return command_of(image, [*(words or ["sh"]), SCRIPT], [])


def write_script(file: Path, source: str) -> None:
    file.write_text(source, encoding="utf-8")
    file.chmod(0o755)
