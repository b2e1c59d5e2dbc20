"""Where the API server is and who we are: kubeconfig files as kubectl reads them, login plugins, the service account in a cluster."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.errors import UserError
from penstock.kubernetes.credentials import ExecPlugin
from penstock.kubernetes.kubeconfig import Connection, connect, from_files, in_cluster, proxy_for


def write(path: Path, **given: Any) -> Path:
    data = {
        "clusters": [{"name": "c", "cluster": {"server": "https://c.example.com:6443/"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "x",
    }
    data.update(given)
    path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
    return path


def user(tmp_path: Path, **entry: Any) -> Connection:
    return from_files([write(tmp_path / "config", users=[{"name": "u", "user": entry}])], env={})


def test_a_token_and_a_namespace(tmp_path: Path) -> None:
    found = from_files([write(tmp_path / "config")], env={})
    assert (found.server, found.namespace, found.context) == ("https://c.example.com:6443", "team", "x")
    assert found.source.current().authorization == "Bearer t"


def test_several_files_the_first_that_sets_a_name_wins(tmp_path: Path) -> None:
    one = write(tmp_path / "one", users=None, **{"current-context": None})
    two = write(
        tmp_path / "two",
        clusters=[{"name": "c", "cluster": {"server": "https://other"}}],
        contexts=[{"name": "y", "context": {"cluster": "c", "user": "u"}}],
        **{"current-context": "y"},
    )
    found = connect(env={"KUBECONFIG": os.pathsep.join(map(str, (tmp_path / "none", one, two)))})
    assert (found.context, found.server, found.namespace) == ("y", "https://c.example.com:6443", "default")
    assert connect("x", env={"KUBECONFIG": f"{one}{os.pathsep}{two}"}).namespace == "team"


def test_files_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "ca.pem").write_text("CA")
    (tmp_path / "deep" / "cert").write_text("CERT")
    (tmp_path / "deep" / "token").write_text("tok\n")
    file = write(
        tmp_path / "deep" / "config",
        clusters=[{"name": "c", "cluster": {"server": "https://c", "certificate-authority": "../ca.pem"}}],
        users=[
            {
                "name": "u",
                "user": {
                    "client-certificate": "cert",
                    "client-key-data": base64.b64encode(b"KEY").decode(),
                    "tokenFile": "token",
                },
            }
        ],
    )
    found = from_files([file], env={})
    who = found.source.current()
    assert (found.ca, who.certificate, who.key, who.authorization) == ("CA", "CERT", "KEY", "Bearer tok")


def test_basic_and_insecure(tmp_path: Path) -> None:
    found = user(tmp_path, username="me", password="secret")
    assert found.source.current().authorization == "Basic " + base64.b64encode(b"me:secret").decode()
    file = write(
        tmp_path / "config",
        clusters=[
            {
                "name": "c",
                "cluster": {"server": "https://c", "insecure-skip-tls-verify": True, "tls-server-name": "name"},
            }
        ],
    )
    found = from_files([file], env={})
    assert (found.insecure, found.server_name) == (True, "name")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"current-context": None}, "no current context"),
        ({"current-context": "z"}, 'no context "z"'),
        ({"users": []}, 'no user "u"'),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "no server"),
        ({"users": [{"name": "u", "user": {"client-certificate": "nowhere"}}]}, "cannot be read"),
        ({"users": [{"name": "u", "user": {"client-key-data": "%%"}}]}, "base64"),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "gcp"}}}]}, "auth-provider"),
    ],
)
def test_what_is_wrong_is_said_with_the_place(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    file = write(tmp_path / "config", **given)
    with pytest.raises(UserError, match=words) as caught:
        from_files([file], env={})
    assert caught.value.code == "P880"
    assert str(file) in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("a: [")
    (tmp_path / "list").write_text("[1]")
    for file in ("bad", "list", "absent"):
        with pytest.raises(UserError) as caught:
            connect(files=[tmp_path / file])
        assert caught.value.code == "P880"
    with pytest.raises(UserError, match="there is no kubeconfig"):
        connect(env={"KUBECONFIG": str(tmp_path / "absent")})


def plugin(tmp_path: Path, script: str, **spec: Any) -> ExecPlugin:
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n{script}\n")
    program.chmod(0o755)
    entry = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never", **spec}
    found = user(tmp_path, exec=entry)
    assert isinstance(found.source, ExecPlugin)
    return found.source


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().split())


def answer(**status: str) -> str:
    return f"echo '{json.dumps({'kind': 'ExecCredential', 'status': status})}'"


def test_a_login_plugin_is_run_once_and_again_when_it_is_refused(tmp_path: Path) -> None:
    source = plugin(tmp_path, answer(token="tok"))
    assert source.current().authorization == "Bearer tok"
    assert source.current().authorization == "Bearer tok"
    assert runs(tmp_path) == 1
    source.current("Bearer an-older-one")  # refused, but we have another one by now
    assert runs(tmp_path) == 1
    source.current("Bearer tok")
    assert runs(tmp_path) == 2


def test_a_login_that_ends_is_renewed(tmp_path: Path) -> None:
    source = plugin(tmp_path, answer(token="tok", expirationTimestamp="2020-01-01T00:00:00Z"))
    source.current()
    source.current()
    assert runs(tmp_path) == 2
    later = plugin(
        tmp_path, answer(clientCertificateData="C", clientKeyData="K", expirationTimestamp="2999-01-01T00:00:00Z")
    )
    assert (later.current().certificate, later.current().key) == ("C", "K")
    assert runs(tmp_path) == 3


def test_a_login_plugin_is_told_what_it_is_for(tmp_path: Path) -> None:
    script = f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; printf %s "$MINE$1" > {tmp_path}/own\n' + answer(
        token="t"
    )
    source = plugin(tmp_path, script, env=[{"name": "MINE", "value": "m"}], args=["arg"], provideClusterInfo=True)
    source.current()
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"]["server"] == "https://c.example.com:6443/"
    assert (tmp_path / "own").read_text() == "marg"


@pytest.mark.parametrize(
    ("script", "spec", "words"),
    [
        ("echo no rights >&2; exit 3", {}, "ended with 3: no rights"),
        ("echo nonsense", {}, "wrote no ExecCredential"),
        (answer(), {}, "neither a token nor a certificate"),
        ("", {"command": "penstock-no-such-program", "installHint": "get it there"}, "is not installed.*get it there"),
        ("", {"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1"),
    ],
)
def test_a_login_plugin_that_fails(tmp_path: Path, script: str, spec: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        plugin(tmp_path, script, **spec).current()
    assert caught.value.code == "P881"


def test_the_service_account_of_a_pod(tmp_path: Path) -> None:
    for name, text in (("token", "tok\n"), ("ca.crt", "CA"), ("namespace", "here\n")):
        (tmp_path / name).write_text(text)
    found = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (found.server, found.namespace, found.ca) == ("https://[fd00::1]:443", "here", "CA")
    assert found.source.current().authorization == "Bearer tok"
    with pytest.raises(UserError):
        in_cluster({}, tmp_path)


def test_proxies_are_for_the_outside_only() -> None:
    env = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "internal.example.com"}
    assert proxy_for("https://c.example.com:6443", env) == "http://proxy:3128"
    for server in ("https://127.0.0.1:6443", "https://localhost", "https://[::1]:6443", "https://internal.example.com"):
        assert proxy_for(server, env) == ""
    assert proxy_for("https://c.example.com", {}) == ""
