"""Workflows as Tekton documents: what they become, what is refused, and that reading them again gives the same graph."""

from __future__ import annotations

import importlib
import io
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.author.pack import pack
from penstock.errors import UserError
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template, parse_template
from penstock.expressions.types import FILE, INT, STR, Type, list_of
from penstock.formats import registry, schema
from penstock.formats.base import Written
from penstock.formats.documents import Library, read_text
from penstock.formats.tekton.read.workflow import read_tekton
from penstock.formats.tekton.write.workflow import write_tekton
from penstock.formats.yaml_writer import dump_all
from penstock.graph.check import errors
from penstock.graph.model import (
    Action,
    Backoff,
    Container,
    Edge,
    ForEach,
    Http,
    Input,
    Mount,
    Nested,
    Outcome,
    Output,
    Parameter,
    Part,
    Placement,
    Pod,
    Retry,
    Script,
    Step,
    Suspend,
    While,
    Workflow,
    edges_of,
)
from penstock.plan.make import make
from penstock.runners.local import LocalRunner
from tests.formats.corpus import files, label, needs_corpus
from tests.graph.strategies import examples

BAD = frozenset({Outcome.FAILED, Outcome.ERRORED})


def script(name: str, source: str = "true", **fields: Any) -> Step:
    return Step(name=name, action=Script(source=parse_template(source), image="busybox"), **fields)


def value(name: str, text: str, type_: Type = STR) -> Input:
    return Input(name=name, value=parse_template(text), type=type_)


def out(name: str, type_: Type = STR, path: str | None = None) -> Output:
    return Output(name=name, type=type_, path=path)


def write(*steps: Step, **fields: Any) -> Written:
    """Valid for this side and for Tekton's."""
    fields.setdefault("fail_fast", True)
    whole = Workflow(name="w", steps=steps, **fields)
    assert errors(whole) == []
    written = write_tekton(whole)
    for document in written.documents:
        assert schema.check(document) == []
    return written


def spec(written: Written, kind: str = "Pipeline") -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in written.documents if one["kind"] == kind)["spec"]
    return found


def again(written: Written) -> Workflow:
    library = Library(tuple(read_text(dump_all(written.documents), "w.yaml")))
    found = read_tekton(library, registry.root(library, None, "w.yaml"))
    assert errors(found.workflow) == []
    return found.workflow


def lost(written: Written) -> str:
    return "\n".join(f"{entry.path}: {entry.message}" for entry in written.report.entries if entry.kind == "lost")


# -- what it becomes --------------------------------------------------------------------------------------------------


