"""A corpus: text files as token ids, in files of their own, so that it may be larger than memory.

One sentence or paragraph a line. In the corpus's folder:

=================  =======================================================================================
ids                N little-endian int32: the ids of all known tokens, one sentence after the other
offsets            S + 1 little-endian int64: sentence s is ids[offsets[s] : offsets[s + 1]]; none is empty
counts             V little-endian int64: how often each id occurs
tokenizer.json     what made ids of the text
corpus.json        sizes, checksums, and where the text came from; written last: without it there is no corpus
=================  =======================================================================================
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokenspace import text
from tokenspace.atomic import replacing
from tokenspace.errors import CorpusError, MissingExtra, OutputError, ShapeError, TokenspaceError, VocabError
from tokenspace.shapes import Array, Int
from tokenspace.shown import shown
from tokenspace.text import TextFile
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_training import WHOLE_WORDS
from tokenspace.train import checksum
from tokenspace.train.corpus_encoding import EncodedBlock, Sentences, encode_blocks, splits_at_spaces
from tokenspace.train.settings import default_min_count, whole

if TYPE_CHECKING:
    from tokenspace.train.corpus_words import Numbered
    from tokenspace.train.vocabulary import Frequent

Progress = Callable[[str, float | None], None]

_VERSION = 2
_MANIFEST, _FILES = "corpus.json", ("ids", "offsets", "counts", "tokenizer.json")
_ID, _PLACE = np.dtype("<i4"), np.dtype("<i8")
_OFFSETS_AT_ONCE = 1 << 20
_LONGEST_SHOWN = 40  # characters of a word in a message; one may be a megabyte long


@dataclass(frozen=True)
class Corpus:
    """A corpus that lies finished in ``folder``. Nothing of it is held in memory but what is asked for.

    - ``counts`` (V,): how often each id occurs; ``tokens`` N is their sum, all known.
    - ``sentences``: S, none empty.
    - ``sources``: the text files, as they were when they were read.
    - ``min_count``: as used; None with a given tokenizer.
    - ``notes``: what was chosen by the text's size.
    - ``checksums``: of each file.
    """

    folder: Path
    tokenizer: Tokenizer
    counts: Int[Array, " V"]
    tokens: int
    sentences: int
    sources: list[TextFile]
    min_count: int | None
    notes: list[str]
    checksums: dict[str, int]

    def check_bytes(self) -> None:
        """``CorpusError`` if a file holds other bytes than were written; all of them are read."""
        for name, written in self.checksums.items():
            try:
                same = checksum.of_file(self.folder / name) == written
            except OSError as error:
                raise _unreadable(self.folder / name, error) from None
            if not same:
                raise _damaged(self.folder, name, "holds other bytes than were written")

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

    def piece(
        self, first: int, last: int, longest: int | None = None
    ) -> tuple[Int[Array, " n"], Int[Array, " s_plus_1"]]:
        """Sentences ``first … last-1``: their ids (int32), and their offsets (int64) in these.

        ``CorpusError`` if they can't be what was written; ``longest`` is the most tokens that one may have.
        """
        offsets = self._offsets(first, last + 1)
        if longest is not None and len(offsets) > 1 and (most := int(np.diff(offsets).max())) > longest:
            raise self._damaged("offsets", f"a sentence of {most:,} tokens, and {longest:,} are the most")
        return self.ids(int(offsets[0]), int(offsets[-1])), offsets - offsets[0]

    def ids(self, first_token: int, last_token: int) -> Int[Array, " n"]:
        """The ids (int32) of tokens ``first_token … last_token-1``, whatever sentences they stand in."""
        found = self._read("ids", _ID, first_token, last_token).astype(np.int32, copy=False)
        if len(found) and not (found.min() >= 0 and found.max() < len(self.counts)):
            raise self._damaged("ids", f"ids outside 0 … {len(self.counts) - 1:,}")
        return found

    def check_trainable(self) -> None:
        """``CorpusError`` if no sentence has a pair of tokens to learn from."""
        if self.tokens == self.sentences:
            raise CorpusError(
                f"no line of the corpus has two known tokens ({self.tokens:,}, each alone on its line), "
                "so no token has a context; put a sentence or a paragraph on each line"
            )

    def _offsets(self, first: int, last: int) -> Int[Array, " n"]:
        found = self._read("offsets", _PLACE, first, last).astype(np.int64, copy=False)
        if len(found) and not (
            found[0] >= first
            and found[-1] <= self.tokens
            and (first > 0 or found[0] == 0)
            and (last <= self.sentences or found[-1] == self.tokens)
            and (len(found) == 1 or np.diff(found).min() > 0)
        ):
            raise self._damaged("offsets", f"offsets that don't rise from 0 to {self.tokens:,}")
        return found

    def _damaged(self, name: str, what: str) -> CorpusError:
        return _damaged(self.folder, name, f"holds {what}")

    def _read(self, name: str, dtype: np.dtype[Any], first: int, last: int) -> np.ndarray:
        """Entries ``first … last-1`` of a file, read into new memory: a map's pages would count as ours."""
        path = self.folder / name
        try:
            found = np.fromfile(path, dtype, last - first, offset=first * dtype.itemsize)
        except OSError as error:
            raise _unreadable(path, error) from None
        if len(found) != last - first:
            raise _damaged(self.folder, name, "was cut since it was written")
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
    ``folder`` held before is gone then. ``OutputError`` if the folder can't be written (it needs some 8 bytes
    a word until all is done, 4 afterwards). ``MissingExtra`` without numba, or without what .zst needs.
    """
    if words not in WHOLE_WORDS:
        raise VocabError(f"words must be {' or '.join(map(repr, WHOLE_WORDS))}, found {words!r}")
    threads = whole("threads", threads)
    min_count = None if min_count is None else whole("min_count", min_count)
    if longest is not None and longest < 1:
        raise ShapeError(f"longest must be at least 1 token, or None for no limit, found {longest!r}")
    folder = Path(folder)
    reading = text.Reading(text.find(files))

    def tick(phase: str, fraction: float | None) -> None:
        if stop():
            raise KeyboardInterrupt
        if progress is not None:
            progress(phase, fraction)

    with _fresh(folder):
        if tokenizer is not None and not splits_at_spaces(tokenizer):
            blocks = encode_blocks(reading, tokenizer, threads)
            written = _write(blocks, folder, tokenizer, longest, lambda _: tick("encoding", reading.fraction))
            return _finish(written, reading.done, None, [])
        notes: list[str] = []
        numbered = _numbered(folder, threads)
        numbered.read(reading, lambda: tick("counting", reading.fraction))
        if tokenizer is None:
            if min_count is None:
                min_count = default_min_count(reading.text_bytes)
                notes.append(f"minimum count {min_count}, chosen for {reading.text_bytes:,} bytes of text")
            learned = numbered.learn(words, min_count, lowercase, lambda: tick("counting", 1.0))
            if not learned.frequent.words:
                raise _too_rare(learned.frequent, min_count, reading.done)
            tokenizer, ids, lengths = learned.tokenizer, learned.ids, learned.lengths
        else:
            min_count = None
            ids, lengths = numbered.encode_chunks(tokenizer)
        blocks = numbered.encode(ids, lengths, tokenizer)
        written = _write(
            blocks, folder, tokenizer, longest, lambda number: tick("encoding", number / numbered.blocks)
        )
        return _finish(written, reading.done, min_count, notes)


@contextmanager
def _fresh(folder: Path) -> Iterator[None]:
    """No corpus is in ``folder`` before, and after a failure nothing of one; no temporary file ever."""
    try:
        _remove(folder, _MANIFEST, *_FILES, "*.partial")
        try:
            yield
        except BaseException:
            _remove(folder, _MANIFEST, *_FILES)
            raise
        finally:
            _remove(folder, "*.partial")
    except OSError as error:
        if isinstance(error, TokenspaceError):
            raise
        raise OutputError(
            f"can't write a corpus in {shown(str(folder))}: {error.strerror or error}"
        ) from None


def _remove(folder: Path, *names: str) -> None:
    for name in names:
        for path in folder.glob(name):
            if path.is_dir() and not path.is_symlink():  # atomic's, of a process that was killed
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _numbered(folder: Path, threads: int) -> Numbered:
    try:
        from tokenspace.train.corpus_words import Numbered
    except ModuleNotFoundError as error:
        if error.name in ("numba", "llvmlite"):
            raise MissingExtra("preparing a corpus", "train") from None
        raise
    return Numbered(folder, threads)


class _Written(NamedTuple):
    """What lies in the folder before the manifest does."""

    folder: Path
    tokenizer: Tokenizer
    counts: Int[Array, " V"]
    sentences: int
    checksums: dict[str, int]


def _write(
    blocks: Iterable[EncodedBlock],
    folder: Path,
    tokenizer: Tokenizer,
    longest: int | None,
    tick: Callable[[int], None],
) -> _Written:
    counts = np.zeros(len(tokenizer.vocab), np.int64)
    sentences = Sentences(longest)
    with (folder / "ids").open("wb") as ids_file, (folder / "offsets").open("wb") as offsets_file:
        ids, offsets = checksum.Summed(ids_file), checksum.Summed(offsets_file)
        for number, block in enumerate(blocks, 1):
            ids.write(block.ids.astype(_ID).tobytes())
            offsets.write(sentences.offsets(block.lengths, block.ends_line).astype(_PLACE).tobytes())
            np.add.at(counts, block.ids, 1)
            tick(number)
        offsets.write(sentences.end().astype(_PLACE).tobytes())
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (folder / "counts").write_bytes(counts.astype(_PLACE).tobytes())
    checksums = {"ids": ids.sum, "offsets": offsets.sum}
    checksums |= {name: checksum.of_file(folder / name) for name in _FILES if name not in checksums}
    return _Written(folder, tokenizer, counts, sentences.count, checksums)


def _finish(written: _Written, sources: list[TextFile], min_count: int | None, notes: list[str]) -> Corpus:
    """See that all is on the disk, then write the manifest."""
    folder, tokenizer, counts, sentences, checksums = written
    tokens = int(counts.sum())
    if not tokens:
        raise _empty(sources)
    for name in _FILES:
        with (folder / name).open("rb+") as file:
            os.fsync(file.fileno())
    manifest = {
        "version": _VERSION,
        "tokens": tokens,
        "sentences": sentences,
        "min_count": min_count,
        "notes": notes,
        "crc32": checksums,
        "sources": [
            {"path": str(source.path), "bytes": source.bytes, "sha256": source.sha256} for source in sources
        ],
    }
    with replacing(folder / _MANIFEST) as fresh:
        fresh.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return Corpus(folder, tokenizer, counts, tokens, sentences, sources, min_count, notes, checksums)


def open_corpus(folder: Path) -> Corpus | None:
    """The finished corpus that an earlier ``prepare`` left in ``folder``; None if there is none.

    ``CorpusError`` if it is damaged.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CorpusError(f"can't read {shown(str(folder / _MANIFEST))}: {error}") from None
    if manifest.get("version") != _VERSION:
        raise CorpusError(
            f"{shown(str(folder / _MANIFEST))} is of version {manifest.get('version')!r}, not {_VERSION}; "
            "remove the folder and make the corpus again"
        )
    tokens, sentences = manifest["tokens"], manifest["sentences"]
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    for name, entries, dtype in (
        ("ids", tokens, _ID),
        ("offsets", sentences + 1, _PLACE),
        ("counts", len(tokenizer.vocab), _PLACE),
    ):
        try:
            size = (folder / name).stat().st_size if (folder / name).exists() else 0
        except OSError as error:
            raise _unreadable(folder / name, error) from None
        if size != entries * dtype.itemsize:
            raise _damaged(
                folder, name, f"has {size:,} bytes where {entries * dtype.itemsize:,} were written"
            )
    try:
        counts = np.fromfile(folder / "counts", _PLACE).astype(np.int64, copy=False)
    except OSError as error:
        raise _unreadable(folder / "counts", error) from None
    if counts.min() < 0 or counts.sum() != tokens:
        raise _damaged(folder, "counts", f"does not count {tokens:,} tokens")
    return Corpus(
        folder,
        tokenizer,
        counts,
        tokens,
        sentences,
        [TextFile(Path(one["path"]), one["bytes"], one["sha256"]) for one in manifest["sources"]],
        manifest["min_count"],
        manifest["notes"],
        manifest["crc32"],
    )


