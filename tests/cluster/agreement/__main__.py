"""`python -m tests.cluster.agreement FILE…` compares single files in a testbed of their own; without files the whole corpus. `--passes 4` says how
many passes each has beside the one in which all succeed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.instance import Testbed
from tests.cluster.agreement import examples, tekton
from tests.cluster.agreement.play import There, here
from tests.cluster.agreement.report import Report, unexplained


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.agreement", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    files = given.files or examples.files()
    found, left = examples.read_all(files)
    plays, more = here(found, given.passes, given.seed)
    with Testbed.start("kwok", "argo", "tekton", nodes=4, tekton={"features": tekton.FEATURES}) as bed:
        There(bed).play(plays, given.seconds, doubtful=lambda play: bool(unexplained(play)))
    report = Report(len(files), plays, {**left, **more})
    print("\n".join(report.lines()))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
