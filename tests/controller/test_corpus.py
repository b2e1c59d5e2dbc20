"""Every example manifest beside the project, as a user submits it with a queue's label: it is made ready for the queue in each unit, or refused with the fix; a
copy of what was made is no other; and the controller can look at it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from penstock.controller.admit import admit_workflow
from penstock.controller.core import Seen, reconcile
from penstock.controller.engine import Engine, Observed, Unit
from penstock.controller.engines.argo import ENGINE as ARGO
from penstock.controller.engines.jobset import ENGINE as JOBSET
from penstock.controller.engines.tekton import ENGINE as TEKTON
from penstock.controller.names import QUEUE, UNIT
from penstock.controller.objects import ApiResource, Object
from tests.formats.corpus import files, label, needs_corpus

Doc = dict[str, Any]
ENGINES: dict[str, Engine] = {"Workflow": ARGO, "PipelineRun": TEKTON, "TaskRun": TEKTON, "JobSet": JOBSET}
UNITS: Sequence[Unit] = get_args(Unit)


class Shelf:
    """The other documents of one file, and of all files of its folder."""

    def __init__(self, documents: Sequence[Doc]) -> None:
        self.documents = documents

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        return next((one for one in self.list(resource) if one["metadata"].get("name") == name), None)

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        return [one for one in self.documents if one["kind"] == resource.kind]


@cache
def documents(path: Path) -> Sequence[Doc]:
    try:
        loaded = list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
    except yaml.YAMLError:
        return ()
    plain = json.loads(json.dumps(loaded, default=str))
    return [one for one in plain if isinstance(one, dict) and isinstance(one.get("metadata"), dict) and "kind" in one]


def runs() -> Iterator[tuple[Path, Doc]]:
    for path in files("argo", "tekton", "jobset"):
        for one in documents(path):
            if one["kind"] in ENGINES and isinstance(one.get("spec"), dict):
                yield path, one


def submitted(document: Doc, unit: Unit) -> Doc:
    labels = {**(document["metadata"].get("labels") or {}), QUEUE: "q", UNIT: unit}
    return {**document, "metadata": {"name": "x", **document["metadata"], "labels": labels, "uid": "u"}}


def stored(document: Doc, answer: Doc) -> Doc:
    made = json.loads(json.dumps(document))
    for one in json.loads(base64.b64decode(answer.get("patch", "W10="))):
        *way, last = one["path"].split("/")[1:]
        here = made
        for name in way:
            here = here.setdefault(name, {})
        here[last] = one["value"]
    made["metadata"]["namespace"] = "n"
    return made


@needs_corpus
@pytest.mark.parametrize("unit", UNITS)
def test_it_is_made_ready_or_refused_and_a_copy_is_no_other(unit: Unit) -> None:
    taken = 0
    for path, document in runs():
        engine, place = ENGINES[document["kind"]], f"{label(path)} {document['kind']}"
        shelf = Shelf([one for other in path.parent.glob("*.yaml") for one in documents(other)])
        given = submitted(document, unit)
        answer = admit_workflow({"namespace": "n", "object": given}, engine, shelf)
        if not answer["allowed"]:
            assert "penstock P8" in answer["status"]["message"] and "Fix: " in answer["status"]["message"], place
            continue
        taken += 1
        made = stored(given, answer)
        again = admit_workflow({"namespace": "n", "object": made}, engine, shelf)
        assert again["allowed"] and stored(made, again).get("spec") == made.get("spec"), place
        for phase in ("", "Running"):
            main = {**made, "status": {"phase": phase} if phase else {}}
            plan = reconcile(Seen(engine, Observed(main, {}, shelf, 1e9), unit, ()))
            assert not [one for one in plan.notes if one.reason == "Refused"], (place, plan.notes)
    assert taken > 150
