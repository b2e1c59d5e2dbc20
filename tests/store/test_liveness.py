"""Who is alive, told from the process table or from a heartbeat."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.store import liveness
from penstock.store.liveness import Watch, alive, identity
from penstock.store.records import EngineRecord


def child() -> tuple[subprocess.Popen[str], EngineRecord]:
    code = "from penstock.store.liveness import identity; import sys; print(*identity(), sep='\\t', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    id, host, pid, born, beat = process.stdout.readline().rstrip("\n").split("\t")
    return process, EngineRecord(id, host, int(pid), born, int(beat))


def test_this_process_is_alive_and_each_identity_is_another() -> None:
    me, again = identity(), identity()
    assert alive(me) is True
    assert me.id != again.id
    assert me[1:4] == again[1:4]


def test_another_process_is_alive_until_it_ends_even_before_it_is_reaped() -> None:
    process, engine = child()
    assert alive(engine) is True
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert alive(engine) is False, "a zombie"
    process.communicate()
    assert alive(engine) is False


def test_a_pid_that_was_given_to_another_process_is_not_the_engine() -> None:
    assert alive(identity()._replace(born="1")) is False


def test_of_another_machine_or_container_nothing_is_known() -> None:
    me = identity()
    assert alive(me._replace(host="elsewhere")) is None
    assert me.host.count("/") == 2


def test_without_proc_ps_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "_read", lambda path: "")
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    said = {"stdout": "Mon Jan  1 00:00:00 2024\n"}
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, said["stdout"], ""))
    here = identity()
    assert here.born == "Mon Jan  1 00:00:00 2024"
    assert alive(here) is True
    said["stdout"] = ""
    assert alive(here) is False


def test_a_process_that_may_not_be_seen_is_left_to_its_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    process, engine = child()
    plain = liveness._read
    monkeypatch.setattr(liveness, "_read", lambda path: "" if str(process.pid) in path else plain(path))
    assert alive(engine) is None
    process.communicate()
    assert alive(engine) is False


def test_a_heart_that_stands_still_for_thirty_of_our_seconds_is_dead() -> None:
    watch = Watch()
    assert not watch.dead("a", 5, 1000.0)
    assert not watch.dead("a", 5, 1029.9)
    assert watch.dead("a", 5, 1030.0)
    assert not watch.dead("a", 6, 1031.0), "it was only slow"
    assert not watch.dead("a", 6, 1060.0)
    assert not watch.dead("b", 1, 1060.0), "seen for the first time"
    assert watch.dead("a", 6, 1061.0)
    watch.forget("a")
    assert not watch.dead("a", 6, 1062.0)


def test_after_a_restart_of_this_machine_nothing_of_before_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = liveness._read
    known = {"/etc/machine-id": "m1\n", "/proc/sys/kernel/random/boot_id": "one\n"}
    monkeypatch.setattr(liveness, "_read", lambda path: known.get(path) if path in known else plain(path))
    before = identity()
    known["/proc/sys/kernel/random/boot_id"] = "two\n"
    assert alive(before) is False
    known["/etc/machine-id"] = "m2\n"
    assert alive(before) is None, "another machine of the same name"
    known["/etc/machine-id"] = ""
    assert alive(before) is None
