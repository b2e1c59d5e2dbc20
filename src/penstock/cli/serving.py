"""A server or a worker in this process, until a signal ends it. Called by the commands serve and worker, which import it when they run."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from penstock import __version__
from penstock.cli.collecting import collect_garbage
from penstock.cli.json_log import structured
from penstock.cli.ui import render
from penstock.errors import Problem, UserError
from penstock.service import background, stores, tokens
from penstock.service.clusters import ClusterSource
from penstock.service.run_records import owner_alive
from penstock.service.submission import user
from penstock.service.workers import Worker
from penstock.settings import Settings
from penstock.store.orders import WorkOrder
from penstock.store.records import FINAL
from penstock.store.sql import Store

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def work_until_idle(settings: Settings, quiet: bool) -> None:
    """Until there is nothing left to do. Another one of this home does it already: then nothing."""
    left = True
    while left:
        with background.alone(settings) as free:
            if not free:
                return
            if work(settings, quiet, until_idle=True):
                return
        with stores.open_or_create(settings) as store:  # what was ordered after the last look
            left = any("problem" not in order.data for order in store.orders.all() if not _is_at_it(store, order))


def _is_at_it(store: Store, order: WorkOrder) -> bool:
    run = store.runs.by_number(order.run)
    return run is None or run.state in FINAL or owner_alive(store, run) is not False


def work(settings: Settings, quiet: bool, until_idle: bool = False) -> bool:
    """Until a signal ends it: then true."""
    worker = Worker(settings, _say(quiet))
    signals = _Signals(worker.stop, worker.abandon)
    with signals:
        worker.start()
        collect_garbage()
        if not quiet:
            render.note(f"working for {stores.name_of(settings)} with {settings.jobs} jobs; Ctrl-C ends")
        while not worker.join(0.2):
            if until_idle and worker.idle and not signals.count:
                worker.finish()
    if worker.failure is not None:
        raise worker.failure
    return signals.count > 0


def serve(
    settings: Settings,
    host: str,
    port: int,
    names: Sequence[str],
    browser: bool,
    with_worker: bool,
    with_token: bool,
    quiet: bool,
    sign_in: str | None = None,
    proxies: Sequence[str] = (),
    cluster: str | None = None,
) -> None:
    """`sign_in`: the file that says where people sign in. `proxies`: who is believed about where a request comes from. `cluster`: a
    context of the kubeconfig. Raises UserError."""
    uvicorn, application, elsewhere = _needed(sign_in)
    watched = _watched(cluster, quiet) if cluster else None
    stores.prepare(settings)
    own = text = None
    if with_token:
        own, text = tokens.made(user() or "owner", "admin", time.time())
    worker = Worker(settings, _say(quiet)) if with_worker else None
    listening = _listen(host, port)
    where, bound = listening.getsockname()[:2]
    if elsewhere is not None:
        names = (*names, urlsplit(elsewhere.url).hostname or "")
    hosts = {*LOOPBACK, *(one.lower() for one in names), _bracketed(where)}
    log = None if quiet else _line
    app = application(settings, hosts, own, worker, log, __version__, elsewhere, watched)
    config = uvicorn.Config(
        app,
        log_level="warning",
        log_config=structured(),
        access_log=False,
        server_header=False,
        forwarded_allow_ips=",".join(("127.0.0.1", "::1", *proxies)),
        timeout_graceful_shutdown=10,
        lifespan="on",
    )
    server = uvicorn.Server(config)

    def stop() -> None:
        app.feeds.hang_up()
        if worker is not None:
            worker.stop()
        server.should_exit = True

    def abandon() -> None:
        if worker is not None:
            worker.abandon()
        server.force_exit = True

    shown = names[0] if names else "localhost" if where in ("127.0.0.1", "0.0.0.0") else _bracketed(where)
    address = f"http://{shown}:{bound}/" + (f"login?token={text}" if text else "")
    with _Signals(stop, abandon), listening:
        thread = threading.Thread(
            target=_announce, args=(server, address, browser, stores.name_of(settings)), daemon=True
        )
        thread.start()
        collect_garbage()
        _run(server, listening)
    if worker is not None:
        worker.join()
        if worker.failure is not None:
            raise worker.failure


def _needed(sign_in: str | None) -> tuple[Any, Any, Any]:
    """uvicorn, the application, and where people sign in. Raises UserError."""
    try:
        import uvicorn

        from penstock.server.app import Server

        if sign_in is None:
            return uvicorn, Server, None
        import joserfc  # noqa: F401

        from penstock.server.oidc.settings import read as read_sign_in
    except ImportError as error:
        fix = "pip install 'penstock[server]'"
        raise UserError(Problem("P947", f"what a server needs is not installed ({error.name})", fix)) from None
    return uvicorn, Server, read_sign_in(sign_in)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _watched(context: str, quiet: bool) -> ClusterSource:
    """Raises UserError: there is no such context."""
    try:
        import httpx2  # noqa: F401
    except ImportError as error:
        fix = "pip install 'penstock[kubernetes]'"
        raise UserError(Problem("P947", f"what reads a cluster is not installed ({error.name})", fix)) from None
    from penstock.controller.inspect.watched import WatchedCluster
    from penstock.kubernetes.client import Client
    from penstock.kubernetes.kubeconfig import connect, in_cluster
    from penstock.kubernetes.log import Log

    connection = in_cluster() if context == "in-cluster" else connect(context)
    log = Log(level="error" if quiet else "warning")
    return WatchedCluster(Client(connection, agent="penstock-serve"), connection.context, log)


def _run(server: Any, listening: socket.socket) -> None:
    """Without the signal handlers of uvicorn: ours end the worker, too."""
    import asyncio

    async def main() -> None:
        await server._serve([listening])

    asyncio.run(main())


def _announce(server: Any, address: str, browser: bool, store: str) -> None:
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.01)
    render.data(address)
    sys.stdout.flush()
    render.note(f"serving {store}; Ctrl-C ends")
    if browser:
        import webbrowser

        webbrowser.open(address)


def _listen(host: str, port: int) -> socket.socket:
    """Raises UserError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With the protocol named, asyncio sets TCP_NODELAY; otherwise each answer of two pieces waits for 40 ms.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        fix = "choose another port: --port 8081, or --port 0 for any that is free"
        raise UserError(Problem("P948", f"cannot listen at {host}:{port}: {error.strerror or error}", fix)) from None
    return found


def _line(text: str) -> None:
    render.note(text)


def _say(quiet: bool) -> Any:
    return (lambda line: None) if quiet else render.note


class _Signals:
    """SIGINT and SIGTERM: the first time `stop`, the second time `abandon`."""

    def __init__(self, stop: Any, abandon: Any) -> None:
        self._calls = [stop, abandon]
        self.count = 0

    def __enter__(self) -> None:
        self._before = {one: signal.signal(one, self._handle) for one in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        call = self._calls.pop(0) if len(self._calls) > 1 else self._calls[0]
        call()
