"""Rules of Tekton v1.15, each as its controller applies it: what words a step gets, and how the run ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DocumentError
from penstock.formats.base import Read
from penstock.graph.model import Outcome, edges_of
from penstock.runners.local import LocalRunner
from penstock.testing import Fake
from tests.formats.test_tekton_read import pipeline, task
from tests.support.engines import fold


def ran(
    found: Read, home: Path, failing: Iterable[str] = (), outputs: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[str, dict[str, str], dict[str, tuple[str, ...]]]:
    """How the run ended, how each step ended, and the words of the first container of each task."""
    words: dict[str, tuple[str, ...]] = {}

    def script(order: Any) -> Any:
        part = order.action.parts[0]
        words[order.task] = (*part.command, *part.args)
        return Outcome.FAILED if order.task in set(failing) else dict((outputs or {}).get(order.step.name, {}))

    runner = LocalRunner(home=home, on={"pod": "lab"}, backends={"lab": lambda context: Fake(context, script)})
    run = runner.run(found.workflow)
    return run.status, fold(run.events), {name: tuple(map(str, one)) for name, one in words.items()}


def words_of(found: Read, home: Path) -> tuple[str, ...]:
    _, _, words = ran(found, home)
    return next(iter(words.values()))


# -- variables in values ----------------------------------------------------------------------------------------------


def test_variables_in_the_value_of_a_parameter_are_resolved_in_the_task(tmp_path: Path) -> None:
    found = pipeline(
        """
- name: a
  workspaces: [{name: source, workspace: shared}]
  params:
  - {name: dir, value: $(workspaces.source.path)/x}
  - {name: many, value: ["$(workspaces.source.path)/1", "$(context.pipeline.name)"]}
  - {name: place, value: {file: "$(results.r.path)", other: "$(results.none.path)"}}
  taskSpec:
    workspaces: [{name: source, mountPath: /src}]
    results: [{name: r}]
    params: [{name: dir}, {name: many, type: array}, {name: place, type: object, properties: {file: {}, other: {}}}]
    steps: [{image: i, command: [c], args: ["$(params.dir)", "$(params.many[*])", "$(params.place.file)", "$(params.place.other)"]}]
""",
        "workspaces: [{name: shared}]",
        "workspaces: [{name: shared, emptyDir: {}}]",
    )
    assert words_of(found, tmp_path) == (
        "c",
        "/src/x",
        "/src/1",
        "p",
        "/tekton/results/r",
        "$(results.none.path)",
    )


def test_variables_in_the_values_of_a_run_are_resolved(tmp_path: Path) -> None:
    found = pipeline(
        """
- name: a
  when: [{input: $(params.bound), operator: in, values: ["true"]}]
  params: [{name: x, value: "$(params.name) $(params.bound) $(params.later)"}]
  taskSpec: {params: [{name: x}], steps: [{image: i, command: [c, "$(params.x)"]}]}
""",
        "workspaces: [{name: shared}]\nparams: [{name: name}, {name: bound}, {name: later}]",
        """
workspaces: [{name: shared, emptyDir: {}}]
params:
- {name: name, value: $(context.pipelineRun.namespace)}
- {name: bound, value: $(workspaces.shared.bound)}
- {name: later, value: $(workspaces.shared.path)}
""",
    )
    # The path of a workspace is known in a task that has it; this one has not.
    assert words_of(found, tmp_path) == ("c", "default true /workspace/shared")


def test_variables_in_a_default_are_resolved(tmp_path: Path) -> None:
    found = task(
        """
workspaces: [{name: source, mountPath: /src}]
params: [{name: dir, default: $(workspaces.source.path)/x}, {name: space, default: $(context.taskRun.namespace)}]
steps: [{image: i, command: [c, "$(params.dir)", "$(params.space)"]}]
""",
        "workspaces: [{name: source, emptyDir: {}}]",
    )
    assert words_of(found, tmp_path) == ("c", "/src/x", "default")


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("$(params.a)/d", "one/d"),
        ("$(params.a)/$(params.c)", "$(params.a)/three"),  # of several, only the last is filled in
        ("$(params.none)/d", "$(params.b)"),  # nothing that has a default: the variable stays
    ],
)
def test_a_default_of_a_task_sees_the_default_of_another_parameter(tmp_path: Path, default: str, expected: str) -> None:
    found = task(
        f"""
