"""Policies of an Argo template: retries, time limits, placement, locks, cache, labels. Called by leaf, templates and remote."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.expressions.parse import Binary, Call, Expr, Index, MapOf, Member, Name, Node, Unary
from penstock.expressions.types import FLOAT, INT, STR
from penstock.formats.argo.write.context import WriteContext, object_name
from penstock.formats.argo.write.expr import ExprWriter, text_of
from penstock.formats.argo.write.pod import thawed
from penstock.formats.argo.write.variables import ArgoVariable, Find, NotInArgo, tagged
from penstock.formats.documents import part
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.formats.shim import RETRY
from penstock.graph.limits import LARGEST_COUNT
from penstock.graph.model import Function, Http, Lock, Nested, Placement, Retry, Step, Suspend, Value
from penstock.graph.rewrite import as_node

_CACHE_KEY: Final = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*\Z", re.A)
_OVERDUE: Final = "lastRetry.message contains 'longer than the specified deadline'"
_TEMPLATE_FIELDS: Final = frozenset(
    "automountServiceAccountToken hostAliases priorityClassName schedulerName securityContext serviceAccountName".split()
)
"""Pod fields that a template also has."""
_ELSEWHERE: Final = frozenset({"volumes", "restartPolicy"})


def around(context: WriteContext, step: Step, find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if step.retry is not None and step.replicas == 1:
        found["retryStrategy"] = retry_strategy(context, step, step.retry)
    if step.timeout is not None and not isinstance(step.action, Http):
        if isinstance(step.action, Suspend):
            found["timeout"] = seconds(step.timeout)
        else:
            found["activeDeadlineSeconds"] = math.ceil(step.timeout)
    found |= placed(step.placement)
    if step.locks:
        found["synchronization"] = synchronization(context, step.locks, find)
    if step.cache.key is not None and step.cache.enabled:
        found["memoize"] = memoize(context, step, find)
    metadata = _metadata(context, step)
    if metadata:
        found["metadata"] = metadata
    return _kept(context, step, found)


def seconds(value: float) -> str:
    return f"{int(value)}s" if value == int(value) else f"{value:f}".rstrip("0") + "s"


# -- tries ------------------------------------------------------------------------------------------------------------


def retry_strategy(context: WriteContext, step: Step, retry: Retry) -> dict[str, Any]:
    found: dict[str, Any] = {"limit": str(retry.limit)} if retry.limit < LARGEST_COUNT else {}
    on = frozenset(retry.on)
    failures, errors = bool(on & {"failed", "timeout"}), "errored" in on
    found["retryPolicy"] = "Always" if failures and errors else "OnError" if errors else "OnFailure"
    tests = []
    if step.timeout is not None and "failed" in on and "timeout" not in on:
        tests.append(f"!({_OVERDUE})")
    elif "timeout" in on and "failed" not in on:
        tests.append(f"({_OVERDUE} || lastRetry.status == 'Error')" if errors else _OVERDUE)
    if retry.exit_codes:
        codes = ", ".join(map(str, (*retry.exit_codes, -1)))
        tests.append(f"asInt(lastRetry.exitCode) in [{codes}]")
    if retry.exceptions and isinstance(step.action, Function):
        # The exit code of the program that calls the function says whether it was one of these.
        tests.append(f"asInt(lastRetry.exitCode) in [{RETRY}, -1]")
    if retry.when is not None:
        code = ExprWriter(_of_attempt).code(_in_argos_words(retry.when.node))
        tests.append(code.text if len(tests) == 0 else code.at(0))
    if tests:
        found["expression"] = " && ".join(tests)
    wait = _backoff(context, step, retry)
    if wait:
        found["backoff"] = wait
    return found


def _in_argos_words(node: Node) -> Node:
    """The reader reads lastRetry.status as a map from outcomes to Argo's names; here it is written back."""
    match node:
        case Index(MapOf(), Member(Name("attempt"), "outcome") as outcome):
            return Call("phase", (outcome,))
        case Binary(op, left, right):
            return Binary(op, _in_argos_words(left), _in_argos_words(right))
        case Unary(op, of):
            return Unary(op, _in_argos_words(of))
    return node


def _of_attempt(path: tuple[str, ...]) -> ArgoVariable | None:
    match path:
        case ("attempt", "exit_code"):
            return ArgoVariable(("lastRetry", "exitCode"), INT, 2)
        case ("attempt", "message"):
            return ArgoVariable(("lastRetry", "message"), STR, 2)
        case ("attempt", "outcome"):
            return ArgoVariable(("lastRetry", "status"), STR, 2, status=True)
        case ("attempt", "seconds"):
            return ArgoVariable(("lastRetry", "duration"), FLOAT, 2)
        case ("attempt", "number"):
            return ArgoVariable((), INT, 2, code="(asInt(retries) + 1)")
    return None


def _backoff(context: WriteContext, step: Step, retry: Retry) -> dict[str, Any]:
    backoff = retry.backoff
    found: dict[str, Any] = {}
    if backoff.initial or retry.within is not None:
        found["duration"] = seconds(backoff.initial)
    if backoff.initial and backoff.factor > 1:
        factor = math.ceil(backoff.factor)
        if factor != backoff.factor:
            message = f"Argo multiplies the wait between tries by whole numbers: {factor} instead of {backoff.factor:g}"
            context.remark("changed", message, step, f"steps.{step.name}.retry.backoff")
        found["factor"] = str(factor)
        found["cap"] = seconds(backoff.longest)
    if retry.within is not None:
        found["maxDuration"] = seconds(retry.within)
    return found


