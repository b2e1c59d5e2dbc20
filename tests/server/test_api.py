"""The API: what it takes, what it gives, and what it refuses."""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.service.connection import ServerConnection
from tests.server.served import NOTHING, Served, wait_for

SHELL = """
apiVersion: penstock/v1
kind: Workflow
name: shell
params:
  - {name: text, type: str, default: hello}
steps:
  - name: say
    container: {image: busybox, command: [sh, -c, 'echo "$1"; test "$1" != bad', sh, "${{ params.text }}"]}
"""
HERE = {"on": {"container": "process"}}


def problem(found: Any, status: int, code: str) -> Any:
    assert found.status == status, found
    assert found.headers["content-type"] == "application/problem+json"
    data = found.data
    assert data["status"] == status and data["code"] == code and data["fix"] and data["problems"], data
    return data


def test_what_is_submitted_is_executed_and_seen(served: Served) -> None:
    made = served.submit(SHELL, options=HERE, params={"text": "ahoy"}, token=served.token("ana", "submitter"))
    run = made["run"]["run"]
    assert made["created"] and made["run"]["user"] == "ana" and made["run"]["state"] in ("starting", "running")
    found = served.wait(run)
    assert found["tasks"] == {"succeeded": 1} and found["steps"][0]["step"] == "say" and found["waits"] == []
    assert served.ask("GET", f"/api/v1/runs/{run}/logs").text == "ahoy\n"
    task = served.get(f"runs/{run}/task?path=say")
    assert task["state"] == "succeeded" and len(task["attempts"]) == 1 and "files" not in task
    assert served.get(f"runs/{run}/why")["waits"] == []
    assert json.loads(served.ask("GET", f"/api/v1/runs/{run}/document").body)["name"] == "shell"


def test_a_failed_run_is_retried_and_a_running_one_cancelled(served: Served) -> None:
    run = served.submit(SHELL, options=HERE, params={"text": "bad"})["run"]["run"]
    found = served.wait(run, "failed")
    assert found["failures"][0]["exit_code"] == 1 and found["failures"][0]["log_end"].strip() == "bad"
    assert served.ask("POST", f"/api/v1/runs/{run}/retry").status == 202
    wait_for(lambda: served.get(f"runs/{run}/task?path=say")["attempt"] == 2)
    served.wait(run, "failed")
    assert [one["attempt"] for one in served.get(f"runs/{run}/task?path=say")["attempts"]] == [1, 2]
    slow = SHELL.replace('echo "$1"; test "$1" != bad', "sleep 60")
    run = served.submit(slow, options=HERE)["run"]["run"]
    served.wait(run, "running")
    assert served.ask("POST", f"/api/v1/runs/{run}/cancel", {"now": True}).status == 202
    served.wait(run, "cancelled")
    problem(served.ask("POST", f"/api/v1/runs/{run}/cancel", {}), 409, "P413")
    problem(served.ask("POST", f"/api/v1/runs/{run}/resume", {}), 409, "P413")


def test_the_same_submission_makes_one_run_however_often_it_is_sent_at_once(served: Served) -> None:
    token = served.token("ana", "submitter")
    found: list[Any] = []
    senders = [threading.Thread(target=lambda: found.append(served.submit(token=token, key="once"))) for _ in range(10)]
    for one in senders:
        one.start()
    for one in senders:
        one.join()
    assert len({one["run"]["run"] for one in found}) == 1
    assert sum(one["created"] for one in found) == 1
    other = served.submit(token=served.token("bob", "submitter"), key="once")
    assert other["created"]
    body = {"document": NOTHING, "params": {"many": 9}, "options": {"dry": True}}
    again = served.ask("POST", "/api/v1/runs", body, token=token, headers={"Idempotency-Key": "once"})
    problem(again, 409, "P934")


