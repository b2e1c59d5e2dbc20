"""What `penstock controller run` was told. Made by the command, read by `controller.cluster.main`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RunOptions:
    kubeconfig: str = ""
    """Empty: as kubectl finds it, or the service account of the pod."""
    context: str = ""
    namespace: str = "penstock-system"
    """Where the Lease and the Secret are."""
    webhook_port: int = 9443
    metrics_port: int = 8080
    leader_elect: bool = True
    engines: tuple[str, ...] = ("argo", "tekton", "jobset")
    log: Literal["json", "text"] = "text"
