"""A server of Penstock, asked over HTTP. Called by `remote_store`, by `remote` and by `Client`.

Needs nothing but Python itself. A request that is not answered is sent again, for a while: what it asks for is done once, because a
submission carries a key.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, Literal

from penstock.artifacts.blobs import digest_of
from penstock.errors import (
    NotAllowed,
    NotFound,
    NotSignedIn,
    PlanError,
    Problem,
    RunConflict,
    Source,
    StoreError,
    UserError,
)

PATIENCE: Final = 30.0
"""Seconds for which a server may be away."""
ANSWER: Final = 60.0
"""Seconds to wait for an answer, or for the next line of a stream; a server says something every 15."""
OVER: Final = ("succeeded", "failed", "cancelled")
_KINDS: Final = {401: NotSignedIn, 403: NotAllowed, 404: NotFound, 409: RunConflict, 503: StoreError}


class _Line(threading.local):
    line: http.client.HTTPConnection | None = None


class Busy(UserError):
    """The server asks to come again after so many seconds."""

    def __init__(self, problems: list[Problem], seconds: float) -> None:
        self.seconds = seconds
        super().__init__(problems)


class ServerConnection:
    """`url`: as `penstock serve` prints it; a token in it is taken."""

    def __init__(self, url: str, token: str = "", patience: float = PATIENCE) -> None:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            fix = "give the address of a server: http://localhost:8080, or PENSTOCK_SERVER"
            raise PlanError(Problem("P949", f"{url[:100]!r} is not the address of a server", fix))
        given = urllib.parse.parse_qs(parts.query).get("token", [""])[0]
        self.token = token or given or os.environ.get("PENSTOCK_TOKEN", "")
        path = parts.path.removesuffix("login").rstrip("/")
        self._path = path
        self.base = f"{parts.scheme}://{parts.netloc}{path}"
        self.address = f"{self.base}/login?{urllib.parse.urlencode({'token': self.token})}" if self.token else self.base
        """With the token, for settings."""
        self._patience = patience
        self._proxied = parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.hostname)
        self._lines = _Line()
        """The line to the server, for each thread: a TLS handshake for each request would take longer than the answer."""
        self._opened: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _hang_up, self._opened)

    # -- what is asked ------------------------------------------------------------------------------------------------

    def missing(self, digests: list[str]) -> list[str]:
        """Which of these the server does not have."""
        found: list[str] = self._json("POST", "blobs/missing", {"digests": digests})["missing"] if digests else []
        return found

    def get(self, path: str, /, **query: Any) -> Any:
        """The JSON at a path below /api/v1. Raises UserError."""
        return self._json("GET", _with(path, query))

    def text(self, path: str, /, **query: Any) -> str:
        return self._call("GET", _with(path, query)).decode("utf-8", "replace")

    def post(self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Any:
        return self._json("POST", path, body or {}, headers)

    def put_blob(self, digest: str, data: bytes | IO[bytes]) -> None:
        self._call("PUT", f"blobs/{digest}", data)

    def delete(self, path: str, /, **query: Any) -> Any:
        return self._json("DELETE", _with(path, query))

    def fetch(self, digest: str) -> bytes:
        """Compared with its digest."""
        data = self._call("GET", f"blobs/{digest}")
        if digest_of(data) != digest:
            raise _harmed()
        return data

    def fetch_to(self, digest: str, place: Path) -> None:
        """The same, into a file, which may be larger than memory. What was not whole is removed."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                with self._open("GET", f"blobs/{digest}", None, {}) as answer, open(place, "wb") as file:
                    shutil.copyfileobj(answer, file, 2**20)
                break
            except (OSError, http.client.HTTPException) as error:
                place.unlink(missing_ok=True)
                if time.monotonic() > deadline or isinstance(error, PermissionError | IsADirectoryError):
                    raise self._away(error) from None
                time.sleep(0.5)
        if digest_of_file(place) != digest:
            place.unlink(missing_ok=True)
            raise _harmed()

    def news(self) -> Iterator[bool]:
        """True: something was written on the server. Ends when the stream does, or breaks. Raises UserError."""
        try:
            with self._open("GET", "stream", None, {}) as stream:
                yield True
                for line in stream:
                    if line.startswith((b"data:", b":")):
                        yield line.startswith(b"data:")
        except (OSError, http.client.HTTPException):
            return

    def follow(self, run: str, after: int = 0) -> Iterator[dict[str, Any] | None]:
        """The events of a run after a number, each once, in order, until it is over. None: nothing happened for a while. Goes on where it
        was when the server was away, as long as that is for less than the patience."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                with self._open("GET", f"runs/{_part(run)}/stream?after={after}", None, {}) as stream:
                    kind = ""
                    for line in stream:
                        deadline = time.monotonic() + self._patience
                        text = line.decode("utf-8", "replace").rstrip("\n")
                        if text.startswith("event: "):
                            kind = text[7:]
                        elif text.startswith("data: ") and not kind:
                            event = json.loads(text[6:])
                            after = event["seq"]
                            yield event
                        elif text.startswith(":"):
                            yield None
                        elif not text and kind == "over":
                            return
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > deadline:
                    raise self._away(error) from None
            except (Busy, StoreError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)
            yield None

    # -- one request --------------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        answer = self._call(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        return json.loads(answer) if answer else None

    def _call(
        self, method: str, path: str, data: bytes | IO[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        deadline, pause = time.monotonic() + self._patience, 0.1
        while True:
            try:
                if self._proxied or not (data is None or isinstance(data, bytes)):
                    with self._open(method, path, data, headers or {}) as answer:
                        read: bytes = answer.read()
                        return read
                return self._asked(method, path, data, headers or {})
            except StoreError as error:
                if time.monotonic() + pause > deadline or error.code == "P945":
                    raise
            except Busy as busy:
                if time.monotonic() + busy.seconds > deadline:
                    raise
                pause = max(pause, busy.seconds)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() + pause > deadline:
                    raise self._away(error) from None
            time.sleep(pause)
            pause = min(2.0, 2 * pause)
            if data is not None and not isinstance(data, bytes):
                data.seek(0)

    def _asked(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> bytes:
        """Over the line that this thread has. One that the server has closed meanwhile is opened again."""
        given = {"Accept": "application/json, text/plain", "Accept-Encoding": "gzip", **headers}
        if self.token:
            given["Authorization"] = f"Bearer {self.token}"
        before = self._lines.line
        for line in (before, None) if before is not None else (None,):
            line = line or self._line()
            try:
                line.request(method, f"{self._path}/api/v1/{path}", data, given)
                answer = line.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                self._drop(line)
                if line is before:
                    continue
                raise
            self._lines.line = line
            if answer.getheader("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if (
                answer.status >= 300 and answer.status != 303
            ):  # what was asked for is there already, and this says where
                raise self._refused(answer.status, body, answer.getheader("Retry-After"))
            return body
        raise AssertionError("unreachable")

    def _line(self) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.base)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        line = kind(parts.netloc, timeout=ANSWER)
        self._opened.append(line)
        return line

    def _drop(self, line: http.client.HTTPConnection) -> None:
        line.close()
        self._opened.remove(line)
        self._lines.line = None

    def _open(self, method: str, path: str, data: Any, headers: Mapping[str, str]) -> Any:
        """Raises UserError for what the server refuses, OSError if it is away."""
        request = urllib.request.Request(f"{self.base}/api/v1/{path}", data, dict(headers), method=method)
        request.add_header("Accept", "application/json, text/plain, text/event-stream")
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if data is not None and not isinstance(data, bytes):
            request.add_header("Content-Length", str(os.fstat(data.fileno()).st_size))
        try:
            return urllib.request.urlopen(request, timeout=ANSWER)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(), error.headers.get("Retry-After")) from None

    def _refused(self, status: int, body: bytes, later: str | None) -> UserError:
        try:
            problems = [problem_in(one) for one in json.loads(body)["problems"]]
        except (ValueError, KeyError, TypeError):
            fix = "see that it is a server of Penstock, of the same version"
            problems = [Problem("P950", f"{self.base} answered with status {status}", fix)]
        if status == 429 and later is not None and later.isdecimal():
            return Busy(problems, float(later))
        return _KINDS.get(status, UserError)(problems)

    def _away(self, error: Exception) -> StoreError:
        reason = getattr(error, "reason", error)
        fix = "see that it runs (penstock serve), and that PENSTOCK_SERVER or --server has its address"
        return StoreError(Problem("P950", f"{self.base} does not answer: {reason}", fix))


def problem_in(data: Mapping[str, Any]) -> Problem:
    """As a server sends it. Raises KeyError, TypeError."""
    source = Source(data["file"], int(data["line"]), int(data["column"])) if "file" in data else None
    severity: Literal["error", "warning"] = "warning" if data.get("severity") == "warning" else "error"
    return Problem(
        str(data["code"]),
        str(data["message"]),
        str(data["fix"]),
        where=str(data.get("where", "")),
        source=source,
        excerpt=str(data.get("excerpt", "")),
        severity=severity,
    )


def _hang_up(lines: list[http.client.HTTPConnection]) -> None:
    for line in lines:
        line.close()


def _harmed() -> StoreError:
    fix = "try again; if it stays, the server's artifacts are damaged: penstock doctor"
    return StoreError(Problem("P945", "the bytes that came have another digest", fix))


def digest_of_file(path: Path) -> str:
    import hashlib

    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _with(path: str, query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urllib.parse.urlencode(given, doseq=True)}" if given else path


def _part(name: str) -> str:
    return urllib.parse.quote(name, safe="")
