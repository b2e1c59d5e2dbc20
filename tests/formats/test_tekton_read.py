"""Tekton documents as workflows: what they become, and that they run as Tekton would run them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DocumentError, UserError
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.expressions.types import STR, list_of
from penstock.formats import registry
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library, read_text
from penstock.formats.tekton.read.workflow import read_tekton
from penstock.graph.check import errors
from penstock.graph.model import MISSING, Edge, ForEach, Nested, Outcome, Parameter, Part, Pod, Step, Workflow, edges_of
from penstock.plan.make import make
from penstock.runners.local import LocalRunner
from penstock.testing import Fake
from tests.formats.corpus import files, label, needs_corpus
from tests.support.engines import fold

SUCCEEDED, SKIPPED, FAILED, ERRORED = Outcome.SUCCEEDED, Outcome.SKIPPED, Outcome.FAILED, Outcome.ERRORED


def read(text: str, name: str | None = None) -> Read:
    library = Library(tuple(read_text(text, "file.yaml")))
    found = read_tekton(library, registry.root(library, name, "file.yaml"))
    assert errors(found.workflow) == []
    return found


def pipeline(tasks: str, spec: str = "", run: str = "") -> Read:
    """A PipelineRun with these tasks."""
    indented = "\n".join(f"    {line}" for line in tasks.strip("\n").splitlines())
    more = "\n".join(f"    {line}" for line in spec.strip("\n").splitlines())
    around = "\n".join(f"  {line}" for line in run.strip("\n").splitlines())
    return read(
        f"""
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {{generateName: p-}}
spec:
{around}
  pipelineSpec:
{more}
    tasks:
{indented}
"""
    )


def task(spec: str, run: str = "") -> Read:
    """A TaskRun with this taskSpec."""
    inner = "\n".join(f"    {line}" for line in spec.strip("\n").splitlines())
    around = "\n".join(f"  {line}" for line in run.strip("\n").splitlines())
    return read(
        f"""
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {{name: t}}
spec:
{around}
  taskSpec:
{inner}
"""
    )


def step_of(found: Read | Workflow, name: str) -> Step:
    workflow = found.workflow if isinstance(found, Read) else found
    return next(step for step in (*workflow.steps, *workflow.on_exit) if step.name == name)


def parts_of(step: Step) -> tuple[Part, ...]:
    assert isinstance(step.action, Pod)
    return step.action.parts


def said(found: Read, kind: str) -> str:
    return "\n".join(
        f"{entry.path}: {entry.message} {entry.near}" for entry in found.report.entries if entry.kind == kind
    )


ECHO = "taskSpec: {steps: [{image: busybox, script: echo hello}]}"


# -- a task -----------------------------------------------------------------------------------------------------------


def test_steps_are_parts_of_one_pod_in_their_order() -> None:
    found = task(
        """
stepTemplate: {image: busybox, env: [{name: A, value: '1'}, {name: B, value: '2'}]}
steps:
- {name: first, command: [echo], args: [x], env: [{name: B, value: '3'}]}
- {script: "#!/usr/bin/env bash\\necho hello\\n", onError: continue, timeout: 90s, workingDir: /data}
- {name: last, image: alpine, script: "true"}
sidecars: [{name: server, image: nginx, args: [-g]}]
"""
    )
    first, second, last, server = parts_of(found.workflow.steps[0])
    assert (first.name, first.image, first.command, first.args) == ("first", "busybox", ("echo",), ("x",))
    assert first.env == {"A": "1", "B": "3"}
    assert (second.name, second.command, second.on_error, second.timeout) == (
        "unnamed-1",
        ("/usr/bin/env", "bash"),
        "continue",
        90.0,
    )
    assert second.workdir == "/data" and second.source.startswith("#!")
    assert (last.command, last.image, last.source) == (("/bin/sh", "-e"), "alpine", "true")
    assert server.sidecar and server.args == ("-g",)
    assert found.workflow.steps[0].timeout == 3600


def test_parameters_are_inputs_and_their_values_defaults_of_the_workflow() -> None:
    found = task(
        """
params:
- {name: who, default: world}
- {name: many, type: array, default: [a, b]}
- {name: repo, type: object, properties: {url: {type: string}, rev: {type: string}}, default: {url: u, rev: main}}
- {name: greeting, default: "hello $(params.who)"}
steps:
- image: busybox
  command: [echo]
  args: ["$(params.who)!", "$(params.many[*])", "$(params.many[1])", "$(params['repo'].rev)", "$(params.repo.url)", "$(params.greeting)"]
