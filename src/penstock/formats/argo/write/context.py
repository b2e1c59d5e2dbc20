"""What all parts of the Argo writer share: templates, names, problems and remarks. Made by workflow.write_argo.

Steps that do the same share a template, so templates are found by content. A remark that applies to many steps is made once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import Problem, UserError
from penstock.expressions.evaluate import EvaluationError
from penstock.expressions.types import ANY, Type
from penstock.formats.argo.write.variables import NotInArgo
from penstock.formats.report import Kind, Report
from penstock.formats.shim import Bundle
from penstock.formats.values import short_digest
from penstock.graph.limits import MOST_PROBLEMS
from penstock.graph.model import MISSING, Step, Value

LONGEST: Final = 128
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z", re.A)
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9-]+")
_OBJECT: Final = re.compile(r"[^a-z0-9-]+")
_EXAMPLES: Final = 5


class NameAllocator:
    """Gives out valid names, each once. Argo allows letters, digits and dashes, with a letter first if others depend on it."""

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
    """A name for a Kubernetes object: lower-case letters, digits and dashes, a letter first."""
    found = _OBJECT.sub("-", name.lower()).strip("-") or "x"
    found = found if found[0].isalpha() else f"w-{found}"
    return found if len(found) <= longest else f"{found[: longest - 9].rstrip('-')}-{short_digest(name)}"


def section(name: str, content: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Inputs, outputs or arguments, without empty lists."""
    filled = {kind: listed for kind, listed in content.items() if listed}
    return {name: filled} if filled else {}


@dataclass(slots=True)
class InputSlot:
    """One input of a template, and the value that a step gives for it."""

    name: str
    value: Value
    type: Type = ANY
    wire: str = ""
    """How a function reads its text (see shim); empty for plain text."""
    artifact: bool = False
    path: str | None = None
    default: Value = MISSING
    gathered: bool = False
    word: bool = False
    """A word of a command: `$(NAME)` in it is escaped for Kubernetes."""

    def shape(self) -> tuple[Any, ...]:
        """The part that belongs to the template."""
        return (self.name, self.type.name, self.wire, self.artifact, self.path, _hashable(self.default), self.gathered)


def _hashable(value: Value) -> Any:
    return value if value is MISSING or isinstance(value, str | int | float | bool | None) else repr(value)


@dataclass(frozen=True, slots=True)
class OutputAccess:
    """How an output of a template is read: as parameter, artifact or printed result."""

    kind: str
    name: str
    type: Type = ANY


@dataclass(slots=True)
class TemplateInterface:
    """A template with its inputs and outputs."""

    template: str
    slots: list[InputSlot]
    outputs: Mapping[str, OutputAccess]


@dataclass
class WriteContext:
    """One workflow that is being written."""

    report: Report
    bundle: Bundle
    image: str
    """The image for functions and scripts without one."""
    name: str
    """The prefix of names of documents beside the workflow."""
    names: NameAllocator = field(default_factory=NameAllocator)
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Templates by name, in the order they were made."""
    problems: list[Problem] = field(default_factory=list)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    """ConfigMaps by name."""
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    """volumeClaimTemplates by name."""
    volumes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Volumes of the whole workflow, by name."""
    code: dict[str, Any] = field(default_factory=dict)
    """Fields of a function's template that give it the code."""
    _refused: set[str] = field(default_factory=set)
    _known: dict[str, str] = field(default_factory=dict)
    _said: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _remarks: dict[tuple[str, str], Callable[[str], None]] = field(default_factory=dict)

    # -- templates

    def share(self, hint: str, body: dict[str, Any]) -> str:
        """The name of the template with this content, which is added if it is new."""
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
        """What Argo cannot express in this block is a problem of this step."""
        try:
            yield
        except NotInArgo as error:
            self._refuse(error, where, step, what)
        except EvaluationError as error:  # a default that is not a plain value
            self._refuse(NotInArgo(str(error), "give a plain value"), where, step, what)

    def _refuse(self, error: NotInArgo, where: str, step: Step | None, what: str) -> None:
        if str(error) in self._refused:  # reported already, at the step that others read
            return
        self._refused.add(str(error))
        named = f"the step {step.name!r}" if step is not None else "the workflow"
        self.wrong(error.code, f"Argo cannot say {what or named}: {error}", error.fix, where, step)

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise UserError(self.problems)

    def remark(self, kind: Kind, message: str, step: Step | None, path: str, near: str = "") -> None:
        """Added once for all steps; the first is named with its line, some others by name."""
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
