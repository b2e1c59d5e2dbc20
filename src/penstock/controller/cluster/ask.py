"""A review that this replica may not decide, asked of the replica that leads. Used by run.Manager.

The Service sends reviews of pods to every replica, and room is given away in one place. So the others pass the question on, by HTTPS to the address in the
Lease, with the authority that all replicas share. It must be quick: the API server waits two seconds. Without an answer the pod keeps its gate.
"""

from __future__ import annotations

import math
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.controller.cluster.metrics import Metrics
from penstock.kubernetes.log import Log

if TYPE_CHECKING:
    import httpx2

CONNECT, ANSWER = 0.25, 0.75
"""Seconds. Together half of what the API server waits."""
PAUSE = 1.0
"""Seconds for which a leader that gave no answer is not asked again: else each pod would wait for it."""
MOST = 64
"""Connections."""


class Leader:
    """Where the replica that leads answers. Thread-safe."""

    def __init__(
        self,
        address: Callable[[], str],
        name: str,
        log: Log,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address`: `host:port`, empty if nobody is known. `name`: for which the certificate is; addresses of pods come and go."""
        self._address, self._name, self._log, self._clock = address, name, log, clock
        self._asked = metrics.asked
        self._http: httpx2.Client | None = None
        self._silent: tuple[str, float] = ("", -math.inf)
        """An address that gave no answer, and when."""
        self._guard = threading.Lock()

    def trust(self, authority: bytes) -> None:
        """The certificates (PEM) that vouch for it, from now on."""
        import httpx2

        made = httpx2.Client(
            verify=ssl.create_default_context(cadata=authority.decode()),
            timeout=httpx2.Timeout(ANSWER, connect=CONNECT, pool=CONNECT),
            limits=httpx2.Limits(max_connections=MOST, keepalive_expiry=30),
            trust_env=False,
        )
        with self._guard:
            old, self._http = self._http, made
        if old is not None:
            old.close()

    def close(self) -> None:
        with self._guard:
            old, self._http = self._http, None
        if old is not None:
            old.close()

    def ask(self, path: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The `response` of an AdmissionReview, without its uid. None: there is none in time, or none that allows it."""
        address, http = self._address(), self._http
        if not address or http is None:
            return None
        if self._silent[0] == address and self._clock() < self._silent[1] + PAUSE:
            self._asked.labels("passed over").inc()
            return None
        try:
            answer = self._post(http, f"https://{address}{path}", request)
        except Exception as error:  # whatever it is: the pod keeps its gate
            self._silent = address, self._clock()
            self._asked.labels("failed").inc()
            self._log.warning("the leader gave no answer", address=address, problem=f"{type(error).__name__}: {error}")
            return None
        self._asked.labels("answered").inc()
        return answer

    def _post(self, http: httpx2.Client, url: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {**request, "uid": str(request.get("uid") or uuid.uuid4())},
        }
        answer = http.post(url, json=body, extensions={"sni_hostname": self._name})
        answer.raise_for_status()
        response = dict(answer.json()["response"])
        response.pop("uid", None)
        return response if response.get("allowed") is True else None
