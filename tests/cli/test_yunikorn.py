"""The queues of YuniKorn as people use them: apply, convert, run in them, and ask whether a gang fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_why import FLOW as RUN
from tests.scheduling.samples import job, ray_cluster
from tests.service.lines import Lines

QUEUES = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "ann"
    queues:
    - name: lab
      submitacl: "sue science"
      resources: {guaranteed: {vcore: 4}, max: {vcore: 8}}
      queues:
      - name: ray
        limits: [{limit: sue, users: [sue], maxresources: {vcore: 2}}]
      - name: sorted
        properties: {application.sort.policy: fair}
        resources: {max: {vcore: 4}}
    - name: open
      submitacl: "*"
"""
FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: work
queue: %s
steps:
- {name: work, script: {source: echo done}, resources: {cpu: %s}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "yunikorn.yaml").write_text(QUEUES)
    monkeypatch.setenv("LOGNAME", "sue")
    return tmp_path


def flow(folder: Path, queue: str, cpu: int = 1) -> str:
    path = folder / "flow.yaml"
    path.write_text(FLOW % (queue, cpu))
    return str(path)


def names(penstock: Any) -> set[str]:
    return {one["queue"] for one in json.loads(penstock("queue", "ls", "-o", "json").out)}


def test_applied_queues_are_kueues_and_a_new_configuration_takes_their_place(penstock: Any, here: Path) -> None:
    said = penstock("queue", "apply", "yunikorn.yaml", "-o", "json")
    assert said.code == 0 and {"kind": "Cohort", "name": "root.lab"} in json.loads(said.out)
    assert names(penstock) == {"root.lab.ray", "root.lab.sorted", "root.open"}
    assert "lost partitions[0].queues[0].queues[0].queues[0].limits: root.lab.ray: Kueue has no limits" in said.err
    (here / "yunikorn.yaml").write_text(QUEUES.replace("name: ray", "name: gpu"))
    assert penstock("queue", "apply", "yunikorn.yaml").code == 0
    assert names(penstock) == {"root.lab.gpu", "root.lab.sorted", "root.open"}


def test_a_wrong_configuration_changes_nothing(penstock: Any, here: Path) -> None:
    penstock("queue", "apply", "yunikorn.yaml")
    (here / "yunikorn.yaml").write_text(QUEUES.replace("guaranteed: {vcore: 4}", "guaranteed: {vcore: 9}"))
    said = penstock("queue", "apply", "yunikorn.yaml")
    assert said.code == 2 and "error[P824]: root.lab is guaranteed 9 cpu, and has at most 8 cpu" in said.err
    assert "yunikorn.yaml:10" in said.err and names(penstock) == {"root.lab.ray", "root.lab.sorted", "root.open"}


