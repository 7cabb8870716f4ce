"""What names a table's rows: the tokenizer's files of a folder, or a file of one token a line."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from tokenspace import tokenizer_files
from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.source import Source, lines_of, read_up_to
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_training import BERT_SPECIAL
from tokenspace.vocab import Vocab, placeholder

Errors = Literal["strict", "replace", "surrogateescape"]
_LARGEST_TOKENIZER = 1 << 27  # bytes
LINES = ".vocab.txt"  # x.pt may have x.vocab.txt, as x.npy has
NAMED = "name it: load(path, vocab=...) or convert --vocab FILE"


class Names(NamedTuple):
    """The tokens of a table, the tokenizer if there is one, and in how many tokens U+FFFD replaced bytes."""

    vocab: Vocab
    tokenizer: Tokenizer | None = None
    replaced: int = 0


def vocabulary(folder: Path, rows: int | None = None) -> tuple[Vocab, Tokenizer | None]:
    """Return the tokens that the folder's tokenizer files name, by id, and the tokenizer if there is one.

    ``rows``: those of the table, if known. ``CheckpointError`` if the folder has no such file, or a
    ``vocab.txt`` of far more lines.
    """
    if any(os.path.isfile(folder / name) for name in (tokenizer_files.JSON, tokenizer_files.MERGES)):
        tokenizer = Tokenizer.load(folder)
        return tokenizer.vocab, tokenizer
    if not os.path.isfile(folder / tokenizer_files.VOCAB_TXT):
        for name in tokenizer_files.TOKENIZER_FILES:
            check_regular(folder / name)
        raise CheckpointError(
            f"{folder} has neither tokenizer.json nor vocab.txt (nor vocab.json and merges.txt) to name the "
            "table's rows"
        )
    try:
        tokenizer = Tokenizer.load(folder)
    except CheckpointError:  # another family's list names the rows, if no more
        return _listed(folder, rows), None
    return tokenizer.vocab, tokenizer


def _listed(folder: Path, rows: int | None) -> Vocab:
    """The lines of a folder's ``vocab.txt``, then its added tokens."""
    tokens = tokenizer_files.wordpiece_tokens(folder / tokenizer_files.VOCAB_TXT, rows)
    added = tokenizer_files.added_tokens(folder)
    tokens = tokenizer_files.with_added_names(tokens, added, folder)
    special = {i for i, token in enumerate(tokens) if token in BERT_SPECIAL}
    special |= {i for i, token in added.items() if token.special}
    return Vocab(tokens, special=special, added=added)


def check_regular(path: Path) -> None:
    """``CheckpointError`` if something is there that is no file which can be read in any order."""
    if os.path.lexists(path) and not os.path.isfile(path):
        raise CheckpointError(f"{path} is no regular file, which is needed here")


def tokenizer_in(folder: Path) -> bool:
    """Whether the folder has anything by a tokenizer's name, broken or not."""
    return any(os.path.lexists(folder / name) for name in tokenizer_files.TOKENIZER_FILES)


def without_row(vocab: Vocab, rows: int, tokenizer: Tokenizer | None = None) -> list[int]:
    """The ids of ``vocab`` that a table of ``rows`` rows lacks, except holes in the ids, and tokens of
    ``tokenizer`` that no file names: a model made without them has no rows for them.
    """
    unnamed = frozenset() if tokenizer is None else tokenizer.unnamed
    return [i for i in range(rows, len(vocab)) if vocab[i] != placeholder(i) and vocab[i] not in unnamed]


def fitted(
    vocab: Vocab, rows: int, origin: Path, limit: int | None = None, tokenizer: Tokenizer | None = None
) -> Vocab:
    """``vocab`` with a token for each of ``rows`` rows, or for the first ``limit`` of them: rows past the
    last id are called ``[unused-row-N]``. ``CheckpointError``, naming ``origin``, if an id has no row.
    """
    if outside := without_row(vocab, rows, tokenizer):
        raise CheckpointError(
            f"{origin}: {len(outside):,} of the tokenizer's ids have no row in the table of {rows:,}; the "
            f"first is {outside[0]:,}, token {vocab[outside[0]]!r} (valid: 0 to {rows - 1:,}); "
            "were tokens added without resizing the model?"
        )
    wanted = rows if limit is None else min(limit, rows)
    if len(vocab) < wanted:
        named = [*vocab, *(placeholder(i) for i in range(len(vocab), wanted))]
        return Vocab(named, special=vocab.special, encoding=vocab.encoding, added=vocab.added)
    return vocab if len(vocab) == wanted else first(vocab, wanted)


def first(vocab: Vocab, count: int) -> Vocab:
    """The first ``count`` tokens."""
    offsets = vocab.offsets[: count + 1]
    special, added = ([i for i in which if i < count] for which in (vocab.special, vocab.added))
    return Vocab.from_bytes(vocab.data[: int(offsets[-1])], offsets, special, vocab.encoding, added)


