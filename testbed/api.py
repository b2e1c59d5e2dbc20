"""The Kubernetes API over plain HTTP: get, list, patch, server-side apply. Used by instance.py, the components and the tests.

A dozen verbs on JSON need no generated models; objects are dictionaries, as they are in the manifests.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from testbed.errors import ApiError

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_RETRIES = 50
# What others stand on goes first: a namespace before what is in it, a type before its objects.
_ORDER = {"Namespace": 0, "CustomResourceDefinition": 0, "ServiceAccount": 1, "ConfigMap": 1, "Secret": 1}


class Api:
    def __init__(self, url: str, ca: Path, certificate: Path, key: Path) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(certificate, key)
        # The proxy of the environment is for the outside world.
        self._http = httpx2.Client(base_url=url, verify=context, timeout=30, trust_env=False)
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self._http.close()

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
    ) -> Any:
        content = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if content else {})
        for _ in range(_RETRIES):
            answer = self._http.request(method, path, content=content, headers=headers, params=params)
            # It was not looked at: the server is busy, or takes up a changed definition of the type ("apiserver is shutting down").
            if answer.status_code not in (429, 503) or "Retry-After" not in answer.headers:
                break
            time.sleep(0.2)
        if answer.status_code >= 400:
            try:
                said = answer.json()
            except ValueError:
                said = {}
            raise ApiError(answer.status_code, said.get("reason", ""), said.get("message", answer.text[:500]))
        if "json" in answer.headers.get("content-type", ""):
            return answer.json()
        return answer.text

    def path(self, api: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
        """The path of a kind or object; api is `v1` or `group/version`."""
        plural, namespaced = self._resource(api, kind)
        root = f"/api/{api}" if "/" not in api else f"/apis/{api}"
        where = f"/namespaces/{namespace or 'default'}" if namespaced else ""
        return f"{root}{where}/{plural}" + (f"/{name}" if name else "")

    def path_of(self, thing: Object) -> str:
        meta = thing["metadata"]
        return self.path(thing["apiVersion"], thing["kind"], meta.get("namespace"), meta["name"])

    def _resource(self, api: str, kind: str) -> tuple[str, bool]:
        with self._lock:
            known = self._kinds.get((api, kind))
        if known:
            return known
        listing = self.raw("GET", f"/api/{api}" if "/" not in api else f"/apis/{api}")
        with self._lock:
            for resource in listing["resources"]:
                if "/" not in resource["name"]:
                    self._kinds[api, resource["kind"]] = (resource["name"], resource["namespaced"])
            if (api, kind) not in self._kinds:
                raise ApiError(404, "NotFound", f"the API server knows no {kind} in {api}")
            return self._kinds[api, kind]

    def apply(self, objects: Iterable[Object], manager: str) -> None:
        """Server-side apply, what others stand on first; waits until new types are served."""
        layers: dict[int, list[Object]] = {}
        for thing in objects:
            layers.setdefault(_ORDER.get(thing["kind"], 2), []).append(thing)
        for _, layer in sorted(layers.items()):
            # A handful of connections; applying one by one would cost a second per hundred objects.
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda thing: self._apply(thing, manager), layer))
            self._established([thing for thing in layer if thing["kind"] == "CustomResourceDefinition"])

    def _apply(self, thing: Object, manager: str) -> None:
        self.raw("PATCH", self.path_of(thing), thing, APPLY, {"fieldManager": manager, "force": "true"})

    def _established(self, types: list[Object]) -> None:
        deadline = time.monotonic() + 60
        for thing in types:
            spec = thing["spec"]
            version = next(version["name"] for version in spec["versions"] if version["served"])
            while True:
                try:
                    self._resource(f"{spec['group']}/{version}", spec["names"]["kind"])
                    self.raw("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", params={"limit": "1"})
                    break
                except ApiError as error:
                    if error.code != 404 or time.monotonic() > deadline:
                        raise
                    time.sleep(0.03)
