"""Values and expressions -> Python text. Called by program and steps."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from penstock.author.explain.layout import Imports, needs_no_escapes, python_type, quoted
from penstock.expressions.parse import Binary, Call, Const, Expr, Index, Member, Node, Unary, path_of
from penstock.expressions.template import Template, show_template
from penstock.expressions.types import Type
from penstock.graph.model import MISSING

_PUBLIC = frozenset("AnswerRule Backoff Cache Callback CallbackRetry Retry Toleration".split())


class _NoOperators(ValueError):
    """Operators of Python cannot say this; the text of the expression can."""


@dataclasses.dataclass
class ValueWriter:
    """Writes values, with the variables that parameters, steps and loop items have in the text."""

    params: dict[str, str] = dataclasses.field(default_factory=dict)
    steps: dict[str, str] = dataclasses.field(default_factory=dict)
    items: Mapping[str, str] = dataclasses.field(default_factory=dict)
    by_name: frozenset[str] = frozenset()
    """Steps that call a workflow that is not written yet: their outputs are not known where they are written."""

    def value(self, value: Any) -> str:
        if isinstance(value, Expr):
            try:
                return self._node(value.node)
            except _NoOperators:
                return repr(show_template(value))
        if isinstance(value, Template):
            return self._block(value) or self._f_string(value)
        if isinstance(value, str):
            return quoted(show_template(value))
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.value(item)}" for key, item in value.items()) + "}"
        return repr(value)

    def condition(self, expr: Expr) -> str:
        try:
            return self._node(expr.node)
        except _NoOperators:
            return repr(expr.text)

    # -- templates

    def _f_string(self, value: Template) -> str:
        parts = []
        try:
            for part in value.parts:
                if isinstance(part, str):
                    parts.append(repr(part)[1:-1].replace("{", "{{").replace("}", "}}"))
                    if repr(part)[0] != "'" or "${{" in part or part.endswith("$"):
                        raise _NoOperators
                else:
                    parts.append(self._placeholder(part))
        except _NoOperators:
            return repr(show_template(value))
        return "f'" + "".join(parts) + "'"

    def _block(self, value: Template) -> str | None:
        """An f-string in triple quotes, if the text has several lines and needs no escapes."""
        text = ""
        try:
            for part in value.parts:
                if isinstance(part, str):
                    if not needs_no_escapes(part) or "${{" in part:
                        return None
                    text += part.replace("{", "{{").replace("}", "}}")
                else:
                    text += self._placeholder(part)
        except _NoOperators:
            return None
        plain = "".join(part for part in value.parts if isinstance(part, str))
        if "\n" not in plain.strip("\n") or re.search(r"\$\{[^{]", text) or text.endswith('"'):
            return None
        return f'f"""\\\n{text}"""'

    def _placeholder(self, expr: Expr) -> str:
        text = self._node(expr.node)
        if set(text) & set("'\"\\"):
            raise _NoOperators
        return "{" + text + "}"

    # -- expressions

    def _node(self, node: Node) -> str:
        """Operators on References that build the same tree. Raises _NoOperators."""
        path = path_of(node)
        if path is not None:
            found = self._path(path)
            if found is not None:
                return found
        match node:
            case Member(of, name):
                return f"{self._node(of)}[{name!r}]"
            case Index(of, Const(str() | int() as key)) if not isinstance(key, bool) and not _is_negative(key):
                return f"{self._node(of)}[{key!r}]"
            case Index(of, index):
                return f"{self._node(of)}[{self._node(index)}]"
            case Binary("==" | "!=" | "<" | "<=" | ">" | ">=" as op, left, right):
                other = _constant(right) if isinstance(right, Const) else self._operand(right)
                return f"{self._operand(left)} {op} {other}"
            case Binary("&&" | "||" as op, left, right):
                return f"{self._operand(left)} {'&' if op == '&&' else '|'} {self._operand(right)}"
            case Unary("!", of):
                return f"~{self._operand(of)}"
            case Call("size", (of,), None):
                return f"{self._node(of)}.size()"
            case Binary("in", item, of):
                return f"{self._node(of)}.contains({_constant(item) if isinstance(item, Const) else self._node(item)})"
            case _:
                raise _NoOperators

    def _operand(self, node: Node) -> str:
        text = self._node(node)
        return f"({text})" if isinstance(node, Binary) and node.op != "in" else text

    def _path(self, path: tuple[str, ...]) -> str | None:
        """The variable of a path; None if it has none, but a part of it may have."""
        match path:
            case ("params", name) if name in self.params:
                return self.params[name]
            case ("item", name) if name in self.items:
                return self.items[name]
            case ("steps", name, *_) if name in self.by_name:
                raise _NoOperators
            case ("steps", name, "outputs", output) if name in self.steps:
                return f"{self.steps[name]}.outputs[{output!r}]"
            case ("steps", name, "outcome") if name in self.steps:
                return f"{self.steps[name]}.outcome"
            case (_,):
                raise _NoOperators
            case _:
                return None


def _is_negative(key: str | int) -> bool:
    return isinstance(key, int) and key < 0


def _constant(node: Const) -> str:
    return repr(show_template(node.value)) if isinstance(node.value, str) else repr(node.value)


class ModelWriter:
    """Writes parts of the graph's model as calls of their classes, for what the object form has no word for."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports

    def built(self, thing: Any) -> str:
        """`Lock(name='a')`: the fields that differ from their default."""
        name = type(thing).__name__
        self._imports.use(name, "penstock" if name in _PUBLIC else "penstock.graph.model")
        args = []
        for field in dataclasses.fields(thing):
            value = getattr(thing, field.name)
            default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            if value is not default and value != default:
                args.append(f"{field.name}={self.part(value)}")
        return f"{name}({', '.join(args)})"

    def part(self, value: Any) -> str:
        use = self._imports.use
        if isinstance(value, Expr):
            return f"{use('Expr', 'penstock.expressions.parse')}.of({value.text!r})"
        if isinstance(value, Template):
            return f"{use('parse_template', 'penstock.expressions.template')}({show_template(value)!r})"
        if isinstance(value, Type):
            return f"{use('parse', 'penstock.expressions.types')}({str(value)!r})"
        if dataclasses.is_dataclass(value):
            return self.built(value)
        if isinstance(value, tuple):
            return f"({''.join(self.part(item) + ', ' for item in value)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.part(item)}" for key, item in value.items()) + "}"
        return repr(value)


def declared(
    imports: Imports,
    values: ValueWriter,
    name: str,
    type_: Type,
    default: Any = MISSING,
    choices: tuple[Any, ...] = (),
    doc: str = "",
    path: str | None = None,
) -> str:
    """`WorkflowParam('rows', int)`"""
    args = [repr(name)]
    if type_.name != "any":
        args.append(python_type(type_))
    if default is not MISSING:
        text = values.value(default)
        args.append(text if len(args) == 2 else f"default={text}")
    if choices:
        args.append(f"choices={choices!r}")
    if path is not None:
        args.append(f"path={path!r}")
    if doc:
        args.append(f"doc={doc!r}")
    return f"{imports.use('WorkflowParam')}({', '.join(args)})"
