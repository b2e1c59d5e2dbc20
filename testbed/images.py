"""Container images for the real node, made from programs on this machine: no registry is asked. Called by components/node.py and by tests.

An image is a few files in one layer, written as an OCI archive with Python's tarfile and imported into the node's containerd. Archives are kept
in the testbed's cache, named after what went into them, so that a program built anew makes an image anew. Kubernetes reads `busybox:testbed`
as `docker.io/library/busybox:testbed`, so that is the name in the archive; pods say `imagePullPolicy: IfNotPresent` or `Never`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from testbed import binaries
from testbed.errors import TestbedError

TAG = "testbed"
PAUSE = f"docker.io/library/pause:{TAG}"
BUSYBOX = f"busybox:{TAG}"
_RECIPE = "1"  # to be raised when the way of writing an archive changes
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_TEKTON = ("entrypoint", "nop", "workingdirinit", "sidecarlogresults")
_ACCOUNTS = {
    "/etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/false\n",
    "/etc/group": b"root:x:0:\nnobody:x:65534:\n",
    "/etc/nsswitch.conf": b"hosts: files dns\n",
}


@dataclass(frozen=True)
class Image:
    name: str
    programs: dict[str, Path]  # path in the image: file on this machine
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    component: str = ""  # only of use together with this component

    @property
    def reference(self) -> str:
        return f"docker.io/library/{self.name}:{TAG}"

    def archive(self) -> Path:
        """The archive in the cache; made if it is not there yet."""
        target = binaries.CACHE / "images" / f"{self.name}-{self._key()}.tar"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            half = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                self._write(half)
                half.replace(target)
            finally:
                half.unlink(missing_ok=True)
        return target

    def _key(self) -> str:
        # Size and time stand for the content of a program: reading a hundred megabytes at every start would be felt.
        stats = {
            path: (str(file), file.stat().st_size, file.stat().st_mtime_ns) for path, file in self.programs.items()
        }
        rest = (self.entrypoint, self.command, sorted(self.files.items()), sorted(self.links.items()))
        return hashlib.sha256(repr((_RECIPE, sorted(stats.items()), rest)).encode()).hexdigest()[:16]

    def _write(self, target: Path) -> None:
        layer = target.with_name(f"{target.name}.layer")
        try:
            with tarfile.open(layer, "w") as tar:
                for entry, content in self._entries():
                    tar.addfile(entry, content)
            with layer.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            with tarfile.open(target, "w") as tar:
                _archive(tar, self, layer, digest)
        finally:
            layer.unlink(missing_ok=True)

    def _entries(self) -> Iterator[tuple[tarfile.TarInfo, io.IOBase | None]]:
        folders = {"/tmp", "/root"}
        for path in (*self.programs, *self.files, *self.links):
            folders |= {str(parent) for parent in Path(path).parents if str(parent) != "/"}
        for folder in sorted(folders):
            yield _entry(folder, tarfile.DIRTYPE, 0o1777 if folder == "/tmp" else 0o755), None
        for path, file in self.programs.items():
            with file.open("rb") as stream:
                yield _entry(path, tarfile.REGTYPE, 0o755, file.stat().st_size), stream
        for path, content in self.files.items():
            yield _entry(path, tarfile.REGTYPE, 0o644, len(content)), io.BytesIO(content)
        for path, to in self.links.items():
            link = _entry(path, tarfile.SYMTYPE, 0o777)
            link.linkname = to
            yield link, None


def _entry(path: str, kind: bytes, mode: int, size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.removeprefix("/"))
    entry.type, entry.mode, entry.size = kind, mode, size
    return entry


def _archive(tar: tarfile.TarFile, image: Image, layer: Path, digest: str) -> None:
    """An OCI image layout: the layer, the configuration, the manifest, and the index that names it."""

    def put(path: str, content: bytes) -> None:
        tar.addfile(_entry(path, tarfile.REGTYPE, 0o644, len(content)), io.BytesIO(content))

    def blob(kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        content = json.dumps(thing).encode()
        name = hashlib.sha256(content).hexdigest()
        put(f"blobs/sha256/{name}", content)
        return {
            "mediaType": f"application/vnd.oci.image.{kind}.v1+json",
            "digest": f"sha256:{name}",
            "size": len(content),
        }

    size = layer.stat().st_size
    with layer.open("rb") as stream:
        tar.addfile(_entry(f"blobs/sha256/{digest}", tarfile.REGTYPE, 0o644, size), stream)
    run = {
        "Env": [f"PATH={_PATH}"],
        "Entrypoint": list(image.entrypoint),
        "Cmd": list(image.command),
        "WorkingDir": "/",
    }
    config = blob(
        "config",
        {
            "architecture": _ARCHITECTURE,
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        },
    )
    content = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": f"sha256:{digest}", "size": size}
    manifest = blob(
        "manifest",
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [content],
        },
    )
    named = {**manifest, "annotations": {"io.containerd.image.name": image.reference}}
    put("index.json", json.dumps({"schemaVersion": 2, "manifests": [named]}).encode())
    put("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


def _busybox() -> Path:
    found = shutil.which("busybox", path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin")
    if not found or _libraries([Path(found)]):
        raise TestbedError(
            "the real node needs a static busybox for its images; install it: sudo apt-get install busybox-static"
        )
    return Path(found)


def _base() -> list[Image]:
    busybox = _busybox()
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"/bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
    links["/usr/bin/env"] = "/bin/busybox"  # where scripts look for it
    files = {**_ACCOUNTS, "/etc/os-release": b'ID=busybox\nPRETTY_NAME="busybox of the testbed"\n'}
    pause = ("/bin/busybox", "sleep", "infinity")
    return [
        Image("pause", {"/bin/busybox": busybox}, pause),
        Image("busybox", {"/bin/busybox": busybox}, command=("sh",), files=files, links=links),
    ]


def _argo() -> Image:
    files = dict(_ACCOUNTS)
    types = Path("/etc/mime.types")
    # Artifact uploads look up content types; without the table they are sent as plain bytes.
    files["/etc/mime.types"] = types.read_bytes() if types.exists() else b"text/plain txt log\napplication/json json\n"
    return Image("argoexec", {"/bin/argoexec": binaries.path("argoexec")}, ("argoexec",), files=files, component="argo")


def _tekton(name: str) -> Image:
    # Tekton's pods call their helpers by the path that its build tool gives them.
    program = f"/ko-app/{name}"
    built = binaries.path(f"tekton-{name}")
    return Image(f"tekton-{name}", {program: built}, (program,), files=_ACCOUNTS, component="tekton")


def images(components: tuple[str, ...]) -> list[Image]:
    """What a node with these components needs, less what has not been built."""
    found = [*_base(), _argo(), *map(_tekton, _TEKTON)]
    wanted = [image for image in found if not image.component or image.component in components]
    return [image for image in wanted if all(file.exists() for file in image.programs.values())]


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries and the loaders of programs; none for static ones."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    return {Path(path) for path in re.findall(r"(?:=>\s+|^\s+)(/\S+)", said, re.MULTILINE)}


@cache
def _python() -> tuple[Path, frozenset[Path]]:
    """Where this machine's Python is, and the folders of the libraries that it and its modules need."""
    base = Path(sys.base_prefix)
    modules = Path(next(path for path in sys.path if path.endswith("lib-dynload"))).glob("*.so")
    libraries = _libraries([_interpreter(base), *modules])
    # A loader is often a link from /lib64 to elsewhere: both ends must be there.
    return base, frozenset(folder for library in libraries for folder in (library.parent, library.resolve().parent))


def _interpreter(base: Path) -> Path:
    return base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def host_python(*extra: Path) -> dict[str, Any]:
    """What a pod with busybox:testbed needs to run the Python of this machine: `volumes` for the pod, `volumeMounts`, `env` and `command` (the
    interpreter) for the container. Folders given as extra are mounted at their own paths and importable. All of it is read-only.

    It is the interpreter that virtual environments here are based on, with its standard library; site-packages of a virtual environment are
    only there when given as extra.
    """
    base, folders = _python()
    wanted = {base, *folders, *(path.absolute() for path in extra)}
    tops = sorted(path for path in wanted if not any(other in path.parents for other in wanted))
    volumes = [
        {"name": f"host-{index}", "hostPath": {"path": str(path), "type": "Directory"}}
        for index, path in enumerate(tops)
    ]
    mounts = [{"name": f"host-{index}", "mountPath": str(path), "readOnly": True} for index, path in enumerate(tops)]
    env = [
        {"name": "PYTHONHOME", "value": str(base)},
        {"name": "PYTHONPATH", "value": ":".join(str(path.absolute()) for path in extra)},
        {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
    ]
    return {"volumes": volumes, "volumeMounts": mounts, "env": env, "command": [str(_interpreter(base))]}
