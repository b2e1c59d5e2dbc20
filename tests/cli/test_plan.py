"""plan, draw, merge and diff, as typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.graph import codec

Run = Callable[..., object]

FLOW = """
from penstock import task, workflow

@task(cpu=2, memory="4Gi")
def prepare(source: str) -> list[str]:
    return source.split()

@task(gpu=8, replicas=4)
def train(shard: str, rate: float) -> float:
    return rate

@task
def best(scores: list[float]) -> int:
    return 0

@workflow(queue="team-a")
def flow(source: str, rates: list[float] = [0.1, 0.2, 0.3]):
    shards = prepare(source)
    scores = [train(shards[0], rate) for rate in rates]
    if best(scores) > 0:
        train.options(name="final")(shards[1], 0.5)
    return [prepare(shard) for shard in shards]
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "flow.py"
    path.write_text(FLOW)
    return path


def test_plan_shows_steps_stages_reservations_and_the_peak_against_the_sum(penstock: Run, flow: Path) -> None:
    result = penstock("plan", str(flow), "-p", "source=a b")
    assert result.code == 0
    lines = [line.split("\t") for line in result.out.splitlines()]
    assert ["2a", "train", "×3", "4 pods together, 8 gpu each", "after prepare"] in lines
    assert [
        "2b",
        "prepare-2",
        "×?",
        "2 cpu, 4Gi memory",
        "after prepare; how many is known once prepare has run",
    ] in lines
    assert ["train", "", "96 gpu", ""] in [line[:4] for line in lines]
    assert ["gpu", "96", "128", "train"] in lines
    assert any(line[0] == "prepare-2" and "at least" in line[2] for line in lines)


def test_plan_says_what_is_missing_and_plans_all_the_same(penstock: Run, flow: Path) -> None:
    result = penstock("plan", str(flow))
    assert result.code == 0
    assert "needs  source   (-p source=…)" in result.out


def test_plan_as_json_has_it_all(penstock: Run, flow: Path) -> None:
    data = json.loads(
        penstock("plan", str(flow), "-p", "source=x", "-p", "rates=[1]", "--unit", "workflow", "-o", "json").out
    )
    assert data["unit"] == "workflow"
    assert data["params"] == {"source": "x", "rates": [1]}
    assert data["demand"]["nvidia.com/gpu"]["peak"] == "32"
    assert [reservation["name"] for reservation in data["reservations"]] == ["workflow"]
    assert {step["name"]: step["tasks"]["count"] for step in data["steps"]}["prepare-2"] is None
    assert all(step["key"].startswith("sha256:") for step in data["steps"])


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_documents_plan_like_the_python_they_come_from(penstock: Run, flow: Path, tmp_path: Path, suffix: str) -> None:
    from penstock.service.workflows import load

    graph = load(str(flow))
    (tmp_path / f"flow{suffix}").write_text(codec.to_yaml(graph) if suffix == ".yaml" else codec.to_json(graph))
    assert penstock("plan", f"flow{suffix}", "-o", "json").out == penstock("plan", "flow.py", "-o", "json").out


@pytest.mark.parametrize(
    ("kind", "sign"), [("tree", "prepare"), ("mermaid", "flowchart"), ("dot", "digraph"), ("svg", "<svg")]
)
def test_draw(penstock: Run, flow: Path, kind: str, sign: str) -> None:
    result = penstock("draw", str(flow), "--to", kind)
    assert result.code == 0
    assert sign in result.out and "train" in result.out
    assert penstock("draw", str(flow), "--to", kind, "--out", "picture").code == 0
    assert Path("picture").read_text().strip() == result.out.strip()


def test_merge_says_what_is_saved_and_writes_the_graph(penstock: Run, flow: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        FLOW.replace("def flow(", "def other(").replace("best(scores) > 0", "best(scores) > 1")
    )
    result = penstock("merge", "flow.py", "other.py", "-p", "source=x", "--out", "both.yaml")
    assert result.code == 0
    assert "flow-and-other = flow, other" in result.out
    assert "prepare\tflow/prepare, other/prepare" in result.out
    assert penstock("plan", "both.yaml").code == 0
    data = json.loads(penstock("merge", "flow.py", "other.py", "-p", "source=x", "-o", "json").out)
    assert data["steps"] == {"before": 10, "after": 6}
    assert penstock("merge", "flow.py", "flow.py", "-o", "yaml").out == penstock("merge", "flow.py", "-o", "yaml").out


