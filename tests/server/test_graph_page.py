"""The graph of a run: of any size, with the reasons, by mouse and by keys, and without a script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Page

from bench.server import document
from tests.server.served import Served, wait_for
from tests.server.test_api import HERE, QUEUES, SHELL
from tests.server.test_pages import browser, page, tab  # noqa: F401

FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: graphed
definitions:
  - name: evaluate
    steps:
      - {name: score, container: {image: busybox, command: ["true"]}}
      - {name: rank, needs: [score], container: {image: busybox, command: ["true"]}}
steps:
  - {name: fetch, container: {image: busybox, command: ["true"]}}
  - name: check
    tolerates: [failed]
    each: {axes: [{i: "${{ range(3) }}"}]}
    needs: [fetch]
    container: {image: busybox, command: [sh, -c, 'test "$1" != 1', sh, "${{ item.i }}"]}
  - name: train
    needs: [fetch]
    queue: team-a
    resources: {cpu: 1}
    container: {image: busybox, command: ["true", train]}
  - {name: evaluate, needs: [train], workflow: {name: evaluate}}
"""


HOLDER = """
apiVersion: penstock/v1
kind: Workflow
name: holder
queue: team-a
steps:
  - {name: hold, resources: {cpu: 1}, container: {image: busybox, command: [sleep, "600"]}}
"""


@pytest.fixture(scope="module")
def waiting(served: Served) -> Iterator[str]:
    """A run with a step that failed in part, and one that waits in a queue."""
    headers = {"Content-Type": "application/yaml"}
    assert served.ask("PUT", "/api/v1/queues", QUEUES.encode(), headers=headers).status == 200
    holder = served.submit(HOLDER, options=HERE)["run"]["run"]
    served.wait(holder, "running")
    run = str(served.submit(FLOW, options=HERE)["run"]["run"])
    wait_for(lambda: served.get(f"runs/{run}")["state"] == "queued" and served.get(f"runs/{run}")["failed"] == 1)
    yield run
    for one in (run, holder):
        served.ask("POST", f"/api/v1/runs/{one}/cancel", {"now": True})
        served.wait(one, "cancelled")


@pytest.fixture(scope="module")
def large(served: Served) -> str:
    run = str(served.submit(document(1200, 300))["run"]["run"])
    served.wait(run)
    return run


def test_boxes_say_their_state_and_why_they_wait(served: Served, waiting: str) -> None:
    data = served.ask("GET", f"/runs/{waiting}/graph").data
    boxes = {box["box"]: box for box in data["boxes"]}
    assert boxes["train"]["state"] == "waiting" and "queue team-a" in boxes["train"]["reason"]
    assert boxes["evaluate"]["reason"] == "comes after train" and boxes["check"]["state"] == "failed"
    assert {"from": "train", "to": "evaluate", "edges": 1} in data["edges"]
    outline, text = page(served, f"/runs/{waiting}/graph")
    [box] = [one for one in outline.all("a") if one.get("id") == "box-train"]
    assert "queue team-a" in str(box["data-reason"]) and str(box["aria-label"]).startswith("train: waiting. waiting in")
    assert "2 done · 1 failed" in text or "1 failed · 2 done" in text
    assert "penstock show" in text


def test_a_chosen_step_has_the_whole_why_beside_it(served: Served, waiting: str) -> None:
    _, text = page(served, f"/runs/{waiting}/graph?step=train")
    assert "has waited" in text and "holder-1/hold has 1 cpu" in text and f"penstock why {waiting}/train" in text
    found = served.ask("GET", f"/runs/{waiting}/graph?step=train").data
    assert found["step"]["waits"][0]["reason"]["why"] == "quota"
    assert found["step"] == served.get(f"runs/{waiting}/why?path=train")


