"""Steps of several containers with `--on kubernetes` on the real node: the same results as on this machine."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.instance import Testbed
from tests.cluster.test_backend_kubernetes import Place, place_on

TASK = """
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: three}
spec:
  params: [{name: word, value: "it's"}]
  taskSpec:
    params: [{name: word}]
    results: [{name: total}, {name: list, type: array}]
    sidecars:
      - name: web
        image: "busybox:testbed"
        script: |
          mkdir -p /tmp/www && echo "from the sidecar" > /tmp/www/index.html
          echo serving; exec busybox httpd -f -p 127.0.0.1:18741 -h /tmp/www
    steps:
      - name: one
        image: "busybox:testbed"
        script: |
          echo first; echo a > /workspace/a; echo -n '["x y","z"]' > $(step.results.n.path)
        results: [{name: n, type: array}]
      - name: two
        image: "busybox:testbed"
        command: [sh, -c]
        args: ['echo "$(params.word) $(cat /workspace/a)"; exit 4']
        onError: continue
        timeout: 20s
      - name: three
        image: "busybox:testbed"
        command: [sh, -ec]
        args:
          - |
            i=0; until busybox wget -q -O /workspace/web http://127.0.0.1:18741/; do i=$((i+1)); [ $i -lt 50 ]; sleep 0.2; done
            echo -n "$1-$2-$(cat $(steps.step-two.exitCode.path))-$(cat /workspace/web)" > $(results.total.path)
            echo -n '["p","q"]' > $(results.list.path)
          - sh
          - "$(steps.one.results.n[*])"
"""
CHAIN = """
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: chain}
spec:
  taskSpec:
    results: [{name: said}]
    sidecars: [{name: idle, image: "busybox:testbed", command: [sh, -c, "echo beside; sleep 3600"]}]
    steps:
      - {name: one, image: "busybox:testbed", script: "echo first; echo 1 > /workspace/f"}
      - {name: two, image: "busybox:testbed", command: [sh, -c, "echo second; echo 2 >> /workspace/f"]}
      - {name: three, image: "busybox:testbed", script: "echo third; tr -d '\\\\n' < /workspace/f > $(results.said.path)"}
"""
SET = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: set-}
spec:
  entrypoint: m
  volumes: [{name: ws, emptyDir: {}}]
  templates:
    - name: m
      containerSet:
        volumeMounts: [{name: ws, mountPath: /ws}]
        containers:
          - {name: a, image: "busybox:testbed", command: [sh, -c, "echo a > /ws/a; until [ -e /ws/b ]; do sleep 0.1; done"]}
          - {name: b, image: "busybox:testbed", command: [sh, -c, "echo b > /ws/b; until [ -e /ws/a ]; do sleep 0.1; done"]}
          - {name: main, image: "busybox:testbed", command: [sh, -c, "cat /ws/a /ws/b | tr -d '\\\\n' > /tmp/out; echo printed"], dependencies: [a, b]}
      outputs:
        parameters: [{name: x, valueFrom: {path: /tmp/out}}]
"""
FAILS = """
apiVersion: penstock/v1
kind: Workflow
name: fails
steps:
  - name: chained
    pod:
      parts:
        - {name: one, image: "busybox:testbed", command: [sh, -c, "echo fine"]}
        - {name: two, image: "busybox:testbed", command: [sh, -c, "echo words; exit 3"]}
        - {name: three, image: "busybox:testbed", command: [sh, -c, "echo never"]}
        - {name: beside, image: "busybox:testbed", command: [sh, -c, "sleep 3600"], sidecar: true}
  - name: led
    pod:
      parts:
        - {name: one, image: "busybox:testbed", command: [sh, -c, "echo fine; exec sleep 3600"], needs: []}
        - {name: two, image: "busybox:testbed", command: [sh, -c, "echo words; exit 3"], needs: []}
        - {name: three, image: "busybox:testbed", command: [sh, -c, "echo never"], needs: [one]}
  - name: late
    pod:
      parts:
        - {name: one, image: "busybox:testbed", command: [sleep, "3600"], timeout: 1}
        - {name: two, image: "busybox:testbed", command: ["true"]}
  - name: memory
    resources: {memory: 20Mi}
    pod:
      parts:
        - {name: one, image: "busybox:testbed", command: [tail, /dev/zero], needs: []}
        - {name: two, image: "busybox:testbed", command: [sleep, "3600"], needs: []}
  - name: stays
    pod:
      parts:
        - {name: one, image: "busybox:testbed", command: ["true"]}
        - {name: side, image: "busybox:testbed", command: [no-such-program], sidecar: true}
  - name: unwritten
    outputs: [{name: n, type: int, path: /out/n}]
    pod:
      parts:
        - {name: one, image: "busybox:testbed", command: ["true"], on_error: continue}
"""
EFFECTS = """
apiVersion: penstock/v1
kind: Workflow
name: effects
steps:
  - name: mark
    each: {axes: [{i: [1, 2, 3, 4]}]}
    cache: {enabled: false}
    pod:
      parts:
        - {name: one, image: "busybox:testbed", command: [sh, -c, "echo x >> /s/${{ item.i }}; sleep 2"]}
        - {name: two, image: "busybox:testbed", command: [sh, -c, "echo y >> /s/${{ item.i }}; sleep 2; exit 3"], on_error: continue}
        - {name: three, image: "busybox:testbed", command: [sh, -c, "echo z >> /s/${{ item.i }}"]}
        - {name: beside, image: "busybox:testbed", command: [sh, -c, "sleep 3600"], sidecar: true}
    mounts: [{name: s, path: /s, scope: run}]
  - name: count
    needs: [mark]
    cache: {enabled: false}
    script: {source: "cat /s/* | sort | uniq -c | tr -d ' \\n'", image: "busybox:testbed"}
    outputs: [{name: n, type: str, path: /dev/stdout}]
    mounts: [{name: s, path: /s, scope: run}]
outputs: [{name: n, value: "${{ steps.count.outputs.n }}"}]
"""


