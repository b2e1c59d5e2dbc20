"""What `penstock get` has fetched: values to stdout, what became of files to stderr."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.cli.ui import render
from penstock.cli.ui.render import near
from penstock.service.fetching import Fetched


def fetched(found: Sequence[Fetched], alone: bool) -> None:
    """`alone`: one output was asked for, so that its value is all that stdout gets: text as it is, else JSON."""
    for one in found:
        for path in one.paths:
            render.note(f"{one.part.name}: {near(str(path))}")
        for stored in one.objects:
            step = one.part.task or one.part.output
            how = f'penstock.open_run("{one.part.run}")' + (f'["{step}"].result' if one.part.task else ".result")
            what = f"a Python object of class {stored.name}, {stored.size:,} bytes"
            render.note(f"{one.part.name}: {what}; read it in Python: {how}")
        if one.value is None and (one.paths or one.objects):
            continue
        text = one.value if isinstance(one.value, str) and alone else json.dumps(one.value, ensure_ascii=False)
        render.data(text if alone else f"{one.part.name}: {text}")
