"""Who did what, for admins. Taken in by app."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from penstock.server.api.common import needs, number_of, threads_of
from penstock.server.pages.site import page
from penstock.service.tokens import audit as entries
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
MANY = 100


@router.get("/audit", dependencies=[needs("admin", "read the audit")])
async def show_audit(
    request: Request, cursor: str = "", person: Annotated[str, Query(max_length=300)] = ""
) -> Response:
    before = number_of(cursor or None)

    def look(store: Store) -> dict[str, Any]:
        rows = entries(store, MANY, person, before)
        more = str(rows[-1].number) if len(rows) == MANY else None
        data = {"items": [row._asdict() for row in rows], "next": more}
        return {"data": data, "rows": rows, "next": more, "person": person}

    words = f" --person {person}" if person else ""
    return page(request, "audit.html", await threads_of(request).call(look), f"penstock audit{words}")
