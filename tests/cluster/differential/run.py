"""Streams played on both sides and compared: one (`play`), or many at the same time in one Kueue (`play_all`). Called by the test, by shrink, and
by the command that replays a stream.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from typing import Any

from testbed.instance import Testbed
from tests.cluster.differential.follow import Follower
from tests.cluster.differential.ours import Ours
from tests.cluster.differential.quiet import NotQuiet, Observer
from tests.cluster.differential.streams import Stream
from tests.cluster.differential.theirs import Endless, Phase, Theirs

Doc = dict[str, Any]
AT_ONCE = int(os.environ.get("PENSTOCK_STREAMS_AT_ONCE", "16"))
_numbers = itertools.count()


@dataclass
class Count:
    """What was seen, so that a test which never meets a preemption cannot pass for one that does."""

    streams: int = 0
    operations: int = 0
    workloads: int = 0
    quiet_points: int = 0
    admissions: int = 0
    preemptions: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)
    partial: int = 0
    borrowing: int = 0
    stops: int = 0
    deactivations: int = 0
    other_ways: int = 0
    """Quiet points at which the answer was the one of another order than the usual (see follow)."""
    endless: int = 0

    def add(self, other: Count) -> None:
        for one in fields(self):
            mine, more = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, dict):
                for key, n in more.items():
                    mine[key] = mine.get(key, 0) + n
            else:
                setattr(self, one.name, mine + more)


@dataclass
class Result:
    stream: Stream
    phases: list[Phase] = field(default_factory=list)
    theirs: dict[str, Doc] = field(default_factory=dict)
    ours: dict[str, Doc] = field(default_factory=dict)
    """The answers at the last quiet point."""
    lines: list[str] = field(default_factory=list)
    """How they differ."""
    docs: list[Doc] = field(default_factory=list)
    namespace: str = ""
    sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    """Workload and pod set -> how many pods were asked for."""
    count: Count = field(default_factory=Count)

    @property
    def agrees(self) -> bool:
        return not self.lines


def play(bed: Testbed, observer: Observer, stream: Stream) -> Result:
    """Until the end of the stream, or the first point at which the answers differ."""
    name = f"s{stream.seed}-{next(_numbers)}"
    theirs = Theirs(bed, observer, stream, name)
    result = Result(stream, docs=copy.deepcopy(theirs.docs), namespace=name)
    theirs.set_up()
    ours = Follower(Ours(stream.fair, name, theirs.docs))

    def ask(phase: Phase) -> None:
        if ours.leads_round(phase):
            raise Endless("a search through the flavors")

    theirs.ask = ask
    try:
        for phase in theirs.play():
            result.phases.append(phase)
            _counted(phase, result.theirs, result.count, result.sizes)
            result.theirs = phase.state
            result.ours, result.lines = ours.follow(phase)
            if result.lines:
                break
    except Endless:
        result.count.endless = 1
    except NotQuiet as error:
        result.lines = [str(error)]
    finally:
        theirs.tear_down()
    result.count.streams = 1
    result.count.operations = len({phase.step for phase in result.phases})
    result.count.borrowing = ours.path[-1].borrowed
    result.count.other_ways = ours.searches
    return result


def _counted(phase: Phase, before: dict[str, Doc], count: Count, sizes: dict[tuple[str, str], int]) -> None:
    count.quiet_points += 1
    for move in phase.moves:
        if move["do"] == "create":
            count.workloads += 1
            for podset in move["doc"]["spec"]["podSets"]:
                sizes[move["doc"]["metadata"]["name"], podset["name"]] = podset["count"]
    for name, now in phase.state.items():
        was = before.get(name, {"state": ""})
        if now["state"] == "evicted" and was["state"] != "evicted":
            count.preemptions += now["evicted"] == "Preempted"
            count.stops += now["evicted"] == "ClusterQueueStopped"
            count.deactivations += now["evicted"] == "Deactivated"
            if "preempted" in now:
                count.by_reason[now["preempted"]] = count.by_reason.get(now["preempted"], 0) + 1
        if now["state"] == "admitted" and was["state"] != "admitted":
            count.admissions += 1
            count.partial += any(podset["count"] < sizes[name, podset["name"]] for podset in now["podsets"])


def play_all(
    bed: Testbed, streams: Iterable[Stream], told: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Several at a time: they share nothing but the scheduler. Results in the order of the streams."""
    with Observer(bed) as observer, ThreadPoolExecutor(AT_ONCE) as pool:
        playing = [pool.submit(play, bed, observer, stream) for stream in streams]
        for done in as_completed(playing):
            told(done.result())
        return [one.result() for one in playing]
