"""Argo documents as workflows: what each feature becomes, what the Report says, what is refused and how."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import DocumentError, InvalidWorkflow, UserError
from penstock.expressions.evaluate import evaluate
from penstock.expressions.parse import Expr, ExpressionError, show
from penstock.expressions.selector import compile_path, compile_selector
from penstock.expressions.template import Template
from penstock.formats import registry
from penstock.formats.argo.read.policy import seconds_of
from penstock.formats.argo.read.workflow import read_argo
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library, read_text
from penstock.graph.check import errors
from penstock.graph.model import (
    MISSING,
    NORMAL,
    Container,
    Edge,
    Http,
    Nested,
    Outcome,
    Output,
    Pod,
    Resource,
    Script,
    Step,
    Suspend,
    Workflow,
)
from tests.support.speed import within

from . import corpus

ALL = frozenset(Outcome)


def read(text: str, *more: str) -> Read:
    """The first document of the text, with the others at hand. What is read must be good."""
    library = Library(tuple(document for one in (text, *more) for document in read_text(one, "w.yaml")))
    found = read_argo(library, library.documents[0])
    assert errors(found.workflow) == []
    return found


def workflow(templates: str, spec: str = "", entrypoint: str = "main", kind: str = "Workflow", name: str = "w") -> str:
    head = f"apiVersion: argoproj.io/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
    return head + f"  entrypoint: {entrypoint}\n" + _indent(spec, 2) + "  templates:\n" + _indent(templates, 2)


def _indent(text: str, by: int) -> str:
    """Blocks put together, each written at a margin of its own."""
    found = ""
    margin: int | None = None
    for line in text.split("\n"):
        if line.strip():
            own = len(line) - len(line.lstrip())
            margin = own if margin is None else min(margin, own)
            found += " " * by + line[margin:] + "\n"
    return found


ECHO = """
- name: echo
  inputs: {parameters: [{name: x}]}
  container: {image: busybox, command: [echo], args: ["{{inputs.parameters.x}}"]}
"""
FLIP = """
- name: flip
  script: {image: "python:3", command: [python], source: "print('heads')"}
