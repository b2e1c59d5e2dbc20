"""A pass on Penstock's engine: a scripted backend in virtual time, with values as in a real run. Called by play."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.engine.active_run import ActiveRun
from penstock.engine.engine import Engine
from penstock.errors import UserError
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.formats import registry
from penstock.graph.model import MISSING, Outcome, Output, Workflow
from penstock.testing import VirtualReport, run_virtually
from tests.cluster.agreement.examples import FAST, SLOW, Pass, library
from tests.cluster.agreement.marks import EXIT_CODE, LEAF, RESULT, RUN_TIME, argo_value, tekton_values
from tests.cluster.agreement.told import Step, Told

MOST = 120
"""Attempts. More, and it is left out: it may have no end."""
_STATES = {"reused": "succeeded", "cancelled": "omitted", "suspended": "running", "waiting": "running"}
_READS = re.compile(r'" in steps(\.[\w-]+|\["[^"]+"\])\.outputs')
"""A task of `finally` that reads results has a condition that they are there: then it is one or the other that does not hold."""
_SECONDS = {SLOW: 1.0, FAST: 0.01}


class Endless(Exception):
    """More attempts than a comparison is worth."""


class Run:
    """What became of a pass here."""

    def __init__(self, one: Pass) -> None:
        self.engine = one.example.engine
        self.came_to: set[int] = set()
        """Leaves that had a pod."""
        self.entry = ""
        """The name of the only step, if what is run is a leaf."""
        self.pods = 0
        self.codes: list[str] = []
        self._notes: Mapping[str, str] = {}
        self.told = self._played(one)

    def _played(self, one: Pass) -> Told:
        try:
            documents, root = library(one.example)
            workflow = registry.read(documents, root).workflow
            self.entry = workflow.steps[0].name if workflow.steps else ""
            self._notes = _annotations(workflow.extra)
            report = run_virtually(workflow, script=self._script, meanwhile=_resume)
        except UserError as error:
            self.codes = [one.code for one in error.problems]
            return Told("refused", "; ".join(str(one) for one in error.problems))
        if self.pods > MOST:
            raise Endless(f"more than {MOST} pods")
        return self._told(workflow, report)

    def _script(self, spec: AttemptSpec) -> Any:
        self.pods += 1
        if self.pods > MOST:
            return None
        notes = {**self._notes, **_annotations(spec.step.extra), **_annotations(spec.step.extra.get("argo") or {})}
        if LEAF in notes:
            self.came_to.add(int(notes[LEAF]))
        seconds = _SECONDS.get(notes.get(RUN_TIME, ""), 0.2)
        if notes.get(EXIT_CODE, "0") != "0":
            code = int(notes[EXIT_CODE])
            return seconds, AttemptEnded(id="", outcome=Outcome.FAILED, exit_code=code, message=f"exit code {code}")
        text = notes.get(RESULT)
        plain = [one for one in spec.step.outputs if one.type.name not in ("file", "dir")]
        if self.engine == "tekton":
            given = tekton_values(text) if text else {}
            return seconds, {one.name: _typed(one, given[one.name]) for one in plain if one.name in given}
        return seconds, {one.name: _reported(one, text) for one in plain}

    def _told(self, workflow: Workflow, report: VirtualReport) -> Told:
        steps = {}
        for row in report.tasks:
            outcome = _STATES.get(row.state, row.state)
            why = str(row.info.get("message") or "")
            if self.engine == "tekton":  # which knows fewer words
                outcome = {"errored": "failed", "omitted": "skipped"}.get(outcome, outcome)
            leaf = row.attempt if outcome in ("succeeded", "failed") else 0
            steps[row.task] = Step(outcome, why, leaf, _reason(self.engine, row.state, why))
        failed = [event for event in report.events if event.kind == "run.finished"]
        why = str(failed[-1].data.get("message") or "") if failed else ""
        return Told({"stopped": "endless"}.get(report.state, report.state), why, steps)


def _annotations(extra: Mapping[str, Any]) -> dict[str, str]:
    return dict((extra.get("metadata") or {}).get("annotations") or {})


def _typed(output: Output, text: str) -> Any:
    """Tekton's arrays and objects are JSON."""
    return json.loads(text) if text[:1] in ("[", "{") and "str" != output.type.name else text


def _reported(output: Output, text: str | None) -> Any:
    """As the testbed reports it."""
    if output.path == "/dev/stdout":
        return text or ""
    try:
        default = "" if output.default is MISSING else resolve(output.default, {})
    except EvaluationError:
        default = ""
    return argo_value(output.name, text, default)


def _reason(engine: str, state: str, why: str) -> str:
    """Why a task of Tekton was skipped, in words that both sides have; empty where ours does not tell."""
    if engine != "tekton":
        return ""
    if state == "cancelled":
        return "stopping"
    if state == "skipped" and why.endswith("does not hold") and not _READS.search(why):
        return "when"
    return ""


async def _resume(engine: Engine, live: ActiveRun) -> None:
    """Somebody resumes whatever waits, with the values that the testbed's somebody gives."""
    while True:
        await asyncio.sleep(1)
        for path, task in list(live.state.live.items()):
            given = {one.name: _reported(one, None) for one in task.step.outputs}
            engine.resume(live, path, given)