params: [{{name: a, default: one}}, {{name: b, default: "{default}"}}, {{name: c, default: three}}, {{name: none}}]
steps: [{{image: i, command: [c, "$(params.a)", "$(params.b)"]}}]
""",
        "params: [{name: a, value: given}, {name: none, value: n}]",
    )
    assert words_of(found, tmp_path) == ("c", "given", expected)


def test_a_default_of_a_pipeline_sees_the_value_of_another_parameter(tmp_path: Path) -> None:
    found = pipeline(
        """
- name: a
  params: [{name: x, value: $(params.b)}]
  taskSpec: {params: [{name: x}], steps: [{image: i, command: [c, "$(params.x)"]}]}
""",
        'params: [{name: a, default: one}, {name: b, default: "$(params.a)/$(params.a)"}]',
        "params: [{name: a, value: given}]",
    )
    assert words_of(found, tmp_path) == ("c", "given/given")


def test_a_default_of_a_pipeline_in_a_pipeline_sees_its_other_parameters(tmp_path: Path) -> None:
    found = pipeline(
        """
- name: inner
  params: [{name: a, value: given}]
  pipelineSpec:
    params: [{name: a}, {name: b, default: "$(params.a)/$(context.pipeline.name)"}]
    tasks:
    - name: t
      params: [{name: x, value: $(params.b)}]
      taskSpec: {params: [{name: x}], steps: [{image: i, command: [c, "$(params.x)"]}]}
"""
    )
    assert words_of(found, tmp_path) == ("c", "given/inner")


def test_the_name_of_an_embedded_task_is_the_name_of_its_task_run(tmp_path: Path) -> None:
    step = 'steps: [{image: i, command: [c, "$(context.task.name)", "$(context.taskRun.name)"]}]'
    _, name, run = words_of(pipeline(f"- name: a\n  taskSpec: {{{step}}}"), tmp_path / "pipeline")
    assert name == run and name.endswith("-a")
    _, name, run = words_of(task(step), tmp_path / "task")
    assert name == run


# -- status, results, conditions --------------------------------------------------------------------------------------

LAST = """
finally:
- name: z
  params: [{name: x, value: "$(tasks.a.status) $(tasks.a.reason)"}]
  taskSpec: {params: [{name: x}], steps: [{image: i, command: [c, "$(params.x)"]}]}
"""


@pytest.mark.parametrize(
    ("fails", "onerror", "expected"),
    [
        (False, "", "Succeeded Succeeded"),
        (True, "", "Failed StepFailed"),
        (True, "onError: continue, ", "Failed FailureIgnored"),
    ],
)
def test_the_reason_of_a_failed_task_is_StepFailed(tmp_path: Path, fails: bool, onerror: str, expected: str) -> None:
    found = pipeline(f"- {{name: a, {onerror}taskSpec: {{steps: [{{image: i, command: [c]}}]}}}}", LAST)
    _, _, words = ran(found, tmp_path, ["a"] if fails else [])
    assert words["z"] == ("c", expected)


MATRIX = """
- name: m
  workspaces: [{name: source, workspace: shared}]
  matrix: %s
  taskSpec:
    workspaces: [{name: source, mountPath: /src}]
    params: [{name: x, default: none}, {name: y, default: $(workspaces.source.path)/d}]
    steps: [{image: i, command: [c], args: ["$(params.x)", "$(params.y)", "$(context.taskRun.name)", "$(context.task.name)"]}]
"""
SHARED = ("workspaces: [{name: shared}]", "workspaces: [{name: shared, emptyDir: {}}]")


def test_variables_in_the_values_of_a_matrix_are_resolved_in_the_task(tmp_path: Path) -> None:
    """And the TaskRuns of a matrix are numbered: the first parameter varies fastest."""
    params = """{params: [{name: x, value: ["$(workspaces.source.path)/x", "$(context.taskRun.name)", plain]},
                {name: y, value: ["$(context.pipelineRun.name) $(params.none)", "$(context.task.retry-count)"]}]}"""
    found = pipeline(MATRIX % params, *SHARED)
    status, _, words = ran(found, tmp_path)
    assert status == "succeeded"
    wanted = {}
    for number in range(6):
        name = f"p-1-m-{number}"
        x = ("/src/x", name, "plain")[number % 3]
        y = ("p-1 $(params.none)", "0")[number // 3]
        wanted[name] = ("c", x, y, name, name)
    assert {one[3]: one for one in words.values()} == wanted
    assert [words[f"m[{number}]"][3] for number in range(6)] == sorted(wanted)


def test_so_are_those_of_its_include(tmp_path: Path) -> None:
    found = pipeline(
        MATRIX
        % """{include: [{params: [{name: x, value: "$(workspaces.source.path)/x"}]},
             {params: [{name: y, value: "$(context.taskRun.name)"}]}]}""",
        *SHARED,
    )
    _, _, words = ran(found, tmp_path)
    assert [words[f"m[{number}]"] for number in range(2)] == [
        ("c", "/src/x", "/src/d", "p-1-m-0", "p-1-m-0"),
        ("c", "none", "p-1-m-1", "p-1-m-1", "p-1-m-1"),
    ]


def test_the_only_taskrun_of_a_matrix_has_no_number(tmp_path: Path) -> None:
    one = pipeline(MATRIX % "{params: [{name: x, value: [a]}]}", *SHARED)
    assert words_of(one, tmp_path / "one") == ("c", "a", "/src/d", "p-1-m", "p-1-m")
    spec = "params: [{name: xs, type: array, default: [%s]}]\n" + SHARED[0]
    for items, names in (("a", ["p-1-m"]), ("a, b", ["p-1-m-0", "p-1-m-1"])):
        found = pipeline(MATRIX % '{params: [{name: x, value: "$(params.xs[*])"}]}', spec % items, SHARED[1])
        assert sorted(words[3] for words in ran(found, tmp_path / items)[2].values()) == names


def test_the_length_of_a_matrix_makes_no_dependency(tmp_path: Path) -> None:
    found = pipeline(
        """
