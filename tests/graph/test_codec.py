"""Documents: nothing is lost on the way there and back, equal workflows have equal digests, mistakes are all named."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DocumentError, Problem
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.expressions.types import INT, STR, list_of
from penstock.graph import codec
from penstock.graph.callback import AnswerRule, Callback, CallbackRetry
from penstock.graph.codec import canonical, digest, from_data, from_text, to_data, to_json, to_yaml
from penstock.graph.model import (
    ACTIONS,
    Answer,
    Backoff,
    Cache,
    Container,
    Edge,
    Enough,
    EnoughTasks,
    ForEach,
    Function,
    Http,
    Input,
    Link,
    Lock,
    Mount,
    Nested,
    Outcome,
    Output,
    Parameter,
    Part,
    PayloadIdentity,
    Placement,
    Pod,
    Resource,
    Retry,
    Script,
    Step,
    Suspend,
    Toleration,
    Unit,
    While,
    Workflow,
)

from .strategies import ALL_CLASSES, anything, examples, plain, workflows

X, Y = Expr("params.x"), Expr("params.y == 1")

ONE: dict[type, Any] = {
    Container: Container(image="a", command=("b",), args=(X,), env={"K": "v"}, workdir="/w"),
    Script: Script(source="echo", command=("bash",), image="a", env={"K": "v"}, workdir="/w"),
    Function: Function(module="m", name="f", code="sha256:1", image="a", env={"K": "v"}),
    Resource: Resource(manifest={"kind": "Job"}, action="apply", success_condition=Y, failure_condition=Y),
    Suspend: Suspend(duration=5, until="2026-01-01T00:00:00Z", message="wait", payloads=("p",)),
    Http: Http(url="http://a", method="POST", headers={"h": "v"}, body={"a": 1}, success_condition=Y),
    Nested: Nested(name="inner"),
    Parameter: Parameter(name="x", type=INT, default=1, choices=(1, 2), doc="d"),
    Input: Input(name="i", value=1, type=INT, path="/in", default=2),
    Output: Output(name="o", type=INT, path="/out", value=1, default=2),
    Edge: Edge("a", frozenset({Outcome.FAILED})),
    EnoughTasks: EnoughTasks(when=Y, beyond=2),
    While: While(condition=Y, carry={"i": "o"}, max_iterations=5, test="before", at_limit="fail"),
    Backoff: Backoff(initial=2, factor=3, longest=4, jitter=0.5),
    Toleration: Toleration(key="k", operator="Exists", value="v", effect="NoSchedule", seconds=5),
    Cache: Cache(enabled=False, version="1", ttl=60, key=X),
    Lock: Lock(name="l", limit=2),
    Link: Link(workflow="inner", name="again", after=("other",), on=("failed",), when=Y, params={"x": X}),
    Answer: Answer(within=60, heartbeat=5, within_by=Y, heartbeat_by=Y, token_as=Y),
    Enough: Enough(steps=("a",), of="any"),
    PayloadIdentity: PayloadIdentity(param="p", include=(".a",), exclude=(".b",), version=2),
    Mount: Mount(name="m", path="/m", scope="run", sub_path="a", files={"f": "text"}, read_only=True),
    Part: Part(
        name="p",
        image="a",
        command=("b",),
        args=(X,),
        source="echo",
        env={"K": "v"},
        workdir="/w",
        needs=("o",),
        when=({"input": X, "operator": "in", "values": ("a",)},),
        on_error="continue",
        timeout=5,
        sidecar=True,
        results={"r": "/r"},
    ),
}
ONE[ForEach] = ForEach(axes=({"v": (1, 2)},), parallel=2, gang=True, at_once=Y, enough=ONE[EnoughTasks])
ONE[Pod] = Pod(parts=(ONE[Part],))
ONE[Retry] = Retry(
    limit=3, backoff=ONE[Backoff], on=("failed",), exit_codes=(1,), exceptions=("OSError",), when=Y, within=60
)
ONE[Placement] = Placement(node_selector={"a": "b"}, tolerations=(ONE[Toleration],), affinity={"nodeAffinity": {}})
ONE[Step] = Step(
    name="s",
    action=ONE[Container],
    inputs=(ONE[Input],),
    outputs=(ONE[Output],),
    needs=(ONE[Edge],),
    trigger=Y,
    when=Y,
    each=ONE[ForEach],
    loop=ONE[While],
    retry=ONE[Retry],
    timeout=60,
    timeout_by=Y,
    answer=ONE[Answer],
    resources={"cpu": 500, "memory": 2**30 * 1000},
    resources_by={"cpu": X},
    replicas=4,
    placement=ONE[Placement],
    queue="q",
    priority="high",
    group="g",
    exempt=True,
    tolerates=frozenset({Outcome.FAILED}),
    locks=(ONE[Lock],),
    mounts=(ONE[Mount],),
    cache=ONE[Cache],
    extra={"pod": {"a": X}},
    doc="d",
)
ONE[Workflow] = Workflow(
    name="w",
    params=(ONE[Parameter],),
    steps=(ONE[Step],),
    outputs=(ONE[Output],),
    on_exit=(ONE[Step],),
    queue="q",
    priority=7,
    unit=Unit.REUSE,
    parallel=3,
    timeout=90,
    fail_fast=True,
    judged_by="leaves",
    enough=ONE[Enough],
    payload=ONE[PayloadIdentity],
    locks=(ONE[Lock],),
    links=(ONE[Link],),
    callbacks=(
        Callback(
            name="tell",
            url=X,
            on=("failed",),
            items=X,
            filter=Y,
            method="PUT",
            headers={"A": X},
            body={"a": (X,)},
            secret=Expr("secrets.K"),
            answers=(AnswerRule(then="fatal", status=(404, "5xx"), when=Y),),
            retry=CallbackRetry(attempts=2, initial=1, factor=3, longest=9),
            timeout=3,
        ),
    ),
    extra={"argo": {"a": 1}},
    definitions=(Workflow(name="inner"),),
    labels={"a": "b"},
    doc="d",
)

TWO: dict[type, Any] = {
    Container: Container(image=X, command=("c", "b"), args=("x",), env={"K": X}, workdir="/v"),
    Script: Script(source=Template(("a", X)), command=("b",), image="b", env={"L": "v"}, workdir="/v"),
    Function: Function(module="n", name="g", code="sha256:2", image=X, env={}),
    Resource: Resource(manifest={"kind": "Pod"}, action="patch", success_condition=X, failure_condition=X),
    Suspend: Suspend(duration=5.5, until=X, message=X, payloads=X),
    Http: Http(url="http://b", method="PUT", headers={"h": X}, body={"a": 1.0}, success_condition=X),
    Nested: Nested(name="other"),
    Parameter: Parameter(name="y", type=STR, default=True, choices=(2, 1), doc="e"),
    Input: Input(name="j", value=1.0, type=list_of(INT), path="/in2", default=None),
    Output: Output(name="p", type=STR, path="/out2", value="1", default=None),
    Edge: Edge("b", frozenset({Outcome.FAILED, Outcome.SKIPPED})),
    EnoughTasks: EnoughTasks(when=X, beyond=X),
    While: While(condition=X, carry={"i": "q"}, max_iterations=6, test="after", at_limit="stop"),
    Backoff: Backoff(initial=3, factor=4.5, longest=5, jitter=0),
    Toleration: Toleration(key="l", operator="Equal", value="w", effect="NoExecute", seconds=6),
    Cache: Cache(enabled=True, version="2", ttl=61, key="k"),
    Enough: Enough(steps=("a", "b"), of="all"),
    PayloadIdentity: PayloadIdentity(param="q", include=(".a", ".c"), exclude=(), version=3),
    Lock: Lock(name=X, limit=3),
    Link: Link(workflow="w", name="more", after=("a", "b"), on=("succeeded", "invalid"), when=X, params={"y": (1, X)}),
    Answer: Answer(within=61, heartbeat=6.5, within_by=X, heartbeat_by=X, token_as=X),
    Mount: Mount(name="n", path="/n", scope="given", sub_path=X, files={"f": X}, read_only=False),
    Part: Part(
        name="q",
        image=X,
        command=("c",),
        args=(),
        source=Template(("a", X)),
        env={},
        workdir=X,
        needs=(),
        when=(),
        on_error="stop",
        timeout=5.5,
        sidecar=False,
        results={"r": "/s"},
    ),
}
TWO[ForEach] = ForEach(axes=({"v": (1,)}, {"u": X}), parallel=3, gang=False, at_once=X, enough=TWO[EnoughTasks])
TWO[Pod] = Pod(parts=(TWO[Part], ONE[Part]))
TWO[Retry] = Retry(limit=4, backoff=TWO[Backoff], on=("errored",), exit_codes=(2, 1), exceptions=(), when=X, within=61)
TWO[Placement] = Placement(node_selector={}, tolerations=(), affinity=None)
TWO[Step] = Step(
    name="t",
    action=ONE[Script],
    inputs=(),
    outputs=(TWO[Output],),
    needs=(),
    trigger=X,
    when=X,
    each=TWO[ForEach],
    loop=TWO[While],
    retry=None,
    timeout=0.5,
    timeout_by=X,
    answer=TWO[Answer],
    resources={"cpu": 501},
    resources_by={"cpu": "1"},
    replicas=5,
    placement=TWO[Placement],
    queue="r",
    priority=5,
    group="h",
    exempt=False,
    tolerates=frozenset(),
    locks=(),
    mounts=(TWO[Mount],),
    cache=Cache(),
    extra={},
    doc="e",
)
TWO[Workflow] = Workflow(
    name="v",
    params=(),
    steps=(TWO[Step],),
    outputs=(),
    on_exit=(),
    queue="r",
    priority="7",
    unit=None,
    parallel=4,
    timeout=91,
    fail_fast=False,
    judged_by="handled",
    enough=TWO[Enough],
    payload=TWO[PayloadIdentity],
    locks=(TWO[Lock],),
    links=(TWO[Link], ONE[Link]),
    callbacks=(Callback(name="other", url="https://example.org"),),
    extra={"argo": {"a": 1.0}},
    definitions=(),
    labels={"a": "c"},
    doc="e",
)


def host(thing: Any) -> tuple[Workflow, str]:
    """A workflow with this thing in it, and the path of its fields in the document."""
    base = Step(name="s", action=Suspend())

    def with_step(path: str, **fields: Any) -> tuple[Workflow, str]:
        return Workflow(name="w", steps=(dataclasses.replace(base, **fields),)), f"steps[0]{path}"

    match thing:
        case Workflow():
            return thing, ""
        case Step():
            return Workflow(name="w", steps=(thing,)), "steps[0]"
        case Parameter():
            return Workflow(name="w", params=(thing,)), "params[0]"
        case Link():
            return Workflow(name="w", links=(thing,)), "links[0]"
        case Edge():
            return with_step(".needs[0]", needs=(thing,))
        case Input():
            return with_step(".inputs[0]", inputs=(thing,))
        case Output():
            return with_step(".outputs[0]", outputs=(thing,))
        case EnoughTasks():
            return with_step(".each.enough", each=ForEach(axes=(), enough=thing))
        case ForEach():
            return with_step(".each", each=thing)
        case While():
            return with_step(".loop", loop=thing)
        case Retry():
            return with_step(".retry", retry=thing)
        case Backoff():
            return with_step(".retry.backoff", retry=Retry(limit=1, backoff=thing))
        case Placement():
            return with_step(".placement", placement=thing)
        case Toleration():
            return with_step(".placement.tolerations[0]", placement=Placement(tolerations=(thing,)))
        case Cache():
            return with_step(".cache", cache=thing)
        case Enough():
            return Workflow(name="w", steps=(base,), enough=thing), "enough"
        case PayloadIdentity():
            return Workflow(name="w", steps=(base,), payload=thing), "payload"
        case Lock():
            return with_step(".locks[0]", locks=(thing,))
        case Answer():
            return with_step(".answer", answer=thing)
        case Mount():
            return with_step(".mounts[0]", mounts=(thing,))
        case Part():
            return with_step(".pod.parts[0]", action=Pod(parts=(thing,)))
        case _:
            return with_step(f".{thing.kind}", action=thing)


def inside(document: Any, path: str) -> Any:
    """The part of a document at a path such as `steps[0].retry`."""
    for part in path.replace("[", ".[").strip(".").split(".") if path else ():
        document = document[int(part[1:-1])] if part[0] == "[" else document[part]
    return document


def below(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def fields_of(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls) if f.name != "source" or cls not in (Step, Workflow)]


EVERY_FIELD = [(cls, name) for cls in ALL_CLASSES for name in fields_of(cls)]
WRITTEN_FIELDS = [(cls, name) for cls, name in EVERY_FIELD if (cls, name) != (Step, "action")]


def problems_of(document: Any) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as caught:
        from_data(document)
    return caught.value.problems


# -- there and back ---------------------------------------------------------------------------------------------------


@examples(150)
@given(workflows)
def test_a_workflow_written_and_read_is_the_same_workflow(workflow: Workflow) -> None:
    for text in (to_json(workflow), to_yaml(workflow)):
        again = from_text(text)
        assert again == workflow
        assert digest(again) == digest(workflow)
        assert to_json(again) == to_json(workflow), "1, 1.0 and true are equal in Python and not here"


@pytest.mark.parametrize("cls", ALL_CLASSES)
@pytest.mark.parametrize("sample", [ONE, TWO])
def test_each_part_of_the_model_survives(cls: type, sample: dict[type, Any]) -> None:
    workflow, _ = host(sample[cls])
    assert from_text(to_json(workflow)) == from_text(to_yaml(workflow)) == workflow


def test_the_samples_cover_the_whole_model() -> None:
    from penstock.graph import model

    classes = {
        thing
        for thing in vars(model).values()
        if dataclasses.is_dataclass(thing) and thing.__module__ in (model.__name__, PayloadIdentity.__module__)
    }
    assert classes == set(ALL_CLASSES)
    for cls in classes:
        assert [name for name in fields_of(cls) if getattr(ONE[cls], name) == getattr(TWO[cls], name)] in (
            [],
            ["value"],
            ["body"],
            ["default"],
            ["extra"],
        )


@pytest.mark.parametrize(
    "action",
    [Container(image=None), Script(source=None), Resource(manifest=None), Http(url=None)],
)
def test_null_is_a_value_and_not_an_absence(action: Any) -> None:
    workflow = Workflow(
        name="w",
        params=(Parameter(name="p", default=None),),
        steps=(
            Step(
                name="s",
                action=action,
                inputs=(Input(name="i", value=None),),
                outputs=(Output(name="o", value=None, default=None),),
            ),
        ),
    )
    assert from_text(to_json(workflow)) == from_text(to_yaml(workflow)) == workflow


@pytest.mark.parametrize("text", ['params.x == "${{"', '"${{ a }}" == params.x', "params.x == '$${{ }}'", '"}}${{"'])
def test_a_condition_may_speak_of_braces(text: str) -> None:
    workflow = Workflow(name="w", steps=(Step(name="s", action=Suspend(), when=Expr.of(text)),))
    assert from_text(to_json(workflow)) == from_text(to_yaml(workflow)) == workflow


def test_a_condition_may_be_written_in_braces_or_as_a_plain_truth() -> None:
    for written, meant in (
        ("${{ params.x }}", "params.x"),
        (" params.x ", "params.x"),
        (True, "true"),
        (False, "false"),
    ):
        document = {**to_data(Workflow(name="w")), "steps": [{"name": "s", "suspend": {}, "when": written}]}
        assert from_data(document).steps[0].when == Expr(meant)


def test_long_lists_and_deep_values_survive() -> None:
    deep: Any = 1
    for i in range(90):
        deep = (deep,) if i % 2 else {"k": deep}
    long = tuple(range(5000))
    mixed = (*range(2000), 1.5, "a", None)
    step = Step(
        name="s",
        action=Suspend(),
        inputs=tuple(Input(name=n, value=v) for n, v in (("a", deep), ("b", long), ("c", mixed))),
    )
    workflow = Workflow(name="w", steps=(step,))
    assert from_text(to_json(workflow)) == from_text(to_yaml(workflow)) == workflow


# -- digests ----------------------------------------------------------------------------------------------------------

GOLDEN = """\
apiVersion: penstock/v1
kind: Workflow
name: finetune
queue: team-a
unit: stage
labels: {owner: ml}
params:
  - {name: source, type: str}
  - {name: lrs, type: "list[float]", default: [0.1, 0.01], doc: learning rates}
