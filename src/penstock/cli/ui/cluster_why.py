"""The report of `penstock why KIND/NAME` on the terminal: how each Workload of an object of a cluster stands.

The texts are those of controller.inspect.told; here they are arranged.
"""

from __future__ import annotations

import time

from penstock.cli.ui import errors, render
from penstock.cli.ui.why import fact, said
from penstock.controller.inspect.told import parts_told, rest_told, warning_told
from penstock.controller.inspect.why import ClusterReport


def cluster_report(found: ClusterReport) -> None:
    now = time.time()
    if found.unseen is not None:
        errors.problem(found.unseen)
    if found.problem:
        render.print_wrapped(found.problem, {"bold": True})
        if found.fix:
            fact("help", found.fix)
        return
    if found.through:
        render.note(f"{found.object} is part of {found.through}, which waits as a whole")
    blocks = parts_told(found, now)
    for number, one in enumerate(blocks):
        if number:
            render.data("")
        said(one)
    rest = rest_told(found)
    if blocks and rest:
        render.data("")
    for text in rest:
        render.print_wrapped(text)
    if warned := warning_told(found, now):
        fact("warning", warned)
