"""What a gated document says about itself, and how it becomes what it was. Called by the gates of every format.

Two annotations are written. `penstock/gate` is for controllers: the unit, the manner, and who holds the run: what the user had suspended
already is the user's ("held": "user"), and nobody else may let it go. `penstock/gate-undo` is for `ungate`: the way back from the gated
document to the one that was given, as small as the changes are. It speaks of items by their names, so that the rest of the document may
have changed meanwhile.

For a workflow that is queued whole, three annotations say what it needs. Their names are those of Kueue's KEP-74; each holds JSON:

    kueue.k8s.io/max-resources   {"cpu": "8", "memory": "16Gi"}       the most it holds at one moment
    kueue.k8s.io/toleration      [{"key": "gpu", "operator": "Exists"}]
    kueue.k8s.io/node-selector   {"pool": "gpu"}

They are honoured where the user has set them (under kueue.x-k8s.io/ too, and as `tolerations`), and computed where not.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import DocumentError, Problem, Source
from penstock.formats.documents import Document, part
from penstock.formats.peak import Open
from penstock.formats.report import Report
from penstock.graph import quantity

UNITS = ("stage", "workflow", "task")
WAYS = ("suspend", "pods")
QUEUE = "kueue.x-k8s.io/queue-name"
MARK = "penstock/gate"
UNDO = "penstock/gate-undo"
MAX_RESOURCES = "kueue.k8s.io/max-resources"
TOLERATION = "kueue.k8s.io/toleration"
NODE_SELECTOR = "kueue.k8s.io/node-selector"
_ALSO: Mapping[str, tuple[str, ...]] = {
    MAX_RESOURCES: ("kueue.x-k8s.io/max-resources",),
    TOLERATION: ("kueue.k8s.io/tolerations", "kueue.x-k8s.io/toleration", "kueue.x-k8s.io/tolerations"),
    NODE_SELECTOR: ("kueue.x-k8s.io/node-selector",),
}
MOST_ANNOTATED = 256 * 1024
"""Bytes of all annotations of one object, names and texts."""
_PLAIN = 512
"""Characters up to which the way back is left readable."""
_MOST_UNPACKED = 8 * 1024 * 1024


def refusal(document: Document, code: str, path: str, message: str, fix: str) -> DocumentError:
    return DocumentError(document.problem(code, path, message, fix))


def copied(value: Any) -> Any:
    """Maps and lists anew, all else as it is."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def annotations_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return part(data, "metadata", "annotations")


def is_gated(data: Mapping[str, Any]) -> bool:
    return MARK in annotations_of(data)


