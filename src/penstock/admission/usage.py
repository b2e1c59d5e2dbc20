"""What each LocalQueue has consumed recently: usage-based admission fair sharing. The cache has a UsageLedger if the configuration
asks for it; PendingQueues order LocalQueues by it, and the preemption search breaks ties with it.

Consumption decays with the configured half-life. A Workload that gets quota is counted at once, as a penalty, so that a burst of small
Workloads gains nothing. Amounts are integers in billionths, so that sums do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf

from penstock.admission.model import UNLIMITED, Amounts, Config, Usage

_UNIT = 10**9
_CPU_UNIT = 10**6
"""cpu is counted in thousandths."""

Billionths = dict[str, int]
"""By resource."""


def _billionths(amounts: Amounts) -> Billionths:
    return {name: amount * (_CPU_UNIT if name == "cpu" else _UNIT) for name, amount in amounts.items()}


def _times(amounts: Mapping[str, int], factor: float) -> Billionths:
    above, below = Decimal(repr(factor)).as_integer_ratio()
    return {name: amount * above // below for name, amount in amounts.items()}


def _add(into: Billionths, amounts: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in amounts.items():
        into[name] = into.get(name, 0) + sign * amount


def decay(elapsed: float, half_life: float) -> float:
    """Which part of the consumption is gone after this many seconds."""
    return 1.0 - 0.5 ** (elapsed / half_life) if half_life > 0 else 0.0


@dataclass(slots=True)
class LocalQueueUsage:
    """Of one LocalQueue."""

    at: float
    """The time of the last sample."""
    consumed: Billionths = field(default_factory=dict)
    penalties: dict[str, Billionths] = field(default_factory=dict)
    """Of Workloads that have quota but are not admitted yet, by key."""
    running: Billionths = field(default_factory=dict)
    """What its admitted Workloads hold now."""


class UsageLedger:
    def __init__(self, config: Config, weight: Callable[[str], float]) -> None:
        assert config.half_life is not None
        self.config = config
        self.half_life = config.half_life
        self.weight = weight
        """Of a LocalQueue. One with a greater weight may consume more."""
        self.accounts: dict[str, LocalQueueUsage] = {}

    def usage(self, queue: str) -> float:
        """What LocalQueues are ordered by: the lowest comes first."""
        weight = self.weight(queue)
        if weight <= 0:
            return inf
        account = self.accounts.get(queue)
        if account is None:
            return 0.0
        total = dict(account.consumed)
        for penalty in account.penalties.values():
            _add(total, penalty)
        weights = self.config.resource_weights
        return sum(weights.get(name, 1.0) * (total[name] / _UNIT) for name in sorted(total)) / weight

    def seed(self, queue: str, consumed: Amounts, now: float) -> None:
        """Set what was consumed before."""
        self._account(queue, now).consumed = _billionths(consumed)

    def reserved(self, queue: str, key: str, asked: Amounts, now: float) -> None:
        penalty = _times(_billionths(asked), decay(self.config.sampling, self.half_life))
        self._account(queue, now).penalties[key] = penalty

    def given_up(self, queue: str, key: str) -> None:
        """It will not be admitted: remove its penalty."""
        account = self.accounts.get(queue)
        if account is not None:
            account.penalties.pop(key, None)

    def admitted(self, queue: str, key: str, now: float) -> None:
        account = self._account(queue, now)
        self.sample(queue, now)
        _add(account.consumed, account.penalties.pop(key, {}))

    def changed(self, queue: str, held: Usage, sign: int, now: float) -> None:
        """Admitted Workloads hold this much more, or (sign -1) less."""
        running = self._account(queue, now).running
        for fr, amount in held.items():
            _add(running, _billionths({fr.resource: min(amount, UNLIMITED)}), sign)

    def sample(self, queue: str, now: float) -> None:
        account = self._account(queue, now)
        gone = decay(max(0.0, now - account.at), self.half_life)
        consumed = _times(account.consumed, 1 - gone)
        _add(consumed, _times(account.running, gone))
        account.consumed = consumed
        account.at = max(account.at, now)

    def sample_due(self, now: float) -> bool:
        """Take the samples that are due. Were there any?"""
        found = [queue for queue, account in self.accounts.items() if account.at + self.config.sampling <= now]
        for queue in found:
            if self.half_life > 0:
                self.sample(queue, now)
            else:
                self.accounts[queue].consumed, self.accounts[queue].at = {}, now
        return bool(found)

    def next_sample(self) -> float | None:
        return min((account.at + self.config.sampling for account in self.accounts.values()), default=None)

    def forget(self, queue: str) -> None:
        self.accounts.pop(queue, None)

    def _account(self, queue: str, now: float) -> LocalQueueUsage:
        account = self.accounts.get(queue)
        if account is None:
            account = self.accounts[queue] = LocalQueueUsage(now)
        return account
