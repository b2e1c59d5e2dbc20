"""The real node runs real containers, serves their logs, and disappears without a trace."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.components import node
from testbed.errors import TestbedError
from testbed.images import host_python
from testbed.instance import Testbed
from testbed.leftovers import leftovers, sweep
from tests.cluster import node_pods as pods
from tests.cluster.support import fresh_namespace

# Asks the API server for its version in the way that programs inside a cluster do: by the Service, with the CA and the token of the pod.
ASK = """
import os, ssl, json, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
where = "https://%s:%s/api/v1/namespaces/%s/pods" % (
    os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"], open(account + "namespace").read())
request = urllib.request.Request(where, headers={"Authorization": "Bearer " + open(account + "token").read()})
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=account + "ca.crt"))
except urllib.error.HTTPError as refusal:
    print(json.load(refusal)["message"])
"""


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("node")


@pytest.fixture
def ns(bed: Testbed) -> str:
    return fresh_namespace(bed)


def test_a_command_runs(bed: Testbed, ns: str) -> None:
    pods.create(bed, ns, "answer", "sh", "-c", "echo the answer is $((6 * 7))")
    pod = pods.ended(bed, ns, "answer")
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["spec"]["nodeName"] == "localhost"
    assert pods.exit_code(pod) == 0
    assert pods.log(bed, ns, "answer") == "the answer is 42\n"


def test_a_command_fails(bed: Testbed, ns: str) -> None:
    command = "echo no luck >/dev/termination-log; exit 3"
    pods.create(bed, ns, "luck", "sh", "-c", command)
    pod = pods.ended(bed, ns, "luck")
    assert pod["status"]["phase"] == "Failed"
    assert pods.exit_code(pod) == 3
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "no luck\n"


def test_memory_limit_is_kept(bed: Testbed, ns: str) -> None:
    limited = {"resources": {"limits": {"memory": "16Mi"}}}
    # dd takes a buffer as large as its block.
    pods.create(bed, ns, "greedy", "dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1", container=limited)
    pod = pods.ended(bed, ns, "greedy")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"


@pytest.mark.parametrize("host_network", [False, True])
def test_python_of_the_machine_and_the_api_server(bed: Testbed, ns: str, host_network: bool) -> None:
    python = host_python()
    container = {"env": python["env"], "volumeMounts": python["volumeMounts"]}
    command = (*python["command"], "-c", ASK)
    pods.create(bed, ns, "ask", *command, container=container, volumes=python["volumes"], hostNetwork=host_network)
    pod = pods.ended(bed, ns, "ask")
    assert pods.exit_code(pod) == 0, pods.log(bed, ns, "ask")
    # The refusal shows that the API server knows who asked.
    assert f'User "system:serviceaccount:{ns}:default" cannot list' in pods.log(bed, ns, "ask")


def test_modules_given_as_extra_are_importable(bed: Testbed, ns: str) -> None:
    source = Path(__file__).parents[2] / "src"
    python = host_python(source)
    container = {"env": python["env"], "volumeMounts": python["volumeMounts"]}
    code = "import penstock, sqlite3, ssl; print(sum(range(10)), penstock.__file__)"
    pods.create(bed, ns, "sum", *python["command"], "-c", code, container=container, volumes=python["volumes"])
    pod = pods.ended(bed, ns, "sum")
    assert pods.log(bed, ns, "sum") == f"45 {source}/penstock/__init__.py\n"
    assert pods.exit_code(pod) == 0


def test_pods_reach_each_other(bed: Testbed, ns: str) -> None:
    pods.create(bed, ns, "server", "sh", "-c", "mkdir /www; echo from a pod >/www/page; exec httpd -f -p 8080 -h /www")
    address = pods.running(bed, ns, "server")["status"]["podIP"]
    pods.create(bed, ns, "client", "sh", "-c", f"until wget -q -O- http://{address}:8080/page; do sleep 0.1; done")
    assert pods.exit_code(pods.ended(bed, ns, "client")) == 0
    assert pods.log(bed, ns, "client") == "from a pod\n"


@pytest.mark.parametrize("host_network", [False, True])
def test_pods_reach_a_server_of_the_machine_when_allowed(bed: Testbed, ns: str, host_network: bool) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", bed.port()), _Greeting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            where = node.reach(bed, server.server_port)
            if host_network:
                where = f"127.0.0.1:{server.server_port}"
            command = f"until wget -q -O- http://{where}/; do sleep 0.1; done"
            pods.create(bed, ns, "client", "sh", "-c", command, hostNetwork=host_network)
            pods.ended(bed, ns, "client")
        finally:
            server.shutdown()
            thread.join()
    assert pods.log(bed, ns, "client").splitlines()[-1] == "from the machine"


class _Greeting(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from the machine\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_exec(bed: Testbed, ns: str) -> None:
    pods.create(bed, ns, "shell", "sleep", "infinity")
    pods.running(bed, ns, "shell")
    kubectl = [
        str(bed.binary("kubectl")),
        f"--kubeconfig={bed.kubeconfig}",
        f"--cache-dir={bed.dir / 'kubectl'}",
        f"--namespace={ns}",
    ]
    command = [*kubectl, "exec", "-i", "shell", "--", "tr", "a-z", "A-Z"]
    done = subprocess.run(command, input="loud", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "LOUD"), done.stderr
    bed.delete(pods.path(ns, "shell"))
    bed.wait(lambda: bed.found(pods.path(ns, "shell")) is None, "the pod to be gone")


def test_two_nodes_at_once_and_the_keeper_killed(bed: Testbed, ns: str) -> None:
    before = pods.machine()
    with Testbed.start("node") as other:
        there = fresh_namespace(other)
        pods.create(other, there, "long", "sleep", "infinity")
        pods.create(bed, ns, "long", "sleep", "infinity")
        pods.running(other, there, "long")
        pods.running(bed, ns, "long")
        assert leftovers(other) == []
        assert pods.cgroups(other)
        os.kill(other.keeper, signal.SIGKILL)
        pods.wait_until_gone(other)
        assert pods.cgroups(other) == []
        shutil.rmtree(other.dir)
    assert pods.machine() == before
    pods.create(bed, ns, "still", "true")
    assert pods.exit_code(pods.ended(bed, ns, "still")) == 0


def test_sweep_after_everything_was_killed(bed: Testbed) -> None:
    """The keeper and the process around the node are killed at once: nobody is left to remove the cgroups, so the next start does."""
    with Testbed.start("node") as other:
        around = other.processes["node"].pid
        os.kill(around, signal.SIGSTOP)
        os.kill(other.keeper, signal.SIGKILL)
        bed.wait(lambda: leftovers(other), "the keeper to be gone")
        assert any(line.startswith("process") for line in leftovers(other))
        os.kill(around, signal.SIGKILL)
        bed.wait(lambda: not any(line.startswith("process") for line in leftovers(other)), "the processes to be gone")
        assert pods.cgroups(other)
        sweep()
        assert leftovers(other) == []
        assert pods.cgroups(other) == []
        shutil.rmtree(other.dir)


def test_a_node_can_be_ended_and_started_again(bed: Testbed) -> None:
    with Testbed.start("node") as own:
        where = fresh_namespace(own)
        own.end("node")
        assert pods.cgroups(own) == []
        again = node.Node()
        again.install(own)
        again.start(own)
        again.ready(own)
        pods.create(own, where, "after", "echo", "again")
        assert pods.exit_code(pods.ended(own, where, "after")) == 0


def test_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        with pytest.raises(TestbedError, match="needs root"):
            node.check()
        return
    os.seteuid(65534)
    try:
        with pytest.raises(TestbedError, match="needs root"):
            node.check()
    finally:
        os.seteuid(0)
    monkeypatch.setattr(node, "PLUGINS", tmp_path)
    with pytest.raises(
        TestbedError, match="CNI plugin ptp.*apt-get install containerd runc containernetworking-plugins"
    ) as raised:
        node.check()
    assert "\n" not in str(raised.value)
