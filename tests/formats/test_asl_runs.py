"""State machines as workflows: what is read, planned, and run by the engine with functions of a folder."""

from __future__ import annotations

import asyncio
import json
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, Run
from penstock.errors import UserError
from penstock.formats import registry
from penstock.formats.asl.language.scope import SeededChance
from penstock.formats.asl.walk.dry import DryDriver
from penstock.formats.asl.walk.walker import Walker
from penstock.formats.documents import Library, read_text
from penstock.graph.check import errors
from penstock.graph.model import Workflow, edges_of
from penstock.plan.make import make
from penstock.service import answers
from penstock.service.answers import AnswerGiven
from penstock.service.conversion import convert
from penstock.store.sql import open_store
from penstock.testing import run_virtually
from tests.formats.asl_cases import FOLDER, NOW, Recorded, cases, execution

CODE = """
class Busy(Exception): ...
seen = []
def busy(payload):
    seen.append(payload)
    if len(seen) < 3: raise Busy("later")
    return {"tries": len(seen)}
def add(payload): return {"n": payload["n"] + 1}
def boom(payload): raise ValueError("no good")
def times(payload):
    if payload == {"v": "3"}: raise RuntimeError("three")
    return int(payload["v"]) * 10
"""
TABLE = {
    "kind": "StateMachineResources",
    "resources": {
        "busy": {"function": "asl_tasks:busy"},
        "add": {"function": "asl_tasks:add"},
        "boom": {"function": "asl_tasks:boom"},
        "times": {"function": "asl_tasks:times"},
        "s3:getObject": {"folder": "data"},
        "echo": {"command": ['echo "$PENSTOCK_INPUT"']},
    },
}


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": f"arn:aws:lambda:eu:1:function:{name}",
        **({} if "Next" in fields else {"End": True}),
        **fields,
    }


def read(machine: dict[str, Any], table: dict[str, Any] = TABLE) -> Workflow:
    library = Library(tuple(read_text(json.dumps([machine, table]), "flow.asl.json")))
    workflow = registry.read(library, library.documents[0]).workflow
    assert not errors(workflow)
    return workflow


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "asl_tasks.py").write_text(textwrap.dedent(CODE))
    (tmp_path / "data" / "bucket").mkdir(parents=True)
    (tmp_path / "data" / "bucket" / "rows.csv").write_text("v\n1\n2\n3\n4\n")
    monkeypatch.chdir(tmp_path)
    runner = LocalRunner(home=tmp_path / "home", on={"function": "inline"})

    def done(machine: dict[str, Any], given: Any = None) -> Run:
        return runner.run(read(machine), input={} if given is None else given)

    return done


def test_a_circle_of_states_goes_round_until_its_choice_leaves_it(run: Any) -> None:
    machine = {
        "StartAt": "Add",
        "States": {
            "Add": function("add", Next="Enough?"),
            "Enough?": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.n", "NumericLessThan": 20, "Next": "Add"}],
                "Default": "Done",
            },
            "Done": {"Type": "Succeed"},
        },
    }
    assert run(machine, {"n": 0}).outputs["output"] == {"n": 20}


