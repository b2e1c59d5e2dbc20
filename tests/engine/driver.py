"""Engines in processes of their own that a test can kill. Started by tests.support.engines: `python -m tests.engine.driver`.

It imports everything once and then forks an engine for every line it reads, because a test of crashes starts hundreds: the
imports take longer than the run. Each engine does what `penstock run` does: go on with the run that was interrupted, or start
one. A line is JSON: {"do": "start", …what `run` takes} is answered with the pid, {"do": "wait", "pid", "seconds"} with the
exit code (minus the signal), or null if it runs on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any

from penstock.engine import engine as loop
from penstock.service import runs
from penstock.service.hosting import Host
from penstock.service.submission import Submission
from penstock.settings import read
from tests.engine import flows


def run(
    home: str,
    store: str,
    flow: str,
    params: list[dict[str, Any]],
    on: dict[str, str],
    jobs: int,
    window: float,
    again: bool,
) -> int:
    """A run for each of `params`, all at the same time. Exit code 0 if they succeeded, 3 if not."""
    loop.WINDOW = window
    made: Any = getattr(flows, flow)
    workflow = (made if hasattr(made, "graph") else made()).graph
    settings = read(home=home, store=store or None, jobs=jobs)
    host = Host(settings, on)
    sessions = []
    for given in params:
        submission = Submission(workflow, given, on=on)
        functions = submission.pack(settings)
        sessions.append(runs.begin(host, submission, functions, again=again))
    for session in sessions:
        session.wait()
    host.close()
    sessions[0].wait(0)
    return 0 if all(session.state == "succeeded" for session in sessions) else 3


def start(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    code = 1
    try:
        with open(os.devnull) as nothing, open(f"{order['home']}.said", "a") as said:
            os.dup2(nothing.fileno(), 0)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        code = run(**order)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, seconds: float) -> int | None:
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.001)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What `run` imports only when it is needed.
    import penstock.artifacts.blobs
    import penstock.author.pack
    import penstock.backends.local.inline
    import penstock.backends.local.process
    import penstock.backends.local.workers
    import penstock.plan.make
    import penstock.store.drivers.sqlite  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        do = order.pop("do")
        print(json.dumps(start(order) if do == "start" else wait(**order)), flush=True)


if __name__ == "__main__":
    main()
