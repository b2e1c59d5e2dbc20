"""Lists of runs by any filters: the same rows as somebody who looks at each, on both databases, and by an index."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from penstock.store.runs import SKEW
from penstock.store.sql import Store, open_store

NOW = 1_000_000.0


def filled(store: Store, many: int = 60) -> None:
    chance = random.Random(3)
    for number in range(many):
        # Clocks of those who share a store differ: times rise, but not always.
        at = NOW + number * 600.0 + chance.uniform(-SKEW / 2, SKEW / 2)
        run = store.runs.create(chance.choice("ab"), "d", "{}", {}, {}, chance.choice(["ana", "bob"]), at)
        if chance.random() < 0.5:
            store.runs.take(run.number, "e", None)
            store.runs.release(run.number, "e", chance.choice(["succeeded", "failed"]))


def test_every_choice_of_filters_gives_what_it_says(store: Store) -> None:
    filled(store)
    everything = store.runs.newest()
    choices = ([None, "a"], [None, "bob", "nobody"], [None, "failed", "stopped"], [None, NOW + 9000.0], [None, 40])
    for workflow, user, state, since, before in itertools.product(*choices):  # type: ignore[call-overload]
        wanted = [
            run.number
            for run in everything
            if (workflow is None or run.workflow == workflow)
            and (user is None or run.user == user)
            and (state is None or run.state == state)
            and (since is None or run.created >= since)
            and (before is None or run.number < before)
        ]
        found = store.runs.page(10, before, state, workflow, user, since)
        assert [run.number for run in found] == wanted[:10], (workflow, user, state, since, before)


def test_no_choice_of_filters_looks_at_every_run(tmp_path: Path) -> None:
    """SQLite says which index it uses; none may need to sort."""
    import sqlite3

    with open_store(str(tmp_path)) as store:
        filled(store, 5)
        names = ("workflow", "username", "state")
        db = sqlite3.connect(tmp_path / "state.db")
        for count in range(4):
            for chosen in itertools.combinations(names, count):
                where = " AND ".join([f"{one} = 'x'" for one in chosen] + ["number < 9", "number > 0"])
                plan = str(
                    db.execute(f"EXPLAIN QUERY PLAN SELECT * FROM runs WHERE {where} ORDER BY number DESC").fetchall()
                )
                assert "SEARCH" in plan and "TEMP B-TREE" not in plan, (chosen, plan)
                assert all(f"{one}=?" in plan for one in chosen), (chosen, plan)
        db.close()
