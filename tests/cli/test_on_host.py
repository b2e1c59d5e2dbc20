"""May the commands of images run on this machine? Asked once, and remembered."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.backends.local import guard
from penstock.store.sql import open_store
from tests.cli.conftest import Result

Penstock = Callable[..., Result]
ARGO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: hello}
spec:
  entrypoint: main
  templates:
  - name: main
    container:
      image: no.such.host/image
      command: [sh, -c, "mkdir -p /mnt/penstock-made /workspace/made && pwd >/srv/penstock-made && cat /srv/penstock-made"]
"""
PYTHON = """
from penstock import ContainerJob, Workflow
flow = Workflow("flow", steps=[ContainerJob("main", "no.such.host/image", ["echo", "hello"])])
"""


@pytest.fixture(autouse=True)
def no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CONTAINER_TOOL", str(tmp_path / "no-such-tool"))
    monkeypatch.delenv("PENSTOCK_ON_HOST", raising=False)
    (tmp_path / "argo.yaml").write_text(ARGO)
    (tmp_path / "flow.py").write_text(PYTHON)


@pytest.mark.parametrize("file", ["argo.yaml", "flow.py"])
def test_without_a_terminal_it_is_an_error_that_names_the_option(file: str, penstock: Penstock, tmp_path: Path) -> None:
    refused = penstock("run", file)
    assert refused.code == 2 and "P467" in refused.err and "--on container=process" in refused.err
    assert not (tmp_path / ".penstock" / "state.db").exists(), "nothing was recorded"
    assert penstock("run", file, "--on", "container=process").code == 0
    assert penstock("run", file, "--fresh").code == 2, "an option is for one run"


@pytest.mark.parametrize("file", ["argo.yaml", "flow.py"])
def test_a_setting_answers(file: str, penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ON_HOST", "yes")
    allowed = penstock("run", file)
    assert allowed.code == 0 and "commands run on this machine" in allowed.err
    monkeypatch.setenv("PENSTOCK_ON_HOST", "perhaps")
    assert "P457" in penstock("run", file).err


def test_a_person_is_asked_once(tmp_path: Path) -> None:
    def answer(text: bytes) -> tuple[int, str]:
        leader, follower = pty.openpty()
        words = [sys.executable, "-m", "penstock", "run", "argo.yaml", "-q"]
        with subprocess.Popen(words, cwd=tmp_path, stdin=follower, stdout=follower, stderr=follower) as process:
            os.close(follower)
            os.write(leader, text)
            said = b""
            while True:
                try:
                    said += os.read(leader, 4096)
                except OSError:  # the other end is closed
                    break
        os.close(leader)
        return process.returncode, said.decode()

    code, said = answer(b"n\n")
    assert code == 2 and "instead, as you" in said and "P467" in said
    code, said = answer(b"y\n")
    assert code == 0 and "instead, as you" in said
    code, said = answer(b"")
    assert code == 0 and "instead, as you" not in said, "the answer is remembered"


def test_folders_that_are_empty_in_an_image_are_not_those_of_this_machine(penstock: Penstock, tmp_path: Path) -> None:
    assert penstock("run", "argo.yaml", "--on", "container=process").code == 0
    for path in ("/mnt/penstock-made", "/workspace/made", "/srv/penstock-made"):
        assert not os.path.lexists(path)
    with open_store(str(tmp_path / ".penstock")) as store:
        assert store.runs.newest(limit=1)[0].state == "succeeded"


WRITES = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: writes}
spec:
  entrypoint: main
  templates:
  - name: main
    steps: [[{name: a, template: a}], [{name: b, template: b}]]
  - name: a
    outputs: {artifacts: [{name: out, path: /data/out}]}
    script:
      image: i
      command: [sh]
      source: |
        set -e
        mkdir -p /data/out one two && echo 1 >one/file && mv one/file two/file && ln -s file two/link && rm -r one
        echo 2 >/dev/null && echo 3 >/tmp/penstock-made && cat /tmp/penstock-made && test "$(ls $TMPDIR)" = penstock-made
        mktemp && mkfifo pipe && cp two/file /data/out/file && : >two/file && cat /etc/passwd >/dev/null
  - name: b
    script: {image: i, command: [sh], source: "test ! -e /tmp/penstock-made && (cd OUTSIDE && echo 1 >made)"}
