"""A call as it is written, the spec of its leaf template, and the builder of its Step. Passed between the parts of the Argo reader.

A Step is built at the end, because only then is known which of its outputs others read (the output `result` is declared only then) and what has
to be passed down to the templates it calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.expressions.parse import Expr
from penstock.formats.argo.read.template import TemplateSpec
from penstock.graph.model import MISSING, Action, Edge, Input, Nested, Outcome, Output, Step, Value


@dataclass(eq=False, slots=True)
class LoopItems:
    """What is known of the items of a for-each."""

    kind: str
    """text: all are texts. any: they may be anything."""
    fields: frozenset[str] = frozenset()
    """Of maps: the fields that are text in all of them."""
    items: Value = ()
    names_read: bool = False
    """Does the step read its name, which has the item in it?"""


@dataclass(eq=False, slots=True)
class CallSite:
    """One step or task as it is written, and its step in the model."""

    name: str
    step: str
    raw: Mapping[str, Any]
    path: str
    template: TemplateSpec
    group: int | None
    number: int
    tolerates: frozenset[Outcome] = frozenset()
    looped: bool = False
    result_read: bool = False
    outputs_read: set[str] = field(default_factory=set)
    """Its outputs that others read."""
    reads: set[str] = field(default_factory=set)
    """Names of steps whose outputs or outcome it uses."""
    hooks: list[str] = field(default_factory=list)
    """Its hooks; dependents of the step wait for them."""


@dataclass(frozen=True, slots=True)
class LeafSpec:
    """What all calls of a leaf template in one workflow share."""

    action: Action
    outputs: tuple[Output, ...]
    result: Output | None = None
    """What it prints or responds: an output if others read it."""
    spare: frozenset[str] = frozenset()
    """Optional outputs: left out unless others read them."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The other fields of its Step, by name."""


@dataclass(eq=False, slots=True)
class StepBuilder:
    """Collects the fields of a Step."""

    site: CallSite
    inputs: list[Input]
    made: LeafSpec | Nested
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the Step, by name."""
    needs: list[Edge] = field(default_factory=list)
    trigger: Expr | None = None

    def step(self) -> Step:
        site = self.site
        if isinstance(self.made, Nested):
            return Step(
                name=site.step,
                action=self.made,
                inputs=tuple(self.inputs),
                needs=tuple(self.needs),
                trigger=self.trigger,
                **self.fields,
            )
        return Step(
            name=site.step,
            action=self.made.action,
            inputs=tuple(self.inputs),
            outputs=self.outputs(self.made),
            needs=tuple(self.needs),
            trigger=self.trigger,
            **self.fields,
        )

    def outputs(self, leaf_spec: LeafSpec) -> tuple[Output, ...]:
        found = leaf_spec.outputs
        if leaf_spec.spare:
            found = tuple(one for one in found if one.name not in leaf_spec.spare or one.name in self.site.outputs_read)
        if self.site.looped:  # a default would be the whole list, which Argo does not have
            found = tuple(one if one.default is MISSING else replace(one, default=MISSING) for one in found)
        if self.site.result_read and leaf_spec.result is not None:
            found = (*found, leaf_spec.result)
        return found