def for_file(
    source: Source,
    rows: int,
    named: str | os.PathLike[str] | None = None,
    errors: Errors = "strict",
    limit: int | None = None,
) -> Names:
    """The tokens of the table in ``source``, a file of ``rows`` rows.

    They are in ``named`` (``named_by``), if that is given. Else they are looked for beside the file:
    ``x.vocab.txt``, one token a line, else the folder's tokenizer files.
    ``CheckpointError`` or ``TableFormatError`` if there are none, or they don't fit.
    """
    if named is not None:
        return named_by(named, rows, errors, limit)
    lines = source.beside(Path(source.path.name.removesuffix(".gz")).stem + LINES)
    if _is_there(lines):
        return _lines(lines, rows, errors, limit)
    folder = source.path.parent
    if any(os.path.isfile(folder / name) for name in tokenizer_files.TOKENIZER_FILES):
        vocab, tokenizer = vocabulary(folder, rows)
        return Names(fitted(vocab, rows, folder, limit, tokenizer), tokenizer)
    if _is_there(folder / tokenizer_files.JSON):  # of the same archive
        return _described(Source(folder / tokenizer_files.JSON), rows, limit)
    raise TableFormatError(
        f"{source.path} names no tokens for its {rows:,} rows, and beside it is neither {lines.name} (a "
        "token a line) nor tokenizer.json, vocab.txt, or vocab.json and merges.txt; put one there, or "
        f"{NAMED}"
    )


def _is_there(path: Path) -> bool:
    """Whether there is such a file, or such a member of an archive."""
    try:
        Source(path)
    except TableFormatError:
        return False
    return True


def named_by(
    path: str | os.PathLike[str], rows: int, errors: Errors = "strict", limit: int | None = None
) -> Names:
    """The tokens of ``rows`` rows, or of the first ``limit`` of them, from ``path``: a folder of tokenizer
    files, one such file, or a file of one token a line. ``CheckpointError`` or ``TableFormatError`` if it is
    none of these, or doesn't fit.
    """
    path = Path(path)
    if os.path.isdir(path):
        vocab, tokenizer = vocabulary(path, rows)
        return Names(fitted(vocab, rows, path, limit, tokenizer), tokenizer)
    source = Source(path)
    with source.open() as file:
        start = file.read(64).lstrip()
    if start.startswith(b"{") and path.name != tokenizer_files.VOCAB_JSON:
        return _described(source, rows, limit)
    if path.name in (tokenizer_files.VOCAB_JSON, tokenizer_files.MERGES):
        tokenizer = Tokenizer.load(path)
        return Names(fitted(tokenizer.vocab, rows, path, limit, tokenizer), tokenizer)
    if path.name == tokenizer_files.VOCAB_TXT and not source.packed:
        try:
            tokenizer = Tokenizer.load(path)
        except CheckpointError:
            tokens = tokenizer_files.wordpiece_tokens(path, rows)
            vocab = Vocab(tokens, special=[i for i, token in enumerate(tokens) if token in BERT_SPECIAL])
            return Names(fitted(vocab, rows, path, limit))
        return Names(fitted(tokenizer.vocab, rows, path, limit, tokenizer), tokenizer)
    return _lines(path, rows, errors, limit)


def _described(source: Source, rows: int, limit: int | None) -> Names:
    with source.open() as stream:
        text = bytes(read_up_to(stream, _LARGEST_TOKENIZER + 1))
    if len(text) > _LARGEST_TOKENIZER:
        raise TableFormatError(
            f"{source.path} has more than {_LARGEST_TOKENIZER:,} bytes, the most that a tokenizer may have"
        )
    tokenizer = Tokenizer.from_json(text, str(source.path))
    return Names(fitted(tokenizer.vocab, rows, source.path, limit), tokenizer)


def _lines(path: Path, rows: int, errors: Errors, limit: int | None) -> Names:
    r"""A token a line, each with ``\n`` (or ``\r\n``); as many lines as rows."""
    source = Source(path)
    content = (
        source.content() if not source.packed else np.frombuffer(lines_of(source, rows, False), np.uint8)
    )
    ends = np.flatnonzero(content == ord("\n"))
    if content.size and content[-1] != ord("\n"):
        ends = np.append(ends, content.size)
    if len(ends) != rows:
        raise TableFormatError(
            f"{path} has {len(ends):,} lines for a table of {rows:,} rows; each row needs a token"
        )
    ends = ends[:limit]
    text = content[: ends[-1]].tobytes()
    if text.startswith(codecs.BOM_UTF8):
        raise TableFormatError(
            f"{path}, line 1 (byte 0): a UTF-8 byte order mark; take these 3 bytes away, e.g. tail -c +4"
        )
    try:
        tokens = text.decode("utf-8", errors).split("\n")
    except UnicodeDecodeError as error:
        line = int(np.searchsorted(ends, error.start))
        raise TableFormatError(
            f"{path}, line {line + 1:,} (byte {error.start:,}): its token is not UTF-8; "
            "load(path, errors='replace') or convert --errors replace reads it with U+FFFD, "
            "'surrogateescape' keeps its bytes"
        ) from None
    tokens = [token.removesuffix("\r") for token in tokens]
    vocab = Vocab(tokens, special=[i for i, token in enumerate(tokens) if token in BERT_SPECIAL])
    return Names(vocab, replaced=_replaced(text) if errors == "replace" else 0)


def _replaced(text: bytes) -> int:
    """The lines that hold bytes which are no UTF-8."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        lines = text.decode("utf-8", "surrogateescape").split("\n")
        return sum(any("\udc80" <= each <= "\udcff" for each in line) for line in lines)
    return 0
