"""Counts requests for the metrics, and writes the log: one line of JSON for each. Put around the app by app."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SECRET: Final = ("/callbacks/",)
"""Paths of which the rest is a token."""
Rows = list[tuple[str, str, str, list[tuple[str, float]]]]


class Counted:
    def __init__(self, log: Callable[[str], None] | None) -> None:
        self._log = log
        self._requests: Counter[tuple[str, int]] = Counter()
        self._took = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self._open = 0

    def around(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began, status, seconds = time.perf_counter(), 500, None

            async def sending(message: Message) -> None:
                nonlocal status, seconds
                if message["type"] == "http.response.start":
                    status, seconds = message["status"], time.perf_counter() - began
                await send(message)

            self._open += 1
            try:
                await app(scope, receive, sending)
            finally:
                self._open -= 1
                # A stream lasts as long as somebody listens: what counts is when its answer began.
                self._note(scope, status, time.perf_counter() - began if seconds is None else seconds)

        return counted

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        self._requests[scope["method"], status] += 1
        self._seconds += seconds
        self._took[bisect_left(BUCKETS, seconds)] += 1
        if self._log is not None:
            who = scope.get("state", {}).get("who")
            line: dict[str, Any] = {
                "at": round(time.time(), 3),
                "method": scope["method"],
                "path": _shown(scope["path"]),
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
            ("penstock_http_open", "gauge", "Requests that are being answered, streams among them", [("", self._open)]),
            ("penstock_http_seconds", "histogram", "Seconds until an answer began", self._histogram()),
        ]

    def _histogram(self) -> list[tuple[str, float]]:
        rows, many = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._took, strict=True):
            many += count
            rows.append((f'_bucket{{le="{bound}"}}', float(many)))
        return [*rows, ("_sum", round(self._seconds, 3)), ("_count", float(many))]


def _shown(path: str) -> str:
    return next((f"{start}***" for start in _SECRET if path.startswith(start)), path)
