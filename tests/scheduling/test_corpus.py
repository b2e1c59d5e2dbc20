"""Manifests of other operators: pod sets as Kueue counts them, task groups as the operators write them, pods as YuniKorn reads them.

The data is in the folder that PENSTOCK_JOB_CASES names; its README says how it was computed. Each part prints how many passed and failed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DocumentError
from penstock.formats.documents import Document, Library, read_text
from penstock.formats.yaml_writer import dump_all
from penstock.graph import quantity
from penstock.scheduling import operators, reading
from penstock.scheduling.apply import ScheduleOptions, schedule_one
from penstock.scheduling.model import Binding, JobObject
from penstock.scheduling.objects import job_object
from penstock.scheduling.registry import scheduler
from penstock.scheduling.task_groups import members_of

VARIABLE = "PENSTOCK_JOB_CASES"
FOLDER = Path(os.environ.get(VARIABLE) or Path(__file__).parents[3] / "shared" / "corpus" / "jobs")
FILES = sorted(path for path in FOLDER.glob("*/*.yaml")) if FOLDER.is_dir() else []
pytestmark = pytest.mark.skipif(not FILES, reason=f"no manifests in {FOLDER}: set {VARIABLE}")
SPARK = ("SparkApplication",)
GANGS = ("RayCluster", "RayJob", *SPARK)
PODS = ("Pod", "Job", "Deployment", "StatefulSet", "ReplicaSet", "CronJob", "DaemonSet")


@dataclass
class Tally:
    """Cases of one part, and what is wrong with those that failed."""

    part: str
    passed: int = 0
    wrong: list[str] = field(default_factory=list)

    def check(self, case: str, want: Any, have: Any) -> None:
        if want == have:
            self.passed += 1
        else:
            self.wrong.append(f"{case}\n    expected {want}\n    found    {have}")

    def close(self, capsys: pytest.CaptureFixture[str]) -> None:
        with capsys.disabled():
            print(f"\n{self.part}: {self.passed} passed, {len(self.wrong)} failed")
        assert not self.wrong, "\n".join(self.wrong[:20])
        assert self.passed, f"there is no case of this part in {FOLDER}"


@cache
def documents(path: Path) -> tuple[Document, ...]:
    return tuple(read_text(path.read_text(encoding="utf-8"), f"{path.parent.name}/{path.name}"))


def job_of(path: Path, document: Document) -> JobObject | None:
    return job_object(document, Library(documents(path)))


def expected(part: str) -> Iterator[tuple[str, Path, Mapping[str, Any], Document]]:
    """(case, file, what is expected, document); the n-th of a kind is the n-th document of that kind."""
    for path in FILES:
        file = FOLDER / "expected" / f"{path.parent.name}--{path.name}.json"
        found = json.loads(file.read_text()).get(part, []) if file.is_file() else []
        seen: dict[str, int] = {}
        for one in [found] if isinstance(found, dict) else found:
            number = seen.get(one["kind"], 0)
            alike = [document for document in documents(path) if document.kind == one["kind"]]
            if part == "yunikorn_reads":
                named = [document for document in alike if document.metadata.get("name") == one["name"]]
                alike = named if len(named) == 1 else alike
                number = 0 if len(named) == 1 else number
            seen[one["kind"]] = seen.get(one["kind"], 0) + 1
            yield f"{path.parent.name}/{path.name} {one['kind']} {number}", path, one, alike[number]


def amounts(listed: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: parsed for name, text in (listed or {}).items() if (parsed := quantity.parse(text))}


def times(requests: Mapping[str, int], count: int) -> dict[str, int]:
    return {name: amount * count for name, amount in requests.items() if amount * count}


def test_pod_sets_as_kueue_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("pod sets, as Kueue")
    for case, path, want, document in expected("kueue_podsets"):
        if "error" in want:
            with pytest.raises(DocumentError):
                job_of(path, document)
            continue
        job = job_of(path, document)
        assert job is not None, case
        have = []
        for one in job.pod_sets:
            count, requests = one.as_kueue or (one.count, one.requests)
            have.append((one.name, count, times(requests, count), one.least, one.topology))
        sets = [
            (one["name"], one["count"], amounts(one["total"]), one.get("minCount"), one.get("topologyRequest"))
            for one in want["podSets"]
        ]
        tally.check(case, sets, have)
    tally.close(capsys)


def test_where_kueue_counts_too_little_ours_are_larger_and_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("Spark, larger than Kueue's and said so")
    for case, path, want, document in expected("kueue_podsets"):
        if document.kind not in SPARK:
            continue
        job = job_of(path, document)
        assert job is not None, case
        written = schedule_one(document, scheduler("kueue"), ScheduleOptions(Binding(queue="lab")))
        said = " ".join(entry.message for entry in written.report.entries)
        wrong = []
        for ours, one in zip(job.pod_sets, want["podSets"], strict=True):
            theirs = amounts(one["total"])
            if ours.count < one["count"] or any(amount > ours.total.get(name, 0) for name, amount in theirs.items()):
                wrong.append(f"{ours.name}: {theirs} but {ours.total}")
            if ours.total != theirs and f"for each {ours.name}" not in said:
                wrong.append(f"{ours.name}: not said")
        tally.check(case, [], wrong)
    tally.close(capsys)


@pytest.mark.parametrize("part", ["kuberay_yunikorn", "spark_operator"])
def test_task_groups_of_the_operators_or_better(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    same, better = (
        Tally(f"{part}: the operator's own groups"),
        Tally(f"{part}: ours the same, or each difference named"),
    )
    for case, path, want, document in expected(part):
        job = job_of(path, document)
        assert job is not None, case
        if "error" in want:
            with pytest.raises(operators.Refused):
                operators.theirs(job)
            continue
        theirs = [
            (one["name"], one["minMember"], amounts(one["minResource"]), _placement(one)) for one in want["task-groups"]
        ]
        found = [(one.name, one.members, times(one.requests, 1), dict(one.placement)) for one in operators.theirs(job)]
        same.check(case, theirs, found)
        better.check(case, [], _unnamed(job, theirs))
    same.close(capsys)
    better.close(capsys)


def _placement(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: group[name] for name in ("nodeSelector", "tolerations", "affinity") if name in group}


def _unnamed(job: JobObject, theirs: list[tuple[str, int, dict[str, int], dict[str, Any]]]) -> list[str]:
    """What differs between our groups and theirs without a word in the report, or is worse."""
    result = schedule_one(job.document, scheduler("yunikorn"), ScheduleOptions(Binding(queue="root.lab")))
    gang = result.jobs[0].gang
    said = [entry.message for entry in result.report.entries if "other than its operator would write" in entry.message]
    ours = {one.name: one for one in gang.members}
    wrong = []
    for name, members, requests, _ in theirs:
        mine = ours.pop(name, None)
        about = [text for text in said if f" {name} " in text or f" {name}:" in text]
        alike = mine is not None and mine.count == members and times(mine.requests, 1) == requests
        if not alike and not about:
            wrong.append(f"{name}: {mine} is not {members} × {requests}, and nothing says why")
        if mine is not None and any(amount > mine.requests.get(key, 0) for key, amount in requests.items()):
            wrong.append(f"{name}: smaller than the operator's: {mine.requests} < {requests}")
        if mine is not None and not members:
            wrong.append(f"{name}: a group without members")
    return wrong + [f"{name}: a group that the operator does not have" for name in ours]


def test_pods_as_yunikorn_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("pods, as YuniKorn reads them")
    for case, path, want, document in expected("yunikorn_reads"):
        job = job_of(path, document)
        assert job is not None, case
        found = reading.read(job.roles[0].pod, document.namespace)
        have = {
            "app": found.app,
            "queue": found.queue,
            "taskGroup": found.group or None,
            "taskGroups": [{"name": one.name, "minMember": one.members, "ask": dict(one.ask)} for one in found.groups]
            or None,
            "taskGroupsError": found.error or None,
            "policy": {"placeholderTimeout": found.policy.timeout, "style": found.policy.style},
            "resource": dict(found.resource),
            "scheduled_by_yunikorn": found.scheduled,
        }
        defaults = {"policy": {"placeholderTimeout": 0, "style": "Soft"}, "scheduled_by_yunikorn": True}
        tally.check(case, {key: want.get(key, defaults.get(key)) for key in have}, have)
    tally.close(capsys)


@pytest.mark.parametrize("name", ["yunikorn", "kueue"])
def test_what_we_write(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every object of every kind: YuniKorn reads our gang as we meant it, only metadata changes, and twice is once."""
    tally = Tally(f"written for {name}: read back, idempotent, nothing else changed")
    options = ScheduleOptions(Binding(style="Hard", timeout=60, user="sue"), organisation="lab")
    for path in FILES:
        for number, document in enumerate(documents(path)):
            try:
                job = job_of(path, document)
            except DocumentError:
                continue  # `...` for a pod, in a page of documentation
            if job is None or (job.unknown and name == "yunikorn"):
                continue
            result = schedule_one(document, scheduler(name), options, Library(documents(path)))
            written = Document(result.documents[-1], document.file)
            again = schedule_one(written, scheduler(name), options, Library((written, *documents(path))))
            wrong = [] if again.documents == result.documents else ["twice is not once"]
            if _without_metadata(written.data) != _without_metadata(document.data):
                wrong.append("more than metadata has changed")
            if list(read_text(dump_all([written.data]), "")[0].data) != list(written.data):
                wrong.append("it does not come back from its text")
            if name == "yunikorn":
                wrong += _misread(job, written)
            tally.check(f"{path.parent.name}/{path.name} {number} {document.kind}", [], wrong)
    tally.close(capsys)