""",
        "params: [{name: who, value: you}, {name: repo, value: {url: other}}]",
    )
    workflow = found.workflow
    assert {param.name: param.default for param in workflow.params} == {
        "who": "you",
        "many": ("a", "b"),
        "repo": {"url": "other", "rev": "main"},
    }
    args = parts_of(workflow.steps[0])[0].args
    assert args == (
        Template((Expr.of("inputs.who"), "!")),
        "a",
        "b",
        Expr.of("inputs.many[1]"),
        Expr.of("inputs.repo.rev"),
        Expr.of("inputs.repo.url"),
        Expr.of("inputs.greeting"),
    )
    greeting = next(given for given in workflow.steps[0].inputs if given.name == "greeting")
    assert greeting.value == "hello world"  # the default of who, whatever is given
    assert "stands for 2 words" in said(found, "changed")


def test_a_task_by_itself_leaves_its_parameters_open() -> None:
    found = read(
        """
apiVersion: tekton.dev/v1
kind: Task
metadata: {name: t}
spec:
  params: [{name: x}, {name: many, type: array}]
  workspaces: [{name: src}, {name: maybe, optional: true}]
  steps: [{image: busybox, args: [$(params.x), "$(params.many[*])", $(workspaces.src.path), $(workspaces.maybe.bound)]}]
"""
    )
    (step,) = found.workflow.steps
    assert [param.name for param in found.workflow.params] == ["x", "many"]
    assert parts_of(step)[0].args == (Expr.of("inputs.x"), Expr.of("inputs.many"), "/workspace/src", "false")
    assert [(mount.name, mount.path, mount.scope) for mount in step.mounts] == [("src", "/workspace/src", "task")]


def test_results_have_the_path_that_scripts_write_to() -> None:
    found = task(
        """
results: [{name: digest}, {name: images, type: array}, {name: from-step, value: $(steps.a.results.r)}]
steps:
- {name: a, image: busybox, results: [{name: r}], script: "echo -n x > $(step.results.r.path); echo y > $(results.digest.path)"}
- {name: b, image: busybox, script: "cat $(steps.step-a.exitCode.path) /tekton/steps/0/exitCode $(steps.a.results.r)"}
"""
    )
    step = found.workflow.steps[0]
    assert {output.name: output.path for output in step.outputs} == {
        "digest": "/tekton/results/digest",
        "images": "/tekton/results/images",
        "from-step": "/tekton/steps/step-a/results/r",
    }
    a, b = parts_of(step)
    assert a.results == {"r": "/tekton/steps/step-a/results/r"}
    assert a.source == "echo -n x > /tekton/steps/step-a/results/r; echo y > /tekton/results/digest"
    # Those of other steps are filled in by whoever runs the pod.
    assert b.source == "cat $(steps.step-a.exitCode.path) $(steps.step-a.exitCode.path) $(steps.a.results.r)"
    assert {output.name for output in found.workflow.outputs} == {"digest", "images", "from-step"}


def test_a_step_action_is_put_in_with_the_parameters_it_is_given() -> None:
    found = read(
        """
apiVersion: tekton.dev/v1beta1
kind: StepAction
metadata: {name: act}
spec:
  params: [{name: text}, {name: list, type: array, default: [x, y]}, {name: both, default: "$(params.text)!"}, {name: res, type: array}]
  results: [{name: out}]
  image: busybox
  env: [{name: T, value: $(params.text)}]
  args: ["$(params.list[*])", $(params.both), "$(params.res[*])", "$(params.res[0])"]
  script: echo $T > $(step.results.out.path)
---
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: t}
spec:
  params: [{name: word, value: w}]
  taskSpec:
    params: [{name: word}]
    steps:
    - {name: one, ref: {name: act}, params: [{name: text, value: "<$(params.word)>"}, {name: res, value: "$(steps.zero.results.r[*])"}]}
"""
    )
    (part,) = parts_of(found.workflow.steps[0])
    word = Expr.of("inputs.word")
    assert part.env == {"T": Template(("<", word, ">"))}
    assert part.args == (
        "x",
        "y",
        Template(("<", word, ">!")),
        "$(steps.zero.results.r[*])",
        "$(steps.zero.results.r[0])",
    )
    assert part.results == {"out": "/tekton/steps/step-one/results/out"}


def test_context_and_kubernetes_own_variables() -> None:
    found = task(
        """
steps:
- image: busybox
  env: [{name: NAME, value: $(context.taskRun.name)}, {name: TWICE, value: "$(NAME) $(NAME)"}]
  command: [echo, $(NAME), "$$(NAME)", $(context.task.retry-count), $(context.taskRun.namespace), $(nothing)]
