"""Http steps: one request, one answer. Found by its entry point; called by engine.loop.

    response.status     200
    response.headers    by name in lower case; what is sent several times is joined by commas
    response.body       data if it is JSON, text otherwise

The step succeeds if its success_condition holds over `response` and `inputs`, or without one if the status is below 400. An
output is its `value`, an expression over the same, or without one the body; of type file, the body's very bytes. A body that
is not text is sent as JSON. Redirects are followed, proxies and certificates taken from the environment as curl would.

Each request has a thread, since a name lookup cannot be waited for otherwise. The threads hold nobody up: a request that was
stopped is over at once, and what comes of it is not looked at any more.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.values import as_text
from penstock.backends.base import Began, Context, Ended, Order
from penstock.graph import model
from penstock.graph.evaluate import evaluate, resolve
from penstock.graph.model import MISSING, Outcome, Output
from penstock.graph.stored import Stored

MOST = 32
"""Requests at the same time: they wait more than they work."""


@dataclass(slots=True, eq=False)
class Request:
    """One attempt on its way."""

    order: Order
    stopped: bool = False
    connections: list[http.client.HTTPConnection] = field(default_factory=list)

    def hang_up(self) -> None:
        for connection in self.connections:
            with suppress(OSError, AttributeError):  # not connected yet, or not any more
                connection.sock.shutdown(socket.SHUT_RDWR)


class Http:
    """A Backend."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._requests: dict[str, Request] = {}

    def room(self) -> int:
        return max(0, MOST - len(self._requests))

    def start(self, orders: Sequence[Order]) -> None:
        for order in orders:
            request = self._requests[order.id] = Request(order)
            self._context.inbox.put(Began(id=order.id))
            threading.Thread(target=self._work, args=(request,), daemon=True, name=f"http {order.id}").start()

    def stop(self, id: str, grace: float) -> None:
        request = self._requests.pop(id, None)
        if request is not None:
            request.stopped = True
            request.hang_up()
            self._context.inbox.put(Ended(id=id, outcome=Outcome.CANCELLED, message="stopped"))

    async def close(self) -> None:
        for request in self._requests.values():
            request.stopped = True
            request.hang_up()
        self._requests.clear()

    def _work(self, request: Request) -> None:
        """In the request's own thread."""
        started = perf_counter()
        ended = Ended(id=request.order.id, outcome=Outcome.SUCCEEDED)
        try:
            answer = ask(request, self._context)
            judge(request.order, answer, ended, self._context)
        except NotAnswered as error:
            ended.outcome, ended.message = Outcome.ERRORED, str(error)
        except Exception as error:  # whatever a server may do to us; nobody waits for an exception in this thread
            ended.outcome, ended.message = Outcome.ERRORED, f"{type(error).__name__}: {error}"
        ended.seconds = perf_counter() - started
        with suppress(RuntimeError):  # the loop is gone, and with it whoever would read this
            self._loop.call_soon_threadsafe(self._tell, request, ended)

    def _tell(self, request: Request, ended: Ended) -> None:
        if not request.stopped:
            del self._requests[ended.id]
            self._context.inbox.put(ended)


# -- asking -----------------------------------------------------------------------------------------------------------


class NotAnswered(Exception):
    """In a sentence for people."""


@dataclass(slots=True)
class Answer:
    status: int
    reason: str
    headers: dict[str, str]
    data: bytes
    what: str
    """What was asked, for messages: `GET http://…`, without a password."""

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
        except LookupError:  # a charset of the server's own
            return self.data.decode("utf-8", "replace")


def ask(request: Request, context: Context) -> Answer:
    """Raises NotAnswered."""
    action = request.order.action
    assert isinstance(action, model.Http)
    try:
        asked, what = _prepared(action, context)
    except (ValueError, http.client.InvalidURL) as error:
        raise NotAnswered(f"the request cannot be sent: {error}") from None
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), Plain(request), Secure(request), urllib.request.HTTPDefaultErrorHandler(),
        Redirect(), urllib.request.HTTPErrorProcessor(),
    ):  # fmt: skip
        opener.add_handler(handler)
    try:
        try:
            response: Any = opener.open(asked)
        except urllib.error.HTTPError as error:
            response = error  # an answer all the same
        with response:
            data = response.read()
            headers: dict[str, str] = {}
            for name, value in response.headers.items():
                name = name.lower()
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            return Answer(response.status, response.reason or "", headers, data, what)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotAnswered(f"{what}: {_why(error, asked.host)}") from None


def _prepared(action: model.Http, context: Context) -> tuple[urllib.request.Request, str]:
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


class Plain(urllib.request.HTTPHandler):
    """Remembers its connections, so that they can be closed from outside."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(host, **options)
        self._request.connections.append(connection)
        return connection


class Secure(urllib.request.HTTPSHandler):
    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPSConnection(host, **options)
        self._request.connections.append(connection)
        return connection


class Redirect(urllib.request.HTTPRedirectHandler):
    """A password is for the host that it was meant for."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and found.host != req.host:
            for name in ("Authorization", "Cookie"):
                found.remove_header(name)
        return found


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


# -- what came of it --------------------------------------------------------------------------------------------------


def judge(order: Order, answer: Answer, ended: Ended, context: Context) -> None:
    """Success or not, and the outputs."""
    action = order.action
    assert isinstance(action, model.Http)
    scope = {
        "response": answer.as_data(),
        "inputs": {name: _seen(value, context) for name, value in order.inputs.items()},
    }
    try:
        good = answer.status < 400
        if action.success_condition is not None:
            found = evaluate(action.success_condition, scope)
            if not isinstance(found, bool):
                raise ValueError(f"its success condition is {found!r}, which is neither true nor false")
            good = found
        if not good:
            raise ValueError(f"{answer.what} answered {_brief(answer)}")
        ended.outputs = {output.name: _output(output, answer, scope, context) for output in order.step.outputs}
    except ValueError as error:
        ended.outcome, ended.message = Outcome.FAILED, str(error)


def _seen(value: Any, context: Context) -> Any:
    if isinstance(value, Stored) and value.kind == "json":
        return values.load(value, context.blobs, context.home / "work")
    return value


def _output(output: Output, answer: Answer, scope: Mapping[str, Any], context: Context) -> Any:
    name = f"the output {output.name!r}"
    if output.value is not MISSING:
        try:
            value = resolve(output.value, scope)
        except ValueError as error:
            raise ValueError(f"{name} of {answer.what}: {error}") from None
    elif output.type.name == "file":
        return Stored("file", context.blobs.put(answer.data), len(answer.data), output.name)
    else:
        value = answer.text() if output.type.name == "str" else scope["response"]["body"]
    return values.shelve(value, context.blobs, type_=output.type, name=name)


def _brief(answer: Answer) -> str:
    text = " ".join(answer.text().split())
    said = f": {text if len(text) <= 200 else text[:199] + '…'}" if text else ""
    return f"{answer.status} {answer.reason}".strip() + said
