"""YuniKorn's queue configuration: read strictly, validated as YuniKorn does, written as Kueue's objects and back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.admission.manifests.read import manifest
from penstock.admission.model import ClusterQueue, Cohort, LocalQueue
from penstock.errors import DocumentError, Problem
from penstock.formats.documents import Document, read_text
from penstock.formats.yaml_writer import dump, dump_all
from penstock.scheduling.queues import access, to_kueue
from penstock.scheduling.queues.check import check
from penstock.scheduling.queues.from_kueue import from_kueue
from penstock.scheduling.queues.model import Partition, Queue, full_name
from penstock.scheduling.queues.read import amount, inside, read
from tests.scheduling.samples import places

Data = dict[str, Any]


def config(*queues: Data, **partition: Any) -> Document:
    root = {"name": "root", "submitacl": "*", "queues": list(queues)}
    return Document({"partitions": [{"name": "default", "queues": [root], **partition}]}, "queues.yaml")


def queue(name: str, *queues: Data, guaranteed: Data | None = None, most: Data | None = None, **more: Any) -> Data:
    resources = {key: value for key, value in (("guaranteed", guaranteed), ("max", most)) if value}
    return {
        "name": name,
        **({"resources": resources} if resources else {}),
        **({"queues": list(queues)} if queues else {}),
        **more,
    }


def problems(document: Document) -> list[Problem]:
    try:
        return check(read(document), inside(document))
    except DocumentError as error:
        return list(error.problems)


def errors(document: Document) -> list[str]:
    found = [one for one in problems(document) if one.severity == "error"]
    assert all(one.code == "P824" and one.fix for one in found)
    return [one.message for one in found]


GOOD = config(
    queue(
        "lab",
        queue(
            "ray",
            guaranteed={"vcore": 4},
            most={"vcore": 20},
            limits=[{"users": ["sue"], "maxresources": {"vcore": 8}}],
        ),
        queue("Spark_jobs", properties={"preemption.policy": "disabled"}),
        guaranteed={"vcore": 10, "memory": "20Gi"},
        most={"vcore": 40, "memory": "100Gi"},
    ),
    queue("other", most={"vcore": "500m"}),
)


# -- reading and validation -------------------------------------------------------------------------------------------


def test_a_configuration_is_read_with_its_defaults() -> None:
    partition = read(GOOD)
    assert errors(GOOD) == []
    names = [full_name(line) for line in partition.root.walk()]
    assert names == ["root", "root.lab", "root.lab.ray", "root.lab.spark_jobs", "root.other"]
    (_, lab, ray) = partition.root.find("root.Lab.RAY")
    assert lab.parent and not ray.parent and dict(ray.most) == {"cpu": 20000}
    assert dict(partition.root.queues[1].most) == {"cpu": 500}
    without_root = Document({"partitions": [{"name": "default", "queues": [queue("a"), queue("b")]}]})
    assert [one.name for one in read(without_root).root.queues] == ["a", "b"]


def test_it_may_be_in_the_config_map() -> None:
    found = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "yunikorn-configs"},
        "data": {"queues.yaml": dump(GOOD.data)},
    }
    assert read(Document(found)).root.find("root.lab.ray")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("vcore", "10", 10000), ("vcore", "500m", 500), ("vcore", 2, 2000), ("memory", "1Gi", 2**30 * 1000), ("memory", "5 G", 5 * 10**12),
        ("memory", "1m", None), ("vcore", "1.5", None), ("memory", "-1", None), ("memory", "1K", None), ("memory", "1mi", None),
        ("memory", "x", None), ("memory", True, None), ("memory", "99999999999Ei", None), ("pods", "3", 3000),
    ],
)  # fmt: skip
def test_amounts_as_yunikorn_reads_them(name: str, text: Any, found: int | None) -> None:
    if found is None:
        with pytest.raises(ValueError):
            amount(name, text)
    else:
        assert amount(name, text) == found


LIMIT = {"users": ["sue"], "maxresources": {"vcore": 2}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (config(queue("a", quota=1)), "no field 'quota'"),
        (Document({"partitions": [{"name": "gpu", "queues": []}]}), "no partition `default`"),
        (Document({"partitions": [{"name": "default"}]}), "no queues"),
        (Document({"partitions": [{"queues": [queue("root", most={"vcore": 1})]}]}), "the root queue has resources"),
        (config(queue("a.b")), "no name of a queue"),
        (config(queue("a"), queue("A")), "two queues 'a'"),
        (config(queue("a", guaranteed={"vcore": 4}, most={"vcore": 2})), "is guaranteed 4 cpu, and has at most 2 cpu"),
        (
            config(queue("a", queue("b", most={"vcore": 9}), most={"vcore": 2})),
            "has at most 9 cpu, and the queues above it 2",
        ),
        (config(queue("a", queue("b", queue("c", most={"vcore": 9})), most={"vcore": 2})), "the queues above it 2 cpu"),
        (
            config(
                queue(
                    "a",
                    queue("b", guaranteed={"vcore": 2}),
                    queue("c", guaranteed={"vcore": 2}),
                    guaranteed={"vcore": 3},
                )
            ),
            "together",
        ),
        (
            config(queue("a", queue("b", guaranteed={"vcore": 4}), most={"vcore": 3})),
            "guaranteed 4 cpu together, and it has at most 3",
        ),
        (config(queue("a", resources={"max": {"cpu": 1}})), "calls it vcore"),
        (config(queue("a", queue("b"), maxapplications=2)), "must have it too"),
        (config(queue("a", queue("b", maxapplications=3), maxapplications=2)), "may have 3 applications"),
        (config(queue("a", limits=[{"maxresources": {"vcore": 1}}])), "the limit is for nobody"),
        (config(queue("a", limits=[{"users": ["sue"]}])), "limits nothing"),
        (config(queue("a", limits=[{"users": ["sue"], "maxresources": {"vcore": 0}}])), "allows nothing"),
        (config(queue("a", limits=[LIMIT, LIMIT])), "two limits for the user 'sue'"),
        (config(queue("a", limits=[{**LIMIT, "users": ["*"]}, LIMIT])), "stands after `*`"),
        (config(queue("a", limits=[{**LIMIT, "users": [], "groups": ["*"]}])), "needs one for a named group"),
        (config(queue("a", limits=[{**LIMIT, "users": ["1sue"]}])), "no name of a user"),
        (config(queue("a", most={"vcore": 1}, limits=[LIMIT])), "is higher than root.a has"),
        (
            config(queue("a", maxapplications=1, limits=[{"users": ["sue"], "maxapplications": 2}])),
            "is higher than that of root.a",
        ),
        (
            config(queue("a", queue("b", limits=[{**LIMIT, "maxresources": {"vcore": 3}}]), limits=[LIMIT])),
            "may have 3 cpu in b, and above it 2",
        ),
        (
            config(queue("a", queue("b", limits=[LIMIT]), limits=[{"users": ["*"], "maxresources": {"vcore": 1}}])),
            "may have 2 cpu in b",
        ),
        (
            config(queue("a", queue("b", limits=[LIMIT]), limits=[{"users": ["sue"], "maxapplications": 2}])),
            "may have any number of applications in b, and above it 2",
        ),
        (config(queue("a", submitacl="sue  lab")), "more than one space"),
        (config(placementrules=[{"name": "fixed", "value": "a"}]), "which does not exist"),
        (config(queue("a"), placementrules=[{"name": "fixed", "value": "a.b", "create": True}]), "can have no queues"),
        (
            config(queue("a"), placementrules=[{"name": "user", "parent": {"name": "fixed", "value": "a"}}]),
            "is a leaf, and the rule",
        ),
        (config(queue("a", queue("b")), placementrules=[{"name": "fixed", "value": "root.a"}]), "is a parent"),
        (config(placementrules=[{"name": "user", "filter": {"type": "maybe"}}]), "no type of filter"),
        (config(placementrules=[{"name": "user", "filter": {"users": ["("]}}]), "neither a name nor a pattern"),
        (config(nodesortpolicy={"type": "random"}), "no order of nodes"),
        (Document({"partitions": [{"queues": [queue("a")], "limits": [LIMIT]}, {"queues": []}]}), "two partitions"),
    ],
)
def test_what_yunikorn_refuses(document: Document, said: str) -> None:
    found = errors(document)
    assert any(said in message for message in found), found


def test_what_yunikorn_takes() -> None:
    limits = [
        {"groups": ["lab"], "maxapplications": 2},
        {"users": ["*"], "groups": ["*"], "maxresources": {"vcore": 2}},
    ]
    rules = [
        {"name": "provided"},
        {
            "name": "user",
            "create": True,
            "parent": {"name": "fixed", "value": "people"},
            "filter": {"users": [".*@lab"]},
        },
        {"name": "tag", "value": "namespace", "create": True},
    ]
    found = config(
        queue("a", limits=limits),
        queue("people", parent=True),
        placementrules=rules,
        nodesortpolicy={"type": "binpacking"},
    )
    assert errors(found) == []


def test_what_yunikorn_ignores_without_a_word_is_a_warning() -> None:
    found = problems(config(queue("a", submitacl="system:serviceaccount:ns:sa")))
    assert [(one.severity, "ignores 'system:serviceaccount:ns:sa'" in one.message) for one in found] == [
        ("warning", True)
    ]
    deep = queue("a" * 30, queue("b" * 30, queue("c" * 10)))
    assert [one.severity for one in problems(config(deep))] == ["warning"]


def test_problems_have_their_line() -> None:
    text = "partitions:\n- name: default\n  queues:\n  - name: root\n    queues:\n    - name: a\n      quota: 1\n"
    (document,) = read_text(text, "queues.yaml")
    with pytest.raises(DocumentError) as error:
        read(document)
    assert [(one.where, one.source and one.source.line) for one in error.value.problems] == [
        ("partitions[0].queues[0].queues[0].quota", 7)
    ]


JUNK = st.sampled_from([None, "", "x", 0, -1, 1.5, True, [], {}, [None], [{}], {"a": 1}, ["x"]])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_anything_in_any_place_is_read_or_refused_in_words(data: st.DataObject) -> None:
    rules = [
        {
            "name": "user",
            "create": True,
            "parent": {"name": "fixed", "value": "people"},
            "filter": {"users": ["a", "b"]},
        }
    ]
    spoiled = copy.deepcopy(
        dict(config(*GOOD.data["partitions"][0]["queues"][0]["queues"], placementrules=rules, limits=[LIMIT]).data)
    )
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(spoiled)))
        here: Any = spoiled
        for step in path[:-1]:
            here = here[step]
        here[path[-1]] = copy.deepcopy(data.draw(JUNK))
    assert all(one.code == "P824" and one.fix for one in problems(Document(spoiled, "queues.yaml")))


# -- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acl", "user", "groups", "allowed"),
    [
        ("*", "x", (), True), ("", "x", (), False), (" ", "x", (), False), (None, "x", (), False), ("sue,bob", "bob", (), True),
        ("sue,bob", "x", ("bob",), False), (" lab,ops", "x", ("ops",), True), ("sue lab", "x", ("lab",), True), ("sue *", "x", (), True),
        ("sue", "su", (), False), ("a b c", "a", (), False),
    ],
)  # fmt: skip
def test_acls(acl: str | None, user: str, groups: tuple[str, ...], allowed: bool) -> None:
    assert access.allows(acl, user, groups) is allowed


def test_a_grant_counts_below_and_none_can_be_taken_back() -> None:
    root = Queue(
        "root", submit="ann", queues=(Queue("lab", submit="sue", queues=(Queue("ray", submit="", admin="bob"),)),)
    )
    line = root.find("root.lab.ray")
    assert [user for user in ("ann", "sue", "bob", "eve") if access.may_submit(line, user, ())] == ["ann", "sue", "bob"]
    assert access.who_may(line) == [
        "submitacl of root: 'ann'",
        "submitacl of root.lab: 'sue'",
        "adminacl of root.lab.ray: 'bob'",
    ]
    assert not access.may_submit(Queue("root").find("root"), "ann", ("ann",))


def test_the_limits_that_bind_a_user_come_from_the_leaf_up() -> None:
    partition = read(
        config(
            queue(
                "a",
                limits=[
                    {"groups": ["lab"], "maxapplications": 1},
                    {"users": ["*"], "groups": ["*"], "maxapplications": 2},
                ],
            ),
            limits=[{"users": ["sue"], "maxapplications": 9}, {"groups": ["lab"], "maxapplications": 8}],
        )
    )
    line = partition.root.find("root.a")
    found = [(queue, who, limit.applications) for queue, who, limit in access.limits_of(line, "sue", ("lab",))]
    assert found == [("root.a", "every user", 2), ("root.a", "group lab", 1), ("root", "user sue", 9)]


# -- the other scheduler ----------------------------------------------------------------------------------------------


def quotas(one: ClusterQueue | Cohort) -> dict[str, tuple[int, int | None]]:
    return {
        name: (quota.nominal, quota.borrowing)
        for group in one.groups
        for flavor in group.flavors
        for name, quota in flavor.quotas.items()
    }


def objects(partition: Partition, **more: Any) -> dict[str, Any]:
    found = manifest(dump_all(to_kueue.to_kueue(partition, **more).documents), "kueue.yaml")
    assert not found.warnings
    return {f"{type(one).__name__}/{getattr(one, 'name', '')}": one for one in found.objects}


def test_parents_are_cohorts_and_leaves_are_cluster_queues() -> None:
    found = objects(read(GOOD), capacity={"cpu": 64000, "memory": 2**38 * 1000})
    assert quotas(found["Cohort/root"])["cpu"] == (54000, None)
    assert found["Cohort/root.lab"].parent == "root"
    assert quotas(found["Cohort/root.lab"]) == {"cpu": (6000, 30000), "memory": (20 * 2**30, 80 * 2**30)}
    assert quotas(found["ClusterQueue/root.lab.ray"])["cpu"] == (4000, 16000)
    assert quotas(found["ClusterQueue/root.other"])["cpu"] == (0, 500)
    assert found["ClusterQueue/root.lab.spark-jobs"].preemption.reclaim == "Never"
    local = found["LocalQueue/lab.ray"]
    assert isinstance(local, LocalQueue) and local.cluster_queue == "root.lab.ray"


def test_the_report_says_what_kueue_has_no_place_for() -> None:
    document = config(
        queue(
            "a", submitacl="sue", adminacl="bob", maxapplications=3, limits=[LIMIT], properties={"priority.offset": "5"}
        ),
        queue("b", parent=True, childtemplate={"maxapplications": 1}),
        placementrules=[{"name": "provided"}],
    )
    report = to_kueue.to_kueue(read(document)).report
    lost = {one.path.rpartition(".")[2] for one in report.of("lost")}
    assert lost == {"submitacl", "adminacl", "maxapplications", "limits", "offset", "childtemplate", "placementrules"}
    assert any("no bound to cpu, memory" in one.message for one in report.of("changed"))


NAMES = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def trees(draw: st.DrawFn, depth: int = 3, room: int = 64) -> Data:
    """A queue that YuniKorn takes: each is guaranteed no more than there is above it."""
    most = draw(st.integers(1, room)) if draw(st.booleans()) else None
    bound = room if most is None else most
    names = sorted(draw(st.sets(NAMES, max_size=3))) if depth else []
    children = []
    left = bound
    for name in names:
        child = draw(trees(depth - 1, max(1, left // 2)))
        children.append({**child, "name": name})
        left -= left // 2
    guaranteed = None
    if not children and draw(st.booleans()):
        guaranteed = draw(st.integers(0, bound))
    return queue(
        "x", *children, guaranteed={"vcore": guaranteed} if guaranteed else None, most={"vcore": most} if most else None
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3))
def test_there_and_back_is_the_same_tree(tops: list[Data]) -> None:
    document = config(*({**one, "name": name} for one, name in zip(tops, "pqr", strict=False)))
    assume(not errors(document))
    partition = read(document)
    there = to_kueue.to_kueue(partition)
    back, _ = from_kueue(Document(one) for one in there.documents)
    again = read(Document(back))
    assert errors(Document(back)) == []

    def plain(one: Queue) -> Any:
        guaranteed = {"cpu": to_kueue.guarantee(one, "cpu")}
        return (
            one.name,
            guaranteed,
            dict(one.most),
            one.parent,
            sorted(map(plain, one.queues), key=lambda each: each[0]),
        )

    assert plain(again.root) == plain(partition.root)


def test_queues_of_kueue_for_yunikorn() -> None:
    text = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team.a}
spec:
  cohortName: all
  fairSharing: {weight: 2}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: spot, resources: [{name: cpu, nominalQuota: 1500m, borrowingLimit: 2, lendingLimit: 1}]}
    - {name: on-demand, resources: [{name: cpu, nominalQuota: 2, borrowingLimit: 1}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: alone}
spec:
  namespaceSelector: {matchLabels: {team: b}}
  resourceGroups:
  - {coveredResources: [memory], flavors: [{name: spot, resources: [{name: memory, nominalQuota: 4Gi}]}]}
"""
    data, report = from_kueue(read_text(text, "kueue.yaml"))
    root = read(Document(data)).root
    (_, _, team) = root.find("root.all.team_dot_a")
    assert (dict(team.guaranteed), dict(team.most)) == ({"cpu": 3500}, {"cpu": 6500})
    assert dict(root.find("root.alone")[-1].most) == {"memory": 4 * 2**30 * 1000}
    assert {one.path for one in report.of("lost")} == {
        "spec.fairSharing",
        "spec.lendingLimit",
        "spec.namespaceSelector",
    }
    assert any("flavors are one" in one.message for one in report.of("changed"))
    assert all(one.source is not None for one in report.of("lost"))