def test_retry_catch_parallel_and_maps(run: Any) -> None:
    machine = {
        "StartAt": "Busy",
        "QueryLanguage": "JSONata",
        "States": {
            "Busy": {
                "Type": "Task",
                "Resource": "arn:aws:states:::lambda:invoke",
                "Arguments": {"FunctionName": "busy", "Payload": "{% $states.input %}"},
                "Assign": {"tries": "{% $states.result.Payload.tries %}"},
                "Retry": [{"ErrorEquals": ["Busy"], "IntervalSeconds": 1, "MaxDelaySeconds": 1}],
                "Next": "Both",
            },
            "Both": {
                "Type": "Parallel",
                "Branches": [
                    {"StartAt": "Fine", "States": {"Fine": {"Type": "Pass", "End": True}}},
                    {"StartAt": "Boom", "States": {"Boom": function("boom")}},
                ],
                "Catch": [{"ErrorEquals": ["ValueError"], "Output": "{% $states.errorOutput.Error %}", "Next": "Rows"}],
                "End": True,
            },
            "Rows": {
                "Type": "Map",
                "ItemReader": {
                    "Resource": "arn:aws:states:::s3:getObject",
                    "ReaderConfig": {"InputType": "CSV", "CSVHeaderLocation": "FIRST_ROW"},
                    "Arguments": {"Bucket": "bucket", "Key": "rows.csv"},
                },
                "ItemProcessor": {
                    "ProcessorConfig": {"Mode": "DISTRIBUTED"},
                    "StartAt": "Ten",
                    "States": {"Ten": function("times")},
                },
                "ToleratedFailureCount": 1,
                "Output": {"rows": "{% $states.result %}", "caught": "{% $states.input %}", "tries": "{% $tries %}"},
                "Next": "Each",
            },
            "Each": {
                "Type": "Map",
                "Items": "{% $states.input.rows %}",
                "ItemProcessor": {
                    "StartAt": "Text",
                    "States": {"Text": {"Type": "Pass", "Output": "{% $string($states.input) %}", "End": True}},
                },
                "Output": "{% $merge([$states.input, {'rows': $states.result}]) %}",
                "End": True,
            },
        },
    }
    done = run(machine)
    assert done.outputs["output"] == {"rows": ["10", "20", "40"], "caught": "ValueError", "tries": 3}


def test_what_an_answer_becomes_may_fail_and_read_the_time(run: Any) -> None:
    """It is worked out when the answer is there: a failure then is the state's, and is tried again."""
    asked = {"Type": "Task", "Resource": "add", "Arguments": {"n": 1}, "End": True}
    rule = {"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1, "MaxDelaySeconds": 2}
    wrong = {**asked, "Output": "{% $states.result.no.such %}", "Retry": [rule]}
    done = run({"StartAt": "A", "QueryLanguage": "JSONata", "States": {"A": wrong}})
    assert not done.ok and "States.QueryEvaluationError" in str(done.failures)
    timed = {**asked, "Output": "{% $exists($now()) %}"}
    assert run({"StartAt": "A", "QueryLanguage": "JSONata", "States": {"A": timed}}).outputs["output"] is True


def test_large_data_inside_a_map(run: Any) -> None:
    each = {
        "Type": "Map",
        "Items": "{% [1, 2] %}",
        "ItemSelector": {"n": "{% $states.context.Map.Item.Value %}", "large": "{% $states.input.large %}"},
        "ItemProcessor": {"StartAt": "T", "States": {"T": function("add")}},
        "End": True,
    }
    done = run({"StartAt": "M", "QueryLanguage": "JSONata", "States": {"M": each}}, {"large": "x" * 50_000})
    assert done.outputs["output"] == [{"n": 2}, {"n": 3}]


def test_nulls_in_lists_are_values(run: Any) -> None:
    counted = "{% $map($states.input.l, function($v) { $type($v) }) %}"
    machine = {
        "StartAt": "P",
        "QueryLanguage": "JSONata",
        "States": {"P": {"Type": "Pass", "Output": counted, "End": True}},
    }
    assert run(machine, {"l": [None, 1, None]}).outputs["output"] == ["null", "number", "null"]


def test_a_command_a_wait_and_an_empty_map(run: Any) -> None:
    machine = {
        "StartAt": "Echo",
        "States": {
            "Echo": function("echo", ResultPath="$.said", Next="Wait"),
            "Wait": {"Type": "Wait", "TimestampPath": "$.at", "Next": "None"},
            "None": {
                "Type": "Map",
                "ItemsPath": "$.none",
                "Iterator": {"StartAt": "I", "States": {"I": function("boom")}},
                "ResultPath": "$.none",
                "End": True,
            },
        },
    }
    given = {"at": "2020-01-01T00:00:00Z", "none": []}
    assert run(machine, given).outputs["output"] == {**given, "said": given}


def test_the_error_of_the_machine_is_the_end_of_the_run(run: Any) -> None:
    machine = {"StartAt": "Stop", "States": {"Stop": {"Type": "Fail", "Error": "NotToday", "Cause": "it rains"}}}
    done = run(machine)
    assert not done.ok
    assert "NotToday: it rains" in str(done.failures)


def test_a_task_that_nothing_is_bound_to_is_planned_and_named() -> None:
    machine = {"StartAt": "Ask", "States": {"Ask": function("nobody")}}
    library = Library(tuple(read_text(json.dumps(machine), "flow.asl.json")))
    found = registry.read(library, library.documents[0])
    assert [(one.path, "nobody" in one.message) for one in found.report.of("lost")] == [("States.Ask.Resource", True)]
    make(found.workflow, {})


def test_a_tasks_resources_come_from_the_table() -> None:
    table = {
        "kind": "StateMachineResources",
        "resources": {"work": {"image": "w:1", "command": ["go"], "resources": {"cpu": 4}, "queue": "team-a"}},
    }
    workflow = read({"StartAt": "Work", "States": {"Work": function("work", TimeoutSeconds=60)}}, table)
    step = next(one for level in workflow.definitions for one in level.steps if one.name == "Work")
    assert (step.resources, step.queue, step.timeout) == ({"cpu": 4000}, "team-a", 60)


@pytest.mark.parametrize(
    "row", [{}, {"function": "x"}, {"function": "a:b", "http": "http://x"}, {"image": "a", "strange": 1}, "text"]
)
def test_a_wrong_row_of_the_table_is_refused(row: Any) -> None:
    with pytest.raises(UserError) as refused:
        read(
            {"StartAt": "S", "States": {"S": {"Type": "Succeed"}}},
            {"kind": "StateMachineResources", "resources": {"a": row}},
        )
    assert refused.value.code == "P835"


def test_a_refused_machine_says_where_in_yaml_and_json() -> None:
    text = "StartAt: A\nStates:\n  A:\n    Type: Pass\n    Next: B\n"
    library = Library(tuple(read_text(text, "m.asl.yaml")))
    with pytest.raises(UserError) as refused:
        registry.read(library, library.documents[0])
    first = refused.value.problems[0]
    assert (first.where, first.source and first.source.line) == ("/States/A/Next", 5)


def test_samples_are_planned_and_walked(capsys: pytest.CaptureFixture[str]) -> None:
    cases("valid")  # skips where there are none
    failed = []
    paths = sorted((FOLDER / "samples").iterdir())
    for path in paths:
        library = Library(tuple(read_text(path.read_text(), path.name)))
        workflow = registry.read(library, registry.root(library, None, path.name)).workflow
        make(workflow, {})
        if errors(workflow) or run_virtually(workflow, {}, dry=True).state != "succeeded":
            failed.append(path.name)
    with capsys.disabled():
        print(f"\nsamples planned and walked: {len(paths) - len(failed)} of {len(paths)} passed", *failed, sep="\n    ")
    assert not failed


def test_a_branch_that_fails_stops_its_siblings(run: Any) -> None:
    waits = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}}
    both = {
        "Type": "Parallel",
        "Branches": [waits, {"StartAt": "Boom", "States": {"Boom": function("boom")}}, waits_too()],
    }
    caught = {"Catch": [{"ErrorEquals": ["ValueError"], "ResultPath": "$.why", "Next": "Over"}], "End": True}
    done = run(
        {
            "StartAt": "Both",
            "States": {"Both": {**both, **caught}, "Over": {"Type": "Pass", "OutputPath": "$.why.Error", "End": True}},
        }
    )
    assert done.outputs["output"] == "ValueError"