def test_lists_come_in_pages_and_are_filtered_by_the_server(served: Served) -> None:
    token = served.token("paula", "submitter")
    made = [served.submit(token=token)["run"]["run"] for _ in range(5)]
    for run in made:
        served.wait(run)
    seen, cursor = [], ""
    while cursor is not None:
        page = served.get(f"runs?user=paula&state=succeeded&limit=2{f'&cursor={cursor}' if cursor else ''}")
        seen += [one["run"] for one in page["items"]]
        assert len(page["items"]) <= 2
        cursor = page["next"]
    assert seen == made[::-1]
    assert served.get("runs?user=nobody")["items"] == []
    assert all(one["workflow"] == "nothing" for one in served.get("runs?workflow=nothing&limit=500")["items"])
    tasks, cursor = [], ""
    while cursor is not None:
        page = served.get(f"runs/{made[0]}/tasks?limit=2{f'&cursor={cursor}' if cursor else ''}")
        tasks += [one["task"] for one in page["items"]]
        cursor = page["next"]
    assert tasks == ["each[0]", "each[1]", "each[2]", "last"]
    assert [one["task"] for one in served.get(f"runs/{made[0]}/tasks?step=last&state=succeeded")["items"]] == ["last"]


def test_what_has_not_changed_is_not_sent_again(served: Served) -> None:
    run = served.submit()["run"]["run"]
    served.wait(run)
    first = served.ask("GET", f"/api/v1/runs/{run}/tasks")
    again = served.ask("GET", f"/api/v1/runs/{run}/tasks", headers={"If-None-Match": first.headers["etag"]})
    assert again.status == 304 and not again.body
    assert served.ask("GET", f"/api/v1/runs/{run}/tasks", headers={"If-None-Match": '"other"'}).status == 200


