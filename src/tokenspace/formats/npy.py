r"""One NumPy array in a file or in a zip archive's member, its header held against what is there.

NEP 1, https://numpy.org/neps/nep-0001-npy-format.html::

    6 bytes    \x93NUMPY
    2 bytes    version: 1.0, 2.0 or 3.0
    2 bytes    length of the header, little-endian (4 bytes from version 2.0 on)
    header     {'descr': '<f4', 'fortran_order': False, 'shape': (V, D), }   padded with spaces
    data       V · D numbers

The shape's integers may end in ``L``, as Python 2 wrote them. No pickle is ever opened.
"""

from __future__ import annotations

import ast
import io
import math
import re
import warnings
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from tokenspace import rounding
from tokenspace.errors import TableFormatError
from tokenspace.shapes import Array
from tokenspace.source import Source, read_up_to
from tokenspace.table import Table, check_finite

MAGIC = b"\x93NUMPY"
_SIZE_OF_LENGTH = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}
_FLOAT = re.compile("[<>=|]?f[248]")
_LONGEST_HEADER = 10_000  # bytes; NumPy's own limit
_MOST_AXES, _LARGEST = 64, 2**63 - 1  # NumPy's own, too
_PYTHON_2 = re.compile(r"(?<=\d)L\b")  # the end of a long integer
_SHOWN = 80  # characters of a header's value
_COUNTED = 1 << 20  # bytes after the data, at most: gzip packs gigabytes into little
_ROWS_AT_ONCE = 16_384


class Header(NamedTuple):
    """What an array's file says of it; its data begins at byte ``start``."""

    kind: str
    fortran: bool
    shape: tuple[int, ...]
    start: int

    @property
    def is_table(self) -> bool:
        """Whether these are rows of floating-point numbers."""
        return bool(_FLOAT.fullmatch(self.kind)) and len(self.shape) == 2 and 0 not in self.shape

    @property
    def size(self) -> int:
        """The bytes of its data."""
        return math.prod(self.shape) * np.dtype(self.kind).itemsize


def read_header(file: io.BufferedReader, path: Path) -> Header:
    """The header that ``file`` begins with; ``TableFormatError`` if there is none."""
    start = file.read(8)
    length_bytes = _SIZE_OF_LENGTH.get(start[6:])
    if start[:6] != MAGIC or length_bytes is None:
        raise TableFormatError(f"{path} (byte 0): no .npy file of version 1.0, 2.0 or 3.0: {start!r}")
    length = int.from_bytes(file.read(length_bytes), "little")
    held = file.read(min(length, _LONGEST_HEADER))
    try:
        header = _literal(held.decode("latin-1" if start[6] < 3 else "utf-8").strip(), start[6] < 3)
        descr, order, shape = header["descr"], header["fortran_order"], header["shape"]
        whole = len(held) == length and isinstance(order, bool) and isinstance(shape, tuple)
        whole = whole and len(shape) <= _MOST_AXES and all(type(n) is int and n >= 0 for n in shape)
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        whole = False
    if not whole:
        raise TableFormatError(f"{path} (byte 8): the header of this .npy file is damaged")
    kind = _kind(descr, path)
    if math.prod(n for n in shape if n) > _LARGEST:
        raise TableFormatError(f"{path} (byte 8): a shape too large to index: {_brief(shape)}")
    return Header(kind, order, shape, 8 + length_bytes + length)


