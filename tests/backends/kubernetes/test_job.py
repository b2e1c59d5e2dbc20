"""The Job of an attempt: what the step says is in it, and the same attempt gives the same Job whoever asks."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.artifacts.blobs import Blobs
from penstock.backends.attempt import CannotRun
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes import boot, names, options
from penstock.backends.kubernetes.manifest import job_of, merged, secret_of, service_of
from penstock.backends.kubernetes.programs import Work
from penstock.backends.kubernetes.shell import wrapper
from penstock.backends.kubernetes.work import work_of
from penstock.errors import UserError
from penstock.expressions.types import parse
from penstock.graph import model
from tests.backends.harness import spec_of, types_of

HOME = Path("/home/of/penstock")
SET = options.read(
    {"PENSTOCK_KUBERNETES_VOLUME": "pvc:claim/sub", "PENSTOCK_KUBERNETES_IMAGE": "tool:1"},
    HOME,
    str(HOME / "artifacts"),
)


def container(**more: Any) -> model.Step:
    fields: dict[str, Any] = {"name": "step", "action": model.Container(image="img:1", command=("run", "it"))}
    return model.Step(**fields | more)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def work(spec: AttemptSpec, blobs: Blobs, chosen: options.KubernetesOptions = SET) -> Work:
    return work_of(spec, chosen, blobs, lambda: blobs.put(boot.library()))


def job(spec: AttemptSpec, blobs: Blobs, chosen: options.KubernetesOptions = SET) -> dict[str, Any]:
    return job_of(spec, work(spec, blobs, chosen), chosen, "store1", "ns")


def pod(spec: AttemptSpec, blobs: Blobs, chosen: options.KubernetesOptions = SET) -> dict[str, Any]:
    found: dict[str, Any] = job(spec, blobs, chosen)["spec"]["template"]["spec"]
    return found


def main_of(spec: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in (*spec.get("initContainers", ()), *spec["containers"]) if one["name"] == "main")


def test_a_command_without_files_is_one_container_that_needs_no_store(blobs: Blobs) -> None:
    alone = options.read({}, HOME, str(HOME / "artifacts"))
    found = pod(spec_of(container()), blobs, alone)
    assert "initContainers" not in found and [one["name"] for one in found["containers"]] == ["main"]
    main = found["containers"][0]
    assert main["image"] == "img:1" and main["command"] == ["run", "it"]
    assert found["restartPolicy"] == "Never" and found["automountServiceAccountToken"] is False
    assert all("home" not in volume["name"] for volume in found["volumes"])


def test_the_engine_owns_retries_and_nothing_stays_for_ever(blobs: Blobs) -> None:
    spec = job(spec_of(container(retry=model.Retry(limit=5), replicas=3)), blobs)["spec"]
    assert spec["backoffLimit"] == 0 and spec["ttlSecondsAfterFinished"] > 3600
    assert spec["completions"] == spec["parallelism"] == 3 and spec["completionMode"] == "Indexed"


def test_the_pods_of_a_gang_find_the_first_of_them(blobs: Blobs) -> None:
    step = container(replicas=3, extra={"pod": {"hostname": "mine", "subdomain": "mine"}})
    spec = spec_of(step)
    whole = job(spec, blobs)
    name, found = whole["metadata"]["name"], whole["spec"]["template"]["spec"]
    assert found["subdomain"] == name and "hostname" not in found  # Kubernetes calls them NAME-0, NAME-1, NAME-2
    assert {"name": "PENSTOCK_COORDINATOR", "value": f"{name}-0.{name}"} in main_of(found)["env"]
    whole["metadata"]["uid"] = "u1"
    service = service_of(spec, whole)
    assert service is not None
    assert service["metadata"]["name"] == name and service["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == {names.JOB_NAME: name}
    own = container(replicas=3, action=model.Container(image="i", env={"PENSTOCK_COORDINATOR": "x"}))
    told = [one["value"] for one in main_of(pod(spec_of(own), blobs))["env"] if one["name"] == "PENSTOCK_COORDINATOR"]
    assert told == ["x"]


def test_one_pod_has_no_address(blobs: Blobs) -> None:
    spec = spec_of(container())
    whole = job(spec, blobs)
    assert service_of(spec, whole) is None
    found = whole["spec"]["template"]["spec"]
    assert "subdomain" not in found and "COORDINATOR" not in json.dumps(found)


def test_resources_and_placement(blobs: Blobs) -> None:
    placement = model.Placement(
        node_selector={"disk": "ssd"}, tolerations=(model.Toleration(key="gpu", operator="Exists"),), affinity={"a": {}}
    )
    asked = {"cpu": 1500, "memory": 2 * 2**30 * 1000, "nvidia.com/gpu": 1000}
    found = pod(spec_of(container(resources=asked, placement=placement)), blobs)
    assert main_of(found)["resources"] == {
        "requests": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"},
    }
    assert found["nodeSelector"] == {"disk": "ssd"} and found["affinity"] == {"a": {}}
    assert found["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_files_are_fetched_before_the_command_and_stored_after_it(blobs: Blobs) -> None:
    from penstock.artifacts.values import store_path

    file = Path(blobs.root).parent / "in.bin"
    file.write_bytes(b"x" * 10)
    step = container(
        inputs=(
            model.Input(name="f", value=None, type=parse("file"), path="/in/f.bin"),
            model.Input(name="n", value=None, type=parse("int"), path="/in/n"),
        ),
        outputs=(
            model.Output(name="rows", type=parse("int")),
            model.Output(name="m", type=parse("file"), path="/out/m"),
        ),
    )
    whole = job(spec_of(step, {"f": store_path(file, blobs), "n": 5}), blobs)
    template = whole["spec"]["template"]
    found = template["spec"]
    assert [one["name"] for one in found["initContainers"]] == ["fetch", "main"]
    assert [one["name"] for one in found["containers"]] == ["put"]
    main = main_of(found)
    mounts = {one["mountPath"]: one for one in main["volumeMounts"]}
    assert mounts["/in/f.bin"]["subPath"] == "inputs/0/f.bin"
    assert template["metadata"]["annotations"]["penstock/file-0"] == "5" and mounts["/in/n"]["name"] == "texts"
    assert main["command"][:2] == ["sh", "-c"] and main["command"][3:] == ["penstock", "run", "it"]
    assert "/out/m" in main["command"][2]
    home = next(one for one in found["volumes"] if one["name"] == "home")
    assert home["persistentVolumeClaim"] == {"claimName": "claim"}
    helper = found["containers"][0]
    assert {"name": "home", "mountPath": "/penstock/artifacts", "subPath": "sub/artifacts"} in helper["volumeMounts"]
    assert all(one["name"] != "home" for one in main["volumeMounts"])  # the command does not see the store


def test_a_command_of_the_image_writes_outputs_into_a_folder_of_its_own(blobs: Blobs) -> None:
    bare = model.Container(image="img:1")
    step = container(action=bare, outputs=(model.Output(name="m", type=parse("file"), path="/out/m"),))
    found = main_of(pod(spec_of(step), blobs))
    assert "command" not in found
    assert any(one["mountPath"] == "/out" and one["subPath"] == "collected/0" for one in found["volumeMounts"])
    for path in ("/etc/m", "/dev/stdout"):
        refused = container(action=bare, outputs=(model.Output(name="m", type=parse("str"), path=path),))
        with pytest.raises(CannotRun):
            pod(spec_of(refused), blobs)


def test_a_function_needs_a_store_that_pods_reach(blobs: Blobs) -> None:
    step = model.Step(name="f", action=model.Function(module="m", name="f"), outputs=types_of({"result": "int"}))
    found = main_of(pod(spec_of(step), blobs))
    assert found["image"] == "tool:1" and found["command"][0] == "python3" and found["command"][-2] == "call"
    with pytest.raises(UserError) as error:
        pod(spec_of(step), blobs, options.read({}, HOME, str(HOME / "artifacts")))
    assert error.value.code == "P726" and "PENSTOCK_ARTIFACTS" in str(error.value)
    remote = options.read({}, HOME, "memory://bucket/penstock")
    assert "memory://bucket/penstock" in main_of(pod(spec_of(step), blobs, remote))["command"]


def test_secrets_are_in_the_secret_and_nowhere_else(blobs: Blobs) -> None:
    step = container(
        action=model.Container(image="i", command=("c",), env={"TOKEN": "hush-hush", "OPEN": "yes"}),
        inputs=(model.Input(name="k", value=None, type=parse("str"), path="/key"),),
    )
    spec = spec_of(step, {"k": "key: hush-hush"}, secrets={"token": "hush-hush"})
    found = work(spec, blobs)
    made = job_of(spec, found, SET, "store1", "ns")
    assert "hush" not in json.dumps(made)
    secret = secret_of(found, made | {"metadata": {**made["metadata"], "uid": "u1"}})
    assert secret is not None and secret["stringData"] == {"env-0": "hush-hush", "file-0": "key: hush-hush"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u1"
    env = {one["name"]: one for one in main_of(made["spec"]["template"]["spec"])["env"]}
    assert env["TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "env-0" and env["OPEN"]["value"] == "yes"


def test_the_name_follows_from_the_first_attempt_that_it_may_be(blobs: Blobs) -> None:
    first = job(spec_of(container(), attempt=2, since=2), blobs)
    again = job(spec_of(container(), attempt=3, since=2), blobs)
    retried = job(spec_of(container(), attempt=3, since=3), blobs)
    assert first == again
    assert first["metadata"]["name"] != retried["metadata"]["name"]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_names_and_labels_are_what_kubernetes_takes(one: str, other: str) -> None:
    name = names.job_name("store", one)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 55
    assert (
        re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", names.label(one)) and len(names.label(one)) <= 63
    )
    if one != other:
        assert name != names.job_name("store", other) and names.label(one) != names.label(other)


def expanded(text: str, env: dict[str, str]) -> str:
    """As Kubernetes does with words of commands."""
    return re.sub(r"\$(\$)|\$\(([^()]*)\)", lambda m: m[1] or env.get(m[2], m[0]), text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["$", "$$", "$(HOME)", "(", ")", "$$(A)", "x", " "]), max_size=8).map("".join))
def test_a_command_gets_its_words_as_they_are(word: str) -> None:
    step = container(action=model.Container(image="i", command=("c", word), env={"A": word}))
    found = job_of(spec_of(step), work_of(spec_of(step), SET, Blobs("/nowhere"), str), SET, "s", "ns")
    main = main_of(found["spec"]["template"]["spec"])
    assert expanded(main["command"][1], {"HOME": "/root", "A": "no"}) == word
    assert expanded(next(one["value"] for one in main["env"] if one["name"] == "A"), {"HOME": "/root"}) == word


def test_the_number_of_the_replica_is_filled_in_by_kubernetes(blobs: Blobs) -> None:
    step = container(action=model.Container(image="i", command=("c", "$(PENSTOCK_REPLICA)/$(HOME)")), replicas=2)
    assert main_of(pod(spec_of(step), blobs))["command"][1] == "$(PENSTOCK_REPLICA)/$$(HOME)"


def test_shared_folders_are_on_the_volume_of_the_home(blobs: Blobs) -> None:
    step = container(mounts=(model.Mount(name="data", path="/data", scope="run", sub_path="a"),))
    mount = next(one for one in main_of(pod(spec_of(step), blobs))["volumeMounts"] if one["mountPath"] == "/data")
    assert mount == {"name": "home", "mountPath": "/data", "subPath": "sub/work/test-1/volumes/data/a"}
    with pytest.raises(UserError) as error:
        pod(spec_of(step), blobs, options.read({}, HOME, "s3://bucket/x".replace("s3", "memory")))
    assert error.value.code == "P726"


def test_overlays_reach_the_containers_they_name(blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(
        "metadata: {labels: {team: a}}\n"
        "spec:\n  priorityClassName: batch\n  volumes: [{name: more, emptyDir: {}}]\n"
        "  containers:\n  - {name: main, env: [{name: X, value: y}]}\n  - {name: helper, imagePullPolicy: Always}\n"
    )
    chosen = dataclasses.replace(SET, overlay=options.read({"PENSTOCK_KUBERNETES_POD": str(file)}, HOME, "").overlay)
    step = container(outputs=types_of({"n": "int"}), extra={"pod": {"hostNetwork": True}, "container": {"tty": True}})
    whole = job(spec_of(step), blobs, chosen)["spec"]["template"]
    found = whole["spec"]
    assert whole["metadata"]["labels"]["team"] == "a" and whole["metadata"]["labels"][names.STORE] == "store1"
    assert found["priorityClassName"] == "batch" and found["hostNetwork"] is True
    assert {"name": "X", "value": "y"} in main_of(found)["env"] and main_of(found)["tty"] is True
    assert found["containers"][0]["imagePullPolicy"] == "Always" and "imagePullPolicy" not in main_of(found)
    assert {"scratch", "more"} <= {one["name"] for one in found["volumes"]}


@pytest.mark.parametrize(
    "given",
    [
        {"VOLUME": "claim"},
        {"VOLUME": "pvc:a/../b"},
        {"VOLUME": "host:relative"},
        {"PODS": "many"},
        {"PODS": "-1"},
        {"PATIENCE": "0"},
        {"POD": "/does/not/exist"},
    ],
)
def test_a_setting_that_means_nothing_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(UserError) as error:
        options.read(
            {f"PENSTOCK_KUBERNETES_{key}": value for key, value in given.items()}, HOME, str(HOME / "artifacts")
        )
    assert error.value.code == "P727"


def test_a_store_that_is_not_on_the_volume_is_refused() -> None:
    with pytest.raises(UserError) as error:
        options.read({"PENSTOCK_KUBERNETES_VOLUME": "pvc:claim"}, HOME, "/elsewhere")
    assert error.value.code == "P727"


def test_lists_of_named_things_are_merged_by_name() -> None:
    base = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["x"]}
    assert merged(base, {"env": [{"name": "B", "value": "3"}, {"name": "C"}], "args": ["y"]}) == {
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C"}],
        "args": ["y"],
    }


def test_variables_that_a_manifest_refers_to(blobs: Blobs) -> None:
    """What is not known here is a reference; a text that is known needs no ConfigMap there; what a pod says of itself is known there only."""
    config = {"configMapKeyRef": {"name": "cm", "key": "a"}}
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    listed = [{"name": name, "valueFrom": config} for name in ("KNOWN", "THERE")] + [
        {"name": "POD", "valueFrom": field}
    ]
    sources = [{"configMapRef": {"name": "more"}}, {"secretRef": {"name": "s"}}]
    action = model.Container(image="img:1", command=("x",), env={"KNOWN": "here", "POD": "made-up"})
    spec = spec_of(container(action=action, extra={"container": {"env": listed, "envFrom": sources}}))
    main = main_of(pod(spec, blobs))
    found = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in main["env"]}
    assert (found["KNOWN"], found["THERE"], found["POD"]) == (
        {"value": "here"},
        {"valueFrom": config},
        {"valueFrom": field},
    )
    assert main["envFrom"] == sources
    referred = [{"name": "A", "valueFrom": config}]
    assert merged([{"name": "A", "value": "1"}], referred) == referred
    assert merged(referred, [{"name": "A", "value": "1"}]) == [{"name": "A", "value": "1"}]


# -- the shell around a command ---------------------------------------------------------------------------------------


def shell(script: str, tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    script = script.replace("/tmp/penstock", str(tmp_path / "inside")).replace("/out/", f"{tmp_path}/out/")
    return subprocess.run(["sh", "-c", script, "penstock", *command], capture_output=True, text=True, timeout=20)


def test_the_wrapper_copies_what_the_command_left_and_keeps_its_exit_code(tmp_path: Path) -> None:
    script = wrapper([("/out/a b/m", "collected/0/m")], "")
    done = shell(script, tmp_path, "sh", "-c", f"echo yes > '{tmp_path}/out/a b/m'; echo said")
    assert done.returncode == 0 and done.stdout == "said\n"
    assert (tmp_path / "inside/collected/0/m").read_text() == "yes\n"
    assert shell(script, tmp_path, "sh", "-c", "exit 7").returncode == 7


def test_the_wrapper_keeps_what_is_printed_and_prints_it(tmp_path: Path) -> None:
    done = shell(wrapper([], "collected/1/stdout"), tmp_path, "sh", "-c", "echo one; echo two >&2; echo three")
    assert done.returncode == 0 and done.stdout == "one\nthree\n" and done.stderr == "two\n"
    assert (tmp_path / "inside/collected/1/stdout").read_text() == "one\nthree\n"


def test_the_wrapper_hands_the_end_on(tmp_path: Path) -> None:
    script = (
        wrapper([("/out/m", "collected/0/m")], "")
        .replace("/tmp/penstock", str(tmp_path))
        .replace("/out/", f"{tmp_path}/")
    )
    command = [
        "sh",
        "-c",
        script,
        "penstock",
        "sh",
        "-c",
        "trap 'echo ended; exit 9' TERM; echo up; while :; do sleep 0.05; done",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.terminate()
        assert process.stdout.readline() == "ended\n" and process.wait(20) == 9


@pytest.mark.parametrize("moment", ['"$@" &', "task=$!", "mkdir -p"])
def test_the_wrapper_hands_on_an_end_that_comes_early(tmp_path: Path, moment: str) -> None:
    """Before there is a command, as it is started, and before its number is known."""
    script = wrapper([("/out/m", "collected/0/m")], "").replace(moment, f"kill -TERM $$; {moment}", 1)
    assert shell(script, tmp_path, "sleep", "60").returncode == 128 + signal.SIGTERM
