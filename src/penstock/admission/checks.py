"""The admission checks of a Workload: which ones its ClusterQueue requires, and their states. Lifecycle asks them for Workloads that
have quota and acts on the states.

The answers come from a function that the scheduler's caller gives, or from `Scheduler.set_check`.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.admission.cache import SchedulerCache
from penstock.admission.model import CheckResult, CheckState, Workload

CheckFunction = Callable[[str, Workload], CheckState | CheckResult]
"""(name of the check, Workload) -> its answer."""


class AdmissionChecks:
    def __init__(self, cache: SchedulerCache, function: CheckFunction | None = None) -> None:
        self.cache = cache
        self.function = function
        self.undecided: dict[str, None] = {}
        """Keys of Workloads that have quota and whose checks are to be asked again."""

    def required(self, workload: Workload) -> set[str]:
        """The checks that its ClusterQueue requires for the flavors that it has."""
        assert workload.admission is not None
        queue = self.cache.cluster_queues.get(workload.admission.cluster_queue)
        if queue is None or not queue.checks:
            return set()
        flavors = {flavor for podset in workload.admission.podsets for flavor in podset.flavors.values()}
        return {
            rule.name for rule in queue.checks if flavors and (not rule.flavors or not flavors.isdisjoint(rule.flavors))
        }

    def all_ready(self, workload: Workload) -> bool:
        return self.required(workload) <= workload.checks.keys() and all(
            state is CheckState.READY for state in workload.checks.values()
        )

    def pop_undecided(self) -> list[str]:
        found = list(self.undecided)
        self.undecided.clear()
        return found

    def ask(self, workload: Workload) -> bool:
        """Bring its states in line with the required checks and ask those that are pending. Has anything changed?"""
        names = self.required(workload)
        changed = workload.checks.keys() != names
        if changed:
            workload.checks = {name: workload.checks.get(name, CheckState.PENDING) for name in sorted(names)}
            workload.check_messages = {name: text for name, text in workload.check_messages.items() if name in names}
        if self.function is not None and workload.eviction is None:
            self.undecided[workload.key] = None
            for name in [name for name, state in workload.checks.items() if state is CheckState.PENDING]:
                answer = self.function(name, workload)
                state, message = answer if isinstance(answer, CheckResult) else CheckResult(answer)
                changed = self.record(workload, name, state, message) or changed
        return changed

    def record(self, workload: Workload, name: str, state: CheckState, message: str = "") -> bool:
        """Has anything changed?"""
        before = workload.checks.get(name), workload.check_messages.get(name, "")
        workload.checks[name] = state
        if message:
            workload.check_messages[name] = message
        else:
            workload.check_messages.pop(name, None)
        return before != (state, message)

    def reset(self, workload: Workload) -> None:
        """After an eviction it has to pass its checks again."""
        workload.checks = dict.fromkeys(workload.checks, CheckState.PENDING)
        workload.check_messages = {}
