"""The kinds of objects that users name in a cluster: `workflow/nightly`, `job/train`, and those of the engines that are installed. Called by the
commands, which load nothing else to tell such a name from that of a run, and by subject.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from penstock.controller.known import other_kinds
from penstock.controller.objects import PODS, WORKLOADS, ApiResource
from penstock.errors import Problem, UserError

ALL_WORKLOADS = dataclasses.replace(WORKLOADS, selector="")
KINDS = (
    ApiResource("argoproj.io/v1alpha1", "Workflow", "workflows"),
    ApiResource("tekton.dev/v1", "PipelineRun", "pipelineruns"),
    ApiResource("tekton.dev/v1", "TaskRun", "taskruns"),
    ApiResource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
    ApiResource("batch/v1", "Job", "jobs"),
    dataclasses.replace(PODS, selector=""),
    ALL_WORKLOADS,
)
_NOT_KUEUES = ("workflow", "pipelinerun", "taskrun")
_SHORT = {"wf": "workflow", "pr": "pipelinerun", "tr": "taskrun", "po": "pod", "wl": "workload", "kwl": "workload"}


@dataclass(frozen=True, slots=True)
class Target:
    kind: str
    """In lower case, for one object."""
    name: str
    resource: ApiResource | None
    """None: a kind of no engine that is installed here; it is known only by the owners of Workloads."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def names_object(text: str) -> bool:
    """Is this the name of an object of a cluster, and not of a run?"""
    kind, slash, name = text.partition("/")
    return bool(slash and name) and _resource(kind) is not None


def target_of(text: str) -> Target:
    """Raises UserError."""
    kind, _, name = text.partition("/")
    if not kind or not name or "/" in name:
        known = ", ".join(one.kind.lower() for one in (*KINDS, *other_kinds()))
        fix = f"KIND/NAME, as in workflow/nightly; kinds: {known}, or that of any owner of a Workload"
        raise UserError(Problem("P894", f"{text!r} names no object of a cluster", fix))
    found = _resource(kind)
    return Target(found.kind.lower() if found is not None else kind.lower(), name, found)


def _resource(kind: str) -> ApiResource | None:
    word = kind.lower().partition(".")[0]
    word = _SHORT.get(word, word)
    return _first(lambda one: word in (one.kind.lower(), one.plural))


def kind_of(api: str, kind: str) -> ApiResource | None:
    """The kind of an owner, as references name it."""
    return _first(lambda one: (one.api, one.kind) == (api, kind))


def _first(fits: Callable[[ApiResource], bool]) -> ApiResource | None:
    """Other packages are asked only for what is none of the kinds that everybody has."""
    own = next(filter(fits, KINDS), None)
    return own if own is not None else next(filter(fits, other_kinds()), None)


def is_ours(kind: str) -> bool:
    """Does nobody but Penstock queue it? Kueue queues the others by itself."""
    word = kind.lower()
    return word in _NOT_KUEUES or any(word == one.kind.lower() for one in other_kinds())
