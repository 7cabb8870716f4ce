"""The vocabulary: which token stands at which id, in whatever way its tokenizer writes tokens down.

The tokens lie in one block of bytes with V + 1 offsets, as they do in the native file, and are decoded when
they are asked for: opening a table of 256,000 tokens parses none of them.
"""

from __future__ import annotations

import difflib
import operator
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, SupportsIndex, get_args

import numpy as np

from tokenspace.errors import TokenIdError, VocabError
from tokenspace.shapes import Array, Int
from tokenspace.token_marks import (
    CONTINUATION,
    SIGNS,
    WORD_START,
    Encoding,
    from_byte_level,
    is_lone_byte,
    to_byte_level,
)

Kind = Literal["special", "byte", "word-initial", "continuation", "unused"]

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
    token (real vocabularies do): the id is the key. ``encoding`` says how tokens mark where words begin; if
    it is not given, the tokens have to show it (see ``encoding``). ``added`` names the ids of tokens that
    were added to a tokenizer: they and the special ones are spelled as text, whatever the encoding.

    >>> vocab = Vocab(["[PAD]", "the", "cat", "##s"], special=[0])
    >>> vocab[2], vocab.id("cat"), vocab.kind(3), len(vocab)
    ('cat', 2, 'continuation', 4)
    >>> vocab.id("cats")
    Traceback (most recent call last):
    ...
    tokenspace.errors.VocabError: 'cats' is not one of the 4 tokens of this vocabulary; close spellings: 'cat'
    """

    def __init__(
        self,
        tokens: Sequence[str],
        special: Iterable[SupportsIndex] = (),
        encoding: Encoding | None = None,
        added: Iterable[SupportsIndex] = (),
    ):
        not_a_list = isinstance(tokens, str | bytes | bytearray | Mapping | set | frozenset)
        if not_a_list or not isinstance(tokens, Iterable):
            raise VocabError(f"a vocabulary is a list of tokens, found {type(tokens).__name__}")
        tokens = list(tokens)
        for place, token in enumerate(tokens):
            if not isinstance(token, str):
                raise VocabError(
                    f"each token must be a str; the one at id {place:,} is {type(token).__name__}"
                )
        try:
            encoded = [token.encode("utf-8", "surrogateescape") for token in tokens]
        except UnicodeEncodeError as error:
            raise VocabError(f"token {error.object!r} can't be written as bytes: {error.reason}") from None
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(token) for token in encoded], out=offsets[1:])
        self._set(np.frombuffer(b"".join(encoded), np.uint8), offsets, special, encoding, added)

    @classmethod
    def from_bytes(
        cls,
        data: Int[Array, " bytes"],
        offsets: Int[Array, " V_plus_1"],
        special: Iterable[SupportsIndex] = (),
        encoding: Encoding | None = None,
        added: Iterable[SupportsIndex] = (),
    ) -> Vocab:
        """Wrap V tokens already laid end to end: token i is ``data[offsets[i]:offsets[i + 1]]`` (UTF-8)."""
        self = cls.__new__(cls)
        ends = offsets.size > 0 and offsets[0] == 0 and offsets[-1] == data.size
        if not ends or np.any(offsets[1:] < offsets[:-1]):
            raise VocabError(
                f"token offsets must rise from 0 to the {data.size:,} bytes of token text; "
                "these don't: the vocabulary is damaged"
            )
        self._set(data, offsets, special, encoding, added)
        return self

    def _set(
        self,
        data: Int[Array, " bytes"],
        offsets: Int[Array, " V_plus_1"],
        special: Iterable[SupportsIndex],
        encoding: Encoding | None,
        added: Iterable[SupportsIndex],
    ) -> None:
        self.data = data
        self.offsets = offsets
        self._scans = 0
        self.special: tuple[int, ...] = tuple(sorted({self._checked(i) for i in special}))
        self.added: tuple[int, ...] = tuple(sorted({self._checked(i) for i in added} - set(self.special)))
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
        about = (self.special, self.encoding, self.added)
        return same_text and about == (other.special, other.encoding, other.added)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocab({len(self):,} tokens, {self.encoding}, {len(self.special)} special)"

    def take(self, ids: Int[Array, " K"]) -> Vocab:
        """The tokens of ``ids`` (each from 0 to V - 1), renumbered in that order; special ones stay so."""
        lengths = np.diff(self.offsets)[ids]
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(self.offsets[ids] - offsets[:-1], lengths) + np.arange(offsets[-1])
        special, added = (
            np.flatnonzero(np.isin(ids, which)).tolist() for which in (self.special, self.added)
        )
        return Vocab.from_bytes(self.data[places], offsets, special, self.encoding, added)

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
        """How tokens mark where words begin: as was given, else as most of the tokens show.

        A marker counts if more than half of the tokens begin with it, or fewer beside a token that every
        vocabulary of that encoding has (``token_marks.SIGNS``). A few words
        that begin with ## or ▁ are words.

        >>> Vocab(["▁the", "▁cat", "s"]).encoding, Vocab(["the", "cat", "##x"]).encoding
        ('sentencepiece', 'word')
        """
        for encoding, sign in SIGNS.items():
            share = self.beginning_with(sign.marker) / max(len(self), 1)
            if share > 0.5 or (share >= sign.share and any(self.ids(token) for token in sign.tokens)):
                return encoding
        return "word"

    def beginning_with(self, marker: str) -> int:
        """The number of tokens that begin with ``marker``."""
        code = np.frombuffer(marker.encode(), np.uint8)
        starts = self.offsets[:-1][np.diff(self.offsets) >= code.size]
        marked = np.ones(starts.size, bool)
        for k, byte in enumerate(code):
            marked &= self.data[starts + k] == byte
        return int(marked.sum())

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
        plain form, else the token exactly as typed. A word that Unicode can write in several ways (é as one
        character, or e and an accent) is found in each of them; the way it is typed comes first.
        ``VocabError`` with close spellings if none exists.

        >>> Vocab(["king", "Ġking", "s"], encoding="byte-level").find("king")
        Found(id=1, token='Ġking')
        >>> Vocab(["caf\\u00e9"]).find("cafe\\u0301").id
        0
        """
        found = self.known(word)
        if found is None:
            raise VocabError(self._missing(word))
        return found

    def known(self, word: str) -> Found | None:
        """The token that ``find`` finds; None if there is none, without looking for close spellings."""
        for spelling in _spellings(word):
            for form in self._forms(spelling):
                i = self._lowest(form)
                if i is not None and (form == spelling or not self.is_verbatim(i)):
                    return Found(i, form)
        if word.isascii():
            return None
        i = self._partly_composed.get(unicodedata.normalize("NFC", word))
        return None if i is None else Found(i, self[i])

    def is_verbatim(self, i: int) -> bool:
        """Return whether token i, special or added, is spelled as text, without the encoding's marks."""
        return i in self._verbatim

    @cached_property
    def _verbatim(self) -> frozenset[int]:
        return frozenset((*self.special, *self.added))

    @cached_property
    def _partly_composed(self) -> dict[str, int]:
        """NFC -> lowest id, of the tokens in neither NFC nor NFD: Vietnamese keyboards write such words."""
        found: dict[str, int] = {}
        for i, token in enumerate(self):
            if not token.isascii() and not unicodedata.is_normalized("NFC", token):
                text = token.removeprefix(WORD_START.get(self.encoding, ""))
                found.setdefault(unicodedata.normalize("NFC", text), i)
        return found

    def text(self, i: SupportsIndex) -> str:
        """The text that token i stands for, without the encoding's marks: its bytes as UTF-8 (U+FFFD for
        others) if they are spelled by GPT-2's stand-ins. Special and added tokens are text already.

        >>> vocab = Vocab(["ĠcafÃ©", "čas"], encoding="byte-level", added=[1])
        >>> vocab.text(0), vocab.text(1)
        ('café', 'čas')
        """
        return self._text(self[i], self.is_verbatim(operator.index(i)))

    def texts(self) -> Iterator[str]:
        """The ``text`` of each token, in order."""
        for i, token in enumerate(self):
            yield self._text(token, self.is_verbatim(i))

    def _text(self, token: str, verbatim: bool) -> str:
        if verbatim:
            return token
        if self.encoding == "byte-level":
            return from_byte_level(token).removeprefix(" ")
        mark = CONTINUATION if self.encoding == "wordpiece" else WORD_START.get(self.encoding, "")
        return token.removeprefix(mark) or token

    def _forms(self, word: str) -> list[str]:
        if self.encoding == "byte-level" and _is_writable(word):
            plain = to_byte_level(word)
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
        return self._kind(self[i], i in self.special, i in self.added)

    def kinds(self) -> Iterator[Kind]:
        """The ``kind`` of each id, in order."""
        special, added = set(self.special), set(self.added)
        for i, token in enumerate(self):
            yield self._kind(token, i in special, i in added)

    def _kind(self, token: str, special: bool, added: bool) -> Kind:
        if _UNUSED.fullmatch(token):
            return "unused"
        if special:
            return "special"
        if added:
            return "word-initial"
        if _BYTE.fullmatch(token) or (self.encoding == "byte-level" and is_lone_byte(token)):
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
        word = unicodedata.normalize("NFC", word)
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
        if not word.isascii() and (found := self.known(word)) is not None and found.token != word:
            hint = f"Unicode has it spelled otherwise, as {found.token!a}"
        which = "the one token" if len(self) == 1 else f"one of the {len(self):,} tokens"
        return f"{word!r} is not {which} of this vocabulary; {hint}"


def _spellings(word: str) -> list[str]:
    """``word`` as it is, and its composed and decomposed forms where they differ."""
    if word.isascii():
        return [word]
    return list(dict.fromkeys((word, *(unicodedata.normalize(form, word) for form in ("NFC", "NFD")))))


def _is_writable(token: str) -> bool:
    """Whether bytes can hold ``token``: no surrogate but those that stand for a byte."""
    try:
        token.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def check_vocab(vocab: object) -> None:
    """``VocabError`` unless ``vocab`` is a ``Vocab``."""
    if not isinstance(vocab, Vocab):
        raise VocabError(f"vocab must be a Vocab, found {type(vocab).__name__}; make one: Vocab(tokens)")


def placeholder(i: int) -> str:
    """The token given to a row that no token of the tokenizer names (padding rows, holes in the ids)."""
    return f"[unused-row-{i}]"
