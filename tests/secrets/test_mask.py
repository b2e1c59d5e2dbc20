"""Secrets are taken out of a stream of bytes, however it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.backends.secrets.mask import Masker, needles_of

TEXTS = st.lists(st.text(alphabet="ab\n1é", min_size=1, max_size=6).filter(str.strip), min_size=1, max_size=3)


def masked(needles: tuple[bytes, ...], *pieces: bytes) -> bytes:
    masker = Masker(needles)
    return b"".join([*(masker.feed(piece) for piece in pieces), masker.end()])


@given(TEXTS, st.lists(st.text(alphabet="ab\n1é", max_size=8), max_size=6), st.data())
def test_the_cuts_do_not_matter_and_nothing_gets_through(
    texts: list[str], around: list[str], data: st.DataObject
) -> None:
    needles = needles_of(texts)
    stream = "".join(one for piece in around for one in (piece, data.draw(st.sampled_from([*texts, ""])))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = masked(needles, stream)
    assert masked(needles, *pieces) == whole
    assert not any(needle in part for part in whole.split(b"***") for needle in needles)


def test_secrets_that_overlap() -> None:
    assert masked((b"abcd", b"cdef"), b"xabc", b"def.") == b"x***."
    assert masked((b"aa",), b"a", b"a", b"a", b"b") == b"***b"


def test_a_key_of_several_lines_is_masked_line_by_line_and_in_other_forms() -> None:
    key = "-----BEGIN KEY-----\nMIIEow\nIBAAKC\n-----END KEY-----\n"
    needles = needles_of([key, 'quo"te/+ ü'])
    for form in (
        b"MIIEow",
        b"at IBAAKC.",
        b'{"k": "quo\\"te/+ \\u00fc"}',
        b"?k=quo%22te%2F%2B%20%C3%BC",
        b"cXVvInRlLysgw7w=",
    ):
        assert b"***" in masked(needles, form), form


def test_without_secrets_nothing_changes() -> None:
    assert masked((), b"a", b"b") == b"ab"
