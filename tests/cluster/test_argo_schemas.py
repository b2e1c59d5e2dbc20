"""What Penstock writes is what Argo takes: Argo's own examples, gated and written anew, against Argo's full schema and its controller's checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.errors import UserError
from penstock.service import conversion
from testbed.components.argo import API, MODULE
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.argo_runs import path
from tests.cluster.support import fresh_namespace

WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda file: Path(file).read_text(),
    "gate": lambda file: conversion.gate(file, "stage", "suspend").text,
    "gate --by pods": lambda file: conversion.gate(file, "stage", "pods").text,
    "convert": lambda file: conversion.convert(file, "argo").text,
}
ALONE = {"cluster-workflow-template/mixed-cluster-namespaced-wftmpl-steps.yaml gate"}
"""Refused by Penstock with a reason: what it refers to is in a folder that is not given."""
INVALID = {f"{name}.yaml {way}" for name in ("fun-with-gifs", "k8s-jobs") for way in ("gate", "gate --by pods")}
"""Refused by Penstock as by the API server: a Workflow without a name."""


def documents(text: str) -> Iterator[dict[str, Any]]:
    yield from (one for one in yaml.load_all(text, yaml.CSafeLoader) if one)


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kwok", "argo", argo={"schemas": ["workflows"]})


def test_argo_takes_what_is_written(bed: Testbed) -> None:
    namespace = fresh_namespace(bed)
    folder = bed.module(MODULE) / "examples"
    files = sorted(folder.rglob("*.yaml"))
    for file in files:
        _references(bed, namespace, file)
    submitted: dict[str, str] = {}
    refused: dict[str, str] = {}
    unsaid: set[str] = set()
    for file in files:
        for way, write in WAYS.items():
            case = f"{file.relative_to(folder)} {way}"
            try:
                made = list(documents(write(str(file))))
            except UserError:
                if any(one["kind"] == "Workflow" for one in documents(file.read_text())):
                    unsaid.add(case)
                continue
            for one in made:
                _submit(bed, namespace, case, one, submitted, refused)
    assert unsaid == ALONE | INVALID
    assert len(submitted) > 600
    refused |= _wrong(bed, namespace, submitted)
    # A label of this one ends with a dash, which Kubernetes does not allow.
    assert not {case for case in refused if not case.startswith("fun-with-gifs.yaml ")}, json.dumps(refused, indent=1)


def _references(bed: Testbed, namespace: str, file: Path) -> None:
    """What workflows refer to must be there when they are looked at."""
    for one in documents(file.read_text()):
        if one["kind"] in ("WorkflowTemplate", "ClusterWorkflowTemplate", "ConfigMap"):
            one["metadata"].pop("namespace", None)
            if one["kind"] != "ClusterWorkflowTemplate":
                one["metadata"]["namespace"] = namespace
            bed.apply([one])


def _submit(
    bed: Testbed,
    namespace: str,
    case: str,
    document: dict[str, Any],
    submitted: dict[str, str],
    refused: dict[str, str],
) -> None:
    """Suspended: Argo checks it and starts nothing."""
    if document["kind"] != "Workflow":
        return
    meta = {key: value for key, value in document["metadata"].items() if key not in ("name", "namespace")}
    spec = {**document["spec"], "suspend": True}
    spec.pop("ttlStrategy", None)
    try:
        body = {**document, "metadata": {**meta, "generateName": "example-"}, "spec": spec}
        submitted[bed.raw("POST", path(namespace), body)["metadata"]["name"]] = case
    except ApiError as error:
        refused[case] = error.message


def _wrong(bed: Testbed, namespace: str, submitted: dict[str, str]) -> dict[str, str]:
    """What Argo finds wrong, once it has looked at all of them, which it marks by a label."""
    unseen = "!workflows.argoproj.io/phase"
    bed.wait(
        lambda: not bed.objects(API, "workflows", namespace, unseen), f"Argo to look at {len(submitted)} workflows", 300
    )
    found = {
        one["metadata"]["name"]: str(one["status"].get("message")) for one in bed.objects(API, "workflows", namespace)
    }
    return {case: found[name] for name, case in submitted.items() if found[name].startswith("invalid spec")}
