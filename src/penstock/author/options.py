"""Options of jobs and tasks -> fields of a Step. Called by jobs, tasks and the compiler."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from penstock.author.errors import author_error
from penstock.author.values import to_condition, to_value
from penstock.errors import instead
from penstock.graph import quantity
from penstock.graph.callback import AnswerRule, Callback
from penstock.graph.model import Answer, Backoff, Cache, Lock, Mount, Outcome, Placement, Retry, Toleration

GPU = "nvidia.com/gpu"
"""The resource that `gpu=8` asks for. Others have names of their own: resources={"amd.com/gpu": 8}."""


class Options(TypedDict, total=False):
    cpu: int | float | str
    memory: int | str
    gpu: int
    resources: Mapping[str, int | float | str]
    resources_by: Mapping[str, Any]
    replicas: int
    node_selector: Mapping[str, str]
    tolerations: Sequence[Toleration | Mapping[str, Any]]
    affinity: Mapping[str, Any]
    queue: str
    priority: str | int
    retry: int | Retry
    timeout: int | float | str
    timeout_by: Any
    cache: bool | Cache
    group: str
    exempt: bool
    tolerates: Sequence[Outcome | str]
    locks: Sequence[Lock | str]
    mounts: Sequence[Mount]
    answer: bool | Answer
    extra: Mapping[str, Any]
    doc: str


class JobOptions(Options, total=False):
    when: Any
    trigger: Any


KNOWN = tuple(Options.__annotations__)
FOR_JOBS = (*KNOWN, "when", "trigger")
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?\Z")


def seconds(value: float | str, what: str = "timeout") -> float:
    """600, "600", "10m", "1h30m" -> seconds."""
    if isinstance(value, str):
        match = _DURATION.match(value.strip())
        if match is None or not any(match.groups()):
            raise author_error(
                "P305", f"{what}={value!r} is not a duration", 'write seconds, or text such as "90s", "10m", "1h30m"'
            )
        value = sum(float(part) * size for part, size in zip(match.groups(), (86400, 3600, 60, 1), strict=True) if part)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise author_error(
            "P305", f"{what}={value!r} is not a duration", 'write seconds, or text such as "90s", "10m", "1h30m"'
        )
    return int(value) if float(value).is_integer() else float(value)


def dedented(source: str) -> str:
    """A script without the indentation of the code around it. A script that has none is unchanged."""
    cleaned = inspect.cleandoc(source)
    return source if source.rstrip("\n") == cleaned else cleaned


def step_fields(options: Mapping[str, Any], known: Sequence[str] = KNOWN) -> dict[str, Any]:
    """Options -> the fields of a Step that they set. Raises AuthorError at the author's line."""
    if not options:
        return {}
    for name in options:
        if name not in known:
            raise author_error(
                "P305", f"there is no option {name!r}", f"{instead(name, known)} Known: {', '.join(known)}"
            )
    fields: dict[str, Any] = {
        name: options[name]
        for name in ("replicas", "queue", "priority", "group", "doc")
        if options.get(name) is not None
    }
    resources = _resources(options)
    if resources:
        fields["resources"] = resources
    if options.get("resources_by"):
        fields["resources_by"] = {name: to_value(amount) for name, amount in options["resources_by"].items()}
    if any(options.get(name) for name in ("node_selector", "tolerations", "affinity")):
        fields["placement"] = _placement(options)
    if options.get("timeout") is not None:
        fields["timeout"] = seconds(options["timeout"])
    if options.get("retry"):
        fields["retry"] = _retry(options["retry"])
    for name in ("when", "trigger", "timeout_by"):
        if options.get(name) is not None:
            fields[name] = to_condition(options[name])
    cache = options.get("cache", True)
    if isinstance(cache, Cache) or cache is False:
        fields["cache"] = _cache(cache) if isinstance(cache, Cache) else Cache(enabled=False)
    fields |= _rare(options)
    for name, types in (("replicas", int), ("queue", str), ("group", str), ("doc", str), ("priority", (str, int))):
        if name in fields and (not isinstance(fields[name], types) or isinstance(fields[name], bool)):
            raise author_error(
                "P305",
                f"{name}={fields[name]!r} does not fit",
                f"give {'text' if types is str else 'a whole number' if types is int else 'text or a number'}",
            )
    return fields


