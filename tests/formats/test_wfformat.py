"""Recordings in WfFormat: what a step gets of its task, both layouts alike, hostile input refused in words, real files read fast."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DocumentError
from penstock.formats.base import Trace
from penstock.formats.wfformat.format import claims
from penstock.formats.wfformat.read import LONGEST
from penstock.formats.wfformat.read import read_wfformat as read
from penstock.graph import codec
from penstock.graph.check import errors
from penstock.graph.limits import NAME
from penstock.graph.model import Workflow
from tests.support.speed import within

CORPUS = (
    Path(os.environ.get("PENSTOCK_CORPUS", Path(__file__).resolve().parents[3] / "shared" / "corpus")) / "wfcommons"
)
FILES = sorted(CORPUS.glob("*.json"))
needs_corpus = pytest.mark.skipif(not FILES, reason=f"no recordings of workflows in {CORPUS}: set PENSTOCK_CORPUS")
Data = dict[str, Any]


def task(name: str, *parents: str, **measured: Any) -> Data:
    """`children` is filled in by `document`."""
    return {"id": name, "parents": list(parents), "runtimeInSeconds": 10.0, **measured}


def document(*tasks: Data, machines: list[Data] | None = None, **more: Any) -> Data:
    """1.5: the graph and the measurements apart."""
    children: dict[str, list[str]] = {one["id"]: [] for one in tasks}
    for one in tasks:
        for parent in one["parents"]:
            children.setdefault(parent, []).append(one["id"])
    graph = ("parents", "name")
    return {
        "name": "trace",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "name": one.get("name", one["id"]),
                        "id": one["id"],
                        "parents": one["parents"],
                        "children": children[one["id"]],
                    }
                    for one in tasks
                ]
            },
            "execution": {
                "makespanInSeconds": 42.0,
                "executedAt": "2026-01-01T00:00:00Z",
                "tasks": [{key: value for key, value in one.items() if key not in graph} for one in tasks],
                **({"machines": machines} if machines is not None else {}),
            },
        },
        **more,
    }


def older(data: Data) -> Data:
    """The same as 1.4: one list, by name."""
    workflow = data["workflow"]
    measured = {record["id"]: record for record in workflow["execution"]["tasks"]}
    tasks = []
    for number, spec in enumerate(workflow["specification"]["tasks"]):
        record = {key: value for key, value in measured[spec["id"]].items() if key != "id"}
        if "coreCount" in record:
            record["cores"] = record.pop("coreCount")
        tasks.append(
            {
                "name": spec["id"],
                "id": f"ID{number}",
                "type": "compute",
                "files": [],
                "parents": spec["parents"],
                **record,
            }
        )
    machines = [
        machine | {"cpu": {"count": machine["cpu"]["coreCount"]}}
        for machine in workflow["execution"].get("machines", [])
    ]
    return {
        "name": data["name"],
        "schemaVersion": "1.4",
        "workflow": {"makespanInSeconds": 42.0, "executedAt": "x", "tasks": tasks, "machines": machines},
    }


def of(data: Any, **options: bool) -> Trace:
    return read(json.dumps(data), "trace.json", **options)


def edges(workflow: Workflow) -> dict[str, list[str]]:
    return {step.name: [edge.step for edge in step.needs] for step in workflow.steps}


def said(trace: Trace) -> dict[str, int]:
    return {f"{note.kind}: {note.text}": note.count for note in trace.notes}


def resources(trace: Trace) -> dict[str, dict[str, int]]:
    return {step.name: dict(step.resources) for step in trace.workflow.steps}


# -- what is read -----------------------------------------------------------------------------------------------------


def test_tasks_become_steps_with_edges_resources_and_run_times() -> None:
    trace = of(
        document(
            task("a", coreCount=4, memoryInBytes=2**30),
            task("b", "a", runtimeInSeconds=2.5, coreCount=1.5),
            task("c", "a", "b", runtimeInSeconds=0),
        )
    )
    assert edges(trace.workflow) == {"a": [], "b": ["a"], "c": ["a", "b"]}
    assert resources(trace) == {"a": {"cpu": 4000, "memory": 2**30 * 1000}, "b": {"cpu": 1500}, "c": {"cpu": 1000}}
    assert trace.runtimes == {"a": 10.0, "b": 2.5, "c": 0.0}
    assert trace.makespan == 42.0
    assert [step.action.source for step in trace.workflow.steps] == ["sleep 10", "sleep 2.5", "sleep 0"]
    assert errors(trace.workflow) == []


def test_steps_that_sleep_equally_long_are_not_the_same_step() -> None:
    assert not any(step.cache.enabled for step in of(document(task("a"), task("b"))).workflow.steps)


def test_both_layouts_give_the_same() -> None:
    data = document(
        task("a", coreCount=4, memoryInBytes=5),
        task("b", "a", avgCPU=250.0),
        task("c", "a", "b"),
        machines=[{"nodeName": "n", "cpu": {"coreCount": 8}, "memoryInBytes": 2**34}],
    )
    new, old = of(data), of(older(data))
    assert old.workflow == new.workflow
    assert (old.runtimes, old.makespan, old.machines) == (new.runtimes, new.makespan, new.machines)
    assert new.machines == {"cpu": 8000, "memory": 2**34 * 1000}


def test_in_the_older_layout_parents_may_also_be_ids() -> None:
    data = older(document(task("a"), task("b", "a")))
    data["workflow"]["tasks"][1]["parents"] = ["ID0"]
    assert edges(of(data).workflow) == {"a": [], "b": ["a"]}


@pytest.mark.parametrize(
    ("busy", "cores"), [(0.0, 1), (59.9, 1), (100.99, 1), (105, 1), (110.5, 2), (190.8, 2), (400, 4), (None, 1)]
)
def test_without_a_request_the_busy_cores_count(busy: float | None, cores: int) -> None:
    trace = of(document(task("a", **({} if busy is None else {"avgCPU": busy}))))
    assert resources(trace) == {"a": {"cpu": cores * 1000}}
    assert any(note.kind == "guessed" and "core" in note.text for note in trace.notes)


def test_memory_in_kib_is_found_out_by_the_machines() -> None:
    kib = [{"nodeName": "n", "cpu": {"coreCount": 64}, "memoryInBytes": 196483612}]
    trace = of(document(task("a", memoryInBytes=87824), machines=kib))
    assert resources(trace)["a"]["memory"] == 87824 * 1024 * 1000
    assert trace.machines == {"cpu": 64_000, "memory": 196483612 * 1024 * 1000}
    assert any("KiB" in text for text in said(trace))


def test_a_machine_that_does_not_say_how_large_it_is_leaves_the_sum_open() -> None:
    machines = [
        {"nodeName": "n", "cpu": {"coreCount": 2}, "memoryInBytes": 2**33},
        {"nodeName": "m", "cpu": {"coreCount": 2}},
    ]
    assert of(document(task("a"), machines=machines)).machines == {"cpu": 4000}


def test_edges_that_only_the_parent_tells_of_are_kept() -> None:
    data = document(task("a"), task("b", "a"))
    data["workflow"]["specification"]["tasks"][1]["parents"] = []
    trace = of(data)
    assert edges(trace.workflow) == {"a": [], "b": ["a"]}
    assert said(trace)["guessed: dependencies said by the parent only (`children`) are kept"] == 1


def test_a_task_that_was_not_measured_takes_no_time_and_is_noted() -> None:
    data = document(task("a"), task("b", "a"))
    del data["workflow"]["execution"]["tasks"][1]
    trace = of(data)
    assert trace.runtimes == {"a": 10.0, "b": 0.0}
    assert said(trace)["guessed: tasks without a run time take no time"] == 1


def test_what_is_left_out_is_noted() -> None:
    data = document(task("a", command={"program": "p"}, priority=3, readBytes=1, machines=["n"]), task("b", priority=2))
    data["workflow"]["specification"]["files"] = [{"id": "f", "sizeInBytes": 1}]
    data["workflow"]["execution"]["tasks"].append(task("stranger"))
    notes = said(of(data))
    assert notes["dropped: command lines: steps sleep instead"] == 1
    assert notes["dropped: priorities"] == 2
    assert notes["dropped: files and their sizes"] == 1
    assert notes["dropped: measurements of tasks that the specification does not have"] == 1


def test_all_of_a_kind_ask_for_as_much_as_the_largest_of_them() -> None:
    tasks = [task(f"sort_{i}", coreCount=i, memoryInBytes=100 * (4 - i)) for i in (1, 2, 3)]
    trace = of(document(*tasks, task("merge")), by_kind=True)
    assert resources(trace) == {
        "sort_1": {"cpu": 3000, "memory": 300_000},
        "sort_2": {"cpu": 3000, "memory": 300_000},
        "sort_3": {"cpu": 3000, "memory": 300_000},
        "merge": {"cpu": 1000},
    }


def test_tasks_of_a_kind_that_become_ready_together_form_a_stage() -> None:
    tasks = [
        task("split"),
        *(task(f"sort_ID{i}", "split") for i in range(3)),
        task("sort_ID3", "sort_ID0"),
        task("x", "split"),
    ]
    steps = of(document(*tasks), grouped=True).workflow.steps
    assert {step.name: step.group for step in steps} == {
        "split": None,
        "sort_ID0": "sort",
        "sort_ID1": "sort",
        "sort_ID2": "sort",
        "sort_ID3": None,
        "x": None,
    }
    assert all(step.group is None for step in of(document(*tasks)).workflow.steps)


# -- names ------------------------------------------------------------------------------------------------------------


def test_names_become_legal_and_stay_apart() -> None:
    wanted = ["NF.CORE:x (1)", "NF-CORE-x-1", "NF-CORE-x--1-", "…", "~", "a" * 300, "a" * 299, "-", "ok_1"]
    trace = of(document(*(task(name) for name in wanted)))
    names = [step.name for step in trace.workflow.steps]
    assert names[:5] == ["NF-CORE-x-1", "NF-CORE-x-1-2", "NF-CORE-x--1", "task", "task-2"]
    assert names[5:7] == ["a" * 128, "a" * 126 + "-2"]
    assert names[-1] == "ok_1"
    assert len(set(names)) == len(names)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, unique=True))
def test_any_names_give_a_workflow_without_errors(names: list[str]) -> None:
    data = document(task(names[0]), *(task(name, names[0]) for name in names[1:]), name=names[-1])
    trace = of(data)
    assert errors(trace.workflow) == []
    assert len(trace.runtimes) == len(names)
    assert all(NAME.match(step.name) for step in trace.workflow.steps)
    assert [len(step.needs) for step in trace.workflow.steps] == [0] + [1] * (len(names) - 1)


def test_a_thousand_names_that_become_one_take_no_time() -> None:
    with within(2):
        trace = of(document(*(task("x" + "." * i) for i in range(1, 3000))))
    assert trace.workflow.steps[-1].name == "x-2999"


# -- what is refused --------------------------------------------------------------------------------------------------


def refused(data: Any) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        of(data)
    return caught.value


def change(path: str, value: Any) -> Callable[[Data], None]:
    def apply(data: Data) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = data
        for part in way:
            place = place[part]
        if value is ...:
            del place[last]
        else:
            place[last] = value

    return apply


SPEC, EXEC = "workflow.specification.tasks", "workflow.execution.tasks"


@pytest.mark.parametrize(
    ("path", "value", "where", "words"),
    [
        ("schemaVersion", "1.3", "schemaVersion", "1.3"),
        ("schemaVersion", ..., "schemaVersion", "no schemaVersion"),
        ("schemaVersion", 1.5, "schemaVersion", "1.5"),
        ("workflow", [], "workflow", "a list"),
        ("workflow", ..., "workflow", "missing"),
        ("workflow.specification", ..., "workflow.specification", "missing"),
        ("workflow.specification.tasks", {}, SPEC, "a mapping"),
        ("workflow.specification.tasks", [], "workflow", "no tasks"),
        ("workflow.execution", ..., "workflow.execution", "no execution"),
        ("workflow.execution", 7, "workflow.execution", "a number"),
        ("workflow.execution.tasks", None, EXEC, "null"),
        (f"{SPEC}.1", "b", f"{SPEC}[1]", "text"),
        (f"{SPEC}.1.id", "a", f"{SPEC}[1].id", "two tasks"),
        (f"{SPEC}.1.id", ..., f"{SPEC}[1].id", "no 'id'"),
        (f"{SPEC}.1.id", 3, f"{SPEC}[1].id", "not text"),
        (f"{SPEC}.1.parents", "a", f"{SPEC}[1].parents", "text"),
        (f"{SPEC}.1.parents", [["a"]], f"{SPEC}[1].parents", "a list"),
        (f"{SPEC}.1.parents", ["ghost"], f"{SPEC}[1].parents", "ghost"),
        (f"{SPEC}.0.children", ["ghost"], f"{SPEC}[0].children", "ghost"),
        (f"{SPEC}.0.parents", ["b"], f"{SPEC}[0].parents", "a → b → a"),
        (f"{SPEC}.0.parents", ["a"], f"{SPEC}[0].parents", "circle"),
        (f"{EXEC}.1.id", "a", f"{EXEC}[1].id", "two records"),
        (f"{EXEC}.1.runtimeInSeconds", -0.5, f"{EXEC}[1].runtimeInSeconds", "-0.5"),
        (f"{EXEC}.1.runtimeInSeconds", "9", f"{EXEC}[1].runtimeInSeconds", "text"),
        (f"{EXEC}.1.runtimeInSeconds", True, f"{EXEC}[1].runtimeInSeconds", "true or false"),
        (f"{EXEC}.1.runtimeInSeconds", 10**400, f"{EXEC}[1].runtimeInSeconds", "bounds"),
        (f"{EXEC}.1.memoryInBytes", -1, f"{EXEC}[1].memoryInBytes", "-1"),
        (f"{EXEC}.1.coreCount", 1e12, f"{EXEC}[1].coreCount", "1e+12"),
        (f"{EXEC}.1.avgCPU", [], f"{EXEC}[1].avgCPU", "a list"),
        ("workflow.execution.makespanInSeconds", "long", "workflow.execution.makespanInSeconds", "text"),
        ("workflow.execution.machines", [{"memoryInBytes": -1}], "workflow.execution.machines[0].memoryInBytes", "-1"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_a_fix(path: str, value: Any, where: str, words: str) -> None:
    data = document(task("a"), task("b", "a"))
    change(path, value)(data)
    error = refused(data)
    found = [problem for problem in error.problems if problem.where == where]
    assert found, error
    assert words in found[0].message
    assert found[0].code == "P810" and found[0].fix and found[0].source is not None


def test_every_mistake_is_reported_at_once_but_not_for_ever() -> None:
    assert len(refused(document(*(task(str(i), runtimeInSeconds=-i) for i in range(1, 6)))).problems) == 5
    assert len(refused(document(*(task(str(i), runtimeInSeconds=-i) for i in range(1, 5000)))).problems) == 200


def test_infinity_and_a_file_that_ends_too_early() -> None:
    text = json.dumps(document(task("a")))
    for bad, code in (
        (text.replace("10.0", "1e999"), "P810"),
        (text.replace("10.0", "NaN"), "P102"),
        (text[:-20], "P102"),
        ("", "P102"),
        ("apiVersion: penstock/v1", "P102"),
        ("[" * 100_000, "P101"),
        (text.replace("10.0", "1" * 5000), "P102"),
        ("3", "P810"),
    ):
        with pytest.raises(DocumentError) as caught:
            read(bad)
        assert caught.value.code == code, bad[:60]


def test_who_claims_to_be_wfformat() -> None:
    assert claims("\ufeff\n " + json.dumps(document(task("a"))))
    assert claims('{"schemaVersion": "0.1", "workflow": ')
    assert not claims("apiVersion: penstock/v1\nkind: Workflow")
    assert not claims('{"apiVersion": "penstock/v1", "kind": "Workflow", "workflow": {}}')
    assert read("\ufeff" + json.dumps(document(task("a")))).runtimes == {"a": 10.0}


def whole_or_refused(text: str) -> None:
    """Whatever comes in: a workflow that check accepts, or words with a code."""
    for options in ({}, {"by_kind": True, "grouped": True}):
        try:
            trace = read(text, **options)
        except DocumentError as error:
            assert all(re.fullmatch(r"P\d{3}", problem.code) and problem.fix for problem in error.problems)
        else:
            assert errors(trace.workflow) == []
            assert set(trace.runtimes) == {step.name for step in trace.workflow.steps}
            assert all(0 <= seconds <= LONGEST for seconds in trace.runtimes.values())
            assert codec.from_text(codec.to_json(trace.workflow)).steps == trace.workflow.steps


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["a", "b", "1.4", "1.5", "sort_1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "name",
                    "parents",
                    "children",
                    "tasks",
                    "cpu",
                    "coreCount",
                    "runtimeInSeconds",
                    "memoryInBytes",
                    "machines",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
ROOTS = [
    document(
        task("a", coreCount=2, memoryInBytes=9),
        task("b", "a", avgCPU=20.0),
        task("c", "a", "b"),
        machines=[{"nodeName": "n", "cpu": {"coreCount": 2}, "memoryInBytes": 2**33}],
        description="d",
    ),
]
ROOTS.append(older(ROOTS[0]))


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside."""
    keys = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for key in keys for place in [(data, key), *places(data[key])]]


