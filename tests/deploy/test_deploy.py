"""What deploy/ has for a team's server: the chart as Helm renders it, the compose file as podman-compose reads it, the image's stages. What they
start is held against the commands that there are."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from penstock import __version__
from penstock.cli.main import cli
from penstock.server.oidc.settings import read as read_sign_in
from testbed import binaries

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "server-chart"
KUBERNETES = "1.36.0"


@cache
def helm() -> str:
    built = binaries.path("helm")
    found = str(built) if built.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm on this machine (make testbed-build builds it, with Go)")
    return found


def parsed(words: list[str]) -> dict[str, Any]:
    """The options that a command of ours understands `words` to be. Raises click.UsageError."""
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, words
    with command.make_context(words[0], list(words[1:])) as ctx:
        return dict(ctx.params)


# -- the chart --------------------------------------------------------------------------------------------------------


def rendered(*values: str) -> dict[tuple[str, str], Any]:
    """(kind, name) → object."""
    given = [word for value in values for word in ("--set-json", value)]
    command = [helm(), "template", "team", str(CHART), "-n", "lab", "--kube-version", KUBERNETES, *given]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pod(objects: dict[tuple[str, str], Any], name: str, kind: str = "Deployment") -> tuple[Any, Any]:
    spec = objects[kind, name]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def test_helm_finds_nothing_wrong_with_the_charts() -> None:
    done = subprocess.run(
        [helm(), "lint", "--strict", "--kube-version", KUBERNETES, str(CHART), str(ROOT / "deploy" / "chart")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "0 chart(s) failed" in done.stdout, done.stdout + done.stderr


def test_the_chart_starts_servers_workers_and_postgresql() -> None:
    objects = rendered()
    spec, server = pod(objects, "team-server")
    options = parsed(server["args"])
    assert options["no_worker"] and options["no_token"] and options["host"] == "0.0.0.0"
    assert options["port"] == server["ports"][0]["containerPort"] and "team-server.lab.svc" in options["names"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        # The address of the pod is no name of the server.
        assert server[probe]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz" and not spec["automountServiceAccountToken"]
    _, worker = pod(objects, "team-worker")
    assert parsed(worker["args"])["jobs"] == 4
    _, database = pod(objects, "team-database", "StatefulSet")
    (claim,) = (one for one in database["env"] if one["name"] == "POSTGRES_PASSWORD")
    for container in (server, worker):
        env = {one["name"]: one for one in container["env"]}
        assert env["PENSTOCK_STORE"]["value"] == "postgresql://penstock@team-database/penstock"
        assert env["PGPASSWORD"]["valueFrom"] == claim["valueFrom"]
        assert env["PENSTOCK_HOME"]["value"].startswith("/var/lib/penstock/")
    assert objects["Secret", "team-database"]["data"]["password"]
    for kind, name in (("Deployment", "team-server"), ("Deployment", "team-worker"), ("StatefulSet", "team-database")):
        spec, container = pod(objects, name, kind)
        assert spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounts, volumes = {one["name"] for one in container["volumeMounts"]}, {one["name"] for one in spec["volumes"]}
        assert mounts - {"data"} <= volumes
    service = objects["Service", "team-server"]["spec"]
    labels = objects["Deployment", "team-server"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()


def test_the_chart_lets_people_sign_in_and_be_reached(tmp_path: Path) -> None:
    sign_in = {
        "issuer": "https://id.example.org",
        "client_id": "penstock",
        "url": "https://penstock.example.org",
        "roles": {"admin": ["platform"]},
    }
    objects = rendered(
        f"signIn={json.dumps(sign_in)}",
        'signInSecret="oidc"',
        'ingress={"enabled":true,"host":"penstock.example.org","tlsSecret":"cert"}',
        'server.proxies=["10.0.0.0/8"]',
    )
    _, server = pod(objects, "team-server")
    options = parsed(server["args"])
    assert "penstock.example.org" in options["names"] and options["proxies"] == ("10.0.0.0/8",)
    mounted = objects["ConfigMap", "team-sign-in"]["data"]["sign-in.yaml"]
    (tmp_path / "sign-in.yaml").write_text(mounted)
    assert read_sign_in(tmp_path / "sign-in.yaml", {}).roles == {"admin": ("platform",)}
    assert options["sign_in"] == "/etc/penstock/sign-in.yaml"
    assert {one["name"] for one in server["env"]} >= {"PENSTOCK_OIDC_SECRET"}
    assert objects["Ingress", "team-server"]["spec"]["tls"][0]["secretName"] == "cert"


def test_the_chart_takes_a_database_that_is_there_and_says_what_is_missing() -> None:
    objects = rendered('database={"enabled":false,"url":"postgresql://penstock@db/penstock","secret":"mine"}')
    assert not [one for one in objects if one[0] == "StatefulSet"] and ("Secret", "team-database") not in objects
    _, worker = pod(objects, "team-worker")
    env = {one["name"]: one for one in worker["env"]}
    assert env["PGPASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "password"}
    command = [helm(), "template", "t", str(CHART), "--kube-version", KUBERNETES, "--set", "database.enabled=false"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "database.url: say where your PostgreSQL is" in done.stderr


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__ == values["image"].rpartition(":")[2]


# -- compose ----------------------------------------------------------------------------------------------------------


def composed(password: str | None) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("podman_compose") is None:
        pytest.skip("no podman-compose here (make setup)")
    env = {name: value for name, value in os.environ.items() if name != "PENSTOCK_DB_PASSWORD"}
    if password:
        env["PENSTOCK_DB_PASSWORD"] = password
    command = [sys.executable, "-m", "podman_compose", "-f", str(ROOT / "deploy" / "compose.yaml"), "config"]
    return subprocess.run(command, capture_output=True, text=True, env=env)


def test_the_compose_file_starts_servers_workers_and_postgresql() -> None:
    services = yaml.safe_load(composed("word").stdout)["services"]
    assert set(services) == {"database", "server", "worker"}
    options = parsed(services["server"]["command"])
    assert options["no_worker"] and options["no_token"] and options["names"] == ("localhost",)
    assert parsed(services["worker"]["command"]) is not None
    for name in ("server", "worker"):
        one = services[name]
        assert one["environment"]["PENSTOCK_STORE"] == "postgresql://penstock@database/penstock"
        assert one["environment"]["PGPASSWORD"] == services["database"]["environment"]["POSTGRES_PASSWORD"] == "word"
        assert one["volumes"] == ["home:/var/lib/penstock"] and "database" in one["depends_on"]
        assert one["build"]["target"] in stages()
    assert services["server"]["ports"] == ["127.0.0.1:8080:8080"]
    assert composed(None).returncode != 0  # there is no password that everybody knows


# -- the image --------------------------------------------------------------------------------------------------------


def stages() -> dict[str, dict[str, str]]:
    """Stage → the last of each instruction, with those of the stage that it begins with."""
    found: dict[str, dict[str, str]] = {}
    name = ""
    for line in (ROOT / "deploy" / "Containerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = dict(found.get(base, {}))
        elif name and word.isupper():
            found[name][word] = rest
    return found


@pytest.mark.parametrize(("target", "words"), [("server", "serve"), ("worker", "worker"), ("controller", "controller")])
def test_the_stages_of_the_image_start_our_commands_as_nobody(target: str, words: str) -> None:
    stage = stages()[target]
    assert json.loads(stage["ENTRYPOINT"]) == ["penstock"] and stage["USER"] == "65532:65532"
    given = json.loads(stage["CMD"])
    assert given[0] == words
    if words != "controller":
        parsed(given)
    assert list(stages())[-1] == "controller"  # what is built if no target is named, as before
