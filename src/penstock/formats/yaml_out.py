"""Plain data as YAML text. Called by whoever shows or stores what a writer has made.

An emitter of its own, because PyYAML's takes a minute for what is written here in a second, and because its text should be
read by people: block style, keys in the order given, scripts as literal blocks, quotes only where a reader of YAML 1.1 or 1.2
could take the bare word for something else. What is written is read back equal by PyYAML and by Kubernetes' own readers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final

from penstock.errors import DocumentError, Problem

DEEPEST: Final = 200
"""Levels of a document, as of those that are read."""
_LONGEST_KEY: Final = 1000
"""Beyond 1,024 characters YAML wants a question mark before a key."""

_GENERAL: Final = "\xa1-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"
_PLAIN: Final = re.compile(rf"[A-Za-z_/{_GENERAL}](?:[!-\"$-9;-~{_GENERAL}]|:(?![ ]|\Z)|(?<! )#|[ ](?![ #]|\Z))*\Z")
"""Starts with nothing special, and has no `: `, no ` #`, no space at its end."""
_AMOUNT: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[smh]|[KMGTPE]i)\Z")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Not text for one or another reader, in whatever case."""
_SINGLE: Final = re.compile(rf"[ -~{_GENERAL}]*\Z")
_BLOCK: Final = re.compile(rf"(?!\s)[!-~{_GENERAL}](?:[\t -~{_GENERAL}]*(?:\n|\Z))+\Z")
_BLANK_LINE: Final = re.compile(r"^[ \t]+$", re.M)
_ESCAPED: Final = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_LONE: Final = re.compile("[\ud800-\udfff]")


def dump(data: Any) -> str:
    """One document. Raises DocumentError for text that no document can hold, or nested too deep."""
    return _Emitter().document(data)


def dump_all(documents: Iterable[Any]) -> str:
    """Several, with `---` between them."""
    emitter = _Emitter()
    return "---\n".join(map(emitter.document, documents))


class _Emitter:
    """Lines are collected and joined once. What is known of a short text is kept: names stand in a document many times."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[str, str] = {}

    def document(self, data: Any) -> str:
        self.lines = []
        if isinstance(data, Mapping) and data:
            self.mapping(data, "", "", 0)
        elif isinstance(data, list | tuple) and data:
            self.sequence(data, "", "", 0)
        else:
            self.lines.append(_quoted(data) if isinstance(data, str) and "\n" in data else self.inline(data))
        self.lines.append("")
        return "\n".join(self.lines)

    def mapping(self, data: Mapping[Any, Any], lead: str, pad: str, depth: int) -> None:
        """`lead` stands before the first key, `pad` before the others."""
        if depth > DEEPEST:
            raise _refused("the document is nested too deep", f"keep it to {DEEPEST} levels")
        for key, value in data.items():
            name = self.known.get(key) if type(key) is str else None
            if name is None:
                name = self.inline(key)
                if len(name) > _LONGEST_KEY:
                    self.lines.append(f"{lead}? {name}")
                    lead, name = pad, ""
            kind = type(value)
            if kind is str:
                known = self.known.get(value)
                self.lines.append(
                    f"{lead}{name}: {known}" if known is not None else f"{lead}{name}: {self.text(value, pad)}"
                )
            elif isinstance(value, Mapping) and value:
                self.lines.append(f"{lead}{name}:")
                self.mapping(value, pad + "  ", pad + "  ", depth + 1)
            elif isinstance(value, list | tuple) and value:
                self.lines.append(f"{lead}{name}:")
                self.sequence(value, pad, pad, depth + 1)
            else:
                self.lines.append(f"{lead}{name}: {self.scalar(value, pad)}")
            lead = pad

    def sequence(self, data: Iterable[Any], lead: str, pad: str, depth: int) -> None:
        if depth > DEEPEST:
            raise _refused("the document is nested too deep", f"keep it to {DEEPEST} levels")
        for item in data:
            if isinstance(item, Mapping) and item:
                self.mapping(item, lead + "- ", pad + "  ", depth + 1)
            elif isinstance(item, list | tuple) and item:
                self.sequence(item, lead + "- ", pad + "  ", depth + 1)
            else:
                self.lines.append(f"{lead}- {self.scalar(item, pad)}")
            lead = pad

    def scalar(self, value: Any, pad: str) -> str:
        return self.text(value, pad) if isinstance(value, str) else self.inline(value)

    def text(self, value: str, pad: str) -> str:
        """What stands behind a colon or a dash: a word, a quoted text, or a block of lines."""
        if "\n" not in value:
            return self.inline(value)
        return _block(value, pad + "  ") if _BLOCK.match(value) and not _BLANK_LINE.search(value) else _quoted(value)

    def inline(self, value: Any) -> str:
        if isinstance(value, str):
            found = self.known.get(value)
            if found is None:
                found = value if _is_plain(value) else _quoted(value)
                if len(value) <= 100:
                    self.known[value] = found
            return found
        for kind, show in _SHOWN:
            if isinstance(value, kind):
                return show(value)
        raise TypeError(f"{type(value).__name__} has no form in YAML")


def _is_plain(text: str) -> bool:
    if _PLAIN.match(text):
        return text.lower() not in _WORDS
    return _AMOUNT.match(text) is not None


def _block(text: str, pad: str) -> str:
    keep = "" if text.endswith("\n") else "-"
    if text.endswith("\n\n"):
        keep = "+"
    lines = text.removesuffix("\n").split("\n")
    return "\n".join([f"|{keep}", *(pad + line if line else "" for line in lines)])


def _quoted(text: str) -> str:
    if _LONE.search(text):
        fix = "pass bytes in a file, or text that is whole"
        raise _refused(f"{text[:60]!r} holds half a character, which no document can", fix)
    if ('"' in text or "\\" in text) and _SINGLE.match(text):
        return "'" + text.replace("'", "''") + "'"
    # JSON's escapes are YAML's too, but for a pair of surrogates: characters stand as they are.
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_basestring(text))


def _number(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    # YAML 1.1 takes a number with an exponent for one only if it has a point.
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


_SHOWN: Final[tuple[tuple[Any, Callable[[Any], str]], ...]] = (
    (bool, lambda value: "true" if value else "false"),
    (int, lambda value: int.__repr__(value)),
    (float, lambda value: _number(float(value))),
    (type(None), lambda value: "null"),
    (Mapping, lambda value: "{}"),
    ((list, tuple), lambda value: "[]"),
)


def _refused(message: str, fix: str) -> DocumentError:
    return DocumentError(Problem("P840", message, fix))
