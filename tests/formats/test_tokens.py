"""Tokens as they are read from a file: checked, replaced and counted without an object for each."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.errors import TableFormatError
from tokenspace.formats import tokens
from tokenspace.formats.tokens import TokensRead, encoded, repeated, unwritable
from tokenspace.vocab import Vocab

ANY = st.lists(
    st.one_of(st.binary(max_size=6), st.text(max_size=4).map(lambda t: t.encode(errors="replace")))
)


def read(found: list[bytes], errors: str, at_once: int) -> TokensRead:
    kept = TokensRead(Path("f"), errors)
    for start in range(0, len(found), at_once):
        block = found[start : start + at_once]
        data = np.frombuffer(b"".join(block), np.uint8)
        lengths = np.array([len(token) for token in block], np.int64)
        kept.add(data, lengths, lambda i, start=start: (f"row {start + i}", 1000 + start + i))
    return kept


@settings(deadline=None, max_examples=50)
@given(ANY, st.integers(1, 5))
def test_each_token_is_what_python_decodes(found, at_once):
    kept = read(found, "replace", at_once)
    assert list(kept.vocab()) == [token.decode("utf-8", "replace") for token in found]
    assert kept.replaced == sum(token.decode("utf-8", "replace").encode() != token for token in found)
    assert len(kept) == len(found)
    assert encoded(read(found, "surrogateescape", at_once).vocab()) == found


@settings(deadline=None, max_examples=50)
@given(ANY, st.integers(1, 5))
def test_the_first_token_that_is_no_utf8_is_refused_with_its_place(found, at_once):
    bad = [i for i, token in enumerate(found) if token.decode("utf-8", "ignore").encode() != token]
    if not bad:
        assert encoded(read(found, "strict", at_once).vocab()) == found
        return
    with pytest.raises(TableFormatError, match=rf"f, row {bad[0]} \(byte 1,{bad[0]:03}\): the token b"):
        read(found, "strict", at_once)


@pytest.mark.parametrize("base", [tokens._BASE, 1], ids=["as it is", "a hash by which ab and ba are equal"])
@settings(deadline=None, max_examples=50)
@given(st.lists(st.text("ab", max_size=3), max_size=30))
def test_repeated_tokens_are_counted(base, names):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_BASE", base)
        patch.setattr(tokens, "_TOKENS_AT_ONCE", 7)
        patch.setattr(tokens, "_BYTES_AT_ONCE", 5)
        assert repeated(Vocab(names)) == len(names) - len(set(names))


def test_long_tokens_are_compared_without_numbers_for_each_byte():
    vocab = Vocab(["a" * 5_000_000, "b", "a" * 5_000_000, "a" * 4_999_999 + "b", "b"])
    tracemalloc.start()
    try:
        assert repeated(vocab) == 2
        assert tracemalloc.get_traced_memory()[1] < 3 * 5_000_000
    finally:
        tracemalloc.stop()


def test_tokens_come_in_parts():
    vocab = Vocab(["a", "", "é", "d"])
    assert encoded(vocab, 1, 3) == [b"", "é".encode()]
    assert encoded(vocab, 2) == ["é".encode(), b"d"]


def test_what_can_not_be_written_is_found_in_every_part(monkeypatch):
    monkeypatch.setattr(tokens, "_TOKENS_AT_ONCE", 2)
    found = unwritable(Vocab(["a", "", "é", "", ""]), lambda token: None if token else "empty")
    assert found == {1: "empty", 3: "empty", 4: "empty"}
