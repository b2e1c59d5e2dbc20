"""Values that exist only when the workflow runs, in the object form. Called by authors, jobs, control and options.

A Reference stands for an expression. Comparing and combining References builds larger expressions. In an f-string a Reference
prints as `${{ … }}`, which every field of a job understands.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NoReturn

from penstock.artifacts.plain import member_value, plain
from penstock.author.annotations import to_type
from penstock.author.errors import author_error
from penstock.expressions import types
from penstock.expressions.evaluate import kind
from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    Expr,
    ExpressionError,
    Index,
    Member,
    Node,
    Unary,
    is_identifier,
    path_of,
    reference,
    show,
)
from penstock.expressions.selector import JOINED, condition_of
from penstock.expressions.template import Template, parse_template
from penstock.expressions.types import ANY, BOOL, Type
from penstock.graph.model import MISSING, Output, Parameter, Value
from penstock.graph.rewrite import as_node


class Reference:
    """A value of the run. Compare it, index it, combine conditions with & | ~, use it in f-strings."""

    __slots__ = ("node", "type")

    def __init__(self, node: Node, type_: Type = ANY) -> None:
        self.node = node
        self.type = type_

    def _with(self, op: str, other: Any) -> Reference:
        return Computed(Binary(op, self.node, to_node(other)), BOOL)

    def __gt__(self, other: Any) -> Reference:
        return self._with(">", other)

    def __ge__(self, other: Any) -> Reference:
        return self._with(">=", other)

    def __lt__(self, other: Any) -> Reference:
        return self._with("<", other)

    def __le__(self, other: Any) -> Reference:
        return self._with("<=", other)

    def __eq__(self, other: object) -> Reference:  # type: ignore[override]
        return self._with("==", other)

    def __ne__(self, other: object) -> Reference:  # type: ignore[override]
        return self._with("!=", other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Reference:
        return self._with("&&", other)

    def __rand__(self, other: Any) -> Reference:
        return Computed(Binary("&&", to_node(other), self.node), BOOL)

    def __or__(self, other: Any) -> Reference:
        return self._with("||", other)

    def __ror__(self, other: Any) -> Reference:
        return Computed(Binary("||", to_node(other), self.node), BOOL)

    def __invert__(self) -> Reference:
        return Computed(Unary("!", self.node), BOOL)

    def __getitem__(self, key: str | int | Reference) -> Reference:
        if isinstance(key, int) and key < 0:
            last: Node = Binary("-", Call("size", (self.node,)), Const(-key))
            return Computed(Index(self.node, last), self.type.item)
        if isinstance(key, str) and is_identifier(key):
            return Computed(Member(self.node, key), self.type.item)
        return Computed(Index(self.node, to_node(key)), self.type.item)

    def contains(self, item: Any) -> Reference:
        """`item in self`: Python turns the result of `in` into a plain bool."""
        return Computed(Binary("in", to_node(item), self.node), BOOL)

    def size(self) -> Reference:
        return Computed(Call("size", (self.node,)), types.INT)

    def _no_arithmetic(self, other: Any) -> NoReturn:
        raise author_error(
            "P306",
            f"{show(self.node)} has no value yet, so Python cannot compute with it",
            'compute it inside a task, or write the expression: "${{ … + 1 }}"',
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_arithmetic

    def __str__(self) -> str:
        return f"${{{{ {show(self.node)} }}}}"

    def __format__(self, spec: str) -> str:
        return str(self) if not spec else f"${{{{ {show(Call('format', (self.node, Const(spec))))} }}}}"

    def __repr__(self) -> str:
        return f"<{show(self.node)}: {self.type}>"

    def __bool__(self) -> NoReturn:
        raise author_error(
            "P306",
            f"{show(self.node)} has no value yet, so Python cannot decide on it",
            "combine conditions with & | ~, and use @when or @workflow for branches",
        )

    def __iter__(self) -> NoReturn:
        raise author_error(
            "P306", f"{show(self.node)} has no value yet, so Python cannot loop over it", "use @for_loop(items=…)"
        )

    def __len__(self) -> NoReturn:
        raise author_error(
            "P306", f"{show(self.node)} has no value yet, so it has no length", "use .size() in a condition"
        )


class Computed(Reference):
    """Any Reference but a parameter. Not a superclass of WorkflowParam: if the class of `b` is a subclass of that of `a`,
    Python computes `a < b` as `b > a`."""

    __slots__ = ()


class WorkflowParam(Reference):
    """A parameter of a workflow, an input of a job or one of its outputs: a name and a type.

    As an output, `path` is where a container writes it (by default the file $PENSTOCK_OUTPUTS/NAME; `/dev/stdout` is what
    it prints). In the fields of a job it stands for the parameter's value."""

    __slots__ = ("choices", "default", "doc", "name", "path")

    def __init__(
        self,
        name: str,
        type: Any = Any,
        default: Any = MISSING,
        *,
        choices: tuple[Any, ...] | list[Any] = (),
        path: str | None = None,
        doc: str = "",
    ) -> None:
        super().__init__(reference("params", name), to_type(type))
        self.name = name
        self.default = default if default is MISSING else to_value(default)
        self.choices = tuple(choices)
        self.path = path
        self.doc = doc

    def as_parameter(self) -> Parameter:
        return Parameter(name=self.name, type=self.type, default=self.default, choices=self.choices, doc=self.doc)

    def as_output(self) -> Output:
        return Output(name=self.name, type=self.type, path=self.path, default=self.default)


