"""Stopping a stage of an Argo workflow, fed with what the cluster would show."""

from __future__ import annotations

import json
from dataclasses import replace

from penstock.controller.engines.argo import ENGINE
from penstock.controller.names import QUEUE, STOPPING
from tests.controller.engine_objects import NS, observed, pod

WORKFLOW = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "w", "namespace": NS, "uid": "uid-w", "labels": {QUEUE: "team-a"}},
    "status": {"phase": "Running", "nodes": {}},
}


def test_a_pod_is_only_deleted_as_it_was_seen() -> None:
    """It may have ended meanwhile; then its task must not run a second time."""
    stopping = {"stage": "pod p", "since": 100.0, "user": False, "tasks": []}
    main = {**WORKFLOW, "metadata": {**WORKFLOW["metadata"], "annotations": {STOPPING: json.dumps(stopping)}}}  # type: ignore[dict-item]
    seen = replace(observed(main, pod("p", main)), now=110.0)
    (write,) = ENGINE.stop(seen, "stage", "pod p", ()) or ()
    assert (write.verb, write.name) == ("delete", "p")
    assert write.body["preconditions"] == {"uid": "uid-p", "resourceVersion": "7"}
