"""What a good workflow satisfies: each mistake is found, alone and at its place, and good workflows are left in peace."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from penstock.errors import catalogue
from penstock.expressions.parse import Expr
from penstock.expressions.template import parse_template
from penstock.expressions.types import parse
from penstock.graph.check import check, check_arguments, errors
from penstock.graph.codec import from_text, to_json
from penstock.graph.model import (
    Backoff,
    Cache,
    Container,
    Edge,
    Enough,
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
    Pod,
    Resource,
    Retry,
    Script,
    Step,
    Suspend,
    While,
    Workflow,
)
from penstock.graph.quantity import LARGEST

from .strategies import examples, workflows

E = Expr.of
T = parse
RUN = Container(image="i")
EXPLAINED = catalogue().keys()


def step(name: str = "a", action: Any = RUN, **fields: Any) -> Step:
    return Step(name=name, action=action, **fields)


def flow(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="w", steps=steps, **fields)


def gives(name: str = "b", type_: str = "any", **fields: Any) -> Step:
    """A step with an output `x`."""
    return step(name, outputs=(Output(name="x", type=T(type_)),), **fields)


def takes(value: Any, type_: str = "any", **fields: Any) -> Step:
    """The step `a` with an input `i`."""
    return step(inputs=(Input(name="i", value=value, type=T(type_)),), **fields)


def says(value: str) -> Step:
    """The step `a` with an argument."""
    return step(action=Container(image="i", args=(parse_template(value),)))


def over(*axes: dict[str, Any], **fields: Any) -> ForEach:
    return ForEach(axes=axes, **fields)


def pod(*parts: Part, **fields: Any) -> Step:
    return step(action=Pod(parts=parts), **fields)


def part(name: str = "p", **fields: Any) -> Part:
    return Part(name=name, **{"image": "i", **fields})


INNER = Workflow(
    name="inner",
    params=(Parameter(name="p", type=T("int")),),
    steps=(gives(),),
    outputs=(Output(name="o", type=T("int"), value=1),),
)
CALL = step(action=Nested(name="inner"), inputs=(Input(name="p", value=1),))

NEXT = Workflow(name="next", steps=(Step(name="n", action=Suspend()),))


def linked(target: Workflow, *links: Link) -> Workflow:
    return flow(step(), links=links, definitions=(target,))


BAD: list[tuple[str, str, Workflow]] = [
    ("P106", "outputs.o", flow(step(), outputs=(Output(name="o"),))),
    ("P201", "steps.a.needs", flow(step(needs=(Edge("nope"),)))),
    ("P201", "steps.a.inputs.i", flow(takes(E("steps.nope.outputs.x")))),
    ("P201", "steps.a.container.args", flow(says("x ${{ steps.nope.outputs.x }}"))),
    ("P201", "steps.a.trigger", flow(step(trigger=E("steps.nope.outcome == 'failed'")))),
    ("P201", "outputs.o", flow(step(), outputs=(Output(name="o", value=E("steps.nope.outputs.x")),))),
    ("P202", "steps.a.inputs.i", flow(gives(), takes(E("steps.b.outputs.nope")))),
    ("P202", "steps.a.inputs.i", flow(gives(), takes(E("steps.b")))),
    ("P202", "steps.a.inputs.i", flow(gives(), takes(E("steps.b.result")))),
    ("P202", "steps.a.loop.carry", flow(takes(1, loop=While(condition=E("false"), carry={"i": "nope"})))),
    ("P203", "steps.a.inputs.i", flow(takes(E("params.nope")))),
    ("P203", "steps.a.inputs.i", flow(takes(({"k": E("params.nope")},), "list"))),
    ("P203", "steps.a.when", flow(step(when=E("params.nope > 1")))),
    ("P203", "steps.a.each.v", flow(step(each=over({"v": E("params.nope")})))),
    (
        "P203",
        "steps.a.inputs.p",
        flow(
            step(action=Nested(name="inner"), inputs=(Input(name="p", value=E("params.nope")),)), definitions=(INNER,)
        ),
    ),
    ("P204", "steps.a.inputs.i", flow(takes(E("item.v")))),
    ("P204", "steps.a.inputs.i", flow(takes(E("nope")))),
    ("P204", "steps.a.inputs.i", flow(gives(), takes(E("b")))),
    ("P204", "steps.a.inputs.i", flow(takes(E("inputs.i")))),
    ("P204", "steps.a.container.args", flow(says("${{ outputs.x }}"))),
    ("P204", "steps.a.container.args", flow(says("${{ workflow.outcome }}"))),
    (
        "P204",
        "steps.a.retry.when",
        flow(step(retry=Retry(limit=1, when=E("params.x"))), params=(Parameter(name="x", default=True),)),
    ),
    (
        "P204",
        "steps.a.resource.success_condition",
        flow(step(action=Resource(manifest={"a": 1}, success_condition=E("response.ok")))),
    ),
    ("P204", "steps.a.http.success_condition", flow(step(action=Http(url="u", success_condition=E("object.ok"))))),
    ("P204", "steps.a.loop.condition", flow(gives("a", loop=While(condition=E("outputs.x"), test="before")))),
    ("P205", "steps.a.inputs.i", flow(takes(E("item.nope"), each=over({"v": (1,)})))),
    ("P205", "steps.a.container.args", flow(says("${{ inputs.nope }}"))),
    ("P205", "steps.a.loop.condition", flow(gives("a", loop=While(condition=E("outputs.nope"))))),
    ("P205", "steps.a.loop.carry", flow(gives("a", loop=While(condition=E("false"), carry={"nope": "x"})))),
    ("P205", "steps.a.each.u", flow(step(each=over({"u": E("item.v")}, {"v": (1,)})))),
    ("P210", "steps.a", flow(step(), step())),
    ("P210", "params.x", flow(step(), params=(Parameter(name="x"), Parameter(name="x")))),
    ("P210", "steps.a.inputs.i", flow(step(inputs=(Input(name="i", value=1), Input(name="i", value=2))))),
    ("P210", "steps.a.outputs.x", flow(step(outputs=(Output(name="x"), Output(name="x"))))),
    ("P210", "steps.a.each.v", flow(step(each=over({"v": (1,)}, {"v": (2,)})))),
    ("P210", "definitions.inner", flow(CALL, definitions=(INNER, INNER))),
    ("P211", "name", replace(flow(step()), name="a b")),
    ("P211", "name", replace(flow(step()), name="")),
    ("P211", "steps.a.b", flow(step("a.b"))),
    ("P211", "steps.-a", flow(step("-a"))),
    ("P211", f"steps.{'a' * 129}", flow(step("a" * 129))),
    ("P211", "steps.é", flow(step("é"))),
    ("P211", "params.x y", flow(step(), params=(Parameter(name="x y"),))),
    ("P211", "steps.a.inputs.i.j", flow(step(inputs=(Input(name="i.j", value=1),)))),
    ("P211", "steps.a.outputs.-x", flow(step(outputs=(Output(name="-x"),)))),
    ("P211", "steps.a.each.v!", flow(step(each=over({"v!": (1,)})))),
    ("P211", "outputs.", flow(step(), outputs=(Output(name="", value=1),))),
    ("P212", "steps.a", flow(step(needs=(Edge("b"),)), step("b", needs=(Edge("a"),)))),
    ("P212", "steps.a", flow(step(needs=(Edge("a"),)))),
    (
        "P212",
        "steps.a",
        flow(
            gives("b", inputs=(Input(name="i", value=E("steps.a.outputs.y")),)),
            takes(E("steps.b.outputs.x"), outputs=(Output(name="y"),)),
        ),
    ),
    ("P212", "on_exit.a", flow(on_exit=(step(needs=(Edge("b"),)), step("b", needs=(Edge("a"),))))),
    (
        "P213",
        "definitions.inner",
        flow(
            step(action=Nested(name="inner")),
            definitions=(Workflow(name="inner", steps=(step(action=Nested(name="inner")),)),),
        ),
    ),
    ("P213", "definitions.inner", flow(CALL, definitions=(replace(INNER, definitions=(Workflow(name="deep"),)),))),
    ("P214", "steps.a.workflow", flow(step(action=Nested(name="nope")))),
    (
        "P215",
        "steps.a.inputs.q",
        flow(replace(CALL, inputs=(*CALL.inputs, Input(name="q", value=1))), definitions=(INNER,)),
    ),
    ("P215", "steps.a.inputs", flow(step(action=Nested(name="inner")), definitions=(INNER,))),
    ("P220", "params.x", flow(step(), params=(Parameter(name="x", type=T("int"), default="a"),))),
    ("P220", "params.x", flow(step(), params=(Parameter(name="x", type=T("int"), choices=(1, "a")),))),
    ("P220", "params.x", flow(step(), params=(Parameter(name="x", default=3, choices=(1, 2)),))),
    ("P220", "steps.a.inputs.i", flow(takes("a", "int"))),
    ("P220", "steps.a.inputs.i", flow(gives("b", "str"), takes(E("steps.b.outputs.x"), "int"))),
    ("P220", "steps.a.inputs.i", flow(gives("b", "str"), takes(E("steps.b.outputs.x + 1")))),
    ("P220", "steps.a.inputs.i", flow(gives("b", "str"), takes((1, E("steps.b.outputs.x + 1")), "list[int]"))),
    ("P220", "steps.a.inputs.i", flow(gives("b", "int", each=over({"v": (1,)})), takes(E("steps.b.outputs.x"), "int"))),
    (
        "P220",
        "steps.a.inputs.i",
        flow(takes(parse_template("a ${{ params.x }}"), "int"), params=(Parameter(name="x", default=1),)),
    ),
    ("P220", "steps.a.inputs.i", flow(takes(E("99999999999999999999")))),
    ("P220", "steps.a.when", flow(step(when=E("1 + 1")))),
    ("P220", "steps.a.trigger", flow(step("b"), step(trigger=E("steps.b.outcome")))),
    ("P220", "steps.a.retry.when", flow(step(retry=Retry(limit=1, when=E("attempt.number + 'a' == 1 && 5"))))),
    ("P220", "steps.a.loop.condition", flow(gives("a", "int", loop=While(condition=E("outputs.x"))))),
    (
        "P220",
        "steps.a.loop.carry",
        flow(
            replace(
                takes(1, "int"),
                outputs=(Output(name="x", type=T("str")),),
                loop=While(condition=E("false"), carry={"i": "x"}),
            )
        ),
    ),
    ("P220", "steps.a.outputs.x", flow(step(outputs=(Output(name="x", type=T("int"), default="a"),)))),
    (
        "P220",
        "steps.a.outputs.x",
        flow(step(action=Http(url="u"), outputs=(Output(name="x", type=T("int"), value="a"),))),
    ),
    (
        "P220",
        "steps.a.inputs.p",
        flow(step(action=Nested(name="inner"), inputs=(Input(name="p", value="a"),)), definitions=(INNER,)),
    ),
    (
        "P220",
        "steps.a.resource.failure_condition",
        flow(step(action=Resource(manifest={"a": 1}, failure_condition=E("'a'")))),
    ),
    (
        "P220",
        "outputs.o",
        flow(gives("b", "str"), outputs=(Output(name="o", type=T("int"), value=E("steps.b.outputs.x")),)),
    ),
    (
        "P221",
        "steps.a.when",
        flow(step(when=E("params.x > 5 && params.x < 3")), params=(Parameter(name="x", type=T("int")),)),
    ),
    (
        "P221",
        "steps.a.when",
        flow(step(when=E("params.x == 'blue'")), params=(Parameter(name="x", choices=("red", "green")),)),
    ),
    ("P221", "on_exit.a.when", flow(on_exit=(step(when=E("false")),))),
    ("P222", "steps.a.needs", flow(step("b"), step(needs=(Edge("b", frozenset()),)))),
    ("P222", "steps.a", flow(step("b"), step(needs=(Edge("b", frozenset({Outcome.SKIPPED})),)))),
    ("P222", "steps.a", flow(step(needs=(Edge("z"),)), on_exit=(step("z"),))),
    ("P222", "on_exit.a", flow(on_exit=(step("b"), step(needs=(Edge("b", frozenset({Outcome.OMITTED})),))))),
    ("P222", "definitions.inner", flow(step(), definitions=(INNER,))),
    ("P223", "steps.a.loop", flow(step(each=over({"v": (1,)}), loop=While(condition=E("false"))))),
    ("P223", "steps.a.each", flow(step(each=over()))),
    ("P223", "steps.a.each", flow(step(each=over({})))),
    ("P223", "steps.a.each", flow(step(each=over({"v": (1, 2), "u": (1,)})))),
    ("P223", "steps.a.each.v", flow(step(each=over({"v": "abc"})))),
    ("P223", "steps.a.each.v", flow(step(each=over({"v": 5})))),
    ("P223", "steps.a.each.v", flow(gives("b", "int"), step(each=over({"v": E("steps.b.outputs.x")})))),
    (
        "P224",
        "steps.a.inputs.i",
        flow(
            gives("b", when=E("params.x")), takes(E("steps.b.outputs.x")), params=(Parameter(name="x", type=T("bool")),)
        ),
    ),
    ("P230", "steps.a.resources.cpu", flow(step(resources={"cpu": -1}))),
    ("P230", "steps.a.resources.memory", flow(step(resources={"memory": LARGEST + 1}))),
    ("P231", "steps.a.replicas", flow(step(replicas=0))),
    ("P231", "steps.a.replicas", flow(step(replicas=10**8))),
    ("P231", "steps.a.timeout", flow(step(timeout=0))),
    ("P231", "steps.a.timeout", flow(step(timeout=float("nan")))),
    ("P231", "steps.a.retry.limit", flow(step(retry=Retry(limit=-1)))),
    ("P231", "steps.a.retry.backoff", flow(step(retry=Retry(limit=1, backoff=Backoff(factor=0.5))))),
    ("P231", "steps.a.retry.backoff", flow(step(retry=Retry(limit=1, backoff=Backoff(jitter=2))))),
    ("P231", "steps.a.loop.max_iterations", flow(step(loop=While(condition=E("false"), max_iterations=0)))),
    ("P231", "steps.a.each.parallel", flow(step(each=over({"v": (1,)}, parallel=0)))),
    ("P231", "steps.a.suspend.duration", flow(step(action=Suspend(duration=-5)))),
    ("P231", "parallel", flow(step(), parallel=0)),
    ("P231", "timeout", flow(step(), timeout=-1)),
    ("P225", "steps.a.group", flow(step("b", group="g"), step(needs=(Edge("b"),), group="g"))),
    ("P223", "steps.a.each", flow(step(each=ForEach(axes=({"v": (1, 2)},), gang=True, parallel=2)))),
    ("P230", "steps.a.resources.nvidia.com/gpu", flow(step(resources={"nvidia.com/gpu": 500}))),
    ("P230", "steps.a.resources.memory", flow(step(resources={"memory": 4000}))),
    ("P232", "steps.a.resources.-gpu", flow(step(resources={"-gpu": 1000}))),
    ("P232", "steps.a.resources.memry", flow(step(resources={"memry": 1000}))),
    ("P232", "steps.a.resources.gpu", flow(step(resources={"gpu": 1000}))),
    ("P232", "steps.a.resources.Nvidia.com/gpu", flow(step(resources={"Nvidia.com/gpu": 1000}))),
    ("P233", "steps.a.retry.on", flow(step(retry=Retry(limit=1, on=("fail",))))),
    ("P233", "steps.a.loop.test", flow(step(loop=While(condition=E("false"), test="during")))),
    ("P233", "steps.a.loop.at_limit", flow(step(loop=While(condition=E("false"), at_limit="explode")))),
    ("P233", "steps.a.resource.action", flow(step(action=Resource(manifest={"a": 1}, action="creat")))),
    ("P233", "steps.a.resource.manifest", flow(step(action=Resource(manifest={})))),
    ("P233", "steps.a.http.url", flow(step(action=Http(url="")))),
    ("P233", "steps.a.container.image", flow(step(action=Container(image="")))),
    ("P233", "steps.a.container.image", flow(step(action=Container(image=5)))),
    ("P233", "steps.a.script.source", flow(step(action=Script(source=None)))),
    ("P233", "steps.a.function", flow(step(action=Function(module="m", name="")))),
    ("P284", "steps.a.when", flow(step(when=E('secrets.TOKEN == "x"')))),
    ("P284", "steps.a.http.url", flow(step(action=Http(url=E("secrets.TOKEN"))))),
    ("P284", "steps.a.inputs.i", flow(takes(E("secrets.TOKEN.more")))),
    ("P233", "judged_by", flow(step(), judged_by="roots")),
    ("P233", "enough.of", flow(step("a"), enough=Enough(steps=("a",), of="most"))),
    ("P201", "enough.steps", flow(step("a"), enough=Enough(steps=("b",)))),
    ("P106", "enough.steps", flow(step("a"), enough=Enough(steps=()))),
    ("P540", "links.nope", flow(step(), links=(Link(workflow="nope"),))),
    (
        "P540",
        "definitions.next.links.nope",
        linked(replace(NEXT, links=(Link(workflow="nope"),)), Link(workflow="next")),
    ),
    ("P543", "links.-.", linked(NEXT, Link(workflow="next", name="-."))),
    ("P543", "links.next", linked(NEXT, Link(workflow="next"), Link(workflow="next"))),
    ("P543", "links.next.after", linked(NEXT, Link(workflow="next", after=("nope",)))),
    ("P543", "links", linked(NEXT, Link(workflow="next", name="x", after=("x",)))),
    ("P543", "links.next.on", linked(NEXT, Link(workflow="next", on=()))),
    ("P543", "links.next.on", linked(NEXT, Link(workflow="next", on=("done",)))),
    ("P544", "links.next.when", linked(NEXT, Link(workflow="next", when=Expr("outputs.nope > 1")))),
    ("P544", "links.next.when", linked(NEXT, Link(workflow="next", when=Expr("secrets.TOKEN == 'x'")))),
    ("P544", "links.next.params.nope", linked(NEXT, Link(workflow="next", params={"nope": 1}))),
    ("P544", "links.next.params", linked(replace(NEXT, params=(Parameter(name="k"),)), Link(workflow="next"))),
    ("P510", "payload.param", flow(step(), payload=PayloadIdentity(param="nope"))),
    (
        "P510",
        "payload.version",
        flow(step(), params=(Parameter(name="p"),), payload=PayloadIdentity(param="p", version=-1)),
    ),
    (
        "P511",
        "payload.include[1]",
        flow(step(), params=(Parameter(name="p"),), payload=PayloadIdentity(param="p", include=(".a", "features[]"))),
    ),
    (
        "P511",
        "payload.exclude[0]",
        flow(step(), params=(Parameter(name="p"),), payload=PayloadIdentity(param="p", exclude=(".a[0]",))),
    ),
    (
        "P511",
        "payload.exclude[0]",
        flow(
            step(), params=(Parameter(name="p"),), payload=PayloadIdentity(param="p", include=(".a",), exclude=(".a?",))
        ),
    ),
    ("P231", "locks[0].limit", flow(step(), locks=(Lock(name="l", limit=0),))),
    ("P203", "locks[1].name", flow(step(), locks=(Lock(name="l"), Lock(name=E("params.nope"))))),
    ("P204", "locks[0].name", flow(gives(), locks=(Lock(name=E("steps.b.outputs.x")),))),
    ("P233", "locks[0].name", flow(step(), locks=(Lock(name=""),))),
    ("P231", "steps.a.locks[0].limit", flow(step(locks=(Lock(name="l", limit=-1),)))),
    ("P205", "steps.a.locks[0].name", flow(step(locks=(Lock(name=parse_template("l-${{ inputs.i }}")),)))),
    ("P233", "steps.a.locks[0].name", flow(step(locks=(Lock(name=5),)))),
    ("P205", "steps.a.cache.key", flow(step(cache=Cache(key=E("inputs.nope"))))),
    (
        "P204",
        "steps.a.outputs.x",
        flow(step(action=Http(url="u"), outputs=(Output(name="x", value=E("attempt.number")),))),
    ),
    ("P204", "steps.a.cache.key", flow(step(cache=Cache(key=E("attempt.number"))))),
    ("P233", "steps.a.cache.key", flow(step(cache=Cache(enabled=False, key="k")))),
    ("P231", "steps.a.retry.within", flow(step(retry=Retry(limit=1, within=0)))),
    ("P204", "steps.a.retry.when", flow(step(retry=Retry(limit=1, when=E("attempt.code == 1"))))),
    ("P204", "steps.a.container.args", flow(says("${{ run.name }}"))),
    ("P220", "steps.a.inputs.i.default", flow(step(inputs=(Input(name="i", value=1, type=T("int"), default="a"),)))),
    (
        "P204",
        "steps.a.inputs.i.default",
        flow(gives(), step(inputs=(Input(name="i", value=1, default=E("steps.b.outputs.x")),))),
    ),
    ("P211", "steps.a.mounts.m m", flow(step(mounts=(Mount(name="m m", path="/m"),)))),
    ("P233", "steps.a.mounts.m.path", flow(step(mounts=(Mount(name="m", path="m"),)))),
    ("P233", "steps.a.mounts.m.path", flow(step(mounts=(Mount(name="m", path="/m/../etc"),)))),
    ("P233", "steps.a.mounts.m.scope", flow(step(mounts=(Mount(name="m", path="/m", scope="world"),)))),
    (
        "P233",
        "steps.a.mounts.m.files",
        flow(step(mounts=(Mount(name="m", path="/m", scope="given", files={"../f": ""}),))),
    ),
    ("P203", "steps.a.mounts.m", flow(step(mounts=(Mount(name="m", path="/m", sub_path=E("params.nope")),)))),
    ("P205", "steps.a.mounts.m", flow(step(mounts=(Mount(name="m", path="/m", files={"f": E("inputs.nope")}),)))),
    ("P233", "steps.a.pod.parts", flow(pod())),
    ("P210", "steps.a.pod.parts.p", flow(pod(part(), part()))),
    ("P211", "steps.a.pod.parts.p p", flow(pod(part("p p")))),
    ("P233", "steps.a.pod.parts.p", flow(pod(Part(name="p")))),
    ("P233", "steps.a.pod.parts.p.on_error", flow(pod(part(on_error="explode")))),
    ("P231", "steps.a.pod.parts.p.timeout", flow(pod(part(timeout=-1)))),
    ("P233", "steps.a.pod.parts.p.needs", flow(pod(part(needs=("nope",))))),
    ("P222", "steps.a.pod.parts.p.needs", flow(pod(part("s", sidecar=True), part(needs=("s",))))),
    ("P212", "steps.a.pod.parts", flow(pod(part("p", needs=("q",)), part("q", needs=("p",))))),
    ("P212", "steps.a.pod.parts", flow(pod(part("p", needs=("q",)), part("q")))),
    ("P233", "steps.a.pod.parts.p.when", flow(pod(part(when=({"input": "a", "values": ("a",)},))))),
    ("P233", "steps.a.pod.parts.p.when", flow(pod(part(when=({"input": "a", "operator": "is", "values": ("a",)},))))),
    ("P205", "steps.a.pod.parts", flow(pod(part(env={"K": E("inputs.nope")})))),
]
WARNINGS = ("P224", "P222", "P230")


@pytest.mark.parametrize(
    "code, where, workflow", BAD, ids=[f"{code} {where[:40]} {i}" for i, (code, where, _) in enumerate(BAD)]
)
def test_one_mistake_is_one_problem_at_its_place(code: str, where: str, workflow: Workflow) -> None:
    (problem,) = check(workflow)
    assert (problem.code, problem.where) == (code, where)
    assert problem.fix
    assert problem.message
    assert problem.severity == "error" or code in WARNINGS
    assert errors(workflow) == ([] if problem.severity == "warning" else [problem])


def test_every_code_has_a_case_and_an_explanation() -> None:
    folder = Path(inspect.getfile(check)).parent
    used = {code for one in folder.glob("*.py") for code in re.findall(r'"(P(?:1\d|2\d|51|54)\d)"', one.read_text())}
    assert used == {code for code, _, _ in BAD}
    assert used <= EXPLAINED


@pytest.mark.parametrize("code, where, workflow", BAD[::7], ids=[f"{code} {where[:40]}" for code, where, _ in BAD[::7]])
def test_a_mistake_inside_a_definition_has_the_definition_in_its_path(
    code: str, where: str, workflow: Workflow
) -> None:
    if workflow.definitions:
        return
    inner = replace(workflow, name=workflow.name if where == "name" else "inner")
    outer = flow(
        step(
            "call",
            Nested(name=inner.name),
            inputs=tuple(Input(name=p.name, value=E("params.y")) for p in inner.params if p.name == "x"),
        )
    )
    outer = replace(outer, definitions=(inner,), params=(Parameter(name="y"),))
    assert (code, f"definitions.{inner.name}.{where}") in [(problem.code, problem.where) for problem in check(outer)]


def test_six_mistakes_are_six_problems_in_one_round() -> None:
    workflow = flow(
        gives("b", "str", replicas=0),
        takes(E("steps.b.outputs.y"), when=E("params.n > 5 && params.n < 3")),
        step("c", Resource(manifest={"kind": "Job"}, action="creat"), needs=(Edge("bb"),)),
        params=(Parameter(name="n", type=T("int"), default=0.5),),
    )
    assert [(problem.code, problem.where) for problem in check(workflow)] == [
        ("P220", "params.n"),
        ("P231", "steps.b.replicas"),
        ("P202", "steps.a.inputs.i"),
        ("P221", "steps.a.when"),
        ("P201", "steps.c.needs"),
        ("P233", "steps.c.resource.action"),
    ]


@pytest.mark.parametrize(
    "code, workflow, hint",
    [
        ("P201", flow(step("train"), step(needs=(Edge("trian"),))), '"train"'),
        (
            "P202",
            flow(
                gives("b"),
                step(outputs=(Output(name="rows"),)),
                step("c", inputs=(Input(name="i", value=E("steps.a.outputs.row")),)),
            ),
            '"rows"',
        ),
        ("P203", flow(takes(E("params.rat")), params=(Parameter(name="rate"),)), '"rate"'),
        ("P204", flow(takes(E("rate")), params=(Parameter(name="rate"),)), "params.rate"),
        ("P204", flow(gives("b"), takes(E("b"))), "steps.NAME.outputs.OUTPUT"),
        ("P204", flow(takes(E("param.rate")), params=(Parameter(name="rate"),)), '"params"'),
        ("P205", flow(takes(E("item.shards"), each=over({"shard": (1,)}))), '"shard"'),
        ("P214", flow(step(action=Nested(name="iner")), replace(CALL, name="b"), definitions=(INNER,)), '"inner"'),
        ("P215", flow(replace(CALL, inputs=(*CALL.inputs, Input(name="pp", value=1))), definitions=(INNER,)), '"p"'),
        ("P233", flow(step(retry=Retry(limit=1, on=("timeouts",)))), '"timeout"'),
    ],
)
def test_the_fix_names_what_was_meant(code: str, workflow: Workflow, hint: str) -> None:
    found = {problem.code: problem.fix for problem in check(workflow)}
    assert hint in found[code]


# -- good ones --------------------------------------------------------------------------------------------------------

GOOD = """\
apiVersion: penstock/v1
kind: Workflow
name: good
queue: team-a
params:
  - {name: source, type: str}
  - {name: lrs, type: "list[float]", default: [0.1, 1]}
  - {name: mode, type: str, default: fast, choices: [fast, slow]}
  - {name: limit, type: "optional[int]", default: null}