@pytest.fixture
def real(testbed: Callable[..., Testbed], tmp_path: Path) -> Place:
    tmp_path.chmod(0o755)
    return place_on(testbed("kwok", "node"), tmp_path, real=True)


def lines(place: Place, run: str, **more: str) -> list[str]:
    code, out, err = place.run("logs", run, **more)
    assert code == 0, err
    return [line.split("\t")[-1] for line in out.splitlines() if line]


@pytest.mark.parametrize("text", [TASK, CHAIN, SET], ids=["led", "chained", "side by side"])
def test_the_same_results_as_on_this_machine(real: Place, text: str) -> None:
    """A task of Tekton with results, a part that may fail, and a sidecar that answers at localhost; parts one after another; a container set of Argo."""
    real.write("pod.yaml", text)
    home = {"PENSTOCK_HOME": str(real.folder / "here")}
    here = real.result("pod.yaml", "--on", "process", **home)
    there = real.result("pod.yaml", "--on", "kubernetes")
    assert there["outputs"] == here["outputs"] and there["state"] == "succeeded"
    said = lines(real, there["run"])
    local = lines(real, here["run"], **home)
    assert sorted(said) == sorted(line for line in local if line != "[three]" or line in said)
    for title, line in zip(local, local[1:], strict=False):  # each below the name of its part
        if title.startswith("[") and not line.startswith("["):
            assert said[said.index(line) - 1] == title
    real.nothing_is_left()


def test_every_way_to_end(real: Place) -> None:
    real.write("fails.yaml", FAILS)
    code, out, err = real.run("run", "fails.yaml", "--on", "kubernetes", "-o", "json")
    assert code == 3, err
    failures = {one["task"]: one for one in json.loads(out)["failures"]}
    for step, said in {
        "chained": "part two: exit code 3: words", "led": "part two: exit code 3: words", "late": "part one: timed out after 1 s",
        "memory": "P725", "stays": "P723", "unwritten": "'n' was not written",
    }.items():  # fmt: skip
        assert said in json.dumps(failures[step]), failures
    said = lines(real, json.loads(out)["run"])
    assert said.count("fine") == said.count("words") == 2 and "never" not in said
    real.nothing_is_left()


def test_a_killed_engine_finds_its_pods_again(real: Place) -> None:
    real.write("effects.yaml", EFFECTS)
    chance = random.Random(7)
    engine = real.start("run", "effects.yaml", "--on", "kubernetes")
    try:
        real.bed.wait(lambda: len(real.jobs()) == 4 or None, "the Jobs")
        for _ in range(4):
            time.sleep(chance.uniform(0.5, 2.5))  # a moment of its life, whatever it does then
            engine.send_signal(signal.SIGKILL)
            engine.communicate()
            engine = real.start("run", "effects.yaml", "--on", "kubernetes", "-o", "json")
        out, err = engine.communicate(timeout=180)
    finally:
        engine.kill()
    assert engine.returncode == 0, err
    assert json.loads(out)["outputs"] == {"n": "4x4y4z"}  # each part of each task has left its mark once
    real.nothing_is_left()


def test_cancelling_ends_all_parts(real: Place) -> None:
    real.write("effects.yaml", EFFECTS.replace("sleep 2;", "sleep 3600;"))
    engine = real.start("run", "effects.yaml", "--on", "kubernetes")
    try:
        up = lambda: len([one for one in real.pods() if one["status"]["phase"] == "Running"]) == 4 or None
        real.bed.wait(up, "the pods")
        assert real.run("cancel", "@")[0] == 0
        engine.communicate(timeout=120)
    finally:
        engine.kill()
    real.nothing_is_left()
