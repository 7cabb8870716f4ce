"""What a torch file's pickles say, held against the file's size before torch believes it.

torch allocates what a length says: that of a text in a pickle, of a member in the zip file's directory, of a
storage. Its pickles are walked here first, opcode by opcode and without running any
(https://docs.python.org/3/library/pickletools.html): a kilobyte that speaks of gigabytes is refused.

==========  ===============================================================================================
zip         members, all stored; ``data.pkl`` is the pickle
older       five pickles (magic number, version, sizes of types, the dict, names of storages), the storages
==========  ===============================================================================================
"""

from __future__ import annotations

import io
import mmap
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenspace.archive import check_members
from tokenspace.errors import TableFormatError

_OLDER = 5  # pickles that a file without a zip directory begins with
_LONGEST_TEXT, _LARGEST_PICKLES = 1 << 20, 1 << 26  # bytes of a packed file's pickles
MOST_OPCODES = 400_000  # of a file's pickles together; a tensor takes some 35, and each 75 bytes in torch
_LARGEST_NUMBER = 16  # bytes
_INTEGERS = {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"}
_AFTER_A_COUNT = {"NONE", "TUPLE", "BINPUT", "LONG_BINPUT", "MEMOIZE"}  # up to the storage that it counts


def check(file: io.BytesIO | io.BufferedReader, size: int) -> None:
    """``ValueError`` if the torch file in ``file``, ``size`` bytes long, claims more than it has."""
    is_zip = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    if is_zip:
        _check_zip(file, size)
    elif isinstance(file, io.BytesIO):
        _check_pickles(file, size, _OLDER, _Opcodes())
    else:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:  # its reads end where it ends
            _check_pickles(content, size, _OLDER, _Opcodes())


def promised(stream: io.BufferedReader) -> tuple[bytes, int]:
    """Of an older torch file that is read in order: its pickles' bytes, and the most bytes that the file can
    have by what they say. ``ValueError`` if the pickles are damaged or too large.
    """
    kept: Any = _Kept(stream)
    opcodes = _Opcodes()
    numbers = storages = 0
    for _ in range(_OLDER):
        largest: int | None = None
        for opcode, argument, place in opcodes.of(kept):
            if opcode.name in _INTEGERS:
                largest = argument
            elif opcode.name in ("BINPERSID", "PERSID"):
                if largest is None or largest < 0:
                    raise ValueError(f"at byte {place:,}, a storage of {largest} numbers")
                numbers, storages = numbers + largest, storages + 1
            elif opcode.name not in _AFTER_A_COUNT:
                largest = None
    return bytes(kept.held), len(kept.held) + _LARGEST_NUMBER * numbers + 8 * storages


class _Opcodes:
    """The opcodes of a file's pickles; ``ValueError`` if they are more than ``MOST_OPCODES`` together."""

    def __init__(self) -> None:
        self._left = MOST_OPCODES

    def of(self, content: Any) -> Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]]:
        """Each opcode of the pickle at which ``content`` stands, its argument and its byte."""
        for found in pickletools.genops(content):
            self._left -= 1
            if self._left < 0:
                raise ValueError(
                    f"its pickles have more than {MOST_OPCODES:,} opcodes, the most that are read"
                )
            yield found


class _Kept(io.RawIOBase):
    """What is read of a stream, kept, and no more than a pickle of tensors' names needs."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream, self.held = stream, bytearray()

    def read(self, size: int = -1) -> bytes:
        return self._keep(self._stream.read(self._allowed(size)))

    def readline(self, size: int | None = -1) -> bytes:
        return self._keep(self._stream.readline(_LONGEST_TEXT))

    def tell(self) -> int:
        return len(self.held)

    def _allowed(self, size: int) -> int:
        if not 0 <= size <= _LONGEST_TEXT or len(self.held) > _LARGEST_PICKLES:
            raise ValueError(f"at byte {len(self.held):,}, a text of {size:,} bytes, or too many of them")
        return size

    def _keep(self, block: bytes) -> bytes:
        self.held += block
        return block


def _check_zip(file: io.BytesIO | io.BufferedReader, size: int) -> None:
    try:
        check_members(file, Path("the file"))
    except TableFormatError as error:
        raise ValueError(str(error)) from None
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise ValueError(f"member {entry.filename!r} is not stored as it is")
            if entry.header_offset + entry.file_size > size:
                raise ValueError(f"member {entry.filename!r} ends past the file's end")
        opcodes = _Opcodes()
        for entry in archive.infolist():
            if entry.filename.endswith("data.pkl"):
                _check_pickles(io.BytesIO(archive.read(entry)), size, 1, opcodes)


def _check_pickles(content: Any, size: int, count: int, opcodes: _Opcodes) -> None:
    for done in range(count):
        if done and content.tell() >= size:
            raise ValueError(f"it ends after {done} of the {count} pickles that torch writes")
        largest: int | None = None  # the last integer, while it may be a storage's count
        for opcode, argument, place in opcodes.of(content):
            if opcode.name in _INTEGERS:
                largest = argument
            elif opcode.name in ("BINPERSID", "PERSID"):
                if largest is None or not 0 <= largest <= size:
                    raise ValueError(f"at byte {place:,}, a storage of {largest} numbers in {size:,} bytes")
            elif opcode.name not in _AFTER_A_COUNT:
                largest = None
            if opcode.name == "GLOBAL" and str(argument).endswith(
                "bytearray"
            ):  # which makes any number of bytes
                raise ValueError(f"at byte {place:,}, a bytearray")