steps:
  - name: prepare
    container:
      image: python:3.12
      command: [python, prep.py]
      args: ["--from", "${{ params.source }}", "at ${{ params.source }}!"]
    outputs: [{name: rows, type: int}]
    retry: {limit: 3, backoff: {initial: 5}, on: [failed, timeout]}
    timeout: 600
    resources: {cpu: 2, memory: 4Gi}
  - name: train
    container: {image: "trainer:1", env: {LR: "${{ item.lr }}"}}
    each: {axes: [{lr: "${{ params.lrs }}"}], parallel: 4}
    when: steps.prepare.outputs.rows > 1000
    resources: {nvidia.com/gpu: 8}
    replicas: 4
    placement: {node_selector: {pool: gpu}, tolerations: [{key: gpu, operator: Exists}]}
  - name: report
    http: {url: "https://example.org/done", method: POST, body: {ok: true, score: 1.5, note: null}}
    needs: [train, {step: prepare, outcomes: [failed, succeeded]}]
on_exit:
  - name: tidy
    script: {source: "rm -rf /tmp/x\\n", command: [bash]}
outputs:
  - {name: rows, value: "${{ steps.prepare.outputs.rows }}"}
"""


def test_the_digest_of_a_known_workflow() -> None:
    """Digests are kept in stores and caches: a new one for the same workflow makes everybody's finished work worthless.

    This value may change only together with codec.VERSION, on purpose and with a note to users. A field that is added to the
    model with a default does not change it; if it has changed, something in the written form has."""
    assert digest(from_text(GOLDEN)) == "sha256:3dfe7a193233a4980ea8d1541f40389b367936493a674ec677240b2f7e83477a"


def test_the_canonical_text_of_a_small_workflow() -> None:
    workflow = Workflow(
        name="w", steps=(Step(name="é", action=Suspend(duration=5.0), resources={"cpu": 1500, "memory": 2**30 * 1000}),)
    )
    assert to_json(workflow) == (
        '{"apiVersion":"penstock/v1","kind":"Workflow","name":"w","steps":[{"name":"é","resources":{"cpu":"1500m","memory":"1Gi"},"suspend":{"duration":5}}]}'
    )


def test_every_process_finds_the_same_digest() -> None:
    code = "import sys; from penstock.graph.codec import *; w = from_text(sys.stdin.read()); print(digest(w)); print(to_yaml(w))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=to_json(ONE[Workflow]),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(found) == 1
    assert digest(ONE[Workflow]) in found.pop()


def turned(value: Any) -> Any:
    """The same with every mapping in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(item) for key, item in reversed(value.items())}
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Expr | Template):
        return dataclasses.replace(value, **{name: turned(getattr(value, name)) for name in fields_of(type(value))})
    return tuple(map(turned, value)) if isinstance(value, tuple) else value


