"""Who one is, tokens, and who did what. Taken in by app."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from penstock.server import models
from penstock.server.access import ASK, note
from penstock.server.api.common import Cursor, Limit, errors, needs, number_of, threads_of, who_of
from penstock.service import tokens
from penstock.store.tokens import AccessToken

router = APIRouter(tags=["people"])
ADMIN = needs("admin", "see and give tokens")


def shown(token: AccessToken) -> dict[str, Any]:
    """Without its digest."""
    return {name: value for name, value in token._asdict().items() if name != "digest"}


@router.get("/whoami", dependencies=[needs("viewer", ASK)], response_model=models.Who, responses=errors())
async def whoami(request: Request) -> Any:
    return who_of(request)._asdict()


@router.get("/tokens", dependencies=[ADMIN], response_model=models.TokenList, responses=errors())
async def list_tokens(request: Request) -> Any:
    return {"items": [shown(one) for one in await threads_of(request).call(lambda store: store.tokens.all())]}


@router.post("/tokens", dependencies=[ADMIN], response_model=models.MadeToken, status_code=201, responses=errors())
async def create_token(request: Request, given: models.NewToken) -> Any:
    """Its text is in the answer, and nowhere else."""
    lifetime = None if given.days is None else given.days * 86400
    made, text = await threads_of(request).call(
        lambda store: tokens.create(
            store, given.person, given.role, time.time(), lifetime, given.note, given.groups, given.scopes
        )
    )
    await note(request, "token create", f"{made.id} {made.person} {made.role}", 201)
    return {**shown(made), "secret": text}


@router.delete("/tokens/{id}", dependencies=[ADMIN], status_code=204, response_class=Response, responses=errors(404))
async def revoke_token(request: Request, id: Annotated[str, Path(max_length=100)]) -> Response:
    """From now on it is of no use."""
    await threads_of(request).call(lambda store: tokens.revoke(store, id, time.time()))
    await note(request, "token revoke", id, 204)
    return Response(status_code=204)


@router.get("/audit", dependencies=[ADMIN], response_model=models.AuditPage, responses=errors())
async def list_audit(
    request: Request,
    limit: Limit = 100,
    cursor: Cursor = None,
    person: Annotated[str, Query(max_length=300, description="Only what this person did")] = "",
) -> Any:
    """The newest first."""
    before = number_of(cursor)
    rows = await threads_of(request).call(lambda store: tokens.audit(store, limit, person, before))
    more = str(rows[-1].number) if len(rows) == limit else None
    return {"items": [row._asdict() for row in rows], "next": more}