def waits_too() -> dict[str, Any]:
    return {"StartAt": "Also", "States": {"Also": {"Type": "Wait", "Seconds": 7200, "End": True}}}


def handed_over(**fields: Any) -> Workflow:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
        "Catch": [{"ErrorEquals": ["States.Timeout", "Refused"], "Next": "Else"}],
        "End": True,
    }
    asked = {"FunctionName": "same", "Payload": {"token.$": "$$.Task.Token"}}
    states = {"Ask": {**task, "Parameters": asked, **fields}, "Else": {"Type": "Pass", "End": True}}
    table = {"kind": "StateMachineResources", "resources": {"same": {"function": "penstock.backends.states:same"}}}
    return read({"StartAt": "Ask", "States": states}, table)


def real(order: Any) -> Any:
    """The functions themselves, on the scripted backend."""
    from penstock.backends import states

    value = getattr(states, order.step.action.name)(**order.inputs)
    return {one.name: value for one in order.step.outputs}


def told(tokens: list[str], said: AnswerGiven, home: Path) -> Any:
    """The function that the task is handed to gets the token; who has it answers."""

    def script(order: Any) -> Any:
        if "token" in (order.inputs.get("payload") or {}):
            tokens.append(order.inputs["payload"]["token"].filled(order.secrets))
        return real(order)

    async def meanwhile(engine: Any, live: Any) -> None:
        while not live.prompts:
            await asyncio.sleep(1)
        with open_store(str(home)) as store:
            answers.answer(store, tokens[-1], said, engine.now())

    return {"script": script, "meanwhile": meanwhile, "home": home}


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        (AnswerGiven(status="success", outputs={"answer": {"ok": True}}), {"ok": True}),
        (AnswerGiven(status="failure", error="Refused", message="no"), {"Error": "Refused", "Cause": "no"}),
    ],
)
def test_a_task_token_is_answered_from_outside(said: AnswerGiven, ends: Any, tmp_path: Path) -> None:
    tokens: list[str] = []
    report = run_virtually(handed_over(), {}, **told(tokens, said, tmp_path))
    assert report.state == "succeeded" and len(tokens[0]) == 64
    finish = next(order for order in report.backend.specs if order.step.name == "finish")
    assert finish.inputs["walk"]["end"]["output"] == ends


