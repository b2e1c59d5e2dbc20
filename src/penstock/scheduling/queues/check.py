"""What YuniKorn (1.9) would refuse of a queue configuration: it takes all of it or nothing. Called by service.yunikorn.

The rules are those of its validator, and all that is wrong is said at once. What it takes and ignores without a word is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.errors import Problem
from penstock.formats.documents import Document
from penstock.graph import quantity
from penstock.scheduling.queues.access import ignored_in, parts_of
from penstock.scheduling.queues.model import Amounts, Limit, Partition, Queue, full_name
from penstock.scheduling.queues.read import WRONG

NAME: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}\Z", re.A)
USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?\Z", re.A)
GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*\Z", re.A)
RULE: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*\Z", re.A)
SPECIAL: Final = re.compile(r"[\^$*+?()\[{}|]")
LONGEST: Final = 63
EVERYONE: Final = "*"
_NUMBERS = "write smaller numbers, or larger ones above"


def check(partition: Partition, document: Document) -> list[Problem]:
    """Errors and warnings. `document`: the configuration itself, for places."""
    checker = _Checker(document)
    for line in partition.root.walk():
        checker.queue(line)
    checker.guarantees(partition.root, {})
    checker.inherited(partition.root, {}, {})
    for number, rule in enumerate(partition.rules):
        checker.rule(partition, rule, number)
    return checker.problems


class _Checker:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def wrong(self, path: str, message: str, fix: str, *, warning: bool = False) -> None:
        found = self.document.problem(WRONG, path, message, fix)
        self.problems.append(replace(found, severity="warning") if warning else found)

    # -- one queue ----------------------------------------------------------------------------------------------------

    def queue(self, line: tuple[Queue, ...]) -> None:
        one = line[-1]
        if len(line) > 1 and not NAME.match(one.name):
            self.wrong(
                f"{one.path}.name",
                f"{one.name[:80]!r} is no name of a queue",
                "use letters, digits and _ : # / @ -, 64 at most, no dots",
            )
        whole = full_name(line)
        if len(whole) > LONGEST and not one.parent:
            said = f"the queue {whole} has {len(whole)} characters, and pods name it in a label of at most {LONGEST}"
            self.wrong(f"{one.path}.name", said, "use shorter names", warning=True)
        names: set[str] = set()
        for child in one.queues:
            if child.name in names:
                self.wrong(
                    f"{child.path}.name",
                    f"there are two queues {child.name!r} in {whole}",
                    "give each its own name; case does not count",
                )
            names.add(child.name)
        for field, text in (("submitacl", one.submit), ("adminacl", one.admin)):
            self.acl(f"{one.path}.{field}", text)
        for name in one.guaranteed:
            if name in one.most and one.guaranteed[name] > one.most[name]:
                said = f"{whole} is guaranteed {_told(name, one.guaranteed)}, and has at most {_told(name, one.most)}"
                self.wrong(f"{one.path}.resources.guaranteed", said, "guarantee less, or raise max")
        for child in one.queues:
            if one.applications and not child.applications:
                said = f"{whole} has maxapplications, so {child.name} must have it too"
                self.wrong(child.path, said, f"write maxapplications, {one.applications} at most")
            elif one.applications and child.applications > one.applications:
                said = f"{child.name} may have {child.applications} applications, and {whole} {one.applications}"
                self.wrong(f"{child.path}.maxapplications", said, _NUMBERS)
        self.limits(one, whole)

    def acl(self, path: str, text: str | None) -> None:
        try:
            parts = parts_of(text or "")
        except ValueError as error:
            self.wrong(path, str(error), "write `user1,user2 group1,group2`, with one space at most")
            return
        for name in ignored_in(*parts):
            said = f"YuniKorn ignores {name!r} in an ACL, because of a character in it; here it counts"
            self.wrong(path, said, "give such users a group", warning=True)

    def limits(self, one: Queue, whole: str) -> None:
        users: set[str] = set()
        groups: set[str] = set()
        for limit in one.limits:
            if not limit.users and not limit.groups:
                self.wrong(limit.path, "the limit is for nobody", "write users, or groups")
            self.names(limit.path, "user", limit.users, users, USER)
            self.names(limit.path, "group", limit.groups, groups, GROUP)
            if groups == {EVERYONE}:
                self.wrong(
                    limit.path,
                    "a limit for all groups needs one for a named group before it",
                    "name a group first; or limit the queue itself",
                )
            if not limit.resources and not limit.applications:
                self.wrong(limit.path, "the limit limits nothing", "write maxresources or maxapplications")
            elif limit.resources and not any(limit.resources.values()):
                self.wrong(
                    f"{limit.path}.maxresources", "the limit allows nothing", "write more than 0 of one resource"
                )
            if one.applications and limit.applications > one.applications:
                self.wrong(f"{limit.path}.maxapplications", f"the limit is higher than that of {whole}", _NUMBERS)
            over = _over(limit.resources, one.most)
            if over and one.name != "root":
                self.wrong(
                    f"{limit.path}.maxresources",
                    f"the limit of {_told(over, limit.resources)} is higher than {whole} has",
                    _NUMBERS,
                )

    def names(self, path: str, what: str, listed: tuple[str, ...], seen: set[str], allowed: re.Pattern[str]) -> None:
        for name in listed:
            if name != EVERYONE and not allowed.match(name):
                self.wrong(path, f"{name[:80]!r} is no name of a {what}", "begin with a letter or _")
            if name in seen:
                self.wrong(path, f"there are two limits for the {what} {name!r}", "keep one of them")
            elif EVERYONE in seen:
                self.wrong(path, f"the {what} {name!r} stands after `*`, which is for all others", "put `*` last")
            seen.add(name)

    # -- the tree -----------------------------------------------------------------------------------------------------

    def guarantees(self, one: Queue, above: Amounts) -> dict[str, int]:
        """What a queue is guaranteed: its own, or the sum of its children's. `above`: what there is at most."""
        over = _over(one.most, above)
        if over:
            said = f"{one.name} has at most {_told(over, one.most)}, and the queues above it {_told(over, above)}"
            self.wrong(f"{one.path}.resources.max", said, _NUMBERS)
        most = _least(one.most, above)
        total: dict[str, int] = {}
        for child in one.queues:
            for name, amount in self.guarantees(child, most).items():
                total[name] = total.get(name, 0) + amount
        for what, bound in (("is guaranteed", one.guaranteed), ("has at most", most)):
            over = _over(total, bound)
            if over:
                said = f"the queues in {one.name} are guaranteed {_told(over, total)} together, and it {what} {_told(over, bound)}"
                self.wrong(f"{one.path}.resources", said, _NUMBERS)
        return dict(one.guaranteed) if any(one.guaranteed.values()) else total

    def inherited(self, one: Queue, users: Mapping[str, Limit], groups: Mapping[str, Limit]) -> None:
        """A limit is never higher than that of the same name, or of `*`, in a queue above."""
        own_users, own_groups = dict(users), dict(groups)
        for limit in one.limits:
            for what, listed, above, own in (
                ("user", limit.users, users, own_users),
                ("group", limit.groups, groups, own_groups),
            ):
                for name in listed:
                    known = above.get(name) or (above.get(EVERYONE) if name != EVERYONE else None)
                    if known is not None:
                        self.higher(limit, known, f"the {what} {name}", one.name)
                    merged = _least(limit.resources, known.resources) if known and name in above else limit.resources
                    own[name] = replace(limit, resources=merged)
        for child in one.queues:
            self.inherited(child, own_users, own_groups)

    def higher(self, limit: Limit, above: Limit, who: str, queue: str) -> None:
        over = _over(limit.resources, above.resources)
        if over:
            said = (
                f"{who} may have {_told(over, limit.resources)} in {queue}, and above it {_told(over, above.resources)}"
            )
            self.wrong(f"{limit.path}.maxresources", said, _NUMBERS)
        if above.applications and (not limit.applications or limit.applications > above.applications):
            said = f"{who} may have {limit.applications or 'any number of'} applications in {queue}, and above it {above.applications}"
            self.wrong(f"{limit.path}.maxapplications", said, _NUMBERS)

    # -- placement ----------------------------------------------------------------------------------------------------

    def rule(self, partition: Partition, rule: Mapping[str, Any], number: int) -> None:
        path = f"partitions[0].placementrules[{number}]"
        chain = list(_chain(rule))
        for one in chain:
            self.one_rule(path, one)
        static: list[str] = []
        dynamic = False
        for one in chain:
            if str(one.get("name", "")).lower() != "fixed":
                dynamic = True
                break
            value = str(one.get("value") or "")
            if value.startswith("root"):
                if static:
                    self.wrong(
                        path, f"the value {value!r} begins at the root, inside of another rule", "leave out `root.`"
                    )
                    return
                static = value.lower().split(".")
            else:
                static = (static or ["root"]) + value.lower().split(".")
        if static:
            self.leads(partition, path, static, dynamic, rule.get("create") is True)

    def one_rule(self, path: str, rule: Mapping[str, Any]) -> None:
        name = str(rule.get("name") or "")
        if not RULE.match(name):
            self.wrong(path, f"{name[:80]!r} is no name of a rule", "write provided, user, fixed or tag")
        given = rule.get("filter") or {}
        if str(given.get("type") or "allow").lower() not in ("allow", "deny"):
            self.wrong(f"{path}.filter.type", f"{given['type']!r} is no type of filter", "write allow or deny")
        for field, allowed in (("users", USER), ("groups", GROUP)):
            listed: list[Any] = list(given.get(field) or ())
            if len(listed) == 1 and not allowed.match(str(listed[0])) and not _is_regex(str(listed[0])):
                self.wrong(
                    f"{path}.filter.{field}",
                    f"{listed[0]!r} is neither a name nor a pattern",
                    "write a name, or a regular expression",
                )

    def leads(self, partition: Partition, path: str, static: list[str], dynamic: bool, create: bool) -> None:
        here: Queue | None = partition.root
        name = ".".join(static)
        for step in static[1:]:
            assert here is not None
            found = next((one for one in here.queues if one.name == step), None)
            if found is None:
                if not here.parent:
                    self.wrong(
                        path,
                        f"the rule leads to {name}, and {here.name} can have no queues in it",
                        "name a queue that is a parent",
                    )
                elif not create:
                    self.wrong(
                        path, f"the rule leads to {name}, which does not exist", "write create: true, or make the queue"
                    )
                return
            here = found
        if here is not None and here.parent != dynamic:
            said = (
                "is a leaf, and the rule goes on below it" if dynamic else "is a parent, and applications run in leaves"
            )
            self.wrong(path, f"the rule leads to {name}, which {said}", "name another queue")


def _is_regex(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return SPECIAL.search(text) is not None


def _chain(rule: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """From the outermost parent."""
    if rule.get("parent"):
        yield from _chain(rule["parent"])
    yield rule


def _over(amounts: Amounts, bound: Amounts) -> str:
    """A resource of which there is more than the bound; what is not in the bound is unlimited."""
    return next((name for name in sorted(amounts) if name in bound and amounts[name] > bound[name]), "")


def _least(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: min(one.get(name, amount), other.get(name, amount)) for name, amount in {**other, **one}.items()}


def _told(name: str, amounts: Amounts) -> str:
    return f"{quantity.short(amounts.get(name, 0), name)} {name}"
