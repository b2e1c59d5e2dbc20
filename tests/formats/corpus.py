"""The example manifests that lie beside the project. Shared by the tests of the formats."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CORPUS = Path(os.environ.get("PENSTOCK_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")
needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(),
    reason=f"no example manifests in {CORPUS}: set PENSTOCK_CORPUS to a folder with argo, tekton, jobset",
)


def files(*folders: str) -> list[Path]:
    """Every manifest below these folders of the corpus; none where it is absent."""
    return sorted(path for folder in folders for path in (CORPUS / folder).rglob("*.yaml"))


def label(path: Path) -> str:
    return str(path.relative_to(CORPUS))
