"""How to reach an API server and as whom: from kubeconfig files, or from the service account inside a cluster. Called by client and the commands.

KUBECONFIG may name several files; as with kubectl, the first that sets a name wins, and relative paths start at the file that names them.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import Problem, UserError, known_are
from penstock.kubernetes.credentials import Basic, Credential, CredentialSource, ExecPlugin, Fixed, TokenFile

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Connection:
    """An API server, how to trust it, and who we are."""

    server: str
    namespace: str = "default"
    ca: str = ""
    """Certificates in PEM. Empty: those of the machine."""
    insecure: bool = False
    server_name: str = ""
    """The name in the server's certificate, if it is not that of the address."""
    proxy: str = ""
    source: CredentialSource = field(default_factory=lambda: Fixed(Credential()))
    context: str = ""


def unusable(message: str, fix: str, where: str = "") -> UserError:
    return UserError(Problem("P880", message, fix, where))


def connect(context: str = "", files: Sequence[str | Path] = (), env: Mapping[str, str] | None = None) -> Connection:
    """The connection that a command means: files that are named, else KUBECONFIG, else ~/.kube/config, else the cluster that we run in."""
    env = os.environ if env is None else env
    chosen = [Path(file) for file in files]
    if not chosen and env.get("KUBECONFIG"):
        chosen = [Path(file) for file in env["KUBECONFIG"].split(os.pathsep) if file]
    if not chosen and not context and "KUBERNETES_SERVICE_HOST" in env and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster(env)
    return from_files(chosen or [Path.home() / ".kube" / "config"], context, must_exist=bool(files), env=env)


def in_cluster(env: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT) -> Connection:
    """As the service account of the pod that we run in. Its token changes; the file is read again."""
    env = os.environ if env is None else env
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        raise unusable(
            "this process does not run in a cluster with a service account", "name a kubeconfig, or set KUBECONFIG"
        )
    namespace = folder / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca=(folder / "ca.crt").read_text(),
        source=TokenFile(folder / "token"),
        context="in-cluster",
    )


def from_files(
    files: Sequence[Path], context: str = "", must_exist: bool = False, env: Mapping[str, str] | None = None
) -> Connection:
    """One context of some kubeconfig files. Files that do not exist are passed over, unless they were named."""
    merged: dict[str, dict[str, tuple[Mapping[str, Any], Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = context
    there = [file for file in files if must_exist or file.exists()]
    if not there:
        names = ", ".join(map(str, files))
        raise unusable(f"there is no kubeconfig: {names}", "set KUBECONFIG to the file with your cluster's address")
    for file in there:
        data = _read(file)
        current = current or str(data.get("current-context") or "")
        for part, singular in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for entry in data.get(part) or ():
                if isinstance(entry, Mapping) and "name" in entry:
                    merged[part].setdefault(str(entry["name"]), (entry.get(singular) or {}, file))
    where = ", ".join(map(str, there))
    if not current:
        raise unusable("the kubeconfig has no current context", "kubectl config use-context NAME", where)

    def named(part: str, singular: str, name: str) -> tuple[Mapping[str, Any], Path]:
        if name not in merged[part]:
            raise unusable(f'the kubeconfig has no {singular} "{name}"', known_are(merged[part]), where)
        return merged[part][name]

    chosen, _ = named("contexts", "context", current)
    cluster, cluster_file = named("clusters", "cluster", str(chosen.get("cluster", "")))
    user, user_file = named("users", "user", str(chosen["user"])) if chosen.get("user") else ({}, there[0])
    server = str(cluster.get("server") or "")
    if not server.startswith(("https://", "http://")):
        raise unusable(
            f'the cluster "{chosen.get("cluster")}" has no server that begins with https://',
            "set clusters[].cluster.server",
            str(cluster_file),
        )
    ca = _data_or_file(cluster, "certificate-authority", cluster_file)
    return Connection(
        server=server.rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        ca=ca,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or "") or proxy_for(server, env),
        source=_source(user, user_file, cluster, ca),
        context=current,
    )


def _read(file: Path) -> Mapping[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(file.read_text()) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        said = str(error).splitlines()[0]
        raise unusable(
            f"the kubeconfig cannot be read: {said}", "set KUBECONFIG to a readable file", str(file)
        ) from None
    if not isinstance(data, Mapping):
        raise unusable("the kubeconfig is not a map", "set KUBECONFIG to a kubeconfig", str(file))
    return data


def _data_or_file(entry: Mapping[str, Any], name: str, file: Path) -> str:
    if entry.get(f"{name}-data"):
        try:
            return base64.b64decode(str(entry[f"{name}-data"]), validate=True).decode()
        except ValueError:
            raise unusable(f"{name}-data is not text in base64", "write it with base64 -w0", str(file)) from None
    if entry.get(name):
        path = file.parent / Path(str(entry[name])).expanduser()
        try:
            return path.read_text()
        except (OSError, ValueError) as error:
            raise unusable(f"{name} cannot be read: {error}", "correct the path", str(file)) from None
    return ""


def _source(user: Mapping[str, Any], file: Path, cluster: Mapping[str, Any], ca: str) -> CredentialSource:
    certificate = _data_or_file(user, "client-certificate", file)
    key = _data_or_file(user, "client-key", file)
    if user.get("tokenFile"):
        return TokenFile(file.parent / str(user["tokenFile"]), certificate, key)
    if user.get("token"):
        return Fixed(Credential(f"Bearer {user['token']}", certificate, key))
    if isinstance(user.get("exec"), Mapping):
        return ExecPlugin(user["exec"], file, dict(cluster), ca)
    if user.get("username") and user.get("password"):
        return Fixed(Credential(Basic(str(user["username"]), str(user["password"])).header(), certificate, key))
    if user.get("auth-provider"):
        raise unusable(
            "the kubeconfig logs in with an auth-provider, which Kubernetes has removed",
            "use an exec plugin",
            str(file),
        )
    return Fixed(Credential("", certificate, key))


def proxy_for(server: str, env: Mapping[str, str] | None = None) -> str:
    """The proxy of the environment, never for this machine itself."""
    url = urlsplit(server)
    host = url.hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost" or host.endswith(".localhost")
    if loopback:
        return ""
    env = os.environ if env is None else env
    proxies = {
        name[: -len("_proxy")].lower(): value
        for name, value in sorted(env.items())
        if name.lower().endswith("_proxy") and value
    }
    if urllib.request.proxy_bypass_environment(url.netloc, {"no": proxies.get("no", "")}):  # type: ignore[attr-defined]
        return ""
    return proxies.get(url.scheme, "") or proxies.get("all", "")
