"""A secret as a value: its name, and never its text. Expressions read it as `secrets.NAME`, or `secrets["NAME/KEY"]` for one key of a
Secret of Kubernetes. Backends put the text in its place when an attempt starts (see backends.secrets).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Secret:
    """A secret, or a text with secrets in it. Immutable. Not a dataclass: workers import it, and would pay for dataclasses."""

    __slots__ = ("parts",)

    def __init__(self, *parts: str) -> None:
        self.parts = parts
        """Text and names in turn: text, name, text, name, …, text."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[1::2]

    def __eq__(self, other: object) -> bool:
        return self.parts == other.parts if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.parts)

    def __reduce__(self) -> tuple[type[Secret], tuple[str, ...]]:
        return Secret, self.parts

    def __repr__(self) -> str:
        return f"Secret({', '.join(map(repr, self.parts))})"

    def __str__(self) -> str:
        return "".join(f"${{{{ {_read(part)} }}}}" if place % 2 else part for place, part in enumerate(self.parts))

    def filled(self, texts: Mapping[str, str]) -> str:
        return "".join(texts.get(part, "") if place % 2 else part for place, part in enumerate(self.parts))


def _read(name: str) -> str:
    if name in (TOKEN, URL):
        return name
    return f"secrets.{name}" if name.isidentifier() else f'secrets["{name}"]'


class _Secrets(Mapping[str, Secret]):
    """What `secrets` is in an expression: every name is a secret. Whether it is given shows before the run and at its start."""

    def __getitem__(self, name: str) -> Secret:
        return Secret("", name, "")

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


ROOT = "secrets"
SECRETS = _Secrets()
CALLBACK = "callback"
"""The root of what a step that waits for an answer is given. To everybody else it is secret."""
TOKEN, URL = "callback.token", "callback.url"
CALLBACKS = {name.partition(".")[2]: Secret("", name, "") for name in (TOKEN, URL)}


def joined(parts: list[Any]) -> Secret:
    """Texts and secrets, one after another."""
    found = [""]
    for part in parts:
        inner = part.parts if isinstance(part, Secret) else (part,)
        found[-1] += inner[0]
        found += inner[1:]
    return Secret(*found)


def secrets_in(value: Any) -> Iterator[Secret]:
    """Every secret inside a value."""
    if type(value) is Secret:
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from secrets_in(item)


def filled(value: Any, texts: Mapping[str, str]) -> Any:
    """The value with the texts of its secrets in their place. In a map, what holds a secret that has no text is left out."""
    if type(value) is Secret:
        return value.filled(texts)
    if isinstance(value, tuple | list):
        return type(value)(filled(item, texts) for item in value)
    if isinstance(value, dict):
        return {key: filled(item, texts) for key, item in value.items() if not _lacks(item, texts)}
    return value


def _lacks(value: Any, texts: Mapping[str, str]) -> bool:
    return type(value) is Secret and any(name not in texts for name in value.names)
