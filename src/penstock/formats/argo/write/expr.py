"""Penstock's expressions as tags and expr-lang. Called by the Argo writer for every value of a workflow.

Argo's variables are text. A value that is one variable is a plain tag (`{{tasks.a.outputs.parameters.x}}`); anything else is an
expression tag (`{{=…}}`), in which asInt converts text to a number and fromJSON to a list, and the result is text again. `Find`
gives the variable and type of a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.expressions.evaluate import to_text
from penstock.expressions.parse import (
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    is_identifier,
    path_of,
    references,
    show,
    simple_path,
)
from penstock.expressions.template import Template
from penstock.expressions.types import ANY, BOOL, FLOAT, INT, STR, Type, list_of
from penstock.formats.argo.write.functions import MACROS, OPERATORS, SAME
from penstock.formats.argo.write.variables import ArgoVariable, Find, NotInArgo, literal, string, tagged
from penstock.graph.model import Value, expressions
from penstock.graph.rewrite import as_node

PHASES: Final[Mapping[str, str]] = {
    "succeeded": "Succeeded",
    "failed": "Failed",
    "errored": "Error",
    "skipped": "Skipped",
    "omitted": "Omitted",
}
_NEVER: Final = Binary("<", Call("size", (Name("params"),)), Const(0))
"""The form in which the reader writes a condition that never holds."""
_ATOM, _UNARY, _SUM, _AND, _OR, _CHOICE = 9, 8, 5, 3, 2, 0


@dataclass(frozen=True, slots=True)
class ExprCode:
    """A piece of expr-lang."""

    text: str
    type: Type
    level: int = _ATOM
    whole: bool = True
    """If it is an int: certainly an integer in Go. Numbers from JSON are not."""

    def at(self, level: int) -> str:
        return self.text if self.level > level else f"({self.text})"


# -- values -----------------------------------------------------------------------------------------------------------


def text_of(value: Value, find: Find) -> str:
    """The text of a value in the document. Raises NotInArgo."""
    if type(value) is str:
        return literal(value)
    if isinstance(value, Expr):
        return expr_text(value, find)
    if isinstance(value, Template):
        return "".join(literal(part) if isinstance(part, str) else expr_text(part, find) for part in value.parts)
    if any(True for _ in expressions(value)):
        return _listed(value, find) or tagged(ExprWriter(find).as_text(as_node(value)))
    return literal(to_text(value))


def expr_text(expr: Expr, find: Find) -> str:
    found = direct(expr, find)
    if found is not None and not found.code and not found.status and (not found.gathered or as_it_is(found.type)):
        return found.tag
    node = expr.node
    if isinstance(node, Const):
        return literal(to_text(node.value))
    return tagged(ExprWriter(find).as_text(node))


def direct(value: Value, find: Find) -> ArgoVariable | None:
    """The variable, if an expression is only a variable or its text."""
    if type(value) is not Expr:
        return None
    path = simple_path(value.text)
    if path is not None:  # nearly all of them
        found = find(path)
        return found if found is not None and found.used == len(path) else None
    paths = references(value.text)
    if len(paths) != 1:
        return None
    node = value.node
    as_text = isinstance(node, Call) and node.name in ("text", "string") and node.of is None
    if as_text and isinstance(node, Call):
        node = node.args[0]
    if path_of(node) != paths[0]:
        return None
    found = find(paths[0])
    if found is None or found.used != len(paths[0]):
        return None
    if not as_text:
        return found
    return None if found.code or found.status or found.gathered else replace(found, type=STR)


def as_it_is(type_: Type) -> bool:
    """Are the collected texts of a list of this type the JSON of the list?"""
    return type_.item.name in ("str", "list", "dict", "tuple", "any", "optional")


def _listed(value: Value, find: Find) -> str:
    """A list of variables that hold JSON, without an expression: `[{{a}},{{b}}]`."""
    if not isinstance(value, tuple | list) or not all(isinstance(item, Expr) for item in value):
        return ""
    every = [direct(item, find) for item in value]
    if not all(one and not one.gathered and one.type.name in ("int", "float", "bool", "list", "dict") for one in every):
        return ""
    return "[" + ",".join(one.tag for one in every if one is not None and not one.code) + "]"


def condition(expr: Expr, find: Find) -> str:
    """A `when`. A condition that was read as text is written as that text."""
    node = expr.node
    if node == _NEVER:
        return tagged("false")
    if isinstance(node, Call) and node.name == "condition":
        return "".join(
            literal(part.value)
            if isinstance(part, Const) and isinstance(part.value, str)
            else expr_text(Expr.tree(part), find)
            for part in _joined(node.args[0])
        )
    return tagged(ExprWriter(find).boolean(node))


def _joined(node: Node) -> list[Node]:
    if isinstance(node, Binary) and node.op == "+":
        return [*_joined(node.left), *_joined(node.right)]
    return [node.args[0] if isinstance(node, Call) and node.name == "text" and path_of(node.args[0]) else node]


# -- expressions ------------------------------------------------------------------------------------------------------


class ExprWriter:
    """One expression. `bound`: the variable of a macro and its type."""

    def __init__(self, find: Find, bound: Mapping[str, Type] | None = None) -> None:
        self.find = find
        self.bound = bound or {}

    def boolean(self, node: Node) -> str:
        return self.code(node, BOOL).text

    def as_text(self, node: Node) -> str:
        """Code for the value as text: strings as they are, everything else as JSON."""
        found = self._variable(node)
        if (
            found is not None
            and found.type.name not in ("str",)
            and not found.gathered
            and not found.code
            and not found.status
        ):
            return found.text  # it is text already
        if isinstance(node, Choice):
            test = self.code(node.test, BOOL).at(_CHOICE)
            return f"{test} ? ({self.as_text(node.yes)}) : ({self.as_text(node.no)})"
        code = self.code(node)
        if code.type.name == "str":
            return code.text
        if code.type.name in ("any", "optional"):
            return f"type({code.text}) == 'string' ? {code.at(_CHOICE)} : toJson({code.text})"
        return f"toJson({code.text})"

    def code(self, node: Node, want: Type = ANY) -> ExprCode:
        """`want`: the type of an untyped variable."""
        found = self._path(node)
        if found is not None:
            return self._decoded(found, want)
        match node:
            case Const(value):
                return _const(value)
            case Name(id) if id in self.bound:
                return ExprCode("#", self.bound[id], whole=False)
            case Member(of, name):
                return self._member(self.code(of), name)
            case Index(of, index):
                return self._index(of, index)
            case Unary("!", of):
                return ExprCode(f"!{self.code(of, BOOL).at(_UNARY)}", BOOL, _UNARY)
            case Unary(_, of):
                inner = self.code(of, want)
                return ExprCode(f"-{inner.at(_UNARY)}", inner.type, _UNARY, inner.whole)
            case Binary(op, left, right):
                return self._binary(op, left, right)
            case Choice(test, yes, no):
                first, second = self.code(yes, want), self.code(no, want)
                text = f"{self.code(test, BOOL).at(_CHOICE)} ? {first.at(_CHOICE)} : {second.at(_CHOICE)}"
                return ExprCode(
                    text, first.type if first.type == second.type else ANY, _CHOICE, first.whole and second.whole
                )
            case ListOf(items):
                parts = [self.code(item) for item in items]
                kinds = {part.type for part in parts}
                return ExprCode(
                    "[" + ", ".join(part.text for part in parts) + "]", list_of(kinds.pop() if len(kinds) == 1 else ANY)
                )
            case MapOf(pairs):
                shown = ", ".join(f"{self.code(key, STR).text}: {self.code(value).text}" for key, value in pairs)
                return ExprCode("{" + shown + "}", Type("dict", (ANY,)))
            case Macro():
                return self._macro(node)
            case Call():
                return self._call(node, want)
            case _:
                raise NotInArgo(f"{show(node)} has no form in Argo")

    # -- variables

    def _variable(self, node: Node) -> ArgoVariable | None:
        """The variable that a whole node denotes."""
        path = path_of(node)
        if path is None or path[0] in self.bound:
            return None
        found = self.find(path)
        return found if found is not None and found.used == len(path) else None

    def _path(self, node: Node) -> tuple[ArgoVariable, tuple[str, ...]] | None:
        path = path_of(node)
        if path is None or path[0] in self.bound:
            return None
        found = self.find(path)
        if found is None:
            raise NotInArgo(f"{'.'.join(path)} cannot be read there")
        return found, path[found.used :]

    def _decoded(self, found: tuple[ArgoVariable, tuple[str, ...]], want: Type) -> ExprCode:
        variable, rest = found
        if variable.status:
            other = f"{variable.text} == 'Error' ? 'errored' : lower({variable.text})"
            # An errored workflow counts as failed.
            text = (
                f"{variable.text} == 'Succeeded' ? 'succeeded' : 'failed'" if variable.path[0] == "workflow" else other
            )
            return ExprCode(text, STR, _CHOICE)
        if variable.code:
            code = ExprCode(variable.code, variable.type)
        elif variable.gathered:
            code = _gathered(variable)
        elif rest:
            code = ExprCode(f"fromJSON({variable.text})", variable.type, whole=False)
        else:
            code = decoded(variable.text, variable.type, want)
        for name in rest:
            code = self._member(code, name)
        return code

    def _member(self, of: ExprCode, name: str) -> ExprCode:
        type_ = of.type.args[0] if of.type.name == "optional" else of.type
        shown = f".{name}" if is_identifier(name) else f"[{string(name)}]"
        return ExprCode(of.at(_UNARY) + shown, type_.item if type_.name == "dict" else ANY, whole=False)

    def _index(self, of: Node, index: Node) -> ExprCode:
        inner, at = self.code(of), self.code(index)
        type_ = inner.type.args[0] if inner.type.name == "optional" else inner.type
        item = type_.item if type_.name in ("list", "dict", "tuple") else ANY
        shown = at.text if at.type.name == "str" else _whole(at)
        return ExprCode(f"{inner.at(_UNARY)}[{shown}]", item, whole=False)

    # -- operators

    def _binary(self, op: str, left: Node, right: Node) -> ExprCode:
        if op in ("&&", "||"):
            level = _AND if op == "&&" else _OR
            first, second = self.code(left, BOOL), self.code(right, BOOL)
            shown = first.text if first.level == level else first.at(_AND)
            return ExprCode(f"{shown} {op} {second.at(_AND)}", BOOL, level)
        status = self._status(op, left, right)
        if status is not None:
            return status
        first, second = self._pair(left, right, op)
        if op in ("==", "!=", "<", "<=", ">", ">=", "in"):
            return ExprCode(f"{first.at(_SUM)} {op} {second.at(_SUM)}", BOOL, _SUM)
        return _arithmetic(op, first, second)

    def _pair(self, left: Node, right: Node, op: str) -> tuple[ExprCode, ExprCode]:
        """Both sides; an untyped one gets the type of the other."""
        first, second = self.code(left), self.code(right)
        if op == "in":
            item = second.type.item if second.type.name == "list" else STR if second.type.name == "dict" else ANY
            return self.code(left, item), second
        if first.type.name == "any" and second.type.name != "any":
            return self.code(left, second.type), second
        if second.type.name == "any" and first.type.name != "any":
            return first, self.code(right, first.type)
        if first.type.name == "any" and op in ("==", "!="):
            return self.code(left, STR), self.code(right, STR)
        return first, second

    def _status(self, op: str, left: Node, right: Node) -> ExprCode | None:
        """`steps.a.outcome == "failed"`: compared with Argo's names."""
        for one, other in ((left, right), (right, left)):
            variable = self._variable(one)
            if variable is None or not variable.status:
                continue
            if op == "in" and one is left and isinstance(other, ListOf):
                words = [item.value for item in other.items if isinstance(item, Const)]
            elif op in ("==", "!=") and isinstance(other, Const):
                words = [other.value]
            else:
                return None
            known = [phase for word in words for phase in _phases(str(word), variable.path[0])]
            if not known:  # Argo starts nothing after a cancellation
                return ExprCode("true" if op == "!=" else "false", BOOL)
            listed = "[" + ", ".join(map(string, known)) + "]"
            if len(known) == 1:
                return ExprCode(f"{variable.text} {'!=' if op == '!=' else '=='} {string(known[0])}", BOOL, _SUM)
            return ExprCode(f"{variable.text} {'not in' if op == '!=' else 'in'} {listed}", BOOL, _SUM)
        return None

    # -- functions

    def _macro(self, node: Macro) -> ExprCode:
        if self.bound and any(root[0] in self.bound for root in references(show(node.body))):
            raise NotInArgo(f"{show(node)} reads the variable of one list inside another, for which Argo has no name")
        of = self.code(node.of)
        type_ = of.type.args[0] if of.type.name == "optional" else of.type
        source, item = of.text, type_.item if type_.name in ("list", "tuple") else ANY
        if type_.name == "dict":
            source, item = f"keys({source})", STR
        inner = ExprWriter(self.find, {node.var: item}).code(node.body, ANY if node.name == "map" else BOOL)
        result = list_of(inner.type) if node.name == "map" else list_of(item) if node.name == "filter" else BOOL
        return ExprCode(f"{MACROS[node.name]}({source}, {{{inner.text}}})", result, whole=False)

    def _call(self, node: Call, want: Type) -> ExprCode:
        name, args = node.name, node.args if node.of is None else (node.of, *node.args)
        special = _FUNCTIONS.get(name)
        if special is not None:
            return special(self, args, want)
        if name in OPERATORS:
            return ExprCode(f"{self.code(args[0], STR).at(_SUM)} {name} {self.code(args[1], STR).at(_SUM)}", BOOL, _SUM)
        if name.startswith("sprig_"):
            inner = ", ".join(self.code(arg).text for arg in args)
            return ExprCode(f"sprig.{name.removeprefix('sprig_')}({inner})", ANY, whole=False)
        known = SAME.get(name)
        if known is None:
            raise NotInArgo(f"there is no {name}() in Argo's expressions")
        called, type_ = known
        wanted = (
            STR
            if called in ("lower", "upper", "trim", "split", "replace", "trimPrefix", "trimSuffix", "repeat")
            else ANY
        )
        inner = ", ".join(self.code(arg, wanted).text for arg in args)
        return ExprCode(f"{called}({inner})", type_, whole=False)

    def _write_size(self, args: Sequence[Node], want: Type) -> ExprCode:
        return ExprCode(f"len({self.code(args[0]).text})", INT)

    def _write_slice(self, args: Sequence[Node], want: Type) -> ExprCode:
        if len(args) != 3 or args[1] != Const(0):
            raise NotInArgo("there is no slice() in Argo's expressions that begins behind the first item")
        of = self.code(args[0])
        return ExprCode(f"take({of.text}, {self.code(args[2]).text})", of.type, whole=False)

    def _write_string(self, args: Sequence[Node], want: Type) -> ExprCode:
        return ExprCode(self.as_text(args[0]), STR, _CHOICE)

    def _write_sprintf(self, args: Sequence[Node], want: Type) -> ExprCode:
        if len(args) == 2 and args[0] in (Const("%v"), Const("%s"), Const("%d")):
            return self._write_string(args[1:], want)
        raise NotInArgo("there is no sprintf() in Argo's expressions")

    def _write_to_json(self, args: Sequence[Node], want: Type) -> ExprCode:
        return ExprCode(f"toJson({self.code(args[0]).text})", STR)

    def _write_json(self, args: Sequence[Node], want: Type) -> ExprCode:
        return ExprCode(f"fromJSON({self.code(args[0], STR).text})", ANY, whole=False)

    def _write_collect(self, args: Sequence[Node], want: Type) -> ExprCode:
        """Argo's own list of a loop's results."""
        found = self._variable(args[0])
        return ExprCode(
            found.text if found is not None and found.gathered else f"toJson({self.code(args[0]).text})", STR
        )

    def _write_int(self, args: Sequence[Node], want: Type) -> ExprCode:
        return ExprCode(f"int({self.code(args[0], STR).text})", INT)

    def _write_double(self, args: Sequence[Node], want: Type) -> ExprCode:
        return ExprCode(f"float({self.code(args[0], STR).text})", FLOAT)

    def _write_bool(self, args: Sequence[Node], want: Type) -> ExprCode:
        inner = self.code(args[0], STR)
        if inner.type.name == "bool":
            return inner
        return ExprCode(f"{inner.at(_SUM)} in ['true', 'True', 'TRUE', 't', '1']", BOOL, _SUM)

    def _write_has(self, args: Sequence[Node], want: Type) -> ExprCode:
        member = args[0]
        found = self._variable(member)
        if found is not None and not found.code:
            return ExprCode(f"{found.text} != nil", BOOL, _SUM)
        assert isinstance(member, Member)
        return ExprCode(f"{string(member.name)} in {self.code(member.of).at(_SUM)}", BOOL, _SUM)

    def _write_truthy(self, args: Sequence[Node], want: Type) -> ExprCode:
        inner = self.code(args[0])
        match inner.type.name:
            case "bool":
                return inner
            case "str":
                return ExprCode(f"{inner.at(_SUM)} != ''", BOOL, _SUM)
            case "int" | "float":
                return ExprCode(f"{inner.at(_SUM)} != 0", BOOL, _SUM)
            case "list" | "dict" | "tuple":
                return ExprCode(f"len({inner.text}) > 0", BOOL, _SUM)
        return ExprCode(f"!(toJson({inner.text}) in ['null', 'false', '0', '\"\"', '[]', '{{}}'])", BOOL, _UNARY)

    def _write_format(self, args: Sequence[Node], want: Type) -> ExprCode:
        value, spec = args
        inner = self.code(value)
        if spec == Const("") and inner.type.name == "str":
            return inner
        if spec in (Const(""), Const("d")) and inner.type.name == "int":
            return ExprCode(f"toJson({inner.text})", STR)
        if spec == Const("") and inner.type.name == "any":
            return ExprCode(self.as_text(value), STR, _CHOICE)
        raise NotInArgo(f"Argo cannot format {show(value)}: make the text in a step")

    def _write_range(self, args: Sequence[Node], want: Type) -> ExprCode:
        parts = [self.code(arg, INT) for arg in args]
        low = _whole(parts[0]) if len(parts) > 1 else "0"
        high = parts[min(1, len(parts) - 1)]
        if len(parts) < 3 or args[2] == Const(1):
            end = str(int(high.text) - 1) if high.text.isdigit() else f"({_whole(high)} - 1)"
            return ExprCode(f"{low}..{end}", list_of(INT), _SUM)
        if not (isinstance(args[2], Const) and isinstance(args[2].value, int) and args[2].value > 0):
            raise NotInArgo("Argo counts upwards only: give the numbers in a list")
        by = args[2].value
        many = f"int(({_whole(high)} - {low} + {by - 1}) / {by})"
        return ExprCode(f"map(0..({many} - 1), {{{low} + # * {by}}})", list_of(INT))

    def _write_default(self, args: Sequence[Node], want: Type) -> ExprCode:
        found = self._variable(args[0])
        second = self.code(args[1], want if found is None else found.type)
        if found is None or found.code:
            first = self.code(args[0], want)
            return ExprCode(f"{first.at(_SUM)} ?? {second.at(_SUM)}", first.type, _SUM)
        first = self.code(args[0], second.type)
        if first.text == found.text:
            return ExprCode(f"{first.text} ?? {second.at(_SUM)}", first.type, _SUM)
        return ExprCode(f"{found.text} != nil ? {first.at(_CHOICE)} : {second.at(_CHOICE)}", first.type, _CHOICE)

    def _write_atom(self, args: Sequence[Node], want: Type) -> ExprCode:
        """A bare word: it has the type of the other side of a comparison."""
        found = self._variable(args[0])
        if found is None or found.code or found.gathered or found.status:
            inner = self.code(args[0], want)
            return ExprCode(inner.text, want if inner.type.name == "any" else inner.type, inner.level)
        if want.name in ("int", "float"):
            return ExprCode(f"asFloat({found.text})", FLOAT)
        return ExprCode(found.text, ANY) if want.name == "any" else decoded(found.text, ANY, want)

    def _write_phase(self, args: Sequence[Node], want: Type) -> ExprCode:
        found = self._variable(args[0])
        if found is None or not found.status:
            raise NotInArgo(f"{show(args[0])} is not how something ended")
        return ExprCode(found.text, STR)

    def _write_arithmetic(self, args: Sequence[Node], op: str) -> ExprCode:
        first, second = self._pair(args[0], args[1], op)
        return ExprCode(
            f"{first.at(_SUM)} {op} {second.at(_SUM)}", ANY if first.type != second.type else first.type, _SUM, False
        )


