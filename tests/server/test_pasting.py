"""Pages to which a workflow is pasted, and what is done from pages: convert, submit, resume with values, cancel; and the doctor."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from axe_core_python.sync_playwright import Axe
from playwright.sync_api import Page

from penstock.errors import Problem, StoreError
from penstock.store.tokens import AuditEntry, TokenRepository
from tests.server.served import NOTHING, Answer, Served, wait_for
from tests.server.test_api import HERE, QUEUES, SHELL
from tests.server.test_pages import HOSTILE, browser, page, tab  # noqa: F401

ARGO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: legacy}
spec:
  entrypoint: main
  templates:
    - name: main
      dag:
        tasks:
          - {name: prepare, template: work}
          - {name: train, template: work, dependencies: [prepare], withItems: [1, 2, 3]}
    - name: work
      daemon: false
      container: {image: busybox, command: ["true"], resources: {requests: {cpu: 2}}}
"""
ASKS = """
apiVersion: penstock/v1
kind: Workflow
name: asks
steps:
  - {name: hold, outputs: [{name: rate, type: float}, {name: note, type: str, default: none}], suspend: {message: which rate}}
  - {name: say, container: {image: busybox, command: [echo, "${{ steps.hold.outputs.rate }} ${{ steps.hold.outputs.note }}"]}}
"""


def post(served: Served, path: str, token: str = "", accept: str = "text/html", **fields: Any) -> Answer:
    """A form of a page, as a browser sends it. Bytes are files."""
    headers = served.browser(token)
    _, text = page(served, "/convert", token)
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    boundary = uuid.uuid4().hex
    parts = []
    for name, value in {"csrf": found[1], **fields}.items():
        file = isinstance(value, bytes)
        more = f'; filename="{name}.txt"\r\nContent-Type: application/octet-stream' if file else ""
        content = value if file else str(value).encode()
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    kind = f"multipart/form-data; boundary={boundary}"
    body = b"".join(parts) + f"--{boundary}--\r\n".encode()
    return served.ask("POST", path, body, token=None, headers={**headers, "Accept": accept, "Content-Type": kind})


# -- convert ----------------------------------------------------------------------------------------------------------


def test_a_manifest_is_shown_in_another_format_with_its_graph_stages_and_report(served: Served) -> None:
    before = [one["run"] for one in served.get("runs")["items"]]
    found = post(served, "/convert?to=tekton", document=ARGO, to="tekton", token=served.token("vic", "viewer"))
    assert found.status == 200, found.text
    for text in (
        "kind: Pipeline",
        'id="box-prepare"',
        'id="box-train"',
        "train ×3",
        "6 cpu",
        "kept",
        "penstock convert",
    ):
        assert text in found.text, text
    line = next(number for number, one in enumerate(ARGO.split("\n"), 1) if "name: prepare" in one)
    data = post(served, "/convert", document=ARGO, to="argo", accept="application/json").data
    assert "kind: Workflow" in data["text"] and any(one.get("line") == line for one in data["report"])
    assert [one["run"] for one in served.get("runs")["items"]] == before


