"""What several commands share: options, the store that is looked into, lengths of time. Called by look, follow and sweep."""

from __future__ import annotations

import re
from pathlib import Path

import click

from penstock.errors import NotFound, Problem, UserError
from penstock.settings import Settings
from penstock.store.sql import Store, open_store

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def look_into(settings: Settings) -> Store:
    """The store, for looking: none is made where none is. Raises NotFound."""
    if "://" not in settings.store and not Path(settings.store, "state.db").exists():
        fix = "start a run (penstock run FILE), go to the folder where it was started, or set PENSTOCK_HOME"
        raise NotFound(Problem("P505", f"nothing has been run here: there is no store in {settings.store}", fix))
    return open_store(settings.store)


def length(ctx: click.Context | None, param: click.Parameter, value: str | None) -> float | None:
    """`30m`, `2d`, `1h30m` -> seconds. The callback of an option."""
    if value is None:
        return None
    text = value.strip().lower()
    parts = _LENGTH.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        fix = "use a number and s, m, h, d or w, as in 30m, 12h, 2d"
        raise UserError(Problem("P508", f"{param.opts[0]} {value}: that is not a length of time", fix))
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
