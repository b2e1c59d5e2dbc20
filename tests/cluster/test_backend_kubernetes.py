"""`penstock run --on kubernetes` on a real cluster: the same results as on this machine on the real node, and the shape of many on kwok."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

from testbed.images import host_python
from testbed.instance import Testbed
from tests.cluster.support import fresh_namespace

FINETUNE = Path(__file__).parents[2] / "examples" / "finetune" / "flow.py"
FLOW = """
from pathlib import Path
from penstock import task, workflow

@task
def shards(n: int) -> list[int]:
    return list(range(n))

@task(cpu=0.05)
def square(x: int) -> int:
    print("squaring", x)
    return x * x

@task(retry=3)
def moody(place: str) -> int:
    file = Path(place)
    before = int(file.read_text()) if file.exists() else 0
    file.write_text(str(before + 1))
    if before < 2:
        raise RuntimeError(f"not yet: {before}")
    return before

@task
def grow(x: int) -> int:
    return x * 2

@task
def big(mebibytes: int) -> Path:
    path = Path("big.bin")
    with open(path, "wb") as file:
        for number in range(mebibytes):
            file.write(bytes([number % 251]) * 2**20)
    return path

@task
def digest(file: Path) -> str:
    import hashlib
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()

@task(replicas=4)
def gang(place: str) -> int:
    import os, time
    folder, mine, began = Path(place), os.environ["PENSTOCK_REPLICA"], time.monotonic()
    whole = Path(f"{place}.{mine}")
    whole.write_text(os.environ["PENSTOCK_COORDINATOR"])
    whole.rename(folder / mine)  # ends when all four are there
    while len(found := {one.name: one.read_text() for one in folder.iterdir()}) < int(os.environ["PENSTOCK_REPLICAS"]):
        if time.monotonic() - began > 120:
            raise TimeoutError(f"only {sorted(found)} came")
        time.sleep(0.1)
    if len(set(found.values())) != 1:
        raise ValueError(f"several coordinators: {found}")
    return sum(map(int, found))

@task
def together(squares: list[int], grown: int, sum_: str, failed: int, of_all: int) -> dict[str, int | str]:
    return {"squares": sum(squares), "grown": grown, "digest": sum_, "failed": failed, "gang": of_all}

@workflow
def everything(place: str, n: int = 4, mebibytes: int = 100):
    squares = [square(x) for x in shards(n)]
    grown = grow(1)
    while grown < 8:
        grown = grow(grown)
    return together(squares, grown, digest(big(mebibytes)), moody(place + "/moody"), gang(place + "/gang"))
"""
MANY = """
apiVersion: penstock/v1
kind: Workflow
name: many
params: [{name: n, type: "list[int]"}]
steps:
  - name: one
    each: {axes: [{i: "${{ params.n }}"}]}
    cache: {enabled: false}
    script: {source: "echo ${{ item.i }}", image: "busybox:testbed"}
"""
EFFECTS = """
apiVersion: penstock/v1
kind: Workflow
name: effects
steps:
  - name: mark
    each: {axes: [{i: [1, 2, 3, 4, 5, 6, 7, 8]}]}
    cache: {enabled: false}
    script: {source: "echo x >> /s/${{ item.i }}; sleep 3", image: "busybox:testbed"}
    mounts: [{name: s, path: /s, scope: run}]
  - name: count
    needs: [mark]
    cache: {enabled: false}
    script: {source: "cat /s/* | wc -l", image: "busybox:testbed"}
    outputs: [{name: n, type: int, path: /dev/stdout}]
    mounts: [{name: s, path: /s, scope: run}]
outputs: [{name: n, value: "${{ steps.count.outputs.n }}"}]
"""
ENDS = """
apiVersion: penstock/v1
kind: Workflow
name: ends
steps:
  - {name: code, script: {source: "echo words; exit 3", image: "busybox:testbed"}}
  - {name: memory, resources: {memory: 20Mi}, script: {source: "tail /dev/zero", image: "busybox:testbed"}}
  - {name: image, script: {source: "true", image: "nothing:here"}}
  - {name: late, timeout: 1, script: {source: "sleep 60", image: "busybox:testbed"}}
  - {name: nowhere, placement: {node_selector: {nowhere: "yes"}}, script: {source: "true", image: "busybox:testbed"}}
  - {name: program, container: {image: "busybox:testbed", command: [no-such-program]}}
