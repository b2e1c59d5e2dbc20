"""Chains that are executed: by `penstock run` and what goes on after it was killed, by a worker, over HTTP and on the page of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.service import queues, stores
from penstock.settings import Settings, read
from penstock.store.records import FINAL
from penstock.store.sql import Store
from tests.cli.conftest import Result, penstock  # noqa: F401
from tests.cli.test_access import QUEUES
from tests.integrator.chains import begin, deliver, end, settings_of, states, work
from tests.server.served import Served, wait_for

Penstock = Callable[..., Result]
FIRST = """
apiVersion: penstock/v1
kind: Workflow
name: first
params: [{name: place, type: str}]
steps:
- name: mark
  container: {image: busybox, command: [sh, -c, 'sleep 0.1; echo first >> "$1"', sh, "${{ params.place }}"]}
links:
- {workflow: left}
- {workflow: right}
- {workflow: last, after: [left, right]}
- {workflow: never, when: run.state == 'failed'}
definitions:
"""
STEP = """
- name: {name}
  params: [{{name: place, type: str}}]
  steps:
  - name: mark
    container: {{image: busybox, command: [sh, -c, 'sleep 0.1; echo {name} >> "$1"', sh, "${{{{ params.place }}}}"]}}
"""
DOCUMENT = FIRST + "".join(STEP.format(name=name) for name in ("left", "right", "last", "never"))


def marks(place: Path) -> dict[str, int]:
    words = place.read_text().split() if place.exists() else []
    return {word: words.count(word) for word in words}


def runs_in(settings: Settings) -> dict[str, list[str]]:
    with stores.open_existing(settings) as store:
        found: dict[str, list[str]] = {}
        for run in store.runs.newest():
            found.setdefault(run.workflow, []).append(run.state)
        return found


def test_penstock_run_goes_on_until_the_chain_has_ended_and_says_what_was_not_run(
    penstock: Penstock,  # noqa: F811
    tmp_path: Path,
) -> None:
    last = STEP.format(name="last").replace("- name: last", "name: last").replace("\n  ", "\n")
    (tmp_path / "last.yaml").write_text("apiVersion: penstock/v1\nkind: Workflow" + last)  # found beside it
    (tmp_path / "first.yaml").write_text(DOCUMENT.replace(STEP.format(name="last"), ""))
    place = tmp_path / "marks"
    done = penstock("run", "first.yaml", "--on", "container=process", "-p", f"place={place}")
    assert done.code == 0, done.err
    assert marks(place) == {"first": 1, "left": 1, "right": 1, "last": 1}
    assert 'never is skipped: run.state == "failed" does not hold' in done.err
    shown = penstock("show", "last-1", "--lineage").out
    assert [line.split()[1] for line in shown.splitlines()] in (
        ["first-1", "left-1", "right-1", "last-1", "never"],
        ["first-1", "left-1", "last-1", "right-1", "never"],
    )
    data = json.loads(penstock("show", "@", "--lineage", "-o", "json").out)
    assert data["root"] == "first-1" and {one["parent"] for one in data["links"]} >= {None, "first-1"}


def test_after_a_retry_the_chain_goes_on_from_there(penstock: Penstock, tmp_path: Path) -> None:  # noqa: F811
    fixed = tmp_path / "fixed"
    text = DOCUMENT.replace("sleep 0.1; echo left", f"test -e {fixed} && echo left")
    (tmp_path / "first.yaml").write_text(text)
    place = tmp_path / "marks"
    done = penstock("run", "first.yaml", "--on", "container=process", "-p", f"place={place}")
    assert done.code == 3 and "last is omitted: left failed" in done.err
    assert marks(place) == {"first": 1, "right": 1}
    fixed.touch()
    again = penstock("retry", "left-1")
    assert again.code == 0, again.err
    assert marks(place) == {"first": 1, "right": 1, "left": 1, "last": 1}
    assert penstock("resume", "first-1").code == 2  # there is nothing left to do


def test_what_follows_from_a_run_that_was_removed_is_not_started_and_its_links_go_with_the_chain(
    store: Store, tmp_path: Path, where: str
) -> None:
    settings = settings_of(tmp_path / ".penstock", where)
    head = begin(store, work("a") >> work("b"))
    end(store, head.number)
    assert store.maintenance.delete_runs([head.number], 0.0)[0] == 1
    assert deliver(store, settings) == 1 and not store.runs.newest()
    assert [row.error[:4] for row in store.outbox.page(["link"], ["dead"], 10)] == ["P505"]
    other = begin(store, work("a") >> work("b"))
    end(store, other.number)
    deliver(store, settings)
    (b,) = [run for run in store.runs.newest() if run.workflow == "b"]
    end(store, b.number)
    deliver(store, settings)
    store.maintenance.delete_runs([other.number], 0.0)
    assert store.links.of_root(other.number)
    store.maintenance.delete_runs([b.number], 0.0)
    assert not store.links.of_root(other.number)


@pytest.mark.slow
def test_a_chain_whose_process_is_killed_again_and_again_ends_with_each_run_once(tmp_path: Path) -> None:
    settings = read({}, home=tmp_path / ".penstock", jobs=2)
    (tmp_path / "first.yaml").write_text(DOCUMENT)
    place = tmp_path / "marks"
    env = {**os.environ, "PENSTOCK_HOME": str(settings.home)}
    words = ["run", "first.yaml", "--on", "container=process", "-p", f"place={place}"]
    log = (tmp_path / "log").open("ab")

    def started(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", *words]
        return subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log)

    process = started(*words)
    for stage in ("first", "left", "last"):  # each time when something of the chain is under way
        wait_for(lambda stage=stage: stage in runs_in(settings) if (settings.home / "state.db").exists() else False)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = started("resume", "first-1")
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until and "last" not in runs_in(settings):
            time.sleep(0.01)
            if stage != "last" and "left" in runs_in(settings):
                break
    assert process.wait(60) in (0, 2), (tmp_path / "log").read_text()  # 2: there was nothing left to do
    if "succeeded" not in runs_in(settings).get("last", ()):
        subprocess.run([sys.executable, "-m", "penstock", "worker", "--until-idle"], env=env, timeout=60, check=True)
    log.close()
    assert runs_in(settings) == {name: ["succeeded"] for name in ("first", "left", "right", "last")}
    assert set(marks(place)) == {"first", "left", "right", "last"}


def test_whoever_may_not_submit_to_a_queue_any_more_starts_no_run_there(
    store: Store, tmp_path: Path, where: str
) -> None:
    settings = settings_of(tmp_path / ".penstock", where)
    queues.apply(store, (QUEUES, "queues.yaml"))
    there = work("there", queue="team-a")
    job = there.jobs["there-work"]
    job.fields["resources"] = {"cpu": 1000}
    queued = type(there)("there", [job], params=there.params, queue="team-a")
    ends = {}
    for person in ("sue", "eve"):
        head = begin(store, work(f"of-{person}") >> queued, person=person)
        end(store, head.number)
        deliver(store, settings)
        ends[person] = states(store, head.number)["there"]
    assert ends == {"sue": "started", "eve": "dead"}
    assert [row.error[:4] for row in store.outbox.page(["link"], ["dead"], 10)] == ["P825"]


@pytest.mark.slow
def test_a_worker_executes_a_chain_that_came_over_http_and_its_lineage_is_shown(
    penstock: Penstock,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "marks"
    with Served(tmp_path / ".penstock") as served:
        made = served.submit(
            DOCUMENT, params={"place": str(place)}, options={"on": {"container": "process"}, "fresh": True}
        )
        first = made["run"]["run"]

        def over() -> bool:
            data = served.get(f"runs/{first}/lineage")
            return sum(one["state"] in FINAL for one in data["links"]) == 4

        wait_for(over)
        assert marks(place) == {"first": 1, "left": 1, "right": 1, "last": 1}
        rows = served.get("runs/last-1/lineage")["links"]
        assert [one["link"] for one in rows if one["run"] is None] == ["never"]
        page = served.ask("GET", "/runs/last-1", headers={"Accept": "text/html"}).text
        assert 'href="/runs/first-1"' in page and "does not hold" in page and "Lineage" in page
        assert served.ask("GET", "/api/v1/runs/nope-1/lineage").status == 404
        monkeypatch.setenv("PENSTOCK_TOKEN", served.own)
        there = penstock("show", "last-1", "--lineage", "-o", "json", "--server", served.url)
        assert json.loads(there.out)["links"] == rows
