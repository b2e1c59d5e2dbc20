"""A document → the queue configuration in it, as strictly as YuniKorn reads it: an unknown field is an error. Called by service.yunikorn.

It is `queues.yaml` itself, or the ConfigMap yunikorn-configs that has it. Of several partitions the one called `default` counts: YuniKorn on Kubernetes uses no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import DocumentError, Problem, instead
from penstock.formats.documents import Document, read_text
from penstock.graph.text import check_size
from penstock.scheduling.queues.model import ROOT, Limit, Partition, Queue

WRONG: Final = "P824"
FILE: Final = "queues.yaml"
DEFAULT: Final = "default"
_QUANTITY: Final = re.compile(r"([0-9]{1,19})\s*([mkKMGTPE]i?)?\Z", re.A)
_SCALE: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", 1)
}
_MOST: Final = 2**63 - 1
_PARTITION: Final = (
    "name", "queues", "placementrules", "limits", "preemption", "nodesortpolicy", "usergroupresolver",
)  # fmt: skip
_QUEUE: Final = (
    "name", "parent", "resources", "maxapplications", "properties", "adminacl", "submitacl", "childtemplate", "queues", "limits",
)  # fmt: skip
_LIMIT: Final = ("limit", "users", "groups", "maxresources", "maxapplications")
_RULE: Final = ("name", "create", "filter", "parent", "value")
_FILTER: Final = ("type", "users", "groups")
_TYPES: Final = {str: "text", list: "a list", dict: "a map", bool: "true or false", int: "a whole number"}


def is_yunikorn(document: Document) -> bool:
    """A file with partitions, or the ConfigMap that has one."""
    if document.kind == "ConfigMap":
        return FILE in (document.data.get("data") or {})
    return not document.api and "partitions" in document.data


def read(document: Document) -> Partition:
    """Raises DocumentError with all that is no configuration: P824. `check` says what is a wrong one."""
    reader = _Reader(_inside(document))
    found = reader.whole()
    if reader.problems or found is None:
        raise DocumentError(reader.problems)
    return found


def inside(document: Document) -> Document:
    """The configuration itself, for places in it."""
    return _inside(document)


def _inside(document: Document) -> Document:
    if document.kind != "ConfigMap":
        return document
    text = (document.data.get("data") or {}).get(FILE)
    where = f"data.{FILE}"
    if not isinstance(text, str):
        raise DocumentError(document.problem(WRONG, where, f"{FILE} is not text", "write it with `|`"))
    check_size(len(text), document.file)
    line = document.source("data").line
    found = read_text(text, f"{document.file} (data.{FILE}, from line {line})")
    return found[0] if found else Document({"partitions": []}, document.file)


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def whole(self) -> Partition | None:
        data = self.document.data
        self.known("", data, ("partitions", "checksum"))
        listed = self.value("partitions", data.get("partitions"), list) or []
        found = [self.partition(f"partitions[{number}]", one) for number, one in enumerate(listed)]
        names = [one.name for one in found]
        for number, name in enumerate(names):
            if name in names[:number]:
                self.wrong(f"partitions[{number}].name", f"there are two partitions {name!r}", "give each its own name")
        chosen = next((one for one in found if one.name == DEFAULT), None)
        if chosen is None and not self.problems:
            self.wrong(
                "partitions",
                "there is no partition `default`, and YuniKorn on Kubernetes uses no other",
                "call it default",
            )
        return chosen

    def partition(self, path: str, data: Any) -> Partition:
        data = self.value(path, data, dict) or {}
        self.known(path, data, _PARTITION)
        name = (self.value(f"{path}.name", data.get("name"), str) or DEFAULT).lower()
        if data.get("queues") is None:
            self.wrong(path, "the partition has no queues", "write `queues: [{name: root}]`")
        queues = self.queues(f"{path}.queues", data.get("queues"))
        limits = self.limits(f"{path}.limits", data.get("limits"))
        root = self.root(path, queues, limits)
        rules = self.rules(f"{path}.placementrules", data.get("placementrules"))
        preemption = self.value(f"{path}.preemption", data.get("preemption"), dict) or {}
        self.known(f"{path}.preemption", preemption, ("enabled", "quotapreemptionenabled"))
        resolver = self.value(f"{path}.usergroupresolver", data.get("usergroupresolver"), dict) or {}
        self.known(f"{path}.usergroupresolver", resolver, ("type",))
        self.sorting(f"{path}.nodesortpolicy", data.get("nodesortpolicy"))
        others = tuple(one for one in ("nodesortpolicy",) if data.get(one))
        return Partition(
            name, root, rules, preemption.get("enabled") is not False, str(resolver.get("type") or ""), others
        )

    def root(self, path: str, queues: tuple[Queue, ...], limits: tuple[Limit, ...]) -> Queue:
        """Exactly one, put in if it is missing. It has no resources: those of all nodes are its own."""
        if len(queues) == 1 and queues[0].name == ROOT:
            found = queues[0]
        else:
            found = Queue(ROOT, queues=queues, path=f"{path}.queues")
        if found.guaranteed or found.most:
            self.wrong(
                f"{found.path}.resources", "the root queue has resources: they are those of all nodes", "take them out"
            )
        if limits and found.limits and [_plain(one) for one in limits] != [_plain(one) for one in found.limits]:
            self.wrong(
                f"{path}.limits", "the limits of the partition are not those of the root queue", "write them once"
            )
        return Queue(
            ROOT, {}, {}, True, found.applications, found.properties, found.submit, found.admin,
            found.limits or limits, found.queues, found.template, found.path,
        )  # fmt: skip

    def queues(self, path: str, data: Any) -> tuple[Queue, ...]:
        listed = self.value(path, data, list) or []
        return tuple(self.queue(f"{path}[{number}]", one) for number, one in enumerate(listed))

    def queue(self, path: str, data: Any) -> Queue:
        data = self.value(path, data, dict) or {}
        self.known(path, data, _QUEUE)
        resources = self.resources(f"{path}.resources", data.get("resources"))
        template = self.value(f"{path}.childtemplate", data.get("childtemplate"), dict) or {}
        self.known(f"{path}.childtemplate", template, ("maxapplications", "properties", "resources"))
        self.resources(f"{path}.childtemplate.resources", template.get("resources"))
        properties = self.value(f"{path}.properties", data.get("properties"), dict) or {}
        return Queue(
            name=(self.value(f"{path}.name", data.get("name"), str) or "").lower(),
            guaranteed=resources[0],
            most=resources[1],
            is_parent=bool(self.value(f"{path}.parent", data.get("parent"), bool)),
            applications=self.count(f"{path}.maxapplications", data.get("maxapplications")),
            properties={str(key): str(value) for key, value in properties.items()},
            submit=self.value(f"{path}.submitacl", data.get("submitacl"), str),
            admin=self.value(f"{path}.adminacl", data.get("adminacl"), str),
            limits=self.limits(f"{path}.limits", data.get("limits")),
            queues=self.queues(f"{path}.queues", data.get("queues")),
            template=bool(template),
            path=path,
        )

    def resources(self, path: str, data: Any) -> tuple[dict[str, int], dict[str, int]]:
        data = self.value(path, data, dict) or {}
        self.known(path, data, ("guaranteed", "max"))
        return self.amounts(f"{path}.guaranteed", data.get("guaranteed")), self.amounts(f"{path}.max", data.get("max"))

    def amounts(self, path: str, data: Any) -> dict[str, int]:
        data = self.value(path, data, dict) or {}
        found = {}
        for name, text in data.items():
            try:
                found["cpu" if name == "vcore" else str(name)] = amount(str(name), text)
            except ValueError as error:
                self.wrong(
                    f"{path}.{name}", str(error), "write a whole number, with k, M, G, Ki, Mi, Gi …; of vcore also m"
                )
            if name == "cpu":
                self.wrong(
                    f"{path}.cpu", "YuniKorn calls it vcore: `cpu` is a resource that no pod asks for", "write vcore"
                )
        return found

    def limits(self, path: str, data: Any) -> tuple[Limit, ...]:
        listed = self.value(path, data, list) or []
        return tuple(self.limit(f"{path}[{number}]", one) for number, one in enumerate(listed))

    def limit(self, path: str, data: Any) -> Limit:
        data = self.value(path, data, dict) or {}
        self.known(path, data, _LIMIT)
        return Limit(
            self.texts(f"{path}.users", data.get("users")),
            self.texts(f"{path}.groups", data.get("groups")),
            self.amounts(f"{path}.maxresources", data.get("maxresources")),
            self.count(f"{path}.maxapplications", data.get("maxapplications")),
            self.value(f"{path}.limit", data.get("limit"), str) or "",
            path,
        )

    def rules(self, path: str, data: Any) -> tuple[Mapping[str, Any], ...]:
        listed = self.value(path, data, list) or []
        return tuple(self.rule(f"{path}[{number}]", one) for number, one in enumerate(listed))

    def rule(self, path: str, data: Any) -> Mapping[str, Any]:
        found: dict[str, Any] = dict(self.value(path, data, dict) or {})
        self.known(path, found, _RULE)
        for field, kind in (("name", str), ("create", bool), ("value", str)):
            self.value(f"{path}.{field}", found.get(field), kind)
        given = self.value(f"{path}.filter", found.get("filter"), dict) or {}
        self.known(f"{path}.filter", given, _FILTER)
        for field in ("users", "groups"):
            self.texts(f"{path}.filter.{field}", given.get(field))
        if found.get("parent") is not None:
            found["parent"] = self.rule(f"{path}.parent", found["parent"])
        return found

    def sorting(self, path: str, data: Any) -> None:
        data = self.value(path, data, dict) or {}
        self.known(path, data, ("type", "resourceweights"))
        if str(data.get("type") or "fair") not in ("fair", "binpacking"):
            self.wrong(f"{path}.type", f"{data['type']!r} is no order of nodes", "write fair or binpacking")
        for name, weight in (self.value(f"{path}.resourceweights", data.get("resourceweights"), dict) or {}).items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
                self.wrong(f"{path}.resourceweights.{name}", "a weight is a number, 0 or more", "write one")

    def texts(self, path: str, data: Any) -> tuple[str, ...]:
        listed = self.value(path, data, list) or []
        return tuple(str(self.value(f"{path}[{number}]", one, str) or "") for number, one in enumerate(listed))

    def count(self, path: str, data: Any) -> int:
        found = self.value(path, data, int)
        if found is not None and found < 0:
            self.wrong(path, f"{found} is less than 0", "write 0 or more")
        return found or 0

    def value(self, path: str, data: Any, kind: type) -> Any:
        """The value if it is of this type; None if there is none, or if it is wrong. Bare numbers are text too, as in YAML for Go."""
        if data is None:
            return None
        if kind is str and isinstance(data, int | float) and not isinstance(data, bool):
            return str(data)
        if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
            self.wrong(path, f"{path.rpartition('.')[2]} is not {_TYPES[kind]}", f"write {_TYPES[kind]}")
            return None
        return data

    def known(self, path: str, data: Mapping[str, Any], fields: tuple[str, ...]) -> None:
        for field in data:
            if field not in fields:
                here = f"{path}.{field}".removeprefix(".")
                self.wrong(
                    here,
                    f"there is no field {str(field)!r} here: YuniKorn refuses the whole configuration",
                    instead(str(field), fields),
                )

    def wrong(self, path: str, message: str, fix: str) -> None:
        self.problems.append(self.document.problem(WRONG, path, message, fix))


def _plain(limit: Limit) -> tuple[Any, ...]:
    return (limit.users, limit.groups, dict(limit.resources), limit.applications, limit.text)


def amount(name: str, text: Any) -> int:
    """Thousandths. Raises ValueError: other than in Kubernetes there are no fractions, and `m` is for vcore only."""
    match = _QUANTITY.match(str(text).strip()) if not isinstance(text, bool | list | dict) else None
    suffix = (match[2] or "") if match else ""
    if match is None or suffix in ("mi", "ki") or (suffix == "m" and name != "vcore") or suffix == "K":
        raise ValueError(f"{str(text)[:60]!r} is no amount of {name}")
    found = int(match[1]) if suffix == "m" else int(match[1]) * _SCALE[suffix] * 1000
    if found > _MOST * (1 if name == "vcore" else 1000):
        raise ValueError(f"{str(text)[:60]!r} is larger than YuniKorn can count")
    return found
