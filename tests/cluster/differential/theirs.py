"""A stream played on a live Kueue, as a controller of its own would: it creates, finishes and changes Workloads and queues, and answers evictions
by the protocol. Called by run; each step gives one or more `Phase`s, which end at a quiet point (see quiet).

One thing at a time: an operation is sent, Kueue comes to rest, and the answer is read. The victims of one preemption are let go one after
the other, by name, each at a quiet point of its own: between two of them Kueue may decide something, and it should always have the time to.
After a `slow` step they stop only when the next step is done: Kueue decides on that while the room it has made is not there yet.
A queue that was drained is opened again behind a stopped LocalQueue: its Workloads may come back one by one, as the reconciler gets to
them, and only the opening of the LocalQueue puts them all in line at once.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.differential.quiet import CYCLES, Look, Observer
from tests.cluster.differential.streams import API, GATE, Stream, named
from tests.cluster.kueue_protocol import KUEUE, MERGE, Desk, condition, holds, reason

Doc = dict[str, Any]
_BY = re.compile(r"\(UID: ([0-9a-f-]+)")
_EVICTIONS = 10
"""After so many evictions in one step two Workloads push each other out for ever."""


@dataclass
class Phase:
    """What was done, and how everything stood when Kueue was quiet again."""

    step: int
    moves: list[Doc]
    at: float
    batched: bool
    """Whoever was parked where something has changed has been tried again."""
    state: dict[str, Doc] = field(default_factory=dict)
    reserved: dict[str, str] = field(default_factory=dict)
    """Workload -> since when it holds its quota."""

    def to_json(self) -> Doc:
        return {name: getattr(self, name) for name in ("step", "moves", "at", "batched", "state", "reserved")}

    @classmethod
    def from_json(cls, doc: Doc) -> Phase:
        return cls(**doc)


class Endless(Exception):
    """Workloads push each other out for ever, or Kueue searches for ever: the stream ends here."""


class Theirs:
    def __init__(self, bed: Testbed, observer: Observer, stream: Stream, name: str) -> None:
        self.bed, self.observer, self.stream = bed, observer, stream
        self.prefix, self.namespace = f"{name}-", name
        self.desk = Desk(bed, name)
        self.docs = [named(doc, self.prefix, self.namespace) for doc in stream.objects]
        self.queues: dict[str, Doc] = {d["metadata"]["name"]: d for d in self.docs if d["kind"] == "ClusterQueue"}
        self.local_queues: dict[str, Doc] = {d["metadata"]["name"]: d for d in self.docs if d["kind"] == "LocalQueue"}
        self.versions: dict[str, int] = {}
        """Of our own latest writes: the watch has to have come that far."""
        self.created: dict[str, tuple[str, int, str]] = {}
        """Workload -> its queue, priority and time of creation."""
        self.ask: Callable[[Phase], None] = lambda phase: None
        """Called when something has been done, before Kueue is waited for."""

    # -- the stream ---------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        self.bed.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}])
        for kinds in (("ResourceFlavor", "Cohort"), ("ClusterQueue",), ("LocalQueue",)):
            for doc in self.docs:
                if doc["kind"] in kinds:
                    self.bed.raw("POST", self._path(doc), doc)
        for doc in (*self.queues.values(), *self.local_queues.values()):
            self._taken_up(doc)
        last = f"{self.prefix}last"
        doc = {"apiVersion": API, "kind": "Cohort", "metadata": {"name": last}, "spec": {"parentName": f"{last}-above"}}
        self.bed.raw("POST", f"{KUEUE}/cohorts", doc)
        with self.observer.looking():
            self.observer.until(lambda: last in self.observer.looks[-1].cohorts, f"{last} to be taken up")
        self.observer.ring()

    def _path(self, doc: Doc, name: str = "") -> str:
        plural = {"ResourceFlavor": "resourceflavors", "Cohort": "cohorts", "ClusterQueue": "clusterqueues"}
        if doc["kind"] == "LocalQueue":
            return self.desk.path("localqueues", name)
        return f"{KUEUE}/{plural[doc['kind']]}" + (f"/{name}" if name else "")

    def play(self) -> Iterator[Phase]:
        for number, step in enumerate(self.stream.steps):
            for moves, batched in self._moves(number, step):
                yield self._phase(number, moves, batched)
                if not step.get("slow"):
                    yield from self._stopped(number)
        yield from self._stopped(len(self.stream.steps) - 1)

    def _stopped(self, number: int) -> Iterator[Phase]:
        """Everybody who was told to stop has, one after the other."""
        for _ in range(_EVICTIONS):
            evicted = sorted(name for name, doc in self._mine().items() if _stand(doc)["state"] == "evicted")
            if not evicted:
                return
            yield self._phase(number, [{"do": "release", "name": evicted[0]}], True)
        raise Endless(f"step {number}")

    def tear_down(self) -> None:
        """Takes away what Kueue's cycles and gauges go through; the rest does no harm."""
        for kind in ("workloads", "localqueues"):
            self._delete(self.desk.path(kind))
        for name in self.queues:
            self._delete(f"{KUEUE}/clusterqueues/{name}")

    def _delete(self, path: str) -> None:
        try:
            self.bed.delete(path)
        except ApiError as error:
            if error.code != 404:
                raise

    # -- steps -> moves -----------------------------------------------------------------------------------------------

    def _moves(self, number: int, step: Doc) -> Iterator[tuple[list[Doc], bool]]:
        """What to do, and whether it makes Kueue try parked ones again. Nothing, if there is nobody to do it to."""
        do = step["do"]
        if do == "create":
            yield [{"do": "create", "doc": step["workload"]}], False
        elif do == "burst":
            queue = self.queues[self.prefix + step["queue"]]
            is_open = queue["spec"].get("stopPolicy", "None") == "None"
            if is_open:
                yield [self._changed(queue, stopPolicy="Hold")], True
            yield [{"do": "create", "doc": doc} for doc in step["workloads"]], False
            if is_open:
                yield [self._changed(queue, stopPolicy="None")], True
        elif do == "quota":
            queue = self.queues[self.prefix + step["queue"]]
            groups = named(
                {"kind": "", "metadata": {"name": ""}, "spec": {"resourceGroups": step["resourceGroups"]}},
                self.prefix,
                "",
            )
            yield [self._changed(queue, resourceGroups=groups["spec"]["resourceGroups"])], True
        elif do == "stop":
            yield [self._changed(self.queues[self.prefix + step["queue"]], stopPolicy=step["policy"])], True
        elif do == "resume":
            yield from self._resume(step["queue"])
        else:
            name = step.get("name") or self._pick(do, step["pick"])
            if name in self._suitable(do):
                self.stream.picked[number] = name
                move = {"do": do, "name": name}
                if do == "priority":
                    move["priority"] = step["priority"]
                if do == "reclaim":
                    move["counts"] = self._one_less(name)
                yield [move], do != "ungate"

    def _resume(self, name: str) -> Iterator[tuple[list[Doc], bool]]:
        queue = self.queues[self.prefix + name]
        was = queue["spec"].get("stopPolicy", "None")
        if was == "Hold":
            yield [self._changed(queue, stopPolicy="None")], True
        elif was == "HoldAndDrain":
            local = self.local_queues[name]
            yield [self._changed(local, stopPolicy="Hold")], True
            yield [self._changed(queue, stopPolicy="None")], True
            yield [self._changed(local, stopPolicy="None")], True

    def _changed(self, doc: Doc, **spec: Any) -> Doc:
        doc["spec"] |= spec
        return {"do": "objects", "docs": [doc], "change": spec}

    def _one_less(self, name: str) -> dict[str, int]:
        """Of each pod set that has more than one pod left, one more is not needed."""
        doc = self._mine()[name]
        found = {one["name"]: one["count"] for one in doc["status"].get("reclaimablePods", ())}
        for podset in doc["spec"]["podSets"]:
            if found.get(podset["name"], 0) + 1 < podset["count"]:
                found[podset["name"]] = found.get(podset["name"], 0) + 1
        return found

    def _suitable(self, do: str) -> list[str]:
        """Whom something can be done to, so that it makes a difference."""
        states = {name: _stand(doc)["state"] for name, doc in self._mine().items()}
        specs = {name: doc["spec"] for name, doc in self._mine().items()}
        gated = {name for name, doc in self._mine().items() if doc["metadata"].get("annotations", {}).get(GATE)}
        tests: dict[str, Callable[[str], bool]] = {
            "finish": lambda name: states[name] == "admitted",
            "reclaim": lambda name: states[name] == "admitted" and bool(self._one_less(name)),
            "delete": lambda name: states[name] != "finished",
            "priority": lambda name: states[name] != "finished",
            "deactivate": lambda name: states[name] in ("pending", "admitted") and specs[name].get("active", True),
            "activate": lambda name: states[name] == "pending" and not specs[name].get("active", True),
            "ungate": lambda name: states[name] != "finished" and name in gated,
        }
        return sorted(filter(tests[do], states))

    def _pick(self, do: str, share: float) -> str:
        found = self._suitable(do)
        return found[int(share * len(found))] if found else ""

    # -- one phase ----------------------------------------------------------------------------------------------------

    def _phase(self, number: int, moves: list[Doc], batched: bool) -> Phase:
        phase = Phase(number, [], time.time(), batched)
        for move in moves:
            phase.moves.append(self._do(move))
        self.ask(phase)
        if batched:
            self.observer.ring()
        docs = self._quiet()
        phase.state = {name: _stand(doc) for name, doc in sorted(docs.items())}
        for name, doc in docs.items():
            if phase.state[name]["state"] in ("reserved", "admitted", "evicted"):
                phase.reserved[name] = condition(doc, "QuotaReserved")["lastTransitionTime"]
        return phase

    def _do(self, move: Doc) -> Doc:
        """Sends it. Returns the move with the facts that are known then."""
        name = move.get("name", "")
        match move["do"]:
            case "objects":
                (doc,) = move["docs"]
                self.bed.raw("PATCH", self._path(doc, doc["metadata"]["name"]), {"spec": move["change"]}, MERGE)
                self._taken_up(doc)
                return {"do": "objects", "docs": [copy.deepcopy(doc)]}
            case "create":
                return {"do": "create", "doc": self._create(move["doc"])}
            case "finish":
                self._wrote(self.desk.finish(name))
            case "delete":
                self.bed.delete(self.desk.path("workloads", name))
                self.observer.until(lambda: name not in self._mine(), f"{name} to be gone")
                self.versions.pop(name, None)
            case "reclaim":
                back = [{"name": podset, "count": count} for podset, count in move["counts"].items()]
                self._wrote(self.desk.status(name, lambda seen: {"reclaimablePods": back}))
            case "priority":
                self._wrote(self.desk.edit(name, {"spec": {"priority": move["priority"]}}))
            case "deactivate" | "activate":
                self._wrote(self.desk.edit(name, {"spec": {"active": move["do"] == "activate"}}))
            case "ungate":
                self._wrote(self.desk.clear_gate(name))
            case "release":
                self._wrote(self.desk.answer(name, "PendingEvaluation"))
        return move

    def _create(self, doc: Doc) -> Doc:
        """Heads of different queues with one priority and one second of creation come in any order: not in one second, then."""
        spec = doc["spec"]
        same = [at for queue, priority, at in self.created.values() if queue != spec["queueName"]]
        latest = max(same, default="")
        self.bed.wait(lambda: _now() > latest, "the clock's next second")
        answer = self.bed.raw("POST", self.desk.path("workloads"), named(doc, self.prefix, self.namespace))
        self._wrote(answer)
        meta = answer["metadata"]
        self.created[meta["name"]] = (spec["queueName"], spec["priority"], meta["creationTimestamp"])
        return {key: answer[key] for key in ("apiVersion", "kind", "spec")} | {
            "metadata": {
                key: meta[key]
                for key in ("name", "namespace", "uid", "creationTimestamp", "annotations")
                if key in meta
            }
        }

    def _wrote(self, doc: Doc) -> None:
        self.versions[doc["metadata"]["name"]] = int(doc["metadata"]["resourceVersion"])

    def _taken_up(self, doc: Doc) -> None:
        path = self._path(doc, doc["metadata"]["name"])

        def seen() -> bool:
            now = self.bed.get(path)
            return bool(condition(now, "Active").get("observedGeneration", 0) >= now["metadata"]["generation"])

        self.bed.wait(seen, f"Kueue to take up {path}")

    def _mine(self) -> dict[str, Doc]:
        return dict(self.observer.workloads.get(self.namespace, {}))

    # -- the quiet point ----------------------------------------------------------------------------------------------

    def _quiet(self) -> dict[str, Doc]:
        """Waits for it (see quiet). Returns the Workloads as the API server has them then."""
        began = time.monotonic()
        first: tuple[dict[str, Doc], Look] | None = None
        why = ""

        def at_rest() -> bool:
            nonlocal first, why
            look = self.observer.looks[-1]
            docs = self._mine()
            why = self._owed(docs) or (self._uncounted(docs, look) if look.began >= began else "gauges are old")
            facts = _facts(docs)
            if why:
                first = None
                return False
            if first is None or first[0] != facts or not look.same(first[1], self.queues):
                first = facts, look
                why = "looking whether it stays so"
                return False
            calm = all(look.active(queue) == 0 for queue in self._open())
            return look.began > first[1].began and (calm or look.attempts - first[1].attempts >= CYCLES)

        while True:
            try:
                with self.observer.looking():
                    self.observer.until(at_rest, f"{self.namespace} to be quiet")
            except AssertionError as error:
                raise type(error)(f"{error}: {why}; {self.observer.looks[-1].pending_of(self.queues)}") from None
            docs = {doc["metadata"]["name"]: doc for doc in self.bed.get(self.desk.path("workloads"))["items"]}
            assert first is not None
            if _facts(docs) == first[0]:
                return docs
            first = None

    def _open(self) -> list[str]:
        return [name for name, doc in self.queues.items() if doc["spec"].get("stopPolicy", "None") == "None"]

    def _queue_of(self, doc: Doc) -> tuple[Doc, Doc]:
        local = self.local_queues[doc["spec"]["queueName"]]
        return self.queues[local["spec"]["clusterQueue"]], local

    def _owed(self, docs: dict[str, Doc]) -> str:
        """What Kueue's reconcilers, or the watch, still have to do."""
        for name, version in self.versions.items():
            if name not in docs or int(docs[name]["metadata"]["resourceVersion"]) < version:
                return f"the watch has not seen {name}"
        for name, doc in docs.items():
            if holds(doc, "Finished"):
                continue
            active = doc["spec"].get("active", True)
            stop, held = (one["spec"].get("stopPolicy", "None") for one in self._queue_of(doc))
            back = reason(doc, "Requeued") if condition(doc, "Requeued").get("status") == "False" else ""
            reserved, evicted = holds(doc, "QuotaReserved"), holds(doc, "Evicted")
            if not active and not evicted:
                return f"{name} is not evicted yet"
            if (active and back == "Deactivated") or (stop == held == "None" and back == "ClusterQueueStopped"):
                return f"{name} is not requeued yet"
            if reserved and not holds(doc, "Admitted"):
                return f"{name} is not admitted yet"
            if stop == "HoldAndDrain" and reserved and not evicted:
                return f"{name} is not drained yet"
        return ""

    def _uncounted(self, docs: dict[str, Doc], look: Look) -> str:
        """Are as many waiting as Kueue has in its queues? While a LocalQueue is stopped Kueue does not count anew."""
        for queue in self.queues:
            waiting = [
                doc for doc in docs.values() if self._queue_of(doc)[0]["metadata"]["name"] == queue and _waits(doc)
            ]
            stopped = [doc for doc in self.local_queues.values() if doc["spec"]["clusterQueue"] == queue]
            if all(doc["spec"].get("stopPolicy", "None") == "None" for doc in stopped) and len(waiting) != look.total(
                queue
            ):
                return f"{len(waiting)} wait in {queue}, of which {look.total(queue)} are counted"
        return ""


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _facts(docs: dict[str, Doc]) -> dict[str, Doc]:
    """All but why somebody waits: Kueue says it anew in every cycle of a StrictFIFO head, of another flavor each time."""
    found = {}
    for name, doc in docs.items():
        said = {c["type"]: (c["status"], c["reason"]) for c in doc.get("status", {}).get("conditions", ())}
        if not holds(doc, "QuotaReserved"):
            said.pop("QuotaReserved", None)
        found[name] = {"generation": doc["metadata"]["generation"], "stand": _stand(doc), "said": said}
    return found


def _waits(doc: Doc) -> bool:
    """Is it in one of Kueue's queues, tried or not?"""
    gated = bool(doc["metadata"].get("annotations", {}).get(GATE))
    active = doc["spec"].get("active", True)
    return not gated and active and not holds(doc, "Finished") and not holds(doc, "QuotaReserved")


def _stand(doc: Doc) -> Doc:
    """How a Workload stands, in the words of `compare`."""
    if holds(doc, "Finished"):
        return {"state": "finished"}
    if not holds(doc, "QuotaReserved"):
        return {"state": "pending"}
    admission = doc["status"]["admission"]
    found: Doc = {"state": "admitted" if holds(doc, "Admitted") else "reserved", "queue": admission["clusterQueue"]}
    found["podsets"] = [
        {"name": p["name"], "count": p["count"], "flavors": dict(sorted(p.get("flavors", {}).items()))}
        for p in admission["podSetAssignments"]
    ]
    if holds(doc, "Evicted"):
        found["state"], found["evicted"] = "evicted", reason(doc, "Evicted")
        if found["evicted"] == "Preempted":
            found["preempted"] = reason(doc, "Preempted")
            by = _BY.search(condition(doc, "Preempted").get("message", ""))
            found["by"] = by[1] if by else ""
    return found
