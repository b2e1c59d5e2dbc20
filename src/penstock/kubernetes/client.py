"""The Kubernetes API on plain dicts: its verbs over one pool of connections. Used by the shell of the controller, by the backend kubernetes, and by the commands for clusters.

Requests that the server did not look at (429, or 503 with Retry-After) are sent again after the time that it names. All else is an ApiError, and
the caller knows what to do. adr/0018 says why this is not a library.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.kubernetes.credentials import Credential
from penstock.kubernetes.objects import MANAGER, ApiResource, PatchType, Write

if TYPE_CHECKING:
    import httpx2

    from penstock.kubernetes.kubeconfig import Connection

Dict = dict[str, Any]
CONTENT = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
PAGE = 500
PATIENCE = 30.0
"""Seconds for which one request is sent again while the server says that it is too busy."""


class ApiError(Exception):
    """The API server refused, or could not be reached (code 0)."""

    def __init__(self, code: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}" if code else message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def unreachable(self) -> bool:
        return self.code == 0

    @property
    def gone(self) -> bool:
        """What we know is too old for the server: 410."""
        return self.code == 410 or self.reason == "Expired"


@dataclass(frozen=True, slots=True)
class Listing:
    items: list[Mapping[str, Any]]
    version: str


class Client:
    def __init__(
        self,
        connection: Connection,
        *,
        agent: str = "penstock",
        timeout: float = 30,
        connections: int = 100,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.connection = connection
        self.namespace = connection.namespace
        self._agent = agent
        self._timeout = timeout
        self._connections = connections
        self._sleep = sleep
        self._lock = threading.Lock()
        self._http: httpx2.Client | None = None
        self._made_for = ("", "")
        self._old: list[httpx2.Client] = []

    def close(self) -> None:
        with self._lock:
            pools, self._http, self._old = [*self._old, *([self._http] if self._http else [])], None, []
        for pool in pools:
            pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- verbs

    def get(self, resource: ApiResource, namespace: str, name: str, subresource: str = "", **options: Any) -> Dict:
        return self._dict("GET", resource.path(namespace, name, subresource), **options)

    def found(self, resource: ApiResource, namespace: str, name: str) -> Dict | None:
        """The object, or None where there is none."""
        try:
            return self.get(resource, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def list(
        self,
        resource: ApiResource,
        namespace: str = "",
        *,
        selector: str = "",
        fields: str = "",
        keep: Callable[[Dict], Mapping[str, Any]] = lambda obj: obj,
    ) -> Listing:
        """All of them, in pages; `keep` says what to keep of each, so that never more than a page is held in full. Should the server
        forget the list between two pages (410), it is begun anew, as one page."""
        try:
            return self._list(resource, namespace, selector, fields, keep, PAGE)
        except ApiError as error:
            if not error.gone:
                raise
            return self._list(resource, namespace, selector, fields, keep, 0)

    def _list(
        self,
        resource: ApiResource,
        namespace: str,
        selector: str,
        fields: str,
        keep: Callable[[Dict], Mapping[str, Any]],
        limit: int,
    ) -> Listing:
        params = {"limit": str(limit)} if limit else {}
        if chosen := selector or resource.selector:
            params["labelSelector"] = chosen
        if fields:
            params["fieldSelector"] = fields
        items: list[Mapping[str, Any]] = []
        while True:
            page = self._dict("GET", resource.path(namespace), params=params)
            items.extend(keep(one) for one in page.get("items") or ())
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return Listing(items, str(meta.get("resourceVersion", "")))
            params["continue"] = meta["continue"]

    def create(
        self, resource: ApiResource, namespace: str, body: Mapping[str, Any], *, name: str = "", subresource: str = ""
    ) -> Dict:
        """`name` and `subresource` for what is created below an object, such as an eviction or a token."""
        body = {"apiVersion": resource.api, "kind": resource.kind, **body}
        path = resource.path(namespace, name if subresource else "", subresource)
        return self._dict("POST", path, body, params={"fieldManager": MANAGER})

    def patch(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        body: Any,
        *,
        kind: PatchType = "merge",
        subresource: str = "",
        version: str = "",
        manager: str = MANAGER,
        timeout: float | None = None,
    ) -> Dict:
        """`version`: only if the object still has this resourceVersion; else 409."""
        params = {"fieldManager": manager}
        if kind == "apply":
            params["force"] = "true"
            meta = {"name": name, **(body.get("metadata") or {})}
            body = {"apiVersion": resource.api, "kind": resource.kind, **body, "metadata": meta}
        if version and kind == "json":
            body = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *body]
        elif version:
            body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}
        return self._dict(
            "PATCH", resource.path(namespace, name, subresource), body, CONTENT[kind], params, timeout=timeout
        )

    def delete(
        self, resource: ApiResource, namespace: str, name: str, options: Mapping[str, Any] | None = None
    ) -> Dict:
        """The answer is the object, if it still is there for a while, or a Status."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", **(options or {})}
        return self._dict("DELETE", resource.path(namespace, name), body)

    def write(self, write: Write) -> Dict:
        if write.verb == "create":
            body = dict(write.body)
            meta = {"name": write.name, **(body.get("metadata") or {})}
            if write.subresource:
                return self.create(
                    write.resource, write.namespace, body, name=write.name, subresource=write.subresource
                )
            return self.create(write.resource, write.namespace, {**body, "metadata": meta})
        if write.verb == "delete":
            return self.delete(write.resource, write.namespace, write.name, write.body)
        return self.patch(
            write.resource,
            write.namespace,
            write.name,
            write.body,
            kind=write.patch,
            subresource=write.subresource,
        )

    def watch(
        self, resource: ApiResource, version: str, *, namespace: str = "", selector: str = "", seconds: int = 300
    ) -> WatchStream:
        """Events after a resourceVersion. The server ends the stream after `seconds`; go on with the last version seen."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        if chosen := selector or resource.selector:
            params["labelSelector"] = chosen
        return WatchStream(self._open(resource.path(namespace), params, seconds + 30))

    def logs(self, namespace: str, pod: str, container: str, *, follow: bool = False) -> LogStream:
        """What a container has printed; with `follow`, until it ends."""
        params = {"container": container, **({"follow": "true"} if follow else {})}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        return LogStream(self._open(path, params, 3600 if follow else self._timeout))

    def server_version(self) -> Dict:
        return self._dict("GET", "/version")

    # -- requests

    def _dict(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Dict:
        answer = self.raw(method, path, body, content_type, params, timeout)
        if not isinstance(answer, dict):
            raise ApiError(0, "", f"{path}: the answer is no object; is {self.connection.server} a Kubernetes?")
        return answer

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """JSON in, JSON or text out."""
        headers = {"Accept": "application/json"}
        content = None
        if body is not None:
            headers["Content-Type"] = content_type
            content = json.dumps(body, separators=(",", ":")).encode()
        answer = self._send(method, path, headers, content, params, timeout, stream=False)
        if "json" not in answer.headers.get("content-type", ""):
            return answer.text
        try:
            return json.loads(answer.content)
        except ValueError:
            raise ApiError(0, "", f"{path}: the answer of {self.connection.server} is not JSON") from None

    def _open(self, path: str, params: Mapping[str, str], read_timeout: float) -> httpx2.Response:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        return self._send("GET", path, headers, None, params, read_timeout, stream=True)

    def _send(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        content: bytes | None,
        params: Mapping[str, str] | None,
        timeout: float | None,
        stream: bool,
    ) -> httpx2.Response:
        deadline = time.monotonic() + (timeout if timeout is not None and not stream else PATIENCE)
        refused: str | None = None
        while True:
            credential = self._credential(refused)
            answer = self._once(method, path, headers, content, params, timeout, stream, credential)
            if answer.status_code < 400:
                return answer
            error = _error(answer)
            if answer.status_code == 401 and refused is None:
                refused = credential.authorization
                if self._credential(refused).authorization != refused:
                    continue  # the token was renewed meanwhile
            if answer.status_code in (429, 503) and error.retry_after is not None:
                # It was not looked at, so sending it again is safe for every verb.
                wait = max(error.retry_after, 0.1)
                if time.monotonic() + wait < deadline:
                    self._sleep(wait)
                    continue
            raise error

    def _credential(self, refused: str | None) -> Credential:
        try:
            return self.connection.source.current(refused)
        except OSError as error:
            raise ApiError(0, "", f"the token cannot be read: {error}") from None

    def _once(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        content: bytes | None,
        params: Mapping[str, str] | None,
        timeout: float | None,
        stream: bool,
        credential: Credential,
    ) -> httpx2.Response:
        import httpx2

        http = self._pool(credential)
        if credential.authorization:
            headers = {**headers, "Authorization": credential.authorization}
        extensions = {"sni_hostname": self.connection.server_name} if self.connection.server_name else {}
        patience = httpx2.Timeout(self._timeout if stream or timeout is None else timeout)
        if stream and timeout is not None:
            patience.read = timeout
        for last in (method != "GET", True):
            request = http.build_request(
                method,
                self.connection.server + path,
                params=dict(params) if params else None,
                content=content,
                headers=headers,
                extensions=extensions,
                timeout=patience,
            )
            try:
                answer = http.send(request, stream=stream)
                if stream and answer.status_code >= 400:
                    answer.read()
                return answer
            except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
                # The server closed a connection that nobody had used for a while. Reading again is harmless.
                if last:
                    raise self._unreachable(error) from None
            except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, OSError) as error:
                raise self._unreachable(error) from None
            except RuntimeError as error:  # the client was closed by another thread
                raise self._unreachable(error) from None
        raise AssertionError  # pragma: no cover

    def _unreachable(self, error: Exception) -> ApiError:
        said = str(error) or type(error).__name__
        return ApiError(0, "", f"{self.connection.server} cannot be reached: {said}")

    def _pool(self, credential: Credential) -> httpx2.Client:
        """One pool of connections; another when the client certificate changes."""
        identity = (credential.certificate, credential.key)
        with self._lock:
            if self._http is None or identity != self._made_for:
                if self._http is not None:
                    self._old = [*self._old[-1:], self._http]  # streams may still use it
                self._http, self._made_for = self._make(credential), identity
            return self._http

    def _make(self, credential: Credential) -> httpx2.Client:
        import httpx2

        # A peer that vanished without a word is noticed within a minute, also on a watch that is silent for long.
        alive = [
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        ]
        transport = httpx2.HTTPTransport(
            verify=_tls(self.connection, credential),
            limits=httpx2.Limits(
                max_connections=self._connections, max_keepalive_connections=self._connections, keepalive_expiry=60
            ),
            proxy=self.connection.proxy or None,
            socket_options=alive,
        )
        return httpx2.Client(transport=transport, trust_env=False, headers={"User-Agent": self._agent})


class LogStream:
    """Bytes as they come. `stop` may be called by another thread; the reader then sees the end of the stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        import httpx2

        try:
            yield from self._response.iter_raw()
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError, ValueError) as error:
            raise ApiError(0, "", f"the log broke off: {str(error) or type(error).__name__}") from None

    def stop(self) -> None:
        _stop_reading(self._response)

    def __enter__(self) -> LogStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):
            self._response.close()


