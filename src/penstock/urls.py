"""URLs without their passwords: for messages, records and the environment of tasks. Called by store, backends and service."""

from __future__ import annotations

import re

_QUERY = re.compile(r"(?i)(?<=[?&])((?:ssl)?password)=[^&#]*&?")
_HOST = re.compile(r"[^:/?]*(:\d*)?(/[^?]*)?")
STORE = "PENSTOCK_STORE"


def split_password(url: str) -> tuple[str, tuple[str, ...]]:
    """The URL without passwords, and the passwords as they stand in it. A password with characters that should have been written as
    %40 and the like is found too: better too much is hidden than too little."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url, ()
    before, question, query = rest.partition("?")
    if "@" in query and not _HOST.fullmatch(before.partition("@")[0]):
        before, question, query = rest, "", ""  # the question mark may be in the password
    user, at, host = before.rpartition("@")
    name, colon, password = user.partition(":")
    left = f"{name}{'@' * bool(name)}{host}" if at and colon else before
    left = f"{scheme}://{left}{question}{query}"
    found = [password, *(hit[0].partition("=")[2].rstrip("&") for hit in _QUERY.finditer(left))]
    if found[1:]:
        left = _QUERY.sub("", left).rstrip("?&")
    return left, tuple(filter(None, found))


def without_password(url: str) -> str:
    return split_password(url)[0]