""",
        "retries: 2",
    )
    (part,) = parts_of(found.workflow.steps[0])
    run = Expr.of("run.id")
    assert part.command == ("echo", run, "$(NAME)", Expr.of("attempt.number"), "default", "$(nothing)")
    assert part.env["TWICE"] == Template((run, " ", run))
    retry = found.workflow.steps[0].retry
    assert retry is not None and retry.limit == 2 and retry.backoff.initial == 0


def test_folders() -> None:
    found = read(
        """
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {a.txt: A, b.txt: B}
---
apiVersion: v1
kind: Secret
metadata: {name: sec}
data: {password: aHVudGVyMg==}
---
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: t}
spec:
  params: [{name: which, value: cm}]
  workspaces:
  - {name: empty, emptyDir: {}}
  - {name: kept, persistentVolumeClaim: {claimName: claim}, subPath: inner}
  - {name: vault, secret: {secretName: sec}}
  taskSpec:
    params: [{name: which}]
    workspaces: [{name: empty}, {name: kept, mountPath: /kept, readOnly: true}, {name: vault}, {name: absent, optional: true}]
    volumes: [{name: conf, configMap: {name: $(params.which), items: [{key: a.txt, path: sub/a.txt}]}}, {name: scratch, emptyDir: {}}]
    steps:
    - image: busybox
      env: [{name: P, valueFrom: {secretKeyRef: {name: sec, key: password}}}]
      envFrom: [{configMapRef: {name: cm}, prefix: CM_}]
      script: cat $(workspaces.kept.path)/x $(workspaces.absent.path) /tekton/home/y
      volumeMounts: [{name: conf, mountPath: /conf}, {name: scratch, mountPath: /a}, {name: scratch, mountPath: /b, subPath: s}]
"""
    )
    (step,) = found.workflow.steps
    mounts = {mount.path: mount for mount in step.mounts}
    assert (mounts["/workspace/empty"].scope, mounts["/kept"].scope, mounts["/workspace/vault"].scope) == (
        "task",
        "run",
        "given",
    )
    assert mounts["/kept"].read_only and mounts["/kept"].sub_path == "inner"
    assert mounts["/workspace/vault"].files == {"password": Expr('secrets["sec/password"]')}
    assert mounts["/conf"].files == {"sub/a.txt": "A"}
    assert mounts["/a"].name == mounts["/b"].name and mounts["/b"].sub_path == "s"
    assert mounts["/tekton/home"].scope == "task" and "/workspace/absent" not in mounts
    (part,) = parts_of(step)
    assert part.env == {"CM_a.txt": "A", "CM_b.txt": "B", "P": Expr('secrets["sec/password"]')}
    assert part.source == "cat /kept/x  /tekton/home/y"


def test_the_pod_asks_for_the_sum_and_task_level_amounts_are_divided() -> None:
    steps = """
steps:
- {image: a, computeResources: {requests: {cpu: 500m, memory: 1Gi}}}
- {image: b, computeResources: {limits: {cpu: "1"}}}
sidecars: [{name: s, image: c, computeResources: {requests: {cpu: 250m}}}]
"""
    assert dict(task(steps).workflow.steps[0].resources) == {"cpu": 1750, "memory": 2**30 * 1000}
    whole = task(steps, "computeResources: {requests: {cpu: '3'}}")
    assert dict(whole.workflow.steps[0].resources) == {"cpu": 3250}


def test_a_limit_range_beside_it_is_divided_among_the_steps() -> None:
    found = read(
        """
apiVersion: v1
kind: LimitRange
metadata: {name: l}
spec: {limits: [{type: Container, defaultRequest: {cpu: "1"}, min: {memory: 100Mi}}]}
---
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: t}
spec: {taskSpec: {steps: [{image: a}, {image: b}]}}
"""
    )
    assert dict(found.workflow.steps[0].resources) == {"cpu": 1000, "memory": 2 * 100 * 2**20 * 1000}


def test_what_a_pod_template_says() -> None:
    found = task(
        "steps: [{image: a, securityContext: {runAsUser: 1}}]",
        """
serviceAccountName: robot
podTemplate: {nodeSelector: {disk: ssd}, tolerations: [{key: k, operator: Exists}], schedulerName: mine, env: [{name: A, value: b}]}
""",
    )
    (step,) = found.workflow.steps
    assert step.placement is not None and step.placement.node_selector == {"disk": "ssd"}
    assert step.extra["pod"] == {"schedulerName": "mine", "serviceAccountName": "robot"}
    assert step.extra["containers"] == {"unnamed-0": {"securityContext": {"runAsUser": 1}}}
    assert parts_of(step)[0].env == {"A": "b"}


def test_what_a_step_prints_can_go_to_a_file() -> None:
    found = task(
        """
