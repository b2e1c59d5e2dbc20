"""The inputs of a template, from the step that uses it. Called by templates for every step.

The action of a step may read any value of the workflow; a template sees only its inputs. So everything that a step reads becomes an input, and
steps that are equal then share one template. A command takes its inputs as text; a function parses them (`wire`, see shim).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from penstock.expressions.evaluate import to_text
from penstock.expressions.parse import (
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    Index,
    ListOf,
    MapOf,
    Node,
    Unary,
    path_of,
    reference,
    references,
    replace,
)
from penstock.expressions.template import Template
from penstock.expressions.types import STR, Type
from penstock.formats.argo.write.context import InputSlot
from penstock.formats.argo.write.expr import ExprWriter, as_it_is, direct, text_of
from penstock.formats.argo.write.variables import Find, NotInArgo, literal, string, tagged
from penstock.graph.model import (
    MISSING,
    Container,
    Function,
    Nested,
    Script,
    Step,
    Value,
    action_values,
    expressions,
    with_values,
)
from penstock.graph.rewrite import as_node, map_value

FILES: Final = "/tmp/penstock/inputs"
"""The folder for file inputs without a path."""


class KnownValue(NamedTuple):
    """What is known of a value before the run."""

    type: Type
    gathered: bool = False
    """It is the result list of a loop, as Argo collects it."""
    absent: Value = MISSING
    """Its value if the loop does not run."""


Typed = Callable[[Value], KnownValue]
_DEPTH: Final = {"params": 2, "item": 2, "steps": 4, "workflow": 2}
"""The length of the path of one value."""


def slots_of(step: Step, typed: Typed) -> tuple[Step, list[InputSlot]]:
    """The step with everything it reads as inputs, and those inputs."""
    step = _changed(step, phases_as_paths) if _asks_phase(step) else step
    as_values = isinstance(step.action, Function)
    slots = [_slot(given, typed, as_values) for given in step.inputs]
    outer = _outer(step)
    if outer:
        names = {slot.name for slot in slots}
        swap: dict[tuple[str, ...], Node] = {}
        for path in outer:
            name = _name(path, names)
            names.add(name)
            value = Expr.tree(reference(*path))
            type_, gathered, absent = typed(value)
            kept = gathered and as_it_is(type_)
            slots.append(InputSlot(name, value, type_, "", _is_file(type_), None, absent, kept))
            swap[path] = reference("inputs", name)
        step = _changed(step, lambda node: replace(node, swap))
    files = {slot.name: laid_at(slot) for slot in slots if slot.artifact}
    if files and not isinstance(step.action, Nested):
        paths: dict[tuple[str, ...], Node] = {("inputs", name): Const(path) for name, path in files.items()}
        step = _changed(step, lambda node: replace(node, paths))
    return step, slots


def laid_at(slot: InputSlot) -> str:
    return slot.path or f"{FILES}/{slot.name}"


def _slot(given: Any, typed: Typed, as_values: bool) -> InputSlot:
    type_, gathered, absent = typed(given.value)
    if type_.name == "any" and given.type.name != "any":
        type_ = given.type
    if _holds_files(type_):
        why = f"the input {given.name} is several files, and Argo hands on files one by one"
        raise NotInArgo(why, "give each file as an input of its own, or put them into one folder", "P846")
    is_file = _is_file(type_) and isinstance(given.value, Expr)
    if type_.name == "object" and not as_values:
        why = f"the input {given.name} is a Python object, which only a Python function can read"
        raise NotInArgo(why, "write it to a file in the step that makes it", "P846")
    wire = _wire(given.value, type_, gathered, given.type) if as_values and not is_file else ""
    if is_file and as_values:
        wire = type_.name if type_.name in ("file", "dir") else "file"
    default = given.default if given.default is not MISSING else absent
    kept = gathered and not wire and as_it_is(type_)
    return InputSlot(given.name, given.value, type_, wire, is_file, given.path, default, kept)


def _is_file(type_: Type) -> bool:
    bare = type_.args[0] if type_.name == "optional" else type_
    return bare.name in ("file", "dir")


def _holds_files(type_: Type) -> bool:
    return any(_is_file(arg) or _holds_files(arg) for arg in type_.args) and not _is_file(type_)


# -- what is read -----------------------------------------------------------------------------------------------------


def _values(step: Step) -> Iterator[Value]:
    """Everything that is written inside the template."""
    for _, value in action_values(step.action):
        if value and type(value) is not str:
            yield value
    for output in step.outputs:
        if output.value is not MISSING:
            yield output.value
    if step.cache.key is not None:
        yield step.cache.key
    for lock in step.locks:
        yield lock.name
    for mount in step.mounts:
        yield from (mount.sub_path, mount.files)


def _outer(step: Step) -> list[tuple[str, ...]]:
    found: dict[tuple[str, ...], None] = {}
    for value in _values(step):
        for expr in expressions(value):
            for path in references(expr.text):
                depth = _DEPTH.get(path[0], 0)
                if depth:
                    found[path[: 3 if path[0] == "steps" and path[2:3] != ("outputs",) else depth]] = None
    return list(found)


def _asks_phase(step: Step) -> bool:
    return any("phase(" in expr.text for value in _values(step) for expr in expressions(value))


def phases_as_paths(node: Node) -> Node:
    """`phase(steps.a.outcome)` -> `steps.a.phase`: Argo's name of its outcome, as one value."""
    match node:
        case Call("phase", (inner,)):
            path = path_of(inner)
            return reference(*path[:-1], "phase") if path is not None and path[0] in _DEPTH else node
        case Call(name, args, of):
            return Call(name, tuple(map(phases_as_paths, args)), None if of is None else phases_as_paths(of))
        case Binary(op, left, right):
            return Binary(op, phases_as_paths(left), phases_as_paths(right))
        case Choice(test, yes, no):
            return Choice(phases_as_paths(test), phases_as_paths(yes), phases_as_paths(no))
        case Unary(op, inner):
            return Unary(op, phases_as_paths(inner))
        case Index(inner, index):
            return Index(phases_as_paths(inner), phases_as_paths(index))
        case ListOf(items):
            return ListOf(tuple(map(phases_as_paths, items)))
        case MapOf(pairs):
            return MapOf(tuple((key, phases_as_paths(value)) for key, value in pairs))
    return node


