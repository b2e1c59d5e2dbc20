"""penstock schedule, as typed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scheduling.samples import job, ray_cluster, ray_job

CONFIG = 'queueconfig: {scheduler: yunikorn, jobs: [{type: ray, gangscheduling: "gangSchedulingStyle=hard"}]}'
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}


@pytest.fixture
def manifests(tmp_path: Path) -> str:
    path = tmp_path / "jobs.yaml"
    path.write_text(yaml.safe_dump_all([OTHER, dict(ray_job().data), dict(job().data)]))
    (tmp_path / "queueconfig.yaml").write_text(CONFIG)
    return str(path)


def test_the_documents_go_out_and_what_was_set_is_told(penstock: Any, manifests: str) -> None:
    said = penstock("schedule", manifests, "--with", "yunikorn", "--org", "lab")
    assert said.code == 0
    other, ray, plain = yaml.safe_load_all(said.out)
    assert other == OTHER and ray["metadata"]["labels"]["yunikorn.apache.org/queue"] == "root.lab.ray"
    assert plain["spec"]["template"]["metadata"]["labels"]["queue"] == "root.lab.default"
    assert "changed spec.template.metadata.labels: Job one: yunikorn.apache.org/queue=root.lab.default" in said.err
    assert "gang  RayJob one: headgroup 1 × (1 cpu, 2Gi memory), w 2 × (1 cpu, 1Gi memory)" in said.err
    quiet = penstock("schedule", manifests, "--with", "yunikorn", "--org", "lab", "-q")
    assert quiet.out == said.out and not quiet.err


def test_what_it_wrote_it_does_not_change_again(penstock: Any, manifests: str) -> None:
    penstock("schedule", manifests, "--with", "yunikorn", "--org", "lab", "-o", "once.yaml")
    again = penstock("schedule", "once.yaml", "--with", "yunikorn", "-o", "twice.yaml")
    assert Path("once.yaml").read_text() == Path("twice.yaml").read_text() and "changed" not in again.err


def test_the_queueconfig_names_the_scheduler_and_is_mended(penstock: Any, manifests: str) -> None:
    said = penstock("schedule", manifests, "--queueconfig", "queueconfig.yaml", "--org", "lab", "--report", "r.json")
    ray = list(yaml.safe_load_all(said.out))[1]
    assert (
        ray["metadata"]["annotations"]["yunikorn.apache.org/schedulingPolicyParameters"] == "gangSchedulingStyle=Hard"
    )
    report = json.loads(Path("r.json").read_text())
    assert report["entries"][0]["path"] == "queueconfig.jobs[0].gangscheduling" and report["entries"][0]["line"] == 1
    other = penstock("schedule", manifests, "--queueconfig", "queueconfig.yaml", "--org", "lab", "--with", "kueue")
    assert other.code == 0 and "the queueconfig is for yunikorn" in other.err


def test_from_a_pipe(penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(dict(job().data))))
    said = penstock("schedule", "-", "--with", "kueue", "--queue", "team-a")
    assert yaml.safe_load(said.out)["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}


def test_what_could_not_be_written_ends_a_strict_command_with_three(penstock: Any, manifests: str) -> None:
    said = penstock("schedule", manifests, "--with", "kueue", "--org", "lab", "--user", "sue", "--strict")
    assert said.code == 3 and "lost metadata: RayJob one: Kueue reads no user" in said.err and said.out


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["--with", "slurm", "--org", "lab"], "P884", 4),
        (["--org", "lab"], "P884", 2),
        (["--with", "kueue"], "P888", 2),
        (["--with", "yunikorn", "--queue", "a b"], "P888", 2),
        (["--with", "yunikorn", "--org", "lab", "--app", "My App"], "P888", 2),
        (["--with", "kueue", "--org", "lab", "--queueconfig", "none.yaml"], "P501", 4),
    ],
)
def test_bad_input_has_a_code_and_a_fix(
    penstock: Any, manifests: str, args: list[str], code: str, exit_code: int
) -> None:
    said = penstock("schedule", manifests, *args)
    assert said.code == exit_code and f"[{code}]" in said.err and "fix" in said.err and not said.out


def test_a_mistake_in_the_manifest_is_said_with_its_line(penstock: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    data = dict(ray_cluster().data)
    data["spec"]["workerGroupSpecs"][0]["replicas"] = "two"
    path.write_text(yaml.safe_dump(data))
    line = path.read_text().split("\n").index("    replicas: two") + 1
    said = penstock("schedule", str(path), "--with", "kueue", "--org", "lab")
    assert said.code == 2 and "error[P887]: replicas is 'two'" in said.err and f"bad.yaml:{line}" in said.err
    assert penstock("schedule", str(path), "--with", "kueue", "--org", "a", "--queue", "b").code == 2
    path.write_text(yaml.safe_dump(OTHER))
    assert "[P889]" in penstock("schedule", str(path), "--with", "kueue", "--org", "lab").err
