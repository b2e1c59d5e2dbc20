"""`penstock queue simulate` as people type it: figures, formats, pictures, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import simulation
from penstock.cli.ui import render
from tests.cli.conftest import Result
from tests.service.lines import FLAVOR, cluster_queue, local_queue, manifest, priority

Penstock = Callable[..., Result]
CHAIN = """
apiVersion: penstock/v1
kind: Workflow
name: chain
params: [{name: wide, type: int, default: 100}]
steps:
- name: a
  script: {source: "true"}
  each: {axes: [{i: "${{ range(10) }}"}]}
  resources: {cpu: 1, memory: 1Gi}
- name: b
  script: {source: "true"}
  needs: [a]
  each: {axes: [{i: "${{ range(params.wide) }}"}]}
  resources: {cpu: 1}
- name: c
  script: {source: "true"}
  needs: [b]
  each: {axes: [{i: "${{ range(10) }}"}]}
  resources: {cpu: 1}
"""
ONE = """
apiVersion: penstock/v1
kind: Workflow
name: {name}
steps:
- name: {name}
  script: {{source: "true"}}
  resources: {{cpu: {cpu}}}
"""
TEAMS = manifest(
    FLAVOR,
    cluster_queue("shared", 10, preemption={"withinClusterQueue": "LowerPriority"}),
    local_queue("team-a", "shared"),
    local_queue("team-b", "shared"),
    priority("urgent", 100),
)
OPEN = """
from penstock import task, workflow

@task(cpu=1)
def split(n: int) -> list[int]:
    return list(range(n))

@task(cpu=1)
def work(x: int) -> int:
    return x

@task(cpu=1)
def tell(x: int) -> None: ...

@workflow
def late(n: int = 4):
    some = [work(x) for x in split(n)]
    if some[0] > 3:
        tell(some[0])
