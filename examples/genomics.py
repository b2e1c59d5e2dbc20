"""Bioinformatics: trim and align the reads of each sample, call variants, join them into one table.

penstock run examples/genomics.py -p 'samples=["ana", "ben", "cho"]'    # a new sample: the others are reused
"""

import random
from collections import Counter

from penstock import task, workflow

GENOME = "".join(random.Random(1).choices("ACGT", k=400))


@task(cpu=1)
def sequence(sample: str) -> list[str]:
    """Reads of a genome with one letter changed, some of them with a bad tail."""
    chance = random.Random(sample)
    at = chance.randrange(50, 350)
    own = GENOME[:at] + chance.choice("ACGT".replace(GENOME[at], "")) + GENOME[at + 1 :]
    starts = [chance.randrange(0, 360) for _ in range(300)]
    return [own[start : start + 40] + chance.choice(["", "NNNN"]) for start in starts]


@task(cpu=1)
def trim(reads: list[str]) -> list[str]:
    return [read.rstrip("N") for read in reads]


@task(cpu=2, memory="1Gi", timeout="10m")
def align(reads: list[str]) -> list[tuple[int, str]]:
    """(position, letter) of every letter, each read where it fits best."""

    def misses(read: str, at: int) -> int:
        return sum(a != b for a, b in zip(read, GENOME[at:], strict=False))

    starts = [min(range(len(GENOME) - len(read) + 1), key=lambda at: misses(read, at)) for read in reads[:60]]
    return [(at + i, letter) for at, read in zip(starts, reads, strict=False) for i, letter in enumerate(read)]


@task
def call(letters: list[tuple[int, str]]) -> list[str]:
    seen: dict[int, Counter] = {}
    for at, letter in letters:
        seen.setdefault(at, Counter())[letter] += 1
    most = {at: found.most_common(1)[0] for at, found in sorted(seen.items())}
    return [f"{at}{GENOME[at]}>{letter}" for at, (letter, n) in most.items() if letter != GENOME[at] and n > 1]


@workflow
def genomics(samples: list[str] = ["ana", "ben"]):  # noqa: B006
    return [call(align(trim(sequence(sample)))) for sample in samples]
