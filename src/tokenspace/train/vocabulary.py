"""Learning which words a corpus has, exactly and in bounded memory.

What the kernel finds between spaces, a *chunk*, is split into words by the tokenizer's own rules, each
distinct chunk once. Words are counted in a dictionary; when that holds too many, it is written to disk in
alphabetical order and begun anew, and in the end all these runs are merged (an external sort).
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace import tokenizer_training
from tokenspace.errors import CorpusError
from tokenspace.shapes import Array, Int
from tokenspace.tokenizer import Tokenizer

MOST_IN_MEMORY = 1 << 20  # words in the dictionary
MOST_LETTERS_IN_MEMORY = 1 << 26
MOST_WORDS = 10_000_000  # in a vocabulary
MOST_LETTERS = 1 << 28
_RUNS_AT_ONCE = 64  # open files
_CHUNKS_AT_ONCE = 1000  # the library takes longer for a word of a longer text


class Words(NamedTuple):
    """Words in the order of their chunks."""

    words: list[str]
    chunks: Int[Array, " words"]  # which chunk each is of


class Splitter:
    """Splits chunks as a tokenizer of the kind "word" or "whitespace" does."""

    def __init__(self, kind: str, lowercase: bool) -> None:
        self._kind, self._lowercase = kind, lowercase
        self._inner = tokenizer_training.word_level(kind, lowercase)

    def split(self, chunks: Sequence[str]) -> Words:
        """The words of all chunks, folded and normalized.

        >>> Splitter("word", lowercase=True).split(["The", "cat's", "(mat)."])
        Words(words=['the', "cat's", '(', 'mat', ')', '.'], chunks=array([0, 1, 2, 2, 2, 2]))
        """
        plain = self._are_plain(chunks)
        words = list(itertools.compress(chunks, plain))
        if self._lowercase:
            words = [word.lower() for word in words]
        places = np.flatnonzero(plain)
        rest = np.flatnonzero(~np.array(plain, bool))
        owners = [places]
        for first in range(0, len(rest), _CHUNKS_AT_ONCE):
            some = rest[first : first + _CHUNKS_AT_ONCE]
            split, owner = self._split_by_library([chunks[k] for k in some])
            words += split
            owners.append(some[owner])
        if len(owners) == 1:
            return Words(words, places)
        chunk = np.concatenate(owners)
        order = np.argsort(chunk, kind="stable")
        return Words([words[k] for k in order], chunk[order])

    def _are_plain(self, chunks: Sequence[str]) -> list[bool]:
        """Return whether each chunk is one word of ASCII characters, which the library need not split."""
        as_it_stands = str.isalpha if self._kind == "word" else str.isprintable
        return list(map(operator.and_, map(str.isascii, chunks), map(as_it_stands, chunks)))

    def _split_by_library(self, chunks: list[str]) -> tuple[list[str], Int[Array, " words"]]:
        inner = self._inner
        text = inner.normalizer.normalize_str("\n".join(chunks))
        ends = np.cumsum([len(chunk) + 1 for chunk in text.split("\n")])
        found = inner.pre_tokenizer.pre_tokenize_str(text)
        begins = np.fromiter((span[0] for _, span in found), np.int64, len(found))
        return [word for word, _ in found], np.searchsorted(ends, begins, side="right")


class Frequent(NamedTuple):
    """The words seen often enough, and what to say if there are none."""

    words: list[str]  # the most frequent first, equally frequent ones by spelling
    distinct: int  # how many there were in all
    top: tuple[str, int] | None  # the most frequent of all, and its count
    numbers: Int[Array, " words"] | None  # the words' numbers in ``WordCounts``, while these hold


class WordCounts:
    """How often each word was seen; ``folder`` takes what does not fit in memory, in files named .partial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[str, int] = {}
        self._counts = np.zeros(1024, np.int64)
        self._letters = 0
        self._runs: list[Path] = []
        self._run = 0

    @property
    def numbers(self) -> dict[str, int] | None:
        """Each word's number, in the order of first sight; None if there were too many for memory."""
        return None if self._runs else self._numbers

    def add(self, words: Sequence[str], counts: Int[Array, " words"]) -> Int[Array, " words"]:
        """Add counts; returns the words' numbers, which hold as long as ``numbers`` is not None."""
        numbers, before = self._numbers, len(self._numbers)
        new = [word for word in dict.fromkeys(words) if word not in numbers]
        numbers.update(zip(new, itertools.count(before), strict=False))
        found = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
        self._letters += sum(map(len, itertools.islice(reversed(numbers), len(numbers) - before)))
        if len(numbers) > len(self._counts):
            more = np.zeros(2 * len(numbers) - len(self._counts), np.int64)
            self._counts = np.append(self._counts, more)
        np.add.at(self._counts, found, counts)
        if len(numbers) > MOST_IN_MEMORY or self._letters > MOST_LETTERS_IN_MEMORY:
            self._spill()
        return found

    def frequent(self, min_count: int) -> Frequent:
        """The words seen at least ``min_count`` times; ``CorpusError`` if they are too many."""
        if not self._runs:
            return self._frequent_in_memory(min_count)
        kept: list[tuple[int, str]] = []
        distinct, letters, top = 0, 0, (0, "")
        for word, count in self._merged():
            distinct += 1
            top = min(top, (-count, word))
            if count >= min_count:
                kept.append((-count, word))
                letters += len(word)
                if len(kept) > MOST_WORDS or letters > MOST_LETTERS:
                    raise _too_many(len(kept), letters, min_count)
        kept.sort()
        return Frequent([word for _, word in kept], distinct, (top[1], -top[0]) if distinct else None, None)

    def _frequent_in_memory(self, min_count: int) -> Frequent:
        """Return what ``frequent`` does; only the words that are kept are looked at one by one."""
        counts = self._counts[: len(self._numbers)]
        if not len(counts):
            return Frequent([], 0, None, np.zeros(0, np.int64))
        most = int(counts.max())
        top = min(itertools.compress(self._numbers, (counts == most).tolist()))
        enough = counts >= min_count
        words = list(itertools.compress(self._numbers, enough.tolist()))
        for n, letters in enumerate(itertools.accumulate(map(len, words)), 1):
            if n > MOST_WORDS or letters > MOST_LETTERS:
                raise _too_many(n, letters, min_count)
        numbers = np.flatnonzero(enough)
        kept = sorted(zip((-counts[numbers]).tolist(), words, numbers.tolist(), strict=True))
        words = [word for _, word, _ in kept]
        return Frequent(words, len(counts), (top, most), np.array([number for *_, number in kept], np.int64))

    def _merged(self) -> Iterator[tuple[str, int]]:
        self._spill()
        while len(self._runs) > _RUNS_AT_ONCE:
            some, self._runs = self._runs[:_RUNS_AT_ONCE], self._runs[_RUNS_AT_ONCE:]
            self._write(_merge(some))
            for path in some:
                path.unlink()
        return _merge(self._runs)

    def _spill(self) -> None:
        self._write(sorted(zip(self._numbers, self._counts.tolist(), strict=False)))
        self._numbers, self._counts, self._letters = {}, np.zeros(1024, np.int64), 0

    def _write(self, counted: Iterator[tuple[str, int]] | list[tuple[str, int]]) -> None:
        path = self._folder / f"words-{self._run}.partial"
        self._run += 1
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\n{count}\n" for word, count in counted)
        self._runs.append(path)


def _too_many(words: int, letters: int, min_count: int) -> CorpusError:
    return CorpusError(
        f"more than {words - 1:,} distinct words ({letters:,} characters) occur {min_count:,} times or more, "
        "too many for a table; raise the minimum count, or learn pieces of words"
    )


def _merge(runs: Sequence[Path]) -> Iterator[tuple[str, int]]:
    for word, same in itertools.groupby(heapq.merge(*map(_read, runs)), key=lambda counted: counted[0]):
        yield word, sum(count for _, count in same)


def _read(run: Path) -> Iterator[tuple[str, int]]:
    with run.open(encoding="utf-8", newline="\n") as file:
        for word in file:
            yield word[:-1], int(next(file))


def tokenizer_of(words: Sequence[str], kind: str, lowercase: bool) -> Tokenizer:
    """A tokenizer of these words, byte for byte what ``Tokenizer.train_from_iterator`` would have learned."""
    return Tokenizer(tokenizer_training.word_level(kind, lowercase, words).to_str())
