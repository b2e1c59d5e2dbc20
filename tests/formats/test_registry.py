"""Formats by name and by document: our own, and those of other packages."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UserError
from penstock.formats import registry
from penstock.formats.base import Format, Gate, Read, Trace, TraceFormat, Written
from penstock.formats.documents import Document, Library, read_text
from penstock.formats.gates.documents import gate_documents
from penstock.formats.report import Report
from penstock.graph.model import Script, Step, Workflow
from penstock.service import conversion, workflows

ROOT = Path(__file__).parents[2]


# -- a format of somebody else: one module, one entry point ------------------------------------------------------------


def _read(library: Library, document: Document) -> Read:
    steps = [Step(name=str(name), action=Script(source=str(text))) for name, text in document.data["do"].items()]
    return Read(Workflow(name="made", steps=tuple(steps)), Report())


def _write(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    done = {step.name: step.action.source for step in workflow.steps if isinstance(step.action, Script)}
    return Written([{"todo": 1, "do": done}])


def _gate(library: Library, document: Document, unit: str, by: str, report: Report) -> dict[str, Any]:
    return {**document.data, "wait": unit}


def _trace(text: str, file: str, *, by_kind: bool = False, grouped: bool = False) -> Trace:
    return Trace(Workflow(name=file), {}, (), None, {})


FORMAT = Format(
    name="todo",
    kinds={"todo.example": {"Todo": 0}},
    detect=lambda document: 0 if "todo" in document.data else None,
    read=_read,
    write=_write,
    gate=Gate(apply=_gate, kinds=frozenset({"", "Todo"}), whole=frozenset()),
    trace=TraceFormat(claims=lambda text: text.startswith('{"todo-trace"'), read=_trace),
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    point = EntryPoint("todo", f"{__name__}:FORMAT", registry.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **given: EntryPoints([point]).select(**given))
    registry._others.cache_clear()
    yield
    registry._others.cache_clear()


TODO = "todo: 1\ndo: {a: echo a}\n"


@pytest.mark.usefixtures("installed")
def test_a_format_of_others_is_read_written_and_gated(tmp_path: Path) -> None:
    file = tmp_path / "todo.yaml"
    file.write_text(TODO)
    workflow = workflows.load(str(file))
    assert [step.name for step in workflow.steps] == ["a"] and workflow.extra["format"] == "todo"
    assert conversion.convert(str(file), "penstock").text.startswith("apiVersion: penstock/")
    assert "echo a" in conversion.convert(str(file), "todo").text
    own = tmp_path / "own.yaml"
    own.write_text(conversion.convert(str(file), "penstock").text)
    assert "todo: 1" in conversion.convert(str(own), "todo").text
    assert "wait: stage" in conversion.gate(str(file), "stage", "suspend").text
    with pytest.raises(UserError):
        gate_documents(Library(tuple(read_text(TODO, "x"))), "workflow")


@pytest.mark.usefixtures("installed")
def test_a_format_of_others_is_found_by_kind_and_by_name() -> None:
    document = Document({"apiVersion": "todo.example/v1", "kind": "Todo"})
    assert registry.format_of(document) == "todo" and registry.find_format("todo") is FORMAT
    assert "todo" in registry.writable()
    assert registry.trace_format('{"todo-trace": 1}') is FORMAT.trace
    assert "Todo" in registry.nothing(Library((Document({}),)), "x").fix


def test_what_no_format_knows_is_refused() -> None:
    with pytest.raises(UserError) as error:
        registry.find_format("argoo")
    assert error.value.problems[0].code == "P838" and '"argo"' in error.value.problems[0].fix
    with pytest.raises(UserError):
        registry.read(Library(()), Document({"kind": "Nothing"}))
    with pytest.raises(UserError):
        registry.write(Workflow(name="w"), "wfformat")
    with pytest.raises(LookupError):
        registry.status_of({"kind": "Nothing"})


# -- our own ----------------------------------------------------------------------------------------------------------


def test_our_formats_are_entry_points_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"][registry.GROUP]
    assert declared == {name: f"penstock.formats.{place}" for name, place in registry.OURS.items()}
    assert [registry.find_format(name).name for name in registry.OURS] == list(registry.OURS)


def test_no_kind_belongs_to_two_formats() -> None:
    kinds = [(group, kind) for one in registry.every_format() for group, names in one.kinds.items() for kind in names]
    assert len(set(kinds)) == len(kinds)


def test_the_format_of_a_document_is_found_without_loading_readers_and_writers() -> None:
    code = (
        "import sys; from penstock.formats import registry; from penstock.formats.documents import Document\n"
        "assert registry.format_of(Document({'apiVersion': 'tekton.dev/v1', 'kind': 'Task'})) == 'tekton'\n"
        "print(*(name for name in sys.modules if '.read' in name or '.write' in name or name == 'importlib.metadata'))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert "importlib.metadata" not in loaded
    assert not [name for name in loaded if name.startswith("penstock.formats.") and name != "penstock.formats.reader"]
