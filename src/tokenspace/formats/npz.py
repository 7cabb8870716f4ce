r"""NumPy's ``.npz``, as ``np.savez`` writes it: a zip archive of arrays, each a ``.npy`` file (``npy.py``).

======================  ================================  ==================================================
member                  dtype, shape                      meaning
======================  ================================  ==================================================
``weight.npy``          float16, float32, float64 (V, D)  the table; under any name if no other is (V, D)
``output.npy``          the same, optional                skip-gram's context matrix, or an untied head
``tokens.bytes.npy``    uint8 (bytes)                     the tokens end to end, UTF-8 or raw bytes
``tokens.offsets.npy``  int64 (V + 1)                     token i: ``bytes[offsets[i] : offsets[i + 1]]``
``tokens.npy``          text ``<U`` or bytes ``|S`` (V)   the tokens, as others write them; or ``vocab``
======================  ================================  ==================================================

Where an archive has no tokens they are named, or are lines of ``x.vocab.txt`` beside it, as ``numpy``'s are.
Members that lie uncompressed in a plain file are mapped. Tokens are written as bytes: an array of text has no
place for a NUL at a token's end, and takes four bytes a character of the longest for every token.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np

from tokenspace import rounding
from tokenspace.atomic import replacing
from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.formats.npy import (
    Header,
    check_rows,
    check_size,
    read_header,
    read_matrix,
    write_matrix,
)
from tokenspace.formats.numpy import read_named, read_vocabulary, vocabulary_path
from tokenspace.formats.tokens import Errors, TokensRead, Verify, counted, table_read
from tokenspace.models.vocabulary import NAMED, Names
from tokenspace.shapes import Array
from tokenspace.source import Source, exists, read_up_to
from tokenspace.table import Table

NAME = "npz"
WEIGHT, OUTPUT = "weight.npy", "output.npy"
BYTES, OFFSETS = "tokens.bytes.npy", "tokens.offsets.npy"
TOKENS = ("tokens.npy", "vocab.npy")
_TEXT = re.compile(r"[<>=|]?[US][1-9]\d{0,8}")
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_BLOCK = 1 << 20  # bytes of tokens at once
_SHOWN = 6  # arrays
MOST_SEARCHED = 5000  # arrays, of which the only table is found by its header


def holds_arrays(members: list[str]) -> bool:
    """Whether an archive with these members is of this format: all are arrays.

    >>> holds_arrays(["weight.npy", "tokens.npy"]), holds_arrays(["x.vec", "y.npy"]), holds_arrays([])
    (True, False, False)
    """
    return bool(members) and all(name.endswith(".npy") for name in members)


def load(
    path: str | os.PathLike[str] | Source,
    errors: Errors = "strict",
    limit: int | None = None,
    vocab: str | os.PathLike[str] | None = None,
) -> Table:
    """Map or unpack the arrays and read the tokens; ``errors`` and ``limit`` are ``word2vec.load``'s, and
    ``vocab``, for an archive that has no tokens, is ``numpy.load``'s.

    ``ShapeError`` if an archive with tokens is given ``vocab``; ``TableFormatError`` if there is no table
    among the arrays, if there are several, or if they don't fit.
    """
    source = path if isinstance(path, Source) else Source(path)
    archive = source.path
    if source.packed:
        raise TableFormatError(f"{archive} is an archive in another; unpack that first")
    members = _Headers(source)
    name = _weight_among(members, archive)
    weight, *changed = _matrix(source.member(name), limit)
    output = None
    if OUTPUT in members and name != OUTPUT:
        output, also_changed = _matrix(source.member(OUTPUT), limit)
        changed.append(also_changed)
    if output is not None and output.shape != weight.shape:
        raise TableFormatError(
            f"{archive}: {OUTPUT} is {output.shape}, {name} {weight.shape}; they must be equal"
        )
    tokens: TokensRead | Names
    inside = next((each for each in TOKENS if each in members and not members[each].is_table), None)
    together = BYTES in members and OFFSETS in members
    if vocab is not None:
        if together or inside is not None:
            own = str(BYTES if together else inside).removesuffix(".npy")
            raise ShapeError(f"{archive} has tokens of its own, in {own!r}; leave vocab out")
        tokens = read_named(vocab, source.member(name), errors, limit)
    elif together:
        tokens = _end_to_end(source, len(weight), errors, limit)
    elif inside is not None:
        tokens = _tokens(source.member(inside), len(weight), errors, limit)
    else:
        names = vocabulary_path(archive)
        if not exists(names):
            raise _without_tokens(members, archive, names)
        tokens = read_vocabulary(names, archive, len(weight), errors, limit)
    rounded = [rows for rows in changed if rows is not None]
    about = rounding.read_from(*rounded) if rounded else {}
    if others := [each for each in members.names if each not in (name, OUTPUT) and members[each].is_table]:
        about["left_out"] = [f"{each} of shape {list(members[each].shape)}" for each in others]
    table = table_read(archive, NAME, weight, tokens, output, array=name, dtype=weight.dtype.name, **about)
    check_rows(table, archive)
    return table


def _without_tokens(members: _Headers, archive: Path, names: Path) -> TableFormatError:
    found = _listed(members, members.names)
    return TableFormatError(
        f"{archive} has no tokens: its arrays are {found}; tokens are looked for in "
        f"'tokens' or 'vocab' (text or bytes), in 'tokens.bytes' with 'tokens.offsets', and in {names}; put "
        f"them there, or {NAMED}"
    )


class _Headers:
    """The arrays of an archive by name; a header is read when it is asked for, once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.names = [name for name in source.members() if name.endswith(".npy")]
        self._known = frozenset(self.names)
        self._read: dict[str, Header] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Header:
        if name not in self._read:
            member = self._source.member(name)
            with member.open() as file:
                self._read[name] = read_header(file, member.path)
        return self._read[name]


