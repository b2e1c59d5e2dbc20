"""Workflow <-> plain data <-> canonical JSON and YAML, and the digest.

Called by service (files), plan.dedupe (keys), author.explain (comparing) and the store. The plain form leaves out
every field that has its default value. So two spellings of the same workflow give the same bytes and the same digest, in every
process and on every platform. Source positions are not part of it.

Readers refuse unknown fields: each unknown field is a Problem with its path and the nearest known name.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields, replace
from enum import Enum
from functools import cache
from itertools import compress
from operator import attrgetter, is_not
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from penstock.errors import DocumentError, Problem, Source, instead, nearest
from penstock.expressions import types
from penstock.expressions.parse import Expr, ExpressionError, Node, reference, references
from penstock.expressions.secret import ROOT as SECRETS
from penstock.expressions.secret import TOKEN, URL, Secret
from penstock.expressions.selector import JOINED, PARTS, condition_of
from penstock.expressions.template import Template, parse_template, show_template
from penstock.expressions.types import Type
from penstock.graph import model, quantity
from penstock.graph.model import ACTIONS, MISSING, Edge, Missing, Resource, Step, Workflow
from penstock.graph.step_text import StepTexts, canonical
from penstock.graph.text import Marks, read_json, read_yaml

VERSION = "penstock/v1"
KIND = "Workflow"
_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")


# -- out --------------------------------------------------------------------------------------------------------------


def to_data(workflow: Workflow) -> dict[str, Any]:
    """The document as dicts, lists, strings and numbers."""
    return {"apiVersion": VERSION, "kind": KIND, **encode(workflow)}


def to_json(workflow: Workflow) -> str:
    """Canonical: keys sorted, no spaces, one way to write each number."""
    texts = StepTexts(encode)
    pieces = {"apiVersion": canonical(VERSION), "kind": canonical(KIND), **_pieces(workflow, texts)}
    return _object(pieces)


def _pieces(workflow: Workflow, texts: StepTexts) -> dict[str, str]:
    """The canonical text of each field that is written."""
    around = replace(workflow, steps=(), on_exit=(), definitions=())
    pieces = {name: canonical(value) for name, value in encode(around).items()}
    if workflow.steps:
        pieces["steps"] = _array(map(texts.text, workflow.steps))
    if workflow.on_exit:
        pieces["on_exit"] = _array(map(texts.text, workflow.on_exit))
    if workflow.definitions:
        pieces["definitions"] = _array(_object(_pieces(one, texts)) for one in workflow.definitions)
    return pieces


def _object(pieces: Mapping[str, str]) -> str:
    return "{" + ",".join([f'"{name}":{pieces[name]}' for name in sorted(pieces)]) + "}"


def _array(texts: Iterable[str]) -> str:
    return "[" + ",".join(texts) + "]"


def to_yaml(workflow: Workflow) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
        # YAML readers disagree about some line breaks that PyYAML folds. In double quotes it escapes them.
        style = '"' if _BREAKS.intersection(data) else "|" if "\n" in data.strip() else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump(
        to_data(workflow), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=False
    )


def digest(workflow: Workflow) -> str:
    """`sha256:…` over the canonical JSON."""
    return digest_of_text(to_json(workflow))


def digest_of(data: Any) -> str:
    return digest_of_text(canonical(data))


def digest_of_text(text: str) -> str:
    """The digest of a document that is canonical already."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encode(thing: Any) -> Any:
    """Any part of the model as plain data."""
    return _encoder(cast(Any, type(thing)))(thing)


@cache
def _encoder(cls: Any) -> Callable[[Any], Any]:
    written: dict[Any, Callable[[Any], Any]] = {
        Step: _encode_step,
        Edge: _encode_edge,
        model.Input: _encode_input,
        model.Output: _encode_output,
    }
    if cls in written:
        return written[cls]
    if hasattr(cls, "__dataclass_fields__") and cls not in (Expr, Template, Type):
        return _encode_fields_of(cls)
    return encode_value


def _encode_input(given: model.Input) -> dict[str, Any]:
    """Written by hand, like the next one: a large workflow has more of these than of anything else."""
    data = {"name": given.name, "value": _encode_field("value", given.value)}
    if given.type is not types.ANY and given.type != types.ANY:
        data["type"] = encode_value(given.type)
    if given.path is not None:
        data["path"] = given.path
    if given.default is not MISSING:
        data["default"] = _encode_field("default", given.default)
    return data


