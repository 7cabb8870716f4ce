"""Text files as token ids: one flat array, and where its sentences begin and end.

One sentence or paragraph a line. A corpus is read three times (checked, its vocabulary learned, encoded).
Text is never in memory whole; ids are, at 4 bytes a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tokenspace.errors import CorpusError
from tokenspace.shapes import Array, Int
from tokenspace.text import BLOCK, TextFile, lines
from tokenspace.tokenizer import Tokenizer

_LINES_TOGETHER = 8192
_NO_LIMIT = 1 << 30  # rows of a vocabulary that the minimum count alone bounds


@dataclass(frozen=True)
class Corpus:
    """Sentence s is ``ids[offsets[s] : offsets[s + 1]]``; no sentence is empty."""

    ids: Int[Array, " N"]
    offsets: Int[Array, " S+1"]

    def counts(self, rows: int) -> Int[Array, " V"]:
        """How often each of ``rows`` tokens occurs."""
        return np.bincount(self.ids, minlength=rows)


def word_tokenizer(files: Sequence[TextFile], min_count: int, lowercase: bool) -> Tokenizer:
    """Words and punctuation marks that occur at least ``min_count`` times; ``CorpusError`` if none does."""
    tokenizer = Tokenizer.train_from_iterator(lines(files), "word", _NO_LIMIT, min_count, lowercase)
    if len(tokenizer.vocab) > len(tokenizer.vocab.special):
        return tokenizer
    every = Tokenizer.train_from_iterator(lines(files), "word", _NO_LIMIT, 1, lowercase)
    counts = encode(lines(files), every, longest=1024).counts(len(every.vocab))
    if not counts.sum():
        raise _empty(files)
    top = int(counts.argmax())
    raise CorpusError(
        f"none of the {np.count_nonzero(counts):,} distinct tokens occurs {min_count:,} times or more "
        f"(the most frequent, {every.vocab[top]!r}, occurs {counts[top]:,} times); "
        f"lower the minimum count to {counts[top]:,} or less, or add text"
    )


def check_trainable(corpus: Corpus, files: Sequence[TextFile]) -> None:
    """``CorpusError`` if no sentence has a pair of tokens to learn from."""
    if not len(corpus.ids):
        raise _empty(files)
    if not (np.diff(corpus.offsets) > 1).any():
        raise CorpusError(
            f"no line of the corpus has two known tokens ({len(corpus.ids):,}, each alone on its line), "
            "so no token has a context; put a sentence or a paragraph on each line"
        )


def encode(texts: Iterable[str], tokenizer: Tokenizer, longest: int) -> Corpus:
    """Encode each text as one sentence; unknown tokens are left out, as in word2vec.

    A sentence of more than ``longest`` tokens becomes several of nearly equal length: nothing is lost but the
    pairs across the cuts.

    >>> tokenizer = Tokenizer.train_from_iterator(["a b c"])
    >>> corpus = encode(["a b x c b", "", "c"], tokenizer, longest=3)
    >>> corpus.ids.tolist(), corpus.offsets.tolist()
    ([3, 4, 5, 4, 5], [0, 2, 4, 5])
    """
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for block in _blocks(texts):
        encodings = tokenizer.inner.encode_batch_fast(block, add_special_tokens=False)
        pieces = [encoding.ids for encoding in encodings]
        block_lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        block_ids = np.fromiter(chain.from_iterable(pieces), np.int32, int(block_lengths.sum()))
        known = block_ids != (-1 if tokenizer.unk_id is None else tokenizer.unk_id)
        known_before = np.concatenate([[0], np.cumsum(known)])
        ids.append(block_ids[known])
        lengths.append(np.diff(known_before[np.concatenate([[0], np.cumsum(block_lengths)])]))
    return Corpus(np.concatenate(ids), _offsets(np.concatenate(lengths), longest))


def _empty(files: Sequence[TextFile]) -> CorpusError:
    size = sum(file.bytes for file in files)
    names = ", ".join(str(file.path) for file in files[:3]) + (", …" if len(files) > 3 else "")
    return CorpusError(
        f"the corpus has no token that the vocabulary knows ({names}: {size:,} bytes in all); "
        "name files that hold text"
    )


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of at most 8192 texts and, but for the last one, fewer than about a million characters."""
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if len(block) == _LINES_TOGETHER or size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _offsets(lengths: Int[Array, " S"], longest: int) -> Int[Array, " P+1"]:
    """Where the sentences begin and end, the long ones cut into equal parts, the empty ones left out."""
    starts = np.cumsum(lengths) - lengths
    parts = -(-lengths // longest)
    sentence = np.repeat(np.arange(len(lengths)), parts)
    part = np.arange(len(sentence)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins = starts[sentence] + lengths[sentence] * part // parts[sentence]
    return np.append(begins, lengths.sum()).astype(np.int64)
