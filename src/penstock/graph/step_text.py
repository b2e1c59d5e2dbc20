"""Steps as canonical JSON, without their plain form in between. Called by codec.to_json, which writes the document of every run.

A large workflow is mostly function steps that only have inputs and outputs, and few different functions. Their text is put together
from pieces, each written once. For every other step the plain form is made. A property test compares both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields
from operator import attrgetter, is_
from typing import Any, Final

from penstock.expressions.parse import Expr
from penstock.expressions.template import show_template
from penstock.expressions.types import ANY, Type
from penstock.graph.model import MISSING, Function, Input, Output, Step

canonical: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
).encode
"""Plain data -> its canonical text. The encoder is made once: a plan computes a hundred thousand keys with it."""
_quoted: Callable[[str], str] = json.encoder.encode_basestring

_USUAL: Final = [
    f for f in fields(Step) if f.default is not NO_DEFAULT and f.name not in ("inputs", "outputs", "source")
]
_usual_fields = attrgetter(*[f.name for f in _USUAL])
_USUAL_DEFAULTS: Final = tuple(f.default for f in _USUAL)
_mappings = attrgetter(*[f.name for f in fields(Step) if f.default_factory is not NO_DEFAULT])


class StepTexts:
    """The steps of one document. It remembers pieces by the identity of their types, so the workflow must outlive it."""

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        """`encode`: any part of the model as plain data."""
        self._encode = encode
        self._functions: dict[tuple[str, str, str], str] = {}
        self._outputs: dict[tuple[str, int], str] = {}
        self._types: dict[int, str] = {}

    def text(self, step: Step) -> str:
        action = step.action
        if (
            type(action) is not Function
            or action.env
            or action.image is not None
            or any(_mappings(step))
            or not all(map(is_, _usual_fields(step), _USUAL_DEFAULTS))
        ):
            return canonical(self._encode(step))
        inputs = ",".join([self._input(given) for given in step.inputs])
        outputs = ",".join([self._output(output) for output in step.outputs])
        return (
            f'{{"function":{self._function(action)}'
            + (f',"inputs":[{inputs}]' if inputs else "")
            + f',"name":{_quoted(step.name)}'
            + (f',"outputs":[{outputs}]}}' if outputs else "}")
        )

    def _function(self, action: Function) -> str:
        which = (action.module, action.name, action.code)
        found = self._functions.get(which)
        if found is None:
            found = self._functions[which] = canonical(self._encode(action))
        return found

    def _input(self, given: Input) -> str:
        value = given.value
        if type(value) is not Expr or given.path is not None or given.default is not MISSING:
            return canonical(self._encode(given))
        name, shown = _quoted(given.name), _quoted(show_template(value))
        return f'{{"name":{name}{self._type(given.type)},"value":{shown}}}'

    def _output(self, output: Output) -> str:
        if output.path is not None or output.value is not MISSING or output.default is not MISSING:
            return canonical(self._encode(output))
        which = (output.name, id(output.type))
        found = self._outputs.get(which)
        if found is None:
            found = self._outputs[which] = canonical(self._encode(output))
        return found

    def _type(self, type: Type) -> str:
        found = self._types.get(id(type))
        if found is None:
            found = self._types[id(type)] = "" if type == ANY else f',"type":{_quoted(str(type))}'
        return found
