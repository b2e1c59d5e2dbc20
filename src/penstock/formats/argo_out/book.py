"""What the parts of the Argo writer share: the templates made so far, names given out, what was found. Made by argo_write.

Steps that do the same share a template, so a template is known by its content. Remarks that hold for many steps are made once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import Problem, UserError
from penstock.formats.argo_out.found import NotSaid
from penstock.formats.kube import short_digest
from penstock.formats.report import Kind, Report
from penstock.formats.shim import Bundle
from penstock.graph.evaluate import EvaluationError
from penstock.graph.model import MISSING, Step, Value
from penstock.graph.places import MOST_PROBLEMS
from penstock.graph.types import ANY, Type

LONGEST: Final = 128
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z", re.A)
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9-]+")
_OBJECT: Final = re.compile(r"[^a-z0-9-]+")
_EXAMPLES: Final = 5


class Names:
    """Legal and each given out once. Argo takes letters, digits and dashes, and a letter first where others wait for it."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def fresh(self, name: str) -> str:
        if not _NAME.match(name):
            name = _ILLEGAL.sub("-", name).strip("-") or "x"
            name = name if name[0].isalpha() else f"s-{name}"
        if len(name) > LONGEST:
            name = f"{name[: LONGEST - 9]}-{short_digest(name)}"
        found, number = name, 2
        while found in self.taken:
            found = f"{name[: LONGEST - 9]}-{number}"
            number += 1
        self.taken.add(found)
        return found


def object_name(name: str, longest: int) -> str:
    """As Kubernetes takes it for a document: small letters, digits and dashes, a letter first."""
    found = _OBJECT.sub("-", name.lower()).strip("-") or "x"
    found = found if found[0].isalpha() else f"w-{found}"
    return found if len(found) <= longest else f"{found[: longest - 9].rstrip('-')}-{short_digest(name)}"


def section(name: str, content: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Inputs, outputs or arguments, without what is empty."""
    filled = {kind: listed for kind, listed in content.items() if listed}
    return {name: filled} if filled else {}


@dataclass(slots=True)
class Slot:
    """One input of a template, and what a step gives for it."""

    name: str
    value: Value
    type: Type = ANY
    wire: str = ""
    """How a function reads its text (see shim); empty for whatever takes it as text."""
    artifact: bool = False
    path: str | None = None
    default: Value = MISSING
    gathered: bool = False
    word: bool = False
    """A word of a command: what Kubernetes would take for a variable is written so that it does not."""

    def shape(self) -> tuple[Any, ...]:
        """What of it is the template's."""
        return (self.name, self.type.name, self.wire, self.artifact, self.path, _hashable(self.default), self.gathered)


def _hashable(value: Value) -> Any:
    return value if value is MISSING or isinstance(value, str | int | float | bool | None) else repr(value)


@dataclass(frozen=True, slots=True)
class Access:
    """How an output of a template is read: a parameter, an artifact, or what it prints."""

    kind: str
    name: str
    type: Type = ANY


@dataclass(slots=True)
class Made:
    """A template and its face."""

    template: str
    slots: list[Slot]
    outputs: Mapping[str, Access]


@dataclass
class Book:
    report: Report
    bundle: Bundle
    image: str
    """For functions and scripts that name none."""
    name: str
    """What documents that are made beside the workflow are named after."""
    names: Names = field(default_factory=Names)
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Templates by name, in the order they were made."""
    problems: list[Problem] = field(default_factory=list)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    """ConfigMaps by name."""
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    """volumeClaimTemplates by name."""
    volumes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of the whole workflow, by name."""
    code: dict[str, Any] = field(default_factory=dict)
    """How a function's template gets at the code: fields of its inputs and of its container."""
    ships_code: bool = False
    _refused: set[str] = field(default_factory=set)
    _known: dict[str, str] = field(default_factory=dict)
    _said: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _remarks: dict[tuple[str, str], Callable[[str], None]] = field(default_factory=dict)

    # -- templates

    def share(self, hint: str, body: dict[str, Any]) -> str:
        """The template with this content, made if there is none."""
        key = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = self.put(self.names.fresh(hint), body)
        return name

    def put(self, name: str, body: dict[str, Any]) -> str:
        self.bodies[name] = {"name": name, **body}
        return name

    # -- what is found

    def wrong(self, code: str, message: str, fix: str, where: str, step: Step | None = None) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            source = None if step is None else step.source
            self.problems.append(Problem(code, message, fix, where=where, source=source))

    @contextmanager
    def about(self, where: str, step: Step | None, what: str = "") -> Iterator[None]:
        """Whatever cannot be said in here is a problem of this step."""
        try:
            yield
        except NotSaid as error:
            self._refuse(error, where, step, what)
        except EvaluationError as error:  # a default that is no plain value
            self._refuse(NotSaid(str(error), "give a plain value"), where, step, what)

    def _refuse(self, error: NotSaid, where: str, step: Step | None, what: str) -> None:
        if str(error) in self._refused:  # said already, of the step that others read from
            return
        self._refused.add(str(error))
        named = f"the step {step.name!r}" if step is not None else "the workflow"
        self.wrong(error.code, f"Argo cannot say {what or named}: {error}", error.fix, where, step)

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise UserError(self.problems)

    def remark(self, kind: Kind, message: str, step: Step | None, path: str, near: str = "") -> None:
        """Said once however many steps it holds for; the first is named with its line, some others by name."""
        key = (kind, message)
        if key not in self._said:
            self._said[key] = []
            self._remarks[key] = lambda others: self.report.add(
                kind, path, message + others, near, None if step is None else step.source
            )
        elif step is not None:
            self._said[key].append(step.name)

    def report_all(self) -> None:
        for key, say in self._remarks.items():
            others = self._said[key]
            more = "" if not others else f" ({', '.join(others[:_EXAMPLES])}"
            if len(others) > _EXAMPLES:
                more += f" and {len(others) - _EXAMPLES:,} more"
            say(f"; so for others{more})" if others else "")
