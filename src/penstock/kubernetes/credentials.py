"""Who we are to the API server: a token, a token in a file that changes, a client certificate, or what a login plugin says. Made by kubeconfig, asked by client."""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import Problem, UserError

REREAD = 60.0
"""Seconds after which a token file is read again; the kubelet renews a token long before it ends."""
EARLY = 30.0
"""Seconds before its end at which a plugin's credential is asked for anew."""
PLUGIN_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Credential:
    authorization: str = ""
    """The header's value."""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Basic:
    user: str
    password: str

    def header(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class CredentialSource(Protocol):
    """Where the credential comes from. Called for each request, from any thread."""

    def current(self, refused: str | None = None) -> Credential:
        """`refused` is the header that the server has just answered with 401: another one is wanted, if there is any."""


@dataclass(frozen=True)
class Fixed:
    credential: Credential

    def current(self, refused: str | None = None) -> Credential:
        return self.credential


class TokenFile:
    def __init__(self, path: Path, certificate: str = "", key: str = "") -> None:
        self._path = path
        self._certificate, self._key = certificate, key
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._known = Credential()

    def current(self, refused: str | None = None) -> Credential:
        with self._lock:
            now = time.monotonic()
            if now - self._read_at > REREAD or refused == self._known.authorization:
                try:
                    token = self._path.read_text().strip()
                except OSError:
                    if not self._known.authorization:
                        raise
                    # The file is being replaced; the token that we have is still good for a while.
                    return self._known
                self._known = Credential(f"Bearer {token}", self._certificate, self._key)
                self._read_at = now
            return self._known


class ExecPlugin:
    """A program that logs in, as kubectl runs it: client.authentication.k8s.io/v1 and v1beta1."""

    def __init__(self, spec: Mapping[str, Any], file: Path, cluster: Mapping[str, Any], ca: str) -> None:
        self._spec = spec
        self._file = file
        self._cluster = cluster
        self._ca = ca
        self._lock = threading.Lock()
        self._known = Credential()
        self._until = float("-inf")

    def current(self, refused: str | None = None) -> Credential:
        with self._lock:
            if time.time() >= self._until or (refused is not None and refused == self._known.authorization):
                self._known, self._until = self._run()
            return self._known

    def _problem(self, message: str, fix: str) -> UserError:
        return UserError(Problem("P881", message, fix, str(self._file)))

    def _run(self) -> tuple[Credential, float]:
        api = str(self._spec.get("apiVersion", ""))
        if api not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
            raise self._problem(f'login plugins of "{api}" are not known', "let the plugin write its entry anew")
        command = str(self._spec.get("command", ""))
        if "/" in command:
            command = str(self._file.parent / command)
        if not shutil.which(command):
            hint = " ".join(str(self._spec.get("installHint") or "").split())
            raise self._problem(
                f"the login plugin {command} is not installed", hint or "install it, or put it into PATH"
            )
        try:
            done = subprocess.run(
                [command, *map(str, self._spec.get("args") or ())],
                env=self._environment(api),
                capture_output=True,
                stdin=None if self._interactive() else subprocess.DEVNULL,
                timeout=PLUGIN_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._problem(f"the login plugin failed: {error}", "log in with kubectl first") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise self._problem(
                f"the login plugin ended with {done.returncode}: {said[-1] if said else 'no words'}",
                "log in with kubectl first",
            )
        return self._answer(done.stdout)

    def _interactive(self) -> bool:
        return self._spec.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()

    def _environment(self, api: str) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": self._interactive()}
        if self._spec.get("provideClusterInfo"):
            spec["cluster"] = {
                key: value
                for key, value in {
                    "server": self._cluster.get("server"),
                    "tls-server-name": self._cluster.get("tls-server-name"),
                    "insecure-skip-tls-verify": self._cluster.get("insecure-skip-tls-verify"),
                    "proxy-url": self._cluster.get("proxy-url"),
                    "certificate-authority-data": base64.b64encode(self._ca.encode()).decode(),
                    "config": _extension(self._cluster),
                }.items()
                if value
            }
        own = {str(one["name"]): str(one["value"]) for one in self._spec.get("env") or ()}
        info = {"apiVersion": api, "kind": "ExecCredential", "spec": spec}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _answer(self, output: bytes) -> tuple[Credential, float]:
        try:
            status = json.loads(output)["status"]
            token = status.get("token") or ""
            known = Credential(
                f"Bearer {token}" if token else "",
                status.get("clientCertificateData") or "",
                status.get("clientKeyData") or "",
            )
            ends = status.get("expirationTimestamp")
            until = datetime.datetime.fromisoformat(ends).timestamp() - EARLY if ends else float("inf")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._problem("the login plugin wrote no ExecCredential", "try it by hand") from None
        if not known.authorization and not known.certificate:
            raise self._problem("the login plugin gave neither a token nor a certificate", "try it by hand")
        return known, until


def _extension(cluster: Mapping[str, Any]) -> Any:
    found = (one for one in cluster.get("extensions") or () if one.get("name") == "client.authentication.k8s.io/exec")
    return next((one.get("extension") for one in found), None)
