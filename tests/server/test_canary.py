"""What must not be told: secrets of workflows, tokens, the key of cookies, the client's secret at the provider. Everything that the server
returns is searched for them; the routes are those that there are, so that a new one is searched too."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.service import stores, tokens
from tests.server.served import Served
from tests.server.sign_in import free_port, settings_for
from tests.server.test_access import OPEN, routes

CANARY = "kanarienvogel-7f3a/b+c"
CLIENT = "secret-of-the-client-91c4"
FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: careless
steps:
  - name: prints
    script: {source: 'echo "it is $TOKEN"; printf %s "$TOKEN" | base64; echo "x $TOKEN" >&2', env: {TOKEN: "${{ secrets.CANARY }}"}}
  - name: fails
    script: {source: 'echo "$TOKEN" >&2; exit 3', env: {TOKEN: "${{ secrets.CANARY }}"}}
  - name: gives
    script: {source: 'echo "$TOKEN" > out.txt', env: {TOKEN: "${{ secrets.CANARY }}"}}
    outputs: [{name: out, type: str, path: out.txt}]
"""
LEAKY = "apiVersion: penstock/v1\nkind: Workflow\nname: x\nsteps:\n- {name: a, script: {source: 'echo ${{ secrets.CANARY }}'}}\n"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str, list[str]]]:
    """A server, a run of it, and its log."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PENSTOCK_SECRET_CANARY", CANARY)
    patch.setenv("PENSTOCK_ON_HOST", "yes")
    log: list[str] = []
    provider = settings_for(f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:1", secret=CLIENT)
    with Served(tmp_path_factory.mktemp("canary") / ".penstock", sign_in=provider, log=log.append) as served:
        run = served.submit(FLOW, options={})["run"]["run"]
        served.wait(run, "failed")
        yield served, run, log
    patch.undo()


def secrets_of(served: Served) -> dict[str, str]:
    with stores.open_or_create(served.settings) as store:
        other = tokens.create(store, "ana", "viewer", 0.0)[1]
        key = store.note("cookie-key")
        answers = store.answers.key().hex()
    assert key
    return {
        "the secret": CANARY,
        "the secret in base64": base64.b64encode(CANARY.encode()).decode()[:24],
        "the secret in a URL": quote(CANARY, safe=""),
        "the client's secret": CLIENT,
        "the server's token": served.own.rpartition("_")[2],
        "a token": other.rpartition("_")[2],
        "the key of cookies": key,
        "the key of answers": answers,
    }


def test_no_answer_to_anything_has_a_secret_in_it(watched: tuple[Served, str, list[str]]) -> None:
    served, run, log = watched
    hidden = secrets_of(served)
    digest = "sha256:" + "0" * 64
    values = {"run": run, "name": "nowhere", "name:path": "nowhere", "code": "P466", "digest": digest, "verb": "hold"}
    paths = [path for method, path, _ in routes(served) if method == "GET"]
    bodies: dict[str, bytes] = {}
    cookies = {"text/html": served.browser(), "application/json": {}}
    steps = ("prints", "fails", "gives")
    for path in paths:
        there = re.sub(r"\{([a-z:]+)\}", lambda name: values.get(name[1], "x"), path)
        ways = [there]
        if path.startswith(("/api/v1/runs/", "/runs/")):
            ways += [f"{there}?{word}={step}" for step in steps for word in ("path", "step")]
        for way in ways:
            for kind, headers in cookies.items():
                token = None if headers or ("GET", path) in OPEN else ""
                if path == "/api/v1/stream":
                    continue  # it never ends, and says only that something has happened
                found = served.ask("GET", way, token=token, headers={**headers, "Accept": kind})
                assert found.status != 500, (way, found)
                bodies[f"{kind} {way}"] = found.body + str(found.headers).encode()
    assert len(bodies) > 80
    told = b"".join(bodies.values())
    assert b"***" in told  # what was printed is there, without the secret
    for name, text in hidden.items():
        where = [way for way, body in bodies.items() if text.encode() in body]
        assert not where, (name, where)
        assert not [line for line in log if text in line], name


def test_no_error_has_a_secret_in_it(watched: tuple[Served, str, list[str]]) -> None:
    served, run, _ = watched
    hidden = secrets_of(served)
    asked = [
        ("POST", "/api/v1/runs", {"document": LEAKY}),
        ("POST", "/api/v1/runs", {"document": FLOW, "params": {"nothing": 1}}),
        ("POST", "/api/v1/plan", {"document": FLOW}),
        ("POST", "/api/v1/convert", {"document": FLOW, "to": "argo"}),
        ("POST", f"/api/v1/runs/{run}/retry", {}),
        ("POST", f"/api/v1/runs/{run}/resume", {"task": "gives"}),
        ("GET", "/api/v1/runs/none", None),
        ("GET", "/login/oidc", None),
        ("GET", "/login/oidc/callback?code=x&state=y", None),
        ("POST", "/login", None),
    ]
    for method, path, body in asked:
        found = served.ask(method, path, body)
        assert found.status < 400 or found.data["code"] not in ("", "P500"), (path, found)
        for name, text in hidden.items():
            assert text not in found.text + str(found.headers), (name, path)


def test_a_token_that_is_wrong_is_not_repeated(watched: tuple[Served, str, list[str]]) -> None:
    served, _, log = watched
    wrong = f"pst_abc_{'d' * 64}"
    for found in (
        served.ask("GET", "/api/v1/runs", token=wrong),
        served.ask("GET", f"/login?token={wrong}", token=None),
        served.ask("GET", "/api/v1/runs", token=None, headers={"Cookie": f"penstock={wrong}"}),
    ):
        assert "d" * 64 not in found.text
    assert not [line for line in log if "d" * 64 in line]
    served.server.app.state.gate.tries._seen.clear()


def test_nothing_that_is_kept_has_it_either(watched: tuple[Served, str, list[str]]) -> None:
    home: Path = watched[0].settings.home
    for file in home.rglob("*"):
        if file.is_file() and "work" not in file.relative_to(home).parts:  # there is what the step itself has written
            assert CANARY.encode() not in file.read_bytes(), file
