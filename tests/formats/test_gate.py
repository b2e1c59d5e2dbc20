"""Gates: what is put in, that nothing of the user's is lost, and that it is taken back exactly."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.formats import schema
from penstock.formats.argo.gate import document as argo_gate
from penstock.formats.argo.gate.inject import GATE, SELECTOR, WRAPPER
from penstock.formats.argo.gate.text import patched
from penstock.formats.argo.language.depends import needs_of
from penstock.formats.argo.scope import KINDS, spec_path
from penstock.formats.argo.stages import static_stages
from penstock.formats.documents import Document, Library, library, part
from penstock.formats.gates.documents import gate_documents, ungate_documents
from penstock.formats.gates.marks import (
    MARK,
    MAX_RESOURCES,
    NODE_SELECTOR,
    POD_GATE,
    QUEUE,
    TOLERATION,
    UNDO,
    annotations_of,
    is_gated,
)
from penstock.formats.gates.undo import difference, restore
from penstock.formats.report import Report
from penstock.formats.tekton import gate as tekton_gate
from tests.formats import test_argo_stages
from tests.formats.corpus import files, label, needs_corpus
from tests.formats.test_argo_stages import asking, call, dag, document, steps

UNITS, WAYS = ("stage", "workflow", "task"), ("suspend", "pods")
EVERY = [(unit, by) for unit in UNITS for by in WAYS]


REQUESTS = {"requests": {"cpu": "100m"}}
"""What asks for nothing has no gate; so everything here asks for something, unless it is said."""


def leaf(name: str = "leaf", **fields: Any) -> dict[str, Any]:
    """A template with requests: of its container, its script, or of all pods of it."""
    found = test_argo_stages.leaf(name, **fields)
    for kind in ("container", "script"):
        if kind in found:
            found[kind] = {"resources": REQUESTS, **found[kind]}
    return found


def mark_of(data: Any) -> Any:
    """What the gate has said about the document: unit, by, held."""
    return json.loads(data["metadata"]["annotations"][MARK])


def gated(
    own: Document, *others: Document, unit: str = "stage", by: str = "suspend", report: Report | None = None
) -> dict[str, Any]:
    """Gated, checked against the published shapes and Argo's own rules, and taken back."""
    found = argo_gate.gate(Library((own, *others)), own, unit, by, report)
    assert schema.check(found) == schema.check(own.data)
    for problem in rules(found):
        raise AssertionError(problem)
    assert argo_gate.ungate(Document(found)) == own.data
    with pytest.raises(UserError) as again:
        argo_gate.gate(Library((Document(found), *others)), Document(found), unit, by)
    assert again.value.code == "P861"
    return found


def refused(own: Document, *others: Document, unit: str = "stage", by: str = "suspend") -> str:
    with pytest.raises(UserError) as error:
        argo_gate.gate(Library((own, *others)), own, unit, by)
    assert all(problem.fix and problem.source for problem in error.value.problems)
    return error.value.code


def template(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in part(data, *_spec(data))["templates"] if one["name"] == name]
    return found  # type: ignore[no-any-return]


def _spec(data: Mapping[str, Any]) -> list[str]:
    return spec_path(Document(data)).split(".")


def parameters(step: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in step.get("arguments", {}).get("parameters", [])}


# Argo's own rules, as its controller and its definitions have them

_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]{0,127}\Z")
_READ = re.compile(r"\b(?:steps|tasks)(?:\.([\w-]+)|\['([\w-]+)'\])")


def rules(data: Mapping[str, Any]) -> Iterator[str]:
    templates = part(data, *_spec(data)).get("templates") or []
    known = {one.get("name") for one in templates}
    if len(known) != len(templates) or len(templates) > 200:
        yield "templates: one name twice, or more than 200"
    for one in templates:
        yield from _rules_of(one, known, str(one.get("name")))


def _rules_of(one: Mapping[str, Any], known: set[Any], where: str) -> Iterator[str]:
    calls = [step for group in one.get("steps") or [] for step in group] or part(one, "dag").get("tasks") or []
    listed = [step.get("name") for step in calls]
    if len(set(listed)) != len(listed) or not all(_NAME.match(name) for name in listed):
        yield f"{where}: names {listed}"
    for step in calls:
        if "template" in step and step["template"] not in known:
            yield f"{where}: no template {step['template']}"
        if isinstance(step.get("inline"), Mapping):
            yield from _rules_of(step["inline"], known, f"{where}.{step['name']}")
    if one.get("dag"):
        yield from _dag_rules(part(one, "dag")["tasks"], where)
    else:
        before: set[Any] = set()
        for group in one.get("steps") or []:
            for step in group:
                yield from _gate_rules(step, before, where)
            before |= {step["name"] for step in group}


def _dag_rules(tasks: list[dict[str, Any]], where: str) -> Iterator[str]:
    using = any(task.get("depends") for task in tasks)
    by_name = {task["name"]: task for task in tasks}
    for task in tasks:
        if using and (task.get("dependencies") or task.get("continueOn")):
            yield f"{where}.{task['name']}: depends with dependencies or continueOn in one dag"
        if (using or task.get("dependencies")) and task["name"][0].isdigit():
            yield f"{where}.{task['name']}: begins with a digit"
        yield from _gate_rules(task, _ancestors(task, by_name), where)


