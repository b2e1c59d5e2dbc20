"""The store of the current settings: whether there is one, how to open it, what to call it. Called by the commands and by service.

Commands that only read must not create a store; commands that change something create it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import rights
from penstock.errors import NotFound, Problem
from penstock.service.home_files import HomeFiles, LocalHome
from penstock.settings import Settings
from penstock.store.drivers.base import read_only
from penstock.store.sql import Store, open_store
from penstock.urls import without_password

if TYPE_CHECKING:
    from penstock.artifacts.blobs import Blobs

PATIENCE = 30.0
"""Seconds that a command waits for a database server that is being restarted."""


def exists(settings: Settings) -> bool:
    """False if nothing has been recorded here. A database server is assumed to have a store."""
    return bool(settings.server) or "://" in settings.store or Path(settings.store, "state.db").exists()


def open_existing(settings: Settings) -> Store:
    """For reading: raises NotFound if there is no store."""
    if not exists(settings):
        fix = "start a run (penstock run FILE), go to the folder where it was started, or set PENSTOCK_HOME"
        raise NotFound(Problem("P505", f"nothing has been run here: there is no store in {settings.store}", fix))
    return open_or_create(settings)


def open_or_create(settings: Settings, engine: bool = False) -> Store:
    """`engine`: for an engine, which makes its home with the store."""
    if settings.server:
        from penstock.service.remote_store import open_remote

        return open_remote(settings.server)
    prepare(settings) if engine else secure(settings)
    return open_store(settings.store, lock_policy=settings.lock_policy, patience=PATIENCE)


def prepare(settings: Settings) -> None:
    """Make the home, if it is not there, and secure it. Raises StoreError."""
    try:
        rights.make_home(settings.home)
    except OSError as error:
        raise read_only(str(settings.home), error.strerror or str(error)) from None
    secure(settings)
    for name in ("logs", "work"):
        with suppress(OSError):  # whoever uses it reports that
            rights.make_folder(settings.home / name)


def secure(settings: Settings) -> None:
    """The home is private, or a group's, before anything is read from it or written to it. Raises StoreError."""
    rights.secure(settings.home, settings.named)
    if settings.store not in (str(settings.home), "") and "://" not in settings.store:
        rights.secure(settings.store, named=True)


def blobs_of(settings: Settings) -> Blobs:
    """The artifact store. In a private home that was only found, blobs of other users are refused."""
    if settings.server:
        from penstock.service.remote_store import RemoteBlobs

        return RemoteBlobs(settings.server)
    from penstock.artifacts.blobs import Blobs  # most commands read no blob
    from penstock.artifacts.regular import Limits

    own = Path(settings.artifacts) == settings.home / "artifacts"
    own_only = own and not settings.named and not rights.is_group(settings.home)
    limits = Limits()
    limits.value = settings.largest_value or limits.value
    limits.file = settings.largest_file or limits.file
    return Blobs(settings.artifacts, own_only, settings.pickles, limits)


def home_of(settings: Settings) -> HomeFiles:
    """Log files and processes, here or on a server."""
    if settings.server:
        from penstock.service.remote_store import RemoteHome

        return RemoteHome(settings.server)
    return LocalHome(settings.home)


def name_of(settings: Settings) -> str:
    """The store as messages name it: a relative path where possible, a URL without its password."""
    if settings.server:
        from penstock.service.remote_store import connection

        return connection(settings.server).base
    if settings.store == str(settings.home):
        near = os.path.relpath(settings.home)
        return near if not near.startswith("..") else str(settings.home)
    return without_password(settings.store).partition("?")[0].rpartition("@")[2]


def child_environment(settings: Settings) -> dict[str, str]:
    """For a process on the same store."""
    return {
        **os.environ,
        # One that was only found is found again, from the same folder: it is not trusted as if the user had named it.
        **({"PENSTOCK_HOME": str(settings.home)} if settings.named else {}),
        "PENSTOCK_STORE": settings.store,
        "PENSTOCK_ARTIFACTS": settings.artifacts,
    }
