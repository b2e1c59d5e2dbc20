"""Changes the expressions of a step and keeps everything else; turns a value into an expression. Called by author, plan.merge and
formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from penstock.expressions.parse import Binary, Call, Const, Expr, ListOf, MapOf, Node
from penstock.expressions.template import Template
from penstock.graph import model
from penstock.graph.model import MISSING, Answer, ForEach, Step, Value


def map_value(value: Value, change: Callable[[Node], Node]) -> Value:
    """The value with `change` applied to the tree of each expression in it."""
    if isinstance(value, Expr):
        return Expr.tree(change(value.node))
    if isinstance(value, Template):
        return Template(tuple(part if isinstance(part, str) else Expr.tree(change(part.node)) for part in value.parts))
    if isinstance(value, tuple):
        return (
            tuple(map_value(item, change) for item in value) if any(True for _ in model.expressions(value)) else value
        )
    if isinstance(value, dict):
        return {key: map_value(item, change) for key, item in value.items()}
    return value


def map_step(step: Step, change: Callable[[Value], Value]) -> Step:
    """The step with `change` applied to every value in it that may hold expressions."""
    action = model.with_values(
        step.action, {name: change(value) for name, value in model.action_values(step.action) if value}
    )
    return dataclasses.replace(
        step,
        action=action,
        inputs=tuple(dataclasses.replace(given, value=change(given.value)) for given in step.inputs),
        outputs=tuple(
            output if output.value is MISSING else dataclasses.replace(output, value=change(output.value))
            for output in step.outputs
        ),
        trigger=None if step.trigger is None else change(step.trigger),
        when=None if step.when is None else change(step.when),
        timeout_by=None if step.timeout_by is None else change(step.timeout_by),
        resources_by={name: change(amount) for name, amount in step.resources_by.items()},
        answer=None if step.answer is None else _map_answer(step.answer, change),
        each=None if step.each is None else _map_each(step.each, change),
        loop=None if step.loop is None else dataclasses.replace(step.loop, condition=change(step.loop.condition)),
        cache=step.cache if step.cache.key is None else dataclasses.replace(step.cache, key=change(step.cache.key)),
        locks=tuple(dataclasses.replace(lock, name=change(lock.name)) for lock in step.locks),
        mounts=tuple(
            dataclasses.replace(
                mount,
                sub_path=change(mount.sub_path),
                files={name: change(text) for name, text in mount.files.items()},
            )
            for mount in step.mounts
        ),
    )


def _map_answer(answer: Answer, change: Callable[[Value], Value]) -> Answer:
    given = {name: getattr(answer, name) for name in model.ANSWER_BY}
    return dataclasses.replace(answer, **{name: change(one) for name, one in given.items() if one is not None})


def _map_each(each: ForEach, change: Callable[[Value], Value]) -> ForEach:
    enough = each.enough
    return dataclasses.replace(
        each,
        axes=tuple({name: change(items) for name, items in axis.items()} for axis in each.axes),
        at_once=None if each.at_once is None else change(each.at_once),
        enough=None
        if enough is None
        else dataclasses.replace(enough, when=change(enough.when), beyond=change(enough.beyond)),
    )


def as_node(value: Value) -> Node:
    """Any value as part of an expression."""
    if isinstance(value, Expr):
        return value.node
    if isinstance(value, Template):
        parts: list[Node] = [
            Const(part) if isinstance(part, str) else Call("format", (part.node, Const(""))) for part in value.parts
        ]
        node = parts[0]
        for part in parts[1:]:
            node = Binary("+", node, part)
        return node
    if isinstance(value, tuple | list):
        return ListOf(tuple(map(as_node, value)))
    if isinstance(value, dict):
        return MapOf(tuple((Const(key), as_node(item)) for key, item in value.items()))
    return Const(value)