results: [{name: out}]
steps:
- {image: a, script: echo hi, stdoutConfig: {path: $(results.out.path)}}
- {image: a, command: [ls], args: [-l], stderrConfig: {path: /tmp/err}}
- {image: a, args: [-l], stdoutConfig: {path: /tmp/out}}
"""
    )
    alone = task("results: [{name: out}]\nsteps: [{image: a, args: [x], stdoutConfig: {path: $(results.out.path)}}]")
    assert alone.workflow.steps[0].outputs[0].path == "/dev/stdout"
    script, words, image = parts_of(found.workflow.steps[0])
    assert script.source == "exec >'/tekton/results/out'\necho hi"
    assert words.command == (
        "/bin/sh",
        "-c",
        'exec 2>"$1"; shift 1; exec "$@"',
        "sh",
        "/tmp/err",
        "ls",
    ) and words.args == ("-l",)
    assert image.args == ("-l",) and "not written to the file" in said(found, "lost")


# -- a pipeline -------------------------------------------------------------------------------------------------------


CHAIN = """
- {name: a, taskSpec: {results: [{name: r}], steps: [{image: busybox, script: "echo -n 1 > $(results.r.path)"}]}}
- name: b
  params: [{name: x, value: "<$(tasks.a.results.r)>"}]
  taskSpec: {params: [{name: x}], steps: [{image: busybox, args: [$(params.x)]}]}
- {name: c, runAfter: [b], taskSpec: {steps: [{image: busybox, args: [$(tasks.a.results.r)]}]}}
"""


def test_order_follows_from_results_and_from_run_after() -> None:
    found = pipeline(CHAIN)
    assert step_of(found, "a").needs == ()
    assert step_of(found, "b").needs == (Edge("a", frozenset({SUCCEEDED})),)
    assert set(step_of(found, "c").needs) == {Edge("b"), Edge("a", frozenset({SUCCEEDED}))}
    assert step_of(found, "b").inputs[0].value == Template(("<", Expr.of("steps.a.outputs.r"), ">"))
    assert found.workflow.fail_fast and found.workflow.timeout == 3600


def test_an_embedded_spec_sees_the_parameters_and_workspaces_around_it() -> None:
    found = pipeline(
        """
- name: a
  taskSpec:
    params: [{name: HELLO, default: inner}]
    steps: [{image: busybox, script: "echo $(params.HELLO) $(params.other) $(workspaces.ws.path)"}]
- name: b
  params: [{name: HELLO, value: call}]
  taskSpec: {steps: [{image: busybox, script: "echo $(params.HELLO)"}]}
""",
        run="params: [{name: HELLO, value: outer}, {name: other, value: o}]\nworkspaces: [{name: ws, emptyDir: {}}]",
    )
    a, b = step_of(found, "a"), step_of(found, "b")
    assert {given.name: given.value for given in a.inputs} == {
        "HELLO": Expr.of("params.HELLO"),
        "other": Expr.of("params.other"),
    }
    assert [mount.path for mount in a.mounts] == ["/workspace/ws"] and b.mounts == ()
    assert {given.name: given.value for given in b.inputs} == {"HELLO": "call"}


def test_when() -> None:
    found = pipeline(
        f"""
- name: a
  when:
  - {{input: $(params.path), operator: in, values: [x, "$(params.more[*])"]}}
  - {{input: "$(params.path)-$(params.path)", operator: notin, values: [y]}}
  {ECHO}
- {{name: b, when: [{{input: foo, operator: notin, values: [foo]}}], {ECHO}}}
- {{name: c, when: [{{input: $(workspaces.w.bound), operator: in, values: ["true"]}}], {ECHO}}}
- {{name: d, when: [{{cel: "'$(params.path)' == 'x' || '$(params.path)' == 'z'"}}], {ECHO}}}
""",
        "params: [{name: path, default: x}, {name: more, type: array, default: [q]}]\nworkspaces: [{name: w, optional: true}]",
    )
    a, d = step_of(found, "a").when, step_of(found, "d").when
    assert a is not None and d is not None
    assert a.text == 'params.path in ["x"] + params.more && !(params.path + "-" + params.path in ["y"])'
    assert d.text == 'params.path == "x" || params.path == "z"'
    plan = make(found.workflow, {})
    assert {one.path: one.runs for one, _ in plan.level.walk()}["a"] == "yes"


def test_a_condition_that_cannot_be_read_makes_the_step_one_that_cannot_be_run() -> None:
    found = pipeline(
        f"- {{name: a, when: [{{cel: \"'$(params.p)'.lastIndexOf('x') == 1\"}}], {ECHO}}}",
        "params: [{name: p, default: x}]",
    )
    assert "unrunnable" in step_of(found, "a").extra and "lastIndexOf" in said(found, "lost")
    with pytest.raises(DocumentError) as caught:
        pipeline(f"- {{name: a, when: [{{cel: '1 +'}}], {ECHO}}}")
    assert caught.value.code == "P834"


def test_matrix() -> None:
    found = pipeline(
        """