def _listed(members: _Headers, names: list[str]) -> str:
    some = ", ".join(f"{name} ({members[name].kind} {members[name].shape})" for name in names[:_SHOWN])
    return some + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


def _weight_among(members: _Headers, archive: Path) -> str:
    """The name of the array that is the table; ``TableFormatError`` lists what is there instead."""
    if WEIGHT in members:
        return WEIGHT
    if len(members.names) > MOST_SEARCHED:
        raise TableFormatError(
            f"{archive} has {len(members.names):,} arrays; among more than {MOST_SEARCHED:,} the table must "
            f"be called {WEIGHT.removesuffix('.npy')!r}"
        )
    tables = [name for name in members.names if name != OUTPUT and members[name].is_table]
    if len(tables) == 1:
        return tables[0]
    shown = tables or members.names
    what = _listed(members, shown)
    found = f"several tables: {what}" if tables else f"no table (V, D) of floats: {what or 'no array'}"
    raise TableFormatError(
        f"{archive} has {found}; save the one that is meant as {WEIGHT.removesuffix('.npy')!r}"
    )


def _matrix(member: Source, limit: int | None) -> tuple[Array, Array | None]:
    return read_matrix(member, limit, member.stored_at())


def _end_to_end(source: Source, rows: int, errors: Errors, limit: int | None) -> TokensRead:
    """The tokens that lie end to end: of ``rows`` rows, or, if that is ``limit``, of the first of them."""
    archive = source.path
    offsets = _numbers(source.member(OFFSETS), "i8")
    data = _numbers(source.member(BYTES), "u1")
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != data.size or np.any(offsets[1:] < offsets[:-1]):
        raise TableFormatError(f"{archive / OFFSETS}: must rise from 0 to the {data.size:,} bytes of {BYTES}")
    found = offsets.size - 1
    if found < rows or (found > rows and rows != limit):
        raise TableFormatError(
            f"{archive} has {counted(found, 'token')} for {counted(rows, 'row')}; each needs one"
        )
    # bytes are no fault here
    tokens = TokensRead(archive, "replace" if errors == "replace" else "surrogateescape")
    lengths = np.diff(offsets[: rows + 1])
    tokens.add(data[: offsets[rows]], lengths, lambda i: (f"row {i + 1:,}", int(offsets[i])))
    return tokens


