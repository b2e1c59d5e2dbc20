"""`make bench`: what Penstock costs, against its bars and against the bare limit measured in the same run.

Machines are noisy, so each figure is the best of several runs, and ratios compare within one run. Exits 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import (
    admission,
    controller,
    formats,
    kubernetes,
    payloads,
    peers,
    planning,
    running,
    server,
    serving,
    startup,
    testbed,
)
from bench.measure import Figure

PARTS = {
    part.__name__.rpartition(".")[2]: part
    for part in (
        startup,
        running,
        peers,
        planning,
        formats,
        admission,
        server,
        serving,
        testbed,
        controller,
        kubernetes,
        payloads,
    )
}


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures Penstock against its bars.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(PARTS)}")
    chosen = parser.parse_args(words).parts
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    figures: list[Figure] = []
    for name in PARTS:
        if name in chosen or not chosen:
            for figure in PARTS[name].figures():
                figures.append(figure)
                print(figure.line(), flush=True)
    missed = [figure for figure in figures if not figure.met]
    print(
        f"\n{len(figures) - len(missed)} of {len(figures)} bars met"
        + "".join(f"\n  missed: {figure.name}" for figure in missed)
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
