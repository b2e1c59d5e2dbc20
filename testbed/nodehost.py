"""The process around the real node: one PID, mount and network namespace that holds containerd, the kubelet and all containers. Started by
components/node.py through the keeper, as `python -m testbed.nodehost PLAN.json`; uses the standard library only.

Two processes. The outer one stays on the host. The inner one is the first process of the new PID namespace, so when it ends, for whatever
reason, the kernel ends everything in it; the mounts, the pods' networks and their devices go with their namespaces. Should the keeper be
killed, the outer one is told by the kernel, ends the inner one and removes the node's cgroups, the one thing that namespaces leave behind.

The network namespace has loopback only, so nothing of the node is reachable from elsewhere and nothing of the host changes (forwarding,
routes, devices). These ways lead through it: inside, the address of the Service `kubernetes` leads to the API server, and any port of the
host's 127.0.0.1 that a file in the folder `ways` is named after is found under the same number, on 127.0.0.1 and on the node's address;
outside, 127.0.0.1 with the kubelet's port leads to the kubelet. Each is a socket that listens in one namespace, handed to the process
that lives in the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from testbed.keeper import remove_cgroup

_LIBC = ctypes.CDLL(None, use_errno=True)
_PDEATHSIG = 1
_NEWNS, _NEWNET, _NEWPID = 0x00020000, 0x40000000, 0x20000000
_RDONLY, _BIND, _REC, _PRIVATE, _SHARED = 0x1, 0x1000, 0x4000, 0x40000, 0x100000
CONTAINERD = "/run/containerd/containerd.sock"
# The kubelet sets these for the whole machine. It finds what it wants here and leaves the machine's own alone.
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True)
class Plan:
    """What the outside decides. Written as JSON by components/node.py."""

    folder: str  # of the node, on a disk
    log: str  # folder for the logs
    cgroup: str
    ways: str  # folder of files named after ports on the host that pods may connect to
    api_port: int
    service: str  # address of the Service `kubernetes`
    address: str  # of the node
    kubelet_port: int
    kubelet: list[str]
    images: list[str]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(vars(self)))


def main() -> None:
    # The keeper gave us its own parent-death signal, SIGKILL; this one leaves time to remove the cgroups.
    keeper = os.getppid()
    _die_with_parent(signal.SIGTERM)
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text()))
    kubelet = _listen("127.0.0.1", plan.kubelet_port)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _call("unshare", _NEWPID)
    inner = os.fork()
    if inner == 0:
        here.close()
        _die_with_parent(signal.SIGKILL)
        try:
            _inside(plan, kubelet, there)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(1)
    kubelet.close()
    there.close()
    try:
        if os.getppid() == keeper:
            asyncio.run(_outside(here))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(inner, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(inner, 0)
        remove_cgroup(plan.cgroup)
        shutil.rmtree(plan.folder, ignore_errors=True)


def _call(name: str, *arguments: bytes | int | None) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}: {arguments}")


def _die_with_parent(how: signal.Signals) -> None:
    _call("prctl", _PDEATHSIG, how, 0, 0, 0)


# -- outside


async def _outside(channel: socket.socket) -> None:
    """Relays for the sockets that the inner process sends, until it ends or we are told to."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    relays: set[asyncio.Task[None]] = set()

    def receive() -> None:
        port, descriptors, _, _ = socket.recv_fds(channel, 16, 1)
        if descriptors:
            relays.add(loop.create_task(_relay(socket.socket(fileno=descriptors[0]), int(port))))
        else:
            done.set()

    loop.add_signal_handler(signal.SIGTERM, done.set)
    loop.add_reader(channel, receive)
    await done.wait()


def _listen(host: str, port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    made.listen(128)
    return made


async def _relay(listening: socket.socket, port: int) -> None:
    """Whoever connects to the socket, in whichever namespace that is, is connected to the port on our loopback."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # nobody listens yet: the caller sees a closed connection and tries again
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        writer.close()
        far_writer.close()

    listening.setblocking(False)
    await asyncio.start_server(serve, sock=listening)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()  # the other direction may have more to say
    except OSError:
        writer.close()


# -- inside


def _inside(plan: Plan, kubelet: socket.socket, channel: socket.socket) -> None:
    _enter_cgroup(plan.cgroup)
    _call("unshare", _NEWNS | _NEWNET)
    _network(plan)
    _open(channel, plan.service, 443, plan.api_port)
    _open(channel, "0.0.0.0", plan.api_port, plan.api_port)
    _mounts(plan)
    asyncio.run(_Node(plan, channel).run(kubelet))


def _open(channel: socket.socket, host: str, port: int, host_port: int) -> None:
    """A way from the node to a port on the host's 127.0.0.1."""
    with _listen(host, port) as listening:
        socket.send_fds(channel, [str(host_port).encode()], [listening.fileno()])


def _enter_cgroup(name: str) -> None:
    """Puts us below the node's cgroup in one tree: whoever removes it then waits for the last of the node's processes."""
    for top in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        home = Path(top, name)
        if home.is_dir():
            (home / "node").mkdir()
            (home / "node" / "cgroup.procs").write_text("0")
            return


def _network(plan: Plan) -> None:
    """Loopback, with the addresses of the node and of the API server's Service. No device is needed for them."""
    set_flags, set_address, set_mask, up = 0x8914, 0x8916, 0x891C, 0x1 | 0x40
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, set_flags, struct.pack("16sh14x", b"lo", up))
        for index, address in enumerate((plan.address, plan.service), 1):
            for request, value in ((set_address, address), (set_mask, "255.255.255.255")):
                packed = struct.pack("16sHH4s8x", b"lo:%d" % index, socket.AF_INET, 0, socket.inet_aton(value))
                fcntl.ioctl(control, request, packed)


