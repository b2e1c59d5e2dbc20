"""Steps that wait for nothing start in the order in which they were written, with one worker as with many."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import LocalRunner
from penstock.graph.model import Workflow
from penstock.service.workflows import load
from penstock.testing import run_virtually

INNER = """
definitions:
- name: inner
  steps:
  - {name: p, script: {source: "echo p"}, cache: {enabled: false}}
  - {name: q, script: {source: "echo q"}, cache: {enabled: false}}
  - {name: r, script: {source: "echo r"}, cache: {enabled: false}}
"""


def flow(folder: Path, steps: list[str], more: str = "") -> Workflow:
    lines = "\n".join(f"- {{{step}}}" for step in steps)
    file = folder / "order.yaml"
    file.write_text(
        f"apiVersion: penstock/v1\nkind: Workflow\nname: order\nparams: [{{name: none, type: bool, default: false}}]\nsteps:\n{lines}\n{more}"
    )
    return load(str(file))


def started(workflow: Workflow) -> list[str]:
    return [event.task for event in run_virtually(workflow).events if event.kind == "task.started"]


def test_with_one_worker_independent_steps_start_in_source_order(tmp_path: Path) -> None:
    said = tmp_path / "said"
    names = ["one", "two", "three", "four"]
    steps = [f"name: {name}, script: {{source: 'echo {name} >> {said}'}}" for name in names]
    with LocalRunner(jobs=1, home=tmp_path / "home") as runner:
        assert runner.run(flow(tmp_path, steps)).status == "succeeded"
    assert said.read_text().split() == names


def test_so_do_the_steps_of_called_workflows_and_the_items_of_loops(tmp_path: Path) -> None:
    loop = 'name: each, script: {source: "echo ${{ item.i }}"}, each: {axes: [{i: [1, 2, 3]}]}'
    steps = [loop, "name: first, workflow: {name: inner}", "name: second, workflow: {name: inner}"]
    found = started(flow(tmp_path, steps, INNER))
    calls = [f"{one}/{name}" for one in ("first", "second") for name in "pqr"]
    assert [name for name in found if "/" in name] == calls
    assert [name for name in found if "[" in name] == [f"each[{number}]" for number in range(3)]


def test_a_call_is_entered_before_what_is_written_after_it_starts(tmp_path: Path) -> None:
    outer = """
- name: outer
  steps:
  - {name: before, script: {source: "echo o"}, cache: {enabled: false}}
  - {name: call, workflow: {name: inner}}
  - {name: after, script: {source: "echo o"}, cache: {enabled: false}}
"""
    plain = "name: {}, script: {{source: 'echo'}}, cache: {{enabled: false}}"
    steps = [plain.format("a"), "name: call, workflow: {name: outer}", plain.format("b")]
    many = "name: many, workflow: {name: inner}, each: {axes: [{i: [1, 2]}]}"
    file = flow(tmp_path, [*steps, many, plain.format("c")], INNER + outer)
    inside = [f"call/{name}" for name in ("before", "call/p", "call/q", "call/r", "after")]
    items = [f"many[{number}]/{name}" for number in range(2) for name in "pqr"]
    leaves = [name for name in started(file) if name.rpartition("/")[2].partition("[")[0] not in ("call", "many")]
    assert leaves == ["a", *inside, "b", *items, "c"]


@settings(max_examples=40, deadline=None)
@given(skipped=st.lists(st.booleans(), min_size=1, max_size=12))
def test_also_what_is_ready_because_others_were_skipped(tmp_path_factory, skipped: list[bool]) -> None:  # type: ignore[no-untyped-def]
    """A step behind one that is skipped is ready at once, together with those that wait for nothing."""
    steps = []
    for number, skip in enumerate(skipped):
        condition = ', when: "params.none"' if skip else ""
        steps.append(f'name: a{number}, script: {{source: "echo a{number}"}}{condition}')
        if skip:
            steps.append(
                f'name: b{number}, script: {{source: "echo b{number}"}}, needs: [{{step: a{number}, outcomes: [skipped]}}]'
            )
    found = started(flow(tmp_path_factory.mktemp("skips"), steps))
    ready = [f"a{number}" for number, skip in enumerate(skipped) if not skip]
    assert found == ready + [f"b{number}" for number, skip in enumerate(skipped) if skip]


LOOP = ", each: {axes: [{i: [1, 2, 3]}]}"
MIXED = """
from penstock import task, workflow

def say(name):
    with open(SAID, "a") as file:
        print(name, file=file)
    return name

@task(cpu=1, cache=False)
def a(name):
    return say(name)

@task(cache=False)
def b(name):
    return say(name)

@workflow
def inner(name):
    b(f"{name}/b")
    a(f"{name}/a")
    b(f"{name}/b-2")

@workflow
def flow():
    a("a")
    b("b")
    a("a-2")
    inner("inner")
    b("b-2")
    [b(f"b-3[{i}]") for i in range(3)]
    [a(f"a-3[{i}]") for i in range(3)]
    b("b-4")
"""


def test_steps_that_ask_for_resources_start_among_the_others(tmp_path: Path) -> None:
    said = tmp_path / "said"
    file = tmp_path / "mixed.py"
    file.write_text(MIXED.replace("SAID", repr(str(said))))
    with LocalRunner(jobs=1, home=tmp_path / "home") as runner:
        assert runner.run(load(str(file))).status == "succeeded"
    inside = ["inner/b", "inner/a", "inner/b-2"]
    loops = [f"{name}-3[{number}]" for name in "ba" for number in range(3)]
    assert said.read_text().split() == ["a", "b", "a-2", *inside, "b-2", *loops, "b-4"]


@settings(max_examples=40, deadline=None)
@given(
    asks=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8),
    most=st.sampled_from(["", "parallel: 1"]),
)
def test_with_and_without_resources(tmp_path_factory, asks: list[tuple[bool, bool]], most: str) -> None:  # type: ignore[no-untyped-def]
    steps = []
    for number, (cpu, loop) in enumerate(asks):
        more = (", resources: {cpu: 1}" if cpu else "") + (LOOP if loop else "")
        steps.append(f"name: s{number}, script: {{source: 'echo {number}'}}, cache: {{enabled: false}}{more}")
    found = started(flow(tmp_path_factory.mktemp("mixed"), steps, most))
    wanted = [[f"s{n}[{i}]" for i in range(3)] if loop else [f"s{n}"] for n, (_, loop) in enumerate(asks)]
    assert found == [name for names in wanted for name in names]
