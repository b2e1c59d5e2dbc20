"""The deliveries that there are, and the couriers of a process. Called by service.runs and service.workers."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.service.callbacks.delivery import CallbackDelivery
from penstock.service.chains.delivery import LinkDelivery
from penstock.service.outbox.courier import LONGEST, Courier, Delivery
from penstock.service.payloads.waits import BegunWaits, EndedPayloads
from penstock.settings import Settings


def deliveries(settings: Settings) -> list[Delivery]:
    """One for each kind of row. Raises UserError: the settings are no good."""
    return [CallbackDelivery(settings), LinkDelivery(settings), BegunWaits(), EndedPayloads()]


class Couriers:
    """Those of one process, one for each kind of row. `say`: is told of faults."""

    def __init__(self, settings: Settings, say: Callable[[str], None] = lambda line: None) -> None:
        self._couriers = [Courier(settings, delivery, say) for delivery in deliveries(settings)]

    def start(self) -> None:
        for courier in self._couriers:
            courier.start()

    def look(self) -> None:
        """There may be something new."""
        for courier in self._couriers:
            courier.look()

    def close(self) -> None:
        """Returns when what is due has been tried once, or it takes too long: all of them together."""
        for courier in self._couriers:
            courier.finish()
        until = time.monotonic() + LONGEST
        for courier in self._couriers:
            courier.close(max(0.0, until - time.monotonic()))

    def stop(self) -> None:
        for courier in self._couriers:
            courier.stop()
