"""Secrets, as authors name them. Called by authors, by tasks, and by the compiler for calls inside a @workflow function."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from penstock.author.errors import author_error
from penstock.author.jobs import plain_call
from penstock.author.values import Computed, holds_secret, to_value
from penstock.expressions import types
from penstock.expressions.evaluate import resolve
from penstock.expressions.parse import reference
from penstock.expressions.secret import ROOT, SECRETS, filled, secrets_in

_SECRET = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?(/[A-Za-z0-9_.-]+)?\Z", re.A)


def secret(name: str) -> Any:
    """A secret, by its name: `secret("TOKEN")`, or `secret("db/password")` for one key of a Secret of Kubernetes. As the value of a
    variable (env), of an input, of a header or the body of a request; also inside a text: `f"Bearer {secret('TOKEN')}"`. A step gets the
    text when it runs. It is in no log, event, key, argument of a process or message. docs/howto/use-secrets.md says how it is given."""
    if not isinstance(name, str) or not _SECRET.match(name):
        fix = 'use letters, digits, "_", "-" and "."; "/" before the key in a Secret of Kubernetes'
        raise author_error("P307", f"{name!r} is not the name of a secret", fix)
    if plain_call.get():
        return _text_of_secret(name)
    return Computed(reference("secrets", name), types.STR)


def _text_of_secret(name: str) -> str:
    """In a plain call of a workflow the tasks are plain functions: they get the text."""
    # Looked up at run time: this package may not depend on backends.
    sources = importlib.import_module("penstock.backends.secrets.sources")
    found: str | None = sources.SecretSources().find(name)
    if found is None:
        raise author_error("P464", f"the secret {name} is not given", sources.ways(name))
    return found


def secret_defaults(signature: inspect.Signature) -> Iterator[tuple[str, Any]]:
    """Of the parameters that have one: `def fetch(table, token=secret("TOKEN"))`."""
    for name, parameter in signature.parameters.items():
        if parameter.default is not parameter.empty and holds_secret(parameter.default):
            yield name, parameter.default


def with_texts(thing: Any) -> Any:
    """What a function gets for it in a plain call: the texts of its secrets."""
    named = resolve(to_value(thing), {ROOT: SECRETS})
    return filled(named, {name: _text_of_secret(name) for one in secrets_in(named) for name in one.names})
