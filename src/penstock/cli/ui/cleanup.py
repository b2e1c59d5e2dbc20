"""What `penstock gc` removes, as a table."""

from __future__ import annotations

from penstock.cli.ui import render
from penstock.service.cleanup import CleanupPlan


def cleanup_plan(plan: CleanupPlan, output: str, removed: bool) -> None:
    data = plan.as_data(removed)
    if output == "json":
        render.json_out(data)
        return
    size = data["bytes"]
    also = "" if removed or not plan.runs else "and those that only these runs have"
    rows = [
        ["runs", str(len(plan.runs)), _bytes(size["database"]) if removed else "", _few([run.id for run in plan.runs])],
        ["results", str(plan.results), "", ""] if removed else ["results", "?", "", "that no other run has"],
        ["blobs", str(len(plan.blobs)), _bytes(size["blobs"]), also],
        ["folders", str(len(plan.folders)), _bytes(size["folders"]), _few([path.name for path in plan.folders])],
    ]
    render.table(["REMOVED" if removed else "TO REMOVE", "HOW MANY", "FREES", "WHICH"], rows)
    if plan.kept:
        render.note(f"kept as the newest of their workflows: {plan.kept}   (--keep 0 removes these too)")
    for note in plan.notes:
        render.note(note)


def _few(names: list[str]) -> str:
    return render.listed(names, 5)


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
