"""Kueue's queues as a queue configuration of YuniKorn, with a Report of what YuniKorn has no place for. Called by service.yunikorn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.formats.documents import Document, items, part
from penstock.formats.pods.requests import amounts
from penstock.formats.report import Report
from penstock.graph import quantity
from penstock.scheduling.queues.model import ROOT, Amounts

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_:#/@-]")
DOT: Final = "_dot_"
"""As YuniKorn itself writes a dot in a name."""


def from_kueue(documents: Iterable[Document]) -> tuple[dict[str, Any], Report]:
    """The configuration as data, for queues.yaml."""
    return _Converter(list(documents)).convert()


class _Converter:
    def __init__(self, documents: list[Document]) -> None:
        self.report = Report()
        self.cohorts = {one.name: one for one in documents if one.kind == "Cohort"}
        self.queues = [one for one in documents if one.kind == "ClusterQueue"]
        self.others = [one for one in documents if one.kind not in ("Cohort", "ClusterQueue")]
        self.children: dict[str, list[str]] = {}
        """Cohort → the cohorts in it; those without a parent are in ''."""
        named = [self.cohort_of(one) for one in self.queues] + [self.parent_of(one) for one in self.cohorts]
        for name in dict.fromkeys([*self.cohorts, *filter(None, named)]):
            above = self.parent_of(name)
            self.children.setdefault("" if self.loops(name) else above, []).append(name)

    def cohort_of(self, queue: Document) -> str:
        return str(queue.spec.get("cohortName") or queue.spec.get("cohort") or "")

    def parent_of(self, name: str) -> str:
        found = self.cohorts.get(name)
        return str(found.spec.get("parentName") or found.spec.get("parent") or "") if found else ""

    def loops(self, name: str) -> bool:
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            name = self.parent_of(name)
        return bool(name)

    def convert(self) -> tuple[dict[str, Any], Report]:
        tops = self.children.get("", [])
        alone = [one for one in self.queues if not self.cohort_of(one)]
        if tops == [ROOT] and not alone:
            root = {"name": ROOT, "submitacl": "*", "queues": self.inside(ROOT)}
            self.report.kept("queues", "the Cohort root is the root queue; its own quota is that of the nodes")
        else:
            below = [self.cohort(name, "") for name in tops] + [self.leaf(one, "") for one in alone]
            root = {"name": ROOT, "submitacl": "*", "queues": below}
        said = "everyone may submit: Kueue leaves that to RBAC"
        self.report.changed("submitacl", said, "write who may, instead of '*'")
        self.rest()
        return {"partitions": [{"name": "default", "queues": [root]}]}, self.report

    def inside(self, cohort: str) -> list[dict[str, Any]]:
        found = [self.cohort(name, cohort) for name in self.children.get(cohort, [])]
        return found + [self.leaf(one, cohort) for one in self.queues if self.cohort_of(one) == cohort]

    def cohort(self, name: str, above: str) -> dict[str, Any]:
        below = self.inside(name)
        found: dict[str, Any] = {"name": self.name(name, above), "parent": True}
        document = self.cohorts.get(name)
        if document is not None:
            own, limits = self.quotas(document)
            total = {key: own.get(key, 0) for key in own}
            for child in below:
                for key, amount in _guaranteed(child).items():
                    total[key] = total.get(key, 0) + amount
            guaranteed = {key: amount for key, amount in total.items() if own.get(key)}
            most = {key: total.get(key, 0) + amount for key, amount in limits.items()}
            found |= _resources(guaranteed, most)
            self.spoken(document)
        return found | ({"queues": below} if below else {})

    def leaf(self, document: Document, above: str) -> dict[str, Any]:
        nominal, limits = self.quotas(document)
        if self.cohort_of(document):
            most = {key: nominal.get(key, 0) + amount for key, amount in limits.items()}
        else:
            most = dict(nominal)
        found: dict[str, Any] = {"name": self.name(document.name, above)} | _resources(nominal, most)
        if part(document.spec, "preemption").get("reclaimWithinCohort", "Never") == "Never" and nominal:
            found["properties"] = {"preemption.policy": "disabled"}
            said = "it reclaims nothing from others; YuniKorn's `disabled` also protects it from others"
            self.report.changed("spec.preemption", f"{document.name}: {said}", "", document.source("spec.preemption"))
        self.spoken(document)
        return found

    def name(self, name: str, above: str) -> str:
        """Without the names above it, as `to_kueue` writes them."""
        short = name.removeprefix(f"{above}.") if above else name.removeprefix(f"{ROOT}.")
        found = _OTHER.sub("-", short.replace(".", DOT)).lower()[:64]
        if found != short:
            self.report.changed("metadata.name", f"{name} is called {found}: a queue's name has no dots")
        return found

    def quotas(self, document: Document) -> tuple[dict[str, int], dict[str, int]]:
        """(nominal, borrowing limits) over all flavors. A limit only where every flavor has one."""
        nominal: dict[str, int] = {}
        limits: dict[str, int] = {}
        free: set[str] = set()
        flavors: set[str] = set()
        for _, group in items(document.spec, "resourceGroups"):
            for _, flavor in items(group, "flavors"):
                flavors.add(str(flavor.get("name")))
                for _, one in items(flavor, "resources"):
                    name = str(one.get("name"))
                    known = amounts(
                        {key: one[key] for key in ("nominalQuota", "borrowingLimit") if one.get(key) is not None}
                    )
                    nominal[name] = nominal.get(name, 0) + known.get("nominalQuota", 0)
                    if "borrowingLimit" in known:
                        limits[name] = limits.get(name, 0) + known["borrowingLimit"]
                    else:
                        free.add(name)
                    if one.get("lendingLimit") is not None:
                        self.lost(document, "lendingLimit", "YuniKorn lends all that is not used")
        if len(flavors) > 1:
            said = f"{document.name}: its {len(flavors)} flavors are one: YuniKorn chooses nodes by the pods' own selectors"
            self.report.changed("spec.resourceGroups", said, "", document.source("spec.resourceGroups"))
        return nominal, {name: amount for name, amount in limits.items() if name not in free}

    # -- what is said -------------------------------------------------------------------------------------------------

    def lost(self, document: Document, field: str, said: str, advice: str = "") -> None:
        self.report.lost(
            f"spec.{field}", f"{document.kind} {document.name}: {said}", advice, document.source(f"spec.{field}")
        )

    def spoken(self, document: Document) -> None:
        spec = document.spec
        if part(spec, "fairSharing"):
            self.lost(
                document,
                "fairSharing",
                "YuniKorn shares by what is guaranteed",
                "guarantee more to whom has more weight",
            )
        if spec.get("admissionChecks") or spec.get("admissionChecksStrategy"):
            self.lost(document, "admissionChecks", "YuniKorn has no admission checks")
        if part(spec, "namespaceSelector"):
            self.lost(
                document,
                "namespaceSelector",
                "YuniKorn does not choose by namespaces",
                "a placement rule with the tag namespace",
            )
        if spec.get("stopPolicy") not in (None, "None"):
            self.lost(document, "stopPolicy", "a queue of YuniKorn is stopped by taking it out of the configuration")
        if spec.get("queueingStrategy") == "StrictFIFO":
            self.lost(
                document, "queueingStrategy", "YuniKorn goes on with the next application if the first does not fit"
            )
        if part(spec, "preemption").get("withinClusterQueue", "Never") != "Never":
            self.lost(document, "preemption.withinClusterQueue", "YuniKorn preempts between queues only")

    def rest(self) -> None:
        for one in self.others:
            if one.kind == "LocalQueue":
                said = f"LocalQueue {one.namespace or 'default'}/{one.name}: pods name the queue itself"
                self.report.changed("metadata.name", said, "", one.source())
            elif one.kind == "WorkloadPriorityClass":
                self.report.lost("value", f"{one.kind} {one.name}: YuniKorn takes PriorityClasses", "", one.source())
            elif one.kind != "ResourceFlavor":
                self.report.lost("kind", f"{one.kind} {one.name}: it is nothing of YuniKorn's", "", one.source())
            elif part(one.spec, "nodeLabels"):
                said = f"ResourceFlavor {one.name}: YuniKorn knows no flavors"
                self.report.lost("spec.nodeLabels", said, "give the pods a node selector", one.source())


def _resources(guaranteed: Amounts, most: Amounts) -> dict[str, Any]:
    found = {}
    if any(guaranteed.values()):
        found["guaranteed"] = {_unit(key): text_of(key, amount) for key, amount in guaranteed.items() if amount}
    if most:
        found["max"] = {_unit(key): text_of(key, amount) for key, amount in most.items()}
    return {"resources": found} if found else {}


def _guaranteed(queue: Mapping[str, Any]) -> dict[str, int]:
    """What a queue is guaranteed: its own, or the sum of its children's."""
    found = _read(part(queue, "resources", "guaranteed"))
    below: dict[str, int] = {}
    for child in queue.get("queues") or ():
        for key, amount in _guaranteed(child).items():
            below[key] = below.get(key, 0) + amount
    return {key: max(found.get(key, 0), below.get(key, 0)) for key in {**found, **below}}


def _unit(name: str) -> str:
    return "vcore" if name == "cpu" else name


def text_of(name: str, amount: int) -> str:
    """As YuniKorn reads it: no fractions but thousandths of a vcore."""
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return quantity.show(-(-amount // 1000) * 1000, name)


def _read(texts: Mapping[str, Any]) -> dict[str, int]:
    from penstock.scheduling.queues.read import amount

    return {("cpu" if name == "vcore" else name): amount(name, text) for name, text in texts.items()}