def test_who_may_not_submit_is_refused_before_anything_is_recorded(
    penstock: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("queue", "apply", "yunikorn.yaml")
    assert penstock("run", flow(here, "root.lab.ray")).code == 0
    monkeypatch.setenv("LOGNAME", "eve")
    refused = penstock("run", flow(here, "lab.ray"))  # by its LocalQueue
    assert refused.code == 2 and "error[P825]: user 'eve' may not submit to the queue root.lab.ray" in refused.err
    assert "submitacl of root: 'ann'; submitacl of root.lab: 'sue science'" in refused.err
    assert len(json.loads(penstock("ls", "-o", "json").out)) == 1
    planned = penstock("plan", flow(here, "lab.ray"))
    assert planned.code == 0 and "warning[P825]" in planned.err
    assert penstock("run", flow(here, "root.open")).code == 0
    monkeypatch.setenv("LOGNAME", "ann")
    assert penstock("run", flow(here, "root.lab.ray")).code == 0  # a grant above counts below


def test_what_is_more_than_a_users_limit_is_said(penstock: Any, here: Path) -> None:
    penstock("queue", "apply", "yunikorn.yaml")
    said = penstock("plan", flow(here, "root.lab.ray", cpu=3))
    assert "warning[P826]: work asks for 3 cpu, and user sue may have 2 in root.lab.ray" in said.err
    assert "P826" not in penstock("plan", flow(here, "root.lab.ray", cpu=2)).err
    run = penstock("run", flow(here, "root.lab.ray", cpu=3))
    assert run.code == 0 and "warning[P826]" in run.err


def test_the_limit_of_a_parent_holds_for_what_is_below(penstock: Any, here: Path) -> None:
    said = penstock("plan", flow(here, "root.lab.ray", cpu=9), "--queues", "yunikorn.yaml", "-o", "json")
    (one,) = json.loads(said.out)["reservations"]
    assert one["outlook"]["verdict"] == "never fits", one["outlook"]
    text = penstock("plan", flow(here, "root.lab.ray", cpu=9), "--queues", "yunikorn.yaml").out
    assert "never fits" in text
    assert (
        penstock("plan", flow(here, "root.lab.ray", cpu=8), "--queues", "yunikorn.yaml", "-o", "json").out.count(
            "fits now"
        )
        == 1
    )
    assert not (here / ".penstock").exists()


def test_why_names_the_queue_that_is_full_and_the_limits_of_the_user(penstock: Any, here: Path) -> None:
    (here / "yunikorn.yaml").write_text(QUEUES.replace("users: [sue]", "users: [sue, ana]"))
    penstock("queue", "apply", "yunikorn.yaml")
    lines = Lines(here / ".penstock", "")
    holder, waits = (lines.run(RUN, ago=9 - n) for n in range(2))
    lines.ask(holder, "train", cpu=7, queue="lab.ray")
    lines.ask(waits, "fetch", cpu=3, queue="lab.ray")
    for run in (holder, waits):
        run.write()
    said = penstock("why", waits.id).out
    assert "not enough of the borrowingLimit of cohort root.lab is free" in said
    assert "limits   user ana may have 2 cpu in root.lab.ray; that is not counted here" in said
    (wait,) = json.loads(penstock("why", waits.id, "-o", "json").out)["waits"]
    assert wait["reason"]["limits"] == ["user ana may have 2 cpu in root.lab.ray; that is not counted here"]
    for run in (holder, waits):
        run.close()
    lines.close()


def test_queues_are_converted_both_ways(penstock: Any, here: Path) -> None:
    there = penstock(
        "queue", "convert", "yunikorn.yaml", "--to", "kueue", "--capacity", "cpu=64,memory=1Ti", "-o", "kueue.yaml"
    )
    assert there.code == 0 and "lost" in there.err
    kinds = [one["kind"] for one in yaml.safe_load_all(Path("kueue.yaml").read_text())]
    assert kinds.count("Cohort") == 2 and kinds.count("ClusterQueue") == kinds.count("LocalQueue") == 3
    back = penstock("queue", "convert", "kueue.yaml", "--to", "yunikorn")
    (root,) = yaml.safe_load(back.out)["partitions"][0]["queues"]
    lab = next(one for one in root["queues"] if one["name"] == "lab")
    assert lab["resources"] == {"guaranteed": {"vcore": "4"}, "max": {"vcore": "8"}}
    assert penstock("queue", "convert", "yunikorn.yaml", "--to", "kueue", "--strict").code == 3


@pytest.mark.parametrize(
    ("file", "to", "code"),
    [
        ("yunikorn.yaml", "yunikorn", "P824"),
        ("yunikorn.yaml", "slurm", "P838"),
        ("other.yaml", "kueue", "P824"),
        ("none.yaml", "kueue", "P817"),
    ],
)
def test_what_cannot_be_converted_is_refused(penstock: Any, here: Path, file: str, to: str, code: str) -> None:
    (here / "other.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    )
    said = penstock("queue", "convert", file, "--to", to)
    assert said.code == 2 and f"[{code}]" in said.err and "fix" in said.err


# -- gangs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "more", "said"),
    [
        ("lab.ray", [], "its gang asks for 9 cpu, and root.lab has at most 8"),
        ("lab.rai", [], "there is no queue root.lab.rai"),
        ("lab", [], "root.lab is a parent"),
        ("lab.sorted", [], "sorts its applications by fair, and YuniKorn refuses gangs there"),
        ("lab.ray", ["--user", "eve"], "user 'eve' may not submit to root.lab.ray"),
    ],
)
def test_a_job_that_yunikorn_would_reject_is_refused(
    penstock: Any, here: Path, queue: str, more: list[str], said: str
) -> None:
    (here / "job.yaml").write_text(yaml.safe_dump(dict(job(parallelism=9, completions=9).data)))
    args = ("schedule", "job.yaml", "--with", "yunikorn", "--queue", queue, "--queues", "yunikorn.yaml", *more)
    found = penstock(*args)
    assert found.code == 2 and "[P883]" in found.err and said in found.err and not found.out


def test_what_fits_is_written_and_without_a_gang_the_bound_is_not_that_of_one(penstock: Any, here: Path) -> None:
    (here / "job.yaml").write_text(yaml.safe_dump(dict(job(parallelism=9, completions=9).data)))
    (here / "ray.yaml").write_text(yaml.safe_dump(dict(ray_cluster().data)))
    to = ("--with", "yunikorn", "--queue", "lab.ray", "--queues", "yunikorn.yaml")
    assert penstock("schedule", "ray.yaml", *to).code == 0
    assert penstock("schedule", "job.yaml", *to, "--gang", "off").code == 0


def test_a_job_that_kueue_would_never_admit_is_refused(penstock: Any, here: Path) -> None:
    penstock(
        "queue", "convert", "yunikorn.yaml", "--to", "kueue", "--capacity", "cpu=64,memory=1Ti", "-o", "kueue.yaml"
    )
    (here / "job.yaml").write_text(yaml.safe_dump(dict(job(parallelism=9, completions=9).data)))
    large = penstock("schedule", "job.yaml", "--with", "kueue", "--queue", "lab.ray", "--queues", "kueue.yaml")
    assert large.code == 2 and "it asks for 9 cpu, and root.lab.ray can have 8" in large.err
    other = penstock("schedule", "job.yaml", "--with", "kueue", "--queue", "lab.rai", "--queues", "kueue.yaml")
    assert other.code == 2 and 'Did you mean "lab.ray"?' in other.err
    fits = penstock("schedule", "job.yaml", "--with", "kueue", "--queue", "open", "--queues", "kueue.yaml")
    assert fits.code == 0
