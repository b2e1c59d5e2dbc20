"""Argo documents taken apart again: clusters opened, values followed to where they come from. Used by the tests of the Argo writer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.formats import schema

Origin = tuple[str, str]
"""Step, output."""
_TAG = re.compile(r"\{\{(?!=)([^}]*)\}\}")
_INSIDE = re.compile(
    r"tasks(?:\.([\w-]+)|\['([^']+)'\])\.outputs\.\w+(?:\.([\w-]+)|\['([^']+)'\])|inputs\.\w+(?:\.([\w-]+)|\['([^']+)'\])"
)


@dataclass
class Flat:
    """A workflow without clusters."""

    template: dict[str, str] = field(default_factory=dict)
    before: dict[str, set[str]] = field(default_factory=dict)
    """Task -> all that it waits for, near and far."""
    given: dict[str, dict[str, list[Origin]]] = field(default_factory=dict)
    """Task -> argument -> where its value comes from."""


def templates_of(documents: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """(WorkflowTemplate or "", template) -> its body."""
    found = {}
    for document in documents:
        if document["kind"] in ("Workflow", "WorkflowTemplate"):
            home = "" if document["kind"] == "Workflow" else document["metadata"]["name"]
            for template in document["spec"]["templates"]:
                assert (home, template["name"]) not in found
                found[home, template["name"]] = template
    return found


def check_limits(documents: list[dict[str, Any]], tasks: int = 200, inputs: int = 500) -> None:
    """What Argo 4 takes."""
    for document in documents:
        assert schema.check(document) == []
        assert len(json.dumps(document)) < 2**20
        templates = document.get("spec", {}).get("templates", [])
        assert len(templates) <= 200
        for template in templates:
            listed = template.get("dag", {}).get("tasks", [])
            assert len(listed) <= tasks
            assert len({task["name"] for task in listed}) == len(listed)
            assert len(template.get("inputs", {}).get("parameters", [])) <= inputs
            assert not ({"timeout", "activeDeadlineSeconds"} & set(template) and listed)
            kinds = {
                "container",
                "script",
                "dag",
                "suspend",
                "http",
                "resource",
                "containerSet",
                "plugin",
                "data",
                "steps",
            }
            assert len(kinds & set(template)) == 1, template
            styles = {style for task in listed for style in ("depends", "dependencies") if style in task}
            assert len(styles) <= 1
            assert not ("depends" in styles and any("continueOn" in task for task in listed))
            for task in listed:
                assert re.fullmatch(r"[A-Za-z][-a-zA-Z0-9]{0,127}", task["name"])
                names = [one["name"] for one in task.get("arguments", {}).get("parameters", [])]
                assert len(set(names)) == len(names)
                assert all(isinstance(one["value"], str) for one in task.get("arguments", {}).get("parameters", []))


def check_references(documents: list[dict[str, Any]]) -> None:
    """Every template that is called is there, and is given just what it asks for."""
    known = templates_of(documents)
    (root,) = (one for one in documents if one["kind"] == "Workflow")
    assert ("", root["spec"]["entrypoint"]) in known
    for (home, _), template in known.items():
        for task in template.get("dag", {}).get("tasks", []):
            for call in (task, *task.get("hooks", {}).values()):
                callee = known[_callee(call, home)]
                for kind in ("parameters", "artifacts"):
                    given = {one["name"] for one in call.get("arguments", {}).get(kind, [])}
                    listed = callee.get("inputs", {}).get(kind, [])
                    wanted = {one["name"] for one in listed}
                    must = {one["name"] for one in listed if not {"default", "value", "raw", "optional"} & set(one)}
                    assert given <= wanted, (task["name"], given - wanted)
                    assert must <= given, (task["name"], must - given)


def _callee(call: dict[str, Any], home: str) -> tuple[str, str]:
    if "templateRef" in call:
        return call["templateRef"]["name"], call["templateRef"]["template"]
    return home, call["template"]


def flatten(documents: list[dict[str, Any]]) -> Flat:
    """Clusters are opened. Raises AssertionError if tasks wait for one another in a circle."""
    known = templates_of(documents)
    (root,) = (one for one in documents if one["kind"] == "Workflow")
    flat = Flat()
    _open(known, ("", root["spec"]["entrypoint"]), {}, set(), flat)
    return flat


def _open(
    known: Any, at: tuple[str, str], inputs: dict[str, list[Origin]], outer: set[str], flat: Flat
) -> dict[str, set[str]]:
    """Task of this dag -> the steps that are in it."""
    home, _ = at
    template = known[at]
    tasks = {task["name"]: task for task in template["dag"]["tasks"]}
    inside: dict[str, set[str]] = {}
    outputs: dict[str, dict[str, list[Origin]]] = {}
    for name in _in_order(tasks):
        task = tasks[name]
        waited = outer | {step for up in waits_for(task) for step in inside[up] | _before(inside[up], flat)}
        arguments = {
            one["name"]: _origins(str(one.get("value", one.get("from"))), inputs, outputs)
            for kind in ("parameters", "artifacts")
            for one in task.get("arguments", {}).get(kind, [])
        }
        callee = _callee(task, home)
        if "dag" in known[callee]:
            below = _open(known, callee, arguments, waited, flat)
            inside[name] = {step for steps in below.values() for step in steps}
            outputs[name] = {"": []}
            for kind in ("parameters", "artifacts"):
                for one in known[callee].get("outputs", {}).get(kind, []):
                    text = one.get("from") or one["valueFrom"]["parameter"]
                    outputs[name][one["name"]] = _origins(text, arguments, _below_outputs(known, callee, arguments))
        else:
            assert name not in flat.template, f"{name} is there twice"
            flat.template[name] = callee[1]
            flat.before[name] = waited
            flat.given[name] = arguments
            inside[name] = {name}
    return inside


def _below_outputs(
    known: Any, at: tuple[str, str], inputs: dict[str, list[Origin]]
) -> dict[str, dict[str, list[Origin]]]:
    """Outputs of the clusters inside a cluster."""
    found: dict[str, dict[str, list[Origin]]] = {}
    for task in known[at]["dag"]["tasks"]:
        callee = _callee(task, at[0])
        if "dag" in known[callee]:
            below = _below_outputs(known, callee, {})
            found[task["name"]] = {
                one["name"]: _origins(one.get("from") or one["valueFrom"]["parameter"], {}, below)
                for kind in ("parameters", "artifacts")
                for one in known[callee].get("outputs", {}).get(kind, [])
            }
    return found


def _origins(text: str, inputs: dict[str, list[Origin]], outputs: dict[str, dict[str, list[Origin]]]) -> list[Origin]:
    found: list[Origin] = []
    for match in _INSIDE.finditer(text):
        task, name = match[1] or match[2], match[3] or match[4]
        if task is None:
            found += inputs.get(match[5] or match[6], [])
        elif task in outputs:
            found += outputs[task][name]
        else:
            found.append((task, name))
    return found


def _before(steps: set[str], flat: Flat) -> set[str]:
    return {up for step in steps for up in flat.before[step]}


def waits_for(task: dict[str, Any]) -> set[str]:
    if "dependencies" in task:
        return set(task["dependencies"])
    return {word.partition(".")[0] for word in re.findall(r"[\w.-]+", task.get("depends", ""))}


def _in_order(tasks: dict[str, Any]) -> Iterator[str]:
    done: set[str] = set()
    rest = list(tasks)
    while rest:
        ready = [name for name in rest if waits_for(tasks[name]) <= done]
        assert ready, f"these wait for one another: {rest[:5]}"
        yield from ready
        done.update(ready)
        rest = [name for name in rest if name not in done]