def _literal(text: str, may_be_python_2: bool) -> Any:
    """The value of a header's text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an escape or a literal in a damaged header
        try:
            return ast.literal_eval(text)
        except SyntaxError:
            if not may_be_python_2:
                raise
            return ast.literal_eval(_PYTHON_2.sub("", text))


def _kind(descr: object, path: Path) -> str:
    """The dtype as NumPy writes it; of one with fields, which no table is, as the header has it."""
    if not isinstance(descr, str):
        return _brief(descr)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a deprecated alias
            return np.dtype(descr).str
    except (TypeError, ValueError, SyntaxError, OverflowError, MemoryError, RecursionError):
        raise TableFormatError(
            f"{path} (byte 8): its dtype {_brief(descr)} is none that NumPy can hold; save the array again"
        ) from None


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def read_matrix(
    source: Source, limit: int | None = None, mapped_at: int | None = None
) -> tuple[Array, Array | None]:
    """The (V, D) floating-point numbers in ``source``, or its first ``limit`` rows, in the machine's byte
    order: mapped, unless they are packed, or must be converted. ``mapped_at`` is where a member of an archive
    that lies there as it is begins in the archive.

    float64 is rounded to float32: then which rows that changed is second. ``TableFormatError`` if the file is
    cut off, holds something else, or a number that is too large.
    """
    path = source.path
    with source.open() as file:
        header = read_header(file, path)
        if not _FLOAT.fullmatch(header.kind):
            raise TableFormatError(
                f"{path} (byte 8): its numbers are {header.kind!r}; a table's are float16, float32 or float64"
            )
        if not header.is_table:
            raise TableFormatError(
                f"{path} is an array of shape {header.shape}; a table is (V, D), neither of them 0"
            )
        if source.size is not None:
            check_size(header, source.size - header.start, path)
        rows = header.shape[0] if limit is None else min(header.shape[0], limit)
        if not source.packed or mapped_at is not None:
            file_path, start = (path, 0) if mapped_at is None else (path.parent, mapped_at)
            content = np.memmap(file_path, np.uint8, "r", start + header.start, (header.size,))
            order: Literal["F", "C"] = "F" if header.fortran else "C"
            matrix: Array = content.view(header.kind).reshape(header.shape, order=order)
        else:
            matrix = _unpacked(file, header, path, rows)
    matrix = matrix[:rows]
    if matrix.dtype.itemsize == 8:
        return rounding.rounded(matrix, path)
    native = matrix if matrix.dtype.isnative else np.asarray(matrix).astype(matrix.dtype.newbyteorder("="))
    return native, None


def check_size(header: Header, found: int, path: Path) -> None:
    """``TableFormatError`` if ``found`` bytes of data are not what the header says."""
    if header.size != found:
        raise TableFormatError(
            f"{path} (byte 8): the header says shape {header.shape} of {np.dtype(header.kind)}, "
            f"{header.size:,} bytes; {found:,} are there: {_fault(found > header.size)}"
        )


def _fault(longer: bool) -> str:
    return "were others appended?" if longer else "is the file cut off?"


def _unpacked(file: io.BufferedReader, header: Header, path: Path, rows: int) -> Array:
    """The array, or its first ``rows`` rows if they are one piece, from where ``file`` stands."""
    shape = header.shape if header.fortran else (rows, *header.shape[1:])
    size = math.prod(shape) * np.dtype(header.kind).itemsize
    held = read_up_to(file, size)
    if len(held) < size:
        check_size(header, len(held), path)
    if shape == header.shape and (more := len(file.read(_COUNTED))):
        check_size(header, header.size + more, path)
    return np.frombuffer(held, np.dtype(header.kind)).reshape(shape, order="F" if header.fortran else "C")


def write_matrix(
    file: IO[bytes] | io.BufferedIOBase, table: Table, matrix: Array, name: str = "table"
) -> None:
    """Write ``matrix``, one of the table's two, as float16 if it is that, else float32.

    ``TableFormatError`` if it holds NaN or infinity.
    """
    kept = matrix.dtype if matrix.dtype == np.float16 else np.dtype(np.float32)
    header = {"descr": kept.newbyteorder("<").str, "fortran_order": False, "shape": matrix.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = np.asarray(matrix[start : start + _ROWS_AT_ONCE], kept)
        check_finite(table, np.asarray(rows, np.float32), start, name)
        file.write(rows.astype(kept.newbyteorder("<"), copy=False).tobytes())


def check_rows(table: Table, path: Path) -> None:
    """``TableFormatError`` if a row that was read holds NaN or infinity. Rows that are mapped have not been
    read: what uses them looks.
    """
    matrices = {"table": table.weight} | ({} if table.output is None else {"output table": table.output})
    for name, matrix in matrices.items():
        if isinstance(matrix, np.memmap):
            continue
        for start in range(0, len(matrix), _ROWS_AT_ONCE):
            try:
                check_finite(
                    table, np.asarray(matrix[start : start + _ROWS_AT_ONCE], np.float32), start, name
                )
            except TableFormatError as error:
                raise TableFormatError(f"{path}: {error}") from None
