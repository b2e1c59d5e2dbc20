"""The items of a for-each as withItems, withParam or withSequence. Called by flow.

An item in Argo is text (`{{item}}`) or a map of texts (`{{item.lr}}`). One variable is the item itself; several variables are a map with a
field for each. A product of lists is literal if the lists are known; otherwise an expression computes it: the n-th combination follows from
dividing n by the lengths of the lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.expressions.evaluate import EvaluationError, evaluate, resolve
from penstock.expressions.parse import Binary, Call, Choice, Const, Expr, Macro, Name, Node, references
from penstock.expressions.types import ANY, INT, STR, Type, of_value
from penstock.formats.argo.write.expr import ExprWriter, direct
from penstock.formats.argo.write.slots import any_text
from penstock.formats.argo.write.variables import ArgoVariable, Find, NotInArgo, literal, tagged
from penstock.graph.model import ForEach, Value, expressions
from penstock.graph.rewrite import as_node

MOST_LISTED: Final = 5_000
"""The most literal combinations."""
MOST_CHARACTERS: Final = 300_000
_UNKNOWN: Final = object()


@dataclass(slots=True)
class LoopFields:
    """How a loop is written, and how its variables are read."""

    fields: dict[str, Any]
    """withItems, withParam or withSequence."""
    variables: dict[str, ArgoVariable]
    maps: frozenset[str] = frozenset()
    """Variables whose items are maps with fields that Argo reads."""
    known: int | None = None
    """The number of items, if known."""

    def find(self, path: tuple[str, ...]) -> ArgoVariable | None:
        found = self.variables.get(path[1]) if len(path) > 1 else None
        if found is None:
            return None
        if path[1] in self.maps and len(path) > 2:
            type_ = found.type.item if found.type.name == "dict" else ANY
            return ArgoVariable(("item", path[2]), type_, 3)
        return found


def items_of(
    each: ForEach, find: Find, types: Mapping[str, Type], reads: Iterable[tuple[str, ...]], as_values: bool
) -> LoopFields:
    """`types`: of the variables. `reads`: every path that the step reads of an item. `as_values`: a function reads the variables."""
    names = [name for axis in each.axes for name in axis]
    if len(names) == 1:
        return _one(names[0], each.axes[0][names[0]], find, types.get(names[0], ANY), list(reads), as_values)
    known = [{name: _known(value) for name, value in axis.items()} for axis in each.axes]
    variables = {name: ArgoVariable(("item", name), types.get(name, ANY), 2) for name in names}
    if all(value is not _UNKNOWN for axis in known for value in axis.values()):
        count = 1
        for axis in known:
            count *= min(len(value) for value in axis.values())
        if count <= MOST_LISTED:
            listed = _product(known, types)
            if sum(len(text) for item in listed for text in item.values()) <= MOST_CHARACTERS:
                return LoopFields({"withItems": listed}, variables, known=len(listed))
    return LoopFields({"withParam": tagged(f"toJson({_computed(each, find)})")}, variables)


# -- one variable -----------------------------------------------------------------------------------------------------


def _one(
    name: str, value: Value, find: Find, type_: Type, reads: Sequence[tuple[str, ...]], as_values: bool
) -> LoopFields:
    whole = {name: ArgoVariable(("item",), type_, 2)}
    known = _known(value)
    if isinstance(known, range):
        return (
            LoopFields({"withSequence": _counted(known)}, whole, known=len(known))
            if known.step == 1
            else _listed(known, INT, whole)
        )
    if known is not _UNKNOWN:
        if known and all(isinstance(item, Mapping) for item in known):
            return _maps(name, known, type_, reads)
        return _listed(known, type_, whole)
    if isinstance(value, Expr):
        sequence = _sequence(value.node, find)
        if sequence is not None:
            return LoopFields({"withSequence": sequence}, whole)
        return _dynamic(name, value, find, type_, reads, as_values)
    assert isinstance(value, tuple | list)
    parts = [ExprWriter(find).as_text(item.node) if isinstance(item, Expr) else _code(item, find) for item in value]
    return LoopFields({"withParam": tagged(f"toJson([{', '.join(parts)}])")}, whole, known=len(value))


def _code(item: Value, find: Find) -> str:
    if any(True for _ in expressions(item)):
        return ExprWriter(find).as_text(as_node(item))
    return ExprWriter(find).as_text(Const(any_text(item)))


def _dynamic(
    name: str, value: Expr, find: Find, type_: Type, reads: Sequence[tuple[str, ...]], as_values: bool
) -> LoopFields:
    whole = {name: ArgoVariable(("item",), type_, 2)}
    match value.node:  # the form in which the reader reads a list
        case Choice(Binary("==", given, Const("")), _, Call("json", (same, *_))) if given == same:
            value = Expr.tree(given)
    found = direct(value, find)
    if found is not None and found.type.name == "dict":
        return LoopFields({"withParam": tagged(f"toJson(keys(fromJSON({found.text})))")}, whole)
    looked_into = bool(reads) and all(len(path) > 2 for path in reads)
    if looked_into and type_.name in ("dict", "any"):
        text = (
            found.tag
            if found is not None and not found.code
            else tagged(f"toJson({ExprWriter(find).code(value.node).text})")
        )
        return LoopFields({"withParam": text}, {name: ArgoVariable(("item",), type_, 2)}, frozenset({name}))
    if found is not None and not found.code:
        if as_values and type_.name == "any" and not found.gathered:
            # Texts among the items stay text only as JSON.
            return LoopFields({"withParam": tagged(f"toJson(map(fromJSON({found.text}), {{toJson(#)}}))")}, whole)
        return LoopFields({"withParam": found.tag}, whole)
    return LoopFields({"withParam": tagged(f"toJson({ExprWriter(find).code(value.node).text})")}, whole)


def _listed(known: Iterable[Any], type_: Type, whole: dict[str, ArgoVariable]) -> LoopFields:
    listed = [_item(item, type_) for item in known]
    if sum(len(item) if isinstance(item, str) else 4 for item in listed) > MOST_CHARACTERS:
        why = f"its {len(listed):,} items are written out and have more than {MOST_CHARACTERS:,} characters"
        raise NotInArgo(why, "let an earlier step give the list", "P843")
    return LoopFields({"withItems": listed}, whole, known=len(listed))


def _item(item: Any, type_: Type) -> Any:
    """Numbers and texts as they are; everything else as text that is read back."""
    if type(item) is int or (type(item) is bool and type_.name == "bool"):
        return item
    return literal(item if isinstance(item, str) and type_.name == "str" else any_text(item))


def _maps(name: str, known: Sequence[Mapping[str, Any]], type_: Type, reads: Sequence[tuple[str, ...]]) -> LoopFields:
    if all(len(path) > 2 for path in reads) and all(_flat(item) for item in known):
        listed = [
            {key: _item(value, STR if isinstance(value, str) else ANY) for key, value in item.items()} for item in known
        ]
        return LoopFields(
            {"withItems": listed}, {name: ArgoVariable(("item",), type_, 2)}, frozenset({name}), len(known)
        )
    return _listed(known, type_, {name: ArgoVariable(("item",), type_, 2)})


def _flat(item: Mapping[str, Any]) -> bool:
    return all(isinstance(value, str | int | float | bool) for value in item.values())


# -- counting ---------------------------------------------------------------------------------------------------------


def _counted(known: range) -> dict[str, str]:
    if not known:
        return {"count": "0"}
    return {"count": str(len(known))} if known.start == 0 else {"start": str(known.start), "end": str(known[-1])}


def _sequence(node: Node, find: Find) -> dict[str, Any] | None:
    """range(n) with an n that only the run knows; also with a format, as the reader reads a sequence."""
    match node:
        case Macro("map", of, var, Call("sprintf", (Const(str(layout)), Name(same)))) if same == var:
            inner = _sequence(of, find)
            return None if inner is None else {**inner, "format": layout}
        case Macro("map", of, var, Call("string" | "text", (Name(same),))) if same == var:
            return _sequence(of, find)
        case Call("range", (high,)):
            return {"count": _number(high, find)}
        case Choice(Binary("<=", low, high), Call("range", (start, Binary("+", end, Const(1)))), _) if (low, high) == (
            start,
            end,
        ):
            return {"start": _number(low, find), "end": _number(high, find)}
        case Choice(Binary("==", count, Const(0)), _, Choice(Binary("<=", start, _), _, _)):
            first = {} if start == Const(0) else {"start": _number(start, find)}
            return {**first, "count": _number(count, find)}
    return None


def _number(node: Node, find: Find) -> str:
    match node:
        case Const(int(value)):
            return str(value)
        case Call("int", (Choice(Binary("==", whole, Const("")), _, _),)):
            node = whole
        case Call("int", (inner,)):
            node = inner
    expr = Expr.tree(node)
    found = direct(expr, find)
    return found.tag if found is not None and not found.code else tagged(ExprWriter(find).as_text(node))


# -- several variables ------------------------------------------------------------------------------------------------


def _known(value: Value) -> Any:
    """The list, if it is known now."""
    if isinstance(value, Expr):
        if references(value.text):
            return _UNKNOWN
        try:
            found = evaluate(value, {})
        except EvaluationError as error:
            raise NotInArgo(f"{value.text} has no value: {error}", "correct the list") from None
    elif any(True for _ in expressions(value)):
        return _UNKNOWN
    else:
        found = value if isinstance(value, range) else resolve(value, {})
    return list(found) if isinstance(found, Mapping) else found


def _product(known: Sequence[Mapping[str, Any]], types: Mapping[str, Type]) -> list[dict[str, str]]:
    rows = [[dict(zip(axis, values, strict=True)) for values in zip(*axis.values(), strict=False)] for axis in known]
    listed = []
    for combination in itertools.product(*rows):
        item: dict[str, str] = {}
        for part in combination:
            for name, value in part.items():
                plain = isinstance(value, str) and types.get(name, of_value(value)).name == "str"
                item[name] = literal(value if plain else any_text(value))
        listed.append(item)
    return listed


def _computed(each: ForEach, find: Find) -> str:
    """Code for the list of combinations."""
    lists: list[list[tuple[str, str]]] = []
    for axis in each.axes:
        row = []
        for name, value in axis.items():
            if any(path[0] == "item" for expr in expressions(value) for path in references(expr.text)):
                why = f"the items of {name} depend on those of another variable, which Argo cannot loop over"
                raise NotInArgo(why, "put the inner loop into a workflow of its own")
            row.append((name, _list_code(value, find)))
        lists.append(row)
    lengths = [f"len({row[0][1]})" for row in lists]
    parts = []
    for at, row in enumerate(lists):
        behind = " * ".join(lengths[at + 1 :])
        index = f"int(# / ({behind}))" if behind else "#"
        index = f"{index} % {lengths[at]}" if at else index
        parts += [f"'{name}': {code}[{index}]" for name, code in row]
    return f"map(0..({' * '.join(lengths)} - 1), {{ {{{', '.join(parts)}}} }})"


def _list_code(value: Value, find: Find) -> str:
    if isinstance(value, Expr):
        code = ExprWriter(find).code(value.node)
        return code.at(8) if code.type.name != "dict" else f"keys({code.text})"
    return ExprWriter(find).code(as_node(value)).text