def test_a_token_that_nobody_answers_is_a_timeout(tmp_path: Path) -> None:
    runner = LocalRunner(home=tmp_path, on={"function": "inline"})
    done = runner.run(handed_over(HeartbeatSeconds=1), input={})
    assert done.outputs["output"] == {"Error": "States.Timeout", "Cause": ""}


def mapped(seconds: list[int], **fields: Any) -> dict[str, Any]:
    """Commands that sleep; the one of 0 s fails."""
    sleep = function("sleep")
    return {
        "StartAt": "Each",
        "States": {
            "Each": {
                "Type": "Map",
                "ItemsPath": "$.seconds",
                "ItemProcessor": {"StartAt": "Sleep", "States": {"Sleep": sleep}},
                "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.why", "Next": "Over"}],
                "End": True,
                **fields,
            },
            "Over": {"Type": "Pass", "OutputPath": "$.why.Error", "End": True},
        },
    }


SLEEPS = {
    "kind": "StateMachineResources",
    "resources": {"sleep": {"command": ['test "$PENSTOCK_INPUT" != 0 && sleep "$PENSTOCK_INPUT" && echo 1']}},
}


def test_items_that_run_are_stopped_when_one_has_failed(tmp_path: Path) -> None:
    runner = LocalRunner(home=tmp_path)
    done = runner.run(read(mapped([]), SLEEPS), input={"seconds": [600, 0, 600, 600]})
    assert done.outputs["output"] == "States.TaskFailed"


def test_branches_that_run_are_stopped_when_one_has_failed(tmp_path: Path) -> None:
    branches = [
        {"StartAt": name, "States": {name: {**function("sleep"), "Parameters": seconds}}}
        for name, seconds in (("Long", 600), ("Bad", 0))
    ]
    caught = [{"ErrorEquals": ["States.TaskFailed"], "Next": "Over"}]
    both = {"Type": "Parallel", "Branches": branches, "Catch": caught, "End": True}
    machine = {"StartAt": "Both", "States": {"Both": both, "Over": {"Type": "Pass", "Result": "over", "End": True}}}
    done = LocalRunner(home=tmp_path).run(read(machine, SLEEPS), input={})
    assert done.outputs["output"] == "over"


def test_a_map_goes_on_up_to_its_tolerance_and_stops_beyond(tmp_path: Path) -> None:
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
        "StartAt": "Sleep",
        "States": {"Sleep": function("sleep")},
    }
    machine = mapped([], ItemProcessor=processor, ToleratedFailurePercentagePath="$.percent", MaxConcurrencyPath="$.n")
    runner = LocalRunner(home=tmp_path, jobs=8)
    given = {"seconds": [0.01, 0, 0.01, 0], "percent": 50, "n": 4}
    assert runner.run(read(machine, SLEEPS), input=given).outputs["output"] == [1, 1]
    given = {"seconds": [600, 0, 600, 0, 600], "percent": 20, "n": 5}
    done = runner.run(read(machine, SLEEPS), input=given)
    assert done.outputs["output"] == "States.ExceedToleratedFailureThreshold"