- name: m
  params: [{name: fixed, value: f}]
  matrix: {params: [{name: platform, value: [linux, mac]}, {name: browser, value: [a, b]}]}
  taskSpec:
    params: [{name: platform}, {name: browser}, {name: fixed}]
    results: [{name: url}]
    steps: [{image: busybox, script: "echo $(params.platform)-$(params.browser) > $(results.url.path)"}]
- name: n
  matrix: {params: [{name: url, value: "$(tasks.m.results.url[*])"}]}
  taskSpec: {params: [{name: url}], steps: [{image: busybox, args: [$(params.url)]}]}
- name: o
  params: [{name: all, value: "$(tasks.m.results.url[*])"}, {name: many, value: $(tasks.m.matrix.length)}, {name: some, value: $(tasks.m.matrix.url.length)}]
  runAfter: [n]
  taskSpec: {params: [{name: all, type: array}, {name: many}, {name: some}], steps: [{image: busybox, args: ["$(params.all[*])", $(params.many)]}]}
"""
    )
    m, n, o = (step_of(found, name) for name in "mno")
    # The first parameter runs fastest.
    assert m.each == ForEach(axes=({"browser": ("a", "b")}, {"platform": ("linux", "mac")}))
    assert {given.name: given.value for given in m.inputs} == {
        "platform": Expr.of("item.platform"),
        "browser": Expr.of("item.browser"),
        "fixed": "f",
    }
    assert n.each == ForEach(axes=({"url": Expr.of("steps.m.outputs.url")},))
    given = {one.name: one for one in o.inputs}
    assert (
        given["all"].value == Expr.of("steps.m.outputs.url")
        and given["all"].type == list_of(STR)
        and given["many"].value == "4"
    )
    # A matrix without combinations is skipped, and what is ordered behind it too.
    assert Edge("n", frozenset({SUCCEEDED})) in o.needs
    assert parts_of(o)[0].args[0] == Expr.of("inputs.all")


def test_matrix_with_include() -> None:
    found = pipeline(
        """
- name: m
  matrix:
    params: [{name: arch, value: [x, y]}, {name: version, value: ["1", "2"]}]
    include:
    - {name: common, params: [{name: package, value: p}]}
    - {name: y-flags, params: [{name: arch, value: y}, {name: flags, value: -v}]}
    - {name: new, params: [{name: arch, value: z}]}
  taskSpec:
    params: [{name: arch}, {name: version, default: d}, {name: package, default: ''}, {name: flags, default: ''}]
    steps: [{image: busybox, args: [$(params.arch)]}]
"""
    )
    each = step_of(found, "m").each
    assert each is not None
    assert dict(each.axes[0]) == {
        "arch": ("x", "y", "x", "y", "z"),
        "version": ("1", "1", "2", "2", "d"),
        "package": ("p", "p", "p", "p", ""),
        "flags": ("", "-v", "", "-v", ""),
    }


def test_a_pipeline_in_a_pipeline_is_a_definition() -> None:
    found = read(
        """
apiVersion: tekton.dev/v1
kind: Pipeline
metadata: {name: child}
spec:
  params: [{name: who}, {name: how, default: loud}]
  workspaces: [{name: ws}]
  tasks: [{name: say, params: [{name: w, value: "$(params.who) $(params.how)"}], workspaces: [{name: d, workspace: ws}],
           taskSpec: {params: [{name: w}], workspaces: [{name: d}], steps: [{image: busybox, script: "echo $(params.w) > $(workspaces.d.path)/x"}]}}]
---
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: run}
spec:
  params: [{name: dir, value: a}]
  workspaces: [{name: outer, volumeClaimTemplate: {spec: {}}}]
  pipelineSpec:
    params: [{name: dir}]
    workspaces: [{name: outer}]
    tasks:
    - {name: one, pipelineRef: {name: child}, params: [{name: who, value: me}], workspaces: [{name: ws, workspace: outer}]}
    - {name: two, runAfter: [one], pipelineRef: {name: child}, params: [{name: who, value: you}], workspaces: [{name: ws, workspace: outer, subPath: $(params.dir)}]}
