"""The page that shows a workflow in another format: paste a manifest, choose a format. Nothing is recorded or executed. Taken in by site."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from penstock.errors import UserError
from penstock.formats import registry
from penstock.server.api.common import needs, threads_of
from penstock.server.pages.pasting import sent, sketch
from penstock.server.pages.site import page
from penstock.server.problems import status_of
from penstock.service import conversion, pasted
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "convert")
NOTHING: dict[str, Any] = {"found": None, "text": "", "notes": (), "document": "", "name": "", "problems": ()}


@router.get("/convert", dependencies=[LOOK])
async def form(request: Request, to: Annotated[str, Query(max_length=100)] = "argo") -> Response:
    data = {**NOTHING, "formats": formats(), "to": to, "data": {"formats": formats()}}
    return page(request, "convert.html", data, f"penstock convert FILE --to {to if to in formats() else 'argo'}")


@router.post("/convert", dependencies=[LOOK])
async def convert(request: Request) -> Response:
    """Its graph, its stages, the text in the other format, and what that changes and loses."""
    given = await sent(request)
    to = given.field("to") or "argo"

    def do(_: Store) -> dict[str, Any]:
        found = pasted.read(given.document, given.name or None)
        made = conversion.write(found.workflow, to)
        found.report.extend(made.report)
        entries = [one.as_data() for one in found.report.entries]
        data = {"text": made.text, "report": entries, "notes": list(made.notes)}
        return {"found": sketch(found, {}), "text": made.text, "notes": made.notes, "data": data}

    command, status = f"penstock convert FILE --to {to if to in formats() else 'argo'}", 200
    shown = {**NOTHING, "document": given.document, "name": given.name, "formats": formats(), "to": to}
    try:
        if not given.document.strip():
            return await form(request, to)
        shown |= await threads_of(request).call(do)
    except UserError as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        status = status_of(error)
        shown["problems"] = error.problems
    return page(request, "convert.html", shown, command, status)


def formats() -> list[str]:
    return [*dict.fromkeys((*conversion.TARGETS, *registry.writable()))]
