"""Many passes at once: on Penstock's engine first, then on the controllers of one testbed. Called by the test and by __main__."""

from __future__ import annotations

import copy
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from penstock.controller.names import QUEUE, UNIT
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import argo_runs, tekton_runs
from tests.cluster.agreement import argo, ours, prepare, tekton
from tests.cluster.agreement.examples import Example, Pass, numbered, passes
from tests.cluster.agreement.marks import RUN_TIME, Doc
from tests.cluster.agreement.told import Difference, Told, differences
from tests.cluster.support import fresh_namespace

AT_ONCE = 40
"""Runs."""
FEW = 6
"""Runs at once, when they are played again."""
SLOW = "the testbed was too slow"
NO_TIME = "no time left"
QUIET = 25.0
"""Seconds without any change, after which a run counts as standing still."""
LOOK = 0.7
KUEUE_API = "kueue.x-k8s.io/v1beta2"
_RUNS = frozenset({"Workflow", "CronWorkflow", "PipelineRun", "TaskRun", "CronJob", "Job", "Pod"})
_REFUSALS = (400, 403, 404, 409, 422)


@dataclass
class Play:
    """A pass, and what became of it on both sides."""

    one: Pass
    ours: ours.Run
    theirs: Told | None = None
    left: str = ""
    """Why it was not played on the controllers."""
    namespace: str = ""
    namespaces: dict[str, str] = field(default_factory=dict)
    """Where it was played, earlier times too -> the version of the run when it was over and then deleted."""
    name: str = ""
    kind: str = ""
    seen: str = ""
    last_look: bool = False
    since: float = 0.0
    last: Doc = field(default_factory=dict, repr=False)

    @property
    def differences(self) -> list[Difference]:
        return [] if self.theirs is None else differences(self.theirs, self.ours.told)


def here(examples: Sequence[Example], most: int, seed: int) -> tuple[list[Play], dict[str, str]]:
    """Every pass on Penstock's engine; and what is not played, with the reason."""
    found: list[Play] = []
    left: dict[str, str] = {}
    for example in examples:
        why = unstartable(example)
        if why:
            left[example.label] = why
            continue
        every = [numbered(example)]
        try:
            first = ours.Run(every[0])
            found.append(Play(every[0], first))
        except ours.Endless as error:
            left[every[0].label] = str(error)
            continue
        for one in passes(example, first.came_to, most, seed):
            try:
                found.append(Play(one, ours.Run(one)))
            except ours.Endless as error:
                left[one.label] = str(error)
    # Both controllers have work from the beginning, and if the time is short a bit of everything is played.
    random.Random(seed).shuffle(found)
    return found, left


def unstartable(example: Example) -> str:
    """Why it cannot be played on fake nodes; empty: it can."""
    if example.engine == "argo":
        every = [one for document in example.documents for one in prepare.templates(document)]
        if any("http" in one or "plugin" in one for one in every):
            return "http and plugin templates are run by Argo's agent, which does nothing on a fake node"
        if any("plugin" in artifact for one in every for artifact in prepare.artifacts(one)):
            return "plugins for artifacts are not in the testbed"
        if any("memoize" in one for one in every):
            return "Argo keeps what it memoizes in one place for all namespaces"
        return ""
    if "resolver" in _refs(example.documents):
        return "Tekton's resolvers are not in the testbed"
    if "custom" in _refs(example.documents):
        return "the controllers of custom tasks are not in the testbed"
    return ""


def _refs(documents: Iterable[Doc]) -> set[str]:
    """`resolver` and `custom`, if tasks or pipelines are referred to in that way."""
    found = set()
    waiting: list[Any] = list(documents)
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            for name in ("taskRef", "pipelineRef", "ref", "taskSpec"):
                held = one.get(name)
                if isinstance(held, dict):
                    found |= {"resolver"} if held.get("resolver") or held.get("bundle") else set()
                    found |= (
                        {"custom"}
                        if not str(held.get("apiVersion") or "tekton.dev/").startswith("tekton.dev/")
                        else set()
                    )
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found


