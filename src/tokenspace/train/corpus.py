"""A corpus: text files as token ids, in files of their own, so that it may be larger than memory.

One sentence or paragraph a line. In the corpus's folder:

=================  =======================================================================================
ids                N little-endian int32: the ids of all known tokens, one sentence after the other
offsets            S + 1 little-endian int64: sentence s is ids[offsets[s] : offsets[s + 1]]; none is empty
counts             V little-endian int64: how often each id occurs
tokenizer.json     what made ids of the text
corpus.json        sizes, and where the text came from; written last: without it there is no corpus
=================  =======================================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenspace import text
from tokenspace.atomic import replacing
from tokenspace.errors import CorpusError
from tokenspace.shapes import Array, Int
from tokenspace.shown import shown
from tokenspace.text import TextFile, lines
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.corpus_encoding import Sentences, encode_texts
from tokenspace.train.settings import default_min_count

Progress = Callable[[str, float | None], None]

_VERSION = 1
_ID, _PLACE = np.dtype("<i4"), np.dtype("<i8")
_OFFSETS_AT_ONCE = 1 << 20
_NO_LIMIT = 1 << 30  # rows of a vocabulary that the minimum count alone bounds


@dataclass(frozen=True)
class Corpus:
    """A corpus that lies finished in ``folder``. Nothing of it is held in memory but what is asked for.

    - ``counts`` (V,): how often each id occurs; ``tokens`` N is their sum, all known.
    - ``sentences``: S, none empty.
    - ``sources``: the text files, as they were when they were read.
    - ``min_count``: as used; None with a given tokenizer.
    - ``notes``: what was chosen by the text's size.
    """

    folder: Path
    tokenizer: Tokenizer
    counts: Int[Array, " V"]
    tokens: int
    sentences: int
    sources: list[TextFile]
    min_count: int | None
    notes: list[str]

    def cuts(self, tokens_a_piece: int) -> tuple[Int[Array, " P_plus_1"], Int[Array, " P_plus_1"]]:
        """Cut the corpus into P pieces of whole sentences, about ``tokens_a_piece`` each.

        Returns the first sentence of each piece, and S; the tokens before each piece, and N.
        """
        bounds, before = [0], [0]
        mark = tokens_a_piece
        for first in range(0, self.sentences + 1, _OFFSETS_AT_ONCE):
            offsets = self._offsets(first, min(first + _OFFSETS_AT_ONCE, self.sentences + 1))
            marks = np.arange(mark, min(int(offsets[-1]) + 1, self.tokens), tokens_a_piece)
            mark += tokens_a_piece * len(marks)
            found = np.unique(np.searchsorted(offsets, marks))
            bounds += (found + first).tolist()
            before += offsets[found].tolist()
        if bounds[-1] != self.sentences:
            bounds.append(self.sentences)
            before.append(self.tokens)
        return np.array(bounds, np.int64), np.array(before, np.int64)

    def piece(self, first: int, last: int) -> tuple[Int[Array, " n"], Int[Array, " s_plus_1"]]:
        """Sentences ``first … last-1``: their ids (int32), and their offsets (int64) in these."""
        offsets = self._offsets(first, last + 1)
        return self.ids(int(offsets[0]), int(offsets[-1])), offsets - offsets[0]

    def ids(self, first_token: int, last_token: int) -> Int[Array, " n"]:
        """The ids (int32) of tokens ``first_token … last_token-1``, whatever sentences they stand in."""
        return self._read("ids", _ID, first_token, last_token).astype(np.int32, copy=False)

    def check_trainable(self) -> None:
        """``CorpusError`` if no sentence has a pair of tokens to learn from."""
        if self.tokens == self.sentences:
            raise CorpusError(
                f"no line of the corpus has two known tokens ({self.tokens:,}, each alone on its line), "
                "so no token has a context; put a sentence or a paragraph on each line"
            )

    def _offsets(self, first: int, last: int) -> Int[Array, " n"]:
        return self._read("offsets", _PLACE, first, last).astype(np.int64, copy=False)

    def _read(self, name: str, dtype: np.dtype[Any], first: int, last: int) -> np.ndarray:
        """Entries ``first … last-1`` of a file, read into new memory: a map's pages would count as ours."""
        path = self.folder / name
        try:
            found = np.fromfile(path, dtype, last - first, offset=first * dtype.itemsize)
        except OSError as error:
            raise CorpusError(f"can't read {shown(str(path))}: {error.strerror or error}") from None
        if len(found) != last - first:
            raise CorpusError(f"{shown(str(path))} was cut since it was written; make the corpus again")
        return found


