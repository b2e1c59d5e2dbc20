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
      - {name: which, valueFrom: {expression: "steps.never?.outputs?.result ?? 'skipped'"}}
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


def test_an_entrypoint_of_several_steps_is_tried_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOST_WRITES", "yes")  # the tries of a step share nothing else
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


# -- rules that surprise; each was seen on Argo v4.1.4 ----------------------------------------------------------------

NAMED = """
  - name: named
    inputs: {parameters: [{name: p, default: "-"}]}
    container: {image: busybox, command: [echo], args: ["{{inputs.parameters.p}}|{{steps.name}}|{{tasks.name}}|{{node.name}}"]}
"""


def said(done: Run) -> dict[str, str]:
    return {task.task: done.logs(task.task).strip() for task in done.tasks if task.state == "succeeded"}


def test_names_of_steps_carry_the_item_and_those_of_nodes_the_path(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        r"""
  templates:
  - name: main
    steps:
    - - {name: l, template: named, withItems: [x, "a(b)\n<é", 3, {k: v, b: 1.50, l: [1, x]}], arguments: {parameters: [{name: p, value: "A:{{steps.name}}:{{node.name}}"}]}}
      - {name: one, template: named}
      - {name: n, template: named, withParam: '[[1, "q", 2.50], 1e3, {"b": 1.50, "a": [1e3]}]'}
    - - {name: sub, template: sub, withParam: "{{=toJson(['y'])}}", arguments: {parameters: [{name: p, value: "B:{{steps.name}}"}]}}
  - name: sub
    inputs: {parameters: [{name: p}]}
    dag:
      tasks:
      - {name: t, template: named, arguments: {parameters: [{name: p, value: "C:{{steps.name}}:{{node.name}}:{{inputs.parameters.p}}"}]}}
"""
        + NAMED,
    )
    assert done.ok, done.failures
    found = said(done)
    assert found["l[0]"] == "A::w-1|l(0:x)|{{tasks.name}}|w-1[0].l(0:x)"
    assert found["l[1]"].split("|")[1] == r"l(1:ab\n<é)"
    assert found["l[2]"].split("|")[1] == "l(2:3)"
    assert found["l[3]"].split("|")[1] == 'l(3:b:1.5,k:v,l:[1,"x"])'
    assert found["one"] == "-|one|{{tasks.name}}|w-1[0].one"
    assert [found[f"n[{i}]"].split("|")[1] for i in range(3)] == ["n(0:[1 q 2.50])", "n(1:1e3)", "n(2:a:[1e3],b:1.50)"]
    assert found["sub[0]/t"] == "C:sub(0:y):w-1[1].sub(0:y):B:|{{steps.name}}|t|w-1[1].sub(0:y).t"


def test_names_in_the_entrypoint_and_in_hooks(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  onExit: named
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: named, withItems: [x], hooks: {exit: {template: named, arguments: {parameters: [{name: p, value: "{{node.name}}"}]}}}}
"""
        + NAMED,
    )
    assert done.ok, done.failures
    found = said(done)
    assert found["a-onExit[0]"] == "w-1||{{tasks.name}}|w-1.a(0:x).onExit"
    assert found["onExit"] == "-||{{tasks.name}}|w-1.onExit"
    alone = run(tmp_path / "b", "\n  templates:\n" + NAMED.replace("name: named", "name: main"))
    assert said(alone) == {"main": "-||{{tasks.name}}|w-1"}


def test_names_in_the_defaults_of_inputs(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - {name: main, steps: [[{name: s, template: sub, withItems: [y]}]]}
  - name: sub
    inputs: {parameters: [{name: p, default: "{{workflow.namespace}}"}, {name: q, default: "{{steps.name}} {{node.name}}"}]}
    steps: [[{name: a, template: say, arguments: {parameters: [{name: x, value: "{{inputs.parameters.p}} {{inputs.parameters.q}}"}]}}]]
"""
        + SAY,
    )
    assert done.ok, done.failures
    assert said(done)["s[0]/a"] == "default s(0:y) w-1[0].s(0:y)"