class SingleValue(ABC):
    """What may be used as a value because it has one, as a job with one output has."""

    @abstractmethod
    def result_ref(self) -> Reference: ...


def to_value(thing: Any) -> Value:
    """What an author writes in a field -> a Value of the graph. Raises AuthorError."""
    if isinstance(thing, float) and not math.isfinite(thing):
        raise author_error(
            "P307", f"{thing} cannot be written into a workflow", "JSON has no such number; pass text, or null"
        )
    if thing is None or (isinstance(thing, bool | int | float) and not isinstance(thing, enum.Enum)):
        return thing
    if isinstance(thing, Reference):
        return Expr.tree(thing.node)
    if isinstance(thing, Expr | Template):
        return thing
    if isinstance(thing, enum.Enum):
        return to_value(member_value(thing))
    if isinstance(thing, str):
        return to_text(thing)
    if isinstance(thing, range):
        return Expr.tree(Call("range", tuple(Const(n) for n in (thing.start, thing.stop, thing.step))))
    if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
        if len(thing) > 1024 and all(type(item) in (int, float) for item in thing):
            return tuple(thing)
        return tuple(to_value(item) for item in thing)
    if isinstance(thing, Mapping):
        return {_key(key): to_value(value) for key, value in thing.items()}
    if isinstance(thing, SingleValue):
        return to_value(thing.result_ref())
    if not isinstance(thing, type):
        made = plain(thing)
        if type(made) is not type(thing):
            return to_value(made)
    raise author_error(
        "P307",
        f"{kind(thing)} cannot be written into a workflow",
        "use text, numbers, true/false, lists, mappings, parameters or outputs of jobs",
    )


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise author_error("P307", f"the key {key!r} is not text", "use text as keys")
    return key


def to_text(text: str) -> str | Expr | Template:
    try:
        return parse_template(text)
    except ExpressionError as error:
        raise author_error(
            "P110",
            f"in {text[:200]!r}, at character {error.position + 1}: {error}",
            "correct the expression, or write '$${{' for the characters themselves",
        ) from None


def to_node(thing: Any) -> Node:
    """The same as the tree of an expression."""
    return as_node(to_value(thing))


def to_condition(thing: Any) -> Expr:
    """For `when`, `trigger` and loops: a comparison of References, the text of an expression, or a plain bool."""
    if isinstance(thing, str):
        try:
            found = parse_template(thing)
            return found if isinstance(found, Expr) else Expr.of(thing)
        except ExpressionError as error:
            raise author_error(
                "P110", f"in {thing[:200]!r}, at character {error.position + 1}: {error}", "correct the expression"
            ) from None
    if isinstance(thing, Reference | Expr | bool):
        return Expr.tree(to_node(thing))
    raise author_error(
        "P307", f"{kind(thing)} is not a condition", "compare outputs or parameters: job.outputs['rows'] > 1000"
    )


def to_object_condition(thing: Any, field: str) -> Expr:
    """For resource steps: an expression over the object, or Argo's form of it. `field`: success_condition or failure_condition."""
    if not isinstance(thing, str) or "${{" in thing:
        return to_condition(thing)
    try:
        return condition_of(thing, JOINED[field])
    except ExpressionError as error:
        raise author_error(
            "P110",
            f"in {thing[:200]!r}, at character {error.position + 1}: {error}",
            "correct the expression, as in 'status.phase == Succeeded, status.failed < 1'",
        ) from None


def is_secret(thing: Any) -> bool:
    path = path_of(thing.node) if isinstance(thing, Reference) else None
    return path is not None and path[0] == "secrets"


def holds_secret(thing: Any) -> bool:
    """Is it a secret, a text that was made with one, or a list or map that has one in it?"""
    if isinstance(thing, str):
        return "${{ secrets" in thing
    if isinstance(thing, list | tuple):
        return any(holds_secret(item) for item in thing if type(item) not in (int, float, bool))
    if isinstance(thing, Mapping):
        return any(map(holds_secret, thing.values()))
    return is_secret(thing)


def loop_variable(name: str, type_: Type) -> Reference:
    """`item.name`"""
    return Computed(reference("item", name), type_)