@pytest.mark.parametrize("fields", [{"MaxConcurrencyPath": "$.n"}, {"QueryLanguage": "JSONata"}])
def test_so_many_items_at_a_time_as_a_path_or_an_expression_says(fields: dict[str, Any]) -> None:
    machine = mapped([], **fields)
    if "QueryLanguage" in fields:
        each = {"MaxConcurrency": "{% $states.input.n %}", "Items": "{% $states.input.seconds %}", "Catch": []}
        machine["States"]["Each"] = {k: v for k, v in machine["States"]["Each"].items() if k != "ItemsPath"} | each
        machine["States"] = {"Each": machine["States"]["Each"]}
    workflow = read(machine, SLEEPS)
    given = {"input": {"seconds": [1, 2, 3, 4, 5, 6, 7], "n": 3}}
    most = running = 0

    def count(order: Any) -> Any:
        nonlocal most, running
        return real(order) if order.step.name != "Sleep" else {"answer": 1}

    report = run_virtually(workflow, given, script=count)
    assert report.state == "succeeded"
    for event in report.events:
        if event.task.rpartition("/")[2].startswith("Sleep"):
            running += {"task.started": 1, "task.succeeded": -1}.get(event.kind, 0)
            most = max(most, running)
    assert most == 3


@pytest.mark.parametrize("jsonata", [False, True])
def test_a_time_limit_given_by_a_path_or_an_expression_is_kept(tmp_path: Path, jsonata: bool) -> None:
    caught = {"Catch": [{"ErrorEquals": ["States.Timeout"], "Next": "Late"}]}
    task = function("sleep", TimeoutSecondsPath="$.limit", InputPath="$", Parameters=600, **caught)
    if jsonata:
        task = function("sleep", TimeoutSeconds="{% $states.input.limit %}", Arguments=600, **caught)
    states = {"Ask": task, "Late": {"Type": "Succeed"}}
    machine = {"StartAt": "Ask", "States": states, **({"QueryLanguage": "JSONata"} if jsonata else {})}
    done = LocalRunner(home=tmp_path).run(read(machine, SLEEPS), input={"limit": 1})
    assert done.outputs["output"]["Error"] == "States.Timeout"


def in_a_row(count: int) -> dict[str, Any]:
    names = [f"S{number}" for number in range(count)]
    follows = [{"Next": name} for name in names[1:]] + [{}]
    return {
        "StartAt": "S0",
        "States": {name: function("add", **next) for name, next in zip(names, follows, strict=True)},
    }


def test_a_round_looks_at_few_states_however_many_there_are() -> None:
    def looked_at(count: int) -> int:
        def add(order: Any) -> Any:
            return {"answer": {"n": order.inputs["payload"]["n"] + 1}} if order.step.name[0] == "S" else real(order)

        report = run_virtually(read(in_a_row(count)), {"input": {"n": 0}}, script=add)
        assert report.state == "succeeded"
        assert sum(event.kind == "task.started" and "/S" in event.task for event in report.events) >= count
        return len(report.events)

    few, many = looked_at(50), looked_at(400)
    assert many < 12 * few, "as many for each state, but for a level more of the tree"


def test_a_round_knows_the_states_that_can_come_next_alone() -> None:
    machine = in_a_row(500)
    turns = [step for level in read(machine).definitions for step in level.steps if step.name == "turn"]
    assert max(len(given.value["States"]) for turn in turns for given in turn.inputs if given.name == "definition") < 20


def test_many_states_with_jumps_waits_and_handlers(run: Any) -> None:
    """From one part of the tree to another, forwards and back."""
    states: dict[str, Any] = {}
    for number in range(40):
        states[f"Wait{number}"] = {"Type": "Wait", "SecondsPath": "$.none", "Next": f"Add{number}"}
        states[f"Add{number}"] = function("add", ResultPath="$.by", Next=f"Keep{number}")
        keep = {"n.$": "$.by.n", "none": 0, "rounds.$": "$.rounds"}
        states[f"Keep{number}"] = {"Type": "Pass", "Parameters": keep, "Next": f"Wait{number + 1}"}
    states["Wait40"] = {
        "Type": "Choice",
        "Choices": [{"Variable": "$.n", "NumericLessThan": 75, "Next": "Wait5"}],
        "Default": "Boom",
    }
    caught = [{"ErrorEquals": ["ValueError"], "ResultPath": "$.why", "Next": "Last"}]
    states["Boom"] = function("boom", Catch=caught, Next="Wait0")
    states["Last"] = {"Type": "Pass", "End": True}
    done = run({"StartAt": "Wait3", "States": states}, {"n": 0, "none": 0, "rounds": 0}).outputs["output"]
    assert (done["n"], done["why"]["Error"]) == (37 + 35 + 35, "ValueError")