def test_diff_says_what_runs_again(penstock: Run, flow: Path, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(FLOW.replace("source.split()", "source.split(',')"))
    assert penstock("diff", "flow.py", "flow.py").out == "no difference\n"
    result = penstock("diff", "flow.py", "new.py")
    assert "runs again: function" in result.out
    data = json.loads(penstock("diff", "flow.py", "new.py", "-o", "json").out)
    assert [change["step"] for change in data["changed"]][0] == "prepare"


def test_what_the_file_prints_does_not_spoil_the_output(penstock: Run, flow: Path) -> None:
    flow.write_text("print('hello')\n" + FLOW)
    result = penstock("plan", str(flow), "-o", "json")
    assert json.loads(result.out)["workflow"] == "flow"
    assert "hello" in result.err


def test_a_file_may_import_its_neighbours_and_be_called_like_a_standard_module(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("from penstock import task\n@task\ndef one() -> int:\n    return 1\n")
    (tmp_path / "json.py").write_text(
        "from penstock import workflow\nfrom parts import one\n@workflow\ndef flow():\n    return one()\n"
    )
    assert json.loads(penstock("plan", "json.py", "-o", "json").out)["workflow"] == "flow"


def test_one_of_several_workflows_is_chosen_by_name(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text("from penstock import *\na = Workflow('a', [])\nb = Workflow('b', [])\n")
    assert penstock("plan", "two.py:b").out.startswith("b, by stage")
    refused = penstock("plan", "two.py")
    assert refused.code == 2
    assert "two.py:b" in refused.err
    assert penstock("plan", "two.py:c").code == 4


def test_files_in_two_folders_have_their_own_neighbours(penstock: Run, tmp_path: Path) -> None:
    for folder, factor in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helper.py").write_text(f"def scale(x):\n    return x * {factor}\n")
        (tmp_path / folder / "flow.py").write_text(
            "from helper import scale\nfrom penstock import task, workflow\n@task\ndef t(x: int) -> int:\n    return scale(x)\n@workflow\ndef flow(x: int):\n    return t(x)\n"
        )
    assert "runs again: function" in penstock("diff", "a/flow.py", "b/flow.py").out
    assert penstock("diff", "a/flow.py", "a/flow.py").out == "no difference\n"


def test_modules_of_the_folder_one_stands_in_can_be_imported(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tasks.py").write_text("from penstock import task\n@task\ndef one() -> int:\n    return 1\n")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "f.py").write_text(
        "from parts.tasks import one\nfrom penstock import workflow\n@workflow\ndef flow():\n    return one()\n"
    )
    assert penstock("plan", "flows/f.py").code == 0


def test_a_flow_file_may_be_called_like_an_installed_package(penstock: Run, tmp_path: Path, flow: Path) -> None:
    (tmp_path / "yaml.py").write_text(FLOW)
    assert penstock("merge", "yaml.py", "flow.py", "-o", "yaml").code == 0


def test_the_kind_of_drawing_follows_the_name_of_the_file(penstock: Run, flow: Path) -> None:
    assert penstock("draw", "flow.py", "--out", "x.svg").code == 0
    assert Path("x.svg").read_text().startswith("<svg")


def test_the_line_of_a_failing_file_is_found_from_a_relative_path(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("x = 1\n\nraise ValueError('no')\n")
    assert "f.py:3" in penstock("plan", "f.py").err


def test_diff_sees_the_workflow_itself(penstock: Run, flow: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(FLOW.replace('queue="team-a"', 'queue="team-b", unit="reuse"'))
    out = penstock("diff", "flow.py", "other.py").out
    assert "queue: team-a → team-b" in out and "unit: stage → reuse" in out


def test_outcomes_that_are_asked_for_are_shown(penstock: Run, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        "apiVersion: penstock/v1\nkind: Workflow\nname: w\nsteps:\n- {name: a, container: {image: i}}\n- {name: b, container: {image: i}, needs: [{step: a, outcomes: [failed]}]}\n"
    )
    assert "after a (failed)" in penstock("plan", "f.yaml").out


def test_a_file_that_is_a_parameter_is_known_by_its_content(penstock: Run, tmp_path: Path) -> None:
    """The plan took the path as it was given and said that the inputs had changed, always."""
    (tmp_path / "flow.py").write_text(
        "from pathlib import Path\n"
        "from penstock import task, workflow\n\n"
        "@task\n"
        "def size(file: Path, more: list[Path]) -> int:\n"
        "    return len(file.read_text()) + len(more)\n\n"
        "@workflow\n"
        "def flow(file: Path = Path('in.txt'), more: list[Path] = [Path('in.txt')]):\n"
        "    return size(file, more)\n"
    )
    (tmp_path / "in.txt").write_text("one")
    assert penstock("run", "flow.py", "-q").code == 0
    assert "reuse: same code and inputs as in flow-1" in penstock("plan", "flow.py").out
    (tmp_path / "in.txt").write_text("two")
    assert "run: its inputs have changed since flow-1" in penstock("plan", "flow.py").out
    assert len(list((tmp_path / ".penstock" / "inputs").iterdir())) == 1, "a plan copies nothing"
