"""Expressions of admission policies (CEL), put together from small pieces. Used by `policies`.

Every piece is true or false for any object: a map that is missing is taken as empty, so that no expression can fail and refuse what it has
nothing to do with.
"""

from __future__ import annotations

from collections.abc import Iterable


def text(value: str) -> str:
    """A text as CEL writes it. Only for names: there is nothing to escape in them."""
    assert not set(value) & set("'\\\n"), value
    return f"'{value}'"


def label(of: str, key: str) -> str:
    """A label, as an optional value. `of`: what has the metadata."""
    return f"{of}.?metadata.?labels[?{text(key)}]"


def annotation(of: str, key: str) -> str:
    return f"{of}.?metadata.?annotations[?{text(key)}]"


def has(optional: str) -> str:
    return f"{optional}.hasValue()"


def same(path: str) -> str:
    """Is an optional value as it was? `path` has `{}` where the object goes."""
    return f"{path.format('object')} == {path.format('oldObject')}"


def same_label(key: str) -> str:
    return f"{label('object', key)} == {label('oldObject', key)}"


def kept(where: str, prefix: str, *, but: Iterable[str] = ()) -> str:
    """No label or annotation (`where`) that begins with the prefix is changed, removed or added. `but`: these may be added."""
    old, new = f"oldObject.metadata.?{where}", f"object.metadata.?{where}"
    free = "".join(f" || k == {text(key)}" for key in but)
    unchanged = f"{old}.orValue({{}}).all(k, !k.startsWith({text(prefix)}) || {new}[?k] == {old}[?k])"
    none_new = f"{new}.orValue({{}}).all(k, !k.startsWith({text(prefix)}) || {old}[?k].hasValue(){free})"
    return f"{unchanged} && {none_new}"


def implies(condition: str, then: str) -> str:
    return f"!({condition}) || ({then})"


def removal(optional: str, pointer: str) -> str:
    """A list of JSON patches: one that removes what is at a place, or none if nothing is there."""
    return f"({optional}.hasValue() ? [JSONPatch{{op: 'remove', path: {text(pointer)}}}] : [])"


def pointer(*path: str) -> str:
    return "".join("/" + one.replace("~", "~0").replace("/", "~1") for one in path)