def _unreadable(path: Path, error: OSError) -> CorpusError:
    return CorpusError(f"can't read {shown(str(path))}: {error.strerror or error}")


def _damaged(folder: Path, name: str, how: str) -> CorpusError:
    """The error for a file that is not what was written. A run's corpus goes with all of the run."""
    whole = folder.parent if folder.parent.suffix == ".training" else folder
    return CorpusError(
        f"{shown(str(folder / name))} {how}; delete {shown(str(whole))} and make the corpus again"
    )


def _too_rare(frequent: Frequent, min_count: int, files: Sequence[TextFile]) -> CorpusError:
    if frequent.top is None:
        return _empty(files)
    word, count = frequent.top
    word = word if len(word) <= _LONGEST_SHOWN else word[:_LONGEST_SHOWN] + "…"
    return CorpusError(
        f"none of the {frequent.distinct:,} distinct tokens occurs {min_count:,} times or more "
        f"(the most frequent, {word!r}, occurs {count:,} times); "
        f"lower the minimum count to {count:,} or less, or add text"
    )


def _empty(files: Sequence[TextFile]) -> CorpusError:
    size = sum(file.bytes for file in files)
    names = ", ".join(str(file.path) for file in files[:3]) + (", …" if len(files) > 3 else "")
    return CorpusError(
        f"the corpus has no token that the vocabulary knows ({names}: {size:,} bytes in all); "
        "name files that hold text"
    )
