"""What `penstock schedule` writes, asked of a real API server that has the types of the operators: it takes every manifest that it took before, with nothing unknown in it.

The manifests are those of the folder that PENSTOCK_JOB_CASES names, and one of each kind. Prints for each kind how many were taken.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.errors import DocumentError
from penstock.formats.documents import Document, Library
from penstock.scheduling.apply import ScheduleOptions, schedule_one
from penstock.scheduling.kinds.table import kind_of
from penstock.scheduling.model import Binding
from penstock.scheduling.registry import scheduler
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.support import fresh_namespace
from tests.scheduling import samples, test_corpus

Data = dict[str, Any]
Case = tuple[str, Document, Library]
FAULT = re.compile(
    r'(unknown field "[^"]*"|duplicate field "[^"]*"|[\w$][\w.$/\[\]"-]*: '
    r"(?:Invalid value|Required value|Duplicate value|Forbidden|Unsupported value|Too long|Too many|Not found))"
)
SELECTOR = {"selector": {"matchLabels": {"team": "a"}}}
ONCE = {"template": {"spec": {"restartPolicy": "Never"}}}
SPARK = {"mainApplicationFile": "local:///job.jar", "sparkVersion": "4.0.0"}
DASK = {"scheduler": {"service": {"type": "ClusterIP", "ports": [{"port": 8786}]}}}
COMPLETE: Mapping[str, Data] = {
    "Job": ONCE,
    "CronJob": {"jobTemplate": {"spec": ONCE}},
    "Deployment": SELECTOR,
    "StatefulSet": SELECTOR,
    "ReplicaSet": SELECTOR,
    "DaemonSet": SELECTOR,
    "SparkApplication": SPARK,
    "ScheduledSparkApplication": {"schedule": "@daily", "template": SPARK},
    "DaskCluster": DASK,
    "DaskJob": {"cluster": {"spec": DASK}},
    "DaskWorkerGroup": {"cluster": "one"},
    "CronWorkflow": {"schedules": ["* * * * *"], "workflowSpec": {"templates": []}},
}
"""Fields of a spec without which the API server takes nothing of the kind, and which no scheduler reads."""


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("crds")


@dataclass
class Tally:
    """Of one kind."""

    taken: int = 0
    refused_before: int = 0
    wrong: list[str] = field(default_factory=list)


def merged(base: Any, more: Any) -> Any:
    if not isinstance(base, Mapping) or not isinstance(more, Mapping):
        return copy.deepcopy(more)
    return {**base, **{key: merged(base.get(key), value) for key, value in more.items()}}


def every_kind() -> Iterable[Case]:
    """The samples, completed."""
    for document in [*samples.every_kind(), samples.spark()]:
        data = merged(document.data, {"spec": COMPLETE.get(document.kind, {})})
        for pod in ("driver", "executor"):
            if isinstance(data["spec"].get(pod), dict):  # a sample has a toleration with a key alone
                data["spec"][pod].pop("tolerations", None)
        one = Document(data, "sample")
        yield "sample", one, Library((one, samples.runtime()))


def corpus() -> Iterable[Case]:
    """All that makes pods; with the runtimes of all files, which in a cluster are there."""
    runtimes = [
        one for path in test_corpus.FILES for one in test_corpus.documents(path) if one.kind == "ClusterTrainingRuntime"
    ]
    for path in test_corpus.FILES:
        documents = test_corpus.documents(path)
        for document in documents:
            if kind_of(document) is not None:
                yield f"{path.parent.name}/{path.name}", document, Library((*documents, *runtimes))


def faults(bed: Testbed, ns: str, data: Mapping[str, Any], validation: str) -> frozenset[str]:
    """What the API server has against it, without the values; none: it takes it."""
    try:
        path = bed.api.path(data["apiVersion"], data["kind"], ns)
        if "/namespaces/" in path:
            data = {**data, "metadata": {**data["metadata"], "namespace": ns}}
        bed.raw("POST", path, data, params={"dryRun": "All", "fieldValidation": validation})
    except ApiError as error:
        said = str(error)
        return frozenset(FAULT.findall(said)) or frozenset([said])
    return frozenset()


def tried(bed: Testbed, ns: str, given: Mapping[str, Any], written: Mapping[str, Any], tally: Tally, case: str) -> None:
    if not faults(bed, ns, written, "Strict"):
        tally.taken += 1
        return
    # An unknown field hides what else is wrong, so both are asked twice.
    new = {
        one
        for validation in ("Strict", "Ignore")
        for one in faults(bed, ns, written, validation) - faults(bed, ns, given, validation)
    }
    if new:
        tally.wrong.append(f"{case}: {sorted(new)}")
    else:
        tally.refused_before += 1


def asked(bed: Testbed, name: str, cases: Iterable[Case]) -> dict[str, Tally]:
    ns = fresh_namespace(bed)
    found: dict[str, Tally] = {}
    binding = Binding(style="Hard", timeout=60, user="sue", allow_preemption=False, priority="high")
    options = ScheduleOptions(binding, organisation="lab")
    for case, document, library in cases:
        tally = found.setdefault(document.kind, Tally())
        try:
            result = schedule_one(document, scheduler(name), options, library)
        except DocumentError:
            continue  # nothing is written: `...` for a pod, in a page of documentation
        for written in result.documents[:-1]:
            tried(bed, ns, {"apiVersion": "v1", "kind": "none"}, written, tally, f"{case} {written['kind']}")
        tried(bed, ns, document.data, result.documents[-1], tally, f"{case} {document.kind} {document.name}")
    return found


def told(capsys: pytest.CaptureFixture[str], title: str, found: Mapping[str, Tally]) -> None:
    with capsys.disabled():
        print(f"\n{title}")
        for kind, one in sorted(found.items()):
            before = f", {one.refused_before} refused as they were before" if one.refused_before else ""
            print(f"  {kind}: {one.taken} passed, {len(one.wrong)} failed{before}")
    wrong = [line for one in found.values() for line in one.wrong]
    assert not wrong, "\n".join(wrong[:30])


def test_what_has_no_place_in_a_type_is_seen(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    good = samples.ray_job().data
    odd = merged(good, {"spec": {"rayClusterSpec": {"headGroupSpec": {"labels": {"a": "b"}, "label": "c"}}}})
    assert faults(bed, ns, good, "Strict") == frozenset()
    assert faults(bed, ns, odd, "Strict") == {'unknown field "spec.rayClusterSpec.headGroupSpec.label"'}
    assert faults(bed, ns, merged(good, {"spec": {"suspend": "yes"}}), "Ignore") == {"spec.suspend: Invalid value"}


@pytest.mark.parametrize("name", ["kueue", "yunikorn"])
def test_one_of_each_kind(bed: Testbed, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(bed, name, every_kind())
    told(capsys, f"one of each kind, written for {name}", found)
    assert {kind for kind, one in found.items() if not one.taken or one.refused_before} == set()


@pytest.mark.skipif(not test_corpus.FILES, reason=f"no manifests in {test_corpus.FOLDER}: set {test_corpus.VARIABLE}")
@pytest.mark.parametrize("name", ["kueue", "yunikorn"])
def test_manifests_of_others(bed: Testbed, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(bed, name, corpus())
    told(capsys, f"manifests of {test_corpus.FOLDER}, written for {name}", found)
    assert sum(one.taken for one in found.values()) > 5 * sum(one.refused_before for one in found.values())
