"""The parts of the server, put together. Called by `penstock serve`, and by tests.

    app = make(settings, hosts=["127.0.0.1"], own=token, worker=Worker(...))

`GET /api/v1/openapi.json` describes the API.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.errors import Problem, UserError
from penstock.server import pages
from penstock.server.access import SAFE, AccessGate, Allowance, note
from penstock.server.api import (
    answers,
    blobs,
    callbacks,
    cluster,
    ogc,
    payloads,
    people,
    queues,
    records,
    runs,
    schedules,
    state,
    store,
    verbs,
)
from penstock.server.counted import Counted
from penstock.server.feeds import Feeds
from penstock.server.guard import PATIENCE, Guard, Tagged, Tries
from penstock.server.pages.doctor import DiagnosisCache
from penstock.server.problems import answer, status_of
from penstock.server.threads import StoreThreads
from penstock.service import stores
from penstock.service.clusters import ClusterSource
from penstock.service.tokens import NotAllowed
from penstock.settings import Settings
from penstock.store.tokens import AccessToken

if TYPE_CHECKING:
    from penstock.server.oidc.provider import Provider
    from penstock.server.oidc.settings import SignInSettings
    from penstock.service.workers import Worker

API = "/api/v1"
ROUTERS: tuple[tuple[str, APIRouter], ...] = (
    *(
        (API, one.router)
        for one in (
            records,
            callbacks,
            runs,
            payloads,
            schedules,
            queues,
            cluster,
            verbs,
            blobs,
            people,
            state,
            store,
        )
    ),
    ("", ogc.router),
    ("", state.health),
    ("", answers.router),
    *(("", router) for router in pages.ROUTERS),
)
"""All that the server answers, but for static files. A test goes through their routes."""
CALLBACKS = "/callbacks/"
_FIX = "see the OpenAPI document at /api/v1/openapi.json"


class WorkerBeside(Protocol):
    """A worker in a process of its own, which belongs to this server."""

    trouble: str
    """Why there is none at the moment."""
    restarts: int

    @property
    def pid(self) -> int | None: ...


class Server:
    """An ASGI application. `own`: the token of a server that runs for one person. `worker`: executes what is submitted, in this process; if
    there is none, `penstock worker` does. `beside`: that worker, if it belongs to this server; it is only told of. `log`: gets a line for each request. `sign_in`: where people sign in, if not only with tokens.
    `cluster`: its queues are shown beside those of the store. `patience`: seconds to wait for more of a body."""

    def __init__(
        self,
        settings: Settings,
        hosts: Collection[str],
        own: AccessToken | None = None,
        worker: Worker | None = None,
        log: Callable[[str], None] | None = None,
        version: str = "0",
        sign_in: SignInSettings | None = None,
        cluster: ClusterSource | None = None,
        patience: float = PATIENCE,
        beside: WorkerBeside | None = None,
    ) -> None:
        self.settings = settings
        self.provider = _provider(sign_in) if sign_in is not None else None
        self.worker = worker
        self.beside = beside
        self.cluster = cluster
        self.threads = StoreThreads(settings)
        self.feeds = Feeds(settings, self.threads)
        self.counted = Counted(log)
        self.app = self._made(own, version)
        self._around: ASGIApp = self.counted.around(Guard(Tagged(self.app), hosts, f"{API}/blobs/", patience))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._around(scope, receive, send)

    def _made(self, own: AccessToken | None, version: str) -> FastAPI:
        app = FastAPI(
            title="Penstock",
            version=version,
            description="Runs and queues. Errors are RFC 9457 problems with a code and the fix.",
            openapi_url=f"{API}/openapi.json",
            docs_url=None,
            redoc_url=None,
            lifespan=self._lifespan,
            redirect_slashes=False,
        )
        for prefix, router in ROUTERS:
            app.include_router(router, prefix=prefix)
        app.mount("/static", StaticFiles(directory=pages.STATIC), name="static")
        app.state.settings = self.settings
        app.state.threads = self.threads
        app.state.feeds = self.feeds
        app.state.provider = self.provider
        app.state.beside = self.beside
        app.state.working = os.getpid() if self.worker is not None else None
        app.state.counted = self.counted
        app.state.cluster = self.cluster
        app.state.diagnosis = DiagnosisCache()
        app.state.allowance = Allowance(self.settings.submissions)
        app.state.guesses = Tries()
        app.state.simulating = asyncio.Semaphore(1)
        app.state.nudge = self.worker.nudge if self.worker is not None else lambda: None
        app.state.gate = AccessGate(self.threads, self._key(), own)
        app.openapi = lambda: _described(app)  # type: ignore[method-assign]
        app.add_exception_handler(UserError, _user_error)
        app.add_exception_handler(RequestValidationError, _not_valid)
        app.add_exception_handler(HTTPException, _http_error)
        app.add_exception_handler(Exception, _internal)
        return app

    def _key(self) -> bytes:
        """Signs cookies: the same for all servers of a store. Known to whoever can read the store."""
        with stores.open_or_create(self.settings) as store:
            return bytes.fromhex(store.note("cookie-key") or store.note("cookie-key", os.urandom(32).hex()))

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.threads.start()
        self.feeds.start()
        if self.worker is not None:
            self.worker.start()
        if self.cluster is not None:
            self.cluster.start(self.feeds.stir)
        try:
            yield
        finally:
            self.feeds.close()
            if self.worker is not None:
                self.worker.stop()
            if self.cluster is not None:
                self.cluster.stop()
            self.threads.close()


def _provider(settings: SignInSettings) -> Provider:
    from penstock.server.oidc.provider import Provider  # with what it needs for signatures: others do not wait for that

    return Provider(settings)


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: as the framework makes it, but what is wrong with a request is said with 400, and how one signs in."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path, methods in made["paths"].items():
            for route in methods.values():
                if not path.startswith(CALLBACKS):  # there it is an answer of ours
                    route["responses"].pop("422", None)
                if path.startswith((API, ogc.PREFIX)):
                    route["security"] = [{"token": []}]
        schemas = made["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = made
    return app.openapi_schema


async def _user_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, UserError)
    if isinstance(error, NotAllowed) and request.method not in SAFE:
        await note(request, "refused", f"{request.method} {request.url.path}", 403)
    kind = ogc.type_of(request.url.path, error.code)
    return pages.shown(request, status_of(error), error.problems) or answer(status_of(error), error.problems, kind)


async def _not_valid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        Problem("P946", f"{_place(one['loc'])}: {one['msg']}", _FIX, where=_place(one["loc"]))
        for one in error.errors()[:20]
    ]
    return pages.shown(request, 400, found) or answer(400, found)


def _place(parts: Any) -> str:
    return ".".join(str(one) for one in parts)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: unknown paths, methods."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase.lower()
    found = [Problem("P946", f"{request.method} {request.url.path[:200]}: {phrase}", _FIX)]
    made = pages.shown(request, error.status_code, found) or answer(error.status_code, found)
    for name, value in (error.headers or {}).items():
        made.headers[name] = value
    return made


async def _internal(request: Request, error: Exception) -> Response:
    found = [Problem("P500", "internal error in the server", "see its log; please report it with what you did")]
    return pages.shown(request, 500, found) or answer(500, found)
