"""Errors, and what to do about them. Raised by every layer; printed by cli.ui.errors.

    PenstockError              exit 1   internal error
    ├── UserError              exit 2   something in the input: carries Problems
    │   ├── DocumentError               a file that cannot be read as what it claims to be        P1xx
    │   ├── InvalidWorkflow             a workflow that `graph.check` refuses                     P2xx
    │   ├── AuthorError                 Python that has no meaning in a workflow                  P3xx
    │   ├── PlanError                   parameters or options that do not fit the workflow        P4xx
    │   └── StoreError     exit 1       the place where runs are recorded cannot be used          P6xx
    └── NotFound               exit 4   a name of something that does not exist                   P5xx

A Problem is data: code, message, place, fix. An error carries every Problem that was found, so that a file with five
mistakes can be fixed at once. `penstock explain CODE` explains each code, from catalogue.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar, Literal

loading: ContextVar[bool] = ContextVar("loading", default=False)
"""Is a file of the author's being run for one thing in it? Then another one that is wrong must not be in the way."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place in a file. Lines and columns count from 1; column 0 means the whole line."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what is wrong, where, and how to fix it."""

    code: str
    message: str
    fix: str
    where: str = ""
    """The place in the workflow, as a path: `steps.train.when`."""
    source: Source | None = None
    excerpt: str = ""
    """The line of the source, without its line end; a caret is drawn under source.column."""
    severity: Literal["error", "warning"] = "error"

    def as_data(self) -> dict[str, object]:
        data: dict[str, object] = {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "fix": self.fix,
        }
        if self.where:
            data["where"] = self.where
        if self.source is not None:
            data["file"], data["line"], data["column"] = self.source.file, self.source.line, self.source.column
        return data


class PenstockError(Exception):
    """Base class of the errors that Penstock raises deliberately."""

    exit_code: ClassVar[int] = 1


class InvalidInput(Exception):
    """Raised by a task: its input is not valid, so that trying it again is of no use. It is not retried, and the payload of its run is not done again
    unless somebody asks for that. Any subclass means the same."""


class UserError(PenstockError):
    """The input is wrong. `problems` is never empty."""

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Iterable[Problem] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(_sentence(p) for p in self.problems))

    @property
    def code(self) -> str:
        return self.problems[0].code


class DocumentError(UserError):
    """A document cannot be read."""


class InvalidWorkflow(UserError):
    """A workflow has errors in it."""


class AuthorError(UserError):
    """Python code cannot be turned into a workflow."""


class PlanError(UserError):
    """Parameters or options do not fit the workflow."""


class StoreError(UserError):
    """The store cannot be read or written. What was recorded before stays recorded."""

    exit_code: ClassVar[int] = 1


class RunConflict(UserError):
    """The run is in a state in which this cannot be done."""


class NotSignedIn(UserError):
    """Nobody, or somebody whose token is of no use."""


class NotAllowed(UserError):
    """This person may not do this."""


class NotFound(UserError):
    """There is nothing with this name."""

    exit_code: ClassVar[int] = 4


def _sentence(problem: Problem) -> str:
    place = " ".join(str(part) for part in (problem.source, problem.where) if part)
    head = f"{problem.code} {problem.message}"
    return f"{head} ({place}). Fix: {problem.fix}" if place else f"{head}. Fix: {problem.fix}"


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean "x"?`, or nothing: goes after every message about an unknown name."""
    import difflib  # only a mistake needs it

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' Did you mean "{found[0]}"?' if found else ""


def known_are(known: Iterable[str]) -> str:
    """The fix for an unknown name that resembles none: the first names that there are."""
    names = [str(name) for name in known]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (
        f"known are {', '.join(names[:10])}{more}"
        if names
        else "remove it, or declare it first: nothing of the kind is known here"
    )


def instead(word: str, known: Iterable[str]) -> str:
    """The fix for an unknown name: the name that was probably meant, or to remove it."""
    return nearest(word, known).strip() or "remove it."


def catalogue() -> dict[str, dict[str, str]]:
    """Code -> title, text and, for some, an example of what is wrong and what is right."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("penstock").joinpath("catalogue.toml").read_text(encoding="utf-8"))
