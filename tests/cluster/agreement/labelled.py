"""The same runs twice on the real controllers: without a queue, and labelled with one under Penstock's controller. Called by
tests/cluster/test_controller_corpus.py.

Every container asks for a little CPU on both sides, so that every stage has to wait for quota. Compared is how everything ended; a witness has
seen whether pods ran without quota.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from testbed.instance import Testbed
from tests.cluster.agreement import prepare
from tests.cluster.agreement.examples import Pass
from tests.cluster.agreement.intended import RAN
from tests.cluster.agreement.marks import Doc
from tests.cluster.agreement.play import KUEUE_API, NO_TIME, SLOW, Play, There
from tests.cluster.agreement.told import Difference, differences
from tests.cluster.controlled import Witness

REQUESTS = {"requests": {"cpu": "100m"}}
EXEMPT = (".onExit", ".hooks.", "'tekton.dev/memberOf': 'finally'", "affinity-assistant-")
"""What pods of exit handlers, hooks and `finally` say somewhere: they never wait."""
_SHOWN, _LONGEST = 5, 300


def cluster_queue(bed: Testbed, name: str, cpu: str) -> str:
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": name}}
    amounts = {"cpu": cpu, "memory": "10Ti"}
    quota = {"name": name, "resources": [{"name": key, "nominalQuota": value} for key, value in amounts.items()]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": list(amounts), "flavors": [quota]}]}
    queue = {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
    bed.apply([flavor, queue])
    return name


def asking(one: Pass) -> Pass:
    """The pass with a request on every container."""
    example = copy.deepcopy(one.example)
    for document in example.documents:
        _ask(document)
    return replace(one, example=example)


def _ask(document: Doc) -> None:
    group = str(document.get("apiVersion") or "").partition("/")[0]
    if group == "argoproj.io":
        spec = prepare.workflow_spec(document)
        for template in (*prepare.templates(document), spec.get("templateDefaults") or {}):
            for container in prepare.containers(template):
                container["resources"] = copy.deepcopy(REQUESTS)
    elif group == "tekton.dev":
        for task in prepare.task_specs(document):
            if task.get("steps"):
                step = task.get("stepTemplate")
                task["stepTemplate"] = {**(step if isinstance(step, dict) else {}), "computeResources": REQUESTS}


@dataclass
class Pair:
    """One pass: as it is, and behind a queue."""

    plain: Play
    queued: Play
    broken: str = ""
    """What the witness saw: a moment at which pods ran without quota."""

    @property
    def differences(self) -> list[Difference]:
        """But for what had been started beside a step that fails: that depends on how long everything takes, and waiting takes long."""
        if self.plain.theirs is None or self.queued.theirs is None:
            return []
        found = differences(self.plain.theirs, self.queued.theirs)
        if self.plain.theirs.end == self.queued.theirs.end == "failed":
            return [one for one in found if (one.theirs in RAN) == (one.ours in RAN)]
        return found

    @property
    def left(self) -> str:
        return self.plain.left or self.queued.left

    def witnessed(self, witness: Witness) -> None:
        for namespace, version in self.queued.namespaces.items():
            try:
                witness.check(EXEMPT, namespace, int(version))
            except AssertionError as error:
                self.broken = self.broken or str(error)


def play_labelled(there: There, plain: Sequence[Play], seconds: float) -> list[Pair]:
    """What was played without a queue once more, with one."""
    pairs = [Pair(one, Play(one.one, one.ours)) for one in plain if one.theirs is not None]
    by_play = {id(one.queued): one for one in pairs}
    with Witness(there.bed) as witness:
        there.play([one.queued for one in pairs], seconds, lambda play: bool(by_play[id(play)].differences))
    for one in pairs:
        one.witnessed(witness)
    return pairs


@dataclass
class Report:
    queue: str
    files: int
    pairs: Sequence[Pair]
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def played(self) -> list[Pair]:
        return [one for one in self.pairs if one.plain.theirs is not None and one.queued.theirs is not None]

    @property
    def wrong(self) -> list[Pair]:
        return [one for one in self.played if one.differences or one.broken]

    @property
    def late(self) -> list[str]:
        """What would have been played if there had been more time, or a quicker machine."""
        every = {**self.left, **{one.plain.one.label: one.left for one in self.pairs if one.left}}
        return [label for label, why in every.items() if why in (NO_TIME, SLOW)]

    def lines(self) -> list[str]:
        different = sum(bool(one.differences) for one in self.played)
        broken = sum(bool(one.broken) for one in self.played)
        equal = len(self.played) - len(self.wrong)
        counts = f"{equal} equal, {different} different, {broken} with pods that had no quota"
        found = [f"{self.queue} queue: {self.files} files, {len(self.played)} runs with and without it: {counts}"]
        left = Counter([*self.left.values(), *(one.left for one in self.pairs if one.left)])
        found += [f"  not played: {number} × {why}" for why, number in left.most_common()]
        for one in self.wrong:
            found.append(f"  DIFFERENT {one.plain.one.label} ({one.queued.namespace}/{one.queued.name})")
            found += [f"    no quota: {one.broken}"] if one.broken else []
            told = [
                f"    {each.path or 'the run'}: without {each.theirs}, with {each.ours}"
                f"   ({each.their_why} | {each.our_why})"
                for each in one.differences
            ]
            found += [text[:_LONGEST] for text in told[:_SHOWN]]
        return found