"""
    )
    one, two = step_of(found, "one"), step_of(found, "two")
    assert one.action == Nested(name="child") and isinstance(two.action, Nested)
    assert {given.name: given.value for given in one.inputs} == {"who": "me", "how": "loud"}
    assert two.needs == (Edge("one"),)
    by_name = {definition.name: definition for definition in found.workflow.definitions}
    (mount,) = step_of(by_name["child"], "say").mounts
    assert (mount.scope, mount.name, mount.path) == ("run", "outer", "/workspace/d")
    (other,) = step_of(by_name[two.action.name], "say").mounts
    assert other.sub_path == Expr.of('params["workspace-ws-sub-path"]')


def test_timeouts() -> None:
    spec = f"- {{name: a, timeout: 30s, {ECHO}}}"
    last = f"finally: [{{name: z, timeout: 1h, {ECHO}}}]"
    found = pipeline(spec, last, "timeouts: {pipeline: 1h, finally: 10m}")
    assert found.workflow.timeout == 3000 and step_of(found, "a").timeout == 30 and step_of(found, "z").timeout == 600
    assert pipeline(spec, run="timeouts: {pipeline: '0'}").workflow.timeout is None
    assert pipeline(spec, run="taskRunSpecs: [{pipelineTaskName: a, timeout: 40s}]").workflow.steps[0].timeout == 40


def test_queue_and_priority_come_from_labels() -> None:
    found = read(
        """
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: r, labels: {kueue.x-k8s.io/queue-name: team-a, kueue.x-k8s.io/priority-class: high}}
spec:
  status: PipelineRunPending
  taskRunTemplate: {podTemplate: {nodeSelector: {a: b}}}
  taskRunSpecs: [{pipelineTaskName: a, computeResources: {requests: {cpu: "2"}}, podTemplate: {nodeSelector: {c: d}}}]
  pipelineSpec: {tasks: [{name: a, taskSpec: {steps: [{image: i}]}}, {name: b, taskSpec: {steps: [{image: i}]}}]}
"""
    )
    assert (found.workflow.queue, found.workflow.priority) == ("team-a", "high")
    a, b = step_of(found, "a"), step_of(found, "b")
    assert a.placement is not None and b.placement is not None
    assert a.placement.node_selector == {"c": "d"} and b.placement.node_selector == {"a": "b"}
    assert dict(a.resources) == {"cpu": 2000}
    assert found.workflow.extra["tekton"]["spec"] == {"status": "PipelineRunPending"}


# -- what is not there ------------------------------------------------------------------------------------------------


def test_what_is_not_among_the_documents_is_a_step_that_says_so() -> None:
    found = read(
        """
apiVersion: tekton.dev/v1
kind: Task
metadata: {name: git-clone}
spec: {steps: [{image: a}]}
---
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: r}
spec:
  pipelineSpec:
    tasks:
    - {name: near, taskRef: {name: git-clome}, params: [{name: url, value: u}]}
    - {name: far, taskRef: {resolver: git, params: [{name: url, value: u}]}}
    - {name: custom, taskRef: {apiVersion: example.dev/v1, kind: Wait}}
    - {name: reads, params: [{name: x, value: "$(tasks.near.results.list[1]) $(tasks.far.results.o.k)"}], taskSpec: {params: [{name: x}], steps: [{image: a}]}}
"""
    )
    lost = said(found, "lost")
    assert 'Did you mean "git-clone"?' in lost and "resolver 'git'" in lost and "its own controller" in lost
    near = step_of(found, "near")
    assert "no Task 'git-clome'" in near.extra["unrunnable"] and near.inputs[0].value == "u"
    assert near.outputs[0].type == list_of(STR) and near.extra["sample"] == {"list": ("", "")}
    assert set(edges_of(step_of(found, "reads"))) == {"near", "far"}


@pytest.mark.parametrize(
    ("tasks", "code", "words"),
    [
        (f"- {{name: a, runAfter: [bb], {ECHO}}}\n- {{name: b, {ECHO}}}", "P832", 'Did you mean "b"?'),
        (f"- {{name: a, runAfter: [b], {ECHO}}}\n- {{name: b, runAfter: [a], {ECHO}}}", "P833", "a → b → a"),
        (f"- {{name: a, params: [{{name: x, value: $(tasks.c.results.r)}}], {ECHO}}}", "P832", "there is no task 'c'"),
        (
            "- {name: a, taskSpec: {params: [{name: needed}], steps: [{image: i}]}}",
            "P832",
            "needs the parameter 'needed'",
        ),
        (f"- {{name: a, {ECHO}}}\n- {{name: a, {ECHO}}}", "P835", "two tasks are named 'a'"),
        ("- {name: a, taskSpec: {steps: {}}}", "P835", "must be a list"),
        ("- {name: a, taskSpec: {steps: []}}", "P835", "has no steps"),
        (f"- {{name: a, timeout: soon, {ECHO}}}", "P835", "a duration"),
        (f"- {{name: a, when: [{{input: a, operator: like, values: [b]}}], {ECHO}}}", "P835", "in or notin"),
    ],
)
def test_mistakes_are_told_with_their_line(tasks: str, code: str, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        pipeline(tasks)
    (problem,) = caught.value.problems
    assert problem.code == code and words in f"{problem.message} {problem.fix}"
    assert problem.source is not None and problem.source.line > 1


def test_a_pipeline_that_runs_itself_is_refused() -> None:
    with pytest.raises(DocumentError) as caught:
        read(
            """
