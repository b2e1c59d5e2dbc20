"""Workflows as Argo documents: what they say, that Argo takes them, and that read back and run they give the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import strategies as st

from penstock.author.load import load_graph
from penstock.author.pack import pack
from penstock.errors import UserError
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.expressions.types import parse
from penstock.formats import registry
from penstock.formats.argo.write import dag, documents, split
from penstock.formats.argo.write.workflow import write_argo
from penstock.formats.base import Written
from penstock.formats.documents import library
from penstock.formats.yaml_writer import dump_all
from penstock.graph.check import errors
from penstock.graph.model import (
    MISSING,
    NORMAL,
    Backoff,
    Cache,
    Container,
    Edge,
    ForEach,
    Function,
    Http,
    Input,
    Lock,
    Mount,
    Nested,
    Outcome,
    Output,
    Parameter,
    Part,
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
from penstock.runners.local import LocalRunner
from penstock.service import manifests
from tests.formats.argo_flat import check_limits, check_references
from tests.formats.corpus import files, label, needs_corpus

E = Expr.of
ALL = frozenset(Outcome)
OUT = "$PENSTOCK_OUTPUTS"


def sh(name: str, *source: Any, out: dict[str, Any] | None = None, **more: Any) -> Step:
    """A shell script with outputs, by name and type."""
    outputs = tuple(
        one if isinstance(one, Output) else Output(name=key, type=parse(one)) for key, one in (out or {}).items()
    )
    text = source[0] if len(source) == 1 else Template(tuple(source))
    return Step(name=name, action=Script(source=text, image="busybox"), outputs=outputs, **more)


def given(**values: Any) -> tuple[Input, ...]:
    return tuple(Input(name=name, value=value) for name, value in values.items())


def results(**values: str) -> tuple[Output, ...]:
    return tuple(Output(name=name, value=E(text)) for name, text in values.items())


def written(workflow: Workflow, **more: Any) -> Written:
    """Taken by Argo as far as can be told."""
    found = write_argo(workflow, **more)
    check_limits(found.documents)
    check_references(found.documents)
    assert list(yaml.load_all(dump_all(found.documents), yaml.CSafeLoader)) == found.documents
    return found


def templates(found: Written) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found.documents[-1]["spec"]["templates"]}


def tasks(found: Written, template: str = "main") -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in templates(found)[template]["dag"]["tasks"]}


def one(step: Step, **more: Any) -> dict[str, Any]:
    """The template of a workflow's only step."""
    found = written(Workflow(name="w", steps=(step,), **more))
    return templates(found)[tasks(found)[step.name]["template"]]


def read_back(workflow: Workflow, bundle: bytes | None = None) -> Workflow:
    text = dump_all(written(workflow, bundle=bundle).documents)
    found = library([("w.yaml", text)])
    back = registry.read(found, registry.root(found, None, "w.yaml")).workflow
    assert errors(back) == []
    return back


# -- the same results -------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Values as they are, whether they came as text or not."""
    if isinstance(value, str):
        try:
            return plain(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, Path):
        return value.read_text()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def run(workflow: Workflow, home: Path) -> tuple[str, dict[str, Any]]:
    on = {"container": "process", "script": "process", "pod": "process"}
    done = LocalRunner(home=home, on=on, jobs=4, fresh=True).run(workflow)
    return done.status, {name: plain(value) for name, value in done.outputs.items()}


