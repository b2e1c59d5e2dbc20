"""Images: files between steps. A folder of pictures goes in, each is made smaller, a contact sheet comes out.

penstock run examples/thumbnails.py
"""

from pathlib import Path

from penstock import task, workflow

SIDE = 32


def read(path: Path) -> list[list[int]]:
    values = [int(word) for word in path.read_text().split()[4:]]
    return [values[i * SIDE : (i + 1) * SIDE] for i in range(SIDE)]


@task(cpu=1)
def photos(count: int) -> list[Path]:
    folder = Path("photos")
    folder.mkdir(exist_ok=True)
    for n in range(count):
        pixels = " ".join(str((x * (n + 1) + y * y) % 256) for y in range(SIDE) for x in range(SIDE))
        (folder / f"{n}.pgm").write_text(f"P2 {SIDE} {SIDE} 255\n{pixels}\n")
    return [folder / f"{n}.pgm" for n in range(count)]


@task(cpu=1, parallel=4)
def shrink(photo: Path, by: int) -> list[list[int]]:
    rows = read(photo)
    steps = range(0, SIDE, by)
    return [[sum(rows[y + j][x + i] for j in range(by) for i in range(by)) // by**2 for x in steps] for y in steps]


@task
def sheet(small: list[list[list[int]]]) -> Path:
    rows = [[value for picture in small for value in picture[y]] for y in range(len(small[0]))]
    path = Path("sheet.pgm")
    path.write_text(f"P2 {len(rows[0])} {len(rows)} 255\n" + "\n".join(" ".join(map(str, row)) for row in rows) + "\n")
    return path


@workflow
def thumbnails(count: int = 5, by: int = 4):
    return sheet([shrink(photo, by) for photo in photos(count)])
