"""Which documents there are to compare, and which passes each is played in. Called by play.

Every manifest below the folders `argo` and `tekton` of the corpus is an example for each of its roots (what `penstock run` would run). A pass is
a copy of its documents with marks: which pods fail, and what the others leave as their results. Which is chosen by a seed, so that two
calls give the same.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import UserError
from penstock.formats import registry
from penstock.formats.documents import Document, Library
from penstock.service import manifests
from tests.cluster.agreement import prepare
from tests.cluster.agreement.marks import RESULT, Doc, mark, tekton_results

CORPUS = Path(os.environ.get("PENSTOCK_CORPUS") or Path(__file__).resolve().parents[4] / "shared" / "corpus")
ENGINES = ("argo", "tekton")
_PODS = ("container", "script", "containerSet", "resource", "data")
SLOW, FAST = "1s", "10ms"
_WORD = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Example:
    engine: str
    label: str
    """The file below the corpus, and the root's name."""
    root: Doc = field(repr=False)
    others: tuple[Doc, ...] = field(repr=False, default=())

    @property
    def documents(self) -> tuple[Doc, ...]:
        return (self.root, *self.others)


@dataclass(frozen=True)
class Pass:
    example: Example
    """With its marks."""
    name: str
    """What is special about it: `all succeed`, `build fails`."""

    @property
    def label(self) -> str:
        return f"{self.example.label}: {self.name}"


def files(corpus: Path = CORPUS) -> list[Path]:
    return sorted(
        path
        for engine in ENGINES
        for path in (corpus / engine).rglob("*")
        if path.suffix in manifests.DOCUMENTS and path.is_file()
    )


def read(file: Path, corpus: Path = CORPUS) -> list[Example]:
    """Raises UserError if it cannot be read at all."""
    own = manifests.library_of(file)
    library = manifests.with_neighbours(own, file)
    found = []
    label = str(file.relative_to(corpus)) if file.is_relative_to(corpus) else str(file)
    for root in registry.roots(own):
        engine = registry.format_of(root)
        if engine in ENGINES:
            others = tuple(_prepared(one, engine) for one in library.documents if one is not root and one.data)
            found.append(Example(engine, f"{label}#{root.name}", _prepared(root, engine), others))
    return found


def read_all(paths: Iterable[Path], corpus: Path = CORPUS) -> tuple[list[Example], dict[str, str]]:
    """The examples, and the files that hold none, with the reason."""
    found: list[Example] = []
    left: dict[str, str] = {}
    for path in paths:
        try:
            inside = read(path, corpus)
        except UserError as error:
            left[str(path)] = f"cannot be read ({error.problems[0].code})"
            continue
        found += inside
        if not inside:
            left[str(path)] = "has nothing that can be run"
    return found, left


def _prepared(document: Document, engine: str) -> Doc:
    made: Doc = json.loads(json.dumps(document.data, default=str))
    if document.group in ("argoproj.io", "tekton.dev"):
        (prepare.argo if engine == "argo" else prepare.tekton)(made)
    return made


# -- what makes pods --------------------------------------------------------------------------------------------------


def leaves(example: Example) -> list[tuple[str, Doc]]:
    """(name, what a mark is put on) of everything in it that makes pods: templates of Argo; tasks of a pipeline, or the one TaskRun."""
    if example.engine == "argo":
        every = [one for document in example.documents if _is_argo(document) for one in prepare.templates(document)]
        pods = [one for one in every if any(name in one for name in _PODS) and not one.get("daemon")]
        return [(str(one.get("name") or "inline"), one) for one in pods]
    if example.root.get("kind") != "PipelineRun":
        return [("the task", example.root)] if example.root.get("kind") == "TaskRun" else []
    spec = example.root.setdefault("spec", {})
    return [(name, _run_spec(spec, name)) for name, _ in _pipeline_tasks(example)]


def _is_argo(document: Doc) -> bool:
    return str(document.get("apiVersion") or "").startswith("argoproj.io/")


def _run_spec(spec: Doc, task: str) -> Doc:
    """The taskRunSpec of a task; made if there is none."""
    every = spec.setdefault("taskRunSpecs", [])
    for one in every:
        if one.get("pipelineTaskName") == task:
            held: Doc = one
            return held
    every.append({"pipelineTaskName": task})
    made: Doc = every[-1]
    return made


def _pipeline_tasks(example: Example) -> Iterator[tuple[str, Doc]]:
    """Tasks of the run's own pipeline that become TaskRuns."""
    spec = example.root.get("spec") or {}
    pipeline = spec.get("pipelineSpec")
    if pipeline is None:
        name = (spec.get("pipelineRef") or {}).get("name")
        named = (one for one in example.others if one.get("kind") == "Pipeline" and _name(one) == name)
        pipeline = (next(named, {})).get("spec") or {}
    for task in prepare.pipeline_tasks(pipeline):
        if "pipelineSpec" not in task and "pipelineRef" not in task and task.get("name"):
            yield str(task["name"]), task