def test_a_pipeline_and_a_run_of_it() -> None:
    written = write(
        script(
            "a",
            "echo ${{ inputs.x }} > /tmp/r",
            inputs=(value("x", "<${{ params.p }}>"),),
            outputs=(out("r", path="/tmp/r"),),
        ),
        script("b", "echo ${{ inputs.y }}", inputs=(value("y", "${{ steps.a.outputs.r }}"),)),
        script("c", needs=(Edge("b"),)),
        params=(Parameter(name="p", type=STR, default="hi"), Parameter(name="n", type=INT, default=3)),
        outputs=(Output(name="o", value=Expr.of("steps.a.outputs.r")),),
        queue="team-a",
        doc="What it is for.",
    )
    found = spec(written)
    assert found["params"] == [
        {"name": "p", "type": "string", "default": "hi"},
        {"name": "n", "type": "string", "default": "3"},
    ]
    # The run has them too: the pipeline may be written again, with other defaults, while it waits.
    assert spec(written, "PipelineRun")["params"] == [{"name": "p", "value": "hi"}, {"name": "n", "value": "3"}]
    a, b, c = found["tasks"]
    assert a["params"] == [{"name": "x", "value": "<$(params.p)>"}]
    assert a["taskSpec"]["steps"][0]["script"] == "#!/usr/bin/env sh\necho $(params.x) > $(results.r.path)"
    assert a["taskSpec"]["results"] == [{"name": "r", "type": "string"}]
    assert b["params"] == [{"name": "y", "value": "$(tasks.a.results.r)"}] and "runAfter" not in b
    assert c["runAfter"] == ["b"]
    assert found["results"] == [{"name": "o", "type": "string", "value": "$(tasks.a.results.r)"}]
    run = next(one for one in written.documents if one["kind"] == "PipelineRun")
    assert run["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}
    assert run["spec"]["timeouts"] == {"pipeline": "0"} and run["spec"]["pipelineRef"] == {"name": "w"}
    assert again(written).queue == "team-a"


def test_outputs_without_a_path_go_where_results_are() -> None:
    (found,) = spec(write(script("a", "echo 1 > $PENSTOCK_OUTPUTS/r", outputs=(out("r"),))))["tasks"]
    assert found["taskSpec"]["steps"][0]["env"] == [{"name": "PENSTOCK_OUTPUTS", "value": "/tekton/results"}]


def test_what_a_step_prints_is_a_result() -> None:
    written = write(
        Step(name="a", action=Container(image="i", command=("date",)), outputs=(out("r", path="/dev/stdout"),))
    )
    (step,) = spec(written)["tasks"][0]["taskSpec"]["steps"]
    assert step["stdoutConfig"] == {"path": "$(results.r.path)"}
    assert "flag" in written.report.entries[0].message


def test_policies_amounts_and_places() -> None:
    written = write(
        script(
            "a",
            retry=Retry(limit=2, backoff=Backoff(initial=9.0)),
            timeout=90.0,
            resources={"cpu": 2500, "memory": 2**30 * 1000, "nvidia.com/gpu": 1000},
            placement=Placement(node_selector={"disk": "ssd"}),
            queue="other",
        ),
        script("b", tolerates=BAD, needs=(Edge("a"),)),
        script("c", needs=(Edge("b", frozenset({Outcome.SUCCEEDED, Outcome.SKIPPED}) | BAD),)),
        timeout=100.0,
    )
    a, b, c = spec(written)["tasks"]
    assert (a["retries"], a["timeout"], b["onError"], c["runAfter"]) == (2, "90s", "continue", ["b"])
    assert a["taskSpec"]["steps"][0]["computeResources"] == {
        "requests": {"cpu": "2500m", "memory": "1Gi", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    run = spec(written, "PipelineRun")
    assert run["taskRunSpecs"] == [
        {
            "pipelineTaskName": "a",
            "podTemplate": {"nodeSelector": {"disk": "ssd"}},
            "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}},
        }
    ]
    assert run["timeouts"] == {"pipeline": "0"}  # something queues: the clock would run while it waits
    assert "steps.a.retry.backoff" in lost(written) and "timeout" in lost(written)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('params.p == "x"', [("$(params.p)", "in", ["x"])]),
        (
            'params.p != "x" && !(params.n in [1, 2])',
            [("$(params.p)", "notin", ["x"]), ("$(params.n)", "notin", ["1", "2"])],
        ),
        ('params.p == "x" || params.p == "y"', [("$(params.p)", "in", ["x", "y"])]),
        ('!(params.p != "x" && params.p != "y")', [("$(params.p)", "in", ["x", "y"])]),
        ("params.p in params.many", [("$(params.p)", "in", ["$(params.many[*])"])]),
        ('"x" + params.p == params.q', [("x$(params.p)", "in", ["$(params.q)"])]),
        ("params.flag", [("$(params.flag)", "in", ["true"])]),
        ("!params.flag", [("$(params.flag)", "notin", ["true"])]),
    ],
)
def test_conditions(condition: str, expected: list[tuple[str, str, list[str]]]) -> None:
    params = (
        Parameter(name="p", type=STR, default="x"),
        Parameter(name="q", type=STR, default="x"),
        Parameter(name="n", type=INT, default=1),
        Parameter(name="flag", type=Type("bool"), default=True),
        Parameter(name="many", type=list_of(STR), default=("x",)),
    )
    (found,) = spec(write(script("a", when=Expr.of(condition)), params=params))["tasks"]
    assert [(one["input"], one["operator"], one["values"]) for one in found["when"]] == expected


def test_who_needs_success_of_a_guarded_step_has_its_guard() -> None:
    written = write(
        script("a", when=Expr.of('params.p == "x"')),
        script("b", needs=(Edge("a", frozenset({Outcome.SUCCEEDED})),)),
        params=(Parameter(name="p", type=STR, default="x"),),
    )
    a, b = spec(written)["tasks"]
    assert a["when"] == b["when"] and b["runAfter"] == ["a"]


def test_loops_are_matrices() -> None:
    written = write(
        script("find", "echo", outputs=(out("all", list_of(STR), "/dev/stdout"),)),
        script(
            "each",
            "echo ${{ inputs.x }} ${{ inputs.both }} ${{ item.n }}",
            inputs=(value("x", "${{ item.x }}"), value("both", "${{ item.x }}-${{ item.n }}")),
            outputs=(out("r"),),
            each=ForEach(axes=({"x": Expr.of("steps.find.outputs.all")}, {"n": (1, 2)})),
        ),
        script(
            "zipped",
            "echo ${{ inputs.a }} ${{ inputs.b }}",
            inputs=(value("a", "${{ item.a }}"), value("b", "${{ item.b }}")),
            each=ForEach(axes=({"a": ("p", "q"), "b": ("r", "s")},)),
        ),
        Step(
            name="gather",
            action=Container(image="i", command=("echo",), args=(Expr.of("inputs.all"),)),
            inputs=(value("all", "${{ steps.each.outputs.r }}", list_of(STR)),),
        ),
    )
    _, each, zipped, gather = spec(written)["tasks"]
    # Here the last axis runs fastest, in Tekton the first parameter.
    assert each["matrix"] == {
        "params": [{"name": "n", "value": ["1", "2"]}, {"name": "x", "value": "$(tasks.find.results.all[*])"}]
    }
    assert each["taskSpec"]["steps"][0]["script"].endswith("echo $(params.x) $(params.x)-$(params.n) $(params.n)")
    assert zipped["matrix"]["include"][1] == {
        "name": "item-1",
        "params": [{"name": "a", "value": "q"}, {"name": "b", "value": "s"}],
    }
    assert gather["params"] == [{"name": "all", "value": "$(tasks.each.results.r[*])"}]
    assert gather["taskSpec"]["steps"][0]["args"] == ["$(params.all[*])"]


INNER = Workflow(
    name="inner",
    params=(Parameter(name="p", type=STR),),
    steps=(
        script("one", "echo ${{ inputs.v }}", inputs=(value("v", "${{ params.p }}"),), outputs=(out("r"),)),
        script("two", "echo ${{ inputs.v }}", inputs=(value("v", "${{ steps.one.outputs.r }}!"),), outputs=(out("r"),)),
        script("three", needs=(Edge("one"),)),
    ),
    outputs=(Output(name="o", type=STR, value=Expr.of("steps.two.outputs.r")),),
)


def test_a_called_workflow_is_written_out() -> None:
    written = write(
        script("before", outputs=(out("r"),)),
        Step(
            name="call",
            action=Nested(name="inner"),
            inputs=(value("p", "<${{ steps.before.outputs.r }}>"),),
            when=Expr.of('params.go == "yes"'),
        ),
        script("after", "echo ${{ inputs.x }}", inputs=(value("x", "${{ steps.call.outputs.o }}"),)),
        script("last", needs=(Edge("call"),)),
        params=(Parameter(name="go", type=STR, default="yes"),),
        definitions=(INNER,),
    )
    tasks = {one["name"]: one for one in spec(written)["tasks"]}
    assert list(tasks) == ["before", "call-one", "call-two", "call-three", "after", "last"]
    assert tasks["call-one"]["params"] == [{"name": "v", "value": "<$(tasks.before.results.r)>"}]
    assert tasks["call-two"]["params"] == [{"name": "v", "value": "$(tasks.call-one.results.r)!"}]
    assert tasks["call-three"]["runAfter"] == ["call-one"]
    assert all(one["when"] == tasks["call-one"]["when"] for name, one in tasks.items() if name.startswith("call-"))
    assert tasks["after"]["params"] == [{"name": "x", "value": "$(tasks.call-two.results.r)"}]
    assert tasks["after"]["runAfter"] == ["call-three"]
    assert sorted(tasks["last"]["runAfter"]) == ["call-three", "call-two"]


def test_a_loop_over_a_called_workflow_is_written_out_item_by_item() -> None:
    written = write(
        Step(
            name="call",
            action=Nested(name="inner"),
            inputs=(value("p", "${{ item.x }}"),),
            each=ForEach(axes=({"x": ("a", "b")},)),
        ),
        Step(
            name="all",
            action=Container(image="i", command=("echo",), args=(Expr.of("inputs.them"),)),
            inputs=(value("them", "${{ steps.call.outputs.o }}", list_of(STR)),),
        ),
        definitions=(INNER,),
    )
    tasks = {one["name"]: one for one in spec(written)["tasks"]}
    assert len(tasks) == 7
    assert tasks["call-1-one"]["params"] == [{"name": "v", "value": "b"}]
    given = ["$(tasks.call-0-two.results.r)", "$(tasks.call-1-two.results.r)"]
    assert tasks["all"]["params"] == [{"name": "them", "value": given}]


def test_what_runs_at_the_end() -> None:
    written = write(
        script("a", outputs=(out("r"),)),
        on_exit=(
            script("z", when=Expr.of('workflow.outcome == "failed"')),
            script(
                "y",
                "echo ${{ inputs.x }}",
                inputs=(value("x", "${{ steps.a.outputs.r }}"),),
                when=Expr.of('steps.a.outcome == "succeeded"'),
            ),
        ),
        timeout=60.0,
    )
    z, y = spec(written)["finally"]
    assert z["when"] == [{"input": "$(tasks.status)", "operator": "in", "values": ["Failed"]}]
    assert y["when"] == [{"input": "$(tasks.a.status)", "operator": "in", "values": ["Succeeded"]}]
    assert spec(written, "PipelineRun")["timeouts"] == {"pipeline": "0", "tasks": "60s"}


def test_folders_and_files() -> None:
    written = write(
        script(
            "a",
            "cp x /out/model",
            outputs=(out("model", FILE, "/out/model"),),
            mounts=(Mount(name="cache", path="/cache", scope="run"),),
        ),
        script(
            "b",
            "cat /in/model /conf/a.txt /text",
            inputs=(
                Input(name="m", value=Expr.of("steps.a.outputs.model"), type=FILE, path="/in/model"),
                Input(name="t", value="hello", path="/text"),
            ),
            mounts=(
                Mount(name="conf", path="/conf", scope="given", files={"a.txt": "A"}),
                Mount(name="tmp", path="/scratch"),
            ),
        ),
    )
    a, b = spec(written)["tasks"]
    make_, copy_ = a["taskSpec"]["steps"]
    assert make_["script"].endswith("mkdir -p /workspace/penstock-files/a\n")
    assert copy_["script"].endswith("cp x /workspace/penstock-files/a/model")
    assert [one["name"] for one in a["workspaces"]] == ["cache", "penstock-files"]
    lay, main = b["taskSpec"]["steps"]
    assert main["script"].endswith("cat /workspace/penstock-files/a/model /conf/a.txt /tekton/home/penstock/t")
    assert lay["env"] == [{"name": "INPUT_0", "value": "$(params.t)"}] and "/tekton/home/penstock/t" in lay["script"]
    assert {one["name"] for one in b["taskSpec"]["volumes"]} == {"conf", "tmp"}
    assert b["runAfter"] == ["a"]
    maps = [one for one in written.documents if one["kind"] == "ConfigMap"]
    assert [one["data"] for one in maps] == [{"a.txt": "A"}]
    assert [one["name"] for one in spec(written, "PipelineRun")["workspaces"]] == ["cache", "penstock-files"]


def test_the_parts_of_a_pod() -> None:
    pod = Pod(
        parts=(
            Part(
                name="one",
                image="i",
                command=("sh", "-c"),
                args=("echo $(HOME) > /r",),
                env={"HOME": "/h"},
                results={"r": "/r"},
            ),
            Part(name="two", image="j", command=("/bin/sh", "-e"), source="exit 1", on_error="continue", timeout=5.0),
            Part(
                name="three",
                image="k",
                command=("/usr/bin/env", "bash"),
                source="#!/usr/bin/env bash\necho $(steps.one.results.r)",
                when=({"input": "$(steps.one.results.r)", "operator": "in", "values": ("x",)},),
            ),
            Part(name="side", image="s", sidecar=True),
        )
    )
    extra = {
        "containers": {"one": {"securityContext": {"runAsUser": 1}, "stdin": True}},
        "pod": {"schedulerName": "mine"},
    }
    written = write(Step(name="a", action=pod, extra=extra))
    found = spec(written)["tasks"][0]["taskSpec"]
    one, two, three = found["steps"]
    assert one["args"] == ["echo $$(HOME) > $(step.results.r.path)"] and one["results"] == [{"name": "r"}]
    assert one["securityContext"] == {"runAsUser": 1} and "no stdin" in lost(written)
    assert two == {"name": "two", "image": "j", "script": "exit 1", "onError": "continue", "timeout": "5s"}
    assert three["when"] == [{"input": "$(steps.one.results.r)", "operator": "in", "values": ["x"]}]
    assert found["sidecars"] == [{"name": "side", "image": "s"}]
    assert spec(written, "PipelineRun")["taskRunSpecs"][0]["podTemplate"] == {"schedulerName": "mine"}
    back = again(written).steps[0].action
    assert isinstance(back, Pod) and [part.name for part in back.parts] == ["one", "two", "three", "side"]
    assert back.parts[1:] == pod.parts[1:] and back.parts[0].args == (
        "echo $(HOME) > /tekton/steps/step-one/results/r",
    )


def test_names_become_legal_and_stay_apart() -> None:
    written = write(script("Train_Model"), script("train-model", needs=(Edge("Train_Model"),)), script("x" * 80))
    names = [one["name"] for one in spec(written)["tasks"]]
    assert names[:2] == ["train-model", "train-model-2"] and len(set(names)) == 3 and len(names[2]) <= 63
    assert spec(written)["tasks"][1]["runAfter"] == ["train-model"]


# -- functions --------------------------------------------------------------------------------------------------------


LETTERS = """
from penstock import task, workflow

@task(cpu=1)
def double(x: int) -> int:
    return 2 * x

@task
def spell(n: int, word: str) -> list[str]:
    return [word] * n

@task
def join(words: list[str]) -> str:
    return "-".join(words)

@workflow
def spelling(word: str = "ab"):
    return join(spell(double(2), word))
"""


@pytest.fixture
def spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workflow]:
    """In a module of its own: all that it imports must be where it runs."""
    (tmp_path / "letters_of_tekton.py").write_text(LETTERS)
    monkeypatch.syspath_prepend(tmp_path)
    found: Workflow = importlib.import_module("letters_of_tekton").spelling.graph
    yield found
    sys.modules.pop("letters_of_tekton")


