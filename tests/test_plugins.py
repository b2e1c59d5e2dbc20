"""The public names for authors of plugins, pinned, and the example of the page on backends, run."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, ScriptJob, Workflow, WorkflowParam, plugins
from penstock.plugins import Backend, BackendContext
from tests.controller.toy_engine.penstock_toy import ToyEngine
from tests.scheduling.volcano.penstock_volcano import Volcano

PUBLIC = {
    "Abilities",
    "Action",
    "Adjusted",
    "ApiObject",
    "ApiResource",
    "AttemptEnded",
    "AttemptReport",
    "AttemptSpec",
    "AttemptStarted",
    "Backend",
    "BackendContext",
    "BackendFactory",
    "Binding",
    "Blobs",
    "Container",
    "Document",
    "DocumentError",
    "Engine",
    "Format",
    "Function",
    "Gang",
    "Gate",
    "Http",
    "Inbox",
    "JobLabels",
    "JobObject",
    "Library",
    "LockPolicy",
    "LockRequest",
    "LogPart",
    "Lookup",
    "Marks",
    "Member",
    "Observed",
    "Opening",
    "Outcome",
    "PRIORITY_LABEL",
    "Pod",
    "PodSet",
    "Problem",
    "QUEUED_LABEL",
    "QUEUE_LABEL",
    "Read",
    "Report",
    "Resource",
    "Role",
    "RunWatch",
    "SchedulerPlugin",
    "Script",
    "Shape",
    "Stage",
    "State",
    "Status",
    "Step",
    "Stored",
    "Task",
    "TaskStatus",
    "Trace",
    "TraceFormat",
    "TraceNote",
    "Unit",
    "UserError",
    "View",
    "Workflow",
    "Write",
    "Written",
    "annotations_of",
    "as_text",
    "condition_of",
    "is_deleted",
    "labels_of",
    "load_value",
    "name_of",
    "namespace_of",
    "parse_quantity",
    "part",
    "quantity_text",
    "read_output",
    "rows",
    "store_path",
    "store_value",
    "uid_of",
    "write_input",
}
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "write-a-backend.md"
ENGINE_PAGE = PAGE.with_name("write-an-engine.md")
SCHEDULER_PAGE = PAGE.with_name("write-a-scheduler.md")
TOY = Path(__file__).parent / "controller" / "toy_engine"
VOLCANO = Path(__file__).parent / "scheduling" / "volcano"


def test_the_names_are_these_and_all_of_them_are_there() -> None:
    assert set(plugins.__all__) == PUBLIC
    assert len(plugins.__all__) == len(PUBLIC)
    for name in PUBLIC:
        assert getattr(plugins, name) is not None


def example(name: str) -> Any:
    """The class of this name from the page."""
    for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        if f"class {name}" in text:
            module = types.ModuleType(name.lower())
            exec(compile(text, str(PAGE), "exec", dont_inherit=True), module.__dict__)
            return getattr(module, name)
    raise AssertionError(f"the page has no class {name}")


def test_the_page_on_engines_shows_the_package_that_the_tests_install() -> None:
    text = ENGINE_PAGE.read_text(encoding="utf-8")
    for file in ("penstock_toy.py", "pyproject.toml"):
        assert (TOY / file).read_text(encoding="utf-8").strip() in text, f"copy {file} into the page"


def test_the_engine_of_the_page_is_an_engine_by_its_type() -> None:
    """Read by mypy."""
    made: plugins.Engine = ToyEngine()
    assert made.name == "toy"


def test_the_page_on_schedulers_shows_the_package_that_the_tests_use() -> None:
    text = SCHEDULER_PAGE.read_text(encoding="utf-8")
    for file in ("penstock_volcano.py", "pyproject.toml"):
        assert (VOLCANO / file).read_text(encoding="utf-8").strip() in text, f"copy {file} into the page"


def test_the_scheduler_of_the_page_is_a_scheduler_by_its_type() -> None:
    """Read by mypy."""
    made: plugins.SchedulerPlugin = Volcano()
    assert made.name == "volcano"


@pytest.mark.parametrize("page", [PAGE, ENGINE_PAGE, SCHEDULER_PAGE])
def test_the_page_imports_nothing_else_of_penstock(page: Path) -> None:
    found = re.findall(r"^\s*(?:from|import) (penstock[\w.]*)", page.read_text(encoding="utf-8"), re.M)
    assert found and set(found) == {"penstock.plugins"}


def test_the_backend_of_the_page_runs_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SSH", "env")
    square = ScriptJob("square", "echo $((7 * 7))", outputs=[WorkflowParam("n", int, path="/dev/stdout")])
    flow = Workflow("remote", [square], outputs={"n": square.outputs["n"]})
    with LocalRunner(home=tmp_path / "home", on={"script": "ssh"}, backends={"ssh": example("Ssh")}) as runner:
        assert runner.run(flow).outputs == {"n": 49}
        failed = runner.run(Workflow("broken", [ScriptJob("broken", "echo oh no; exit 4")]))
        assert failed.status == "failed" and failed.failures == {"broken": "exit code 4"}
        run = runner.submit(Workflow("sleepy", [ScriptJob("sleep", "sleep 100")]))
        run.cancel(now=True)
        assert run.wait(20).status == "cancelled"


def test_the_small_backend_of_the_page_is_called_at_once(tmp_path: Path) -> None:
    flow = Workflow(
        "small",
        [job := ScriptJob("say", "hello", outputs=[WorkflowParam("text", str)])],
        outputs={"text": job.outputs["text"]},
    )
    run = LocalRunner(home=tmp_path / "home", on={"script": "echo"}, backends={"echo": example("Echo")}).run(flow)
    assert run.outputs == {"text": "hello"}


def test_an_example_is_a_backend_by_its_type() -> None:
    """Read by mypy: a class with these methods is a Backend."""

    class Nothing:
        abilities = plugins.Abilities()

        def __init__(self, context: BackendContext) -> None: ...

        def room(self) -> int:
            return 0

        def start(self, specs: Any) -> None: ...

        def stop(self, id: str, grace: float) -> None: ...

        async def close(self) -> None: ...

    made: type[Backend] = Nothing
    assert made.abilities is not None
