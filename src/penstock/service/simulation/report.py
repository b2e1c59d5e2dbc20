"""Results of a simulation as data. Called by `penstock queue simulate -o json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.admission.metrics import ResourceTotal
from penstock.service.amounts import spell
from penstock.service.simulation.scenario import QueueSetup, WorkflowSource, remarks
from penstock.service.simulation.simulate import SimulatedJob, SimulationResult


def report(
    found: Sequence[WorkflowSource],
    jobs: Sequence[SimulatedJob],
    setup: QueueSetup,
    results: Sequence[SimulationResult],
) -> dict[str, Any]:
    """Times are seconds, amounts are as Kubernetes spells them, amounts over time are cores, bytes or pieces times seconds."""
    files = {id(one.workflow): one.file for one in found}
    return {
        "queues": setup.name,
        "capacity": {name: _spelled(amount, name) for name, amount in results[0].capacity.items()} if results else {},
        "jobs": [
            {
                "workflow": job.workflow.name,
                "file": files[id(job.workflow)],
                "at": job.at,
                "queue": job.queue,
                "priority": job.priority,
            }
            for job in jobs
        ],
        "remarks": [remark.text for remark in remarks(found)],
        "units": [_unit(one) for one in results],
    }


def _unit(one: SimulationResult) -> dict[str, Any]:
    if one.refused is not None:
        return {"unit": str(one.unit), "refused": [problem.as_data() for problem in one.refused.problems]}
    measures = one.measures
    assert measures is not None
    return {
        "unit": str(one.unit),
        "makespan": _round(measures.makespan),
        **{
            name: {"mean": _round(spread.mean), "max": _round(spread.longest)}
            for name, spread in (
                ("delay", measures.delay),
                ("waiting", measures.waiting),
                ("stalled", measures.stalled),
            )
        },
        "preemptions": measures.preemptions,
        "workloads": one.workloads,
        "resources": {name: _total(name, total) for name, total in measures.totals.items()},
        "runs": {
            name: {
                "state": one.runs[name].state,
                "tasks": one.runs[name].tasks,
                **{key: _round(value) for key, value in run.as_data().items()},
            }
            for name, run in measures.runs.items()
        },
    }


def _total(resource: str, total: ResourceTotal) -> dict[str, Any]:
    per = 1000 if resource == "cpu" else 1
    return {
        "capacity": _spelled(total.capacity, resource),
        "utilisation": _round(total.utilisation),
        "reserved": _round(total.reserved / per),
        "used": _round(total.used / per),
        "wasted": _round(total.wasted / per),
        "peak_reserved": spell(total.peak_reserved, resource),
        "peak_used": spell(total.peak_used, resource),
    }


def _spelled(amount: int | None, resource: str) -> str | None:
    return None if amount is None else spell(amount, resource)


def _round(value: float | None) -> float | None:
    """To a millionth: sums of floating-point seconds have rounding errors."""
    return round(value, 6) if isinstance(value, float) else value