class There:
    """The controllers. With the name of a ClusterQueue every run waits in it, under Penstock's controller, by a unit."""

    def __init__(self, bed: Testbed, queue: str = "", at_once: int = AT_ONCE, unit: str = "stage") -> None:
        self.bed, self.queue, self.at_once, self.unit = bed, queue, at_once, unit
        self._shared: dict[str, str] = {}
        """Objects of the whole cluster that are there, and what they say."""
        self._lock = threading.Lock()

    def behind(self, queue: str, unit: str) -> There:
        """The same, with a queue."""
        found = There(self.bed, queue, self.at_once, unit)
        found._shared, found._lock = self._shared, self._lock
        return found

    def play(
        self,
        plays: Sequence[Play],
        seconds: float = float("inf"),
        doubtful: Callable[[Play], bool] = lambda play: False,
    ) -> None:
        """What is not begun when the seconds are over is left out. What is doubtful in the end is played once more, with less beside it:
        on a busy machine things come in an order in which they otherwise do not."""
        deadline = time.monotonic() + seconds
        self._play(plays, deadline, self.at_once)
        again = [one for one in plays if one.left == SLOW or (one.theirs is not None and doubtful(one))]
        self._play(again, deadline + seconds / 4, FEW)

    def _play(self, plays: Sequence[Play], deadline: float, at_once: int) -> None:
        waiting = list(reversed(plays))
        running: list[Play] = []
        parked: list[Play] = []
        with ThreadPoolExecutor(6) as pool:
            while waiting or running or parked:
                if time.monotonic() > deadline:
                    for one in waiting:
                        one.left = one.left or ("" if one.theirs else NO_TIME)
                    waiting = []
                if not waiting and not running:
                    running, parked = self._reconsidered(parked), []
                fresh = [waiting.pop() for _ in range(min(len(waiting), at_once - len(running)))]
                running += [one for one in pool.map(self._begin, fresh) if one is not None]
                began = time.monotonic()
                over = dict(zip(map(id, running), pool.map(self._look, running), strict=True))
                parked += [one for one in running if not over[id(one)] and self._is_quiet(one) and not one.last_look]
                running = [one for one in running if not over[id(one)] and all(one is not other for other in parked)]
                time.sleep(max(0.0, LOOK - (time.monotonic() - began)))

    def _is_quiet(self, play: Play) -> bool:
        """In a queue it may take its time."""
        patience = QUIET * (2 if play.last_look else 4 if self.queue else 1)
        return time.monotonic() - play.since > patience

    def _reconsidered(self, parked: list[Play]) -> list[Play]:
        """Runs that seemed to stand still get another look when nothing else is played."""
        for one in parked:
            one.since, one.last_look = time.monotonic(), True
        return parked

    def _begin(self, play: Play) -> Play | None:
        """None: it is over already."""
        example = play.one.example
        play.namespace = fresh_namespace(self.bed)
        play.last_look, play.theirs, play.left = False, None, ""
        made = (argo if example.engine == "argo" else tekton).submitted(example)
        others = [
            one for one in example.documents if one is not made and one.get("kind") not in _RUNS | prepare.NOT_MADE
        ]
        try:
            for one in others:
                if not self._make(one, play.namespace):
                    play.left = "an object of the whole cluster has the name of another one"
                    return None
            found = self._post(self._queued(made, play.namespace), play.namespace)
        except ApiError as error:
            if error.code not in _REFUSALS:
                raise
            play.theirs = Told("refused", f"the API server: {error}")
            return None
        play.name, play.kind, play.since = found["metadata"]["name"], found["kind"], time.monotonic()
        return play

    def _queued(self, run: Doc, namespace: str) -> Doc:
        if not self.queue:
            return run
        local = {"apiVersion": KUEUE_API, "kind": "LocalQueue", "metadata": {"name": "main"}}
        self._post(local | {"spec": {"clusterQueue": self.queue}}, namespace)
        metadata = run.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), QUEUE: "main", UNIT: self.unit}
        return {**run, "metadata": {**metadata, "labels": labels}}

    def _make(self, document: Doc, namespace: str) -> bool:
        try:
            where = self.bed.api.path(document["apiVersion"], document["kind"], namespace)
        except ApiError:
            return True  # of a kind that nobody here knows
        if "/namespaces/" in where:
            self._post(document, namespace)
            return True
        key, text = f"{where}/{document['metadata'].get('name')}", json.dumps(document, sort_keys=True)
        with self._lock:
            if key not in self._shared:
                self._post(document, namespace)
                self._shared[key] = text
            return self._shared[key] == text

    def _post(self, document: Doc, namespace: str) -> Doc:
        sent = copy.deepcopy(document)
        (sent.get("metadata") or {}).pop("namespace", None)
        found: Doc = self.bed.raw("POST", self.bed.api.path(sent["apiVersion"], sent["kind"], namespace), sent)
        return found

    def _look(self, play: Play) -> bool:
        """Whether it is over."""
        engine = play.one.example.engine
        api = play.last.get("apiVersion") or (argo_runs.API if engine == "argo" else tekton_runs.API)
        found = self.bed.get(self.bed.api.path(api, play.kind, play.namespace, play.name))
        play.last = found
        over = (argo if engine == "argo" else tekton).is_over(found)
        version = found["metadata"]["resourceVersion"]
        if version != play.seen:
            play.seen, play.since = version, time.monotonic()
        if not over and not (play.last_look and self._is_quiet(play)):
            if engine == "argo":
                argo.resume(self.bed, play.namespace, found)
            return False
        if engine == "argo":
            play.theirs = argo.told(found, play.ours.entry)
        else:
            children = [
                {**one, "kind": kind, "apiVersion": tekton_runs.API}
                for plural, kind in (("taskruns", "TaskRun"), ("pipelineruns", "PipelineRun"))
                for one in self.bed.objects(tekton_runs.API, plural, play.namespace)
            ]
            play.theirs = tekton.told(found, children, play.ours.entry)
        if play.theirs.end == "endless" and self._waits_for_the_testbed(play):
            play.theirs, play.left = None, SLOW
        play.namespaces[play.namespace] = version
        if not over or self.queue:  # pods that are kept would slow down those that come
            self.bed.delete(self.bed.api.path(api, play.kind, play.namespace, play.name))
        return True

    def _waits_for_the_testbed(self, play: Play) -> bool:
        """It is not the run that stands still if nobody has looked at it, or if its pods have not been ended. Tekton's runs always end."""
        waiting = [
            one["metadata"].get("annotations") or {}
            for one in self.bed.objects("v1", "pods", play.namespace)
            if one["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        slow = any(one.get(RUN_TIME) != "forever" for one in waiting)
        return slow or not play.last.get("status") or play.one.example.engine == "tekton"
