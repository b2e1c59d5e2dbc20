"""What a provider says of a person → who it is here. Pure. Called by pages.oidc, with claims that provider has checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import Problem
from penstock.phrases import plural
from penstock.server.oidc.settings import SignInSettings
from penstock.service.tokens import MOST_NAME, ROLES, NotAllowed

EVERYBODY = "*"
MOST_GROUPS = 500


def person_of(settings: SignInSettings, claims: Mapping[str, Any]) -> str:
    """Raises NotAllowed, P963."""
    name = claims.get(settings.person)
    if not isinstance(name, str) or not name or len(name) > MOST_NAME or not name.isprintable():
        message = f"{settings.shown} does not say who you are: it gives no usable {settings.person!r}"
        fix = "ask an admin of the server to choose another claim (`person`), or of the provider to give this one"
        raise NotAllowed(Problem("P963", message, fix))
    if settings.person == "email" and claims.get("email_verified") is not True:
        message = f"{settings.shown} has not verified the address {name}"
        raise NotAllowed(Problem("P963", message, "verify it there, and sign in again"))
    return name


def groups_of(settings: SignInSettings, claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Names with spaces or commas cannot stand in the lists of queues, and are left out."""
    value = claims.get(settings.groups)
    given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    good = [one for one in given if isinstance(one, str) and one and len(one) <= MOST_NAME and one.isprintable()]
    return tuple(dict.fromkeys(one for one in good if not set(one) & set(" ,")))[:MOST_GROUPS]


def role_of(roles: Mapping[str, Sequence[str]], groups: Sequence[str]) -> str | None:
    """The highest that any of the groups has."""
    known = {EVERYBODY, *groups}
    return next((role for role in reversed(ROLES) if known & set(roles.get(role, ()))), None)


def refused(settings: SignInSettings, person: str, groups: Sequence[str]) -> NotAllowed:
    if groups:
        said = f"is in {plural(len(groups), 'group')} there ({', '.join(groups[:10])}), and none of them may use this server"
    else:
        said = "is in no group there that this server is told of"
    message = f"{settings.shown} knows you: {person} {said}"
    return NotAllowed(Problem("P963", message, "ask to be put into a group that may, or an admin to let yours in"))