def _numbers(source: Source, kind: str) -> Array:
    """A member that is one axis of integers of ``kind``."""
    path = source.path
    with source.open() as file:
        header = read_header(file, path)
        if header.kind.lstrip("<|=>") != kind or len(header.shape) != 1:
            raise TableFormatError(
                f"{path} (byte 8): an array of {header.kind!r}, shape {header.shape}; one axis of {kind!r} "
                "is needed"
            )
        check_size(header, (source.size or 0) - header.start, path)
        held = read_up_to(file, header.size)
    if len(held) < header.size:
        raise TableFormatError(f"{path} is cut off: {len(held):,} of {header.size:,} bytes are there")
    return np.frombuffer(held, header.kind).astype(kind, copy=False)


def _tokens(source: Source, rows: int, errors: Errors, limit: int | None) -> TokensRead:
    """The tokens in an array of text or bytes: ``rows``, or, if that is ``limit``, the first of them."""
    path = source.path
    tokens = TokensRead(path, errors)
    with source.open() as file:
        header = read_header(file, path)
        if header.kind.endswith("O"):
            raise TableFormatError(
                f"{path} holds its tokens as Python objects, which only pickle reads, and pickle can run any "
                "code: save them as text, np.array(tokens, dtype='U')"
            )
        if not _TEXT.fullmatch(header.kind) or len(header.shape) != 1:
            raise TableFormatError(
                f"{path} (byte 8): an array of {header.kind!r}, shape {header.shape}; tokens are one "
                "axis of text ('<U…') or bytes ('|S…')"
            )
        check_size(header, (source.size or 0) - header.start, path)
        if header.shape[0] < rows or (header.shape[0] > rows and rows != limit):
            raise TableFormatError(
                f"{path} has {counted(header.shape[0], 'token')} for {counted(rows, 'row')}; each needs one"
            )
        kind = np.dtype(header.kind)
        at_once = max(_BLOCK // kind.itemsize, 1)
        while len(tokens) < rows:
            wanted = min(at_once, rows - len(tokens)) * kind.itemsize
            held = read_up_to(file, wanted)
            if len(held) < wanted:
                raise TableFormatError(f"{path} ends after {counted(len(tokens), 'token')} of {rows:,}")
            _add(tokens, np.frombuffer(held, kind), path)
    return tokens


def _add(tokens: TokensRead, block: Array, path: Path) -> None:
    first = len(tokens)
    try:
        if block.dtype.kind == "U" and block.view(block.dtype.str[0] + "u4").max() > sys.maxunicode:
            raise ValueError("a number that is no character's")
        texts = [t if isinstance(t, bytes) else t.encode("utf-8", "surrogateescape") for t in block.tolist()]
    except ValueError as error:  # no character, or one that stands alone for half of one
        raise TableFormatError(f"{path}, rows {first + 1:,} to {first + len(block):,}: {error}") from None
    tokens.add(
        np.frombuffer(b"".join(texts), np.uint8),
        np.fromiter(map(len, texts), np.int64, len(texts)),
        lambda i: (f"row {first + i + 1:,}", None),
    )


def save(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write the archive, uncompressed: every token, and ``output`` if there is one. Equal tables are equal
    bytes. ``TableFormatError`` if a number is NaN or infinite.
    """
    with replacing(path) as fresh:
        _write(table, fresh)
        if verify:
            verify(partial(load, fresh))


def _write(table: Table, path: Path) -> None:
    matrices = {WEIGHT: ("table", table.weight)}
    if table.output is not None:
        matrices[OUTPUT] = ("output table", table.output)
    tokens = {BYTES: table.vocab.data, OFFSETS: table.vocab.offsets.astype("<i8", copy=False)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, (called, matrix) in matrices.items():
            with archive.open(zipfile.ZipInfo(name, _EARLIEST), "w", force_zip64=True) as member:
                write_matrix(member, table, matrix, called)
        for name, array in tokens.items():
            with archive.open(zipfile.ZipInfo(name, _EARLIEST), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), version=(1, 0))
