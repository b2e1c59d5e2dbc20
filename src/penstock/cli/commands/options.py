"""Options that several commands have. Imports nothing but click, because every command imports it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.errors import Problem, UserError

if TYPE_CHECKING:
    from penstock.settings import Settings


def _remember_file(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta["penstock.params"] = value


def _after_file(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """What the file says comes first, so that -p overrides it."""
    file = ctx.meta.get("penstock.params")
    return value if file is None else (f"@{file}", *value)


def params(command: Callable[..., Any]) -> Callable[..., Any]:
    """-p and --params, as the one argument `given` of the command."""
    one = click.option(
        "-p",
        "--param",
        "given",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_after_file,
        help="A parameter of the workflow; repeat for more. Lists and numbers are JSON. KEY=@FILE reads the value from a file; a text that "
        "begins with @ is @@text.",
    )
    file = click.option(
        "--params",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_remember_file,
        help="A file of parameters, YAML or JSON; -p overrides what it says.",
    )
    return one(file(command))


output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output format."
)
namespace = click.option(
    "-n", "--namespace", metavar="NS", help="In a cluster: the namespace.  [default: the kubeconfig's]"
)
context = click.option("--context", metavar="NAME", help="In a cluster: the context of the kubeconfig.")
kubeconfig = click.option("--kubeconfig", metavar="FILE", help="In a cluster: another kubeconfig.")
out_file = click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
jobs = click.option("-j", "--jobs", type=int, metavar="N", help="Run at most N tasks at a time.  [default: processors]")
server = click.option(
    "--server",
    metavar="URL",
    help="On a server: the address that penstock serve prints, or with PENSTOCK_TOKEN.  [default: PENSTOCK_SERVER]",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")


def settings_for(server: str | None, jobs: int | None = None) -> Settings:
    """Those of this machine, or of a server. `--server ''` means this machine although PENSTOCK_SERVER is set. Raises UserError."""
    import dataclasses

    from penstock.settings import read

    settings = read(jobs=jobs)
    url = os.environ.get("PENSTOCK_SERVER", "") if server is None else server
    return dataclasses.replace(settings, server=url) if url else settings


def duration(ctx: click.Context | None, param: click.Parameter, value: str | None) -> float | None:
    """`30m`, `2d`, `1h30m` -> seconds. The callback of an option. Raises UserError."""
    if value is None:
        return None
    from penstock.phrases import seconds_in

    found = seconds_in(value)
    if found is None:
        fix = "use a number and s, m, h, d or w, as in 30m, 12h, 2d"
        raise UserError(Problem("P508", f"{param.opts[0]} {value}: that is not a duration", fix))
    return found