_Function = Callable[[ExprWriter, Sequence[Node], Type], ExprCode]


def _operator(op: str) -> _Function:
    return lambda writer, args, want: writer._write_arithmetic(args, op)


_FUNCTIONS: Final[Mapping[str, _Function]] = {
    "size": ExprWriter._write_size,
    "slice": ExprWriter._write_slice,
    "string": ExprWriter._write_string,
    "text": ExprWriter._write_string,
    "sprintf": ExprWriter._write_sprintf,
    "to_json": ExprWriter._write_to_json,
    "json": ExprWriter._write_json,
    "collect": ExprWriter._write_collect,
    "collect_results": ExprWriter._write_collect,
    "int": ExprWriter._write_int,
    "toInt": ExprWriter._write_int,
    "double": ExprWriter._write_double,
    "toFloat": ExprWriter._write_double,
    "bool": ExprWriter._write_bool,
    "has": ExprWriter._write_has,
    "truthy": ExprWriter._write_truthy,
    "format": ExprWriter._write_format,
    "range": ExprWriter._write_range,
    "default": ExprWriter._write_default,
    "atom": ExprWriter._write_atom,
    "phase": ExprWriter._write_phase,
    "plus": _operator("+"),
    "minus": _operator("-"),
    "times": _operator("*"),
    "over": _operator("/"),
    "remainder": _operator("%"),
    "power": _operator("**"),
}
"""Functions that Argo has under another name, or not at all."""