def _ancestors(task: Mapping[str, Any], by_name: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = needs_of(task)
    while waiting:
        name = waiting.pop()
        if name not in found and name in by_name:
            found.add(name)
            waiting += needs_of(by_name[name])
    return found


def _gate_rules(step: Mapping[str, Any], before: set[Any], where: str) -> Iterator[str]:
    """A gate reads nothing but what is over by then, and what waits for a gate comes after it."""
    for name, text in [*parameters(step).items(), ("when", str(step.get("when", "")))]:
        if step["name"].startswith(GATE) or name == SELECTOR:
            for first, second in _READ.findall(text):
                if (first or second) not in before:
                    yield f"{where}.{step['name']} reads {first or second}, which is not over"
    if step["name"].startswith(GATE) and "{{item" in json.dumps(step):
        yield f"{where}.{step['name']} reads an item"


# What is put in


def test_a_gate_goes_before_each_group() -> None:
    own = document(
        steps("main", [call("a"), call("b")], [call("c", "wait")], [call("d")]), leaf(), leaf("wait", suspend={})
    )
    report = Report()
    found = gated(own, report=report)
    groups = template(found, "main")["steps"]
    assert [[step["name"] for step in group] for group in groups] == [
        ["penstock-gate-0"],
        ["a", "b"],
        ["c"],
        ["penstock-gate-2"],
        ["d"],
    ]
    said = parameters(groups[0][0])
    assert said["stage"] == "main[0]"
    assert [(one["step"], one["template"], one["n"]) for one in json.loads(said["shape"])] == [
        ("a", "leaf", 1),
        ("b", "leaf", 1),
    ]
    assert template(found, "wait") == {"name": "wait", "suspend": {}}
    assert any("of your own" in entry.message for entry in report.of("kept"))
    assert [entry.path for entry in report.of("changed") if "waits at" in entry.message] == [
        "spec.templates[0].steps[0]",
        "spec.templates[0].steps[2]",
    ]


def test_the_gate_hands_back_a_flavor_and_opens_under_a_plain_resume() -> None:
    gate = template(gated(document(steps("main", [call("a")]), leaf())), GATE)
    assert gate["suspend"] == {}
    assert {one["name"] for one in gate["inputs"]["parameters"]} == {"stage", "shape", "key"}
    outputs = {one["name"]: one["valueFrom"] for one in gate["outputs"]["parameters"]}
    assert outputs == {"flavor": {"supplied": {}, "default": ""}, "node-selector": {"supplied": {}, "default": "{}"}}


def test_a_task_waits_for_its_gate_and_the_gate_for_what_the_task_waited_for() -> None:
    own = document(
        dag("main", call("a"), call("b", depends="a.Succeeded || a.Failed", when="{{tasks.a.status}} == x")), leaf()
    )
    tasks = {task["name"]: task for task in template(gated(own), "main")["dag"]["tasks"]}
    assert tasks["penstock-gate-b"]["depends"] == "a.Succeeded || a.Failed"
    assert tasks["penstock-gate-b"]["when"] == "{{tasks.a.status}} == x" == tasks["b"]["when"]
    assert tasks["b"]["depends"] == "penstock-gate-b" and "depends" not in tasks["penstock-gate-a"]


def test_one_dag_has_one_way_to_wait() -> None:
    own = document(dag("main", call("a", continueOn={"failed": True}), call("b", dependencies=["a"])), leaf())
    tasks = {task["name"]: task for task in template(gated(own), "main")["dag"]["tasks"]}
    assert tasks["a"]["dependencies"] == ["penstock-gate-a"] and tasks["penstock-gate-b"]["dependencies"] == ["a"]
    none = document(dag("main", call("a"), call("1b", "nested")), steps("nested", [call("x")]), leaf())
    assert template(gated(none), "main")["dag"]["tasks"][1]["dependencies"] == ["penstock-gate-a"]


@pytest.mark.parametrize(
    "whens, wanted",
    [
        (["{{x}} == 1"], "{{x}} == 1"),
        (["{{x}} == 1", "{{y}} == 2"], "({{x}} == 1) || ({{y}} == 2)"),
        (["{{x}} == 1", None], None),
        (["{{item}} == 1"], None),
        (["{{=item.a == 1}} == true"], None),
        (["{{x}} == item"], "{{x}} == item"),
    ],
)
def test_a_gate_is_left_out_only_with_all_its_members(whens: list[str | None], wanted: str | None) -> None:
    calls = [call(f"s{at}", **({"when": when} if when else {}), withItems=[1]) for at, when in enumerate(whens)]
    own = document(steps("main", calls), leaf())
    assert template(gated(own), "main")["steps"][0][0].get("when") == wanted


@pytest.mark.parametrize(
    "loop, wanted",
    [
        ({"withItems": [1, 2]}, "2"),
        (
            {"withParam": "{{steps.gen.outputs.result}}"},
            "{{=steps.gen.outputs.result == '' ? 1 : len(fromJSON(steps.gen.outputs.result))}}",
        ),
        (
            {"withParam": "{{steps.my-gen.outputs.parameters.a-b}}"},
            "{{=steps['my-gen'].outputs.parameters['a-b'] == '' ? 1 : len(fromJSON(steps['my-gen'].outputs.parameters['a-b']))}}",
        ),
        ({"withParam": "{{=toJson(steps.gen.outputs)}}"}, "{{=len(fromJSON(toJson(steps.gen.outputs)))}}"),
        ({"withParam": "{{=steps.gen.outputs}}"}, "null"),
        ({"withParam": "[{{steps.gen.outputs.result}}, 1]"}, "null"),
        ({"withParam": '["a"]'}, "1"),
        ({"withSequence": {"count": "{{inputs.parameters.n}}"}}, "{{=asInt(inputs.parameters.n)}}"),
        (
            {"withSequence": {"start": "2", "end": "{{steps.gen.outputs.result}}"}},
            "{{=asInt(steps.gen.outputs.result) >= 2 ? asInt(steps.gen.outputs.result) - 2 + 1 : 2 - asInt(steps.gen.outputs.result) + 1}}",
        ),
        ({"withSequence": {"count": "{{item}}"}}, "null"),
    ],
)
def test_sizes_that_argo_fills_in(loop: dict[str, Any], wanted: str) -> None:
    main = steps(
        "main",
        [call("gen"), call("my-gen")],
        [call("a", **loop)],
        inputs={"parameters": [{"name": "n", "default": "1"}]},
    )
    shape_text = parameters(template(gated(document(main, leaf())), "main")["steps"][2][0])["shape"]
    assert shape_text.startswith(f'[{{"n":{wanted},"step":"a"')


def test_a_size_that_may_not_be_there_is_not_read() -> None:
    maybe = call("b", when="{{steps.gen.status}} == x", withParam="{{steps.gen.outputs.result}}")
    both = document(steps("main", [call("gen")], [call("a"), maybe]), leaf())
    assert '"n":null,"step":"b"' in parameters(template(gated(both), "main")["steps"][2][0])["shape"]
    alone = document(steps("main", [call("gen")], [maybe]), leaf())
    assert '"n":{{=' in parameters(template(gated(alone), "main")["steps"][2][0])["shape"]


def test_the_shape_says_what_a_queue_must_know_and_no_tag_slips_in() -> None:
    odd = asking(
        "leaf",
        "2",
        nodeSelector={"a": "b", "c": "{{inputs.parameters.x}}"},
        tolerations=[{"key": "{{x}}"}, {"key": "k"}],
        daemon=True,
    )
    text = parameters(template(gated(document(steps("main", [call("a")]), odd)), "main")["steps"][0][0])["shape"]
    assert "{{" not in text
    (one,) = json.loads(text)
    assert one == {
        "n": 1,
        "step": "a",
        "template": "leaf",
        "resources": {"cpu": "2"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k"}],
        "open": ["nodeSelector", "tolerations"],
        "daemon": True,
    }


def test_what_argo_remembers_is_told_by_its_key() -> None:
    memo = {
        "memoize": {"key": "k-{{inputs.parameters.x}}", "cache": {"configMap": {"name": "store"}}},
        "inputs": {"parameters": [{"name": "x"}]},
    }

    def key(value: str, **fields: Any) -> str | None:
        use = call("a", arguments={"parameters": [{"name": "x", "value": value}]}, **fields)
        main = steps("main", [use], inputs={"parameters": [{"name": "y", "default": "1"}]})
        return parameters(template(gated(document(main, leaf(**memo))), "main")["steps"][0][0]).get("key")

    assert key("1") == "store/k-1"
    assert key("{{inputs.parameters.y}}") == "store/k-{{inputs.parameters.y}}"
    assert key("{{item}}", withItems=[1]) is None
    assert key("{{steps.b.outputs.result}}") is None


def test_a_mixed_group_waits_as_one_and_that_is_said() -> None:
    report = Report()
    own = document(steps("main", [call("a"), call("b", "inner")]), steps("inner", [call("c")]), leaf())
    gated(own, report=report)
    assert any("wait for the gate of its leaves" in entry.message for entry in report.of("changed"))


def test_a_leaf_that_is_the_whole_workflow_is_wrapped_with_its_inputs() -> None:
    inputs = {
        "parameters": [
            {"name": "p", "default": "1"},
            {"name": "q", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        ],
        "artifacts": [
            {"name": "given", "path": "/a"},
            {"name": "own", "path": "/b", "http": {"url": "x"}},
            {"name": "opt", "path": "/c", "optional": True},
        ],
    }
    own = document(
        leaf("work", inputs=inputs),
        arguments={"artifacts": [{"name": "given", "raw": {"data": "x"}}]},
        retryStrategy={"limit": "2"},
    )
    found = gated(own)
    assert found["spec"]["entrypoint"] == WRAPPER
    wrapper = template(found, WRAPPER)
    assert wrapper["inputs"] == {"parameters": inputs["parameters"], "artifacts": [{"name": "given"}]}
    (last,) = wrapper["steps"][1]
    assert last["template"] == "work" and last["arguments"]["artifacts"] == [
        {"name": "given", "from": "{{inputs.artifacts.given}}"}
    ]
    assert parameters(last) == {
        "p": "{{inputs.parameters.p}}",
        "q": "{{inputs.parameters.q}}",
        SELECTOR: "{{steps.penstock-gate-0.outputs.parameters.node-selector}}",
    }
    assert wrapper["retryStrategy"] == {"limit": "0"}


def test_exit_handlers_and_hooks_stay_as_they_are() -> None:
    hooked = call("a", hooks={"exit": {"template": "bye"}}, onExit="clean")
    own = document(steps("main", [hooked]), leaf(), leaf("bye"), steps("clean", [call("x", "bye")]), onExit="clean")
    for by in WAYS:
        found = gated(own, by=by)
        for name in ("bye", "clean"):
            assert template(found, name) in own.spec["templates"]
        assert found["spec"]["onExit"] == "clean"


def test_what_runs_both_ways_is_copied_for_the_one_that_waits() -> None:
    own = document(steps("main", [call("a", "both")]), steps("both", [call("b")]), leaf(), onExit="both")
    found = gated(own)
    assert template(found, "both") == own.spec["templates"][1]
    assert template(found, "main")["steps"][0][0]["template"] == "penstock-gate-of-both"
    assert template(found, "penstock-gate-of-both")["steps"][0][0]["name"] == "penstock-gate-0"
    pods = gated(own, by="pods")
    assert template(pods, "leaf") == leaf() and POD_GATE in template(pods, "penstock-gate-of-leaf")["podSpecPatch"]
    entry = document(steps("main", [call("a")]), leaf(), onExit="main")
    assert gated(entry)["spec"]["entrypoint"] == "penstock-gate-of-main"


def test_templates_of_other_documents_are_copied_with_all_they_call() -> None:
    hook = {"hooks": {"exit": {"template": "bye"}}, "onExit": None}
    lib = document(
        steps("go", [call("x", **hook), call("w", "web")], [call("y", "deeper", onExit="bye")]),
        steps("deeper", [call("z")]),
        leaf(),
        leaf("bye"),
        leaf("web", http={"url": "x"}),
        kind="ClusterWorkflowTemplate",
        name="lib",
    )
    ref = {"name": "lib", "template": "go", "clusterScope": True}
    own = document(steps("main", [{"name": "a", "templateRef": ref}]), leaf("other"))
    found = gated(own, lib)
    assert template(found, "main")["steps"][0][0] == {"name": "a", "template": "penstock-gate-of-cwftmpl-lib-go"}
    go = template(found, "penstock-gate-of-cwftmpl-lib-go")["steps"]
    assert go[1][0]["template"] == "penstock-gate-of-cwftmpl-lib-leaf"
    afar = {"name": "lib", "template": "bye", "clusterScope": True}
    assert go[1][0]["hooks"] == {"exit": {"templateRef": afar}}
    assert go[1][1]["templateRef"] == {"name": "lib", "template": "web", "clusterScope": True}
    assert go[2][0]["template"] == "penstock-gate-of-cwftmpl-lib-deeper" and go[2][0]["hooks"] == {
        "exit": {"templateRef": afar}
    }
    assert [one["name"] for one in lib.data["spec"]["templates"]] == ["go", "deeper", "leaf", "bye", "web"]


def test_a_workflow_template_ref_becomes_the_spec_it_names() -> None:
    lib = document(
        steps("main", [call("a")]),
        leaf(),
        kind="WorkflowTemplate",
        name="lib",
        arguments={"parameters": [{"name": "x", "value": "1"}]},
    )
    own = document(workflowTemplateRef={"name": "lib"}, arguments={"parameters": [{"name": "x", "value": "2"}]})
    found = gated(own, lib)
    assert "workflowTemplateRef" not in found["spec"] and found["spec"]["arguments"]["parameters"] == [
        {"name": "x", "value": "2"}
    ]
    assert template(found, "main")["steps"][0][0]["template"] == GATE
    assert gated(own, lib, by="pods")["spec"]["workflowTemplateRef"] == {"name": "lib"}
    assert gated(own, lib, unit="workflow")["spec"]["workflowTemplateRef"] == {"name": "lib"}


def test_gates_of_what_is_copied_are_not_copied_with_it() -> None:
    lib = document(steps("go", [call("x")]), leaf(), kind="WorkflowTemplate", name="lib")
    own = document(steps("main", [{"name": "a", "templateRef": {"name": "lib", "template": "go"}}]), leaf())
    before = gated(own, lib)
    assert gated(own, Document(gated(lib))) == before


def test_templates_and_crons_are_gated_too() -> None:
    lib = document(steps("go", [call("x")]), dag("more", call("t")), leaf(), kind="WorkflowTemplate", entrypoint=None)
    found = gated(lib)
    assert (
        template(found, "go")["steps"][0][0]["template"] == GATE
        and template(found, "more")["dag"]["tasks"][0]["template"] == GATE
    )
    assert POD_GATE in template(gated(lib, by="pods"), "leaf")["podSpecPatch"]
    inner = {"entrypoint": "main", "templates": [steps("main", [call("a")]), leaf()]}
    cron = Document(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "CronWorkflow",
            "metadata": {"name": "c", "labels": {QUEUE: "q"}},
            "spec": {"schedules": ["* * * * *"], "workflowSpec": inner},
        }
    )
    metadata = gated(cron)["spec"]["workflowMetadata"]
    assert metadata["labels"] == {QUEUE: "q"} and mark_of({"metadata": metadata}) == {"unit": "stage", "by": "suspend"}
    whole = gated(cron, unit="workflow")
    assert whole["spec"]["workflowSpec"]["suspend"] is True and "suspend" not in whole["spec"]


# Where admitted pods may run


def test_a_leaf_is_told_where_it_may_run_by_each_of_its_callers() -> None:
    own = document(
        steps("main", [call("a")], [call("b", arguments={"parameters": [{"name": "x", "value": "1"}]})]),
        leaf(inputs={"parameters": [{"name": "x", "default": ""}]}),
    )
    found = gated(own)
    made = template(found, "leaf")
    assert made["inputs"]["parameters"] == [{"name": "x", "default": ""}, {"name": SELECTOR, "default": "{}"}]
    assert made["podSpecPatch"] == f'{{"nodeSelector":{{{{inputs.parameters.{SELECTOR}}}}}}}'
    groups = template(found, "main")["steps"]
    assert parameters(groups[1][0])[SELECTOR] == "{{steps.penstock-gate-0.outputs.parameters.node-selector}}"
    assert parameters(groups[3][0]) == {
        "x": "1",
        SELECTOR: "{{steps.penstock-gate-1.outputs.parameters.node-selector}}",
    }


@pytest.mark.parametrize("kind", ["steps", "tasks"])
def test_an_inline_leaf_is_told_by_an_input(kind: str) -> None:
    """Argo checks it by itself, where the gate before it is not known."""
    one = {"name": "a", "inline": {"container": {"image": "x", "resources": REQUESTS}}}
    main = {"name": "main", "steps": [[one]]} if kind == "steps" else {"name": "main", "dag": {"tasks": [one]}}
    found = template(gated(document(main)), "main")
    made = found["steps"][1][0] if kind == "steps" else found["dag"]["tasks"][1]
    assert made["inline"]["inputs"] == {"parameters": [{"name": SELECTOR, "default": "{}"}]}
    assert made["inline"]["podSpecPatch"] == f'{{"nodeSelector":{{{{inputs.parameters.{SELECTOR}}}}}}}'
    gate = "steps.penstock-gate-0" if kind == "steps" else "tasks.penstock-gate-a"
    assert parameters(made) == {SELECTOR: f"{{{{{gate}.outputs.parameters.node-selector}}}}"}


@pytest.mark.parametrize(
    "odd",
    [
        {"podSpecPatch": "nodeSelector: {a: b}"},
        {"podSpecPatch": "{{inputs.parameters.all}}"},
        {"container": {"image": "x", "args": ["{{inputs.parameters}}"]}},
        {"container": {"image": "x", "args": ["{{=toJson(inputs.parameters)}}"]}},
    ],
)
def test_where_that_would_change_its_meaning_it_is_left_out_and_said(odd: dict[str, Any]) -> None:
    report = Report()
    own = document(steps("main", [call("a")]), leaf(**odd))
    found = gated(own, report=report)
    assert template(found, "leaf") == leaf(**odd) and "arguments" not in template(found, "main")["steps"][1][0]
    assert any("not told where they may run" in entry.message for entry in report.entries)


def test_the_pod_of_a_resource_template_is_not_where_the_work_is() -> None:
    manifest = json.dumps({"kind": "Pod", "spec": {"containers": [{"resources": REQUESTS}]}})
    own = document(steps("main", [call("a")]), leaf(resource={"action": "create", "manifest": manifest}))
    found = gated(own)
    assert template(found, "leaf") == own.spec["templates"][1]
    assert template(found, "main")["steps"][0][0]["template"] == GATE


@pytest.mark.parametrize("by", WAYS)
def test_a_stage_that_asks_for_nothing_does_not_wait(by: str) -> None:
    """It needs no quota. Its template stays as it is, also if another document has it."""
    idle = test_argo_stages.leaf("idle")
    main = dag("main", call("a"), call("b", "idle"), call("c", "idle", dependencies=["a"]))
    own = document(main, leaf(), idle)
    report = Report()
    found = gated(own, by=by, report=report)
    text = json.dumps(found["spec"])
    assert template(found, "idle") == idle
    assert text.count(f'"template": "{GATE}"') == (1 if by == "suspend" else 0)
    assert text.count(POD_GATE) == (1 if by == "pods" else 0)
    if by == "suspend":
        tasks = {one["name"]: one for one in template(found, "main")["dag"]["tasks"]}
        assert set(tasks) == {"a", "b", "c", "penstock-gate-a"}
        assert tasks["b"] == call("b", "idle") and tasks["c"]["dependencies"] == ["a"]
        assert any("main.b asks for no resources" in entry.message for entry in report.of("kept"))
    far = document(idle, leaf("busy"), kind="WorkflowTemplate", name="lib")
    refer = {"templateRef": {"name": "lib", "template": "idle"}}
    own = document(steps("main", [{"name": "a", **refer}], [call("b")]), leaf())
    assert template(gated(own, far, by=by), "main")["steps"][0] == [{"name": "a", **refer}]


@pytest.mark.parametrize("unit, by", EVERY)
def test_what_asks_for_nothing_at_all_stays_as_it_is(unit: str, by: str) -> None:
    asks_not = test_argo_stages.leaf("idle")
    zero = test_argo_stages.leaf("zero", container={"image": "x", "resources": {"requests": {"cpu": "0"}}})
    kinds = [
        document(steps("main", [call("a", "idle")], [call("b", "zero")]), asks_not, zero, onExit="busy"),
        document(asks_not, kind="CronWorkflow"),
        run(pipelineSpec={"tasks": [{"name": "a", "taskSpec": {"steps": [{"image": "x"}]}}], "finally": [task("b")]}),
        run("TaskRun", taskSpec={"steps": [{"image": "x"}]}),
        Document({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"template": {"spec": {}}}}),
    ]
    kinds[0].data["spec"]["templates"].append(leaf("busy"))
    kinds[1].data["spec"] = {"schedule": "* * * * *", "workflowSpec": kinds[1].data["spec"]}
    written = gate_documents(Library(tuple(kinds)), unit, by)
    assert written.documents == [one.data for one in kinds]
    assert not written.report.of("changed")


def test_what_only_the_run_knows_waits() -> None:
    asked = {"image": "x", "resources": {"requests": {"cpu": "{{inputs.parameters.cpu}}"}}}
    for one in (
        test_argo_stages.leaf(container=asked, inputs={"parameters": [{"name": "cpu"}]}),
        leaf(resource={"action": "create", "manifest": "apiVersion: ray.io/v1\nkind: RayJob"}),
    ):
        assert GATE in json.dumps(gated(document(steps("main", [call("a")]), one))["spec"])
    settings = leaf(resource={"action": "create", "manifest": "apiVersion: v1\nkind: ConfigMap"})
    own = document(steps("main", [call("a")]), settings)
    assert argo_gate.gate(Library((own,)), own) == own.data


def test_a_task_that_asks_for_nothing_is_let_go_by_a_label_of_its_own() -> None:
    """Tekton puts the labels of taskRunSpecs before those of the run."""
    idle = {"taskSpec": {"steps": [{"image": "x"}]}}
    listed = [task("a"), {"name": "b", **idle}, {"name": "c", **idle}]
    given = [{"pipelineTaskName": "b", "metadata": {"labels": {"mine": "1"}}, "timeout": "1h"}]
    found = waiting(run(pipelineSpec={"tasks": listed}, taskRunSpecs=given))
    assert found["metadata"]["labels"][tekton_gate.LABEL] == "taskruns"
    assert found["spec"]["taskRunSpecs"] == [
        {"pipelineTaskName": "b", "metadata": {"labels": {"mine": "1", tekton_gate.LABEL: "none"}}, "timeout": "1h"},
        {"pipelineTaskName": "c", "metadata": {"labels": {tekton_gate.LABEL: "none"}}},
    ]
    assert [one["task"] for one in json.loads(annotations_of(found)[tekton_gate.TASKS])] == ["a"]


def test_the_pods_of_a_jobset_that_ask_for_nothing_do_not_wait() -> None:
    def job(name: str, resources: dict[str, Any]) -> dict[str, Any]:
        pod = {"spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]}}
        return {"name": name, "template": {"spec": {"template": pod}}}

    spec = {"replicatedJobs": [job("a", REQUESTS), job("b", {})]}
    own = Document({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {}, "spec": spec})
    (found,) = gate_documents(Library((own,)), by="pods").documents
    pods = [one["template"]["spec"]["template"]["spec"] for one in found["spec"]["replicatedJobs"]]
    assert ["schedulingGates" in pod for pod in pods] == [True, False]


@pytest.mark.parametrize(
    "text, wanted",
    [
        (None, '{"f":[1]}'),
        ("", '{"f":[1]}'),
        ("{}", '{"f":[1]}'),
        ('{"a": "{{x}}"}', '{"f":[1],"a": "{{x}}"}'),
        ("a: 1\nb:\n  c: |\n    text", "f: [1]\na: 1\nb:\n  c: |\n    text"),
        ("  a: 1\n", "  f: [1]\n  a: 1\n"),
        ("# said\na: {{x}}\n", "f: [1]\n# said\na: {{x}}\n"),
        ("f: 1", None),
        ("{{all}}", None),
        ("a: 1\n---\nb: 2", None),
        ("- a", None),
        ("a: [", None),
        (7, None),
    ],
)
def test_patches_are_extended_without_a_change_to_what_they_say(text: Any, wanted: str | None) -> None:
    assert patched(text, "f", "[1]") == wanted


# Pods, and the whole


@pytest.mark.parametrize("unit, by", [("stage", "pods"), ("task", "pods"), ("task", "suspend")])
def test_every_pod_waits_by_itself(unit: str, by: str) -> None:
    own = document(steps("main", [call("a")]), leaf(), podSpecPatch="priority: 1")
    found = gated(own, unit=unit, by=by)
    assert found["spec"]["podSpecPatch"] == f'schedulingGates: [{{"name":"{POD_GATE}"}}]\npriority: 1'
    assert found["spec"]["templates"] == own.spec["templates"] and mark_of(found)["by"] == "pods"


def test_pods_wait_where_only_the_run_knows_which() -> None:
    report = Report()
    own = document(steps("main", [{"name": "a", "templateRef": {"name": "{{x}}", "template": "y"}}]))
    assert POD_GATE in gated(own, by="pods", report=report)["spec"]["podSpecPatch"]
    assert any("only known when it runs" in entry.message for entry in report.entries)
    hooked = document(
        steps("main", [{"name": "a", "templateRef": {"name": "{{x}}", "template": "y"}}]), leaf("bye"), onExit="bye"
    )
    assert refused(hooked, by="pods") == "P862"


def test_the_pod_that_serves_web_calls_does_not_wait() -> None:
    own = document(steps("main", [call("a"), call("w", "web")]), leaf(), leaf("web", http={"url": "x"}))
    found = gated(own, by="pods")
    assert "podSpecPatch" not in found["spec"] and POD_GATE in template(found, "leaf")["podSpecPatch"]


def test_a_patch_that_cannot_be_extended_is_refused() -> None:
    assert refused(document(leaf(), podSpecPatch="schedulingGates: [{name: x}]"), by="pods") == "P865"
    assert (
        refused(document(steps("main", [call("a")]), leaf(podSpecPatch="{{x}}"), leaf("bye"), onExit="bye"), by="pods")
        == "P865"
    )


def test_a_whole_workflow_is_suspended_and_says_what_it_needs() -> None:
    one = asking("one", "1", nodeSelector={"pool": "a"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
    found = gated(
        document(steps("main", [call("a", "one", withItems=[1, 2])], [call("b", "one")]), one), unit="workflow"
    )
    assert found["spec"]["suspend"] is True and mark_of(found) == {
        "unit": "workflow",
        "by": "suspend",
        "held": "penstock",
    }
    said = annotations_of(found)
    assert json.loads(said[MAX_RESOURCES]) == {"cpu": "2"} and json.loads(said[NODE_SELECTOR]) == {"pool": "a"}
    assert json.loads(said[TOLERATION]) == [{"key": "gpu", "operator": "Exists"}]


def test_what_the_user_declares_is_taken() -> None:
    own = document(steps("main", [call("a", "one", withParam="{{workflow.parameters.x}}")]), asking("one", "1"))
    assert refused(own, unit="workflow") == "P863"
    for name in (MAX_RESOURCES, "kueue.x-k8s.io/max-resources"):
        declared = Document({**own.data, "metadata": {"name": "w", "annotations": {name: '{"cpu": "8"}'}}})
        said = annotations_of(gated(declared, unit="workflow"))
        assert said[name] == '{"cpu": "8"}' and (name == MAX_RESOURCES or MAX_RESOURCES not in said)
    for text in ("{", "[]", '{"cpu": "much"}', 7):
        wrong = Document({**own.data, "metadata": {"name": "w", "annotations": {MAX_RESOURCES: text}}})
        assert refused(wrong, unit="workflow") == "P867"


def test_a_suspend_of_the_users_is_never_cleared() -> None:
    own = document(steps("main", [call("a")]), leaf(), suspend=True)
    found = gated(own, unit="workflow")
    assert mark_of(found)["held"] == "user"
    assert argo_gate.ungate(Document(found))["spec"]["suspend"] is True
    staged = gated(own)
    assert staged["spec"]["suspend"] is True and "held" not in mark_of(staged)


def test_a_run_that_was_let_go_is_taken_back_too() -> None:
    own = document(steps("main", [call("a")]), leaf())
    found = gated(own, unit="workflow")
    del found["spec"]["suspend"]
    assert argo_gate.ungate(Document(found)) == own.data


def test_changes_made_since_are_kept() -> None:
    own = document(steps("main", [call("a")], [call("b")]), leaf())
    found = gated(own)
    template(found, "leaf")["container"]["image"] = "newer"
    template(found, "main")["steps"].append([call("c")])
    found["metadata"]["labels"] = {"x": "y"}
    back = argo_gate.ungate(Document(found))
    assert back["spec"]["templates"][1] == leaf(container={"image": "newer"})
    assert [[step["name"] for step in group] for group in back["spec"]["templates"][0]["steps"]] == [
        ["a"],
        ["b"],
        ["c"],
    ]
    assert back["metadata"] == {"name": "w", "labels": {"x": "y"}}


# What is refused


def test_reserved_names_are_refused() -> None:
    for own in (
        document(leaf("penstock-gate")),
        document(steps("main", [call("a")]), leaf(), leaf("penstock-gate-mine")),
        document(steps("main", [call("penstock-gate-0")]), leaf()),
        document(steps("main", [call("a")]), leaf(inputs={"parameters": [{"name": SELECTOR}]})),
    ):
        assert refused(own) == "P860"


def test_calls_that_lead_nowhere_are_refused() -> None:
    for ref in ({"name": "gone", "template": "x"}, {"name": "{{x}}", "template": "x"}):
        assert refused(document(steps("main", [{"name": "a", "templateRef": ref}]))) == "P862"
    assert refused(document(steps("main", [call("a", "nowhere")]))) == "P862"
    assert refused(document(leaf(), entrypoint="nowhere")) == "P862"


def test_gates_beyond_argos_limits_are_refused() -> None:
    many = document(dag("main", *(call(f"t{at}") for at in range(150))), leaf())
    assert refused(many) == "P864" and gated(many, by="pods")
    large = document(leaf("one", container={"image": "x", "args": ["y" * 2**20]}), metadata={})
    assert refused(large) == "P864"


def test_what_gates_cannot_stand_is_refused() -> None:
    assert refused(document(dag("main", call("1a")), leaf())) == "P865"
    for name in ("memoize", "synchronization"):
        assert refused(document(steps("main", [call("a")]), leaf(), templateDefaults={name: {}})) == "P865"
    assert refused(document(leaf(), kind="WorkflowTemplate"), unit="workflow") == "P865"


def test_odd_documents_and_words_are_refused() -> None:
    assert refused(Document({"kind": "Workflow"})) == "P868"
    assert refused(Document({"kind": "Workflow", "metadata": {"annotations": [1]}, "spec": {}})) == "P868"
    assert refused(Document({"kind": "ConfigMap", "metadata": {}, "spec": {}})) == "P868"
    assert refused(document({"name": "main", "steps": [call("a")]}, leaf())) == "P868"
    for unit, by in (("step", "suspend"), ("stage", "magic")):
        with pytest.raises(UserError, match="P869"):
            argo_gate.gate(Library(()), document(leaf()), unit, by)


def test_only_what_was_gated_is_taken_back() -> None:
    with pytest.raises(UserError, match="P866"):
        argo_gate.ungate(document(leaf()))
    found = gated(document(steps("main", *([call(f"a{at}")] for at in range(30))), leaf()))
    assert found["metadata"]["annotations"][UNDO].startswith("zlib:")
    for text in (None, "{", "zlib:!", "zlib:AAAA", "[]", "3"):
        broken = copy.deepcopy(found)
        broken["metadata"]["annotations"][UNDO] = text
        with pytest.raises(UserError, match="P866"):
            argo_gate.ungate(Document(broken))


# The way back

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["name", "a", "b", "steps"]), inner, max_size=4)
        | st.lists(st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"x": inner}), max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES)
