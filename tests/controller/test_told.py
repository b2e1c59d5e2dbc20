"""Logs and metrics of the shell."""

from __future__ import annotations

import datetime
import io
import json
import re
from pathlib import Path

from penstock.controller.cluster.metrics import Metrics
from penstock.kubernetes.log import Log

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "install-the-controller.md"

NOON = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)


def test_one_json_line_with_the_fields_that_are_bound() -> None:
    out = io.StringIO()
    log = Log(out, clock=lambda: NOON).bind(kind="Pod", workflow="ns/a")
    log.warning("two\nlines", stage="main[1]", count=3, what=object)
    said = json.loads(out.getvalue())
    assert out.getvalue().count("\n") == 1
    assert list(said)[:5] == ["time", "level", "msg", "workflow", "stage"]
    assert (said["time"], said["msg"], said["count"]) == ("2030-01-01T12:00:00.000Z", "two\nlines", 3)


def test_for_people() -> None:
    out = io.StringIO()
    log = Log(out, human=True, clock=lambda: NOON)
    log.info("written", workflow="ns/a", why="its stage is admitted")
    try:
        raise ValueError("oh")
    except ValueError as error:
        log.error("failed", error=error)
    lines = out.getvalue().splitlines()
    assert lines[0].endswith('written  workflow=ns/a  why="its stage is admitted"')
    assert "ERROR  failed" in lines[1]
    assert lines[-1] == "ValueError: oh"


def test_nobody_reads_the_log() -> None:
    out = io.StringIO()
    log = Log(out)
    out.close()
    log.info("still here")


def test_stages_by_state_and_how_long_they_were_held() -> None:
    now = [0.0]
    metrics = Metrics(clock=lambda: now[0])
    metrics.seen("w", {"1": "held", "2": "ahead"})
    metrics.seen("v", {"1": "held"})
    now[0] = 3.0
    metrics.seen("w", {"1": "held", "2": "ahead"})
    now[0] = 7.0
    metrics.seen("w", {"1": "open", "2": "ahead"})
    text = metrics.text().decode()
    assert 'penstock_stages{state="held"} 1.0' in text
    assert 'penstock_stages{state="open"} 1.0' in text
    assert "penstock_stage_held_seconds_sum 7.0" in text
    metrics.seen("w", {})
    metrics.seen("v", {})
    text = metrics.text().decode()
    assert 'penstock_stages{state="held"} 0.0' in text
    assert "process_resident_memory_bytes" in text


def test_the_page_names_every_figure_with_its_labels() -> None:
    found = {}
    for one in Metrics().registry._collector_to_names:
        name, labels = str(getattr(one, "_name", "")), ",".join(getattr(one, "_labelnames", ()))
        if name.startswith("penstock_"):
            found[name + "_total" if getattr(one, "_type", "") == "counter" else name] = labels
    told = re.findall(r"`(penstock_\w+)(?:\{([\w,]+)\})?`", PAGE.read_text())
    assert dict(told) == found
