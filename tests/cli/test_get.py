"""`penstock get`, and commands that take parameters from files or no run at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Result

FLOW = """
from pathlib import Path
from penstock import task, workflow

class Box:
    pass

@task
def rows(n: int) -> list[int]:
    return list(range(n))

@task
def words(n: int) -> str:
    return "a word"

@task
def gz(n: int) -> Path:
    path = Path(f"made-{n}", "out.gz").absolute()
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"zipped {n}")
    return path

@task
def tree(n: int) -> Path:
    path = Path("tree").absolute()
    path.mkdir(exist_ok=True)
    (path / "leaf").write_text(str(n))
    return path

@task
def boxed(n: int) -> Box:
    return Box()

@task
def broken(n: int) -> int:
    raise ValueError("broken")

@workflow
def flow(n: int = 3, who: str = "ana"):
    xs = rows(n)
    w = words(n)
    boxed(n)
    trees = tree(n)
    zs = [gz(x) for x in xs]
    return gz(n)

@workflow
def fails(n: int = 1):
    return broken(n)
"""

Penstock = Callable[..., Result]


def ran(penstock: Penstock, tmp_path: Path, *args: str) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    found = penstock("run", "flow.py:flow", "-q", *args)
    assert found.code == 0, found.err


def test_values_go_to_stdout_and_files_into_the_folder(penstock: Penstock, tmp_path: Path) -> None:
    ran(penstock, tmp_path)
    assert penstock("get", "@/rows").out == "[0, 1, 2]\n"
    assert penstock("get", "@/words").out == "a word\n" == penstock("get", "@/words/result").out
    found = penstock("get", "@/gz-2", "-o", "results")
    assert (found.code, found.out) == (0, "") and "results/out.gz" in found.err
    assert (tmp_path / "results" / "out.gz").read_text() == "zipped 3"
    assert penstock("get", "@/tree", "-o", "results").code == 0
    assert (tmp_path / "results" / "tree" / "leaf").read_text() == "3"
    assert penstock("get", "@", "-o", "all").code == 0 and (tmp_path / "all" / "out.gz").read_text() == "zipped 3"
    assert penstock("get", "@/result", "-o", "named").code == 0 and (tmp_path / "named" / "out.gz").exists()


def test_each_task_of_a_loop_has_a_folder_of_its_own(penstock: Penstock, tmp_path: Path) -> None:
    ran(penstock, tmp_path)
    assert penstock("get", "@/gz", "-o", "r").code == 0
    assert [(tmp_path / "r" / f"gz-{n}" / "out.gz").read_text() for n in range(3)] == [
        "zipped 0",
        "zipped 1",
        "zipped 2",
    ]
    assert penstock("get", "@/gz[1]", "-o", "one").code == 0 and (tmp_path / "one" / "out.gz").read_text() == "zipped 1"


def test_nothing_is_overwritten_unless_asked(penstock: Penstock, tmp_path: Path) -> None:
    ran(penstock, tmp_path)
    (tmp_path / "out.gz").write_text("mine")
    found = penstock("get", "@/gz-2")
    assert found.code == 2 and "P582" in found.err and (tmp_path / "out.gz").read_text() == "mine"
    assert penstock("get", "@/gz-2", "--force").code == 0 and (tmp_path / "out.gz").read_text() == "zipped 3"
    before = (tmp_path / "out.gz").stat()
    assert penstock("get", "@/gz-2").code == 0, "it is there already, with this content"
    assert (tmp_path / "out.gz").stat() == before


def test_as_json(penstock: Penstock, tmp_path: Path) -> None:
    ran(penstock, tmp_path)
    found = json.loads(penstock("get", "@/rows", "-o", "json").out)
    assert found == {"run": "flow-1", "outputs": [{"task": "rows", "output": "result", "value": [0, 1, 2]}]}
    (one,) = json.loads(penstock("get", "@", "-o", "json").out)["outputs"]
    assert (one["task"], one["output"]) == (None, "result")
    assert (one["value"]["kind"], one["value"]["name"], one["value"]["size"]) == ("file", "out.gz", 8)


def test_objects_are_named_and_not_opened(penstock: Penstock, tmp_path: Path) -> None:
    ran(penstock, tmp_path)
    found = penstock("get", "@/boxed")
    assert found.code == 0 and found.out == "" and 'penstock.open_run("flow-1")["boxed"].result' in found.err


def test_what_is_not_there(penstock: Penstock, tmp_path: Path) -> None:
    ran(penstock, tmp_path)
    assert penstock("run", "flow.py:fails", "-q").code == 3
    for target, code in (
        ("@/broken", "P581"),
        ("@", "P581"),
        ("@/nope", "P507"),
        ("@2/rows/left", "P507"),
        ("x-1", "P505"),
    ):
        found = penstock("get", target)
        assert found.code == 4 and code in found.err, target


def test_show_without_a_run_shows_the_last_one(penstock: Penstock, tmp_path: Path) -> None:
    ran(penstock, tmp_path)
    assert penstock("show").out == penstock("show", "@").out != ""
    assert json.loads(penstock("show", "-o", "json").out)["run"] == "flow-1"


def test_parameters_from_files(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("n: 2\nwho: bob\n")
    (tmp_path / "n.json").write_text("4\n")
    ran(penstock, tmp_path, "--params", "p.yaml")
    assert json.loads(penstock("show", "-o", "json").out)["params"] == {"n": 2, "who": "bob"}
    ran(penstock, tmp_path, "-p", "n=@n.json", "--params", "p.yaml", "-p", "who=@@eve")
    assert json.loads(penstock("show", "-o", "json").out)["params"] == {"n": 4, "who": "@eve"}
    assert json.loads(penstock("plan", "flow.py:flow", "--params", "p.yaml", "-o", "json").out)["params"]["n"] == 2
    found = penstock("run", "flow.py:flow", "--params", "nope.yaml")
    assert found.code == 2 and "P485" in found.err and "nope.yaml" in found.err
