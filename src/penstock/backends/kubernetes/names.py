"""Names and labels of the Job of an attempt. Called by manifest, cluster and outcome. Pure.

The name follows from the store, the run, the task and the first attempt that the attempt may go on with (AttemptSpec.since). So an engine
that starts an attempt again after the death of another one asks for a Job of the same name, and finds the one that exists.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from penstock.backends.base import AttemptSpec

STORE: Final = "penstock/store"
"""Label, by which an engine finds the Jobs and pods of its store."""
RUN: Final = "penstock/run"
STEP: Final = "penstock/step"
ATTEMPT: Final = "penstock/attempt"
"""Labels for people; RUN is an annotation too, in full."""
POOL: Final = "penstock/pool"
"""Label of the Jobs of warm pods: what their pods are made like."""
TASK: Final = "penstock/task"
ENGINE: Final = "penstock/engine"
DIGEST: Final = "penstock/digest"
"""Annotations of the Job: whose it is, which engine follows it, and what it was made from."""
JOB_NAME: Final = "batch.kubernetes.io/job-name"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


def attempt_key(spec: AttemptSpec) -> str:
    """The id of the first of the attempts that this one may be."""
    return f"{spec.run}/{spec.task}/{spec.since or spec.attempt}"


def job_name(owner: str, key: str) -> str:
    """Short enough that the names of its pods, with their numbers, are names of hosts."""
    digest = hashlib.sha256(f"{owner}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:28].strip("-")
    return f"penstock-{readable or 'task'}-{digest}"


def warm_name(owner: str, engine: str, shape: str, number: int) -> str:
    """Of the Job of a warm pod. Each engine has its own: only it gives calls to the pod."""
    digest = hashlib.sha256(f"{owner}\0{engine}\0{shape}\0{number}".encode()).hexdigest()[:12]
    return f"penstock-warm-{number}-{digest}"


def label(text: str) -> str:
    """Text as the value of a label: cut, and told apart by a digest where something was lost."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    if safe == text and len(safe) <= 63:
        return safe
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[:50].strip('-._')}-{digest}".lstrip("-")
