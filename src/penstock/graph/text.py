"""JSON and YAML text -> plain data with the line of each value. Called by graph.codec and by every reader of foreign documents.

Hostile input is the normal case: alias bombs, deep nesting, duplicate keys and huge files end in one DocumentError.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.errors import DocumentError, Problem, Source

MAX_BYTES = 64 * 1024 * 1024
"""A hundred thousand steps are about 20 MB. Nobody writes a larger workflow by hand."""
MAX_NODES = 20_000_000
MAX_ALIASED = 100_000
"""The most values that all aliases together may expand to. A hundred characters count as one."""
MAX_DEPTH = 200
MARKED = 200_000
"""Above so many nodes only the outer ones keep their line: people read positions in small documents only."""

MOST_REPEATED = 1000
"""The most repeated keys that are reported."""

Marks = dict[str, tuple[int, int]]
_LONE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""A text that may contain a lone surrogate."""


class UnquotedText(str):
    """Unquoted text that some YAML readers take for a date. It is written back as it was."""

    __slots__ = ()


def refuse(
    code: str, message: str, fix: str, file: str, line: int = 1, column: int = 0, excerpt: str = ""
) -> DocumentError:
    return DocumentError(Problem(code, message, fix, source=Source(file, line, column), excerpt=excerpt))


def check_size(size: int, file: str) -> None:
    if size > MAX_BYTES:
        raise refuse(
            "P101",
            f"{size / 1e6:.0f} MB is too large for a workflow (at most {MAX_BYTES // 2**20} MiB)",
            "pass data by reference: a file, or a for-each over a step's output",
            file,
        )


def read_json(text: str, file: str) -> tuple[Any, Marks]:
    check_size(len(text), file)
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        if _LONE.search(text):
            json.dumps(data, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        raise refuse(
            "P102", f"not JSON: {error.msg}", "fix the line", file, error.lineno, error.colno, line[:200]
        ) from None
    except UnicodeEncodeError:
        raise refuse("P102", "half a character: a lone surrogate", "write the whole character", file) from None
    except ValueError as error:  # Python raises it for integers with thousands of digits
        raise refuse("P102", str(error), "fix the document", file) from None
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


def read_all_yaml(text: str, file: str, repeated: list[tuple[int, str]] | None = None) -> list[tuple[Any, Marks]]:
    """`repeated`: if given, a key that occurs twice in one mapping is allowed, the last one counts, and its (line, path) is added."""
    import yaml

    check_size(len(text), file)
    loader_class: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
        try:
            documents = []
            while (event := loader.get_event()) is not None:
                if isinstance(event, yaml.DocumentStartEvent):
                    builder = _Builder(loader, file, repeated)
                    documents.append((builder.build(loader.get_event(), "$", 0), builder.marks))
            return documents
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 0)
        lines = text.splitlines()
        excerpt = lines[line - 1][:200] if line <= len(lines) else ""
        raise refuse(
            "P102", f"not YAML: {error.problem or error.context}", "fix the line", file, line, column, excerpt
        ) from None
    except yaml.YAMLError as error:
        raise refuse("P102", f"not YAML: {error}", "fix the document", file) from None
    except RecursionError:
        raise refuse("P101", f"nested deeper than {MAX_DEPTH}", "flatten the document", file) from None
    except (ValueError, OverflowError, LookupError) as error:  # PyYAML raises it for `!!int ""` and `!!bool perhaps`
        raise refuse("P102", f"not YAML: {error}", "fix the document", file) from None


