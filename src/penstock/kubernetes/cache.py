"""Objects of one kind in memory, by name and by owner. Filled by watch, and by whoever writes, so that the next look sees the write; read by the core's lookups.

What is kept never goes back: an answer that comes late is passed over, and so is one about an object that was seen to be deleted. Objects are shared
between threads and must not be changed.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.kubernetes.objects import (
    WORKFLOW_UID,
    ApiResource,
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)

Name = tuple[str, str]
"""Namespace and name."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OUTLINE = "outline"
"""A field that no object has: only its outline is kept."""
SHORT = 256
"""Letters of an annotation that stays in an outline."""
MOST_DELETED = 10_000
"""How many deleted objects are remembered, so that a late answer does not bring one back."""


@dataclass(frozen=True, slots=True)
class Change:
    resource: ApiResource
    old: Object | None
    new: Object | None


class ObjectCache:
    """Thread-safe. `keep`: what to keep of an object beside what all leave out."""

    def __init__(self, resource: ApiResource, keep: Callable[[Object], Object] | None = None) -> None:
        self.resource = resource
        self._keep = keep
        self._matches = LabelSelector(resource.selector)
        self._lock = threading.RLock()
        self._objects: dict[Name, Object] = {}
        self._by_namespace = _Index()
        self._by_owner = _Index()
        self._by_workflow = _Index()
        self._deleted: OrderedDict[str, float] = OrderedDict()  # uid -> the version at which it was deleted
        self._listed = -1  # the version of the last list: what is older and was not in it is deleted
        self._highest = 0

    # -- reading

    def get(self, namespace: str, name: str) -> Object | None:
        with self._lock:
            return self._objects.get((namespace, name))

    def list(self, namespace: str = "") -> Sequence[Object]:
        with self._lock:
            if not namespace:
                return tuple(self._objects.values())
            return self._at(self._by_namespace.of(namespace))

    def owned_by(self, uid: str) -> Sequence[Object]:
        """Those with an owner reference to this uid."""
        with self._lock:
            return self._at(self._by_owner.of(uid))

    def of_workflow(self, uid: str) -> Sequence[Object]:
        """Those with this uid in the label of Workloads."""
        with self._lock:
            return self._at(self._by_workflow.of(uid))

    def __len__(self) -> int:
        with self._lock:
            return len(self._objects)

    @property
    def highest(self) -> int:
        """The highest resourceVersion that was seen, if they are numbers."""
        with self._lock:
            return self._highest

    def _at(self, names: Iterable[Name]) -> Sequence[Object]:
        return tuple(self._objects[name] for name in names)

    # -- writing

    def put(self, obj: Mapping[str, Any]) -> Change | None:
        """An object as it was seen. None: it is no news."""
        return self._put(self.slim(obj))

    def _put(self, new: Object) -> Change | None:
        name, uid, number = (namespace_of(new), name_of(new)), uid_of(new), _number(new)
        with self._lock:
            self._highest = max(self._highest, number or 0)
            old = self._objects.get(name)
            if old is not None and not _newer(new, old):
                return None
            if number is not None and (
                number <= self._deleted.get(uid, -1) or (old is None and number <= self._listed)
            ):
                return None  # an answer that came late: it is deleted since
            if not self._matches(labels_of(new)):
                # It is not, or no more, among those that are watched.
                return self._drop(name, number) if old is not None else None
            if old is not None and uid_of(old) != uid:
                self._remember_deleted(uid_of(old), None)
            self._store(name, old, new)
            return Change(self.resource, old, new)

    def remove(self, obj: Mapping[str, Any]) -> Change | None:
        """An object that is deleted, or is no more among those that are watched. A younger one of the same name stays.

        Without a resourceVersion it is deleted for good."""
        name, number = (namespace_of(obj), name_of(obj)), _number(obj)
        with self._lock:
            self._highest = max(self._highest, number or 0)
            old = self._objects.get(name)
            if old is None or uid_of(old) != uid_of(obj):
                self._remember_deleted(uid_of(obj), number)
                return None
            if number is not None and (_number(old) or 0) > number:
                return None  # a writer has seen it since: it had only left the selection, and is back
            return self._drop(name, number)

    def slim(self, obj: Mapping[str, Any]) -> Object:
        """An object as it is kept."""
        found = slim(obj, self.resource)
        return found if self._keep is None else self._keep(found)

    def shrink(self, obj: Object) -> None:
        """Keeps the outline of an object that nobody will look into, as long as it stays as it is."""
        name = (namespace_of(obj), name_of(obj))
        with self._lock:
            if self._objects.get(name) is obj:
                self._objects[name] = outline(obj)

    def replace(self, items: Iterable[Object], version: str, floor: int = 0) -> Sequence[Change]:
        """A whole list of slim objects. What a writer put in after the list was made stays.

        `floor` is `highest` from before the list was asked for. A list below it comes from a server whose store was set back, and then holds as it is."""
        changes: list[Change] = []
        with self._lock:
            made = int(version) if version.isdigit() else None
            self._listed = -1
            if made is not None and made < floor:
                changes.extend(self._drop(name, None) for name in list(self._objects))
                self._highest = 0
                self._deleted.clear()
            there = set()
            for obj in items:
                there.add((namespace_of(obj), name_of(obj)))
                if change := self._put(obj):
                    changes.append(change)
            for name, old in list(self._objects.items()):
                number = _number(old)
                if name not in there and (made is None or number is None or number <= made):
                    changes.append(self._drop(name, made))
            self._highest = max(self._highest, made or 0)
            self._listed = made if made is not None else -1
        return changes

    def _store(self, name: Name, old: Object | None, new: Object | None) -> None:
        if new is None:
            del self._objects[name]
        else:
            self._objects[name] = new
        for index, read in (
            (self._by_namespace, _namespace),
            (self._by_owner, _owners),
            (self._by_workflow, _workflow),
        ):
            index.move(name, read(old) if old is not None else (), read(new) if new is not None else ())

    def _drop(self, name: Name, number: int | None) -> Change:
        old = self._objects[name]
        self._store(name, old, None)
        self._remember_deleted(uid_of(old), number)
        return Change(self.resource, old, None)

    def _remember_deleted(self, uid: str, number: int | None) -> None:
        if uid:
            self._deleted[uid] = float("inf") if number is None else max(number, self._deleted.get(uid, -1))
            self._deleted.move_to_end(uid)
            if len(self._deleted) > MOST_DELETED:
                self._deleted.popitem(last=False)