def _changed(step: Step, change: Callable[[Node], Node]) -> Step:
    def over(value: Value) -> Value:
        return map_value(value, change)

    return dataclasses.replace(
        step,
        action=with_values(step.action, {name: over(value) for name, value in action_values(step.action) if value})
        if not isinstance(step.action, Nested)
        else step.action,
        outputs=tuple(
            output if output.value is MISSING else dataclasses.replace(output, value=over(output.value))
            for output in step.outputs
        ),
        cache=dataclasses.replace(step.cache, key=over(step.cache.key)) if step.cache.key is not None else step.cache,
        locks=tuple(dataclasses.replace(lock, name=over(lock.name)) for lock in step.locks),
        mounts=tuple(
            dataclasses.replace(
                mount, sub_path=over(mount.sub_path), files={name: over(text) for name, text in mount.files.items()}
            )
            for mount in step.mounts
        ),
    )


def _name(path: tuple[str, ...], taken: set[str]) -> str:
    """`rows` for steps.prepare.outputs.rows, or something longer if there is one already."""
    short = path[-1] if path[-1] not in ("outcome", "exit_code", "phase") else f"{path[-2]}-{path[-1]}"
    for name in (short, f"{path[1]}-{short}"):
        if name not in taken:
            return name
    number = 2
    while f"{short}-{number}" in taken:
        number += 1
    return f"{short}-{number}"


# -- how a function reads it ------------------------------------------------------------------------------------------


def _wire(value: Value, type_: Type, gathered: bool, declared: Type) -> str:
    if isinstance(value, Expr):
        return f"each {_plain_wire(type_.item)}" if gathered else _plain_wire(type_)
    if isinstance(value, Template):
        return "str"
    if any(True for _ in expressions(value)):
        return "deep"
    return "str" if isinstance(value, str) and declared.name == "str" else "any"


def _plain_wire(type_: Type) -> str:
    return type_.name if type_.name in ("str", "int", "float", "bool", "file", "dir") else "any"


def argument(slot: InputSlot, find: Find) -> str:
    """The text of an argument in the document. Raises NotInArgo."""
    value = slot.value
    if not slot.wire:
        text = text_of(value, find)
        return escaped(text) if slot.word else text
    if isinstance(value, Expr):
        found = direct(value, find)
        if found is not None and not found.code and (not found.status or slot.wire == "raw"):
            return found.tag
        return text_of(value, find)
    if slot.wire == "deep":
        return tagged(f"toJson({_deep(value, find)})")
    if isinstance(value, Template):
        return text_of(value, find)
    return literal(value if slot.wire == "str" and isinstance(value, str) else any_text(value))


