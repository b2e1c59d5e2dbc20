"""One request of a callback, over the network. Called by delivery, in its threads.

A name is looked up here, each of its addresses is shown to the guard, and the connection goes to an address that the guard has let pass, not to
the name: whoever answers for the name cannot lead it elsewhere. That holds for every redirect, too. Proxies of the environment are not
used: they would look up the name once more. Receivers are not trusted: everything has one time limit, also what comes byte by byte, and of an
answer only so much is read.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from penstock.graph.check.callbacks import url_problem
from penstock.service.callbacks.answers import ReceiverAnswer
from penstock.service.callbacks.guard import AddressGuard
from penstock.service.callbacks.render import SealedRequest

LARGEST: Final = 64 * 1024
"""Bytes of an answer that are read."""
DRAIN: Final = 1.0
"""Seconds to wait for the rest of an answer that no rule reads."""
MOST_HOPS: Final = 3
IDLE: Final = 5.0
"""Seconds after which a connection is not used again."""
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD: Final = frozenset({307, 308})
Lookup = Callable[..., Any]


class NotSent(Exception):
    """There is no answer. The message is a sentence. `fatal`: nor will there be one later."""

    def __init__(self, message: str, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


class ReceiverOrigin(NamedTuple):
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        usual = {"http": 80, "https": 443}[self.scheme] == self.port
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if usual else f":{self.port}")


def origin_of(url: str) -> ReceiverOrigin:
    parts = urlsplit(url)
    return ReceiverOrigin(
        parts.scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}[parts.scheme]
    )


class CallbackSender:
    """`look_up`, `clock`: for tests. Used by any number of threads."""

    def __init__(
        self, guard: AddressGuard, look_up: Lookup = socket.getaddrinfo, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._guard = guard
        self._look_up = look_up
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: dict[ReceiverOrigin, list[tuple[float, _Line]]] = defaultdict(list)
        self._keeps = False
        self._tls: ssl.SSLContext | None = None

    def keep(self) -> None:
        """Until `close`, connections are used again."""
        with self._lock:
            self._keeps = True

    def send(self, request: SealedRequest, timeout: float, whole: bool = False) -> ReceiverAnswer:
        """`whole`: the body of the answer matters. Raises NotSent."""
        deadline = self._clock() + timeout
        url, headers = request.url, {**request.headers, **request.own}
        for hop in range(MOST_HOPS + 1):
            answer = self._once(request, url, headers, deadline, whole)
            place = answer.headers.get("location", "") if answer.status in _MOVED else ""
            if not place or (answer.status not in _KEEPS_METHOD and request.method != "GET"):
                return answer
            before, url = origin_of(url), self._moved(url, place, request)
            if origin_of(url) != before:
                headers = dict(request.headers)
            if hop == MOST_HOPS:
                raise NotSent(f"it was sent on more than {MOST_HOPS} times, at last to {shown(url)}", fatal=True)
        raise AssertionError("unreachable")

    def close(self) -> None:
        with self._lock:
            self._keeps = False
            lines = [line for idle in self._idle.values() for _, line in idle]
            self._idle.clear()
        for line in lines:
            line.close()

    def _moved(self, url: str, place: str, request: SealedRequest) -> str:
        """Where a redirect leads. Raises NotSent."""
        to = urljoin(url, place)
        if wrong := url_problem(to):
            raise NotSent(f"it was sent on: {wrong}", fatal=True)
        before, after = origin_of(url), origin_of(to)
        if before.scheme == "https" and after.scheme == "http":
            raise NotSent(f"it was sent on from https to {after}, which anybody could read", fatal=True)
        if before != after and request.private:
            raise NotSent(f"it was sent on to {after}, and its body holds a secret", fatal=True)
        return to

    def _once(
        self, request: SealedRequest, url: str, headers: dict[str, str], deadline: float, whole: bool
    ) -> ReceiverAnswer:
        origin = origin_of(url)
        line = self._kept(origin)
        if line is not None:
            try:
                return self._ask(line, origin, request, url, headers, deadline, whole)
            except (http.client.RemoteDisconnected, ConnectionError):
                line.close()  # it was closed there meanwhile; the same request, with the same key, on a new one
            except (OSError, http.client.HTTPException, ValueError) as error:
                line.close()
                raise _not_answered(error, origin) from None
        line = self._connected(origin, deadline)
        try:
            return self._ask(line, origin, request, url, headers, deadline, whole)
        except (OSError, http.client.HTTPException, ValueError) as error:
            line.close()
            raise _not_answered(error, origin) from None

    def _ask(
        self,
        line: _Line,
        origin: ReceiverOrigin,
        request: SealedRequest,
        url: str,
        headers: dict[str, str],
        deadline: float,
        whole: bool,
    ) -> ReceiverAnswer:
        line.socket.deadline = deadline
        line.http.request(request.method, _target(urlsplit(url)), request.data, headers)
        response = line.http.getresponse()
        data, complete = _body(response, line, self._clock, deadline if whole else min(deadline, self._clock() + DRAIN))
        response.close()
        found: dict[str, str] = {}
        for name, value in response.headers.items():
            found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
        with self._lock:
            kept = self._keeps and complete and not response.will_close
            if kept:
                self._idle[origin].append((self._clock(), line))
        if not kept:
            line.close()
        return ReceiverAnswer(response.status, found, data, complete)

    def _kept(self, origin: ReceiverOrigin) -> _Line | None:
        with self._lock:
            idle = self._idle.get(origin, [])
            while idle:
                since, line = idle.pop()
                if self._clock() - since < IDLE:
                    return line
                line.close()
        return None

    def _connected(self, origin: ReceiverOrigin, deadline: float) -> _Line:
        """To an address that the guard lets pass. Raises NotSent."""
        try:
            found = self._look_up(origin.host, origin.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise NotSent(f"there is no host {origin.host} ({getattr(error, 'strerror', None) or error})") from None
        refused, last = "", None
        for family, kind, protocol, _, place in found:
            why = self._guard.refusal(origin.host, str(place[0]))
            if why:
                refused = why
                continue
            try:
                return self._line(origin, family, kind, protocol, place, deadline)
            except OSError as error:
                last = error
        if last is not None:
            raise _not_answered(last, origin)
        raise NotSent(refused or f"there is no host {origin.host}", fatal=bool(refused))

    def _line(
        self, origin: ReceiverOrigin, family: int, kind: int, protocol: int, place: Any, deadline: float
    ) -> _Line:
        plain: Any = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(_left(deadline, self._clock))
            plain.connect(place)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if origin.scheme == "https":
                plain.settimeout(_left(deadline, self._clock))
                plain = self._context().wrap_socket(plain, server_hostname=origin.host)
        except BaseException:
            plain.close()
            raise
        return _Line(origin, _TimedSocket(plain, deadline, self._clock))

    def _context(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls


class _Line:
    """A connection that may be used again."""

    def __init__(self, origin: ReceiverOrigin, made: _TimedSocket) -> None:
        self.socket = made
        self.http = http.client.HTTPConnection(origin.host, origin.port)
        self.http.default_port = {"http": 80, "https": 443}[origin.scheme]
        self.http.auto_open = 0
        self.http.sock = made

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.http.close()
        self.socket.close()


class _TimedSocket:
    """As much of a socket as http.client uses. Everything on it ends at `deadline`, however little comes at a time."""

    def __init__(self, plain: socket.socket, deadline: float, clock: Callable[[], float]) -> None:
        self.deadline = deadline
        self._plain = plain
        self._clock = clock

    def sendall(self, data: bytes) -> None:
        self._plain.settimeout(_left(self.deadline, self._clock))
        self._plain.sendall(data)

    def receive(self, into: Any) -> int:
        self._plain.settimeout(_left(self.deadline, self._clock))
        return self._plain.recv_into(into)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reading(self))

    def close(self) -> None:
        self._plain.close()


class _Reading(io.RawIOBase):
    def __init__(self, timed: _TimedSocket) -> None:
        super().__init__()
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        return self._timed.receive(into)


def _left(deadline: float, clock: Callable[[], float]) -> float:
    left = deadline - clock()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _body(
    response: http.client.HTTPResponse, line: _Line, clock: Callable[[], float], deadline: float
) -> tuple[bytes, bool]:
    """What came of it, and whether that is all."""
    line.socket.deadline = deadline
    pieces: list[bytes] = []
    size = 0
    try:
        while size <= LARGEST and (piece := response.read1(LARGEST)):
            pieces.append(piece)
            size += len(piece)
        complete = size <= LARGEST and not response.length
    except (OSError, http.client.HTTPException, ValueError):
        complete = False
    return b"".join(pieces)[:LARGEST], complete


def _target(parts: SplitResult) -> str:
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]")
    return f"{path}?{query}" if query else path


def shown(url: str) -> str:
    """For messages: what comes after the path may be a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200]


def _not_answered(error: BaseException, origin: ReceiverOrigin) -> NotSent:
    if isinstance(error, NotSent):
        return error
    if isinstance(error, TimeoutError):
        return NotSent(f"{origin} did not answer in time")
    if isinstance(error, ConnectionRefusedError):
        return NotSent(f"nobody listens at {origin}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotSent(f"the certificate of {origin} is not good: {error.verify_message}")
    if isinstance(error, ConnectionError | http.client.RemoteDisconnected | http.client.IncompleteRead):
        return NotSent(f"{origin} closed the connection before its answer was complete")
    if isinstance(error, http.client.HTTPException):
        return NotSent(f"what answers at {origin} does not speak HTTP")
    return NotSent(f"{origin}: {str(error) or type(error).__name__}")
