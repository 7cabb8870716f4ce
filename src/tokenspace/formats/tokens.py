"""What the exchange formats share: tokens are bytes between separators, and no word of the table's making."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tokenspace.errors import TableFormatError, VocabError
from tokenspace.models.vocabulary import Names
from tokenspace.shapes import Array, Int
from tokenspace.table import Table
from tokenspace.vocab import Vocab

Errors = Literal["strict", "replace", "surrogateescape"]
Place = tuple[str, int | None]
Refusal = Callable[[bytes], str | None]  # why a format can't hold a token, and which can; None if it can
Verify = Callable[[Callable[[], Table]], None]  # given how to read what was written; raises if it is wrong
LONGEST_TOKEN = 1 << 16  # bytes; in word2vec's and GloVe's files more are damage
_SHOWN = 40  # characters
_TOKENS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 20
_BASE = 0x9E3779B97F4A7C15  # odd, so that no power of it loses bits
MENDED = (  # what to do about a token that is no UTF-8
    "load(path, errors='replace') or convert --errors replace reads it with U+FFFD, 'surrogateescape' keeps "
    "its bytes"
)
EMPTY = "it is empty; numpy, npz, gguf and native can hold it"
NEWLINE = "it holds a newline; npz, gguf and native can hold it"
NOT_UTF8 = "it is not UTF-8; npz and native can hold it"
MARKED = "the file would begin with a byte order mark; npz, gguf and native can hold it"
UNMARK = "take these 3 bytes away, e.g. tail -c +4"
READ_FROM = "read_from"  # the one key of provenance that reading such a file gives


class TokensRead:
    """Tokens as a file gives them, kept end to end as ``Vocab`` holds them: millions of them are no objects.

    ``errors`` says what becomes of a token that is no UTF-8: "strict" refuses it, "replace" puts U+FFFD
    (``replaced`` counts the tokens), "surrogateescape" keeps its bytes.
    """

    def __init__(self, path: Path, errors: Errors = "strict") -> None:
        self.path, self.errors, self.replaced = path, errors, 0
        self._data: list[Array] = [np.empty(0, np.uint8)]
        self._lengths: list[Array] = [np.zeros(1, np.int64)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, data: Int[Array, " bytes"], lengths: Int[Array, " K"], place: Callable[[int], Place]
    ) -> None:
        """Append the K tokens that lie end to end in ``data``. ``place(i)`` is where the file has the i-th of
        them: a line or a row, and a byte offset, if there is one, which ``TableFormatError`` names.
        """
        if self.errors != "surrogateescape" and not _all_utf8(data, lengths):
            bounds = pairwise([0, *np.cumsum(lengths).tolist()])
            tokens = [data[start:end].tobytes() for start, end in bounds]
            kept = [decoded(t, self.errors, self.path, *place(i)).encode() for i, t in enumerate(tokens)]
            self.replaced += sum(token != before for token, before in zip(kept, tokens, strict=True))
            data = np.frombuffer(b"".join(kept), np.uint8)
            lengths = np.fromiter(map(len, kept), np.int64, len(kept))
        self._data.append(data)
        self._lengths.append(lengths)
        self._count += len(lengths)

    def add_parts(
        self,
        text: Int[Array, " bytes"],
        starts: Int[Array, " K"],
        lengths: Int[Array, " K"],
        place: Callable[[int], Place],
    ) -> None:
        """Append K tokens that lie in ``text`` with other things between: the i-th at ``starts[i]``."""
        shift = starts - (np.cumsum(lengths) - lengths)  # from where a token comes to lie, to where it lies
        data = text[np.arange(lengths.sum()) + np.repeat(shift, lengths)]
        self.add(data, lengths, place)

    def beginning_with(self, byte: int) -> Array:
        """Which tokens have ``byte`` as their first."""
        data, lengths = self._joined()
        found = np.zeros(len(self), bool)
        held = lengths[1:] > 0
        found[held] = data[np.cumsum(lengths)[:-1][held]] == byte
        return found

    def drop_first_byte(self, which: Array) -> None:
        """Shorten these tokens, none of them empty, by a byte."""
        data, lengths = self._joined()
        self._data = [np.delete(data, np.cumsum(lengths)[:-1][which])]
        self._lengths = [lengths - np.concatenate([[False], which])]

    def _joined(self) -> tuple[Int[Array, " bytes"], Int[Array, " V_plus_1"]]:
        self._data, self._lengths = [np.concatenate(self._data)], [np.concatenate(self._lengths)]
        return self._data[0], self._lengths[0]

    def lengths(self) -> Int[Array, " V"]:
        """The bytes of each."""
        return self._joined()[1][1:]

    def vocab(self) -> Vocab:
        """All of them, in order."""
        return Vocab.from_bytes(np.concatenate(self._data), np.cumsum(np.concatenate(self._lengths)))


def _all_utf8(data: Int[Array, " bytes"], lengths: Int[Array, " K"]) -> bool:
    """Whether each token is UTF-8: all are together, and none begins inside a character."""
    if not is_utf8(data.tobytes()):
        return False
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    return not np.any((data[starts] & 0xC0) == 0x80)


def decoded(token: bytes, errors: Errors, path: Path, place: str, offset: int | None) -> str:
    """The token's text; ``TableFormatError`` with its place and bytes if it is no UTF-8 and must be."""
    try:
        return token.decode("utf-8", errors)
    except UnicodeDecodeError:
        # A newline ends the record before, in word2vec's binary files; a token without an end is damage.
        shown = repr(token[: 2 * _SHOWN].removeprefix(b"\n")) + "…" * (len(token) > 2 * _SHOWN)
        at = "" if offset is None else f" (byte {offset:,})"
        raise TableFormatError(f"{path}, {place}{at}: the token {shown} is not UTF-8; {MENDED}") from None