def test_functions_travel_with_their_code(spelling: Workflow, tmp_path: Path) -> None:
    packed = pack(spelling)
    assert packed is not None
    written = write_tekton(spelling, bundle=packed[0])
    for document in written.documents:
        assert schema.check(document) == []
    double, spell, join = spec(written)["tasks"]
    assert double["params"] == [{"name": "x", "value": "2"}]
    assert spell["taskSpec"]["results"] == [{"name": "result", "type": "array"}]
    assert join["taskSpec"]["steps"][0]["args"] == ["penstock:words", "$(params.words[*])", "penstock:"]
    # Read again, the scripts run by themselves.
    run = LocalRunner(home=tmp_path / "home", on={"pod": "process"}, until="spell").run(again(written))
    assert run.status == "succeeded", [run.logs(name) for name in run.failures]


def changed(bundle: bytes) -> bytes:
    target = io.BytesIO(bundle)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("more.py", "more = 1")
    return target.getvalue()


def test_changed_code_and_files_have_other_names(spelling: Workflow) -> None:
    """So that a run which waits does not start with what was submitted after it."""

    def maps(written: Written) -> set[str]:
        return {one["metadata"]["name"] for one in written.documents if one["kind"] == "ConfigMap"}

    packed = pack(spelling)
    assert packed is not None
    one, other = packed[0], changed(packed[0])
    assert maps(write_tekton(spelling, bundle=one)) == maps(write_tekton(spelling, bundle=one))
    assert not maps(write_tekton(spelling, bundle=one)) & maps(write_tekton(spelling, bundle=other))

    def with_file(text: str) -> Written:
        mount = Mount(name="conf", path="/conf", scope="given", files={"a.txt": text})
        return write(Step(name="a", action=Container(image="i", command=("x",)), mounts=(mount,)))

    assert maps(with_file("A")) == maps(with_file("A")) != maps(with_file("B"))