class _Builder:
    """YAML events -> data. PyYAML's own composer recurses in C until the process dies, and its constructor keeps no positions and
    expands aliases without limit."""

    def __init__(self, loader: Any, file: str, repeated: list[tuple[int, str]] | None = None) -> None:
        import yaml

        self.yaml = yaml
        self.loader = loader
        self.file = file
        self.repeated = repeated
        self.marks: Marks = {}
        self.anchors: dict[str, Any] = {}
        self.count = 0
        self.aliased = 0

    def build(self, event: Any, path: str, depth: int) -> Any:
        """The node that begins with this event."""
        mark = event.start_mark
        if len(self.marks) < MARKED:
            self.marks.setdefault(path, (mark.line + 1, mark.column + 1))
        if isinstance(event, self.yaml.AliasEvent):
            return self.alias(event)
        self.count += 1
        if self.count > MAX_NODES:
            raise self.refused("P101", f"more than {MAX_NODES} values", "pass data by reference", mark)
        if isinstance(event, self.yaml.ScalarEvent):
            value = self.scalar(event, self.tag(event))
        else:
            if event.tag not in (None, "!", _TAG + "map", _TAG + "seq"):
                raise self.tagged(event.tag, mark)
            if depth > MAX_DEPTH:
                raise self.refused("P101", f"nested deeper than {MAX_DEPTH}", "flatten the document", mark)
            if event.anchor is not None:
                self.anchors[event.anchor] = _OPEN
            if isinstance(event, self.yaml.SequenceStartEvent):
                value = self.sequence(path, depth)
            else:
                value = self.mapping(path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def sequence(self, path: str, depth: int) -> list[Any]:
        data: list[Any] = []
        while not isinstance(event := self.loader.get_event(), self.yaml.SequenceEndEvent):
            data.append(self.build(event, f"{path}[{len(data)}]", depth + 1))
        return data

    def mapping(self, path: str, depth: int) -> dict[Any, Any]:
        data: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        while not isinstance(event := self.loader.get_event(), self.yaml.MappingEndEvent):
            mark = event.start_mark
            if isinstance(event, self.yaml.ScalarEvent):
                tag = self.tag(event)
                if tag == _TAG + "merge":
                    merged = self.merged(self.build(self.loader.get_event(), path, depth + 1), mark) | merged
                    continue
                # `on`, `yes` and `no` are text here: a retry has a field `on`.
                key = event.value if tag == _TAG + "bool" else self.scalar(event, tag)
                if event.anchor is not None:
                    self.anchors[event.anchor] = key
            else:
                key = self.alias(event) if isinstance(event, self.yaml.AliasEvent) else _OPEN
            if key is _OPEN or isinstance(key, dict | list):
                raise self.refused("P102", "a key must be text", "put the key in quotes", mark)
            if key in data:
                self.again(key, path, mark)
            # Long keys are cut in paths.
            place = f"{path}.{key}" if len(path) + len(str(key)) < 1000 else path
            if len(self.marks) < MARKED and place is not path:
                self.marks[place] = (mark.line + 1, mark.column + 1)
            data[key] = self.build(self.loader.get_event(), place, depth + 1)
        return merged | data

    def again(self, key: Any, path: str, mark: Any) -> None:
        if self.repeated is None:
            raise self.refused("P102", f"the key {str(key)[:80]!r} stands twice in one mapping", "remove one", mark)
        if len(self.repeated) < MOST_REPEATED:
            self.repeated.append((mark.line + 1, f"{path}.{str(key)[:80]}"[:1000].removeprefix("$.")))

    def merged(self, given: Any, mark: Any) -> dict[Any, Any]:
        parts = given if isinstance(given, list) else [given]
        if not all(isinstance(part, dict) for part in parts):
            raise self.refused("P102", "'<<' merges mappings only", "write the fields out", mark)
        return {key: value for part in reversed(parts) for key, value in part.items()}

    def alias(self, event: Any) -> Any:
        value = self.anchors.get(event.anchor, self)
        if value is self:
            raise self.refused(
                "P102", f"there is no anchor &{event.anchor[:80]}", "write the part out", event.start_mark
            )
        return self.copy(value, event.start_mark)

    def copy(self, value: Any, mark: Any) -> Any:
        if value is _OPEN:
            raise self.refused("P101", "an alias that contains itself", "write the part out", mark)
        self.aliased += 1 + (len(value) // 100 if isinstance(value, str) else 0)
        if self.aliased > MAX_ALIASED:
            raise self.refused(
                "P101", "the aliases of this document stand for too many values", "write the repeated parts out", mark
            )
        if isinstance(value, list):
            return [self.copy(item, mark) for item in value]
        return {key: self.copy(item, mark) for key, item in value.items()} if isinstance(value, dict) else value

    def tag(self, event: Any) -> str:
        given = event.tag
        return str(
            self.loader.resolve(self.yaml.ScalarNode, event.value, event.implicit) if given in (None, "!") else given
        )

    def scalar(self, event: Any, tag: str) -> Any:
        kind = tag.removeprefix(_TAG)
        if kind == "timestamp":
            return UnquotedText(event.value)
        if kind in ("str", "binary", "value", "merge"):
            return event.value
        if kind == "null":
            return None
        if kind not in ("bool", "int", "float"):
            raise self.tagged(tag, event.start_mark)
        if kind == "int" and len(event.value) > 400:
            raise self.refused("P102", "a number of this length", "write it as text, in quotes", event.start_mark)
        node = self.yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        return getattr(self.loader, f"construct_yaml_{kind}")(node)

    def tagged(self, tag: str, mark: Any) -> DocumentError:
        return self.refused(
            "P102", f"the tag !{tag.removeprefix(_TAG)[:80]} has no meaning here", "remove the tag", mark
        )

    def refused(self, code: str, message: str, fix: str, mark: Any) -> DocumentError:
        return refuse(code, message, fix, self.file, mark.line + 1, mark.column + 1)


_TAG = "tag:yaml.org,2002:"
_OPEN = object()
"""Marks an anchored part that is still being read."""
