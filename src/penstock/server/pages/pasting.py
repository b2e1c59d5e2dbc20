"""What the pages have in common to which a workflow is pasted: what was sent, and how it is shown. Called by convert and submit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fastapi import Request
from starlette.datastructures import FormData, UploadFile

from penstock.errors import Problem, UserError
from penstock.plan.make import Plan
from penstock.server.pages.graph import drawn
from penstock.server.problems import RequestRefused
from penstock.service.amounts import vector
from penstock.service.pasted import Pasted, planned
from penstock.service.views.board import GraphChoice, graph_of
from penstock.service.views.outline import Outline

LONGEST: Final = 2 * 2**20
"""Bytes of a workflow that is pasted or chosen as a file."""
STAGES: Final = 200
ENTRIES: Final = 500


class Sent(NamedTuple):
    document: str
    name: str
    form: FormData

    def field(self, name: str) -> str:
        return self.value(name).strip()

    def value(self, name: str) -> str:
        """As it was typed."""
        found = self.form.get(name, "")
        return found if isinstance(found, str) else ""


async def sent(request: Request) -> Sent:
    """A file counts more than the text beside it. Raises RequestRefused, UserError."""
    form = await request.form()
    file, text = form.get("file"), form.get("document", "")
    document = text if isinstance(text, str) else ""
    if isinstance(file, UploadFile) and file.filename:
        raw = await file.read(LONGEST + 1)
        _check(len(raw))
        try:
            document = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            fix = "choose a YAML or JSON file in UTF-8"
            raise UserError(Problem("P946", f"{file.filename[:100]!r} is not text", fix, where="file")) from None
    _check(len(document.encode(errors="replace")))
    name = form.get("name", "")
    # Browsers send a text with the line ends of its field.
    return Sent(document.replace("\r\n", "\n"), name.strip() if isinstance(name, str) else "", form)


def _check(size: int) -> None:
    if size > LONGEST:
        fix = "use the command, or the API: POST /api/v1/convert, /plan, /runs"
        raise RequestRefused(413, Problem("P940", f"more than {LONGEST // 2**20} MiB are too much for this page", fix))


def sketch(found: Pasted, params: Mapping[str, Any], queue: str = "") -> dict[str, Any]:
    """Its graph, and its stages if they can be planned with these parameters."""
    outline = Outline(found.workflow)
    outline.measure({}, "")
    graph = graph_of(outline, GraphChoice())
    plan: Plan | None = None
    problems: tuple[Problem, ...] = ()
    try:
        plan = planned(found.workflow, params, queue or None)
    except UserError as error:
        problems = error.problems
    stages = plan.stages if plan is not None else []
    entries = sorted(found.report.entries, key=lambda one: ("lost", "changed", "kept").index(one.kind))
    return {
        **drawn(graph, None),
        "workflow": found.workflow.name,
        "stages": [
            {
                "name": one.name,
                "steps": ", ".join(one.steps[:8]) + (" …" if len(one.steps) > 8 else ""),
                "asks": vector(one.demand()) + ("" if one.known else " for each task"),
                "queue": one.queue or "",
            }
            for one in stages[:STAGES]
        ],
        "more_stages": max(0, len(stages) - STAGES),
        "plan": None if plan is None else plan.as_data(),
        "plan_problems": problems,
        "entries": entries[:ENTRIES],
        "more_entries": max(0, len(entries) - ENTRIES),
        "counts": {kind: len(found.report.of(kind)) for kind in ("kept", "changed", "lost")},
    }
