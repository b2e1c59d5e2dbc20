"""JSON and YAML text -> plain data with the line of each place. Called by codec and by every reader of foreign documents.

Hostile input is the normal case: alias bombs, deep nesting, duplicate keys and huge files end in one DocumentError.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.errors import DocumentError, Problem, Source

MAX_BYTES = 64 * 1024 * 1024
"""A hundred thousand steps are about 20 MB. Whatever is larger is not a workflow that a person wrote."""
MAX_NODES = 20_000_000
MAX_ALIASED = 100_000
"""Nodes that aliases may stand for, all together."""
MAX_DEPTH = 200
MARKED = 200_000
"""Above so many nodes only the outer ones keep their line: positions are for documents that people read."""

Marks = dict[str, tuple[int, int]]
_LONE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Where half of a surrogate pair may be."""


def refuse(
    code: str, message: str, fix: str, file: str, line: int = 1, column: int = 0, excerpt: str = ""
) -> DocumentError:
    return DocumentError(Problem(code, message, fix, source=Source(file, line, column), excerpt=excerpt))


def check_size(size: int, file: str) -> None:
    if size > MAX_BYTES:
        raise refuse(
            "P101", f"{size / 1e6:.0f} MB is too large for a workflow (at most {MAX_BYTES // 2**20} MiB)",
            "pass data by reference: a file, or a for-each over a step's output", file,
        )  # fmt: skip


def read_json(text: str, file: str) -> tuple[Any, Marks]:
    check_size(len(text), file)
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        if _LONE.search(text):
            json.dumps(data, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        raise refuse(
            "P102", f"not JSON: {error.msg}", "mend the line", file, error.lineno, error.colno, line[:200]
        ) from None
    except UnicodeEncodeError:
        raise refuse("P102", "half a character: a lone surrogate", "write the whole character", file) from None
    except ValueError as error:  # among them Python's own, on integers of thousands of digits
        raise refuse("P102", str(error), "mend the document", file) from None
    except RecursionError:
        raise refuse("P101", f"nested deeper than {MAX_DEPTH}", "flatten the document", file) from None
    if _deeper(data, MAX_DEPTH):
        raise refuse("P101", f"nested deeper than {MAX_DEPTH}", "flatten the document", file)
    return data, {}


def _deeper(data: Any, limit: int) -> bool:
    level = [data]
    while level and limit >= 0:
        level = [
            part
            for whole in level
            if type(whole) in (dict, list)
            for part in (whole.values() if type(whole) is dict else whole)
            if type(part) in (dict, list)
        ]
        limit -= 1
    return bool(level)


class _Refused(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"the key {key[:80]!r} stands twice in one mapping")
            seen.add(key)
    return data


def _no_constant(name: str) -> None:
    raise _Refused(f"{name} is not a value that JSON has")


def read_yaml(text: str, file: str) -> tuple[Any, Marks]:
    """One document. See read_all_yaml for several."""
    documents = read_all_yaml(text, file)
    if len(documents) > 1:
        raise refuse("P102", f"{len(documents)} documents in one file", "keep one workflow in each file", file)
    return documents[0] if documents else (None, {})


def read_all_yaml(text: str, file: str) -> list[tuple[Any, Marks]]:
    import yaml

    check_size(len(text), file)
    loader_class: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
        try:
            documents = []
            while loader.check_node():
                builder = _Builder(loader, file)
                node = loader.get_node()
                documents.append((builder.build(node, "$", 0), builder.marks))
            return documents
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 0)
        lines = text.splitlines()
        excerpt = lines[line - 1][:200] if line <= len(lines) else ""
        raise refuse(
            "P102", f"not YAML: {error.problem or error.context}", "mend the line", file, line, column, excerpt
        ) from None
    except yaml.YAMLError as error:
        raise refuse("P102", f"not YAML: {error}", "mend the document", file) from None
    except RecursionError:
        raise refuse("P101", f"nested deeper than {MAX_DEPTH}", "flatten the document", file) from None
    except (ValueError, OverflowError, LookupError) as error:  # of PyYAML, on `!!int ""` and `!!bool perhaps`
        raise refuse("P102", f"not YAML: {error}", "mend the document", file) from None