def test_fields_of_the_container_are_handed_on(spelling: Workflow) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    place = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    extra = {"container": {"volumeMounts": [mount], "env": [place, {"name": "A", "value": "hidden"}]}}
    own = Container(image="busybox", command=("true",), env={"A": "b"})
    step = Step(name="a", action=own, mounts=(Mount(name="tmp", path="/x", scope="task"),), extra=extra)
    written = write(step)
    assert lost(written) == ""
    made = spec(written)["tasks"][0]["taskSpec"]["steps"][0]
    assert made["env"] == [{"name": "A", "value": "b"}, place]
    assert made["volumeMounts"] == [mount, {"name": "tmp", "mountPath": "/x"}]
    packed = pack(spelling)
    assert packed is not None
    lent = replace(spelling, steps=tuple(replace(one, extra=extra) for one in spelling.steps))
    for task in spec(write_tekton(lent, bundle=packed[0]))["tasks"]:
        (made,) = task["taskSpec"]["steps"]
        assert mount in made["volumeMounts"] and place in made["env"]
        assert len(made["volumeMounts"]) == 2, "and the code"


def test_code_that_is_not_at_hand_is_told_of(spelling: Workflow) -> None:
    with pytest.raises(UserError) as caught:
        write_tekton(spelling)
    assert {problem.code for problem in caught.value.problems} == {"P854"}


