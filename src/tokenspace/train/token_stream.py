"""A corpus as one stream of tokens for a language model, and the part of it that is held out.

After each sentence comes a token that says so, and one stands before the first: where a text ends is to be
learned too. It takes the place of the newline, where the tokenizer has a token for that; empty lines are left
out. The streams lie in files (little-endian int32), of which windows are read; their size is bounded by the
disk alone.

The held-out part is taken from all over the corpus, a run of neighboring sentences at each place. Where there
are too few sentences for that, nothing is held out.

``streams.json``, written last, says how large the files are: cut ones are made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace.atomic import replacing
from tokenspace.shapes import Array, Int
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import checksum
from tokenspace.train.corpus import Corpus

LONGEST_PIECE = 10_000  # tokens
LEAST_PLACES = 20  # from which the held-out part is taken, where there are as many sentences
MOST_HELD_OUT = 200_000  # tokens: enough to measure by, and scored in half a minute
_NAMES, _MANIFEST = ("training.ids", "held_out.ids"), "streams.json"
_ID = np.dtype("<i4")


class TokenStream:
    """A file of ids, opened to read windows of it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self.tokens = os.fstat(self._file).st_size // _ID.itemsize

    def windows(self, starts: Int[Array, " B"], length: int) -> Int[Array, "B T"]:
        """``length`` tokens (int32) from each of these places on."""
        size = length * _ID.itemsize
        read = [os.pread(self._file, size, int(start) * _ID.itemsize) for start in starts]
        return np.frombuffer(b"".join(read), _ID).reshape(len(read), length)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


class Streams(NamedTuple):
    """What is learned from, and what is measured by (None where nothing is held out)."""

    training: TokenStream
    held_out: TokenStream | None

    def close(self) -> None:
        """Let go of the files."""
        for stream in self:
            if stream is not None:
                stream.close()


def write(
    corpus: Corpus, end: int, held_out: float, folder: Path, stop: Callable[[], bool] = lambda: False
) -> Streams:
    """Split ``corpus`` in two streams, files in ``folder``; those of an earlier call are taken if whole.

    ``held_out``: the share of the tokens that is held out, but no more than 200,000 tokens.
    ``KeyboardInterrupt`` if ``stop()`` says so.
    """
    paths = folder / _NAMES[0], folder / _NAMES[1]
    if not _whole(paths, held_out, folder):
        manifest = {"held_out": held_out, "crc32": _write(corpus, end, held_out, paths, stop)}
        with replacing(folder / _MANIFEST) as fresh:
            fresh.write_text(json.dumps(manifest), encoding="utf-8")
    training, measuring = TokenStream(paths[0]), TokenStream(paths[1])
    if measuring.tokens > 1:
        return Streams(training, measuring)
    measuring.close()
    return Streams(training, None)


def clear(folder: Path) -> None:
    """Have the next `write` make the streams anew."""
    (folder / _MANIFEST).unlink(missing_ok=True)


def _whole(paths: tuple[Path, Path], held_out: float, folder: Path) -> bool:
    """Whether both files lie there as they were written, with this share held out."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return manifest == {"held_out": held_out, "crc32": [checksum.of_file(path) for path in paths]}
    except (OSError, ValueError):
        return False


def _write(
    corpus: Corpus, end: int, held_out: float, paths: tuple[Path, Path], stop: Callable[[], bool]
) -> list[int]:
    """Write both files; their checksums."""
    held_out = min(held_out, MOST_HELD_OUT / corpus.tokens)
    size = min(LONGEST_PIECE, max(1, int(corpus.tokens * held_out / LEAST_PLACES)))
    sentences, _ = corpus.cuts(size)
    held = _evenly(len(sentences) - 1, held_out)
    if held.all():
        held[:] = False
    first, newline = np.array([end], _ID).tobytes(), _newline(corpus.tokenizer)
    with (
        replacing(paths[1]) as fresh_held,
        replacing(paths[0]) as fresh,
        fresh.open("wb") as training_file,
        fresh_held.open("wb") as measuring_file,
    ):
        training, measuring = checksum.Summed(training_file), checksum.Summed(measuring_file)
        training.write(first)
        measuring.write(first)
        for piece, apart in enumerate(held):
            if stop():
                raise KeyboardInterrupt
            ids, offsets = corpus.piece(int(sentences[piece]), int(sentences[piece + 1]))
            (measuring if apart else training).write(_ended(ids, offsets, end, newline).tobytes())
    return [training.sum, measuring.sum]


def _newline(tokenizer: Tokenizer) -> int | None:
    """The token that stands for the end of a line and nothing else; None if there is none."""
    pieces = tokenizer.pieces("\n")
    return pieces[0] if len(pieces) == 1 and pieces[0] != tokenizer.unk_id else None


def _ended(
    ids: Int[Array, " n"], offsets: Int[Array, " s_plus_1"], end: int, newline: int | None
) -> Int[Array, " m"]:
    """Sentences as a stream: ``end`` after each, in the place of a newline that stands there.

    >>> _ended(np.array([5, 6, 9, 9, 7]), np.array([0, 3, 4, 5]), end=2, newline=9).tolist()
    [5, 6, 2, 7, 2]
    """
    last = offsets[1:] - 1
    broken = ids[last] == (-1 if newline is None else newline)
    empty = broken & (np.diff(offsets) == 1)
    stream = ids.astype(_ID)
    stream[last[broken]] = end
    kept = np.ones(len(ids), bool)
    kept[last[empty]] = False
    places = np.cumsum(kept)[last[~broken]]
    return np.insert(stream[kept], places, end).astype(_ID)


def _evenly(pieces: int, share: float) -> np.ndarray:
    """``share`` of the pieces as booleans (P,), the first from the middle of the first stretch.

    >>> _evenly(8, 0.25).astype(int)
    array([0, 1, 0, 0, 0, 1, 0, 0])
    """
    marks = np.floor((np.arange(pieces + 1)) * share + 0.5)
    return np.diff(marks) > 0
