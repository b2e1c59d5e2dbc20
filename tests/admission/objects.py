"""Random objects that Kueue would accept, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.admission.model import (
    UNLIMITED,
    Admission,
    Check,
    CheckRule,
    CheckState,
    ClusterQueue,
    Cohort,
    Eviction,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    Namespace,
    PodSet,
    PodSetAssignment,
    PodToleration,
    Policy,
    Preemption,
    Preference,
    PriorityClass,
    Quota,
    Requirement,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Stop,
    Strategy,
    Taint,
    WhenCan,
    Workload,
)
from penstock.admission.snapshot import usage_of

NAMES = st.sampled_from(["a", "b", "team-x", "gpu.large", "q1"])
RESOURCES = ["cpu", "memory", "nvidia.com/gpu", "pods", "hugepages-2Mi"]
AMOUNTS = st.one_of(st.integers(0, 10**6), st.integers(0, 64).map(lambda n: n * 2**30), st.just(UNLIMITED))
WEIGHTS = st.sampled_from([0.0, 0.1, 1.0, 1.5, 2.0, 1e-8, 3e10])
KEYS = st.sampled_from(["zone", "kubernetes.io/arch", "x_y.z"])
VALUES = st.sampled_from(["", "a", "A-1", "b.c_d"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=2)
TIMES = st.one_of(st.just(0.0), st.floats(1e-3, 4e9), st.integers(0, 10**9).map(float))
PRIORITIES = st.integers(-(2**31), 2**31 - 1)


@st.composite
def requirements(draw: Any, node: bool = False) -> Requirement:
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"] + ["Gt"] * node))
    values = draw(st.lists(VALUES, min_size=1, max_size=2)) if operator in ("In", "NotIn", "Gt") else []
    return Requirement(draw(KEYS), operator, tuple(values))


@st.composite
def tolerations(draw: Any) -> PodToleration:
    if draw(st.booleans()):
        return PodToleration(draw(st.sampled_from(["", "k"])), "Exists", "", draw(st.sampled_from(["", "NoExecute"])))
    return PodToleration(draw(KEYS), "Equal", draw(VALUES), draw(st.sampled_from(["", "NoSchedule"])))


@st.composite
def groups(draw: Any, parent: bool, queue: bool) -> tuple[ResourceGroup, ...]:
    resources = draw(st.lists(st.sampled_from(RESOURCES), unique=True, max_size=4))
    flavors = draw(st.lists(NAMES, unique=True, min_size=2, max_size=4))
    if not resources:
        return ()
    cut = draw(st.integers(1, len(resources)))
    parts = [(resources[:cut], flavors[:1]), (resources[cut:], flavors[1:])]

    def quota() -> Quota:
        nominal = draw(AMOUNTS)
        lending = None if not parent or draw(st.booleans()) else draw(st.integers(0, nominal) if queue else AMOUNTS)
        borrowing = draw(st.none() | AMOUNTS) if parent else None
        return Quota(nominal, borrowing, lending)

    return tuple(
        ResourceGroup(tuple(rs), tuple(FlavorQuotas(f, {r: quota() for r in rs}) for f in fs)) for rs, fs in parts if rs
    )


@st.composite
def cluster_queues(draw: Any) -> ClusterQueue:
    cohort = draw(st.none() | NAMES)
    found = draw(groups(cohort is not None, True))
    flavors = [f.flavor for g in found for f in g.flavors]
    borrow, preempt = draw(st.sampled_from(WhenCan)), draw(st.sampled_from(WhenCan))
    searched = borrow is preempt is WhenCan.NEXT
    reclaim = draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.ANY]))
    names = draw(st.lists(NAMES, unique=True, max_size=2))
    on_flavors = st.lists(st.sampled_from(flavors), unique=True).map(tuple) if flavors else st.just(())
    return ClusterQueue(
        name=draw(NAMES),
        groups=found,
        cohort=cohort,
        strategy=draw(st.sampled_from(Strategy)),
        namespaces=draw(st.none() | st.lists(requirements(), max_size=2).map(lambda rs: Selector(tuple(rs)))),
        fungibility=Fungibility(
            borrow=borrow,
            preempt=preempt,
            preference=draw(st.none() | st.sampled_from(Preference)) if searched else None,
        ),
        preemption=Preemption(
            within=draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER])),
            reclaim=reclaim,
            borrow=Policy.NEVER if reclaim is Policy.NEVER else draw(st.sampled_from([Policy.NEVER, Policy.LOWER])),
            borrow_threshold=draw(st.none() | PRIORITIES),
        ),
        weight=draw(WEIGHTS),
        checks=tuple(CheckRule(name, draw(on_flavors)) for name in names),
        stop=draw(st.sampled_from(Stop)),
        usage_based=draw(st.booleans()),
    )


@st.composite
def cohorts(draw: Any) -> Cohort:
    parent = draw(st.none() | NAMES)
    return Cohort(name="top", parent=parent, groups=draw(groups(parent is not None, False)), weight=draw(WEIGHTS))


@st.composite
def flavors(draw: Any) -> ResourceFlavor:
    effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
    taints = draw(st.lists(st.builds(Taint, KEYS, VALUES, effects), max_size=3, unique_by=lambda t: (t.key, t.effect)))
    return ResourceFlavor(
        name=draw(NAMES),
        labels=draw(LABELS),
        taints=tuple(taints),
        tolerations=tuple(draw(st.lists(tolerations(), max_size=2))),
    )


LOCAL_QUEUES = st.builds(
    LocalQueue,
    name=NAMES,
    namespace=st.sampled_from(["default", "team"]),
    cluster_queue=NAMES,
    stop=st.sampled_from(Stop),
    weight=WEIGHTS,
)


@st.composite
def podsets(draw: Any, name: str, may_vary: bool) -> PodSet:
    count = draw(st.integers(0, 20))
    asked = draw(st.dictionaries(st.sampled_from([r for r in RESOURCES if r != "pods"]), AMOUNTS, max_size=3))
    terms = st.lists(st.lists(requirements(node=True), max_size=2).map(tuple), min_size=1, max_size=2).map(tuple)
    return PodSet(
        name=name,
        count=count,
        min_count=draw(st.none() | st.integers(1, count)) if may_vary and count else None,
        requests=asked,
        selector=draw(LABELS),
        affinity=draw(st.none() | terms),
        tolerations=tuple(draw(st.lists(tolerations(), max_size=2))),
        group=draw(st.none() | st.just("g")),
    )


@st.composite
def evictions(draw: Any) -> Eviction:
    if draw(st.booleans()):
        by = draw(st.sampled_from(["", "ns/other"]))
        return Eviction("Preempted", draw(TIMES), draw(st.sampled_from(["InClusterQueue", "InCohortReclamation"])), by)
    return Eviction(draw(st.sampled_from(["PodsReadyTimeout", "DeactivatedDueToX"])), draw(TIMES))


@st.composite
def workloads(draw: Any) -> Workload:
    names = draw(st.lists(st.sampled_from(["main", "driver", "w-1"]), unique=True, min_size=1))
    sets = tuple(draw(podsets(name, at == 0)) for at, name in enumerate(names))
    checks = draw(st.dictionaries(NAMES, st.sampled_from(CheckState), max_size=2))
    found = Workload(
        name=draw(NAMES),
        namespace=draw(st.sampled_from(["default", "team"])),
        uid=draw(st.sampled_from(["", "u1"])),
        queue=draw(st.sampled_from(["", "lq"])),
        podsets=sets,
        priority=draw(PRIORITIES),
        priority_class=draw(st.none() | NAMES),
        boost=draw(st.integers(-5, 5)),
        created=draw(TIMES),
        active=draw(st.booleans()),
        gates=draw(st.frozensets(st.sampled_from(["penstock/stage", "example.com/gate"]))),
        max_seconds=draw(st.none() | st.integers(1, 10**6).map(float)),
        labels=draw(LABELS),
        unfit=draw(st.sampled_from(["", "too much, by far"])),
        reclaimable={p.name: draw(st.integers(0, p.count)) for p in sets if draw(st.booleans())},
        checks=checks,
        check_messages={name: "why" for name in checks if draw(st.booleans())},
        ready_at=draw(st.none() | TIMES),
        requeue_at=draw(st.none() | TIMES),
        requeue_count=draw(st.integers(0, 3)),
        held_back=draw(st.booleans()),
        run_seconds=float(draw(st.integers(0, 10**6))),
        finished=draw(st.booleans()),
    )
    found.was_ready = found.ready_at is not None or draw(st.booleans())
    if draw(st.booleans()):
        found.admission = Admission(draw(NAMES), tuple(_assigned(draw, p) for p in sets))
        found.held = usage_of(found.admission, found.reclaimable, sets)
        found.reserved_at = draw(TIMES)
        found.admitted_at = draw(st.none() | TIMES)
        found.eviction = draw(st.none() | evictions())
    else:
        found.last_eviction = draw(st.none() | evictions())
    return found


def _assigned(draw: Any, podset: PodSet) -> PodSetAssignment:
    count = draw(st.integers(0, podset.count))
    one = {resource: min(amount, 10**9) for resource, amount in podset.requests.items()}
    flavors = {resource: draw(NAMES) for resource in one if draw(st.booleans())}
    return PodSetAssignment(podset.name, count, flavors, {resource: amount * count for resource, amount in one.items()})


OBJECTS = st.one_of(
    cluster_queues(),
    cohorts(),
    flavors(),
    LOCAL_QUEUES,
    st.builds(PriorityClass, NAMES, PRIORITIES, st.sampled_from(["", "for the night"])),
    st.builds(Namespace, st.sampled_from(["a", "team-x"]), LABELS),
    st.builds(Check, NAMES, st.booleans()),
    workloads(),
)
