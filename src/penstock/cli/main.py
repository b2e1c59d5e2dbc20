"""The `penstock` command: the table of commands, and what happens when one fails. The console script calls main().

Commands are imported when they run, so that `penstock --help` costs only what it shows.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any

import click

from penstock import __version__
from penstock.errors import PenstockError

COMMANDS: dict[str, tuple[str, str]] = {
    "plan": ("work", "Show steps, stages, reservations and peak demand of a workflow."),
    "draw": ("work", "Draw a workflow as Mermaid, DOT, SVG or a tree."),
    "merge": ("work", "Join workflows into one graph with the shared part once."),
    "diff": ("work", "Compare two workflows, two runs, or one with the other."),
    "convert": ("translate", "Write a workflow for Argo, Tekton, JobSet, as Python, or as a drawing."),
    "gate": ("translate", "Let manifests wait in a queue before each of their stages."),
    "ungate": ("translate", "Take back what gate did."),
    "run": ("act", "Run a workflow on this machine and follow it."),
    "ls": ("look", "List runs."),
    "show": ("look", "Show a run, a step or a task."),
    "why": ("look", "Say what a run or a step waits for, and has waited for."),
    "watch": ("follow", "Follow a run live, from anywhere."),
    "logs": ("follow", "Show what tasks printed."),
    "resume": ("act", "Go on with a run, or with a suspended step of it."),
    "retry": ("act", "Try again what failed in a run."),
    "cancel": ("act", "End a run for good."),
    "queue": ("queue", "Queues: quotas, who holds them, who waits; apply, drain, resume."),
    "gc": ("sweep", "Remove old runs and what nobody needs any more."),
    "explain": ("look", "Explain an error code."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from penstock.errors import nearest

            raise click.UsageError(f"There is no command {args[0]!r}.{nearest(args[0], COMMANDS)}", ctx) from None


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", message="penstock %(version)s")
def cli() -> None:
    """Penstock lets work into a cluster: a queue-aware workflow system.

    FILE is a Python file (flow.py, or flow.py:name if it has several workflows), Penstock YAML or JSON, or a manifest of Argo
    Workflows, Tekton, JobSet or Kubernetes (or a folder of them; FOLDER:name if it has several).

    Exit codes: 0 done, 1 our fault, 2 usage or bad input, 3 the run failed, 4 not found, 5 not allowed, 130 interrupted."""


def main() -> None:
    # What is made while starting stays; looking through it for garbage again and again would be a tenth of the time.
    gc.disable()
    sys.exit(run(sys.argv[1:]))


def run(args: list[str]) -> int:
    """One command line -> its exit code. Every error ends here, as a few lines on stderr."""
    from penstock.cli import render

    try:
        # Not cli.main(), which has ideas of its own about exit codes and closed pipes.
        with cli.make_context("penstock", args) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except PenstockError as error:
        render.error(error)
        return error.exit_code
    except click.UsageError as error:
        render.usage(error)
        return 2
    except click.exceptions.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # The reader has gone (| head). Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG"):
            raise
        render.bug(error)
        return 1
