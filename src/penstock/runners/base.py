"""What all runners share. Called by the runners and by penstock.testing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.author.capture import as_it_is_now
from penstock.author.flow import WorkflowFunction
from penstock.author.jobs import Authored
from penstock.errors import NotFound, PenstockError, PlanError, Problem
from penstock.graph.model import Workflow


class RunFailed(PenstockError):
    """A run did not succeed. Raised by `check()` of a run."""

    exit_code = 3

    def __init__(self, run: str, state: str, reasons: Iterable[str]) -> None:
        super().__init__(f"{run} {state}" + "".join(f"\n  {reason}" for reason in reasons))


def graph_of(workflow: Authored | Workflow) -> Workflow:
    """The graph of what an author wrote, with the code of its functions as it is now."""
    if isinstance(workflow, WorkflowFunction):
        return workflow.graph
    return as_it_is_now(workflow.graph if isinstance(workflow, Authored) else workflow)


def single_result(of: str, outputs: Mapping[str, Any]) -> Any:
    """The output that `.result` means: the only one, or the one named `result`. Raises NotFound."""
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    if "result" in outputs:
        return outputs["result"]
    if not outputs:
        raise NotFound(Problem("P580", f"{of} has no output", "it gives nothing back; what it printed is in .logs"))
    names = ", ".join(map(repr, outputs))
    raise NotFound(Problem("P580", f"{of} has several outputs: {names}", "say which one: .outputs[NAME]"))


def by_name(workflow: Authored, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that were given by position, as in a call of the function. Raises PlanError."""
    names = list(workflow.signature.parameters)
    twice = [name for name in names[: len(args)] if name in named]
    if len(args) > len(names) or twice:
        what = f"gives {twice[0]!r} twice" if twice else f"gives {len(args)} values for {len(names)} parameters"
        fix = f"its parameters are {', '.join(names) or 'none'}; give them by name"
        raise PlanError(Problem("P484", f"the call of {workflow.name} {what}", fix))
    return dict(zip(names, args, strict=False))
