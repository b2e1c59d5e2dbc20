"""How the commands are built: only cli.ui prints, option lists agree with service, and a command loads only what it needs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from penstock.admission import model
from penstock.admission.scheduler import Scheduler
from penstock.cli.commands import convert, plan
from penstock.engine.active_run import ActiveRun
from penstock.engine.engine import Engine
from penstock.engine.run_state import RunState
from penstock.graph import codec
from penstock.graph.model import Edge, Script, Step, Workflow
from penstock.service import amounts, conversion, workflows
from tests.cli.history import Hand
from tests.service.lines import Lines

CLI = Path(plan.__file__).parents[1]
FLOW = Workflow(
    name="flow",
    steps=(
        Step(name="fetch", action=Script(source="true"), resources={"cpu": 1000}),
        Step(name="train", action=Script(source="true"), resources={"cpu": 1000}, needs=(Edge("fetch"),)),
    ),
)


def test_only_the_screens_print() -> None:
    printing = {
        "click.echo",
        "click.secho",
        "click.confirm",
        "click.prompt",
        "print",
        "sys.stdout.write",
        "sys.stderr.write",
    }
    for path in sorted(CLI.rglob("*.py")):
        if path.parent.name != "ui":
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            assert not [f"{path}:{call.lineno}" for call in calls if ast.unparse(call.func) in printing]


def test_the_formats_in_the_help_are_those_of_service(tmp_path: Path) -> None:
    (to,) = [param for param in plan.draw.params if param.name == "to"]
    assert isinstance(to.type, click.Choice)
    file = tmp_path / "flow.yaml"
    file.write_text(codec.to_yaml(FLOW))
    assert all(workflows.draw(str(file), one) for one in to.type.choices)
    (to,) = [param for param in convert.convert.params if param.name == "to"]
    assert isinstance(to, click.Option) and to.help == f"One of {', '.join(conversion.TARGETS)}."


def test_unlimited_is_the_same_number_everywhere() -> None:
    assert amounts.UNLIMITED == model.UNLIMITED


def loaded(home: Path, *words: str) -> set[str]:
    """The modules of Penstock that a command line has imported when it ends."""
    code = (
        "import json, sys; from penstock.cli.main import run; code = run(sys.argv[1:]); "
        "print('\\n' + json.dumps([code, [name for name in sys.modules if name.startswith('penstock')]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=home.parent,
        env={"PENSTOCK_HOME": str(home), "PATH": ""},
    )
    status, names = json.loads(done.stdout.splitlines()[-1])
    assert status == 0, done.stderr
    return set(names)


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if "." in name}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with a run of which one step is over and nothing waits."""
    place = tmp_path / ".penstock"
    place.mkdir()
    hand = Hand(place, FLOW)
    hand.task("fetch", "fetch", "succeeded")
    hand.finish("succeeded")
    hand.close()
    return place


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("show", "@"),
        ("show", "@/fetch"),
        ("show", "@", "--gantt"),
        ("logs", "@"),
        ("why", "@"),
        ("why", "@/train"),
    ],
)
def test_a_command_that_reads_loads_no_engine_backend_or_scheduler(home: Path, words: tuple[str, ...]) -> None:
    assert not packages(loaded(home, *words)) & {"engine", "backends", "plan", "admission", "author", "formats"}


def test_ls_does_not_even_load_workflows(home: Path) -> None:
    assert not packages(loaded(home, "ls")) & {"graph", "expressions", "artifacts"}


def test_why_of_a_wait_in_a_queue_loads_the_scheduler_and_not_the_engine(tmp_path: Path) -> None:
    place = tmp_path / ".penstock"
    place.mkdir()
    lines = Lines(place)
    runs = [lines.run(FLOW), lines.run(FLOW)]
    lines.ask(runs[0], "train", cpu=2)
    lines.ask(runs[1], "fetch")
    for run in runs:
        run.write()
    names = loaded(place, "why", "flow-2")
    for run in runs:
        run.store.close()
    lines.close()
    assert Scheduler.__module__ in names
    assert not {Engine.__module__, ActiveRun.__module__, RunState.__module__} & names
    assert not packages(names) & {"backends", "plan", "author", "formats"}


def test_help_loads_no_command(home: Path) -> None:
    assert packages(loaded(home, "--help")) == {"cli", "errors", "phrases"}
