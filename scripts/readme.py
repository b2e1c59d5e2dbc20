"""The README as a package carries it: links into the repository become addresses, since a package's page has no files beside it.

Called by hatchling while it builds (pyproject.toml, tool.hatch.metadata.hooks).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]\n]*\])\((?!\w+:|#)([^)\s]+)\)")


def absolute(text: str, source: str, version: str) -> str:
    """The same text with whole addresses, at the tag of this version."""

    def link(match: re.Match[str]) -> str:
        picture, label, path = match.groups()
        return f"{picture}{label}({source}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return LINK.sub(link, text)


class Readme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        found = re.search(r'^__version__ = "(.+)"$', (root / "src/penstock/__init__.py").read_text(), re.MULTILINE)
        assert found is not None
        text = absolute((root / "README.md").read_text(), metadata["urls"]["Source"], found[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