def table_read(
    path: Path,
    name: str,
    weight: Array,
    tokens: TokensRead | Names | Sequence[str],
    output: Array | None = None,
    **about: Any,
) -> Table:
    """The table that a file of format ``name`` holds. Equal tokens keep their rows, each at its own id, and
    ``provenance`` counts those that repeat an earlier one, and those in which bytes were replaced.
    """
    read_from = {"file": path.name, "format": name, **about}
    tokenizer = None
    if isinstance(tokens, TokensRead):
        tokens = Names(tokens.vocab(), replaced=tokens.replaced)
    if isinstance(tokens, Names):
        vocab, tokenizer, replaced = tokens
        if replaced:
            read_from["replaced_tokens"] = replaced
    else:
        vocab = Vocab(tokens)
    if repeats := repeated(vocab):
        read_from["repeated_tokens"] = repeats
    return Table(weight, vocab, tokenizer, output, {READ_FROM: read_from})


def repeated(vocab: Vocab) -> int:
    """How many tokens are spelled like an earlier one, counted without a Python object for each.

    >>> repeated(Vocab(["a", "b", "a", "", "a", ""]))
    3
    """
    hashes = np.empty(len(vocab), np.uint64)
    for start, stop in _rounds(vocab.offsets):
        hashes[start:stop] = _hashes(vocab.data, vocab.offsets[start : stop + 1])
    order = np.argsort(hashes, kind="stable")
    repeats, strange = 0, set[bytes]()  # strange: tokens that share a hash with another's spelling
    leader, before = 0, np.uint64(0)
    for start in range(0, len(vocab), _TOKENS_AT_ONCE):
        ids = order[start : start + _TOKENS_AT_ONCE]
        own = hashes[ids]
        is_first = own != np.append(before, own[:-1])
        is_first[0] |= start == 0
        place = np.maximum.accumulate(np.where(is_first, np.arange(ids.size), -1))
        leaders = np.where(place < 0, leader, ids[place])  # the first token of the same hash
        others = ids[~is_first]
        same = _are_equal(vocab, others, leaders[~is_first])
        repeats += int(same.sum())
        for i in others[~same].tolist():
            token = vocab.data[vocab.offsets[i] : vocab.offsets[i + 1]].tobytes()
            repeats += token in strange
            strange.add(token)
        leader, before = int(leaders[-1]), own[-1]
    return repeats


def _are_equal(vocab: Vocab, ids: Int[Array, " K"], others: Int[Array, " K"]) -> Array:
    """Return for each pair of tokens whether they have the same bytes."""
    lengths = vocab.offsets[ids + 1] - vocab.offsets[ids]
    same = lengths == vocab.offsets[others + 1] - vocab.offsets[others]
    held = np.flatnonzero(same & (lengths > 0))
    for start, stop in _rounds(np.append(0, np.cumsum(lengths[held]))):
        part = held[start:stop]
        left, right = (_bytes_of(vocab, which[part]) for which in (ids, others))
        same[part] = np.logical_and.reduceat(left == right, np.cumsum(lengths[part]) - lengths[part])
    return same


def _bytes_of(vocab: Vocab, ids: Int[Array, " K"]) -> Int[Array, " bytes"]:
    """The bytes of these tokens, one token after the other."""
    first = vocab.offsets[ids]
    lengths = vocab.offsets[ids + 1] - first
    if ids.size == 1:
        return vocab.data[first[0] : first[0] + lengths[0]]
    ends = np.cumsum(lengths)
    return vocab.data[np.arange(int(ends[-1])) + np.repeat(first - ends + lengths, lengths)]


def _rounds(offsets: Int[Array, " K_plus_1"]) -> Iterator[tuple[int, int]]:
    """Ranges of one token, or of at most ``_TOKENS_AT_ONCE`` tokens and ``_BYTES_AT_ONCE`` bytes."""
    start, end = 0, offsets.size - 1
    while start < end:
        fitting = int(np.searchsorted(offsets, offsets[start] + _BYTES_AT_ONCE, "right")) - 1
        stop = min(max(fitting, start + 1), start + _TOKENS_AT_ONCE, end)
        yield start, stop
        start = stop


