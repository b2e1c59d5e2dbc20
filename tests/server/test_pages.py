"""Pages: without a script, with hostile names, by those who may; and in a real browser, where there is one."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.server.served import Served, wait_for
from tests.server.test_api import HERE, SHELL

HOSTILE = "<script>alert(1)</script>\x1b[31m&\"'"
BROWSER = shutil.which("chromium")


class Outline(HTMLParser):
    """What an auditor of a page looks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for one, attrs in self.tags if one == tag]


def page(served: Served, path: str, token: str = "") -> tuple[Outline, str]:
    found = served.ask("GET", path, token=None, headers=served.browser(token))
    assert found.status == 200 and found.headers["content-type"].startswith("text/html"), (path, found)
    return Outline(found.text), found.text


@pytest.fixture(scope="module")
def ended(served: Served) -> str:
    """A run with a failure and hostile texts."""
    run = served.submit(SHELL, options=HERE, params={"text": "bad"})["run"]["run"]
    served.wait(run, "failed")
    echo = SHELL.replace('echo "$1"; test "$1" != bad', 'echo "$1"; exit 3')
    run = served.submit(echo, options=HERE, params={"text": HOSTILE})["run"]["run"]
    served.wait(run, "failed")
    return str(run)


def pages_of(run: str) -> list[str]:
    parts = ("", "/tasks", "/timeline", "/logs", "/task?path=say")
    return [
        "/",
        "/?state=failed&workflow=shell",
        "/queues",
        "/queues/machine",
        *(f"/runs/{run}{part}" for part in parts),
    ]


def test_every_page_is_whole_without_a_script(served: Served, ended: str) -> None:
    for path in pages_of(ended):
        outline, text = page(served, path)
        assert len(outline.all("h1")) == 1 and outline.all("main") and outline.all("html")[0]["lang"] == "en", path
        assert all(one.get("src") for one in outline.all("script")), path  # none inside
        assert not any("style" in attrs or any(name.startswith("on") for name in attrs) for _, attrs in outline.tags), (
            path
        )
        assert all("alt" in one for one in outline.all("img")), path
        labelled = {one.get("for") for one in outline.all("label")}
        wrapped = len(re.findall(r"<label>", text))
        named = [one for one in (*outline.all("input"), *outline.all("select")) if one.get("type") != "hidden"]
        assert len(named) <= wrapped + len(labelled), path
        assert all(one.get("scope") for one in outline.all("th")), path
        assert "penstock " in text, path  # the equal command


def test_the_same_address_gives_data(served: Served, ended: str) -> None:
    for path in pages_of(ended):
        found = served.ask("GET", path)
        assert found.headers["content-type"] == "application/json" and found.data is not None, path
    assert served.ask("GET", f"/runs/{ended}").data["run"] == ended


def test_what_users_wrote_is_text(served: Served, ended: str) -> None:
    for path in pages_of(ended):
        _, text = page(served, path)
        assert "<script>alert" not in text and "\x1b" not in text, path
    _, log = page(served, f"/runs/{ended}/logs")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;·[31m" in log


def test_buttons_are_there_for_those_who_may_and_work(served: Served) -> None:
    ana, bob = served.token("ana", "submitter"), served.token("bob", "submitter")
    run = served.submit(SHELL, options=HERE, params={"text": "bad"}, token=ana)["run"]["run"]
    served.wait(run, "failed")
    assert "/retry" not in page(served, f"/runs/{run}", bob)[1]
    _, text = page(served, f"/runs/{run}", ana)
    assert "/retry" in text and "/cancel" not in text
    word = re.search(r'name="csrf" value="([^"]+)"', text)
    assert word is not None
    form = {**served.browser(ana), "Content-Type": "application/x-www-form-urlencoded"}
    done = served.ask("POST", f"/runs/{run}/retry", f"csrf={quote(word[1])}".encode(), token=None, headers=form)
    assert done.status == 303 and done.headers["location"] == f"/runs/{run}"
    wait_for(lambda: served.get(f"runs/{run}/task?path=say")["attempt"] == 2)
    served.wait(run, "failed")


def test_who_is_not_signed_in_is_asked_to_and_comes_back(served: Served) -> None:
    found = served.ask("GET", "/runs/x?find=a%26b", token=None, headers={"Accept": "text/html"})
    assert found.status == 303 and found.headers["location"] == "/login?next=%2Fruns%2Fx%3Ffind%3Da%2526b"
    form = {"Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"}
    wrong = served.ask("POST", "/login", b"token=pst_a_b&next=/queues", token=None, headers=form)
    assert wrong.status == 401 and "P930" in wrong.text
    right = served.ask("POST", "/login", f"token={served.own}&next=/queues".encode(), token=None, headers=form)
    assert right.status == 303 and right.headers["location"] == "/queues"
    served.server.app.state.gate.tries._seen.clear()


def test_errors_are_pages_for_people(served: Served) -> None:
    found = served.ask("GET", "/runs/nope", token=None, headers=served.browser())
    assert found.status == 404 and "P505" in found.text and "penstock ls" in found.text


def test_a_run_of_many_tasks_is_a_small_page(served: Served) -> None:
    run = served.submit(params={"many": 10_000})["run"]["run"]
    served.wait(run)
    _, text = page(served, f"/runs/{run}")
    assert len(text) < 30_000 and "×10000" in text
    _, text = page(served, f"/runs/{run}/tasks")
    assert "each[0]" in text and 'rel="next"' in text


def test_a_run_of_many_steps_shows_those_that_matter_and_finds_the_others(served: Served) -> None:
    steps = [{"name": f"s{n}", "container": {"image": "busybox", "command": ["true"]}} for n in range(600)]
    document = json.dumps({"apiVersion": "penstock/v1", "kind": "Workflow", "name": "wide", "steps": steps})
    run = served.submit(document)["run"]["run"]
    served.wait(run)
    _, text = page(served, f"/runs/{run}")
    assert "200 steps more" in text and "graph.svg" not in text and len(text) < 300_000
    assert "s599</a>" in page(served, f"/runs/{run}?find=s599")[1]


# -- in a browser -----------------------------------------------------------------------------------------------------

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync"
).split()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("no Chromium here (sudo apt-get install chromium)")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def tab(served: Served, browser: Browser) -> Iterator[Page]:
    """Signed in. What the browser complains about fails the test: scripts and styles that the policy refuses, errors in the script."""
    context = browser.new_context()
    context.set_default_timeout(30_000)
    found = context.new_page()
    said: list[str] = []
    found.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    found.on("pageerror", lambda error: said.append(str(error)))
    found.goto(f"{served.url}/login?token={served.own}")
    yield found
    context.close()
    assert not said


