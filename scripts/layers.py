"""docs/ideas/layers.svg: the packages of Penstock and who imports whom, from the imports in the source. Called by scripts/docs.

A package stands above everything that it imports. An arrow that follows from two others is left out: cli imports graph as well, but
that is implied by cli -> service -> … -> graph. An edge that spans rows runs through invisible nodes, so that it passes between boxes.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise

import grimp

IS = {
    "cli": "commands and screens",
    "testing": "doubles for tests",
    "controller": "workflows on Kubernetes",
    "runners": "run from Python",
    "plugins": "names for plugin authors",
    "service": "the verbs; views; simulator",
    "engine": "the only package that waits",
    "author": "Python → Workflow",
    "plan": "Workflow → stages",
    "admission": "Workloads → decisions",
    "scheduling": "jobs of operators",
    "store": "the log",
    "backends": "where tasks run",
    "settings": "read once",
    "rights": "modes, owners",
    "urls": "no passwords",
    "artifacts": "values and files",
    "formats": "foreign documents",
    "drawing": "pictures",
    "kubernetes": "the API of a cluster",
    "graph": "the nouns",
    "expressions": "the language",
    "errors": "problems, codes",
}
WIDE, HIGH, GAP, STEP, LANE, MARGIN = 164, 44, 18, 84, 10, 16
STYLE = """
 text { font: 13px system-ui, sans-serif; fill: #1f2937; text-anchor: middle } .is { font-size: 11px; fill: #6b7280 }
 rect { fill: #f8fafc; stroke: #64748b } path { fill: none; stroke: #94a3b8; stroke-width: 1.4 } .tip { fill: #94a3b8; stroke: none }
 @media (prefers-color-scheme: dark) {
  text { fill: #e5e7eb } .is { fill: #9ca3af } rect { fill: #1e293b; stroke: #94a3b8 } path { stroke: #64748b } .tip { fill: #64748b } }
"""


def imports() -> dict[str, set[str]]:
    """Package or top module -> those that it imports."""
    graph = grimp.build_graph("penstock", cache_dir=None)
    # For type checkers alone; pyproject.toml makes the same exception.
    graph.remove_import(importer="penstock.author.flow", imported="penstock.runners.local")
    found: dict[str, set[str]] = {child.split(".")[1]: set() for child in graph.find_children("penstock")}
    for module in graph.modules - {"penstock"}:
        own = module.split(".")[1]
        below = {name.split(".")[1] for name in graph.find_modules_directly_imported_by(module) if "." in name}
        found[own] |= below - {own}
    del found["__main__"]
    return found


def reduced(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same without what follows."""

    def all_below(name: str) -> set[str]:
        return found[name].union(*(all_below(each) for each in found[name]))

    return {name: below - set().union(*(all_below(each) for each in below)) for name, below in found.items()}


def rows_of(edges: dict[str, set[str]]) -> tuple[list[list[str]], list[tuple[str, ...]]]:
    """The rows from the bottom up, ordered so that few edges cross; and the way of each edge through them."""

    def height(name: str) -> int:
        return 1 + max((height(each) for each in edges[name]), default=-1)

    rows: list[list[str]] = [[] for _ in range(1 + max(map(height, edges)))]
    for name in sorted(edges):
        rows[height(name)].append(name)
    ways = []
    for name in sorted(edges):
        for below in sorted(edges[name]):
            lanes = [f"{name}>{below}@{level}" for level in range(height(name) - 1, height(below), -1)]
            for lane in lanes:
                rows[int(lane.rpartition("@")[2])].append(lane)
            ways.append((name, *lanes, below))
    pairs = [pair for way in ways for pair in pairwise(way)]
    for sweep in range(24):
        place = {name: (i + 0.5) / len(row) for row in rows for i, name in enumerate(row)}
        for row in rows:
            for name in row:
                up, down = [a for a, b in pairs if b == name], [b for a, b in pairs if a == name]
                near = (up if sweep % 2 else down) or up or down
                place[name] = sum(place[each] for each in near) / len(near)
            row.sort(key=place.__getitem__)
    return rows, ways


def picture() -> str:
    rows, ways = rows_of(reduced(imports()))
    size = {name: LANE if "@" in name else WIDE for row in rows for name in row}
    width = 2 * MARGIN + max(sum(size[name] + GAP for name in row) - GAP for row in rows)
    height = 2 * MARGIN + STEP * (len(rows) - 1) + HIGH
    middle: dict[str, tuple[float, float]] = {}
    for level, row in enumerate(rows):
        x = (width - sum(size[name] + GAP for name in row) + GAP) / 2
        for name in row:
            middle[name] = (x + size[name] / 2, height - MARGIN - HIGH / 2 - level * STEP)
            x += size[name] + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>The packages of Penstock: each imports only what is below it</title>",
        f"<style>{STYLE}</style>",
    ]
    for way in ways:
        (x, y), drawn = middle[way[0]], ""
        drawn = f"M{x:g} {y + HIGH / 2:g}"
        y += HIGH / 2
        for name in way[1:]:
            to_x, to_y = middle[name][0], middle[name][1] - HIGH / 2 - (0 if "@" in name else 6)
            drawn += f" C{x:g} {y + 24:g} {to_x:g} {to_y - 24:g} {to_x:g} {to_y:g}"
            if "@" in name:
                drawn += f" V{to_y + HIGH:g}"
                to_y += HIGH
            x, y = to_x, to_y
        parts.append(f'<path d="{drawn}"/><path class="tip" d="M{x - 4:g} {y - 1:g}h8l-4 7z"/>')
    for name, (x, y) in middle.items():
        if "@" not in name:
            parts.append(
                f'<rect x="{x - WIDE / 2:g}" y="{y - HIGH / 2:g}" width="{WIDE}" height="{HIGH}" rx="6"/>'
                f'<text x="{x:g}" y="{y - 3:g}">{name}</text><text class="is" x="{x:g}" y="{y + 13:g}">{escape(IS.get(name, ""))}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"
