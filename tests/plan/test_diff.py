"""What changed between two plans, and what has to run again."""

from __future__ import annotations

from penstock import ContainerJob, Workflow, WorkflowParam
from penstock.plan.diff import PlanDiff, diff
from penstock.plan.make import make


def flow(image: str = "i", cpu: int = 1, last: str = "train", extra: bool = False, when: str | None = None) -> Workflow:
    a = ContainerJob("prepare", image, outputs=[WorkflowParam("x", int)], cpu=cpu)
    steps = [a, ContainerJob(last, "t", args=[a.outputs["x"]], when=when)]
    return Workflow("w", [*steps, ContainerJob("more", "m")] if extra else steps)


def compared(a: Workflow, b: Workflow) -> PlanDiff:
    return diff(make(a.graph), make(b.graph))


def test_nothing_changed() -> None:
    found = compared(flow(), flow())
    assert found.empty
    assert found.same == ("prepare", "train")


def test_a_change_runs_again_and_so_does_all_that_reads_it() -> None:
    found = compared(flow(), flow(image="j"))
    assert [change.step for change in found.changed] == ["prepare", "train"]
    assert found.changed[0].content == ("container: i → j",)
    assert found.changed[1].content == ("prepare changed",)


def test_resources_and_conditions_change_without_running_again() -> None:
    found = compared(flow(), flow(cpu=4, when="true"))
    assert [(change.step, change.content, change.other) for change in found.changed] == [
        ("prepare", (), ("cpu: 1 → 4",)),
        ("train", (), ("when: none → true",)),
    ]
    assert found.peaks == ("cpu: 1 → 4",)


def test_added_removed_and_renamed() -> None:
    assert compared(flow(), flow(extra=True)).added == ("more",)
    assert compared(flow(extra=True), flow()).removed == ("more",)
    assert compared(flow(), flow(last="fit")).renamed == (("train", "fit"),)