- name: gives
  taskSpec: {results: [{name: r, type: array}], steps: [{image: i, command: [c]}]}
- name: m
  matrix: {params: [{name: x, value: "$(tasks.gives.results.r[*])"}, {name: y, value: [a, b, c]}, {name: z, value: "$(params.z[*])"}]}
  taskSpec: {params: [{name: x}, {name: y}, {name: z}], steps: [{image: i, command: [c]}]}
- name: reads
  params: [{name: n, value: $(tasks.m.matrix.length)}]
  taskSpec: {params: [{name: n}], steps: [{image: i, command: [c, "$(params.n)"]}]}
""",
        "params: [{name: z, type: array, default: [p, q]}]",
    )
    edges = {step.name: set(edges_of(step)) for step in found.workflow.steps}
    assert edges["reads"] == set()
    _, _, words = ran(found, tmp_path, outputs={"gives": {"r": ["1", "2"]}})
    assert words["reads"] == ("c", "6")  # 3 × 2: what a task gives counts as one


@pytest.mark.parametrize("index", ["$(params.many[7])", "$(tasks.a.results.r[7])"])
@pytest.mark.parametrize("operator", ["in", "notin"])
@pytest.mark.parametrize("also", ["", '{input: "1", operator: in, values: ["2"]}'])
def test_an_array_index_out_of_range_in_a_condition_fails_the_run(
    tmp_path: Path, index: str, operator: str, also: str
) -> None:
    found = pipeline(
        f"""
- name: a
  taskSpec: {{results: [{{name: r, type: array}}], steps: [{{image: i, command: [c]}}]}}
- name: b
  when: [{{input: "{index}", operator: {operator}, values: ["x"]}}, {also}]
  taskSpec: {{steps: [{{image: i, command: [c]}}]}}
""".replace(", ]", "]"),
        "params: [{name: many, type: array, default: [a, b]}]",
    )
    status, states, words = ran(found, tmp_path, outputs={"a": {"r": ["1", "2"]}})
    assert status == "failed" and states["b"] in ("failed", "errored") and "b" not in words


def test_an_array_index_that_a_written_array_has_not_is_refused() -> None:
    with pytest.raises(DocumentError, match="has no such element"):
        pipeline(
            """
- name: b
  when: [{input: "$(params.many[7])", operator: in, values: ["x"]}]
  taskSpec: {steps: [{image: i, command: [c]}]}
""",
            'params: [{name: many, type: array, default: ["$(context.pipelineRun.name)", b]}]',
        )


def test_an_undeclared_result_path_in_a_script_is_refused() -> None:
    with pytest.raises(DocumentError, match="no result 'none'") as error:
        task('results: [{name: nine}]\nsteps: [{image: i, script: "echo > $(results.none.path)"}]')
    assert error.value.problems[0].code == "P832" and 'Did you mean "nine"?' in error.value.problems[0].fix


def test_the_name_of_a_result_is_not_put_together_by_the_shell() -> None:
    with pytest.raises(DocumentError, match=r"the task has no result 'r-\$\{i\}'"):
        task('results: [{name: r-1}]\nsteps: [{image: i, script: "echo > $(results.r-${i}.path)"}]')
    task('results: [{name: r-1}]\nsteps: [{image: i, script: "echo $(date) $(results.r-1.path) ${i}"}]')
