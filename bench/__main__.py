"""`make bench`: what Penstock costs, against its bars and against the bare limit measured in the same run.

Machines are noisy, so each figure is the best of several runs, and ratios compare within one run. Exits 1 if a bar is missed.
"""

from __future__ import annotations

import sys

from bench import admission, formats, peers, planning, running, startup, testbed
from bench.measure import Figure


def main() -> int:
    figures: list[Figure] = []
    for part in (startup, running, peers, planning, formats, admission, testbed):
        for figure in part.figures():
            figures.append(figure)
            print(figure.line(), flush=True)
    missed = [figure for figure in figures if not figure.met]
    print(
        f"\n{len(figures) - len(missed)} of {len(figures)} bars met"
        + "".join(f"\n  missed: {figure.name}" for figure in missed)
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