def decoded(text: str, type_: Type, want: Type = ANY) -> ExprCode:
    """Code for the value of a variable's text."""
    if type_.name == "any" and want.name in ("str", "int", "float", "bool"):
        type_ = want
    match type_.name:
        case "str" | "file" | "dir":
            return ExprCode(text, STR)
        case "int":
            return ExprCode(f"asInt({text})", INT)
        case "float":
            return ExprCode(f"asFloat({text})", FLOAT)
        case "bool":
            return ExprCode(f"{text} == 'true'", BOOL, _SUM)
        case "object":
            raise NotInArgo("it looks into a Python object")
    return ExprCode(f"fromJSON({text})", type_, whole=False)


def _gathered(variable: ArgoVariable) -> ExprCode:
    of = {"int": "asInt(#)", "float": "asFloat(#)", "bool": "# == 'true'"}.get(variable.type.item.name)
    whole = f"fromJSON({variable.text} ?? {string(variable.absent)})"
    return ExprCode(whole if of is None else f"map({whole}, {{{of}}})", variable.type, whole=False)


def _const(value: bool | int | float | str | None) -> ExprCode:
    if isinstance(value, str):
        return ExprCode(string(value), STR)
    if value is None:
        return ExprCode("nil", Type("null"))
    if isinstance(value, bool):
        return ExprCode("true" if value else "false", BOOL)
    if isinstance(value, int):
        return ExprCode(str(value), INT, _ATOM if value >= 0 else _UNARY)
    text = repr(value)
    return ExprCode(text if "." in text or "e" in text else f"{text}.0", FLOAT, _ATOM if value >= 0 else _UNARY)


