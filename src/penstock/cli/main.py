"""The `penstock` command: the table of commands, and exit codes. The console script calls main().

Commands are imported when they run, so that `penstock --help` loads only click.
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
    "plan": ("plan", "Show steps, stages, reservations and peak demand of a workflow."),
    "draw": ("plan", "Draw a workflow as Mermaid, DOT, SVG or a tree."),
    "merge": ("plan", "Join workflows into one graph, in which shared steps occur once."),
    "diff": ("plan", "Compare two workflows, two runs, or a workflow with a run."),
    "convert": ("convert", "Write a workflow for Argo, Tekton, JobSet, as Python, or as a drawing."),
    "schedule": ("schedule", "Run workflows by the clock; or write the metadata of Kueue or YuniKorn into manifests."),
    "gate": ("convert", "Make manifests wait in a queue before each of their stages."),
    "ungate": ("convert", "Remove what gate added."),
    "run": ("run", "Run a workflow on this machine and follow it."),
    "submit": ("payload", "Have a payload worked on, unless it is or was already."),
    "payload": ("payload", "Payloads: list them, look at one, invalidate one."),
    "redrive": ("payload", "Try again all runs that failed in a certain way."),
    "ls": ("history", "List runs."),
    "show": ("history", "Show a run, a step or a task."),
    "get": ("history", "Fetch what a run, a step or a task gave: files and values."),
    "why": ("history", "Show what a run or a step waits for, and has waited for."),
    "watch": ("follow", "Follow a run live, from anywhere."),
    "logs": ("follow", "Show what tasks printed."),
    "resume": ("run", "Continue a run, or a suspended step of it."),
    "answer": ("answer", "Answer a step that waits for it, with its token."),
    "retry": ("run", "Try again what failed in a run."),
    "cancel": ("run", "End a run. retry can take it up again."),
    "queue": ("queue", "Queues: quota, who holds it, who waits; apply, drain, resume."),
    "callbacks": ("callbacks", "Callbacks: what was sent when runs ended, and sending again."),
    "usage": ("usage", "What runs asked for, used and cost, by person, queue or workflow."),
    "controller": ("controller", "Queue workflows in a Kubernetes cluster: print the manifests, check a cluster, run."),
    "serve": ("serve", "Serve runs and queues over HTTP: pages and an API."),
    "worker": ("serve", "Execute runs that were submitted to a server."),
    "token": ("serve", "Tokens: who may call a server, and what for."),
    "audit": ("audit", "Show who did what through a server."),
    "gc": ("gc", "Remove old runs and what no run refers to any more."),
    "doctor": ("doctor", "Check the store and what is around it, and repair what can be."),
    "explain": ("explain", "Explain an error code."),
    "completion": ("explain", "Complete commands, options, runs and steps in bash, zsh or fish."),
}
"""Command -> the module in penstock.cli.commands, and its line in the help."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.commands.{COMMANDS[cmd_name][0]}")
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


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", message="penstock %(version)s")
def cli() -> None:
    """Penstock: a queue-aware workflow system.

    FILE is a Python file (flow.py, or flow.py:name if it has several workflows), Penstock YAML or JSON, or a manifest of Argo
    Workflows, Tekton, JobSet or Kubernetes (or a folder of them; FOLDER:name if it has several).

    Exit codes: 0 done, 1 internal error or unusable store, 2 usage or bad input, 3 the run failed, 4 not found, 130 interrupted."""


IN_CLUSTER = {"queue": {"ls": {"cluster": True}, "show": {"cluster": True}}}
"""What options are without being given, where the command is called as a plugin of kubectl."""


def kubectl_plugin() -> None:
    """`kubectl penstock …` runs the program kubectl-penstock: the same commands, and queues are those of the cluster."""
    sys.exit(run(sys.argv[1:], "kubectl penstock", IN_CLUSTER))


def main() -> None:
    # What is made at start-up is needed until the end; collecting garbage among it takes a tenth of the time.
    gc.disable()
    if "_PENSTOCK_COMPLETE" in os.environ:
        from penstock.cli.completion import answer
        from penstock.cli.ui import render

        texts = {name: text for name, (_, text) in COMMANDS.items()}
        render.data(answer(os.environ.get("_PENSTOCK_LINE", ""), cli, texts), end="")
        sys.exit(0)
    sys.exit(run(sys.argv[1:]))


def run(args: list[str], name: str = "penstock", defaults: dict[str, Any] | None = None) -> int:
    """Executes one command line and returns its exit code. Every error becomes a few lines on stderr."""
    from penstock.cli.ui import errors, render

    try:
        # Not cli.main(), which has its own rules for exit codes and closed pipes.
        with cli.make_context(name, args, default_map=defaults) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.NoArgsIsHelpError as error:
        render.data(error.format_message())
        return 0
    except PenstockError as error:
        errors.error(error)
        return error.exit_code
    except click.UsageError as error:
        errors.usage(error)
        return 2
    except click.exceptions.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe (| head). Python would report that again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG"):
            raise
        errors.internal(error)
        return 1
