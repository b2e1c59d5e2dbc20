"""What the testbed is made of: programs built, unmodified, from published Go modules that the go.mod files in modules/ pin.

Called by `python -m testbed build`, which `make test-cluster` runs first, and by `Testbed`, which asks for the path of a program.
Programs are built once and kept under ~/.cache/penstock-testbed, in a folder named after the pins they were built from, so that a change
of version builds anew and two versions live side by side.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed.errors import TestbedError

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("PENSTOCK_TESTBED_CACHE") or Path.home() / ".cache" / "penstock-testbed")
NEWEST_PINS = HERE / "modules" / "argo"
"""Whose go.mod asks for the newest Go."""


@dataclass(frozen=True)
class Program:
    name: str
    module: str  # folder in modules/
    package: str


_TEKTON = "github.com/tektoncd/pipeline/cmd"
_ARGO = "github.com/argoproj/argo-workflows/v4/cmd"

# In the order of building: when time runs out, what comes later is missing, and its tests are skipped by name.
PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "core", "go.etcd.io/etcd/server/v3"),
        Program("kube-apiserver", "core", "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program("kube-controller-manager", "core", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        Program("kube-scheduler", "core", "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("kubectl", "core", "k8s.io/kubernetes/cmd/kubectl"),
        Program("kueue", "core", "sigs.k8s.io/kueue/cmd/kueue"),
        Program("kwok", "core", "sigs.k8s.io/kwok/cmd/kwok"),
        Program("jobset", "core", "sigs.k8s.io/jobset"),
        Program("tekton-controller", "tekton", f"{_TEKTON}/controller"),
        Program("tekton-webhook", "tekton", f"{_TEKTON}/webhook"),
        Program("workflow-controller", "argo", f"{_ARGO}/workflow-controller"),
        Program("kubelet", "core", "k8s.io/kubernetes/cmd/kubelet"),
        Program("tekton-entrypoint", "tekton", f"{_TEKTON}/entrypoint"),
        Program("tekton-nop", "tekton", f"{_TEKTON}/nop"),
        Program("tekton-workingdirinit", "tekton", f"{_TEKTON}/workingdirinit"),
        Program("tekton-sidecarlogresults", "tekton", f"{_TEKTON}/sidecarlogresults"),
        Program("argoexec", "argo", f"{_ARGO}/argoexec"),
        Program("yunikorn", "yunikorn", "github.com/apache/yunikorn-k8shim/pkg/cmd/shim"),
        Program("ray-operator", "ray", "github.com/ray-project/kuberay/ray-operator"),
        Program("mpi-operator", "mpi", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"),
        Program("versitygw", "s3", "github.com/versity/versitygw/cmd/versitygw"),
        Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
    )
}
# A module's archive cannot hold symbolic links, so files that are links in a project's own tree are missing from it. Link and target, by program.
LINKS = {
    "argoexec": (
        "github.com/argoproj/argo-workflows/v4",
        "workflow/executor/osspecific/signal_linux.go",
        "workflow/executor/osspecific/signal_darwin.go",
    )
}
BESIDE = ("versitygw", "helm")
"""Programs that are no part of a Kubernetes; see s3.py, and tests/deploy, which renders the charts."""
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


def go() -> str:
    """The go command, or the error that says what is needed."""
    found = shutil.which("go")
    if not found:
        raise TestbedError(
            "there is no Go on this machine to build the testbed with; install Go 1.26.5 or newer, then try again"
        )
    # Run where the pins are: an older Go either fetches the one that is asked for, or says so.
    asked = subprocess.run(
        [found, "env", "GOVERSION"], cwd=NEWEST_PINS, env=_environment(), capture_output=True, text=True
    )
    if asked.returncode:
        raise TestbedError(
            f"the Go on this machine is too old to build the testbed with; install Go 1.26.5 or newer ({asked.stderr.strip()[:200]})"
        )
    return found


def _environment() -> dict[str, str]:
    # Static programs run in any root folder and image; the caches are the testbed's own, so that removing one folder removes everything.
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOCACHE": str(CACHE / "go-build"),
        "GOMODCACHE": str(CACHE / "go-mod"),
        "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath",
        "GOWORK": "off",
    }


@cache
def version(module: str) -> tuple[str, Path]:
    """The pinned version of a Go module and the folder of the go.mod that pins it."""
    for pins in sorted((HERE / "modules").iterdir()):
        for line in (pins / "go.mod").read_text().splitlines():
            words = line.removeprefix("require").split()
            if words[:1] == [module] and len(words) >= 2 and words[1].startswith("v"):
                return words[1], pins
    raise TestbedError(f"no go.mod in testbed/modules requires {module}")


@cache
def _link_flags(module: str) -> str:
    if module != "core":
        return "-s -w"
    # A build from a module does not know its own version, and Kueue reads the API server's to decide what it may use.
    number, _ = version("k8s.io/kubernetes")
    major, minor, _ = number.removeprefix("v").split(".")
    said = {"gitVersion": number, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in said.items())])


@cache
def _key(module: str) -> str:
    folder = HERE / "modules" / module
    pins = (folder / "go.mod").read_bytes() + (folder / "go.sum").read_bytes()
    digest = hashlib.sha256(pins + _link_flags(module).encode())
    return f"{module}-{digest.hexdigest()[:12]}"


def path(name: str) -> Path:
    """Where the program is, or would be once built."""
    return CACHE / "bin" / _key(PROGRAMS[name].module) / name


def missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not path(name).exists()]


def build(names: Sequence[str], deadline: float | None = None, say: bool = True) -> list[str]:
    """Builds what is not there yet, in the order of PROGRAMS, and returns the names that time (time.monotonic) did not suffice for."""
    left = [name for name in PROGRAMS if name in missing(names)]
    if left:
        go()
    while left:
        name = left[0]
        seconds = None if deadline is None else deadline - time.monotonic()
        if seconds is not None and seconds <= 0:
            break
        started = time.monotonic()
        if say:
            print(f"testbed: building {name}", flush=True)
        try:
            try:
                _build(PROGRAMS[name], seconds)
            except TestbedError:
                # A download may break off; what was compiled is kept, so a second try costs little.
                _build(PROGRAMS[name], None if deadline is None else max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            break
        if say:
            print(f"testbed: built {name} in {time.monotonic() - started:.0f} s", flush=True)
        left.pop(0)
    return left


def _build(program: Program, seconds: float | None) -> None:
    target = path(program.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Built beside and moved: a build that is cut leaves nothing that looks like a program, two at once do no harm.
    half = target.with_name(f".{target.name}.{os.getpid()}")
    command = [
        go(),
        "build",
        f"-ldflags={_link_flags(program.module)}",
        "-o",
        str(half),
        *_restored(program),
        program.package,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=HERE / "modules" / program.module,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
        )
        if done.returncode:
            tail = "\n".join(done.stdout.strip().splitlines()[-12:])
            raise TestbedError(f"building {program.name} failed; Go said:\n{tail}")
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _restored(program: Program) -> list[str]:
    """Where links are missing: a copy of the module with its links, which the build is told to use."""
    if program.name not in LINKS:
        return []
    module, link, target = LINKS[program.name]
    source = CACHE / "src" / _key(program.module)
    if not source.exists():
        half = source.with_name(f".{source.name}.{os.getpid()}")
        shutil.copytree(module_folder(module), half)
        (half / link).parent.chmod(0o755)
        (half / link).symlink_to(Path(target).name)
        half.rename(source)
    pins = HERE / "modules" / program.module
    file = source.with_suffix(".mod")
    file.write_text((pins / "go.mod").read_text() + f"\nreplace {module} => {source}\n")
    shutil.copy(pins / "go.sum", source.with_suffix(".sum"))
    return [f"-modfile={file}"]


def module_folder(module: str) -> Path:
    """The folder of a pinned Go module, where its manifests are."""
    number, pins = version(module)
    escaped = "".join(f"!{letter.lower()}" if letter.isupper() else letter for letter in module)
    folder = CACHE / "go-mod" / f"{escaped}@{number}"
    if not folder.is_dir():
        _download(pins, module)
    return folder


def _download(pins: Path, module: str) -> None:
    done = subprocess.run(
        [go(), "mod", "download", module], cwd=pins, env=_environment(), capture_output=True, text=True
    )
    if done.returncode:
        raise TestbedError(f"downloading the Go module {module} failed; Go said:\n{done.stderr.strip()[-800:]}")
