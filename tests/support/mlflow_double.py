"""A small server that speaks the calls of MLflow that Penstock makes, over HTTP, and checks them as MLflow does. It can be slow, lose answers, refuse,
and be away and come back on the same port. The real one is in tests/cluster/test_mlflow.py."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_NAME = re.compile(r"[/\w.\- :]{1,250}\Z")


@dataclass
class KeptRun:
    id: str
    experiment: str
    name: str
    start: int
    status: str = "RUNNING"
    end: int | None = None
    deleted: bool = False
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def last(self) -> dict[str, Any]:
        return {name: points[-1][1] for name, points in self.metrics.items()}


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class MlflowDouble:
    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, KeptRun] = {}
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.delay = 0.0
        self.late = 0.0
        """Every other creation is done so much later, when nobody waits for it any more."""
        self.lose_every = 0
        """Of so many calls one is done, and its answer is lost."""
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        """What every call gets instead."""
        self.delete_all_at = 0
        """At this call, somebody deletes all runs."""
        self.longest_param = 6000
        self.takes_files = True
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.double = self
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    # -- what it has --------------------------------------------------------------------------------------------------

    def tree(self, run: str) -> dict[str, KeptRun]:
        """Task -> run, of a run of Penstock; each once."""
        found: dict[str, KeptRun] = {}
        for one in self.runs.values():
            if one.tags.get("penstock.run") == run and not one.deleted:
                task = one.tags.get("penstock.task", "")
                assert task not in found, f"{task!r} is there twice"
                found[task] = one
        return found

    # -- the calls ----------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        with self._lock:
            if len(self.calls) == self.delete_all_at:
                for one in self.runs.values():
                    one.deleted = True
            if path.startswith("/api/2.0/mlflow-artifacts/artifacts/"):
                return self._put(path.removeprefix("/api/2.0/mlflow-artifacts/artifacts/"), body)
            verb = path.removeprefix("/api/2.0/mlflow")
            data = json.loads(body) if body else {}
            work = {
                "GET /experiments/get-by-name": self._experiment,
                "POST /experiments/create": self._new_experiment,
                "POST /runs/create": self._create,
                "POST /runs/search": self._search,
                "POST /runs/log-batch": self._log,
                "POST /runs/update": self._update,
                "POST /runs/delete": self._delete,
            }[f"{method} {verb}"]
            return work(query or data)

    def _put(self, path: str, body: bytes) -> Any:
        if not self.takes_files:
            raise _Refusal(400, "INVALID_PARAMETER_VALUE", "served without --serve-artifacts")
        experiment, id, word, name = urllib.parse.unquote(path).split("/", 3)
        assert word == "artifacts" and self.runs[id].experiment == experiment and ".." not in name
        self.runs[id].files[name] = body
        return {}

    def _experiment(self, data: Any) -> Any:
        name = data["experiment_name"]
        if name not in self.experiments:
            raise _Refusal(404, "RESOURCE_DOES_NOT_EXIST", f"no experiment {name}")
        return {"experiment": {"experiment_id": self.experiments[name], "name": name}}

    def _new_experiment(self, data: Any) -> Any:
        if data["name"] in self.experiments:
            raise _Refusal(400, "RESOURCE_ALREADY_EXISTS", "it is there")
        self.experiments[data["name"]] = str(len(self.experiments) + 1)
        return {"experiment_id": self.experiments[data["name"]]}

    def _create(self, data: Any) -> Any:
        assert data["experiment_id"] in self.experiments.values()
        id = f"{len(self.runs):032x}"
        made = self.runs[id] = KeptRun(id, data["experiment_id"], data["run_name"], data["start_time"])
        made.tags = {one["key"]: one["value"] for one in data["tags"]}
        return {"run": self._shown(made)}

    def _shown(self, one: KeptRun) -> Any:
        uri = f"mlflow-artifacts:/{one.experiment}/{one.id}/artifacts"
        tags, params = (
            [{"key": key, "value": value} for key, value in some.items()] for some in (one.tags, one.params)
        )
        return {
            "info": {"run_id": one.id, "artifact_uri": uri, "status": one.status},
            "data": {"tags": tags, "params": list(params)},
        }

    def _search(self, data: Any) -> Any:
        wanted = dict(re.findall(r"tags\.`([^`]+)` = '([^']*)'", data["filter"]))
        found = [
            one
            for one in reversed(self.runs.values())  # whichever order is asked for, these began at the same time
            if one.experiment in data["experiment_ids"] and wanted.items() <= one.tags.items() and not one.deleted
        ]
        at = int(data.get("page_token") or 0)
        page = found[at : at + 3]  # small pages, so that there are several
        more = {"next_page_token": str(at + 3)} if len(found) > at + 3 else {}
        return {"runs": [self._shown(one) for one in page], **more}

    def _log(self, data: Any) -> Any:
        one = self._active(data["run_id"])
        params, metrics, tags = data.get("params", []), data.get("metrics", []), data.get("tags", [])
        assert len(params) <= 100 and len(tags) <= 100 and len(metrics) <= 1000
        for entry in (*params, *metrics):
            if not _NAME.match(entry["key"]) or entry["key"].startswith(("..", "/")):
                raise _Refusal(400, "INVALID_PARAMETER_VALUE", f"invalid name {entry['key']!r}")
        for entry in params:
            if len(entry["value"]) > self.longest_param:
                raise _Refusal(400, "INVALID_PARAMETER_VALUE", "too long")
            if one.params.get(entry["key"], entry["value"]) != entry["value"]:
                raise _Refusal(400, "INVALID_PARAMETER_VALUE", "changing a param is not allowed")
        one.params |= {entry["key"]: entry["value"] for entry in params}
        one.tags |= {entry["key"]: entry["value"] for entry in tags}
        for entry in metrics:
            points = one.metrics.setdefault(entry["key"], [])
            if (entry["timestamp"], entry["value"]) not in points:
                points.append((entry["timestamp"], entry["value"]))
        return {}

    def _active(self, id: str) -> KeptRun:
        if id not in self.runs:
            raise _Refusal(404, "RESOURCE_DOES_NOT_EXIST", f"no run {id}")
        if self.runs[id].deleted:
            raise _Refusal(400, "INVALID_PARAMETER_VALUE", "it must be in the active state")
        return self.runs[id]

    def _update(self, data: Any) -> Any:
        one = self._active(data["run_id"])
        one.status, one.end = data["status"], data.get("end_time", one.end)
        return {}

    def _delete(self, data: Any) -> Any:
        self._active(data["run_id"]).deleted = True
        return {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    double: MlflowDouble

    def handle_error(self, *_: Any) -> None:
        """Whoever asked has gone."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _handle(self) -> None:
        double = self.server.double
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        parts = urllib.parse.urlsplit(self.path)
        double.calls.append(f"{self.command} {parts.path}")
        double.headers.append(dict(self.headers))
        time.sleep(double.delay)
        if parts.path.endswith("/runs/create") and double.calls.count("POST /api/2.0/mlflow/runs/create") % 2:
            time.sleep(double.late)
        if double.answer is not None:
            status, headers, data = double.answer
            self._answer(status, data, headers)
            return
        try:
            found = double.call(self.command, parts.path, dict(urllib.parse.parse_qsl(parts.query)), body)
        except _Refusal as refusal:
            said = {"error_code": refusal.code, "message": str(refusal)}
            self._answer(refusal.status, json.dumps(said).encode(), {})
            return
        if double.lose_every and len(double.calls) % double.lose_every == 0:
            return
        self._answer(200, json.dumps(found).encode(), {})

    do_GET = do_POST = do_PUT = _handle

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...
