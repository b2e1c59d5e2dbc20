"""What it takes to deliver callbacks: 1,000 that are due, to a receiver on this machine that fails at first for every twentieth, beside a bare client
that sends as many. Called by __main__.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, best
from penstock.service import stores
from penstock.service.callbacks.delivery import CallbackDelivery
from penstock.service.outbox.courier import Courier
from penstock.settings import Settings, read
from penstock.store.sql import Store
from tests.integrator.office import Office, workflow

MANY = 1000
RECEIVER = """
import http.server
seen = set()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        key = self.headers.get("idempotency-key", "")
        first = (self.path, key) not in seen
        seen.add((self.path, key))
        fails = first and key[:1] in "0" and key[1:2] in "0123456789abc"
        self.send_response(503 if fails else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def figures() -> Iterator[Figure]:
    receiver = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    port = int(receiver.stdout.readline())
    try:
        bare = best(lambda: _bare(port))
        seconds = min(_delivered(f"http://127.0.0.1:{port}/{number}") for number in range(3))
        yield Figure(f"{MANY:,} callbacks delivered, with retries", seconds, 2.0, "s", bare, "bare client")
    finally:
        receiver.kill()
        receiver.wait()
        receiver.stdout.close()


def _bare(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in range(MANY):
        connection.request("POST", "/", json.dumps({"n": number}), {"Idempotency-Key": "x"})
        connection.getresponse().read()
    connection.close()


def _delivered(url: str) -> float:
    """Seconds until each is recorded as done: the items of one run, which are expanded before."""
    with tempfile.TemporaryDirectory() as folder:
        settings = read({"PENSTOCK_CALLBACK_HOSTS": "127.0.0.1"}, home=Path(folder) / ".penstock", jobs=1)
        with stores.open_or_create(settings) as store:
            return _worked_through(settings, store, url)


def _worked_through(settings: Settings, store: Store, url: str) -> float:
    asked = {"name": "tell", "url": url, "items": "${{ outputs.n }}"}
    asked |= {"retry": {"attempts": 5, "initial": 0.1, "factor": 2, "longest": 1}}
    office = Office(settings, store)
    office.now = time.time()
    run = office.ended(workflow([asked]), {"n": list(range(MANY))})
    courier = Courier(settings, CallbackDelivery(settings))
    (parent,) = office.store.outbox.take("callback", courier._me, office.now, 1)
    courier.delivery.deliver(store, [parent])
    began = time.perf_counter()
    while store.deliveries.left(run.number, "callback")[0]:
        if not courier.round(store):
            time.sleep(0.005)
    seconds = time.perf_counter() - began
    rows = office.rows(run)
    assert len(rows) == MANY + 1 and all(row.state == "done" for row in rows)
    assert any(row.attempts > 1 for row in rows)
    return seconds
