"""The Job of a step of several containers: which of them are init containers, which wait for the leader, and what they share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.attempt import CannotRun
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes import boot, options
from penstock.backends.kubernetes.manifest import job_of, secret_of
from penstock.backends.kubernetes.programs import Work
from penstock.backends.kubernetes.work import work_of
from penstock.errors import UserError
from penstock.expressions.types import parse
from penstock.graph import model
from tests.backends.harness import spec_of

HOME = Path("/home/of/penstock")
SET = options.read(
    {"PENSTOCK_KUBERNETES_VOLUME": "pvc:claim", "PENSTOCK_KUBERNETES_IMAGE": "tool:1"}, HOME, str(HOME / "artifacts")
)
NOWHERE = options.read({}, HOME, str(HOME / "artifacts"))
Dict = dict[str, Any]


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def part(name: str, **more: Any) -> model.Part:
    return model.Part(**{"name": name, "image": f"{name}:1", "command": ("run", name), **more})


def step(*parts: model.Part, **more: Any) -> model.Step:
    return model.Step(name="step", action=model.Pod(parts=parts), **more)


def work(
    spec: AttemptSpec, blobs: Blobs, chosen: options.KubernetesOptions = SET, native_sidecars: bool = True
) -> Work:
    return work_of(spec, chosen, blobs, lambda: blobs.put(boot.library()), native_sidecars)


def job(spec: AttemptSpec, blobs: Blobs, chosen: options.KubernetesOptions = SET, **more: Any) -> Dict:
    return job_of(spec, work(spec, blobs, chosen, **more), chosen, "store1", "ns")


def pod(spec: AttemptSpec, blobs: Blobs, chosen: options.KubernetesOptions = SET, **more: Any) -> Dict:
    found: Dict = job(spec, blobs, chosen, **more)["spec"]["template"]["spec"]
    return found


def names(found: Dict, kind: str) -> list[str]:
    return [one["name"] for one in found.get(kind, ())]


def one(found: Dict, name: str) -> Dict:
    both = (*found.get("initContainers", ()), *found["containers"])
    return next(container for container in both if container["name"] == name)


def where(container: Dict) -> dict[str, str]:
    return {mount["mountPath"]: mount.get("subPath", "") for mount in container["volumeMounts"]}


def test_a_chain_needs_nothing_of_its_images_and_no_store(blobs: Blobs) -> None:
    """Each part as its image runs it, in the order of init containers; a sidecar stays from before the first."""
    bare = part("two", command=())
    spec = spec_of(step(part("one"), bare, part("redis", sidecar=True, command=()), part("three", source="echo hi")))
    found = pod(spec, blobs, NOWHERE)
    assert names(found, "initContainers") == ["redis", "one", "two"] and names(found, "containers") == ["three"]
    assert one(found, "redis")["restartPolicy"] == "Always" and "restartPolicy" not in one(found, "one")
    assert one(found, "one")["command"] == ["run", "one"] and "command" not in one(found, "two")
    assert one(found, "three")["command"] == ["run", "three", "/tmp/penstock/script"]
    assert job(spec, blobs, NOWHERE) == job(spec, blobs, NOWHERE)


def test_outputs_of_a_chain_are_stored_at_its_end(blobs: Blobs) -> None:
    """Any part may write them: all see the folder. What is written where every image has a folder is copied from there."""
    outputs = (
        model.Output(name="a", type=parse("str"), path="/tekton/results/a"),
        model.Output(name="b", type=parse("str"), path="/tmp/b"),
        model.Output(name="c", type=parse("str"), path="/dev/stdout"),
    )
    found = pod(spec_of(step(part("one"), part("two"), outputs=outputs)), blobs)
    assert names(found, "initContainers") == ["one", "two"] and names(found, "containers") == ["put"]
    assert where(one(found, "one"))["/tekton/results"] == where(one(found, "two"))["/tekton/results"]
    assert "cp -R /tmp/b" in one(found, "one")["command"][2] and "tee" not in one(found, "one")["command"][2]
    assert "tee" in one(found, "two")["command"][2] and one(found, "two")["command"][4:] == ["run", "two"]


def test_outputs_are_taken_from_the_part_called_main(blobs: Blobs) -> None:
    outputs = (model.Output(name="a", type=parse("str"), path="/out/a"),)
    found = pod(spec_of(step(part("first"), part("main"), outputs=outputs)), blobs)
    assert one(found, "first")["command"] == ["run", "first"]
    assert "cp -R /out/a" in one(found, "main")["command"][2]


@pytest.mark.parametrize(
    "parts",
    [
        (part("one"), part("two", needs=())),
        (part("one", on_error="continue"), part("two")),
        (part("one", timeout=5.0), part("two")),
        (part("one"), part("two", when=({"input": "a", "operator": "in", "values": ["a"]},))),
        (part("one", results={"n": "/res/n"}), part("two", args=("$(steps.one.results.n)",))),
    ],
    ids=["side by side", "may fail", "time limit", "condition", "result"],
)
def test_parts_that_wait_for_one_another_are_led(blobs: Blobs, parts: tuple[model.Part, ...]) -> None:
    spec = spec_of(step(*parts, part("web", sidecar=True, command=("serve",))))
    made = work(spec, blobs)
    found = pod(spec, blobs)
    assert made.leads and names(found, "containers") == ["one", "two", "put"]
    assert names(found, "initContainers") == ["web"] and one(found, "web")["command"] == ["serve"]
    assert one(found, "put")["command"][-2] == "lead"
    plan = json.loads(made.plan[0].text)
    assert [(entry["name"], entry["command"]) for entry in plan["parts"]] == [
        ("one", ["run", "one"]),
        ("two", ["run", "two"]),
    ]
    for name in ("one", "two"):
        assert one(found, name)["command"][:2] == ["sh", "-c"] and where(one(found, name))["/tmp/penstock/pod"] == "pod"
    assert any(mount["mountPath"] == "/tmp/penstock/plan.json" for mount in one(found, "put")["volumeMounts"])
    with pytest.raises(UserError) as error:  # the leader comes from the artifact store
        work(spec, blobs, NOWHERE)
    assert error.value.code == "P726"


def test_what_cannot_be_led_is_refused(blobs: Blobs) -> None:
    for parts in (
        (part("one", command=(), needs=()), part("two", needs=())),
        (part("one"), part("two", image=None)),
        (part("one"), part("web", sidecar=True, args=("$(steps.one.results.n)",))),
        (part("web", sidecar=True),),
    ):
        with pytest.raises(CannotRun):
            work(spec_of(step(*parts)), blobs)


def test_results_are_found_wherever_they_are_written(blobs: Blobs) -> None:
    """In a folder of their own, in a folder that the step mounts, in one that the run shares, and where every image has a folder."""
    written = {"a": "/res/a", "b": "/own/b", "c": "/shared/c", "d": "/tmp/d"}
    mounts = (model.Mount(name="own", path="/own"), model.Mount(name="run", path="/shared", scope="run"))
    reads = part("two", args=tuple(f"$(steps.one.results.{name})" for name in written))
    spec = spec_of(step(part("one", results=written), reads, mounts=mounts))
    made = work(spec, blobs)
    read = json.loads(made.plan[0].text)["results"]["one"]
    found = pod(spec, blobs)
    inside = "/tmp/penstock"
    assert read["/res/a"] == f"{inside}/{where(one(found, 'one'))['/res']}/a"
    assert read["/own/b"] == f"{inside}/{where(one(found, 'two'))['/own']}/b"
    assert read["/tmp/d"].startswith(f"{inside}/results/") and "cp -R /tmp/d" in one(found, "one")["command"][2]
    folder = read["/shared/c"].removesuffix("/c")
    assert where(one(found, "put"))[folder] == where(one(found, "one"))["/shared"]


def test_a_folder_has_one_place_wherever_it_is_mounted(blobs: Blobs) -> None:
    """Containers of Argo mount one volume at several paths."""
    mounts = (model.Mount(name="ws", path="/a"), model.Mount(name="ws", path="/b", sub_path="sub"))
    found = where(one(pod(spec_of(step(part("one"), part("two"), mounts=mounts)), blobs), "one"))
    assert found["/b"] == f"{found['/a']}/sub"


def test_the_pod_asks_for_what_the_step_does(blobs: Blobs) -> None:
    """One after another, each part asks for all of it; side by side, one does."""
    asked = {"cpu": 2000, "memory": 2**30 * 1000, "nvidia.com/gpu": 1000}
    chain = pod(spec_of(step(part("one"), part("two"), part("web", sidecar=True), resources=asked)), blobs)
    for name in ("one", "two"):
        assert one(chain, name)["resources"]["requests"] == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert "resources" not in one(chain, "web")
    beside = pod(spec_of(step(part("main", needs=()), part("two", needs=()), resources=asked)), blobs)
    assert one(beside, "main")["resources"]["requests"] == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert one(beside, "two")["resources"] == {"requests": {"memory": "0"}, "limits": {"memory": "1Gi"}}


def test_without_init_containers_that_stay_sidecars_are_led(blobs: Blobs) -> None:
    spec = spec_of(step(part("one"), part("web", sidecar=True)))
    found = pod(spec, blobs, native_sidecars=False)
    assert names(found, "containers") == ["one", "web", "put"] and "initContainers" not in found
    plan = json.loads(work(spec, blobs, native_sidecars=False).plan[0].text)
    assert [(entry["name"], entry["sidecar"]) for entry in plan["parts"]] == [("one", False), ("web", True)]


def test_a_sidecar_that_is_a_shell_runs_once(blobs: Blobs) -> None:
    """Kubernetes starts a sidecar again when it ends; a shell around it keeps that from happening where there surely is one."""
    found = pod(spec_of(step(part("one"), part("s", sidecar=True, command=("/bin/sh", "-c", "x")))), blobs)
    assert one(found, "s")["command"][4:] == ["/bin/sh", "-c", "x"]


def test_secrets_of_a_part_are_its_own(blobs: Blobs) -> None:
    parts = (
        part("one", env={"TOKEN": "hush-hush"}),
        part("two", source="use hush-hush", needs=(), env={"OPEN": "yes"}),
    )
    spec = spec_of(step(*parts), {}, secrets={"token": "hush-hush"})
    made = work(spec, blobs)
    whole = job_of(spec, made, SET, "store1", "ns")
    assert "hush" not in json.dumps(whole) and made.plan[0].secret
    secret = secret_of(made, {**whole, "metadata": {**whole["metadata"], "uid": "u"}})
    assert secret is not None and secret["stringData"]["env-0"] == "hush-hush"
    found = whole["spec"]["template"]["spec"]
    env = {name: {entry["name"]: entry for entry in one(found, name)["env"]} for name in ("one", "two")}
    assert env["one"]["TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "env-0" and "TOKEN" not in env["two"]
    assert env["two"]["OPEN"]["value"] == "yes"


def test_what_a_manifest_says_of_a_container_reaches_it(blobs: Blobs) -> None:
    """Not its probes, where it is an init container that ends: Kubernetes refuses those."""
    extra = {"containers": {"one": {"tty": True, "livenessProbe": {"exec": {}}}, "web": {"startupProbe": {"exec": {}}}}}
    overlay = {"spec": {"containers": [{"name": "main", "imagePullPolicy": "Never"}, {"name": "helper", "tty": True}]}}
    spec = spec_of(step(part("one"), part("web", sidecar=True), part("Two!"), extra=extra))
    found = pod(spec, blobs, options.KubernetesOptions(overlay=overlay, image="tool:1"))
    assert one(found, "one")["tty"] is True and "livenessProbe" not in one(found, "one")
    assert "startupProbe" in one(found, "web")
    assert {container["imagePullPolicy"] for container in (*found["initContainers"], *found["containers"])} == {"Never"}
    assert names(found, "containers") == ["part-2"]  # its own name is no name of a container
