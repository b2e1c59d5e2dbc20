"""A blob store behind a URL: fsspec's file systems as Blobs uses them. Made by blobs.Blobs, in engines, workers and pods.

Each driver of fsspec has errors of its own (s3fs alone: PermissionError, OSError, those of botocore and of aiohttp). Here they become one
UserError that names the store and what to look at, so that no caller has to know any driver. What is missing stays a FileNotFoundError.

Drivers remember listings, and others write to the same store: whether something is there is asked of the store itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.urls import without_password

if TYPE_CHECKING:
    from penstock.errors import UserError

_OBJECTS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci"})
"""Stores of objects. They have no folders to be made, and to make one would make the bucket: a new one for a typing mistake."""

_REFUSED = re.compile(r"credential|access ?key|denied|forbidden|\b40[13]\b", re.I)


class Remote:
    """The methods have fsspec's names. Raises UserError P705 without the driver, P910 if the store does not answer or refuses, ValueError if
    the driver itself finds that what it has read is damaged: S3 keeps a checksum of each object."""

    def __init__(self, url: str) -> None:
        self.shown = without_password(url)
        self.scheme = url.split("://", maxsplit=1)[0]
        self._system, self.base = file_system(url)

    # -- writing ------------------------------------------------------------------------------------------------------

    def pipe_file(self, place: str, data: bytes) -> None:
        self._write(place, lambda: self._system.pipe_file(place, data))

    def put_file(self, source: str, place: str) -> None:
        self._write(place, lambda: self._system.put_file(source, place))

    def _write(self, place: str, work: Callable[[], Any]) -> None:
        with self._asked():
            try:
                if self.scheme not in _OBJECTS:
                    self._system.makedirs(place.rpartition("/")[0], exist_ok=True)
                work()
            except FileNotFoundError as error:
                raise OSError(str(error)) from error  # not what is written is missing, but what it is written into

    def mv(self, place: str, to: str) -> None:
        with self._asked():
            self._system.mv(place, to)

    def rm_file(self, place: str) -> None:
        with self._asked():
            self._system.rm_file(place)

    # -- reading ------------------------------------------------------------------------------------------------------

    def cat_file(self, place: str) -> bytes:
        with self._asked():
            found: bytes = self._system.cat_file(place)
            return found

    def get_file(self, place: str, to: str) -> None:
        with self._asked():
            self._system.get_file(place, to)

    @contextmanager
    def open(self, place: str) -> Iterator[BinaryIO]:
        with self._asked(), self._system.open(place, "rb") as file:
            yield file

    def exists(self, place: str) -> bool:
        with self._asked():
            self._system.invalidate_cache(place)
            return bool(self._system.exists(place))

    def size(self, place: str) -> int | None:
        """None: it is not there."""
        with self._asked():
            self._system.invalidate_cache(place)
            try:
                return int(self._system.size(place))
            except FileNotFoundError:
                return None

    def find(self) -> dict[str, dict[str, Any]]:
        """Everything below the base."""
        with self._asked():
            self._system.invalidate_cache()
            found: dict[str, dict[str, Any]] = self._system.find(self.base, detail=True)
            return found

    @contextmanager
    def _asked(self) -> Iterator[None]:
        from penstock.errors import UserError

        try:
            yield
        except (FileNotFoundError, IsADirectoryError, UserError):
            raise
        except Exception as error:
            if "Checksum" in type(error).__name__:
                raise ValueError(str(error)) from error
            raise self._trouble(error) from error

    def _trouble(self, error: Exception) -> UserError:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        fix = "is the server up, and does this machine reach it? The driver's own settings name another one (s3: AWS_ENDPOINT_URL)"
        if isinstance(error, PermissionError) or _REFUSED.search(said):
            fix = "give credentials that may read, write and list there (s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)"
        elif isinstance(error.__cause__, FileNotFoundError):
            fix = "create the bucket, or name another one in PENSTOCK_ARTIFACTS: Penstock makes none"
        return _error("P910", f"the artifact store {self.shown} does not work: {said}", fix)


def changed_at(info: Mapping[str, Any]) -> float:
    """When something behind a URL has changed: each of fsspec's drivers says it in a way of its own."""
    changed = info.get("mtime") or info.get("LastModified") or info.get("last_modified") or info.get("created") or 0.0
    return float(changed.timestamp()) if hasattr(changed, "timestamp") else float(changed)


def file_system(url: str) -> tuple[Any, str]:
    """fsspec's own, and the path in it. Raises UserError P705 without the driver. Also called by mailboxes of pods, which want its errors as they are."""
    scheme = url.split("://", maxsplit=1)[0]
    try:
        import fsspec  # type: ignore[import-untyped]  # most stores are a folder

        system, base = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        fix = f"install the fsspec driver for {scheme}:// (gcsfs, adlfs, …)"
        if scheme in ("s3", "s3a"):
            fix = f"pip install 'penstock[s3]', or the fsspec driver for {scheme}:// (s3fs)"
        raise _error(
            "P705", f"blobs cannot be kept at {without_password(url)}: {error}", f"{fix}, or give a folder"
        ) from None
    return system, str(base).rstrip("/")


def _error(code: str, message: str, fix: str) -> UserError:
    from penstock.errors import Problem, UserError

    return UserError(Problem(code, message, fix))
