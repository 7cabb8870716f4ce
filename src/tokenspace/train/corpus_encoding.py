"""Text as token ids, block by block, and where its sentences begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from tokenspace.shapes import Array, Int
from tokenspace.text import BLOCK
from tokenspace.tokenizer import Tokenizer

_LINES_TOGETHER = 8192


def encode_texts(texts: Iterable[str], tokenizer: Tokenizer) -> tuple[Int[Array, " n"], Int[Array, " texts"]]:
    """The ids (int32) of all texts, unknown tokens left out, and how many each text has."""
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
    return np.concatenate(ids), np.concatenate(lengths)


class Sentences:
    """Where sentences begin, as their lengths become known block by block."""

    def __init__(self, longest: int | None) -> None:
        self._longest = longest or 1 << 62
        self._open = 0  # tokens of the line that goes on
        self._before = 0  # tokens of the sentences that have ended
        self.sentences = 0

    def offsets(self, lengths: Int[Array, " s"], ends_line: bool) -> Int[Array, " c"]:
        """The offsets of the sentences that end in a block of lines of ``lengths`` tokens."""
        lengths = lengths.copy()
        if len(lengths):
            lengths[0] += self._open
            self._open = 0
        if not ends_line and len(lengths):
            self._open = int(lengths[-1])
            lengths = lengths[:-1]
        return self._ended(lengths)

    def end(self) -> Int[Array, " c"]:
        """The last offsets: the last sentence's, if it never ended, and the number of all tokens."""
        return np.append(self._ended(np.array([self._open], np.int64)), self._before)

    def _ended(self, lengths: Int[Array, " s"]) -> Int[Array, " c"]:
        found = _cut(lengths, self._longest) + self._before
        self._before = int(found[-1])
        self.sentences += len(found) - 1
        return found[:-1]


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


def _cut(lengths: Int[Array, " S"], longest: int) -> Int[Array, " P+1"]:
    """Where the sentences begin and end, the long ones cut into equal parts, the empty ones left out."""
    starts = np.cumsum(lengths) - lengths
    parts = -(-lengths // longest)
    sentence = np.repeat(np.arange(len(lengths)), parts)
    part = np.arange(len(sentence)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins = starts[sentence] + lengths[sentence] * part // parts[sentence]
    return np.append(begins, lengths.sum()).astype(np.int64)