@examples(50)
@given(workflows)
def test_the_order_of_mappings_does_not_matter(workflow: Workflow) -> None:
    assert digest(turned(workflow)) == digest(workflow)
    assert digest(from_data(turned(to_data(workflow)))) == digest(workflow)


@pytest.mark.parametrize("cls, name", EVERY_FIELD)
def test_every_field_counts(cls: type, name: str) -> None:
    one, _ = host(ONE[cls])
    other, _ = host(dataclasses.replace(ONE[cls], **{name: getattr(TWO[cls], name)}))
    assert digest(one) != digest(other)


@examples(30)
@given(workflows, workflows)
def test_different_workflows_have_different_digests(one: Workflow, other: Workflow) -> None:
    if one != other:
        assert digest(one) != digest(other)


def test_where_a_thing_was_written_does_not_count() -> None:
    from_yaml = from_text(to_yaml(ONE[Workflow]), "w.yaml")
    assert from_yaml.steps[0].source is not None
    assert digest(from_yaml) == digest(ONE[Workflow])


@pytest.mark.parametrize(
    "one, other",
    [
        (Suspend(duration=600), Suspend(duration=600.0)),
        (
            Retry(limit=1, backoff=Backoff(initial=1, factor=3)),
            Retry(limit=1, backoff=Backoff(initial=1.0, factor=3.0)),
        ),
        (Retry(limit=1, backoff=Backoff(initial=1, factor=2, longest=300)), Retry(limit=1)),
        (Backoff(jitter=0.0), Backoff(jitter=-0.0)),
        (Cache(ttl=60), Cache(ttl=60.0)),
    ],
)
def test_a_number_of_seconds_has_one_digest_however_it_is_written(one: Any, other: Any) -> None:
    assert one == other
    assert digest(host(one)[0]) == digest(host(other)[0])