@pytest.mark.parametrize("count", [20_000])
def test_a_walk_of_many_rounds_takes_time_in_proportion(count: int) -> None:
    def seconds(count: int) -> float:
        loop = {"Type": "Choice", "Choices": [{"Variable": "$.n", "NumericLessThan": count, "Next": "Add"}]}
        add = {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)"}, "Next": "More?"}
        states = {"Add": add, "More?": {**loop, "Default": "End"}, "End": {"Type": "Succeed"}}
        machine = {"StartAt": "Add", "States": states}
        began = time.process_time()
        walker = Walker(machine, execution(), SeededChance("x"))
        ended = DryDriver(walker, Recorded({}), NOW).go({"n": 0}).ended
        assert ended is not None and ended.output == {"n": count}
        return time.process_time() - began

    # The best of three each: a square would be sixteen times as much.
    few, many = (min(seconds(number) for _ in range(3)) for number in (count // 4, count))
    assert many < 10 * max(few, 0.05)


def starts(resource: str, **fields: Any) -> dict[str, Any]:
    arn = "arn:aws:states:eu:1:stateMachine:orders"
    asked = {"StateMachineArn": arn, "Input": {"n.$": "$.n"}, "Name": "first"}
    task = {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Parameters": asked, "End": True, **fields}
    return {
        "StartAt": "Start",
        "States": {"Start": task, "Else": {"Type": "Pass", "End": True}} if fields else {"Start": task},
    }


def with_machine(child: dict[str, Any]) -> dict[str, Any]:
    return {**TABLE, "resources": {**TABLE["resources"], "orders": {"machine": child}}}


ORDERS = {"StartAt": "Add", "States": {"Add": function("add", Next="Wait"), "Wait": {"Type": "Pass", "End": True}}}


@pytest.mark.parametrize(("resource", "output"), [(".sync", '{"n":8}'), (".sync:2", {"n": 8}), ("", None)])
def test_a_machine_starts_another_one(run: Any, tmp_path: Path, resource: str, output: Any) -> None:
    workflow = read(starts(f"states:startExecution{resource}"), with_machine(ORDERS))
    done = LocalRunner(home=tmp_path / "home", on={"function": "inline"}).run(workflow, input={"n": 7})
    told = done.outputs["output"]
    assert told["ExecutionArn"].endswith(":first") and told.get("Output") == output
    if resource:
        assert (told["Status"], told["Name"]) == ("SUCCEEDED", "first")


def test_a_started_machine_that_fails_fails_its_task(run: Any, tmp_path: Path) -> None:
    bad = {"StartAt": "Bad", "States": {"Bad": {"Type": "Fail", "Error": "NoStock", "Cause": "sold out"}}}
    caught = {"Catch": [{"ErrorEquals": ["States.TaskFailed"], "Next": "Else"}]}
    workflow = read(starts("states:startExecution.sync:2", **caught), with_machine(bad))
    told = (
        LocalRunner(home=tmp_path / "home", on={"function": "inline"}).run(workflow, input={"n": 7}).outputs["output"]
    )
    cause = json.loads(told["Cause"])
    assert (told["Error"], cause["Error"], cause["Cause"]) == ("States.TaskFailed", "NoStock", "sold out")


def test_a_machine_that_would_start_itself_and_a_wrong_one_are_refused() -> None:
    for child, said in (
        (starts("states:startExecution.sync"), "start itself"),
        ({"StartAt": "No", "States": {"A": {"Type": "Succeed"}}}, "No"),
    ):
        with pytest.raises(UserError) as refused:
            read(starts("states:startExecution"), with_machine(child))
        assert said in str(refused.value)


def test_a_machine_among_the_documents_is_found_by_its_name() -> None:
    documents = [
        *read_text(json.dumps(starts("states:startExecution.sync")), "main.asl.json"),
        *read_text(json.dumps(ORDERS), "orders.asl.json"),
        *read_text(json.dumps(TABLE), "table.json"),
    ]
    found = registry.read(Library(tuple(documents)), documents[0])
    assert not found.report.of("lost") and not errors(found.workflow)


CALLED = {"Resource": "arn:aws:states:::lambda:invoke"}
WHOLE = {"Parameters": {"FunctionName": "add", "Payload.$": "$"}, "OutputPath": "$.Payload"}
ROW: dict[str, Any] = {
    "StartAt": "One",
    "States": {
        "One": function("add", Next="Nothing", Retry=[{"ErrorEquals": ["States.ALL"], "MaxAttempts": 2}]),
        "Nothing": {"Type": "Pass", "Next": "Both"},
        "Both": {
            "Type": "Parallel",
            "Branches": [
                {"StartAt": "Left", "States": {"Left": function("add", Next="More"), "More": function("add")}},
                {"StartAt": "Right", "States": {"Right": {"Type": "Task", **CALLED, **WHOLE, "End": True}}},
            ],
            "Next": "Echo",
        },
        "Echo": function("echo"),
    },
}


def plain(machine: dict[str, Any], table: dict[str, Any] = TABLE) -> Workflow:
    library = Library(tuple(read_text(json.dumps([machine, table]), "flow.asl.json")))
    return registry.read(library, library.documents[0], plain=True).workflow


def test_steps_in_a_row_give_what_the_machine_gives(run: Any, tmp_path: Path) -> None:
    workflow = plain(ROW)
    assert not errors(workflow)
    assert [step.name for step in workflow.steps] == ["One", "Left", "More", "Right", "Echo"]
    assert workflow.steps[0].retry is not None and workflow.steps[0].retry.limit == 2
    done = LocalRunner(home=tmp_path / "plain", on={"function": "inline"}).run(workflow, input={"n": 1})
    ends = run(ROW, {"n": 1}).outputs["output"]
    assert (ends, done.outputs["output"]) == ([{"n": 4}, {"n": 3}], ends)


@pytest.mark.parametrize("to", ["argo", "tekton"])
def test_a_row_of_images_is_written_for_other_systems_and_read_again(tmp_path: Path, to: str) -> None:
    table = {
        "kind": "StateMachineResources",
        "resources": {"add": {"image": "add:1", "command": ["add"]}, "echo": {"image": "echo:1", "command": ["echo"]}},
    }
    row = {"StartAt": "Add", "States": {"Add": function("add", Next="Again"), "Again": function("add", Next="Echo")}}
    row["States"]["Echo"] = function("echo", TimeoutSeconds=60)
    (tmp_path / "row.asl.json").write_text(json.dumps([row, table]))
    text = convert(str(tmp_path / "row.asl.json"), to).text
    library = Library(tuple(read_text(text, "again.yaml")))
    again = registry.read(library, registry.root(library, None, "again.yaml")).workflow
    seen = {step.name.lower(): sorted(edges_of(step)) for step in again.steps}
    assert [(name, [one.lower() for one in ups]) for name, ups in seen.items()] == [
        ("add", []),
        ("again", ["add"]),
        ("echo", ["again"]),
    ]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"Type": "Choice", "Choices": [{"Variable": "$.n", "IsPresent": True, "Next": "End"}]}, "a Choice"),
        ({"Type": "Pass", "Parameters": {"a": 1}, "Next": "End"}, "Parameters makes data"),
        (function("add", Next="One"), "in a circle"),
        (function("add", Next="End", Catch=[{"ErrorEquals": ["States.ALL"], "Next": "End"}]), "Catch"),
        (function("nobody", Next="End"), "nothing is bound"),
    ],
)
def test_a_state_that_other_systems_have_nothing_for_is_named(state: dict[str, Any], said: str) -> None:
    one = function("add", Next="Odd")
    if said == "in a circle":
        one = function("add", Next="Odd", Catch=[{"ErrorEquals": ["States.ALL"], "Next": "End"}])
    with pytest.raises(UserError) as refused:
        plain({"StartAt": "One", "States": {"One": one, "Odd": state, "End": {"Type": "Succeed"}}})
    assert any(
        problem.code == "P842" and "'O" in problem.message and said in problem.message
        for problem in refused.value.problems
    )
