"""Media: split a film, transcode the parts, join them. A licence allows two encoders at a time, over all runs.

penstock run examples/transcode.py -p parts=6
"""

import itertools
import zlib

from penstock import task, workflow
from penstock.graph.model import Lock


@task(cpu=1)
def split(seconds: int, parts: int) -> list[tuple[int, int]]:
    edges = [seconds * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


@task(cpu=1, timeout="10m", retry=2, locks=[Lock(name="encoder", limit=2)])
def encode(part: tuple[int, int], quality: int) -> bytes:
    raw = b"".join(f"frame {second}\n".encode() * 25 for second in range(*part))
    return zlib.compress(raw, quality)


@task(cpu=1)
def join(parts: list[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@task
def check(film: bytes) -> int:
    """How many seconds it has."""
    at = frames = 0
    while at < len(film):
        size = int.from_bytes(film[at : at + 4], "big")
        frames += zlib.decompress(film[at + 4 : at + 4 + size]).count(b"\n")
        at += 4 + size
    return frames // 25


@workflow
def transcode(seconds: int = 90, parts: int = 4, quality: int = 6):
    return check(join([encode(part, quality) for part in split(seconds, parts)]))
