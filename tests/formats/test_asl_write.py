"""Workflows as state machines: what is written passes our own check, is read back, and runs to the same end with the same outputs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from penstock import LocalRunner
from penstock.errors import UserError
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.expressions.types import ANY, BOOL, INT, STR, Type, list_of
from penstock.formats import registry
from penstock.formats.asl.check.machine import check
from penstock.formats.base import Written
from penstock.formats.documents import Library, read_text
from penstock.formats.yaml_writer import dump_all
from penstock.graph.check import errors
from penstock.graph.model import (
    ANY_OUTCOME,
    Backoff,
    Container,
    Edge,
    Enough,
    ForEach,
    Function,
    Input,
    Nested,
    Outcome,
    Output,
    Parameter,
    Retry,
    Script,
    Step,
    Suspend,
    While,
    Workflow,
)
from penstock.service.conversion import convert
from penstock.service.workflows import load
from penstock.testing import run_virtually
from tests.formats.test_literals import HOSTILE, texts

CODE = """
class Sour(Exception): ...
def same(value): return value
def count(**given): return sum(map(size, given.values())) + len(given)
def size(value):
    if isinstance(value, (list, dict)): return len(json(value)) % 97
    return value if isinstance(value, int) else len(json(value))
def json(value):
    import json
    return json.dumps(value, sort_keys=True)
