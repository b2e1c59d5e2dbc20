"""Rendering: one task for each frame, two at a time, then a film. An interrupted night goes on with the frames that are missing.

penstock run examples/render.py -p frames=12
penstock get @ -o .                            # fetch the film
"""

from pathlib import Path

from penstock import task, workflow


@task(cpu=1, memory="256Mi", parallel=2, retry=1)
def frame(number: int, size: int) -> bytes:
    """A ball that bounces, as a picture in grey."""
    x, y = number * 3 % size, abs(size // 2 - number * 5 % size)
    rows = [[255 if (i - x) ** 2 + (j - y) ** 2 < 25 else 32 for i in range(size)] for j in range(size)]
    return bytes(value for row in rows for value in row)


@task(cpu=1)
def film(pictures: list[bytes], size: int) -> Path:
    """Uncompressed Y4M, which players understand."""
    path = Path("ball.y4m")
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{size} H{size} F25:1 Ip Cmono\n".encode())
        for picture in pictures:
            file.write(b"FRAME\n" + picture)
    return path


@workflow
def render(frames: int = 8, size: int = 48):
    return film([frame(number, size) for number in range(frames)], size)