@settings(max_examples=400)
@given(st.data())
def test_no_change_of_a_good_document_ends_in_a_traceback(draw: st.DataObject) -> None:
    data = copy.deepcopy(draw.draw(st.sampled_from(ROOTS)))
    for _ in range(draw.draw(st.integers(1, 3))):
        inside = places(data)
        if not inside:
            break
        container, key = inside[draw.draw(st.integers(0, len(inside) - 1))]
        if draw.draw(st.booleans()):
            container[key] = draw.draw(values)
        elif isinstance(container, dict):
            del container[key]
    whole_or_refused(json.dumps(data))


@given(st.data())
def test_no_damage_to_the_text_ends_in_a_traceback(draw: st.DataObject) -> None:
    text = json.dumps(draw.draw(st.sampled_from(ROOTS)))
    at = draw.draw(st.integers(0, len(text)))
    whole_or_refused(text[:at] + draw.draw(st.text(max_size=4)) + text[at + draw.draw(st.integers(0, 30)) :])


@given(st.text(max_size=60) | values.map(json.dumps))
def test_no_other_text_ends_in_a_traceback(text: str) -> None:
    whole_or_refused(text)


# -- real files, and large ones ---------------------------------------------------------------------------------------


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recordings_are_read_whole(path: Path) -> None:
    text = path.read_text()
    workflow = json.loads(text)["workflow"]
    tasks, records = workflow["specification"]["tasks"], workflow["execution"]["tasks"]
    assert claims(text)
    trace = read(text, str(path))
    assert len(trace.workflow.steps) == len(tasks)
    assert [len(step.needs) for step in trace.workflow.steps] == [len(one["parents"]) for one in tasks]
    assert sum(trace.runtimes.values()) == pytest.approx(sum(one["runtimeInSeconds"] for one in records))
    assert trace.makespan == workflow["execution"]["makespanInSeconds"]
    assert errors(trace.workflow) == []
    assert all(0 < step.resources["cpu"] <= 64_000 for step in trace.workflow.steps)
    assert all(
        2**16 * 1000 <= step.resources.get("memory", 2**30 * 1000) <= 2**32 * 1000 for step in trace.workflow.steps
    )


@needs_corpus
def test_the_corpus_takes_less_than_a_second() -> None:
    texts = [path.read_text() for path in FILES]
    with within(1):
        assert sum(len(read(text).workflow.steps) for text in texts) > 1500


def test_twenty_thousand_tasks_are_read_in_less_than_four_seconds() -> None:
    tasks = [task("split", coreCount=1)]
    tasks += [task(f"work_{i}", "split", memoryInBytes=i * 1000, avgCPU=99.0) for i in range(1, 19_999)]
    tasks.append(task("join", *(one["id"] for one in tasks[1:])))
    text = json.dumps(document(*tasks))
    with within(4):
        trace = read(text, by_kind=True, grouped=True)
    assert len(trace.workflow.steps) == 20_000
    assert len(trace.workflow.steps[-1].needs) == 19_998