def test_defaults_written_out_change_nothing() -> None:
    short = {**to_data(Workflow(name="w")), "steps": [{"name": "s", "suspend": {}, "retry": {"limit": 1}}]}
    long = copy.deepcopy(short)
    long["steps"][0]["retry"] |= {
        "backoff": {"initial": 1, "factor": 2, "longest": 300, "jitter": 0.1},
        "on": ["failed", "errored", "timeout"],
    }
    long["steps"][0] |= {
        "replicas": 1,
        "cache": {"enabled": True},
        "when": None,
        "needs": [],
        "doc": "",
        "suspend": {"message": ""},
    }
    long |= {"unit": None, "fail_fast": False, "labels": {}, "params": []}
    assert from_data(long) == from_data(short)
    assert digest(from_data(long)) == digest(from_data(short))


def test_quantities_have_one_spelling() -> None:
    def spelled(cpu: Any, memory: Any) -> str:
        return digest(
            from_data(
                {
                    **to_data(Workflow(name="w")),
                    "steps": [{"name": "s", "suspend": {}, "resources": {"cpu": cpu, "memory": memory}}],
                }
            )
        )

    assert spelled(1.5, "4Gi") == spelled("1500m", "4096Mi") == spelled("1.5", 2**32)


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL_CLASSES)
def test_an_unknown_field_is_named_with_its_path_and_the_nearest_name(cls: type) -> None:
    workflow, path = host(ONE[cls])
    document = to_data(workflow)
    known = next(name for name in fields_of(cls) if len(name) > 3)
    inside(document, path)[known + "s"] = 1
    (problem,) = problems_of(document)
    assert problem.code == "P103"
    assert problem.where == below(path, known + "s")
    assert f'Did you mean "{known}"?' in problem.fix
    assert all(name in problem.fix for name in fields_of(cls) if name != "action")


