"""One HTTP request and its answer. Called by http, in a thread of the request.

Redirects to http and https are followed, at most ten; one that is not followed is a failure. Headers whose name says that they are a
secret do not follow to another place (scheme, host or port). Proxies and certificates are taken from the environment, as curl does.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.artifacts.regular import NotTaken, check_size
from penstock.artifacts.values import as_text
from penstock.backends.base import BackendContext
from penstock.graph import model

_CHUNK = 1024 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SECRET = re.compile(
    r"auth|cookie|key|token|secret|passw|credential|session|signature|\bsig\b|jwt|csrf|xsrf|access|private|x-amz-", re.I
)
"""In the name of a header that is meant for one server alone: Authorization, Cookie, X-Api-Key, PRIVATE-TOKEN …"""


@dataclass(slots=True)
class Connections:
    """The connections of one request."""

    open: list[http.client.HTTPConnection] = field(default_factory=list)

    def close(self) -> None:
        """Ends a request that waits, from another thread."""
        for connection in self.open:
            with suppress(OSError, AttributeError):  # not connected
                connection.sock.shutdown(socket.SHUT_RDWR)


class NotAnswered(Exception):
    """There is no answer. The message is a sentence."""


@dataclass(slots=True)
class HttpAnswer:
    status: int
    reason: str
    headers: dict[str, str]
    data: bytes
    what: str
    """The request, for messages: `GET http://…`, without a password."""
    unfollowed: str = ""
    """Why its redirect was not followed, if it is one."""

    def as_data(self) -> dict[str, Any]:
        return {"status": self.status, "headers": self.headers, "body": self.body()}

    def body(self) -> Any:
        text = self.text()
        kind = self.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind.endswith(("/json", "+json")) or not kind.startswith(("text/html", "text/xml", "application/xml")):
            with suppress(ValueError, RecursionError):
                return json.loads(text)
        return text

    def text(self) -> str:
        charset = http.client.HTTPMessage()
        charset["content-type"] = self.headers.get("content-type", "text/plain")
        try:
            return self.data.decode(charset.get_content_charset() or "utf-8", "replace")
        except LookupError:  # a charset that Python does not know
            return self.data.decode("utf-8", "replace")


def send(action: model.Http, connections: Connections, context: BackendContext) -> HttpAnswer:
    """Waits for the answer. Raises NotAnswered, and NotTaken if it is too long."""
    try:
        asked, what = _prepared(action, context)
    except (ValueError, http.client.InvalidURL) as error:
        raise NotAnswered(f"the request cannot be sent: {error}") from None
    opener = urllib.request.OpenerDirector()
    handlers = (
        urllib.request.ProxyHandler(),
        TrackedHttp(connections),
        TrackedHttps(connections),
        urllib.request.HTTPDefaultErrorHandler(),
        SafeRedirect(),
        urllib.request.HTTPErrorProcessor(),
    )
    for handler in handlers:
        opener.add_handler(handler)
    try:
        try:
            response: Any = opener.open(asked)
        except urllib.error.HTTPError as error:
            response = error  # this is an answer too
        with response:
            data = _read(response, what, context.blobs.limits.value)
            headers: dict[str, str] = {}
            for name, value in response.headers.items():
                name = name.lower()
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            unfollowed = _unfollowed(response, action.method.upper()) if response.status in _REDIRECTS else ""
            reason = (
                http.client.responses.get(response.status, response.reason or "") if unfollowed else response.reason
            )
            return HttpAnswer(response.status, reason or "", headers, data, what, unfollowed)
    except NotTaken:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotAnswered(f"{what}: {_why(error, asked.host)}") from None


def _read(response: Any, what: str, limit: int) -> bytes:
    """The body. Raises NotTaken if it is too long, as soon as that is known."""
    said = response.headers.get("content-length", "")
    size = int(said) if said.isdecimal() else 0
    pieces: list[bytes] = []
    check_size(f"the answer to {what}", size, limit, "PENSTOCK_LARGEST_VALUE")
    size = 0
    while piece := response.read(_CHUNK):
        size += len(piece)
        check_size(f"the answer to {what}", size, limit, "PENSTOCK_LARGEST_VALUE")
        pieces.append(piece)
    source: Any = response.fp if isinstance(response, urllib.error.HTTPError) else response
    if getattr(source, "length", None):  # what is still to come
        raise http.client.IncompleteRead(b"", source.length)
    return b"".join(pieces)


def _unfollowed(response: Any, method: str) -> str:
    """Why the redirect was not followed."""
    place = response.headers.get("location") or response.headers.get("uri")
    if not place:
        return "it does not say where to"
    to = urllib.parse.urljoin(response.geturl(), place)
    parts = urllib.parse.urlsplit(to)
    shown = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if parts.scheme not in ("http", "https"):
        return f"{shown} is neither http nor https"
    if method not in ("GET", "HEAD") and (response.status in (307, 308) or method != "POST"):
        return f"a {method} request is not sent again, to {shown}"
    return f"it leads in a circle, or through more than {SafeRedirect.max_redirections} places; the next is {shown}"


def _prepared(action: model.Http, context: BackendContext) -> tuple[urllib.request.Request, str]:
    url = as_text(action.url, context.blobs).strip()
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL of the form http://host/… or https://host/…")
    headers = {name: as_text(value, context.blobs) for name, value in action.headers.items()}
    known = {name.lower() for name in headers}
    if parts.username is not None and "authorization" not in known:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")
    shown = urllib.parse.urlunsplit(plain)
    data = None
    if action.body is not None:
        data = as_text(action.body, context.blobs).encode()
        if "content-type" not in known:
            kind = "text/plain; charset=utf-8" if isinstance(action.body, str) else "application/json"
            headers["Content-Type"] = kind
    if "user-agent" not in known:
        headers["User-Agent"] = "penstock"
    path = urllib.parse.quote(plain.path, safe="/%:@!$&'()*+,;=~-._")
    query = urllib.parse.quote(plain.query, safe="/?%:@!$&'()*+,;=~-._[]")
    sent = urllib.parse.urlunsplit(plain._replace(path=path, query=query))
    return urllib.request.Request(sent, data, headers, method=action.method.upper()), f"{action.method.upper()} {shown}"


class TrackedHttp(urllib.request.HTTPHandler):
    """Registers its connections, so that they can be closed from outside."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(host, **options)
        self._connections.open.append(connection)
        return connection


class TrackedHttps(urllib.request.HTTPSHandler):
    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPSConnection(host, **options)
        self._connections.open.append(connection)
        return connection


class SafeRedirect(urllib.request.HTTPRedirectHandler):
    """Sends nothing that could be a password, key or cookie to another place."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            raise urllib.error.HTTPError(req.full_url, code, msg, headers, fp)
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and _origin(found.full_url) != _origin(req.full_url):  # not its host: that may be a proxy
            for name in [name for name, _ in found.header_items() if _SECRET.search(name)]:
                found.remove_header(name)
        return found


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _why(error: BaseException, host: str) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ConnectionRefusedError):
        return f"nobody listens at {host}"
    if isinstance(reason, socket.gaierror):
        return f"there is no host {host} ({reason.strerror})"
    if isinstance(reason, http.client.RemoteDisconnected | ConnectionResetError | http.client.IncompleteRead):
        return "the server closed the connection before its answer was complete"
    if isinstance(reason, http.client.BadStatusLine | http.client.LineTooLong):
        return "what answers there does not speak HTTP"
    return str(reason) or type(reason).__name__
