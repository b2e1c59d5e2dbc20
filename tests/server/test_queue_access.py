"""Scopes of tokens, and the lists of queues, as the server obeys them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from penstock.service import stores, tokens
from penstock.service.tokens import SCOPES
from tests.cli.test_access import QUEUES
from tests.server.served import Served, wait_for
from tests.server.test_access import routes, rule_of

FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: work
queue: team-a
steps:
- {name: work, script: {source: sleep 30}, resources: {cpu: 1}}
"""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("closed") / ".penstock") as found:
        said = found.ask("PUT", "/api/v1/queues", QUEUES.replace('"sue"', '"sue science"').encode(), headers=YAML)
        assert said.status == 200, said
        yield found


YAML = {"Content-Type": "application/yaml"}


def token(served: Served, person: str, role: str = "submitter", groups: tuple[str, ...] = ()) -> str:
    with stores.open_or_create(served.settings) as store:
        return tokens.create(store, person, role, 0.0, None, "", groups)[1]


def submitted(served: Served, token: str) -> Any:
    return served.ask("POST", "/api/v1/runs", {"document": FLOW}, token=token)


def test_the_person_and_the_groups_of_a_token_decide_where_it_submits(closed: Served) -> None:
    assert submitted(closed, token(closed, "sue")).status == 201
    assert submitted(closed, token(closed, "ed", groups=("science",))).status == 201
    assert submitted(closed, token(closed, "leo")).status == 201  # who administers a queue may submit to it
    for person, groups in (("eve", ()), ("root", ("wheel",)), ("science", ())):
        found = submitted(closed, token(closed, person, groups=groups))
        assert (found.status, found.data["code"]) == (400, "P825"), (person, found)


def test_who_administers_a_queue_stops_it_and_ends_runs_in_it(closed: Served) -> None:
    run = submitted(closed, token(closed, "sue")).data["run"]["run"]
    leo, eve = token(closed, "leo"), token(closed, "eve")
    viewer = token(closed, "leo", "viewer")
    for path in ("queues/team-a/hold", f"runs/{run}/cancel"):
        body = {} if path.startswith("runs") else None
        assert closed.ask("POST", f"/api/v1/{path}", body, token=eve).status == 403, path
        assert closed.ask("POST", f"/api/v1/{path}", body, token=viewer).status == 403, path
        assert closed.ask("POST", f"/api/v1/{path}", body, token=leo).status in (200, 202), path
    assert closed.ask("POST", "/api/v1/queues/team-a/resume", token=leo).status == 200
    assert closed.ask("PUT", "/api/v1/queues", QUEUES.encode(), token=leo, headers=YAML).status == 403
    wait_for(lambda: closed.get(f"runs/{run}")["state"] == "cancelled")
    rows = closed.get("audit?person=leo")["items"]
    assert {row["verb"] for row in rows} >= {"hold", "resume", "cancel"}
    assert {row["person"] for row in rows} == {"leo"}


def test_pages_show_the_buttons_to_those_who_may(closed: Served) -> None:
    leo, eve = (closed.browser(token(closed, person)) for person in ("leo", "eve"))
    there = "/queues/team-a"
    assert "/queues/team-a/" in closed.ask("GET", there, token=None, headers=leo).text.partition("<form")[2]
    assert 'action="/queues/' not in closed.ask("GET", there, token=None, headers=eve).text


def test_a_token_with_scopes_is_good_for_these_parts_of_the_api_only(closed: Served) -> None:
    parts: dict[str, set[str]] = {}
    for method, path, route in routes(closed):
        rule = rule_of(route)
        if rule is None or path.endswith("/stream") or method != "GET" or "{" in path:
            continue
        assert isinstance(route, APIRoute)
        tag = str((route.tags or ["pages"])[0])
        assert tag in (*SCOPES, "pages"), path
        parts.setdefault(tag, set()).add(path)
    assert set(parts) >= {"runs", "queues", "people", "server", "pages"}
    for scope in ("runs", "server"):
        with stores.open_or_create(closed.settings) as store:
            made = tokens.create(store, "ci", "admin", 0.0, scopes=(scope,))[1]
        for tag, paths in parts.items():
            for path in paths:
                status = closed.ask("GET", path, token=made).status
                assert (status == 403) == (tag != scope and path != "/api/v1/whoami"), (scope, path, status)
        assert closed.ask("GET", "/api/v1/whoami", token=made).data["scopes"] == [scope]


def test_scopes_and_groups_are_given_and_seen(closed: Served) -> None:
    body = {"person": "ci", "role": "viewer", "groups": ["science"], "scopes": ["server"]}
    made = closed.ask("POST", "/api/v1/tokens", body)
    assert made.status == 201 and made.data["groups"] == ["science"] and made.data["scopes"] == ["server"]
    assert closed.ask("GET", "/metrics", token=made.data["secret"]).status == 200
    assert closed.ask("POST", "/api/v1/tokens", {**body, "scopes": ["everything"]}).status == 400
    assert closed.ask("POST", "/api/v1/tokens", {**body, "groups": ["a b"]}).data["code"] == "P932"


def test_the_audit_is_a_page_for_admins(closed: Served) -> None:
    page = closed.ask("GET", "/audit?person=leo", token=None, headers=closed.browser())
    assert page.status == 200 and "<td>leo</td>" in page.text and "<td>sue</td>" not in page.text
    assert closed.ask("GET", "/audit", token=None, headers=closed.browser(token(closed, "eve"))).status == 403
