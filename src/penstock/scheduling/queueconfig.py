"""The document `queueconfig` of Flyte's RFC 5575, as an administrator writes it. Called by service.schedule.

    queueconfig:
      scheduler: yunikorn
      jobs:
        - type: ray
          gangscheduling: "placeholderTimeoutInSeconds=60 gangSchedulingStyle=hard"
          allow-preemption: true

It is read as it stands in the RFC. What YuniKorn would not understand (`hard` for `Hard`, two spaces) is corrected, and the report says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import DocumentError, Problem, instead
from penstock.formats.documents import Document, read_text
from penstock.formats.report import Report
from penstock.scheduling import keys
from penstock.scheduling.kinds.table import JOB_TYPES, KINDS
from penstock.scheduling.model import Binding, Kind, Style

WRONG: Final = "P882"
DEFAULT: Final = "default"
_FIELDS: Final = ("type", "gangscheduling", "allow-preemption")
_TRUE: Final = {"true": True, "false": False, "yes": True, "no": False}
_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.A)
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "kubeflow": ("pytorch", "tensorflow", "mpi", "xgboost", "paddle", "jax", "train"),
    "kf-operator": ("pytorch", "tensorflow", "mpi", "xgboost", "paddle", "jax", "train"),
}
"""A type that stands for several."""
ALIASES: Final[Mapping[str, str]] = {
    **{one.kind.lower(): one.job_type for one in KINDS.values() if one.job_type != DEFAULT},
    "tf": "tensorflow",
    "torch": "pytorch",
    "workflow": "argo",
    "pod": DEFAULT,
    "job": DEFAULT,
}


@dataclass(frozen=True, slots=True)
class JobRule:
    """What the document says of one type of job."""

    type: str
    """As it is written there: the last part of the queue's name."""
    covers: frozenset[str]
    gang: bool = False
    style: Style = ""
    timeout: int | None = None
    allow_preemption: bool | None = None

    def bind(self, binding: Binding) -> Binding:
        """What the command did not say itself."""
        return replace(
            binding,
            style=binding.style or self.style,
            timeout=self.timeout if binding.timeout is None else binding.timeout,
            allow_preemption=self.allow_preemption if binding.allow_preemption is None else binding.allow_preemption,
        )


@dataclass(frozen=True, slots=True)
class QueueConfig:
    scheduler: str
    jobs: tuple[JobRule, ...]

    def rule(self, kind: Kind) -> JobRule | None:
        """The rule for a kind: its own type, else one that stands for several, else `default`."""
        own = [one for one in self.jobs if kind.job_type in one.covers]
        own.sort(key=lambda one: len(one.covers))
        return own[0] if own else next((one for one in self.jobs if one.type.lower() == DEFAULT), None)

    def job_type(self, kind: Kind) -> str:
        """The last part of the queue's name. Types without a rule share the queue `default`."""
        found = self.rule(kind)
        return DEFAULT if found is None else found.type.lower()


def queue_config(text: str, file: str, schedulers: Iterable[str], report: Report) -> QueueConfig:
    """Raises DocumentError, P882 and those of reading, with all that is wrong."""
    documents = [one for one in read_text(text, file) if one.data]
    if len(documents) != 1 or not isinstance(documents[0].data.get("queueconfig", documents[0].data), Mapping):
        raise DocumentError(
            Problem(WRONG, f"{file} has no queueconfig", "write `queueconfig:` with `scheduler` and `jobs`")
        )
    document = documents[0]
    nested = "queueconfig" in document.data
    prefix = "queueconfig." if nested else ""
    data: Mapping[str, Any] = document.data["queueconfig"] if nested else document.data
    wrong: list[Problem] = []
    for field in data:
        if field not in ("scheduler", "jobs"):
            fix = instead(str(field), ("scheduler", "jobs"))
            wrong.append(document.problem(WRONG, f"{prefix}{field}", f"queueconfig has no field {str(field)!r}", fix))
    scheduler = _scheduler(document, prefix, data, tuple(schedulers), wrong, report)
    listed = data.get("jobs")
    if listed is not None and not isinstance(listed, list):
        wrong.append(document.problem(WRONG, f"{prefix}jobs", "jobs is not a list", "write `jobs:` as a list of types"))
        listed = []
    rules = _Rules(document, report, wrong)
    for number, one in enumerate(listed or ()):
        rules.add(f"{prefix}jobs[{number}]", one)
    if wrong:
        raise DocumentError(wrong)
    return QueueConfig(scheduler, tuple(rules.found))


