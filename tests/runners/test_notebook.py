"""A run in a notebook: drawn with states and errors, live while the cell waits for it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import LocalRunner, task, workflow
from penstock.drawing.svg import StepMark, svg
from penstock.runners import notebook

CELL = """
import time
from penstock import LocalRunner, task, workflow

@task
def prepare(n: int) -> list[int]:
    return list(range(n))

@task
def train(x: int) -> int:
    time.sleep(0.3)
    return x

@workflow
def flow(n: int = 3):
    return [train(x) for x in prepare(n)]
"""


@task
def prepare(n: int) -> list[int]:
    return list(range(n))


@task
def train(x: int) -> int:
    print("shard", x, "<b>")
    if x == 2:
        raise ValueError("bad <row>")
    return x


@workflow
def flow(n: int = 2):
    return [train(x) for x in prepare(n)]


def marks(html: str) -> dict[str, str]:
    """Step -> what its mark says."""
    image = ElementTree.fromstring(re.search(r"<svg.*</svg>", html, re.DOTALL).group())  # type: ignore[union-attr]
    found = {}
    for group in image.iter("{http://www.w3.org/2000/svg}g"):
        texts = [
            one.text or ""
            for one in group.findall("{http://www.w3.org/2000/svg}text")
            if one.get("class") == "marktext"
        ]
        found[group.attrib["data-step"]] = texts[0] if texts else ""
    return found


@pytest.mark.parametrize("recorded", [False, True])
def test_the_drawing_has_states_and_errors(recorded: bool, tmp_path: Path) -> None:
    runner = LocalRunner(home=tmp_path, inline=True)
    run = runner.run(flow, 2)
    run = penstock.open_run(run.id, home=tmp_path) if recorded else run
    found = marks(run._repr_html_())
    assert found["prepare"].startswith("done") and found["train"].startswith("2 of 2")
    bad = runner.run(flow, 3)
    bad = penstock.open_run(bad.id, home=tmp_path) if recorded else bad
    html = bad._repr_html_()
    assert marks(html)["train"].startswith("2 of 3, 1 failed")
    assert "✗ train[2]" in html and "bad &lt;row&gt;" in html and "shard 2 &lt;b&gt;" in html


def test_marks_move_nothing() -> None:
    def places(text: str) -> list[str]:
        return re.findall(r'class="(?:box|step|edge)[^>]*', text)

    marked = svg(flow.graph, {"prepare": StepMark("failed", "failed <&>")})
    assert places(marked) == places(svg(flow.graph)) and "failed &lt;&amp;&gt;" in marked


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """IPython's own shell, with what it displays in a list."""
    InteractiveShell = pytest.importorskip(
        "IPython.core.interactiveshell", reason="IPython is not installed"
    ).InteractiveShell
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(notebook, "INTERVAL", 0.05)
    found = InteractiveShell.instance()
    shown: list[tuple[str, bool]] = []

    def publish(data: dict[str, Any], metadata: Any = None, *, update: bool = False, **_: Any) -> None:
        shown.append((data.get("text/html", ""), update))

    monkeypatch.setattr(found.display_pub, "publish", publish)
    found.shown = shown
    yield found
    InteractiveShell.clear_instance()


def test_a_cell_shows_the_run_live(shell: Any) -> None:
    assert shell.run_cell(CELL).success
    result = shell.run_cell("run = flow.run(4)\nrun", store_history=True)
    result.raise_error()
    pages = [html for html, _ in shell.shown if "<svg" in html]
    assert [update for html, update in shell.shown if "<svg" in html] == [False] + [True] * (len(pages) - 1)
    assert len(pages) > 2 and marks(pages[-1])["train"].startswith("4 of 4")
    assert any(marks(one)["train"].startswith(("0 of 4", "1 of 4", "2 of 4")) for one in pages)
    assert "<svg" not in result.result._repr_html_()  # it is in this cell already
    shell.run_cell("later = 1", store_history=True)
    assert "<svg" in result.result._repr_html_()


def test_a_script_draws_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notebook.notebook() is None
    LocalRunner(home=tmp_path, inline=True).run(flow, 1)
    assert "<svg" not in capsys.readouterr().out
