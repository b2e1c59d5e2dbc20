"""What the host and containers need of an attempt's spec alike: environment, text values, numbers of replicas. Called by local and
container.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import as_text
from penstock.backends import folders
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.own_error import ERROR, NAME
from penstock.graph import model
from penstock.graph.model import Container, Function, Script

STDOUT = "/dev/stdout"
_REPLICA = "$(PENSTOCK_REPLICA)"
COORDINATOR = "PENSTOCK_COORDINATOR"
"""The variable with the name of the host on which replica 0 of a gang runs."""


class CannotRun(Exception):
    """The attempt cannot be run here. The message says why."""


def starts_at_root(spec: AttemptSpec) -> bool:
    """Was the step written for another system, so that its run has no folder to start in? It starts at the root of its image, and
    on the host in the attempt's own folder, which takes the place of that root."""
    return spec.working_directory == "/" and not isinstance(spec.action, Function)


def for_replica(spec: AttemptSpec, replica: int) -> AttemptSpec:
    """The spec with the number of the replica for `$(PENSTOCK_REPLICA)` in its words and variables."""
    if spec.step.replicas == 1 and not spec.step.extra:
        return spec

    def numbered(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(_REPLICA, str(replica))
        if isinstance(value, tuple | list):
            return tuple(map(numbered, value))
        return {key: numbered(one) for key, one in value.items()} if isinstance(value, dict) else value

    given = {name: numbered(value) for name, value in model.action_values(spec.action)}
    return dataclasses.replace(spec, action=model.with_values(spec.action, given))


def replica_folder(context: BackendContext, spec: AttemptSpec, replica: int) -> Path:
    base = folders.work_folder(context.home, spec)
    return base if spec.step.replicas == 1 else base / str(replica)


def replica_logs(spec: AttemptSpec, replica: int) -> tuple[str, str]:
    """(stdout, stderr) of a replica, below the home. The same file unless an output is what the step prints."""
    suffix = f"{replica}.log" if replica else "log"
    err = folders.log_name(spec, suffix)
    printed = any(output.path == STDOUT for output in spec.step.outputs)
    return (folders.log_name(spec, suffix.replace("log", "out")) if printed else err), err


def replica_error(spec: AttemptSpec, replica: int) -> str:
    """$PENSTOCK_ERROR of a replica on the host, below the home: beside its log, in a folder that is there in any case."""
    return folders.log_name(spec, f"{replica}.{NAME}" if replica else NAME)


def text_of(value: Any, blobs: Blobs) -> str:
    """Raises CannotRun if the value has no form as text."""
    try:
        return as_text(value, blobs)
    except ValueError as error:
        raise CannotRun(str(error)) from None


def step_env(action: model.Action, blobs: Blobs) -> dict[str, str]:
    """The variables that the author gave."""
    env: Mapping[str, Any] = action.env if isinstance(action, Container | Script | Function) else {}
    return {name: text_of(value, blobs) for name, value in env.items()}


def penstock_env(spec: AttemptSpec, context: BackendContext, replica: int, outputs: str, error: str) -> dict[str, str]:
    """The variables that every process of a step gets."""
    return {
        "PENSTOCK_RUN": spec.run,
        "PENSTOCK_TASK": spec.task,
        "PENSTOCK_ATTEMPT": spec.id,
        "PENSTOCK_ENGINE": context.engine,
        "PENSTOCK_HOME": str(context.home),
        "PENSTOCK_OUTPUTS": outputs,
        ERROR: error,
        "PENSTOCK_REPLICA": str(replica),
        "PENSTOCK_REPLICAS": str(spec.step.replicas),
    }
