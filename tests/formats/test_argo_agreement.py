"""`penstock plan` and `penstock gate` agree about an Argo document: on every example, and on the same examples with weights.

The gate counts static stages (places in the document), the plan run stages (instances of them in a run with the document's own
arguments). Here the run stages are enumerated from the gate's derivation, by following every call, and compared with the plan's:
names, members, sizes, demands, and the peak of the whole.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats import registry
from penstock.formats.argo.demand import demand_of
from penstock.formats.argo.invocations import Invocation, Invocations, InvokedCall
from penstock.formats.argo.pods import shape_of
from penstock.formats.argo.scope import KINDS, is_composite, is_pod, root_of, spec_of, type_of
from penstock.formats.argo.stages import static_stages
from penstock.formats.documents import Document, Library, library
from penstock.graph.model import MISSING
from penstock.plan.make import Plan, make
from tests.formats.corpus import CORPUS, files, needs_corpus
from tests.formats.test_argo_stages import asking, call, dag, document, steps

RUN_STAGES = {
    # A called template has its stages once for each call; recursion is followed once from the entrypoint.
    "dag-nested.yaml": (16, 4),
    "dag-coinflip.yaml": (8, 2),
    "coinflip-recursive.yaml": (4, 2),
    # The gate must hold every task: the target is a parameter. With the document's own value three of them run.
    "dag-targets.yaml": (3, 5),
}
"""Examples in which the plan's run stages and the gate's static stages are not one to one: (run stages, static stages)."""

LARGER = {
    "daemon-nginx.yaml": "daemon",
    "daemon-step.yaml": "daemon",
    "dag-daemon-retry-strategy.yaml": "daemon",
    "dag-daemon-task.yaml": "daemon",
    "steps-daemon-retry-strategy.yaml": "daemon",
    "variables-showcase.yaml": "daemon",
    "parallelism-nested-workflow.yaml": "parallelism",
    "skipped-output-defaults/consumer-input-default.yaml": "when",
    "skipped-output-defaults/expression-fallback.yaml": "when",
    "skipped-output-defaults/producer-output-default.yaml": "when",
}
"""Examples in which the gate's bound is above the plan's peak, and why. Argo keeps a daemon beside what follows it, and the reader
says that it does not (Report: lost). The gate takes `when` and `parallelism` as things that only the run knows."""


@dataclass
class RunStage:
    """What the gate's derivation knows of a run stage."""

    static: str
    members: dict[str, tuple[int | None, dict[str, int]]] = field(default_factory=dict)
    """Step -> how often it runs, and what one of them asks for; None where only the run knows."""

    def demand(self) -> dict[str, int] | None:
        total: Counter[str] = Counter()
        for size, amounts in self.members.values():
            if size is None:
                return None
            for name, amount in amounts.items():
                total[name] += amount * size
        return {name: amount for name, amount in total.items() if amount}


def run_stages(library: Library, document: Document) -> dict[tuple[str, str], RunStage]:
    """(path of the calls around it, group or task) -> the run stage."""
    root = root_of(library, document)
    derived = static_stages(library, document)
    invocations = Invocations(root, derived.recursive)
    entry = invocations.entry()
    assert entry is not None
    found: dict[tuple[str, str], RunStage] = {}

    def member(here: Invocation, call: InvokedCall | None, callee: Invocation, prefix: str) -> None:
        group = call.group if call is not None else None
        name = str(callee.of.template["name"]) if call is None else call.name
        static = "<root>" if call is None else here.of.at(group, call.raw)
        static = static.rpartition(".")[0] if group is not None else static
        stage = found.setdefault((prefix, name if group is None else f"[{group}]"), RunStage(static))
        shape = shape_of(root, callee.of, callee.values)
        size = None if shape.open else 1 if call is None else call.size
        stage.members[f"{prefix}{name}"] = (size, dict(shape.resources))

    def follow(here: Invocation, prefix: str, around: frozenset[str]) -> None:
        for step in invocations.calls(here):
            if step.callee is None:
                continue
            if is_pod(step.callee.of.template):
                member(here, step, step.callee, prefix)
            elif is_composite(step.callee.of.template) and step.callee.of.qualified not in around:
                follow(step.callee, f"{prefix}{step.name}/", around | {step.callee.of.qualified})

    if is_pod(entry.of.template):
        member(entry, None, entry, "")
    else:
        follow(entry, "", frozenset())
    return found


def planned(library: Library, document: Document) -> Plan:
    workflow = registry.read(library, document).workflow
    return make(workflow, {param.name: "x" for param in workflow.params if param.default is MISSING})


