"""Model serving: start the new model beside the old one, measure both, promote or roll back.

penstock run examples/serving.py -p slowest=0.000001    # too strict for any model: rolled back
"""

import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from penstock import task, workflow


@task(cpu=1, timeout="2m", retry=1, cache=False)
def probe(model: str, requests: int) -> dict[str, float]:
    """Serve the model on a free port of this machine and ask it; the median time of an answer, and how many were right."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"cat" if model != "broken" else b"dog")

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    times, right = [], 0
    for _ in range(requests):
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=10) as answer:
            right += answer.read() == b"cat"
        times.append(time.perf_counter() - began)
    server.shutdown()
    return {"median": sorted(times)[requests // 2], "right": right / requests}


@task
def promote(model: str) -> str:
    return f"{model} serves all requests"


@task
def roll_back(model: str) -> str:
    return f"{model} is withdrawn"


@workflow
def serving(old: str = "v1", new: str = "v2", slowest: float = 1.0):
    before = probe(old, 20)
    after = probe(new, 20)
    if after["right"] >= before["right"] and after["median"] < slowest:
        message = promote(new)
    else:
        message = roll_back(new)
    return message