"""
unlocked = pytest.mark.skipif(not guard.is_on({}), reason="this kernel cannot keep processes from writing")


@unlocked
def test_what_a_manifest_writes_stays_in_its_own_folder(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = Path.home() / f".penstock-test-{os.getpid()}"
    outside.mkdir()
    try:
        (tmp_path / "writes.yaml").write_text(WRITES.replace("OUTSIDE", str(outside)))
        refused = penstock("run", "writes.yaml", "--on", "container=process")
        assert refused.code == 3 and "PENSTOCK_HOST_WRITES=yes" in refused.err
        with open_store(str(tmp_path / ".penstock")) as store:
            assert {row.task: row.state for row in store.runs.tasks(1)} == {"a": "succeeded", "b": "failed"}
        assert not list(outside.iterdir()) and not os.path.lexists("/tmp/penstock-made")
        (tmp_path / "the-engine-itself").write_text("may write")
        monkeypatch.setenv("PENSTOCK_HOST_WRITES", "yes")
        assert penstock("run", "writes.yaml", "--on", "container=process", "--new").code == 3, (
            "a: /tmp is the machine's"
        )
        Path("/tmp/penstock-made").unlink()
        (tmp_path / "writes.yaml").write_text(
            WRITES.replace("OUTSIDE", str(outside)).replace("/tmp/pen", "$TMPDIR/pen")
        )
        assert penstock("run", "writes.yaml", "--on", "container=process", "--new").code == 0
        assert [path.name for path in outside.iterdir()] == ["made"]
    finally:
        shutil.rmtree(outside)


JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: race}
spec:
  successPolicy: {operator: %s, targetReplicatedJobs: [client]}
  replicatedJobs:
"""
JOB = """
  - name: %s
    template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, command: [sh, -c, "%s"]}]}}}}
"""


@pytest.mark.parametrize("operator", ["All", "Any"])
def test_a_jobset_ends_when_its_success_policy_is_met(
    operator: str, penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What still runs is ended: the server would go on for an hour."""
    monkeypatch.setenv("PENSTOCK_HOST_WRITES", "yes")
    up = tmp_path / "up"
    jobs = {"server": f"touch {up}; exec sleep 3600", "client": f"until test -e {up}; do sleep 0.01; done"}
    text = JOBSET % operator + "".join(JOB % job for job in jobs.items())
    (tmp_path / "jobset.yaml").write_text(text)
    done = penstock("run", "jobset.yaml", "--on", "container=process")
    assert done.code == 0, done.err
    assert "successPolicy" not in done.err
    with open_store(str(tmp_path / ".penstock")) as store:
        rows = {row.task: row.state for row in store.runs.tasks(1)}
    assert rows == {"server": "cancelled", "client": "succeeded"}


PIPELINE = """
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: p}
spec:
  pipelineSpec:
    tasks:
    - {name: a, taskSpec: {steps: [{image: i, script: "exit CODE"}]}}
    - {name: b, when: [{input: x, operator: in, values: [y]}], taskSpec: {steps: [{image: i, script: "true"}]}}
    - {name: c, runAfter: [a], taskSpec: {steps: [{image: i, script: "true"}]}}
    finally:
    - {name: d, when: [{input: x, operator: in, values: [y]}], taskSpec: {steps: [{image: i, script: "true"}]}}
"""


@pytest.mark.parametrize("code", [0, 1])
def test_in_a_failed_pipeline_run_that_is_the_reason_of_all_that_did_not_start(
    code: int, penstock: Penstock, tmp_path: Path
) -> None:
    """As in Tekton: it comes before a `when` that is false, but not in finally."""
    (tmp_path / "p.yaml").write_text(PIPELINE.replace("CODE", str(code)))
    assert penstock("run", "p.yaml", "--on", "container=process").code == (3 if code else 0)
    told = {one["step"]: one["reason"] for one in json.loads(penstock("show", "@", "-o", "json").out)["steps"]}
    stopping = {name for name, reason in told.items() if "PipelineRun was stopping" in reason}
    assert stopping == ({"b", "c"} if code else set())
    assert "does not hold" in told["b"] and "does not hold" in told["d"]
