"""Calls a function as a step: loads its inputs, stores its result, and turns what it raises into words. Called by inline, by
the worker processes and by function_main, so that a function behaves the same wherever it runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.changed import changed_since
from penstock.artifacts.finish import finishing
from penstock.artifacts.plain import fields_of
from penstock.artifacts.rebuild import Misfit, builder, result_check

_OURS = str(Path(__file__).parents[2]) + os.sep
_LONGEST = 20_000
SUCCEEDED, FAILED, ERRORED, INVALID = "succeeded", "failed", "errored", "invalid"

Outputs = tuple[tuple[str, str], ...]
"""Name and type, as text."""
CallResult = tuple[str, dict[str, Any], str, str, str]
"""Outcome, outputs, exception, message, traceback."""


class FunctionCall:
    """A function, with what its step declares."""

    __slots__ = ("check", "convert", "function", "only", "outputs", "plain_types", "taken", "texts")

    def __init__(self, function: Callable[..., Any], outputs: Outputs, texts: frozenset[str]) -> None:
        self.function = finishing(function)
        self.outputs = outputs
        self.texts = texts
        """Inputs declared as text: a file is passed as its path in text form."""
        self.convert = builder(function)
        self.only: str | None = outputs[0][0] if len(outputs) == 1 else None
        self.check = result_check(function)
        self.plain_types = (
            _AS_THEY_ARE.get(outputs[0][1], _NONE) if self.only is not None and self.check is None else _NONE
        )
        """Results of exactly these types need no check."""
        self.taken: tuple[str, ...] = ()
        """Files and folders that the last call returned, if they were changed meanwhile."""

    def run(self, inputs: dict[str, Any], blobs: Blobs, folder: Callable[[], Path]) -> CallResult:
        began, self.taken = time(), ()
        if self.convert is not None or not _all_plain(inputs):
            try:
                inputs = self._loaded(inputs, blobs, folder)
            except Exception as error:  # a class of the author may reject its own fields
                return (ERRORED, {}, *described(error, with_traceback=not _is_ours(error)))
        try:
            returned = self.function(**inputs)
        except BaseException as error:
            return (INVALID if _is_invalid(error) else FAILED, {}, *described(error))
        if type(returned) in self.plain_types and (type(returned) is not str or len(returned) < _SHORT):
            return SUCCEEDED, {self.only: returned}, "", "", ""  # type: ignore[dict-item]
        return self._stored(returned, blobs, began)

    def _loaded(self, inputs: dict[str, Any], blobs: Blobs, folder: Callable[[], Path]) -> dict[str, Any]:
        ready = {name: values.load_value(value, blobs, folder) for name, value in inputs.items()}
        for name in self.texts:
            if isinstance(ready.get(name), Path):
                ready[name] = str(ready[name])
        return self.convert(ready) if self.convert is not None else ready

    def _stored(self, returned: Any, blobs: Blobs, began: float) -> CallResult:
        from penstock.expressions.types import parse

        taken: list[Path] = []
        try:
            if self.check is not None:
                _checked(self.check, returned)
            if self.only is not None:
                parts: Mapping[str, Any] = {self.only: returned}
            else:
                parts = _several(returned, [name for name, _ in self.outputs]) if self.outputs else {}
            called = "what it returned" if self.only else ""
            outputs = {
                name: values.store_value(parts[name], blobs, type_=parse(type_), name=called or name, taken=taken)
                for name, type_ in self.outputs
            }
            if taken:
                self.taken = changed_since(taken, began)
            return SUCCEEDED, outputs, "", "", ""
        except ValueError as error:
            return FAILED, {}, "", _line(str(error)), ""
        except Exception as error:
            return (ERRORED, {}, *described(error, with_traceback=False))


def _all_plain(inputs: Mapping[str, Any]) -> bool:
    for value in inputs.values():  # noqa: SIM110 - a generator takes twice as long, for every task
        if type(value) not in _PLAIN:
            return False
    return True


_PLAIN: frozenset[type] = frozenset({int, float, bool, str, type(None)})
_AS_THEY_ARE: Mapping[str, frozenset[type]] = {
    "any": _PLAIN,
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "str": frozenset({str}),
    "bool": frozenset({bool}),
    "null": frozenset({type(None)}),
}
_NONE: frozenset[type] = frozenset()
_SHORT = 10_000


def _checked(check: Callable[[Any], Any], returned: Any) -> None:
    try:
        check(returned)
    except Misfit as error:
        raise ValueError(f"what it returned is {error}: {error.fix}") from None


def _is_ours(error: BaseException) -> bool:
    """Is it one of our errors, whose message needs no type in front? (Does not import the errors if nothing has raised one.)"""
    errors = sys.modules.get("penstock.errors")
    return errors is not None and isinstance(error, errors.UserError)


def _is_invalid(error: BaseException) -> bool:
    errors = sys.modules.get("penstock.errors")  # whoever raises it has imported it
    return errors is not None and isinstance(error, errors.InvalidInput)


def _several(returned: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """A function with several outputs returns a dict of them, or all of them in order."""
    fields = fields_of(returned)
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
    except Exception:  # in the author's __str__
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
    """Sets these variables inside the block."""
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
