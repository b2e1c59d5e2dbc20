"""Differences from the real controllers that are meant, as rules. Called by report for every run that differs; `scripts/docs` writes the list
in docs/reference/formats.md from it, so this file imports nothing but told.

A rule looks at what both sides tell and at the documents, never at names of files, and says which differences it explains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster.agreement.told import Difference, Told

RAN = frozenset({"succeeded", "failed", "errored", "running"})


@dataclass(frozen=True)
class Case:
    """A run on both sides."""

    engine: str
    documents: Sequence[Any]
    theirs: Told
    ours: Told
    differences: Sequence[Difference]

    def they_say(self, pattern: str) -> bool:
        """Anywhere in what they tell."""
        said = [self.theirs.why, *(step.why for step in self.theirs.steps.values())]
        return any(re.search(pattern, text) for text in said)


Explains = Callable[[Case], Iterable[Difference]]


@dataclass(frozen=True)
class Rule:
    id: str
    engine: str
    what: str
    """For the manual: what the other system does, and what is done here."""
    explains: Explains


def explained(case: Case) -> tuple[list[Rule], list[Difference]]:
    """The rules that apply, and the differences that none explains."""
    left = list(case.differences)
    rules = []
    for rule in RULES:
        if rule.engine == case.engine and left:
            found = [one for one in rule.explains(case) if one in left]
            if found:
                rules.append(rule)
                left = [one for one in left if one not in found]
    return rules, left


def table() -> str:
    """The part of docs/reference/formats.md that is made from the rules."""
    lines = ["| | there | here |", "| --- | --- | --- |"]
    for rule in RULES:
        there, _, here = rule.what.partition(" · ")
        lines.append(f"| {rule.engine.capitalize()}, {rule.id} | {there} | {here} |")
    return "\n".join(lines) + "\n"


# -- what rules are made of -------------------------------------------------------------------------------------------


def _everything_if(pattern: str) -> Explains:
    """All that follows from something that they refuse in these words."""
    return lambda case: case.differences if case.they_say(pattern) else ()


def _each(test: Callable[[Case, Difference], bool]) -> Explains:
    return lambda case: [one for one in case.differences if test(case, one)]


def _values(data: Any, name: str) -> Iterator[Any]:
    if isinstance(data, dict):
        for key, value in data.items():
            if key == name:
                yield value
            yield from _values(value, name)
    elif isinstance(data, list | tuple):
        for one in data:
            yield from _values(one, name)


def _no_node(case: Case, one: Difference) -> bool:
    return one.theirs == "absent" and one.ours == "errored" and case.theirs.end == case.ours.end == "failed"


def _never_ends(case: Case) -> Iterable[Difference]:
    errored = any(step.outcome == "errored" for step in case.ours.steps.values())
    if case.theirs.end == "endless" and case.ours.end == "failed" and errored:
        return [one for one in case.differences if not one.path or one.theirs in ("absent", "running")]
    return ()


def _empty_loop(case: Case) -> Iterable[Difference]:
    errored = any(step.outcome == "errored" and step.why == "'' is not JSON" for step in case.ours.steps.values())
    return case.differences if errored and any(True for _ in _values(case.documents, "withParam")) else ()


def _absent_reference(case: Case) -> Iterable[Difference]:
    found = re.search(r"template reference ([\w-]+)\.\S+ not found", case.theirs.why)
    names = {(one.get("metadata") or {}).get("name") for one in case.documents if isinstance(one, dict)}
    return case.differences if found and found[1] not in names else ()


def _retry_expression(case: Case) -> Iterable[Difference]:
    texts = [one.get("expression") for one in _values(case.documents, "retryStrategy") if isinstance(one, dict)]
    if any("{{" in str(text) or ".outputs." in str(text) for text in texts):
        return [one for one in case.differences if {one.theirs, one.ours} <= {"failed", "errored"}]
    return ()


def _first(case: Case, one: Difference) -> bool:
    """It was not started on one side because something else had failed, and was on the other."""
    words = [one.theirs.partition(" ")[0], one.ours.partition(" ")[0]]
    unlike = {words[0] in RAN, words[1] in RAN} == {True, False}
    stopped = "stopping" in one.their_why or bool(re.search(" failed", one.our_why))
    return bool(one.path) and unlike and stopped and case.theirs.end == case.ours.end == "failed"


# -- the rules --------------------------------------------------------------------------------------------------------

RULES: tuple[Rule, ...] = (
    Rule(
        "`when` on an empty or odd text",
        "argo",
        "the text is inserted and then parsed: with an empty value, or one that is no word, it is invalid; the step errors, or the steps "
        "template around it fails (and inside a dag the run may never end) · values are compared as texts: the condition does not hold",
        _everything_if("Invalid 'when' expression"),
    ),
    Rule(
        "a condition, loop or argument that has no value",
        "argo",
        "a steps template fails, and there is no node for the step · the step itself is errored",
        _each(_no_node),
    ),
    Rule(
        "a value that cannot be resolved",
        "argo",
        "the controller tries again for ever, and the run never ends · the step that reads it is errored, and the run fails",
        _never_ends,
    ),
    Rule(
        "a semaphore without its ConfigMap, or in a database that is not configured",
        "argo",
        "whoever asks for it is errored · its size is 1",
        _everything_if("failed to initialize semaphore|database session is not available"),
    ),
    Rule(
        "`withParam` on an empty text",
        "argo",
        "there is no loop: the step runs once, with `{{item}}` left as text · the step is errored: that is no list",
        _empty_loop,
    ),
    Rule(
        "a `podSpecPatch` that is only known in the run",
        "argo",
        "the step is errored if the text is no patch · it is left out",
        _everything_if("Error applying PodSpecPatch"),
    ),
    Rule(
        "a retry expression that reads outputs",
        "argo",
        "the text is inserted and then parsed; if that fails the step is errored · that part of the expression is left out",
        _retry_expression,
    ),
    Rule(
        "a global output that was never given",
        "argo",
        "the template that has a step that reads it fails · the call of that template is errored",
        _each(
            lambda _, one: one.theirs == "failed" and one.ours == "errored" and '"workflow.outputs.' in one.their_why
        ),
    ),
    Rule(
        "a `templateRef` to a template that is not there",
        "argo",
        "the run is refused · so it is here (P836), but `--dry`, and this comparison, walk over the step",
        _absent_reference,
    ),
    Rule(
        "branches beside one that fails",
        "argo",
        "what they have started by then depends on how long everything takes · the same",
        _each(_first),
    ),
    Rule(
        "a workspace that is not bound",
        "tekton",
        "the run is refused, unless the workspace is optional or the cluster has a default · it is an empty folder",
        _everything_if("is required but has not been bound|InvalidWorkspaceBindings"),
    ),
    Rule(
        "tasks beside one that fails",
        "tekton",
        "what they have started by then depends on how long everything takes · the same",
        _each(_first),
    ),
    Rule(
        "a false `when` in a run that stops",
        "tekton",
        "is told as: PipelineRun was stopping · the log has the condition; `penstock show` says the same as Tekton",
        _each(lambda _, one: one.theirs == "skipped (stopping)" and one.ours == "skipped (when)"),
    ),
    Rule(
        "documents that the API server refuses",
        "argo",
        "are not created · `run` refuses them (P839), a dry run does not",
        _everything_if(r"the API server: 422 .*metadata\.(name|labels)"),
    ),
)