apiVersion: tekton.dev/v1
kind: Pipeline
metadata: {name: p}
spec: {tasks: [{name: again, pipelineRef: {name: p}}]}
"""
        )
    assert caught.value.code == "P833"


def test_variables_that_stand_for_nothing_are_left_alone_and_told_of() -> None:
    found = task(
        'params: [{name: colour, default: red}]\nsteps: [{image: a, script: "echo $(params.color) $(cat x) $(context.x)"}]'
    )
    assert parts_of(found.workflow.steps[0])[0].source == "echo $(params.color) $(cat x) $(context.x)"
    assert 'Did you mean "colour"?' in said(found, "changed")


# -- how it runs ------------------------------------------------------------------------------------------------------


def states(
    found: Read, tmp_path: Path, failing: Iterable[str] = (), outputs: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[str, dict[str, str]]:
    """How the run ended, and each step, if these tasks fail and the others give this."""
    bad, given = set(failing), outputs or {}

    def script(order: Any) -> Any:
        return FAILED if order.task in bad else dict(given.get(order.step.name, {}))

    runner = LocalRunner(
        home=tmp_path / "home", on={"pod": "lab"}, backends={"lab": lambda context: Fake(context, script)}
    )
    run = runner.run(found.workflow)
    return run.status, fold(run.events)


GUARDED = f"""
- name: a
  when: [{{input: $(params.go), operator: in, values: ["yes"]}}]
  taskSpec: {{results: [{{name: r}}], steps: [{{image: busybox, script: "echo -n 1 > $(results.r.path)"}}]}}
- {{name: ordered, runAfter: [a], {ECHO}}}
- {{name: reads, params: [{{name: x, value: $(tasks.a.results.r)}}], taskSpec: {{params: [{{name: x}}], steps: [{{image: busybox}}]}}}}
- {{name: behind, runAfter: [reads], {ECHO}}}
- {{name: other, {ECHO}}}
"""
LAST = f"""
params: [{{name: go, default: "no"}}]
finally:
- {{name: always, {ECHO}}}
- {{name: needs, params: [{{name: x, value: $(tasks.a.results.r)}}], taskSpec: {{params: [{{name: x}}], steps: [{{image: busybox}}]}}}}
- {{name: on-failure, when: [{{input: $(tasks.status), operator: in, values: [Failed]}}], {ECHO}}}
- {{name: on-skip, when: [{{input: $(tasks.a.status), operator: in, values: [None]}}, {{input: $(tasks.status), operator: in, values: [Completed]}}], {ECHO}}}
"""


def test_who_reads_of_a_skipped_task_is_left_out_and_who_is_only_behind_it_runs(tmp_path: Path) -> None:
    status, found = states(pipeline(GUARDED, LAST), tmp_path)
    assert status == "succeeded"
    assert found == {
        "a": "skipped",
        "ordered": "succeeded",
        "reads": "omitted",
        "behind": "omitted",
        "other": "succeeded",
        "always": "succeeded",
        "needs": "skipped",
        "on-failure": "skipped",
        "on-skip": "succeeded",
    }


def test_without_the_guard_everything_runs(tmp_path: Path) -> None:
    status, found = states(pipeline(GUARDED, LAST, "params: [{name: go, value: 'yes'}]"), tmp_path)
    assert status == "succeeded"
    assert {name for name, state in found.items() if state == "skipped"} == {"on-failure", "on-skip"}
    assert found["reads"] == found["behind"] == found["needs"] == "succeeded"


def test_the_first_failure_stops_what_has_not_begun_and_the_last_tasks_run(tmp_path: Path) -> None:
    tasks = f"- {{name: a, {ECHO}}}\n- {{name: b, runAfter: [a], {ECHO}}}"
    last = f"finally: [{{name: z, when: [{{input: $(tasks.status), operator: in, values: [Failed]}}, {{input: $(tasks.b.status), operator: in, values: [None]}}], {ECHO}}}]"
    status, found = states(pipeline(tasks, last), tmp_path, ["a"])
    assert status == "failed" and found == {"a": "failed", "b": "cancelled", "z": "succeeded"}


def test_a_failure_that_is_to_be_ignored_stops_nothing(tmp_path: Path) -> None:
    tasks = f"- {{name: a, onError: continue, {ECHO}}}\n- {{name: b, runAfter: [a], {ECHO}}}"
    last = (
        f"finally: [{{name: z, when: [{{input: $(tasks.a.reason), operator: in, values: [FailureIgnored]}}], {ECHO}}}]"
    )
    found = pipeline(tasks, last)
    assert step_of(found, "a").tolerates == {FAILED, ERRORED}
    assert step_of(found, "b").needs == (Edge("a", frozenset({SUCCEEDED, SKIPPED, FAILED, ERRORED})),)
    assert states(found, tmp_path, ["a"]) == ("succeeded", {"a": "failed", "b": "succeeded", "z": "succeeded"})


def test_who_may_fail_is_skipped_if_the_result_of_one_who_may_fail_is_missing(tmp_path: Path) -> None:
    reads = "params: [{name: x, value: $(tasks.a.results.r)}], taskSpec: {params: [{name: x}], steps: [{image: i}]}"
    first = "- {name: a, onError: continue, taskSpec: {results: [{name: r}], steps: [{image: i}]}}"
    careful = pipeline(f"{first}\n- {{name: b, onError: continue, {reads}}}")
    assert states(careful, tmp_path, ["a"]) == ("succeeded", {"a": "failed", "b": "skipped"})
    assert states(careful, tmp_path / "good", outputs={"a": {"r": "1"}})[1] == {"a": "succeeded", "b": "succeeded"}
    careless = pipeline(f"{first}\n- {{name: b, {reads}}}")
    assert states(careless, tmp_path / "bad", ["a"])[0] == "failed"


def test_a_matrix_over_what_a_task_found(tmp_path: Path) -> None:
    found = pipeline(
        """
