"""What passes between steps, in a form that a database row, a pipe and another machine can hold. Called by backends on both
sides, and by the engine.

A value is plain JSON data as long as it is small. What is not becomes a `Stored`, a note that names a blob:

    json     plain data of more than 64 KiB
    pickle   what JSON would not give back as it was: sets, maps with keys that are not text, arrays, objects of any class
    file     a file; a pathlib.Path that a step returns stands for what it points to
    dir      a folder, as a tar that is the same whenever the content is the same

Lists and maps are looked into, so that one of them may hold Stored values and an expression can still reach the rest. Tuples
and ranges become lists; named tuples, dataclasses and pydantic models become maps of their fields, which a step that asks
for the class gets back as the class (artifacts.rebuild); numbers of numpy become numbers.
"""

from __future__ import annotations

import enum
import json
import os
import pathlib
import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.plain import fields_of, in_order, member_value
from penstock.artifacts.regular import check_size, open_regular
from penstock.expressions.secret import Secret
from penstock.graph.stored import Stored as Stored

if TYPE_CHECKING:
    from penstock.expressions.types import Type
    from penstock.graph import model

_encode = json.JSONEncoder(separators=(",", ":")).encode
_flat = json.encoder.c_make_encoder and json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, repr, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)
"""For maps of scalars, the outputs of most tasks. Python makes its own encoder anew for each call, which takes longer than the call."""
LIMIT: Final = 65536
"""Plain data whose JSON is longer than this is kept as a blob."""
_CHUNK: Final = 262144
_KEY: Final = "$stored"
_MARK: Final = f'"{_KEY}":'
_SCALARS: Final = frozenset({int, float, bool, str, type(None)})
_NOTHING_INSIDE: Final = frozenset({"null", "bool", "int", "float", "str"})
_MANY: Final = 256
"""So many objects inside an undeclared list or map are kept apart; with more the whole is one blob."""
_CAREFUL: Final = 10_000
"""Values up to this weight are compared with their type element by element."""


# -- as text ----------------------------------------------------------------------------------------------------------


def dumps(value: Any) -> str:
    """Compact JSON. Stored values are written as `{"$stored": {…}}`; a map of the user's that has this key is told apart."""
    if (
        _flat is not None
        and type(value) is dict
        and _KEY not in value
        and _SCALARS.issuperset(map(type, value.values()))
    ):
        return "".join(_flat(value, 0))
    try:
        text = _encode(value)  # nearly always there is nothing special in it
        if _MARK not in text:
            return text
    except TypeError:
        pass
    notes = 0

    def note(item: Any) -> Any:
        nonlocal notes
        if type(item) is Stored:
            notes += 1
            return {_KEY: {"kind": item.kind, "digest": item.digest, "size": item.size, "name": item.name}}
        if type(item) is Secret:
            notes += 1
            return {_KEY: {"secret": item.parts}}
        if isinstance(item, range):
            return list(item)
        if isinstance(item, Mapping):
            return dict(item)
        raise TypeError(f"{type(item).__name__} is not plain data")

    text = json.dumps(value, separators=(",", ":"), default=note)
    if _MARK in text and text.count(_MARK) != notes:
        text = json.dumps(_escaped(value), separators=(",", ":"), default=note)
    return text


