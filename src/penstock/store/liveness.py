"""Is an engine still alive? Asked by the engine before it takes a run or a key over from another one.

On the same machine the process table knows: a pid and the moment the process was born name a process for good, though pids
are used again. From elsewhere only its heartbeat is seen; it is timed by our own monotonic clock, so that wall clocks, which
differ between machines and jump, never matter.
"""

from __future__ import annotations

import json
import os

from penstock.store.records import EngineRecord

PATIENCE = 30.0
"""Seconds without a heartbeat after which an engine elsewhere counts as dead."""


def identity(id: str = "") -> EngineRecord:
    """This process, under a new id, or one that was made before."""
    return EngineRecord(id or os.urandom(16).hex(), _host(), os.getpid(), _born(os.getpid()) or "", 0)


def alive(engine: EngineRecord) -> bool | None:
    """None: it cannot be told from here, let its heartbeat decide."""
    here = _host()
    if engine.host != here:
        return False if _started_again(engine.host, here) else None
    if (born := _born(engine.pid)) is not None:
        return bool(born) and born == engine.born
    if os.name != "posix":
        return None
    try:
        os.kill(engine.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    # Something has this pid, but we may not see what.
    return None


class Watch:
    """Remembers when each heartbeat was last seen to move."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self, id: str, beat: int, now: float) -> bool:
        """`now`: of our monotonic clock. The first look at an engine never finds it dead."""
        last, since = self._seen.get(id, (None, now))
        if last != beat:
            self._seen[id] = (beat, now)
            return False
        return now - since >= self._patience

    def forget(self, id: str) -> None:
        self._seen.pop(id, None)


def as_sender(one: EngineRecord) -> str:
    """A process, as rows name who works on them for a while."""
    return json.dumps([one.id, one.host, one.pid, one.born])


def may_take(sender: str, until: float, me: EngineRecord, now: float) -> bool:
    """May this process work on a row that `sender` has until then? If nobody has it, or this process, if the time is over, or its sender is dead."""
    if sender in ("", as_sender(me)) or until <= now:
        return True
    id, host, pid, born = json.loads(sender)
    return alive(EngineRecord(id, host, pid, born, 0)) is False


def _host() -> str:
    """A machine between two starts, and within it what sees the same pids: containers have pids of their own.

    `name/machine.start/pids`"""
    try:
        name = os.uname().nodename
    except AttributeError:
        import platform

        name = platform.node()
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    machine, start = _read("/etc/machine-id").strip(), _read("/proc/sys/kernel/random/boot_id").strip()
    return "/".join((name, f"{machine}.{start}", space))


def _started_again(there: str, here: str) -> bool:
    """The same machine before its last start: nothing of then is alive."""
    name, _, rest = there.partition("/")
    our_name, _, our_rest = here.partition("/")
    machine, _, boot = rest.partition("/")[0].partition(".")
    our_machine, _, our_boot = our_rest.partition("/")[0].partition(".")
    return bool(machine and boot and our_boot) and (name, machine) == (our_name, our_machine) and boot != our_boot


def _born(pid: int) -> str | None:
    """When a process was born, in whatever form this system tells; "" if there is none; None if it cannot be told."""
    stat = _read(f"/proc/{pid}/stat")
    if stat:
        # The name in brackets may itself hold brackets and spaces. Then: state, …, start time.
        fields = stat.rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    if os.path.exists("/proc/self/stat"):
        # Hidden from us (hidepid), or gone.
        return None
    if os.name != "posix":
        return None
    import subprocess

    try:
        said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return said.stdout.strip()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
