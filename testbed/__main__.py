"""`python -m testbed`: build the programs, start an instance and leave it running, list the instances, end them. Called by the Makefile."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from testbed import binaries
from testbed.components import NAMES, programs
from testbed.errors import TestbedError


def instances() -> list[dict[str, Any]]:
    """What is running on this machine, by the files that the instances leave in their folders."""
    found = []
    for file in sorted(Path(tempfile.gettempdir()).glob("penstock-testbed-*/instance.json")):
        with contextlib.suppress(OSError, ValueError):
            state = json.loads(file.read_text())
            state["dir"] = str(file.parent)
            state["alive"] = is_keeper(state["keeper"], file.parent)
            found.append(state)
    return found


def is_keeper(pid: int, folder: Path) -> bool:
    """Whether the process is the keeper of the folder: process ids are used again."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(folder).encode() in words


def able(_: argparse.Namespace) -> int:
    """Whether the programs are there or can be built."""
    if binaries.missing(programs(NAMES)):
        binaries.go()
    return 0


def build(arguments: argparse.Namespace) -> int:
    names = programs(arguments.components) if arguments.components else [*programs(NAMES), *binaries.BESIDE]
    deadline = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    left = binaries.build(names, deadline)
    if left:
        print(f"testbed: time is up; not built, and skipped by the tests: {', '.join(left)}", flush=True)
    return 0


def up(arguments: argparse.Namespace) -> int:
    from testbed.instance import Testbed

    names = list(
        arguments.components or [name for name in NAMES if name not in ("crds", "node", "yunikorn", "ray", "mpi")]
    )
    if arguments.node == "real" and "node" not in names:
        names.append("node")
    if left := binaries.build(programs(names)):
        raise TestbedError(f"not built: {', '.join(left)}")
    bed = Testbed.start(*names, nodes=arguments.nodes)
    bed.detach()
    print(f"testbed: up in {bed.seconds['ready']:.1f} s with {', '.join(bed.components)}; logs in {bed.dir / 'log'}")
    print(f"export KUBECONFIG={bed.kubeconfig}")
    print(f"export PATH={binaries.path('kubectl').parent}:$PATH")
    sys.stdout.flush()
    os._exit(0)  # the keeper goes on; waiting threads of ours must not hold us


def status(_: argparse.Namespace) -> int:
    running = [state for state in instances() if state["alive"]]
    for state in running:
        print(
            f"{Path(state['dir']).name}  keeper {state['keeper']}  {', '.join(state['components'])}  KUBECONFIG={state['kubeconfig']}"
        )
    if not running:
        print("testbed: nothing is running; start one with: make testbed-up")
    return 0


def down(_: argparse.Namespace) -> int:
    """Ends what `up` started; an instance that tests are using is theirs to end."""
    for state in instances():
        folder = Path(state["dir"])
        if state["alive"] and not state.get("stays"):
            continue
        if state["alive"]:
            os.kill(state["keeper"], signal.SIGTERM)
            while is_keeper(state["keeper"], folder):
                time.sleep(0.02)
            print(f"testbed: {folder.name} ended")
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run, text in (
        (build, "build the programs"),
        (able, "say if the programs are neither built nor can be"),
        (up, "start an instance and leave it running"),
        (status, "list the running instances"),
        (down, "end the instances that up has left running"),
    ):
        command = commands.add_parser(run.__name__, help=text)
        command.set_defaults(run=run)
        if run in (build, up):
            command.add_argument("components", nargs="*", metavar="COMPONENT", help=f"of: {', '.join(NAMES)}")
        if run is build:
            command.add_argument("--seconds", type=float, help="stop building after this time")
        if run is up:
            command.add_argument(
                "--node",
                choices=("fake", "real"),
                default="fake",
                help="a real kubelet besides the fake nodes (needs root)",
            )
            command.add_argument("--nodes", type=int, default=1, help="number of fake nodes")
    arguments = parser.parse_args()
    try:
        return int(arguments.run(arguments))
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
