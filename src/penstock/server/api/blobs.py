"""Files and code by their digest: asked for, sent, fetched. Taken in by app.

Nothing is stored under a name that somebody gives: a digest says what the bytes must be, and they are compared with it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from penstock import rights
from penstock.artifacts.blobs import Blobs
from penstock.errors import NotFound, Problem
from penstock.server import models
from penstock.server.api.common import errors, needs, settings_of, threads_of
from penstock.server.problems import RequestRefused
from penstock.service import stores

router = APIRouter(prefix="/blobs", tags=["files"])
Digest = Annotated[str, Path(pattern=r"^sha256:[0-9a-f]{64}$")]
LARGEST: Final = 10 * 2**30
"""Bytes, unless PENSTOCK_LARGEST_FILE says otherwise."""
CHUNK: Final = 2**20


def _blobs(request: Request) -> Blobs:
    return stores.blobs_of(settings_of(request))


@router.post(
    "/missing",
    dependencies=[needs("submitter", "send files")],
    response_model=models.MissingBlobs,
    responses=errors(413),
)
async def missing(request: Request, given: models.Digests) -> Any:
    """Which of these are not here, and must be sent."""
    blobs = _blobs(request)
    found = await threads_of(request).call(lambda _: [one for one in given.digests if not _is_here(blobs, one)])
    return {"missing": found}


def _is_here(blobs: Blobs, digest: str) -> bool:
    name = digest.removeprefix("sha256:")
    return len(name) == 64 and name.isalnum() and blobs.has(digest)


@router.put(
    "/{digest}",
    dependencies=[needs("submitter", "send files")],
    response_model=models.Kept,
    responses=errors(408, 413),
)
async def put(request: Request, digest: Digest) -> Any:
    """The bytes themselves. What has another digest is not kept."""
    settings, blobs = settings_of(request), _blobs(request)
    most = settings.largest_file or LARGEST
    stores.prepare(settings)
    folder = settings.home / "work"
    rights.make_folder(folder)
    handle, name = tempfile.mkstemp(dir=folder, prefix="arriving-")
    scratch = FilePath(name)
    try:
        hasher, size = hashlib.sha256(), 0
        with os.fdopen(handle, "wb") as file:
            async for chunk in request.stream():  # Guard sees to it that it does not take for ever
                size += len(chunk)
                if size > most:
                    fix = "send less, or have PENSTOCK_LARGEST_FILE raised on the server"
                    raise RequestRefused(413, Problem("P940", f"more than {most:,} bytes", fix))
                hasher.update(chunk)
                file.write(chunk)
        if f"sha256:{hasher.hexdigest()}" != digest:
            fix = "send it again, with the digest of its bytes"
            raise RequestRefused(400, Problem("P945", "the bytes that came have another digest", fix))
        await threads_of(request).call(lambda _: blobs.put_file(scratch))
    finally:
        scratch.unlink(missing_ok=True)
    return {"digest": digest, "size": size}


@router.get(
    "/{digest}",
    dependencies=[needs("viewer", "fetch files")],
    response_class=Response,
    responses=errors(404) | {200: {"content": {"application/octet-stream": {}}, "description": "The bytes"}},
)
async def get(
    request: Request,
    digest: Digest,
    name: Annotated[str, Query(max_length=255, description="What a browser calls the file")] = "",
) -> Response:
    """Compared with their digest before the first byte is sent."""
    settings, blobs = settings_of(request), _blobs(request)
    folder = settings.home / "work"
    rights.make_folder(folder)
    handle, place = tempfile.mkstemp(dir=folder, prefix="leaving-")
    os.close(handle)
    scratch = FilePath(place)
    try:
        if not await threads_of(request).call(lambda _: blobs.has(digest)):
            raise NotFound(Problem("P937", f"there is no blob {digest}", "see the outputs of a run for its files"))
        await threads_of(request).call(lambda _: blobs.fetch(digest, scratch))
        size = scratch.stat().st_size
        file = open(scratch, "rb")  # noqa: SIM115
    finally:
        scratch.unlink(missing_ok=True)

    def pieces() -> Iterator[bytes]:
        with file:
            while piece := file.read(CHUNK):
                yield piece

    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name) or "file"
    headers = {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{plain}"'}
    return StreamingResponse(pieces(), media_type="application/octet-stream", headers=headers)
