"""Results by key, and the leases of those that compute one, in the database. `Store.results`; called by the engine.

One engine computes a key, the others wait. An engine claims keys inside its transaction (see journal).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.store.drivers.base import Driver
from penstock.store.records import Disconnected, KeyClaim, KeyWait, LeaseHolder, Result
from penstock.store.session import Session


@dataclass(slots=True)
class PendingClaims:
    """What `claim` has written since the last commit. If the connection is lost these writes are lost, but the caller relies on
    them: the next `flush` writes them again."""

    leases: list[tuple[str, str, int, str]] = field(default_factory=list)
    waiters: list[tuple[str, int, str, str]] = field(default_factory=list)
    lost: bool = False

    def clear(self) -> None:
        self.leases.clear()
        self.waiters.clear()
        self.lost = False

    def roll_back(self, db: Driver, error: BaseException) -> None:
        """Ends the transaction in which `error` was raised. After a lost connection the caller goes on, and its claims are kept."""
        if not isinstance(error, Disconnected):
            self.clear()
        db.rollback()


class ResultRepository:
    def __init__(self, session: Session, pending: PendingClaims) -> None:
        self._db = session.db
        self._pending = pending

    def claim(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool = False, hold: bool = True
    ) -> dict[str, KeyClaim]:
        """For each (key, run, task): its result, or who computes it (then this task waits), or else a lease for `engine`.

        Part of the open transaction, which is rolled back if this raises. `fresh`: ignores existing results. `hold=False`: the
        caller computes and records the result before the commit; then no lease is written if nobody else can write until then.
        """
        db = self._db
        if not db.in_transaction:
            raise AssertionError("claim without begin")
        try:
            if db.alone:
                return self._claim_alone(wanted, engine, fresh, hold)
            return self._claim_among_others(wanted, engine, fresh)
        except BaseException as error:
            self._pending.roll_back(db, error)
            raise

    def _claim_alone(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool, hold: bool
    ) -> dict[str, KeyClaim]:
        """Nobody else can write: what was read stays true."""
        if len(wanted) == 1 and not hold and not fresh:
            rows = self._db.rows("one_key", (wanted[0][0], wanted[0][0]))
            if not rows:
                return {wanted[0][0]: KeyClaim()}
            if len(rows) == 1 and rows[0][0] == "":
                from penstock.artifacts.values import loads

                _, outputs, run, task, at = rows[0]
                return {wanted[0][0]: KeyClaim(Result(wanted[0][0], loads(outputs), run, task, at))}
        first = {key: (key, engine, run, task) for key, run, task in reversed(wanted)}
        found: dict[str, KeyClaim] = {}
        if not fresh:
            found = {key: KeyClaim(result) for key, result in self.lookup([*first]).items()}
        missing = [key for key in first if key not in found] if found else [*first]
        if not missing:
            return found
        holders = self.holders(missing)
        for key in missing:
            holder = holders.get(key)
            found[key] = KeyClaim() if holder is None or holder.engine == engine else KeyClaim(None, holder)
        if hold and len(holders) < len(missing):
            self._db.many("put_lease", [first[key] for key in missing if key not in holders])
        if holders:
            held = [(key, run, task, engine) for key, run, task in wanted if found[key].holder]
            self._db.many("put_waiter", held)
        return found

    def _claim_among_others(
        self, wanted: Sequence[tuple[str, int, str]], engine: str, fresh: bool
    ) -> dict[str, KeyClaim]:
        """Others write at the same time: the lease is written first, and then what is there counts."""
        db = self._db
        # In the order of keys: two engines that want the same keys must not wait for each other in a circle.
        first: dict[str, tuple[int, str]] = {}
        asked = sorted(set(wanted))
        for key, run, task in asked:
            first.setdefault(key, (run, task))
        found: dict[str, KeyClaim] = {}
        if not fresh:
            found = {key: KeyClaim(result=result) for key, result in self.lookup(list(first)).items()}
        held: dict[str, LeaseHolder] = {}
        missing = [key for key in first if key not in found]
        while missing:
            db.many("put_lease", [(key, engine, *first[key]) for key in missing])
            holders = self.holders(missing)
            if not fresh:
                # Another engine may have finished between our lookup and our lease.
                late = self.lookup(missing)
                found.update((key, KeyClaim(result=result)) for key, result in late.items())
                db.write_within("drop_leases", list(late), engine)
            again = []
            for key in missing:
                if key in found:
                    continue
                holder = holders.get(key)
                if holder is None:
                    again.append(key)  # its holder released it between our lease and our lookup
                elif holder.engine == engine:
                    found[key] = KeyClaim()
                    self._pending.leases.append((key, engine, *first[key]))
                else:
                    held[key] = holder
                    found[key] = KeyClaim(holder=holder)
            missing = again
        if held:
            waiters = [(key, run, task, engine) for key, run, task in asked if key in held]
            db.many("put_waiter", waiters)
            self._pending.waiters += waiters
        return found

    def lookup(self, keys: Sequence[str]) -> dict[str, Result]:
        rows = self._db.within("results", keys)
        if not rows:
            return {}
        # Imported here: most commands never see a result, and it takes longer to import than the whole store.
        from penstock.artifacts.values import loads

        return {key: Result(key, loads(outputs), run, task, at) for key, outputs, run, task, at in rows}

    def holders(self, keys: Sequence[str]) -> dict[str, LeaseHolder]:
        return {row[0]: LeaseHolder(*row) for row in self._db.within("leases", keys)}

    def waiting(self, engine: str) -> list[KeyWait]:
        """The tasks of this engine that wait for a key, and what they wait for."""
        from penstock.artifacts.values import loads

        found = []
        for row in self._db.rows("waiting", (engine,)):
            key, run, task, failure, holder, h_run, h_task, outputs, r_run, r_task, at = row
            found.append(
                KeyWait(
                    key,
                    run,
                    task,
                    failure=None if failure is None else json.loads(failure),
                    result=None if outputs is None else Result(key, loads(outputs), r_run, r_task, at),
                    holder=None if holder is None else LeaseHolder(key, holder, h_run, h_task),
                )
            )
        return found
