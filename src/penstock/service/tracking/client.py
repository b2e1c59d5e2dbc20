"""MLflow's REST API, as far as runs need it, by the standard library. Called by teller and sender, in the sender's thread.

A call either is done, or raises TrackingUnavailable (the server cannot be reached, or not now, or not with these credentials: later, the same again), or TrackingRefused (it
will never take this). Calls are made so that doing one twice does no harm, but `create`: see teller.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from penstock.service.tracking.target import Credentials, TrackingTarget

TIMEOUT = 30.0
_API = "/api/2.0/mlflow"
_FILES = "/api/2.0/mlflow-artifacts/artifacts/"
_SCHEME = "mlflow-artifacts:"
_LATER = frozenset({401, 403, 407, 408, 425, 429})
_PAGE = 1000


class TrackingUnavailable(Exception):
    """Not now. The message is a sentence, without secrets."""


class RunUnavailable(TrackingUnavailable):
    """Not now for this run. Others may be told."""


class TrackingRefused(Exception):
    """Never. The message is the server's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _BrokenOff(Exception):
    """The connection went away in the middle: perhaps the call was done, perhaps not."""


class ServerRun(NamedTuple):
    """A run as the server has it."""

    id: str
    artifacts: str
    """The URI of its files."""
    tags: Mapping[str, str]
    entries: int
    """Parameters, metrics and tags that it has."""