@pytest.mark.parametrize("kind", ACTIONS)
def test_a_misspelled_action_is_recognized(kind: str) -> None:
    document = {**to_data(Workflow(name="w")), "steps": [{"name": "s", kind + "x": {}}]}
    unknown, none = problems_of(document)
    assert (unknown.code, unknown.where) == ("P103", f"steps[0].{kind}x")
    assert f'Did you mean "{kind}"?' in unknown.fix
    assert (none.code, none.where) == ("P107", "steps[0]")


REQUIRED = [(cls, name) for cls, name in WRITTEN_FIELDS if name in codec._required(cls)]


@pytest.mark.parametrize("cls, name", REQUIRED)
def test_a_missing_field_is_named(cls: type, name: str) -> None:
    workflow, path = host(ONE[cls])
    document = to_data(workflow)
    del inside(document, path)[name]
    assert [(p.code, p.where) for p in problems_of(document)] == [("P106", path)]


WRONG: list[Any] = [
    None,
    True,
    5,
    1.5,
    "text",
    [],
    {},
    [1],
    {"a": 1},
    [[]],
    [{}],
    {"a": []},
    10**400,
    1e999,
    float("nan"),
    -1,
    "${{",
    "${{ a + }}",
    [None],
    {1: 2},
]


@pytest.mark.parametrize("cls, name", WRITTEN_FIELDS)
def test_a_field_of_the_wrong_kind_is_a_problem_at_that_field(cls: type, name: str) -> None:
    workflow, path = host(ONE[cls])
    refused = 0
    for wrong in WRONG:
        document = to_data(workflow)
        inside(document, path)[name] = wrong
        try:
            read = from_data(document)
        except DocumentError as error:
            refused += 1
            assert all(problem.where.startswith(below(path, name)) for problem in error.problems), f"{wrong!r}: {error}"
            assert all(problem.fix and problem.message and problem.code for problem in error.problems)
        else:
            assert from_text(to_json(read)) == read
    assert refused > 0


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("wrong", [None, True, 5, "text", [], [1]])
def test_an_action_of_the_wrong_kind_is_one_problem(kind: str, wrong: Any) -> None:
    document = {**to_data(Workflow(name="w")), "steps": [{"name": "s", kind: wrong}]}
    assert [(p.code, p.where) for p in problems_of(document)] == [("P105", f"steps[0].{kind}")]


