"""The annotations of a document that say how its pods end. Written by examples; the testbed's fake pods obey them, and so does ours.script.

A mark is on a template of Argo, or on a task of a Tekton run (`taskRunSpecs`), so it is the same for every pod of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

RUN_TIME, EXIT_CODE, RESULT = (f"testbed.penstock/{name}" for name in ("run-time", "exit-code", "result"))
LEAF = "testbed.penstock/leaf"
"""Numbers what makes pods, so that ours can tell which of them a run came to."""

Doc = dict[str, Any]


def mark(holder: Doc, **notes: str) -> None:
    """`holder` has, or gets, a `metadata`."""
    metadata = holder.get("metadata")
    if not isinstance(metadata, dict):
        metadata = holder["metadata"] = {}
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        annotations = metadata["annotations"] = {}
    names = {"run_time": RUN_TIME, "exit_code": EXIT_CODE, "result": RESULT, "leaf": LEAF}
    annotations.update({names[name]: value for name, value in notes.items()})


def argo_value(name: str, text: str | None, default: Any) -> Any:
    """What the testbed reports for an output parameter of a fake pod (testbed/components/argo_report.py)."""
    if text is None:
        return default
    try:
        members = json.loads(text)
    except ValueError:
        return text
    if not isinstance(members, Mapping):
        return text
    if name not in members:
        return default
    return members[name] if isinstance(members[name], str) else json.dumps(members[name])


def tekton_results(values: Mapping[str, Any]) -> str:
    """The message that Tekton's entrypoint leaves when a step ends."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return json.dumps([{"key": name, "value": text, "type": 1} for name, text in texts.items()])


def tekton_values(text: str) -> dict[str, Any]:
    return {one["key"]: one["value"] for one in json.loads(text)}