def prepare(
    files: text.Files,
    folder: Path,
    *,
    tokenizer: Tokenizer | None,
    words: str = "word",
    min_count: int | None,
    lowercase: bool,
    longest: int | None = 1024,
    threads: int,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> Corpus:
    """Make a corpus in ``folder``, an existing directory, of text files, one sentence or paragraph a line.

    - ``files``: paths, patterns, ``-`` for stdin; gzip and zstd are read as what they hold.
    - ``tokenizer`` None: the words seen at least ``min_count`` times are learned, of the kind ``words``
      ("word" or "whitespace", see ``Tokenizer.train_from_iterator``), folded if ``lowercase``. ``min_count``
      None: chosen by the text's size (``default_min_count``).
    - ``longest``: a sentence of more tokens is cut into several of nearly equal length; None: never.
    - ``progress("counting" or "encoding", fraction)`` is called now and then, in this thread, as is
      ``stop()``: True raises ``KeyboardInterrupt``. The fraction is None where a pipe does not tell.

    Tokens that the vocabulary does not know are left out, as in word2vec. Text is never in memory whole, nor
    are ids. ``CorpusError`` if a file can't be read, is no UTF-8 text, or no token is left; a corpus that
    ``folder`` held before is gone then. ``MissingExtra`` without what .zst needs.
    """
    folder = Path(folder)
    (folder / "corpus.json").unlink(missing_ok=True)
    reading = text.Reading(text.find(files))
    notes: list[str] = []
    if tokenizer is None:
        sources = text.check(files)
        if min_count is None:
            size = sum(source.bytes for source in sources)
            min_count = default_min_count(size)
            notes.append(f"minimum count {min_count}, chosen for {size:,} bytes of text")
        tokenizer = word_tokenizer(sources, min_count, lowercase)
    else:
        min_count = None
    counts = np.zeros(len(tokenizer.vocab), np.int64)
    cutter = Sentences(longest)
    with (folder / "ids").open("wb") as ids_file, (folder / "offsets").open("wb") as offsets_file:
        for block in reading:
            if stop():
                raise KeyboardInterrupt
            ids, lengths = encode_texts(block.lines(), tokenizer)
            ids_file.write(ids.astype(_ID).tobytes())
            counts += np.bincount(ids, minlength=len(counts))
            offsets_file.write(cutter.offsets(lengths, block.ends_line).astype(_PLACE).tobytes())
            if progress is not None:
                progress("encoding", reading.fraction)
        offsets_file.write(cutter.end().astype(_PLACE).tobytes())
    if not counts.any():
        raise _empty(reading.done)
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (folder / "counts").write_bytes(counts.astype(_PLACE).tobytes())
    return _finish(folder, int(counts.sum()), cutter.sentences, reading.done, min_count, notes)


def _finish(
    folder: Path,
    tokens: int,
    sentences: int,
    sources: list[TextFile],
    min_count: int | None,
    notes: list[str],
) -> Corpus:
    for name in ("ids", "offsets", "counts", "tokenizer.json"):
        with (folder / name).open("rb+") as file:
            os.fsync(file.fileno())
    manifest = {
        "version": _VERSION,
        "tokens": tokens,
        "sentences": sentences,
        "min_count": min_count,
        "notes": notes,
        "sources": [
            {"path": str(source.path), "bytes": source.bytes, "sha256": source.sha256} for source in sources
        ],
    }
    with replacing(folder / "corpus.json") as fresh:
        fresh.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    corpus = open_corpus(folder)
    assert corpus is not None
    return corpus


def open_corpus(folder: Path) -> Corpus | None:
    """The finished corpus that an earlier ``prepare`` left in ``folder``; None if there is none.

    ``CorpusError`` if it is damaged.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CorpusError(f"can't read {shown(str(folder / 'corpus.json'))}: {error}") from None
    tokens, sentences = manifest["tokens"], manifest["sentences"]
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    for name, entries, dtype in (
        ("ids", tokens, _ID),
        ("offsets", sentences + 1, _PLACE),
        ("counts", len(tokenizer.vocab), _PLACE),
    ):
        size = (folder / name).stat().st_size if (folder / name).exists() else 0
        if size != entries * dtype.itemsize:
            raise CorpusError(
                f"{shown(str(folder / name))} has {size:,} bytes where {entries * dtype.itemsize:,} were "
                "written; remove the folder and make the corpus again"
            )
    return Corpus(
        folder,
        tokenizer,
        np.fromfile(folder / "counts", _PLACE).astype(np.int64, copy=False),
        tokens,
        sentences,
        [TextFile(Path(one["path"]), one["bytes"], one["sha256"]) for one in manifest["sources"]],
        manifest["min_count"],
        manifest["notes"],
    )


@dataclass(frozen=True)
class Encoded:
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


def check_trainable(corpus: Encoded, files: Sequence[TextFile]) -> None:
    """``CorpusError`` if no sentence has a pair of tokens to learn from."""
    if not len(corpus.ids):
        raise _empty(files)
    if not (np.diff(corpus.offsets) > 1).any():
        raise CorpusError(
            f"no line of the corpus has two known tokens ({len(corpus.ids):,}, each alone on its line), "
            "so no token has a context; put a sentence or a paragraph on each line"
        )


def encode(texts: Iterable[str], tokenizer: Tokenizer, longest: int) -> Encoded:
    """Encode each text as one sentence; unknown tokens are left out, as in word2vec.

    A sentence of more than ``longest`` tokens becomes several of nearly equal length: nothing is lost but the
    pairs across the cuts.

    >>> tokenizer = Tokenizer.train_from_iterator(["a b c"])
    >>> corpus = encode(["a b x c b", "", "c"], tokenizer, longest=3)
    >>> corpus.ids.tolist(), corpus.offsets.tolist()
    ([3, 4, 5, 4, 5], [0, 2, 4, 5])
    """
    ids, lengths = encode_texts(texts, tokenizer)
    sentences = Sentences(longest)
    return Encoded(ids, np.append(sentences.offsets(lengths, True), sentences.end()))


def _empty(files: Sequence[TextFile]) -> CorpusError:
    size = sum(file.bytes for file in files)
    names = ", ".join(str(file.path) for file in files[:3]) + (", …" if len(files) > 3 else "")
    return CorpusError(
        f"the corpus has no token that the vocabulary knows ({names}: {size:,} bytes in all); "
        "name files that hold text"
    )