def _name(document: Doc) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


# -- passes -----------------------------------------------------------------------------------------------------------


def numbered(example: Example) -> Pass:
    """The pass in which everything succeeds, with its leaves numbered."""
    made = copy.deepcopy(example)
    for number, (_, holder) in enumerate(leaves(made)):
        mark(holder, leaf=str(number))
    _leave_results(made, "")
    return Pass(made, "all succeed")


def failing(example: Example, number: int, text: str = "") -> Pass:
    """One leaf fails, at once and without results. The others take their time, so that they run when it fails."""
    made = copy.deepcopy(example)
    _leave_results(made, text)
    name, holder = leaves(made)[number]
    for _, other in leaves(made):
        mark(other, run_time=SLOW)
    mark(holder, exit_code="1", run_time=FAST)
    holder["metadata"]["annotations"].pop(RESULT, None)
    return Pass(made, f"{name} fails" + (f", results {text!r}" if text else ""))


def saying(example: Example, text: str) -> Pass:
    """All succeed, with a result that a condition of the document asks for."""
    made = copy.deepcopy(example)
    _leave_results(made, text)
    return Pass(made, f"results {text!r}")


def words(example: Example) -> list[str]:
    """Texts that conditions of the document compare with, and lists if a loop reads one."""
    found: dict[str, None] = {}
    for one in _values(example.documents, ("when",)):
        if isinstance(one, str):
            found |= dict.fromkeys(word for word in _WORD.findall(re.sub(r"\{\{.*?\}\}", " ", one)) if len(word) < 20)
        for expression in one if isinstance(one, list) else ():
            values = expression.get("values") if isinstance(expression, dict) else None
            found |= dict.fromkeys(v for v in values or () if isinstance(v, str) and "$(" not in v and v)
    if any(isinstance(one, str) and "{{" in one for one in _values(example.documents, ("withParam",))):
        found['["a", "b"]'] = None
    return list(found)


def _values(data: Any, names: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(data, dict):
        for name, value in data.items():
            if name in names:
                yield value
            yield from _values(value, names)
    elif isinstance(data, list | tuple):
        for one in data:
            yield from _values(one, names)


def passes(example: Example, came_to: set[int], most: int, seed: int) -> list[Pass]:
    """At most so many, beside the one in which all succeed: every leaf that a run comes to fails in turn, and results that conditions ask
    for. `came_to`: the numbers of these leaves."""
    chance = random.Random(f"{seed} {example.label}")
    said = words(example)
    every = [failing(example, number) for number in sorted(came_to)]
    every += [saying(example, text) for text in said]
    every += [failing(example, number, text) for number in sorted(came_to) for text in said[:2]]
    head, tail = every[: len(came_to)], every[len(came_to) :]
    chance.shuffle(head)
    chance.shuffle(tail)
    mixed = [one for pair in zip(head, tail, strict=False) for one in pair]
    rest = [one for one in head + tail if all(one is not other for other in mixed)]
    return (mixed + rest)[:most]


def _leave_results(example: Example, text: str) -> None:
    """What pods leave behind. Argo: only if a text is asked for. Tekton: a value for every declared result."""
    if example.engine == "argo":
        for _, holder in leaves(example) if text else ():
            mark(holder, result=text)
        return
    specs = {_name(one): one.get("spec") or {} for one in example.others if one.get("kind") in ("Task", "ClusterTask")}
    if example.root.get("kind") == "TaskRun":
        spec = example.root.get("spec") or {}
        _say_results(example.root, spec.get("taskSpec") or specs.get(_ref(spec)), text)
    elif example.root.get("kind") == "PipelineRun":
        tasks = dict(_pipeline_tasks(example))
        for name, holder in leaves(example):
            _say_results(holder, tasks[name].get("taskSpec") or specs.get(_ref(tasks[name])), text)


def _ref(holder: Doc) -> str:
    return str((holder.get("taskRef") or {}).get("name") or "")


def _say_results(holder: Doc, spec: Doc | None, text: str) -> None:
    declared = [one for one in (spec or {}).get("results") or () if isinstance(one, dict) and "name" in one]
    if declared:
        mark(holder, result=tekton_results({one["name"]: _sample(one, text or "v") for one in declared}))


def _sample(result: Doc, text: str) -> Any:
    kind = result.get("type") or ("object" if result.get("properties") else "string")
    if kind == "array":
        return [text, "b", "c"]
    return dict.fromkeys(result.get("properties") or {}, text) if kind == "object" else text


def library(example: Example) -> tuple[Library, Document]:
    """The documents as Penstock reads them, and the root among them."""
    read = [Document(one, file=example.label) for one in example.documents]
    return Library(tuple(read)), read[0]