def test_the_way_back_leads_back_between_any_two(new: Any, old: Any) -> None:
    way = json.loads(json.dumps(difference(new, old)))
    found = restore(new, way)
    assert found == old and type(found) is type(old)


# Random workflows

NAMES = ["a", "b", "c", "d", "1e"]


@st.composite
def calls(draw: st.DrawFn, name: str, templates: list[str], inside: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name}
    if draw(st.integers(0, 5)) == 0:
        made["inline"] = {"container": {"image": "x"}}
    else:
        made["template"] = draw(st.sampled_from(templates))
    if draw(st.booleans()):
        made |= draw(
            st.sampled_from(
                [
                    {"withItems": [1, 2]},
                    {"withParam": "{{workflow.parameters.l}}"},
                    {"withSequence": {"count": "3"}},
                    {"withParam": "[]"},
                ]
            )
        )
    if draw(st.integers(0, 2)) == 0:
        made["when"] = draw(st.sampled_from(["{{workflow.parameters.x}} == 1", "{{item}} == 2", "true"]))
    if draw(st.integers(0, 3)) == 0:
        made["arguments"] = draw(
            st.sampled_from([{}, {"parameters": []}, {"parameters": [{"name": "p", "value": "1"}]}])
        )
    if draw(st.integers(0, 3)) == 0:
        made["hooks"] = {"exit": {"template": draw(st.sampled_from(templates))}}
    if draw(st.integers(0, 4)) == 0:
        made["onExit"] = draw(st.sampled_from(templates))
    return made


