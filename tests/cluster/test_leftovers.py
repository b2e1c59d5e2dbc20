"""Twenty rounds of a control plane with a real node leave nothing on the machine: no process, mount, network device or cgroup."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import binaries
from testbed.components import node
from testbed.errors import TestbedError
from testbed.instance import Testbed
from testbed.leftovers import leftovers
from tests.cluster import node_pods as pods
from tests.cluster.support import fresh_namespace

ROUNDS = 20


def processes_naming(text: str) -> list[str]:
    """Looks for itself, so that what leftovers() says is not the only witness."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in words:
            found.append(process.name)
    return found


def test_nothing_is_left_after_twenty_rounds(testbed: Callable[..., Testbed]) -> None:
    if absent := binaries.missing((*binaries.CONTROL_PLANE, *node.Node.binaries)):
        pytest.skip(f"node: {', '.join(absent)} is not built")
    try:
        node.check()
    except TestbedError as error:
        pytest.skip(f"node: {error}")
    before = pods.machine()
    for number in range(ROUNDS):
        one_round(killed=number % 4 == 3)
        assert pods.machine() == before


def one_round(killed: bool) -> None:
    bed = Testbed.start("node")
    try:
        ns = fresh_namespace(bed)
        pods.create(bed, ns, "long", "sleep", "infinity")
        pods.running(bed, ns, "long")
        assert processes_naming(str(bed.dir))
        assert pods.cgroups(bed)
        if killed:
            os.kill(bed.keeper, signal.SIGKILL)
            pods.wait_until_gone(bed)
            shutil.rmtree(bed.dir)
    finally:
        bed.stop()
    assert leftovers(bed) == []
    assert processes_naming(str(bed.dir)) == []
    assert pods.cgroups(bed) == []
    assert not bed.dir.exists()