def _hashes(data: Int[Array, " bytes"], offsets: Int[Array, " K_plus_1"]) -> Int[Array, " K"]:
    """A hash of each token's bytes; equal tokens have equal ones.

    A polynomial modulo 2^64, which needs no Python object for each token, but 24 bytes for each byte. A token
    of more than ``_BYTES_AT_ONCE``, which comes alone, gets Python's hash instead.
    """
    lengths = np.diff(offsets)
    if int(lengths[0]) > _BYTES_AT_ONCE:
        return np.array([hash(data[offsets[0] : offsets[1]].tobytes()) & (1 << 64) - 1], np.uint64)
    hashes = np.zeros(lengths.size, np.uint64)
    held = lengths > 0
    if held.any():
        starts = (offsets[:-1] - offsets[0])[held]
        bytes_ = data[offsets[0] : offsets[-1]]
        within = np.arange(bytes_.size) - np.repeat(starts, lengths[held])
        powers = np.full(int(lengths.max()), _BASE, np.uint64)
        np.multiply.accumulate(powers, out=powers)
        hashes[held] = np.add.reduceat((bytes_ + np.uint64(1)) * powers[within], starts)
    return hashes


def json_text(about: dict[str, Any], indent: int | None = None) -> str:
    """``about``, which holds a table's provenance, as JSON; ``TableFormatError`` if JSON can't hold it."""
    try:
        text = json.dumps(about, ensure_ascii=False, allow_nan=False, indent=indent)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise TableFormatError(
            f"the provenance can't be written as JSON ({error}); "
            "keep to texts, finite numbers, lists and dicts"
        ) from None
    return text


def unwritable(vocab: Vocab, refusal: Refusal) -> dict[int, str]:
    """The ids whose tokens a format can't hold, with the reason for each."""
    found = {}
    for start in range(0, len(vocab), _TOKENS_AT_ONCE):
        for i, token in enumerate(encoded(vocab, start, start + _TOKENS_AT_ONCE), start):
            if reason := refusal(token):
                found[i] = reason
    return found


def unwritable_first(vocab: Vocab, left_out: Sequence[int], refusal: Refusal) -> list[int]:
    """The ids that a file can't begin with and would, those of ``left_out`` gone, until one comes that it can
    begin with: each of them is the first once those before it are left out.
    """
    gone, found = set(left_out), []
    for i in range(len(vocab)):
        if i in gone:
            continue
        if refusal(encoded(vocab, i, i + 1)[0]) is None:
            break
        found.append(i)
    return found


def encoded(vocab: Vocab, start: int = 0, stop: int | None = None) -> list[bytes]:
    """The tokens from id ``start`` on, and before ``stop``, as bytes in id order; all if neither is given."""
    ends = vocab.offsets[start : None if stop is None else stop + 1]
    data = vocab.data[ends[0] : ends[-1]].tobytes()
    return [data[first:end] for first, end in pairwise((ends - ends[0]).tolist())]


def check_writable(vocab: Vocab, refusal: Refusal, name: str, path: str | os.PathLike[str]) -> None:
    """``VocabError`` that names the first token which would not be read back as it is."""
    refused = unwritable(vocab, refusal)
    if refused:
        first, reason = next(iter(refused.items()))
        others = f" (and {counted(len(refused) - 1, 'more such token')})" if len(refused) > 1 else ""
        raise _unwritable(vocab, first, others, reason, name, path)


def check_first(vocab: Vocab, refusal: Refusal, name: str, path: str | os.PathLike[str]) -> None:
    """``VocabError`` if a file can't begin with the first token, which ``refusal`` gives a reason for."""
    if reason := refusal(encoded(vocab, 0, 1)[0]):
        raise _unwritable(vocab, 0, "", reason, name, path)


def refused_marked(first: bytes) -> str | None:
    """Why a file can't begin with this token: it begins with U+FEFF, which there is a byte order mark."""
    return MARKED if first.startswith(codecs.BOM_UTF8) else None


def _unwritable(
    vocab: Vocab, i: int, others: str, reason: str, name: str, path: str | os.PathLike[str]
) -> VocabError:
    return VocabError(
        f"can't write {path} as {name}: token {short(vocab[i])} at id {i:,}{others} would not be read back: "
        f"{reason}"
    )


def too_long(token: bytes) -> str | None:
    """Why a token is refused where a reader looks for its end; None if it is short enough."""
    if len(token) <= LONGEST_TOKEN:
        return None
    most = f"{LONGEST_TOKEN:,} are the most"
    return f"it has {len(token):,} bytes, and {most}; numpy, npz, gguf and native can hold it"


def short(token: str) -> str:
    """``token`` in quotes, what is far too long for a line cut.

    >>> short("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'"
    """
    return repr(token if len(token) <= _SHOWN else token[:_SHOWN] + "…")


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "row"), counted(2_000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def is_utf8(token: bytes) -> bool:
    """Whether the token is text."""
    try:
        token.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
