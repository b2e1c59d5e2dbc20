"""What Kueue and YuniKorn are told of a job, and what the report says of it."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import NotFound, UserError
from penstock.formats.documents import Document, Library
from penstock.plugins import SchedulerPlugin
from penstock.scheduling import keys, reading, registry
from penstock.scheduling.apply import Scheduled, ScheduleOptions, schedule, schedule_one
from penstock.scheduling.model import Binding
from tests.scheduling.samples import (
    dask,
    document,
    every_kind,
    job,
    jobset,
    pod,
    ray_cluster,
    ray_job,
    replicas,
    runtime,
    spark,
    train_job,
    worker,
    wrapper,
)
from tests.scheduling.volcano.penstock_volcano import SCHEDULER

YUNIKORN, KUEUE = registry.scheduler("yunikorn"), registry.scheduler("kueue")
LAB = ScheduleOptions(organisation="lab")


def written(
    found: Document, plugin: SchedulerPlugin = YUNIKORN, options: ScheduleOptions = LAB, *beside: Document
) -> Scheduled:
    return schedule_one(found, plugin, options, Library((found, *beside)))


def at(data: Any, *path: str | int) -> Any:
    for step in path:
        data = data[step]
    return data


def labels(result: Scheduled, *path: str | int) -> dict[str, str]:
    return dict(at(result.documents[-1], *path, "metadata", "labels"))


def notes(result: Scheduled, *path: str | int) -> dict[str, str]:
    return dict(at(result.documents[-1], *path, "metadata", "annotations"))


def said(result: Scheduled, kind: str | None = None) -> str:
    return "\n".join(one.message for one in result.report.entries if kind in (None, one.kind))


def groups(result: Scheduled, *path: str | int) -> dict[str, int]:
    return {one["name"]: one["minMember"] for one in json.loads(notes(result, *path)[keys.GROUPS])}


# -- YuniKorn ---------------------------------------------------------------------------------------------------------


def test_every_template_of_a_job_carries_queue_application_and_gang() -> None:
    result = written(jobset(), options=ScheduleOptions(Binding(style="Hard", timeout=60), organisation="lab"))
    for number, group in enumerate(("driver", "workers")):
        where = ("spec", "replicatedJobs", number, "template", "spec", "template")
        found = labels(result, *where)
        assert found[keys.YK_QUEUE] == found[keys.OLD_QUEUE] == "root.lab.jobset"
        assert found[keys.APP] == found[keys.OLD_APP] and found["team"] == "a"
        assert notes(result, *where)[keys.GROUP] == group
        assert notes(result, *where)[keys.PARAMETERS] == "placeholderTimeoutInSeconds=60 gangSchedulingStyle=Hard"
        assert groups(result, *where) == {"driver": 1, "workers": 6}
        assert at(result.documents[0], *where, "spec", "schedulerName") == "yunikorn"
    assert "metadata" not in at(result.documents[0], "spec", "replicatedJobs", 0)
    assert "workers: 6 × 1 cpu, 2Gi memory = 6 cpu, 12Gi memory" in said(result, "kept")


def test_the_task_group_has_the_placement_and_labels_of_the_template() -> None:
    template = pod(nodeSelector={"pool": "gpu"}, tolerations=[{"key": "gpu"}])
    (group,) = json.loads(notes(written(job(template=template)), "spec", "template")[keys.GROUPS])
    assert group == {
        "name": "main",
        "minMember": 3,
        "minResource": {"cpu": "1", "memory": "2Gi"},
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu"}],
        "labels": {"team": "a"},
    }


def test_a_role_without_members_has_no_group_and_one_pod_alone_is_no_gang() -> None:
    result = written(ray_cluster(worker("a"), worker("b", minReplicas=0)))
    assert groups(result) == groups(result, "spec", "workerGroupSpecs", 1, "template") == {"headgroup": 1, "a": 2}
    assert keys.GROUP not in notes(result, "spec", "workerGroupSpecs", 1, "template")
    assert "no group b: it would have no members" in said(result)
    alone = written(job(parallelism=1))
    assert "annotations" not in alone.documents[0]["spec"]["template"]["metadata"]


def test_ray_says_the_same_on_the_object_so_that_kuberays_own_plugin_takes_it() -> None:
    result = written(ray_job(submitterPodTemplate=pod()))
    assert labels(result)[keys.YK_QUEUE] == "root.lab.ray" and groups(result) == {"headgroup": 1, "w": 2}
    submitter = notes(result, "spec", "submitterPodTemplate")
    assert keys.GROUP not in submitter and submitter[keys.GROUPS] == notes(result)[keys.GROUPS]
    assert "the gang does not wait for submitter" in said(result)
    default = written(ray_job())
    assert "the pods of submitter have no template here" in said(default, "lost")


def test_names_of_groups_can_be_part_of_the_name_of_a_placeholder() -> None:
    result = written(ray_cluster(worker("GPU_big"), worker("gpu-big")))
    assert list(groups(result)) == ["headgroup", "gpu-big", "gpu-big-2"]
    assert "GPU_big is called gpu-big" in said(result)


def test_an_application_is_one_object_in_one_namespace() -> None:
    def app(found: Document, **more: Any) -> str:
        return labels(written(found, options=ScheduleOptions(Binding(**more), organisation="lab")), "spec", "template")[
            keys.APP
        ]

    one = app(job())
    assert one == app(job()) and one.startswith("job-one-")
    assert len({one, app(job(), namespace="a"), app(job(), namespace="b")}) == 3
    assert app(job(), app="mine") == "mine"
    long = document("batch/v1", "Job", job().spec, name="x" * 80)
    assert len(app(long)) <= 63
    unnamed = Document({**job().data, "metadata": {"generateName": "x-"}})
    assert "all objects made from it would be one application" in said(written(unnamed), "lost")


def test_spark_keeps_its_own_application_and_has_its_marks_where_it_reads_them() -> None:
    result = written(spark())
    for role, group in (("driver", "spark-driver"), ("executor", "spark-executor")):
        own = result.documents[0]["spec"][role]
        assert own["labels"] == {keys.YK_QUEUE: "root.lab.spark", keys.OLD_QUEUE: "root.lab.spark"}
        assert own["annotations"][keys.GROUP] == group and own["schedulerName"] == "yunikorn"
    assert "an application id of its own" in said(result)


def test_dask_is_one_group_if_its_pods_are_alike_and_none_if_they_are_not() -> None:
    result = written(dask())
    assert groups(result) == {"dask": 4} and notes(result)[keys.GROUP] == "dask"
    assert result.documents[0]["spec"]["worker"]["spec"]["schedulerName"] == "yunikorn"
    other = dask()
    other.spec["worker"]["spec"] = pod(cpu="2")["spec"]
    result = written(other)
    assert "annotations" not in result.documents[0]["metadata"] and "has no gang" in said(result, "lost")


def test_a_train_job_is_reached_by_its_patches() -> None:
    result = written(train_job(), YUNIKORN, LAB, runtime())
    (patch,) = result.documents[0]["spec"]["runtimePatches"]
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert patch["manager"] == "penstock/scheduling" and [one["name"] for one in jobs] == [
        "dataset-initializer",
        "node",
    ]
    assert jobs[1]["template"]["spec"]["template"]["metadata"]["labels"][keys.YK_QUEUE] == "root.lab.train"
    assert "cannot set the schedulerName" in said(result)
    with pytest.raises(UserError, match="is not among these documents"):
        written(train_job())
    assert labels(written(train_job(), KUEUE))["kueue.x-k8s.io/queue-name"] == "lab.train"


def test_the_objects_in_an_app_wrapper_are_written_into() -> None:
    result = written(wrapper({"template": dict(job().data)}))
    inner = ("spec", "components", 0, "template", "spec", "template")
    assert groups(result, *inner) == {"main": 3} and labels(result, *inner)[keys.YK_QUEUE] == "root.lab.appwrapper"


def test_preemption_users_and_what_yunikorn_has_no_mark_for() -> None:
    options = ScheduleOptions(
        Binding(allow_preemption=False, user="sue", groups=("lab",), priority="high"), organisation="lab"
    )
    result = written(job(), options=options)
    found = notes(result, "spec", "template")
    assert found[keys.ALLOW_PREEMPTION] == "false" and json.loads(found[keys.USER_INFO]) == {
        "user": "sue",
        "groups": ["lab"],
    }
    assert "externalUsers" in "".join(one.near for one in result.report.entries)
    assert "priorityClassName" in said(result, "lost")


def test_without_a_gang_what_an_earlier_one_left_is_taken_out() -> None:
    before = Document(written(jobset()).documents[0])
    after = written(before, options=ScheduleOptions(Binding(gang=False), organisation="lab"))
    where = ("spec", "replicatedJobs", 0, "template", "spec", "template")
    assert not set(notes(after, *where)) & {keys.GROUP, keys.GROUPS} and "taken out" in said(after)


def test_what_the_user_wrote_and_yunikorn_would_drop_is_said() -> None:
    template = pod()
    template["metadata"]["annotations"] = {
        keys.GROUPS: '[{"name": "a", "minMember": 0, "minResource": {}}]',
        keys.PARAMETERS: "gangSchedulingStyle=hard  x",
        keys.USER_INFO: "sue",
    }
    result = written(job(parallelism=1, template=template))
    lost = said(result, "lost")
    assert "a group without minMember" in lost and "does not understand 'gangSchedulingStyle=hard'" in lost
    assert "the user is nobody" in lost


def on_the_object(found: Document, labels: dict[str, str], notes: dict[str, str]) -> Document:
    return Document({**found.data, "metadata": {**found.metadata, "labels": labels, "annotations": notes}})


RFC = {keys.PARAMETERS: "placeholderTimeoutInSeconds=60 gangSchedulingStyle=hard", keys.USER_INFO: "org1.Sue"}


def test_what_the_rfc_puts_on_the_object_is_corrected_and_written_where_pods_get_it() -> None:
    found = on_the_object(jobset(), {keys.POD_GROUP_TOTAL: "7"}, {**RFC, keys.ALLOW_PREEMPTION: "false", "mine": "x"})
    result = written(found)
    for number in (0, 1):
        own = notes(result, "spec", "replicatedJobs", number, "template", "spec", "template")
        assert own[keys.PARAMETERS] == "placeholderTimeoutInSeconds=60 gangSchedulingStyle=Hard"
        assert json.loads(own[keys.USER_INFO]) == {"user": "Sue", "groups": ["org1"]}
        assert own[keys.ALLOW_PREEMPTION] == "false"
    assert notes(result) == {"mine": "x"} and "labels" not in result.documents[0]["metadata"]
    changed = said(result, "changed")
    assert "gangSchedulingStyle=hard is written as gangSchedulingStyle=Hard" in changed
    assert "the user 'org1.Sue' is written as" in changed and "never as a label" in changed
    again = written(Document(result.documents[0]))
    assert again.documents == result.documents


def test_what_the_command_says_wins_over_what_is_on_the_object() -> None:
    options = ScheduleOptions(Binding(style="Soft", user="ana"), organisation="lab")
    own = notes(written(on_the_object(job(), {}, RFC), options=options), "spec", "template")
    assert own[keys.PARAMETERS] == "placeholderTimeoutInSeconds=60 gangSchedulingStyle=Soft"
    assert json.loads(own[keys.USER_INFO]) == {"user": "ana", "groups": []}


def test_what_cannot_be_read_on_the_object_is_lost_and_said() -> None:
    wrong = {keys.PARAMETERS: "gangSchedulingStyle=firm", keys.USER_INFO: "{", keys.ALLOW_PREEMPTION: "perhaps"}
    lost = said(written(on_the_object(jobset(), {}, wrong)), "lost")
    assert (
        "'gangSchedulingStyle=firm' is nothing" in lost
        and "'{' names no user" in lost
        and "'perhaps' is neither" in lost
    )


def test_kueue_says_what_it_does_not_read_and_a_total_goes_where_it_is_read() -> None:
    result = written(on_the_object(jobset(), {keys.POD_GROUP_TOTAL: "7"}, RFC), KUEUE)
    assert "Kueue reads no user" in said(result, "lost") and "no style and no timeout" in said(result, "lost")
    assert keys.POD_GROUP_TOTAL not in labels(result)
    alone = document("v1", "Pod", pod()["spec"])
    group = on_the_object(alone, {keys.POD_GROUP: "g", keys.POD_GROUP_TOTAL: "2"}, {})
    found = written(group, KUEUE)
    assert notes(found)[keys.POD_GROUP_TOTAL] == "2" and keys.POD_GROUP_TOTAL not in labels(found)


# -- Kueue ------------------------------------------------------------------------------------------------------------


def test_kueue_waits_at_the_object_and_nothing_below_it_is_touched() -> None:
    result = written(ray_job(), KUEUE, ScheduleOptions(Binding(priority="high"), organisation="lab"))
    assert labels(result) == {"kueue.x-k8s.io/queue-name": "lab.ray", "kueue.x-k8s.io/priority-class": "high"}
    assert result.documents[0]["spec"] == ray_job().spec
    assert "head: 1 × 1 cpu, 2Gi memory" in said(result, "kept")
    torch = written(
        document("kubeflow.org/v1", "PyTorchJob", replicas("pytorchReplicaSpecs", Master=1, Worker=2)), KUEUE
    )
    assert labels(torch)["kueue.x-k8s.io/queue-name"] == "lab.pytorch" and "kubeflow.org/pytorchjob" in said(torch)


def test_where_kueue_sees_pods_only_there_is_a_pod_group() -> None:
    result = written(dask(), KUEUE)
    assert labels(result)[keys.POD_GROUP] == "one" and notes(result)[keys.POD_GROUP_TOTAL] == "4"
    found = document(
        "kubernetes.dask.org/v1", "DaskJob", {"job": {"spec": pod()["spec"]}, "cluster": {"spec": dask().spec}}
    )
    assert keys.POD_GROUP not in labels(written(found, KUEUE)) and "there is no gang" in said(
        written(found, KUEUE), "lost"
    )


def test_a_workflow_of_argo_is_labelled_where_its_pods_get_it() -> None:
    found = document("argoproj.io/v1alpha1", "Workflow", {"entrypoint": "a", "templates": []})
    result = written(found, KUEUE)
    assert result.documents[0]["spec"]["podMetadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab.argo"
    assert "labels" not in result.documents[0]["metadata"]
    with_yunikorn = written(found)
    assert with_yunikorn.documents[0]["spec"]["schedulerName"] == "yunikorn"


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        (ray_job(shutdownAfterJobFinishes=False), "only if it ends its cluster"),
        (ray_cluster(enableInTreeAutoscaling=True), "only from an elastic job"),
        (ray_cluster(*(worker(f"w{n}") for n in range(18))), "19 pod sets, and Kueue takes 18"),
        (job(template=pod(schedulerName="yunikorn")), "are YuniKorn's"),
    ],
)
def test_what_kueue_would_refuse_is_said(found: Document, refused: str) -> None:
    assert refused in said(written(found, KUEUE), "lost")


def test_what_kueue_has_no_mark_for_is_said() -> None:
    options = ScheduleOptions(Binding(style="Hard", timeout=60, user="sue", allow_preemption=False), organisation="lab")
    lost = said(written(job(), KUEUE, options), "lost")
    assert "no style and no timeout" in lost and "no user" in lost and "no allow-preemption" in lost


# -- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["yunikorn", "kueue"])
@pytest.mark.parametrize("number", range(len(every_kind())))
def test_twice_is_once_and_the_input_is_not_changed(name: str, number: int) -> None:
    found = every_kind()[number]
    options = ScheduleOptions(Binding(style="Soft", timeout=5, user="sue", allow_preemption=True), organisation="lab")
    once = written(found, registry.scheduler(name), options, runtime())
    assert found == every_kind()[number]
    again = written(Document(once.documents[-1], "job.yaml"), registry.scheduler(name), options, runtime())
    assert again.documents == once.documents
    assert not [one for one in again.report.of("changed") if "=" in one.message and "schedulerName" in one.message]


def test_the_queue_that_is_there_is_kept_and_without_one_it_is_refused() -> None:
    template = pod()
    template["metadata"]["labels"]["queue"] = "root.own"
    assert (
        labels(written(job(template=template), options=ScheduleOptions()), "spec", "template")[keys.YK_QUEUE]
        == "root.own"
    )
    with pytest.raises(UserError, match="not clear which queue") as error:
        written(job(), options=ScheduleOptions())
    assert error.value.code == "P888"


@pytest.mark.parametrize("queue", ["a..b", "root.a b", "x" * 64, "-", ".", "root.lab.", "löb"])
@pytest.mark.parametrize("plugin", [YUNIKORN, KUEUE])
def test_names_that_no_label_holds_are_refused(queue: str, plugin: SchedulerPlugin) -> None:
    with pytest.raises(UserError) as error:
        written(job(), plugin, ScheduleOptions(Binding(queue=queue)))
    assert error.value.code == "P888" and error.value.problems[0].fix


def test_a_file_with_other_documents_keeps_them_and_all_mistakes_are_said() -> None:
    config = document("v1", "ConfigMap", None)
    result = schedule(Library((config, job())), YUNIKORN, LAB)
    assert result.documents[0] == config.data and len(result.documents) == 2
    with pytest.raises(UserError) as error:
        schedule(Library((job(parallelism="x"), job(parallelism="y"))), YUNIKORN, LAB)
    assert len(error.value.problems) == 2
    with pytest.raises(UserError, match="nothing here makes pods") as error:
        schedule(Library((config,)), YUNIKORN, LAB)
    assert error.value.code == "P889"


# -- one of another package -------------------------------------------------------------------------------------------


def test_a_third_scheduler_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("volcano", "tests.scheduling.volcano.penstock_volcano:SCHEDULER", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.GROUP else [])
    registry.scheduler.cache_clear()
    try:
        found = registry.scheduler("volcano")
    finally:
        registry.scheduler.cache_clear()
    assert found is SCHEDULER
    result = written(ray_cluster(), found)
    group, cluster = result.documents
    assert group["spec"] == {
        "minMember": 3,
        "minTaskMember": {"headgroup": 1, "w": 2},
        "minResources": {"cpu": "3", "memory": "4Gi"},
        "queue": "lab-ray",
    }
    head = cluster["spec"]["headGroupSpec"]["template"]
    assert head["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": group["metadata"]["name"],
        "volcano.sh/task-spec": "headgroup",
    }
    assert head["spec"]["schedulerName"] == "volcano"


@pytest.mark.parametrize(
    "broken", ["tests.scheduling.samples:nothing", "tests.scheduling.samples:every_kind", "none:NONE"]
)
def test_a_scheduler_that_is_none_is_said_to_be(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: [EntryPoint("x", broken, group)])
    registry.scheduler.cache_clear()
    with pytest.raises(NotFound, match="scheduler 'x'") as error:
        registry.scheduler("x")
    assert error.value.code == "P884"
    with pytest.raises(NotFound, match='Did you mean "yunikorn"'):
        registry.scheduler("yunicorn")


# -- reading back -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text(max_size=80))
def test_any_text_of_task_groups_is_read_or_refused(text: str) -> None:
    try:
        found = reading.task_groups(text)
    except reading.Unreadable as error:
        assert str(error) in ("not readable", "name", "minResource", "minMember")
    else:
        assert all(one.members > 0 and one.name for one in found)


FIELDS = st.sampled_from(
    ["name", "NAME", "minMember", "minmember", "minResource", "labels", "tolerations", "affinity", "other"]
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 5), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), st.sampled_from([1, 1.5, "1", "500m", "much", None, True, " 2 "]), max_size=2),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.dictionaries(FIELDS, VALUES, max_size=4)), max_size=3))
def test_any_json_of_task_groups_is_read_or_refused(listed: list[Any]) -> None:
    try:
        found = reading.task_groups(json.dumps(listed))
    except reading.Unreadable:
        return
    assert len(found) == len(listed) and all(one.ask["pods"] == one.members for one in found)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", (0, "Soft", ())),
        ("placeholderTimeoutInSeconds=60 gangSchedulingStyle=Hard", (60, "Hard", ())),
        ("gangSchedulingStyle=hard", (0, "Soft", ("gangSchedulingStyle=hard",))),
        ("placeholderTimeoutInSeconds=1m", (0, "Soft", ("placeholderTimeoutInSeconds=1m",))),
        ("placeholderTimeoutInSeconds = 60", (0, "Soft", ("placeholderTimeoutInSeconds", "60"))),
        ("other=1 gangSchedulingStyle=Soft=x", (0, "Soft", ("gangSchedulingStyle=Soft=x",))),
    ],
)
def test_the_policy_as_yunikorn_reads_it(text: str, policy: tuple[Any, ...]) -> None:
    found = reading.policy_of(text)
    assert (found.timeout, found.style) == policy[:2] and set(policy[2]) <= set(found.skipped)