@st.composite
def workflows(draw: st.DrawFn) -> Document:
    leaves = ["l0", "l1", "web", "wait"]
    composites = [f"t{at}" for at in range(draw(st.integers(0, 4)))]
    every = [*leaves, *composites]
    made: list[dict[str, Any]] = [
        leaf("l0"),
        asking(
            "l1",
            "1",
            **draw(
                st.sampled_from([{}, {"podSpecPatch": "priority: 1"}, {"inputs": {"parameters": []}}, {"inputs": {}}])
            ),
        ),
        leaf("web", http={"url": "x"}),
        leaf("wait", suspend={}),
    ]
    for name in composites:
        chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=5))
        listed = [draw(calls(one, every, name)) for one in chosen]
        if draw(st.booleans()):
            cuts = [draw(st.booleans()) for _ in listed]
            groups: list[list[dict[str, Any]]] = []
            for one, cut in zip(listed, cuts, strict=True):
                if cut or not groups:
                    groups.append([])
                groups[-1].append(one)
            made.append({"name": name, "steps": groups})
        else:
            style = draw(st.sampled_from(["depends", "dependencies", ""]))
            for at, one in enumerate(listed):
                before = [other["name"] for other in listed[:at] if not other["name"][0].isdigit()]
                if before and style and not one["name"][0].isdigit() and draw(st.booleans()):
                    one[style] = " && ".join(before) if style == "depends" else before
                elif style != "depends" and draw(st.integers(0, 4)) == 0:
                    one["continueOn"] = {"failed": True}
            made.append({"name": name, "dag": {"tasks": listed}})
    spec: dict[str, Any] = {"entrypoint": draw(st.sampled_from(every)), "templates": made}
    if draw(st.integers(0, 2)) == 0:
        spec["onExit"] = draw(st.sampled_from(every))
    kind = draw(st.sampled_from(["Workflow", "WorkflowTemplate"]))
    metadata = draw(
        st.sampled_from([{"name": "w"}, {"name": "w", "annotations": {}}, {"name": "w", "labels": {QUEUE: "q"}}])
    )
    return Document({"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})


def user_calls(data: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Of every template of the user's: its calls, by group, with what they call."""
    found = {}
    for one in part(data, *_spec(data)).get("templates") or []:
        if not one["name"].startswith(GATE):
            groups = one.get("steps") or [[task] for task in part(one, "dag").get("tasks") or []]
            listed = [[_said(step) for step in group if not step["name"].startswith(GATE)] for group in groups]
            found[one["name"]] = (
                [group for group in listed if group] if "steps" in one else [step for group in listed for step in group]
            )
    return found


def _said(step: Mapping[str, Any]) -> tuple[Any, ...]:
    kept = ("when", "withItems", "withParam", "withSequence", "hooks", "onExit", "continueOn")
    return (
        step["name"],
        str(step.get("template")).removeprefix(f"{GATE}-of-"),
        *(json.dumps(step.get(name)) for name in kept),
    )


@settings(max_examples=150, deadline=None)
@given(workflows(), st.sampled_from(EVERY))
def test_random_workflows_come_back_and_lose_nothing(own: Document, how: tuple[str, str]) -> None:
    unit, by = how
    try:
        found = argo_gate.gate(Library((own,)), own, unit, by)
    except UserError as error:
        assert error.code in ("P863", "P865"), error
        return
    if not is_gated(found):
        assert found == own.data
        return
    assert argo_gate.ungate(Document(found)) == own.data
    assert user_calls(found) == user_calls(own.data)
    if own.data["spec"]["templates"] and not list(rules(own.data)):
        assert list(rules(found)) == []
    assert schema.check(found) == schema.check(own.data)
    if unit == "stage" and by == "suspend":
        derived = static_stages(Library((own,)), own, own.kind == "WorkflowTemplate")
        waiting = json.dumps(found["spec"]).count(f'"template": "{GATE}"')
        assert waiting == sum(stage.asks for stage in derived.queued()) > 0


# Tekton


def run(kind: str = "PipelineRun", **spec: Any) -> Document:
    return Document({"apiVersion": "tekton.dev/v1", "kind": kind, "metadata": {"name": "r"}, "spec": spec})


def task(name: str, cpu: str = "1", **fields: Any) -> dict[str, Any]:
    step = {"name": "s", "image": "x", "computeResources": {"requests": {"cpu": cpu}}}
    return {"name": name, "taskSpec": {"steps": [step]}, **fields}


def waiting(own: Document, *others: Document, unit: str = "stage", by: str = "suspend") -> dict[str, Any]:
    found = tekton_gate.gate(Library((own, *others)), own, unit, by)
    assert schema.check(found) == schema.check(own.data)
    assert tekton_gate.ungate(Document(found)) == own.data
    return found


def test_a_pipeline_run_waits_as_a_whole_with_its_peak() -> None:
    tasks = [
        task("a", "4"),
        task("b", runAfter=["a"], matrix={"params": [{"name": "x", "value": ["1", "2", "3"]}]}),
        task("c", params=[{"name": "p", "value": "$(tasks.a.results.r)"}]),
    ]
    found = waiting(run(pipelineSpec={"tasks": tasks, "finally": [task("z", "99")]}), unit="workflow")
    assert found["spec"]["status"] == "PipelineRunPending" and mark_of(found)["held"] == "penstock"
    assert json.loads(annotations_of(found)[MAX_RESOURCES]) == {"cpu": "4"}
    assert "timeouts" not in found["spec"]


def test_a_pipeline_run_tells_its_task_runs_to_wait() -> None:
    found = waiting(
        run(
            pipelineSpec={
                "tasks": [task("a"), task("b", matrix={"params": [{"name": "x", "value": "$(params.l[*])"}]})],
                "finally": [task("z")],
            }
        )
    )
    assert found["metadata"]["labels"] == {tekton_gate.LABEL: "taskruns"} and found["spec"]["timeouts"] == {
        "pipeline": "0"
    }
    told = json.loads(annotations_of(found)[tekton_gate.TASKS])
    assert [(one["task"], one["n"]) for one in told] == [("a", 1), ("b", None)]
    own = waiting(run(timeouts={"tasks": "1h"}, pipelineSpec={"tasks": [task("a")]}))
    assert own["spec"]["timeouts"] == {"tasks": "1h"}
    pods = waiting(run(pipelineSpec={"tasks": [task("a")]}), by="pods")
    assert pods["metadata"]["labels"] == {tekton_gate.LABEL: "pods"} and "timeouts" not in pods["spec"]


def test_a_task_run_waits() -> None:
    for unit in UNITS:
        found = waiting(run("TaskRun", taskSpec={"steps": [{"image": "x", "computeResources": REQUESTS}]}), unit=unit)
        assert found["spec"]["status"] == "TaskRunPending" and mark_of(found)["held"] == "penstock"


def test_a_run_that_the_user_made_wait_is_the_users() -> None:
    for kind, pending in (("PipelineRun", "PipelineRunPending"), ("TaskRun", "TaskRunPending")):
        own = {"steps": [{"image": "x", "computeResources": REQUESTS}]}
        spec = {"pipelineSpec": {"tasks": [task("a")]}} if kind == "PipelineRun" else {"taskSpec": own}
        found = waiting(run(kind, status=pending, **spec), unit="workflow")
        assert mark_of(found)["held"] == "user" and tekton_gate.ungate(Document(found))["spec"]["status"] == pending
        with pytest.raises(UserError, match="P865"):
            waiting(run(kind, status="Cancelled", **spec), unit="workflow")


def test_what_a_run_says_about_its_pods_counts() -> None:
    spec = {
        "taskRunTemplate": {"podTemplate": {"nodeSelector": {"a": "b"}}},
        "taskRunSpecs": [
            {
                "pipelineTaskName": "a",
                "computeResources": {"requests": {"cpu": "7"}},
                "podTemplate": {"tolerations": [{"key": "k"}]},
            }
        ],
        "pipelineRef": {"name": "p"},
    }
    pipeline = Document(
        {
            "kind": "Pipeline",
            "metadata": {"name": "p"},
            "spec": {"tasks": [task("a"), {"name": "b", "taskRef": {"name": "t"}}]},
        }
    )
    lent = Document(
        {
            "kind": "Task",
            "metadata": {"name": "t"},
            "spec": {"stepTemplate": {"computeResources": {"requests": {"cpu": "2"}}}, "steps": [{}, {}]},
        }
    )
    one, two = tekton_gate.shapes_of(Library((run(**spec), pipeline, lent)), run(**spec))
    assert (one.resources, one.tolerations, one.node_selector) == ({"cpu": 7000}, ({"key": "k"},), {"a": "b"})
    assert (two.resources, two.node_selector) == ({"cpu": 4000}, {"a": "b"})


def test_pipelines_in_pipelines_end_even_in_a_circle() -> None:
    around = Document(
        {
            "kind": "Pipeline",
            "metadata": {"name": "p"},
            "spec": {
                "tasks": [
                    task("a"),
                    {"name": "b", "pipelineRef": {"name": "p"}},
                    {"name": "c", "pipelineRef": {"name": "p"}},
                ]
            },
        }
    )
    own = run(pipelineRef={"name": "p"})
    waiting(own, around)
    with pytest.raises(UserError, match="P863"):
        waiting(own, around, unit="workflow")
    fan = [
        Document(
            {
                "kind": "Pipeline",
                "metadata": {"name": f"p{at}"},
                "spec": {"tasks": [{"name": x, "pipelineRef": {"name": f"p{at + 1}"}} for x in "xyz"]},
            }
        )
        for at in range(15)
    ]
    with pytest.raises(UserError, match="P864"):
        waiting(
            run(pipelineRef={"name": "p0"}),
            *fan,
            Document({"kind": "Pipeline", "metadata": {"name": "p15"}, "spec": {"tasks": [task("a")]}}),
        )


def test_what_a_resolver_fetches_must_be_declared() -> None:
    own = run(pipelineRef={"resolver": "git", "params": []})
    with pytest.raises(UserError, match="P863"):
        waiting(own, unit="workflow")
    for name, text in ((MAX_RESOURCES, '{"cpu": "1"}'), (f"{tekton_gate.REQUESTS}cpu", "1")):
        found = waiting(Document({**own.data, "metadata": {"name": "r", "annotations": {name: text}}}), unit="workflow")
        assert annotations_of(found)[name] == text
    assert json.loads(annotations_of(waiting(own))[tekton_gate.TASKS])[0]["open"] == ["Pipeline by the resolver git"]


# Whole files


def test_a_file_is_gated_document_by_document() -> None:
    lib = document(steps("go", [call("x")]), leaf(), kind="WorkflowTemplate", name="lib")
    own = document(steps("main", [{"name": "a", "templateRef": {"name": "lib", "template": "go"}}]))
    config = Document({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    written = gate_documents(Library((own, config, lib)))
    assert [is_gated(one) for one in written.documents] == [True, False, True] and written.documents[1] == config.data
    back = ungate_documents(Library(tuple(map(Document, written.documents))))
    assert back.documents == [own.data, config.data, lib.data] and len(back.report.entries) == 2
    whole = gate_documents(Library((own, config, lib)), unit="workflow")
    assert [is_gated(one) for one in whole.documents] == [True, False, False]
    assert any("does not run by itself" in entry.message for entry in whole.report.of("kept"))


@pytest.mark.parametrize("kind, api", [("Job", "batch/v1"), ("JobSet", "jobset.x-k8s.io/v1alpha2")])
def test_jobs_have_a_field_for_it(kind: str, api: str) -> None:
    pod = {"containers": [{"name": "c", "resources": REQUESTS}], "schedulingGates": [{"name": "mine"}]}
    job = {"template": {"spec": pod}}
    spec: dict[str, Any] = job if kind == "Job" else {"replicatedJobs": [{"name": "a", "template": {"spec": job}}]}
    own = Document({"apiVersion": api, "kind": kind, "metadata": {"name": "j"}, "spec": spec})
    (found,) = gate_documents(Library((own,))).documents
    assert found["spec"]["suspend"] is True and mark_of(found)["held"] == "penstock"
    assert ungate_documents(Library((Document(found),))).documents == [own.data]
    held = Document({**own.data, "spec": {**spec, "suspend": True}})
    (found,) = gate_documents(Library((held,))).documents
    assert mark_of(found)["held"] == "user" and ungate_documents(Library((Document(found),))).documents == [held.data]
    (found,) = gate_documents(Library((own,)), by="pods").documents
    assert f'"schedulingGates": [{{"name": "mine"}}, {{"name": "{POD_GATE}"}}]' in json.dumps(found)
    assert ungate_documents(Library((Document(found),))).documents == [own.data]


def test_a_file_with_nothing_to_gate_or_to_take_back() -> None:
    config = Library((Document({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),))
    for act, code in ((gate_documents, "P868"), (ungate_documents, "P866")):
        for one in (config, Library(())):
            with pytest.raises(UserError, match=code):
                act(one)
    for words in ({"unit": "x"}, {"by": "x"}):
        with pytest.raises(UserError, match="P869"):
            gate_documents(config, **words)


def test_all_that_stands_in_the_way_is_told_at_once() -> None:
    first, second = document(leaf("penstock-gate")), document(dag("main", call("1a")), leaf())
    with pytest.raises(UserError) as error:
        gate_documents(Library((first, second)))
    assert {problem.code for problem in error.value.problems} == {"P860", "P865"}


def test_entries_and_refusals_have_lines() -> None:
    text = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n  templates:\n  - name: main\n    steps:\n    - - {name: a, template: l}\n  - name: l\n    container: {image: x, resources: {requests: {cpu: 1}}}\n"
    written = gate_documents(library([("w.yaml", text)]))
    (entry,) = [one for one in written.report.entries if "waits at" in one.message]
    assert entry.source is not None and (entry.source.file, entry.source.line) == ("w.yaml", 9)
    with pytest.raises(UserError) as error:
        gate_documents(library([("w.yaml", text.replace("template: l}", "template: gone}"))]))
    assert error.value.problems[0].source is not None and error.value.problems[0].source.line == 9


# The examples


@needs_corpus
@pytest.mark.parametrize("path", files("argo", "tekton", "jobset"), ids=label)
def test_every_example_is_gated_and_comes_back(path: Path) -> None:
    given = library([(str(path), path.read_text())])
    runs = [one for one in given.documents if one.kind in (*KINDS, *tekton_gate.KINDS, "JobSet", "Job")]
    for unit, by in EVERY:
        try:
            written = gate_documents(given, unit, by)
        except UserError as error:
            assert error.code in ("P862", "P863", "P868"), error
            assert error.code != "P868" or not runs or unit == "workflow"
            continue
        for found, one in zip(written.documents, given.documents, strict=True):
            assert schema.check(found) == schema.check(one.data)
            if one.kind in KINDS and is_gated(found):
                assert list(rules(found)) == []
                mine = user_calls(one.data)
                assert {
                    name: calls for name, calls in user_calls(found).items() if name in mine
                } == mine or "templateRef" in path.read_text()
        if not any(map(is_gated, written.documents)):
            assert written.documents == [one.data for one in given.documents]
            continue
        back = ungate_documents(Library(tuple(map(Document, written.documents))))
        assert back.documents == [one.data for one in given.documents]


@needs_corpus
def test_every_argo_example_is_gated_with_all_of_them_at_hand() -> None:
    whole = library((str(path), path.read_text()) for path in files("argo"))
    for one in whole.documents:
        if one.kind in KINDS:
            found = argo_gate.gate(whole, one)
            if not is_gated(found):
                assert found == one.data and not static_stages(whole, one, one.kind.endswith("Template")).asks
                continue
            assert schema.check(found) == [] and list(rules(found)) == [], one.file
            assert argo_gate.ungate(Document(found)) == one.data
            queued = static_stages(whole, one, one.kind.endswith("Template")).queued()
            assert json.dumps(found["spec"]).count(f'"template": "{GATE}"') == sum(stage.asks for stage in queued), (
                one.file
            )


@needs_corpus
def test_examples_with_anything_wrong_in_them_are_told_of_and_never_crash() -> None:
    chance = random.Random(5)
    given = [library([(str(path), path.read_text())]) for path in files("argo", "tekton", "jobset")]
    junk = [None, 0, True, "", "x", "{{", "{{item}}", [], {}, [[]], [{}], {"a": 1}, 3.5, GATE, {1: 2}, "1a", '{"a"']
    for _ in range(600):
        made = [copy.deepcopy(dict(one.data)) for one in chance.choice(given).documents]
        for _ in range(chance.choice([1, 2, 4])):
            _spoil(chance.choice(made), junk, chance)
        odd = Library(tuple(map(Document, made)))
        try:
            written = gate_documents(odd, *chance.choice(EVERY))
            assert ungate_documents(Library(tuple(map(Document, written.documents)))).documents == made
        except UserError as error:
            assert error.code.startswith("P86")


def _spoil(here: Any, junk: list[Any], chance: random.Random) -> None:
    """Goes down a random way, and puts something in the place where it ends."""
    while isinstance(here, dict | list) and here:
        at = chance.choice(list(here) if isinstance(here, dict) else range(len(here)))
        if not isinstance(here[at], dict | list) or not here[at] or chance.random() < 0.15:
            here[at] = copy.deepcopy(chance.choice(junk))
            return
        here = here[at]


def test_the_mark_is_for_controllers() -> None:
    found = gated(document(steps("main", [call("a")]), leaf()))
    assert json.loads(annotations_of(found)[MARK]) == {"unit": "stage", "by": "suspend"}
