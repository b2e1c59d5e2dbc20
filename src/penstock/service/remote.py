"""A server of Penstock, asked over HTTP. Called by `penstock run --server` and by `Client`.

Needs nothing but Python itself. A request that is not answered is sent again, for a while: what it asks for is done once, because a
submission carries a key.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from penstock.artifacts.blobs import digest_of
from penstock.author.pack import pack
from penstock.errors import NotFound, PlanError, Problem, StoreError, UserError
from penstock.graph import codec
from penstock.graph.model import Workflow
from penstock.plan.make import uninterrupted
from penstock.service import input_files, parameters
from penstock.service.intake_terms import BLOB
from penstock.service.run_records import RunConflict
from penstock.service.tokens import NotAllowed, NotSignedIn

PATIENCE: Final = 30.0
"""Seconds for which a server may be away."""
ANSWER: Final = 60.0
"""Seconds to wait for an answer, or for the next line of a stream; a server says something every 15."""
OVER: Final = ("succeeded", "failed", "cancelled")
_KINDS: Final = {401: NotSignedIn, 403: NotAllowed, 404: NotFound, 409: RunConflict, 503: StoreError}


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
        self.base = f"{parts.scheme}://{parts.netloc}{path}"
        self._patience = patience

    # -- what is asked ------------------------------------------------------------------------------------------------

    def submit(self, workflow: Workflow, params: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Sends code and files that the server does not have, then the workflow. Raises UserError."""
        values = parameters.from_python(workflow, params)
        files: dict[str, Path] = {}
        for param in workflow.params:
            if param.name in values:
                values[param.name] = input_files.replaced(
                    param.type,
                    values[param.name],
                    lambda path, name=param.name: _sent(path, name, files),  # type: ignore[misc]
                )
        packed = pack(workflow)
        bundle = "" if packed is None else digest_of(packed[0])
        missing = self._missing([*files, *([bundle] if bundle else [])])
        for digest in missing:
            if packed is not None and digest == bundle:
                self._call("PUT", f"blobs/{digest}", packed[0])
            else:
                with open(files[digest], "rb") as file:
                    self._call("PUT", f"blobs/{digest}", file)
        with uninterrupted():
            document = codec.to_json(workflow)
        body = {
            "document": document,
            "params": values,
            "options": {name: value for name, value in options.items() if value},
            "bundle": bundle,
        }
        made: dict[str, Any] = self._json("POST", "runs", body, {"Idempotency-Key": os.urandom(16).hex()})
        return made

    def _missing(self, digests: list[str]) -> list[str]:
        found: list[str] = self._json("POST", "blobs/missing", {"digests": digests})["missing"] if digests else []
        return found

    def get(self, path: str, /, **query: Any) -> Any:
        """The JSON at a path below /api/v1. Raises UserError."""
        return self._json("GET", _with(path, query))

    def text(self, path: str, /, **query: Any) -> str:
        return self._call("GET", _with(path, query)).decode("utf-8", "replace")

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._json("POST", path, body or {})

    def fetch(self, digest: str) -> bytes:
        """Compared with its digest."""
        data = self._call("GET", f"blobs/{digest}")
        if digest_of(data) != digest:
            fix = "try again; if it stays, the server's artifacts are damaged: penstock doctor"
            raise StoreError(Problem("P945", "the bytes that came have another digest", fix))
        return data

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
                with self._open(method, path, data, headers or {}) as answer:
                    read: bytes = answer.read()
                    return read
            except StoreError as error:
                if time.monotonic() + pause > deadline or error.code == "P945":
                    raise
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() + pause > deadline:
                    raise self._away(error) from None
            time.sleep(pause)
            pause = min(2.0, 2 * pause)
            if data is not None and not isinstance(data, bytes):
                data.seek(0)

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
                raise self._refused(error.code, error.read()) from None

    def _refused(self, status: int, body: bytes) -> UserError:
        try:
            problems = [
                Problem(one["code"], one["message"], one["fix"], one.get("where", ""))
                for one in json.loads(body)["problems"]
            ]
        except (ValueError, KeyError, TypeError):
            fix = "see that it is a server of Penstock, of the same version"
            problems = [Problem("P950", f"{self.base} answered with status {status}", fix)]
        return _KINDS.get(status, UserError)(problems)

    def _away(self, error: Exception) -> StoreError:
        reason = getattr(error, "reason", error)
        fix = "see that it runs (penstock serve), and that PENSTOCK_SERVER or --server has its address"
        return StoreError(Problem("P950", f"{self.base} does not answer: {reason}", fix))


def _sent(path: Path, name: str, files: dict[str, Path]) -> Any:
    if path.is_dir():
        fix = "send an archive of it, as a file, and unpack it in a task"
        raise PlanError(Problem("P935", f"the parameter {name!r} is a folder", fix, where=f"params.{name}"))
    import hashlib

    with open(path, "rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    files[digest] = path
    return {BLOB: digest, "name": path.name}


def _with(path: str, query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urllib.parse.urlencode(given, doseq=True)}" if given else path


def _part(name: str) -> str:
    return urllib.parse.quote(name, safe="")
