"""Documents of other projects against the shapes that those publish."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.formats import schema

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CORPUS = Path(os.environ.get("PENSTOCK_CORPUS", SHARED / "corpus"))
CRDS = SHARED / "reference" / "crds"


def workflow(**container: Any) -> dict[str, Any]:
    template = {"name": "main", "container": {"image": "busybox", **container}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "w-"},
        "spec": {"entrypoint": "main", "templates": [template]},
    }


def test_a_document_in_order() -> None:
    assert schema.check(workflow(command=["echo"], args=["hello"])) == []


def test_a_misspelt_field_is_named_with_its_path_and_what_was_meant() -> None:
    (found,) = schema.check(workflow(comand=["echo"]))
    assert (found.path, found.kind) == ("spec.templates[0].container.comand", "unknown field")
    assert "command" in found.near


def test_types_enums_and_limits() -> None:
    document = workflow(command="echo", imagePullPolicy=3)
    document["spec"]["templates"] *= 201
    document["extra"] = 1
    kinds = {(one.path, one.kind) for one in schema.check(document)}
    assert ("spec.templates[0].container.command", "type") in kinds
    assert ("spec.templates[0].container.imagePullPolicy", "type") in kinds
    assert ("spec.templates", "limit") in kinds
    assert ("extra", "unknown field") in kinds


def test_what_is_not_known_is_left_alone() -> None:
    assert schema.check({"apiVersion": "v1", "kind": "ConfigMap", "whatever": 1}) == []
    assert schema.check({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "whatever": 1})


@pytest.mark.parametrize("value", [None, 3, "x", [], [[[]]], {"a": {}}, {1: 2}])
def test_odd_values_are_findings_and_no_tracebacks(value: Any) -> None:
    for document in (workflow(env=value), {**workflow(), "spec": value}):
        assert isinstance(schema.check(document), list)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no example manifests in {CORPUS}: set PENSTOCK_CORPUS")
@pytest.mark.parametrize("project", ["argo", "tekton", "jobset"])
def test_examples_have_no_unknown_fields(project: str) -> None:
    seen = 0
    for file in sorted((CORPUS / project).rglob("*.y*ml")):
        for document in yaml.load_all(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(document, dict) and "/" in str(document.get("apiVersion")):
                seen += 1
                unknown = [one for one in schema.check(document) if one.kind == "unknown field"]
                assert unknown == [], file
    assert seen > 5


@pytest.mark.skipif(not CRDS.is_dir(), reason=f"no definitions in {CRDS}")
def test_what_is_shipped_is_what_the_script_makes() -> None:
    loader = importlib.machinery.SourceFileLoader("crds", str(ROOT / "scripts/crds"))
    spec = importlib.util.spec_from_loader("crds", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    shipped = json.loads((ROOT / "src/penstock/formats/crds.json").read_text())
    assert script.made(CRDS) == shipped