class MlflowClient:
    def __init__(self, target: TrackingTarget, timeout: float) -> None:
        self.url = target.url
        self._timeout = timeout
        self._hidden = [text for text in (target.credentials.password, target.credentials.token) if text]
        self._headers = {"User-Agent": "penstock", **_authorization(target.credentials)}
        self._hidden += [value.partition(" ")[2] for name, value in self._headers.items() if name == "Authorization"]
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=_context(target.credentials)),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):  # no redirects: what is posted would be lost, and credentials go to one server only
            self._opener.add_handler(handler)

    # -- calls --------------------------------------------------------------------------------------------------------

    def experiment(self, name: str) -> str:
        """Its id; it is made if it is not there."""
        for _ in range(2):
            try:
                query = urllib.parse.urlencode({"experiment_name": name})
                return str(self._json("GET", f"/experiments/get-by-name?{query}")["experiment"]["experiment_id"])
            except TrackingRefused as error:
                if error.code != "RESOURCE_DOES_NOT_EXIST":
                    raise
            try:
                return str(self._json("POST", "/experiments/create", {"name": name})["experiment_id"])
            except TrackingRefused as error:
                if error.code != "RESOURCE_ALREADY_EXISTS":
                    raise
        raise TrackingUnavailable(f"the experiment {name!r} is neither there nor can it be made")  # pragma: no cover

    def search(self, experiment: str, tags: Mapping[str, str]) -> Iterator[ServerRun]:
        """Runs that have these tags, the oldest first."""
        condition = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        asked: dict[str, Any] = {
            "experiment_ids": [experiment],
            "filter": condition,
            "max_results": _PAGE,
            "order_by": ["attributes.start_time ASC"],
        }
        while True:
            page = self._json("POST", "/runs/search", asked)
            yield from map(_run, page.get("runs") or ())
            if not page.get("next_page_token"):
                return
            asked["page_token"] = page["next_page_token"]

    def create(self, experiment: str, name: str, user: str, start: float, tags: Mapping[str, str]) -> ServerRun:
        body = {
            "experiment_id": experiment,
            "run_name": name,
            "user_id": user,
            "start_time": _milliseconds(start),
            "tags": _pairs(tags),
        }
        return _run(self._json("POST", "/runs/create", body, once=True)["run"])

    def log(
        self,
        run: str,
        params: Mapping[str, str],
        metrics: Sequence[tuple[str, float, float]],
        tags: Mapping[str, str],
    ) -> None:
        """`metrics`: (name, value, time)."""
        told = [
            {"key": name, "value": _number(value), "timestamp": _milliseconds(at), "step": 0}
            for name, value, at in metrics
        ]
        self._json(
            "POST",
            "/runs/log-batch",
            {"run_id": run, "params": _pairs(params), "metrics": told, "tags": _pairs(tags)},
        )

    def update(self, run: str, status: str, end: float | None = None) -> None:
        body: dict[str, Any] = {"run_id": run, "status": status}
        if end is not None:
            body["end_time"] = _milliseconds(end)
        self._json("POST", "/runs/update", body)

    def delete(self, run: str) -> None:
        self._json("POST", "/runs/delete", {"run_id": run})

    def put(self, artifacts: str, path: str, content: bytes | BinaryIO, size: int) -> None:
        """A file of a run. Raises TrackingRefused too if the server takes none."""
        if not artifacts.startswith(_SCHEME):
            raise TrackingRefused(
                "NOT_PROXIED",
                f"the server does not take files itself: those of this run are at {artifacts.partition(':')[0]}:",
            )
        base = urllib.parse.urlsplit(artifacts).path.strip("/")
        place = urllib.parse.quote(f"{base}/{path}", safe="/")
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        self._send("PUT", f"{_FILES}{place}", content, headers)

    # -- one request --------------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None, once: bool = False) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        answer = self._send(method, _API + path, data, headers, once)
        try:
            found = json.loads(answer or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise TrackingUnavailable(f"what answers at {self.url} is no tracking server of MLflow")
        return found

    def _send(self, method: str, path: str, data: Any, headers: Mapping[str, str], once: bool = False) -> bytes:
        """If the answer breaks off, the call is made again at once, but `once`."""
        try:
            return self._attempt(method, path, data, headers)
        except _BrokenOff as error:
            if once:
                raise TrackingUnavailable(str(error)) from None
        if hasattr(data, "seek"):
            data.seek(0)
        try:
            return self._attempt(method, path, data, headers)
        except _BrokenOff as error:
            raise TrackingUnavailable(str(error)) from None

    def _attempt(self, method: str, path: str, data: Any, headers: Mapping[str, str]) -> bytes:
        asked = urllib.request.Request(self.url + path, data, {**self._headers, **headers}, method=method)
        try:
            with self._opener.open(asked, timeout=self._timeout) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise self._judged(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = self._clean(f"{self.url}: {_why(error)}")
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            broken = isinstance(reason, ConnectionResetError | BrokenPipeError | http.client.HTTPException)
            raise (_BrokenOff if broken else TrackingUnavailable)(said) from None

    def _judged(self, error: urllib.error.HTTPError) -> TrackingUnavailable | TrackingRefused:
        text = b""
        with suppress(OSError, http.client.HTTPException):
            text = error.read(4000)
        said: Any = None
        with suppress(ValueError):
            said = json.loads(text)
        if error.code in (401, 403):
            return TrackingUnavailable(
                f"{self.url} refuses the credentials ({error.code}): look at MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_TOKEN"
            )
        if error.code < 400:
            to = urllib.parse.urlsplit(error.headers.get("location") or "")
            return TrackingUnavailable(f"{self.url} leads elsewhere, to {to.scheme}://{to.hostname}: give that URL")
        if error.code >= 500 or error.code in _LATER:
            return TrackingUnavailable(f"{self.url} answers {error.code} {error.reason}")
        if isinstance(said, dict) and "error_code" in said:
            return TrackingRefused(str(said["error_code"]), self._clean(str(said.get("message", ""))[:500]))
        return TrackingUnavailable(
            f"what answers at {self.url} is no tracking server of MLflow: {error.code} {error.reason}"
        )

    def _clean(self, text: str) -> str:
        for hidden in self._hidden:
            text = text.replace(hidden, "***")
        return text


def _authorization(given: Credentials) -> dict[str, str]:
    if given.user or given.password:
        return {"Authorization": f"Basic {base64.b64encode(f'{given.user}:{given.password}'.encode()).decode()}"}
    return {"Authorization": f"Bearer {given.token}"} if given.token else {}


def _context(given: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.authority or None)
        if given.certificate:
            context.load_cert_chain(given.certificate)
    except OSError as error:
        names = "MLFLOW_TRACKING_SERVER_CERT_PATH or MLFLOW_TRACKING_CLIENT_CERT_PATH"
        raise TrackingUnavailable(f"a certificate cannot be read: {error.strerror or error}; look at {names}") from None
    if given.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _run(found: Mapping[str, Any]) -> ServerRun:
    info = found["info"]
    data = found.get("data") or {}
    tags = {one["key"]: one.get("value", "") for one in data.get("tags") or ()}
    entries = len(tags) + len(data.get("params") or ()) + len(data.get("metrics") or ())
    return ServerRun(str(info.get("run_id") or info["run_uuid"]), str(info.get("artifact_uri", "")), tags, entries)


def _pairs(given: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": name, "value": value} for name, value in given.items()]


def _milliseconds(at: float) -> int:
    return int(at * 1000)


def _number(value: float) -> float | str:
    """JSON has no word for what is no number, or infinite; protobuf, which reads it, has."""
    if value != value:
        return "NaN"
    return value if value not in (float("inf"), float("-inf")) else "Infinity" if value > 0 else "-Infinity"


def _why(error: BaseException) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ValueError) and not isinstance(reason, OSError):  # http.client repeats the header
        return "the request cannot be sent: look at MLFLOW_TRACKING_TOKEN for characters that no header may have"
    if isinstance(reason, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, ConnectionResetError | BrokenPipeError | http.client.HTTPException):
        return "the connection broke off before the answer"
    return str(reason) or type(reason).__name__
