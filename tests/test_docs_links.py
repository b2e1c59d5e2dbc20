"""What the pages name exists: files that they link, and the code that the glossary and the walk through the layers point at."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("adr/*.md"), *ROOT.glob("testbed/*.md")]
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`(?=[^`]*[/:])([\w/]+\.(?:py|sql))(?::([\w.]+))?`")
"""`engine/engine.py:Engine.turn`, below src/penstock or the root."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        target = page.parent / path
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor[1:] in _anchors(target), path + anchor


@cache
def _defined(file: Path) -> set[str]:
    """Classes, functions, methods and attributes: `Engine`, `Engine.turn`, `Allocation.gated`, `KINDS`."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        for name in _names(node):
            found.add(name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found.update(f"{name}.{each}" for below in inner for each in _names(below))
    return found


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name in ("ideas", "adr")], ids=_name)
def test_code_that_is_named_exists(page: Path) -> None:
    for path, name in CODE.findall(page.read_text()):
        file = next((root / path for root in (ROOT / "src/penstock", ROOT) if (root / path).is_file()), None)
        assert file is not None, path
        assert not name or name in _defined(file), f"{path}:{name}"
