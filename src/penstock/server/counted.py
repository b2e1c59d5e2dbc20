"""Counts requests for the metrics, and writes the log: one line of JSON for each. Put around the app by app."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Rows = list[tuple[str, str, str, list[tuple[str, float]]]]


class Counted:
    def __init__(self, log: Callable[[str], None] | None) -> None:
        self._log = log
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds = 0.0

    def around(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began, status = time.perf_counter(), 500

            async def sending(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, sending)
            finally:
                self._note(scope, status, time.perf_counter() - began)

        return counted

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        self._requests[scope["method"], status] += 1
        self._seconds += seconds
        if self._log is not None:
            who = scope.get("state", {}).get("who")
            line: dict[str, Any] = {
                "at": round(time.time(), 3),
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(seconds * 1000, 1),
                "person": "" if who is None else who.person,
            }
            self._log(json.dumps(line))

    def rows(self) -> Rows:
        samples = [
            (f'method="{method}",status="{status}"', float(many))
            for (method, status), many in sorted(self._requests.items())
        ]
        return [
            ("penstock_http_requests_total", "counter", "Requests that were answered", samples),
            ("penstock_http_seconds_total", "counter", "Seconds that answers took", [("", round(self._seconds, 3))]),
        ]
