"""Where the texts of secrets come from. Called by service before a run, and by the engine when an attempt starts.

    1. the variable PENSTOCK_SECRET_NAME: the name in capitals, with `_` for every other character
    2. the file or folder that PENSTOCK_SECRETS names: YAML with `NAME: text`, Secrets of Kubernetes, or one file for each secret
    3. the command PENSTOCK_SECRETS_COMMAND, called with the name as its last word: what it prints
    4. Secrets of Kubernetes in the manifest itself and in the files beside it

The first that has the secret counts. One newline at the end of a file or of what a command prints is not part of the text.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import Problem, UserError
from penstock.graph.text import read_all_yaml

ONE, FILE, COMMAND = "PENSTOCK_SECRET_", "PENSTOCK_SECRETS", "PENSTOCK_SECRETS_COMMAND"
OWN = "penstock"
"""The Secret of Kubernetes that holds the secrets without a slash in their names, by key."""
_SECONDS = 30.0
_FRESH = 300.0
"""Seconds for which the answer of a command is remembered."""
_LARGEST = 1 << 20


def variable(name: str) -> str:
    return ONE + re.sub(r"[^A-Z0-9]", "_", name.upper())


def is_optional(name: str) -> bool:
    """`NAME?`: if it is not given, the variable is not set and the file not written, as with `optional` in Kubernetes."""
    return name.endswith("?")


def ways(name: str) -> str:
    name = name.rstrip("?")
    return (
        f"set {variable(name)} in the environment, put it into the file or folder that {FILE} names, "
        f"or have {COMMAND} print it (docs/howto/use-secrets.md)"
    )


class SecretSources:
    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._answers: dict[str, tuple[float, str | None]] = {}
        """Of the command, with the time."""

    def find(self, name: str, beside: str = "") -> str | None:
        """The text of a secret; None if nothing has it. `beside`: the manifest of the workflow. Raises UserError if it is there and of
        no use."""
        name = name.rstrip("?")
        found = self._environ.get(variable(name))
        where = f"the variable {variable(name)}"
        if found is None and self._environ.get(FILE):
            where = self._environ[FILE]
            found = _from_path(Path(where), name)
        if found is None and self._environ.get(COMMAND):
            where = f"the command of {COMMAND}"
            found = self._ask(name)
        if found is None and beside:
            where = beside
            found = _from_manifests(Path(beside), name)
        return None if found is None else _usable(name, found, where)

    def _ask(self, name: str) -> str | None:
        then, known = self._answers.get(name, (float("-inf"), None))
        if time.monotonic() - then > _FRESH:
            known = _from_command(self._environ, name)
            self._answers[name] = (time.monotonic(), known)
        return known


def _usable(name: str, text: str, where: str) -> str:
    """Messages never hold the text."""
    if not text:
        raise _useless(
            name, f"is empty in {where}", "a secret must have a text; an empty one is mostly a mistake in a script"
        )
    if "\0" in text:
        raise _useless(
            name, f"has a zero byte in {where}", "only text can be given; encode binary data, for example with base64"
        )
    if len(text) > _LARGEST:
        raise _useless(name, f"is longer than 1 MiB in {where}", "give the task a file instead")
    return text


def _useless(name: str, what: str, fix: str) -> UserError:
    return UserError(Problem("P465", f"the secret {name} {what}", fix))


def _decoded(name: str, data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        fix = "only UTF-8 text can be given; encode binary data, for example with base64"
        raise _useless(name, f"is not text in {where}", fix) from None


def _from_path(path: Path, name: str) -> str | None:
    if path.is_dir():
        place = path / name
        if ".." in name.split("/") or not place.is_file():
            return None
        return _without_newline(_decoded(name, _bytes(name, place), str(place)))
    return _in_documents(_documents(name, path), name, str(path))


def _bytes(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        fix = f"see that it is there and that you may read it, or unset {FILE}"
        raise _useless(name, f"cannot be read: {path}: {error.strerror}", fix) from None


def _without_newline(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


def _documents(name: str, path: Path) -> list[Any]:
    text = _decoded(name, _bytes(name, path), str(path))
    try:
        return [document for document, _ in read_all_yaml(text, str(path))]
    except UserError:  # its message may quote the line, and the line the secret
        fix = "write `NAME: text` on each line, or Secrets of Kubernetes"
        raise _useless(name, f"cannot be read: {path} is not YAML", fix) from None


def _in_documents(documents: list[Any], name: str, where: str) -> str | None:
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        if document.get("kind") == "Secret":
            found = _in_secret(document, name, where)
        else:
            found = document.get(name)
            outer, _, inner = name.partition("/")
            if found is None and inner and isinstance(document.get(outer), Mapping):
                found = document[outer].get(inner)
        if found is None:
            continue
        if not isinstance(found, str):
            kind = type(found).__name__
            raise _useless(name, f"is {kind} and not text in {where}", "put it in quotes")
        return found
    return None


def _in_secret(document: Mapping[str, Any], name: str, where: str) -> str | None:
    outer, _, key = name.rpartition("/")
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("name") != (outer or OWN):
        return None
    plain, coded = document.get("stringData"), document.get("data")
    if isinstance(plain, Mapping) and key in plain:
        return str(plain[key])
    if isinstance(coded, Mapping) and key in coded:
        try:
            return _decoded(name, base64.b64decode(str(coded[key]), validate=True), where)
        except binascii.Error:
            raise _useless(name, f"is not base64 in {where}", "encode it, or write it under stringData") from None
    return None


def _from_manifests(path: Path, name: str) -> str | None:
    for file in _around(path):
        try:
            text = file.read_text("utf-8")
            if not re.search(r"kind[\"']?\s*:\s*[\"']?Secret\b", text):
                continue
            documents = [document for document, _ in read_all_yaml(text, str(file))]
        except (OSError, ValueError, UserError):
            continue
        secrets = [one for one in documents if isinstance(one, Mapping) and one.get("kind") == "Secret"]
        found = _in_documents(secrets, name, str(file))
        if found is not None:
            return found
    return None


def _around(path: Path) -> Iterator[Path]:
    folder = path if path.is_dir() else path.parent
    if path.is_file():
        yield path
    beside = sorted(one for one in folder.glob("*") if one.suffix in (".yaml", ".yml", ".json"))
    yield from (one for one in beside[:200] if one != path and one.is_file() and one.stat().st_size <= 4 * _LARGEST)


def _from_command(environ: Mapping[str, str], name: str) -> str | None:
    """None: it ended with an error, so it does not have the secret."""
    try:
        words = [*shlex.split(environ[COMMAND]), name]
        done = subprocess.run(
            words, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _useless(
            name, f"did not come: the command of {COMMAND} took more than {_SECONDS:g} s", "call it by hand"
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it cannot be split into words"
        raise _useless(name, f"did not come: the command of {COMMAND} cannot be started: {why}", "correct it") from None
    if done.returncode:
        return None
    return _without_newline(_decoded(name, done.stdout, f"the command of {COMMAND}"))
