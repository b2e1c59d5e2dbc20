"""One running testbed: a Kubernetes control plane and the controllers named, in a temporary folder of its own. Used by tests/cluster and `python -m testbed`.

    with Testbed.start("kueue", "kwok") as bed:
        bed.apply([...])
        bed.wait(lambda: ..., "the Workload to be admitted")

Everything listens on 127.0.0.1, several instances can run at the same time, and nothing outlives the process that started it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import yaml

from testbed import binaries, controlplane, tunnel
from testbed.api import APPLY, Api, Object
from testbed.certificates import Authority
from testbed.components import Component, ordered, programs
from testbed.errors import ApiError, TestbedError
from testbed.ports import Ports

T = TypeVar("T")
MANAGER = "penstock-testbed"
PREFIX = "penstock-testbed-"


@dataclass
class Netns:
    """A network namespace for one program: where its sockets are, and which ports on the host lead to which of its ports."""

    folder: Path
    exposed: dict[int, int]


@dataclass
class Running:
    name: str
    pid: int
    log: Path
    _ask: Callable[[dict[str, Any]], dict[str, Any]] = field(repr=False)

    def alive(self) -> bool:
        return bool(self._ask({"op": "state", "pid": self.pid})["alive"])

    def end(self, grace: float = 5) -> None:
        self._ask({"op": "end", "pid": self.pid, "grace": grace})


class Testbed:
    __test__ = False

    def __init__(self, components: Sequence[Component], nodes: int, options: Mapping[str, Any]) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.id = self.dir.name.removeprefix(PREFIX).lower()
        self.components = tuple(component.name for component in components)
        self.nodes = nodes
        self.options = dict(options)
        self.processes: dict[str, Running] = {}
        self.seconds: dict[str, float] = {}
        self._components = components
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._ports = Ports(binaries.CACHE / "ports")
        (self.dir / "log").mkdir()
        with (self.dir / "log" / "keeper.log").open("w") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("keeper.py")), str(self.dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,  # ours may be a pipe, whose reader would wait for the keeper
                text=True,
                start_new_session=True,
            )
        self.keeper = self._keeper.pid

    @classmethod
    def start(cls, *components: str, nodes: int = 1, **options: Any) -> Testbed:
        """Starts the control plane and the components; options by component name, such as kueue={...} for its configuration."""
        chosen = ordered(components)
        if absent := binaries.missing(programs(components)):
            raise TestbedError(f"not built yet: {', '.join(absent)}; build with: python -m testbed build")
        bed = cls(chosen, nodes, options)
        try:
            bed._start()
        except BaseException:
            bed.stop(keep=True)
            print(f"testbed: the logs are in {bed.dir / 'log'}", file=sys.stderr)
            raise
        return bed

    # -- starting and stopping

    def _start(self) -> None:
        self.authority = Authority()
        self.ca = self.authority.pem
        port = self.port()
        self.url = f"https://127.0.0.1:{port}"
        store = controlplane.start_store(self)
        admin = self.authority.issue("penstock-testbed-admin", ("system:masters",))
        folder = admin.write(self.dir / "certificates" / "admin", self.ca)
        controlplane.start_apiserver(self, store, port)
        self.kubeconfig = self.kubeconfig_for("penstock-testbed-admin", ("system:masters",))
        self.api = Api(self.url, folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
        self.raw = self.api.raw
        self.wait(lambda: controlplane.answers(self), "the API server to answer")
        self._mark("apiserver")
        controlplane.start_controllers(self)
        with ThreadPoolExecutor(8) as pool:
            started: dict[str, Any] = {}
            for component in self._components:
                before = [started[name] for name in component.needs if name in started]
                started[component.name] = pool.submit(self._component, component, before)
            started["control plane"] = pool.submit(controlplane.controllers_ready, self)
            for future in started.values():
                future.result()
        for component in self._components:
            component.ready(self)
        self._mark("ready")
        self._tell(stays=False)

    def _tell(self, stays: bool) -> None:
        """For `python -m testbed status` and `down`."""
        state = {
            "keeper": self.keeper,
            "components": self.components,
            "kubeconfig": str(self.kubeconfig),
            "stays": stays,
        }
        (self.dir / "instance.json").write_text(json.dumps(state))

    def _component(self, component: Component, before: list[Any]) -> None:
        for future in before:
            future.result()
        component.install(self)
        component.start(self)
        self._mark(component.name)

    def _mark(self, what: str) -> None:
        self.seconds[what] = time.monotonic() - self._began

    def stop(self, keep: bool = False) -> None:
        """Ends every process of the instance and removes its folder, unless its logs are to be kept."""
        if self._keeper.poll() is None:
            with contextlib.suppress(TestbedError):
                self._ask({"op": "keep", "keep": keep})
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._keeper.wait()
        if not keep:  # a keeper that was killed had no time for it
            shutil.rmtree(self.dir, ignore_errors=True)
        if hasattr(self, "api"):
            self.api.close()
        self._ports.release()

    def detach(self) -> None:
        """Lets the instance go on after this process; `python -m testbed down` ends it."""
        self._ask({"op": "stay"})
        self._tell(stays=True)

    def __enter__(self) -> Testbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(keep=error is not None)
        if error is not None:
            print(f"testbed: the logs are in {self.dir / 'log'}", file=sys.stderr)

    # -- processes

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            assert self._keeper.stdin
            assert self._keeper.stdout
            try:
                self._keeper.stdin.write(json.dumps(request) + "\n")
                self._keeper.stdin.flush()
                line = self._keeper.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise TestbedError(f"the keeper of the testbed in {self.dir} is gone")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise TestbedError(answer["error"])
        return answer

    def binary(self, name: str) -> Path:
        return binaries.path(name)

    def module(self, name: str) -> Path:
        """The folder of a Go module, for its manifests."""
        return binaries.module_folder(name)

    def port(self) -> int:
        with self._lock:
            return self._ports.take()

    def run(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        netns: Netns | None = None,
    ) -> Running:
        """Starts a program; its output goes to log/NAME.log. Should it end by itself, whoever waits for something is told."""
        words = [str(word) for word in argv]
        if netns:
            words = tunnel.argv(netns.folder, tuple(netns.exposed), words)
        log = self.dir / "log" / f"{name}.log"
        keys = ("PATH", "HOME", "LANG", "TMPDIR")
        environment = {key: os.environ[key] for key in keys if key in os.environ} | dict(env or {})
        request = {
            "op": "start",
            "name": name,
            "argv": words,
            "env": environment,
            "cwd": str(cwd or self.dir),
            "log": str(log),
        }
        running = Running(name, self._ask(request)["pid"], log, self._ask)
        self.processes[name] = running
        return running

    def end(self, name: str, grace: float = 5) -> None:
        """Ends a program on purpose, so that nobody waits for it."""
        self.processes.pop(name).end(grace)

    def netns(self, name: str, expose: Sequence[int] = ()) -> Netns:
        """A network namespace for a program that would listen on all interfaces; see tunnel.py."""
        if not tunnel.available():
            raise TestbedError(
                f"{name} needs a network namespace of its own, which this machine does not allow (unshare --net)"
            )
        folder = self.dir / "tunnels" / name
        folder.mkdir(parents=True)
        exposed = {port: self.port() for port in expose}
        pairs = [f"{host}:{port}" for port, host in exposed.items()]
        api = self.url.rpartition(":")[2]
        self.run(f"{name}-tunnel", [sys.executable, tunnel.__file__, "outside", str(folder), api, *pairs])
        self.wait(lambda: (folder / "api.sock").exists(), f"the tunnel of {name}")
        return Netns(folder, exposed)

    def remove_cgroup_at_end(self, root: str) -> None:
        self._ask({"op": "cgroup", "root": root})

    # -- identities

    def server_certificate(self, name: str, hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> Path:
        return self.authority.issue(name, hosts=hosts).write(self.dir / "certificates" / name, self.ca)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = (), server: str | None = None) -> Path:
        """A kubeconfig for a user by certificate; for a ServiceAccount (system:serviceaccount:NS:NAME) by token, as inside a cluster."""
        who: dict[str, str]
        if user.startswith("system:serviceaccount:"):
            who = {"token": self._token(*user.split(":")[2:])}
        else:
            issued = self.authority.issue(user, groups)
            who = {
                "client-certificate-data": base64.b64encode(issued.chain).decode(),
                "client-key-data": base64.b64encode(issued.key).decode(),
            }
        ca = base64.b64encode(self.ca).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "testbed", "cluster": {"server": server or self.url, "certificate-authority-data": ca}}
            ],
            "users": [{"name": user, "user": who}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        }
        suffix = "-tunnel" if server else ""
        path = self.dir / f"{user.replace(':', '-')}{suffix}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    def _token(self, namespace: str, name: str) -> str:
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7 * 86400},
        }
        for path, kind in ((f"/api/v1/namespaces/{namespace}", "Namespace"), (account, "ServiceAccount")):
            thing = {"apiVersion": "v1", "kind": kind, "metadata": {"name": path.rpartition("/")[2]}}
            self.raw("PATCH", path, thing, APPLY, {"fieldManager": MANAGER, "force": "true"})
        return str(self.raw("POST", f"{account}/token", body)["status"]["token"])

    # -- the API

    def get(self, path: str) -> Any:
        return self.api.raw("GET", path)

    def found(self, path: str) -> Any:
        """The object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def delete(self, path: str) -> None:
        self.api.raw("DELETE", path, {"propagationPolicy": "Background"})

    def objects(self, api: str, plural: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        root = f"/api/{api}" if "/" not in api else f"/apis/{api}"
        where = f"/namespaces/{namespace}" if namespace else ""
        listing = self.api.raw("GET", f"{root}{where}/{plural}", params={"labelSelector": labels} if labels else None)
        items: list[Object] = listing["items"]
        return items

    def apply(self, objects: Iterable[Object], *, manager: str = MANAGER) -> None:
        self.api.apply(objects, manager)

    # -- waiting

    def wait(self, condition: Callable[[], T | None], what: str, timeout: float = 180) -> T:
        """Returns the first true answer of the condition. The time-out is for the case that something is wrong; nobody waits for it."""
        deadline = time.monotonic() + timeout
        looked = 0.0
        while True:
            answer = condition()
            if answer:
                return answer
            now = time.monotonic()
            if now - looked > 1:
                looked = now
                self._dead(what)
            if now > deadline:
                raise TestbedError(f"waited {timeout:.0f} s for {what}; the logs are in {self.dir / 'log'}")
            time.sleep(0.05)

    def _dead(self, what: str) -> None:
        for running in list(self.processes.values()):
            if not running.alive():
                tail = "\n".join(running.log.read_text(errors="replace").strip().splitlines()[-15:])
                raise TestbedError(f"{running.name} ended while we waited for {what}; it said:\n{tail}")