def _stop_reading(response: httpx2.Response) -> None:
    stream = response.extensions.get("network_stream")
    sock = stream.get_extra_info("socket") if stream is not None else None
    if sock is not None:
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown: that would take the TLS state away from the thread that reads.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class WatchStream:
    """Events as they come. `stop` may be called by another thread; the reader then sees the end of the stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[Dict]:
        import httpx2

        pieces: list[bytes] = []
        try:
            for chunk in self._response.iter_raw():
                start = 0
                while (end := chunk.find(b"\n", start)) >= 0:
                    pieces.append(chunk[start:end])
                    line, start = b"".join(pieces), end + 1
                    pieces.clear()
                    if line.strip():
                        yield json.loads(line)
                if start < len(chunk):
                    pieces.append(chunk[start:])
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError, ValueError) as error:
            raise ApiError(0, "", f"the watch broke: {str(error) or type(error).__name__}") from None

    def stop(self) -> None:
        _stop_reading(self._response)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._response.close()

    def __enter__(self) -> WatchStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _tls(connection: Connection, credential: Credential) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=connection.ca or None)
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate:
        # ssl reads client certificates from files only.
        descriptor, path = tempfile.mkstemp(prefix="penstock-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{credential.certificate}\n{credential.key}")
            context.load_cert_chain(path)
        finally:
            os.unlink(path)
    return context


def _error(answer: httpx2.Response) -> ApiError:
    said: Any = {}
    with contextlib.suppress(ValueError):
        said = json.loads(answer.content)
    if not isinstance(said, dict):
        said = {}
    wait = answer.headers.get("retry-after", "")
    return ApiError(
        answer.status_code,
        str(said.get("reason") or answer.reason_phrase),
        str(said.get("message") or answer.text[:500]),
        float(wait) if wait.replace(".", "", 1).isdigit() else None,
    )
