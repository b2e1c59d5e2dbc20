"""Rules about several fields of one object: what Kueue requires beyond the schema of each field. Called by validate.

A rule names the fields that it reads. It is called only if they have no problem by themselves, so it need not check them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from penstock.admission.manifests import requests
from penstock.admission.manifests.documents import KueueDocument, ManifestReport
from penstock.admission.manifests.kinds import EFFECTS, GROUP
from penstock.admission.manifests.schema import LABEL_KEY, either, is_gate, is_label_key, show
from penstock.admission.model import PODS, Policy
from penstock.errors import nearest
from penstock.graph import quantity

GATED_BY = "kueue.x-k8s.io/admission-gated-by"


class RuleContext:
    """One object, with the paths at which problems were found."""

    def __init__(self, document: KueueDocument, report: ManifestReport) -> None:
        self.document = document
        self.report = report
        self.wrong_paths: list[str] = []

    def wrong(self, code: str, path: str, message: str, fix: str) -> None:
        self.wrong_paths.append(path)
        self.report.add(code, self.document, path, message, fix)

    def conflict(self, path: str, message: str, fix: str) -> None:
        self.report.add("P803", self.document, path, message, fix)

    def valid(self, *paths: str) -> bool:
        return not any(
            found == path or found.startswith((f"{path}.", f"{path}[")) or path.startswith((f"{found}.", f"{found}["))
            for found in self.wrong_paths
            for path in paths
        )

    def no_effect(self, path: str, what: str) -> None:
        self.report.add("P808", self.document, path, what, "nothing to do: the rest is read", warning=True)


# -- queues and flavors -----------------------------------------------------------------------------------------------


def _exact(text: str | int) -> Fraction:
    return quantity.exact(text)


def _groups(rules: RuleContext, document: KueueDocument) -> None:
    """Resource groups of a ClusterQueue, or of a cohort."""
    spec = document.spec
    of_cohort = document.kind == "Cohort"
    parent = spec.get("parentName") if of_cohort else spec.get("cohortName") or spec.get("cohort")
    resources: set[str] = set()
    flavors: set[str] = set()
    for at, group in enumerate(spec.get("resourceGroups") or ()):
        path = f"$.spec.resourceGroups[{at}]"
        covered = group["coveredResources"]
        for i, name in enumerate(covered):
            if not is_label_key(name):
                fix = f"use {LABEL_KEY.words}"
                rules.wrong("P802", f"{path}.coveredResources[{i}]", f"{show(name)} cannot name a resource", fix)
            if name in resources:
                where = f"{path}.coveredResources[{i}]"
                rules.wrong("P804", where, f"{show(name)} is already covered", "cover each resource once, in one group")
            resources.add(name)
        for i, flavor in enumerate(group["flavors"]):
            _flavor_quotas(rules, f"{path}.flavors[{i}]", flavor, covered, parent, of_cohort)
            if flavor["name"] in flavors and not any(flavor["name"] == f["name"] for f in group["flavors"][:i]):
                where, what = f"{path}.flavors[{i}].name", f"{show(flavor['name'])} has quota in another group already"
                rules.wrong("P804", where, what, "put each flavor into one group")
            flavors.add(flavor["name"])
    if not of_cohort:
        _sizes(rules, spec.get("resourceGroups") or ())


def _flavor_quotas(
    rules: RuleContext, path: str, flavor: Any, covered: list[str], parent: Any, of_cohort: bool
) -> None:
    names = [quota["name"] for quota in flavor["resources"]]
    if names != covered:
        rules.conflict(
            f"{path}.resources",
            f"the resources are {', '.join(names)}, those of the group are {', '.join(covered)}",
            "list exactly the coveredResources, in their order",
        )
    for at, quota in enumerate(flavor["resources"]):
        where = f"{path}.resources[{at}]"
        for name in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            text = quota.get(name)
            if text is None:
                continue
            if _exact(text) < 0:
                rules.wrong("P802", f"{where}.{name}", f"{show(text)} is below zero", "write 0 or more")
            if name != "nominalQuota" and not parent:
                above = "parentName" if of_cohort else "cohort"
                what = f"{name} is {show(text)}, and there is no {above} to {'borrow from' if name[0] == 'b' else 'lend to'}"
                fix = f"remove {name}, or name the {'parentName' if of_cohort else 'cohortName'}"
                rules.conflict(f"{where}.{name}", what, fix)
        lending = quota.get("lendingLimit")
        if lending is not None and not of_cohort and _exact(lending) > _exact(quota["nominalQuota"]):
            what = f"lendingLimit is {show(lending)}, and nominalQuota only {show(quota['nominalQuota'])}"
            rules.conflict(f"{where}.lendingLimit", what, "lend at most the nominalQuota")


def _sizes(rules: RuleContext, groups: Iterable[Any]) -> None:
    path = "$.spec.resourceGroups"
    flavors = sum(len(group["flavors"]) for group in groups)
    covered = sum(len(group["coveredResources"]) for group in groups)
    for count, what in ((flavors, "flavors"), (covered, "covered resources")):
        if count > 256:
            rules.wrong("P802", path, f"{count} {what} are too many for one ClusterQueue", "write at most 256")
    for at, group in enumerate(groups):
        quotas = sum(len(flavor["resources"]) for flavor in group["flavors"])
        if quotas > 512:
            rules.wrong("P802", f"{path}[{at}]", f"{quotas} quotas are too many for one group", "write at most 512")


def _weight(rules: RuleContext, document: KueueDocument) -> None:
    weight = (document.spec.get("fairSharing") or {}).get("weight")
    if weight is None:
        return
    value = _exact(weight)
    if value < 0:
        rules.wrong("P802", "$.spec.fairSharing.weight", f"{show(weight)} is below zero", "write 0 or more")
    elif 0 < value <= _exact("1n"):
        what = f"{show(weight)} is too close to 0"
        rules.wrong("P802", "$.spec.fairSharing.weight", what, "write 0, or more than 1n")


def _selector(rules: RuleContext, document: KueueDocument) -> None:
    for at, line in enumerate((document.spec.get("namespaceSelector") or {}).get("matchExpressions") or ()):
        path = f"$.spec.namespaceSelector.matchExpressions[{at}].values"
        if line["operator"] in ("In", "NotIn"):
            if not line.get("values"):
                rules.conflict(path, f"{line['operator']} needs values", "list the values")
        elif line.get("values"):
            rules.conflict(path, f"{line['operator']} takes no values", "remove the values")


def _preemption(rules: RuleContext, document: KueueDocument) -> None:
    preemption = document.spec.get("preemption") or {}
    borrow = (preemption.get("borrowWithinCohort") or {}).get("policy") or Policy.NEVER
    if borrow != Policy.NEVER and (preemption.get("reclaimWithinCohort") or Policy.NEVER) == Policy.NEVER:
        rules.conflict(
            "$.spec.preemption.borrowWithinCohort.policy",
            f"borrowWithinCohort is {borrow}, and reclaimWithinCohort is Never",
            "set reclaimWithinCohort to LowerPriority or Any, or borrowWithinCohort.policy to Never",
        )


def _fungibility(rules: RuleContext, document: KueueDocument) -> None:
    found = document.spec.get("flavorFungibility") or {}
    preference = found.get("preference")
    searched = {found.get("whenCanBorrow") or "MayStopSearch", found.get("whenCanPreempt") or "TryNextFlavor"}
    if preference and searched != {"TryNextFlavor"}:
        rules.conflict(
            "$.spec.flavorFungibility.preference",
            f"preference is {preference}, and the search may stop before all flavors were compared",
            "set whenCanBorrow and whenCanPreempt to TryNextFlavor, or remove the preference",
        )


def _on_flavors(rules: RuleContext, document: KueueDocument) -> None:
    spec = document.spec
    flavors = [f["name"] for group in spec.get("resourceGroups") or () for f in group["flavors"]]
    listed = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    for at, rule in enumerate(listed):
        for i, name in enumerate(rule.get("onFlavors") or ()):
            if name not in flavors:
                path = f"$.spec.admissionChecksStrategy.admissionChecks[{at}].onFlavors[{i}]"
                rules.conflict(
                    path,
                    f"{show(name)} is not a flavor of this ClusterQueue",
                    f"name a flavor of its resourceGroups.{nearest(name, flavors)}",
                )
    if listed and spec.get("admissionChecks"):
        rules.conflict("$.spec.admissionChecks", "admissionChecksStrategy is given, too", "remove one of the two")


def _concurrent(rules: RuleContext, document: KueueDocument) -> None:
    if document.spec.get("concurrentAdmissionPolicy"):
        rules.no_effect("$.spec.concurrentAdmissionPolicy", "concurrentAdmissionPolicy has no effect here")


def _flavor(rules: RuleContext, document: KueueDocument) -> None:
    spec = document.spec
    seen = set()
    for at, taint in enumerate(spec.get("nodeTaints") or ()):
        key = (taint["key"], taint["effect"])
        if key in seen:
            what = f"the taint {taint['key']} is given twice with {taint['effect']}"
            rules.wrong("P804", f"$.spec.nodeTaints[{at}]", what, "remove one of the two")
        seen.add(key)
    _tolerations(rules, spec.get("tolerations") or (), "$.spec.tolerations")
    if spec.get("topologyName"):
        if not spec.get("nodeLabels"):
            fix = "add the label that its nodes have, or remove topologyName"
            rules.conflict("$.spec.topologyName", "topologyName needs nodeLabels", fix)
        rules.no_effect("$.spec.topologyName", "topologyName has no effect here")


def _tolerations(rules: RuleContext, tolerations: Iterable[Any], path: str) -> None:
    for at, found in enumerate(tolerations):
        where = f"{path}[{at}]"
        key, operator, effect = found.get("key"), found.get("operator"), found.get("effect")
        if operator not in (None, "Equal", "Exists"):
            rules.wrong(
                "P802", f"{where}.operator", f"{show(operator)} is not one of its values", "write Equal or Exists"
            )
        elif not key and operator != "Exists":
            rules.conflict(where, "without a key it tolerates every taint", "write `operator: Exists`, or a key")
        if operator == "Exists" and found.get("value") is not None:
            rules.conflict(
                f"{where}.value", f"Exists takes no value, and it is {show(found['value'])}", "remove the value"
            )
        if key and not is_label_key(key):
            rules.wrong("P802", f"{where}.key", f"{show(key)} is not allowed here", f"use {LABEL_KEY.words}")
        if effect is not None and effect not in EFFECTS:
            rules.wrong(
                "P802", f"{where}.effect", f"{show(effect)} is not one of its values", f"write {either(EFFECTS)}"
            )
        if found.get("tolerationSeconds") is not None and effect != "NoExecute":
            fix = "write `effect: NoExecute`, or remove tolerationSeconds"
            rules.conflict(f"{where}.tolerationSeconds", "tolerationSeconds goes with NoExecute only", fix)


# -- Workloads --------------------------------------------------------------------------------------------------------


def _podset_name(podset: Mapping[str, Any]) -> str:
    return podset.get("name") or "main"


def _podset_count(podset: Mapping[str, Any]) -> int:
    count = podset.get("count")
    return 1 if count is None else count


def _podsets(rules: RuleContext, document: KueueDocument) -> None:
    varying = []
    for at, podset in enumerate(document.spec.get("podSets") or ()):
        path = f"$.spec.podSets[{at}]"
        least, count = podset.get("minCount"), _podset_count(podset)
        if least is not None:
            varying.append(at)
            if least > count:
                fix = f"write at most {count}, or a larger count"
                rules.conflict(f"{path}.minCount", f"minCount is {least}, and count is {count}", fix)
        pod = (podset["template"] or {}).get("spec") or {}
        for which in ("initContainers", "containers"):
            for i, container in enumerate(pod.get(which) or ()):
                _resources(rules, f"{path}.template.spec.{which}[{i}].resources", container.get("resources"))
        _resources(rules, f"{path}.template.spec.resources", pod.get("resources"))
        topology = podset.get("topologyRequest") or {}
        if any(value is not None for name, value in topology.items() if name != "podSetGroupName"):
            rules.no_effect(f"{path}.topologyRequest", "topology has no effect here")
    if len(varying) > 1:
        fix = "keep it in one of them"
        rules.conflict(f"$.spec.podSets[{varying[1]}].minCount", f"{len(varying)} pod sets have a minCount", fix)


def _resources(rules: RuleContext, path: str, resources: Mapping[str, Any] | None) -> None:
    for which in ("requests", "limits"):
        for name, text in ((resources or {}).get(which) or {}).items():
            where = f"{path}.{which}.{name}"
            if name == PODS:
                fix = "remove it: each pod counts as one"
                rules.wrong("P802", where, "pods cannot be requested", fix)
            if _exact(text) < 0:
                rules.wrong("P802", where, f"{show(text)} is below zero", "write 0 or more")


def _priority(rules: RuleContext, document: KueueDocument) -> None:
    spec = document.spec
    named = spec.get("priorityClassRef") or {}
    if (
        named
        and {GROUP: "WorkloadPriorityClass", "scheduling.k8s.io": "PriorityClass"}[named["group"]] != named["kind"]
    ):
        fix = f"write {GROUP} with WorkloadPriorityClass, or scheduling.k8s.io with PriorityClass"
        rules.conflict("$.spec.priorityClassRef.kind", f"{named['group']} has no {named['kind']}", fix)
    name = named.get("name") or spec.get("priorityClassName")
    if name and spec.get("priority") is None:
        what = f"the priority class {show(name)} is given, but no priority"
        rules.conflict("$.spec.priority", what, "write the value of the class as `priority:`")


def _gates(rules: RuleContext, document: KueueDocument) -> None:
    text = (document.data["metadata"].get("annotations") or {}).get(GATED_BY) or ""
    path = f"$.metadata.annotations.{GATED_BY}"
    gates = [gate.strip() for gate in text.split(",")] if text.strip() else []
    for at, gate in enumerate(gates):
        if not is_gate(gate) or len(gate) > 63:
            fix = "write domain/name, at most 63 characters, with commas between several"
            rules.wrong("P802", path, f"{show(gate)} is not the name of a gate", fix)
        elif gate in gates[:at]:
            rules.wrong("P804", path, f"the gate {show(gate)} is given twice", "remove one of the two")


def _admission(rules: RuleContext, document: KueueDocument) -> None:
    """A Workload with quota has an assignment for each pod set."""
    status = document.status
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if conditions.get("QuotaReserved") != "True":
        return
    admission = status.get("admission")
    if not admission:
        fix = "add status.admission, or remove the condition"
        rules.conflict("$.status.admission", "QuotaReserved holds, and there is no admission", fix)
        return
    counts = {_podset_name(p): _podset_count(p) for p in document.spec.get("podSets") or ()}
    assigned = admission.get("podSetAssignments") or ()
    path = "$.status.admission.podSetAssignments"
    if len(assigned) != len(counts):
        fix = "assign each pod set once"
        rules.conflict(path, f"{len(assigned)} assignments for {len(counts)} pod sets", fix)
    for at, found in enumerate(assigned):
        name, count = _podset_name(found), found.get("count") or 0
        if name not in counts:
            fix = f"write {either(tuple(counts)) if counts else 'the name of a pod set'}"
            rules.conflict(f"{path}[{at}].name", f"{show(name)} is not a pod set", fix)
        for resource, text in (found.get("resourceUsage") or {}).items():
            if count and requests.amount(resource, text) % count:
                where, what = (
                    f"{path}[{at}].resourceUsage.{resource}",
                    f"{show(text)} is not a multiple of {count} pods",
                )
                rules.conflict(where, what, "write what one pod uses, times the count")


def _reclaimable(rules: RuleContext, document: KueueDocument) -> None:
    counts = {_podset_name(p): _podset_count(p) for p in document.spec.get("podSets") or ()}
    for at, found in enumerate(document.status.get("reclaimablePods") or ()):
        path = f"$.status.reclaimablePods[{at}]"
        if found["name"] not in counts:
            fix = f"write the name of a pod set.{nearest(found['name'], counts)}"
            rules.conflict(f"{path}.name", f"{show(found['name'])} is not a pod set", fix)
        elif found["count"] > counts[found["name"]]:
            most = counts[found["name"]]
            rules.conflict(f"{path}.count", f"{found['count']} of {most} pods are reclaimable", f"write at most {most}")


def _updates(rules: RuleContext, document: KueueDocument) -> None:
    names = {_podset_name(p) for p in document.spec.get("podSets") or ()}
    for at, state in enumerate(document.status.get("admissionChecks") or ()):
        for i, update in enumerate(state.get("podSetUpdates") or ()):
            path = f"$.status.admissionChecks[{at}].podSetUpdates[{i}]"
            if update["name"] not in names:
                fix = f"write the name of a pod set.{nearest(update['name'], names)}"
                rules.conflict(f"{path}.name", f"{show(update['name'])} is not a pod set", fix)
            _tolerations(rules, update.get("tolerations") or (), f"{path}.tolerations")


Rule = Callable[[RuleContext, KueueDocument], None]
_ABOVE = ("$.spec.cohortName", "$.spec.cohort", "$.spec.parentName")
_CHECKS = ("$.spec.admissionChecksStrategy", "$.spec.admissionChecks")
RULES: Mapping[str, tuple[tuple[tuple[str, ...], Rule], ...]] = {
    "ClusterQueue": (
        (("$.spec.resourceGroups", *_ABOVE), _groups),
        (("$.spec.fairSharing",), _weight),
        (("$.spec.namespaceSelector",), _selector),
        (("$.spec.preemption",), _preemption),
        (("$.spec.flavorFungibility",), _fungibility),
        (("$.spec.resourceGroups", *_CHECKS), _on_flavors),
        (("$.spec.concurrentAdmissionPolicy",), _concurrent),
    ),
    "Cohort": ((("$.spec.resourceGroups", *_ABOVE), _groups), (("$.spec.fairSharing",), _weight)),
    "LocalQueue": ((("$.spec.fairSharing",), _weight),),
    "ResourceFlavor": ((("$.spec",), _flavor),),
    "Workload": (
        (("$.spec.podSets",), _podsets),
        (("$.spec.priority", "$.spec.priorityClassRef", "$.spec.priorityClassName"), _priority),
        (("$.metadata",), _gates),
        (("$.spec.podSets", "$.status.conditions", "$.status.admission"), _admission),
        (("$.spec.podSets", "$.status.reclaimablePods"), _reclaimable),
        (("$.spec.podSets", "$.status.admissionChecks"), _updates),
    ),
}
"""By kind: the fields that a rule reads, and the rule."""
