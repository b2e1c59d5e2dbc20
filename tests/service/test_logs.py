"""Logs of tasks: parts of files, last lines, filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.service.logs import LogFilter, lines_of, log_text
from penstock.settings import Settings, read


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "worker.log").write_bytes(b"of another\none\ntwo\nthree\n")
    return read({}, home=tmp_path)


def test_a_log_is_a_part_of_the_file_of_its_worker(settings: Settings) -> None:
    assert log_text(settings, [["worker.log", 11, 19]]) == "one\ntwo\n"
    assert log_text(settings, [["worker.log", 11, None]]) == "one\ntwo\nthree\n", "it still runs"
    assert log_text(settings, [["gone.log", 0, None], ["worker.log", 19, 25]]) == "three\n"


def test_of_a_long_log_only_the_end_is_read(settings: Settings) -> None:
    (settings.home / "long.log").write_bytes(b"x" * 200_000 + b"\nlast\n")
    assert log_text(settings, [["long.log", 0, None]], last=1) == "last"


def test_of_a_progress_bar_only_the_last_text_is_a_line() -> None:
    assert lines_of("10%\r50%\r100%\r\ndone\n") == ["100%", "done"]


def test_a_filter_takes_matching_lines_and_then_the_last_of_them(settings: Settings) -> None:
    parts = [["worker.log", 11, None]]
    assert LogFilter().lines(settings, parts) == ["one", "two", "three"]
    assert (
        LogFilter(last=2).lines(settings, parts) == ["two", "three"] and LogFilter(last=0).lines(settings, parts) == []
    )
    assert LogFilter("o", 1).lines(settings, parts) == ["two"]