def _escaped(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if isinstance(value, Mapping):
        inner = {key: _escaped(item) for key, item in value.items()}
        return {_KEY: {"pairs": [[key, item] for key, item in inner.items()]}} if _KEY in inner else inner
    return value


def loads(text: str) -> Any:
    return json.loads(text, object_hook=_unescape) if _MARK in text else json.loads(text)


def _unescape(found: dict[str, Any]) -> Any:
    if len(found) != 1 or _KEY not in found:
        return found
    inside = found[_KEY]
    if "secret" in inside:
        return Secret(*inside["secret"])
    return dict(inside["pairs"]) if "pairs" in inside else Stored(**inside)


# -- away -------------------------------------------------------------------------------------------------------------


def store_value(
    value: Any,
    blobs: Blobs,
    limit: int = LIMIT,
    type_: Type | None = None,
    name: str = "result",
    taken: list[Path] | None = None,
) -> Any:
    """The value as plain data with Stored in it; without a type, whatever it is. Files that were stored are added to `taken`. Raises
    ValueError with a sentence if it is not of the declared type or cannot be kept at all."""
    from penstock.expressions import types

    type_ = type_ or types.ANY
    if type(value) in _SCALARS and (type(value) is not str or len(value) < limit // 6):
        if type_.name == "any" or types.accepts(type_, value):
            if type_.name not in ("file", "dir") or value is None:
                return value
        elif type(value) is bool and type_.name in ("int", "float"):
            return int(value)
    shelf = _Shelf(blobs, -1 if type_.args and type_.name in ("list", "tuple", "dict") else _MANY, taken)
    try:
        plain = shelf.plain(value, type_)
    except (RecursionError, _TooMany):  # a value that contains itself, or is very deep: pickle knows how
        return _pickled(value, blobs, name)
    _compare(plain, type_, shelf.weight, name)
    if shelf.weight * 6 < limit:
        return plain
    text = dumps(plain)
    if len(text) <= limit:
        return plain
    data = text.encode()
    return Stored("json", blobs.put(data), len(data))


def _compare(plain: Any, type_: Type, weight: int, name: str) -> None:
    from penstock.expressions import types

    if type_.name in ("any", "object"):
        return
    good = is_of(type_, plain) if weight <= _CAREFUL else types.fits(types.of_value(plain), type_)
    if not good:
        shown = repr(plain) if not isinstance(plain, Stored) else f"a {plain.name or plain.kind}"
        raise ValueError(f"{name} is {shown if len(shown) <= 80 else shown[:79] + '…'}, which is not {type_}")


def is_of(type_: Type, value: Any) -> bool:
    """Is this value, which may be or hold a Stored, of that type? A pickle is no number, truth value or text,
    and no list of those; it may be a map, whose keys are not text."""
    from penstock.expressions import types

    if is_plain(value):
        return types.accepts(type_, value)
    if type_.name in ("any", "object"):
        return True
    if type_.name == "optional":
        return is_of(type_.args[0], value)
    if isinstance(value, Stored):
        match value.kind:
            case "pickle":
                return type_.name == "dict" or (
                    type_.name in ("list", "tuple") and type_.item.name not in _NOTHING_INSIDE
                )
            case "json":
                return type_.name not in ("null", "bool", "file", "dir")
            case _:
                return type_.name in ("file", "dir", "str")
    if isinstance(value, dict):
        return type_.name == "dict" and all(is_of(type_.item, item) for item in value.values())
    if type_.name == "tuple" and type_.args:
        return len(value) == len(type_.args) and all(map(is_of, type_.args, value))
    return type_.name in ("list", "tuple") and all(is_of(type_.item, item) for item in value)


class _TooMany(Exception):
    """So many objects that one blob for each is out of proportion."""


class _Shelf:
    """One value on its way into plain data."""

    def __init__(self, blobs: Blobs, leaves: int, taken: list[Path] | None) -> None:
        self.blobs = blobs
        self.taken = taken
        self.leaves = leaves
        """How many objects may still be kept apart."""
        from penstock.expressions.types import ANY

        self.any = ANY
        self.weight = 0
        """About the length of the JSON, in sixths at worst."""

    def plain(self, value: Any, want: Type) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return self.scalar(value, want)
        if want.name == "optional":
            want = want.args[0]
        if kind is list or kind is tuple:
            return self.items(value, want)
        if kind is range:
            if len(value) > 50_000_000:
                raise ValueError(f"{value!r} is too long to be written out as a list; return its bounds")
            return self.items(list(value), want)
        if kind is dict and all(type(key) is str for key in value):
            self.weight += sum(map(len, value)) + 2 * len(value)
            return {key: self.plain(item, want.item) for key, item in value.items()}
        if kind is Stored:
            self.weight += 100
            return value
        if isinstance(value, pathlib.PurePath):
            return self.file(Path(value))
        return self.other(value, want)

    def scalar(self, value: Any, want: Type) -> Any:
        if want.name == "optional" and value is not None:
            want = want.args[0]
        if type(value) is str:
            if want.name in ("file", "dir"):
                return self.file(Path(value))
            self.weight += len(value)
        else:
            self.weight += 4
        return int(value) if type(value) is bool and want.name in ("int", "float") else value

    def items(self, value: list[Any] | tuple[Any, ...], want: Type) -> list[Any]:
        self.weight += len(value)
        kinds = set(map(type, value))
        if kinds <= _SCALARS and (want.name != "tuple" and want.item.name not in ("file", "dir", "int", "float")):
            self.weight += 4 * len(value) if str not in kinds else sum(len(v) if type(v) is str else 4 for v in value)
            return value if type(value) is list else list(value)
        if kinds <= {int, float} and want.name == "list":
            self.weight += 4 * len(value)
            return value if type(value) is list else list(value)
        if want.name == "tuple" and len(want.args) == len(value):
            return [self.plain(item, inner) for item, inner in zip(value, want.args, strict=True)]
        item = want.item if want.name in ("list", "tuple") else self.any
        return [self.plain(one, item) for one in value]

    def other(self, value: Any, want: Type) -> Any:
        if isinstance(value, enum.Enum) and want.name not in ("any", "object"):
            return self.scalar(member_value(value), want)
        fields = fields_of(value)
        if fields is not None:
            self.weight += sum(map(len, fields)) + 2 * len(fields)
            return {key: self.plain(item, self.any) for key, item in fields.items()}
        cls = type(value)
        if cls.__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
            number = value.item()
            return self.plain(number, want) if type(number) in _SCALARS else self.leaf(value)
        base = {"int": int, "float": float, "str": str, "dict": dict}.get(want.name)
        if base is not None and isinstance(value, base):
            return self.plain(base(value), want)
        if (
            want.name in ("list", "tuple")
            and isinstance(value, Iterable)
            and not isinstance(value, str | bytes | Mapping)
        ):
            found = list(value)
            if isinstance(value, set | frozenset):
                found = in_order(found)
            return self.items(found, want)
        return self.leaf(value)

    def leaf(self, value: Any) -> Stored:
        if self.leaves == 0:
            raise _TooMany
        self.leaves -= 1
        self.weight += 100
        return _pickled(value, self.blobs, "the result")

    def file(self, path: Path) -> Stored:
        self.weight += 100
        if self.taken is not None:
            self.taken.append(path)
        return store_path(path, self.blobs)


def _pickled(value: Any, blobs: Blobs, name: str) -> Stored:
    """By pickle; by cloudpickle where classes or functions in it have no module that another process could import."""
    if not blobs.pickles:
        fix = "return plain data, a dataclass, a pydantic model or a file, or set PENSTOCK_PICKLES=yes"
        raise _forbidden(f"{name} is a {type(value).__name__}, which can only be passed on as a pickle", fix)
    try:
        data = pickle.dumps(value, protocol=5)
        if b"__main__" in data:
            raise pickle.PicklingError("a class of __main__")
    except Exception:  # whatever an object's own __reduce__ may raise
        import cloudpickle  # type: ignore[import-untyped]

        try:
            data = cloudpickle.dumps(value, protocol=5)
        except Exception as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise ValueError(
                f"{name} is a {type(value).__name__}, which cannot be passed on: {reason}. Return plain data, a file, or an"
                " object that pickle can hold"
            ) from None
    return Stored("pickle", blobs.put(data), len(data), type(value).__qualname__)


def _forbidden(message: str, fix: str) -> Exception:
    from penstock.errors import Problem, UserError

    return UserError(Problem("P749", f"{message}, and PENSTOCK_PICKLES=no forbids pickles", fix))


def store_path(path: Path, blobs: Blobs) -> Stored:
    """A file or folder as a Stored. Raises ValueError with a sentence."""
    if path.is_dir():
        from penstock.artifacts import folders

        digest, size = folders.put(path, blobs)
        return Stored("dir", digest, size, path.absolute().name)
    if not path.exists():
        raise ValueError(
            f"there is no file {str(path)!r}; a path that a step gives back must be there. Text: str(path)"
        )
    digest, size = blobs.put_file(path)  # of a link: what it leads to
    return Stored("file", digest, size, path.name)


# -- and back ---------------------------------------------------------------------------------------------------------


def is_plain(value: Any) -> bool:
    """Is there no Stored in it?"""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is list or kind is tuple:
        return set(map(type, value)) <= _SCALARS or all(map(is_plain, value))
    if kind is dict:
        return all(map(is_plain, value.values()))
    return not isinstance(value, Stored)


def load_value(value: Any, blobs: Blobs, folder: Path | Callable[[], Path]) -> Any:
    """What a consumer works with: the objects themselves, and files as paths below `folder`, which is made if needed."""
    if is_plain(value):
        return value
    if isinstance(value, list | tuple):
        return [load_value(item, blobs, folder) for item in value]
    if isinstance(value, dict):
        return {key: load_value(item, blobs, folder) for key, item in value.items()}
    assert isinstance(value, Stored)
    if value.kind == "json":
        return load_value(loads(blobs.get(value.digest).decode()), blobs, folder)
    if value.kind == "pickle":
        return _unpickled(value, blobs)
    place = folder() if callable(folder) else folder
    return fetch(value, blobs, place / value.digest.removeprefix("sha256:")[:12] / (value.name or "file"))


def fetch(value: Stored, blobs: Blobs, to: Path) -> Path:
    """A stored file or folder, laid at this very place."""
    if os.path.lexists(to):
        return to  # the same file, twice among the inputs of one step
    if value.kind == "dir":
        from penstock.artifacts import folders

        folders.fetch(value.digest, blobs, to)
    else:
        blobs.fetch(value.digest, to)
    return to


def _unpickled(value: Stored, blobs: Blobs) -> Any:
    if not blobs.pickles:
        fix = "run the step that made it again with plain data as its result, or set PENSTOCK_PICKLES=yes"
        raise _forbidden(f"the value of class {value.name} is stored as a pickle", fix)
    data = blobs.get(value.digest)
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        from penstock.errors import Problem, UserError

        fix = "define the class in a module that both steps import, or pass plain data"
        problem = Problem("P702", f"a value of class {value.name} cannot be read by this step: {error}", fix)
        raise UserError(problem) from None


# -- files of commands ------------------------------------------------------------------------------------------------


def read_output(output: model.Output, path: Path, blobs: Blobs, loosely: bool = False) -> Any:
    """What a command left at `path`, as the declared type. Raises ValueError with a sentence. `loosely`: what is declared as a file
    may be a folder, as with artifacts of other systems, which do not tell them apart."""
    type_ = output.type
    inner = type_.args[0] if type_.name == "optional" else type_
    if inner.name in ("file", "dir"):
        if not path.exists():
            raise ValueError(f"the output {output.name!r} was not written: there is no file {path}")
        stored = store_path(path, blobs)
        if stored.kind != inner.name and not (loosely and inner.name == "file"):
            raise ValueError(f"the output {output.name!r} is a {stored.kind}, which is not {type_}")
        return stored
    try:
        text = _read(path, blobs.limits.value, f"the output {output.name!r}").decode()
    except FileNotFoundError:
        raise ValueError(f"the output {output.name!r} was not written: there is no file {path}") from None
    except IsADirectoryError:
        raise ValueError(f"the output {output.name!r} is a folder; declare its type as dir") from None
    except UnicodeDecodeError:
        raise ValueError(f"the output {output.name!r} is not text; declare its type as file") from None
    value = _parsed(text.removesuffix("\n"), type_, output.name)
    return store_value(value, blobs, type_=type_, name=f"the output {output.name!r}")


def _read(path: Path, limit: int, what: str) -> bytes:
    """Raises ValueError with a sentence, OSError."""
    pieces: list[bytes] = []
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size  # of a file of the kernel it is 0
        check_size(what, size, limit, "PENSTOCK_LARGEST_VALUE")
        size = 0
        while piece := file.read(_CHUNK):
            size += len(piece)
            check_size(what, size, limit, "PENSTOCK_LARGEST_VALUE")
            pieces.append(piece)
    return b"".join(pieces)


def _parsed(text: str, type_: Type, name: str) -> Any:
    if type_.name == "str" or (type_.name == "optional" and type_.args[0].name == "str"):
        return text
    wrong = f"the output {name!r} is {text if len(text) <= 60 else text[:59] + '…'!r}, which is not {type_}"
    word = text.strip()
    try:
        if type_.name == "int":
            return int(word)
        if type_.name == "float":
            return float(word)
    except ValueError:
        raise ValueError(wrong) from None
    if type_.name == "bool":
        if word.lower() not in ("true", "false", "1", "0"):
            raise ValueError(wrong)
        return word.lower() in ("true", "1")
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        if type_.name in ("any", "object"):
            return text
        if type_.name == "optional":
            return None if not word else _parsed(text, type_.args[0], name)
        if type_.name == "null" and not word:
            return None
        raise ValueError(f"{wrong}: it is not JSON") from None


def leads_somewhere(text: str) -> bool:
    """Is it a path of something that is there? Text of any length may be asked."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or a zero byte in it
        return False


def write_input(given: model.Input, value: Any, path: Path, blobs: Blobs) -> None:
    """A value laid as a file: text as it is, everything else as JSON, stored files as themselves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, Stored) and value.kind in ("file", "dir"):
        fetch(value, blobs, path)
        return
    if isinstance(value, Stored) and value.kind == "pickle":
        blobs.fetch(value.digest, path)  # a program that knows pickle can read it; there is no better form
        return
    if isinstance(value, str) and given.type.name in ("file", "dir") and leads_somewhere(value):
        store = store_path(Path(value), blobs)
        fetch(store, blobs, path)
        return
    path.write_text(as_text(value, blobs), encoding="utf-8")


def as_text(value: Any, blobs: Blobs) -> str:
    """A value as a word of a command or the content of a file. Stored plain data is read; a stored file is named."""
    from penstock.expressions.evaluate import to_text

    if isinstance(value, Stored) and value.kind == "json":
        value = loads(blobs.get(value.digest).decode())
    try:
        return to_text(value)
    except ValueError as error:
        raise ValueError(f"{error}; pass it to a function step, or write it to a file first") from None