def _scheduler(
    document: Document,
    prefix: str,
    data: Mapping[str, Any],
    known: tuple[str, ...],
    wrong: list[Problem],
    report: Report,
) -> str:
    given = data.get("scheduler")
    place = f"{prefix}scheduler"
    if given is None:
        return ""
    if not isinstance(given, str) or given.lower() not in known:
        message = f"there is no scheduler {str(given)[:60]!r}"
        wrong.append(document.problem(WRONG, place, message, f"write one of {', '.join(known)}"))
        return ""
    if given != given.lower():
        report.changed(place, f"{given} is read as {given.lower()}", "", document.source(place))
    return given.lower()


class _Rules:
    """Reads the rules one by one, and collects what is wrong with them."""

    def __init__(self, document: Document, report: Report, wrong: list[Problem]) -> None:
        self.document, self.report, self.wrong = document, report, wrong
        self.found: list[JobRule] = []

    def add(self, place: str, one: Any) -> None:
        if not isinstance(one, Mapping):
            self._wrong(place, "a job is not a map", "write `- type: ray`")
            return
        for field in one:
            if field not in _FIELDS:
                self._wrong(f"{place}.{field}", f"a job has no field {str(field)!r}", instead(str(field), _FIELDS))
        written = one.get("type")
        covers = self._covers(f"{place}.type", written)
        if covers is None:
            return
        if any(str(written).lower() == rule.type.lower() for rule in self.found):
            self._wrong(f"{place}.type", f"the type {written!r} is there twice", "keep one of them")
            return
        rule = JobRule(str(written), covers)
        rule = self._gang(f"{place}.gangscheduling", one.get("gangscheduling"), rule)
        self.found.append(self._preemption(f"{place}.allow-preemption", one.get("allow-preemption"), rule))

    def _covers(self, place: str, written: Any) -> frozenset[str] | None:
        if not isinstance(written, str) or not written:
            self._wrong(place, "a job has no type", f"write one of {', '.join(JOB_TYPES)}")
            return None
        name = written.lower()
        if name in FAMILIES:
            return frozenset(FAMILIES[name])
        found = ALIASES.get(name, name)
        if found not in JOB_TYPES:
            known = (*JOB_TYPES, *FAMILIES)
            self._wrong(
                place, f"{written[:60]!r} is no type of job", instead(name, known) + f" Types: {', '.join(known)}"
            )
            return None
        return frozenset((found,))

    def _preemption(self, place: str, given: Any, rule: JobRule) -> JobRule:
        if given is None:
            return rule
        found = given if isinstance(given, bool) else _TRUE.get(str(given).lower())
        if found is None:
            self._wrong(place, f"{str(given)[:60]!r} is neither true nor false", "write true or false")
            return rule
        if not isinstance(given, bool):
            self.report.changed(place, f"{given!r} is read as {str(found).lower()}", "", self.document.source(place))
        return replace(rule, allow_preemption=found)

    def _gang(self, place: str, given: Any, rule: JobRule) -> JobRule:
        if given is None or given == "":
            return rule
        if not isinstance(given, str):
            self._wrong(place, "gangscheduling is not text", f"write '{keys.TIMEOUT}=60 {keys.STYLE}=Hard'")
            return rule
        rule = replace(rule, gang=True)
        source = self.document.source(place)
        if given != " ".join(given.split()):
            said = "its parts must be separated by one space each: YuniKorn skips what others make"
            self.report.changed(place, said, "", source)
        for piece in given.split():
            name, _, value = piece.partition("=")
            if name.lower() == keys.STYLE.lower() and value.capitalize() in ("Soft", "Hard"):
                style: Style = "Hard" if value.lower() == "hard" else "Soft"
                rule = replace(rule, style=style)
                self._corrected(place, piece, f"{keys.STYLE}={style}")
            elif name.lower() == keys.TIMEOUT.lower() and _NUMBER.match(value):
                rule = replace(rule, timeout=int(value))
                self._corrected(place, piece, f"{keys.TIMEOUT}={int(value)}")
            else:
                fix = f"write {keys.TIMEOUT}=SECONDS and {keys.STYLE}=Hard or Soft, with one space between"
                self._wrong(place, f"{piece[:60]!r} is nothing that YuniKorn reads", fix)
        return rule

    def _corrected(self, place: str, written: str, meant: str) -> None:
        if written != meant:
            said = f"{written} is written as {meant}: YuniKorn would take it for the default without a word"
            self.report.changed(place, said, "", self.document.source(place))

    def _wrong(self, place: str, message: str, fix: str) -> None:
        self.wrong.append(self.document.problem(WRONG, place, message, fix))
