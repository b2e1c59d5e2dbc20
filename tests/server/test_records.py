"""Records over time by the API and on pages: usage, queues over time with a what-if, flows, the plan and the cost of a run."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Page

from penstock.service import queues, stores
from penstock.store.queue_use import FINE, QueueUse, Use
from penstock.store.records import WriteBatch
from tests.cli.test_usage import QUEUE
from tests.server.served import Served, wait_for
from tests.server.test_api import HERE, problem
from tests.server.test_pages import HOSTILE, browser, page, tab  # noqa: F401

TRAIN = """
apiVersion: penstock/v1
kind: Workflow
name: train
queue: q
params:
  - {name: text, type: str, default: hello}
steps:
  - name: fetch
    resources: {cpu: 1}
    container: {image: busybox, command: [sh, -c, 'i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; echo "$0"', "${{ params.text }}"]}
  - name: each
    needs: [fetch]
    resources: {cpu: 1}
    each: {axes: [{i: [1, 2]}]}
    container: {image: busybox, command: ["true"]}
"""


@pytest.fixture(scope="module")
def runs(served: Served) -> list[str]:
    """Two runs of one flow, and an hour of a queue that borrowed in it."""
    with stores.open_or_create(served.settings) as store:
        queues.apply(
            store, (QUEUE.replace("  namespaceSelector", "  cohortName: all\n  namespaceSelector"), "queues.yaml")
        )
        now = int(time.time()) // FINE * FINE
        batch = WriteBatch()
        for minute in range(60):
            used = 3000 if 20 <= minute < 40 else 1000
            cpu = Use(used, used, used, 2000, max(0, used - 2000))
            row = QueueUse(now - 3660 + 60 * minute, FINE, Use(minute // 20, 3, minute // 20), {"default/cpu": cpu})
            batch.queue_use["q"] = ("q", FINE, row.at, row.text())
            store.journal.begin()
            store.journal.flush(batch, "test")
            store.journal.commit()
    made = []
    for text in ("one", HOSTILE):
        run = served.submit(TRAIN, options=HERE, params={"text": text}, token=served.token("ana", "submitter"))["run"][
            "run"
        ]
        served.wait(run)
        made.append(str(run))
    return made


def pages_of(runs: list[str]) -> list[str]:
    return [
        "/usage",
        "/usage?by=queue&since=7d&person=ana",
        "/flows",
        "/flows?find=trai",
        "/flows/train",
        "/queues/q?since=6h",
        f"/queues/q?since=1h&tasks=8&asks={quote('cpu=1')}&minutes=5&quota={quote('cpu=4')}",
        "/queues/q?tasks=1&asks=nonsense",
        f"/runs/{runs[1]}/plan",
        f"/runs/{runs[1]}/plan?against={runs[0]}",
        f"/runs/{runs[1]}/cost",
    ]


def test_every_page_is_whole_without_a_script_and_gives_data(served: Served, runs: list[str]) -> None:
    for path in pages_of(runs):
        outline, text = page(served, path)
        assert len(outline.all("h1")) == 1 and outline.all("main"), path
        assert not any("style" in attrs or any(name.startswith("on") for name in attrs) for _, attrs in outline.tags), (
            path
        )
        assert all(one.get("aria-label") or one.get("aria-hidden") for one in outline.all("svg")), path
        assert all(one.get("scope") for one in outline.all("th")), path
        assert "<script>alert" not in text and "\x1b" not in text and "penstock " in text, path
        assert served.ask("GET", path).headers["content-type"] == "application/json", path


def test_usage_is_the_same_on_the_page_the_api_and_for_whom_one_asks(served: Served, runs: list[str]) -> None:
    found = served.get("usage?by=person&person=ana")
    assert [one["name"] for one in found["items"]] == ["ana"] and found["total"]["runs"] == 2
    assert 0 < found["total"]["cpu_used"] and found["total"]["asked"]["cpu"] > 0
    assert served.ask("GET", "/usage?person=ana").data["items"] == found["items"]
    by_queue = served.get("usage?by=queue&person=ana")["items"][0]
    assert by_queue["name"] == "q" and by_queue["attempts"] == found["total"]["attempts"] >= 3
    assert served.get(f"usage?until={time.time() - 9 * 86400}&since=0")["items"] == []
    problem(served.ask("GET", "/api/v1/usage?since=20&until=10"), 400, "P980")
    problem(served.ask("GET", "/api/v1/usage?by=colour"), 400, "P946")
    _, text = page(served, "/usage?by=flow")
    assert 'href="/flows/train"' in text


def test_a_queue_over_time(served: Served, runs: list[str]) -> None:
    now = time.time()
    found = served.get(f"queues/q/series?since={now - 3700}&until={now - 60}&step=600")
    assert found["queue"] == "q" and found["step"] == 600
    used = [span["quota"][0]["used"] for span in found["spans"]]
    assert "3" in used and used[0] == "1" and {span["quota"][0]["nominal"] for span in found["spans"]} == {"2"}
    assert max(span["waiting"]["peak"] for span in found["spans"]) == 3
    assert served.get("queues/q/series")["step"] >= 300
    outline, text = page(served, "/queues/q?since=1h")
    assert len([one for one in outline.all("path") if one["class"] == "borrowed"]) == 1
    assert "1 borrowed at most" in text and "penstock queue history q --since 1h" in text
    problem(served.ask("GET", "/api/v1/queues/nope/series"), 404, "P812")
    problem(served.ask("GET", "/api/v1/queues/q/series?step=3"), 400, "P980")


def test_what_if_on_the_page_and_by_the_api(served: Served, runs: list[str]) -> None:
    found = served.get("queues/q/what-if?tasks=5&asks=cpu%3D1&seconds=30")
    assert (found["at_once"], found["waits_from"]) == (2, 3) and "2 at once" in found["sentences"][0]
    _, text = page(served, "/queues/q?tasks=5&asks=cpu%3D1&minutes=0.5")
    assert "2 at once, the others wait" in text and "what-if q --tasks 5 --asks" in text
    _, text = page(served, "/queues/q?tasks=5&asks=cpu%3D1&quota=cpu%3D5")
    assert "all start at once" in text
    _, text = page(served, "/queues/q?tasks=1&asks=nonsense")
    assert "P822" in text and 'value="nonsense"' in text
    problem(served.ask("GET", "/api/v1/queues/q/what-if?asks=nonsense"), 400, "P822")
    problem(served.ask("GET", "/api/v1/queues/q/what-if?quota=gpu%3D1"), 400, "P982")
    assert served.get("queues/q")["pending"] == 0 and len(served.get("runs?workflow=train")["items"]) == 2


def test_flows_with_their_definition_and_trend(served: Served, runs: list[str]) -> None:
    found = served.get("flows?find=train")
    assert [one["flow"] for one in found["items"]] == ["train"] and found["next"] is None
    one = served.get("flows/train")
    assert one["runs"] == 2 and one["succeeded"] == 1.0 and one["usual"] > 0
    assert [run["run"] for run in one["last"]] == runs[::-1] and one["definition"]["params"][0]["name"] == "text"
    served.wait(served.submit()["run"]["run"])
    first = served.get("flows?limit=1")
    assert (
        first["next"] == "nothing"
        and served.get(f"flows?limit=1&cursor={first['next']}")["items"][0]["flow"] == "train"
    )
    outline, text = page(served, "/flows/train")
    assert len(outline.all("rect")) == 2 and "1 cpu" in text and "/flows/train/graph.svg" in text
    drawing = served.ask("GET", "/flows/train/graph.svg")
    assert drawing.headers["content-type"].startswith("image/svg+xml") and b"fetch" in drawing.body
    problem(served.ask("GET", "/api/v1/flows/trian"), 404, "P505")


def test_a_run_has_its_plan_its_difference_and_its_cost(served: Served, runs: list[str]) -> None:
    found = served.get(f"runs/{runs[1]}/plan")
    assert found["against"] == runs[0] and found["plan"]["demand"]["cpu"] and found["difference"]["plan"]["params"]
    assert served.get(f"runs/{runs[0]}/plan")["difference"] is None
    assert "first run of train" in page(served, f"/runs/{runs[0]}/plan")[1]
    _, text = page(served, f"/runs/{runs[1]}/plan")
    assert f"penstock diff {runs[0]} {runs[1]}" in text and "fetch runs again" in text
    cost = served.get(f"runs/{runs[1]}/cost")
    assert {one["step"] for one in cost["steps"]} == {"fetch", "each"}
    assert cost["cost"] is None and cost["total"]["attempts"] >= 1
    _, text = page(served, f"/runs/{runs[1]}/cost")
    assert f"penstock usage --run {runs[1]}" in text
    problem(served.ask("GET", f"/api/v1/runs/{runs[1]}/plan?against=nope"), 404, "P505")


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_flows_follow_what_happens_and_the_box_keeps_what_was_typed(served: Served, runs: list[str], tab: Page) -> None:  # noqa: F811
    tab.goto(f"{served.url}/queues/q")
    tab.fill("input[name=asks]", "cpu=1")
    tab.fill("input[name=tasks]", "4")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#tried:has-text('2 at once')")
    assert "tasks=4" in tab.url and tab.input_value("input[name=asks]") == "cpu=1"
    tab.keyboard.press("Tab")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("g")
    tab.keyboard.press("f")
    tab.wait_for_url("**/flows")
    tab.wait_for_selector("text=Live.")
    run = served.submit(TRAIN, options=HERE, params={"text": "live"})["run"]["run"]
    tab.wait_for_selector(f"#flow-train a:has-text('{run}')")
    wait_for(lambda: served.get(f"runs/{run}")["state"] == "succeeded")
    tab.goto(f"{served.url}/flows")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(r"/flows/\w+"))


@pytest.mark.slow
@pytest.mark.parametrize(("theme", "width"), [("light", 375), ("dark", 1200)])
def test_pages_of_records_fit_a_phone_and_pass_the_audit(
    served: Served,
    tab: Page,  # noqa: F811
    runs: list[str],
    tmp_path: Path,
    theme: Literal["light", "dark"],
    width: int,
) -> None:
    """WCAG AA by axe-core. Pictures go to PENSTOCK_SHOTS, for people to look at."""
    shots = Path(os.environ.get("PENSTOCK_SHOTS") or tmp_path)
    tab.emulate_media(color_scheme=theme)
    tab.set_viewport_size({"width": width, "height": 900})
    for number, path in enumerate(pages_of(runs)):
        tab.goto(f"{served.url}{path}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        tab.screenshot(path=shots / f"records-{number}-{theme}-{width}.png", full_page=True)
        found = Axe().run(tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
        assert not found["violations"], (path, [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]])
