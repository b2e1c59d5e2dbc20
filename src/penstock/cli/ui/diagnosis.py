"""What `penstock doctor` found, as a table."""

from __future__ import annotations

from penstock.cli.ui import render
from penstock.service.doctor import Diagnosis


def diagnosis(found: Diagnosis, output: str) -> None:
    if output == "json":
        render.json_out(found.as_data())
        return
    render.table(["CHECK", "STATE", "FOUND"], [[one.check, one.state, one.text] for one in found.findings])
    for one in found.findings:
        if one.fix and one.state == "problem":
            render.note(f"  fix    {one.check}: {one.fix}")
