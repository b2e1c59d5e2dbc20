"""convert, gate and ungate, as typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.formats.corpus import files, label, needs_corpus

HELLO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: hello-}
spec:
  entrypoint: main
  templates:
  - name: main
    container: {image: busybox, command: [echo], args: [hi]}
"""


@pytest.fixture
def hello(tmp_path: Path) -> str:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO)
    return str(path)


def documents(text: str) -> list[Any]:
    return [one for one in yaml.safe_load_all(text) if one is not None]


def own_format(path: Path) -> str:
    """What a file of the corpus is written in: by its documents, as a person would say."""
    for one in documents(path.read_text()):
        group = str(one.get("apiVersion", "")).partition("/")[0]
        found = {"argoproj.io": "argo", "tekton.dev": "tekton", "jobset.x-k8s.io": "jobset", "batch": "job"}.get(group)
        if found:
            return found
    return "job"


@needs_corpus
@pytest.mark.parametrize("path", files("argo", "tekton", "jobset"), ids=label)
def test_every_manifest_comes_out_as_it_went_in(penstock: Any, path: Path) -> None:
    said = penstock("convert", str(path), "--to", own_format(path), "--strict")
    assert said.code == 0, said.err
    assert documents(said.out) == documents(path.read_text())


def test_a_misspelt_field_is_named_and_strict_says_no(penstock: Any, hello: str) -> None:
    path = Path(hello)
    path.write_text(HELLO.replace("command:", "comand:"))
    said = penstock("convert", hello, "--to", "argo", "--strict")
    assert said.code == 3
    assert "spec.templates[0].container.comand" in said.err and '"command"' in said.err and "hello.yaml:9" in said.err
    assert documents(said.out) == documents(path.read_text())  # it is reported, not dropped


def test_the_report_as_json(penstock: Any, hello: str, tmp_path: Path) -> None:
    path = Path(hello)
    path.write_text(HELLO.replace("image:", "imag:"))
    said = penstock("convert", hello, "--to", "argo", "--report", "report.json", "-o", "out.yaml")
    assert said.code == 0 and said.out == ""
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["counts"]["lost"] == len([e for e in data["entries"] if e["kind"] == "lost"]) > 0
    (entry,) = [e for e in data["entries"] if e["path"].endswith(".imag")]
    assert entry["line"] == 9 and entry["file"].endswith("hello.yaml") and "image" in entry["nearest"]
    assert documents((tmp_path / "out.yaml").read_text()) == documents(path.read_text())


@pytest.mark.parametrize(
    "text, code, said",
    [
        ("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec: {templates: [", "P102", "not YAML"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "P830", "ConfigMap"),
        (HELLO + "---" + HELLO.replace("hello-", "other-"), "P831", "hello, other"),
        (HELLO.replace("entrypoint: main", "entrypoint: mane"), "P832", "main"),
        ("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec: []\n", "P83", ""),
        ("- 1\n- apiVersion: 2\n", "P8", ""),
    ],
)
def test_what_cannot_be_read_is_said_with_line_and_fix(
    penstock: Any, hello: str, text: str, code: str, said: str
) -> None:
    Path(hello).write_text(text)
    result = penstock("plan", hello)
    assert result.code == 2, result
    assert code in result.err and said in result.err and "Fix" in result.err.title()


def test_a_folder_is_one_library(penstock: Any, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "lib.yaml").write_text(
        HELLO.replace("kind: Workflow", "kind: WorkflowTemplate").replace("generateName: hello-", "name: lib")
    )
    (folder / "run.yaml").write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: caller}\nspec: {workflowTemplateRef: {name: lib}}\n"
    )
    for target in ("all", "all:caller", "all/run.yaml"):
        said = penstock("plan", target)
        assert said.code == 0, said.err
        assert "main" in said.out


def test_an_unknown_format(penstock: Any, hello: str) -> None:
    said = penstock("convert", hello, "--to", "argoo")
    assert said.code == 2 and "P838" in said.err and "argo" in said.err


@pytest.mark.parametrize("to", ["tekton", "job", "jobset", "penstock", "python", "mermaid", "dot"])
def test_hello_in_every_format(penstock: Any, hello: str, to: str) -> None:
    said = penstock("convert", hello, "--to", to)
    assert said.code == 0, said.err
    assert "echo" in said.out or to in ("mermaid", "dot")


def test_gate_and_ungate(penstock: Any, hello: str) -> None:
    text = HELLO.replace("args: [hi]", "args: [hi], resources: {requests: {cpu: 1}}")
    Path(hello).write_text(text)
    gated = penstock("gate", hello)
    assert gated.code == 0, gated.err
    assert documents(gated.out) != documents(text) and "suspend" in gated.out
    Path(hello).write_text(gated.out)
    assert documents(penstock("ungate", hello).out) == documents(text)
