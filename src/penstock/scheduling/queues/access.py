"""Who may submit to a queue, and what a user may use of it, by YuniKorn's rules. Called by check and by service.access.

A grant counts for all queues below: no queue can take it back. A queue without any ACL above it is closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.scheduling.queues.model import Limit, Queue, full_name

EVERYONE: Final = "*"
_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_.@-]*[$]?\Z", re.A)
_GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_-]*\Z", re.A)


def parts_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Users and groups of an ACL. Raises ValueError: only one space is allowed, between the two."""
    if text.strip() in ("", EVERYONE):
        return ((EVERYONE,) if text.strip() else ()), ()
    fields = text.split(" ")
    if len(fields) > 2:
        raise ValueError(f"the ACL {text[:80]!r} has more than one space")
    users, groups = (tuple(name for name in one.split(",") if name) for one in (*fields, "")[:2])
    return users, groups


def ignored_in(users: Iterable[str], groups: Iterable[str]) -> list[str]:
    """Names that YuniKorn's own ACLs ignore, though its limits allow them: system:serviceaccount:ns:name."""
    wrong = [name for name in users if name != EVERYONE and not _USER.match(name)]
    return wrong + [name for name in groups if name != EVERYONE and not _GROUP.match(name)]


def allows(text: str | None, user: str, groups: Iterable[str]) -> bool:
    try:
        users, known = parts_of(text or "")
    except ValueError:
        return False
    return users == (EVERYONE,) or known == (EVERYONE,) or user in users or bool(set(groups) & set(known))


def may_submit(line: tuple[Queue, ...], user: str, groups: Iterable[str]) -> bool:
    """`line`: the queue and all above it, root first."""
    known = tuple(groups)
    return any(allows(one.submit, user, known) or allows(one.admin, user, known) for one in line)


def may_administer(line: tuple[Queue, ...], user: str, groups: Iterable[str]) -> bool:
    known = tuple(groups)
    return any(allows(one.admin, user, known) for one in line)


def who_may(line: tuple[Queue, ...]) -> list[str]:
    """Each ACL that grants something, with its queue."""
    found = []
    for number, one in enumerate(line):
        for field, text in (("submitacl", one.submit), ("adminacl", one.admin)):
            if text is not None and text.strip():
                found.append(f"{field} of {full_name(line[: number + 1])}: {text.strip()!r}")
    return found


def limits_of(line: tuple[Queue, ...], user: str, groups: Iterable[str]) -> Iterator[tuple[str, str, Limit]]:
    """(queue, for whom, limit) of all that bind this user, from the leaf up: the user's own or `*` in each queue; of groups the one that is found first."""
    known = tuple(groups)
    group_found = False
    for number in range(len(line) - 1, -1, -1):
        queue, one = full_name(line[: number + 1]), line[number]
        own = next((limit for limit in one.limits if user in limit.users), None)
        everyone = next((limit for limit in one.limits if EVERYONE in limit.users), None)
        if own or everyone:
            yield queue, f"user {user}" if own else "every user", own or everyone  # type: ignore[misc]
        if group_found or not known:
            continue
        limit = next((one for one in one.limits for name in one.groups if name in known), None)
        limit = limit or next((one for one in one.limits if EVERYONE in one.groups), None)
        if limit is not None:
            group_found = True
            yield queue, f"group {', '.join(limit.groups)}", limit