def test_a_file_counts_more_than_the_text(served: Served) -> None:
    found = post(served, "/convert", document="x: 1", to="mermaid", file=ARGO.encode())
    assert found.status == 200 and "flowchart" in found.text


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"document": "x: [", "to": "argo"}, 400, "P102"),
        ({"document": "kind: Nope\napiVersion: v1\nmetadata: {name: x}", "to": "argo"}, 400, "P830"),
        ({"document": ARGO, "to": "nope"}, 400, "P838"),
        ({"document": ARGO, "to": "argo", "name": "other"}, 404, "P303"),
        ({"document": "a", "to": "argo", "file": b"\xff\xfe\x00"}, 400, "P946"),
        ({"document": "a", "to": "argo", "file": b" " * (2 * 2**20 + 1)}, 413, "P940"),
        ({"document": f"kind: {HOSTILE}", "to": "argo"}, 400, "P"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_stays(
    served: Served, fields: dict[str, Any], status: int, code: str
) -> None:
    found = post(served, "/convert", **fields)
    assert found.status == status and code in found.text and "<script>alert" not in found.text, found.text
    if status == 400 and "file" not in fields and "<" not in fields["document"]:
        assert str(fields["document"]).split("\n")[0] in found.text


def test_a_large_workflow_is_a_page_too(served: Served) -> None:
    from bench.server import document

    found = post(served, "/convert", to="mermaid", file=document(3000, 300).encode())
    assert found.status == 200 and "300 steps pending" in found.text and found.text.count('class="box') < 200


# -- submit -----------------------------------------------------------------------------------------------------------


def test_a_run_is_started_from_the_page_once(served: Served) -> None:
    ana = served.token("ana", "submitter")
    looked = post(served, "/submit", ana, document=SHELL, do="look")
    assert looked.status == 200 and 'name="p-text"' in looked.text and 'id="box-say"' in looked.text
    _, text = page(served, "/submit", ana)
    key = re.search(r'name="key" value="([0-9a-f]+)"', text)
    assert key is not None
    fields = {"document": SHELL, "do": "submit", "p-text": "ahoy", "key": key[1], "dry": "true"}
    first, again = post(served, "/submit", ana, **fields), post(served, "/submit", ana, **fields)
    assert first.status == again.status == 303 and first.headers["location"] == again.headers["location"]
    run = served.wait(first.headers["location"].removeprefix("/runs/"))
    assert run["params"] == {"text": "ahoy"} and run["user"] == "ana" and run["options"]["dry"] is True
    rows = served.get("audit")["items"]
    [noted] = [row for row in rows if (row["verb"], row["target"]) == ("submit", run["run"])]  # once, as the run
    assert (noted["person"], noted["status"]) == ("ana", 303)


def test_a_run_from_the_page_and_its_line_of_the_audit_are_one_transaction(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: TokenRepository, entry: AuditEntry) -> None:
        raise StoreError([Problem("P601", "the disk is full", "make room")])

    before = [run["run"] for run in served.get("runs")["items"]]
    monkeypatch.setattr(TokenRepository, "note", broken)
    assert post(served, "/submit", document=SHELL, do="submit", dry="true").status >= 500
    monkeypatch.undo()
    assert [run["run"] for run in served.get("runs")["items"]] == before


def test_parameters_are_of_their_types_and_files_are_sent(served: Served) -> None:
    flow = NOTHING.replace("steps:", "  - {name: rows, type: file}\nsteps:")
    found = post(served, "/submit", do="submit", dry="true", document=flow, **{"p-many": "2", "p-rows": b"one\n"})
    assert found.status == 303, found.text
    run = served.wait(found.headers["location"].removeprefix("/runs/"))
    assert run["params"]["many"] == 2 and Path(run["params"]["rows"]).read_text() == "one\n"
    for fields, code in (({"p-many": "x"}, "P402"), ({"p-rows": "/etc/passwd"}, "P935"), ({"queue": "nope"}, "P")):
        wrong = post(served, "/submit", do="submit", document=flow, **fields)
        assert (wrong.status == 400 and code in wrong.text and 'value="x"' in wrong.text) or code != "P402", fields


def test_a_run_is_started_again_from_its_page(served: Served) -> None:
    run = served.submit(params={"many": 2})["run"]["run"]
    served.wait(run)
    assert f"/submit?from={run}" in page(served, f"/runs/{run}")[1]
    _, text = page(served, f"/submit?from={run}")
    assert 'name="p-many" value="2"' in text and "name: nothing" in text
    assert served.ask("GET", "/submit?from=nope", headers={"Accept": "text/html"}).status == 404


def test_viewers_start_nothing(served: Served) -> None:
    vic = served.token("vic", "viewer")
    assert post(served, "/submit", vic, document=NOTHING, do="submit").status == 403
    assert 'href="/submit"' not in page(served, "/", vic)[1] and 'href="/doctor"' not in page(served, "/", vic)[1]


# -- resume, cancel ---------------------------------------------------------------------------------------------------


def test_a_suspended_task_goes_on_with_values_from_the_page(served: Served) -> None:
    ana, bob = served.token("ana", "submitter"), served.token("bob", "submitter")
    run = served.submit(ASKS, options=HERE, token=ana)["run"]["run"]
    wait_for(lambda: served.get(f"runs/{run}")["tasks"].get("suspended"))
    there = f"/runs/{run}/task?path=hold"
    assert 'name="v-rate"' in page(served, there, ana)[1] and 'name="v-rate"' not in page(served, there, bob)[1]
    assert post(served, f"/runs/{run}/resume", bob, task="hold", **{"v-rate": "0.5"}).status == 403
    wrong = post(served, f"/runs/{run}/resume", ana, task="hold", **{"v-rate": "fast"})
    assert wrong.status == 400 and "P402" in wrong.text
    found = post(served, f"/runs/{run}/resume", ana, task="hold", **{"v-rate": "0.5", "v-note": "@/etc/hostname"})
    assert found.status == 303
    served.wait(run)
    assert served.ask("GET", f"/api/v1/runs/{run}/logs").text == "0.5 @/etc/hostname\n"


def test_values_of_the_api_are_no_files_of_the_server(served: Served) -> None:
    run = served.submit(ASKS.replace("type: str", "type: file").replace(", default: none", ""), options=HERE)["run"][
        "run"
    ]
    wait_for(lambda: served.get(f"runs/{run}")["tasks"].get("suspended"))
    body = {"task": "hold", "params": {"rate": 1, "note": "/etc/hostname"}}
    found = served.ask("POST", f"/api/v1/runs/{run}/resume", body)
    assert found.status == 400 and found.data["code"] == "P935"
    served.ask("POST", f"/api/v1/runs/{run}/cancel", {"now": True})


def test_a_run_is_cancelled_at_once(served: Served) -> None:
    run = served.submit(SHELL.replace('echo "$1"', "sleep 600"), options=HERE)["run"]["run"]
    served.wait(run, "running")
    assert 'name="now"' in page(served, f"/runs/{run}")[1]
    assert post(served, f"/runs/{run}/cancel", now="true").status == 303
    served.wait(run, "cancelled")


# -- doctor -----------------------------------------------------------------------------------------------------------


def test_the_doctor_says_what_the_command_says(served: Served) -> None:
    _, text = page(served, "/doctor")
    assert "healthy" in text and "schema" in text and "penstock doctor" in text
    data = served.ask("GET", "/doctor").data
    assert data["healthy"] and {"database", "blobs", "leases"} <= {one["check"] for one in data["findings"]}


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_these_pages_fit_a_phone_and_pass_the_audit(served: Served, tab: Page, theme: str) -> None:  # noqa: F811
    tab.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    served.ask("PUT", "/api/v1/queues", QUEUES.encode(), headers={"Content-Type": "application/yaml"})
    for path, do in (("/convert", "Convert"), ("/submit", "Look at it first"), ("/doctor", "")):
        for width in (375, 1280):
            tab.set_viewport_size({"width": width, "height": 900})
            tab.goto(f"{served.url}{path}?{urlencode({'to': 'tekton'})}")
            if do:
                tab.fill("#document", ARGO)
                tab.keyboard.press("Tab")
                tab.click(f"button:has-text('{do}')")
                tab.wait_for_selector("#graph")
                tab.wait_for_load_state()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        found = Axe().run(tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
        assert not found["violations"], (path, [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]])


@pytest.mark.slow
def test_a_run_is_submitted_in_a_browser(served: Served, tab: Page) -> None:  # noqa: F811
    tab.goto(f"{served.url}/submit")
    tab.fill("#document", NOTHING)
    tab.click("button:has-text('Look at it first')")
    tab.fill("input[name=p-many]", "4")
    tab.check("input[name=dry]")
    tab.click("button:text-is('Submit')")
    tab.wait_for_url("**/runs/nothing-*")
    tab.wait_for_selector("h1 + .good")
