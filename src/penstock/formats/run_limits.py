"""What of a workflow other systems do not know: limits that only a run finds, answers and payloads that are waited for, and which work it does. Called by their writers."""

from __future__ import annotations

from penstock.formats.report import Report
from penstock.graph.model import Step, Suspend, Workflow


def report_run_limits(report: Report, workflow: Workflow, target: str) -> None:
    """Names the limits that are lost, of all its steps; its callbacks, which nobody sends there; and the identity of its payload."""
    if workflow.payload is not None:
        report.lost("payload", f"{target} starts each submission, also of work that is done", source=workflow.source)
    for callback in workflow.callbacks:
        said = f"{target} tells nobody how a workflow has ended"
        report.lost(f"callbacks.{callback.name}", said, "Send it from an exit handler.", workflow.source)
    for one in (workflow, *workflow.definitions):
        where = "" if one is workflow else f"definitions.{one.name}."
        if one.links:
            said = f"{target} starts no other workflow when one has ended"
            report.lost(f"{where}links", said, "Convert each workflow, and call them as steps of one.", one.source)
        for step in (*one.steps, *one.on_exit):
            _step(report, step, f"{where}steps.{step.name}", target)


def _step(report: Report, step: Step, where: str, target: str) -> None:
    if step.timeout_by is not None:
        said = f"{target} knows no time limit that is found when it runs"
        report.lost(f"{where}.timeout_by", said, "Give it a timeout.", step.source)
    if step.answer is not None:
        said = f"{target} waits for no answer: the step is over when what it does has ended"
        report.lost(f"{where}.answer", said, "Put a step behind it that waits, and resume that.", step.source)
    if isinstance(step.action, Suspend) and step.action.payloads is not None:
        said = f"{target} knows no payloads: somebody has to let the step go on"
        report.lost(f"{where}.suspend.payloads", said, source=step.source)
    if step.each is None:
        return
    if step.each.at_once is not None:
        said = f"{target} knows no number of tasks at a time that is found when it runs"
        report.lost(f"{where}.each.at_once", said, "Give the for-each `parallel`.", step.source)
    if step.each.enough is not None:
        said = f"{target} goes through all of the for-each, also when it has enough"
        report.lost(f"{where}.each.enough", said, source=step.source)
