"""Steps on their way: a call as it is written, the mould of its template, and the draft that a Step is made from. Passed between the
parts of the Argo reader.

A step is drafted when its text is read and made at the end, because only then is known what others read of it (its output
`result` is declared only then) and what has to be passed down to the templates it calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.formats.argo_in.sheet import Sheet
from penstock.graph.expr import Expr
from penstock.graph.model import MISSING, Action, Edge, Input, Nested, Outcome, Output, Step


@dataclass(eq=False, slots=True)
class Loop:
    """What is known of the items of a for-each."""

    kind: str
    """text: all are texts. any: they may be anything."""
    fields: frozenset[str] = frozenset()
    """Of maps: the fields that are text in all of them."""


@dataclass(eq=False, slots=True)
class Site:
    """One step or task as it is written, and its step in the model."""

    name: str
    step: str
    raw: Mapping[str, Any]
    path: str
    sheet: Sheet
    group: int | None
    number: int
    tolerates: frozenset[Outcome] = frozenset()
    looped: bool = False
    result_read: bool = False
    outputs_read: set[str] = field(default_factory=set)
    """Its outputs that others use."""
    reads: set[str] = field(default_factory=set)
    """Names of steps whose outputs or outcome it uses."""
    hooks: list[str] = field(default_factory=list)
    """Steps that run when it is over, and that those behind it wait for."""


@dataclass(frozen=True, slots=True)
class Mould:
    """What all calls of a template in one workflow have in common."""

    action: Action
    outputs: tuple[Output, ...]
    result: Output | None = None
    """What it prints or answers: an output if somebody reads it."""
    spare: frozenset[str] = frozenset()
    """Outputs that need not be there, and are left out unless somebody reads them."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Everything else of its Step, by name."""


@dataclass(eq=False, slots=True)
class Draft:
    """A step on its way."""

    site: Site
    inputs: list[Input]
    made: Mould | Nested
    fields: dict[str, Any] = field(default_factory=dict)
    """Of the Step, by name."""
    needs: list[Edge] = field(default_factory=list)
    trigger: Expr | None = None

    def step(self) -> Step:
        site = self.site
        if isinstance(self.made, Nested):
            return Step(
                name=site.step, action=self.made, inputs=tuple(self.inputs), needs=tuple(self.needs), trigger=self.trigger, **self.fields
            )  # fmt: skip
        return Step(
            name=site.step,
            action=self.made.action,
            inputs=tuple(self.inputs),
            outputs=self.outputs(self.made),
            needs=tuple(self.needs),
            trigger=self.trigger,
            **self.fields,
        )

    def outputs(self, mould: Mould) -> tuple[Output, ...]:
        found = mould.outputs
        if mould.spare:
            found = tuple(one for one in found if one.name not in mould.spare or one.name in self.site.outputs_read)
        if self.site.looped:  # a default stands for the whole list, and Argo has none for that
            found = tuple(one if one.default is MISSING else replace(one, default=MISSING) for one in found)
        if self.site.result_read and mould.result is not None:
            found = (*found, mould.result)
        return found
