"""Kubernetes' ways of writing, for the readers and writers of JobSets and Jobs: `$(NAME)` in words, lists and numbers that may be
something else, and the names that a pod's number goes by.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from penstock.errors import DocumentError, Problem
from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.graph.evaluate import to_text
from penstock.graph.expr import Expr
from penstock.graph.model import Value
from penstock.graph.places import MOST_PROBLEMS
from penstock.graph.template import Template

REPLICA: Final = "$(PENSTOCK_REPLICA)"
"""Which of the pods of a gang: each process has it in its environment."""
INDEX_FIELD: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
INDEX_NAME: Final = "JOB_COMPLETION_INDEX"
OURS: Final = ("PENSTOCK_REPLICA", "PENSTOCK_INDEX", "PENSTOCK_REPLICAS")
"""What the writers tell a pod about its number; a process on this machine knows it anyway."""
MOST_PODS: Final = 10_000_000
LARGEST: Final = 2**31 - 1


class Reader:
    """A document on its way into a workflow: the report, and everything that is wrong with it."""

    def __init__(self, library: Library, document: Document) -> None:
        self.library = library
        self.document = document
        self.report = Report()
        self.problems: list[Problem] = []

    def wrong(self, code: str, path: str, message: str, fix: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(self.document.problem(code, path.lstrip("."), message, fix))

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise DocumentError(self.problems)

    def kept(self, path: str, message: str = "handed on as it is") -> None:
        self.report.kept(path, message, self.document.source(path))

    def changed(self, path: str, message: str, near: str = "") -> None:
        self.report.changed(path, message, near, self.document.source(path))

    def lost(self, path: str, message: str, near: str = "") -> None:
        self.report.lost(path, message, near, self.document.source(path))

    def whole(self, data: Mapping[str, Any], name: str, path: str, least: int = 0) -> int | None:
        """A whole number, or None if there is none; a Problem if it is something else."""
        value = data.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            said = f"{name} is {brief(value)}"
            self.wrong("P835", f"{path}.{name}", said, f"give a whole number from {least} to {LARGEST}")
            return None
        return value

    def text(self, data: Mapping[str, Any], name: str, path: str) -> str:
        """A text, or nothing; a Problem if it is something else."""
        value = data.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not text", "put it in quotes")
        return ""

    def mapping(self, data: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
        value = data.get(name)
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not a mapping", "give its fields")
        return {}

    def members(self, data: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """(path, mapping) for each item of a list; a Problem for what is none."""
        value = data.get(name)
        if value is not None and not isinstance(value, list):
            self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not a list", "give a list")
            return
        for number, item in enumerate(value or ()):
            here = f"{path}.{name}[{number}]"
            if isinstance(item, Mapping):
                yield here, item
            else:
                self.wrong("P835", here, f"this is {brief(item)}, not a mapping", "give its fields")

    def words(self, data: Mapping[str, Any], name: str, path: str) -> list[str]:
        value = data.get(name)
        if value is None:
            return []
        if isinstance(value, list) and not any(isinstance(one, list | Mapping) for one in value):
            return list(map(scalar, value))
        self.wrong("P835", f"{path}.{name}", f"{name} is {brief(value)}, not a list of words", "give a list of texts")
        return []


def listed(names: Iterable[str]) -> str:
    """A few of them, for a sentence."""
    first = list(islice(names, 11))
    return f"{', '.join(first[:10])}{' …' if len(first) > 10 else ''}" or "none"


def scalar(value: Any) -> str:
    """What YAML took for a number, true or nothing, as the text that it stands for."""
    if isinstance(value, str):
        return value
    return to_text(value) if isinstance(value, bool | int | float) else ""


def brief(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value)) or repr(value)[:60]


def expand(text: str, env: Mapping[str, Value]) -> Value:
    """As the kubelet does: `$(NAME)` of a known name is its value, `$$` is one dollar sign, everything else stays."""
    if "$" not in text:
        return text
    found: list[str | Expr] = []
    at = 0
    while at < len(text):
        next_at = text.find("$", at)
        if next_at < 0 or next_at + 1 >= len(text):
            break
        found.append(text[at:next_at])
        close = text.find(")", next_at) if text[next_at + 1] == "(" else -1
        if close < 0:
            found.append("$" if text[next_at + 1] == "$" else text[next_at : next_at + 2])
            at = next_at + 2
            continue
        value = env.get(text[next_at + 2 : close], text[next_at : close + 1])
        found.extend(value.parts if isinstance(value, Template) else (value,))
        at = close + 1
    found.append(text[at:])
    return joined(found)


def joined(parts: list[str | Expr]) -> Value:
    """Text with expressions in it, in its simplest form."""
    merged: list[str | Expr] = []
    for one in parts:
        if isinstance(one, str) and merged and isinstance(merged[-1], str):
            merged[-1] += one
        elif one != "":
            merged.append(one)
    if not merged:
        return ""
    return merged[0] if len(merged) == 1 else Template(tuple(merged))


def frozen(value: Any) -> Any:
    """Data of a document as the model keeps it: tuples for lists, keys as text, no numbers that JSON cannot write."""
    if isinstance(value, Mapping):
        return {str(key): frozen(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def thawed(value: Any) -> Any:
    """The inverse: lists again."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return list(map(thawed, value)) if isinstance(value, list | tuple) else value


def short_digest(text: str) -> str:
    """What makes the name of an object that of its content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