"""


def recording() -> dict[str, Any]:
    """first → second and third, of one kind, of which one needs twice as much memory."""
    times = {"first_1": (10, 1), "second_1": (20, 1), "second_2": (30, 2)}
    return {
        "name": "taped",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {"name": name, "id": name, "parents": [] if name == "first_1" else ["first_1"], "children": []}
                    for name in times
                ]
            },
            "execution": {
                "makespanInSeconds": 50,
                "tasks": [
                    {"id": name, "runtimeInSeconds": seconds, "coreCount": 1, "memoryInBytes": memory * 2**30}
                    for name, (seconds, memory) in times.items()
                ],
            },
        },
    }


@pytest.fixture
def chain(tmp_path: Path) -> str:
    (tmp_path / "chain.yaml").write_text(CHAIN)
    return "chain.yaml"


def units(result: Result) -> dict[str, dict[str, Any]]:
    assert result.code == 0, result.err
    return {one["unit"]: one for one in json.loads(result.out)["units"]}


# -- figures ----------------------------------------------------------------------------------------------------------


def test_the_table(penstock: Penstock, chain: str, tmp_path: Path) -> None:
    found = penstock("queue", "simulate", chain, "--capacity", "cpu=100", "--seconds", "10")
    rows = [line.split("\t") for line in found.out.splitlines()]
    assert rows[0][:7] == ["UNIT", "MAKESPAN", "DELAY", "WAITING", "STALLED", "CPU USED", "CPU WASTED"]
    assert rows[1][:7] == ["workflow", "30s", "0", "0", "0", "40%", "43%  900 cpu s"]
    assert [row[:7] for row in rows[2:]] == [
        [unit, "30s", "0", "0", "0", "40%", "0"] for unit in ("stage", "task", "reuse")
    ]
    assert [row[10] for row in rows] == ["WORKLOADS", "1", "3", "120", "3"]
    # Memory was not named: there is enough of it.
    assert rows[0][7:9] == ["MEMORY USED", "MEMORY WASTED"] and [row[7] for row in rows[1:]] == [""] * 4
    assert "1 × chain on 100 cpu" in found.err and "10 s for each task, which is a guess" in found.err
    assert not (tmp_path / ".penstock").exists()


def test_as_json(penstock: Penstock, chain: str) -> None:
    found = penstock(
        "queue",
        "simulate",
        chain,
        "--capacity",
        "cpu=20,memory=64Gi",
        "-p",
        "wide=20",
        "--runtime",
        "a=5",
        "--runtime",
        "b=50",
        "--seconds",
        "10",
        "--repeat",
        "2",
        "--every",
        "2.5",
        "-o",
        "json",
    )
    data = json.loads(found.out)
    assert data["capacity"] == {"cpu": "20", "memory": "64Gi"} and data["queues"] == "20 cpu, 64Gi memory"
    assert [(job["workflow"], job["file"], job["at"]) for job in data["jobs"]] == [
        ("chain", "chain.yaml", 0.0),
        ("chain", "chain.yaml", 2.5),
    ]
    whole = units(found)["workflow"]
    # a: 5, b: 50, c: 10; when b is over ten are free, and the other needs twenty.
    assert whole["makespan"] == 130.0 and whole["delay"] == {"mean": 31.25, "max": 62.5} and whole["preemptions"] == 0
    cpu = whole["resources"]["cpu"]
    assert (cpu["used"], cpu["reserved"], cpu["wasted"]) == (2300.0, 2400.0, 100.0)
    assert cpu["utilisation"] == round(2300 / (20 * 130), 6) and cpu["peak_reserved"] == "20"
    assert list(whole["runs"]) == ["chain-1", "chain-2"]
    assert whole["runs"]["chain-2"] == {
        "state": "succeeded",
        "tasks": 40,
        "submitted": 2.5,
        "started": 65.0,
        "ended": 130.0,
        "delay": 62.5,
        "waiting": 62.5,
        "stalled": 62.5,
        "preemptions": 0,
    }


def test_the_same_in_every_process(tmp_path: Path, chain: str) -> None:
    (tmp_path / "taped.json").write_text(json.dumps(recording()))
    words = [
        "queue",
        "simulate",
        chain,
        "taped.json",
        "--repeat",
        "3",
        "--every",
        "0.1",
        "--seconds",
        "3.7",
        "-o",
        "json",
    ]
    words += ["--capacity", "cpu=110,memory=64Gi", "--plot", "usage.svg"]
    seen = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        seen.add((done.stdout, (tmp_path / "usage.svg").read_text()))
    assert len(seen) == 1


def test_a_unit_that_can_never_start_is_a_row_that_says_so(penstock: Penstock, chain: str) -> None:
    found = penstock("queue", "simulate", chain, "--capacity", "cpu=20")
    row = found.out.splitlines()[1].split("\t")
    assert found.code == 0 and row[0] == "workflow" and not any(row[1:-1])
    assert row[-1] == "the whole workflow asks for 100 cpu, and the queue has 20 at most"
    data = json.loads(penstock("queue", "simulate", chain, "--capacity", "cpu=20", "-o", "json").out)
    assert data["units"][0]["refused"][0]["code"] == "P818" and "makespan" not in data["units"][0]


def test_if_none_can_start_the_exit_code_says_so(penstock: Penstock, chain: str) -> None:
    found = penstock("queue", "simulate", chain, "--capacity", "cpu=500m")
    assert found.code == 2 and "a asks for 1 cpu, and the queue has 500m at most" in found.out
    assert penstock("queue", "simulate", chain, "--capacity", "cpu=20", "--unit", "workflow").code == 2


def test_on_a_screen_nothing_of_a_refusal_is_cut(
    penstock: Penstock, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "is_terminal", lambda stream=None: stream is not sys.stderr)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = penstock("queue", "simulate", chain, "--capacity", "cpu=20").out.splitlines()
    assert lines[0].split()[:2] == ["UNIT", "MAKESPAN"] and max(map(len, lines)) <= 60
    text = " ".join(" ".join(lines[1:3]).split())
    assert text == "workflow never starts: the whole workflow asks for 100 cpu, and the queue has 20 at most"
    monkeypatch.setenv("COLUMNS", "200")
    wide = penstock("queue", "simulate", chain, "--capacity", "cpu=100").out.splitlines()
    assert wide[0].split()[-1] == "WORKLOADS" and "43%  1.5 cpu h" in wide[1]


# -- queues -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    for name in ("slow", "fast"):
        (tmp_path / f"{name}.yaml").write_text(ONE.format(name=name, cpu=10))
    return "slow.yaml", "fast.yaml"


def test_queues_of_a_file_and_priorities_in_turn(penstock: Penstock, two: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(TEAMS)
    words = [
        "queue",
        "simulate",
        *two,
        "--queues",
        "queues.yaml",
        "--runtime",
        "slow=100",
        "--runtime",
        "fast=10",
        "--every",
        "10",
    ]
    words += ["--queue", "team-a", "--queue", "team-b", "-o", "json"]
    calm = penstock(*words)
    assert {one["preemptions"] for one in units(calm).values()} == {0}
    assert {one["makespan"] for one in units(calm).values()} == {110.0}
    pressed = penstock(*words, "--priority", "0", "--priority", "urgent")
    for one in units(pressed).values():
        assert one["preemptions"] == one["runs"]["slow-1"]["preemptions"] == 1
        assert one["makespan"] == 120.0 and one["runs"]["fast-1"]["delay"] == 0.0
    jobs = json.loads(pressed.out)["jobs"]
    assert [(job["queue"], job["priority"]) for job in jobs] == [("team-a", 0), ("team-b", "urgent")]


def test_without_a_file_the_queues_that_there_are_count(
    penstock: Penstock, two: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "penstock.yaml").write_text(
        manifest(FLAVOR, cluster_queue("small", 10), local_queue("default", "small"))
    )
    found = penstock("queue", "simulate", "slow.yaml", "-o", "json")
    assert json.loads(found.out)["capacity"] == {"cpu": "10"} and not (tmp_path / ".penstock").exists()
    assert penstock("queue", "apply", "penstock.yaml").code == 0
    (tmp_path / "penstock.yaml").unlink()
    assert json.loads(penstock("queue", "simulate", "slow.yaml", "-o", "json").out)["capacity"] == {"cpu": "10"}
    # What is given counts instead, and nothing of it is kept.
    assert json.loads(penstock("queue", "simulate", "slow.yaml", "--capacity", "cpu=12", "-o", "json").out)[
        "capacity"
    ] == {"cpu": "12"}
    assert "small" in penstock("queue", "ls").out


def test_a_stopped_queue(penstock: Penstock, two: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(
        manifest(FLAVOR, cluster_queue("held", 10, stopPolicy="Hold"), local_queue("default", "held"))
    )
    found = penstock("queue", "simulate", "slow.yaml", "--queues", "q.yaml")
    assert found.code == 2 and "slow-1 waits forever in queue default: the queue is stopped (Hold)" in found.out


# -- recordings and remarks ---------------------------------------------------------------------------------------------


def test_a_recording(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "taped.json").write_text(json.dumps(recording()))
    found = penstock("queue", "simulate", "taped.json", "--capacity", "cpu=8,memory=16Gi", "-o", "json")
    stage = units(found)["stage"]
    assert stage["makespan"] == 40.0 and stage["workloads"] == 2 and stage["runs"]["taped-1"]["tasks"] == 3
    # Tasks of a kind ask for as much as the largest of them.
    assert stage["resources"]["memory"]["used"] == (10 * 1 + 20 * 2 + 30 * 2) * 2**30
    exact = penstock("queue", "simulate", "taped.json", "--capacity", "cpu=8,memory=16Gi", "--measured", "-o", "json")
    assert units(exact)["stage"]["resources"]["memory"]["used"] == (10 * 1 + 20 * 1 + 30 * 2) * 2**30
    brief = penstock("queue", "simulate", "taped.json", "--capacity", "cpu=8")
    assert (
        "the largest of their kind" in brief.err
        and "-v shows what else" in brief.err
        and "one stage (2)" not in brief.err
    )
    assert (
        "taped: guessed: tasks of one kind that wait for the same form one stage (2)"
        in penstock("queue", "simulate", "taped.json", "--capacity", "cpu=8", "-v").err
    )


def test_what_hangs_on_results_is_said(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(OPEN)
    found = penstock("queue", "simulate", "late.py", "--capacity", "cpu=8")
    assert found.code == 0
    assert "the number of tasks of work is known only at run time; here it has none" in found.err
    assert "whether tell runs depends on results; here these are empty" in found.err
    assert "late-1 failed" in found.err and "(by workflow, stage, task, reuse)" in found.err


@pytest.mark.slow
def test_a_loop_is_as_long_as_in_the_last_run(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(OPEN)
    assert penstock("run", "late.py", "-p", "n=6").code == 0
    words = ("queue", "simulate", "late.py", "--capacity", "cpu=2", "--runtime", "work=10")
    one = units(penstock(*words, "-o", "json"))["stage"]
    assert (one["runs"]["late-1"]["state"], one["runs"]["late-1"]["tasks"]) == ("succeeded", 8)
    assert 30 <= one["makespan"] < 32, "six tasks, two at a time"
    assert (
        "the number of tasks of work and whether tell runs depends on results; they are those of late-1"
        in penstock(*words).err
    )


def test_a_guess_is_shorter_than_a_time_limit(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(ONE.format(name="f", cpu=1) + "  timeout: 30\n")
    one = units(penstock("queue", "simulate", "f.yaml", "--capacity", "cpu=1", "-o", "json"))["stage"]
    assert one["makespan"] == 15.0 and one["runs"]["f-1"]["state"] == "succeeded"
    late = units(penstock("queue", "simulate", "f.yaml", "--capacity", "cpu=1", "--runtime", "f=31", "-o", "json"))[
        "stage"
    ]
    assert late["makespan"] == 30.0 and late["runs"]["f-1"]["state"] == "failed"


# -- pictures -----------------------------------------------------------------------------------------------------------


def test_a_plot(penstock: Penstock, chain: str, tmp_path: Path) -> None:
    found = penstock("queue", "simulate", chain, "--capacity", "cpu=100,memory=2Ti", "--plot", "usage.svg")
    text = (tmp_path / "usage.svg").read_text()
    assert found.code == 0 and "wrote usage.svg" in found.err
    for unit in ("workflow", "stage", "task", "reuse"):
        assert f'data-chart="by {unit}" data-resource="cpu"' in text
    assert "43% of the reserved cpu unused" in text and "1 × chain" in text and "capacity 100" in text
    penstock("queue", "simulate", chain, "--capacity", "cpu=20", "--plot", "usage.svg")
    assert "never starts: the whole workflow asks for 100 cpu" in (tmp_path / "usage.svg").read_text()


def test_a_plot_in_pixels(penstock: Penstock, chain: str, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    found = penstock("queue", "simulate", chain, "--capacity", "cpu=100", "--unit", "stage", "--plot", "usage.png")
    if "P811" in found.err:
        pytest.skip("there is no font here")
    assert (tmp_path / "usage.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_extra_it_is_said_before_anything_is_played(
    penstock: Penstock, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setattr(simulation, "simulate", None)
    found = penstock("queue", "simulate", chain, "--plot", "usage.png")
    assert found.code == 2 and "P811" in found.err and "penstock[plot]" in found.err


# -- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, said",
    [
        (["--capacity", "64 cores"], "P822"),
        (["--capacity", "cpus=64"], 'Did you mean "cpu"?'),
        (["--capacity", "cpu=64GB"], "P822"),
        (["--runtime", "b"], "P821"),
        (["--runtime", "bb=1"], "there is no step 'bb'"),
        (["--runtime", "b=-1"], "P821"),
        (["--runtime", "b=nan"], "P821"),
        (["--plot", "usage.pdf"], "P823"),
        (["--plot", "no/usage.svg"], "P504"),
        (["-p", "narrow=3"], "P401"),
        (["-p", "wide=x"], "P402"),
        (["-p", "wide"], "P403"),
        (["--unit", "job"], "--unit"),
        (["--every", "-1"], "--every"),
        (["--seconds", "inf"], "too long"),
        (["--repeat", "0"], "--repeat"),
        (["--queues", "none.yaml"], "P817"),
        (["--queues", "q.yaml", "--capacity", "cpu=1"], "not both"),
        (["--queues", "q.yaml", "--queue", "team-c"], "P812"),
        (["--queues", "q.yaml", "--queue", "team-a", "--priority", "urgnt"], 'Did you mean "urgent"?'),
        (["--queues", "bad.yaml"], "P80"),
    ],
)
def test_what_is_wrong_is_said(penstock: Penstock, chain: str, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "q.yaml").write_text(TEAMS)
    (tmp_path / "bad.yaml").write_text(TEAMS.replace('"nominalQuota": 10', '"nominalQuota": "lots"'))
    found = penstock("queue", "simulate", chain, *words)
    assert found.code == 2 and said in found.err and not found.out
    assert not (tmp_path / ".penstock").exists()


def test_files_that_are_none(penstock: Penstock, tmp_path: Path) -> None:
    assert penstock("queue", "simulate", "no.yaml").code == 4
    assert penstock("queue", "simulate").code == 2
    broken = recording()
    broken["workflow"]["specification"]["tasks"][1]["parents"] = ["nobody"]
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    found = penstock("queue", "simulate", "broken.json")
    assert found.code == 2 and "P810" in found.err and "nobody" in found.err
    (tmp_path / "ask.yaml").write_text(CHAIN.replace(", default: 100", ""))
    found = penstock("queue", "simulate", "ask.yaml")
    assert found.code == 2 and "P408" in found.err