def _misread(job: JobObject, written: Document) -> list[str]:
    """Does YuniKorn see the gang that the report tells of, on every template?"""
    wrong = []
    found = job_object(written)
    if found is None or found.unknown:
        return []
    gang = {one.name: (one.count, one.total) for one in members_of(job)}
    for role in found.roles:
        if not role.slot.labels or role.slot.shared:
            continue
        seen = reading.read({"metadata": _metadata(written, role), "spec": {"schedulerName": "yunikorn"}})
        if seen.queue != f"root.lab.{job.kind.job_type}":
            wrong.append(f"{role.name}: queue {seen.queue}")
        have = {one.name: (one.members, _amounts(one.ask)) for one in seen.groups}
        if seen.error or have != gang:
            wrong.append(f"{role.name}: {seen.error or have} is not {gang}")
        if bool(seen.group) != bool(gang and role.members) or (seen.group and seen.group not in gang):
            wrong.append(f"{role.name}: member of {seen.group!r}")
        if gang and (seen.policy.style, seen.policy.timeout) != ("Hard", 60):
            wrong.append(f"{role.name}: {seen.policy}")
    return wrong


def _metadata(document: Document, role: Any) -> dict[str, Any]:
    from penstock.scheduling.fields import at

    return {"labels": at(document.data, role.slot.labels), "annotations": at(document.data, role.slot.annotations)}


def _amounts(ask: Mapping[str, int]) -> dict[str, int]:
    return {
        ("cpu" if name == "vcore" else name): amount if name == "vcore" else amount * 1000
        for name, amount in ask.items()
        if name != "pods"
    }


def _without_metadata(value: Any) -> Any:
    """Without labels, annotations, schedulerNames, and without what is empty then."""
    if isinstance(value, dict):
        found = {
            key: _without_metadata(item)
            for key, item in value.items()
            if key not in ("labels", "annotations", "schedulerName", "runtimePatches")
        }
        return {key: item for key, item in found.items() if item not in ({}, None)}
    return [_without_metadata(item) for item in value] if isinstance(value, list) else value