def _deep(value: Value, find: Find) -> str:
    """Code for data whose leaves are texts of values, parsed if they are JSON."""
    if isinstance(value, Expr):
        found = direct(value, find)
        if found is not None and found.type.name != "str" and not (found.code or found.status or found.gathered):
            return found.text
        return f"toJson({ExprWriter(find).code(value.node).text})"
    if isinstance(value, Template):
        return f"toJson({ExprWriter(find).code(as_node(value)).text})"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_deep(item, find) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{string(str(key))}: {_deep(item, find)}" for key, item in value.items()) + "}"
    return string(any_text(value))


def any_text(value: Value) -> str:
    """The text that is read back as this value: text as it is, unless it would be parsed as JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return value
        return json.dumps(value, ensure_ascii=False)
    return to_text(value)


def escaped(text: str) -> str:
    """A word of a command, escaped for Kubernetes (`$$`, `$(NAME)`); except for the replica number of a gang."""
    return _DOLLARS.sub(lambda found: f"${found[0]}" if found[0] != "$$" else "$$$$", text) if "$" in text else text


_DOLLARS = re.compile(r"\$\$|\$\((?!PENSTOCK_REPLICAS?\))")


# -- many commands that differ in a word ------------------------------------------------------------------------------

Varied = tuple[Step, list[InputSlot]]


def varied(steps: list[Step]) -> dict[int, Varied]:
    """Steps whose commands differ only in some words, by id -> the step with those words as inputs, and the inputs. So a thousand
    commands of one program share one template."""
    groups: dict[Any, list[Step]] = {}
    for step in steps:
        if isinstance(step.action, Container | Script):
            groups.setdefault(_skeleton(step), []).append(step)
    found: dict[int, Varied] = {}
    for group in groups.values():
        if len(group) > 1:
            for step, slots in _vary(group):
                found[id(step)] = (slots[0], slots[1])
    return found


def _skeleton(step: Step) -> Any:
    action = step.action
    assert isinstance(action, Container | Script)
    args = len(action.args) if isinstance(action, Container) else -1
    fixed = [(place, repr(word)) for place, word in _words(step).items() if _own(word)]
    names = sorted(given.name for given in step.inputs)
    return repr(
        (
            action.kind,
            action.image,
            action.command[:1],
            len(action.command),
            args,
            tuple(action.env),
            action.workdir,
            names,
            step.outputs,
            fixed,
        )
    )


def _own(word: Value) -> bool:
    """Does it read a value that only the template has?"""
    return type(word) is not str and any(
        path[0] not in _DEPTH for expr in expressions(word) for path in references(expr.text)
    )


def _vary(group: list[Step]) -> Iterator[tuple[Step, Varied]]:
    every = [_words(step) for step in group]
    places = [place for place in every[0] if any(_differs(words[place], every[0][place]) for words in every[1:])]
    for step, words in zip(group, every, strict=True):
        slots = []
        given: dict[Any, Value] = {}
        for place in places:
            name = _slot_name(place, {one.name for one in step.inputs})
            slots.append(InputSlot(name, words[place], STR, word=place[0] in ("command", "args", "env")))
            given[place] = _input(name)
        yield step, (dataclasses.replace(step, action=_with_words(step.action, given)), slots)


@lru_cache(maxsize=1024)
def _input(name: str) -> Expr:
    return Expr.tree(reference("inputs", name))


def _differs(one: Value, other: Value) -> bool:
    return type(one) is not type(other) or bool(one != other)


def _slot_name(place: tuple[str, Any], taken: set[str]) -> str:
    kind, at = place
    name = {"command": f"word-{at}", "args": f"arg-{at}", "env": f"env-{at}", "source": "source"}[kind]
    while name in taken:
        name += "-"
    return name.replace(".", "-")


def _words(step: Step) -> dict[tuple[str, Any], Value]:
    action = step.action
    assert isinstance(action, Container | Script)
    found: dict[tuple[str, Any], Value] = {("command", at): word for at, word in enumerate(action.command) if at}
    if isinstance(action, Container):
        found |= {("args", at): word for at, word in enumerate(action.args)}
    else:
        found["source", 0] = action.source
    return found | {("env", name): value for name, value in action.env.items()}


def _with_words(action: Any, given: Mapping[Any, Value]) -> Any:
    changed: dict[str, Any] = {
        "command": tuple(given.get(("command", at), word) for at, word in enumerate(action.command)),
        "env": {name: given.get(("env", name), value) for name, value in action.env.items()},
    }
    if isinstance(action, Container):
        changed["args"] = tuple(given.get(("args", at), word) for at, word in enumerate(action.args))
    else:
        changed["source"] = given.get(("source", 0), action.source)
    return dataclasses.replace(action, **changed)
