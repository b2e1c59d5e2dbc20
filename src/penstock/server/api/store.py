"""What `penstock … --server` reads: rows of queries, log files, processes that were left behind. Taken in by app; service.remote_store asks.

The commands compute what they show themselves, as they do from a store of their own, so what they read goes over as it is. Its form follows the
tables: a client of another schema is told so. Programs use the other routes.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response

from penstock.server import models
from penstock.server.api.common import errors, needs, settings_of, threads_of
from penstock.service import prices
from penstock.service.home_files import LocalHome, LogPiece, place_of, served_piece
from penstock.service.machine import capacity
from penstock.service.usage import Counter
from penstock.store import liveness
from penstock.store.records import EngineRecord
from penstock.store.served import COUNTED, checked
from penstock.store.sql import Store

router = APIRouter(prefix="/store", tags=["store"])
LOOK = needs("viewer", "look at runs")
MOST_BYTES: Final = 8 * 2**20
"""Of logs in one answer."""
COUNTING: Final = 2.0
"""Seconds for which usage is counted for one answer; whoever asks comes again."""
WORTH: Final = 16 * 2**10
"""Bytes of an answer from which on it is worth being compressed."""


@router.get("", dependencies=[LOOK], response_model=models.StoreAbout, responses=errors())
async def about_store(request: Request) -> Any:
    """Its version, and what the machine has that is the only queue as long as none is configured."""
    tables = await threads_of(request).call(lambda store: store.schema)
    said = prices.configured().as_data()
    return {"tables": tables, "version": request.app.version, "capacity": capacity(), "prices": said}


@router.post("/rows/{query}", dependencies=[LOOK], response_model=models.Rows, responses=errors())
async def rows_of_store(request: Request, query: Annotated[str, Path(max_length=60)], given: models.Query) -> Response:
    """The rows of one of the queries that penstock's own commands make."""

    def look(store: Store) -> bytes:
        if query == COUNTED:
            until, since = checked(query, given.args, given.keys)
            Counter(store, COUNTING).bring_up(since, until)
        rows = store.served(query, given.args, given.keys)
        if query == "engines":  # whether one of this machine is alive can be told only here
            rows = [row for row in rows if liveness.alive(EngineRecord(*row)) is not False]
        return json.dumps({"rows": rows}, separators=(",", ":")).encode()

    return _packed(request, await threads_of(request).call(look))


@router.post("/logs/sizes", dependencies=[LOOK], response_model=models.LogSizes, responses=errors())
async def sizes_of_logs(request: Request, given: models.LogNames) -> Any:
    """How long log files are. What is not there has no size."""
    home = settings_of(request).home

    def look(_: Store) -> dict[str, int]:
        places = {name: place_of(home, name) for name in given.names}
        return LocalHome(home).sizes([name for name, place in places.items() if place is not None])

    return {"sizes": await threads_of(request).call(look)}


@router.post("/logs", dependencies=[LOOK], response_model=models.LogTexts, responses=errors())
async def pieces_of_logs(request: Request, given: models.LogPieces) -> Response:
    """Parts of log files: [name, start, end or null, null or how many bytes of its end]. `more`: there is more of it."""
    home = settings_of(request).home

    def look(_: Store) -> bytes:
        left, found = MOST_BYTES, list[dict[str, Any] | None]()
        for name, start, end, last in given.pieces:
            piece = LogPiece(name, start, end, last)
            read = served_piece(home, piece, max(left, 1))
            if read is None:
                found.append(None)
                continue
            begin, data = read
            size = LocalHome(home).sizes([name]).get(name, 0)
            more = begin + len(data) < (size if end is None else min(size, end))
            left -= len(data)
            found.append({"start": begin, "data": base64.b64encode(data).decode(), "more": more and bool(data)})
        return json.dumps({"pieces": found}).encode()

    return _packed(request, await threads_of(request).call(look))


@router.post("/orphans", dependencies=[LOOK], response_model=models.Orphans, responses=errors())
async def orphans_of_engines(request: Request, given: models.EngineIds) -> Any:
    """Processes on the server's machine that these engines have left behind."""
    home = settings_of(request).home
    found = await threads_of(request).call(lambda _: LocalHome(home).orphans(given.engines))
    return {"orphans": [one._asdict() for one in found]}


def _packed(request: Request, body: bytes) -> Response:
    if len(body) < WORTH or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(body, media_type="application/json")
    return Response(gzip.compress(body, 1), media_type="application/json", headers={"Content-Encoding": "gzip"})