# -- what is refused --------------------------------------------------------------------------------------------------

ASKS = Parameter(name="n", type=INT, default=1)


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        ([Step(name="a", action=Suspend())], "P850", "suspend"),
        ([Step(name="a", action=Http(url="http://x"))], "P850", "http"),
        ([script("a", replicas=4)], "P850", "one pod, not 4"),
        (
            [
                script(
                    "a",
                    inputs=(value("x", "1"),),
                    outputs=(out("x"),),
                    loop=While(condition=Expr.of('outputs.x != "1"'), carry={"x": "x"}),
                )
            ],
            "P850",
            "while loop",
        ),
        ([script("a", when=Expr.of("params.n > 3"))], "P851", "cannot be said with in and notin"),
        ([script("a", when=Expr.of('params.n == 1 || params.s == "x"'))], "P851", "one of several values"),
        ([script("a", inputs=(value("x", "${{ params.n + 1 }}", INT),))], "P851", "worked out"),
        ([script("a"), script("b", needs=(Edge("a", BAD),))], "P852", "goes on when 'a' is errored, failed"),
        (
            [script("a"), script("b", needs=(Edge("a"),), trigger=Expr.of('steps.a.outcome == "failed"'))],
            "P852",
            "how other steps ended",
        ),
        (
            [
                script("a", outputs=(out("l", list_of(INT)),)),
                script(
                    "b",
                    "echo ${{ item.x }} ${{ item.y }}",
                    each=ForEach(axes=({"x": Expr.of("steps.a.outputs.l"), "y": Expr.of("steps.a.outputs.l")},)),
                ),
            ],
            "P853",
            "advance together",
        ),
        (
            [
                script("a", outputs=(out("l", list_of(INT)),)),
                script("b", "echo ${{ item.x }}", each=ForEach(axes=({"x": Expr.of("steps.a.outputs.l")},))),
            ],
            "P853",
            "list[str]",
        ),
    ],
)
def test_what_tekton_has_no_word_for_is_refused(steps: list[Step], code: str, words: str) -> None:
    params = (ASKS, Parameter(name="s", type=STR, default="x"))
    with pytest.raises(UserError) as caught:
        write_tekton(Workflow(name="w", params=params, steps=tuple(steps)))
    problem = caught.value.problems[0]
    assert problem.code == code and words in f"{problem.message} {problem.fix}" and problem.where.startswith("steps.")


