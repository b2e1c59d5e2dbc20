"""What follows from the end of a run is recorded with its last event, once for each end; and what it failed with stands in its record."""

from __future__ import annotations

from pathlib import Path

from penstock.engine import follow
from penstock.graph import codec
from penstock.service import runs, stores
from penstock.service.hosting import Host
from penstock.service.submission import Submission
from penstock.settings import read
from penstock.store.records import RunRecord

FOLLOW = [{"kind": "callback", "on": ["failed"], "data": {"n": 1}}, {"kind": "link", "data": {"n": 2}}]


def ended(tmp_path: Path, source: str) -> tuple[RunRecord, list[tuple[str, int, dict[str, object]]]]:
    settings = read({}, home=tmp_path / ".penstock", jobs=1)
    document = f"""{{"apiVersion": "penstock/v1", "kind": "Workflow", "name": "one",
        "steps": [{{"name": "a", "script": {{"source": "{source}"}}}}]}}"""
    submission = Submission(codec.from_text(document, "one"), {})
    submission.options[follow.FOLLOW] = FOLLOW
    host = Host(settings)
    hosted = runs.begin(host, submission, {})
    assert hosted.wait(60)
    host.close()
    with stores.open_existing(settings) as store:
        run = store.runs.by_number(hosted.run.number)
        assert run is not None
        last = list(store.runs.events(run.number))[-1]
        assert last.kind == "run.finished"
        return run, [(row.kind, row.seq - last.seq, row.data) for row in store.outbox.of_run(run.number)]


def test_a_run_that_failed_is_followed_by_what_asks_for_that(tmp_path: Path) -> None:
    run, rows = ended(tmp_path, "echo no; exit 3")
    assert rows == [("callback", 0, {"n": 1, "end": "failed"}), ("link", 0, {"n": 2, "end": "failed"})]
    assert run.error.startswith("failed: ") and "3" in run.error


def test_a_run_that_succeeded_is_followed_by_the_rest(tmp_path: Path) -> None:
    run, rows = ended(tmp_path, "true")
    assert rows == [("link", 0, {"n": 2, "end": "succeeded"})] and run.error == ""


def test_each_row_has_a_key_that_follows_from_the_end_it_is_about() -> None:
    one = follow.rows(1, "one-1", 7, "failed", {follow.FOLLOW: FOLLOW}, 1.0)
    assert one == follow.rows(1, "one-1", 7, "failed", {follow.FOLLOW: FOLLOW}, 1.0)
    later = follow.rows(1, "one-1", 12, "failed", {follow.FOLLOW: FOLLOW}, 1.0)
    assert len({row[4] for row in one + later}) == 4