@pytest.mark.slow
def test_a_page_follows_its_run_and_keeps_what_somebody_typed(served: Served, tab: Page, tmp_path: Path) -> None:
    done = tmp_path / "done"
    slow = SHELL.replace('echo "$1"; test "$1" != bad', 'until [ -e "$1" ]; do sleep 0.1; done; echo over')
    run = served.submit(slow, options=HERE, params={"text": str(done)})["run"]["run"]
    served.wait(run, "running")
    tab.goto(f"{served.url}/runs/{run}/logs")
    tab.fill("input[name=grep]", "some")
    tab.wait_for_selector("text=Live.")
    done.touch()
    tab.wait_for_selector("h1 + .good")
    assert tab.input_value("input[name=grep]") == "some" and tab.title() == f"Logs of {run} · Penstock"
    tab.wait_for_selector("pre:has-text('over')")
    tab.wait_for_function("!document.getElementById('main').dataset.live")


@pytest.mark.slow
def test_the_list_of_runs_follows_too(served: Served, tab: Page) -> None:
    tab.goto(f"{served.url}/")
    tab.wait_for_selector("text=Live.")
    run = served.submit()["run"]["run"]
    tab.wait_for_selector(f"#run-{run} .good")


@pytest.mark.slow
def test_keys_and_buttons(served: Served, tab: Page, ended: str) -> None:
    tab.goto(f"{served.url}/")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    tab.keyboard.press("k")
    first = tab.evaluate("document.activeElement.textContent")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/runs/{first}")
    tab.keyboard.press("g")
    tab.keyboard.press("q")
    tab.wait_for_url("**/queues")
    tab.keyboard.press("?")
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.press("Escape")
    tab.goto(f"{served.url}/runs/{ended}/tasks")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.name") == "step"
    tab.goto(f"{served.url}/runs/{ended}")
    tab.click("button:has-text('Retry')")
    wait_for(lambda: served.get(f"runs/{ended}/task?path=say")["attempt"] == 2)
    served.wait(ended, "failed")
    tab.click("button:has-text('Sign out')")
    tab.wait_for_url("**/login")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_a_phone_and_pass_the_audit(
    served: Served, tab: Page, ended: str, tmp_path: Path, theme: Literal["light", "dark"]
) -> None:
    """WCAG AA by axe-core. Pictures go to PENSTOCK_SHOTS, for people to look at."""
    shots = Path(os.environ.get("PENSTOCK_SHOTS") or tmp_path)
    tab.emulate_media(color_scheme=theme)
    for number, path in enumerate(pages_of(ended)):
        for width in (375, 1200):
            tab.set_viewport_size({"width": width, "height": 900})
            tab.goto(f"{served.url}{path}")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            tab.screenshot(path=shots / f"{number}-{theme}-{width}.png", full_page=True)
        found = Axe().run(tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
        assert not found["violations"], (path, [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]])


def test_many_listeners_hear_of_everything(served: Served) -> None:
    """Forty at once."""
    from tests.server.test_api import lines

    run = served.submit(params={"many": 300})["run"]["run"]
    heard: list[int] = []
    listeners = [threading.Thread(target=lambda: heard.append(len(lines(served, run)))) for _ in range(40)]
    for one in listeners:
        one.start()
    for one in listeners:
        one.join(60)
    assert len(heard) == 40 and len(set(heard)) == 1
