"""OGC API – Processes: what the classes of conformance that the server names ask for. Requirements are named in brackets as 18-062r2 names them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from penstock.artifacts.blobs import digest_of
from penstock.service import ogc, work
from penstock.service.callbacks.guard import VARIABLE
from penstock.store.sql import open_store
from tests.integrator.receiver import Receiver
from tests.server.served import Answer, Served, wait_for

CORE = "http://www.opengis.net/spec/ogcapi-processes-1/1.0/conf/"
EXCEPTION = "http://www.opengis.net/def/exceptions/ogcapi-processes-1/1.0/"
SCALE = """
apiVersion: penstock/v1
kind: Workflow
name: scale
doc: Multiplies a number.
params:
  - {name: rows, type: int, doc: How many}
  - {name: factor, type: float, default: 2.0}
  - {name: names, type: "list[str]", default: []}
  - {name: more, type: "dict[int]", default: {}}
steps:
  - {name: a, script: {source: "test ${{ params.rows }} -gt 0 || exit 3; echo $((${{ params.rows }} * 2)) > $PENSTOCK_OUTPUTS/twice"}, outputs: [{name: twice, type: int}]}
outputs:
  - {name: twice, type: int, value: "${{ steps.a.outputs.twice }}"}
  - {name: names, type: "list[str]", value: "${{ params.names }}"}
"""
READS = """
apiVersion: penstock/v1
kind: Workflow
name: reads
params: [{name: text, type: file}]
steps:
  - {name: a, inputs: [{name: text, value: "${{ params.text }}", type: file, path: in.txt}], script: {source: "cat in.txt"}, outputs: [{name: said, path: /dev/stdout}]}
