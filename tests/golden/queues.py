"""Golden cases of queues: what is admitted, what waits and why, who has to give way. Called by test_golden.

What one run does in its queue is played on the virtual clock. Where several runs meet they are real, and each waits for a file that
the case makes when its turn has come.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

from penstock import ScriptJob, Unit, Workflow, for_loop
from tests.golden.flows import by_step
from tests.golden.stage import Cases, Stage, until_there_is

cases = Cases()


def queue(name: str, cpu: int, cohort: str = "", **spec: Any) -> str:
    """A ClusterQueue and a LocalQueue of the same name, as a manifest."""
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}
    named = {"cohortName": cohort} if cohort else {}
    kinds: list[dict[str, Any]] = [
        {
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group], **named, **spec},
        },
        {"kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": name}},
    ]
    return "".join(f"---\n{json.dumps({'apiVersion': 'kueue.x-k8s.io/v1beta2', **one})}\n" for one in kinds)


def manifest(stage: Stage, *queues: str) -> str:
    """The file with all of them."""
    flavor = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: default}\n"
    return stage.write("queues.yaml", flavor + "".join(queues))


def apply(stage: Stage, *queues: str) -> None:
    stage.type("queue", "apply", manifest(stage, *queues))


def step(name: str, *needs: str, cpu: int = 1, tasks: int = 0, gang: bool = False, **options: Any) -> Any:
    if not tasks:
        return ScriptJob(name, f"do {name}", cpu=cpu, cache=False, **options).after(*needs)

    @for_loop(i=list(range(tasks)), gang=gang)
    def each(i: Any) -> ScriptJob:
        return ScriptJob(name, f"do {name} {i}", cpu=cpu, cache=False, **options).after(*needs)

    return each


# -- one run ----------------------------------------------------------------------------------------------------------------


@cases.of("queue-elastic")
def elastic(stage: Stage) -> None:
    """A loop takes what there is, and its rest follows as tasks end; a step that asks for nothing does not wait."""
    apply(stage, queue("q", 3))
    flow = Workflow("elastic", [step("a", tasks=5), step("free", cpu=0), step("b", "a", cpu=3)])
    assert stage.virtually(flow, script=by_step(a=10, b=5)).state == "succeeded"


@cases.of("queue-gangs")
def gangs(stage: Stage) -> None:
    """Replicas, a loop that starts as a whole, and steps of one group: all together or not at all."""
    apply(stage, queue("q", 4))
    steps = [
        step("pair", cpu=1, replicas=2, tasks=3),
        step("gang", tasks=3, gang=True),
        step("one", cpu=1, group="g"),
        step("two", cpu=2, group="g"),
    ]
    script = by_step(pair=10, gang=7, one=3, two=5)
    assert stage.virtually(Workflow("gangs", steps), script=script).state == "succeeded"


def units(stage: Stage, unit: str) -> None:
    apply(stage, queue("q", 7 if unit == "workflow" else 5))
    steps = [
        step("get", cpu=1),
        step("train", "get", cpu=2, tasks=3),
        step("score", "train", cpu=2, tasks=2),
        step("small", "get", cpu=1),
        step("tell", "score", cpu=0),
    ]
    script = by_step(get=2, train=10, score=4, small=7)
    assert stage.virtually(Workflow("unit", steps), script=script, unit=unit).state == "succeeded"


for one in Unit:
    when = {"reclaimable": "a whole workflow is looked at anew only so often, by the real clock"}
    loosely = {"without": when} if one is Unit.WORKFLOW else {}
    cases.of(f"unit-{one.value}", **loosely)(lambda stage, unit=one.value: units(stage, unit))  # type: ignore[misc]


@cases.of("queue-flavors")
def flavors(stage: Stage) -> None:
    """What does not fit into the first flavor goes to the second; a step that names a machine goes to its flavor alone."""
    names = ("small", "large")
    flavors = [
        f"---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\nspec: {{nodeLabels: {{size: {name}}}}}\n"
        for name in names
    ]
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": name, "resources": [{"name": "cpu", "nominalQuota": 2}]} for name in names],
    }
    apply(stage, *flavors, queue("q", 0, resourceGroups=[group]))
    steps = [
        step("one", cpu=1),
        step("two", cpu=2),
        step("named", cpu=2, node_selector={"size": "large"}),
        step("loop", "one", tasks=4),
    ]
    script = by_step(one=5, two=7, named=11, loop=3)
    assert stage.virtually(Workflow("flavors", steps), script=script).state == "succeeded"


@cases.of("queue-drain")
def drain(stage: Stage) -> None:
    """What runs is ended and stands in line again; it goes on when the queue does. Held: what runs may finish."""
    apply(stage, queue("q", 2))

    async def meanwhile() -> None:
        for seconds, words in (
            (5.1, ("drain", "q")),
            (20, ("resume", "q")),
            (5, ("drain", "q", "--hold")),
            (20, ("resume", "q")),
        ):
            await asyncio.sleep(seconds)
            stage.type("queue", *words)

    flow = Workflow("drain", [step("a", tasks=3), step("free", cpu=0), step("b", "a")])
    assert stage.virtually(flow, script=by_step(a=10, b=5), meanwhile=meanwhile).state == "succeeded"


@cases.of("queue-and-failures")
def failures(stage: Stage) -> None:
    """Tries, time limits and cancelling give quota back, and stand in line again."""
    apply(stage, queue("q", 2))
    steps = [
        step("flaky", cpu=1, retry=2),
        step("slow", cpu=1, timeout=10),
        step("behind", "slow", cpu=2),
        step("wide", cpu=2),
    ]
    script = by_step(flaky=lambda order: (3, RuntimeError("no")) if order.attempt < 3 else 3, slow=1000, wide=4)
    stage.virtually(Workflow("failures", steps), script=script)


# -- several runs -----------------------------------------------------------------------------------------------------------


def waits(name: str, go: str, *needs: str, cpu: int = 1, tasks: int = 0, **options: Any) -> Any:
    """Runs until there is a file; one for each task, if there are several."""
    if not tasks:
        return ScriptJob(name, until_there_is(go), cpu=cpu, cache=False, **options).after(*needs)

    @for_loop(i=list(range(tasks)))
    def each(i: Any) -> ScriptJob:
        return ScriptJob(name, until_there_is(f"{go}-{i}"), cpu=cpu, cache=False, **options).after(*needs)

    return each


@cases.of("queue-waiting")
def waiting(stage: Stage) -> None:
    """Three runs, one place: who came first goes first, unless somebody is more important; nobody is stopped."""
    with stage.engine(jobs=8, queues=manifest(stage, queue("q", 2))) as submit:
        first = submit(Workflow("first", [waits("a", "go-a", cpu=2), waits("b", "go-b", "a", cpu=2)], queue="q"))
        stage.until_state(first.id, "a", "running")
        second = submit(Workflow("second", [waits("c", "go-c", cpu=2)], queue="q"))
        stage.until_event(second.id, "reservation.waiting")
        third = submit(Workflow("third", [waits("d", "go-d", cpu=2)], queue="q", priority=5))
        stage.until_event(third.id, "reservation.waiting")
        stage.look("two wait")
        stage.open("go-a")
        stage.until_state(third.id, "d", "running")
        stage.look("the important one first")
        stage.open("go-d")
        stage.ends(third)
        stage.until_state(first.id, "b", "running")
        stage.open("go-b")
        stage.ends(first)
        stage.until_state(second.id, "c", "running")
        stage.open("go-c")
        stage.ends(second)


@cases.of("queue-whole")
def whole(stage: Stage) -> None:
    """One reservation for a whole run gives back what its rest does not need: who waits for that need not wait for the end."""
    with stage.engine(jobs=8, queues=manifest(stage, queue("q", 5))) as submit:
        steps = [waits("wide", "go-wide", cpu=4), waits("narrow", "go-narrow", "wide", cpu=1)]
        first = submit(Workflow("first", steps, queue="q", unit="workflow"))
        stage.until_state(first.id, "wide", "running")
        second = submit(Workflow("second", [waits("other", "go-other", cpu=4)], queue="q"))
        stage.until_event(second.id, "reservation.waiting")
        stage.open("go-wide")
        stage.until_state(first.id, "narrow", "running")
        stage.until_state(second.id, "other", "running")
        stage.look("both run")
        stage.open("go-narrow")
        stage.ends(first)
        stage.open("go-other")
        stage.ends(second)


@cases.of("queue-preemption")
def preemption(stage: Stage) -> None:
    """Somebody more important comes: who runs is stopped without having failed, stands in line again, and starts anew."""
    queues = manifest(stage, queue("q", 2, preemption={"withinClusterQueue": "LowerPriority"}))
    with stage.engine(jobs=8, queues=queues) as submit:
        low = submit(Workflow("low", [waits("a", "go-a", tasks=2), waits("b", "go-b", "a")], queue="q", priority=1))
        stage.until_state(low.id, "a[1]", "running")
        stage.open("go-a-0")
        stage.until_state(low.id, "a[0]", "succeeded")
        high = submit(Workflow("high", [waits("c", "go-c", cpu=2)], queue="q", priority=9))
        stage.until_state(high.id, "c", "running")
        stage.look("the low one has given way")
        stage.open("go-c")
        stage.ends(high)
        stage.until_state(low.id, "a[1]", "running")
        stage.open("go-a-1")
        stage.until_state(low.id, "b", "running")
        stage.open("go-b")
        stage.ends(low)


@cases.of("queue-borrowing")
def borrowing(stage: Stage) -> None:
    """One queue borrows what another does not use; the owner wants it back, and gets it; the guest goes on later."""
    mine = queue("mine", 2, "all", preemption={"reclaimWithinCohort": "Any"})
    with stage.engine(jobs=8, queues=manifest(stage, mine, queue("yours", 2, "all"))) as submit:
        own = submit(Workflow("own", [waits("a", "go-a", cpu=2)], queue="yours"))
        stage.until_state(own.id, "a", "running")
        guest = submit(Workflow("guest", [waits("b", "go-b", tasks=3)], queue="yours"))
        stage.until_state(guest.id, "b[1]", "running")
        stage.open("go-b-0")
        stage.until_state(guest.id, "b[2]", "running")
        stage.open("go-b-1")
        stage.until_state(guest.id, "b[1]", "succeeded")
        stage.look("three of two")
        owner = submit(Workflow("owner", [waits("c", "go-c", cpu=2)], queue="mine"))
        stage.until_state(owner.id, "c", "running")
        stage.look("the owner has its own")
        stage.open("go-a")
        stage.until_state(guest.id, "b[2]", "running")
        stage.open("go-b-2")
        stage.ends(own)
        stage.ends(guest)
        stage.open("go-c")
        stage.ends(owner)


@cases.of("queue-between-engines")
def between_engines(stage: Stage) -> None:
    """Two terminals, one queue: the second waits for the first, and what a dead engine held is free."""
    queues = manifest(stage, queue("q", 2))
    stage.write("flow.yaml", Workflow("first", [waits("a", "go-a", cpu=2)], queue="q").to_yaml())
    first = stage.begin("run", "flow.yaml", "-q", "-j", "8", "--queues", queues)
    stage.until_state("first-1", "a", "running")
    with stage.engine(jobs=8) as submit:
        second = submit(Workflow("second", [waits("b", "go-b", cpu=2)], queue="q"))
        stage.until_event(second.id, "reservation.waiting")
        stage.look("the second waits")
        first.kill()
        stage.until_state(second.id, "b", "running")
        stage.look("the first is dead")
        stage.open("go-b")
        stage.ends(second)
    stage.open("go-a")
    stage.type("resume", "first-1", "-q", "-j", "8")


@cases.of("queue-interrupt")
def interrupted(stage: Stage) -> None:
    """Ctrl-C while some run and the rest stands in line: it leaves the line, and stands in it again when the run goes on."""
    queues = manifest(stage, queue("q", 1))
    stage.write(
        "flow.yaml", Workflow("flow", [waits("a", "go", tasks=3), waits("b", "go-b", "a")], queue="q").to_yaml()
    )
    run = stage.begin("run", "flow.yaml", "-j", "8", "--queues", queues)
    stage.until_state("flow-1", "a[0]", "running")
    stage.look("one runs, two wait")
    run.signal(signal.SIGINT)
    stage.until("it says so", lambda: "stopping: waiting for 1 running task" in run.text)
    stage.open("go-0")
    run.ends(130)
    stage.look("stopped")
    stage.open("go-1", "go-2", "go-b")
    stage.type("resume", "flow-1", "-q", "-j", "8")
