"""A function called as a step: inputs made ready, the result put away, whatever it raises told in words. Called by inline, by the
worker processes and by backends.call, so that a function fares the same wherever it runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.rebuild import builder

_OURS = str(Path(__file__).parent.parent) + os.sep
_LONGEST = 20_000
SUCCEEDED, FAILED, ERRORED = "succeeded", "failed", "errored"

Outputs = tuple[tuple[str, str], ...]
"""Name and type, as text."""
Told = tuple[str, dict[str, Any], str, str, str]
"""Outcome, outputs, exception, message, traceback."""


class Call:
    """A function, with what is declared about the step that it is."""

    __slots__ = ("convert", "function", "only", "outputs", "plain_types", "texts")

    def __init__(self, function: Callable[..., Any], outputs: Outputs, texts: frozenset[str]) -> None:
        self.function = function
        self.outputs = outputs
        self.texts = texts
        """Inputs declared to be text: they get the path of a file as text too."""
        self.convert = builder(function)
        self.only: str | None = outputs[0][0] if len(outputs) == 1 else None
        self.plain_types = _AS_THEY_ARE.get(outputs[0][1], _NONE) if self.only is not None else _NONE
        """Results of these very types need no looking at."""

    def run(self, inputs: dict[str, Any], blobs: Blobs, folder: Callable[[], Path]) -> Told:
        if self.convert is not None or not all(type(value) in _PLAIN for value in inputs.values()):
            try:
                inputs = self._ready(inputs, blobs, folder)
            except Exception as error:  # a class of the author's may refuse its own fields
                return (ERRORED, {}, *described(error, with_traceback=not _is_ours(error)))
        try:
            returned = self.function(**inputs)
        except BaseException as error:
            return (FAILED, {}, *described(error))
        if type(returned) in self.plain_types and (type(returned) is not str or len(returned) < _SHORT):
            return SUCCEEDED, {self.only: returned}, "", "", ""  # type: ignore[dict-item]
        return self.put_away(returned, blobs)

    def _ready(self, inputs: dict[str, Any], blobs: Blobs, folder: Callable[[], Path]) -> dict[str, Any]:
        ready = {name: values.load(value, blobs, folder) for name, value in inputs.items()}
        for name in self.texts:
            if isinstance(ready.get(name), Path):
                ready[name] = str(ready[name])
        return self.convert(ready) if self.convert is not None else ready

    def put_away(self, returned: Any, blobs: Blobs) -> Told:
        from penstock.graph.types import parse

        try:
            if self.only is not None:
                parts: Mapping[str, Any] = {self.only: returned}
            else:
                parts = _several(returned, [name for name, _ in self.outputs]) if self.outputs else {}
            return SUCCEEDED, {
                name: values.shelve(parts[name], blobs, type_=parse(type_), name="what it returned" if self.only else name)
                for name, type_ in self.outputs
            }, "", "", ""  # fmt: skip
        except ValueError as error:
            return FAILED, {}, "", _line(str(error)), ""
        except Exception as error:
            return (ERRORED, {}, *described(error, with_traceback=False))


_PLAIN: frozenset[type] = frozenset({int, float, bool, str, type(None)})
_AS_THEY_ARE: Mapping[str, frozenset[type]] = {
    "any": _PLAIN, "int": frozenset({int}), "float": frozenset({float, int}), "str": frozenset({str}),
    "bool": frozenset({bool}), "null": frozenset({type(None)}),
}  # fmt: skip
_NONE: frozenset[type] = frozenset()
_SHORT = 10_000


def _is_ours(error: BaseException) -> bool:
    """Said in words already, with a fix. (Asked without importing what nobody has raised.)"""
    errors = sys.modules.get("penstock.errors")
    return errors is not None and isinstance(error, errors.UserError)


def _several(returned: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """A function with several outputs returns a map of them, or all of them in order."""
    fields = values.fields_of(returned)
    found = fields if fields is not None else returned
    if isinstance(found, Mapping):
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"it returned no {missing[0]!r}; its outputs are {', '.join(names)}")
        return found
    if isinstance(found, list | tuple) and len(found) == len(names):
        return dict(zip(names, found, strict=True))
    raise ValueError(f"it must return a dict of its outputs {', '.join(names)}, or all of them in order")


def described(error: BaseException, with_traceback: bool = True) -> tuple[str, str, str]:
    """(type, one line, traceback without our own frames)."""
    cls = type(error)
    bare = cls.__module__ in ("builtins", "__main__")
    name = cls.__qualname__ if bare else f"{cls.__module__}.{cls.__qualname__}"
    try:
        text = str(error)
    except Exception:  # the author's own __str__
        text = ""
    if isinstance(error, SystemExit):
        line = f"the function called sys.exit({'' if error.code is None else repr(error.code)})"
    elif _is_ours(error):
        line = _line(text)
    else:
        line = f"{cls.__qualname__}: {_line(text)}" if text else cls.__qualname__
    return name, line, _traceback(error) if with_traceback else ""


def _line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= 500 else first[:499] + "…"


def _traceback(error: BaseException) -> str:
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:
        return ""
    return text if len(text) <= _LONGEST else text[: _LONGEST // 2] + "\n…\n" + text[-_LONGEST // 2 :]


@contextlib.contextmanager
def environment(env: Mapping[str, str]) -> Iterator[None]:
    """These variables, for as long as it lasts."""
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
