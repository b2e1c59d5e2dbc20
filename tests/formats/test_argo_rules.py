"""Rules of Argo v4.1, each as its controller applies it."""

from __future__ import annotations

from penstock.expressions.evaluate import resolve
from penstock.formats import registry
from penstock.formats.documents import Library, read_text
from penstock.graph.model import ForEach, Workflow


def read(spec: str) -> Workflow:
    text = f"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n{spec}"
    library = Library(tuple(read_text(text, "w.yaml")))
    return registry.read(library, registry.root(library, None, "w.yaml")).workflow


def test_numbers_of_withParam_keep_their_spelling() -> None:
    found = read(
        """
  entrypoint: main
  templates:
  - name: main
    steps: [[{name: l, template: t, withParam: '[1.50, 1e3, 2, "x"]', arguments: {parameters: [{name: p, value: "{{item}}"}]}}]]
  - {name: t, inputs: {parameters: [{name: p}]}, container: {image: i, args: ["{{inputs.parameters.p}}"]}}
"""
    )
    each = found.steps[0].each
    assert isinstance(each, ForEach) and each.axes[0]["item"] == ("1.50", "1e3", "2", "x")


def test_workflow_failures_without_failures_is_null() -> None:
    found = read(
        """
  entrypoint: main
  onExit: bye
  templates:
  - {name: main, container: {image: i}}
  - {name: bye, container: {image: i, args: ["{{workflow.failures}}"]}}
"""
    )
    (step,) = found.on_exit
    scope = {"workflow": {"outcome": "succeeded", "failures": []}, "run": {"created": "2024-01-01T00:00:00Z"}}
    scope["inputs"] = {one.name: resolve(one.value, scope) for one in step.inputs}
    assert resolve(step.action.args, scope) == ['"null"']  # type: ignore[union-attr]
