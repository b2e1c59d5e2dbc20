"""The types of other operators, without the operators: Ray, Spark, Kubeflow, MPI, Trainer, Dask, LeaderWorkerSet, AppWrapper, JobSet, Argo and Tekton. Started by
`Testbed.start("crds")`, for tests that ask the API server whether it takes a manifest.

Each type is read from the folder of its project's pinned Go module; those of Dask from its wheel on PyPI. Nothing of them is in this repository. Programs are not
needed, and none is started. Their webhooks are missing, so only the schemas and rules in the types themselves are tried.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import binaries, manifests
from testbed.errors import TestbedError
from testbed.manifests import Object

if TYPE_CHECKING:
    from testbed.instance import Testbed

MODULES = {
    "github.com/kubeflow/training-operator": ("manifests/base/crds",),
    # Of the same name as a type of training-operator, and newer: the one of mpi-operator is installed.
    "github.com/kubeflow/mpi-operator": ("manifests/base/kubeflow.org_mpijobs.yaml",),
    "github.com/kubeflow/trainer/v2": ("manifests/base/crds",),
    "github.com/kubeflow/spark-operator/v2": ("config/crd/bases",),
    "github.com/ray-project/kuberay/ray-operator": ("config/crd/bases",),
    "github.com/project-codeflare/appwrapper": ("config/crd/bases",),
    "sigs.k8s.io/jobset": ("config/components/crd/bases",),
    "sigs.k8s.io/lws": ("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
    # All eight of Argo would take a minute.
    "github.com/argoproj/argo-workflows/v4": (
        "manifests/base/crds/full/argoproj.io_workflows.yaml",
        "manifests/base/crds/full/argoproj.io_cronworkflows.yaml",
    ),
    "github.com/tektoncd/pipeline": ("config/300-crds",),
}
DASK = ("dask-kubernetes==2026.3.0", "5cf138e03cb1851063b82b74e9fd4679251238e3867fcae1e3682aada6410728")
DASK_TYPES = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/"


class Crds:
    name = "crds"
    binaries: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def install(self, bed: Testbed) -> None:
        found: dict[str, Object] = {}
        for module, places in MODULES.items():
            folder = bed.module(module)
            shipped = manifests.files(*(folder / place for place in places))
            found |= {one["metadata"]["name"]: one for one in shipped if one["kind"] == "CustomResourceDefinition"}
        found |= {one["metadata"]["name"]: one for one in manifests.wheel(_downloaded(*DASK), DASK_TYPES)}
        bed.apply(manifests.unconverted(found.values()))

    def start(self, bed: Testbed) -> None:
        """There is nothing to start."""

    def ready(self, bed: Testbed) -> None:
        """They are served as soon as they are applied."""


def _downloaded(requirement: str, digest: str) -> Path:
    """The wheel of a pinned package, beside the Go modules."""
    folder = binaries.CACHE / "wheels"
    name, _, version = requirement.replace("-", "_").partition("==")
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    if not wheel.exists():
        folder.mkdir(parents=True, exist_ok=True)
        asked = folder / f"{name}.txt"
        asked.write_text(f"{requirement} --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run([*command, "-r", asked, "-d", folder], capture_output=True, text=True)
        if done.returncode or not wheel.exists():
            raise TestbedError(f"downloading {requirement} failed; pip said:\n{done.stderr.strip()[-800:]}")
    return wheel
