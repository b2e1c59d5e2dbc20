"""The process that holds all processes of one instance, so that none outlives it. Started by instance.py; uses the standard library only.

It reads one JSON request per line on its standard input and answers with one line. When the input closes (the tests ended or were killed)
or it is told to stop, it ends everything it started. Should it be killed itself, the kernel ends its children: each is started with a
parent-death signal. State in the testbed is thrown away anyway, so the end is SIGKILL: quick, and nothing can ignore it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Keeper:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.cgroups: list[str] = []
        self.stays = False
        self.keeps = False

    def start(self, name: str, argv: list[str], env: dict[str, str], cwd: str | None, log: str) -> dict[str, Any]:
        with open(log, "ab") as out:
            try:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=env,
                    cwd=cwd,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            except OSError as error:
                return {"error": f"{name} cannot be started: {error}"}
        self.children[child.pid] = child
        return {"pid": child.pid}

    def state(self, pid: int) -> dict[str, Any]:
        code = self.children[pid].poll()
        return {"alive": code is None, "code": code}

    def end(self, pid: int, grace: float) -> dict[str, Any]:
        child = self.children[pid]
        if child.poll() is None and grace > 0:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace)
        _kill(child)
        return {"code": child.wait()}

    def end_all(self) -> None:
        for child in reversed(self.children.values()):
            _kill(child)
        for child in self.children.values():
            child.wait()
        end_orphans()
        for root in self.cgroups:
            remove_cgroup(root)
        if not self.keeps:
            shutil.rmtree(self.folder, ignore_errors=True)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("op"):
            case "start":
                return self.start(**request)
            case "state":
                return self.state(**request)
            case "end":
                return self.end(**request)
            case "cgroup":  # a folder in the cgroup trees that goes when the instance goes
                self.cgroups.append(request["root"])
            case "stay":  # go on when the one who started us is gone
                self.stays = True
            case "keep":  # leave the folder with its logs
                self.keeps = request["keep"]
            case other:
                return {"error": f"unknown request {other}"}
        return {}


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def adopt_orphans() -> None:
    """What our children leave behind becomes our child, not a stranger's."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    while True:
        try:
            mine = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        except OSError:  # a kernel without that list; the parent-death signal has ended them
            mine = []
        for pid in mine:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def cgroup_folders(root: str) -> list[Path]:
    """Every folder of the name in the mounted cgroup trees (one with cgroup v2, one per controller with v1), deepest first."""
    tops = [Path("/sys/fs/cgroup")]
    with contextlib.suppress(OSError):
        tops += [top for top in tops[0].iterdir() if top.is_dir()]
    # A folder may go while we look; os.walk passes over it.
    found = {Path(folder) for top in tops for folder, _, _ in os.walk(top / root)}
    return sorted(found, key=lambda folder: len(folder.parts), reverse=True)


def remove_cgroup(root: str, seconds: float = 10) -> None:
    """Removes the cgroup and all below it. A killed process may take a moment to leave, and the folder is busy until then."""
    deadline = time.monotonic() + seconds
    while folders := cgroup_folders(root):
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def main() -> None:
    keeper = Keeper(Path(sys.argv[1]))
    adopt_orphans()

    def stop(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they stop us by closing the pipe
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        for line in sys.stdin:
            answer = keeper.answer(json.loads(line))
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(answer), flush=True)
        while keeper.stays:
            signal.pause()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        keeper.end_all()
        # The pipe may be broken; nothing is left to say.
        os._exit(0)


if __name__ == "__main__":
    main()