def _encode_output(output: model.Output) -> dict[str, Any]:
    data: dict[str, Any] = {"name": output.name}
    if output.type is not types.ANY and output.type != types.ANY:
        data["type"] = encode_value(output.type)
    if output.path is not None:
        data["path"] = output.path
    if output.value is not MISSING:
        data["value"] = _encode_field("value", output.value)
    if output.default is not MISSING:
        data["default"] = _encode_field("default", output.default)
    return data


def _encode_fields_of(cls: type) -> Callable[[Any], dict[str, Any]]:
    hints = get_type_hints(cls)
    kept = [f for f in fields(cls) if f.name != "source" or cls not in (Step, Workflow)]
    plan = [
        (f.name, f.default_factory() if f.default_factory is not NO_DEFAULT else f.default, hints[f.name] in _TEXTS)
        for f in kept
    ]
    defaults = tuple(default for _, default, _ in plan)
    names = [f.name for f in kept]
    get = attrgetter(*names) if len(names) > 1 else lambda thing: (getattr(thing, names[0]),)

    def run(thing: Any) -> dict[str, Any]:
        data = {}
        values = get(thing)
        # Most fields hold their default: they are skipped without a Python operation for each.
        for (name, default, text), value in compress(zip(plan, values, strict=True), map(is_not, values, defaults)):
            kind = type(value)
            if value == default and (kind is type(default) or name in _SECONDS):
                continue
            if kind is str:
                data[name] = value if text else encode_value(value)
            else:
                data[name] = _encode_text(value) if text else _encode_field(name, value)
        return data

    return run


_TEXTS: tuple[Any, ...] = (
    str,
    str | None,
    str | int | None,
    tuple[str, ...],
    tuple[str, ...] | None,
    Mapping[str, str],
)
"""Fields that hold text and no expressions: `${{` in them is text, in both directions."""


