"""Who may do what: every route × every role × one's own and somebody else's run. A route without a rule fails."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from fastapi.routing import APIRoute

from penstock.server.access import Needs
from penstock.server.app import ROUTERS
from penstock.service import stores, tokens
from penstock.service.tokens import ROLES
from tests.server.served import NOTHING, Served, wait_for

OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/login"), ("POST", "/login"), ("POST", "/logout")} | {
    ("GET", "/login/oidc"),
    ("GET", "/login/oidc/callback"),
    ("POST", "/callbacks/{token}"),
}
"""For everybody."""
WAITS = """
apiVersion: penstock/v1
kind: Workflow
name: waits
steps:
- {name: a, suspend: {message: go on?}}
"""
PAYLOAD = """
apiVersion: penstock/v1
kind: Workflow
name: ingest
params: [{name: payload}]
payload: {param: payload}
steps:
- {name: a, script: {source: "true"}}
"""
BODIES: dict[str, Any] = {
    "/api/v1/payloads": {"document": "?", "payload": 1},
    "/api/v1/payloads/redrive": {"since": 1e10},
    "/api/v1/tokens": {"person": "x", "role": "viewer"},
    "/api/v1/plan": {"document": "?"},
    "/api/v1/convert": {"document": "?", "to": "argo"},
    "/api/v1/blobs/missing": {"digests": []},
}
VALUES = {
    "digest": "sha256:" + "0" * 64,
    "code": "P101",
    "id": "none",
    "name": "nowhere",
    "verb": "hold",
    "query": "engines",
    "number": "1",
    "name:path": "nowhere",
    "schedule": "nightly",
    "process": "nothing",
}


def routes(served: Served) -> list[tuple[str, str, APIRoute]]:
    found = []
    for prefix, router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            found += [(method, prefix + route.path, route) for method in sorted(route.methods) if method != "HEAD"]
    assert len(found) > 40
    ours = len(ROUTERS) + 2  # static files, the OpenAPI document
    assert len(served.server.app.routes) == ours
    return found


def rule_of(route: APIRoute) -> Needs | None:
    rules = [one.call for one in route.dependant.dependencies if isinstance(one.call, Needs)]
    assert len(rules) <= 1
    return rules[0] if rules else None


def test_every_route_has_a_rule_but_those_for_everybody(served: Served) -> None:
    without = {(method, path) for method, path, route in routes(served) if rule_of(route) is None}
    assert without == OPEN


def test_the_matrix(served: Served) -> None:
    """403 exactly where the rule says so; without a token 401."""
    ana = served.token("ana", "submitter")
    own = served.submit(token=ana)["run"]["run"]
    served.wait(own)
    sent = {"document": PAYLOAD, "payload": 1, "options": {"dry": True}}
    VALUES["payload"] = served.ask("POST", "/api/v1/payloads", sent, token=served.token("ana", "submitter")).data["run"]
    people = {role: served.token("ana", role) for role in ROLES}
    others = {role: served.token("bob", role) for role in ROLES}
    checked = 0
    for method, path, route in routes(served):
        rule = rule_of(route)
        if rule is None or path.endswith("/stream"):
            continue
        for role in ROLES:
            for mine, token in ((True, people[role]), (False, others[role])):
                if "{schedule}" in path:
                    add_schedule(served, ana)
                status = asked(served, method, path, own, token)
                allowed = ROLES.index(role) >= ROLES.index(rule.role) or (rule.own and mine and role != "viewer")
                assert (status != 403) == allowed, (method, path, role, mine, status)
                assert status not in (401, 404, 405, 500) or (allowed and status == 404), (method, path, role, status)
                checked += 1
        assert asked(served, method, path, own, None) == 401, (method, path)
        assert asked(served, method, path, own, "pst_nobody_00") in (401, 429), (method, path)
        served.server.app.state.gate.tries._seen.clear()
    assert checked > 200


def add_schedule(served: Served, token: str) -> None:
    """One of somebody; it may have been removed."""
    body = {"schedule": "nightly", "cron": ["@yearly"], "document": NOTHING, "options": {"dry": True}, "replace": True}
    assert served.ask("POST", "/api/v1/schedules", body, token=token).status == 201


def asked(served: Served, method: str, path: str, run: str, token: str | None) -> int:
    there = path.replace("{run}", run).replace("/schedules/{schedule}/{verb}", "/schedules/{schedule}/pause")
    there = re.sub(r"\{([a-z:]+)\}", lambda name: VALUES[name[1]], there)
    query = "?path=each%5B0%5D" if path.endswith("/task") else ""
    body: Any = BODIES.get(path, {} if method == "POST" else None)
    if method == "PUT":
        body = b"x"
    return served.ask(method, there + query, body, token=token).status


def test_a_token_is_of_no_use_once_it_is_revoked_or_has_expired(served: Served) -> None:
    token, short = served.token("eve", "viewer"), served.token("eve", "viewer", lifetime=0.3)
    headers = served.browser(token)
    assert served.ask("GET", "/api/v1/whoami", token=token).data["person"] == "eve"
    assert served.ask("GET", "/", token=None, headers=headers).status == 200
    with stores.open_or_create(served.settings) as store:
        tokens.revoke(store, token, time.time())
    assert served.ask("GET", "/api/v1/whoami", token=token).data["detail"].endswith("was revoked")
    assert served.ask("GET", "/", token=None, headers=headers).status == 303  # to sign in
    time.sleep(0.35)
    assert served.ask("GET", "/api/v1/whoami", token=short).data["detail"].endswith("has expired")


def test_a_stream_ends_when_its_token_is_revoked_or_expires(served: Served) -> None:
    run = served.submit(document=WAITS, options={})["run"]["run"]
    heard: dict[str, str] = {}

    def listen(name: str, path: str, token: str) -> None:
        heard[name] = served.ask("GET", path, token=token).text

    revoked, short = served.token("eve", "viewer"), served.token("eve", "viewer", lifetime=3.0)
    paths = {"run": f"/api/v1/runs/{run}/stream", "all": "/api/v1/stream"}
    threads = [
        threading.Thread(target=listen, args=(f"{name} {kind}", path, token))
        for name, path in paths.items()
        for kind, token in (("revoked", revoked), ("short", short))
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: "penstock_http_open 5" in served.ask("GET", "/metrics").text)  # they and this
    with stores.open_or_create(served.settings) as store:
        tokens.revoke(store, revoked, time.time())
    for thread in threads:
        thread.join(10)
    assert len(heard) == 4
    for name, text in heard.items():
        assert text.rstrip().splitlines()[-2] == "event: refused", name
        assert ("was revoked" if "revoked" in name else "has expired") in text and "P930" in text
    served.ask("POST", f"/api/v1/runs/{run}/cancel", {})


def test_what_was_refused_is_noted(served: Served) -> None:
    served.ask("PUT", "/api/v1/queues", b"x", token=served.token("mallory", "viewer"))
    (row,) = served.get("audit?person=mallory")["items"]
    assert (row["verb"], row["target"], row["status"]) == ("refused", "PUT /api/v1/queues", 403)


def test_secrets_are_not_in_the_store(served: Served) -> None:
    token = served.token("ana", "viewer")
    secret = token.rpartition("_")[2]
    for file in served.settings.home.rglob("state.db*"):
        assert secret.encode() not in file.read_bytes()
    assert secret not in served.ask("GET", "/api/v1/tokens").text


def test_a_signed_cookie_cannot_be_made_up(served: Served) -> None:
    headers = served.browser()
    name, _, value = headers["Cookie"].partition("=")
    id, until, signature = value.split(".")
    for forged in (f"{id}.{int(until) + 1}.{signature}", f"other.{until}.{signature}", f"{id}.{until}.", "", "é.1.x"):
        found = served.ask(
            "GET", "/api/v1/whoami", token=None, headers={"Cookie": f"{name}={forged}".encode().decode("latin-1")}
        )
        assert found.status == 401, forged
    served.server.app.state.gate.tries._seen.clear()


def test_forms_of_other_sites_change_nothing(served: Served) -> None:
    run = served.submit()["run"]["run"]
    headers = served.browser()
    form = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    gate = served.server.app.state.gate
    word = gate.word(tokens.Identity("owner", "admin", served.own.split("_")[1]))
    for body in (b"", b"csrf=", b"csrf=wrong"):
        assert served.ask("POST", f"/runs/{run}/cancel", body, token=None, headers=form).status == 403
    good = f"csrf={word}".encode()
    evil = {**form, "Origin": "http://evil.example"}
    assert served.ask("POST", f"/runs/{run}/cancel", good, token=None, headers=evil).status == 403
    assert served.ask("POST", f"/runs/{run}/cancel", good, token=None, headers=form).status in (303, 409)


def test_who_guesses_tokens_is_slowed_down(served: Served) -> None:
    served.server.app.state.gate.tries._seen.clear()
    found = [served.ask("GET", "/api/v1/whoami", token="pst_guess_00").status for _ in range(25)]
    assert found[:20] == [401] * 20 and found[20:] == [429] * 5
    served.server.app.state.gate.tries._seen.clear()


@pytest.mark.parametrize("there", ["//evil.example", "http://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_signing_in_leads_nowhere_else(served: Served, there: str) -> None:
    from urllib.parse import quote

    found = served.ask("GET", f"/login?token={served.own}&next={quote(there)}", token=None)
    assert found.headers["location"] == "/"
    assert "HttpOnly" in found.headers["set-cookie"] and "SameSite=lax" in found.headers["set-cookie"]


def test_what_was_done_is_noted_with_who_did_it(served: Served) -> None:
    run = served.submit(token=served.token("zoe", "submitter"))["run"]["run"]
    rows = served.get("audit")["items"]
    assert any(
        (row["person"], row["verb"], row["target"], row["status"]) == ("zoe", "submit", run, 201) for row in rows
    )