steps:
  - name: prepare
    container: {image: "python:3.12", args: ["${{ params.source }}", "mode=${{ params.mode }}"]}
    outputs: [{name: rows, type: int}, {name: shards, type: "list[str]"}, {name: info, type: "dict[int]"}]
    retry: {limit: 3, on: [failed], when: "attempt.exit_code != 2 && attempt.number < 3"}
  - name: train
    each: {axes: [{shard: "${{ steps.prepare.outputs.shards }}", n: "${{ range(size(steps.prepare.outputs.shards)) }}"}, {lr: "${{ params.lrs }}"}], parallel: 4}
    when: steps.prepare.outputs.rows > 1000 && item.lr > 0.0 && params.mode == "fast"
    inputs: [{name: lr, value: "${{ item.lr }}", type: float}, {name: last, value: "${{ item.n == 3 ? 'x' : item.shard }}", type: str}]
    container: {image: t, command: [train, "${{ inputs.lr }}"], env: {SHARD: "${{ item.shard }}"}}
    outputs: [{name: score, type: float, default: [0]}]
    resources: {nvidia.com/gpu: 8, memory: 64Gi}
    replicas: 2
  - name: best
    function: {module: m, name: f}
    inputs: [{name: scores, value: "${{ steps.train.outputs.score }}", type: "list[float]"}]
    outputs: [{name: ok, type: bool}, {name: next, type: int}]
  - name: refine
    workflow: {name: tune}
    inputs: [{name: start, value: "${{ steps.best.outputs.next }}", type: int}]
    loop: {condition: "outputs.result < 10", carry: {start: result}, max_iterations: 5}
    when: steps.best.outputs.ok
  - name: apply
    resource: {manifest: {kind: Job, spec: {n: "${{ steps.best.outputs.next + 1 }}"}}, success_condition: "object.status.succeeded > 0", failure_condition: has(status.failed)}
    outputs: [{name: ip, type: str, value: "${{ object.status.podIP }}"}]
  - name: ping
    http: {url: "http://${{ steps.apply.outputs.ip }}/", success_condition: response.status == 200}
    needs: [{step: refine, outcomes: [succeeded, skipped, failed]}]
  - name: cleanup
    script: {source: "echo ${{ steps.train.outcome }}"}
    trigger: steps.train.outcome == "failed" || steps.ping.outcome == "succeeded"
  - name: approve
    suspend: {duration: 60, message: "rows ${{ steps.prepare.outputs.info.rows }}"}
