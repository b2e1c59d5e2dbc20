"""What an hour of a core, of a GiB of memory, of a GPU costs, as somebody has said it: PENSTOCK_PRICES, or `prices:` in penstock.yaml. Called by
views.usage; the reader of queues, whose file is the same, leaves that document out.

There are no prices by default: then only amounts are shown.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import Problem, UserError
from penstock.service.own_documents import taken
from penstock.settings import Settings

FILE: Final = "penstock.yaml"
GPU: Final = "nvidia.com/gpu"
_FIX: Final = "write prices: {cpu: 0.04, memory: 0.005, gpu: 2.5, currency: EUR}, or PENSTOCK_PRICES=cpu=0.04,memory=0.005,gpu=2.5,currency=EUR"


@dataclass(frozen=True, slots=True)
class Prices:
    per_hour: Mapping[str, float] = field(default_factory=dict)
    """Of a core, a GiB of memory, a piece of anything else."""
    currency: str = ""

    def __bool__(self) -> bool:
        return bool(self.per_hour)

    def cost(self, hours: Mapping[str, float]) -> float | None:
        """None: there are no prices."""
        return sum(hours.get(name, 0.0) * price for name, price in self.per_hour.items()) if self.per_hour else None

    def as_data(self) -> dict[str, Any]:
        return {"currency": self.currency, "per_hour": dict(self.per_hour)}


def configured(environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Prices:
    """Raises UserError if what is written are no prices."""
    given = (os.environ if environ is None else environ).get("PENSTOCK_PRICES", "").strip()
    if given:
        parts = [part.partition("=") for part in given.split(",")]
        if not all(equals for _, equals, _ in parts):
            raise _wrong("PENSTOCK_PRICES", given[:60])
        return _checked({name.strip(): value.strip() for name, _, value in parts}, "PENSTOCK_PRICES")
    try:
        text = ((folder or Path.cwd()) / FILE).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # whoever reads the queues in it says so
        return Prices()
    return split(text)[0]


def prices_for(settings: Settings) -> Prices:
    """Those of this machine, or of a server. Raises UserError."""
    if not settings.server:
        return configured()
    from penstock.service.remote_store import connection

    found = connection(settings.server).get("store")["prices"]
    return Prices(found["per_hour"], found["currency"])


def split(text: str) -> tuple[Prices, str]:
    """What `prices:` says in a file of queues, and the text without that document. Raises UserError."""
    import yaml

    try:
        document, rest = taken(text, "prices")
    except yaml.YAMLError as error:
        raise _wrong(f"prices in {FILE}", str(error).splitlines()[0]) from None
    if document is None:
        return Prices(), text
    inside = document.get("prices") if isinstance(document, Mapping) else None
    if not isinstance(inside, Mapping) or set(document) != {"prices"}:
        raise _wrong(f"prices in {FILE}", "it stands beside something else, or is not a map")
    return _checked(inside, f"prices in {FILE}"), rest


def _checked(given: Mapping[Any, Any], where: str) -> Prices:
    found: dict[str, float] = {}
    for name, value in given.items():
        if name == "currency":
            continue
        try:
            price = float(value)
        except (TypeError, ValueError):
            price = math.nan
        if not 0 <= price < 1e9:
            raise _wrong(where, f"{name}: {str(value)[:40]!r} is not a price")
        found[GPU if name == "gpu" else str(name)] = price
    return Prices(found, str(given.get("currency", ""))[:8])


def _wrong(where: str, what: str) -> UserError:
    return UserError(Problem("P981", f"{where}: {what}", _FIX))
