"""Who made a stored value, for the message about one that is damaged or missing. Called by the dispatcher when an attempt has failed for that reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.engine.steps import WorkflowScope
from penstock.graph.stored import Stored, stored_in

_TOLD = re.compile(r"(P7(?:07|19) the stored value (sha256:[0-9a-f]{64}) is [a-z ]+)")


def with_maker(message: str, scope: WorkflowScope, inputs: Mapping[str, Any]) -> str:
    """The message, with the task whose result the value is, or the input that had it."""
    found = _TOLD.search(message)
    if found is None:
        return message
    maker = maker_of(scope, found[2])
    if not maker:
        names = [name for name, value in inputs.items() if any(one.digest == found[2] for one in stored_in(value))]
        maker = f"the input {names[0]!r}" if names else ""
    who = f", made by {maker}" if maker and not maker.startswith("the input") else f", {maker}" if maker else ""
    return message.replace(found[1], f"{found[1]}{who}", 1)


def maker_of(scope: WorkflowScope, digest: str) -> str:
    """The task of this workflow, or of those that call it, in whose outputs it is; empty: of none."""
    around: WorkflowScope | None = scope
    while around is not None:
        for name, known in around.steps.items():
            for value in dict.values(known.get("outputs") or {}):
                if type(value) is Stored and value.digest == digest:
                    return f"task {around.prefix}{name}"
                for index, item in enumerate(value if type(value) is list else ()):
                    if any(one.digest == digest for one in stored_in(item)):
                        plan = around.blueprint.plans[around.blueprint.number[name]]
                        all_there = plan.step.each is not None and known["outcome"] == "succeeded"
                        return f"task {around.prefix}{name}" + (f"[{index}]" if all_there else "")
                if any(one.digest == digest for one in stored_in(value)):
                    return f"task {around.prefix}{name}"
        around = around.owner.state.scope if around.owner is not None else None
    return ""