def test_every_step_that_cannot_be_said_is_named() -> None:
    with pytest.raises(UserError) as caught:
        write_tekton(Workflow(name="w", steps=(Step(name="a", action=Suspend()), script("b", replicas=2))))
    assert [problem.where for problem in caught.value.problems] == ["steps.a", "steps.b"]


def test_recursion_and_loops_over_calls_that_are_not_known() -> None:
    recursive = Workflow(
        name="inner",
        params=(Parameter(name="p", type=STR),),
        steps=(
            Step(name="again", action=Nested(name="inner"), inputs=(value("p", "x"),), when=Expr.of('params.p == "y"')),
        ),
    )
    call = Step(name="call", action=Nested(name="inner"), inputs=(value("p", "x"),))
    with pytest.raises(UserError) as caught:
        write_tekton(Workflow(name="w", steps=(call,), definitions=(recursive,)))
    assert caught.value.code == "P850" and "calls itself" in str(caught.value)
    looped = Step(
        name="call",
        action=Nested(name="inner"),
        inputs=(value("p", "${{ item.x }}"),),
        each=ForEach(axes=({"x": Expr.of("steps.a.outputs.l")},)),
    )
    with pytest.raises(UserError) as caught:
        write_tekton(
            Workflow(name="w", steps=(script("a", outputs=(out("l", list_of(STR)),)), looped), definitions=(INNER,))
        )
    assert caught.value.code == "P853"


