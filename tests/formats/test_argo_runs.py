"""Argo documents that are run on this machine, as processes: does what was read do what Argo would?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, Run
from penstock.formats.argo_read import read_argo
from penstock.formats.documents import Library, read_text

HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n"
SAY = """
  - name: say
    inputs: {parameters: [{name: x}]}
    container: {image: busybox, command: [echo], args: ["{{inputs.parameters.x}}"]}
"""


def run(tmp_path: Path, text: str, **params: Any) -> Run:
    library = Library(tuple(read_text(HEAD + text, "w.yaml")))
    workflow = read_argo(library, library.documents[0]).workflow
    on = {"container": "process", "script": "process", "pod": "process"}
    return LocalRunner(home=tmp_path, on=on).run(workflow, **params)


def states(done: Run) -> dict[str, str]:
    return {task.task: task.state for task in done.tasks}


def test_values_loops_and_conditions(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  arguments: {parameters: [{name: who, value: you}]}
  templates:
  - name: main
    steps:
    - - {name: gen, template: gen}
    - - name: each
        template: double
        withParam: "{{steps.gen.outputs.result}}"
        when: "{{item.n}} > 1"
        arguments: {parameters: [{name: n, value: "{{item.n}}"}]}
      - {name: never, template: gen, when: "{{workflow.parameters.who}} == me"}
    - - {name: sum, template: say, arguments: {parameters: [{name: x, value: "{{steps.each.outputs.parameters.out}} {{steps.each.outputs.result}}"}]}}
    outputs:
      parameters:
      - {name: all, valueFrom: {parameter: "{{steps.each.outputs.parameters.out}}"}}
      - {name: which, valueFrom: {expression: "steps.never.outputs.result ?? 'skipped'"}}
  - name: gen
    script: {image: busybox, command: [sh], source: "echo '[{\\"n\\": 1}, {\\"n\\": 2}, {\\"n\\": 3}]'"}
  - name: double
    inputs: {parameters: [{name: n}]}
    script: {image: busybox, command: [sh], source: "echo $(( {{inputs.parameters.n}} * 2 )) | tee /tmp/out"}
    outputs: {parameters: [{name: out, valueFrom: {path: /tmp/out}}]}
"""
        + SAY,
    )
    assert done.ok, done.failures
    assert done.outputs == {"all": '["4","6"]', "which": "skipped"}
    assert done.logs("sum").strip() == '["4","6"] [4,6]'
    assert states(done)["never"] == "skipped" and states(done)["each[0]"] == "skipped"


def test_recursion_until_a_condition_fails(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - {name: main, steps: [[{name: loop, template: loop, arguments: {parameters: [{name: n, value: "0"}]}}]]}
  - name: loop
    inputs: {parameters: [{name: n}]}
    steps:
    - - {name: next, template: add, arguments: {parameters: [{name: n, value: "{{inputs.parameters.n}}"}]}}
    - - {name: again, template: loop, when: "{{steps.next.outputs.result}} < 4", arguments: {parameters: [{name: n, value: "{{steps.next.outputs.result}}"}]}}
  - name: add
    inputs: {parameters: [{name: n}]}
    script: {image: busybox, command: [sh], source: "echo $(( {{inputs.parameters.n}} + 1 ))"}
""",
    )
    assert done.ok, done.failures
    assert done.logs("loop/again/again/again/next").strip() == "4"
    assert states(done)["loop/again/again/again/again"] == "skipped"


@pytest.mark.parametrize(("code", "status", "said"), [(0, "succeeded", "Succeeded"), (3, "failed", "Failed")])
def test_an_exit_handler_is_told_how_it_ended(tmp_path: Path, code: int, status: str, said: str) -> None:
    done = run(
        tmp_path,
        f"""
  onExit: bye
  templates:
  - {{name: main, steps: [[{{name: a, template: work}}], [{{name: b, template: work}}]]}}
  - {{name: work, container: {{image: busybox, command: [sh, -c, "exit {code}"]}}}}
  - {{name: bye, container: {{image: busybox, command: [echo, "{{{{workflow.status}}}}"]}}}}
""",
    )
    assert done.status == status and done.logs("onExit").strip() == said
    assert states(done).get("b") == ("succeeded" if not code else "omitted")


def test_retries_know_their_number(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    retryStrategy: {limit: 5, expression: "asInt(lastRetry.exitCode) == 7"}
    script: {image: busybox, command: [sh], source: "echo try {{retries}}; test {{retries}} -ge 2 || exit 7"}
""",
    )
    assert done.ok, done.failures
    assert "try 2" in done.logs("main")


def test_files_go_from_step_to_step(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    dag:
      tasks:
      - {name: gen, template: gen}
      - {name: use, template: use, depends: gen, arguments: {artifacts: [{name: f, from: "{{tasks.gen.outputs.artifacts.f}}"}, {name: r, raw: {data: raw}}]}}
  - name: gen
    container: {image: busybox, command: [sh, -c, "echo hello > /tmp/f"]}
    outputs: {artifacts: [{name: f, path: /tmp/f}]}
  - name: use
    inputs: {artifacts: [{name: f, path: /in/f}, {name: r, path: /in/r}]}
    container: {image: busybox, command: [cat, "{{inputs.artifacts.f.path}}", /in/r]}
""",
    )
    assert done.ok, done.failures
    assert done.logs("use") == "hello\nraw"


def test_skipped_outputs(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    dag:
      tasks:
      - {name: p, template: gives, when: "false"}
      - {name: q, template: defaults, when: "1 == 2"}
      - {name: a, template: say, depends: p, arguments: {parameters: [{name: x, value: "{{tasks.p.outputs.parameters.m}}"}]}}
      - {name: b, template: say, depends: q, arguments: {parameters: [{name: x, value: "got {{tasks.q.outputs.parameters.m}}"}]}}
  - {name: gives, container: {image: i}, outputs: {parameters: [{name: m, valueFrom: {path: /m}}]}}
  - {name: defaults, container: {image: i}, outputs: {parameters: [{name: m, valueFrom: {path: /m, default: theirs}}]}}
  - name: say
    inputs: {parameters: [{name: x, default: ours}]}
    container: {image: busybox, command: [echo, "{{inputs.parameters.x}}"]}
""",
    )
    assert done.ok, done.failures
    assert (done.logs("a").strip(), done.logs("b").strip()) == ("ours", "got theirs")


def test_a_failed_step_stays_failed_whatever_its_hook_does(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    steps:
    - - {name: a, template: bad, hooks: {exit: {template: say, arguments: {parameters: [{name: x, value: "{{steps.a.status}}"}]}}}}
    - - {name: b, template: bad}
  - {name: bad, container: {image: busybox, command: ["false"]}}
"""
        + SAY,
    )
    assert done.logs("a-onExit").strip() == "Failed"
    assert done.status == "failed" and states(done)["b"] == "omitted"