def test_a_called_workflow_has_a_graph_of_its_own(served: Served, waiting: str) -> None:
    data = served.ask("GET", f"/runs/{waiting}/graph?in=evaluate").data
    assert data["inside"] == "evaluate" and [box["box"] for box in data["boxes"]] == ["evaluate/score", "evaluate/rank"]
    assert 'aria-label="Where this is"' in page(served, f"/runs/{waiting}/graph?in=evaluate")[1]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("in=nowhere", 404),
        ("in=fetch", 404),
        ("step=nowhere", 404),
        ("from=0&to=3", 400),
        ("from=7&to=3", 200),
        ("from=90&to=99", 200),
        ("open=x&open=0-0.waiting&open=%3Cscript%3E", 200),
        ("find=%3Cscript%3E%22", 200),
    ],
)
def test_addresses_that_are_wrong(served: Served, waiting: str, query: str, status: int) -> None:
    found = served.ask("GET", f"/runs/{waiting}/graph?{query}", headers={"Accept": "text/html"})
    assert found.status == status and "<script>" not in found.text


def test_many_steps_are_folded_and_open(served: Served, large: str) -> None:
    outline, text = page(served, f"/runs/{large}/graph")
    groups = [one for one in outline.all("a") if "group" in str(one.get("class"))]
    assert [str(one["aria-label"]) for one in groups] == ["300 steps done: show them"] * 4 and len(text) < 20_000
    opened = served.ask("GET", f"/runs/{large}/graph{groups[1]['href']}").data
    assert sum("step" in box for box in opened["boxes"]) == 150
    found = served.ask("GET", f"/runs/{large}/graph?find=step-119").data
    assert len(found["found"]) == 11 and {box["box"] for box in found["boxes"] if "step" in box} == set(found["found"])
    assert "11 of 1,200 steps" in page(served, f"/runs/{large}/graph?find=step-119")[1]


def test_a_picture_of_a_run_is_there_while_it_is_small(served: Served, waiting: str, large: str) -> None:
    assert served.ask("GET", f"/runs/{waiting}/graph.svg").text.startswith("<svg")
    assert served.ask("GET", f"/runs/{large}/graph.svg").status == 404


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reasons_by_mouse_and_keys_and_the_place_is_in_the_address(
    served: Served,
    tab: Page,  # noqa: F811
    waiting: str,
) -> None:
    tab.goto(f"{served.url}/runs/{waiting}/graph")
    tab.hover("#box-train")
    tab.wait_for_selector("#tip:has-text('queue team-a')")
    tab.mouse.move(5, 5)
    tab.wait_for_selector("#tip", state="hidden")
    tab.focus("#box-fetch")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("document.activeElement.id") in ("box-check", "box-train")
    tab.focus("#box-train")
    tab.wait_for_selector("#tip:has-text('queue team-a')")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#side:has-text('has waited')")
    tab.wait_for_url("**/graph?step=train")
    assert tab.evaluate("document.activeElement.id") == "side-title"
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#side", state="detached")
    assert tab.evaluate("document.activeElement.id") == "box-train" and "step=" not in tab.url
    tab.go_back()
    tab.wait_for_selector("#side")
    tab.fill("input[type=search]", "eval")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=1 of 4 steps")
    assert re.search(r"find=eval", tab.url)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_graph_fits_a_phone_and_passes_the_audit(
    served: Served,
    tab: Page,  # noqa: F811
    waiting: str,
    large: str,
    theme: str,
) -> None:
    tab.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    for path in (f"/runs/{waiting}/graph", f"/runs/{waiting}/graph?step=train", f"/runs/{large}/graph?find=step-119"):
        for width in (375, 1280):
            tab.set_viewport_size({"width": width, "height": 900})
            tab.goto(f"{served.url}{path}")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        found = Axe().run(tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
        assert not found["violations"], (
            path,
            json.dumps([(one["id"], one["nodes"][0]) for one in found["violations"]]),
        )


@pytest.mark.slow
def test_the_graph_follows_its_run(served: Served, tab: Page, tmp_path: Path) -> None:  # noqa: F811
    done = tmp_path / "done"
    slow = SHELL.replace('echo "$1"; test "$1" != bad', 'until [ -e "$1" ]; do sleep 0.1; done')
    run = served.submit(slow, options=HERE, params={"text": str(done)})["run"]["run"]
    tab.goto(f"{served.url}/runs/{run}/graph?step=say")
    tab.wait_for_selector("#box-say.busy")
    tab.wait_for_selector("text=Live.")
    done.touch()
    tab.wait_for_selector("#box-say.good:has-text('done')")
    tab.wait_for_selector("#side .good")
    assert "step=say" in tab.url