class Caches:
    """The caches of all kinds that are watched: the Lookup of the core."""

    def __init__(self, resources: Iterable[ApiResource]) -> None:
        self._caches = {resource: ObjectCache(resource) for resource in dict.fromkeys(resources)}

    def __iter__(self) -> Iterator[ObjectCache]:
        return iter(self._caches.values())

    def __getitem__(self, resource: ApiResource) -> ObjectCache:
        return self._caches[resource]

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        cache = self._caches.get(resource)
        return cache.get(namespace, name) if cache is not None else None

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        cache = self._caches.get(resource)
        return cache.list(namespace) if cache is not None else ()

    def holding(self, resource: ApiResource) -> Sequence[ObjectCache]:
        """The caches of this kind, whatever part of it they select."""
        return [
            cache
            for other, cache in self._caches.items()
            if (other.api, other.plural) == (resource.api, resource.plural)
        ]


class _Index:
    """Value -> names, in the order in which they came."""

    def __init__(self) -> None:
        self._names: dict[str, dict[Name, None]] = {}

    def of(self, value: str) -> Iterable[Name]:
        return self._names.get(value, ())

    def move(self, name: Name, old: Sequence[str], new: Sequence[str]) -> None:
        for value in old:
            if value not in new:
                names = self._names[value]
                names.pop(name, None)
                if not names:
                    del self._names[value]
        for value in new:
            if value not in old:
                self._names.setdefault(value, {})[name] = None


def _namespace(obj: Object) -> Sequence[str]:
    return (namespace_of(obj),)


def _owners(obj: Object) -> Sequence[str]:
    return tuple(dict.fromkeys(str(one.get("uid", "")) for one in rows(obj, "metadata", "ownerReferences")))


def _workflow(obj: Object) -> Sequence[str]:
    uid = labels_of(obj).get(WORKFLOW_UID)
    return (uid,) if isinstance(uid, str) else ()


def _number(obj: Mapping[str, Any]) -> int | None:
    version = str((obj.get("metadata") or {}).get("resourceVersion", ""))
    return int(version) if version.isdigit() else None


def _newer(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Versions that are no numbers cannot be compared: what came last counts, unless it is the same."""
    one, other = _number(new), _number(old)
    if one is not None and other is not None:
        return one > other
    return bool(
        (new.get("metadata") or {}).get("resourceVersion") != (old.get("metadata") or {}).get("resourceVersion")
    )


def slim(obj: Mapping[str, Any], resource: ApiResource) -> Object:
    """Without what nobody reads and what makes up half of an object; keys are shared between objects. Lists leave out the kind: it is put in."""
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    if LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {key: value for key, value in meta["annotations"].items() if key != LAST_APPLIED}
    slimmed: Object = _share({**obj, "apiVersion": resource.api, "kind": resource.kind, "metadata": meta})
    return slimmed


def outline(obj: Object) -> Object:
    """Who it is, and how it ended."""
    meta, status = part(obj, "metadata"), part(obj, "status")
    kept = {key: value for key, value in meta.items() if key != "annotations"}
    notes = {key: text for key, text in annotations_of(obj).items() if len(str(text)) <= SHORT}
    said = {key: status[key] for key in ("phase", "conditions") if key in status}
    named = {key: obj[key] for key in ("apiVersion", "kind") if key in obj}
    return {**named, "metadata": {**kept, "annotations": notes}, "status": said, OUTLINE: True}


def _share(value: Any) -> Any:
    if isinstance(value, dict):
        return {sys.intern(key): _share(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_share(one) for one in value]
    return sys.intern(value) if isinstance(value, str) and len(value) < 20 else value


_TERM = re.compile(r"(!?)\s*([^\s!=,()]+)\s*(?:(==?|!=)\s*([^\s,()]*)|\s+(in|notin)\s*\(([^)]*)\))?\s*(?:,|$)")


class LabelSelector:
    """A label selector as Kubernetes writes it: `a`, `!a`, `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, joined by commas."""

    def __init__(self, text: str) -> None:
        self._terms: list[tuple[str, str, frozenset[str]]] = []
        at = 0
        text = text.strip()
        while at < len(text):
            found = _TERM.match(text, at)
            if not found:
                raise ValueError(f"not a label selector: {text}")
            no, key, sign, value, word, values = found.groups()
            if sign:
                self._terms.append((key, "notin" if sign == "!=" else "in", frozenset((value,))))
            elif word:
                self._terms.append((key, word, frozenset(one.strip() for one in values.split(","))))
            else:
                self._terms.append((key, "absent" if no else "there", frozenset()))
            at = found.end()
            while at < len(text) and text[at] == " ":
                at += 1

    def __call__(self, labels: Mapping[str, Any]) -> bool:
        return all(self._holds(labels, *term) for term in self._terms)

    def _holds(self, labels: Mapping[str, Any], key: str, how: str, values: frozenset[str]) -> bool:
        if how == "there":
            return key in labels
        if how == "absent":
            return key not in labels
        return (labels.get(key) in values) is (how == "in")
