"""A Workflow that is queued as a whole: what its annotations say that it needs, whoever wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller import workload as kueue
from penstock.controller.engines.argo import ENGINE
from penstock.controller.names import QUEUE
from tests.controller.engine_objects import observed

RESOURCES = "kueue.k8s.io/max-resources"
TOLERATION = "kueue.k8s.io/toleration"
SELECTOR = "kueue.k8s.io/node-selector"


def workflow(**annotations: str) -> dict[str, Any]:
    names = {"resources": RESOURCES, "toleration": TOLERATION, "selector": SELECTOR}
    metadata = {"name": "w", "namespace": "team", "uid": "u", "labels": {QUEUE: "q"}}
    metadata["annotations"] = {names[key]: text for key, text in annotations.items()}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": {"suspend": True}}


def test_what_it_says_is_what_it_holds() -> None:
    said = workflow(resources='{"cpu": "8"}', toleration='[{"key": "gpu"}]', selector='{"pool": "a"}')
    (stage,) = ENGINE.view(observed(said), "workflow").stages
    (shape,) = stage.shapes
    assert (shape.requests, shape.node_selector, shape.tolerations) == ({"cpu": 8000}, {"pool": "a"}, ({"key": "gpu"},))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("resources", "[]"),
        ("resources", '{"cpu": "a lot"}'),
        ("resources", '{"cpu": -1}'),
        ("resources", '{"cpu": {}}'),
        ("toleration", '{"key": "gpu"}'),
        ("toleration", '["gpu"]'),
        ("selector", '["gpu"]'),
        ("selector", '{"pool": 3}'),
        ("selector", "{"),
    ],
)
def test_what_cannot_be_meant_is_a_problem_of_this_workflow(name: str, text: str) -> None:
    view = ENGINE.view(observed(workflow(**{name: text})), "workflow")
    assert "is not what it must be" in view.problem and not view.stages


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("a8Gi-", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
)


@given(JSON, JSON, JSON)
def test_whatever_they_say_it_can_be_looked_at(resources: Any, toleration: Any, selector: Any) -> None:
    said = workflow(resources=json.dumps(resources), toleration=json.dumps(toleration), selector=json.dumps(selector))
    for stage in ENGINE.view(observed(said), "workflow").stages:
        kueue.build(said, stage, "q", None)
