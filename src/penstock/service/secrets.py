"""Are the secrets of a workflow given? Called before a run is recorded, and before one is continued."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.backends.secrets.reveal import open_place
from penstock.backends.secrets.sources import SecretSources, is_optional, ways
from penstock.errors import PlanError, Problem, UserError
from penstock.graph.model import Workflow
from penstock.graph.secrets import secret_uses


def option(workflow: Workflow) -> dict[str, Any]:
    """What a run records about its secrets: their names, and where they may be. Empty if it has none."""
    names = sorted({use.name for use in secret_uses(workflow)})
    if not names:
        return {}
    file = workflow.source.file if workflow.source is not None else ""
    foreign = "format" in workflow.extra and file and os.path.exists(file)
    return {"names": names, **({"beside": os.path.abspath(file)} if foreign else {})}


def check(workflow: Workflow, recorded: Mapping[str, Any], sources: SecretSources | None = None) -> None:
    """Raises PlanError with everything that is missing or in the wrong place, UserError if a secret is of no use."""
    sources = sources or SecretSources()
    problems: list[Problem] = []
    seen: set[str] = set()
    for use in secret_uses(workflow):
        where = use.where
        if use.open:
            said, _, fix = open_place(use.name.rstrip("?"), use.field.rpartition(".")[2]).partition("; ")
            problems.append(Problem("P466", f"{use.step}: {said}", fix, where=where))
        if use.name in seen:
            continue
        seen.add(use.name)
        try:
            missing = sources.find(use.name, str(recorded.get("beside", ""))) is None and not is_optional(use.name)
        except UserError as error:
            problems += _at(error.problems, where)
            continue
        if missing:
            problems.append(
                Problem(
                    "P464",
                    f"the {use.of} {use.step} needs the secret {use.name}, which is not given",
                    ways(use.name),
                    where=where,
                )
            )
    if problems:
        raise PlanError(problems)


def _at(problems: Iterable[Problem], where: str) -> list[Problem]:
    return [Problem(one.code, one.message, one.fix, where=where) for one in problems]
