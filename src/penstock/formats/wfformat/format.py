"""WfFormat as a format of traces. Loaded by formats.registry."""

from __future__ import annotations

from penstock.formats.base import Format, Trace, TraceFormat


def claims(text: str) -> bool:
    """Does this text say that it is WfFormat, well-formed or not?"""
    return text.lstrip("\ufeff \t\r\n").startswith("{") and '"schemaVersion"' in text and '"workflow"' in text


def _read(text: str, file: str, *, by_kind: bool = False, grouped: bool = False) -> Trace:
    from penstock.formats.wfformat.read import read_wfformat

    return read_wfformat(text, file, by_kind=by_kind, grouped=grouped)


FORMAT = Format(name="wfformat", trace=TraceFormat(claims=claims, read=_read))