def test_every_mistake_is_named_at_once() -> None:
    document = to_data(ONE[Workflow])
    document["colour"] = "red"
    document["steps"][0]["replicas"] = "4"
    document["steps"][0]["when"] = "a and b"
    document["steps"][0]["resources"] = {"cpu": "4GB"}
    document["steps"][0]["script"] = {"source": ""}
    document["on_exit"][0]["needs"][0]["outcomes"] = ["succeded"]
    document["params"][0]["type"] = "integr"
    del document["outputs"][0]["name"]
    found = {(problem.code, problem.where) for problem in problems_of(document)}
    assert found == {
        ("P103", "colour"),
        ("P105", "steps[0].replicas"),
        ("P110", "steps[0].when"),
        ("P108", "steps[0].resources.cpu"),
        ("P107", "steps[0]"),
        ("P109", "on_exit[0].needs[0].outcomes[0]"),
        ("P109", "params[0].type"),
        ("P106", "outputs[0]"),
    }


@pytest.mark.parametrize(
    "document, code, words",
    [
        (None, "P105", "mapping"),
        ([], "P105", "mapping"),
        ("text", "P105", "mapping"),
        ({}, "P104", "apiVersion"),
        ({"apiVersion": "penstock/v2", "kind": "Workflow"}, "P104", "penstock/v2"),
        ({"apiVersion": "penstock/v1", "kind": "Job"}, "P104", "Job"),
        ({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}, "P104", "argoproj.io"),
        ({"apiVersion": [], "kind": {}}, "P104", "apiVersion"),
        ({"apiVersion": "penstock/v1", "kind": "Workflow"}, "P106", "name"),
    ],
)
def test_what_is_not_a_penstock_document_is_told_so(document: Any, code: str, words: str) -> None:
    (problem,) = problems_of(document)
    assert problem.code == code
    assert words in problem.message
    assert problem.fix