on_exit:
  - name: notify
    http: {url: "http://x/${{ workflow.outcome }}", method: POST}
definitions:
  - name: tune
    params: [{name: start, type: int}]
    steps: [{name: one, function: {module: m, name: g}, inputs: [{name: x, value: "${{ params.start * 2 }}", type: int}], outputs: [{name: y, type: int}]}]
    outputs: [{name: result, type: int, value: "${{ steps.one.outputs.y }}"}]
outputs:
  - {name: rows, type: int, value: "${{ steps.prepare.outputs.rows }}"}
"""


def test_a_workflow_that_uses_everything_has_no_problems() -> None:
    assert check(from_text(GOOD)) == []


@pytest.mark.parametrize(
    "workflow",
    [
        flow(),
        flow(step()),
        flow(CALL, definitions=(INNER,)),
        flow(takes(E("steps.b.outputs.x"), "int"), gives("b")),
        flow(takes(E("steps.b.outputs.x"), "int"), gives("b", "optional[int]")),
        flow(takes((1, 2.5), "list[float]")),
        flow(takes((1, None), "list[optional[int]]")),
        flow(takes((E("params.x"), 1), "list[int]"), params=(Parameter(name="x", type=T("int")),)),
        flow(takes({"a": E("params.x")}, "dict[str]"), params=(Parameter(name="x"),)),
        flow(takes(E("params.x"), "file"), params=(Parameter(name="x", type=T("str")),)),
        flow(step("b"), step(needs=(Edge("b", frozenset({Outcome.FAILED})),))),
        flow(
            step("b", when=E("params.x")),
            step(needs=(Edge("b", frozenset({Outcome.SKIPPED})),)),
            params=(Parameter(name="x", default=True),),
        ),
        flow(step(when=E("!(params.f > 5.0) && !(params.f <= 5.0)")), params=(Parameter(name="f", type=T("float")),)),
        flow(takes(E("params.x"), each=over({"v": (1,)})), params=(Parameter(name="x", default=None),)),
        flow(step(each=over({"v": ("a", "b"), "u": (1, 2)}, {"t": E("[item.v, 'c']")}))),
        flow(step(action=Script(source="", command=()))),
        flow(gives("a-b"), takes(E('steps["a-b"].outputs.x'))),
        flow(step("in"), step(needs=(Edge("in"),))),
        flow(gives("in"), takes(E("steps.in.outputs.x"))),
        flow(
            step(
                action=Pod(
                    parts=(
                        part("s", sidecar=True),
                        part("p", args=(E("inputs.i"), E("attempt.number"), E("run.id"))),
                        part("q", when=({"input": E("inputs.i"), "operator": "in", "values": ("1",)},)),
                        part("r", needs=(), source="echo", image=None),
                    )
                ),
                inputs=(Input(name="i", value="1", type=T("str"), default=E("run.created")),),
                mounts=(Mount(name="m", path="/m", scope="run", sub_path=E("inputs.i"), files={"a/b": E("item.v")}),),
                locks=(Lock(name=parse_template("l-${{ inputs.i }}-${{ item.v }}"), limit=2),),
                cache=Cache(key=E("inputs.i")),
                retry=Retry(limit=1, within=5, when=E("attempt.seconds < 5.0 && attempt.exit_code != 3")),
                each=over({"v": ("1",)}),
            ),
            locks=(Lock(name=parse_template("l-${{ params.x }}-${{ run.id }}")),),
            judged_by="leaves",
            params=(Parameter(name="x"),),
        ),
        flow(
            gives("b", when=E("params.x")),
            step(inputs=(Input(name="i", value=E("steps.b.outputs.x"), default=1),)),
            params=(Parameter(name="x", type=T("bool")),),
        ),
        flow(
            step("b"),
            step(inputs=(Input(name="i", value=E("steps.b.exit_code"), type=T("int")),)),
        ),
        flow(
            step("b"),
            step("c", Nested(name="again"), needs=(Edge("b"),)),
            definitions=(
                Workflow(
                    name="again", steps=(gives(), step("a", Nested(name="again"), when=E("steps.b.outputs.x == 1")))
                ),
            ),
        ),
    ],
)
def test_good_workflows_are_left_in_peace(workflow: Workflow) -> None:
    assert check(workflow) == []
    assert check(from_text(to_json(workflow))) == []


def test_two_hundred_problems_are_enough() -> None:
    workflow = flow(*(step(f"s{i}", replicas=0) for i in range(1000)))
    assert len(check(workflow)) == 200


def test_a_definition_without_a_name_does_not_hide_the_root() -> None:
    found = check(flow(step(needs=(Edge("nope"),)), definitions=(Workflow(name="", steps=(step("z"),)),)))
    assert ("P201", "steps.a.needs") in [(problem.code, problem.where) for problem in found]


def test_two_definitions_of_one_name_with_different_steps() -> None:
    found = check(flow(CALL, definitions=(INNER, replace(INNER, steps=(step("other", replicas=0),)))))
    assert [problem.code for problem in found] == ["P210", "P231"]


def test_every_process_reports_in_the_same_order() -> None:
    broken = GOOD.replace("name: start, value", "name: strat, value").replace(
        "start: result}", "start: result, a: b, c: d, e: f}"
    )
    broken = broken.replace("needs: [{", "needs: [notify, x1, x2, x3, {")
    code = "import sys; from penstock.graph.codec import from_text; from penstock.graph.check import check; print(*check(from_text(sys.stdin.read())), sep='\\n')"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=broken,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(found) == 1
    assert found.pop().count("Problem(") > 8


@examples(150)
@given(workflows)
def test_any_workflow_can_be_checked(workflow: Workflow) -> None:
    for problem in check(workflow):
        assert problem.code in EXPLAINED
        assert problem.message
        assert problem.fix
        assert problem.where


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_, code, words",
    [
        ({"rate": 1}, None, ""),
        ({"rate": 1.5, "mode": "fast"}, None, ""),
        ({"rat": 1}, "P401", '"rate"'),
        ({"rate": "a"}, "P402", "float"),
        ({"rate": None}, "P402", "float"),
        ({"mode": "medium"}, "P402", "fast, slow"),
    ],
)
def test_arguments(given_: dict[str, object], code: str | None, words: str) -> None:
    params = (Parameter(name="rate", type=T("float")), Parameter(name="mode", choices=("fast", "slow")))
    found = check_arguments(params, given_)
    assert [problem.code for problem in found] == ([code] if code else [])
    assert all(words in problem.fix for problem in found)
