"""What this machine has, and the queue that stands for it as long as none is configured. Called by `queues`, `hosting` and
`simulation`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.admission.model import (
    UNLIMITED,
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Object,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from penstock.service.wording import MACHINE

GPU = "nvidia.com/gpu"


def capacity() -> dict[str, int]:
    """Cores in thousandths, bytes of memory, graphics cards. Limits of the control group count."""
    try:
        cores = len(os.sched_getaffinity(0)) * 1000
    except AttributeError:
        cores = (os.cpu_count() or 1) * 1000
    limit = _number("/sys/fs/cgroup/cpu.max", 0), _number("/sys/fs/cgroup/cpu.max", 1)
    if limit[0] and limit[1]:
        cores = min(cores, max(1, limit[0] * 1000 // limit[1]))
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = UNLIMITED
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        memory = min(memory, _number(file, 0) or memory)
    cards = sum(1 for path in Path("/dev").glob("nvidia[0-9]*"))
    return {"cpu": cores, "memory": memory, GPU: cards, "ephemeral-storage": UNLIMITED}


def _number(file: str, word: int) -> int:
    try:
        return int(Path(file).read_text().split()[word])
    except (OSError, ValueError, IndexError):
        return 0


def machine(amounts: Mapping[str, int] | None = None) -> list[Object]:
    """One ClusterQueue with what this machine has, or with these amounts."""
    found = capacity() if amounts is None else amounts
    quotas = FlavorQuotas(MACHINE, {name: Quota(amount) for name, amount in found.items()})
    return [
        ResourceFlavor(name=MACHINE),
        ClusterQueue(name=MACHINE, groups=(ResourceGroup(tuple(found), (quotas,)),)),
        LocalQueue(name="default", cluster_queue=MACHINE),
    ]
