"""Geodata: cut an elevation model into tiles, shade each one, put the picture together.

penstock run examples/tiles.py -p size=64
"""

import math
from pathlib import Path

from penstock import task, workflow


@task
def cut(size: int, tile: int) -> list[tuple[int, int]]:
    return [(x, y) for y in range(0, size, tile) for x in range(0, size, tile)]


@task(cpu=1, memory="128Mi")
def shade(corner: tuple[int, int], tile: int) -> list[str]:
    """Light from the north-west on a landscape of waves; one text of digits for each row."""

    def height(x: int, y: int) -> float:
        return 20 * math.sin(x / 9) + 15 * math.cos(y / 7)

    rows = []
    for y in range(corner[1], corner[1] + tile):
        slopes = [
            height(x + 1, y) - height(x, y) + height(x, y + 1) - height(x, y)
            for x in range(corner[0], corner[0] + tile)
        ]
        rows.append(" ".join(str(max(0, min(255, int(128 + 25 * slope)))) for slope in slopes))
    return rows


@task(cpu=1)
def mosaic(shaded: list[list[str]], size: int, tile: int) -> Path:
    across = size // tile
    path = Path("hillshade.pgm")
    with path.open("w") as file:
        file.write(f"P2 {size} {size} 255\n")
        for band in range(across):
            for row in zip(*shaded[band * across : (band + 1) * across], strict=True):
                file.write(" ".join(row) + "\n")
    return path


@workflow
def tiles(size: int = 128, tile: int = 32):
    shaded = [shade(corner, tile) for corner in cut(size, tile)]
    return mosaic(shaded, size, tile)
