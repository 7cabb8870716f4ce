"""Text to token ids and back: a thin adapter over the ``tokenizers`` library."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenspace import text as text_files
from tokenspace import tokenizer_files, tokenizer_limits, tokenizer_training
from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.ids import checked_ids
from tokenspace.shapes import Array, ArrayLike, Int
from tokenspace.token_marks import CONTINUATION, Encoding
from tokenspace.tokenizer_errors import raised_as
from tokenspace.tokenizer_training import PAD
from tokenspace.vocab import Vocab, placeholder

if TYPE_CHECKING:
    import tokenizers

_PAD_NAMES = (PAD, "<pad>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<|endoftext|>")


@dataclass(frozen=True)
class Encoded:
    """One text (or a pair) as ids: every list has T entries.

    ``segments`` is 0 for the first text and 1 for the second; ``mask`` is 0 where the position is padding;
    ``spans`` says which characters of its text a token came from, (0, 0) for one that was added; ``added`` is
    1 where the tokenizer put a special token.
    """

    ids: Int[Array, " T"]
    tokens: list[str]
    segments: Int[Array, " T"]
    mask: Int[Array, " T"]
    spans: list[tuple[int, int]]
    added: Int[Array, " T"]

    def padded(self, length: int, pad_id: int, pad: str) -> Encoded:
        """Return this text with the token ``pad`` at its end, up to ``length`` positions."""
        missing = length - self.ids.size
        return Encoded(
            np.pad(self.ids, (0, missing), constant_values=pad_id),
            self.tokens + [pad] * missing,
            np.pad(self.segments, (0, missing)),
            np.pad(self.mask, (0, missing)),
            self.spans + [(0, 0)] * missing,
            np.pad(self.added, (0, missing)),
        )


class Tokenizer:
    """Encodes text with a ``tokenizers.Tokenizer``, which ``inner`` gives; parsed when it is first used.

    Truncation and padding that a ``tokenizer.json`` may carry are switched off: a text is never cut silently,
    and a batch is padded to its own longest text.
    """

    def __init__(
        self,
        description: str | bytes,
        origin: str = "this tokenizer",
        assumed: str | None = None,
        unnamed: frozenset[str] = frozenset(),
    ):
        self._description = description
        self._origin = origin
        self.assumed = assumed
        self.unnamed = unnamed

    # ── where one comes from ──────────────────────────────────────────────────────────────────────────────

    @classmethod
    def from_json(cls, description: str | bytes, origin: str = "this tokenizer") -> Tokenizer:
        """Wrap the text of a ``tokenizer.json``; ``origin`` names it in errors."""
        return cls(description, origin)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a tokenizer's file, or the one in a checkpoint's folder: ``tokenizer.json``, WordPiece's
        ``vocab.txt``, or the ``vocab.json`` and ``merges.txt`` of GPT-2's byte-level BPE. Of a folder, the
        added and special tokens (``tokenizer_config.json``, ``special_tokens_map.json``,
        ``added_tokens.json``) are read too, as transformers' AutoTokenizer reads them; a ``tokenizer.json``
        that is named itself is read alone.

        ``assumed`` says what none of them states; ``unnamed`` are tokens past the vocabulary that no file
        names, which AutoTokenizer adds.
        """
        if not os.fspath(path):
            raise CheckpointError("no tokenizer was named; name its file, or a folder that holds one")
        description = tokenizer_files.read(Path(path))
        tokenizer = cls(description.text, str(description.file), description.assumed, description.unnamed)
        tokenizer.inner  # noqa: B018  a file that is no tokenizer is refused here, not at first use
        return tokenizer

    @classmethod
    def train(
        cls,
        files: text_files.Files,
        kind: str = "word",
        vocab_size: int = 30_000,
        min_count: int = 1,
        lowercase: bool = True,
    ) -> Tokenizer:
        """Learn a vocabulary from UTF-8 text files, one text a line. See ``train_from_iterator``."""
        return cls.train_from_iterator(
            _Lines(text_files.check(files)), kind, vocab_size, min_count, lowercase
        )

    @classmethod
    def train_from_iterator(
        cls,
        texts: str | Iterable[str],
        kind: str = "word",
        vocab_size: int = 30_000,
        min_count: int = 1,
        lowercase: bool = True,
    ) -> Tokenizer:
        """Learn a vocabulary of at most ``vocab_size`` tokens, special tokens included.

        ``word``: the words and punctuation marks seen at least ``min_count`` times, the most frequent first.
        ``whitespace``: the same of whatever stands between white space, for text that is split already.
        ``bpe``: byte-pair encoding over bytes (Sennrich et al. 2016; GPT-2's alphabet), which has no unknown
        text. ``wordpiece``: pieces that continue a word begin with ## (Schuster and Nakajima 2012, as in
        BERT). ``unigram``: the likeliest split under a learned unigram model (Kudo 2018), with ▁ for a space.
        ``tokenizer_training`` lists the special tokens of each. ``VocabError`` if a setting can't be,
        ``CorpusError`` for anything but texts.

        >>> tokenizer = Tokenizer.train_from_iterator(["The cat sat.", "the cat!"])
        >>> list(tokenizer.vocab)
        ['[PAD]', '[UNK]', '[SEP]', 'cat', 'the', '!', '.', 'sat']
        >>> tokenizer.encode("The dog sat").tokens
        ['the', '[UNK]', 'sat']
        """
        # A generator stays one, so that training knows that it can't be read twice.
        checked = text_files.each_text(texts) if isinstance(texts, Iterator) else _Texts(texts)
        return cls(tokenizer_training.train(checked, kind, vocab_size, min_count, lowercase))

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def inner(self) -> tokenizers.Tokenizer:
        """The ``tokenizers.Tokenizer`` that does the work."""
        from tokenizers import Tokenizer as Inner

        description = _as_bytes(self._description)
        fault = tokenizer_limits.fault(description)
        if fault:
            raise TableFormatError(f"{self._origin}, {fault}")
        with raised_as(TableFormatError, f"{self._origin} is no tokenizer.json"):
            inner = Inner.from_buffer(description)
        inner.no_truncation()
        inner.no_padding()
        return inner

    def to_json(self) -> str:
        """The text of a ``tokenizer.json``, byte for byte what this tokenizer was read from."""
        try:
            return _as_bytes(self._description).decode("utf-8")
        except UnicodeDecodeError as error:
            raise TableFormatError(f"{self._origin} is not UTF-8 at byte {error.start:,}") from None

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """What the ``tokenizer.json`` says, as plain objects; checked by ``inner`` first."""
        self.inner  # noqa: B018
        return json.loads(self.to_json())

    @property
    def kind(self) -> str:
        """How it splits: "word", "whitespace", "bpe", "wordpiece" or "unigram"."""
        name = type(self.inner.model).__name__
        if name != "WordLevel":
            return name.lower()
        return "whitespace" if type(self.inner.pre_tokenizer).__name__ == "WhitespaceSplit" else "word"

    @cached_property
    def vocab(self) -> Vocab:
        """Its tokens in id order; an id that no token has is named ``[unused-row-N]``."""
        ids = self.inner.get_vocab(with_added_tokens=True)
        tokenizer_files.check_holes(ids, self._origin)
        by_id = {i: token.removesuffix(self._word_mark) for token, i in ids.items()}
        size = max(by_id, default=-1) + 1
        added = self.inner.get_added_tokens_decoder()
        return Vocab(
            [by_id.get(i) or placeholder(i) for i in range(size)],
            special=[i for i, token in added.items() if token.special],
            encoding=self._encoding,
            added=added,
        )

    @property
    def _encoding(self) -> Encoding | None:
        """How its tokens mark where words begin; None where its parts don't tell."""
        settings = self._settings
        model = settings["model"]
        kind = model.get("type")  # a file may leave it out
        if kind == "WordLevel" or model.get("end_of_word_suffix"):
            return "word"
        if kind == "WordPiece":
            return "wordpiece" if model.get("continuing_subword_prefix") == CONTINUATION else None
        parts = [settings.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]
        if any(_holds(part, "ByteLevel") for part in parts):
            return "byte-level"
        metaspace = any(_holds(part, "Metaspace") for part in parts) or "▁" in json.dumps(
            parts, ensure_ascii=False
        )
        return "sentencepiece" if metaspace else None

    @cached_property
    def unk_id(self) -> int | None:
        """The id that stands for text outside the vocabulary; None if there is no such text."""
        name = getattr(self.inner.model, "unk_token", None)
        if name is None:
            found = self._settings["model"].get("unk_id")  # Unigram names it by id
            return found if type(found) is int and found < len(self.vocab) else None
        return self.inner.token_to_id(name)

    @cached_property
    def pad_id(self) -> int | None:
        """The padding token's id, recognised by name or by the file's own padding; None if there is none."""
        padding = self._settings.get("padding")
        if padding and type(padding.get("pad_id")) is int and 0 <= padding["pad_id"] < len(self.vocab):
            return padding["pad_id"]
        found = (self.inner.token_to_id(name) for name in _PAD_NAMES)
        return next((i for i in found if i is not None), None)

    # ── what it does ──────────────────────────────────────────────────────────────────────────────────────

    def encode(self, text: str, pair: str | None = None) -> Encoded:
        """One text, or two as the tokenizer joins them, with the special tokens that it adds."""
        return self._encoded(self._encode(text, pair))

    def encode_batch(self, texts: str | Iterable[str]) -> list[Encoded]:
        """Several texts (a ``str`` is one), each padded at its end to the longest: stack their ``ids`` for a
        (B, T) array.
        """
        encoded = [self._encoded(self._encode(text)) for text in text_files.as_texts(texts)]
        length = max((one.ids.size for one in encoded), default=0)
        pad_id = self.pad_id or 0  # without a padding token any id will do: the mask is 0 there
        pad = self.inner.id_to_token(pad_id) or placeholder(pad_id)
        return [one.padded(length, pad_id, pad) for one in encoded]

    def pieces(self, word: str) -> list[int]:
        """The ids that ``word`` splits into, standing by itself, without special tokens."""
        return self._encode(word, special=False).ids

    def decode(self, ids: ArrayLike) -> str:
        """The text of ``ids`` (T,), special tokens left out; ``TokenIdError`` for an id without a token."""
        checked = np.atleast_1d(checked_ids(ids, len(self.vocab))).tolist()
        with raised_as(TableFormatError, f"{self._origin} can't put these ids together"):
            if not self._decodes_bytes:
                return self.inner.decode(checked)
            # The library would read added tokens, which are text, as bytes too.
            added = self.inner.get_added_tokens_decoder()
            runs = itertools.groupby(checked, key=lambda i: i if i in added else None)
            return "".join(
                self.inner.decode(list(run))
                if i is None
                else ""
                if added[i].special
                else added[i].content * len(list(run))
                for i, run in runs
            )

    @property
    def _decodes_bytes(self) -> bool:
        return _holds(self._settings.get("decoder"), "ByteLevel")

    def _encode(self, text: str, pair: str | None = None, special: bool = True) -> tokenizers.Encoding:
        inner = self.inner
        text_files.check_text(text)
        if pair is not None:
            text_files.check_text(pair, "pair")
        with raised_as(TableFormatError, f"{self._origin} can't split this text"):  # e.g. without its [UNK]
            return inner.encode(
                _plain(text), None if pair is None else _plain(pair), add_special_tokens=special
            )

    @cached_property
    def _word_mark(self) -> str:
        """The mark that ``formats.word_tokenizer`` adds to a list of words and that is no part of them; empty
        for every other tokenizer.
        """
        mark = getattr(self.inner.model, "end_of_word_suffix", None) or ""
        if mark and getattr(self.inner.model, "continuing_subword_prefix", None) == mark:
            return mark if not self._settings["model"].get("merges") else ""
        return ""

    def _encoded(self, one: tokenizers.Encoding) -> Encoded:
        return Encoded(
            np.asarray(one.ids, np.int64),
            [token.removesuffix(self._word_mark) for token in one.tokens],
            np.asarray(one.type_ids, np.int64),
            np.asarray(one.attention_mask, np.int64),
            one.offsets,
            np.asarray(one.special_tokens_mask, np.int64),
        )


class _Texts:
    """One text or several, each checked to be a ``str`` when it is read."""

    def __init__(self, texts: str | Iterable[str]):
        self._texts = [texts] if isinstance(texts, str) else texts

    def __iter__(self) -> Iterator[str]:
        return text_files.each_text(self._texts)


class _Lines:
    """The lines of text files, as often as they are asked for."""

    def __init__(self, files: Sequence[text_files.TextFile]):
        self._files = files

    def __iter__(self) -> Iterator[str]:
        return text_files.lines(self._files)


def _holds(part: Any, kind: str) -> bool:
    """Return whether a part of a ``tokenizer.json`` has a step of this type, at any depth."""
    if isinstance(part, list):
        return any(_holds(each, kind) for each in part)
    return isinstance(part, dict) and (part.get("type") == kind or _holds(list(part.values()), kind))


def _plain(text: str) -> str:
    """The library takes Unicode text alone; lone surrogates (bytes that were no UTF-8) become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _as_bytes(description: str | bytes) -> bytes:
    return description.encode("utf-8") if isinstance(description, str) else description
