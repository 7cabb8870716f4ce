"""From one table format to another: what the new file can't hold is named, and what it holds is read back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats.open import FORMATS, files_of, format_for, load, located, output_path, writer
from tokenspace.formats.selection import selected
from tokenspace.formats.sniff import sniff, table_source
from tokenspace.formats.tokens import READ_FROM, repeated, unwritable
from tokenspace.mapped import release
from tokenspace.shapes import Array, Int
from tokenspace.table import Table
from tokenspace.tokenizer_files import TOKENIZER_FILES

_ROWS_AT_ONCE = 16_384


class Conversion(NamedTuple):
    """A file of ``rows`` × ``dim`` in ``format``, read back and found equal to what was written.

    ``lossless`` is about tokens and values: all are there (a float16 written as float32 is the same value).
    ``read_as`` is the format that was read, ``dtypes`` the type of the numbers before and after. ``lost``
    names what else the format has no place for: "dtype", "tokenizer", "output", "subwords", "special",
    "provenance"; and "rows" where ``left_out`` tokens could not be written: then the ids after them moved up
    (``renumbered``). ``repeated`` tokens are spelled like an earlier one: each keeps its row, but other
    readers may take the first alone. ``replaced`` were no UTF-8 and were read with U+FFFD, as was asked.
    ``files`` names what was written.
    """

    rows: int
    dim: int
    format: str
    lossless: bool
    lost: list[str]
    left_out: list[str]
    repeated: int
    files: list[str]
    read_as: str
    dtypes: tuple[str, str]
    renumbered: bool
    replaced: int


def convert(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    format: str | None = None,
    allow_loss: bool = False,
    **reading: Any,
) -> Conversion:
    """Write the table at ``source`` (anything that ``load`` takes), read it back, and name it ``path``.

    ``format`` and the suffix are ``save``'s, ``reading`` is ``load``'s: ``limit``, ``rows``, ``errors``,
    ``tensor``, ``vocab``. A token that the format can't hold is a ``VocabError``; with ``allow_loss`` its row
    is left out instead, and named in ``left_out``. ``TableFormatError`` if what is read back differs,
    ``OutputError`` if ``path`` is one of ``source``'s own files: then nothing is written.
    """
    name = format_for(path, format)
    write = writer(name, path)
    files = files_of(output_path(path), name)
    place = located(source)
    table = load(place, **reading)
    _check_apart(source, place, files)
    lost = losses(table, name)
    left_out = list(unwritable(table.vocab, FORMATS[name].refusal)) if allow_loss else []
    kept = table
    if left_out:
        lost = ["rows", *lost]
        kept = _without(table, left_out)
    found: list[Table] = []
    write(kept, files[0], partial(_check_equal, kept, name, path, found))
    return Conversion(
        rows=len(kept),
        dim=kept.dim,
        format=name,
        lossless=not left_out,
        lost=lost,
        left_out=[table.vocab[i] for i in left_out],
        repeated=repeated(kept.vocab),
        files=list(map(str, files)),
        read_as=sniff(place),
        dtypes=(str(table.weight.dtype), str(found[0].weight.dtype)),
        renumbered=bool(left_out) or "rows_taken" in table.provenance,
        replaced=table.provenance.get(READ_FROM, {}).get("replaced_tokens", 0),
    )


def losses(table: Table, format: str) -> list[str]:
    """The parts of ``table``, tokens and values aside, that ``format`` has no place for.

    >>> losses(load("wordnet"), "glove"), losses(load("wordnet"), "native")
    (['dtype', 'tokenizer', 'special', 'provenance'], [])
    """
    chosen = FORMATS[format_for("", format)]
    parts = {
        "tokenizer": table.tokenizer is not None,
        "output": table.output is not None,
        "subwords": table.subwords is not None,
        "special": bool(table.vocab.special),
        "provenance": bool(table.provenance.keys() - {READ_FROM}),
    }
    lost = [part for part, there in parts.items() if there and part not in chosen.keeps]
    return lost if table.weight.dtype in chosen.dtypes else ["dtype", *lost]


def _without(table: Table, ids: list[int]) -> Table:
    """The table without these rows; its special ids move with their tokens."""
    keep = np.setdiff1d(np.arange(len(table)), ids)
    if not keep.size:
        raise TableFormatError("the format can hold none of this table's tokens; nothing was written")
    return selected(table, keep)


def _check_apart(source: str | os.PathLike[str], place: Path, files: list[Path]) -> None:
    """``OutputError`` if one of ``files`` is what the table at ``source`` is read from."""
    if place.is_dir():
        own = [file for file in place.rglob("*") if file.is_file()]
    else:
        file = table_source(place).file
        beside = [*files_of(file, "numpy")[1:], *(file.with_name(name) for name in TOKENIZER_FILES)]
        own = [file, *(beside if sniff(place) in ("numpy", "npz", "tensors") else [])]
    for file in files:
        same = next((each for each in own if file.exists() and each.exists() and file.samefile(each)), None)
        if same is not None:
            raise OutputError(f"can't write {file}: {source} is read from it; name another file")


def _check_equal(
    written: Table, format: str, path: str | os.PathLike[str], found: list[Table], load: Callable[[], Table]
) -> None:
    """``TableFormatError`` if what ``load`` reads is not what was written; ``found`` receives it."""
    try:
        read = load()
    except TableFormatError as error:
        raise TableFormatError(f"{path} was not written: it could not be read back: {error}") from None
    keeps = FORMATS[format].keeps
    same = (
        np.array_equal(written.vocab.data, read.vocab.data)
        and np.array_equal(written.vocab.offsets, read.vocab.offsets)
        and _same_numbers(written.weight, read.weight)
        and ("output" not in keeps or _same_numbers(written.output, read.output))
        and ("special" not in keeps or written.vocab.special == read.vocab.special)
    )
    if not same:
        raise TableFormatError(f"{path} was not written: it reads back as another table")
    found.append(read)


def _same_numbers(written: Array | None, read: Array | None) -> bool:
    """Whether both hold the same bits once in float32, in which -0.0 is not 0.0; or both are None."""
    if written is None or read is None:
        return written is read
    if written.shape != read.shape:
        return False
    for start in range(0, len(written), _ROWS_AT_ONCE):
        old, new = (whole[start : start + _ROWS_AT_ONCE] for whole in (written, read))
        if not np.array_equal(_bits(old), _bits(new)):
            return False
        release(old, written)
        release(new, read)
    return True


def _bits(rows: Array) -> Int[Array, "K D"]:
    return np.ascontiguousarray(rows, np.float32).view(np.uint32)
