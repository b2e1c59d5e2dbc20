"""Which replica acts: a coordination.k8s.io Lease, held and renewed as client-go does it. Used by run.Manager.

The clocks of two machines are never compared: a lease counts as live until it has not changed for its duration, by the time since *we* saw it change.
Who cannot renew in time stops by itself, well before another may take over.
"""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.controller.objects import ApiResource, annotations_of
from penstock.errors import UserError
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.log import Log

_chance = random.Random()
"""Of our own: threads of a library leave the random numbers of its users alone."""
LEASES = ApiResource("coordination.k8s.io/v1", "Lease", "leases")
ADDRESS = "penstock/address"
"""The annotation that says where the holder answers the other replicas. A Lease has no field for it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds. duration > renew_deadline > retry."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease as it was last seen to change, and when by our own clock."""

    spec: Mapping[str, Any]
    version: str
    at: float
    address: str = ""
    """Where its holder answers, if it says so."""

    def held_by_other(self, identity: str, now: float) -> bool:
        holder = self.spec.get("holderIdentity") or ""
        if not holder or holder == identity:
            return False
        return now < self.at + float(self.spec.get("leaseDurationSeconds") or 0)


def claim(seen: SeenLease | None, identity: str, terms: Terms, wall: datetime.datetime) -> dict[str, Any]:
    """The spec with which we take or renew a lease."""
    stamp = _stamp(wall)
    old = dict(seen.spec) if seen is not None else {}
    mine = old.get("holderIdentity") == identity
    transitions = int(old.get("leaseTransitions") or 0)
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": max(1, round(terms.duration)),
        "acquireTime": old.get("acquireTime") if mine else stamp,
        "renewTime": stamp,
        "leaseTransitions": transitions if mine or seen is None else transitions + 1,
    }


class Elector:
    """One candidate. `run` returns when the lease is lost or `stop` was called; then it leads no more."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        log: Log,
        *,
        address: str = "",
        terms: Terms | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace, self._name, self.identity = namespace, name, identity
        self._address = address
        self._terms = terms or Terms()
        self._clock = clock
        self._log = log.bind(lease=f"{namespace}/{name}", identity=identity)
        self._seen: SeenLease | None = None
        self._renewed = float("-inf")
        self._leads = False
        self._stopped = threading.Event()

    @property
    def leads(self) -> bool:
        """May we write? Not if this process was stopped for so long that another may have taken over, whether we know it yet or not."""
        return self._leads and self._clock() < self._renewed + self._terms.duration

    @property
    def holder(self) -> str:
        """Who holds the lease, as far as we know."""
        return str(self._seen.spec.get("holderIdentity") or "") if self._seen is not None else ""

    @property
    def leader(self) -> str:
        """The address of another one that leads, as far as we know; or nothing."""
        seen = self._seen
        return seen.address if seen is not None and seen.held_by_other(self.identity, self._clock()) else ""

    def run(self, started: Callable[[], None]) -> None:
        try:
            while not self._attempt():
                if self._stopped.wait(self._terms.retry * _chance.uniform(1.0, 2.2)):
                    return
            if self._stopped.is_set():
                return
            self._log.info("leading")
            self._leads = True
            started()
            self._hold()
        finally:
            self._leads = False

    def stop(self) -> None:
        self._stopped.set()

    def release(self) -> None:
        """Gives the lease back, so that another need not wait for its end. Call it when nothing of ours writes any more."""
        seen = self._seen
        if seen is None or seen.spec.get("holderIdentity") != self.identity:
            return
        stamp = _stamp(datetime.datetime.now(datetime.UTC))
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": stamp, "renewTime": stamp}
        try:
            self._patch(spec, seen.version, address="")
            self._seen = None
            self._log.info("lease given back")
        except (ApiError, UserError) as error:
            self._log.warning("lease not given back", problem=str(error))

    # -- inside

    def _hold(self) -> None:
        while not self._stopped.wait(self._terms.retry):
            if self._attempt():
                continue
            if self._clock() - self._renewed > self._terms.renew_deadline:
                self._log.error("leadership lost: the lease could not be renewed in time")
                return
            if self.holder not in ("", self.identity):
                self._log.error("leadership lost", holder=self.holder)
                return

    def _attempt(self) -> bool:
        """Takes or renews the lease. The time counts from before the request: the server cannot have seen it earlier."""
        began = self._clock()
        try:
            if self._seen is not None and self._leads:
                try:
                    self._write(self._seen, began)
                    return True
                except ApiError as error:
                    if error.code not in (404, 409):
                        raise
            found = self._look()
            if found is not None and found.held_by_other(self.identity, self._clock()):
                return False
            self._write(found, began)
            return True
        except ApiError as error:
            if error.code != 409:  # 409: another was quicker
                self._log.warning("lease not renewed" if self._leads else "lease not taken", problem=str(error))
            return False
        except UserError as error:
            self._log.warning("lease not renewed", problem=str(error))
            return False

    def _look(self) -> SeenLease | None:
        try:
            obj = self._client.get(LEASES, self._namespace, self._name, timeout=self._timeout)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        spec, version = obj.get("spec") or {}, str(obj["metadata"]["resourceVersion"])
        same = self._seen is not None and self._seen.spec == spec
        at = self._seen.at if self._seen is not None and same else self._clock()
        self._seen = SeenLease(spec, version, at, str(annotations_of(obj).get(ADDRESS) or ""))
        return self._seen

    def _write(self, seen: SeenLease | None, began: float) -> None:
        spec = claim(seen, self.identity, self._terms, datetime.datetime.now(datetime.UTC))
        if seen is None:
            told = {ADDRESS: self._address} if self._address else {}
            body = {"metadata": {"name": self._name, "annotations": told}, "spec": spec}
            answer = self._client.create(LEASES, self._namespace, body)
        else:
            answer = self._patch(spec, seen.version, address=self._address)
        self._seen = SeenLease(answer.get("spec") or spec, str(answer["metadata"]["resourceVersion"]), began)
        self._renewed = began

    def _patch(self, spec: Mapping[str, Any], version: str, address: str) -> dict[str, Any]:
        # In the same write: nobody is to be taken for the holder by the address of the one before.
        body = {"metadata": {"annotations": {ADDRESS: address or None}}, "spec": dict(spec)}
        return self._client.patch(LEASES, self._namespace, self._name, body, version=version, timeout=self._timeout)

    @property
    def _timeout(self) -> float:
        """Seconds for one request: two attempts fit into the deadline, and none goes beyond it by much."""
        half = self._terms.renew_deadline / 2
        if not self._leads:
            return half
        return min(half, max(0.2, self._renewed + self._terms.renew_deadline - self._clock()))


def _stamp(wall: datetime.datetime) -> str:
    return wall.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
