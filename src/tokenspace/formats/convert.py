"""From one table format to another: what the new file can't hold is named, and what it holds is read back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats.open import BUILT_IN, FORMATS, files_of, format_for, load, output_path, sniff
from tokenspace.formats.tokens import READ_FROM, unwritable
from tokenspace.shapes import Array, Int
from tokenspace.table import Table
from tokenspace.vocab import Vocab

_ROWS_AT_ONCE = 16_384
_CHECKPOINT = {".safetensors", ".json", "vocab.txt", "merges.txt"}  # of a model's folder, what is read


class Conversion(NamedTuple):
    """A file of ``rows`` × ``dim`` in ``format``, read back and found equal to what was written.

    ``lossless`` is about tokens and values: all are there (a float16 written as float32 is the same value).
    ``lost`` names what else the format has no place for: "dtype", "tokenizer", "output", "special",
    "provenance"; and "rows" where ``left_out`` tokens could not be written. ``repeated`` tokens are spelled
    like an earlier one: each keeps its row, but other readers may take the first alone. ``files`` names what
    was written: two in numpy's format.
    """

    rows: int
    dim: int
    format: str
    lossless: bool
    lost: list[str]
    left_out: list[str]
    repeated: int
    files: list[str]


def convert(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    format: str | None = None,
    allow_loss: bool = False,
) -> Conversion:
    """Write the table at ``source`` (anything that ``load`` takes), read it back, and name it ``path``.

    ``format`` and the suffix are ``save``'s. A token that the format can't hold is a ``VocabError``; with
    ``allow_loss`` its row is left out instead, and named in ``left_out``. ``TableFormatError`` if what is
    read back differs, ``OutputError`` if ``path`` is one of ``source``'s own files: then nothing is written.
    """
    name = format_for(path, format)
    chosen = FORMATS[name]
    files = files_of(output_path(path), name)
    table = load(source)
    _check_apart(source, files)
    lost = losses(table, name)
    left_out = list(unwritable(table.vocab, chosen.refusal)) if allow_loss else []
    if left_out:
        lost = ["rows", *lost]
    kept = _without(table, left_out) if left_out else table
    chosen.save(kept, files[0], partial(_check_equal, kept, path))
    names = [table.vocab[i] for i in left_out]
    repeated = len(kept) - len(set(kept.vocab))
    return Conversion(len(kept), kept.dim, name, not left_out, lost, names, repeated, list(map(str, files)))


def losses(table: Table, format: str) -> list[str]:
    """The parts of ``table``, tokens and values aside, that ``format`` has no place for.

    >>> losses(load("wordnet"), "glove"), losses(load("wordnet"), "native")
    (['dtype', 'tokenizer', 'special', 'provenance'], [])
    """
    chosen = FORMATS[format_for("", format)]
    if chosen.whole:
        return []
    parts = {
        "dtype": table.weight.dtype not in chosen.dtypes,
        "tokenizer": table.tokenizer is not None,
        "output": table.output is not None,
        "special": bool(table.vocab.special),
        "provenance": bool(table.provenance.keys() - {READ_FROM}),
    }
    return [part for part, there in parts.items() if there]


def _without(table: Table, ids: list[int]) -> Table:
    """The table without these rows; its special ids move with their tokens."""
    keep = np.setdiff1d(np.arange(len(table)), ids)
    if not keep.size:
        raise TableFormatError("the format can hold none of this table's tokens; nothing was written")
    special = np.flatnonzero(np.isin(keep, table.vocab.special)).tolist()
    vocab = Vocab([table.vocab[i] for i in keep.tolist()], special, table.vocab.encoding)
    return Table(table.weight[keep], vocab, provenance=table.provenance)


def _check_apart(source: str | os.PathLike[str], files: list[Path]) -> None:
    """``OutputError`` if one of ``files`` is what the table at ``source`` is read from."""
    path = BUILT_IN.get(str(source), Path(source))
    if path.is_dir():
        own = [file for file in path.iterdir() if file.suffix in _CHECKPOINT or file.name in _CHECKPOINT]
    else:
        own = files_of(path, sniff(path))
    for file in files:
        same = next((each for each in own if file.exists() and each.exists() and file.samefile(each)), None)
        if same is not None:
            raise OutputError(f"can't write {file}: {source} is read from it; name another file")


def _check_equal(written: Table, path: str | os.PathLike[str], load: Callable[[], Table]) -> None:
    try:
        read = load()
    except TableFormatError as error:
        raise TableFormatError(f"{path} was not written: it could not be read back: {error}") from None
    same = np.array_equal(written.vocab.data, read.vocab.data) and np.array_equal(
        written.vocab.offsets, read.vocab.offsets
    )
    same = same and written.weight.shape == read.weight.shape
    for start in range(0, len(written) if same else 0, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        same = same and np.array_equal(_bits(written.weight[rows]), _bits(read.weight[rows]))
    if not same:
        raise TableFormatError(f"{path} was not written: it reads back as another table")


def _bits(rows: Array) -> Int[Array, "K D"]:
    """Rows in float32, seen as integers: -0.0 is not 0.0 here."""
    return np.ascontiguousarray(rows, np.float32).view(np.uint32)