def _whole(code: ExprCode) -> str:
    """As an integer: numbers from JSON are floats in Go, and cannot index."""
    return code.at(_SUM) if code.type.name == "int" and code.whole else f"int({code.text})"


def _arithmetic(op: str, first: ExprCode, second: ExprCode) -> ExprCode:
    type_ = first.type if first.type.name != "any" else second.type
    if op == "+" and type_.name in ("list", "tuple"):
        return ExprCode(f"concat({first.text}, {second.text})", type_, whole=False)
    if type_.name == "int" and op in "/%":
        left, right = _whole(first), _whole(second)
        # Division of two integers gives a float in Go.
        return ExprCode(f"int({left} / {right})", INT) if op == "/" else ExprCode(f"{left} % {right}", INT, _SUM)
    chained = op == "+" and first.level == _SUM and type_.name == "str" and " + " in first.text
    shown = first.text if chained else first.at(_SUM)
    return ExprCode(f"{shown} {op} {second.at(_SUM)}", type_, _SUM, first.whole and second.whole)


def _phases(word: str, root: str) -> list[str]:
    """Argo's name of an outcome. An errored workflow counts as failed."""
    if root == "workflow" and word == "failed":
        return ["Failed", "Error"]
    if word not in PHASES and word != "cancelled":
        raise NotInArgo(f"Argo has nothing for {word!r}")
    return [PHASES[word]] if word in PHASES else []
