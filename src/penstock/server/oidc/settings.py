"""Which provider people sign in at, and what its groups may do here: the file of `penstock serve --sign-in`. Read by the command.

issuer: https://id.example.org
client_id: penstock
client_secret_file: /run/secrets/oidc      # or PENSTOCK_OIDC_SECRET; none: a public client
url: https://penstock.example.org
roles: {admin: [platform], operator: [ops], submitter: ["*"]}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from penstock.errors import Problem, UserError, nearest
from penstock.phrases import seconds_in
from penstock.service.tokens import ROLES

SECRET: Final = "PENSTOCK_OIDC_SECRET"
KNOWN: Final = (
    "issuer",
    "client_id",
    "client_secret_file",
    "url",
    "scopes",
    "person",
    "groups",
    "roles",
    "session",
    "skew",
    "name",
)
SCOPES: Final = ("openid", "profile", "email")
LONGEST: Final = 30 * 86400.0
MOST_SKEW: Final = 600.0
_FIX: Final = "docs/howto/operate-a-server.md has an example"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInSettings:
    issuer: str
    client_id: str
    url: str
    """Where browsers find this server, without a / at the end."""
    roles: Mapping[str, tuple[str, ...]]
    """Role → groups of the provider; `*` is everybody."""
    secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = SCOPES
    person: str = "preferred_username"
    """The claim that names a person here."""
    groups: str = "groups"
    session: float = 12 * 3600.0
    """Seconds until one has to sign in again."""
    skew: float = 60.0
    """Seconds by which the clocks of the two may differ."""
    name: str = ""
    """Of the provider, on the button."""

    @property
    def shown(self) -> str:
        return self.name or urlsplit(self.issuer).netloc

    @property
    def callback(self) -> str:
        return f"{self.url}/login/oidc/callback"


def read(path: str | Path, environ: Mapping[str, str] | None = None) -> SignInSettings:
    """Raises UserError, P960, with all that is wrong."""
    env = os.environ if environ is None else environ
    try:
        data = yaml.safe_load(Path(path).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(Problem("P960", f"cannot read {path}: {said}", _FIX)) from None
    if not isinstance(data, dict):
        raise UserError(Problem("P960", f"{path} is not a map of settings", _FIX))
    found = _Reader(str(path), data)
    made = found.settings(env)
    if found.problems:
        raise UserError(found.problems)
    return made


class _Reader:
    def __init__(self, path: str, data: Mapping[Any, Any]) -> None:
        self.path = path
        self.data = data
        self.problems: list[Problem] = []
        for name in data:
            if name not in KNOWN:
                self.wrong(str(name), "is not a setting", f"known are {', '.join(KNOWN)}.{nearest(str(name), KNOWN)}")

    def wrong(self, name: str, said: str, fix: str = _FIX) -> None:
        self.problems.append(Problem("P960", f"{self.path}: {name} {said}", fix, where=name))

    def settings(self, env: Mapping[str, str]) -> SignInSettings:
        scopes = self.names("scopes", SCOPES)
        if "openid" not in scopes:
            self.wrong("scopes", "has no openid", "add it: without it the provider says nothing of who one is")
        return SignInSettings(
            issuer=self.address("issuer"),
            client_id=self.text("client_id"),
            url=self.address("url").rstrip("/"),
            roles=self.roles(),
            secret=self.secret(env),
            scopes=scopes,
            person=self.text("person", "preferred_username"),
            groups=self.text("groups", "groups"),
            session=self.seconds("session", 12 * 3600.0, LONGEST),
            skew=self.seconds("skew", 60.0, MOST_SKEW),
            name=self.text("name", ""),
        )

    def text(self, name: str, default: str | None = None) -> str:
        value = self.data.get(name, default)
        if isinstance(value, str) and (value or default is not None) and value.isprintable():
            return value
        self.wrong(name, "is missing" if value is None else "is not a text")
        return ""

    def address(self, name: str) -> str:
        text = self.text(name)
        if text and not is_safe(text):
            self.wrong(name, f"is {text[:100]!r}", "give an https address; http only for this machine itself")
        return text

    def names(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.data.get(name, list(default))
        if isinstance(value, list) and all(isinstance(one, str) and one for one in value):
            return tuple(value)
        self.wrong(name, "is not a list of names")
        return default

    def roles(self) -> Mapping[str, tuple[str, ...]]:
        given = self.data.get("roles")
        if not isinstance(given, dict) or not given:
            self.wrong("roles", "is missing", 'say which groups may do what: roles: {admin: [platform], viewer: ["*"]}')
            return {}
        found = {}
        for role, groups in given.items():
            if role not in ROLES:
                self.wrong("roles", f"has {role!r}", f"use {', '.join(ROLES)}.{nearest(str(role), ROLES)}")
            elif isinstance(groups, list) and all(isinstance(one, str) and one for one in groups):
                found[str(role)] = tuple(groups)
            else:
                self.wrong(f"roles.{role}", "is not a list of groups")
        return found

    def seconds(self, name: str, default: float, most: float) -> float:
        value = self.data.get(name)
        if value is None:
            return default
        found = float(value) if isinstance(value, int | float) else seconds_in(str(value))
        if found is None or not 0 <= found <= most or isinstance(value, bool):
            self.wrong(name, f"is {str(value)[:40]!r}", f"give a time as in 30s, 12h; at most {most:g} seconds")
            return default
        return found

    def secret(self, env: Mapping[str, str]) -> str:
        file = self.data.get("client_secret_file")
        if file is None:
            return env.get(SECRET, "")
        try:
            return Path(str(file)).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.wrong("client_secret_file", f"cannot be read: {getattr(error, 'strerror', None) or 'no text'}")
            return ""


def is_safe(address: str) -> bool:
    """Nobody on the way can read or change what is sent there."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.username or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "localhost", "::1"))
