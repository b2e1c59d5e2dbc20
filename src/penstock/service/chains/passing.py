"""What a link gives to the run that it starts, and whether its condition holds. Called by delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.artifacts.plain import plain
from penstock.errors import PlanError, Problem
from penstock.expressions.evaluate import EvaluationError, evaluate, resolve
from penstock.expressions.parse import references
from penstock.graph.chains import name_of
from penstock.graph.model import Link, Workflow, expressions
from penstock.service.results import opened, outputs_of
from penstock.settings import Settings
from penstock.store.records import RunRecord


class Before(NamedTuple):
    """One of those that a link comes after."""

    workflow: Workflow
    run: RunRecord | None
    """None: it was not run."""


class Passing:
    """`head`: the run whose workflow has the link. `before`: in the order of the link."""

    def __init__(
        self, settings: Settings, link: Link, target: Workflow, head: RunRecord, before: Sequence[Before]
    ) -> None:
        self._settings = settings
        self._link = link
        self._target = target
        self._head = head
        self._before = before
        self._outputs = self._read()

    def holds(self) -> bool:
        """Raises PlanError."""
        assert self._link.when is not None
        found = self._valued("when", self._link.when)
        if not isinstance(found, bool):
            raise PlanError(self._problem("when", f"{self._link.when.text} is neither true nor false"))
        return found

    def params(self) -> dict[str, Any]:
        """Raises PlanError."""
        found: dict[str, Any] = {}
        for param in self._target.params:
            name = param.name
            if name in self._link.params:
                found[name] = self._valued(f"params.{name}", self._link.params[name])
            elif name in self._outputs:
                found[name] = self._outputs[name]
            elif name in self._head.params:
                found[name] = self._head.params[name]
        return found

    def _valued(self, place: str, value: Any) -> Any:
        scope = {"outputs": self._outputs, "params": self._head.params, "run": self._run()}
        try:
            return resolve(value, scope) if place != "when" else evaluate(value, scope)
        except (EvaluationError, KeyError) as error:
            raise PlanError(self._problem(place, str(error))) from None

    def _run(self) -> Mapping[str, Any]:
        ran = [one.run for one in self._before if one.run is not None]
        run = next((one for one in ran if one.state != "succeeded"), ran[0] if ran else self._head)
        return {"id": run.id, "state": run.state, "error": run.error, "workflow": run.workflow}

    def _read(self) -> dict[str, Any]:
        """Only what is used: there may be files of any size among the outputs. What several of them have is a list, in their order."""
        wanted = self._names()
        declared = [{output.name for output in one.workflow.outputs} for one in self._before]
        found: dict[str, Any] = {}
        for place, one in enumerate(self._before):
            if one.run is None:
                continue
            kept = {name: value for name, value in outputs_of(one.run).items() if name in wanted & declared[place]}
            for name, value in opened(self._settings, one.run.id, kept).items():
                if sum(name in names for names in declared) > 1:
                    found.setdefault(name, []).append(plain(value))
                else:
                    found[name] = plain(value)
        return found

    def _names(self) -> set[str]:
        values = [self._link.when, *self._link.params.values()]
        paths = [path for value in values for expr in expressions(value) for path in references(expr.text)]
        everything = any(path == ("outputs",) for path in paths)
        read = {path[1] for path in paths if path[0] == "outputs" and len(path) > 1}
        passed = {param.name for param in self._target.params} - set(self._link.params)
        return read | passed | ({o.name for one in self._before for o in one.workflow.outputs} if everything else set())

    def _problem(self, place: str, message: str) -> Problem:
        fix = "correct the link, or give what it reads a default"
        return Problem("P545", f"the link {name_of(self._link)!r}: {message}", fix, where=f"links.{place}")
