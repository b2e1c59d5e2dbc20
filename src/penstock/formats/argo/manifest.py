"""The manifest of a resource template, as text that Argo completes: a label is written into it. Called when the controller makes a Workflow ready.

Only the place of the label is changed, so tags, comments and the style of the text stay. Where that place is not plain to see, nothing is.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import UserError
from penstock.formats.argo.known import split_tags
from penstock.graph.text import read_yaml

_LONGEST: Final = 64 * 1024


def read_manifest(text: str) -> dict[str, Any] | None:
    """The one object of a manifest, its tags replaced by text; None if it cannot be read, or has several."""
    try:
        found = read_yaml(_without_tags(text), "<manifest>")[0]
    except UserError:
        return None
    return found if isinstance(found, dict) else None


def with_label(text: str, key: str, value: str) -> str | None:
    """The manifest with one more label; None if it has that label, or its metadata is written in a way that cannot be added to."""
    before = read_manifest(text) if len(text) <= _LONGEST else None
    metadata = _entry(_root(_without_tags(text)), "metadata") if before is not None else None
    if before is None or metadata is None or metadata.id != "mapping" or not metadata.value:
        return None
    labels = _entry(metadata, "labels")
    said = f'"{key}": "{value}"'
    if labels is not None and (labels.id != "mapping" or _entry(labels, key) is not None):
        return None
    if labels is None:
        found = _inserted(text, metadata, f'"labels": {{{said}}}')
    else:
        found = _inserted(text, labels, said)
    wanted = {**before, "metadata": {**before["metadata"]}}
    wanted["metadata"]["labels"] = {**(before["metadata"].get("labels") or {}), key: value}
    return found if read_manifest(found) == wanted else None


def _inserted(text: str, mapping: Any, entry: str) -> str:
    """The text with an entry at the beginning of a mapping."""
    if mapping.flow_style:
        at = mapping.start_mark.index + 1
        return f"{text[:at]}{entry}{', ' if mapping.value else ''}{text[at:]}"
    first = mapping.value[0][0].start_mark
    return f"{text[: first.index]}{entry}\n{' ' * first.column}{text[first.index :]}"


def _without_tags(text: str) -> str:
    """As long as the text, so that places are the same."""
    return "".join("x" * len(piece) if tag else piece for piece, tag in split_tags(text))


def _root(plain: str) -> Any:
    """The node of the only document, which can be read."""
    import yaml

    try:
        return yaml.compose(plain, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def _entry(mapping: Any, key: str) -> Any:
    """The value node of a key."""
    entries = mapping.value if mapping is not None and mapping.id == "mapping" else ()
    return next((value for name, value in entries if name.value == key), None)
