"""Who may read and write what Penstock keeps in a folder. Called by settings, store, artifacts, backends and service wherever they make
or open something in the home folder.

A home is private: folders 0700, files 0600. It is a group's if its folder is set so (`chmod 2770`: setgid and writable for the group);
then folders are 2770 and files 0660, whatever the umask is. What is made takes after the folder that it is made in, so nobody
has to be told which of the two it is.

What belongs to another user is refused, unless the user has named it or has given the folder to a group: records can name
pickles and code, which would run as the user who reads them.

Every worker process imports this before it can do anything, so what is seldom needed is imported where it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import StoreError

PLACES = ("artifacts", "logs", "work", "inputs", "cache", "state.db", "state.db-wal", "state.db-shm", ".gitignore")
"""What Penstock makes in a home folder."""
_GROUP = stat.S_ISGID | stat.S_IWGRP
_user = getattr(os, "geteuid", None)
"""None: a system without owners in this sense."""


def is_group(folder: str | os.PathLike[str]) -> bool:
    """Is this a folder that a group shares?"""
    try:
        return os.stat(folder).st_mode & _GROUP == _GROUP
    except OSError:
        return False


def make_home(folder: str | os.PathLike[str]) -> None:
    """The home folder, for its owner alone. One that is there is left as it is."""
    place = os.path.abspath(folder)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(place, 0o700)


def make_folder(folder: str | os.PathLike[str]) -> None:
    """A folder below a home, and those above it that are missing."""
    place = os.fspath(folder)
    above = os.path.dirname(place)
    try:
        os.mkdir(place, 0o700)
    except FileExistsError:
        if not os.path.isdir(place):
            raise
        return
    except FileNotFoundError:
        if above in ("", place):
            raise
        make_folder(above)
        make_folder(place)
        return
    if is_group(above or "."):
        os.chmod(place, 0o2770)


def make_blob_folder(root: str, name: str) -> str:
    """A folder of blobs, as open as the root: in a home that is private or a group's, elsewhere as the user has made it."""
    place = os.path.join(root, name)
    if not os.path.isdir(place):
        make_folder(root)
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)
            os.chmod(place, os.stat(root).st_mode & 0o2777 | 0o700)
    return place


def opener(path: str, flags: int) -> int:
    """For `open` of a file below a home, to write: only the owner may read it, or the group that shares the folder."""
    file = os.open(path, flags, 0o600)
    if flags & os.O_CREAT and is_group(os.path.dirname(path) or "."):
        with suppress(OSError):  # it was there, and is another user's
            os.fchmod(file, 0o660)
    return file


def sealed(folder: str) -> int:
    """The mode of a blob in this folder: who can look into the folder can read it, and nobody writes to it."""
    return os.stat(folder).st_mode & 0o444 | 0o400


def touch(path: str) -> None:
    """Makes a blob as good as new: whoever clears away what is old must not take it now. Only its owner may change its time; any
    other member of the group puts a copy in its place."""
    try:
        os.utime(path)
    except PermissionError:
        import shutil

        copy = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            shutil.copyfile(path, copy)
            os.chmod(copy, sealed(os.path.dirname(path)))
            os.replace(copy, path)
        except PermissionError:
            return  # the folder is for reading only: the blob is there, and that must do
        except BaseException:
            with suppress(OSError):
                os.unlink(copy)
            raise


def give_to_group(folder: str | os.PathLike[str]) -> None:
    """What was just made in a group's folder by other means, with all that is in it."""
    place = os.fspath(folder)
    if not is_group(os.path.dirname(place) or "."):
        return
    os.chmod(place, 0o2770)
    for above, folders, files in os.walk(place):
        for name in folders:
            os.chmod(os.path.join(above, name), 0o2770)
        for name in files:
            os.chmod(os.path.join(above, name), 0o660)


def is_foreign(status: os.stat_result) -> bool:
    """Does it belong to another user?"""
    return _user is not None and status.st_uid != _user()


def stranger(path: str | os.PathLike[str]) -> str:
    """The name of the other user who owns this, or the link at this place; empty if it is ours, or not there."""
    for look in (os.lstat, os.stat):
        with suppress(OSError):
            status = look(path)
            if is_foreign(status):
                return user_name(status.st_uid)
    return ""


def user_name(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"user {uid}"


def refusal(path: str | os.PathLike[str], owner: str, home: str | os.PathLike[str]) -> StoreError:
    from penstock.errors import Problem, StoreError

    return StoreError(
        Problem(
            "P649",
            f"{os.fspath(path)} belongs to {owner}: what is recorded there could run as you",
            f"to use it nevertheless, name it: PENSTOCK_HOME={os.fspath(home)}; for a home of your own: mkdir .penstock where you work",
        )
    )


def wrong_modes(home: str | os.PathLike[str], deep: bool = False) -> Iterator[tuple[str, int, int]]:
    """(path, mode, right mode) of what others could read or write, or the group that shares the folder could not. Only what is ours. A
    home of another name than .penstock may be a folder that has other things in it too: its own mode is left to its owner."""
    top = os.path.abspath(home)
    group = is_group(top)
    places = [os.path.join(top, name) for name in PLACES]
    for path in ([top] if os.path.basename(top) == ".penstock" else []) + places:
        yield from _wrong(path, group)
        # Tasks make what is below the folders of attempts, as they like; nobody else can reach it.
        if deep and os.path.isdir(path) and path != top and os.path.basename(path) in ("artifacts", "logs"):
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    yield from _wrong(os.path.join(folder, name), group)


def _wrong(path: str, group: bool) -> Iterator[tuple[str, int, int]]:
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode) or is_foreign(status):
        return
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        right = 0o2770 if group else mode & 0o2700 | 0o700
    elif not mode & 0o200:  # a blob
        right = 0o440 if group else 0o400
    else:
        right = 0o660 if group else 0o600
    if mode != right:
        yield path, mode, right


def strangers(home: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """(path, owner) of what another user owns in a home."""
    top = os.path.abspath(home)
    for path in (top, *(os.path.join(top, name) for name in PLACES)):
        if owner := stranger(path):
            yield path, owner


def secure(home: str | os.PathLike[str], named: bool) -> None:
    """Before a home is used: refuses what belongs to another user, unless the user has named the home or shares it with a group, and
    takes from others what they could read."""
    if _user is None or not os.path.isdir(home):
        return
    if not named and not (is_group(home) and not stranger(home)):
        for path, owner in strangers(home):
            raise refusal(path, owner, home)
    for path, _, right in wrong_modes(home):
        with suppress(OSError):
            os.chmod(path, right)