# -- there and back ---------------------------------------------------------------------------------------------------


def graph_of(whole: Workflow) -> dict[str, Any]:
    return {
        step.name: (
            sorted(edges_of(step)),
            step.each is not None,
            step.when is not None,
            dict(step.resources),
            None if step.retry is None else step.retry.limit,
            step.timeout,
            sorted(output.name for output in step.outputs),
            bool(step.tolerates),
        )
        for step in whole.steps
    }


def stages_of(whole: Workflow) -> list[Any]:
    return [(one.name, one.demand(), one.queue) for one in make(whole, {}).stages]


@st.composite
def common(draw: st.DrawFn) -> Workflow:
    """Small workflows of what Penstock and Tekton both have."""
    many = draw(st.integers(1, 5))
    steps: list[Step] = []
    for number in range(many):
        name = f"s{number}"
        ups = draw(st.lists(st.sampled_from(steps), max_size=2, unique_by=lambda step: step.name)) if steps else []
        inputs = [
            value(
                "p",
                draw(
                    st.sampled_from(
                        ["plain", "${{ params.p }}", "a ${{ params.p }} b", "${{ params.many[0] }}", "${{ run.id }}"]
                    )
                ),
            )
        ]
        needs = []
        for up in ups:
            if draw(st.booleans()):
                listed = up.each is not None
                inputs.append(
                    value(f"from-{up.name}", f"${{{{ steps.{up.name}.outputs.r }}}}", list_of(STR) if listed else STR)
                )
            else:
                needs.append(Edge(up.name))
        each = draw(
            st.none()
            | st.just(ForEach(axes=({"x": ("a", "b", "c")},)))
            | st.just(ForEach(axes=({"x": ("a", "b")}, {"y": ("c",)})))
            | st.just(ForEach(axes=({"x": Expr.of("params.many")},)))
        )
        if each is not None:
            inputs.append(value("loop", "${{ item.x }}"))
        words = tuple(Expr.of(f'inputs["{one.name}"]') for one in inputs)
        actions: list[Action] = [
            Container(image="i", command=("echo",), args=words),
            Script(
                source=Template(("echo ", Expr.of("inputs.p"), " > $PENSTOCK_OUTPUTS/r")),
                image="i",
                env={"A": Expr.of("inputs.p")},
            ),
            Pod(
                parts=(
                    Part(name="one", image="i", command=("echo",), args=words[:1]),
                    Part(name="two", image="j", command=("/bin/sh", "-e"), source="exit"),
                )
            ),
        ]
        steps.append(
            Step(
                name=name,
                action=draw(st.sampled_from(actions)),
                inputs=tuple(inputs),
                outputs=(out("r"),),
                needs=tuple(needs),
                when=draw(
                    st.none()
                    | st.sampled_from(['params.p == "x"', '!(params.p in ["a", "b"])', "params.p in params.many"]).map(
                        Expr.of
                    )
                ),
                each=each,
                retry=draw(st.none() | st.just(Retry(limit=3))),
                timeout=draw(st.none() | st.sampled_from([1.0, 90.0, 3600.0])),
                resources=draw(st.sampled_from([{}, {"cpu": 500}, {"cpu": 2000, "memory": 2**30 * 1000}])),
                queue=draw(st.none()),
            )
        )
    params = (Parameter(name="p", type=STR, default="x"), Parameter(name="many", type=list_of(STR), default=("x", "y")))
    return Workflow(
        name="w",
        params=params,
        steps=tuple(steps),
        outputs=(Output(name="o", value=Expr.of("steps.s0.outputs.r")),),
        on_exit=draw(st.just(()) | st.just((script("z", when=Expr.of('workflow.outcome == "failed"')),))),
        queue=draw(st.none() | st.just("q")),
        timeout=draw(st.none() | st.just(120.0)),
        fail_fast=True,
    )


