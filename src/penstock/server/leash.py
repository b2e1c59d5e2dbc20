"""A stream lasts as long as the token of whoever listens is good. Put around every stream by api."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

from penstock.server.access import AccessGate
from penstock.server.problems import data_of
from penstock.service.tokens import Identity, NotSignedIn

LOOK: Final = 1.0
"""Seconds between two looks at a token."""


def streamed(request: Request, told: AsyncIterator[str]) -> StreamingResponse:
    """Server-sent events. A token that is revoked or expires ends them with the event `refused`, within two seconds."""
    who: Identity = request.state.who
    return StreamingResponse(_until_refused(told, request.app.state.gate, who), media_type="text/event-stream")


async def _until_refused(told: AsyncIterator[str], gate: AccessGate, who: Identity) -> AsyncIterator[str]:
    end = asyncio.ensure_future(_end(gate, who))
    following: asyncio.Future[str] | None = None
    try:
        while True:
            following = asyncio.ensure_future(_next(told))
            await asyncio.wait({following, end}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                yield end.result()
                return
            text = following.result()
            if not text:
                return
            yield text
    finally:
        end.cancel()
        if following is not None and not following.done():
            following.cancel()


async def _next(told: AsyncIterator[str]) -> str:
    """Empty: there is nothing more."""
    return await anext(told, "")


async def _end(gate: AccessGate, who: Identity) -> str:
    while True:
        await asyncio.sleep(LOOK)
        try:
            await gate.still(who)
        except NotSignedIn as refused:
            return f"event: refused\ndata: {json.dumps(data_of(401, refused.problems))}\n\n"