"""
FILES = """
apiVersion: penstock/v1
kind: Workflow
name: files
outputs: [{name: said, value: "${{ steps.said.outputs.line }}"}, {name: read, value: "${{ steps.read.outputs.line }}"}]
steps:
  - name: said
    container: {image: "busybox:testbed", command: [sh, -c, 'echo "$1 $HOME"; echo 5 > $PENSTOCK_OUTPUTS/n; mkdir -p /deep/er; echo f > /deep/er/f', x, "$(HOME) $$"]}
    outputs: [{name: n, type: int}, {name: line, type: str, path: /dev/stdout}, {name: f, type: file, path: /deep/er/f}]
  - name: read
    container: {image: "busybox:testbed", command: [cat, /in/f, /in/n]}
    inputs:
      - {name: f, type: file, value: "${{ steps.said.outputs.f }}", path: /in/f}
      - {name: n, type: int, value: "${{ steps.said.outputs.n }}", path: /in/n}
    outputs: [{name: line, type: str, path: /dev/stdout}]
"""


@dataclass
class Place:
    """A folder with flows, a home in it, and a namespace of the cluster."""

    bed: Testbed
    folder: Path
    namespace: str
    env: dict[str, str]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", *words],
            cwd=self.folder, env={**self.env, **more}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, seconds: float = 240, **more: str) -> tuple[int, str, str]:
        process = self.start(*words, **more)
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            process.kill()
        return process.returncode, out, err

    def result(self, *words: str, seconds: float = 240, **more: str) -> Any:
        """What `penstock run … -o json` gives."""
        code, out, err = self.run("run", *words, "-o", "json", seconds=seconds, **more)
        assert code == 0, err + out
        return json.loads(out)

    def jobs(self) -> list[Any]:
        return self.bed.objects("batch/v1", "jobs", self.namespace)

    def pods(self) -> list[Any]:
        return self.bed.objects("v1", "pods", self.namespace)

    def nothing_is_left(self) -> None:
        self.bed.wait(lambda: (not self.jobs() and not self.pods()) or None, "the Jobs and pods to be gone")


def overlay(real: bool) -> dict[str, Any]:
    if not real:
        return {"spec": {"nodeSelector": {"type": "kwok"}, "tolerations": [{"operator": "Exists"}]}}
    python = host_python()
    inside = {"volumeMounts": python["volumeMounts"], "env": [one for one in python["env"] if one["value"]]}
    containers = [{"name": "main", **inside}, {"name": "helper", **inside}]
    return {"spec": {"nodeSelector": {"type": "real"}, "volumes": python["volumes"], "containers": containers}}


def place_on(bed: Testbed, folder: Path, real: bool) -> Place:
    namespace = fresh_namespace(bed)
    (folder / "pods.yaml").write_text(json.dumps(overlay(real)))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    env |= {
        "KUBECONFIG": str(bed.kubeconfig),
        "PENSTOCK_HOME": str(folder / "home"),
        "PENSTOCK_KUBERNETES_NAMESPACE": namespace,
        "PENSTOCK_KUBERNETES_VOLUME": f"host:{folder / 'home'}",
        "PENSTOCK_KUBERNETES_IMAGE": "busybox:testbed",
        "PENSTOCK_KUBERNETES_PYTHON": host_python()["command"][0],
        "PENSTOCK_KUBERNETES_POD": str(folder / "pods.yaml"),
    }
    return Place(bed, folder, namespace, env)


@pytest.fixture
def real(testbed: Callable[..., Testbed], tmp_path: Path) -> Place:
    tmp_path.chmod(0o755)
    return place_on(testbed("kwok", "node"), tmp_path, real=True)


@pytest.fixture
def fake(testbed: Callable[..., Testbed], tmp_path: Path) -> Place:
    return place_on(testbed("kwok"), tmp_path, real=False)


# -- the real node ----------------------------------------------------------------------------------------------------


def meeting(place: Path) -> str:
    """A folder for what the tasks of FLOW leave for one another."""
    (place / "gang").mkdir(parents=True)
    return str(place)


@pytest.mark.parametrize(("n", "warm"), [(4, 0), pytest.param(200, 0, marks=pytest.mark.slow), (200, 4)])
def test_the_same_results_as_on_this_machine(real: Place, n: int, warm: int) -> None:
    """A fan-out over what a task returned, a loop, a task that fails twice, a gang of four that meet, and 100 MiB between steps; with `warm` pods, too."""
    real.write("flow.py", FLOW)
    words = ("flow.py", "-p", f"n={n}")
    here = real.result(*words, "-p", f"place={meeting(real.folder / 'marks')}", PENSTOCK_HOME=str(real.folder / "here"))
    assert here["outputs"]["result"]["squares"] == sum(x * x for x in range(n))
    meeting(real.folder / "home" / "artifacts" / "marks")
    there = real.result(
        *words,
        "-p",
        "place=/penstock/artifacts/marks",
        "--on",
        "kubernetes",
        seconds=900,
        PENSTOCK_KUBERNETES_POD_REUSE=str(warm),
    )
    assert there["outputs"] == here["outputs"] and there["state"] == "succeeded"
    _, log, _ = real.run("logs", f"{there['run']}/square")
    said = [line.split()[-1] for line in log.splitlines() if "squaring" in line]  # the pods are gone
    assert sorted(map(int, said)) == list(range(n))
    coordinators = {one.read_text() for one in (real.folder / "home" / "artifacts" / "marks" / "gang").iterdir()}
    assert len(coordinators) == 1 and coordinators.pop().startswith("penstock-")
    real.nothing_is_left()


def test_the_finetune_example(real: Place) -> None:
    words = (str(FINETUNE), "-p", "rows=20")
    here = real.result(*words, PENSTOCK_HOME=str(real.folder / "here"))
    assert real.result(*words, "--on", "kubernetes")["outputs"] == here["outputs"]
    real.nothing_is_left()


def test_every_way_to_end(real: Place) -> None:
    real.write("ends.yaml", ENDS)
    code, out, _ = real.run("run", "ends.yaml", "--on", "kubernetes", "-o", "json", PENSTOCK_KUBERNETES_PATIENCE="3")
    failures = {one["task"]: json.dumps(one) for one in json.loads(out)["failures"]}
    assert code == 3
    for step, said in {
        "code": "exit code 3: words", "memory": "P725", "late": "timed out after 1 s", "nowhere": "P723",
        "image": "P722", "program": "no-such-program",
    }.items():  # fmt: skip
        assert said in failures[step], failures
    real.nothing_is_left()


def test_files_and_words_of_commands(real: Place) -> None:
    real.write("files.yaml", FILES)
    found = real.result("files.yaml", "--on", "kubernetes")
    assert found["outputs"] == {"said": "$(HOME) $$ /root", "read": "f\n5"}
    real.nothing_is_left()


def test_a_store_behind_a_url(real: Place) -> None:
    """file:// is read by fsspec as every other URL is, here and in the pods."""
    shared = real.folder / "shared"
    shared.mkdir(mode=0o777)
    python = host_python(Path(fsspec.__file__).parents[1])
    mounts = [*python["volumeMounts"], {"name": "shared", "mountPath": str(shared)}]
    inside = {"volumeMounts": mounts, "env": [one for one in python["env"] if one["value"]]}
    volumes = [*python["volumes"], {"name": "shared", "hostPath": {"path": str(shared)}}]
    containers = [{"name": "main", **inside}, {"name": "helper", **inside}]
    template = {"spec": {"nodeSelector": {"type": "real"}, "volumes": volumes, "containers": containers}}
    (real.folder / "pods.yaml").write_text(json.dumps(template))
    real.write("flow.py", FLOW)
    real.write("files.yaml", FILES)
    url = {"PENSTOCK_ARTIFACTS": f"file://{shared}/store", "PENSTOCK_KUBERNETES_VOLUME": ""}
    marks = f"place={meeting(shared / 'marks')}"
    found = real.result("flow.py", "-p", "n=1", "-p", "mebibytes=5", "-p", marks, "--on", "kubernetes", **url)
    assert found["outputs"]["result"]["grown"] == 8
    assert real.result("files.yaml", "--on", "kubernetes", **url)["outputs"]["read"] == "f\n5"
    real.nothing_is_left()


