"""A stream on which the answers differ, made small: steps, ClusterQueues and details are left out as long as the answers still differ. Called by
the test for what it prints, and by the command that replays a stream.

Each attempt is a play against the live Kueue, so there is a limit on them; those that do not depend on each other are played side by side.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.cluster.differential.compare import side_by_side
from tests.cluster.differential.run import Result
from tests.cluster.differential.streams import Stream

Doc = dict[str, Any]
PlayAll = Callable[[list[Stream]], list[Result]]


def shrink(result: Result, play_all: PlayAll, plays: int = 60, at_once: int = 12) -> Result:
    """The smallest that was found. `play_all` plays streams; not more than `plays` in all."""
    best = result
    if not result.ours:
        return best  # there was no answer to compare: that takes a minute each time
    stream = result.stream.fixed()
    if result.phases:
        stream.steps = stream.steps[: result.phases[-1].step + 1]
    left = plays
    candidates = iter([stream])
    while left > 0:
        tried = [one for _, one in zip(range(min(at_once, left)), candidates, strict=False)]
        if not tried:
            break
        left -= len(tried)
        found = [one for one in play_all(tried) if not one.agrees]
        if found:
            best = min(found, key=lambda one: _size(one.stream))
            candidates = _smaller(best.stream.fixed())
    return best


def _size(stream: Stream) -> int:
    return len(json.dumps(stream.to_json()))


def _smaller(stream: Stream) -> Iterator[Stream]:
    """With something left out: many steps first, then single ones, then queues and what they are made of."""
    n = len(stream.steps)
    for width in sorted({max(1, n // 2), max(1, n // 4), 1}, reverse=True):
        for at in range(0, n - 1, width):
            yield _with(stream, steps=stream.steps[:at] + stream.steps[at + width :])
    for queue in [doc["metadata"]["name"] for doc in stream.objects if doc["kind"] == "ClusterQueue"]:
        if all(_queue_of(step) != queue for step in stream.steps):
            kept = [doc for doc in stream.objects if doc["metadata"]["name"] != queue]
            yield _with(stream, objects=kept)
    for at, step in enumerate(stream.steps):
        if step["do"] == "burst" and len(step["workloads"]) > 1:
            for number in range(len(step["workloads"])):
                fewer = step | {"workloads": step["workloads"][:number] + step["workloads"][number + 1 :]}
                yield _with(stream, steps=stream.steps[:at] + [fewer] + stream.steps[at + 1 :])
    yield from _simpler(stream)


def _queue_of(step: Doc) -> str:
    found: str = step.get("queue") or step.get("workload", {}).get("spec", {}).get("queueName", "")
    return found


def _simpler(stream: Stream) -> Iterator[Stream]:
    """Without one policy, limit, taint or selector."""
    for at, doc in enumerate(stream.objects):
        for path in _details(doc.get("spec", {}), ()):
            objects = copy.deepcopy(stream.objects)
            at_path = objects[at]["spec"]
            for key in path[:-1]:
                at_path = at_path[key]
            del at_path[path[-1]]
            yield _with(stream, objects=objects)


_DETAILS = {
    "borrowingLimit",
    "lendingLimit",
    "nodeTaints",
    "nodeLabels",
    "borrowWithinCohort",
    "flavorFungibility",
    "preemption",
    "fairSharing",
}


def _details(doc: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(doc, dict):
        for key, value in doc.items():
            if key in _DETAILS:
                yield (*path, key)
            yield from _details(value, (*path, key))
    elif isinstance(doc, list):
        for key, value in enumerate(doc):
            yield from _details(value, (*path, key))


def _with(stream: Stream, **parts: Any) -> Stream:
    found = copy.deepcopy(stream)
    for name, value in parts.items():
        setattr(found, name, copy.deepcopy(value))
    found.picked = {}
    return found


def report(result: Result) -> str:
    """All that one needs to see what is wrong and to play it again."""
    stream = result.stream.fixed()
    lines = [f"seed {stream.seed}: Kueue and Penstock differ"]
    for phase in result.phases:
        lines.append(f"  step {phase.step}: {'; '.join(_told(move) for move in phase.moves)}")
    lines += [f"  {line}" for line in result.lines]
    lines.append(side_by_side(result.theirs, result.ours))
    lines.append("the stream (save it to replay it):")
    lines.append(json.dumps(stream.to_json()))
    lines.append("replay: .venv/bin/python -m tests.cluster.differential FILE.json")
    lines.append(f"the whole: .venv/bin/python -m tests.cluster.differential {stream.seed}")
    return "\n".join(lines)


def _told(move: Doc) -> str:
    if move["do"] == "create":
        return f"create {move['doc']['metadata']['name']}"
    if move["do"] == "objects":
        (doc,) = move["docs"]
        return f"{doc['kind']} {doc['metadata']['name']} changes (stopPolicy {doc['spec'].get('stopPolicy', 'None')})"
    return f"{move['do']} {move['name']}"