@examples(60)
@given(common())
def test_reading_what_was_written_gives_the_same_graph(whole: Workflow) -> None:
    assert errors(whole) == []
    written = write_tekton(whole)
    for document in written.documents:
        assert schema.check(document) == []
    back = again(written)
    assert graph_of(back) == graph_of(whole)
    assert stages_of(back) == stages_of(whole)
    assert [step.name for step in back.on_exit] == [step.name for step in whole.on_exit]
    assert {param.name: param.default for param in back.params} == {param.name: param.default for param in whole.params}
    assert back.queue == whole.queue and back.timeout == (None if whole.queue else whole.timeout)
    assert graph_of(again(write_tekton(back))) == graph_of(back)


@needs_corpus
@pytest.mark.parametrize("file", files("tekton"), ids=label)
def test_examples_there_and_back(file: Path) -> None:
    library = Library(tuple(read_text(file.read_text(), label(file))))
    for document in registry.roots(library):
        whole = read_tekton(library, document).workflow
        written = write_tekton(whole)
        for one in written.documents:
            assert schema.check(one) == []
        back = again(written)
        if not whole.definitions:
            assert graph_of(back) == graph_of(whole)


# -- limits -----------------------------------------------------------------------------------------------------------


def nested(depth: int, inner: int, inputs: tuple[Input, ...] = (), params: tuple[Parameter, ...] = ()) -> Workflow:
    """Workflows that call the next one `inner` times each."""
    leaf = Step(name="s", action=Container(image="i", command=("c",)))
    made = [Workflow(name=f"d{depth}", params=params, steps=(leaf,))]
    for level in reversed(range(depth)):
        calls = tuple(
            Step(name=f"s{number}", action=Nested(name=f"d{level + 1}"), inputs=inputs) for number in range(inner)
        )
        made.append(Workflow(name=f"d{level}", params=params, steps=calls))
    root = made.pop()
    return replace(root, params=tuple(replace(one, default="x") for one in params), definitions=tuple(made))


def test_calls_that_double_at_every_level_are_refused() -> None:
    with pytest.raises(UserError, match="more than 5000 steps") as error:
        write_tekton(nested(40, 2))
    assert [problem.code for problem in error.value.problems] == ["P850"]


def test_a_value_that_doubles_at_every_level_is_refused() -> None:
    twice = (Input(name="p", value=Template((Expr.of("params.p"), " ", Expr.of("params.p"))), type=STR),)
    with pytest.raises(UserError, match="characters") as error:
        write_tekton(nested(40, 1, twice, (Parameter(name="p", type=STR),)))
    assert [problem.code for problem in error.value.problems] == ["P850"]


def test_a_volume_that_the_pod_template_has_is_written_once() -> None:
    pod = {"volumes": ({"name": "data", "persistentVolumeClaim": {"claimName": "c"}},)}
    mounts = (Mount(name="data", path="/data", scope="task"), Mount(name="other", path="/other", scope="task"))
    step = Step(name="a", action=Container(image="i", command=("c",)), mounts=mounts, extra={"pod": pod})
    documents = write_tekton(Workflow(name="w", steps=(step,))).documents
    spec = next(one["spec"] for one in documents if one["kind"] == "Pipeline")["tasks"][0]["taskSpec"]
    run = next(one["spec"] for one in documents if one["kind"] == "PipelineRun")
    assert [one["name"] for one in spec["volumes"]] == ["other"]
    assert [one["name"] for one in run["taskRunSpecs"][0]["podTemplate"]["volumes"]] == ["data"]
