"""The meaning of `{{workflow.…}}`. Called by builder, which passes the values down to where they are read.

Most values are known when the document is read and become text: labels, namespace, entrypoint. The others have a key:

    (parameters, x)             an argument of the workflow
    (parameters,)               all of them as JSON
    (status,) (failures,)       how it ended, in exit handlers
    (label, x)                  a label that is computed when the workflow begins
    (outputs, parameters, x)    an output that a step publishes under a global name
    (name, node)                how the template was called: steps.name, tasks.name, node.name

At the root a key has a value; in a called template it is a parameter that every caller passes on, because a definition of a
Workflow sees only its own parameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import known_are, nearest
from penstock.expressions.parse import Call, Const, Node, reference
from penstock.formats.argo.read.notes import ReadNotes
from penstock.formats.argo.read.template import legal, text_of
from penstock.formats.argo.read.values import UnknownName
from penstock.formats.argo.scope import WorkflowRoot
from penstock.formats.documents import part

Key = tuple[str, ...]
CREATED: Final = reference("run", "created")
RUN: Final = reference("run", "id")
SCHEDULED: Final = "workflows.argoproj.io/scheduled-time"
_LAYOUTS: Final[Mapping[str, str]] = {
    "A": "Monday", "a": "Mon", "B": "January", "b": "Jan", "c": "Mon Jan _2 15:04:05 2006", "D": "01/02/06", "d": "02", "e": "_2",
    "F": "2006-01-02", "H": "15", "h": "Jan", "I": "03", "j": "002", "k": "15", "l": "3", "M": "04", "m": "01", "n": "\n", "p": "PM",
    "R": "15:04", "r": "03:04:05 PM", "S": "05", "T": "15:04:05", "t": "\t", "v": "_2-Jan-2006", "X": "15:04:05", "x": "01/02/06",
    "Y": "2006", "y": "06", "Z": "MST", "z": "-0700",
}  # fmt: skip
"""strftime's letters -> Go's layout."""
_KNOWN: Final = (
    "annotations", "creationTimestamp", "duration", "failures", "labels", "mainEntrypoint", "name", "namespace", "outputs",
    "parameters", "priority", "scheduledTime", "serviceAccountName", "status", "uid",
)  # fmt: skip


class Globals:
    def __init__(self, root: WorkflowRoot, notes: ReadNotes) -> None:
        self.root = root
        self.notes = notes
        spec, metadata = root.spec, root.document.metadata
        own = part(spec, "workflowMetadata") or part(root.document.spec, "workflowMetadata")
        self.words: dict[str, Mapping[str, str]] = {
            kind: _texts(part(metadata, kind)) | _texts(part(own, kind)) for kind in ("labels", "annotations")
        }
        self.labels_from = {str(name): one for name, one in part(own, "labelsFrom").items()}
        self.names: dict[Key, str] = {}
        """Key -> the parameter of a definition that passes it on."""
        self.taken: set[str] = set()
        """Names of inputs of templates."""

    def name(self, key: Key) -> str:
        if key not in self.names:
            words = ("parameters", "json") if key == ("parameters",) else key
            self.names[key] = legal("-".join(("workflow", *words)), self.taken, variable=True)
            self.taken.add(self.names[key])
        return self.names[key]

    def look(self, names: tuple[str, ...]) -> Node | Key:
        """The value of a path after `workflow.`, or its key. Raises UnknownName."""
        word, rest = (names[0], names[1:]) if names else ("", ())
        if word in ("labels", "annotations"):
            return self._word(word, rest)
        if word == "parameters":
            return ("parameters", ".".join(rest)) if rest else ("parameters",)
        if word == "outputs" and len(rest) >= 2 and rest[0] in ("parameters", "artifacts"):
            return ("outputs", rest[0], ".".join(rest[1:]))
        if word in ("status", "failures") and not rest:
            return (word,)
        if word == "creationTimestamp":
            return _created(rest)
        found = self._constant(word) if not rest else None
        if found is None:
            message = f"there is no variable workflow.{'.'.join(names)[:60]}"
            raise UnknownName(message, nearest(word, _KNOWN).strip() or f"known are {', '.join(_KNOWN)}")
        return found

    def _constant(self, word: str) -> Node | None:
        spec, document = self.root.spec, self.root.document
        match word:
            case "name" | "uid":
                return RUN
            case "namespace":
                return Const(document.namespace or "default")
            case "serviceAccountName":
                return Const(text_of(spec.get("serviceAccountName")) or "")
            case "mainEntrypoint":
                return Const(self.root.entrypoint)
            case "priority":
                return Const(text_of(spec.get("priority")) or "0")
            case "scheduledTime":
                message = self.words["annotations"].get(SCHEDULED)
                return CREATED if message is None else Const(message)
            case "duration":
                path = self.root.path
                self.notes.changed(document, path, "workflow.duration is not known while it runs; it reads as 0 here")
                return Const("0.000000")
        return None

    def _word(self, kind: str, rest: tuple[str, ...]) -> Node | Key:
        """A label or an annotation, or all of them as JSON."""
        words = self.words[kind]
        name = ".".join(rest)
        if kind == "labels" and name in self.labels_from:
            return ("label", name)
        if name in words:
            return Const(words[name])
        if name in ("", "json"):
            return Const(json.dumps(words, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
        if self.root.document.kind.endswith("WorkflowTemplate"):
            message = f"the {kind[:-1]} {name[:60]!r} comes with the Workflow that uses the template; it is empty here"
            self.notes.changed(self.root.document, self.root.path, message)
            return Const("")
        fix = nearest(name, words).strip() or known_are(words)
        raise UnknownName(f"the workflow has no {kind[:-1]} {name[:60]!r}", fix)


def _created(rest: tuple[str, ...]) -> Node:
    if not rest or rest == ("RFC3339",):
        return CREATED
    if rest == ("s",):
        return Call("string", (Call("int", (Call("epoch", (CREATED,)),)),))
    layout = _LAYOUTS.get(rest[0]) if len(rest) == 1 else None
    if layout is None:
        raise UnknownName(
            f"creationTimestamp.{'.'.join(rest)[:40]} is no form of a time",
            "give RFC3339, s, or a letter of strftime: Y",
        )
    return Call("date", (Const(layout), CREATED))


def _texts(words: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): text for name, value in words.items() if (text := text_of(value)) is not None}
