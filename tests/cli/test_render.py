"""What a terminal gets that a pipe does not."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

FLOW = Path(__file__).parent.parent.parent / "examples" / "finetune" / "flow.py"


def in_terminal(*args: str, columns: int = 100, **env: str) -> str:
    """The output of a command that sees a terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *args], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    output = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    process.wait()
    os.close(leader)
    return output.decode().replace("\r\n", "\n")


def test_a_terminal_gets_aligned_columns_cut_to_its_width() -> None:
    shown = in_terminal("plan", str(FLOW), columns=70, NO_COLOR="1")
    assert "\t" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 70
    head = next(line for line in shown.splitlines() if "STAGE" in line)
    row = next(line for line in shown.splitlines() if "prepare" in line and "cpu" in line)
    assert head.index("STEP") == row.index("prepare")
    assert "…" in shown


def test_colour_goes_to_a_terminal_unless_it_is_not_wanted() -> None:
    assert "\x1b[" in in_terminal("plan", str(FLOW))
    assert "\x1b[" not in in_terminal("plan", str(FLOW), NO_COLOR="1")
    assert "\x1b[" not in in_terminal("plan", str(FLOW), TERM="dumb")


def test_a_pipe_gets_tabs_and_everything() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "penstock", "plan", str(FLOW)], capture_output=True, text=True, check=True
    ).stdout
    assert "STAGE\tSTEP\tTASKS" in out
    assert "\x1b[" not in out and "…" not in out


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    many = "\n".join(f"- {{name: s{i}, container: {{image: i}}}}" for i in range(3000))
    (tmp_path / "f.yaml").write_text(f"apiVersion: penstock/v1\nkind: Workflow\nname: w\nsteps:\n{many}\n")
    shell = f"{sys.executable} -m penstock plan f.yaml | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
