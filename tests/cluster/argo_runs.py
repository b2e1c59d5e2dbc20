"""Workflows of Argo, their nodes and what one does with them: what the tests of Argo in this folder have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from testbed.errors import ApiError
from testbed.instance import Testbed

API = "argoproj.io/v1alpha1"
RUN_TIME = "testbed.penstock/run-time"
EXIT_CODE = "testbed.penstock/exit-code"
RESULT = "testbed.penstock/result"
OVER = frozenset({"Succeeded", "Failed", "Error"})


def fake(name: str, *args: str, inputs: tuple[str, ...] = (), cpu: str = "", **annotations: str) -> dict[str, Any]:
    """A template whose pod does nothing but end. It has a command: without one Argo asks the image's registry for it."""
    made: dict[str, Any] = {"name": name, "container": {"image": "none", "command": ["none"], "args": list(args)}}
    if cpu:
        made["container"]["resources"] = {"requests": {"cpu": cpu}}
    if inputs:
        made["inputs"] = {"parameters": [{"name": one} for one in inputs]}
    if annotations:
        names = {"run_time": RUN_TIME, "exit_code": EXIT_CODE, "result": RESULT}
        made["metadata"] = {"annotations": {names[one]: value for one, value in annotations.items()}}
    return made


def step(name: str, template: str, **arguments: str) -> list[dict[str, Any]]:
    """A group of one step."""
    made: dict[str, Any] = {"name": name, "template": template}
    if arguments:
        made["arguments"] = {"parameters": [{"name": one, "value": value} for one, value in arguments.items()]}
    return [made]


def flow(name: str, steps: list[Any], *templates: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"entrypoint": "main", "templates": [{"name": "main", "steps": steps}, *templates], **more}
    return {"apiVersion": API, "kind": "Workflow", "metadata": {"name": name}, "spec": spec}


def path(namespace: str, name: str = "") -> str:
    return f"/apis/{API}/namespaces/{namespace}/workflows" + (f"/{name}" if name else "")


def create(bed: Testbed, namespace: str, document: Mapping[str, Any]) -> str:
    return str(bed.raw("POST", path(namespace), dict(document))["metadata"]["name"])


def node(found: Mapping[str, Any], shown: str) -> dict[str, Any]:
    """The node that Argo shows under this name, or nothing."""
    every = found.get("status", {}).get("nodes", {}).values()
    return next((one for one in every if one["displayName"] == shown), {})


def until_over(bed: Testbed, namespace: str, name: str, timeout: float = 180) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = bed.get(path(namespace, name))
        return found if found.get("status", {}).get("phase") in OVER else None

    return bed.wait(over, f"the workflow {name} to end", timeout)


def until(bed: Testbed, namespace: str, name: str, shown: str, phase: str, timeout: float = 180) -> dict[str, Any]:
    """The workflow, once the node is in the phase."""

    def there() -> dict[str, Any] | None:
        found: dict[str, Any] = bed.get(path(namespace, name))
        return found if node(found, shown).get("phase") == phase else None

    return bed.wait(there, f"the node {shown} of {name} to be {phase}", timeout)


def pods(bed: Testbed, namespace: str, name: str) -> list[dict[str, Any]]:
    return bed.objects("v1", "pods", namespace, f"workflows.argoproj.io/workflow={name}")


def resume(bed: Testbed, namespace: str, name: str, shown: str, **outputs: str) -> None:
    """What `argo node set` and then `argo resume` with a selector write: the outputs that are given, and the node's end. A name in
    `outputs` has `_` for `-`."""
    given = {one.replace("_", "-"): value for one, value in outputs.items()}

    def changed(found: dict[str, Any]) -> None:
        one = node(found, shown)
        assert one["type"] == "Suspend" and one["phase"] == "Running"
        _end(one, {key: value for key, value in given.items() if key in _supplied(one)})

    _write(bed, namespace, name, changed)


def resume_all(bed: Testbed, namespace: str, name: str) -> None:
    """What `argo resume` without a selector writes: the end of every suspended node, with the defaults of its outputs."""

    def changed(found: dict[str, Any]) -> None:
        found["spec"].pop("suspend", None)
        for one in found["status"]["nodes"].values():
            if one["type"] == "Suspend" and one["phase"] == "Running":
                _end(one, {key: value["default"] for key, value in _supplied(one).items()})

    _write(bed, namespace, name, changed)


def _supplied(one: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a suspended node that wait for somebody to supply them."""
    every = one.get("outputs", {}).get("parameters", ())
    return {each["name"]: each["valueFrom"] for each in every if "supplied" in each.get("valueFrom", {})}


def _end(one: dict[str, Any], given: Mapping[str, str]) -> None:
    for parameter in one.get("outputs", {}).get("parameters", ()):
        if parameter["name"] in given:
            del parameter["valueFrom"]
            parameter["value"] = given[parameter["name"]]
    one |= {"phase": "Succeeded", "finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def _write(bed: Testbed, namespace: str, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """The whole object, and again if it was changed meanwhile, as Argo's own commands do."""

    def written() -> bool:
        found = bed.get(path(namespace, name))
        change(found)
        try:
            bed.raw("PUT", path(namespace, name), found)
        except ApiError as error:
            if error.code == 409:
                return False
            raise
        return True

    bed.wait(written, f"{name} to be written")
