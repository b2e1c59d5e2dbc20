"""Queues as an administrator makes them, and what a workflow meets in them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.admission.model import Stop
from penstock.admission.scheduler import Scheduler
from penstock.errors import NotFound, PlanError, UserError
from penstock.graph.model import Edge, ForEach, Placement, Script, Step, Unit, Workflow
from penstock.plan.make import make
from penstock.service.feasibility import vet
from penstock.service.machine import capacity
from penstock.service.queues import apply, delete, delete_all, from_file, replica_of, set_stop
from penstock.service.views.outlook import outlook
from penstock.service.workflows import override
from penstock.store.sql import Store
from tests.service.lines import FLAVOR, TWO_TEAMS, Lines, cluster_queue, local_queue, manifest, priority


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    found = Lines(tmp_path / ".penstock")
    yield found
    found.close()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Store]:
    found = Lines(tmp_path / ".penstock", "")
    yield found.store
    found.close()


def step(name: str, cpu: float = 1, tasks: int = 0, **fields: Any) -> Step:
    each = ForEach(axes=({"i": tuple(range(tasks))},), gang=fields.pop("gang", False)) if tasks else None
    needs = tuple(Edge(up) for up in fields.pop("after", ()))
    fields.setdefault("resources", {"cpu": int(cpu * 1000)} if cpu else {})
    return Step(name=name, action=Script(source="true"), each=each, needs=needs, **fields)


def flow(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="w", steps=steps, **fields)


def codes(error: UserError) -> list[str]:
    return [problem.code for problem in error.problems]


def objects(store: Store) -> dict[tuple[str, str], Any]:
    return {(kind, name): json.loads(text) for kind, name, _, text in store.queues.queue_objects() if text is not None}


# -- making queues ----------------------------------------------------------------------------------------------------


def test_what_is_applied_is_there_and_can_be_changed(bare: Store) -> None:
    done, warnings = apply(bare, (TWO_TEAMS, "queues.yaml"))
    assert ("ClusterQueue", "shared") in done and ("LocalQueue", "default/team-a") in done and not warnings
    apply(bare, (manifest(cluster_queue("shared", 8)), "more.yaml"))
    node = replica_of(bare.queues).scheduler.tree.queues["shared"]
    assert [quota.nominal for quota in node.quotas.values()] == [8000]


def test_of_several_files_all_are_applied_or_none(bare: Store) -> None:
    with pytest.raises(UserError) as refused:
        apply(bare, (TWO_TEAMS, "a.yaml"), ("kind: Queue", "b.yaml"), (manifest(cluster_queue("x", "lots")), "c.yaml"))
    assert len(refused.value.problems) == 2
    assert objects(bare) == {}


def test_what_one_file_lacks_another_may_have(bare: Store) -> None:
    _, warnings = apply(bare, (manifest(cluster_queue("shared")), "a.yaml"), (manifest(FLAVOR), "b.yaml"))
    assert not warnings
    _, warnings = apply(bare, (manifest(local_queue("team-c", "nowhere")), "c.yaml"))
    assert [problem.code for problem in warnings] == ["P807"]


def test_a_workload_in_a_file_and_a_queue_that_moves_are_refused(lines: Lines) -> None:
    podset = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    workload = {"kind": "Workload", "metadata": {"name": "x", "namespace": "default"}, "spec": {"podSets": [podset]}}
    with pytest.raises(UserError) as refused:
        apply(lines.store, (manifest(workload), "w.yaml"))
    assert codes(refused.value) == ["P816"]
    with pytest.raises(UserError) as refused:
        apply(lines.store, (manifest(cluster_queue("other"), local_queue("team-a", "other")), "w.yaml"))
    assert codes(refused.value) == ["P806"]
    assert ("ClusterQueue", "other") not in objects(lines.store)


def test_a_check_that_nobody_answers_is_worth_a_word(bare: Store) -> None:
    check = {"kind": "AdmissionCheck", "metadata": {"name": "budget"}, "spec": {"controllerName": "x.io/y"}}
    done, warnings = apply(bare, (manifest(check), "c.yaml"))
    assert done == [("AdmissionCheck", "budget")] and [problem.code for problem in warnings] == ["P819"]


def test_a_queue_without_a_selector_takes_nothing_which_is_said_when_it_is_made_planned_and_run(bare: Store) -> None:
    shut = cluster_queue("shut")
    del shut["spec"]["namespaceSelector"]
    _, warnings = apply(bare, (manifest(FLAVOR, shut), "q.yaml"))
    assert [(problem.code, problem.severity) for problem in warnings] == [("P819", "warning")]
    workflow = flow(step("a"))
    assert verdicts(workflow, bare)["a"] == "never fits: ClusterQueue 'shut' admits nothing from namespace 'default'"
    with pytest.raises(PlanError) as refused:
        vet(replica_of(bare.queues), make(workflow))
    assert codes(refused.value) == ["P819"]


def test_the_file_of_a_run_is_applied_when_it_has_changed_and_undoes_nothing_else(bare: Store, tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    assert from_file(bare, None, tmp_path) == ()
    file.write_text(TWO_TEAMS)
    from_file(bare, None, tmp_path)
    set_stop(bare, "shared", Stop.HOLD)
    from_file(bare, None, tmp_path)
    assert objects(bare)["ClusterQueue", "shared"]["spec"]["stopPolicy"] == "Hold", "nobody has touched the file"
    file.write_text(TWO_TEAMS + manifest(priority("low", -1)))
    from_file(bare, None, tmp_path)
    assert "stopPolicy" not in objects(bare)["ClusterQueue", "shared"]["spec"], "the file has changed, and says so"
    delete_all(bare)
    from_file(bare, file)
    assert ("ClusterQueue", "shared") in objects(bare), "without any queue it cannot be meant to be left out"
    with pytest.raises(UserError) as refused:
        from_file(bare, tmp_path / "nope.yaml")
    assert codes(refused.value) == ["P817"]


def test_a_queue_is_stopped_by_its_name_and_goes_on(lines: Lines) -> None:
    assert set_stop(lines.store, "shared", Stop.DRAIN) == "ClusterQueue shared"
    assert objects(lines.store)["ClusterQueue", "shared"]["spec"]["stopPolicy"] == "HoldAndDrain"
    set_stop(lines.store, "shared", Stop.NONE)
    assert "stopPolicy" not in objects(lines.store)["ClusterQueue", "shared"]["spec"]
    assert set_stop(lines.store, "default/team-a", Stop.HOLD) == "LocalQueue default/team-a"
    with pytest.raises(NotFound, match='Did you mean "team-b"'):
        set_stop(lines.store, "team-bb", Stop.HOLD)


def test_a_name_that_two_queues_have_must_be_said_in_full(lines: Lines) -> None:
    apply(lines.store, (manifest(local_queue("team-a", "shared", "research")), "more.yaml"))
    with pytest.raises(UserError, match="default/team-a, research/team-a"):
        set_stop(lines.store, "team-a", Stop.HOLD)
    assert set_stop(lines.store, "research/team-a", Stop.HOLD) == "LocalQueue research/team-a"


def test_deleting_takes_a_queue_or_any_object_by_its_kind_and_nothing_else_of_the_name(bare: Store) -> None:
    apply(bare, (manifest(FLAVOR, cluster_queue("shared"), local_queue("default", "shared")), "q.yaml"))
    assert delete(bare, ["default"]) == [("LocalQueue", "default/default")], "not the flavor of that name"
    assert ("ResourceFlavor", "default") in objects(bare)
    with pytest.raises(NotFound, match="ResourceFlavor/default"):
        delete(bare, ["shared", "resourceflavor/defalt"])
    assert ("ClusterQueue", "shared") in objects(bare), "all or none"
    delete(bare, ["shared", "resourceflavor/default"])
    assert objects(bare) == {} and not replica_of(bare.queues).configured


def test_without_queues_there_is_this_machine(bare: Store) -> None:
    found = capacity()
    assert found["cpu"] >= 1 and found["memory"] > 2**20
    replica = replica_of(bare.queues)
    assert not replica.configured and list(replica.scheduler.cluster_queues) == ["machine"]
    with pytest.raises(UserError):
        set_stop(bare, "machine", Stop.HOLD)


# -- what a workflow may ask for --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workflow", "code", "said"),
    [
        (flow(step("a"), queue="team-c"), "P812", 'Did you mean "team-'),
        (flow(step("a"), queue="team-a", priority="hihg"), "P814", 'Did you mean "high"'),
        (flow(step("a", queue="team-a"), step("b", queue="other"), unit=Unit.WORKFLOW), "P815", "--unit stage"),
        (flow(step("a", cpu=2.5), queue="team-a"), "P818", "2,500m|2.5 cpu"),
        (flow(step("a", cpu=1, replicas=3), queue="team-a"), "P818", "3 cpu"),
        (flow(step("a", tasks=3, gang=True), queue="team-a"), "P818", "3 cpu"),
        (flow(step("a", tasks=3), queue="team-a", unit=Unit.WORKFLOW), "P818", "the whole workflow asks for 3 cpu"),
        (flow(step("a", resources={"memory": 2**40 * 1000}), queue="team-a"), "P818", "has none"),
    ],
)
def test_what_could_never_start_is_refused(lines: Lines, workflow: Workflow, code: str, said: str) -> None:
    apply(lines.store, (manifest(cluster_queue("other")), "o.yaml"))
    with pytest.raises(PlanError, match=said) as refused:
        vet(replica_of(lines.store.queues), make(workflow))
    assert codes(refused.value) == [code]


def test_where_several_queues_are_one_must_be_named_unless_one_is_called_default(lines: Lines) -> None:
    apply(lines.store, (manifest(cluster_queue("other")), "o.yaml"))
    plan = make(flow(step("a")))
    with pytest.raises(PlanError) as refused:
        vet(replica_of(lines.store.queues), plan)
    assert codes(refused.value) == ["P813"]
    vet(replica_of(lines.store.queues), make(flow(step("a", cpu=0))))
    apply(lines.store, (manifest(local_queue("default", "other")), "o.yaml"))
    vet(replica_of(lines.store.queues), plan)


def test_what_fits_in_part_or_is_never_queued_is_not_refused(lines: Lines) -> None:
    big = step("big", cpu=64)
    workflow = flow(step("loop", tasks=100), queue="shared", on_exit=(big,))
    vet(replica_of(lines.store.queues), make(workflow))
    never = dataclasses.replace(big, when=None, each=ForEach(axes=({"i": ()},)))
    vet(replica_of(lines.store.queues), make(flow(never, queue="shared")))


def test_without_queues_every_name_means_this_machine_and_a_name_given_by_hand_is_worth_a_word(bare: Store) -> None:
    plan = make(flow(step("a", cpu=0.1), queue="team-a", priority="high"))
    assert vet(replica_of(bare.queues), plan) == ()
    assert [problem.severity for problem in vet(replica_of(bare.queues), plan, "team-a")] == ["warning"]
    with pytest.raises(PlanError, match="this machine has"):
        vet(replica_of(bare.queues), make(flow(step("a", cpu=100_000))))


def test_thousands_of_steps_are_looked_at_once_for_each_kind(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    real = Scheduler.fits_ever
    monkeypatch.setattr(Scheduler, "fits_ever", lambda *args: looked.append(args) or real(*args))
    steps = [step(f"s{i}", cpu=1 + i % 3) for i in range(3000)]
    with pytest.raises(PlanError) as refused:
        vet(replica_of(lines.store.queues), make(flow(*steps, queue="shared")))
    assert len(looked) == 3
    assert len(refused.value.problems) == 10 and "and 990 more like it" in refused.value.problems[-1].message


def test_what_is_said_on_the_command_line_stands_in_for_what_the_workflow_says() -> None:
    workflow = flow(step("a"), queue="x", priority=1)
    changed = override(workflow, "y", "-5", "reuse")
    assert (changed.queue, changed.priority, changed.unit) == ("y", -5, Unit.REUSE)
    assert override(workflow, None, "high", None).priority == "high"
    assert override(workflow, None, None, None) is workflow
    with pytest.raises(PlanError, match='Did you mean "stage"'):
        override(workflow, None, None, "stages")


# -- what it would meet now -------------------------------------------------------------------------------------------


def verdicts(workflow: Workflow, store: Store | None, **options: Any) -> dict[str, str]:
    return {name: found.text() for name, found in outlook(make(workflow), store, **options).items()}


def test_a_plan_says_what_fits_what_fits_in_part_what_waits_and_what_never_fits(lines: Lines) -> None:
    first = lines.run(flow(step("x")))
    lines.ask(first, "x", cpu=1)
    before = (lines.store.queues.last_decision(), lines.store.queues.workloads())
    workflow = flow(
        step("one"),
        step("loop", tasks=8),
        step("gang", tasks=2, gang=True),
        step("huge", cpu=9),
        step("lost", queue="nowhere"),
        queue="team-b",
    )
    found = verdicts(workflow, lines.store)
    assert found["one"] == "fits now"
    assert found["loop"] == "1 of 8 fit now"
    assert found["gang"] == "waits: 1 cpu short"
    assert found["huge"] == "never fits: it asks for 9 cpu, and the queue can have 2 at most"
    assert found["lost"] == "there is no queue 'nowhere'"
    assert (lines.store.queues.last_decision(), lines.store.queues.workloads()) == before, "nothing was written"
    first.close()


def test_a_plan_says_how_many_stand_before_it_and_whom_it_would_stop(lines: Lines) -> None:
    preempting = {"withinClusterQueue": "LowerPriority"}
    apply(
        lines.store, (manifest(cluster_queue("strict", 2, queueingStrategy="StrictFIFO", preemption=preempting)), "s")
    )
    runs = [lines.run(flow(step("x"))) for _ in range(3)]
    for run in runs:
        lines.ask(run, "x", cpu=2, queue="strict")
    assert verdicts(flow(step("a"), queue="strict"), lines.store) == {"a": "waits behind 2: 1 cpu short"}
    urgent = outlook(make(flow(step("a"), queue="strict", priority="high")), lines.store)["a"]
    assert urgent.text() == "fits now, preempting w-1/x" and urgent.as_data()["stopped"] == ["default/w-1/x"]
    set_stop(lines.store, "strict", Stop.HOLD)
    assert "stopped" in verdicts(flow(step("a"), queue="strict"), lines.store)["a"]
    for run in runs:
        run.close()


def test_a_plan_goes_by_the_file_that_a_run_would_apply_and_needs_no_store(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert verdicts(flow(step("a", cpu=0.1)), None) == {"a": "fits now"}
    (tmp_path / "penstock.yaml").write_text(TWO_TEAMS)
    assert "never fits" in verdicts(flow(step("a", cpu=3), queue="team-a"), None)["a"]
    (tmp_path / "more.yaml").write_text(manifest(FLAVOR, cluster_queue("shared", 4)))
    assert verdicts(flow(step("a", cpu=3)), None, queues="more.yaml") == {"a": "fits now"}
    assert not (tmp_path / ".penstock").exists()
    with pytest.raises(UserError):
        outlook(make(flow(step("a"))), None, "nope.yaml")


def test_a_plan_whose_flavors_do_not_go_with_its_placement_never_fits(bare: Store) -> None:
    taint = {**FLAVOR, "spec": {"nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]}}
    apply(bare, (manifest(taint, cluster_queue("shared")), "q.yaml"))
    workflow = flow(step("a", placement=Placement(node_selector={"zone": "x"})))
    assert "spot=true:NoSchedule" in verdicts(workflow, bare)["a"]
    with pytest.raises(PlanError, match="the taints of flavor default do not match a"):
        vet(replica_of(bare.queues), make(workflow))
