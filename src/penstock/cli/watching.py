"""A run that another process executes, drawn while it goes on. Called by `penstock watch`, and by `remote` for runs on a server."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.cli.ui.progress import Progress
from penstock.service import following
from penstock.service.following import RunFollower
from penstock.service.run_records import seconds_of
from penstock.service.views.tallies import TallyReader
from penstock.service.views.waiting import WaitWatcher
from penstock.store.sql import Store


def draw(store: Store, follower: RunFollower, progress: Progress, over: Callable[[], bool]) -> None:
    """Until `over`, which is asked after each look."""
    reader, watcher = TallyReader(store, follower.run), WaitWatcher(store, follower.run)
    cost = 0.0
    while True:
        now = time.monotonic()
        if follower.news() or not reader.tallies or over():
            reader.read()
            cost = time.monotonic() - now
        seconds = seconds_of(reader.run, time.time()) or 0.0
        waits = watcher.texts() if follower.state == "running" else {}
        progress.update(reader.tallies, reader.times, seconds, follower.state, waits)
        if over():
            return
        # A run of a million tasks takes a while to read: then it is read less often.
        time.sleep(max(following.POLL, 4 * cost))
