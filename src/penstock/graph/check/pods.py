"""The rules of the parts of a pod. Called by check.steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.errors import nearest
from penstock.graph.check.context import Context, ReadScope
from penstock.graph.check.scalars import check_name, check_seconds, check_unique, check_word, cycle_path
from penstock.graph.limits import NAME
from penstock.graph.links import part_needs
from penstock.graph.model import PART_ON_ERROR, Part, Pod
from penstock.graph.order import NotOrdered, topological

OPERATORS: Final = ("in", "notin")


def check_pod(context: Context, pod: Pod, scope: ReadScope) -> None:
    where = scope.at("pod.parts")
    if not pod.parts:
        context.report("P233", "the pod has no parts", "give it one", where, scope.source)
    known = {part.name: part for part in pod.parts}
    check_unique(context, [part.name for part in pod.parts], "part", where, scope.source)
    for part in pod.parts:
        _check_part(context, part, known, f"{where}.{part.name}", scope)
    if len(known) < len(pod.parts):
        return
    waits = {name: {up for up in ups if up in known} for name, ups in part_needs(pod.parts).items()}
    try:
        topological(waits)
    except NotOrdered as cycle:
        context.report(
            "P212",
            f"these parts wait for one another: {cycle_path(cycle.names)}",
            "remove one of the needs",
            where,
            scope.source,
        )


def _check_part(context: Context, part: Part, known: Mapping[str, Part], where: str, scope: ReadScope) -> None:
    check_name(context, part.name, NAME, where, scope.source)
    check_word(context, part.on_error, PART_ON_ERROR, f"{where}.on_error", scope.source)
    check_seconds(context, part.timeout, f"{where}.timeout", scope.source)
    if part.image in (None, "") and not part.command and part.source is None:
        context.report("P233", "the part does nothing", "give it an image, a command or a source", where, scope.source)
    for name in part.needs or ():
        if name not in known:
            context.report(
                "P233",
                f"the pod has no part {name!r}",
                f"name another.{nearest(name, known)}",
                f"{where}.needs",
                scope.source,
            )
        elif known[name].sidecar:
            context.report(
                "P222",
                f"the part waits for the sidecar {name!r}, which ends last",
                "remove the need",
                f"{where}.needs",
                scope.source,
            )
    for test in part.when:
        operator = test.get("operator")
        if set(test) != {"input", "operator", "values"} or not isinstance(operator, str):
            context.report(
                "P233",
                "the condition is not complete",
                "write {input: …, operator: in, values: […]}",
                f"{where}.when",
                scope.source,
            )
        else:
            check_word(context, operator, OPERATORS, f"{where}.when", scope.source)
