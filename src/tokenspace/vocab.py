"""The vocabulary: which token stands at which id, in whatever way its tokenizer writes tokens down.

The tokens lie in one block of bytes with V + 1 offsets, as they do in the native file, and are decoded when
they are asked for: opening a table of 256,000 tokens parses none of them.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, SupportsIndex, get_args

import numpy as np

from tokenspace.errors import TokenIdError, VocabError
from tokenspace.shapes import Array, Int

Encoding = Literal["word", "wordpiece", "byte-level", "sentencepiece"]
Kind = Literal["special", "byte", "word-initial", "continuation", "unused"]

WORD_START = {"byte-level": "Ġ", "sentencepiece": "▁"}
CONTINUATION = "##"
_MARKERS: dict[Encoding, str] = {"wordpiece": CONTINUATION, "byte-level": "Ġ", "sentencepiece": "▁"}
_UNUSED = re.compile(r"\[unused.*\]|<unused\d+>|<\|reserved_special_token_\d+\|>")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SCANS = 64  # searches that read the tokens' bytes, before a dict of them (100 bytes a token) pays
_COMPARED = 2_000  # spellings, each of which takes some microseconds to compare with a word
_TOKENS_AT_ONCE = 1 << 16


class Found(NamedTuple):
    """What a person's word turned out to be: an id, and the token as the vocabulary writes it."""

    id: int
    token: str


