"""A place for Argo's artifacts: a web server on 127.0.0.1 that keeps what is PUT and gives it back on GET. Started as a process by
components/argo.py when a real node is up; uses the standard library only.

Argo has no artifact repository that is just a folder. The simplest of those it knows speaks plain HTTP with a name and a password
(artifactory), and this is the other end of it. Names in the store are the keys that Argo makes: WORKFLOW/POD/ARTIFACT.tgz.

    python argo_store.py FOLDER PORT USER PASSWORD
"""

from __future__ import annotations

import base64
import os
import shutil
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit


class Store(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, port: int, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", port), Keeper)
        self.folder = folder
        self.expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Keeper(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_PUT(self) -> None:
        place = self._place()
        if place is None:
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        half = place.with_name(f".{place.name}.{os.getpid()}.{id(self)}")
        with half.open("wb") as file:
            _receive(self.rfile, file, self.headers.get("Content-Length"))
        half.replace(place)
        self._answer(201)

    def do_GET(self) -> None:
        place = self._place()
        if place is None:
            return
        if not place.is_file():
            self._answer(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(place.stat().st_size))
        self.end_headers()
        with place.open("rb") as file:
            shutil.copyfileobj(file, self.wfile)

    def _place(self) -> Path | None:
        """Where in the folder the address leads; None, and an answer, if nowhere."""
        if self.headers.get("Authorization") != self.server.expected:
            self._answer(401)
            return None
        found = (self.server.folder / unquote(urlsplit(self.path).path).lstrip("/")).resolve()
        if not found.is_relative_to(self.server.folder) or found == self.server.folder:
            self._answer(400)
            return None
        return found

    def _answer(self, code: int) -> None:
        # What was sent and not read would be taken for the next request.
        self.close_connection = self.close_connection or code >= 400
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _receive(source: IO[bytes] | BufferedIOBase, target: IO[bytes], length: str | None) -> None:
    """A body of known length, or one that comes in chunks, as Go sends what it does not know the length of."""
    if length is not None:
        left = int(length)
        while left > 0 and (data := source.read(min(left, 65536))):
            target.write(data)
            left -= len(data)
        return
    while size := int(source.readline().split(b";")[0] or b"0", 16):
        target.write(source.read(size))
        source.readline()
    source.readline()


def main() -> None:
    folder, port, user, password = sys.argv[1:5]
    Path(folder).mkdir(parents=True, exist_ok=True)
    Store(Path(folder).resolve(), int(port), user, password).serve_forever()


if __name__ == "__main__":
    main()
