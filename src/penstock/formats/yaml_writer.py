"""Plain data as YAML text. Called by service and runners for the documents of a writer.

PyYAML's emitter is sixty times slower. This one writes block style, keys in the given order, scripts as literal blocks, and quotes only where
a reader of YAML 1.1 or 1.2 could misread the bare word. PyYAML and Kubernetes read the text back as equal data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final

from penstock.errors import DocumentError, Problem

DEEPEST: Final = 200
"""The most levels of a document, as in reading."""
_LONGEST_KEY: Final = 1000
"""A key of more than 1,024 characters needs a question mark in YAML."""

_GENERAL: Final = "\xa1-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"
_PLAIN: Final = re.compile(rf"[A-Za-z_/{_GENERAL}](?:[!-\"$-9;-~{_GENERAL}]|:(?![ ]|\Z)|(?<! )#|[ ](?![ #]|\Z))*\Z")
"""No special first character, no `: `, no ` #`, no trailing space."""
_AMOUNT: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[smh]|[KMGTPE]i)\Z")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that some readers do not take for text, in any case."""
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
    """Collects lines and joins them once. Results for short texts are cached: names occur many times."""

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
        """`lead` precedes the first key, `pad` the others."""
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
        """The text after a colon or dash: a word, a quoted text, or a block of lines."""
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
    # YAML has JSON's escapes except surrogate pairs: characters are written as they are.
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_basestring(text))


def _number(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    # In YAML 1.1 a number with an exponent needs a point.
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
