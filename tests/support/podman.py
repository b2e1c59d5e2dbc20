"""Podman for the tests, with images and containers in a folder of its own and images made of this machine's own programs.

What a sandbox needs differs from one to the next: without the right to raise limits, with old and new cgroups mixed (which crun
refuses), without overlay. A few settings are tried until a container runs; they go into configuration files that only
the tests see, as they would stand in a user's.
"""

from __future__ import annotations

import io
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

IMAGE = "localhost/penstock-test:1"
PYTHON_IMAGE = "localhost/penstock-python:1"
APPLETS = "sh cat cp echo env false id kill ln ls mkdir mkfifo mv pwd rm sed seq sleep test touch true wc".split()
_RUNTIMES = ("", 'runtime = "runc"', 'runtime = "crun"')


class Unusable(Exception):
    """No container runs here, and why."""


class Podman:
    """`environ` is what a user of it would have in the environment."""

    def __init__(self) -> None:
        program, busybox = shutil.which("podman"), shutil.which("busybox")
        if program is None or busybox is None:
            raise Unusable("podman or busybox is not installed (sudo apt-get install podman busybox-static)")
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-podman-"))
        self.environ: dict[str, str] = {}
        layer = _busybox_layer(Path(busybox))
        why = ""
        for number, (driver, runtime) in enumerate((d, r) for d in ("overlay", "vfs") for r in _RUNTIMES):
            self._configure(self.folder / str(number), driver, runtime)
            try:
                self.run("import", "-", IMAGE, given=layer)
                if self.run("run", "--rm", "--network=none", IMAGE, "/bin/echo", "hello") == "hello\n":
                    return
            except subprocess.SubprocessError as error:
                why = str(getattr(error, "stderr", b"").decode(errors="replace").strip() or error).split("\n")[-1]
        self.close()
        raise Unusable(f"podman runs no containers here: {why}")

    def _configure(self, folder: Path, driver: str, runtime: str) -> None:
        folder.mkdir()
        limits = [f'"{name}={":".join(map(str, _limit(number)))}"' for name, number in _LIMITS.items()]
        cgroups = 'cgroups = "disabled"' if "crun" in runtime else ""
        (folder / "containers.conf").write_text(
            f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n{cgroups}\n"
            f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n{runtime}\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
        )
        self.environ = {
            "PENSTOCK_CONTAINER_TOOL": "podman",
            "PENSTOCK_CONTAINER_OPTIONS": "--network=none",
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def run(self, *words: str, given: bytes = b"") -> str:
        return subprocess.run(
            ["podman", *words],
            input=given,
            env={**os.environ, **self.environ},
            check=True,
            timeout=60,
            capture_output=True,
        ).stdout.decode()

    def containers(self) -> list[str]:
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def with_python(self) -> str:
        """An image with the Python of these tests in it, and nothing of Penstock."""
        if PYTHON_IMAGE not in self.run("images", "--format", "{{.Repository}}:{{.Tag}}").split():
            self.run("import", "-", PYTHON_IMAGE, given=_python_layer())
        return PYTHON_IMAGE

    def close(self) -> None:
        with suppress(subprocess.SubprocessError):
            self.run("rm", "--all", "--force", "--time", "0")
        with open("/proc/mounts") as file:
            mounts = [line.split()[1] for line in file]
        for mount in reversed(mounts):
            if mount.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}


def _limit(number: int) -> tuple[int, int]:
    """At most what we have ourselves: raising it is not for everybody."""
    hard = resource.getrlimit(number)[1]
    return (1024, 4096) if hard == resource.RLIM_INFINITY else (min(1024, hard), min(4096, hard))


def _busybox_layer(busybox: Path) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for folder, mode in (("tmp", 0o1777), ("data", 0o755), ("etc", 0o755)):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, mode
            tar.addfile(info)
        tar.add(busybox, "bin/busybox")
        for applet in APPLETS:
            info = tarfile.TarInfo(f"bin/{applet}")
            info.type, info.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(info)
        _text(tar, "data/kept", "of the image\n")
        _text(tar, "etc/passwd", "root:x:0:0:of the image:/:/bin/sh\n")
    return data.getvalue()


def _text(tar: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(text), 0o644
    tar.addfile(info, io.BytesIO(text.encode()))


_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "turtledemo",
}


def _python_layer() -> bytes:
    """The interpreter, its library, and what both are linked to, each at the path that it has here."""
    program = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(program, str(program).lstrip("/"))
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(program)
        tar.addfile(link)
        tar.add(library, str(library).lstrip("/"), filter=_wanted)
        for file in _linked([program, *library.glob("lib-dynload/*.so")]):
            tar.add(os.path.realpath(file), file.lstrip("/"))
    return data.getvalue()


def _wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = os.path.basename(info.name)
    return None if name in _LEFT_OUT or name.startswith("config-") else info


def _linked(files: Iterable[Path]) -> list[str]:
    told = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False, timeout=60).stdout
    words = (word for line in told.splitlines() if not line.endswith(":") for word in line.split())
    return sorted({word for word in words if word.startswith("/") and os.path.exists(word)})
