"""The testbed itself: quick to start, on loopback only, several at once, and nothing left when whoever started it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from testbed import binaries
from testbed.api import Api
from testbed.errors import ApiError, TestbedError
from testbed.instance import Testbed
from tests.cluster.support import condition, fresh_namespace

ROOT = Path(__file__).parents[2]


def processes_of(folder: Path) -> list[str]:
    """The command lines of processes that name the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words and f"/{os.getpid()}/" not in str(entry):
            found.append(words)
    return found


def listeners(pids: set[int]) -> set[str]:
    """The local addresses on which the processes listen, as the kernel writes them."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(fd)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.add(words[1].partition(":")[0])
    return found


def pod(name: str, namespace: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {f"testbed.penstock/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "made-up"}]},
    }


def ended(bed: Testbed, namespace: str, name: str) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = bed.get(path)
        return found if found["status"].get("phase") in ("Succeeded", "Failed") else None

    return bed.wait(look, f"pod {name} to end")


def test_a_fake_pod_runs_as_long_and_ends_as_its_annotations_say(testbed: Callable[..., Testbed]) -> None:
    bed = testbed("kueue", "kwok")
    namespace = fresh_namespace(bed)
    bed.apply(
        [
            pod("quick", namespace, run_time="100ms", result="forty-two"),
            pod("bad", namespace, exit_code="3"),
            pod("slow", namespace, run_time="forever"),
        ]
    )
    quick = ended(bed, namespace, "quick")
    assert quick["status"]["phase"] == "Succeeded"
    assert quick["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "forty-two"
    bad = ended(bed, namespace, "bad")
    assert bad["status"]["phase"] == "Failed"
    assert bad["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    path = f"/api/v1/namespaces/{namespace}/pods/slow"
    bed.wait(lambda: condition(bed.get(path), "Ready").get("status") == "True", "the endless pod to be ready")
    bed.delete(path)
    bed.wait(lambda: not bed.found(path), "the endless pod to go")


def test_all_listen_on_loopback_only(testbed: Callable[..., Testbed]) -> None:
    bed = testbed("kueue", "kwok")
    addresses = listeners({running.pid for running in bed.processes.values()})
    # 127.0.0.1 in the kernel's notation, and the same written as an IPv6 address.
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_what_the_server_did_not_look_at_is_sent_again() -> None:
    """It answers so while it takes up a changed definition of a type, which Tekton's webhook changes when it starts."""
    answers = [
        httpx2.Response(503, headers={"Retry-After": "1"}, json={"message": "apiserver is shutting down"}),
        httpx2.Response(429, headers={"Retry-After": "1"}, json={"message": "too many requests"}),
        httpx2.Response(201, json={"kind": "TaskRun"}),
        httpx2.Response(503, json={"message": "no endpoints"}),
    ]
    api = Api.__new__(Api)
    api._http = httpx2.Client(transport=httpx2.MockTransport(lambda request: answers.pop(0)), base_url="http://here")
    assert api.raw("POST", "/taskruns", {}) == {"kind": "TaskRun"}
    with pytest.raises(ApiError, match="no endpoints"):
        api.raw("POST", "/taskruns", {})


def test_two_start_at_the_same_moment() -> None:
    if binaries.missing(binaries.CONTROL_PLANE):
        pytest.skip("control plane is not built")
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: Testbed.start(), range(2))
    try:
        one.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}}])
        assert one.found("/api/v1/namespaces/only-here")
        assert not two.found("/api/v1/namespaces/only-here")
    finally:
        one.stop()
        two.stop()
    assert not processes_of(one.dir)
    assert not processes_of(two.dir)
    assert not one.dir.exists()


@pytest.mark.parametrize("victim", ["tests", "keeper"])
def test_nothing_outlives_a_crash(victim: str, tmp_path: Path) -> None:
    if binaries.missing(binaries.CONTROL_PLANE):
        pytest.skip("control plane is not built")
    script = """
        import sys
        from testbed.instance import Testbed
        bed = Testbed.start()
        print(bed.dir, bed.keeper, flush=True)
        sys.stdin.read()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # with the keeper dead, nobody is left to remove the folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    folder, keeper = child.stdout.readline().split()
    assert len(processes_of(Path(folder))) >= 4
    os.kill(child.pid if victim == "tests" else int(keeper), signal.SIGKILL)
    wait_for(lambda: not [words for words in processes_of(Path(folder)) if "-c" not in words])
    child.kill()
    child.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    import time

    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_program_that_ends_is_told_with_its_last_words() -> None:
    if binaries.missing(binaries.CONTROL_PLANE):
        pytest.skip("control plane is not built")
    with Testbed.start() as bed:
        bed.run("talker", ["sh", "-c", "echo I cannot go on; exit 4"])
        with pytest.raises(TestbedError, match=r"talker ended while we waited for the moon(.|\n)*I cannot go on"):
            bed.wait(lambda: None, "the moon", timeout=20)


def test_up_prints_a_kubeconfig_that_works_and_down_ends_it(tmp_path: Path) -> None:
    if binaries.missing([*binaries.CONTROL_PLANE, "kwok"]):
        pytest.skip("control plane or kwok is not built")
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def testbed(*words: str) -> str:
        command = [sys.executable, "-m", "testbed", *words]
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout

    said = testbed("up", "kwok")
    try:
        kubeconfig = next(line.partition("=")[2] for line in said.splitlines() if "KUBECONFIG" in line)
        kubectl = [str(binaries.path("kubectl")), f"--kubeconfig={kubeconfig}", "get", "nodes", "-o", "name"]
        assert subprocess.run(kubectl, check=True, capture_output=True, text=True).stdout == "node/kwok-0\n"
        assert kubeconfig in testbed("status")
    finally:
        testbed("down")
    assert "nothing is running" in testbed("status")
    assert not list(tmp_path.glob("penstock-testbed-*"))