def weighed(document: Document, weights: Iterator[int]) -> Document:
    """With a different cpu request in every container that has none."""

    def weigh(value: Any) -> None:
        if isinstance(value, dict):
            kind = type_of(value)
            one = value.get(kind)
            containers = (
                [one]
                if kind in ("container", "script")
                else (one or {}).get("containers", [])
                if kind == "containerSet"
                else []
            )
            for container in containers:
                if isinstance(container, dict) and not container.get("resources"):
                    container["resources"] = {"requests": {"cpu": str(next(weights))}}
            for inner in value.values():
                weigh(inner)
        elif isinstance(value, list):
            for inner in value:
                weigh(inner)

    if document.kind not in KINDS:
        return document
    found = Document(copy.deepcopy(dict(document.data)), document.file, document.marks)
    weigh(spec_of(found).get("templates"))
    return found


def examples(heavy: bool) -> Iterator[tuple[str, Library, Document]]:
    whole = library((str(path), path.read_text()) for path in files("argo"))
    weights = itertools.cycle(range(1, 98))
    documents = tuple(weighed(one, weights) if heavy else one for one in whole.documents)
    for one in documents:
        # Other files may have a template of the same name: the file's own come first.
        near = Library((*(other for other in documents if other.file == one.file), *documents))
        if one.kind in KINDS and root_of(near, one).entrypoint:
            yield one.file.removeprefix(f"{CORPUS}/argo/"), near, one


@needs_corpus
@pytest.mark.parametrize("heavy", [False, True], ids=["as written", "with weights"])
def test_every_run_stage_is_in_the_plan(heavy: bool) -> None:
    seen, differ = 0, {}
    for file, near, one in examples(heavy):
        plan = planned(near, one)
        ours = [stage for stage in plan.stages if not stage.exempt]
        theirs = run_stages(near, one)
        assert sorted(stage.steps for stage in ours) == sorted(tuple(stage.members) for stage in theirs.values()), file
        by_members = {tuple(stage.members): stage for stage in theirs.values()}
        static = {stage.name for stage in static_stages(near, one).queued()}
        for stage in ours:
            found = by_members[stage.steps]
            assert found.static in static
            demand = found.demand()
            if demand is not None and not stage.skipped:
                assert stage.demand() == demand, (file, stage.name)
        if len(ours) != len(static):
            differ[file] = (len(ours), len(static))
        seen += 1
    assert seen > 130
    assert differ == RUN_STAGES


@needs_corpus
def test_the_peak_of_the_whole_is_the_same_or_the_reason_is_known() -> None:
    larger, compared = {}, 0
    for file, near, one in examples(heavy=True):
        plan, demand = planned(near, one), demand_of(near, one)
        peak = {name: found.amount for name, found in plan.peaks.items()}
        if demand.open or any(found.open for found in plan.peaks.values()):
            continue
        compared += 1
        if peak != demand.resources:
            assert all(amount <= demand.resources.get(name, 0) for name, amount in peak.items()), file
            larger[file] = LARGER.get(file, "unknown")
            assert LARGER[file] in str(one.data), file
    assert compared > 120
    assert larger.items() <= LARGER.items()


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Templates that call later ones, as steps and as dags, in loops; leaves of different weight."""
    templates: list[dict[str, Any]] = []
    count = draw(st.integers(1, 4))
    for number in range(count):
        calls = [
            call(f"c{at}", f"t{draw(st.integers(number + 1, count))}", **draw(_LOOPS))
            for at in range(draw(st.integers(1, 4)))
        ]
        if draw(st.booleans()):
            for at, one in enumerate(calls[1:], 1):
                ups = draw(st.lists(st.sampled_from([f"c{up}" for up in range(at)]), unique=True))
                one |= {"depends": " && ".join(ups)} if ups else {}
            templates.append(dag(f"t{number}", *calls))
        else:
            at = draw(st.integers(1, len(calls)))
            templates.append(steps(f"t{number}", *(group for group in (calls[:at], calls[at:]) if group)))
    templates.append(asking(f"t{count}", str(draw(st.integers(1, 9)))))
    return document(*templates)


_LOOPS = st.sampled_from([{}, {}, {"withItems": ["a", "b"]}, {"withSequence": {"count": "3"}}])


@settings(max_examples=150, deadline=None)
@given(documents())
def test_random_documents_have_one_derivation(one: Document) -> None:
    near = Library((one,))
    plan = planned(near, one)
    theirs = {tuple(stage.members): stage.demand() for stage in run_stages(near, one).values()}
    assert {stage.steps: stage.demand() for stage in plan.stages} == theirs
    assert {name: peak.amount for name, peak in plan.peaks.items()} == demand_of(near, one).resources