outputs: [{name: said, value: "${{ steps.a.outputs.said }}"}]
"""
WAITS = """
apiVersion: penstock/v1
kind: Workflow
name: waits
steps: [{name: a, suspend: {message: go on?}}]
"""


@pytest.fixture(scope="module")
def site(served: Served) -> Served:
    for document, params in ((SCALE, {"rows": 1}), (WAITS, {})):
        run = served.submit(document, params=params, options={})["run"]["run"]
        if document is SCALE:
            served.wait(run)
        else:
            served.ask("POST", f"/api/v1/runs/{run}/cancel", {})
            served.wait(run, "cancelled")
    return served


def get(site: Served, path: str, status: int = 200) -> Any:
    found = site.ask("GET", path)
    assert found.status == status, found
    return found.data


def execute(site: Served, name: str = "scale", token: str = "", **body: Any) -> Answer:
    return site.ask("POST", f"/ogc/processes/{name}/execution", body, token=token)


def ended(site: Served, found: Answer, status: str = "successful") -> Any:
    assert found.status == 201, found
    run = found.data["jobID"]
    site.wait(run, {"successful": "succeeded", "dismissed": "cancelled"}.get(status, status))
    told = get(site, f"/ogc/jobs/{run}")
    assert told["status"] == status
    return told


def rels(data: Any) -> dict[str, str]:
    return {link["rel"].rpartition("/")[2]: urlsplit(link["href"]).path for link in data["links"]}


def test_the_landing_page_leads_to_everything(site: Served) -> None:
    """[core/landingpage-success, core/conformance-success, core/api-definition-success]"""
    found = rels(get(site, "/ogc"))
    assert found.keys() == {"self", "service-desc", "conformance", "processes", "job-list"}
    assert get(site, "/ogc/") == get(site, "/ogc")
    for path in found.values():
        assert site.ask("GET", path).status == 200, path
    said = get(site, found["conformance"])["conformsTo"]
    assert said == [CORE + name for name in ("core", "json", "ogc-process-description", "job-list", "dismiss")]


def test_processes_are_listed_in_pages_and_described(site: Served) -> None:
    """[core/process-list, core/process-summary-links, core/pl-limit-response, ogc-process-description/json-encoding, …/input-def, …/output-def]"""
    names, page = [], "/ogc/processes?limit=1"
    while page:
        data = get(site, page)
        assert len(data["processes"]) == 1
        for one in data["processes"]:
            assert one["jobControlOptions"] == ["async-execute", "dismiss"] and one["outputTransmission"] == ["value"]
            assert one["id"] and one["version"] and rels(one)["self"].endswith(one["id"])
            names.append(one["id"])
        following = [urlsplit(link["href"]) for link in data["links"] if link["rel"] == "next"]
        page = f"{following[0].path}?{following[0].query}" if following else ""
    assert {"scale", "waits"} <= set(names) and names == sorted(set(names))
    assert len(get(site, "/ogc/processes?limit=100000")["processes"]) == len(names)  # not an error
    scale = get(site, "/ogc/processes/scale")
    assert rels(scale)["execute"] == "/ogc/processes/scale/execution"
    rows = scale["inputs"]["rows"]
    assert rows == {
        "title": "rows",
        "description": "How many",
        "schema": {"type": "integer"},
        "minOccurs": 1,
        "maxOccurs": 1,
    }
    assert (
        scale["inputs"]["factor"]["schema"] == {"type": "number", "default": 2.0}
        and scale["inputs"]["factor"]["minOccurs"] == 0
    )
    assert scale["inputs"]["names"]["schema"]["items"] == {"type": "string"}
    assert scale["inputs"]["more"]["schema"]["additionalProperties"] == {"type": "integer"}
    assert scale["outputs"]["twice"]["schema"] == {"type": "integer"}


def test_what_is_not_there_has_the_type_of_the_standard(site: Served) -> None:
    """[core/process-exception-no-such-process, core/job-exception-no-such-job, core/job-results-exception-no-such-job]"""
    for method, path, kind in (
        ("GET", "/ogc/processes/nothing-of-that", "no-such-process"),
        ("POST", "/ogc/processes/nothing-of-that/execution", "no-such-process"),
        ("GET", "/ogc/jobs/nothing-1x", "no-such-job"),
        ("GET", "/ogc/jobs/nothing-1x/results", "no-such-job"),
        ("DELETE", "/ogc/jobs/nothing-1x", "no-such-job"),
    ):
        found = site.ask(method, path, {} if method == "POST" else None)
        assert (found.status, found.data["type"]) == (404, EXCEPTION + kind), (method, path)
        assert found.headers["content-type"] == "application/problem+json"


def test_a_job_from_execution_to_its_results(site: Served) -> None:
    """[core/process-execute-op, …/process-execute-success-async, core/job-success, core/job-results-async-document]"""
    found = site.ask(
        "POST",
        "/ogc/processes/scale/execution",
        {"inputs": {"rows": 21, "more": {"value": {"a": 1}}, "names": ["x", "y"]}, "response": "document"},
        headers={"Prefer": "respond-async"},
    )
    assert found.status == 201 and found.headers["preference-applied"] == "respond-async"
    told = found.data
    assert urlsplit(found.headers["location"]).path == f"/ogc/jobs/{told['jobID']}"
    assert (told["type"], told["processID"]) == ("process", "scale") and told["status"] in (
        "accepted",
        "running",
        "successful",
    )
    told = ended(site, found)
    assert told["created"] <= told["started"] <= told["finished"] and told["progress"] == 100
    assert datetime.fromisoformat(told["finished"]).tzinfo is not None
    assert get(site, rels(told)["results"]) == {"twice": 42, "names": ["x", "y"]}


def test_results_as_they_were_asked_for(site: Served) -> None:
    """[core/job-results-async-raw-value-one, …-raw-value-multi, core/process-execute-request: outputs]"""
    one = ended(site, execute(site, inputs={"rows": 4}, outputs={"twice": {"transmissionMode": "value"}}))
    raw = site.ask("GET", rels(one)["results"])
    assert (raw.status, raw.body, raw.headers["content-type"]) == (200, b"8", "application/json")
    several = ended(site, execute(site, inputs={"rows": 4, "names": ["z"]}))
    raw = site.ask("GET", rels(several)["results"])
    kind, _, line = raw.headers["content-type"].partition("; boundary=")
    assert kind == "multipart/related"
    parts = [part for part in raw.text.split("--" + line.strip('"')) if "Content-ID" in part]
    assert [part.split("Content-ID: ")[1].split("\r\n")[0] for part in parts] == ["<twice>", "<names>"]
    assert [json.loads(part.split("\r\n\r\n")[1]) for part in parts] == [8, ["z"]]
    wrong = execute(site, inputs={"rows": 4}, outputs={"thrice": {}})
    assert (wrong.status, wrong.data["code"]) == (400, "P562")


def test_the_content_of_a_file_is_sent_along(site: Served) -> None:
    """[core/process-execute-input-inline-binary]; by reference it is refused."""
    content = base64.b64encode(b"one\ntwo").decode()
    first = site.ask("POST", "/ogc/processes/reads/execution", {"inputs": {}})
    assert first.status == 404  # it was never submitted
    digest = digest_of(b"x")
    assert site.ask(
        "PUT", f"/api/v1/blobs/{digest}", b"x", headers={"Content-Type": "application/octet-stream"}
    ).status in (200, 201, 204)
    site.wait(site.submit(READS, params={"text": {"$blob": digest, "name": "a"}}, options={})["run"]["run"])
    for given in (content, {"value": content, "mediaType": "text/plain"}):
        told = ended(site, execute(site, "reads", inputs={"text": given}))
        assert site.ask("GET", rels(told)["results"]).text == "one\ntwo"
    for given in ("no base64!", {"href": "http://127.0.0.1:1/secret"}):
        assert execute(site, "reads", inputs={"text": given}).data["code"] == "P562"


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": {}},
        {"inputs": {"rows": "many"}},
        {"inputs": {"rows": 1, "nothing": 2}},
        {"inputs": {"rows": [1, 2]}},
        {
            "inputs": {"rows": 1},
            "subscriber": {"successUri": "http://127.0.0.1:1/", "inProgressUri": "http://127.0.0.1:1/"},
        },
        {"inputs": {"rows": 1}, "subscriber": {"successUri": "no url"}},
        {"inputs": 1},
    ],
)
def test_wrong_inputs_are_refused(site: Served, body: dict[str, Any]) -> None:
    """[core/process-execute-inputs]"""
    found = execute(site, **body)
    assert found.status == 400 and found.data["title"] and found.data["detail"], found


def test_a_job_that_fails_says_why(site: Served) -> None:
    """[core/job-results-failed]"""
    told = ended(site, execute(site, inputs={"rows": 0}), "failed")
    assert "3" in told["message"]
    found = site.ask("GET", rels(told)["results"])
    assert found.status == 424 and found.data["detail"] == told["message"]


def test_a_job_that_is_retried_is_not_failed_until_that_is_over(tmp_path: Path) -> None:
    with open_store(str(tmp_path)) as store:
        run = store.runs.create("flow", "d", "{}", {}, {}, "ana", 1.0)
        assert ogc.job(store, run).status == "accepted"
        assert store.runs.take(run.number, "e", None) and store.runs.release(run.number, "e", "failed")
        failed = store.runs.by_number(run.number)
        assert failed is not None and ogc.job(store, failed).status == "failed"
        work.retry(store, failed, "ana")
        assert ogc.job(store, failed).status == "running"
        work.cancel(store, run, "ana")
        assert ogc.job(store, run).status == "dismissed"


def test_results_that_are_not_ready_and_a_job_that_is_dismissed(site: Served) -> None:
    """[core/job-results-exception-results-not-ready, dismiss/job-dismiss-op, …/job-dismiss-success]"""
    found = execute(site, "waits")
    job = f"/ogc/jobs/{found.data['jobID']}"
    early = site.ask("GET", f"{job}/results")
    assert (early.status, early.data["type"]) == (404, EXCEPTION + "result-not-ready")
    stranger, viewer = site.token("bob", "submitter"), site.token("bob", "viewer")
    assert site.ask("DELETE", job, token=stranger).status == 403
    assert execute(site, "waits", token=viewer).status == 403
    gone = site.ask("DELETE", job)
    assert (gone.status, gone.data["status"], gone.data["jobID"]) == (200, "dismissed", found.data["jobID"])
    assert get(site, job)["status"] == "dismissed"  # from now on, also while its tasks end
    assert site.ask("DELETE", job).status == 410
    ended(site, found, "dismissed")
    assert site.ask("GET", f"{job}/results").status == 410
    over = ended(site, execute(site, inputs={"rows": 1}))
    assert site.ask("DELETE", f"/ogc/jobs/{over['jobID']}").status == 409


def test_jobs_are_listed_and_filtered(site: Served) -> None:
    """[job-list/job-list-success, processID-response, status-response, datetime-response, duration-response, jl-limit-response, links]"""
    before = datetime.now(UTC).isoformat()
    made = [ended(site, execute(site, inputs={"rows": 1}))["jobID"] for _ in range(3)]

    def ids(query: str) -> list[str]:
        return [one["jobID"] for one in get(site, f"/ogc/jobs?{query}")["jobs"]]

    assert ids("limit=3") == made[::-1]
    first = get(site, "/ogc/jobs?limit=2&processID=scale&status=successful")
    following = urlsplit(next(link["href"] for link in first["links"] if link["rel"] == "next"))
    second = get(site, f"{following.path}?{following.query}")
    assert [one["jobID"] for one in first["jobs"]] == made[:0:-1] and second["jobs"][0]["jobID"] == made[0]
    assert all(one["processID"] == "scale" and one["status"] == "successful" for one in second["jobs"])
    assert set(ids("processID=waits&processID=scale&status=dismissed")) >= {"waits-1"}
    since = quote(before)
    assert ids(f"datetime={since}/..") == made[::-1] and not set(made) & set(ids(f"datetime=../{since}"))
    assert (
        ids("datetime=2001-01-01T00:00:00Z") == []
        and ids("type=other") == []
        and ids("type=process&limit=1") == made[-1:]
    )
    assert ids("minDuration=100000") == [] and set(made) <= set(ids("maxDuration=100000"))
    for wrong in (
        "datetime=yesterday",
        "datetime=2026-02-01T00:00:00Z/2026-01-01T00:00:00Z",
        "status=odd",
        "limit=0",
        "minDuration=-1",
    ):
        assert site.ask("GET", f"/ogc/jobs?{wrong}").status == 400, wrong


def test_it_needs_a_token(site: Served) -> None:
    for path in ("/ogc", "/ogc/conformance", "/ogc/processes", "/ogc/jobs"):
        assert site.ask("GET", path, token=None).status == 401


@pytest.mark.slow
def test_a_subscriber_is_told_of_the_end_of_its_job_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.1")
    with Receiver() as receiver, Served(tmp_path / ".penstock") as site:
        site.wait(site.submit(SCALE, params={"rows": 1}, options={})["run"]["run"])
        version = get(site, "/ogc/processes/scale")["version"]
        uris = {"successUri": f"{receiver.url}/good", "failedUri": f"{receiver.url}/bad"}
        good = ended(site, execute(site, inputs={"rows": 21}, subscriber=uris))
        wait_for(lambda: len(receiver.heard) == 1)
        bad = ended(site, execute(site, inputs={"rows": 0}, subscriber=uris), "failed")
        wait_for(lambda: len(receiver.heard) == 2)
        ended(site, execute(site, inputs={"rows": 2}))  # without one
        ended(site, execute(site, inputs={"rows": 3}, subscriber={"successUri": f"{receiver.url}/last"}))
        wait_for(lambda: len(receiver.heard) == 3)
        assert get(site, "/ogc/processes/scale")["version"] == version
    assert [(one.path, one.data) for one in receiver.heard] == [
        ("/good", {"twice": 42, "names": []}),
        (
            "/bad",
            {
                "type": "process",
                "processID": "scale",
                "jobID": bad["jobID"],
                "status": "failed",
                "message": bad["message"],
            },
        ),
        ("/last", {"twice": 6, "names": []}),
    ]
    assert good["status"] == "successful"