def _encode_text(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


_PLAIN = frozenset({int, bool, type(None)})
_CONDITIONS = ("when", "trigger", "condition", "filter", "at_once", "timeout_by")
"""Fields that are an expression, written without the marks of one."""
_SECONDS = frozenset({"timeout", "duration", "ttl", "initial", "factor", "longest", "jitter", "within", "heartbeat"})


def _encode_field(name: str, value: Any) -> Any:
    return _field_encoder(name, cast(Any, type(value)))(value)


@cache
def _field_encoder(name: str, kind: Any) -> Callable[[Any], Any]:
    """How a field of this name is written when it holds a value of this type. Cached: a large workflow has few combinations."""
    if kind in _PLAIN:
        return lambda value: value
    if name in _SECONDS and issubclass(kind, float):
        # 600 and 600.0 seconds are equal and must have one digest
        return lambda value: int(value) if value.is_integer() else encode_value(value)
    if name == "resources":
        return _encode_resources
    if name in JOINED and issubclass(kind, Expr):
        return _encode_condition
    if name in (*_CONDITIONS, *model.ANSWER_BY) and issubclass(kind, Expr):
        return lambda value: value.text
    if name in ("outcomes", "tolerates"):
        return lambda value: sorted(outcome.value for outcome in value)
    if issubclass(kind, tuple):
        return _encode_tuple
    if hasattr(kind, "__dataclass_fields__") and not issubclass(kind, Expr | Template | Type):
        return _encoder(kind)
    return encode_value


def _encode_condition(value: Expr) -> str:
    """What would be read as Argo's form of another condition is marked as an expression."""
    plain = all(len(path) > 1 or path[0] in PARTS for path in references(value.text))
    return value.text if plain else show_template(value)


def _encode_resources(value: Mapping[str, int]) -> dict[str, Any]:
    shown = {resource: quantity.show(amount, resource) for resource, amount in sorted(value.items())}
    return {resource: int(text) if text.isdigit() else text for resource, text in shown.items()}


def _encode_tuple(value: tuple[Any, ...]) -> Any:
    if value and hasattr(value[0], "__dataclass_fields__") and not isinstance(value[0], Expr | Template):
        return [encode(item) for item in value]
    return encode_value(value)


def _encode_edge(edge: Edge) -> Any:
    if edge.outcomes == model.NORMAL:
        return edge.step
    return {"step": edge.step, "outcomes": sorted(outcome.value for outcome in edge.outcomes)}


@cache
def _plain_step_encoder() -> Callable[[Any], dict[str, Any]]:
    return _encode_fields_of(Step)


def _encode_step(step: Step) -> dict[str, Any]:
    data = _plain_step_encoder()(step)
    action = data.pop("action")
    return {"name": data.pop("name"), step.action.kind: action, **data}


def encode_value(value: Any) -> Any:
    """A Value: expressions become `${{ … }}` text."""
    kind = type(value)
    if kind is Expr:
        return show_template(value)
    if kind is str:
        return value if "${{" not in value else show_template(value)
    if kind is Type:
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str) and not isinstance(value, Enum):
        return value if "${{" not in value else show_template(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no place in a document")
        return value
    if isinstance(value, Expr | Template):
        return show_template(value)
    if isinstance(value, tuple | list):
        if len(value) > 1024 and all(type(item) in (int, bool) for item in value):
            return list(value)
        return [encode_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode_value(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Type):
        return str(value)
    if isinstance(value, Secret):  # of an action whose expressions have been replaced
        named = enumerate(value.parts)
        parts = [Expr.tree(_secret(part)) if place % 2 else part for place, part in named]
        return show_template(Template(tuple(part for part in parts if part != "")))
    raise TypeError(f"{type(value).__name__} has no place in a document")


def _secret(name: str) -> Node:
    return reference(*name.split(".")) if name in (TOKEN, URL) else reference(SECRETS, name)


# -- in ---------------------------------------------------------------------------------------------------------------


def from_text(text: str, file: str = "<text>") -> Workflow:
    """Penstock YAML or JSON -> Workflow. Raises DocumentError with every Problem found."""
    marks: Marks
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in ("{", "["):
        data, marks = read_json(text, file)
    else:
        data, marks = read_yaml(text, file)
    return from_data(data, file=file, marks=marks)


def from_data(data: Any, file: str = "<data>", marks: Marks | None = None) -> Workflow:
    """Plain data -> Workflow. Raises DocumentError with every Problem found."""
    reader = _Reader(file, marks or {})
    if not isinstance(data, dict):
        reader.problem(
            "P105", "$", f"a workflow is a mapping, and this is {_kind(data)}", "begin with `apiVersion: penstock/v1`"
        )
        raise DocumentError(reader.problems)
    version, found = data.get("apiVersion"), data.get("kind")
    if version != VERSION or found != KIND:
        reader.problem("P104", "$.apiVersion", *_foreign(version, found))
        raise DocumentError(reader.problems)
    try:
        workflow = reader.dataclass(
            Workflow, {key: value for key, value in data.items() if key not in ("apiVersion", "kind")}, "$"
        )
    except RecursionError:
        reader.problem("P101", "$", "nested too deep", "flatten the document")
    if reader.problems:
        raise DocumentError(reader.problems)
    return cast(Workflow, workflow)


def _foreign(version: object, kind: object) -> tuple[str, str]:
    if isinstance(version, str) and version.startswith("penstock/"):
        if version != VERSION:
            return (
                f"this is {version!r}, and this Penstock reads {VERSION!r}",
                "use the Penstock that wrote it, or a newer one",
            )
        return f"the kind is {kind!r}, not {KIND!r}", f"write `kind: {KIND}`"
    if isinstance(version, str) and isinstance(kind, str):
        return (
            f"{kind} of {version} is not a Penstock workflow",
            f"a Penstock document has `apiVersion: {VERSION}` and `kind: {KIND}`",
        )
    return (
        "this is not a Penstock workflow: it has no apiVersion",
        f"begin with `apiVersion: {VERSION}` and `kind: {KIND}`",
    )


def _kind(value: object) -> str:
    names = {
        NoneType: "empty",
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), type(value).__name__)


class _Reader:
    """Collects Problems and continues, so that one run reports every mistake."""

    LIMIT = 50

    def __init__(self, file: str, marks: Marks) -> None:
        self.file = file
        self.marks = marks
        self.problems: list[Problem] = []

    def source(self, path: str) -> Source | None:
        while path not in self.marks and "." in path:
            path = path.rpartition(".")[0]
        line, column = self.marks.get(path, (0, 0))
        return (
            Source(self.file, line, column)
            if line
            else Source(self.file, 1)
            if self.file[:1] not in ("", "<")
            else None
        )

    def problem(self, code: str, path: str, message: str, fix: str) -> None:
        if len(self.problems) < self.LIMIT:
            self.problems.append(
                Problem(code, message, fix, where=path.removeprefix("$").removeprefix("."), source=self.source(path))
            )

    def dataclass(self, cls: type, data: Any, path: str) -> Any:
        """The object, with defaults where a field was wrong; _LOST if the object cannot be made."""
        if not isinstance(data, dict):
            self.problem("P105", path, f"expected a mapping, found {_kind(data)}", f"write {_example(cls)}")
            return _LOST
        known = _fields(cls)
        given: dict[str, Any] = {}
        for key, value in data.items():
            if key in known:
                found = self.field(cls, key, known[key], value, f"{path}.{key}")
                given[key] = _default(cls, key) if found is _LOST else found
            elif cls is Step and key in ACTIONS:
                given.setdefault("action", self.dataclass(ACTIONS[key], value, f"{path}.{key}"))
            else:
                names = [*known, *ACTIONS] if cls is Step else [*known]
                self.problem(
                    "P103",
                    _under(path, key),
                    f"{str(key)[:80]!r} is not a field of {_noun(cls)}",
                    f"{instead(str(key)[:80], names)} Known: {', '.join(names)}",
                )
        if cls is Step:
            self.one_action(data, path)
        for name in _required(cls):
            if name not in given and not (cls is Step and name == "action"):
                self.problem("P106", path, f"{_noun(cls)} has no {name!r}", f"add `{name}:`")
        if any(given.get(name, _LOST) is _LOST for name in _required(cls)):
            return _LOST
        if cls in (Step, Workflow) and self.marks:
            given["source"] = self.source(path)
        return cls(**given)

    def one_action(self, data: dict[str, Any], path: str) -> None:
        kinds = [key for key in data if key in ACTIONS]
        if len(kinds) != 1:
            found = "does nothing" if not kinds else f"does several things: {', '.join(kinds)}"
            self.problem(
                "P107", path, f"the step {data.get('name')!r} {found}", f"give it exactly one of {', '.join(ACTIONS)}"
            )

    def field(self, cls: type, name: str, hint: Any, value: Any, path: str) -> Any:
        if name == "resources":
            return self.resources(value, path)
        try:
            if cls is Resource and name in JOINED and value is not None:
                return self.condition(value, path, JOINED[name])
            return self.typed(hint, value, path)
        except _Wrong as wrong:
            self.problem(wrong.code, wrong.path, wrong.message, wrong.fix)
            return _LOST

    def resources(self, value: Any, path: str) -> dict[str, int]:
        if not isinstance(value, dict):
            self.problem(
                "P105", path, f"expected a mapping of resources, found {_kind(value)}", "write {cpu: 2, memory: 4Gi}"
            )
            return {}
        found = {}
        for name, amount in value.items():
            try:
                if not isinstance(amount, str | int | float):
                    raise ValueError(f"{_kind(amount)} is not a quantity")
                found[str(name)] = quantity.parse(amount)
            except ValueError as error:
                self.problem("P108", _under(path, name), str(error), "write a Kubernetes quantity: 2, 500m, 4Gi")
        return found

    def typed(self, hint: Any, value: Any, path: str) -> Any:
        """`value` as the type hint requires. Raises _Wrong."""
        if hint is Any:
            return self.value(value, path)
        if hint is Expr:
            return self.expression(value, path)
        if hint is Type:
            return self.type(value, path)
        if hint is Edge and isinstance(value, str):
            return Edge(value)
        origin, args = _anatomy(hint)
        if origin in (Union, UnionType):
            return self.union(args, value, path)
        if origin in (tuple, frozenset):
            if not isinstance(value, list):
                raise _Wrong(path, f"expected a list, found {_kind(value)}", "write a list: [ … ]")
            if args[0] is Any:
                return self.value(value, path)
            items = (self.item(args[0], item, f"{path}[{i}]") for i, item in enumerate(value))
            return origin(item for item in items if item is not _LOST)
        if origin is not None and issubclass(origin, Mapping):
            if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
                raise _Wrong(path, f"expected a mapping with text as keys, found {_kind(value)}", "write {name: value}")
            return {key: self.typed(args[1], item, _under(path, key)) for key, item in value.items()}
        if isinstance(hint, type) and issubclass(hint, Enum):
            return self.enum(hint, value, path)
        if hasattr(hint, "__dataclass_fields__"):
            return self.dataclass(hint, value, path)
        return self.scalar(hint, value, path)

    def item(self, hint: Any, value: Any, path: str) -> Any:
        try:
            return self.typed(hint, value, path)
        except _Wrong as wrong:
            self.problem(wrong.code, wrong.path, wrong.message, wrong.fix)
            return _LOST

    def union(self, options: tuple[Any, ...], value: Any, path: str) -> Any:
        if value is None and NoneType in options:
            return None
        rest = [option for option in options if option not in (NoneType, Missing)]
        if len(rest) == 1:
            return self.typed(rest[0], value, path)
        for option in rest:
            if option in (str, int, float) and type(value) is option:
                return value
        names = " or ".join(option.__name__ for option in rest)
        raise _Wrong(path, f"expected {names}, found {_kind(value)}", f"write {names}")

    def enum(self, hint: type[Enum], value: Any, path: str) -> Any:
        known = [member.value for member in hint]
        if value not in known:
            raise _Wrong(
                path,
                f"{str(value)[:80]!r} is not one of {', '.join(known)}",
                f"use one of those.{nearest(str(value)[:80], known)}",
                "P109",
            )
        return hint(value)

    def scalar(self, hint: type, value: Any, path: str) -> Any:
        if hint is float and type(value) in (int, float):
            if not abs(value) < 1e300:
                raise _Wrong(path, "expected a number that a machine can count to", "write a smaller number")
            return float(value) if not float(value).is_integer() else int(value)
        if type(value) is not hint:
            wanted = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[hint]
            hint_text = (
                f'write it in quotes: "{value}"'
                if hint is str and isinstance(value, int | float)
                else f"write {wanted}"
            )
            raise _Wrong(path, f"expected {wanted}, found {_kind(value)}", hint_text)
        return value

    def condition(self, value: Any, path: str, joined_by: str) -> Expr:
        """Of a resource step: an expression, or Argo's form of it."""
        if not isinstance(value, str) or value.lstrip().startswith("${{"):
            return self.expression(value, path)
        try:
            return condition_of(value, joined_by)
        except ExpressionError as error:
            raise _bad_expression(path, value, error) from None

    def expression(self, value: Any, path: str) -> Expr:
        if isinstance(value, bool):
            return Expr.of("true" if value else "false")
        if not isinstance(value, str):
            raise _Wrong(path, f"expected an expression, found {_kind(value)}", "write it as text: params.rows > 1000")
        try:
            inner = parse_template(value) if value.lstrip().startswith("${{") else None
            return inner if isinstance(inner, Expr) else Expr.of(value)
        except ExpressionError as error:
            raise _bad_expression(path, value, error) from None

    def type(self, value: Any, path: str) -> Type:
        try:
            return types.parse(value if isinstance(value, str) else repr(value))
        except ValueError as error:
            raise _Wrong(
                path, str(error), f"use one of {', '.join(types.SCALARS)}, list[…], dict[…], optional[…]", "P109"
            ) from None

    def value(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            try:
                return parse_template(value) if "${{" in value else value
            except ExpressionError as error:
                raise _bad_expression(path, value, error) from None
        if isinstance(value, list):
            if len(value) > 1024 and all(type(item) in (int, float, bool) for item in value):
                return tuple(value)
            return tuple(self.value(item, f"{path}[{i}]") for i, item in enumerate(value))
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise _Wrong(path, "a key of this mapping is not text", "put the key in quotes")
            return {key: self.value(item, _under(path, key)) for key, item in value.items()}
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        raise _Wrong(path, f"{value!r} is not a value that JSON has", "write it as text, in quotes")


_LOST: Any = object()
"""Marks a value that could not be read; a Problem says why. Null is a value and not this."""


def _under(path: str, key: object) -> str:
    """The path of a key. Long keys are cut."""
    return f"{path}.{key}" if len(path) + len(str(key)) < 1000 else path


class _Wrong(Exception):
    def __init__(self, path: str, message: str, fix: str, code: str = "P105") -> None:
        super().__init__(message)
        self.path, self.message, self.fix, self.code = path, message, fix, code


def _bad_expression(path: str, text: str, error: ExpressionError) -> _Wrong:
    message = f"in {text[:200]!r}, at character {error.position + 1}: {error}"
    return _Wrong(path, message, "see `penstock explain P110`", "P110")


@cache
def _anatomy(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def _fields(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    hidden = {"action"} if cls is Step else set()
    if cls in (Step, Workflow):
        hidden.add("source")
    return {f.name: hints[f.name] for f in fields(cls) if f.name not in hidden}


@cache
def _required(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls) if f.default is NO_DEFAULT and f.default_factory is NO_DEFAULT)


def _default(cls: type, name: str) -> Any:
    for f in fields(cls):
        if f.name == name and f.default is not NO_DEFAULT:
            return f.default
        if f.name == name and f.default_factory is not NO_DEFAULT:
            return f.default_factory()
    return _LOST


def _noun(cls: type) -> str:
    known = {"ForEach": "a for-each", "While": "a while loop", "Nested": "a nested workflow"}
    name = cls.__name__.lower()
    return known.get(cls.__name__, f"{'an' if name[0] in 'aeio' else 'a'} {name}")


def _example(cls: type) -> str:
    return "{" + ", ".join(f"{name}: …" for name in list(dict.fromkeys((*_required(cls), *_fields(cls))))[:2]) + "}"


__all__ = [
    "MISSING",
    "canonical",
    "digest",
    "digest_of",
    "encode",
    "from_data",
    "from_text",
    "to_data",
    "to_json",
    "to_yaml",
]