CASES: dict[str, Workflow] = {
    "values of all kinds": Workflow(
        name="chain",
        params=(Parameter(name="n", type=parse("int"), default=3),),
        steps=(
            sh("a", "echo ", E("params.n * 2"), f" > {OUT}/x", out={"x": "int"}),
            sh(
                "b_2",
                "echo '",
                E("inputs.x"),
                f"' > {OUT}/y",
                out={"y": "any"},
                inputs=given(x=E("[steps.a.outputs.x, steps.a.outputs.x + 1]")),
            ),
            sh("c", "echo '", E('steps["b_2"].outputs.y[1]'), f"' > {OUT}/y", out={"y": "str"}),
        ),
        outputs=(
            *results(
                y='steps["b_2"].outputs.y',
                z='steps["b_2"].outputs.y[1] > 3',
                q="steps.a.outputs.x / 4 + steps.a.outputs.x % 4",
            ),
            Output(
                name="m", value={"k": E("steps.a.outputs.x"), "s": "t", "l": (E("steps.c.outputs.y"), 1.5, None, True)}
            ),
            Output(name="t", value=Template(("n is ", E("params.n"), "!"))),
        ),
    ),
    "loops": Workflow(
        name="loops",
        params=(Parameter(name="xs", type=parse("list[int]"), default=(3, 1, 2)),),
        steps=(
            sh(
                "sq",
                "echo $((",
                E("item.x"),
                " * ",
                E("item.x"),
                f")) > {OUT}/y",
                out={"y": "int"},
                each=ForEach(axes=({"x": E("params.xs")},)),
            ),
            sh(
                "product",
                "echo '",
                E("item.s"),
                "-",
                E("item.t"),
                f"' > {OUT}/y",
                out={"y": "str"},
                each=ForEach(axes=({"s": ("a", "b")}, {"t": (1, 2, 3)})),
            ),
            sh(
                "computed",
                "echo '",
                E("item.s"),
                "-",
                E("item.t"),
                "-",
                E("item.u"),
                f"' > {OUT}/y",
                out={"y": "str"},
                each=ForEach(axes=({"s": E("params.xs"), "t": (1, 2, 3)}, {"u": E("range(2)")}), parallel=2),
            ),
            sh(
                "limited",
                "echo '",
                E("item.s"),
                E("steps.sq.outputs.y[0]"),
                f"' > {OUT}/y",
                out={"y": "str"},
                each=ForEach(axes=({"s": ("a", "b")},), parallel=1),
            ),
            sh(
                "counted",
                "echo '",
                E("item.i"),
                f"' > {OUT}/y",
                out={"y": "int"},
                each=ForEach(axes=({"i": E("range(params.xs[0])")},)),
            ),
            sh(
                "maps",
                "echo '",
                E("item.m.a"),
                E("item.m.b"),
                f"' > {OUT}/y",
                out={"y": "str"},
                each=ForEach(axes=({"m": ({"a": "x", "b": 1}, {"a": "y", "b": 2})},)),
            ),
            sh(
                "none",
                "echo '",
                E("item.i"),
                f"' > {OUT}/y",
                out={"y": "int"},
                each=ForEach(axes=({"i": E("params.xs.filter(x, x > 10)")},)),
            ),
            sh(
                "some",
                f"echo ok > {OUT}/y",
                out={"y": "str"},
                each=ForEach(axes=({"i": (1, 2, 3)},)),
                when=E("item.i != 2"),
            ),
            sh(
                "total",
                "echo '",
                E("inputs.ys"),
                E("inputs.none"),
                f"' > {OUT}/y; echo ",
                E("steps.sq.outputs.y[0] + 1"),
                f" > {OUT}/z",
                out={"y": "str", "z": "int"},
                inputs=given(ys=E("steps.sq.outputs.y"), none=E("steps.none.outputs.y")),
            ),
        ),
        outputs=results(
            sq="steps.sq.outputs.y",
            product="steps.product.outputs.y",
            computed="steps.computed.outputs.y",
            limited="steps.limited.outputs.y",
            counted="steps.counted.outputs.y",
            none="steps.none.outputs.y",
            some="steps.some.outputs.y",
            total="steps.total.outputs.y",
            z="steps.total.outputs.z",
            maps="steps.maps.outputs.y",
        ),
    ),
    "conditions": Workflow(
        name="conditions",
        params=(
            Parameter(name="s", type=parse("str"), default="yes"),
            Parameter(name="t", type=parse("bool"), default=True),
        ),
        steps=(
            sh(
                "a",
                f"echo 5 > {OUT}/x",
                out={"x": "int"},
                when=E('params.s == "yes" && params.t && params.s.startsWith("y")'),
            ),
            sh(
                "b",
                f"echo 6 > {OUT}/x",
                out={"x": Output(name="x", type=parse("int"), default=7)},
                when=E('params.s != "yes" || steps.a.outputs.x > 100'),
            ),
            sh("c", "echo ", E("steps.a.outputs.x + steps.b.outputs.x"), f" > {OUT}/x", out={"x": "int"}),
        ),
        outputs=results(c="steps.c.outputs.x", d='params.s in ["yes", "no"] ? "in" : "out"', e="truthy(params.s)"),
    ),
    "failures": Workflow(
        name="failures",
        steps=(
            sh("a", "exit 3"),
            sh("b", f"echo b > {OUT}/x", out={"x": "str"}, needs=(Edge("a", frozenset({Outcome.FAILED})),)),
            sh("t", "exit 1", tolerates=frozenset({Outcome.FAILED, Outcome.ERRORED})),
            sh("u", f"echo u > {OUT}/x", out={"x": "str"}, needs=(Edge("t", ALL),)),
            sh(
                "v",
                f"echo v > {OUT}/x",
                out={"x": "str"},
                trigger=E(
                    'steps.a.outcome == "failed" && (steps.b.outcome == "succeeded" || steps.t.outcome in ["skipped", "omitted"])'
                ),
            ),
            sh(
                "x",
                "echo ",
                E("steps.t.outcome"),
                f" > {OUT}/x",
                out={"x": "str"},
                when=E('steps.a.outcome != "succeeded"'),
            ),
        ),
        outputs=results(b="steps.b.outputs.x", u="steps.u.outputs.x", v="steps.v.outputs.x", x="steps.x.outputs.x"),
    ),
    "tolerated": Workflow(
        name="tolerated",
        steps=(
            sh("t", "exit 1", tolerates=frozenset({Outcome.FAILED})),
            sh("u", f"echo u > {OUT}/x", out={"x": "str"}, needs=(Edge("t", NORMAL | {Outcome.FAILED}),)),
        ),
        outputs=results(u="steps.u.outputs.x"),
    ),
    "failed": Workflow(
        name="failed",
        steps=(
            sh(
                "a",
                "exit 3",
                retry=Retry(limit=2, backoff=Backoff(initial=0), exit_codes=(3,), when=E("attempt.exit_code > 2")),
            ),
            sh("b", "echo", needs=(Edge("a"),)),
            sh("c", f"echo c > {OUT}/x", out={"x": "str"}),
        ),
        outputs=results(c="steps.c.outputs.x"),
    ),
    "while": Workflow(
        name="while",
        params=(Parameter(name="n", type=parse("int"), default=7),),
        steps=(
            sh(
                "w",
                "echo $((",
                E("inputs.x"),
                f" + 1)) > {OUT}/y; echo ",
                E("inputs.c"),
                f" > {OUT}/c",
                out={"y": "int", "c": "str"},
                inputs=given(x=1, c="k"),
                loop=While(condition=E("outputs.y < params.n"), carry={"x": "y"}),
            ),
            sh(
                "b",
                "echo $((",
                E("inputs.x"),
                f" * 2)) > {OUT}/y",
                out={"y": "int"},
                inputs=given(x=E("steps.w.outputs.y")),
                loop=While(condition=E("inputs.x < 50"), carry={"x": "y"}, test="before", max_iterations=20),
            ),
            sh(
                "z",
                "echo $((",
                E("inputs.x"),
                f" * 2)) > {OUT}/y",
                out={"y": "int"},
                inputs=given(x=E("steps.w.outputs.y")),
                loop=While(condition=E("inputs.x < 0"), carry={"x": "y"}, test="before"),
            ),
            sh(
                "l",
                "echo $((",
                E("inputs.x"),
                f" + 1)) > {OUT}/y",
                out={"y": "int"},
                inputs=given(x=0),
                loop=While(condition=E("outputs.y < 999"), carry={"x": "y"}, max_iterations=4),
            ),
        ),
        outputs=results(
            w="steps.w.outputs.y",
            b="steps.b.outputs.y",
            z="steps.z.outputs.y",
            limit="steps.l.outputs.y",
            c="steps.w.outputs.c",
        ),
    ),
    "while to the limit": Workflow(
        name="limit",
        steps=(
            sh(
                "l",
                "echo $((",
                E("inputs.x"),
                f" + 1)) > {OUT}/y",
                out={"y": "int"},
                inputs=given(x=0),
                loop=While(condition=E("outputs.y < 999"), carry={"x": "y"}, max_iterations=3, at_limit="fail"),
            ),
        ),
    ),
    "workflows in workflows": Workflow(
        name="nested",
        params=(Parameter(name="n", type=parse("int"), default=4),),
        steps=(
            Step(name="one", action=Nested(name="inner"), inputs=given(k=E("params.n"))),
            Step(
                name="many",
                action=Nested(name="inner"),
                inputs=given(k=E("item.i"), s="3"),
                each=ForEach(axes=({"i": (1, 2)},)),
            ),
            Step(name="down", action=Nested(name="down"), inputs=given(k=3), retry=Retry(limit=1)),
        ),
        outputs=(
            *results(one="steps.one.outputs.r", many="steps.many.outputs.r", texts="steps.many.outputs.t"),
            Output(name="f", value=E("steps.one.outputs.f"), type=parse("file")),
        ),
        definitions=(
            Workflow(
                name="inner",
                params=(Parameter(name="k", type=parse("int")), Parameter(name="s", type=parse("str"), default="d")),
                steps=(
                    sh(
                        "x",
                        "echo ",
                        E("params.k + 1"),
                        f" > {OUT}/r; echo ",
                        E("params.s"),
                        f" > {OUT}/f",
                        out={"r": "int", "f": "file"},
                    ),
                    sh(
                        "y",
                        "cat ",
                        E("inputs.f"),
                        f" > {OUT}/t",
                        out={"t": "str"},
                        inputs=(Input(name="f", value=E("steps.x.outputs.f"), type=parse("file")),),
                    ),
                ),
                outputs=(
                    *results(r="steps.x.outputs.r", t="steps.y.outputs.t"),
                    Output(name="f", value=E("steps.x.outputs.f"), type=parse("file")),
                ),
            ),
            Workflow(
                name="down",
                params=(Parameter(name="k", type=parse("int")),),
                steps=(
                    sh("x", "echo ", E("params.k - 1"), f" > {OUT}/r", out={"r": "int"}),
                    Step(
                        name="again",
                        action=Nested(name="down"),
                        inputs=given(k=E("steps.x.outputs.r")),
                        when=E("steps.x.outputs.r > 0"),
                    ),
                ),
            ),
        ),
    ),
    "files and words": Workflow(
        name="files",
        steps=(
            Step(
                name="c",
                action=Container(
                    image="b",
                    command=(
                        "sh",
                        "-c",
                        'echo "pid $$" | sed "s/[0-9]//g"; cat /etc/cfg/a/b; echo "$X" $(echo hi)',
                        "x",
                    ),
                    env={"X": "a$$b"},
                ),
                outputs=(Output(name="o", type=parse("str"), path="/dev/stdout"),),
                mounts=(Mount(name="cfg", path="/etc/cfg", scope="given", files={"a/b": "text\n", "c": "d"}),),
            ),
            Step(
                name="p",
                action=Container(image="b", command=("cat", "/tmp/in.json")),
                inputs=(Input(name="d", value={"a": (1, 2), "b": E("steps.c.outputs.o")}, path="/tmp/in.json"),),
                outputs=(Output(name="o", type=parse("any"), path="/dev/stdout"),),
            ),
            sh(
                "made",
                "cat /etc/m/f",
                out={"o": Output(name="o", type=parse("str"), path="/dev/stdout")},
                mounts=(
                    Mount(
                        name="m",
                        path="/etc/m",
                        scope="given",
                        files={"f": Template(("<", E("steps.p.outputs.o.a[1]"), ">"))},
                    ),
                ),
            ),
        ),
        outputs=results(c="steps.c.outputs.o", p="steps.p.outputs.o", m="steps.made.outputs.o"),
    ),
    "exit handlers": Workflow(
        name="exits",
        params=(Parameter(name="n", type=parse("int"), default=1),),
        steps=(sh("a", f"echo 1 > {OUT}/x", out={"x": "int"}),),
        on_exit=(
            sh(
                "e",
                "test ",
                E("workflow.outcome"),
                " = succeeded && test ",
                E("steps.a.outputs.x"),
                " = ",
                E("params.n"),
            ),
            sh("f", "true", needs=(Edge("e"),), when=E('workflow.outcome == "succeeded"')),
            sh("g", "false", when=E('workflow.outcome == "failed"')),
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_read_back_and_run_it_gives_the_same(name: str, tmp_path: Path) -> None:
    workflow = CASES[name]
    status, outputs = run(workflow, tmp_path / "one")
    again, found = run(read_back(workflow), tmp_path / "two")
    assert status == again
    assert {key: found.get(key) for key in outputs} == outputs
    assert outputs or status == "failed" or not workflow.outputs


@pytest.mark.parametrize("name", ["values of all kinds", "loops", "conditions", "while", "files and words"])
def test_cut_into_small_dags_it_gives_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = CASES[name]
    status, outputs = run(workflow, tmp_path / "one")
    for module in (split, dag):
        monkeypatch.setattr(module, "MOST_TASKS", 2 if len(workflow.steps) < 5 else 4)
    back = read_back(workflow)
    assert any("part" in step.name for step in back.steps)
    again, found = run(back, tmp_path / "two")
    assert (status, outputs) == (again, {key: found.get(key) for key in outputs})


FLOW = """
import dataclasses
import pathlib
from helper import double
from penstock import task, workflow

@dataclasses.dataclass
class Config:
    rate: float
    tag: str

@task
def numbers(n: int) -> list[int]:
    return list(range(n))

@task(retry=2)
def square(x: int, c: Config) -> int:
    assert isinstance(c, Config)
    return double(x) * x

@task
def untyped(a, b):
    return {"a": a, "b": b, "types": [type(a).__name__, type(b).__name__]}

@task
def text(n) -> str:
    return "3"

@task
def total(xs: list[int]) -> int:
    return sum(xs)

@task
def make(s: str) -> pathlib.Path:
    path = pathlib.Path("made.txt")
    path.write_text(s)
    return path

@task
def read(p: pathlib.Path) -> str:
    return p.read_text() + "!"

@task
def thing(n: int) -> set:
    return {1, n}

@task
def listed(s) -> list[int]:
    return sorted(s)

@task
def more(x: int) -> int:
    return x + 1

@workflow
def flow(n: int = 4, name: str = "x"):
    ns = numbers(n)
    squares = [square(i, {"rate": 0.5, "tag": name}) for i in ns]
    t = total(squares)
    u = untyped("7", text(n))
    v = untyped([t, "9"], {"k": text(n), "l": [t]})
    if t > 10:
        w = more(t)
    else:
        w = more(0)
    k = 0
    while k < 5:
        k = more(k)
    return {"t": t, "u": u, "v": v, "w": w, "f": read(make(name)), "s": listed(thing(n)), "k": k, "squares": squares, "q": f"{name}-{t}"}
"""


@pytest.fixture
def flow(tmp_path: Path) -> tuple[Workflow, bytes]:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    workflow = load_graph(tmp_path / "flow.py")
    packed = pack(workflow)
    assert packed is not None
    return workflow, packed[0]


def test_python_functions(flow: tuple[Workflow, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their types too: "7" stays text, and 7 a number."""
    workflow, bundle = flow
    monkeypatch.setattr(documents, "SMALL_CODE", 0)
    monkeypatch.chdir(tmp_path)  # where functions leave their files
    status, outputs = run(workflow, tmp_path / "one")
    assert (status, outputs["result"]["u"]["types"]) == ("succeeded", ["str", "str"])
    assert run(read_back(workflow, bundle), tmp_path / "two") == (status, outputs)


def test_code_travels_once(flow: tuple[Workflow, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    workflow, bundle = flow
    (document,) = written(workflow, bundle=bundle).documents
    parameters = {one["name"]: one.get("value") for one in document["spec"]["arguments"]["parameters"]}
    assert len(parameters["penstock-code"]) > 1000 and json.dumps(document).count(parameters["penstock-code"]) == 1
    monkeypatch.setattr(documents, "SMALL_CODE", 100)
    code, document = written(workflow, bundle=bundle).documents
    assert code["kind"] == "ConfigMap" and code["data"] == {"000": parameters["penstock-code"]}
    (volume,) = document["spec"]["volumes"]
    assert volume == {"name": "penstock-code", "configMap": {"name": code["metadata"]["name"]}}
    monkeypatch.setattr(documents, "LARGEST_MAP", 4000)
    *maps, document = written(workflow, bundle=bundle).documents
    assert "".join(text for one in maps for text in one["data"].values()) == parameters["penstock-code"]
    assert len(document["spec"]["volumes"][0]["projected"]["sources"]) == len(maps) > 1


def test_code_that_is_not_at_hand(flow: tuple[Workflow, bytes]) -> None:
    with pytest.raises(UserError, match="P844 the code of flow.numbers"):
        write_argo(flow[0])


# -- what is written --------------------------------------------------------------------------------------------------


def test_a_template_says_how_it_is_run() -> None:
    step = Step(
        name="train",
        action=Container(image="t:1", command=("train",), args=("--lr", "0.1"), env={"A": "b"}, workdir="/w"),
        resources={"cpu": 1500, "memory": 4 * 2**30 * 1000, "nvidia.com/gpu": 2000},
        retry=Retry(
            limit=3,
            on=("failed",),
            exceptions=("OSError",),
            backoff=Backoff(initial=2, factor=2, longest=60),
            within=600,
        ),
        timeout=90.5,
        placement=Placement(
            node_selector={"gpu": "a"},
            tolerations=(Toleration(key="k", operator="Exists", seconds=3),),
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ({"topologyKey": "h"},)}},
        ),
        queue="other",
        priority="high",
        locks=(Lock(name="one"), Lock(name="some/where", limit=3)),
        cache=Cache(key="a/b", ttl=60),
    )
    found = written(
        Workflow(
            name="My_Flow",
            steps=(step,),
            queue="team",
            priority=7,
            timeout=3600,
            parallel=5,
            labels={"a": "b"},
            doc="what it does",
        )
    )
    locks, workflow = found.documents
    assert locks["data"] == {"some-where": "3"}
    assert workflow["metadata"] == {
        "generateName": "my-flow-",
        "labels": {"a": "b", "kueue.x-k8s.io/queue-name": "team"},
        "annotations": {"workflows.argoproj.io/description": "what it does"},
    }
    assert {key: workflow["spec"][key] for key in ("parallelism", "activeDeadlineSeconds", "priority")} == {
        "parallelism": 5,
        "activeDeadlineSeconds": 3600,
        "priority": 7,
    }
    template = templates(found)["train"]
    assert template.pop("container") == {
        "image": "t:1",
        "command": ["train"],
        "args": ["--lr", "0.1"],
        "env": [{"name": "A", "value": "b"}],
        "workingDir": "/w",
        "resources": {
            "requests": {"cpu": "1500m", "memory": "4Gi", "nvidia.com/gpu": "2"},
            "limits": {"nvidia.com/gpu": "2"},
        },
    }
    assert template == {
        "name": "train",
        "retryStrategy": {
            "limit": "3",
            "retryPolicy": "OnFailure",
            "expression": "!(lastRetry.message contains 'longer than the specified deadline')",
            "backoff": {"duration": "2s", "factor": "2", "cap": "60s", "maxDuration": "600s"},
        },
        "activeDeadlineSeconds": 91,
        "nodeSelector": {"gpu": "a"},
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}]}},
        "synchronization": {
            "mutexes": [{"name": "one"}],
            "semaphores": [{"configMapKeyRef": {"name": "my-flow-locks", "key": "some-where"}}],
        },
        "memoize": {
            "key": "c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11",
            "maxAge": "60s",
            "cache": {"configMap": {"name": "my-flow-cache"}},
        },
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other", "kueue.x-k8s.io/priority-class": "high"}},
    }


def test_loops_in_argos_own_words() -> None:
    def loop(**axes: Any) -> dict[str, Any]:
        step = sh("s", "echo ", E("item.x"), each=ForEach(axes=(axes,)))
        params = (
            Parameter(name="n", type=parse("int"), default=1),
            Parameter(name="xs", type=parse("list[str]"), default=()),
        )
        found = written(Workflow(name="w", params=params, steps=(step,)))
        return {key: value for key, value in tasks(found)["s"].items() if key.startswith("with")}

    assert loop(x=("a", "b")) == {"withItems": ["a", "b"]}
    assert loop(x=(1, 2)) == {"withItems": [1, 2]}
    assert loop(x=E("range(10)")) == {"withSequence": {"count": "10"}}
    assert loop(x=E("range(3, 6)")) == {"withSequence": {"start": "3", "end": "5"}}
    assert loop(x=E("range(params.n)")) == {"withSequence": {"count": "{{workflow.parameters.n}}"}}
    assert loop(x=E("params.xs")) == {"withParam": "{{workflow.parameters.xs}}"}
    cut = "{{=toJson(take(fromJSON(workflow.parameters.xs), min(len(fromJSON(workflow.parameters.xs)), 3)))}}"
    assert loop(x=E("slice(params.xs, 0, min(size(params.xs), 3))")) == {"withParam": cut}
    assert loop(x=("a", "b"), y=("c", "d")) == {"withItems": [{"x": "a", "y": "c"}, {"x": "b", "y": "d"}]}


def test_many_combinations_are_computed_not_listed() -> None:
    step = sh(
        "s", "echo ", E("item.x"), E("item.y"), each=ForEach(axes=({"x": E("range(1000)")}, {"y": E("range(1000)")}))
    )
    text = tasks(written(Workflow(name="w", steps=(step,))))["s"]["withParam"]
    assert len(text) < 300 and "}}" not in text[:-2]


def test_waiting_requests_and_objects() -> None:
    assert one(Step(name="s", action=Suspend(duration=5), outputs=(Output(name="ok", default="yes"),))) == {
        "name": "s",
        "outputs": {"parameters": [{"name": "ok", "valueFrom": {"supplied": {}, "default": "yes"}}]},
        "suspend": {"duration": "5"},
    }
    http = Http(
        url=Template(("http://x/", E("inputs.id"))),
        method="POST",
        headers={"A": "b"},
        body=E("inputs.id"),
        success_condition=E(
            'response.status == 200 && response.body.ok == true && response.headers["content-type"] == "x"'
        ),
    )
    step = Step(
        name="h",
        action=http,
        inputs=given(id="7"),
        outputs=(Output(name="n", type=parse("int"), value=E("response.body.n")),),
        timeout=3,
    )
    found = written(Workflow(name="w", steps=(step,), outputs=results(n="steps.h.outputs.n")))
    assert templates(found)["h"]["http"] == {
        "url": "http://x/{{inputs.parameters.id}}",
        "method": "POST",
        "headers": [{"name": "A", "value": "b"}],
        "body": "{{inputs.parameters.id}}",
        "timeoutSeconds": 3,
        "successCondition": "response.statusCode == 200 && fromJSON(response.body).ok == true && response.headers['Content-Type'][0] == 'x'",
    }
    assert templates(found)["h-outputs"]["outputs"]["parameters"][0]["valueFrom"]["expression"].startswith(
        "type(fromJSON(tasks.request"
    )
    manifest = {
        "apiVersion": "v1",
        "kind": "Job",
        "metadata": {"generateName": "j-"},
        "spec": {"n": E("inputs.n"), "s": Template(("a", E("inputs.s")))},
    }
    resource = Resource(
        manifest=manifest,
        success_condition=E("object.status.succeeded > 0 && status.phase == 'Done'"),
        failure_condition=E("status.failed > 3 || status.phase in ['Bad', 'Lost']"),
    )
    step = Step(
        name="r",
        action=resource,
        inputs=(Input(name="n", value=3, type=parse("int")), Input(name="s", value='"x"')),
        outputs=(Output(name="name", value=E("object.metadata.name")), Output(name="all")),
    )
    made = one(step)
    assert made["resource"]["successCondition"] == "status.succeeded > 0, status.phase == Done"
    assert made["resource"]["failureCondition"] == "status.failed > 3, status.phase in (Bad, Lost)"
    assert '"n": {{=toJson(asInt(inputs.parameters.n))}}\n' in made["resource"]["manifest"]
    assert "s: {{=toJson('a' + inputs.parameters.s)}}\n" in made["resource"]["manifest"]
    assert made["outputs"]["parameters"][0] == {"name": "name", "valueFrom": {"jsonPath": "{.metadata.name}"}}


def test_pods() -> None:
    parts = (
        Part(name="side", image="s", command=("serve",), sidecar=True),
        Part(name="fetch", image="f", command=("get", "x")),
        Part(name="work", image="w", command=("/usr/bin/env", "bash"), source="echo $$\n"),
    )
    made = one(Step(name="p", action=Pod(parts=parts), resources={"cpu": 1000}, mounts=(Mount(name="d", path="/d"),)))
    mount = [{"name": "d", "mountPath": "/d"}]
    assert made["script"] == {
        "image": "w",
        "command": ["/usr/bin/env", "bash"],
        "source": "echo $$\n",
        "volumeMounts": mount,
        "resources": {"requests": {"cpu": "1"}},
    }
    assert made["initContainers"] == [
        {"name": "fetch", "image": "f", "command": ["get", "x"], "volumeMounts": mount, "mirrorVolumeMounts": True}
    ]
    assert [one["name"] for one in made["sidecars"]] == ["side"] and made["volumes"] == [{"name": "d", "emptyDir": {}}]
    parts = (
        Part(name="a", image="i", source="echo a", needs=()),
        Part(name="b", image="i", command=("lua",), source="print(1)", needs=()),
        Part(name="c", image="i", command=("true",), needs=("a", "b")),
    )
    made = one(Step(name="p", action=Pod(parts=parts)))
    containers = made["containerSet"]["containers"]
    assert [one["name"] for one in containers] == ["a", "b", "main"]
    assert containers[0]["command"] == ["sh", "-c"] and containers[0]["args"] == ["echo a", "a"]
    assert containers[1]["args"] == ["sh", "print(1)", "lua", "/tmp/penstock-script"]
    assert containers[2]["dependencies"] == ["a", "b"]


def test_volumes_of_a_run_and_what_was_handed_on() -> None:
    step = Step(
        name="s",
        action=Container(image="i", command=("x",), env={"T": "known"}),
        mounts=(
            Mount(name="Work_Dir", path="/w", scope="run", sub_path="a"),
            Mount(name="pvc", path="/p", scope="run", read_only=True),
        ),
        extra={
            "pod": {
                "volumes": (
                    {"name": "pvc", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "host", "hostPath": {"path": "/data"}},
                ),
                "serviceAccountName": "sa",
                "hostNetwork": True,
            },
            "container": {
                "imagePullPolicy": "Always",
                "env": ({"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},),
            },
            "metadata": {"labels": {"l": "m"}},
            "argo": {"daemon": True},
            "jobset": {"coordinator": {}},
        },
    )
    found = written(Workflow(name="w", steps=(step,), extra={"argo": {"podGC": {"strategy": "OnPodCompletion"}}}))
    template = templates(found)["s"]
    assert template["container"] == {
        "image": "i",
        "command": ["x"],
        "env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "volumeMounts": [
            {"name": "work-dir", "mountPath": "/w", "subPath": "a"},
            {"name": "pvc", "mountPath": "/p", "readOnly": True},
        ],
        "imagePullPolicy": "Always",
    }
    assert template["volumes"] == [
        {"name": "pvc", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "host", "hostPath": {"path": "/data"}},
    ]
    assert (template["daemon"], template["serviceAccountName"], template["podSpecPatch"]) == (
        True,
        "sa",
        '{"hostNetwork": true}',
    )
    spec = found.documents[-1]["spec"]
    assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "work-dir"
    assert spec["podGC"] == {"strategy": "OnPodCompletion"}
    assert [entry.path for entry in found.report.of("lost")] == ["steps.s.extra.jobset"]


def test_what_argo_does_otherwise_is_said() -> None:
    definition = Workflow(name="d", steps=(sh("x", "true"),), timeout=5)
    found = written(
        Workflow(
            name="w",
            unit=Unit.STAGE,
            steps=(
                sh("a", "false"),
                sh("b", "true", needs=(Edge("a"),)),
                sh("c", "true", needs=(Edge("a", frozenset({Outcome.FAILED})),)),
                sh("e", "false"),
                sh("f", "true", trigger=E('steps.e.outcome == "failed"')),
                sh("g", "true", replicas=2),
                sh("h", "echo ", E("item.i"), each=ForEach(axes=({"i": (1, 2)},), gang=True)),
                Step(name="d", action=Nested(name="d"), timeout=3),
            ),
            definitions=(definition,),
        )
    )
    lost = {entry.path: entry.message for entry in found.report.of("lost")}
    assert set(lost) == {"definitions.d.timeout", "unit", "steps.g.replicas", "steps.h.each.gang", "steps.d.timeout"}
    changed = [entry.path for entry in found.report.of("changed")]
    assert "steps.a" in changed


def test_exit_handlers_of_a_called_workflow_are_hooks_of_the_call() -> None:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="v"), Parameter(name="other", default=1)),
        steps=(sh("x", "true"),),
        on_exit=(
            sh("tell", "echo ", E("params.v"), " ", E("workflow.outcome")),
            sh("more", "true", when=E('workflow.outcome == "failed"')),
        ),
    )
    call = Step(
        name="c",
        action=Nested(name="inner"),
        inputs=given(v=E("item.i")),
        each=ForEach(axes=({"i": (1, 2)},), parallel=1),
    )
    found = written(Workflow(name="w", steps=(call,), definitions=(inner,)))
    (task,) = templates(found)["c-call"]["dag"]["tasks"]
    assert task["template"] == "inner" and task["hooks"] == {
        "exit": {
            "template": "inner-exit-handler",
            "arguments": {
                "parameters": [
                    {"name": "v", "value": "{{inputs.parameters.v}}"},
                    {"name": "penstock-outcome", "value": "{{tasks.call.status}}"},
                ]
            },
        }
    }
    told = tasks(found, "inner-exit-handler")
    assert told["more"]["when"] == "{{=inputs.parameters['penstock-outcome'] == 'Failed'}}"
    assert (
        "inputs.parameters['penstock-outcome'] == 'Error' ? 'errored'"
        in told["tell"]["arguments"]["parameters"][1]["value"]
    )


def test_names_that_argo_does_not_take() -> None:
    steps = (sh("a_b", "true"), sh("a-b", "true"), sh("7", "true", needs=(Edge("a_b"),)), sh("x" * 128, "true"))
    found = written(Workflow(name="W" * 100, steps=steps))
    assert list(tasks(found)) == ["a-b", "a-b-2", "s-7", "x" * 128]
    assert len(found.documents[-1]["metadata"]["generateName"]) <= 58
    (entry,) = [entry for entry in found.report.of("changed") if entry.path == "steps.a_b"]
    assert "a-b, 7" in entry.message


REFUSED: dict[str, tuple[Step, str, str]] = {
    "braces of Argo's": (sh("s", "echo '{{inputs.parameters.x}}'"), "P845", "one of its own variables"),
    "files in a list": (
        sh("s", "cat ", E("inputs.fs"), inputs=given(fs=E("[steps.f.outputs.o, steps.f.outputs.o]"))),
        "P846",
        "several files",
    ),
    "a Python object for a command": (
        sh("s", "cat ", E("inputs.o"), inputs=given(o=E("steps.o.outputs.o"))),
        "P846",
        "only a Python function",
    ),
    "nested loops that depend on one another": (
        sh("s", "echo", each=ForEach(axes=({"a": E("steps.l.outputs.o")}, {"b": E("range(item.a)")}))),
        "P841",
        "depend on those of another",
    ),
    "formats": (sh("s", "echo ", E('format(steps.n.outputs.o, ".2f")')), "P841", "cannot format"),
    "conditions of objects": (
        Step(name="s", action=Resource(manifest={}, success_condition=E("status.a == 1 || status.b == 2"))),
        "P841",
        "one of several",
    ),
    "pods with results": (
        Step(name="s", action=Pod(parts=(Part(name="p", image="i", results={"a": "/a"}),))),
        "P841",
        "depends on how others",
    ),
    "the status of an answer": (
        Step(name="s", action=Http(url="u"), outputs=(Output(name="o", value=E("response.status")),)),
        "P841",
        "more of the answer",
    ),
    "a semaphore without a name": (
        sh("s", "true", locks=(Lock(name=E("steps.n.outputs.o"), limit=2),)),
        "P841",
        "only known when it runs",
    ),
    "lists inside lists": (
        sh("s", "echo ", E("steps.l.outputs.o.map(x, steps.l.outputs.o.map(y, x + y))")),
        "P841",
        "no name",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_argo_cannot_say_is_refused_with_its_place(name: str) -> None:
    step, code, said = REFUSED[name]
    before = (
        sh("f", "true", out={"o": "file"}),
        Step(name="o", action=Function(module="json", name="loads"), outputs=(Output(name="o", type=parse("object")),)),
        sh("l", "true", out={"o": "list[int]"}),
        sh("n", "true", out={"o": "float"}),
    )
    with pytest.raises(UserError) as caught:
        write_argo(Workflow(name="w", steps=(*before, step)), bundle=b"")
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == (code, "steps.s") and said in problem.message and problem.fix


def test_everything_that_is_wrong_is_said_at_once() -> None:
    steps = tuple(sh(f"s{i}", "{{workflow.name}} " + str(i), inputs=given(x=E("steps.f.outputs.o"))) for i in range(3))
    other = sh("t", "echo ", E('format(1.5, "e")'))
    with pytest.raises(UserError) as caught:
        write_argo(Workflow(name="w", steps=(sh("f", "true", out={"o": "int"}), *steps, other)))
    assert {problem.code for problem in caught.value.problems} == {"P845", "P841"}


def test_other_peoples_braces_stay() -> None:
    made = one(sh("s", "echo '{{ .Values.x }} {{ jinja }} {% x %}'"))
    assert made["script"]["source"] == "echo '{{ .Values.x }} {{ jinja }} {% x %}'"


# -- foreign workflows -------------------------------------------------------------------------------------------------


def workflows() -> Iterator[tuple[str, Workflow]]:
    for file in files("argo", "tekton", "jobset"):
        try:
            own = manifests.library_of(file)
            found = manifests.with_neighbours(own, file)
            for document in registry.roots(own):
                yield label(file), registry.read(found, document).workflow
        except UserError:
            continue


@needs_corpus
def test_every_example_is_written_or_refused_with_a_reason() -> None:
    taken = refused = 0
    for name, workflow in workflows():
        try:
            found = write_argo(workflow)
        except UserError as error:
            refused += 1
            assert all(problem.code in ("P841", "P843", "P845", "P846") for problem in error.problems), name
            continue
        taken += 1
        check_limits(found.documents)
        check_references(found.documents)
    assert taken > 200 and refused < taken / 10


# -- any workflow ------------------------------------------------------------------------------------------------------

_VALUES = (
    "3",
    "params.n + 1",
    "params.s",
    "params.xs",
    '"a" + params.s',
    "params.xs.map(x, x * 2)",
    "run.id",
    "params.n > 2",
)
_OUTCOMES = (
    NORMAL,
    ALL,
    frozenset({Outcome.FAILED}),
    frozenset({Outcome.SUCCEEDED}),
    frozenset({Outcome.OMITTED, Outcome.FAILED}),
)
_LOOPS = (
    ({"i": (1, 2)},),
    ({"i": ("a", "b")},),
    ({"i": E("range(params.n)")},),
    ({"i": E("params.xs")},),
    ({"i": (1, 2), "j": ("a", "b")},),
    ({"i": E("params.xs")}, {"j": E("range(2)")}),
    ({"i": ({"k": 1}, {"k": 2})},),
    ({"i": E("params.xs.filter(x, x > 1)")},),
)


@st.composite
def actions(draw: st.DrawFn, reads: str, looped: bool) -> Any:
    word = draw(
        st.sampled_from(["x", E(reads), Template(("<", E("inputs.v"), ">")), *([E("item.i")] if looped else [])])
    )
    return draw(
        st.sampled_from(
            [
                Script(source=Template(("echo ", word if isinstance(word, Expr) else E(reads)))),
                Container(image="i", command=("c", word), env={"E": word}),
                Function(module="json", name="loads", image=None, env={"E": word}),
                Suspend(message=word),
                Http(url=word, body=word),
                Resource(manifest={"a": word}, success_condition=E("status.a == 'b'")),
                Pod(
                    parts=(
                        Part(name="p", image="i", command=("c", word)),
                        Part(name="q", image="i", source=word, command=("sh",)),
                    )
                ),
                Nested(name="inner"),
            ]
        )
    )


@st.composite
def some_steps(draw: st.DrawFn, known: list[str], name: str) -> Step:
    choices = [*_VALUES, *(f"steps.{up}.outputs.o" for up in known), *(f"steps.{up}.outcome" for up in known)]
    each = draw(
        st.none()
        | st.builds(ForEach, axes=st.sampled_from(_LOOPS), parallel=st.sampled_from([None, 2]), gang=st.booleans())
    )
    action = draw(actions(draw(st.sampled_from(choices)), each is not None))
    loop = While(
        condition=E("string(outputs.o) == string(inputs.v)"),
        carry={"v": "o"},
        max_iterations=draw(st.sampled_from([1, 3, 90])),
        test=draw(st.sampled_from(["after", "before"])),
    )
    if loop.test == "before":
        loop = dataclasses.replace(loop, condition=E('string(inputs.v) == "3"'))
    outputs = (
        ()
        if isinstance(action, Nested)
        else (
            Output(
                name="o",
                type=parse(draw(st.sampled_from(["any", "str", "int", "list[int]"]))),
                value=E("object.a") if isinstance(action, Resource) else MISSING,
            ),
        )
    )
    up = draw(st.sampled_from(known)) if known else None
    return Step(
        name=name,
        action=action,
        inputs=(
            Input(name="v", value=E(draw(st.sampled_from(choices))), path=draw(st.sampled_from([None, "/tmp/v"]))),
        ),
        outputs=outputs,
        needs=(Edge(up, draw(st.sampled_from(_OUTCOMES))),) if up and draw(st.booleans()) else (),
        trigger=E(f'steps.{up}.outcome == "failed"') if up and draw(st.integers(0, 4)) == 0 else None,
        when=draw(st.sampled_from([None, None, E("params.n > 1"), *([E("item.i != 1")] if each else [])])),
        each=each,
        loop=draw(st.sampled_from([None, loop])) if each is None and not isinstance(action, Nested) else None,
        retry=draw(
            st.sampled_from([None, Retry(limit=2, when=E("attempt.number < 2 && attempt.outcome == 'failed'"))])
        ),
        replicas=draw(st.sampled_from([1, 1, 3])),
        tolerates=draw(st.sampled_from([frozenset(), frozenset({Outcome.FAILED})])),
        locks=draw(st.sampled_from([(), (Lock(name=E("inputs.v")), Lock(name="l", limit=2))])),
        cache=draw(st.sampled_from([Cache(), Cache(key=Template(("k", E("inputs.v"))))])),
        mounts=draw(st.sampled_from([(), (Mount(name="m", path="/m", scope="run"),)])),
    )


@st.composite
def some_workflows(draw: st.DrawFn) -> Workflow:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="v"), Parameter(name="n", default=1)),
        steps=(sh("x", "echo ", E("params.v"), out={"o": "any"}),),
        outputs=results(o="steps.x.outputs.o"),
        on_exit=draw(st.sampled_from([(), (sh("e", "echo ", E("params.v"), E("workflow.outcome")),)])),
    )
    found: list[Step] = []
    for number in range(draw(st.integers(1, 5))):
        found.append(draw(some_steps([step.name for step in found], f"s{number}")))
    return Workflow(
        name="w",
        params=(
            Parameter(name="n", type=parse("int"), default=2),
            Parameter(name="s", type=parse("str"), default="t"),
            Parameter(name="xs", type=parse("list[int]"), default=(1, 2)),
        ),
        steps=tuple(found),
        outputs=results(**{step.name: f"steps.{step.name}.outputs.o" for step in found}),
        on_exit=draw(st.sampled_from([(), (sh("bye", "echo ", E("workflow.outcome")),)])),
        definitions=(inner,),
        parallel=draw(st.sampled_from([None, 3])),
    )


@hypothesis.given(some_workflows())
@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_any_workflow_is_written_so_that_it_can_be_read_or_refused(workflow: Workflow) -> None:
    hypothesis.assume(not errors(workflow))
    try:
        read_back(workflow, b"")
    except UserError as error:
        assert all(problem.code in ("P841", "P846") and problem.fix for problem in error.problems), error


def test_what_looks_into_a_loop_is_written_as_argo_says_it() -> None:
    from penstock.formats.argo.language.depends import compile_depends
    from penstock.formats.argo.write.depends import trigger_text

    found = compile_depends("a.AnySucceeded || b.AllFailed", ["a", "b"]).trigger
    assert found is not None
    assert trigger_text(found, str) == "a.AnySucceeded || b.Failed && !b.AnySucceeded"
