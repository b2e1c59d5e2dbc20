"""Schedules over HTTP, and commands with --server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Client
from penstock.errors import NotFound
from tests.cli import conftest
from tests.server.flows import twice
from tests.server.served import NOTHING, Served, wait_for

penstock = conftest.penstock


def new(**more: Any) -> dict[str, Any]:
    return {"schedule": "often", "every": 1, "document": NOTHING, "options": {"dry": True}, "overlap": "allow", **more}


@pytest.mark.slow
def test_from_add_to_remove(served: Served) -> None:
    ana, bob = served.token("ana", "submitter"), served.token("bob", "submitter")
    made = served.ask("POST", "/api/v1/schedules", new(), token=ana)
    assert made.status == 201 and made.headers["location"] == "/api/v1/schedules/often"
    assert served.ask("POST", "/api/v1/schedules", new(), token=ana).status == 409
    assert served.ask("POST", "/api/v1/schedules", new(replace=True), token=bob).status == 403
    assert served.ask("POST", "/api/v1/schedules", new(schedule="x/y"), token=bob).data["code"] == "P557"
    wait_for(lambda: any(one["state"] == "succeeded" for one in served.get("schedules/often")["runs"]))
    run = served.get(f"runs/{served.get('schedules/often')['runs'][0]['run']}")
    assert run["user"] == "ana"
    assert served.ask("POST", "/api/v1/schedules/often/pause", {}, token=ana).data["state"] == "paused"
    assert len(served.get("schedules/often/times?limit=3")["times"]) == 3
    assert served.ask("POST", "/api/v1/schedules/often/run", {}, token=bob).status == 403
    by_hand = served.ask("POST", "/api/v1/schedules/often/run", {}, token=ana).data["run"]
    assert served.wait(by_hand)["state"] == "succeeded"
    assert served.ask("DELETE", "/api/v1/schedules/often", token=ana).status == 204
    assert served.ask("GET", "/api/v1/schedules/often").status == 404


@pytest.mark.slow
def test_commands_with_a_server(served: Served, penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SERVER", served.url)
    monkeypatch.setenv("PENSTOCK_TOKEN", served.own)
    Path("flow.yaml").write_text(NOTHING)
    words = (
        "schedule",
        "add",
        "there",
        "flow.yaml",
        "--cron",
        "0 6 * * *",
        "--zone",
        "Asia/Tokyo",
        "--dry",
        "--end",
        "2099-01-01",
    )
    assert penstock(*words).code == 0
    found = served.get("schedules/there")
    assert (found["cron"], found["zone"], found["end"] > 4e9) == (["0 6 * * *"], "Asia/Tokyo", True)
    assert "there\tactive\t" in penstock("schedule", "ls").out
    assert penstock("schedule", "next", "there", "-n", "2").out.count("T06:00:00+09:00") == 2
    assert penstock("schedule", "pause", "there").out == "paused\n"
    assert penstock("schedule", "resume", "there").out == "active\n"
    assert served.wait(penstock("schedule", "run", "there").out.strip())["state"] == "succeeded"
    assert penstock("schedule", "rm", "there").code == 0
    assert penstock("schedule", "show", "there").code == 4


@pytest.mark.slow
def test_pages(served: Served) -> None:
    ana = served.token("ana", "submitter")
    assert served.ask("POST", "/api/v1/schedules", new(schedule="seen", every=86400), token=ana).status == 201
    mine, other = served.browser(ana), served.browser(served.token("bob", "viewer"))
    assert 'href="/schedules/seen"' in served.ask("GET", "/schedules", token=None, headers=other).text
    assert "<button" not in served.ask("GET", "/schedules/seen", token=None, headers=other).text.partition("<main")[2]
    page = served.ask("GET", "/schedules/seen", token=None, headers=mine).text
    word = page.partition('name="csrf" value="')[2].partition('"')[0]

    def press(verb: str) -> str:
        form = {**mine, "Content-Type": "application/x-www-form-urlencoded"}
        found = served.ask("POST", f"/schedules/seen/{verb}", f"csrf={word}".encode(), token=None, headers=form)
        assert found.status == 303, found
        return found.headers["location"]

    assert press("pause") == "/schedules/seen" and served.get("schedules/seen")["state"] == "paused"
    assert press("resume") == "/schedules/seen" and served.get("schedules/seen")["state"] == "active"
    served.wait(press("run").removeprefix("/runs/"))
    assert press("remove") == "/schedules"
    assert served.ask("GET", "/api/v1/schedules/seen").status == 404


@pytest.mark.slow
def test_client(served: Served) -> None:
    client = Client(served.url, served.own)
    made = client.schedule("doubled", twice, cron="0 6 * * *", zone="Asia/Tokyo", word="b")
    assert client.open_schedule("doubled").data["cron"] == ["0 6 * * *"] and len(made.times(3)) == 3
    assert [one["zone"] for one in client.schedules() if one["schedule"] == "doubled"] == ["Asia/Tokyo"]
    runs = [client.open_run(made.run()).wait() for _ in range(2)]
    assert [run.check().data["tasks"].get("reused", 0) for run in runs] == [0, 0]  # anew each time
    client.schedule("doubled", twice, every=timedelta(hours=1), word="b", reuse=True, replace=True)
    assert client.open_run(made.run()).wait().check().data["tasks"].get("reused", 0) > 0
    made.pause()
    assert made.data["state"] == "paused" and made.data["every"] == 3600
    made.resume()
    made.remove()
    with pytest.raises(NotFound):
        client.open_schedule("doubled")