def several(n): return list(range(n % 4))
def nested(n): return [[n], [], [n, n + 1]][: n % 4]
def sour(**given): raise Sour("no good")
def odd(n): return n % 2 == 1
"""
MODULE = "asl_write_tasks"


@dataclass
class Both:
    """A workflow and its machine, run."""

    runner: LocalRunner

    def run(self, workflow: Workflow, **params: Any) -> tuple[bool, Any]:
        """How both ended. They must not differ."""
        assert not errors(workflow), errors(workflow)
        first = self.runner.run(workflow, **params)
        second = self.runner.run(again(workflow), input=params)
        assert (first.ok, dict(first.outputs) if first.ok else None) == (
            second.ok,
            second.outputs.get("output") if second.ok else None,
        ), (first.failures, second.failures)
        return first.ok, dict(first.outputs)


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """It changes the limit of recursion when it is imported: not inside a test of Hypothesis, which would notice."""
    pytest.importorskip("jsonata")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("asl")
    (folder / f"{MODULE}.py").write_text(textwrap.dedent(CODE))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield Both(LocalRunner(home=folder / "home", on={"function": "inline"}))


def written(workflow: Workflow) -> Written:
    made = registry.write(workflow, "asl")
    assert not check(made.documents[0])
    for row in made.documents[1]["resources"].values() if made.documents[1:] else ():
        assert not check(row["machine"]) if "machine" in row else True
    return made


def again(workflow: Workflow) -> Workflow:
    library = Library(tuple(read_text(dump_all(written(workflow).documents), "flow.asl.yaml")))
    found = registry.read(library, registry.root(library, None, "flow.asl.yaml")).workflow
    assert not errors(found)
    return found


def function(name: str, called: str = "count", kind: Type = ANY, /, **fields: Any) -> Step:
    inputs = tuple(Input(name=key, value=value) for key, value in fields.pop("of", {}).items())
    action = Function(module=MODULE, name=called)
    return Step(name=name, action=action, inputs=inputs, outputs=(Output(name="result", type=kind),), **fields)


def result(name: str) -> Expr:
    return Expr.of(f"steps.{name}.outputs.result")


def flow(*steps: Step, outputs: dict[str, Any] | None = None, **fields: Any) -> Workflow:
    shown = {one.name: result(one.name) for one in steps} if outputs is None else outputs
    return Workflow(
        name="flow",
        steps=steps,
        outputs=tuple(Output(name=name, value=value) for name, value in shown.items()),
        **fields,
    )


# -- random workflows -------------------------------------------------------------------------------------------------

DONE = frozenset({Outcome.SUCCEEDED, Outcome.SKIPPED})
BAD = frozenset({Outcome.FAILED, Outcome.ERRORED})


@st.composite
def steps_of(draw: st.DrawFn) -> tuple[Step, ...]:
    """Steps over earlier ones: values, orders, conditions, loops of both kinds, failures that somebody asks about."""
    made: list[Step] = []
    kinds: dict[str, str] = {}
    for number in range(draw(st.integers(1, 6))):
        name = f"s-{number}"
        before = [one.name for one in made]
        used = draw(st.lists(st.sampled_from(before), max_size=3, unique=True)) if before else []
        sure = [one for one in used if kinds[one] == "sure"]
        of: dict[str, Any] = {f"v{at}": Expr.of(f'steps["{one}"].outputs.result') for at, one in enumerate(sure)}
        of["own"] = draw(st.integers(0, 9) | st.sampled_from(["x", "{% 1 %}", "$.a", "a'\"b"]) | st.just([1, [], "y"]))
        needs = tuple(Edge(one) for one in used if one not in sure)
        shape = draw(st.sampled_from(["plain", "plain", "items", "known", "rounds", "when", "sour", "asks", "trigger"]))
        fields: dict[str, Any] = {"of": of, "needs": needs}
        kinds[name] = "sure"
        called = "count"
        if shape == "items":
            fields["each"] = ForEach(axes=({"i": tuple(draw(st.lists(st.integers(0, 3), max_size=3)))},))
            of["i"] = Expr.of("item.i")
            if draw(st.booleans()):
                fields["when"] = Expr.of("item.i > 1")
            kinds[name] = "maybe"
        elif shape == "known" and sure:
            lists = function(
                f"{name}-list",
                draw(st.sampled_from(["several", "nested"])),
                list_of(ANY),
                of={"n": draw(st.integers(0, 9))},
            )
            made.append(lists)
            kinds[lists.name] = "sure"
            fields["each"] = ForEach(axes=({"i": Expr.of(f'steps["{lists.name}"].outputs.result')},), parallel=2)
            called, of = "same", {"value": Expr.of("item.i")}
            fields["of"] = of
            kinds[name] = "maybe"
        elif shape == "rounds":
            most, limit = draw(st.integers(1, 3)), draw(st.integers(0, 60))
            fields["loop"] = While(
                condition=Expr.of(f"outputs.result < {limit}"), carry={"own": "result"}, max_iterations=most
            )
            of["own"] = draw(st.integers(0, 9))
        elif shape == "when" and sure:
            fields["when"] = Expr.of(f'steps["{sure[0]}"].outputs.result != {draw(st.integers(0, 9))}')
            kinds[name] = "maybe"
        elif shape == "sour":
            called, kinds[name] = "sour", "bad"
            if draw(st.booleans()):
                fields["tolerates"] = BAD
        elif shape == "asks" and before:
            other = draw(st.sampled_from(before))
            fields["needs"] = (Edge(other, draw(st.sampled_from([BAD, ANY_OUTCOME, DONE | BAD]))),)
            fields["of"] = {"own": of["own"]}
            kinds[name] = "maybe"
        elif shape == "trigger" and before:
            some = draw(st.lists(st.sampled_from(before), min_size=1, max_size=2, unique=True))
            word, joined = (
                draw(st.sampled_from(["succeeded", "failed", "skipped"])),
                draw(st.sampled_from([" && ", " || "])),
            )
            fields["trigger"] = Expr.of(joined.join(f'steps["{one}"].outcome == "{word}"' for one in some))
            fields["of"], fields["needs"] = {"own": of["own"]}, ()
            kinds[name] = "maybe"
        kind = INT if called == "count" else ANY
        if used and any(kinds[one] != "sure" for one in used) and kinds[name] == "sure":
            kinds[name] = "maybe"
        made.append(function(name, called, kind, **fields))
    return tuple(made)


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=steps_of())
def test_a_random_workflow_and_its_machine_end_alike(both: Both, steps: tuple[Step, ...]) -> None:
    sure = [
        one for one in steps if one.when is None and one.each is None and not one.needs and one.action.name != "sour"
    ]
    outputs = {
        one.name: Expr.of(f'steps["{one.name}"].outcome == "succeeded" ? steps["{one.name}"].outputs.result : 0')
        for one in sure
    }
    workflow = flow(*steps, outputs=outputs)
    assume(not errors(workflow))
    both.run(workflow)


# -- what a step is ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=texts, before=texts, after=texts)
def test_hostile_literals_are_data(both: Both, value: str, before: str, after: str) -> None:
    """As inputs, defaults of parameters, items of loops, parts of texts, names of fields."""
    parts = tuple(one for one in (before, Expr.of("params.p"), after) if one != "")
    given_ = {"text": value, "joined": Template(parts), "deep": ({value or "x": (value,)},), "p": Expr.of("params.p")}
    step = function("a", "same", of={"value": given_})
    each = function("b", "same", of={"value": Expr.of("item.i")}, each=ForEach(axes=({"i": (value, before)},)))
    ok, found = both.run(flow(step, each, params=(Parameter(name="p", type=STR, default=value),)))
    assert ok
    shown = {"text": value, "joined": before + value + after, "deep": [{value or "x": [value]}], "p": value}
    assert found == {"a": shown, "b": [value, before]}


@pytest.mark.parametrize(
    "text", ["{% 1 + 1 %}", "{% x %}", "{%%}", "$.a", "$$.x", "$states.input", "'", '"', "{% '\"' %}", *HOSTILE[:6]]
)
def test_text_that_looks_like_a_query_is_text(both: Both, text: str) -> None:
    assert both.run(flow(function("a", "same", of={"value": text})))[1] == {"a": text}


LISTS = [[], [1], [[1]], [[], [1]], [[[]]], [None], ["{% a %}"], [[1, 2], [3]]]


@pytest.mark.parametrize("value", LISTS, ids=str)
def test_lists_of_lists_stay_what_they_are(both: Both, value: Any) -> None:
    """JSONata joins and unwraps lists wherever it can."""
    step = function("a", "same", list_of(ANY), of={"value": value})
    each = function("b", "same", of={"value": Expr.of("item.i")}, each=ForEach(axes=({"i": result("a")},)))
    held = function("c", "same", of={"value": Expr.of("[steps.a.outputs.result, [steps.a.outputs.result]]")})
    joined = function("d", "same", of={"value": Expr.of("steps.a.outputs.result + [1]")})
    mapped = function("e", "same", of={"value": Expr.of("steps.a.outputs.result.map(x, [x])")})
    kept = function("f", "same", of={"value": Expr.of("steps.a.outputs.result.filter(x, x != 7)")})
    ok, found = both.run(flow(step, each, held, joined, mapped, kept, outputs={x: result(x) for x in "acdef"}))
    assert ok
    assert found == {"a": value, "c": [value, [value]], "d": [*value, 1], "e": [[x] for x in value], "f": value}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("params.n / 2", INT),
        ("-params.n / 2", INT),
        ("params.n % 3", INT),
        ("params.n * 3 - 1", INT),
        ("params.n > 3 && params.n != 8", BOOL),
        ('!(params.n == 7) || params.t == "x"', BOOL),
        ('params.t + "{% y %}"', STR),
        ("size(params.t)", INT),
        ("size(params.l)", INT),
        ("params.l[1]", ANY),
        ('params.m["a b"]', ANY),
        ("params.m.and", ANY),
        ("2 in params.l", BOOL),
        ('"and" in params.m', BOOL),
        ("has(params.m.zz)", BOOL),
        ("default(params.m.zz, 4)", ANY),
        ("min(params.n, 3)", ANY),
        ("params.l.exists(x, x > 2)", BOOL),
        ("params.l.all(x, x > 2)", BOOL),
        ('params.t.startsWith("te")', BOOL),
        ('params.t.endsWith("xt")', BOOL),
        ('params.t.contains("ex")', BOOL),
        ("params.n > 3 ? [params.t] : []", ANY),
        ("range(params.n)", ANY),
        ("range(params.n, params.n)", ANY),
        ('{"k": params.l, "{% k %}": null}', ANY),
        ("params.u + params.u", ANY),
        ("params.u == 3", BOOL),
        ("string(params.n)", STR),
        ("upper(params.t)", STR),
    ],
)
@pytest.mark.parametrize("n", [7, 8])
def test_expressions_mean_the_same(both: Both, text: str, kinds: Type, n: int) -> None:
    del kinds
    kinds_of = {"n": INT, "t": STR, "l": list_of(INT), "m": Type("dict", (ANY,)), "u": ANY}
    given_ = {"n": n, "t": "text", "l": [1, 2, 3], "m": {"a b": [1], "and": 2}, "u": "u"}
    params = tuple(Parameter(name=name, type=kind) for name, kind in kinds_of.items())
    ok, _ = both.run(flow(function("a", "same", of={"value": Expr.of(text)}), params=params), **given_)
    assert ok


def test_skipped_steps_defaults_and_parameters(both: Both) -> None:
    skipped = Step(
        name="skipped",
        action=Function(module=MODULE, name="same"),
        inputs=(Input(name="value", value=1),),
        outputs=(Output(name="result", default=["none"]),),
        when=Expr.of("params.go"),
    )
    bare = function("bare", "same", of={"value": 1}, when=Expr.of("params.go"))
    reads = Step(
        name="reads",
        action=Function(module=MODULE, name="count"),
        inputs=(
            Input(name="a", value=result("skipped")),
            Input(name="b", value=result("bare"), default={"in": "stead"}),
        ),
        outputs=(Output(name="result", type=INT),),
    )
    params = (Parameter(name="go", type=BOOL, default=False),)
    workflow = flow(skipped, bare, reads, params=params, outputs={"a": result("skipped"), "c": result("reads")})
    assert both.run(workflow)[1]["a"] == ["none"]
    assert both.run(workflow, go=True)[1]["a"] == 1


def test_exit_handlers_run_after_success_and_after_failure(both: Both, tmp_path: Path) -> None:
    for called in ("count", "sour"):
        note = tmp_path / called
        tell = Step(
            name="tell",
            action=Script(source=Template(("echo ", Expr.of("workflow.outcome"), f" >> {note}"))),
            exempt=True,
        )
        ok, _ = both.run(flow(function("work", called), on_exit=(tell,)))
        assert ok is (called == "count")
        assert note.read_text().split() == ["succeeded" if ok else "failed"] * 2


def test_a_workflow_that_is_called_and_one_that_repeats(both: Both) -> None:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="n", type=INT), Parameter(name="more", default="{% 1 %}")),
        steps=(function("add", "count", INT, of={"a": Expr.of("params.n"), "b": Expr.of("params.more")}),),
        outputs=(Output(name="n", type=INT, value=result("add")),),
    )
    call = Step(name="call", action=Nested(name="inner"), inputs=(Input(name="n", value=2),))
    loop = Step(
        name="loop",
        action=Nested(name="inner"),
        inputs=(Input(name="n", value=Expr.of("steps.call.outputs.n")), Input(name="more", value=0)),
        loop=While(condition=Expr.of("inputs.n < 9"), carry={"n": "n"}, test="before"),
    )
    each = Step(
        name="each",
        action=Nested(name="inner"),
        inputs=(Input(name="n", value=Expr.of("item.i")),),
        each=ForEach(axes=({"i": (1, 2)}, {"j": ("a", "b")})),
    )
    shown = {name: Expr.of(f"steps.{name}.outputs.n") for name in ("call", "loop", "each")}
    ok, found = both.run(flow(call, loop, each, outputs=shown, definitions=(inner,)))
    assert ok and len(found["each"]) == 4 and found["loop"] >= 9


def test_commands_get_what_they_read_and_a_loop_has_a_limit(both: Both) -> None:
    step = Step(
        name="say",
        action=Script(
            source=Template(("echo ", Expr.of("params.word"), "-", Expr.of("item.i"), " > $PENSTOCK_OUTPUTS/said"))
        ),
        outputs=(Output(name="said", type=STR),),
        each=ForEach(axes=({"i": ("x", "y")},)),
    )
    params = (Parameter(name="word", type=STR, default="w"),)
    ok, found = both.run(flow(step, params=params, outputs={"said": Expr.of("steps.say.outputs.said")}))
    assert ok and [one.strip() for one in found["said"]] == ["w-x", "w-y"]
    endless = While(condition=Expr.of("true"), max_iterations=2, at_limit="fail")
    assert not both.run(flow(function("a", loop=endless)))[0]


# -- fields of the states ---------------------------------------------------------------------------------------------


def machine(*steps: Step, **fields: Any) -> tuple[dict[str, Any], dict[str, Any], Written]:
    made = written(flow(*steps, outputs={}, **fields))
    return made.documents[0]["States"], made.documents[1]["resources"] if made.documents[1:] else {}, made


def test_retries_limits_and_resources() -> None:
    backoff = Backoff(initial=2, factor=3, longest=60, jitter=1)
    step = Step(
        name="a",
        action=Container(image="i:1", command=("c",)),
        retry=Retry(limit=4, backoff=backoff, on=("failed", "errored")),
        timeout=90,
        resources={"cpu": 4000},
    )
    states, rows, made = machine(step, queue="team-a", timeout=3600)
    assert states["a"]["Retry"] == [
        {
            "ErrorEquals": ["States.TaskFailed"],
            "IntervalSeconds": 2,
            "MaxAttempts": 4,
            "BackoffRate": 3,
            "MaxDelaySeconds": 60,
            "JitterStrategy": "FULL",
        }
    ]
    assert (states["a"]["TimeoutSeconds"], made.documents[0]["TimeoutSeconds"]) == (90, 3600)
    assert rows["a"]["step"] == {
        "container": {"image": "i:1", "command": ["c"]},
        "resources": {"cpu": 4},
        "queue": "team-a",
    }
    read = again(flow(step, queue="team-a"))
    task = next(one for level in read.definitions for one in level.steps if one.name == "a")
    assert (task.resources, task.queue, task.timeout, task.action) == ({"cpu": 4000}, "team-a", 90, step.action)


def test_waits_for_a_time_and_for_an_answer() -> None:
    states, rows, made = machine(
        Step(name="nap", action=Suspend(duration=90)),
        Step(
            name="ask", action=Suspend(message="go on?"), outputs=(Output(name="yes", type=BOOL),), needs=(Edge("nap"),)
        ),
    )
    assert states["nap"]["Seconds"] == 90
    assert states["ask"]["Resource"].endswith(".waitForTaskToken") and rows["ask"] == {"command": ["true"]}
    assert any("token" in one.message for one in made.report.of("changed"))
    report = run_virtually(again(flow(Step(name="nap", action=Suspend(duration=90)), outputs={})), {}, dry=True)
    assert report.state == "succeeded"


def test_steps_beside_one_another_are_a_parallel_and_others_are_levelled() -> None:
    diamond = [
        function("a"),
        *(function(x, needs=(Edge("a"),)) for x in "bc"),
        function("d", needs=(Edge("b"), Edge("c"))),
    ]
    states, _, made = machine(*diamond)
    assert [one["Type"] for one in states.values()] == ["Task", "Parallel", "Task", "Pass"]
    assert len(states["b-beside"]["Branches"]) == 2 and not made.report.of("lost")
    crossed = [
        function("a"),
        function("b"),
        function("c", needs=(Edge("a"),)),
        function("d", needs=(Edge("a"), Edge("b"))),
    ]
    _, _, made = machine(*crossed)
    (lost,) = made.report.of("lost")
    assert (lost.path, "also waits for b" in lost.message) == ("steps.c.needs", True)


REFUSED: dict[str, Callable[[], Workflow]] = {
    "a file": lambda: flow(
        function("a", "same", Type("file"), of={"value": 1}), function("b", "same", of={"value": result("a")})
    ),
    "enough": lambda: flow(function("a"), function("b"), enough=Enough(steps=("a", "b"), of="any")),
    "two lists": lambda: flow(
        function("a", "several", list_of(INT), of={"n": 3}),
        function("b", of={"i": Expr.of("item.i")}, each=ForEach(axes=({"i": result("a")}, {"j": (1, 2)}))),
    ),
    "an expression": lambda: flow(
        function("a", of={"v": Expr.of('sprintf("%05d", 3 + params.n)')}), params=(Parameter(name="n"),)
    ),
    "itself": lambda: flow(
        Step(name="a", action=Nested(name="d")),
        outputs={},
        definitions=(
            Workflow(name="d", steps=(Step(name="again", action=Nested(name="d"), when=Expr.of('run.id == "x"')),)),
        ),
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_form_is_refused_by_name(why: str) -> None:
    with pytest.raises(UserError) as refused:
        registry.write(REFUSED[why](), "asl")
    assert all(one.code in ("P847", "P848", "P849") and one.where and one.fix for one in refused.value.problems)


@pytest.mark.parametrize(
    "row",
    [
        {"step": "text"},
        {"step": {}},
        {"step": {"container": {"image": "i"}, "retry": {"limit": 1}}},
        {"step": {"suspend": {}}},
        {"step": {"container": {"imag": "i"}}},
        {"step": {"container": {"image": "i"}}, "queue": "q"},
        {"step": {"container": {"image": "i"}, "inputs": "x"}},
        {"step": {"container": {"image": "i"}, "inputs": ["x"]}},
    ],
)
def test_a_wrong_step_in_a_table_is_refused(row: Any) -> None:
    table = {"kind": "StateMachineResources", "resources": {"a": row}}
    task = {"StartAt": "S", "States": {"S": {"Type": "Succeed"}}}
    library = Library(tuple(read_text(json.dumps([task, table]), "flow.asl.json")))
    with pytest.raises(UserError) as refused:
        registry.read(library, library.documents[0])
    assert {one.code for one in refused.value.problems} == {"P835"}


def test_large_values_pass_between_machines(both: Both) -> None:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="v"),),
        steps=(function("a", "same", of={"value": Expr.of("params.v")}),),
        outputs=(Output(name="v", value=result("a")),),
    )
    call = Step(name="call", action=Nested(name="inner"), inputs=(Input(name="v", value="x" * 100_000),))
    assert both.run(flow(call, outputs={"v": Expr.of("steps.call.outputs.v")}, definitions=(inner,)))[0]


@pytest.mark.parametrize("value", [7, True, None, "é", [1, "e", None], {"a b": [1.5]}, [], {}, "", 10**14, -3], ids=str)
def test_texts_made_of_values_are_the_same(both: Both, value: Any) -> None:
    step = function("a", "same", of={"value": Template(("<", Expr.of("params.v"), ">"))})
    alone = function("b", "same", of={"value": Template((Expr.of("params.v"), ""))})
    assert both.run(flow(step, alone, params=(Parameter(name="v"),)), v=value)[0]


def test_a_flow_in_python_is_converted_and_its_machine_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user does it: convert a file, run what was written in the folder of that file."""
    source = """
    from penstock import task, workflow

    @task(cpu=1)
    def shards(n: int) -> list[int]: return list(range(n))

    @task
    def square(x: int, of: str) -> int: return x * x

    @task
    def best(found: list[int]) -> int: return max(found)

    @workflow
    def squares(n: int = 4):
        found = [square(x, "{% x %}") for x in shards(n)]
        if best(found) > 5:
            return best(found)
        return -1
    """
    (tmp_path / "squares_flow.py").write_text(textwrap.dedent(source))
    monkeypatch.chdir(tmp_path)
    made = convert("squares_flow.py", "asl")
    assert not made.report.of("lost")
    (tmp_path / "machine.asl.yaml").write_text(made.text)
    runner = LocalRunner(home=tmp_path / "home")
    for n, found in ((4, 9), (2, -1)):
        run = runner.run(load("machine.asl.yaml"), input={"n": n})
        assert run.outputs["output"] == {"result": found}, run.failures
