"""From one table format to another: what the new file can't hold is named, and what it holds is read back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenspace.errors import OutputError, TableFormatError
from tokenspace.formats.open import (
    FETCHED_FROM,
    FORMATS,
    files_of,
    format_for,
    load,
    located,
    output_path,
    writer,
)
from tokenspace.formats.selection import RENUMBERED, ROWS_TAKEN, selected
from tokenspace.formats.sniff import sniff, table_source
from tokenspace.formats.tokens import READ_FROM, repeated, unwritable, unwritable_first
from tokenspace.mapped import release
from tokenspace.models.siblings import part_names
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
    (``renumbered``). ``as_first`` of these could not for their place alone: no file can begin with them.
    ``repeated`` tokens are spelled like an earlier one: each keeps its row, but other readers may take the
    first alone. ``replaced`` were no UTF-8 and were read with U+FFFD, as was asked. ``rounded`` rows of
    float64 are no longer what they were: a table's numbers are float32 at most. ``unreachable`` tokens are
    found in no text by the tokenizer that a folder got. ``files`` names what was written. ``not_read`` names
    the tensors of the source that belong to the table and have no place in one, or that ``tensor`` left out.
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
    rounded: int
    unreachable: int
    as_first: int
    not_read: list[str]


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
    read_as = sniff(place)
    _check_apart(source, place, read_as, files, reading.get("vocab"))
    left_out, as_first = _unwritable(table, name) if allow_loss else ([], 0)
    kept = _without(table, left_out) if left_out else table
    read_from = _read_now(table, read_as)
    lost = ["rows"] if left_out else []
    lost += _lost(_whole(place, read_as, table, reading), kept, name)
    found: list[Table] = []
    write(kept, files[0], partial(_check_equal, kept, name, path, found))
    return Conversion(
        rows=len(kept),
        dim=kept.dim,
        format=name,
        lossless=not left_out and not read_from.get("rounded_rows") and not read_from.get("replaced_tokens"),
        lost=lost,
        left_out=[table.vocab[i] for i in left_out],
        repeated=repeated(kept.vocab),
        files=list(map(str, files)),
        read_as=read_as,
        dtypes=(read_from.get("rounded_from", str(table.weight.dtype)), str(found[0].weight.dtype)),
        renumbered=bool(left_out) or (reading.get("rows") is not None and RENUMBERED in table.provenance),
        replaced=read_from.get("replaced_tokens", 0),
        rounded=read_from.get("rounded_rows", 0),
        unreachable=found[0].provenance.get(READ_FROM, {}).get("unreachable_tokens", 0),
        as_first=as_first,
        not_read=_not_read(table, read_as, read_from),
    )


def losses(table: Table, format: str) -> list[str]:
    """The parts of ``table``, tokens and values aside, that ``format`` has no place for.

    >>> losses(load("wordnet"), "glove"), losses(load("wordnet"), "native")
    (['dtype', 'tokenizer', 'special', 'provenance'], [])
    """
    return _lost(table, table, format_for("", format))


def _lost(whole: Table, kept: Table, format: str) -> list[str]:
    """What ``whole`` has and ``kept``, once written in ``format``, has not."""
    chosen = FORMATS[format]
    before, after = _parts(whole), _parts(kept)
    lost = [part for part in before if before[part] and not (after[part] and part in chosen.keeps)]
    return lost if str(kept.weight.dtype) in chosen.dtypes else ["dtype", *lost]


def _parts(table: Table) -> dict[str, bool]:
    """What a table has beside tokens and numbers, of ``PARTS``."""
    return {
        "tokenizer": table.tokenizer is not None,
        "output": table.output is not None,
        "subwords": table.subwords is not None,
        "special": bool(table.vocab.special),
        "provenance": bool(table.provenance.keys() - {READ_FROM, ROWS_TAKEN, RENUMBERED, FETCHED_FROM}),
    }


def _whole(place: Path, read_as: str, table: Table, reading: dict[str, Any]) -> Table:
    """The table that ``table`` is some rows of, where that may have a tokenizer which some rows can't."""
    partly = reading.get("limit") is not None or reading.get("rows") is not None
    if not partly or ("tokenizer" not in FORMATS[read_as].keeps and reading.get("vocab") is None):
        return table
    return load(place, **{key: value for key, value in reading.items() if key not in ("limit", "rows")})


def _read_now(table: Table, read_as: str) -> dict[str, Any]:
    """What reading the source gave; nothing if provenance tells of an earlier file, which it came from."""
    read_from = table.provenance.get(READ_FROM, {})
    kept = "provenance" in FORMATS[read_as].keeps and read_from.get("format") != read_as
    return {} if kept or not isinstance(read_from, dict) else read_from


def _not_read(table: Table, read_as: str, read_from: dict[str, Any]) -> list[str]:
    """The tensors that reading the source left out."""
    return list((table.provenance if read_as == "checkpoint" else read_from).get("left_out", []))


def _unwritable(table: Table, name: str) -> tuple[list[int], int]:
    """The ids whose rows ``name`` can't hold, in order, and how many of them for their place alone."""
    refused = list(unwritable(table.vocab, FORMATS[name].refusal))
    first = unwritable_first(table.vocab, refused, FORMATS[name].refusal_of_first)
    return sorted(refused + first), len(first)


def _without(table: Table, ids: list[int]) -> Table:
    """The table without these rows; its special ids move with their tokens."""
    keep = np.setdiff1d(np.arange(len(table)), ids)
    if not keep.size:
        raise TableFormatError("the format can hold none of this table's tokens; nothing was written")
    return selected(table, keep)


def _check_apart(
    source: str | os.PathLike[str],
    place: Path,
    read_as: str,
    files: list[Path],
    vocab: str | os.PathLike[str] | None,
) -> None:
    """``OutputError`` if one of ``files`` is what the table at ``source``, or its tokens, are read from."""
    if place.is_dir():
        own = [file for file in place.rglob("*") if file.is_file()]
    else:
        file = table_source(place).file
        beside = [*files_of(file, "numpy")[1:], *(file.with_name(name) for name in TOKENIZER_FILES)]
        names = part_names(file.name) or []
        parts = [file.with_name(each) for name in names for each in (name, name.removesuffix(".gz"))]
        own = [file, *parts, *(beside if read_as in ("numpy", "tensors") else [])]
    own += [] if vocab is None else [Path(vocab)]
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
