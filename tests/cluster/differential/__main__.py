"""`python -m tests.cluster.differential 17` plays the stream of a seed, `… FILE.json` one that was printed, each in a testbed of its own, and
says how the answers differ. `--shrink` looks for a smaller stream on which they still do.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from testbed.instance import Testbed
from tests.cluster.differential import run, shrink
from tests.cluster.differential.streams import Stream, stream

FAIR = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.differential", description=__doc__)
    parser.add_argument("what", nargs="+", help="seeds, or files with streams")
    parser.add_argument("--shrink", action="store_true")
    given = parser.parse_args()
    streams = [
        stream(int(one)) if one.isdigit() else Stream.from_json(json.loads(Path(one).read_text())) for one in given.what
    ]
    wrong = 0
    for fair in (False, True):
        chosen = [one for one in streams if one.fair is fair]
        if not chosen:
            continue
        with Testbed.start("kueue", kueue=FAIR if fair else {}) as bed:
            for result in run.play_all(bed, chosen):
                if result.agrees:
                    print(f"seed {result.stream.seed}: the same at {result.count.quiet_points} quiet points")
                    continue
                wrong += 1
                if given.shrink:
                    result = shrink.shrink(result, partial(run.play_all, bed))
                print(shrink.report(result))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
