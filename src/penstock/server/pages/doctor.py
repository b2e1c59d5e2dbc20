"""What `penstock doctor` says of the server's side. Taken in by site. It repairs nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from penstock.server.api.common import needs, settings_of, threads_of
from penstock.server.pages.site import page
from penstock.service.doctor import Diagnosis, diagnose

router = APIRouter(include_in_schema=False)
GOOD: Final = 15.0
"""Seconds for which a diagnosis is shown to all who ask: it reads every file."""


class DiagnosisCache:
    """The last diagnosis of an app. Those who ask while one is made wait for it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._made = 0.0
        self._found: Diagnosis | None = None

    async def of(self, request: Request) -> Diagnosis:
        settings, version = settings_of(request), request.app.version
        async with self._lock:
            if self._found is None or time.monotonic() - self._made > GOOD:
                self._found = await threads_of(request).call(lambda _: diagnose(settings, False, version))
                self._made = time.monotonic()
            return self._found


@router.get("/doctor", dependencies=[needs("operator", "look at the server's health")])
async def doctor(request: Request) -> Response:
    cache: DiagnosisCache = request.app.state.diagnosis
    found = await cache.of(request)
    return page(request, "doctor.html", {"data": found.as_data(), "found": found}, "penstock doctor")
