"""`access:` in a file of queues: who may submit to a queue, and who administers it, in YuniKorn's grammar. Called by service.queues and
service.access. Kueue's objects have no place for it, so it is a document of its own beside them, as `mlflow:` is.

    access:
      root: {adminacl: "ana platform"}
      shared: {submitacl: "* "}
      team-a: {submitacl: "bob,cat science", adminacl: "bob"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.errors import Problem, UserError, nearest
from penstock.service import own_documents

KIND: Final = "Access"
"""Of the row in which the store keeps it."""
ROOT: Final = "root"
FIELDS: Final = ("submitacl", "adminacl")
_WRITTEN: Final = re.compile(r"^access\s*:", re.M)
_FIX: Final = 'write it as a document of its own, after ---:  access: {team-a: {submitacl: "ana,bob science"}}'


class QueueAccess(NamedTuple):
    """The lists of one queue; None: it has none."""

    submit: str | None = None
    admin: str | None = None


def taken(text: str, file: str) -> tuple[tuple[str, str, str] | None, str]:
    """What `access:` says, as a row of the store, and the rest of the text. Raises UserError, P827."""
    import yaml

    def wrong(what: str) -> UserError:
        return UserError(Problem("P827", f"access in {file} {what}", _FIX))

    if len(_WRITTEN.findall(text)) > 1:
        raise wrong("is there twice")
    try:
        document, rest = own_documents.taken(text, "access")
    except yaml.YAMLError as error:
        raise wrong(f"is not YAML: {str(error).splitlines()[0]}") from None
    if document is None:
        return None, text
    if not isinstance(document, Mapping) or set(document) != {"access"} or not isinstance(document["access"], Mapping):
        raise wrong("stands beside something else, or is not a map of queues")
    lists = document["access"]
    problems = [problem for name, given in lists.items() for problem in _problems(str(name), given, file)]
    if any(_text(given, "adminacl") for given in lists.values()) and not _text(lists.get(ROOT), "adminacl"):
        message = f"access in {file}: {ROOT} has no adminacl, so nobody could change the queues or this list again"
        problems.append(Problem("P827", message, f'name somebody: {ROOT}: {{adminacl: "ana"}}'))
    if problems:
        raise UserError(problems)
    kept = {"kind": KIND, "metadata": {"name": ""}, "access": {str(name): given for name, given in lists.items()}}
    return (KIND, "", json.dumps(kept)), rest


def _text(given: Any, field: str) -> str:
    return str(given.get(field) or "").strip() if isinstance(given, Mapping) else ""


def _problems(name: str, given: Any, file: str) -> Iterable[Problem]:
    from penstock.scheduling.queues.access import parts_of

    if not isinstance(given, Mapping):
        yield Problem("P827", f"access in {file}: {name} has no lists", _FIX)
        return
    for field, text in given.items():
        if field not in FIELDS:
            fix = f"write submitacl or adminacl.{nearest(str(field), FIELDS)}"
            yield Problem("P827", f"access in {file}: {name} has {field!r}, which is not known", fix)
        elif not isinstance(text, str):
            fix = 'write it in quotes: "ana,bob science"; "*" is everybody'
            yield Problem("P827", f"access in {file}: {field} of {name} is not a text", fix)
        else:
            try:
                parts_of(text)
            except ValueError as error:
                fix = "write users, one space, groups: names of each with commas between them"
                yield Problem("P827", f"access in {file}: {field} of {name}: {error}", fix)


def unknown(row: tuple[str, str, str], names: Iterable[str]) -> list[Problem]:
    """Lists for queues that there are not: `names` are those of cohorts and queues."""
    known = sorted({*names, ROOT})
    return [
        Problem(
            "P827",
            f"access has lists for {name!r}, and there is no such queue",
            f"there are: {', '.join(known)}.{nearest(name, known)}",
        )
        for name in json.loads(row[2])["access"]
        if name not in known
    ]


def stored(rows: Iterable[tuple[str, str | None]]) -> Mapping[str, QueueAccess] | None:
    """Among (kind, text) of the objects of a store. None: nobody has said who may what."""
    text = next((text for kind, text in rows if kind == KIND and text), None)
    if text is None:
        return None
    lists = json.loads(text)["access"]
    return {name: QueueAccess(given.get("submitacl"), given.get("adminacl")) for name, given in lists.items()}