def lines(served: Served, run: str, after: int = 0, last: str = "", most: int = 1 << 30) -> list[tuple[int, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    headers = {"Authorization": f"Bearer {served.own}", **({"Last-Event-ID": last} if last else {})}
    connection.request("GET", f"/api/v1/runs/{run}/stream?after={after}", headers=headers)
    found: list[tuple[int, str]] = []
    stream = connection.getresponse()
    assert stream.getheader("content-type", "").startswith("text/event-stream")
    try:
        while len(found) < most:
            line = stream.readline().decode()
            if line.startswith("data: ") and line != "data: {}\n":
                event = json.loads(line[6:])
                found.append((event["seq"], event["kind"]))
            elif line == "event: over\n" or not line:
                break
    finally:
        connection.close()
    return found


def test_a_stream_has_every_event_once_in_order_also_after_it_was_cut(served: Served) -> None:
    run = served.submit(params={"many": 700})["run"]["run"]
    seen: list[tuple[int, str]] = []
    while not seen or seen[-1][1] != "run.finished":
        seen += lines(served, run, last=str(seen[-1][0]) if seen else "", most=100)
    assert [seq for seq, _ in seen] == list(range(1, len(seen) + 1)) and len(seen) > 1400
    assert lines(served, run, after=len(seen) - 3) == seen[-3:]
    assert [event["seq"] for event in ServerConnection(served.url, served.own).follow(run) if event] == [
        one for one, _ in seen
    ]


def test_the_stream_of_everything_says_that_something_was_written(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {served.own}"})
    stream = connection.getresponse()
    served.submit()
    wait_for(lambda: stream.readline() == b"data: {}\n")
    connection.close()


def test_files_are_kept_by_what_is_in_them(served: Served) -> None:
    data = b"rows" * 1000
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    asked = {"digests": [digest, "sha256:../../etc/passwd", "x"]}
    assert served.ask("POST", "/api/v1/blobs/missing", asked).data["missing"] == asked["digests"]
    problem(served.ask("PUT", f"/api/v1/blobs/{digest}", data + b"!"), 400, "P945")
    assert served.ask("PUT", f"/api/v1/blobs/{digest}", data).data == {"digest": digest, "size": len(data)}
    assert served.ask("POST", "/api/v1/blobs/missing", {"digests": [digest]}).data["missing"] == []
    found = served.ask("GET", f"/api/v1/blobs/{digest}?name=a%22%0d%0ab%2f..%2fc.csv")
    assert found.body == data and found.headers["content-disposition"] == 'attachment; filename="a___b_.._c.csv"'
    problem(served.ask("GET", "/api/v1/blobs/sha256:" + "0" * 64), 404, "P937")
    assert served.ask("GET", "/api/v1/blobs/sha256:..%2f..%2fstate.db").status in (400, 404)
    left = [one for one in (served.settings.home / "work").iterdir() if one.name.startswith(("arriving", "leaving"))]
    assert left == []


FILES = """
apiVersion: penstock/v1
kind: Workflow
name: files
params:
  - {name: rows, type: file}
steps:
  - name: count
    inputs: [{name: rows, value: "${{ params.rows }}"}]
    container: {image: busybox, command: [sh, -c, 'cat "$1"', sh, "${{ inputs.rows }}"]}
"""


def test_a_parameter_that_is_a_file_comes_as_a_blob_and_never_from_the_server(served: Served) -> None:
    data = b"one,two\n"
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    given = {"$blob": digest, "name": "rows.csv"}
    body = {"document": FILES, "options": HERE, "params": {"rows": given}}
    problem(served.ask("POST", "/api/v1/runs", body), 400, "P937")
    served.ask("PUT", f"/api/v1/blobs/{digest}", data)
    made = served.ask("POST", "/api/v1/runs", body)
    assert made.status == 201, made
    run = made.data["run"]["run"]
    served.wait(run)
    assert served.ask("GET", f"/api/v1/runs/{run}/logs").text == "one,two\n"
    for bad in ("/etc/passwd", {"$blob": digest, "name": "../x"}, {"$blob": digest, "name": ""}):
        found = served.ask("POST", "/api/v1/runs", {**body, "params": {"rows": bad}})
        assert problem(found, 400, "P935")["problems"][0]["where"] == "params.rows"


def test_a_text_that_names_a_file_of_the_server_is_text(served: Served) -> None:
    assert served.submit(SHELL, options=HERE, params={"text": "/etc/passwd"})["warnings"] == []


def test_plan_and_convert_record_nothing(served: Served) -> None:
    before = served.get("runs?limit=1")["items"][0]["run"]
    document = NOTHING.replace("    container", "    resources: {cpu: 1}\n    container", 1)
    plan = served.ask("POST", "/api/v1/plan", {"document": document, "params": {"many": 5}})
    assert plan.status == 200, plan
    assert [one["outlook"]["verdict"] for one in plan.data["reservations"]] == ["fits in part"]
    found = served.ask("POST", "/api/v1/convert", {"document": NOTHING, "to": "argo"})
    assert found.status == 200 and "kind: Workflow" in found.data["text"] and found.data["report"] is not None
    problem(served.ask("POST", "/api/v1/convert", {"document": NOTHING, "to": "nope"}), 400, "P838")
    problem(served.ask("POST", "/api/v1/plan", {"document": "a: [", "params": {}}), 400, "P102")
    assert served.get("runs?limit=1")["items"][0]["run"] == before


QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: shared}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: default, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team-a, namespace: default}
spec: {clusterQueue: shared}
"""


def test_queues_are_applied_stopped_and_explained(tmp_path: Path) -> None:
    document = SHELL.replace("    container", "    resources: {cpu: 1}\n    container").replace(
        "name: shell", "name: shell\nqueue: team-a"
    )
    with Served(tmp_path / ".penstock") as served:
        problem(
            served.ask("PUT", "/api/v1/queues", b"kind: Nope", headers={"Content-Type": "application/yaml"}),
            400,
            "P801",
        )
        found = served.ask("PUT", "/api/v1/queues", QUEUES.encode(), headers={"Content-Type": "application/yaml"})
        assert [one["queue"] for one in found.data["items"]] == ["shared"], found
        assert served.ask("POST", "/api/v1/queues/shared/hold").data["state"] == "holding"
        run = served.submit(document, options=HERE)["run"]["run"]
        served.wait(run, "queued")
        [wait] = served.get(f"runs/{run}/why")["waits"]
        assert wait["reason"]["why"] == "stopped"
        assert [one["run"] for one in served.get("queues/team-a")["waiting"]] == [run]
        assert served.get("runs?state=queued")["items"][0]["run"] == run
        served.ask("POST", "/api/v1/queues/shared/resume")
        served.wait(run)
        problem(served.ask("GET", "/api/v1/queues/nowhere"), 404, "P812")
        far = SHELL.replace("    container", "    resources: {cpu: 100}\n    container")
        body = {"document": far, "options": {"queue": "team-a"}}
        assert served.ask("POST", "/api/v1/runs", body).status == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "runs/nope", None, 404, "P505"),
        ("GET", "runs/nope/stream", None, 404, "P505"),
        ("GET", "runs?cursor=x", None, 400, "P943"),
        ("GET", "runs?cursor=99999999999999999999999", None, 400, "P943"),
        ("GET", "runs?limit=0", None, 400, "P946"),
        ("GET", "runs?state=odd", None, 400, "P946"),
        ("GET", "nowhere", None, 404, "P946"),
        ("DELETE", "runs", None, 405, "P946"),
        ("POST", "runs", b"{", 400, "P946"),
        ("POST", "runs", {"document": NOTHING, "odd": 1}, 400, "P946"),
        ("POST", "runs", {"document": "x: 1"}, 400, "P830"),
        ("POST", "runs", {"document": NOTHING, "params": {"odd": 1}}, 400, "P401"),
        ("POST", "runs", {"document": NOTHING, "bundle": "sha256:" + "0" * 64}, 400, "P937"),
        ("POST", "runs", {"document": NOTHING, "options": {"unit": "odd"}}, 400, "P946"),
        ("GET", "errors/P999", None, 404, "P503"),
        ("DELETE", "tokens/none", None, 404, "P933"),
        ("POST", "tokens", {"person": "a\nb"}, 400, "P932"),
    ],
)
def test_what_is_wrong_is_said_with_a_code_and_the_fix(
    served: Served, method: str, path: str, body: Any, status: int, code: str
) -> None:
    problem(served.ask(method, f"/api/v1/{path}", body), status, code)


def test_what_is_no_bundle_is_refused(served: Served) -> None:
    digest = f"sha256:{hashlib.sha256(b'PK').hexdigest()}"
    served.ask("PUT", f"/api/v1/blobs/{digest}", b"PK")
    problem(served.ask("POST", "/api/v1/runs", {"document": NOTHING, "bundle": digest}), 400, "P936")


def test_other_names_and_large_bodies_are_refused(served: Served) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "127.0.0.1@evil"):
        problem(served.ask("GET", "/healthz", headers={"Host": host}), 421, "P939")
    assert served.ask("GET", "/healthz", headers={"Host": "LOCALHOST:99"}).status == 200
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.putrequest("POST", "/api/v1/runs")
    connection.putheader("Content-Length", str(1 << 30))
    connection.putheader("Authorization", f"Bearer {served.own}")
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("path", ["runs/%00", "runs?workflow=%00", "usage?person=a%00"])
def test_an_address_with_a_zero_character_is_refused(served: Served, path: str) -> None:
    problem(served.ask("GET", f"/api/v1/{path}"), 400, "P946")


def test_every_answer_forbids_scripts_of_others(served: Served) -> None:
    for path in ("/healthz", "/login", "/api/v1/runs", "/static/live.js", "/nowhere"):
        found = served.ask("GET", path)
        assert "script-src 'self'" in found.headers["content-security-policy"], path
        assert found.headers["x-content-type-options"] == "nosniff" and found.headers["x-frame-options"] == "DENY"


def test_monitors_are_answered(served: Served) -> None:
    assert served.ask("GET", "/healthz", token=None).text == "ok\n"
    assert served.ask("GET", "/readyz", token=None).text == "ok\n"
    text = served.ask("GET", "/metrics").text
    assert 'penstock_runs{state="running"} ' in text and "penstock_http_requests_total{" in text


def test_the_openapi_document_names_every_error(served: Served) -> None:
    document = served.get("openapi.json")
    assert document["info"]["title"] == "Penstock" and len(document["paths"]) > 20
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            if path.startswith("/api/"):
                assert {"400", "401", "403", "429", "503"} <= set(route["responses"]), (method, path)


def test_streams_are_told_when_the_server_ends(tmp_path: Path) -> None:
    heard: list[bytes] = []
    with Served(tmp_path / ".penstock") as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {served.own}"})
        stream = connection.getresponse()
        thread = threading.Thread(target=lambda: heard.append(stream.read()))
        thread.start()
        time.sleep(0.1)
    thread.join(10)
    connection.close()
    assert heard and heard[0].endswith(b"event: closing\ndata: {}\n\n")
