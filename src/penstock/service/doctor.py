"""Is everything in order here, and what can be repaired? Called by `penstock doctor`.

It looks at the home folder before it opens the store, which may not be possible. A HealthFinding says what was looked at and what was found. With
`repair`, what can be put right is: rights, indexes, a database that can still be read in part, leases of dead engines, damaged blobs.
Nothing is thrown away that cannot be made again: a damaged database is kept under another name.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock import rights
from penstock.backends.registry import check, reap
from penstock.errors import NotFound, StoreError, UserError
from penstock.service import stores
from penstock.settings import Settings
from penstock.store import checkup, liveness
from penstock.store.sql import Store

State = Literal["ok", "repaired", "problem"]


@dataclass(frozen=True, slots=True)
class HealthFinding:
    check: str
    """versions, kubernetes, owners, rights, database, schema, leases, blobs"""
    state: State
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    home: str
    store: str
    findings: tuple[HealthFinding, ...]

    @property
    def healthy(self) -> bool:
        return all(finding.state != "problem" for finding in self.findings)

    def as_data(self) -> dict[str, Any]:
        found = [asdict(finding) for finding in self.findings]
        return {"healthy": self.healthy, "home": self.home, "store": self.store, "findings": found}


def diagnose(settings: Settings, repair: bool, version: str) -> Diagnosis:
    """`version`: of Penstock. Raises NotFound if there is no store."""
    if not stores.exists(settings):
        stores.open_existing(settings).close()  # says so
    found = (*_versions(version), *_cluster(settings), *_Doctor(settings, repair).findings())
    return Diagnosis(str(settings.home), stores.name_of(settings), found)


class _Doctor:
    def __init__(self, settings: Settings, repair: bool) -> None:
        self._settings = settings
        self._repair = repair
        self._is_file = "://" not in settings.store

    def findings(self) -> Iterator[HealthFinding]:
        yield self._owners()
        yield self._rights()
        if self._is_file:
            database = self._database()
            yield database
            if database.state == "problem":
                return
        try:
            store = stores.open_existing(self._settings)
        except (StoreError, NotFound) as error:
            for problem in error.problems:
                check = "schema" if problem.code == "P602" else "database"
                yield HealthFinding(check, "problem", f"{problem.code} {problem.message}", problem.fix)
            return
        with store:
            yield HealthFinding("schema", "ok", f"schema {store.schema}, which this version knows")
            if not self._is_file:
                yield HealthFinding(
                    "database", "ok", f"{store.where} answers; its integrity is the server's own affair"
                )
            yield self._leases(store)
            yield self._blobs(store)

    # -- the folder ---------------------------------------------------------------------------------------------------

    def _owners(self) -> HealthFinding:
        others = list(rights.strangers(self._settings.home))
        if not others:
            return HealthFinding("owners", "ok", "everything is yours")
        text = ", ".join(f"{path} belongs to {owner}" for path, owner in others[:3])
        if self._settings.named or rights.is_group(self._settings.home):
            why = "a group shares the folder" if rights.is_group(self._settings.home) else "you have named the home"
            return HealthFinding("owners", "ok", f"{text}; allowed, because {why}")
        fix = "remove what you do not know, or name the home with PENSTOCK_HOME if you trust its owner"
        return HealthFinding("owners", "problem", text, fix)

    def _rights(self) -> HealthFinding:
        home = self._settings.home
        kind = "the group's alone" if rights.is_group(home) else "yours alone"
        wrong = list(rights.wrong_modes(home, deep=True))
        if not wrong:
            return HealthFinding("rights", "ok", f"what is in {home} is {kind} to read")
        path, mode, right = wrong[0]
        text = (
            f"{len(wrong)} with other rights than they should have, the first: {path} {mode:04o} instead of {right:04o}"
        )
        if not self._repair:
            return HealthFinding("rights", "problem", text, "penstock doctor --repair")
        for path, _, right in wrong:
            with suppress(OSError):
                os.chmod(path, right)
        left = list(rights.wrong_modes(home, deep=True))
        return HealthFinding("rights", "problem" if left else "repaired", text, "chmod them by hand" if left else "")

    # -- the database -------------------------------------------------------------------------------------------------

    def _database(self) -> HealthFinding:
        where = self._settings.store
        found = checkup.faults(where)
        if not found:
            return HealthFinding("database", "ok", "state.db is whole")
        text = f"state.db is damaged: {found[0]}" + (f" (and {len(found) - 1} more)" if found[1:] else "")
        if not self._repair:
            fix = "end all runs, then penstock doctor --repair: it saves what can be read into a new store, and keeps the old file"
            return HealthFinding("database", "problem", text, fix)
        if pids := checkup.users(where):
            fix = f"end the processes that use it ({', '.join(map(str, pids))}), then penstock doctor --repair"
            return HealthFinding("database", "problem", text, fix)
        if found[0].startswith(("row ", "wrong # of entries", "non-unique entry")):  # of an index
            checkup.reindex(where)
            if not checkup.faults(where):
                return HealthFinding("database", "repaired", f"{text}; the indexes were made anew")
        aside = checkup.set_aside(where)
        stores.open_or_create(self._settings).close()
        many, lost = checkup.salvage(aside, where)
        text = f"{text}; {many} rows were saved into a new store, the old file is {aside}"
        if lost:
            text += f"; these runs have lost events, start them anew instead of resuming them: {', '.join(lost[:10])}"
        return HealthFinding("database", "repaired", text)

    def _leases(self, store: Store) -> HealthFinding:
        engines = store.peers.engines()
        dead = {engine.id for engine in engines if liveness.alive(engine) is False}
        held = store.maintenance.leases_by_engine()
        dead |= held.keys() - {engine.id for engine in engines}
        alive = f"{len(engines)} registered" if engines else "none runs"
        if not dead:
            return HealthFinding("leases", "ok", f"engines: {alive}; no dead engine holds anything")
        leases = sum(held.get(id, 0) for id in dead)
        text = f"dead engines are still registered or hold something: {len(dead)}, with {leases} leases"
        if not self._repair:
            return HealthFinding(
                "leases", "problem", text, "penstock doctor --repair, or the next run, frees what they hold"
            )
        reap(self._settings.home, dead)
        for id in dead:
            store.peers.forget(id)
        return HealthFinding("leases", "repaired", text)

    # -- the blobs ----------------------------------------------------------------------------------------------------

    def _blobs(self, store: Store) -> HealthFinding:
        blobs = stores.blobs_of(self._settings)
        recorded = store.maintenance.recorded_sizes()
        sizes = {digest: size for digest, size, _ in blobs.all()}
        missing = {digest for digest in recorded if digest not in sizes}
        bad = {digest for digest, size in sizes.items() if recorded.get(digest, size) != size}
        for digest in sizes.keys() - bad:
            place = blobs.local(digest)
            if place is not None and _digest_of(place) != digest:
                bad.add(digest)
        kind = (
            "compared with their digests"
            if "://" not in blobs.root
            else "compared by size, not read: they are elsewhere"
        )
        if not missing and not bad:
            return HealthFinding("blobs", "ok", f"blobs: {len(sizes)}, of {sum(sizes.values())} bytes, {kind}")
        first = sorted(bad or missing)[0].removeprefix("sha256:")[:12]
        text = f"of {len(sizes)} blobs {len(bad)} are damaged; {len(missing)} that are recorded are missing; the first: {first}"
        results = store.maintenance.results_with(missing | bad)
        if not bad and not results:
            # Only old runs name them, and nothing can reuse them: they were perhaps removed on purpose.
            return HealthFinding(
                "blobs", "ok", f"blobs: {len(sizes)}, {kind}; {len(missing)} of old runs are not there any more"
            )
        if not self._repair:
            fix = f"penstock doctor --repair removes them and forgets {len(results)} results that need them: those run again"
            return HealthFinding("blobs", "problem", text, fix)
        for digest in bad:
            blobs.delete(digest)
        store.maintenance.forget_results(results)
        return HealthFinding("blobs", "repaired", f"{text}; {len(results)} results that need them were forgotten")


def _digest_of(path: os.PathLike[str]) -> str:
    try:
        with open(path, "rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


# -- versions ---------------------------------------------------------------------------------------------------------


def _versions(ours: str) -> Iterator[HealthFinding]:
    import platform
    import sqlite3

    yield HealthFinding("versions", "ok", f"Penstock {ours}, Python {platform.python_version()} ({sys.executable})")
    yield HealthFinding("versions", "ok", f"SQLite {sqlite3.sqlite_version}, {_psycopg()}")
    yield HealthFinding("versions", "ok", _containers())


def _psycopg() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"psycopg {version('psycopg')}"
    except PackageNotFoundError:
        return "no psycopg (only a store in PostgreSQL needs it)"


def _cluster(settings: Settings) -> Iterator[HealthFinding]:
    """Where tasks run with `--on kubernetes`, if the user has set something for that."""
    if not any(name.startswith("PENSTOCK_KUBERNETES_") for name in os.environ):
        return
    try:
        text = check({"kubernetes"}, settings.home, settings.artifacts, os.environ)
    except UserError as error:
        for problem in error.problems:
            yield HealthFinding("kubernetes", "problem", f"{problem.code} {problem.message}", problem.fix)
    else:
        yield HealthFinding("kubernetes", "ok", text)


def _containers() -> str:
    import subprocess

    from penstock.backends.tools import CONTAINER_TOOLS, find

    tool = find(os.environ, "PENSTOCK_CONTAINER_TOOL", CONTAINER_TOOLS)
    if tool is None:
        return "neither podman nor docker (only steps with an image need one)"
    try:
        said = subprocess.run([*tool, "--version"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{tool[0]} does not answer: {error}"
    return f"{(said.stdout or said.stderr).strip().splitlines()[0] if said.stdout or said.stderr else 'nothing said'} ({tool[0]})"