def mark_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the gate has said about the document: unit, by, held."""
    try:
        found = json.loads(str(annotations_of(data).get(MARK, "{}")))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def begin(document: Document) -> dict[str, Any]:
    """A copy to be changed. Raises DocumentError if the document is gated already, or holds what cannot be taken back."""
    if is_gated(document.data):
        raise refusal(
            document, "P861", f"metadata.annotations.{MARK}", f"this {document.kind} is gated already",
            "take the gates out first: penstock ungate",
        )  # fmt: skip
    for path, value in (("metadata", document.data.get("metadata")), ("spec", document.data.get("spec"))):
        if not isinstance(value, Mapping):
            raise refusal(document, "P868", path, f"the document has no {path}", f"write {path} as a mapping")
    for name in ("annotations", "labels"):
        if not isinstance(document.metadata.get(name) or {}, Mapping):
            raise refusal(document, "P868", f"metadata.{name}", f"{name} is no mapping", f"write {name} as a mapping")
    found: dict[str, Any] = copied(document.data)
    return found


def finish(document: Document, gated: dict[str, Any], mark: Mapping[str, Any]) -> dict[str, Any]:
    """Writes both annotations. Raises DocumentError if there is no room for them."""
    annotate(gated, {MARK: _compact(mark)})
    way = _packed(document, difference(gated, document.data))
    annotate(gated, {UNDO: way})
    size = sum(len(str(name).encode()) + len(str(text).encode()) for name, text in annotations_of(gated).items())
    if size > MOST_ANNOTATED:
        raise refusal(
            document, "P864", "metadata.annotations",
            f"the way back would take {size:,} bytes of annotations, and {MOST_ANNOTATED:,} are allowed",
            "gate the pods instead (--by pods), or queue the workflow whole (--unit workflow)",
        )  # fmt: skip
    return gated


def annotate(data: dict[str, Any], texts: Mapping[str, str], *path: str) -> None:
    """Adds annotations to metadata, or to the metadata at `path`."""
    here = data
    for name in (*(path or ("metadata",)), "annotations"):
        if not isinstance(here.get(name), dict):
            here[name] = {}
        here = here[name]
    here.update(texts)


def take_back(document: Document) -> dict[str, Any]:
    """The document as it was before it was gated. Raises DocumentError."""
    if not is_gated(document.data):
        raise refusal(
            document,
            "P866",
            "metadata.annotations",
            f"this {document.kind} is not gated",
            "there is nothing to take back",
        )
    way = _unpacked(document, annotations_of(document.data).get(UNDO))
    data: dict[str, Any] = copied(document.data)
    data["metadata"]["annotations"].pop(UNDO, None)
    restored = restore(data, way)
    if not isinstance(restored, dict):
        raise _damaged(document)
    return restored


def difference(new: Any, old: Any) -> dict[str, Any] | None:
    """How to get from `new` to `old`: {"v": value} instead of the whole; of a mapping the keys to take away ("-"), to put in ("=")
    and to go into ("d"); of a list the items to take away ("x") and to go into ("i"), by name. None if they are equal."""
    if _same(new, old):
        return None
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        found: dict[str, Any] = {}
        away = [key for key in new if key not in old]
        back = {key: old[key] for key in old if key not in new}
        inside = {key: change for key in new if key in old and (change := difference(new[key], old[key])) is not None}
        found |= {"-": away} if away else {}
        found |= {"=": back} if back else {}
        return found | ({"d": inside} if inside else {})
    if isinstance(new, list) and isinstance(old, list):
        return _lists(new, old)
    return {"v": old}


def _same(new: Any, old: Any) -> bool:
    return type(new) is type(old) and bool(new == old)


def _lists(new: list[Any], old: list[Any]) -> dict[str, Any]:
    named, before = _names(new), _names(old)
    if named is None or before is None or [name for name in named if name in before] != list(before):
        return {"v": old}
    inside = {}
    for name, at in before.items():
        change = difference(new[named[name]], old[at])
        if change is not None:
            inside[name] = change
    away = [name for name in named if name not in before]
    return ({"x": away} if away else {}) | ({"i": inside} if inside else {})


def _names(listed: list[Any]) -> dict[str, int] | None:
    """The items' names and where they stand; a group of steps goes by the name of its first. None if they have none, or not each
    its own."""
    found: dict[str, int] = {}
    for at, item in enumerate(listed):
        first = item[0] if isinstance(item, list) and item else item
        name = first.get("name") if isinstance(first, Mapping) else None
        if not isinstance(name, str):
            return None
        found[name] = at
    return found if len(found) == len(listed) else None


def restore(new: Any, way: Mapping[str, Any] | None) -> Any:
    """Goes the way back. What is no longer there is passed over."""
    if way is None:
        return new
    if "v" in way:
        return way["v"]
    if isinstance(new, dict):
        found = {key: value for key, value in new.items() if key not in way.get("-", ())}
        for key, change in part(way, "d").items():
            if key in found:
                found[key] = restore(found[key], change)
        return found | dict(part(way, "="))
    if isinstance(new, list):
        away, inside = set(way.get("x", ())), part(way, "i")
        return [restore(item, inside.get(name)) for item, name in zip(new, _each(new), strict=True) if name not in away]
    return new


def _each(listed: list[Any]) -> list[str]:
    found = []
    for item in listed:
        first = item[0] if isinstance(item, list) and item else item
        found.append(str(first.get("name")) if isinstance(first, Mapping) else "")
    return found


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _packed(document: Document, way: dict[str, Any] | None) -> str:
    try:
        text = _compact(way)
        exact = json.loads(text) == way
    except (TypeError, ValueError, RecursionError):
        exact = False
    if not exact:
        raise refusal(
            document, "P868", "spec", "the document has keys or values that are no plain text, numbers, lists or mappings",
            "write keys as text, and dates in quotes",
        )  # fmt: skip
    if len(text) <= _PLAIN:
        return text
    return "zlib:" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _unpacked(document: Document, text: Any) -> dict[str, Any] | None:
    if not isinstance(text, str):
        raise _damaged(document)
    try:
        if text.startswith("zlib:"):
            packed = base64.b64decode(text.removeprefix("zlib:"), validate=True)
            text = zlib.decompressobj().decompress(packed, _MOST_UNPACKED).decode()
        way = json.loads(text)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise _damaged(document) from None
    if way is not None and not isinstance(way, dict):
        raise _damaged(document)
    return way


def _damaged(document: Document) -> DocumentError:
    return refusal(
        document, "P866", f"metadata.annotations.{UNDO}", "the way back, which the gate left in an annotation, cannot be read",
        "go back to the document as it was before it was gated",
    )  # fmt: skip


def declared(document: Document, name: str, *more: Mapping[str, Any]) -> Any:
    """What the user says the whole workflow needs, as data; None if nothing is said. `more`: other annotations to look in.
    Raises DocumentError if it is no JSON, or not of the right kind."""
    for known in (name, *_ALSO[name]):
        for said in (annotations_of(document.data), *more):
            if known in said:
                return _declaration(document, name, known, said[known])
    return None


def _declaration(document: Document, name: str, known: str, text: Any) -> Any:
    try:
        found = json.loads(text) if isinstance(text, str) else None
        if name == MAX_RESOURCES and isinstance(found, dict):
            for amount in found.values():
                quantity.parse(amount)
    except (ValueError, TypeError, RecursionError):
        found = None
    wanted: type = list if name == TOLERATION else dict
    if not isinstance(found, wanted):
        example = {MAX_RESOURCES: '{"cpu": "8"}', TOLERATION: '[{"key": "gpu"}]', NODE_SELECTOR: '{"pool": "gpu"}'}[
            name
        ]
        raise refusal(
            document, "P867", f"metadata.annotations.{known}", f"{known} is not what it must be: JSON such as {example}",
            f"write {known}: '{example}'",
        )  # fmt: skip
    return found


def needs(
    resources: Mapping[str, int], tolerations: tuple[Mapping[str, Any], ...], selector: Mapping[str, str]
) -> dict[str, str]:
    """The three annotations, of what was computed; an empty one is left out, but for the resources."""
    shown = {name: quantity.show(amount, name) for name, amount in sorted(resources.items())}
    found = {MAX_RESOURCES: _compact(shown)}
    if tolerations:
        found[TOLERATION] = _compact(list(tolerations))
    if selector:
        found[NODE_SELECTOR] = _compact(dict(selector))
    return found


def unknown_choice(what: str, given: str, known: tuple[str, ...], source: Source | None = None) -> DocumentError:
    return DocumentError(
        Problem("P869", f"there is no {what} {given!r}", f"write one of {', '.join(known)}", source=source)
    )


def unbounded(places: Iterable[Open]) -> DocumentError:
    """Nobody can say how much to reserve for the whole: the user must."""
    return DocumentError(
        [
            one.document.problem(
                "P863", one.path, f"there is no bound to what the workflow holds at one moment: {one.message}",
                f"{one.fix}declare it (metadata.annotations: {{{MAX_RESOURCES}: '{{\"cpu\": \"8\"}}'}}), or queue by stage",
            )
            for one in places
        ]
    )  # fmt: skip


def say_queue(document: Document, report: Report) -> None:
    source = document.source("metadata")
    name = part(document.metadata, "labels").get(QUEUE)
    if name:
        report.kept(f"metadata.labels.{QUEUE}", f"waits in the queue {name}", source)
    else:
        report.changed("metadata.labels", "no queue is named", f"add the label {QUEUE}, or nothing lets it go", source)