def test_a_killed_engine_finds_its_jobs_again(real: Place) -> None:
    real.write("effects.yaml", EFFECTS)
    chance = random.Random(5)
    first = real.start("run", "effects.yaml", "--on", "kubernetes")
    try:
        real.bed.wait(lambda: len(real.jobs()) == 8 or None, "the Jobs")
        for _ in range(4):
            first.send_signal(signal.SIGKILL)
            first.communicate()
            first = real.start("run", "effects.yaml", "--on", "kubernetes", "-o", "json")
            time.sleep(chance.uniform(0.3, 1.5))  # a moment of its life, whatever it does then
        out, err = first.communicate(timeout=120)
    finally:
        first.kill()
    assert first.returncode == 0, err
    assert json.loads(out)["outputs"] == {"n": 8}  # each has left its mark once
    real.nothing_is_left()


def test_cancelling_what_a_dead_engine_left(real: Place) -> None:
    real.write("effects.yaml", EFFECTS)
    engine = real.start("run", "effects.yaml", "--on", "kubernetes")
    real.bed.wait(lambda: len(real.jobs()) == 8 or None, "the Jobs")
    engine.kill()
    engine.communicate()
    assert real.run("cancel", "@")[0] == 0
    real.nothing_is_left()


def test_a_pod_that_somebody_deletes_runs_again_and_is_no_failure(real: Place) -> None:
    text = EFFECTS.replace("[1, 2, 3, 4, 5, 6, 7, 8]", "[1]")
    real.write("effects.yaml", text.replace("sleep 3", "trap 'exit 143' TERM; sleep 6 & wait $!"))
    engine = real.start("run", "effects.yaml", "--on", "kubernetes", "-o", "json")
    try:
        up = lambda: next((one for one in real.pods() if one["status"]["phase"] == "Running"), None)
        pod = real.bed.wait(up, "the pod")
        real.bed.delete(f"/api/v1/namespaces/{real.namespace}/pods/{pod['metadata']['name']}")
        out, err = engine.communicate(timeout=120)
    finally:
        engine.kill()
    assert engine.returncode == 0 and json.loads(out)["outputs"] == {"n": 2}, err
    real.nothing_is_left()


# -- kwok -------------------------------------------------------------------------------------------------------------


def test_a_fan_out_of_two_hundred(fake: Place) -> None:
    fake.write("many.yaml", MANY)
    found = fake.result("many.yaml", "-p", f"n={list(range(200))}", "--on", "kubernetes")
    assert found["state"] == "succeeded"
    fake.nothing_is_left()


def test_a_full_quota_and_missing_rights_are_said(fake: Place) -> None:
    fake.write("many.yaml", MANY)
    meta = {"name": "full", "namespace": fake.namespace}
    fake.bed.apply([{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "0"}}}])
    code, out, err = fake.run("run", "many.yaml", "-p", "n=[1]", "--on", "kubernetes")
    assert code == 3 and "P724" in err + out and "exceeded quota" in err + out
    fake.nothing_is_left()
    nobody = str(fake.bed.kubeconfig_for(f"system:serviceaccount:{fake.namespace}:default"))
    code, out, err = fake.run("run", "many.yaml", "-p", "n=[2]", "--on", "kubernetes", KUBECONFIG=nobody)
    assert code != 0 and "P721" in err and "create jobs" in err
