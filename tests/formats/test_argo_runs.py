"""Argo documents that are run on this machine, as processes: does what was read do what Argo would?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, Run
from penstock.formats import registry
from penstock.formats.documents import Library, read_text

HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n"
SAY = """
  - name: say
    inputs: {parameters: [{name: x}]}
    container: {image: busybox, command: [echo], args: ["{{inputs.parameters.x}}"]}
"""


def run(tmp_path: Path, text: str, **params: Any) -> Run:
    library = Library(tuple(read_text(HEAD + text, "w.yaml")))
    workflow = registry.read(library, library.documents[0]).workflow
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


def test_an_output_that_was_not_written_has_its_default(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    steps:
    - - {name: a, template: a}
    - - {name: b, template: say, arguments: {parameters: [{name: x, value: "{{steps.a.outputs.parameters.p}}"}]}}
  - name: a
    container: {image: busybox, command: ["true"]}
    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/none, default: else}}]}
"""
        + SAY,
    )
    assert done.ok and done.logs("b").strip() == "else"


def test_what_a_failed_step_wrote_is_handed_on(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    steps:
    - - {name: a, template: a, continueOn: {failed: true}}
    - - name: b
        template: b
        arguments:
          parameters: [{name: x, value: "{{steps.a.outputs.parameters.p}} {{steps.a.outputs.result}}"}]
          artifacts: [{name: f, from: "{{steps.a.outputs.artifacts.f}}"}]
  - name: a
    script: {image: busybox, command: [sh], source: "echo said; echo -n kept > /tmp/p; echo in a file > /tmp/f; exit 3"}
    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/p}}], artifacts: [{name: f, path: /tmp/f}]}
  - name: b
    inputs: {parameters: [{name: x}], artifacts: [{name: f, path: /tmp/in}]}
    script: {image: busybox, command: [sh], source: "echo {{inputs.parameters.x}}; cat /tmp/in"}
""",
    )
    assert done.ok, done.failures
    assert done.logs("b").split("\n")[:2] == ["kept said", "in a file"]


def test_a_file_that_is_not_there_and_need_not_be(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    steps:
    - - {name: a, template: a}
    - - {name: b, template: b, arguments: {artifacts: [{name: f, optional: true, from: "{{steps.a.outputs.artifacts.f}}"}]}}
  - name: a
    container: {image: busybox, command: ["true"]}
    outputs: {artifacts: [{name: f, path: /tmp/none, optional: true}]}
  - name: b
    inputs: {artifacts: [{name: f, path: /tmp/in, optional: true}]}
    script: {image: busybox, command: [sh], source: "test -e /tmp/in && echo there || echo nothing"}
""",
    )
    assert done.ok and done.logs("b").strip() == "nothing"


def test_results_that_look_into_loops(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    dag:
      tasks:
      - {name: loop, template: end, withItems: [0, 1], arguments: {parameters: [{name: x, value: "{{item}}"}]}}
      - {name: any, depends: loop.AnySucceeded, template: end, arguments: {parameters: [{name: x, value: "0"}]}}
      - {name: all, depends: loop.AllFailed, template: end, arguments: {parameters: [{name: x, value: "0"}]}}
  - name: end
    inputs: {parameters: [{name: x}]}
    container: {image: busybox, command: [sh, -c], args: ["exit {{inputs.parameters.x}}"]}
""",
    )
    assert (states(done)["any"], states(done)["all"]) == ("succeeded", "omitted")


def test_an_entrypoint_of_several_steps_is_tried_again_as_a_whole(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    done = run(
        tmp_path,
        f"""
  templates:
  - name: main
    retryStrategy: {{limit: "3"}}
    steps: [[{{name: a, template: a}}]]
    outputs: {{parameters: [{{name: n, valueFrom: {{parameter: "{{{{steps.a.outputs.result}}}}"}}}}]}}
  - name: a
    script: {{image: busybox, command: [sh], source: "echo x >> {counter}; wc -l < {counter}; test $(wc -l < {counter}) -ge 3"}}
""",
    )
    assert done.ok, done.failures
    assert done.outputs["n"].strip() == "3"


@pytest.mark.parametrize(
    "template, path",
    [
        ("- {name: main, container: {image: i}}\n  - {name: main, container: {image: i}}", "spec.templates[1].name"),
        ("- {name: main, container: {image: i}, script: {image: i, source: x}}", "spec.templates[0]"),
        (
            (
                "- {name: main, dag: {tasks: [{name: a, template: t}, {name: b, template: t, depends: a}, {name: c, template: t, dependencies: [a]}]}}\n"
                "  - {name: t, container: {image: i}}"
            ),
            "spec.templates[0].dag.tasks[2].dependencies",
        ),
    ],
)
def test_what_argo_would_refuse_is_told(template: str, path: str) -> None:
    (document,) = read_text(f"{HEAD}  templates:\n  {template}\n", "w.yaml")
    found = [entry for entry in registry.vet([document]).of("lost") if entry.path == path]
    assert len(found) == 1 and "Argo refuses" in found[0].message