def _mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    _call("mount", *words, flags, data.encode() if data is not None else None)


def _mounts(plan: Plan) -> None:
    folder = Path(plan.folder)
    # Private first, so that nothing gets out; shared then, as the kubelet expects among its own.
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("none", "/", None, _REC | _SHARED)
    _mount("proc", "/proc", "proc")
    needed = [
        Path(path).resolve()
        for path in (*plan.kubelet[:1], *plan.images, plan.folder, plan.log, sys.prefix, sys.base_prefix)
    ]
    for top in ("/run", "/var/lib", "/var/log"):
        _own(Path(top), needed)
    if not Path("/var/run").is_symlink():
        _mount("/run", "/var/run", None, _BIND)
    for name, target in (
        ("containerd", "/var/lib/containerd"),
        ("kubelet", "/var/lib/kubelet"),
        ("pods", "/var/log/pods"),
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        _mount(str(folder / name), target, None, _BIND)
    for name, value in _KERNEL.items():
        if Path("/proc/sys", name).exists():
            stand_in = Path("/run/kernel", name)
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            stand_in.write_text(value + "\n")
            _mount(str(stand_in), f"/proc/sys/{name}", None, _BIND)


def _own(top: Path, needed: list[Path]) -> None:
    """An empty folder of the node's own in place of the host's. What we need from below it (a home folder may be there) stays in sight."""
    kept = {top / path.relative_to(top).parts[0] for path in needed if path.is_relative_to(top) and path != top}
    handles = {path: os.open(path, os.O_PATH) for path in kept}
    _mount("tmpfs", str(top), "tmpfs", 0, "mode=755")
    for path, handle in handles.items():
        path.mkdir()
        _mount(f"/proc/self/fd/{handle}", str(path), None, _BIND | _REC)
        os.close(handle)


def _snapshotter(folder: Path) -> str:
    """Overlays where the disk allows them; plain copies otherwise (a container's root is often an overlay itself)."""
    parts = {name: folder / "overlay" / name for name in ("lower", "upper", "work", "merged")}
    for part in parts.values():
        part.mkdir(parents=True)
    try:
        data = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
        _mount("overlay", str(parts["merged"]), "overlay", 0, data)
    except OSError:
        return "native"
    _call("umount2", str(parts["merged"]).encode(), 0)
    return "overlayfs"


class _Node:
    """containerd, the images, the kubelet. Being the first process of a PID namespace, we also reap what others leave to us."""

    def __init__(self, plan: Plan, channel: socket.socket) -> None:
        self.plan = plan
        self.channel = channel
        self.folder, self.log = Path(plan.folder), Path(plan.log)
        self.vital: dict[int, str] = {}
        self.codes: dict[int, int] = {}
        self.opened = {plan.api_port}

    async def run(self, kubelet: socket.socket) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)
        await _relay(kubelet, self.plan.kubelet_port)
        snapshotter = _snapshotter(self.folder)
        settings = self.folder / "containerd.toml"
        settings.write_text(settings.read_text().replace("SNAPSHOTTER", snapshotter))
        began = time.monotonic()
        self.start("containerd", "containerd", "--config", str(settings))
        while not await _answers():
            await self.pause()
        print(f"containerd answers after {time.monotonic() - began:.2f} s, snapshots by {snapshotter}", flush=True)
        self.start("kubelet", *self.plan.kubelet)
        load = ("ctr", "-n", "k8s.io", "images", "import", "--snapshotter", snapshotter)
        for image in self.plan.images:
            pid = self.start("images", *load, image)
            while pid not in self.codes:
                await self.pause()
        print(f"images are there after {time.monotonic() - began:.2f} s", flush=True)
        (self.folder / "images-imported").touch()
        while True:
            self.open_ways()
            await self.pause(0.1)

    def start(self, name: str, *argv: str) -> int:
        with (self.log / f"{name}.log").open("ab") as out:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd="/")
        self.vital[child.pid] = name
        child.returncode = 0  # we reap it ourselves
        return child.pid

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] in self.vital:
                    self.codes[found[0]] = os.waitstatus_to_exitcode(found[1])

    async def pause(self, seconds: float = 0.02) -> None:
        """Waits; ends the node when a process it cannot do without has ended."""
        await asyncio.sleep(seconds)
        for pid, code in self.codes.items():
            name = self.vital[pid]
            if code or name != "images":
                print(f"{name} ended with code {code}; see {self.log / name}.log", flush=True)
                raise SystemExit(1)

    def open_ways(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.plan.ways):
                if name.isdigit() and int(name) not in self.opened:
                    self.opened.add(int(name))
                    try:
                        _open(self.channel, "0.0.0.0", int(name), int(name))
                    except OSError as error:
                        print(f"no way to port {name} of the host: {error}", flush=True)


async def _answers() -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(CONTAINERD)
    except OSError:
        return False
    writer.close()
    return True


if __name__ == "__main__":
    main()
