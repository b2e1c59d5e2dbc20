"""What Kubernetes' API server refuses of the metadata of any document: a missing or wrong name, wrong labels and annotations.

Called by formats.registry, which reports it of every document that is read, and by service, which does not run or gate such a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.errors import Problem
from penstock.formats.documents import Document

CODE: Final = "P839"
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
_LONGEST_NAME: Final = 253
_LONGEST_WORD: Final = 63
_NAME_FIX: Final = "use lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
_WORD_FIX: Final = "use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, 63 at most"


def refused(document: Document) -> Iterator[Problem]:
    """A problem for each thing that the API server would not take."""
    if not document.api:
        return  # not a document of Kubernetes
    metadata = document.metadata
    if not metadata.get("name") and not metadata.get("generateName"):
        message = f"this {document.kind} has no name: the API server refuses it"
        yield document.problem(CODE, "metadata", message, "give it metadata.name or metadata.generateName")
    for field in ("name", "generateName"):
        name = metadata.get(field)
        if name and not _is_name(name, prefix=field == "generateName"):
            message = f"{_shown(name)} is no {field}: the API server refuses it"
            yield document.problem(CODE, f"metadata.{field}", message, _NAME_FIX)
    for field in ("labels", "annotations"):
        yield from _words(document, field)


def _words(document: Document, field: str) -> Iterator[Problem]:
    given = document.metadata.get(field)
    path, word = f"metadata.{field}", field[:-1]
    if given is None:
        return
    if not isinstance(given, Mapping):
        yield document.problem(CODE, path, f"{field} are not a map: the API server refuses them", "write `key: value`")
        return
    for key, value in given.items():
        here = f"{path}.{key}"
        if not _is_key(str(key)):
            message = f"{_shown(key)} is no key of {_a(word)}: the API server refuses it"
            yield document.problem(CODE, here, message, f"{_WORD_FIX}; a domain and '/' may stand before it")
        if value is not None and not isinstance(value, str):
            message = f"the {word} {str(key)[:60]!r} is not text: the API server refuses it"
            yield document.problem(CODE, here, message, f"write it in quotes: '{str(value)[:40]}'")
        elif field == "labels" and value and not _is_word(value):
            message = f"{_shown(value)} is no value of a label: the API server refuses it"
            yield document.problem(CODE, here, message, _WORD_FIX)


def _is_name(name: Any, *, prefix: bool) -> bool:
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return False
    whole = f"{name[:-1]}a" if prefix and len(name) > 1 and name.endswith("-") else name
    return _SUBDOMAIN.match(whole) is not None


def _is_key(key: str) -> bool:
    domain, slash, word = key.rpartition("/")
    return _is_word(word) and (
        not slash or (len(domain) <= _LONGEST_NAME and _SUBDOMAIN.match(domain.lower()) is not None)
    )


def _is_word(text: str) -> bool:
    return len(text) <= _LONGEST_WORD and _WORD.match(text) is not None


def _shown(value: Any) -> str:
    text = str(value)
    return repr(f"{text[:60]}…" if len(text) > _LONGEST_WORD else text)


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