# -- place ------------------------------------------------------------------------------------------------------------


def placed(placement: Placement | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if placement is None:
        return found
    if placement.node_selector:
        found["nodeSelector"] = dict(placement.node_selector)
    if placement.tolerations:
        found["tolerations"] = [
            {
                name: value
                for name, value in (
                    ("key", one.key),
                    ("operator", one.operator),
                    ("value", one.value),
                    ("effect", one.effect),
                    ("tolerationSeconds", one.seconds),
                )
                if value not in ("", None)
            }
            for one in placement.tolerations
        ]
    if placement.affinity:
        found["affinity"] = thawed(placement.affinity)
    return found


# -- locks and cache --------------------------------------------------------------------------------------------------


def synchronization(context: WriteContext, locks: Sequence[Lock], find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for lock in locks:
        if lock.limit == 1:
            found.setdefault("mutexes", []).append({"name": text_of(lock.name, find)})
            continue
        if not isinstance(lock.name, str):
            why = "how many may hold a lock must be known for each name, and this name is only known when it runs"
            raise NotInArgo(why, "name the lock, or let one hold it at a time")
        name, key = object_name(f"{context.name}-locks", 63), re.sub(r"[^-._a-zA-Z0-9]+", "-", lock.name)
        context.maps.setdefault(name, {})[key] = str(lock.limit)
        found.setdefault("semaphores", []).append({"configMapKeyRef": {"name": name, "key": key}})
    return found


def memoize(context: WriteContext, step: Step, find: Find) -> dict[str, Any]:
    """A key may have letters, digits and dashes; anything else is hashed."""
    key: Value = step.cache.key
    if isinstance(key, str):
        shown = key if _CACHE_KEY.match(key) else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    else:
        node = key.node if isinstance(key, Expr) else as_node(key)
        shown = tagged(f"sprig.sha256sum({ExprWriter(find).as_text(node)})")
    age = "" if step.cache.ttl is None else seconds(step.cache.ttl)
    return {"key": shown, "maxAge": age, "cache": {"configMap": {"name": object_name(f"{context.name}-cache", 63)}}}


# -- labels, and what was handed on -----------------------------------------------------------------------------------


def _metadata(context: WriteContext, step: Step) -> dict[str, Any]:
    found: dict[str, Any] = thawed(
        {name: value for name, value in part(step.extra, "metadata").items() if name in ("labels", "annotations")}
    )
    labels = {}
    if step.queue is not None:
        labels[QUEUE] = step.queue
    if isinstance(step.priority, str):
        labels[PRIORITY] = step.priority
    elif step.priority is not None:
        message = "Argo and Kueue know priorities of single steps by the names of classes, not as numbers"
        context.remark("lost", message, step, f"steps.{step.name}.priority", "Name a priority class.")
    if labels:
        found["labels"] = {**found.get("labels", {}), **labels}
    return found


def _kept(context: WriteContext, step: Step, found: dict[str, Any]) -> dict[str, Any]:
    """Pod fields that the model has no place for, and fields of the Argo template."""
    patch: dict[str, Any] = {}
    for name, value in part(step.extra, "pod").items():
        if name in _TEMPLATE_FIELDS:
            found.setdefault(name, thawed(value))
        elif name not in _ELSEWHERE:
            patch[name] = thawed(value)
        elif name == "restartPolicy" and value != "Never":
            message = f"its containers are to be started again by the kubelet ({value}); Argo never does"
            context.remark("changed", message, step, f"steps.{step.name}", "Give the step a retry.")
    if patch and not isinstance(step.action, Nested):
        found.setdefault("podSpecPatch", json.dumps(patch, ensure_ascii=False, sort_keys=True))
    for foreign, names in beyond(step.extra):
        message = f"what the {foreign} document says beyond the model is not known to Argo: {names}"
        context.remark("lost", message, step, f"steps.{step.name}.extra.{foreign}")
    if step.extra.get("unrunnable") and not part(step.extra, "argo"):
        message = f"it stands for something that cannot be run: {step.extra['unrunnable']}"
        context.remark("lost", message, step, f"steps.{step.name}")
    return found


def beyond(extra: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields that only another format has: the format, and their names."""
    for foreign, harmless in (("tekton", ("kind", "unresolved")), ("jobset", ("replicas",)), ("job", ())):
        names = [name for name in part(extra, foreign) if name not in harmless]
        if names:
            yield foreign, ", ".join(names[:5])


def handed_on(body: dict[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """A template merged with the other fields of its Argo document."""
    found = dict(body)
    for name, value in kept.items():
        if name in ("plugin", "data"):
            found.pop("container", None)
            found[name] = thawed(value)
        elif name in found and isinstance(found[name], dict) and isinstance(value, Mapping):
            found[name] = {**found[name], **thawed(value)}
        else:
            found.setdefault(name, thawed(value))
    if "resource" in kept and str(found["resource"].get("manifest", "")).startswith("# "):
        del found["resource"]["manifest"]  # it has none; this is the placeholder
    return found