def test_a_place_in_an_expression_is_told() -> None:
    document = {
        **to_data(Workflow(name="w")),
        "steps": [{"name": "s", "suspend": {"message": "see ${{ params.x + }}"}}],
    }
    (problem,) = problems_of(document)
    assert (problem.code, problem.where) == ("P110", "steps[0].suspend.message")
    assert "at character 19" in problem.message


def test_what_is_told_stays_short() -> None:
    long = "x" * 1_000_000
    document = {
        **to_data(Workflow(name="w")),
        long: 1,
        "unit": long,
        "labels": {long: 5},
        "params": [{"name": "p", "type": long, "default": {long: "${{"}}],
    }
    document["steps"] = [{"name": "s", "suspend": {}, "when": f"'{long}'", "resources": {long: long}}]
    for problem in problems_of(document):
        assert len(problem.message) + len(problem.fix) + len(problem.where) < 5000


def test_a_workflow_with_thousands_of_mistakes_names_some() -> None:
    document = {**to_data(Workflow(name="w")), "steps": [{"nome": i} for i in range(5000)]}
    assert 10 < len(problems_of(document)) < 100


def test_a_number_that_has_no_place_in_a_document_is_refused_on_the_way_out() -> None:
    with pytest.raises(ValueError, match="no place"):
        to_json(
            Workflow(name="w", steps=(Step(name="s", action=Suspend(), inputs=(Input(name="i", value=float("nan")),)),))
        )