- {name: find, taskSpec: {results: [{name: all, type: array}], steps: [{image: busybox}]}}
- name: each
  matrix: {params: [{name: one, value: "$(tasks.find.results.all[*])"}]}
  taskSpec: {params: [{name: one}], results: [{name: r}], steps: [{image: busybox, args: [$(params.one)]}]}
- name: gather
  params: [{name: them, value: "$(tasks.each.results.r[*])"}]
  taskSpec: {params: [{name: them, type: array}], steps: [{image: busybox, args: ["$(params.them[*])"]}]}
"""
    )
    outputs: dict[str, dict[str, Any]] = {"find": {"all": ["x", "y"]}, "each": {"r": "z"}}
    status, ended = states(found, tmp_path, outputs=outputs)
    assert status == "succeeded" and ended["each[1]"] == "succeeded"
    status, ended = states(found, tmp_path / "none", outputs={"find": {"all": []}})
    assert status == "succeeded" and ended == {"find": "succeeded", "each": "skipped", "gather": "omitted"}


# -- the examples -----------------------------------------------------------------------------------------------------

RUNNABLE = ("PipelineRun", "TaskRun", "Pipeline", "Task")


def loaded(file: Path) -> list[Document]:
    return read_text(file.read_text(), label(file))


@needs_corpus
@pytest.mark.parametrize("file", files("tekton"), ids=label)
def test_every_example_is_read_and_planned(file: Path) -> None:
    library = Library(tuple(loaded(file)))
    for document in library.of_kind(*RUNNABLE):
        found = read_tekton(library, document)
        assert errors(found.workflow) == []
        assert all(entry.source is not None and entry.source.line > 0 for entry in found.report.entries)
        given = {param.name: _some(param) for param in found.workflow.params}
        assert make(found.workflow, given).stages


def _some(param: Parameter) -> Any:
    if param.default is not MISSING or param.choices:
        return param.default if param.default is not MISSING else param.choices[0]
    return [] if param.type.name == "list" else {} if param.type.name == "dict" else ""


_ODD: tuple[Any, ...] = (
    None,
    3,
    -1,
    1.5,
    True,
    "",
    "x",
    "$(params.x)",
    "$(params.x[0])",
    "$(tasks.a.results.b)",
    "$(",
    "a" * 300,
    "../..",
    "/",
    [],
    {},
    [[]],
    {"a": {}},
    {1: 2},
    ["$(params.x[*])"],
    "$(context.task.retry-count)",
    "0",
    "1h",
    "{{",
    "${{",
    "\0",
    "é",
    "$(tasks.status)",
    [None],
    {"name": None},
)


def _places(data: Any) -> list[tuple[Any, Any]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in list(inner) for found in [(data, key), *_places(value)]]


@needs_corpus
def test_documents_gone_wrong_are_errors_with_a_line_and_no_tracebacks() -> None:
    chance = random.Random(5)
    examples = [loaded(file) for file in files("tekton")]
    refused = 0
    for _ in range(400):
        documents = copy.deepcopy(chance.choice(examples))
        for _ in range(chance.choice([1, 1, 2, 5])):
            places = _places(chance.choice(documents).data)
            holder, key = chance.choice(places) if places else ({}, "")
            if chance.random() < 0.4 and isinstance(holder, dict):
                holder.pop(key, None)
            elif key in holder or isinstance(key, int):
                holder[key] = copy.deepcopy(chance.choice(_ODD))
        library = Library(tuple(documents))
        for document in library.of_kind(*RUNNABLE):
            try:
                found = read_tekton(library, document)
                errors(found.workflow)
            except UserError as error:
                refused += 1
                assert all(problem.fix and problem.code.startswith("P83") for problem in error.problems)
    assert refused > 50
