"""The four cuts of one workflow."""

from __future__ import annotations

from hypothesis import given, settings

from penstock import ContainerJob, Toleration, Workflow, WorkflowParam, for_loop
from penstock.graph.model import Unit
from penstock.graph.model import Workflow as Graph
from penstock.plan.make import make
from tests.plan.graphs import workflows


def cut(workflow: Workflow, unit: str) -> list[tuple[str, dict[str, int], tuple[str, ...]]]:
    return [(each.name, each.peak, each.stages) for each in make(workflow.graph, unit=unit).reservations]


def line(*cpus: int, image: str = "i") -> list[ContainerJob]:
    jobs = [ContainerJob(f"s{i}", image, cpu=cpu) for i, cpu in enumerate(cpus)]
    for before, after in zip(jobs, jobs[1:], strict=False):
        after.after(before)
    return jobs


def test_workflow_is_one_reservation_of_the_peak() -> None:
    plan = make(Workflow("w", line(1, 8, 2)).graph, unit="workflow")
    assert [(each.name, each.peak, dict(each.total or {})) for each in plan.reservations] == [
        ("workflow", {"cpu": 8000}, {"cpu": 11000})
    ]


def test_stage_is_one_for_each_that_needs_something() -> None:
    jobs = [*line(1, 8), ContainerJob("free", "i")]
    assert cut(Workflow("w", jobs), "stage") == [("s0", {"cpu": 1000}, ("s0",)), ("s1", {"cpu": 8000}, ("s1",))]


def test_task_is_one_for_each_task_and_a_gang_is_one_task() -> None:
    @for_loop(x=[1, 2, 3])
    def work(x: int) -> ContainerJob:
        return ContainerJob("work", "i", args=[x], cpu=2, replicas=4)

    (reservation,) = make(Workflow("w", [work]).graph, unit="task").reservations
    assert (reservation.peak, reservation.count.count) == ({"cpu": 8000}, 3)


def test_reuse_lets_a_stage_take_over_the_machines_of_the_one_before() -> None:
    assert cut(Workflow("w", line(4, 4, 2, 2, 4)), "reuse") == [
        ("s0", {"cpu": 4000}, ("s0", "s1")),
        ("s2", {"cpu": 2000}, ("s2", "s3")),
        ("s4", {"cpu": 4000}, ("s4",)),
    ]


def test_reuse_does_not_hold_machines_idle_for_a_second_dependency() -> None:
    a, b = ContainerJob("a", "i", cpu=4), ContainerJob("b", "i", cpu=1)
    c = ContainerJob("c", "i", cpu=4).after(a, b)
    assert [stages for _, _, stages in cut(Workflow("w", [a, b, c]), "reuse")] == [("a",), ("b",), ("c",)]


def test_reuse_sees_that_a_second_dependency_ended_before() -> None:
    a = ContainerJob("a", "i", cpu=4)
    b = ContainerJob("b", "i", cpu=4).after(a)
    c = ContainerJob("c", "i", cpu=4).after(a, b)
    assert [stages for _, _, stages in cut(Workflow("w", [a, b, c]), "reuse")] == [("a", "b", "c")]


def test_reuse_gives_the_machines_to_one_heir_only() -> None:
    a = ContainerJob("a", "i", cpu=4)
    b, c = ContainerJob("b", "i", cpu=4).after(a), ContainerJob("c", "i", cpu=4).after(a)
    assert [stages for _, _, stages in cut(Workflow("w", [a, b, c]), "reuse")] == [("a", "b"), ("c",)]


def test_reuse_keeps_to_the_same_kind_of_machine_and_the_same_queue() -> None:
    a = ContainerJob("a", "i", cpu=4)
    b = ContainerJob("b", "i", cpu=4, node_selector={"zone": "x"}).after(a)
    c = ContainerJob("c", "i", cpu=4, node_selector={"zone": "x"}, queue="other").after(b)
    assert len(cut(Workflow("w", [a, b, c]), "reuse")) == 3


def test_machines_of_different_kinds_are_held_apart() -> None:
    a = ContainerJob("a", "i", cpu=4, tolerations=[Toleration(key="spot", operator="Exists")])
    b = ContainerJob("b", "i", cpu=8).after(a)
    (reservation,) = make(Workflow("w", [a, b]).graph, unit="workflow").reservations
    assert sorted(pool.amounts["cpu"] for pool in reservation.pools) == [4000, 8000]
    assert reservation.peak == {"cpu": 12000}


def test_an_unknown_size_is_not_pretended() -> None:
    a = ContainerJob("a", "i", outputs=[WorkflowParam("xs", list[int])])

    @for_loop(x=a.outputs["xs"])
    def work(x: int) -> ContainerJob:
        return ContainerJob("work", "i", args=[x], cpu=1)

    for unit in Unit:
        (reservation,) = make(Workflow("w", [a, work]).graph, unit=unit).reservations
        assert (reservation.known, bool(reservation.why)) == (False, True)


@settings(max_examples=200, deadline=None)
@given(workflows())
def test_every_stage_that_needs_something_is_in_exactly_one_reservation(workflow: Graph) -> None:
    for unit in (Unit.WORKFLOW, Unit.STAGE, Unit.REUSE):
        plan = make(workflow, unit=unit)
        wanted = [stage.name for stage in plan.stages if stage.demand() and not stage.exempt and not stage.skipped]
        assert sorted(name for each in plan.reservations for name in each.stages) == sorted(wanted)


@settings(max_examples=100, deadline=None)
@given(workflows())
def test_the_whole_never_needs_more_than_its_parts_together(workflow: Graph) -> None:
    plan = make(workflow, unit="workflow")
    for reservation in plan.reservations:
        assert all(amount <= (reservation.total or {})[resource] for resource, amount in reservation.peak.items())
    for resource, peak in plan.peaks.items():
        assert (
            max(
                (stage.demand().get(resource, 0) for stage in plan.stages if not stage.exempt and not stage.skipped),
                default=0,
            )
            <= peak.amount
        )