class _Builder:
    """YAML nodes -> data. Written out because the stock constructor keeps no positions and expands aliases without limit."""

    def __init__(self, loader: Any, file: str) -> None:
        self.loader = loader
        self.file = file
        self.marks: Marks = {}
        self.seen: set[int] = set()
        self.open: set[int] = set()
        self.count = 0
        self.aliased = 0

    def build(self, node: Any, path: str, depth: int, copied: bool = False) -> Any:
        import yaml

        self.count += 1
        mark = node.start_mark
        if len(self.marks) < MARKED:
            self.marks.setdefault(path, (mark.line + 1, mark.column + 1))
        if isinstance(node, yaml.ScalarNode):
            self.aliased += copied
            return self.scalar(node)
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise self.tagged(node)
        copied = copied or id(node) in self.seen
        self.seen.add(id(node))
        self.aliased += copied
        if id(node) in self.open:
            raise refuse("P101", "an alias that contains itself", "write the part out", self.file, mark.line + 1)
        if self.aliased > MAX_ALIASED or self.count > MAX_NODES:
            raise refuse(
                "P101",
                "aliases blow this document up beyond reason",
                "write the repeated parts out",
                self.file,
                mark.line + 1,
            )
        if depth > MAX_DEPTH:
            raise refuse("P101", f"nested deeper than {MAX_DEPTH}", "flatten the document", self.file, mark.line + 1)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.build(item, f"{path}[{i}]", depth + 1, copied) for i, item in enumerate(node.value)]
            return self.mapping(node, path, depth, copied)
        finally:
            self.open.discard(id(node))

    def mapping(self, node: Any, path: str, depth: int, copied: bool) -> dict[Any, Any]:
        import yaml

        data: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise refuse("P102", "a key must be text", "put the key in quotes", self.file, line, column)
            if key_node.tag == "tag:yaml.org,2002:merge":
                parts = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                for part in reversed(parts):
                    given = self.build(part, path, depth + 1, copied)
                    if not isinstance(given, dict):
                        raise refuse(
                            "P102", "'<<' merges mappings only", "write the fields out", self.file, line, column
                        )
                    merged |= given
                continue
            # `on`, `yes` and `no` are words before they are anything else: a retry has a field `on`.
            key = key_node.value if key_node.tag == "tag:yaml.org,2002:bool" else self.scalar(key_node)
            if key in data:
                raise refuse(
                    "P102",
                    f"the key {str(key)[:80]!r} stands twice in one mapping",
                    "remove one",
                    self.file,
                    line,
                    column,
                )
            # Keys as long as books do not make paths as long as libraries.
            place = f"{path}.{key}" if len(path) + len(key_node.value) < 1000 else path
            if len(self.marks) < MARKED and place is not path and not (copied and place in self.marks):
                self.marks[place] = (line, column)
            data[key] = self.build(value_node, place, depth + 1, copied)
        return merged | data

    def scalar(self, node: Any) -> Any:
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        if tag in ("str", "timestamp", "binary", "value", "merge"):
            return node.value
        if tag in ("null", "bool", "int", "float"):
            if tag == "int" and len(node.value) > 400:
                raise refuse(
                    "P102",
                    "a number of this length",
                    "write it as text, in quotes",
                    self.file,
                    node.start_mark.line + 1,
                )
            return self.loader.construct_object(node)
        raise self.tagged(node)

    def tagged(self, node: Any) -> DocumentError:
        tag = node.tag.removeprefix("tag:yaml.org,2002:")[:80]
        return refuse(
            "P102", f"the tag !{tag} has no meaning here", "remove the tag", self.file, node.start_mark.line + 1
        )
