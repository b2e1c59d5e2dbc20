"""Workflows that are too large for one dag or one object: the same steps, the same order, the same values."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.expressions.parse import Expr
from penstock.expressions.types import parse
from penstock.formats import registry
from penstock.formats.argo.write import dag, split
from penstock.formats.argo.write.workflow import write_argo
from penstock.formats.documents import library
from penstock.formats.yaml_writer import dump_all
from penstock.graph.model import (
    NORMAL,
    Container,
    Edge,
    Function,
    Input,
    Nested,
    Outcome,
    Output,
    Parameter,
    Script,
    Step,
    Workflow,
    edges_of,
)
from tests.formats.argo_flat import check_limits, check_references, flatten, templates_of
from tests.support.speed import within

INT = parse("int")
CALL = Function(module="json", name="loads", code="x")
ALL = frozenset(Outcome)


def step(name: str, ups: list[str], **more: Any) -> Step:
    inputs = tuple(Input(name=f"x{i}", value=Expr.of(f"steps.{up}.outputs.y"), type=INT) for i, up in enumerate(ups))
    return Step(name=name, action=CALL, inputs=inputs, outputs=(Output(name="y", type=INT),), **more)


def compare(workflow: Workflow, documents: list[dict[str, Any]], tasks: int = 200) -> None:
    """Nothing is missing, nothing is there twice, everybody waits for what it waited for, every value comes from where it came from."""
    check_limits(documents, tasks)
    check_references(documents)
    flat = flatten(documents)
    assert set(flat.template) == {one.name for one in workflow.steps}
    for one in workflow.steps:
        assert set(edges_of(one)) <= flat.before[one.name]
        for given_ in one.inputs:
            wanted = [
                (expr.text.split(".")[1], expr.text.split(".")[3])
                for expr in ([given_.value] if isinstance(given_.value, Expr) else given_.value)
                if isinstance(expr, Expr) and expr.text.startswith("steps.")
            ]
            assert flat.given[one.name][given_.name] == wanted


def fan(many: int) -> Workflow:
    steps = [step("source", []), *(step(f"w{i}", ["source"]) for i in range(many))]
    results = tuple(Expr.of(f"steps.w{i}.outputs.y") for i in range(many))
    steps.append(
        Step(
            name="sink", action=CALL, inputs=(Input(name="all", value=results),), outputs=(Output(name="y", type=INT),)
        )
    )
    return Workflow(name="fan", steps=tuple(steps), outputs=(Output(name="y", value=Expr.of("steps.sink.outputs.y")),))


def chain(many: int) -> Workflow:
    steps = tuple(step(f"w{i}", [f"w{i - 1}"] if i else []) for i in range(many))
    return Workflow(
        name="chain", steps=steps, outputs=(Output(name="y", value=Expr.of(f"steps.w{many - 1}.outputs.y")),)
    )


def layered(many: int, width: int = 100, each: int = 3) -> Workflow:
    chance = random.Random(7)
    steps = []
    for i in range(many):
        low = (i // width - 1) * width
        ups = [] if low < 0 else chance.sample(range(low, low + width), each)
        steps.append(step(f"w{i}", [f"w{up}" for up in ups]))
    return Workflow(name="layered", steps=tuple(steps))


def scattered(many: int, seed: int = 1) -> Workflow:
    chance = random.Random(seed)
    steps = []
    for i in range(many):
        ups = {chance.randrange(max(0, i - 60), i) for _ in range(chance.randrange(3))} if i else set()
        steps.append(step(f"w{i}", [f"w{up}" for up in sorted(ups)]))
    return Workflow(name="scattered", steps=tuple(steps))


@pytest.mark.parametrize("make", [fan, chain, layered, scattered])
def test_a_thousand_steps(make: Any) -> None:
    workflow = make(1000)
    written = write_argo(workflow, bundle=b"")
    compare(workflow, written.documents)
    assert any("are cut into dags" in one.message for one in written.report.of("changed"))
    assert not written.report.of("lost")


def test_a_fan_stays_a_fan() -> None:
    """All the parts in the middle start when the source is done, and nobody waits for a neighbour."""
    written = write_argo(fan(1000), bundle=b"")
    main = templates_of(written.documents)["", "main"]
    waits = {task["name"]: task.get("depends", "") for task in main["dag"]["tasks"]}
    middle = [name for name, text in waits.items() if text == "source"]
    assert len(middle) == 5 and set(waits) == {"source", "sink", *middle}
    assert set(waits["sink"].split(" && ")) == set(middle)


def test_one_template_for_all_who_do_the_same() -> None:
    written = write_argo(chain(1000), bundle=b"")
    leaves = [one for one in written.documents[-1]["spec"]["templates"] if "script" in one]
    assert [one["name"] for one in leaves] == ["loads", "loads-2"]  # the first step is given nothing


def test_commands_that_differ_in_a_word_share_a_template() -> None:
    steps = tuple(
        Step(
            name=f"w{i}",
            action=Container(image="busybox", command=("sh", "-c", f"echo {i}"), args=(f"{i}",), env={"N": f"${i}$$"}),
        )
        for i in range(150)
    )
    script = tuple(Step(name=f"s{i}", action=Script(source=f"echo {i}", image="busybox")) for i in range(40))
    written = write_argo(Workflow(name="many", steps=(*steps, *script)))
    check_limits(written.documents)
    check_references(written.documents)
    leaves = [one for one in written.documents[-1]["spec"]["templates"] if "dag" not in one]
    assert len(leaves) == 2
    given_ = {
        one["name"]: one["value"]
        for one in written.documents[-1]["spec"]["templates"][0]["dag"]["tasks"][7]["arguments"]["parameters"]
    }
    assert given_ == {"word-2": "echo 7", "arg-0": "7", "env-N": "$7$$$$"}
    assert leaves[0]["container"]["command"] == ["sh", "-c", "{{inputs.parameters.word-2}}"]


@pytest.mark.long
@pytest.mark.parametrize("make", [fan, chain, layered])
def test_ten_thousand_steps_are_several_documents(make: Any) -> None:
    workflow = make(10_000)
    with within(6):
        written = write_argo(workflow, bundle=b"")
        text = dump_all(written.documents)
    kinds = [one["kind"] for one in written.documents]
    assert kinds[-1] == "Workflow" and "WorkflowTemplate" in kinds and len(text) > 10**6
    compare(workflow, written.documents)


def test_a_thousand_steps_are_quick() -> None:
    workflow = layered(1000)
    with within(0.5):
        dump_all(write_argo(workflow, bundle=b"").documents)


# -- small dags, so that there are many of them ------------------------------------------------------------------------


Ups = list[tuple[list[int], list[int]]]
"""For each step: the steps it reads, and those that it only waits for."""


@st.composite
def graphs(draw: st.DrawFn) -> Ups:
    found: Ups = []
    for i in range(draw(st.integers(2, 60))):
        near = max(0, i - draw(st.integers(1, 12)))
        reads = draw(st.lists(st.integers(near, i - 1), max_size=3, unique=True)) if i else []
        found.append((reads, draw(st.lists(st.integers(0, i - 1), max_size=1)) if i else []))
    return found


def built(graph: Ups, asks: dict[int, tuple[int, frozenset[Outcome]]] | None = None) -> Workflow:
    steps = []
    for i, (reads, waits) in enumerate(graph):
        needs = [Edge(f"w{up}") for up in waits]
        if asks and i in asks and asks[i][0] not in (*reads, *waits):
            needs.append(Edge(f"w{asks[i][0]}", asks[i][1]))
        steps.append(step(f"w{i}", [f"w{up}" for up in reads], needs=tuple(needs)))
    return Workflow(name="g", steps=tuple(steps))


def written_small(workflow: Workflow, tasks: int, inputs: int = 450) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (split, dag):
            patch.setattr(module, "MOST_TASKS", tasks)
        patch.setattr(split, "MOST_INPUTS", inputs)
        return write_argo(workflow, bundle=b"").documents


@given(graphs(), st.integers(4, 12), st.integers(3, 8))
@settings(max_examples=150, deadline=None)
def test_any_graph_cut_into_small_dags(graph: Ups, tasks: int, each: int) -> None:
    workflow = built(graph)
    try:
        documents = written_small(workflow, tasks, tasks * each)
    except UserError as error:
        assert error.code == "P843" and each < 6
        return
    compare(workflow, documents, tasks)


@given(graphs(), st.integers(8, 12), st.data())
@settings(max_examples=100, deadline=None)
def test_steps_that_ask_how_others_ended(graph: Ups, tasks: int, data: st.DataObject) -> None:
    """They stay in one dag with them, or are refused with a reason; who goes on whatever happens waits for the whole part."""
    asks = {}
    kinds = st.sampled_from([frozenset({Outcome.FAILED}), ALL, NORMAL | {Outcome.FAILED}])
    for at in data.draw(st.lists(st.integers(1, len(graph) - 1), max_size=4, unique=True)):
        asks[at] = (data.draw(st.integers(0, at - 1)), data.draw(kinds))
    workflow = built(graph, asks)
    try:
        documents = written_small(workflow, tasks)
    except UserError as error:
        assert error.code == "P843"
        return
    compare(workflow, documents, tasks)
    homes = {
        task["name"]: task for one in templates_of(documents).values() for task in one.get("dag", {}).get("tasks", [])
    }
    for one in workflow.steps:
        for edge in one.needs:
            if edge.outcomes != NORMAL and not edge.outcomes >= ALL:
                assert f"{edge.step}.Failed" in homes[one.name]["depends"]


def test_definitions_are_cut_too_and_take_their_parameters_along() -> None:
    inner = tuple(
        Step(
            name=f"w{i}",
            action=CALL,
            inputs=(
                Input(name="k", value=Expr.of("params.k"), type=INT),
                *((Input(name="x", value=Expr.of(f"steps.w{i - 1}.outputs.y")),) if i else ()),
            ),
            outputs=(Output(name="y", type=INT),),
        )
        for i in range(300)
    )
    definition = Workflow(
        name="inner",
        params=(Parameter(name="k", type=INT),),
        steps=inner,
        outputs=(Output(name="r", value=Expr.of("steps.w299.outputs.y")),),
    )
    root = Workflow(
        name="outer",
        params=(Parameter(name="n", type=INT, default=1),),
        definitions=(definition,),
        steps=(Step(name="call", action=Nested(name="inner"), inputs=(Input(name="k", value=Expr.of("params.n")),)),),
        outputs=(Output(name="r", value=Expr.of("steps.call.outputs.r")),),
    )
    written = write_argo(root, bundle=b"")
    check_limits(written.documents)
    check_references(written.documents)
    known = templates_of(written.documents)
    part = known["", "inner-part-2"]
    assert [one["name"] for one in part["inputs"]["parameters"]] == ["k", "w199-y"]
    flat = flatten(written.documents)
    assert flat.given["w250"]["x"] == [("w249", "y")]


def test_large_values_are_cut_by_size() -> None:
    steps = tuple(Step(name=f"w{i}", action=CALL, inputs=(Input(name="x", value="v" * 20_000),)) for i in range(100))
    written = write_argo(Workflow(name="big", steps=steps), bundle=b"")
    check_limits(written.documents)
    check_references(written.documents)
    assert len(json.dumps(written.documents)) > 2_000_000 and len(written.documents) > 3


def test_what_cannot_be_cut_is_refused() -> None:
    huge = Step(name="w", action=CALL, inputs=(Input(name="x", value="v" * 2**20),))
    with pytest.raises(UserError, match="P843"):
        write_argo(Workflow(name="big", steps=(huge,)), bundle=b"")
    asking = tuple(
        step(f"w{i}", [], needs=(Edge(f"w{i - 1}", frozenset({Outcome.FAILED})),) if i else ()) for i in range(300)
    )
    with pytest.raises(UserError, match="P843 .*300 steps ask how one another ended"):
        write_argo(Workflow(name="asking", steps=asking), bundle=b"")


@pytest.mark.parametrize("make", [scattered, layered, fan])
def test_read_back_it_has_the_same_steps_and_edges(make: Any) -> None:
    workflow = make(120)
    text = dump_all(write_argo(workflow, bundle=b"").documents)
    found = library([("w.yaml", text)])
    back = registry.read(found, registry.root(found, None, "w.yaml")).workflow
    assert [one.name for one in back.steps] == [one.name for one in workflow.steps]
    for one, other in zip(workflow.steps, back.steps, strict=True):
        assert edges_of(other) == edges_of(one)
        assert {given_.name for given_ in one.inputs} <= {given_.name for given_ in other.inputs}