def test_the_status_is_empty_in_what_starts_first(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  onExit: nested
  templates:
  - name: main
    steps:
    - - {name: a, template: say, arguments: {parameters: [{name: x, value: "[{{workflow.status}}]"}]}}
      - {name: n, template: nested}
    - - {name: b, template: status}
      - {name: m, template: nested}
  - name: nested
    steps: [[{name: c, template: status}], [{name: d, template: status}]]
  - {name: status, container: {image: busybox, command: [echo], args: ["[{{workflow.status}}]"]}}
"""
        + SAY,
    )
    assert done.ok, done.failures
    running, over = "[Running]", "[Succeeded]"
    expected = {"a": "[]", "n/c": "[]", "n/d": running, "b": running, "m/c": running, "m/d": running}
    found = said(done)
    assert {name: found[name] for name in expected} == expected
    assert found["onExit/c"] == found["onExit/d"] == over


def test_a_hook_keeps_tags_without_a_value_as_text(tmp_path: Path) -> None:
    tags = "{{steps.bad.outputs.parameters.o}} {{steps.bad.outputs.result}} {{=steps.bad.outputs.parameters.o ?? 'q'}}"
    done = run(
        tmp_path,
        f"""
  onExit: bye
  templates:
  - name: main
    steps:
    - - name: bad
        template: work
        arguments: {{parameters: [{{name: code, value: "3"}}]}}
        hooks:
          exit: {{template: say, arguments: {{parameters: [{{name: x, value: "{tags} {{{{steps.bad.status}}}}"}}]}}}}
          other: {{expression: steps.bad.status == "Failed", template: say, arguments: {{parameters: [{{name: x, value: "{tags}"}}]}}}}
      - name: good
        template: work
        arguments: {{parameters: [{{name: code, value: "0"}}]}}
        hooks: {{exit: {{template: say, arguments: {{parameters: [{{name: x, value: "{{{{steps.good.outputs.parameters.o}}}}"}}]}}}}}}
  - name: work
    inputs: {{parameters: [{{name: code}}]}}
    script: {{image: busybox, command: [sh], source: "test {{{{inputs.parameters.code}}}} = 0 && echo mine > /tmp/o"}}
    outputs: {{parameters: [{{name: o, globalName: gg, valueFrom: {{path: /tmp/o}}}}]}}
  - {{name: bye, container: {{image: busybox, command: [echo, "{{{{workflow.status}}}} {{{{workflow.outputs.parameters.gg}}}}"]}}}}
"""
        + SAY,
    )
    found = said(done)
    assert done.status == "failed"
    assert found["bad-onExit"] == f"{tags} Failed" and found["bad-hooks-other"] == tags
    assert found["good-onExit"] == "mine" and found["onExit"] == "Failed mine"


def test_numbers_of_withParam_keep_their_spelling_when_they_come_from_a_step(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  arguments: {parameters: [{name: n, value: '[1.50, 1e3, 10000000000000000000000, {"b": 1.50, "a": 1}, true, null]'}]}
  templates:
  - name: main
    steps:
    - - {name: gen, template: gen}
      - {name: p, template: say, withParam: "{{workflow.parameters.n}}", arguments: {parameters: [{name: x, value: "{{item}}"}]}}
      - {name: lit, template: say, withParam: '[{"b": 1.50}]', arguments: {parameters: [{name: x, value: "{{item.b}} {{item}}"}]}}
    - - {name: s, template: print, withParam: "{{steps.gen.outputs.result}}", arguments: {parameters: [{name: x, value: "{{item}}"}]}}
    - - {name: all, template: say, arguments: {parameters: [{name: x, value: "{{steps.s.outputs.result}}"}]}}
  - {name: gen, script: {image: busybox, command: [sh], source: "echo '[2.50, 1E3]'"}}
  - {name: print, inputs: {parameters: [{name: x}]}, container: {image: busybox, command: [echo, '{"z": {{inputs.parameters.x}}, "a": "x  y"}']}}
"""
        + SAY,
    )
    assert done.ok, done.failures
    found = said(done)
    assert [found[f"p[{i}]"] for i in range(6)] == ["1.50", "1e3", "1" + 22 * "0", '{"a":1,"b":1.50}', "true", "null"]
    assert found["lit[0]"] == '1.50 {"b":1.50}'
    assert found["all"] == '[{"z":2.50,"a":"x  y"},{"z":1E3,"a":"x  y"}]'