class Vocab:
    """V tokens in id order; ``special`` names the ids that stand for structure rather than text.

    Tokens are ``str``; bytes that are no UTF-8 are carried as surrogate escapes. Two ids may hold the same
    token (real vocabularies do): the id is the key.

    >>> vocab = Vocab(["[PAD]", "the", "cat", "##s"], special=[0])
    >>> vocab[2], vocab.id("cat"), vocab.kind(3), len(vocab)
    ('cat', 2, 'continuation', 4)
    >>> vocab.id("cats")
    Traceback (most recent call last):
    ...
    tokenspace.errors.VocabError: 'cats' is not one of the 4 tokens of this vocabulary; close spellings: 'cat'
    """

    def __init__(
        self, tokens: Sequence[str], special: Iterable[SupportsIndex] = (), encoding: Encoding | None = None
    ):
        if isinstance(tokens, str | bytes):
            raise VocabError(f"a vocabulary is a list of tokens, found {type(tokens).__name__}")
        try:
            encoded = [token.encode("utf-8", "surrogateescape") for token in tokens]
        except UnicodeEncodeError as error:
            raise VocabError(f"token {error.object!r} can't be written as bytes: {error.reason}") from None
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(token) for token in encoded], out=offsets[1:])
        self._set(np.frombuffer(b"".join(encoded), np.uint8), offsets, special, encoding)

    @classmethod
    def from_bytes(
        cls,
        data: Int[Array, " bytes"],
        offsets: Int[Array, " V_plus_1"],
        special: Iterable[SupportsIndex] = (),
        encoding: Encoding | None = None,
    ) -> Vocab:
        """Wrap V tokens already laid end to end: token i is ``data[offsets[i]:offsets[i + 1]]`` (UTF-8)."""
        self = cls.__new__(cls)
        ends = offsets.size > 0 and offsets[0] == 0 and offsets[-1] == data.size
        if not ends or np.any(offsets[1:] < offsets[:-1]):
            raise VocabError(
                f"token offsets must rise from 0 to the {data.size:,} bytes of token text; "
                "these don't: the vocabulary is damaged"
            )
        self._set(data, offsets, special, encoding)
        return self

    def _set(
        self,
        data: Int[Array, " bytes"],
        offsets: Int[Array, " V_plus_1"],
        special: Iterable[SupportsIndex],
        encoding: Encoding | None,
    ) -> None:
        self.data = data
        self.offsets = offsets
        self._scans = 0
        self.special: tuple[int, ...] = tuple(sorted({self._checked(i) for i in special}))
        if encoding is not None:
            if encoding not in get_args(Encoding):
                raise VocabError(
                    f"encoding {encoding!r} is not known; allowed: {', '.join(get_args(Encoding))}"
                )
            self.encoding = encoding

    def __len__(self) -> int:
        return self.offsets.size - 1

    def _checked(self, i: SupportsIndex) -> int:
        """``i`` as an id of this vocabulary: an integer, never wrapped, rounded or clipped."""
        try:
            index = operator.index(i)
        except TypeError:
            index = -1
        if isinstance(i, (bool, np.bool_)) or not 0 <= index < len(self):
            raise TokenIdError(
                f"id {i!r} is outside this vocabulary of {len(self):,} tokens; ids are integers from 0 on"
            )
        return index

    def __getitem__(self, i: SupportsIndex) -> str:
        i = self._checked(i)
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        text = self.data.tobytes()
        ends = self.offsets.tolist()
        for start, end in pairwise(ends):
            yield text[start:end].decode("utf-8", "surrogateescape")

    def __contains__(self, token: object) -> bool:
        return isinstance(token, str) and self._lowest(token) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocab):
            return NotImplemented
        same_text = np.array_equal(self.data, other.data) and np.array_equal(self.offsets, other.offsets)
        return same_text and (self.special, self.encoding) == (other.special, other.encoding)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocab({len(self):,} tokens, {self.encoding}, {len(self.special)} special)"

    def take(self, ids: Int[Array, " K"]) -> Vocab:
        """The tokens of ``ids`` (each from 0 to V - 1), renumbered in that order; special ones stay so."""
        lengths = np.diff(self.offsets)[ids]
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(self.offsets[ids] - offsets[:-1], lengths) + np.arange(offsets[-1])
        special = np.flatnonzero(np.isin(ids, self.special)).tolist()
        return Vocab.from_bytes(self.data[places], offsets, special, self.encoding)

    def _lowest(self, token: str) -> int | None:
        """The lowest id that holds ``token``; None if none does."""
        if "_first" not in self.__dict__ and self._scans < _SCANS:
            self._scans += 1
            return next(iter(self.ids(token)), None)
        return self._first.get(token)

    @cached_property
    def _first(self) -> dict[str, int]:
        """token -> its lowest id; built when many tokens have been searched for."""
        first: dict[str, int] = {}
        for i, token in enumerate(self):
            first.setdefault(token, i)
        return first

    @cached_property
    def encoding(self) -> Encoding:
        """How tokens mark where words begin: told by the marker that at least 1 % of them start with."""
        for encoding, marker in _MARKERS.items():
            code = np.frombuffer(marker.encode(), np.uint8)
            starts = self.offsets[:-1][np.diff(self.offsets) >= code.size]
            marked = np.ones(starts.size, bool)
            for k, byte in enumerate(code):
                marked &= self.data[starts + k] == byte
            if 0 < len(self) <= 100 * int(marked.sum()):
                return encoding
        return "word"

    def id(self, token: str) -> int:
        """The id of ``token``, written as the vocabulary writes it; the lowest where several ids hold it."""
        found = self._lowest(token)
        if found is None:
            raise VocabError(self._missing(token))
        return found

    def ids(self, token: str) -> list[int]:
        """Every id that holds ``token``, in order; empty if none does."""
        if not _is_writable(token):
            return []
        code = np.frombuffer(token.encode("utf-8", "surrogateescape"), np.uint8)
        found = np.flatnonzero(np.diff(self.offsets) == code.size)
        for k, byte in enumerate(code):
            found = found[self.data[self.offsets[found] + k] == byte]
        return found.tolist()

    def find(self, word: str) -> Found:
        """The id that a person means by ``word``: the form that begins a word where there is one, else the
        plain form, else the token exactly as typed. ``VocabError`` with close spellings if none exists.

        >>> Vocab(["king", "Ġking", "s"]).find("king")
        Found(id=1, token='Ġking')
        """
        found = self.known(word)
        if found is None:
            raise VocabError(self._missing(word))
        return found

    def known(self, word: str) -> Found | None:
        """What ``find`` finds; None if there is nothing, without looking for close spellings."""
        for form in self._forms(word):
            if (i := self._lowest(form)) is not None:
                return Found(i, form)
        return None

    def _forms(self, word: str) -> list[str]:
        if self.encoding == "byte-level" and _is_writable(word):
            plain = "".join(_BYTE_LEVEL[b] for b in word.encode("utf-8", "surrogateescape"))
            return ["Ġ" + plain, plain, word]
        if self.encoding == "sentencepiece":
            return ["▁" + word.replace(" ", "▁"), word]
        return [word]

    def kind(self, i: SupportsIndex) -> Kind:
        """What id ``i`` is for.

        >>> llama = Vocab(["<s>", "<0x0A>", "▁king", "dom", "<unused7>"], special=[0])
        >>> [llama.kind(i) for i in range(5)]
        ['special', 'byte', 'word-initial', 'continuation', 'unused']
        """
        return self._kind(self[i], i in self.special)

    def kinds(self) -> Iterator[Kind]:
        """The ``kind`` of each id, in order."""
        special = set(self.special)
        for i, token in enumerate(self):
            yield self._kind(token, i in special)

    def _kind(self, token: str, special: bool) -> Kind:
        if _UNUSED.fullmatch(token):
            return "unused"
        if special:
            return "special"
        if _BYTE.fullmatch(token) or (self.encoding == "byte-level" and _is_lone_byte(token)):
            return "byte"
        if self.encoding == "wordpiece":
            return "continuation" if token.startswith(CONTINUATION) else "word-initial"
        if self.encoding in WORD_START:
            return "word-initial" if token.startswith(WORD_START[self.encoding]) else "continuation"
        return "word-initial"

    def placeholders(self) -> Int[Array, " rows"]:
        """The ids of the rows that no token names: those called ``[unused-row-N]`` at their own N."""
        long_enough = np.flatnonzero(np.diff(self.offsets) >= len(placeholder(0)))
        candidates = long_enough[self.data[self.offsets[long_enough]] == ord("[")]
        return np.array([i for i in candidates.tolist() if self[i] == placeholder(i)], np.int64)

    def close(self, word: str, n: int = 3) -> list[str]:
        """Up to ``n`` tokens spelled like ``word``, nearest first, as a person would type them."""
        if not _is_writable(word):
            return []
        mark = WORD_START.get(self.encoding, "\0")
        spellings: dict[str, None] = {}
        for i in self._alike(word, len(mark.encode())):
            spelling = self[i].removeprefix(mark)
            if abs(len(spelling) - len(word)) <= 2:
                spellings[spelling] = None
        folded = word.lower()
        same = [s for s in spellings if s.lower() == folded]
        near = difflib.get_close_matches(word, spellings, n=n + len(same), cutoff=0.7)
        return [*same, *(s for s in near if s not in same)][:n]

    def _alike(self, word: str, mark: int) -> list[int]:
        """The ids, in order, of the tokens that share most of their bytes with ``word``, upper and lower case
        alike: all that can be close, or the 2,000 best. ``mark`` bytes of a token may say that it begins one.
        """
        code = np.frombuffer(word.encode("utf-8", "surrogateescape"), np.uint8) | 0x20
        shares = []
        for start in range(0, len(self), _TOKENS_AT_ONCE):
            ends = self.offsets[start : start + _TOKENS_AT_ONCE + 1]
            folded = self.data[ends[0] : ends[-1]] | 0x20
            common = np.zeros(len(ends) - 1, np.int64)
            for byte in np.unique(code):
                count = np.zeros(len(folded) + 1, np.int32)
                np.cumsum(folded == byte, out=count[1:])
                common += np.minimum(np.diff(count[ends - ends[0]]), np.count_nonzero(code == byte))
            shares.append(2 * common / (np.maximum(np.diff(ends) - mark, 1) + len(code)))
        share = np.concatenate(shares) if shares else np.empty(0)
        found = np.flatnonzero(share > 0.6)
        best = found[np.argsort(-share[found], kind="stable")[:_COMPARED]]
        return np.sort(best).tolist()

    def _missing(self, word: str) -> str:
        near = self.close(word)
        hint = "close spellings: " + ", ".join(map(repr, near)) if near else "no close spelling either"
        which = "the one token" if len(self) == 1 else f"one of the {len(self):,} tokens"
        return f"{word!r} is not {which} of this vocabulary; {hint}"


def _is_writable(token: str) -> bool:
    """Whether bytes can hold ``token``: no surrogate but those that stand for a byte."""
    try:
        token.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def placeholder(i: int) -> str:
    """The token given to a row that no token of the tokenizer names (padding rows, holes in the ids)."""
    return f"[unused-row-{i}]"


def _byte_level_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte: itself if visible in Latin-1, else the next from 256."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


_BYTE_LEVEL = _byte_level_alphabet()
_LONE_BYTES = {stand_in for byte, stand_in in _BYTE_LEVEL.items() if byte < 0x20 or byte >= 0x7F}


def _is_lone_byte(token: str) -> bool:
    """A control byte, or one byte of a longer UTF-8 character: no text by itself."""
    return token in _LONE_BYTES