def test_data_nested_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    document = {
        **to_data(Workflow(name="w")),
        "steps": [{"name": "s", "suspend": {}, "inputs": [{"name": "i", "value": deep}]}],
    }
    assert problems_of(document)[0].code == "P101"
    nested = to_data(Workflow(name="w"))
    for _ in range(2000):
        nested = {"apiVersion": "penstock/v1", "kind": "Workflow", "name": "w", "definitions": [nested]}
    assert problems_of(nested)


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found = []
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, item in pairs:
        found += [(value, key), *spots(item)]
    return found


SEEDS = [to_data(ONE[Workflow]), to_data(from_text(GOLDEN)), *(to_data(host(ONE[cls])[0]) for cls in ALL_CLASSES)]


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    document = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        places = spots(document)
        container, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.integers(0, 3)):
            case 0:
                container[key] = draw(plain)
            case 1:
                del container[key]
            case 2:
                other, there = places[draw(st.integers(0, len(places) - 1))]
                container[key] = (
                    copy.deepcopy(other[there]) if isinstance(other, list) is False and there in other else None
                )
            case _:
                if isinstance(container, dict):
                    container[draw(anything)] = container[key]
        if not spots(document):
            break
    return document


@examples(400)
@given(damaged())
def test_a_damaged_document_is_read_or_refused_in_good_order(document: Any) -> None:
    try:
        workflow = from_text(json.dumps(document))
    except DocumentError as error:
        assert error.problems
        assert all(problem.code and problem.message and problem.fix for problem in error.problems)
    else:
        assert from_text(to_json(workflow)) == workflow
        assert from_text(to_yaml(workflow)) == workflow


# -- the text of a document, written piece by piece -------------------------------------------------------------------


@examples(150)
@given(workflows)
def test_the_text_is_that_of_the_plain_form(workflow: Workflow) -> None:
    assert to_json(workflow) == canonical(to_data(workflow))


@pytest.mark.parametrize("cls", ALL_CLASSES)
@pytest.mark.parametrize("sample", [ONE, TWO])
def test_the_text_of_each_part_is_that_of_its_plain_form(cls: type, sample: dict[type, Any]) -> None:
    workflow, _ = host(sample[cls])
    assert to_json(workflow) == canonical(to_data(workflow))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"inputs": ()},
        {"outputs": ()},
        {"action": Function(module="m", name='f"\n', code="sha256:1")},
        {"action": Function(module="m", name="f", code="sha256:1", env={"A": "b"})},
        {"action": Function(module="m", name="f", code="sha256:1", image="i")},
        {"inputs": (Input(name="x", value=Expr("params.é")),)},
        {"inputs": (Input(name="x", value=Expr("params.p"), path="/x"),)},
        {"inputs": (Input(name="x", value=Expr("params.p"), default=None),)},
        {"inputs": (Input(name="x", value="${{"), Input(name="y", value=(1, 1.5, "a")))},
        {"outputs": (Output(name="r", type=INT, value=Expr("1")),)},
        {"outputs": (Output(name="r", type=INT, default=3), Output(name="s", path="/s"))},
        {"resources": {"cpu": 1000}},
        {"extra": {"a": 1}},
        {"replicas": True},
        {"exempt": True},
        {"timeout": 60.0},
        {"doc": "what it is for"},
    ],
)
def test_the_text_of_a_function_step_is_that_of_its_plain_form(changed: dict[str, Any]) -> None:
    usual: dict[str, Any] = {
        "action": Function(module="m", name="f", code="sha256:1"),
        "inputs": (Input(name="x", value=Expr("steps.a.outputs.r"), type=INT),),
        "outputs": (Output(name="r", type=INT),),
    }
    steps = (Step(name="a", **usual), Step(name="b", **{**usual, **changed}))
    workflow = Workflow(name="w", steps=steps, on_exit=(steps[1],), definitions=(Workflow(name="d", steps=steps),))
    assert to_json(workflow) == canonical(to_data(workflow))