SKIPPED = """
  templates:
  - name: main
    steps:
    - - {name: a, template: gen, when: "1 == 2"}
    - - {name: b, template: say, arguments: {parameters: [{name: x, value: "{{=VALUE}}"}]}}
  - {name: gen, container: {image: busybox, command: [echo, hi]}OUTPUTS}
"""
OUTPUTS = ", outputs: {parameters: [{name: o, valueFrom: {path: /tmp/o}}]}"


@pytest.mark.parametrize(
    ("value", "outputs", "result"),
    [
        ("steps.a.outputs.result ?? 'y'", "", None),
        ("steps.a?.outputs?.result ?? 'y'", "", "y"),
        ("steps.a.outputs.result ?? 'y'", OUTPUTS, "y"),
        ("steps.a.outputs.parameters.o ?? 'y'", OUTPUTS, "y"),
    ],
)
def test_what_stands_in_for_the_result_of_a_skipped_step(
    tmp_path: Path, value: str, outputs: str, result: str | None
) -> None:
    done = run(tmp_path, SKIPPED.replace("VALUE", value).replace("OUTPUTS", outputs) + SAY)
    assert states(done)["b"] == ("errored" if result is None else "succeeded")
    assert done.ok is (result is not None) and said(done).get("b") == result


@pytest.mark.parametrize("read", ["{{steps.a.outputs.result}}", "{{=steps.a.outputs.result ?? 'y'}}"])
@pytest.mark.parametrize("loop", ["withItems: [1, 2], when: '{{item}} == 5'", "withParam: '[]'"])
def test_a_loop_of_skipped_steps_has_no_result(tmp_path: Path, loop: str, read: str) -> None:
    done = run(
        tmp_path,
        f"""
  templates:
  - name: main
    steps:
    - - {{name: a, template: gen, {loop}}}
    - - {{name: b, template: say, arguments: {{parameters: [{{name: x, value: "{read}"}}]}}}}
  - {{name: gen, container: {{image: busybox, command: [echo, hi]}}}}
  - name: say
    inputs: {{parameters: [{{name: x, default: dflt}}]}}
    container: {{image: busybox, command: [echo], args: ["{{{{inputs.parameters.x}}}}"]}}
""",
    )
    assert done.status == "failed" and states(done)["b"] == "errored"
    assert "every item of the loop was skipped" in done.failures["b"]


def test_a_loop_of_skipped_tasks_has_an_empty_result(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: gen, withItems: [1, 2], when: "{{item}} == 5"}
      - {name: b, template: say, depends: "a || a.Skipped", arguments: {parameters: [{name: x, value: "{{tasks.a.outputs.result}}"}]}}
  - {name: gen, container: {image: busybox, command: [echo, hi]}}
"""
        + SAY,
    )
    assert done.ok and said(done)["b"] == "[]"


@pytest.mark.parametrize("body", ["steps: [[CALL]]", "dag: {tasks: [CALL]}"])
def test_nesting_ends_where_argo_ends_it(tmp_path: Path, body: str) -> None:
    call = "{name: r, template: main, when: '{{workflow.name}} != x'}"
    done = run(tmp_path, f"\n  templates:\n  - name: main\n    {body.replace('CALL', call)}\n")
    found = states(done)
    deepest = "/".join(99 * ["r"])
    assert max(found, key=len) == deepest and found[deepest] == "errored"
    assert "maximum recursion depth exceeded" in done.failures[deepest]
