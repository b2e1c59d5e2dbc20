"""Stages of Argo documents: as they are written, as they run, what they ask for, and what the whole holds at most."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats.argo.demand import demand_of
from penstock.formats.argo.known import split_tags
from penstock.formats.argo.language.depends import needs_of
from penstock.formats.argo.pods import size_of
from penstock.formats.argo.scope import KINDS, Resolved, Unresolved, is_pod, merge, root_of, scope_of, type_of
from penstock.formats.argo.stages import RunStage, StaticStages, mentions_item, run_stage_of, static_stages
from penstock.formats.documents import Document, Library, library
from penstock.formats.gates.peak import peaks
from tests.formats.corpus import files, needs_corpus

LEAF: dict[str, Any] = {"container": {"image": "busybox"}}


def document(*templates: dict[str, Any], kind: str = "Workflow", name: str = "w", **spec: Any) -> Document:
    spec = {"templates": list(templates), **({"entrypoint": templates[0]["name"]} if templates else {}), **spec}
    return Document({"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def leaf(name: str = "leaf", **fields: Any) -> dict[str, Any]:
    return {"name": name, **(LEAF if type_of(fields) == "" else {}), **fields}


def asking(name: str, cpu: str, **fields: Any) -> dict[str, Any]:
    return leaf(name, container={"image": "busybox", "resources": {"requests": {"cpu": cpu}}}, **fields)


def call(name: str, template: str = "leaf", **fields: Any) -> dict[str, Any]:
    return {"name": name, "template": template, **fields}


def steps(name: str, *groups: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"name": name, "steps": [list(group) for group in groups], **fields}


def dag(name: str, *tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "dag": {"tasks": list(tasks)}, **fields}


def derived(first: Document, *others: Document) -> StaticStages:
    return static_stages(Library((first, *others)), first)


def names(found: StaticStages) -> list[str]:
    return [stage.name for stage in found.stages]


# Static stages


def test_a_group_is_a_stage_with_all_its_leaves() -> None:
    found = derived(document(steps("main", [call("a"), call("b")], [call("c")]), leaf()))
    assert names(found) == ["main[0]", "main[1]"]
    assert [one.name for one in found.stages[0].calls] == ["a", "b"]
    assert found.stages[0].size == 2 and found.stages[0].kind == "group"


def test_a_task_is_a_stage_and_a_leaf_entrypoint_is_one() -> None:
    assert names(derived(document(dag("main", call("a"), call("b", dependencies=["a"])), leaf()))) == [
        "main.a",
        "main.b",
    ]
    found = derived(document(leaf()))
    assert names(found) == ["<root>"] and found.stages[0].kind == "root"


def test_what_runs_in_no_pod_forms_no_stage() -> None:
    web, wait, plugin = leaf("web", http={"url": "x"}), leaf("wait", suspend={}), leaf("plug", plugin={"hello": {}})
    main = steps("main", [call("a", "web")], [call("b", "wait"), call("c", "plug")], [call("d"), call("e", "wait")])
    found = derived(document(main, web, wait, plugin, leaf()))
    assert names(found) == ["main[2]"] and [one.name for one in found.stages[0].calls] == ["d"]
    assert names(derived(document(web))) == []


def test_nested_templates_add_their_own_and_make_a_group_mixed() -> None:
    found = derived(document(steps("main", [call("a"), call("b", "inner")]), steps("inner", [call("c")]), leaf()))
    assert [(stage.name, stage.mixed) for stage in found.stages] == [("main[0]", True), ("inner[0]", False)]


def test_each_template_is_seen_once_and_recursion_ends() -> None:
    main = steps("main", [call("a")], [call("again", "main", when="x == y"), call("b", "other")])
    found = derived(document(main, steps("other", [call("c")]), leaf()))
    assert names(found) == ["main[0]", "other[0]"]
    assert found.recursive == {"main"} and [stage.recursive for stage in found.stages] == [True, False]


def test_a_cycle_is_found_whatever_leads_into_it() -> None:
    a = steps("a", [call("1", "b")], [call("2", "c")])
    found = derived(
        document(
            a,
            steps("b", [call("3", "d")]),
            steps("c", [call("4", "b")]),
            steps("d", [call("5", "c"), call("l")]),
            leaf(),
        )
    )
    assert found.recursive == {"b", "c", "d"}


def test_inline_templates_are_named_by_their_place() -> None:
    inner = {"name": "a", "inline": {"steps": [[{"name": "x", "inline": dict(LEAF)}]]}}
    found = derived(document(steps("main", [inner, {"name": "b", "inline": dict(LEAF)}])))
    assert names(found) == ["main[0]", "inline:main[0].a[0]"]
    assert found.stages[0].calls[0].template == "inline:main[0].b"
    assert found.stages[0].calls[0].resolved.path == "spec.templates[0].steps[0][1].inline"


def test_a_plain_name_counts_in_the_document_where_it_stands() -> None:
    lib = document(steps("go", [call("x", "leaf")]), asking("leaf", "3"), kind="WorkflowTemplate", name="lib")
    own = document(
        steps("main", [{"name": "a", "templateRef": {"name": "lib", "template": "go"}}], [call("b")]),
        asking("leaf", "1"),
    )
    found = derived(own, lib)
    assert names(found) == ["main[1]", "wftmpl:lib/go[0]"]
    assert [dict(stage.calls[0].shape.resources) for stage in found.stages] == [{"cpu": 1000}, {"cpu": 3000}]


def test_a_namespace_and_the_cluster_are_part_of_the_name() -> None:
    one = document(leaf("x"), kind="WorkflowTemplate", name="lib")
    spaced = Document({**one.data, "metadata": {"name": "lib", "namespace": "team"}})
    cluster = document(leaf("x"), kind="ClusterWorkflowTemplate", name="lib")
    assert scope_of(Library((spaced,)), spaced).qualify("x") == "wftmpl:team/lib/x"
    assert scope_of(Library((cluster,)), cluster).qualify("x") == "cwftmpl:lib/x"


def test_a_call_that_cannot_be_followed_is_told_with_its_reason() -> None:
    refs = [
        {"name": "lib", "template": "{{item}}"},
        {"name": "gone", "template": "x"},
        {"name": "lib", "template": "no"},
    ]
    calls = [{"name": f"s{at}", "templateRef": ref} for at, ref in enumerate(refs)]
    lib = document(leaf("x"), kind="WorkflowTemplate", name="lib")
    found = derived(document(steps("main", [*calls, call("s3", "nowhere")]), leaf()), lib)
    assert [lost.unresolved.reason for lost in found.unresolved] == ["templated", "absent", "missing", "missing"]
    assert found.unresolved[0].path == "spec.templates[0].steps[0][0]" and not found.stages


def test_exit_handlers_and_hooks_are_exempt() -> None:
    hooked = call("a", hooks={"exit": {"template": "bye"}, "seen": {"template": "look", "expression": "true"}})
    main = document(
        steps("main", [hooked]),
        leaf(),
        leaf("bye"),
        leaf("look"),
        steps("clean", [call("x"), call("y", "main2")]),
        steps("main2", [call("z")]),
        onExit="clean",
    )
    found = derived(main)
    assert [stage.name for stage in found.queued()] == ["main[0]"]
    assert {stage.name for stage in found.stages if stage.exempt} == {"bye@exit", "look@hook", "clean[0]", "main2[0]"}


def test_a_template_of_both_ways_is_told_once_and_known_in_both() -> None:
    found = derived(document(steps("main", [call("a", "both")]), steps("both", [call("b")]), leaf(), onExit="both"))
    assert names(found) == ["both[0]"] and not found.stages[0].exempt
    assert "both" in found.main and "both" in found.exempt


def test_workflow_template_ref_merges_the_whole_spec() -> None:
    lib = document(
        steps("main", [call("a")]),
        leaf(),
        kind="WorkflowTemplate",
        name="lib",
        suspend=True,
        nodeSelector={"x": "1", "y": "2"},
    )
    own = document(workflowTemplateRef={"name": "lib"}, nodeSelector={"x": "9"})
    root = root_of(Library((own, lib)), own)
    assert root.spec["nodeSelector"] == {"x": "9", "y": "2"} and "suspend" not in root.spec
    assert names(derived(own, lib)) == ["main[0]"]
    lost = derived(own)
    assert lost.unresolved[0].unresolved.reason == "absent" and lost.unresolved[0].path == "spec.workflowTemplateRef"


def test_workflow_template_refs_in_a_circle_end() -> None:
    one = document(kind="WorkflowTemplate", name="a", workflowTemplateRef={"name": "b"})
    two = document(kind="WorkflowTemplate", name="b", workflowTemplateRef={"name": "a"})
    assert isinstance(root_of(Library((one, two)), one).unresolved, Unresolved)


def test_a_library_has_the_stages_of_all_it_holds_but_its_hooks() -> None:
    handler = call("a", hooks={"exit": {"template": "bye"}})
    lib = document(
        steps("one", [handler]),
        dag("two", call("t")),
        steps("bye", [call("b", "deep")]),
        steps("deep", [call("c")]),
        leaf(),
        kind="WorkflowTemplate",
        entrypoint=None,
    )
    found = derived(lib)
    assert {stage.name for stage in found.queued()} == {"one[0]", "two.t"}
    assert {stage.name for stage in found.stages if stage.exempt} == {"deep[0]"}


def test_a_cron_workflow_is_what_it_starts() -> None:
    spec = {"schedules": ["* * * * *"], "workflowSpec": {"entrypoint": "leaf", "templates": [leaf()]}}
    cron = Document(
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "CronWorkflow", "metadata": {"name": "c"}, "spec": spec}
    )
    (stage,) = derived(cron).stages
    assert stage.path == "spec.workflowSpec.templates[0]"


def test_a_very_deep_chain_does_not_exhaust_the_stack() -> None:
    chain = [steps(f"t{at}", [call("a", f"t{at + 1}"), call("l")]) for at in range(3000)]
    found = derived(document(*chain, leaf("t3000"), leaf()))
    assert len(found.stages) == 3000 and found.stages[2999].calls[0].name in ("a", "l")
    assert (
        demand_of(
            Library((document(*chain, leaf("t3000"), leaf()),)), document(*chain, leaf("t3000"), leaf())
        ).resources
        == {}
    )


@pytest.mark.parametrize(
    "loop, size",
    [
        ({}, 1),
        ({"withItems": [1, 2, 3]}, 3),
        ({"withItems": []}, 0),
        ({"withParam": "{{inputs.parameters.x}}"}, None),
        ({"withParam": '["a", "b"]'}, 2),
        ({"withParam": "{"}, None),
        ({"withSequence": {"count": "5"}}, 5),
        ({"withSequence": {"count": 5}}, 5),
        ({"withSequence": {"start": "5", "end": "0"}}, 6),
        ({"withSequence": {"start": "100", "end": "105"}}, 6),
        ({"withSequence": {"end": "{{x}}"}}, None),
        ({"withSequence": {"count": "{{workflow.parameters.n}}"}}, None),
    ],
)
def test_how_often_a_call_runs(loop: dict[str, Any], size: int | None) -> None:
    assert size_of(loop) == size


# Shapes


def shape(template: dict[str, Any], **spec: Any) -> Any:
    return derived(document(template, **spec)).stages[0].calls[0].shape


def test_a_pod_is_all_its_containers_or_its_largest_beginning() -> None:
    one = {"resources": {"requests": {"cpu": "1"}}}
    template = asking(
        "t", "2", sidecars=[{"name": "s", **one}], initContainers=[{"name": "i", **one}, {"name": "j", **one}]
    )
    assert shape(template).resources == {"cpu": 3000}
    big = {"name": "i", "resources": {"limits": {"cpu": "9"}}}
    assert shape(asking("t", "2", initContainers=[big])).resources == {"cpu": 9000}
    members = [{"name": "a", **one}, {"name": "b", **one, "dependencies": ["a"]}]
    assert shape({"name": "t", "containerSet": {"containers": members}}).resources == {"cpu": 2000}


def test_patches_and_pod_resources_count_and_given_values_are_filled_in() -> None:
    patch = 'containers: [{name: main, resources: {requests: {cpu: "{{workflow.parameters.cpu}}"}}}]'
    given = {"parameters": [{"name": "cpu", "value": "500m"}]}
    assert shape(leaf(podSpecPatch=patch), arguments=given).resources == {"cpu": 500}
    open_one = shape(leaf(podSpecPatch=patch))
    assert open_one.resources == {} and open_one.open == ("cpu",)
    assert shape(leaf(), podSpecPatch="{{inputs.parameters.all}}").open == ("podSpecPatch",)
    assert shape(asking("t", "2", podResources={"requests": {"cpu": "7"}})).resources == {"cpu": 7000}


def test_arguments_of_the_call_reach_the_shape() -> None:
    inner = asking("leaf", "{{inputs.parameters.cpu}}", inputs={"parameters": [{"name": "cpu", "default": "1"}]})
    main = steps("main", [call("a"), call("b", arguments={"parameters": [{"name": "cpu", "value": "4"}]})])
    (stage,) = derived(document(main, inner)).stages
    assert [dict(one.shape.resources) for one in stage.calls] == [{"cpu": 1000}, {"cpu": 4000}]


def test_defaults_go_under_every_template() -> None:
    defaults = {
        "container": {"resources": {"requests": {"cpu": "2"}}},
        "nodeSelector": {"a": "b"},
        "script": {"image": "no"},
    }
    found = shape(leaf(), templateDefaults=defaults)
    assert found.resources == {"cpu": 2000} and found.node_selector == {"a": "b"}


@pytest.mark.parametrize(
    "manifest, pods, cpu",
    [
        ("kind: Pod\nspec: {containers: [{resources: {requests: {cpu: 1}}}]}", 1, 1000),
        (
            "kind: Job\nspec: {parallelism: 3, completions: 2, template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}",
            2,
            2000,
        ),
        (
            (
                "kind: PyTorchJob\nspec: {pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{resources: {limits: {cpu: 2}}}]}}},"
                " Worker: {replicas: 3, template: {spec: {containers: [{resources: {limits: {cpu: 1}}}]}}}}}"
            ),
            4,
            5000,
        ),
        (
            (
                "kind: JobSet\nspec: {replicatedJobs: [{replicas: 2, template: {spec: {parallelism: 2, template: {spec: {containers:"
                " [{resources: {requests: {cpu: 1}}}]}}}}}]}"
            ),
            4,
            4000,
        ),
        ("kind: Workflow\nspec: {templates: [{container: {resources: {requests: {cpu: 1}}}}]}", 1, 0),
        # It names a queue, and so waits there.
        (
            (
                "kind: Job\nmetadata: {labels: {kueue.x-k8s.io/queue-name: q}}\n"
                "spec: {template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}"
            ),
            1,
            0,
        ),
    ],
)
def test_a_resource_template_asks_for_what_it_makes(manifest: str, pods: int, cpu: int) -> None:
    found = shape(leaf(resource={"action": "create", "manifest": manifest}))
    assert (found.pods, found.resources.get("cpu", 0)) == (pods, cpu)
    assert shape(leaf(resource={"action": "get", "manifest": manifest})).resources == {}


def test_a_manifest_with_tags_in_odd_places_is_read_as_far_as_it_goes() -> None:
    text = "kind: Job\nmetadata: {name: {{inputs.parameters.n}}}\nspec:\n  parallelism: {{x}}\n  template: {spec: {containers: []}}"
    assert shape(leaf(resource={"action": "create", "manifest": text})).open == ("replicas",)
    assert shape(leaf(resource={"action": "create", "manifest": "{{all}}"})).open == ("manifest",)


def test_odd_text_is_looked_through_once() -> None:
    for odd in ("{{" * 100_000, "{{x" * 100_000, "}}" * 100_000, "{{=item" * 50_000):
        assert not mentions_item(odd)
        assert "".join(piece for piece, _ in split_tags(odd)) == odd
    assert mentions_item("a }} {{ b {{=item.x}}") and not mentions_item("item {{x}} item")


# Run stages


@pytest.mark.parametrize(
    "node, stage, exempt",
    [
        ("wf", "wf", False),
        ("wf(0)", "wf", False),
        ("wf[0].a", "wf[0]", False),
        ("wf[0].a(1:x)", "wf[0]", False),
        ("wf[0].a(1:x)(2)", "wf[0]", False),
        ("wf.t", "wf.t", False),
        ("wf.t(3:k:v,q:w)(0)", "wf.t", False),
        ("wf[1].inner(0:depth-1-1)[0].leaf(1:y)", "wf[1].inner(0:depth-1-1)[0]", False),
        ("wf.a.b", "wf.a.b", False),
        ("wf.a[2].b", "wf.a[2]", False),
        ("wf[0].d.t", "wf[0].d.t", False),
        ("wf.onExit", "wf.onExit", True),
        ("wf.onExit(0)", "wf.onExit", True),
        ("wf[0].a.onExit", "wf[0].a.onExit", True),
        ("wf.onExit[0].report", "wf.onExit[0]", True),
        ("wf[0].a(0:x).hooks.running", "wf[0].a(0:x).hooks.running", True),
        ("wf.hooks.exit[0].a(0:x)", "wf.hooks.exit[0]", True),
        # What describes an item may be anything but parentheses.
        ("wf[0].a(0:x.onExit)", "wf[0]", False),
        ("wf.t(0:[1].b)", "wf.t", False),
        ("wf[0].in(0:.hooks.x[3].y)[1].leaf", "wf[0].in(0:.hooks.x[3].y)[1]", False),
        ("wf.in(0:a.onExit.b).t(0:\n[9].q\n)", "wf.in(0:a.onExit.b).t", False),
        ('wf[0].a(0:{"x":"[0].y"})', "wf[0]", False),
    ],
)
def test_the_run_stage_of_a_node(node: str, stage: str, exempt: bool) -> None:
    assert run_stage_of(node, "wf") == RunStage(stage, exempt)


def test_a_workflow_with_dots_in_its_name() -> None:
    assert run_stage_of("a.hooks.b[0].x", "a.hooks.b") == RunStage("a.hooks.b[0]")
    assert run_stage_of("a.hooks.b.t", "a.hooks.b") == RunStage("a.hooks.b.t")


NAME = st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True).filter(lambda name: name not in ("hooks", "onExit"))
ITEM = st.text(alphabet=st.characters(blacklist_characters="()", blacklist_categories=("Cs",)), max_size=12)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[str, str, bool]:
    """A node name built as Argo builds it, its stage, and whether it is exempt."""
    here, exempt = "my.wf", False
    if draw(st.booleans()):
        here, exempt = here + draw(st.sampled_from([".onExit", ".hooks.done"])), True
    for last in [False] * draw(st.integers(0, 3)) + [True]:
        group = draw(st.booleans())
        around = f"{here}[{draw(st.integers(0, 12))}]" if group else here
        here = f"{around}.{draw(NAME)}"
        stage = around if group else here
        if draw(st.booleans()):
            here += f"({draw(st.integers(0, 99))}:{draw(ITEM)})"
        if draw(st.booleans()):
            here += f"({draw(st.integers(0, 9))})"
        if last:
            return here, stage, exempt
    raise AssertionError


@given(nodes())
def test_names_built_by_the_grammar_are_read_back(built: tuple[str, str, bool]) -> None:
    node, stage, exempt = built
    assert run_stage_of(node, "my.wf") == RunStage(stage, exempt)


@given(st.text(), st.text(max_size=5))
def test_any_text_has_some_stage(node: str, workflow: str) -> None:
    assert isinstance(run_stage_of(node, workflow), RunStage)


# The whole


def brute(weights: list[int], edges: list[tuple[int, int]]) -> int:
    size = len(weights)
    before = {(a, b) for a, b in edges}
    for middle, first, then in itertools.product(range(size), repeat=3):
        if (first, middle) in before and (middle, then) in before:
            before.add((first, then))
    return max(
        (
            sum(weights[one] for one in chosen)
            for count in range(size + 1)
            for chosen in itertools.combinations(range(size), count)
            if not any((a, b) in before for a in chosen for b in chosen)
        ),
        default=0,
    )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    weights = draw(st.lists(st.integers(0, 9), min_size=1, max_size=7))
    pairs = list(itertools.combinations(range(len(weights)), 2))
    return weights, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_the_heaviest_set_is_what_trying_all_finds(graph: tuple[list[int], list[tuple[int, int]]]) -> None:
    weights, edges = graph
    assert peaks([{"cpu": weight} for weight in weights], edges).get("cpu", 0) == brute(weights, edges)


def test_each_resource_has_its_own_peak() -> None:
    assert peaks([{"cpu": 2}, {"gpu": 1}, {"cpu": 1, "gpu": 1}], [(0, 1)]) == {"cpu": 3, "gpu": 2}


def demand(*templates: dict[str, Any], **spec: Any) -> Any:
    own = document(*templates, **spec)
    return demand_of(Library((own,)), own)


def test_groups_follow_one_another_and_calls_add_up() -> None:
    main = steps("main", [call("a", "one", withItems=[1, 2, 3])], [call("b", "two"), call("c", "one")])
    assert demand(main, asking("one", "1"), asking("two", "4")).resources == {"cpu": 5000}


def test_a_dag_holds_its_heaviest_unordered_tasks() -> None:
    tasks = [
        call("a", "big"),
        call("b", "one", depends="a.Succeeded || a.Failed"),
        call("c", "one", depends="a"),
        call("d", "big", depends="b && c"),
    ]
    assert demand(dag("main", *tasks), asking("one", "1"), asking("big", "3")).resources == {"cpu": 3000}
    assert demand(dag("main", *tasks[:3]), asking("one", "1"), asking("big", "1")).resources == {"cpu": 2000}


def test_a_daemon_runs_beside_what_comes_after_it() -> None:
    server = asking("server", "5", daemon=True)
    line = steps("main", [call("s", "server")], [call("a", "one")], [call("b", "one")])
    assert demand(line, server, asking("one", "1")).resources == {"cpu": 6000}
    graph = dag(
        "main",
        call("p", "one"),
        call("s", "server", depends="p"),
        call("a", "one", depends="s"),
        call("b", "one", depends="a"),
    )
    assert demand(graph, server, asking("one", "1")).resources == {"cpu": 6000}


def test_nested_demand_is_multiplied_by_its_loop() -> None:
    main = dag("main", call("a", "inner", withSequence={"count": "3"}))
    assert demand(main, steps("inner", [call("x", "one"), call("y", "one")]), asking("one", "1")).resources == {
        "cpu": 6000
    }


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": [{"name": name, "value": value} for name, value in values.items()]}


def inputs(*names: str, **defaults: str) -> dict[str, Any]:
    declared = [{"name": name} for name in names]
    return {"parameters": [*declared, *({"name": name, "default": text} for name, text in defaults.items())]}


def test_arguments_of_the_workflow_reach_a_loop_through_two_templates() -> None:
    outer = steps(
        "outer", [call("a", "inner", arguments=parameters(list="{{inputs.parameters.all}}"))], inputs=inputs("all")
    )
    inner = steps("inner", [call("b", "one", withParam="{{inputs.parameters.list}}")], inputs=inputs("list"))
    found = demand(outer, inner, asking("one", "1"), arguments=parameters(all='["x", "y", "z"]'))
    assert found.resources == {"cpu": 3000} and found.open == ()


def test_the_same_template_with_other_inputs_has_another_peak() -> None:
    sized = {"withSequence": {"count": "{{inputs.parameters.n}}"}}
    inner = steps("inner", [call("b", "one", **sized)], inputs=inputs(n="2"))
    main = steps("main", [call("x", "inner")], [call("y", "inner", arguments=parameters(n="5"))])
    assert demand(main, inner, asking("one", "1")).resources == {"cpu": 5000}


def test_an_argument_reads_the_inputs_of_the_caller() -> None:
    inner = asking("leaf", "{{inputs.parameters.b}}", inputs=inputs("a", "b"))
    main = steps("main", [call("x", arguments=parameters(a="1", b="{{inputs.parameters.a}}"))], inputs=inputs(a="7"))
    assert demand(main, inner).resources == {"cpu": 7000}
    (stage,) = derived(document(main, inner)).stages
    assert stage.calls[0].shape.open == ("cpu",)


def test_a_target_leaves_out_what_it_does_not_need() -> None:
    tasks = [call("a", "one"), call("b", "one", depends="a"), call("c", "one", depends="a"), call("d", "one")]
    main = dag("main", *tasks)
    main["dag"]["target"] = "{{workflow.parameters.to}}"
    assert demand(main, asking("one", "1"), arguments=parameters(to="b")).resources == {"cpu": 1000}
    assert demand(main, asking("one", "1")).resources == {"cpu": 3000}
    assert len(derived(document(main, leaf("one"), arguments=parameters(to="b"))).stages) == 4


def test_inputs_that_grow_with_each_call_of_a_recursive_template_end() -> None:
    again = call("b", "main", when="{{x}} == y", arguments=parameters(n="{{inputs.parameters.n}}1"))
    found = demand(steps("main", [call("a", "one")], [again], inputs=inputs(n="1")), asking("one", "1"))
    assert found.resources == {"cpu": 1000} and "calls itself" in found.open[0].message


def test_no_bound_is_told_with_its_place() -> None:
    loop = demand(steps("main", [call("a", "one", withParam="{{workflow.parameters.x}}")]), asking("one", "1"))
    assert [one.path for one in loop.open] == ["spec.templates[0].steps[0][0]"]
    again = demand(steps("main", [call("a", "one")], [call("b", "main", when="{{x}} == y")]), asking("one", "1"))
    assert "calls itself" in again.open[0].message
    amount = demand(asking("one", "{{workflow.parameters.cpu}}"))
    assert "cpu of one" in amount.open[0].message


def test_what_asks_for_nothing_is_bounded_however_often_it_runs() -> None:
    main = steps("main", [call("a", withParam="{{workflow.parameters.x}}")], [call("b", "main", when="{{x}} == y")])
    assert demand(main, leaf()).open == ()


def test_only_what_all_pods_share_is_declared() -> None:
    tolerations = [{"key": "gpu"}, {"key": "x"}]
    main = steps("main", [call("a", "one"), call("b", "two")])
    one = asking("one", "1", nodeSelector={"pool": "a", "zone": "z"}, tolerations=tolerations)
    two = asking("two", "1", nodeSelector={"pool": "b", "zone": "z"}, tolerations=tolerations[:1])
    found = demand(main, one, two)
    assert found.node_selector == {"zone": "z"} and found.tolerations == ({"key": "gpu"},) and not found.alike


def test_names_in_depends() -> None:
    assert needs_of({"depends": "(a-1.Succeeded || b) && !c.Failed"}) == ["a-1", "b", "c"]
    assert needs_of({"dependencies": ["x"], "depends": None}) == ["x"]


def test_a_merge_is_by_name_and_null_takes_away() -> None:
    below = {
        "containers": [{"name": "main", "image": "a", "env": [{"name": "X", "value": "1"}]}],
        "a": 1,
        "args": [1, 2],
    }
    own = {
        "containers": [{"name": "main", "env": [{"name": "Y", "value": "2"}]}, {"name": "other"}],
        "a": None,
        "args": [3],
    }
    assert merge(below, own) == {
        "containers": [
            {"name": "main", "image": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "other"},
        ],
        "args": [3],
    }


# The examples


@needs_corpus
def test_every_example_has_stages_and_each_a_name_of_its_own() -> None:
    whole = library((str(path), path.read_text()) for path in files("argo"))
    seen = 0
    for one in whole.documents:
        if one.kind not in KINDS:
            continue
        seen += 1
        for everything in (False, True):
            found = static_stages(whole, one, everything)
            assert len(set(names(found))) == len(found.stages), one.file
            assert all(stage.calls for stage in found.stages)
            assert all(isinstance(stage.calls[0].resolved, Resolved) for stage in found.stages)
            assert all(stage.source.line > 0 for stage in found.stages)
        if root_of(whole, one).entrypoint:
            works = any(is_pod(template.template) for template in found.main.values())
            assert works == bool(found.queued()), one.file
        if root_of(whole, one).entrypoint and "templateRef" not in str(one.data):
            assert not found.unresolved, one.file
    assert seen > 100


@needs_corpus
def test_the_examples_have_as_many_stages_of_each_kind_as_were_counted_by_hand() -> None:
    whole = library((str(path), path.read_text()) for path in files("argo"))
    roots = [one for one in whole.documents if one.kind in KINDS and root_of(whole, one).entrypoint]
    kinds = Counter(stage.kind for one in roots for stage in static_stages(whole, one).queued())
    assert (len(roots), kinds) == (139, {"root": 48, "group": 127, "task": 96})


@needs_corpus
@pytest.mark.parametrize(
    "file, wanted",
    [
        ("coinflip.yaml", ["coinflip[0]", "coinflip[1]"]),
        ("dag-diamond.yaml", ["diamond.A", "diamond.B", "diamond.C", "diamond.D"]),
        ("hello-world.yaml", ["<root>"]),
        ("http-hello-world.yaml", []),
        ("global-outputs.yaml", ["generate-globals[0]", "consume-globals[0]"]),
        ("steps-inline-workflow.yaml", ["main[0]"]),
        ("dag-nested.yaml", ["nested-diamond.A", "nested-diamond.B", "nested-diamond.C", "nested-diamond.D"]),
        (
            "workflow-template/dag.yaml",
            [
                "diamond.A",
                "diamond.B",
                "diamond.D",
                *(f"wftmpl:workflow-template-inner-dag/inner-diamond.inner-{x}" for x in "ABCD"),
            ],
        ),
    ],
)
def test_stages_of_examples_by_hand(file: str, wanted: list[str]) -> None:
    whole = library((str(path), path.read_text()) for path in files("argo"))
    (one,) = [one for one in whole.documents if one.file.endswith(f"/argo/{file}") and one.kind in KINDS]
    assert [stage.name for stage in static_stages(whole, one).queued()] == wanted
