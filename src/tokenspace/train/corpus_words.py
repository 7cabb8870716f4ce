"""A corpus by way of its chunks: what stands between spaces is given to the tokenizer once, not each time.

A text of millions of words has far fewer distinct ones. So the *counting* pass writes a text down as numbers
of chunks (``kernels/words.py``), the tokenizer says what ids each distinct chunk stands for, and the
*encoding* pass puts these in. The text itself is read once. Chunks beyond the table's bound are kept as text,
beside the numbers, and given to the tokenizer each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace.kernels import words as kernel
from tokenspace.shapes import Array, Int
from tokenspace.text import Block
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_training import WORD_SPECIAL
from tokenspace.train.corpus_encoding import EncodedBlock, encode_texts, in_order
from tokenspace.train.vocabulary import Frequent, Splitter, WordCounts, tokenizer_of

MOST_CHUNKS = 1 << 20  # distinct ones, with numbers
_FEWEST_CHUNKS = 1 << 16  # that each thread has room for
_CHUNKS_AT_ONCE = 1 << 17
_NUMBER = np.dtype("<i4")


class Record(NamedTuple):
    """Where one block's numbers lie, and the chunks that have none."""

    worker: int  # whose numbers they are
    first: int  # byte in the file of numbers
    numbers: int
    missed_first: int  # byte in the file of missed chunks
    missed: int  # bytes there
    ends_line: bool


class Learned(NamedTuple):
    """A vocabulary, and what ids each numbered chunk stands for: the next ``lengths[c]`` of ``ids``."""

    frequent: Frequent
    tokenizer: Tokenizer
    ids: Int[Array, " n"]  # int32
    lengths: Int[Array, " chunks"]


