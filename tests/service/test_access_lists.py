"""Who may do what with queues: YuniKorn's grammar and rules, as pure functions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.scheduling.queues.access import allows, may_administer, may_submit
from penstock.scheduling.queues.model import Queue
from penstock.service import access_lists
from penstock.service.policy import Actor, administers

USERS = ("ana", "bob", "cat")
GROUPS = ("lab", "ops")
names = st.lists(st.sampled_from(USERS), max_size=3).map(",".join)
groups = st.lists(st.sampled_from(GROUPS), max_size=2).map(",".join)
acls = st.one_of(
    st.none(),
    st.sampled_from(["", " ", "*", " *", "* "]),
    names,
    st.tuples(names, groups).map(" ".join),
    groups.map(" {}".format),
)
lines = st.lists(st.tuples(acls, acls), min_size=1, max_size=4).map(
    lambda lists: tuple(Queue(name=f"q{n}", submit=submit, admin=admin) for n, (submit, admin) in enumerate(lists))
)
people = st.tuples(st.sampled_from(USERS), st.lists(st.sampled_from(GROUPS), unique=True))


def in_list(text: str | None, user: str, mine: list[str]) -> bool:
    """What YuniKorn's documentation says, word by word."""
    if text is None or not text.strip():
        return False
    if text.strip() == "*":
        return True
    users, _, others = text.partition(" ")
    return user in users.split(",") or any(group in others.split(",") for group in mine)


@given(acls, people)
def test_a_list_lets_in_its_users_and_its_groups(text: str | None, who: tuple[str, list[str]]) -> None:
    assert allows(text, *who) == in_list(text, *who)


@given(lines, people)
def test_who_may_submit_is_in_a_list_of_the_queue_or_above(line: tuple[Queue, ...], who: tuple[str, list[str]]) -> None:
    wanted = any(in_list(one.submit, *who) or in_list(one.admin, *who) for one in line)
    assert may_submit(line, *who) == wanted


@given(lines, people)
def test_an_administrator_may_submit_and_no_queue_below_can_take_that_back(
    line: tuple[Queue, ...], who: tuple[str, list[str]]
) -> None:
    closed = Queue(name="below", submit="", admin="")
    if may_administer(line, *who):
        assert may_submit(line, *who) and may_administer((*line, closed), *who)
    if may_submit(line, *who):
        assert may_submit((*line, closed), *who)
    verdict = administers(line, Actor(*who), who[1])
    assert verdict is None or verdict == may_administer(line, *who)
    assert (verdict is None) == (not any((one.admin or "").strip() for one in line))


@given(lines)
def test_without_any_list_nobody_may(line: tuple[Queue, ...]) -> None:
    bare = tuple(Queue(name=one.name) for one in line)
    assert not may_submit(bare, "ana", GROUPS)


TEXT = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
access:
  root: {adminacl: "ana"}
  team-a: {submitacl: "bob lab"}
--- # more
kind: x
"""


def test_the_lists_stand_beside_the_queues_and_lines_stay_where_they_were() -> None:
    row, rest = access_lists.taken(TEXT, "q.yaml")
    assert row is not None and json.loads(row[2])["access"]["team-a"] == {"submitacl": "bob lab"}
    assert rest.count("\n") == TEXT.count("\n") and "access" not in rest
    assert rest.splitlines()[8] == "kind: x"
    found = access_lists.stored([(row[0], row[2])])
    assert found is not None and found["root"].admin == "ana" and found["team-a"].admin is None
    assert access_lists.taken("kind: x\n", "q.yaml") == (None, "kind: x\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("access: [a]", "not a map of queues"),
        ("access: {a: {submitacl: '*'}}\nkind: x", "stands beside something else"),
        ("access: {a: {submit: '*'}}", "'submit', which is not known"),
        ("access: {a: {submitacl: [ana]}}", "submitacl of a is not a text"),
        ("access: {a: {submitacl: 'ana  lab'}}", "more than one space"),
        ("access: {a: '*'}", "a has no lists"),
        ("access: {a: {adminacl: 'ana'}}", "root has no adminacl"),
        ("access: {a: {submitacl: '*'}}\n---\naccess: {}", "is there twice"),
        ("access: {a: [", "is not YAML"),
    ],
)
def test_wrong_lists_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        access_lists.taken(text, "q.yaml")
    assert said in caught.value.problems[0].message and caught.value.problems[0].code == "P827"