def _rare(options: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if options.get("exempt"):
        fields["exempt"] = True
    if options.get("tolerates"):
        try:
            fields["tolerates"] = frozenset(Outcome(one) for one in options["tolerates"])
        except ValueError as error:
            raise author_error("P305", str(error), f"known outcomes: {', '.join(Outcome)}") from None
    if options.get("locks"):
        fields["locks"] = locks_of(options["locks"])
    if options.get("answer"):
        fields["answer"] = _answer(options["answer"])
    for name, kind in (("mounts", Mount), ("extra", None)):
        if options.get(name):
            given = options[name]
            if kind is not None and not all(isinstance(one, kind) for one in given):
                raise author_error("P305", f"{name}={given!r} does not fit", "give Mount(name=…, path=…)")
            fields[name] = dict(given) if kind is None else tuple(map(_mount, given))
    return fields


def _cache(given: Cache) -> Cache:
    return given if given.key is None else dataclasses.replace(given, key=to_value(given.key))


def _answer(given: Any) -> Answer:
    if given is True:
        return Answer()
    if not isinstance(given, Answer):
        raise author_error("P305", f"answer={given!r} does not fit", "give True, or Answer(within=3600, heartbeat=60)")
    within, heartbeat = (
        None if one is None else seconds(one, f"answer.{name}")
        for name, one in (("within", given.within), ("heartbeat", given.heartbeat))
    )
    return dataclasses.replace(given, within=within, heartbeat=heartbeat)


def _mount(given: Mount) -> Mount:
    return dataclasses.replace(given, sub_path=to_value(given.sub_path), files=to_value(dict(given.files)))


def locks_of(given: Any) -> tuple[Lock, ...]:
    """Names of mutexes, or Locks."""
    if isinstance(given, str | Lock):
        given = [given]
    if not all(isinstance(one, str | Lock) for one in given):
        raise author_error("P305", f"locks={given!r} does not fit", "give names, or Lock(name=…, limit=…)")
    locks = (one if isinstance(one, Lock) else Lock(name=one) for one in given)
    return tuple(dataclasses.replace(lock, name=to_value(lock.name)) for lock in locks)


def callbacks_of(given: Any) -> tuple[Callback, ...]:
    """URLs, or Callbacks, in whose fields expressions may be text."""
    if isinstance(given, str | Callback):
        given = [given]
    if not isinstance(given, Sequence) or not all(isinstance(one, str | Callback) for one in given):
        raise author_error("P305", f"callbacks={given!r} does not fit", "give URLs, or Callback(name=…, url=…)")
    found = []
    for number, one in enumerate(given, 1):
        each = Callback(name=f"url-{number}", url=one) if isinstance(one, str) else one
        found.append(
            dataclasses.replace(
                each,
                url=to_value(each.url),
                on=(each.on,) if isinstance(each.on, str) else tuple(each.on),
                items=_list_of(each.items),
                filter=None if each.filter is None else to_condition(each.filter),
                headers={name: to_value(value) for name, value in each.headers.items()},
                body=to_value(each.body),
                secret=None if each.secret is None else to_value(each.secret),
                answers=tuple(map(_answer_rule, each.answers)),
                timeout=seconds(each.timeout),
            )
        )
    return tuple(found)


def _list_of(items: Any) -> Any:
    """The text of an expression, as for conditions, or a value."""
    if isinstance(items, str) and "${{" not in items:
        return to_condition(items)
    return to_value(items)


def _answer_rule(rule: AnswerRule) -> AnswerRule:
    when = None if rule.when is None else to_condition(rule.when)
    status = (rule.status,) if isinstance(rule.status, str | int) else tuple(rule.status)
    return dataclasses.replace(rule, when=when, status=status)


def _resources(options: Mapping[str, Any]) -> dict[str, int]:
    asked = dict(options.get("resources") or {})
    for name, resource in (("cpu", "cpu"), ("memory", "memory"), ("gpu", GPU)):
        if options.get(name) is not None:
            asked[resource] = options[name]
    found = {}
    for resource, amount in asked.items():
        try:
            found[resource] = quantity.parse(amount)
        except (ValueError, AttributeError, TypeError) as error:  # a list is not hashable
            raise author_error("P108", f"{resource}: {error}", "write a Kubernetes quantity: 2, 500m, 4Gi") from None
        if found[resource] < 0:
            raise author_error("P230", f"{resource} is {amount}", "ask for nothing, or for more than nothing")
    return {resource: amount for resource, amount in found.items() if amount}


def _placement(options: Mapping[str, Any]) -> Placement:
    tolerations = []
    for item in options.get("tolerations") or ():
        if isinstance(item, Toleration):
            tolerations.append(item)
            continue
        unknown = set(item) - {"key", "operator", "value", "effect", "seconds", "tolerationSeconds"}
        if unknown:
            raise author_error(
                "P305",
                f"a toleration has no {min(unknown)!r}",
                "known: key, operator, value, effect, tolerationSeconds",
            )
        tolerations.append(
            Toleration(
                key=item.get("key", ""),
                operator=item.get("operator", "Equal"),
                value=item.get("value", ""),
                effect=item.get("effect", ""),
                seconds=item.get("seconds", item.get("tolerationSeconds")),
            )
        )
    affinity = options.get("affinity")
    return Placement(
        node_selector=dict(options.get("node_selector") or {}),
        tolerations=tuple(tolerations),
        affinity=to_value(affinity) if affinity else None,
    )


def _retry(given: Any) -> Retry:
    if isinstance(given, Retry):
        return given
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise author_error(
            "P305", f"retry={given!r} does not fit", "give how many times to try again, or Retry(limit=3, …)"
        )
    return Retry(limit=given, backoff=Backoff())
