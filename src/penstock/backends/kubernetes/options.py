"""What the user has set for tasks on a cluster, from the environment. Made by backend; read by work, manifest and cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import Problem, UserError
from penstock.scheduling.registry import takes_pods

PREFIX: Final = "PENSTOCK_KUBERNETES_"
IMAGE: Final = f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim"
MOST: Final = 1000
"""Jobs at the same time."""
PATIENCE: Final = 600.0
"""Seconds for which a pod may wait for a machine."""
ARTIFACTS: Final = "/penstock/artifacts"
"""Where pods see the artifact store, if it is on a volume."""
_CLAIM = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class Volume:
    """Where pods find the home folder of this engine."""

    kind: str
    """pvc or host"""
    name: str
    """Of the claim, or the path on every node."""
    folder: str = ""
    """The home folder in it."""

    def source(self) -> dict[str, Any]:
        if self.kind == "pvc":
            return {"persistentVolumeClaim": {"claimName": self.name}}
        return {"hostPath": {"path": self.name, "type": "Directory"}}

    def inside(self, path: str) -> str:
        """The path of something in the home, for `subPath`."""
        return f"{self.folder}/{path}".strip("/")


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    context: str = ""
    namespace: str = ""
    """Empty: that of the context."""
    image: str = IMAGE
    """For functions and scripts without an image, and for what fetches inputs and stores outputs."""
    python: str = "python3"
    """The Python of that image, and of the images of functions."""
    service_account: str = ""
    volume: Volume | None = None
    store: str = ""
    """The artifact store as pods see it: a path or a URL. Empty: they cannot reach it."""
    store_folder: str = ""
    """The folder of the artifact store in the home, if it is on the volume."""
    overlay: Mapping[str, Any] = field(default_factory=dict)
    """A pod template, merged into that of every pod."""
    most: int = MOST
    reuse: int = 0
    """Warm pods for the functions of each shape. 0: each attempt is a Job."""
    patience: float = PATIENCE
    kueue: bool = True
    """Do the queues of the cluster's Kueue decide, if there are any?"""
    scheduler: str = ""
    """Another scheduler, whose queues take pods by what is written on them. Empty: there is none."""


def read(environ: Mapping[str, str], home: Path, artifacts: str) -> KubernetesOptions:
    """`artifacts`: the root of the artifact store here. Raises UserError."""

    def given(name: str) -> str:
        return environ.get(PREFIX + name, "").strip()

    volume = _volume(given("VOLUME")) if given("VOLUME") else None
    chosen = environ.get("PENSTOCK_SCHEDULER", "").strip()
    queues_pods = chosen if takes_pods(chosen) else ""
    store, folder = _store(artifacts, home.absolute(), volume)
    return KubernetesOptions(
        context=given("CONTEXT"),
        namespace=given("NAMESPACE"),
        image=given("IMAGE") or IMAGE,
        python=given("PYTHON") or "python3",
        service_account=given("SERVICE_ACCOUNT"),
        volume=volume,
        store=store,
        store_folder=folder,
        overlay=_overlay(given("POD")) if given("POD") else {},
        most=int(_number("PODS", given("PODS"), MOST)),
        reuse=_count("POD_REUSE", given("POD_REUSE")),
        patience=_number("PATIENCE", given("PATIENCE"), PATIENCE),
        kueue=_switch("KUEUE", given("KUEUE")) and not queues_pods,
        scheduler=queues_pods,
    )


def _wrong(name: str, message: str, fix: str) -> UserError:
    return UserError(Problem("P727", f"{PREFIX}{name} {message}", fix))


def _number(name: str, text: str, default: float) -> float:
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise _wrong(
            name, f"is {text!r}, which is not a number above 0", f"set it to a number, as in {PREFIX}{name}=100"
        )
    return found


def _count(name: str, text: str) -> int:
    if text and not (text.isdigit() and int(text) <= MOST):
        raise _wrong(
            name,
            f"is {text!r}, which is not a number of pods up to {MOST}",
            f"set it to a number, as in {PREFIX}{name}=4; 0 makes a Job for each task",
        )
    return int(text or 0)


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("", "on", "off"):
        raise _wrong(name, f"is {text!r}, which is neither on nor off", f"set {PREFIX}{name}=off, or leave it out")
    return text.lower() != "off"


def _volume(text: str) -> Volume:
    kind, _, rest = text.partition(":")
    fix = f"name what holds PENSTOCK_HOME: {PREFIX}VOLUME=pvc:CLAIM, pvc:CLAIM/FOLDER, or host:/FOLDER/ON/EVERY/NODE"
    if kind == "host" and rest.startswith("/"):
        return Volume("host", rest.rstrip("/") or "/")
    name, _, folder = rest.partition("/")
    if kind == "pvc" and _CLAIM.match(name) and ".." not in folder.split("/"):
        return Volume("pvc", name, folder.strip("/"))
    raise _wrong("VOLUME", f"is {text!r}, which names no volume", fix)


def _store(artifacts: str, home: Path, volume: Volume | None) -> tuple[str, str]:
    """(as pods see it, its folder in the home)"""
    if "://" in artifacts:
        return artifacts, ""
    place = Path(artifacts).absolute()
    if volume is None:
        return "", ""
    if not place.is_relative_to(home):
        fix = "leave PENSTOCK_ARTIFACTS out, or set it to a folder of PENSTOCK_HOME or to a URL"
        raise _wrong("VOLUME", f"holds {home}, and the artifact store is elsewhere: {place}", fix)
    return ARTIFACTS, str(place.relative_to(home))


def _overlay(name: str) -> Mapping[str, Any]:
    import yaml

    fix = "name a YAML file with a pod template: metadata and spec, its containers named main and helper"
    try:
        with open(name, encoding="utf-8") as file:
            found = yaml.safe_load(file)
    except OSError as error:
        raise _wrong("POD", f"names {name}, which cannot be read: {error.strerror}", fix) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong("POD", f"names {name}, which is not YAML: {str(error).splitlines()[0]}", fix) from None
    if not isinstance(found, Mapping) or not set(found) <= {"metadata", "spec", "apiVersion", "kind"}:
        raise _wrong("POD", f"names {name}, which is not a pod template", fix)
    containers = (found.get("spec") or {}).get("containers") or []
    odd = [one.get("name") for one in containers if one.get("name") not in ("main", "helper")]
    if odd:
        raise _wrong("POD", f"names {name}, where a container is called {odd[0]}", fix)
    return found