class Numbered:
    """A text as numbers of its chunks, in two files of ``folder``, whose names end in .partial."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._numbers, self._missed = folder / "numbers.partial", folder / "missed.partial"
        self._records: list[Record] = []

    def read(self, blocks: Iterable[Block], tick: Callable[[], None]) -> None:
        """The counting pass: write down all blocks."""
        most = max(MOST_CHUNKS // self._threads, _FEWEST_CHUNKS)
        tables = [kernel.Words(most) for _ in range(self._threads)]

        def number(worker: int, block: Block) -> tuple[int, np.ndarray, bytes, bool]:
            numbers, missed = tables[worker].number(block.data)
            return worker, numbers, missed, block.ends_line

        first = missed_first = 0
        with self._numbers.open("wb") as numbers_file, self._missed.open("wb") as missed_file:
            read: Iterator[tuple[int, np.ndarray, bytes, bool]] = in_order(number, blocks, self._threads)
            for worker, numbers, missed, ends_line in read:
                numbers_file.write(numbers.astype(_NUMBER).tobytes())
                missed_file.write(missed)
                self._records.append(
                    Record(worker, first, len(numbers), missed_first, len(missed), ends_line)
                )
                first += _NUMBER.itemsize * len(numbers)
                missed_first += len(missed)
                tick()
        self._merge(tables)

    def _merge(self, tables: list[kernel.Words]) -> None:
        """One table of all distinct chunks, and each worker's numbers in it."""
        words = sum(map(len, tables))
        self._chunks = kernel.Words(most=1 + 8 * words)  # then there is room for the letters of all
        self.counts = np.zeros(words, np.int64)
        self._places = []
        for table in tables:
            numbers, _ = self._chunks.number(table.text(0, len(table)))
            places = numbers[numbers >= 0]
            self.counts[places] += table.counts
            self._places.append(places)

    @property
    def blocks(self) -> int:
        """How many blocks were read."""
        return len(self._records)

    def __len__(self) -> int:
        """How many distinct chunks have a number."""
        return len(self._chunks)

    def chunks(self) -> Iterator[tuple[list[str], Int[Array, " chunks"]]]:
        """All that have a number, some at a time, and how often each was seen."""
        for first in range(0, len(self), _CHUNKS_AT_ONCE):
            last = min(first + _CHUNKS_AT_ONCE, len(self))
            yield _split(self._chunks.text(first, last)), self.counts[first:last]

    def missed(self) -> Iterator[list[str]]:
        """All others, as often as they were seen."""
        for record in self._records:
            if record.missed:
                yield _split(self._read_missed(record))

    def learn(self, kind: str, min_count: int, lowercase: bool, tick: Callable[[], None]) -> Learned:
        """Learn the words that were seen at least ``min_count`` times, of a ``kind`` of whole words."""
        splitter, counts = Splitter(kind, lowercase), WordCounts(self._folder)
        numbers, owners = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]  # of all words of numbered chunks
        special: dict[int, str] = {}  # chunks that hold what is written like a special token
        first = 0
        for chunks, seen in self.chunks():
            words = splitter.split(chunks)
            found = counts.add(words.words, seen[words.chunks])
            if counts.numbers is not None:
                numbers.append(found)
                owners.append((words.chunks + first).astype(np.int32))
            special |= {first + k: chunk for k, chunk in _with_special(chunks)}
            first += len(chunks)
            tick()
        for chunks in self.missed():
            words = splitter.split(chunks)
            counts.add(words.words, np.ones(len(words.words), np.int64))
            tick()
        frequent = counts.frequent(min_count)
        tokenizer = tokenizer_of(frequent.words, kind, lowercase)
        if counts.numbers is None or frequent.numbers is None:
            return Learned(frequent, tokenizer, *self.encode_chunks(tokenizer))
        id_of = tokenizer.inner.get_vocab()
        id_of_number = np.full(len(counts.numbers), -1, np.int32)
        id_of_number[frequent.numbers] = [id_of[word] for word in frequent.words]
        ids = id_of_number[np.concatenate(numbers)]
        owner = np.concatenate(owners)
        known = ids >= 0
        if special:
            known &= ~np.isin(owner, list(special))
            special_ids, special_lengths = encode_texts(special.values(), tokenizer)
            ids = np.append(ids[known], special_ids)
            owner = np.append(owner[known], np.repeat(list(special), special_lengths))
            order = np.argsort(owner, kind="stable")
            ids, owner = ids[order], owner[order]
        else:
            ids, owner = ids[known], owner[known]
        return Learned(frequent, tokenizer, ids, np.bincount(owner, minlength=len(self)))

    def encode_chunks(self, tokenizer: Tokenizer) -> tuple[Int[Array, " n"], Int[Array, " chunks"]]:
        """What ids each numbered chunk stands for, by a tokenizer that ``splits_at_spaces``."""
        parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64))]
        parts += [encode_texts(chunks, tokenizer) for chunks, _ in self.chunks()]
        ids, lengths = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(lengths)

    def encode(
        self, ids: Int[Array, " n"], lengths: Int[Array, " chunks"], tokenizer: Tokenizer
    ) -> Iterator[EncodedBlock]:
        """The encoding pass: each block as ids; chunk c stands for the next ``lengths[c]`` of ``ids``."""
        ends = np.cumsum(lengths)
        begins = ends - lengths
        runs = [kernel.Runs(begins[places], ends[places], ids) for places in self._places]

        def encoded(_: int, record: Record) -> EncodedBlock:
            numbers = np.fromfile(self._numbers, _NUMBER, record.numbers, offset=record.first)
            missed_ids, missed_lengths = encode_texts(_split(self._read_missed(record)), tokenizer)
            missed_ends = np.cumsum(missed_lengths)
            missed = kernel.Runs(missed_ends - missed_lengths, missed_ends, missed_ids)
            return EncodedBlock(
                *kernel.expand(numbers.astype(np.int32, copy=False), runs[record.worker], missed),
                record.ends_line,
            )

        return in_order(encoded, self._records, self._threads)

    def _read_missed(self, record: Record) -> bytes:
        return np.fromfile(self._missed, np.uint8, record.missed, offset=record.missed_first).tobytes()


def _with_special(chunks: list[str]) -> list[tuple[int, str]]:
    """Return the chunks that hold what is written like a special token, with their places."""
    if not any(token in "\n".join(chunks) for token in WORD_SPECIAL):
        return []
    return [(k, chunk) for k, chunk in enumerate(chunks) if any(token in chunk for token in WORD_SPECIAL)]


def _split(chunks: bytes) -> list[str]:
    return chunks.decode().split("\n")[:-1]