"""


def steps(text: str, spec: str = "", *more: str) -> Workflow:
    return read(workflow(text, spec), *more).workflow


def named(flow: Workflow, name: str) -> Step:
    return next(step for step in (*flow.steps, *flow.on_exit) if step.name == name)


def definition(flow: Workflow, name: str) -> Workflow:
    return next(one for one in flow.definitions if one.name == name)


def value(step: Step, name: str) -> Any:
    found = next(given for given in step.inputs if given.name == name).value
    return found.text if isinstance(found, Expr) else found


def holds(when: Expr, outcome: str) -> bool:
    """A condition over how the step `a` ended."""
    return evaluate(when, {"steps": {"a": {"outcome": outcome}}}) is True


def refused(text: str, *more: str) -> list[tuple[str, int]]:
    """(code, line) of everything that is wrong."""
    with pytest.raises(UserError) as caught:
        read(text, *more)
    assert all(problem.fix and problem.message and problem.source for problem in caught.value.problems)
    return [(one.code, one.source.line) for one in caught.value.problems if one.source]


# -- the graph --------------------------------------------------------------------------------------------------------


def test_an_entrypoint_that_works_itself_is_one_step() -> None:
    flow = steps("- {name: main, container: {image: busybox, command: [echo], args: [hi]}}")
    assert [step.name for step in flow.steps] == ["main"]
    assert flow.steps[0].action == Container(image="busybox", command=("echo",), args=("hi",))
    assert flow.steps[0].group is None and not flow.steps[0].cache.enabled
    assert flow.steps[0].source is not None and flow.steps[0].source.line == 7


def test_groups_of_steps() -> None:
    flow = steps(
        """
        - name: main
          steps:
          - - {name: a, template: echo, arguments: {parameters: [{name: x, value: 1}]}}
            - {name: b, template: echo, continueOn: {failed: true}, arguments: {parameters: [{name: x, value: "2"}]}}
          - - {name: c, template: inner}
          - - {name: d, template: flip}
        - name: inner
          steps: [[{name: e, template: flip}]]
        """
        + ECHO
        + FLIP
    )
    assert [(step.name, step.group) for step in flow.steps] == [
        ("a", "main[0]"),
        ("b", "main[0]"),
        ("c", None),
        ("d", "main[2]"),
    ]
    assert named(flow, "c").action == Nested(name="inner")
    assert set(named(flow, "c").needs) == {Edge("a"), Edge("b", NORMAL | {Outcome.FAILED})}
    assert named(flow, "d").needs == (Edge("c"),)
    assert named(flow, "b").tolerates == {Outcome.FAILED}
    assert definition(flow, "inner").steps[0].group == "inner[0]"
    assert value(named(flow, "a"), "x") == "1"
    assert flow.judged_by == "handled" and not flow.fail_fast


def test_a_dag_with_depends() -> None:
    flow = steps(
        """
        - name: main
          dag:
            failFast: false
            tasks:
            - {name: a, template: flip}
            - {name: b, template: flip, dependencies: [a]}
            - {name: c, template: flip, depends: "a && b.Failed"}
            - {name: d, template: flip, depends: "a.Failed || b.Failed"}
            - {name: e, template: flip, depends: "a.Skipped"}
        """
        + FLIP
    )
    assert flow.judged_by == "leaves" and not flow.fail_fast
    assert named(flow, "b").needs == (Edge("a"),)
    assert set(named(flow, "c").needs) == {Edge("a"), Edge("b", frozenset({Outcome.FAILED}))}
    trigger = named(flow, "d").trigger
    assert trigger is not None and "steps.b.outcome" in trigger.text
    assert set(named(flow, "d").needs) == {Edge("a", ALL), Edge("b", ALL)}
    assert named(flow, "e").needs == (Edge("a", ALL),) and named(flow, "e").trigger is not None


def test_only_what_the_target_needs() -> None:
    found = read(
        workflow(
            """
            - name: main
              dag:
                target: "{{workflow.parameters.t}}"
                tasks:
                - {name: a, template: flip}
                - {name: b, template: flip, depends: a}
                - {name: c, template: flip, depends: a}
            """
            + FLIP,
            "arguments: {parameters: [{name: t, value: b}]}",
        )
    )
    assert [step.name for step in found.workflow.steps] == ["a", "b"]
    assert any(entry.path.endswith("dag.target") for entry in found.report.of("changed"))
    assert found.workflow.fail_fast


def test_templates_count_in_the_document_they_are_called_in() -> None:
    library = workflow(
        "- {name: x, container: {image: theirs}}\n- {name: y, steps: [[{name: z, template: x}]]}",
        kind="WorkflowTemplate",
        name="lib",
    )
    flow = steps(
        """
        - name: main
          steps: [[{name: a, templateRef: {name: lib, template: y}}, {name: b, template: x}]]
        - {name: x, container: {image: ours}}
        """,
        "",
        library.replace("  entrypoint: main\n", ""),
    )
    assert named(flow, "a").action == Nested(name="lib-y")
    assert definition(flow, "lib-y").steps[0].action == Container(image="theirs")
    assert named(flow, "b").action == Container(image="ours")


def test_a_workflow_that_is_all_reference() -> None:
    library = workflow(
        "- {name: main, container: {image: a, args: ['{{workflow.parameters.p}}']}}",
        "arguments: {parameters: [{name: p, value: theirs}]}",
        kind="ClusterWorkflowTemplate",
        name="lib",
    )
    head = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: mine-}\nspec:\n"
    found = read(
        head
        + "  workflowTemplateRef: {name: lib, clusterScope: true}\n  arguments: {parameters: [{name: p, value: ours}]}\n",
        library,
    )
    assert found.workflow.name == "mine"
    assert [(param.name, param.default) for param in found.workflow.params] == [("p", "ours")]


def test_recursion_under_a_condition() -> None:
    flow = steps(
        """
        - name: main
          steps:
          - - {name: flip, template: flip}
          - - {name: again, template: main, when: "{{steps.flip.outputs.result}} == tails"}
        """
        + FLIP
    )
    assert named(flow, "again").action == Nested(name="main")
    when = named(flow, "again").when
    assert when is not None and when.text == 'steps.flip.outputs.result == "tails"'
    assert [step.name for step in definition(flow, "main").steps] == ["flip", "again"]


def test_inline_templates_see_what_their_step_sees() -> None:
    flow = steps(
        """
        - name: main
          steps:
          - - name: a
              withItems: [x, y]
              inline: {container: {image: busybox, args: ["{{item}}"]}}
        """
    )
    action = named(flow, "a").action
    assert isinstance(action, Container) and action.args == (Expr.of("item.item"),)


def test_template_defaults_go_under_every_template() -> None:
    flow = steps(
        "- {name: main, container: {image: busybox}}",
        "templateDefaults: {activeDeadlineSeconds: 60, retryStrategy: {limit: 2}, container: {command: [echo]}}",
    )
    assert flow.steps[0].timeout == 60 and flow.steps[0].retry is not None and flow.steps[0].retry.limit == 2
    assert flow.steps[0].action == Container(image="busybox", command=("echo",))


def test_odd_names_are_made_usable() -> None:
    found = read(
        workflow(
            "- {name: main, steps: [[{name: a-, template: flip}, {name: a, template: flip}]]}" + FLIP, name="my.flow"
        )
    )
    assert [step.name for step in found.workflow.steps] == ["a", "a-2"]
    assert found.workflow.name == "my-flow" and len(found.report.of("changed")) == 2 - 1 + 1


# -- values -----------------------------------------------------------------------------------------------------------


def test_values_between_steps() -> None:
    flow = steps(
        """
        - name: main
          inputs: {parameters: [{name: p}, {name: own, value: "{{workflow.namespace}}"}]}
          steps:
          - - {name: gen, template: gen}
          - - name: use
              template: echo
              arguments: {parameters: [{name: x, value: "{{inputs.parameters.p}}-{{steps.gen.outputs.parameters.o}}-{{steps.gen.outputs.result}}"}]}
            - {name: own, template: echo, arguments: {parameters: [{name: x, value: "{{inputs.parameters.own}}"}]}}
            - {name: expr, template: echo, arguments: {parameters: [{name: x, value: "{{=asInt(steps.gen.outputs.parameters.o) + 1}}"}]}}
        - name: gen
          container: {image: busybox}
          outputs: {parameters: [{name: o, valueFrom: {path: /tmp/o, default: none}}]}
        """
        + ECHO,
        "arguments: {parameters: [{name: p, value: 3, enum: ['3', '4'], description: a number}]}",
    )
    param = flow.params[0]
    assert (param.name, str(param.type), param.default, param.choices, param.doc) == (
        "p",
        "str",
        "3",
        ("3", "4"),
        "a number",
    )
    assert value(named(flow, "use"), "x") == Template(
        (Expr.of("params.p"), "-", Expr.of("steps.gen.outputs.o"), "-", Expr.of("steps.gen.outputs.result"))
    )
    assert value(named(flow, "own"), "x") == "default"
    assert evaluate(Expr.of(value(named(flow, "expr"), "x")), {"steps": {"gen": {"outputs": {"o": "4"}}}}) == "5"
    gen = named(flow, "gen")
    assert [(o.name, o.path, o.default) for o in gen.outputs] == [
        ("o", "/tmp/o", "none"),
        ("result", "/dev/stdout", MISSING),
    ]


def test_what_nobody_reads_is_not_captured() -> None:
    flow = steps("- {name: main, steps: [[{name: a, template: flip}]]}" + FLIP)
    assert named(flow, "a").outputs == ()


def test_the_whole_workflow_inside_definitions() -> None:
    flow = steps(
        """
        - {name: main, steps: [[{name: a, template: outer}]]}
        - {name: outer, steps: [[{name: b, template: inner}]]}
        - {name: inner, steps: [[{name: c, template: say}]]}
        - {name: say, container: {image: i, args: ["{{workflow.parameters.p}} {{workflow.name}} {{workflow.status}} {{workflow.labels}}"]}}
        """,
        "arguments: {parameters: [{name: p, value: v}]}",
    )
    assert value(named(flow, "a"), "workflow-parameters-p") == "params.p"
    assert value(definition(flow, "outer").steps[0], "workflow-parameters-p") == 'params["workflow-parameters-p"]'
    assert value(named(flow, "a"), "workflow-status") == '""'
    action = definition(flow, "inner").steps[0].action
    assert isinstance(action, Container)
    assert action.args[0] == Template(
        (
            Expr.of('params["workflow-parameters-p"]'),
            " ",
            Expr.of("run.id"),
            " ",
            Expr.of('params["workflow-status"]'),
            " {}",
        )
    )


def test_parameters_of_the_workflow_as_json() -> None:
    flow = steps(
        """- {name: main, steps: [[{name: a, template: flip, when: "{{=jsonpath(workflow.parameters.json, '$[0].value') == 'true'}}"}]]}"""
        + FLIP,
        "arguments: {parameters: [{name: p, value: 'true'}]}",
    )
    when = named(flow, "a").when
    assert when is not None and evaluate(when, {"params": {"p": "true"}}) is True


def test_outputs_of_the_entrypoint_and_global_names() -> None:
    flow = steps(
        """
        - name: main
          steps: [[{name: a, template: inner}], [{name: b, template: reads}]]
          outputs: {parameters: [{name: o, valueFrom: {parameter: "{{steps.a.outputs.parameters.p}}", default: d}}]}
        - name: inner
          steps: [[{name: c, template: gives}]]
          outputs: {parameters: [{name: p, valueFrom: {expression: "steps.c.outputs.parameters.g ?? 'none'"}}]}
        - name: gives
          container: {image: i}
          outputs: {parameters: [{name: g, globalName: world, valueFrom: {path: /g}}]}
        - {name: reads, container: {image: i, args: ["{{workflow.outputs.parameters.world}}"]}}
        """,
        "onExit: reads",
    )
    shared = "workflow-outputs-parameters-world"
    assert flow.outputs[0] == Output(
        name="o",
        type=flow.params[0].type if flow.params else flow.outputs[0].type,
        value=Expr.of("steps.a.outputs.p"),
        default="d",
    )
    assert [output.name for output in flow.outputs] == ["o", "world"]
    assert [output.name for output in definition(flow, "inner").outputs] == ["p", shared]
    for step in (named(flow, "b"), named(flow, "onExit")):
        assert isinstance(step.action, Container) and step.action.args == (Expr.of(f'steps.a.outputs["{shared}"]'),)


def test_what_is_published_deep_inside_comes_out() -> None:
    flow = steps(
        """
        - {name: main, steps: [[{name: a, template: outer}]]}
        - {name: outer, dag: {tasks: [{name: b, template: gives, withItems: [1, 2]}]}}
        - name: gives
          container: {image: i}
          outputs: {parameters: [{name: g, globalName: world, valueFrom: {path: /g}}]}
        """
    )
    shared = "workflow-outputs-parameters-world"
    assert [(output.name, output.value.text) for output in flow.outputs] == [("world", f'steps.a.outputs["{shared}"]')]
    inner = definition(flow, "outer").outputs[0]
    assert (inner.name, inner.value.text) == (shared, "last(steps.b.outputs.g)")


def test_a_skipped_producer() -> None:
    flow = steps(
        """
        - name: main
          dag:
            tasks:
            - {name: p, template: produce, when: "false"}
            - {name: a, template: takes, depends: "p.Succeeded || p.Skipped", arguments: {parameters: [{name: x, value: "{{tasks.p.outputs.parameters.m}}"}]}}
            - {name: b, template: takes, depends: p, arguments: {parameters: [{name: x, value: "got {{tasks.p.outputs.parameters.m}}"}]}}
        - name: produce
          container: {image: i}
          outputs: {parameters: [{name: m, valueFrom: {path: /m}}]}
        - name: takes
          inputs: {parameters: [{name: x, default: fallback}]}
          container: {image: i}
        """
    )
    assert named(flow, "a").inputs[0].default == "fallback"
    assert named(flow, "b").inputs[0].default is MISSING
    when = named(flow, "p").when
    assert when is not None and evaluate(when, {"params": {}}) is False


def test_files() -> None:
    found = read(
        workflow(
            """
            - name: main
              inputs: {artifacts: [{name: seed}]}
              steps:
              - - {name: gen, template: gen}
              - - name: use
                  template: use
                  arguments:
                    artifacts:
                    - {name: a, from: "{{steps.gen.outputs.artifacts.f}}"}
                    - {name: b, raw: {data: "hello {{workflow.parameters.p}}"}}
                    - {name: c, from: "{{inputs.artifacts.seed}}"}
                    - {name: d, s3: {key: x}}
            - name: gen
              container: {image: i}
              outputs: {artifacts: [{name: f, path: /f}, {name: spare, path: /s, optional: true}]}
            - name: use
              inputs: {parameters: [{name: a, value: v}], artifacts: [{name: a, path: /a}, {name: b, path: /b}, {name: c, path: /c}, {name: d, path: /d}, {name: e, path: /e, optional: true}]}
              container: {image: i, args: ["{{inputs.artifacts.a.path}}"]}
            """,
            "arguments: {parameters: [{name: p, value: v}], artifacts: [{name: seed, raw: {data: s}}]}",
        )
    )
    flow = found.workflow
    use = named(flow, "use")
    assert [(given.name, given.path) for given in use.inputs] == [
        ("a", None),
        ("artifact-a", "/a"),
        ("b", "/b"),
        ("c", "/c"),
    ]
    assert value(use, "artifact-a") == "steps.gen.outputs.f" and value(use, "c") == "s"
    assert value(use, "b") == Template(("hello ", Expr.of("params.p")))
    assert [output.name for output in named(flow, "gen").outputs] == ["f"]
    assert isinstance(use.action, Container) and use.action.args == ("/a",)
    assert any("s3" in entry.path for entry in found.report.of("lost"))


def test_what_is_no_variable_stays_as_text() -> None:
    found = read(
        workflow(
            """- {name: main, script: {image: i, source: "{{ .Values.x }} {{jinja}} {{inputs.parameters.p}}"}, inputs: {parameters: [{name: p, value: v}]}}"""
        )
    )
    action = found.workflow.steps[0].action
    assert isinstance(action, Script) and action.source == Template(("{{ .Values.x }} {{jinja}} ", Expr.of("inputs.p")))
    assert len(found.report.of("kept")) == 2


# -- loops and conditions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "items", "item"),
    [
        ("withItems: [a, 1, true]", ("a", "1", "true"), "item.item"),
        ("withItems: [{a: x}, {a: y}]", ({"a": "x"}, {"a": "y"}), "text(item.item)"),
        ("withParam: '[\"a\", 2]'", ("a", "2"), "item.item"),
        ("withSequence: {count: 3}", ("0", "1", "2"), "item.item"),
        ("withSequence: {start: '5', end: '3'}", ("5", "4", "3"), "item.item"),
        ("withSequence: {start: 1, count: 2, format: 'n%02X'}", ("n01", "n02"), "item.item"),
        ("withSequence: {count: '0'}", (), "item.item"),
        ("withParam: '{{workflow.parameters.list}}'", "json(params.list, true)", "text(item.item)"),
    ],
)
def test_loops(loop: str, items: Any, item: str) -> None:
    flow = steps(
        f"""
        - name: main
          steps:
          - - name: a
              template: echo
              arguments: {{parameters: [{{name: x, value: "{{{{item}}}}"}}]}}
              {loop}
        """
        + ECHO,
        "arguments: {parameters: [{name: list, value: '[1]'}]}",
    )
    each = named(flow, "a").each
    assert each is not None
    found = each.axes[0]["item"]
    assert (found.text if isinstance(found, Expr) else found) == items
    assert value(named(flow, "a"), "x") == item


def test_a_sequence_that_only_the_run_knows() -> None:
    flow = steps(
        "- {name: main, steps: [[{name: n, template: flip}], [{name: a, template: flip, withSequence: {start: '2', end: '{{steps.n.outputs.result}}'}}]]}"
        + FLIP
    )
    each = named(flow, "a").each
    assert each is not None
    for end, numbers in (("4", ["2", "3", "4"]), ("0", ["2", "1", "0"])):
        assert list(evaluate(each.axes[0]["item"], {"steps": {"n": {"outputs": {"result": end}}}})) == numbers


def test_what_a_loop_gives() -> None:
    flow = steps(
        """
        - name: main
          steps:
          - - {name: a, template: gen, withItems: [1, 2]}
          - - name: b
              template: echo
              arguments: {parameters: [{name: x, value: "{{steps.a.outputs.parameters.o}} {{steps.a.outputs.result}} {{steps.a.outputs.parameters}}"}]}
        - name: gen
          container: {image: i}
          outputs: {parameters: [{name: o, valueFrom: {path: /o, default: d}}]}
        """
        + ECHO
    )
    assert value(named(flow, "b"), "x") == Template(
        (
            Expr.of("collect(steps.a.outputs.o, steps.a.outcome)"),
            " ",
            Expr.of("collect_results(steps.a.outputs.result, steps.a.outcome)"),
            " ",
            Expr.of('collect_maps({"o": steps.a.outputs.o}, steps.a.outcome)'),
        )
    )
    assert named(flow, "a").outputs[0].default is MISSING


def test_how_a_step_ended() -> None:
    flow = steps(
        """
        - name: main
          steps:
          - - {name: a, template: flip, continueOn: {failed: true, error: true}}
          - - {name: b, template: flip, when: "{{steps.a.status}} == Failed"}
            - {name: c, template: echo, arguments: {parameters: [{name: x, value: "{{steps.a.exitCode}}"}]}}
        """
        + FLIP
        + ECHO
    )
    when = named(flow, "b").when
    assert when is not None and holds(when, "failed") and not holds(when, "succeeded")
    assert value(named(flow, "c"), "x") == "string(steps.a.exit_code)"


# -- what a step does -------------------------------------------------------------------------------------------------


def test_a_script() -> None:
    flow = steps(
        """- {name: main, script: {image: i, command: [bash, -x], args: [-e], source: "echo {{workflow.uid}}", workingDir: /w}}"""
    )
    assert flow.steps[0].action == Script(
        source=Template(("echo ", Expr.of("run.id"))), command=("bash", "-x", "-e"), image="i", workdir="/w"
    )


def test_a_pod_with_everything_around_it() -> None:
    found = read(
        workflow(
            """
            - name: main
              nodeSelector: {pool: gpu}
              initContainers: [{name: first, image: a, command: [x], mirrorVolumeMounts: true}]
              sidecars: [{name: beside, image: b, resources: {requests: {cpu: 1}}}]
              podSpecPatch: '{"containers": [{"name": "main", "resources": {"requests": {"memory": "{{inputs.parameters.m}}"}}}]}'
              inputs: {parameters: [{name: m, value: 2Gi}]}
              metadata: {labels: {kueue.x-k8s.io/queue-name: team, kueue.x-k8s.io/priority-class: high}}
              volumes: [{name: own, emptyDir: {}}]
              container:
                image: c
                env: [{name: A, value: "{{inputs.parameters.m}}"}, {name: B, value: "$(A)-b"}, {name: C, valueFrom: {configMapKeyRef: {name: cm, key: k}}}]
                args: ["$(A)"]
                resources: {requests: {cpu: 500m}}
                securityContext: {runAsUser: 5}
                volumeMounts: [{name: own, mountPath: /own}, {name: all, mountPath: /all, subPath: "{{workflow.name}}"}, {name: claim, mountPath: /claim}]
            """,
            """
            nodeSelector: {pool: cpu}
            tolerations: [{key: t, operator: Exists}]
            volumes: [{name: all, persistentVolumeClaim: {claimName: shared}}]
            volumeClaimTemplates: [{metadata: {name: claim}, spec: {}}]
            imagePullSecrets: [{name: s}]
            """,
        ),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: from-map}",
    )
    step = found.workflow.steps[0]
    assert isinstance(step.action, Pod)
    assert [(part.name, part.needs, part.sidecar) for part in step.action.parts] == [
        ("first", (), False),
        ("beside", (), True),
        ("main", ("first",), False),
    ]
    main = step.action.parts[-1]
    assert main.env == {"A": Expr.of("inputs.m"), "B": Template((Expr.of("inputs.m"), "-b")), "C": "from-map"}
    assert main.args == (Expr.of("inputs.m"),)
    assert step.resources == {"cpu": 1500, "memory": 2 * 2**30 * 1000}
    assert step.placement is not None and step.placement.node_selector == {"pool": "gpu"}
    assert [(mount.name, mount.path, mount.scope, mount.sub_path) for mount in step.mounts] == [
        ("own", "/own", "task", ""),
        ("shared", "/all", "run", Expr.of("run.id")),
        ("claim", "/claim", "run", ""),
    ]
    assert (step.queue, step.priority) == ("team", "high")
    assert step.extra["pod"]["imagePullSecrets"] == ({"name": "s"},)
    assert step.extra["containers"]["main"]["securityContext"] == {"runAsUser": 5}


def test_a_set_of_containers() -> None:
    flow = steps(
        """
        - name: main
          volumes: [{name: w, emptyDir: {}}]
          containerSet:
            volumeMounts: [{name: w, mountPath: /w}]
            containers:
            - {name: a, image: i, resources: {requests: {cpu: 1}}}
            - {name: b, image: i, resources: {requests: {cpu: 2}}}
            - {name: main, image: i, dependencies: [a, b]}
          outputs: {parameters: [{name: o, valueFrom: {path: /w/o}}]}
        """
    )
    step = flow.steps[0]
    assert isinstance(step.action, Pod)
    assert [(part.name, part.needs) for part in step.action.parts] == [("a", ()), ("b", ()), ("main", ("a", "b"))]
    assert step.resources == {"cpu": 3000} and step.mounts[0].path == "/w"


def test_a_resource() -> None:
    flow = steps(
        """
        - name: main
          resource:
            action: create
            successCondition: status.succeeded > 0, status.phase in (Done, Ready)
            failureCondition: status.failed == 3, status.phase == Failed
            manifest: |
              kind: Job
          outputs: {parameters: [{name: n, valueFrom: {jsonPath: "{.metadata.name}"}}, {name: c, valueFrom: {jqFilter: ".status.conditions[0].type"}}]}
        """
    )
    action = flow.steps[0].action
    assert (
        isinstance(action, Resource) and action.success_condition is not None and action.failure_condition is not None
    )
    good = {"status": {"succeeded": 1, "phase": "Ready"}}
    assert evaluate(action.success_condition, {"object": good}) is True
    assert evaluate(action.success_condition, {"object": {"status": {"phase": "Ready"}}}) is False
    assert evaluate(action.failure_condition, {"object": {"status": {"failed": 3}}}) is True
    assert evaluate(action.failure_condition, {"object": {"status": {"phase": "Failed"}}}) is True  # any of them
    assert evaluate(action.failure_condition, {"object": {}}) is False
    assert [output.value.text for output in flow.steps[0].outputs] == [
        "text(object.metadata.name)",
        "text(object.status.conditions[0].type)",
    ]


def test_a_resource_without_conditions_waits_for_nothing_as_in_argo() -> None:
    flow = steps("- {name: main, resource: {action: create, manifest: 'kind: Job'}}")
    action = flow.steps[0].action
    assert isinstance(action, Resource) and action.success_condition is not None
    assert evaluate(action.success_condition, {}) is True and action.failure_condition is None


def test_selectors_that_cannot_be_read() -> None:
    for text in ("", "a ==== b", "status.phase == ", "a in Failed", ",", "a b c", "x > y"):
        if text == "status.phase == ":
            assert show(compile_selector(text)).endswith('== ""')
            continue
        with pytest.raises(ExpressionError):
            compile_selector(text)
    assert compile_path(".items[].name") is None


def test_waiting_and_asking() -> None:
    found = read(
        workflow(
            """
            - name: main
              steps: [[{name: wait, template: wait}], [{name: ask, template: ask}, {name: ok, template: ok}], [{name: use, template: echo, arguments: {parameters: [{name: x, value: "{{steps.ask.outputs.result}}"}]}}]]
            - {name: wait, suspend: {duration: 1m30s}}
            - {name: ok, suspend: {}, outputs: {parameters: [{name: yes, valueFrom: {supplied: {}, default: maybe}}]}}
            - name: ask
              http:
                url: "http://x/{{workflow.name}}"
                method: POST
                headers: [{name: A, value: b}, {name: S, valueFrom: {secretKeyRef: {name: s, key: k}}}]
                body: text
                timeoutSeconds: 5
                successCondition: response.statusCode == 201 && response.body contains "ok"
            """
            + ECHO
        ),
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {k: c2VjcmV0}",
    )
    flow = found.workflow
    assert named(flow, "wait").action == Suspend(duration=90.0)
    assert named(flow, "ok").outputs[0].default == "maybe"
    ask = named(flow, "ask")
    assert isinstance(ask.action, Http) and ask.action.success_condition is not None
    assert (ask.action.method, ask.action.headers, ask.action.body, ask.timeout) == (
        "POST",
        {"A": "b", "S": Expr('secrets["s/k"]')},
        "text",
        5,
    )
    answer = {"status": 201, "body": "it is ok"}
    assert evaluate(ask.action.success_condition, {"response": answer}) is True
    assert ask.outputs[0].value == Expr.of("text(response.body)") and ask.group is None


@pytest.mark.parametrize("kind", ["plugin: {hello: {}}", "data: {source: {}}"])
def test_what_cannot_be_run_keeps_its_place(kind: str) -> None:
    found = read(workflow(f"- {{name: main, steps: [[{{name: a, template: t}}]]}}\n- {{name: t, {kind}}}"))
    step = found.workflow.steps[0]
    assert step.extra["unrunnable"] and isinstance(step.action, Container)
    assert step.exempt is kind.startswith("plugin")
    assert len(found.report.of("lost")) == 1


def test_a_daemon_is_told_of() -> None:
    found = read(workflow("- {name: main, daemon: true, container: {image: i}}"))
    assert [entry.path for entry in found.report.of("lost")] == ["spec.templates[0].daemon"]
    assert found.workflow.steps[0].extra["argo"] == {"daemon": True}


# -- how it is run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20", 20),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("2d", 172800),
        ("x", None),
        ("", None),
        ("1m x", None),
        ("-1", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_retries() -> None:
    flow = steps(
        """
        - name: main
          steps: [[{name: a, template: a}, {name: b, template: b}, {name: c, template: c, arguments: {parameters: [{name: n, value: "7"}]}}, {name: d, template: d}]]
        - {name: a, retryStrategy: {limit: "3", retryPolicy: Always, backoff: {duration: "2", factor: 3, maxDuration: 1m, cap: 20s}}, container: {image: i}}
        - {name: b, retryStrategy: {expression: "asInt(lastRetry.exitCode) == 2 && lastRetry.status != 'Error'"}, container: {image: i}}
        - {name: c, inputs: {parameters: [{name: n}]}, retryStrategy: {limit: "{{inputs.parameters.n}}", retryPolicy: OnError}, container: {image: i}}
        - {name: d, container: {image: i, args: ["{{retries}}"]}}
        """,
        "retryStrategy: {limit: 1}",
    )
    a, b, c, d = (step.retry for step in flow.steps)
    assert a is not None and (a.limit, a.on, a.within) == (3, ("failed", "errored", "timeout"), 60)
    assert (a.backoff.initial, a.backoff.factor, a.backoff.longest, a.backoff.jitter) == (2, 3, 20, 0)
    assert b is not None and b.limit == 10_000_000 and b.when is not None and b.backoff.initial == 0
    tried = {"exit_code": 2, "outcome": "failed", "message": "", "number": 1, "seconds": 1.5}
    assert evaluate(b.when, {"attempt": tried}) is True
    assert evaluate(b.when, {"attempt": {**tried, "outcome": "errored"}}) is False
    assert c is not None and (c.limit, c.on) == (7, ("errored",))
    assert d is not None and (d.limit, d.on) == (1, ("failed", "timeout"))
    action = named(flow, "d").action
    assert isinstance(action, Container) and action.args == (Expr.of("string(attempt.number)"),)


def test_limits_locks_and_memory() -> None:
    found = read(
        workflow(
            """
            - name: main
              parallelism: 2
              steps: [[{name: a, template: a, arguments: {parameters: [{name: t, value: 10s}]}}], [{name: b, template: b}]]
            - name: a
              inputs: {parameters: [{name: t}]}
              timeout: "{{inputs.parameters.t}}"
              synchronization: {mutexes: [{name: "m-{{inputs.parameters.t}}"}], semaphores: [{configMapKeyRef: {name: cm, key: k}}]}
              memoize: {key: "{{inputs.parameters.t}}", maxAge: 1h, cache: {configMap: {name: mem}}}
              container: {image: i}
            - {name: b, synchronization: {mutex: {name: old}, semaphore: {configMapKeyRef: {name: gone, key: k}}}, container: {image: i}}
            """,
            "parallelism: 5\nactiveDeadlineSeconds: 100\nsynchronization: {mutexes: [{name: whole}]}",
        ),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: '4'}",
    )
    flow = found.workflow
    assert (flow.parallel, flow.timeout, [lock.name for lock in flow.locks]) == (2, 100, ["whole"])
    a, b = flow.steps
    assert a.timeout == 10
    assert [(lock.name, lock.limit) for lock in a.locks] == [(Template(("m-", Expr.of("inputs.t"))), 1), ("cm/k", 4)]
    assert a.cache.enabled and a.cache.key == Template(("mem/", Expr.of("inputs.t"))) and a.cache.ttl == 3600
    assert [(lock.name, lock.limit) for lock in b.locks] == [("old", 1), ("gone/k", 1)]
    assert any("gone/k" in entry.message for entry in found.report.of("changed"))


def test_exit_handlers_and_hooks() -> None:
    found = read(
        workflow(
            """
            - name: main
              steps:
              - - name: a
                  template: flip
                  hooks:
                    exit: {template: echo, arguments: {parameters: [{name: x, value: "{{steps.a.outputs.result}}"}]}}
                    running: {expression: 'steps.a.status == "Running"', template: flip}
                    bad: {expression: 'steps.a.status == "Failed"', template: flip}
              - - {name: b, template: flip}
            - {name: bye, container: {image: i, args: ["{{workflow.status}} {{workflow.failures}}"]}}
            """
            + FLIP
            + ECHO,
            "onExit: bye\nhooks: {running: {expression: 'workflow.status == \"Running\"', template: flip}}",
        )
    )
    flow = found.workflow
    hook, bad = named(flow, "a-onExit"), named(flow, "a-hooks-bad")
    assert (
        hook.exempt and hook.tolerates == {Outcome.FAILED, Outcome.ERRORED} and hook.group is None and hook.when is None
    )
    assert hook.needs == (Edge("a", frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED})),)
    assert value(hook, "x") == "{{steps.a.outputs.result}}"  # a hook knows no result of its own step, as in Argo
    assert named(flow, "a-hooks-running").when is None
    assert bad.when is not None and holds(bad.when, "failed") and not holds(bad.when, "succeeded")
    assert Edge("a-onExit", ALL) in named(flow, "b").needs and Edge("a") in named(flow, "b").needs
    assert [step.name for step in flow.on_exit] == ["onExit", "hooks-running"]
    bye = flow.on_exit[0].action
    assert isinstance(bye, Container) and isinstance(bye.args[0], Template)
    assert evaluate(bye.args[0].parts[0], {"workflow": {"outcome": "failed"}}) == "Failed"  # type: ignore[arg-type]
    assert len([entry for entry in found.report.of("changed") if "hooks" in entry.path]) == 3


def test_cron_and_the_fields_that_are_handed_on() -> None:
    text = """
    apiVersion: argoproj.io/v1alpha1
    kind: CronWorkflow
    metadata: {name: nightly, labels: {kueue.x-k8s.io/queue-name: team}}
    spec:
      schedule: "0 3 * * *"
      workflowSpec:
        entrypoint: main
        priority: 7
        ttlStrategy: {secondsAfterCompletion: 5}
        templates: [{name: main, container: {image: i}}]
    """
    found = read(text)
    flow = found.workflow
    assert (flow.name, flow.queue, flow.priority) == ("nightly", "team", 7)
    assert flow.extra["argo"] == {"ttlStrategy": {"secondsAfterCompletion": 5}, "cron": {"schedule": "0 3 * * *"}}
    assert [(entry.path, entry.source and entry.source.line) for entry in found.report.of("changed")] == [
        ("spec.workflowSpec.ttlStrategy", 10),
        ("spec.schedule", 6),
    ]


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        ("- {name: other, container: {image: i}}", [("P832", 5)]),
        ("- {name: main, steps: [[{name: a, template: nope}]]}", [("P832", 7)]),
        ("- {name: main, steps: [[{name: a, template: '{{item}}'}]]}", [("P836", 7)]),
        ("- {name: main, steps: [{name: a, template: main}]}", [("P835", 7)]),
        ("- {name: main}", [("P835", 7)]),
        ("- {name: main, steps: [[{name: a, template: flip}, {name: a, template: flip}]]}" + FLIP, [("P835", 7)]),
        (
            "- {name: main, dag: {tasks: [{name: a, template: flip, depends: b}, {name: b, template: flip, depends: a}]}}"
            + FLIP,
            [("P833", 7)],
        ),
        ("- {name: main, dag: {tasks: [{name: a, template: flip, depends: 'b &&'}]}}" + FLIP, [("P832", 7)]),
        (
            "- {name: main, dag: {tasks: [{name: a, template: flip}, {name: b, template: flip, depends: 'a &&'}]}}"
            + FLIP,
            [("P834", 7)],
        ),
        (
            "- {name: main, steps: [[{name: a, template: flip, when: '{{steps.b.outputs.result}} == x'}]]}" + FLIP,
            [("P832", 7)],
        ),
        ("- {name: main, steps: [[{name: a, template: flip, when: '((x == y'}]]}" + FLIP, [("P834", 7)]),
        ("- {name: main, steps: [[{name: a, template: echo}]]}" + ECHO, [("P832", 7)]),
        (
            "- {name: main, steps: [[{name: a, template: echo, arguments: {parameters: [{name: x, value: '{{item}}'}]}}]]}"
            + ECHO,
            [("P832", 7)],
        ),
        (
            "- {name: main, steps: [[{name: a, template: echo, arguments: {parameters: [{name: x, value: '{{=1 +}}'}]}}]]}"
            + ECHO,
            [("P834", 7)],
        ),
        ("- {name: main, container: {image: i, args: ['{{inputs.parameters.nope}}']}}", [("P832", 7)]),
        ("- {name: main, container: {image: i, args: ['{{workflow.parameters.nope}}']}}", [("P832", 7)]),
        ("- {name: main, container: {image: i, args: ['{{step.a.outputs.result}}']}}", [("P832", 7)]),
        ("- {name: main, container: {args: [x]}}", [("P835", 7)]),
        ("- {name: main, timeout: soon, container: {image: i}}", [("P835", 7)]),
        ("- {name: main, resource: {action: explode, manifest: x}}", [("P835", 7)]),
    ],
)
def test_mistakes_are_told_with_their_line(templates: str, expected: list[tuple[str, int]]) -> None:
    assert refused(workflow(templates)) == expected


def test_all_mistakes_at_once_with_what_was_meant() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read(
            workflow(
                "- {name: main, steps: [[{name: gen, template: flop}], [{name: b, template: echo, arguments: {parameters: [{name: x, value: '{{steps.gem.outputs.result}}'}]}}]]}"
                + FLIP
                + ECHO
            )
        )
    fixes = [problem.fix for problem in caught.value.problems]
    assert fixes[0] == 'Did you mean "flip"?' and len(fixes) == 2


def test_a_collection_of_templates_runs_nothing() -> None:
    with pytest.raises(DocumentError) as caught:
        read(workflow(ECHO, kind="WorkflowTemplate").replace("  entrypoint: main\n", ""))
    assert caught.value.code == "P830"


def test_a_template_that_is_submitted_asks_for_what_it_needs() -> None:
    found = read(workflow(ECHO, entrypoint="echo", kind="WorkflowTemplate"))
    assert [(param.name, param.default) for param in found.workflow.params] == [("x", MISSING)]
    assert len(found.report.of("changed")) == 1


# -- real documents ---------------------------------------------------------------------------------------------------


@cache
def _documents() -> list[Document]:
    found: list[Document] = []
    for path in corpus.files("argo"):
        found += [one for one in read_text(path.read_text(), str(path)) if registry.format_of(one) == "argo"]
    return found


@corpus.needs_corpus
def test_every_example_is_a_good_workflow() -> None:
    library = Library(tuple(one for path in corpus.files("argo") for one in read_text(path.read_text(), str(path))))
    read_ones = 0
    for document in _documents():
        if not (
            document.spec.get("entrypoint")
            or document.spec.get("workflowTemplateRef")
            or document.kind == "CronWorkflow"
        ):
            continue
        found = read_argo(library, document)
        assert errors(found.workflow) == [], document.file
        assert all(entry.source is not None and entry.message for entry in found.report.entries)
        assert read_argo(library, document).workflow == found.workflow
        read_ones += 1
    assert read_ones > 100


@corpus.needs_corpus
@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("steps.yaml", ["hello-hello-hello[0]", "hello-hello-hello[1]", "hello-hello-hello[1]"]),
        ("dag-diamond.yaml", [None] * 4),
        ("hello-world.yaml", [None]),
        ("suspend-template.yaml", ["suspend[0]", None, None, "suspend[3]"]),
    ],
)
def test_groups_are_stages(name: str, groups: list[str | None]) -> None:
    path = corpus.CORPUS / "argo" / name
    library = Library(tuple(read_text(Path(path).read_text(), str(path))))
    assert [step.group for step in read_argo(library, library.documents[0]).workflow.steps] == groups


ODD: list[Any] = [
    None,
    3,
    -1,
    1.5,
    True,
    "",
    "x",
    "{{",
    "}}",
    "{{=",
    "{{inputs.parameters.x}}",
    "{{steps.a.outputs.result}}",
    "{{=1+}}",
    "{{item}}",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"name": "a"},
    [{"name": "a"}],
    {"a": {"b": [1]}},
    "A && ",
    "9" * 50,
    "{{workflow.parameters}}",
    "{{outputs.parameters.a.path}}",
    float("inf"),
    "{{ {{x}} }}",
    "{{=" + "(" * 300,
    "-",
    "é",
    {3: 4},
]


def _places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        found += _places(data[key], (*path, key))
    return found


@corpus.needs_corpus
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_broken_documents_are_refused_and_never_crash(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(_documents()))
    broken = copy.deepcopy(dict(document.data))
    for _ in range(data.draw(st.integers(1, 4))):
        places = [path for path in _places(broken) if path and path[0] not in ("kind", "apiVersion")]
        if not places:
            break
        path = places[data.draw(st.integers(0, len(places) - 1))]
        parent = broken
        for key in path[:-1]:
            parent = parent[key]
        if data.draw(st.booleans()):
            del parent[path[-1]]
        else:
            parent[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    try:
        found = read_argo(Library((Document(broken, "x.yaml"),)), Document(broken, "x.yaml"))
    except UserError as error:
        assert error.problems and all(problem.fix for problem in error.problems)
    else:
        assert isinstance(errors(found.workflow), list)


def test_a_large_dag_is_read_in_no_time() -> None:
    tasks = [
        {
            "name": f"t-{number}",
            "template": "echo",
            "depends": f"t-{number - 7} && t-{number - 3}.Succeeded" if number > 7 else "",
            "arguments": {"parameters": [{"name": "x", "value": f"{{{{workflow.parameters.p}}}} {number}"}]},
        }
        for number in range(3000)
    ]
    text = workflow(ECHO, "arguments: {parameters: [{name: p, value: v}]}")
    data = yaml.safe_load(text)
    data["spec"]["templates"].append({"name": "main", "dag": {"tasks": tasks}})
    document = Document(data, "large.yaml")
    with within(5):
        found = read_argo(Library((document,)), document)
    assert len(found.workflow.steps) == 3000
