"""An attempt with the texts of its secrets in place, and its report without them. Called by the engine, right before a backend gets the
attempt and right after it reports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import dumps
from penstock.backends.attempt import CannotRun
from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.backends.secrets.mask import Masker, needles_of
from penstock.backends.secrets.sources import SecretSources, is_optional, ways
from penstock.expressions.secret import TOKEN, URL, filled, secrets_in
from penstock.graph import model
from penstock.graph.model import Function, Outcome
from penstock.graph.stored import Stored, stored_in

_OPEN = ("command", "args", "source", "image", "url", "manifest", "workdir", "message")
"""Fields that other users of this machine can see, or that messages quote."""
SHORT = 4
"""A shorter secret is masked in logs, and looked for in outputs only as a whole value."""


def uses_secrets(spec: AttemptSpec) -> bool:
    return any(True for _ in _all(spec))


def _all(spec: AttemptSpec) -> Any:
    yield from secrets_in(spec.inputs)
    for _, value in model.action_values(spec.action):
        yield from secrets_in(value)
    for mount in spec.step.mounts:
        yield from secrets_in(mount.files)


def revealed(
    spec: AttemptSpec, sources: SecretSources, beside: str, known: Mapping[str, str] | None = None
) -> AttemptSpec:
    """`known`: texts that are not looked for. Raises CannotRun, UserError."""
    texts: dict[str, str] = {}
    for secret in _all(spec):
        for name in secret.names:
            text = (known or {}).get(name)
            if text is None and name in (TOKEN, URL):
                raise CannotRun(f"{name} is not known: set PENSTOCK_ADDRESS to the address of a server of this store")
            text = sources.find(name, beside) if text is None else text
            if text is not None:
                texts[name] = text
            elif not is_optional(name):
                raise CannotRun(f"the secret {name} is not given any more: {ways(name)}")
    _refuse_open(spec)
    given = {name: filled(value, texts) for name, value in model.action_values(spec.action)}
    mounts = tuple(dataclasses.replace(one, files=filled(one.files, texts)) for one in spec.step.mounts)
    # A function gets its inputs by way of a file: it holds names, and the texts go to its process (see function_main).
    inputs = spec.inputs if isinstance(spec.action, Function) else filled(spec.inputs, texts)
    return dataclasses.replace(
        spec,
        action=model.with_values(spec.action, given),
        inputs=inputs,
        step=dataclasses.replace(spec.step, mounts=mounts),
        secrets=texts,
    )


def _refuse_open(spec: AttemptSpec) -> None:
    fields = model.action_values(spec.action)
    found = [(name, value) for name, value in fields if name in _OPEN]
    if isinstance(spec.action, model.Pod):
        found = [
            (name, value)
            for part in dict(model.action_values(spec.action))["parts"]
            for name, value in part.items()
            if name in _OPEN
        ]
    for name, value in found:
        for secret in secrets_in(value):
            raise CannotRun(open_place(secret.names[0], name))


def open_place(secret: str, field: str) -> str:
    return f"the secret {secret} would be in its {field}, which others can see; give it as a variable (env) and read that in the command"


# -- reports ----------------------------------------------------------------------------------------------------------


def guarded(report: AttemptEnded, texts: Mapping[str, str], blobs: Blobs) -> AttemptEnded:
    """The report without the texts. An output that holds one is refused: a masked value would be a wrong value for the steps after it,
    and nobody would notice."""
    masker = Masker(needles_of(texts.values()))
    report.message, report.exception = masker.mask(report.message), masker.mask(report.exception)
    report.traceback = masker.mask(report.traceback)
    for name, value in report.outputs.items():
        which = _held(value, texts, blobs)
        if which:
            report.outputs = {}
            report.outcome = Outcome.FAILED
            report.message = f"its output {name!r} holds the secret {which}; a result is recorded, and a secret must not be: return something else"
            break
    return report


def _held(value: Any, texts: Mapping[str, str], blobs: Blobs) -> str:
    """The name of a secret in a value. Blobs that hold it are removed."""
    written = dumps(value)
    found = ""
    for name, text in texts.items():
        masker = Masker(needles_of((text,)))
        if len(text) < SHORT:
            found = found or (name if text in _leaves(value) else "")
            continue
        if masker.has(written.encode("utf-8", "surrogatepass")):
            found = name
        for stored in _blobs(value):
            if _in_blob(stored, masker, blobs):
                blobs.delete(stored.digest)
                found = name
    return found


def _blobs(value: Any) -> list[Stored]:
    return list(stored_in(list(value) if isinstance(value, tuple) else value))


def _leaves(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_leaves, value))
    if isinstance(value, dict):
        return set().union(*map(_leaves, value.values()), value)
    return {value} if isinstance(value, str) else set()


def _in_blob(stored: Stored, masker: Masker, blobs: Blobs) -> bool:
    """A folder is a tar without compression: its files are in it as they are."""
    place = blobs.local(stored.digest)
    if place is None:
        return masker.has(blobs.get(stored.digest))
    tail = b""
    with open(place, "rb") as file:
        while data := file.read(1 << 20):
            if masker.has(tail + data):
                return True
            tail = data[-masker.longest :]
    return False
