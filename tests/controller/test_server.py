"""The webhook server by real HTTPS, and the pages by HTTP."""

from __future__ import annotations

import datetime
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from penstock.controller.cluster.certificates import Material, renewed
from penstock.controller.cluster.metrics import Metrics
from penstock.controller.cluster.server import Listening, health_server, tls_context, webhook_server
from penstock.kubernetes.log import Log
from tests.controller.fake_api import wait_for
from tests.support.speed import slowness

HOSTS = ("127.0.0.1",)


def material() -> Material:
    made = renewed(None, HOSTS, datetime.datetime.now(datetime.UTC))
    assert made is not None
    return made


def trusting(made: Material, **given: Any) -> httpx2.Client:
    return httpx2.Client(verify=ssl.create_default_context(cadata=made.ca.decode()), trust_env=False, **given)


class Hooks:
    def __init__(self) -> None:
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.material = material()
        self.server: Listening = webhook_server(
            "127.0.0.1", 0, {"/ask": self.ask, "/fail": self.fail}, Log(self.log), self.metrics
        )
        self.server.use(tls_context(self.material))
        self.server.start()
        self.url = f"https://127.0.0.1:{self.server.port}"

    def ask(self, request: Any) -> dict[str, Any]:
        return {"allowed": request["name"] != "bad", "warnings": [request["name"]]}

    def fail(self, request: Any) -> dict[str, Any]:
        raise KeyError("oh")


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    made = Hooks()
    yield made
    made.server.stop()


def review(name: str = "good") -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": f"u-{name}", "name": name},
    }


def test_a_review_is_answered_with_its_uid(hooks: Hooks) -> None:
    with trusting(hooks.material) as http:
        said = http.post(f"{hooks.url}/ask?timeout=5s", json=review()).json()
        assert said["apiVersion"] == "admission.k8s.io/v1"
        assert said["response"] == {"allowed": True, "warnings": ["good"], "uid": "u-good"}
        assert not http.post(f"{hooks.url}/ask", json=review("bad")).json()["response"]["allowed"]
    told = 'penstock_webhook_requests_total{answer="denied",path="/ask"} 1.0'
    wait_for(lambda: told in hooks.metrics.text().decode())  # counted after the answer


def test_what_is_no_review_is_refused_and_a_fault_of_ours_is_a_500(hooks: Hooks) -> None:
    with trusting(hooks.material) as http:
        for body in ("", "nonsense", "[]", '{"request": 3}', "{}"):
            assert http.post(f"{hooks.url}/ask", content=body).status_code == 400
        assert http.post(f"{hooks.url}/other", json=review()).status_code == 404
        assert http.get(f"{hooks.url}/ask").status_code == 405
        assert http.post(f"{hooks.url}/fail", json=review()).status_code == 500
        assert http.post(f"{hooks.url}/ask", json=review()).status_code == 200
        assert http.post(f"{hooks.url}/ask", content=iter([b"x"])).status_code == 411
    line = json.loads(hooks.log.getvalue().splitlines()[0])
    assert (line["msg"], line["object"]) == ("webhook failed", "good")


def test_a_connection_is_kept_and_quick(hooks: Hooks) -> None:
    """Eight connections as the API server has them. Each request must take milliseconds: no handshake, no delayed packets."""
    with trusting(hooks.material, limits=httpx2.Limits(max_connections=8)) as http, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: http.post(f"{hooks.url}/ask", json=review()), range(16)))
        began = time.monotonic()
        answers = list(pool.map(lambda _: http.post(f"{hooks.url}/ask", json=review()), range(400)))
        seconds = time.monotonic() - began
    assert all(answer.json()["response"]["allowed"] for answer in answers)
    assert seconds < 2.0 * slowness()  # a delayed acknowledgement alone would be 40 ms for each
    assert len([thread for thread in threading.enumerate() if "process_request" in thread.name]) <= 16


def test_a_new_certificate_is_used_without_a_restart(hooks: Hooks) -> None:
    new = material()
    with trusting(hooks.material) as old_http, trusting(new) as new_http:
        old_http.post(f"{hooks.url}/ask", json=review())
        with pytest.raises(httpx2.ConnectError):
            new_http.post(f"{hooks.url}/ask", json=review())
        hooks.server.use(tls_context(new))
        assert new_http.post(f"{hooks.url}/ask", json=review()).status_code == 200
        assert old_http.post(f"{hooks.url}/ask", json=review()).status_code == 200  # its connection is open still


def test_one_who_says_nothing_holds_up_nobody(hooks: Hooks) -> None:
    silent = [socket.create_connection(("127.0.0.1", hooks.server.port)) for _ in range(5)]
    with trusting(hooks.material, timeout=5) as http:
        assert http.post(f"{hooks.url}/ask", json=review()).status_code == 200
    silent[0].sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
    for one in silent:
        one.close()


def test_pages() -> None:
    log = io.StringIO()

    def fail() -> tuple[int, str, bytes]:
        raise ValueError("oh")

    server = health_server("127.0.0.1", 0, {"/ok": lambda: (200, "text/plain", b"yes\n"), "/fail": fail}, Log(log))
    server.start()
    with httpx2.Client(trust_env=False, base_url=f"http://127.0.0.1:{server.port}") as http:
        assert http.get("/ok?verbose").text == "yes\n"
        assert http.head("/ok").headers["content-length"] == "4"
        assert http.get("/fail").status_code == 500
        assert http.get("/none").status_code == 404
    server.stop()
    assert "ValueError" in log.getvalue()
