"""A small API server over real HTTP, for tests of the shell: versions, pages, watches with bookmarks, conflicts, and faults on demand.

It has the kinds that it is told of. `faults` are answers for the next requests that match; `forget` makes all versions so far too old to watch from;
`drop` ends every watch; `stop` and `start` are a restart on the same port.
"""

from __future__ import annotations

import contextlib
import copy
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.controller.objects import ApiResource
from penstock.kubernetes.cache import LabelSelector
from penstock.kubernetes.kubeconfig import Connection

Dict = dict[str, Any]


@dataclass
class Fault:
    """An answer in place of the real one. `matches` sees method and path with query."""

    matches: Callable[[str, str], bool]
    code: int
    reason: str = "Fault"
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    after: bool = False
    """The request is carried out, and only then answered so."""


class FakeApi:
    def __init__(self, *resources: ApiResource) -> None:
        self.resources: dict[str, ApiResource] = {}
        for resource in resources:
            self.install(resource)
        self.changed = threading.Condition()
        self.version = 100
        self.forgotten = 0
        self.objects: dict[tuple[str, str, str], Dict] = {}  # path of the kind, namespace, name
        self.log: list[tuple[int, str, str, Dict, bool]] = []  # version, root, type, object, gone
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str] | None = None
        self.generation = 0
        self.port = 0
        self.server: ThreadingHTTPServer | None = None
        self.sockets: set[socket.socket] = set()
        self.start()

    def install(self, resource: ApiResource) -> None:
        self.resources[resource.path()] = resource

    def uninstall(self, resource: ApiResource) -> None:
        del self.resources[resource.path()]
        self.drop()

    # -- the server

    def start(self) -> None:
        api = self

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def setup(self) -> None:
                super().setup()
                self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                api.sockets.add(self.request)

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                api.answer(self, body)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = handle_any

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, address: Any) -> None:
                pass

        self.server = Server(("127.0.0.1", self.port), Request)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        self.drop()
        for one in list(self.sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.sockets.clear()

    def drop(self) -> None:
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def connection(self, **given: Any) -> Connection:
        return Connection(f"http://127.0.0.1:{self.port}", **given)

    # -- state

    def put(self, resource: ApiResource, obj: Dict) -> Dict:
        """As somebody else would write it."""
        meta = obj["metadata"]
        with self.changed:
            key = (resource.path(), meta.get("namespace", ""), meta["name"])
            kind = "MODIFIED" if key in self.objects else "ADDED"
            old = self.objects.get(key, {"metadata": {}})
            self.version += 1
            stored = copy.deepcopy(obj) | {"apiVersion": resource.api, "kind": resource.kind}
            stored["metadata"] |= {
                "uid": old["metadata"].get("uid") or meta.get("uid") or str(uuid.uuid4()),
                "resourceVersion": str(self.version),
                "managedFields": [{"manager": "somebody"}],
            }
            self.objects[key] = stored
            self._note(resource, kind, stored)
            return copy.deepcopy(stored)

    def remove(self, resource: ApiResource, namespace: str, name: str) -> Dict:
        with self.changed:
            stored = self.objects.pop((resource.path(), namespace, name))
            self.version += 1
            gone = copy.deepcopy(stored)
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._note(resource, "DELETED", gone)
            return stored

    def _note(self, resource: ApiResource, kind: str, obj: Dict) -> None:
        self.log.append((self.version, resource.path(), kind, copy.deepcopy(obj), False))
        self.changed.notify_all()

    def forget(self) -> None:
        """Compaction: no watch may begin before now, and those that run end."""
        with self.changed:
            self.forgotten = self.version
            self.log.clear()
            self.generation += 1
            self.changed.notify_all()

    def all(self, resource: ApiResource) -> list[Dict]:
        with self.changed:
            return [copy.deepcopy(one) for key, one in self.objects.items() if key[0] == resource.path()]

    def get(self, resource: ApiResource, namespace: str, name: str) -> Dict | None:
        with self.changed:
            return copy.deepcopy(self.objects.get((resource.path(), namespace, name)))

    def asked(self, method: str, part: str) -> int:
        return sum(1 for done, path in list(self.requests) if done == method and part in path)

    # -- answering

    def answer(self, request: Any, body: Any) -> None:
        url = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.requests.append((request.command, request.path))
        fault = next((one for one in self.faults if one.times and one.matches(request.command, request.path)), None)
        if fault is not None and not fault.after:
            fault.times -= 1
            return self._status(request, fault.code, fault.reason, fault.headers)
        if self.tokens is not None and request.headers.get("Authorization", "") not in self.tokens:
            return self._status(request, 401, "Unauthorized", {})
        if query.get("watch") == "true":
            return self._watch(request, url.path, query)
        code, said = self._plain(request.command, url.path, query, body, request.headers)
        if fault is not None:
            fault.times -= 1
            return self._status(request, fault.code, fault.reason, fault.headers)
        return self._json(request, code, said)

    def _status(self, request: Any, code: int, reason: str, headers: dict[str, str]) -> None:
        self._json(request, code, {"kind": "Status", "reason": reason, "message": reason, "code": code}, headers)

    def _json(self, request: Any, code: int, said: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(said).encode()
        request.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)
        request.wfile.flush()

    def _find(self, path: str) -> tuple[ApiResource, str, str, str] | None:
        """Kind, namespace, name, subresource."""
        parts = path.strip("/").split("/")
        cut = 2 if parts[0] == "api" else 3
        root, rest = "/" + "/".join(parts[:cut]), parts[cut:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        if not rest or f"{root}/{rest[0]}" not in self.resources:
            return None
        resource = self.resources[f"{root}/{rest[0]}"]
        return resource, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""

    def _plain(self, method: str, path: str, query: Dict, body: Any, headers: Any) -> tuple[int, Dict]:
        if path == "/version":
            return 200, {"gitVersion": "v1.36.4"}
        served = [one for one in self.resources.values() if one.path().rpartition("/")[0] == path]
        if served:
            return 200, {"resources": [{"name": one.plural, "kind": one.kind} for one in served]}
        found = self._find(path)
        if found is None:
            return _refused(404, "NotFound")
        resource, namespace, name, _ = found
        with self.changed:
            if method == "GET" and not name:
                return self._list(resource, namespace, query)
            if method == "POST":
                name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self.version}"
                body["metadata"] |= {"name": name, **({"namespace": namespace} if namespace else {})}
                if (resource.path(), namespace, name) in self.objects:
                    return _refused(409, "AlreadyExists")
                return 201, self.put(resource, body)
            stored = self.objects.get((resource.path(), namespace, name))
            if stored is None:
                return _refused(404, "NotFound")
            if method == "GET":
                return 200, copy.deepcopy(stored)
            if method == "DELETE":
                gone = self.remove(resource, namespace, name)
                return 200, {"kind": "Status", "status": "Success", "details": {"uid": gone["metadata"]["uid"]}}
            return self._patch(resource, stored, body, headers.get("Content-Type", ""))

    def _list(self, resource: ApiResource, namespace: str, query: Dict) -> tuple[int, Dict]:
        chosen = LabelSelector(query.get("labelSelector", ""))
        found = [
            one
            for key, one in sorted(self.objects.items())
            if key[0] == resource.path() and (not namespace or key[1] == namespace)
            if chosen(one["metadata"].get("labels") or {})
        ]
        start, version = 0, self.version
        if "continue" in query:
            start, version = map(int, query["continue"].split("-"))
            if version < self.forgotten:
                return _refused(410, "Expired")
        limit = int(query.get("limit") or 0) or len(found) + 1
        meta = {"resourceVersion": str(version)}
        if start + limit < len(found):
            meta["continue"] = f"{start + limit}-{version}"
        items = [{k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in found]
        return 200, {"kind": "List", "metadata": meta, "items": copy.deepcopy(items[start : start + limit])}

    def _patch(self, resource: ApiResource, stored: Dict, body: Any, content: str) -> tuple[int, Dict]:
        new = copy.deepcopy(stored)
        if "json-patch" in content:
            for step in body:
                if not _step(new, step):
                    return _refused(422, "Invalid")
        else:
            wanted = (body.get("metadata") or {}).get("resourceVersion")
            if wanted and wanted != stored["metadata"]["resourceVersion"]:
                return _refused(409, "Conflict")
            _merge(new, body)
        if new == stored:
            return 200, new
        return 200, self.put(resource, new)

    def _watch(self, request: Any, path: str, query: Dict) -> None:
        generation = self.generation  # before it is looked up: what is removed from here on ends this watch
        found = self._find(path)
        if found is None:
            self._status(request, 404, "NotFound", {})
            return
        chosen, root = LabelSelector(query.get("labelSelector", "")), found[0].path()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.flush()

        def send(event: Dict) -> None:
            line = json.dumps(event).encode() + b"\n"
            request.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            request.wfile.flush()

        seen = int(query.get("resourceVersion") or 0)
        ends = time.monotonic() + float(query.get("timeoutSeconds") or 60)
        while True:
            with self.changed:
                if seen < self.forgotten and generation == self.generation:
                    send({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
                    break
                events = [entry for entry in self.log if entry[0] > seen and entry[1] == root]
                if not events:
                    left = ends - time.monotonic()
                    if left <= 0 or generation != self.generation:
                        break
                    self.changed.wait(left)
                    continue
            for version, _, kind, obj, _ in events:
                seen = version
                if chosen(obj["metadata"].get("labels") or {}):
                    send({"type": kind, "object": obj})
                else:
                    send({"type": "DELETED", "object": obj})
        with self.changed:
            mark = {"metadata": {"resourceVersion": str(max(seen, self.version))}}
        if generation == self.generation and seen >= self.forgotten:
            send({"type": "BOOKMARK", "object": mark})
        request.wfile.write(b"0\r\n\r\n")
        request.wfile.flush()
        request.close_connection = True


def _refused(code: int, reason: str) -> tuple[int, Dict]:
    return code, {"kind": "Status", "reason": reason, "message": f"the fake says {reason}", "code": code}


def _merge(target: Dict, patch: Dict) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def _step(target: Any, step: Dict) -> bool:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
    for part in parts[:-1]:
        target = target[int(part)] if isinstance(target, list) else target.get(part, {})
    last: Any = int(parts[-1]) if isinstance(target, list) else parts[-1]
    if step["op"] == "test":
        return bool(target[last] == step["value"])
    if step["op"] == "remove":
        del target[last]
    else:
        target[last] = copy.deepcopy(step["value"])
    return True


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """The first true answer. The time-out is for the case that something is wrong."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
    return answer


def thing(name: str, namespace: str = "ns", **meta: Any) -> Dict:
    return {"metadata": {"name": name, "namespace": namespace, **meta}}


def names(objects: Iterable[Any]) -> list[str]:
    return sorted(one["metadata"]["name"] for one in objects)
