"""The images of a workflow on this machine: which it needs, whether podman or docker can run them, and whether its commands may run without
them. Called by the run command and by LocalRunner.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping

from penstock.errors import Problem, UserError
from penstock.graph.model import Container, Function, Pod, Script, Workflow
from penstock.settings import Settings

_ANSWER = "on-host"
"""A file in the home: commands of images may run on this machine."""


def images_of(workflow: Workflow) -> list[str]:
    """Every image that is named literally. A name that is computed at run time is not known yet."""
    found: dict[str, None] = {}
    for one in (workflow, *workflow.definitions):
        for step in (*one.steps, *one.on_exit):
            match step.action:
                case Pod(parts=parts):
                    images = [part.image for part in parts]
                case Container(image=image) | Script(image=image) | Function(image=image):
                    images = [image]
                case _:
                    images = []
            found |= {image: None for image in images if isinstance(image, str)}
    return list(found)


def may_use_host(settings: Settings) -> bool:
    """May commands of images run on this machine? The answer is $PENSTOCK_ON_HOST, or what was answered here before."""
    return settings.on_host or (settings.home / _ANSWER).is_file()


def allow_host(settings: Settings, allowed: bool, why: str) -> None:
    """Remembers the answer for this .penstock. Raises UserError if they may not."""
    if not allowed:
        fix = (
            "install podman or docker; or run the commands on this machine, as you: --on container=process, "
            "or PENSTOCK_ON_HOST=yes for all runs"
        )
        raise UserError(Problem("P467", f"{why}, so the images of this workflow cannot be run", fix))
    settings.home.mkdir(parents=True, exist_ok=True)
    (settings.home / _ANSWER).write_text(
        "Commands of images may run on this machine. Remove this file to be asked again.\n"
    )


def backends_if_allowed(settings: Settings, on: Mapping[str, str]) -> dict[str, str]:
    """Kind of step -> backend, where nobody is asked: commands of images run on this machine if that was allowed before and there is no
    podman or docker."""
    if "container" not in on and may_use_host(settings) and why_not_runnable((), lambda image: None):
        return {**on, "container": "process"}
    return dict(on)


def why_not_runnable(images: Iterable[str], pulling: Callable[[str], None]) -> str:
    """Why these images cannot be run on this machine; empty if they can. Missing images are pulled; `pulling` is called before."""
    from penstock.backends.tools import CONTAINER_TOOLS, find, last_line  # most workflows name no image

    tool = find(os.environ, "PENSTOCK_CONTAINER_TOOL", CONTAINER_TOOLS)
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
