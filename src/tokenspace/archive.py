"""A zip archive's directory, read once, and its members as streams."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tokenspace.errors import TableFormatError

MOST_MEMBERS = 20_000
_DIRECTORY, _END, _END_64 = b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06"
_LOCAL = struct.Struct("<4s22x2H")  # signature, lengths of the name and of the extra field
_END_SIZE, _LONGEST_COMMENT, _END_64_SIZE = 22, 65_535, 76  # the last with its locator
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BLOCK = 1 << 20


class Archive:
    """The members of the zip archive at ``path`` by name. ``TableFormatError`` if there are more than
    ``MOST_MEMBERS``, ``zipfile.BadZipFile`` if it is damaged; nothing stays open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            check_members(file, path)
            with zipfile.ZipFile(file) as archive:
                self._entries = {entry.filename: entry for entry in archive.infolist()}

    @property
    def names(self) -> list[str]:
        """The names of its files; a damaged name may be empty and is left out."""
        return [name for name, entry in self._entries.items() if name and not entry.is_dir()]

    def entry(self, name: str) -> zipfile.ZipInfo:
        """The directory's entry of the member ``name``; ``TableFormatError`` if it can't be read."""
        entry = self._entries.get(name)
        if entry is None:
            names = self.names
            some = ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")
            raise TableFormatError(f"{self.path} has no member {name!r}; it has {some or 'none'}")
        if entry.flag_bits & 1:
            raise TableFormatError(f"{self.path / name} is encrypted; unpack it first")
        if entry.compress_type not in _METHODS:
            raise TableFormatError(
                f"{self.path / name} is compressed in a way not read here; unpack it first"
            )
        return entry

    def start(self, file: BinaryIO, name: str) -> int:
        """The byte of the archive, open as ``file``, at which the member's data begins: after its local
        header, whose name and extra field may differ from the directory's.
        """
        entry = self.entry(name)
        file.seek(entry.header_offset)
        local = file.read(_LOCAL.size)
        if len(local) < _LOCAL.size or not local.startswith(b"PK\x03\x04"):
            raise zipfile.BadZipFile("Bad magic number for file header")
        _, name_length, extra_length = _LOCAL.unpack(local)
        return entry.header_offset + _LOCAL.size + name_length + extra_length

    @contextmanager
    def open(self, name: str) -> Iterator[zipfile.ZipExtFile]:
        """The bytes of the member ``name``, to be read in order."""
        entry = self.entry(name)
        with self.path.open("rb") as file:
            file.seek(self.start(file, name))
            with zipfile.ZipExtFile(file, "r", entry) as member:
                yield member


def check_members(file: BinaryIO, path: Path) -> None:
    """``TableFormatError`` if the archive's directory lists more than ``MOST_MEMBERS``. They are counted
    before ``zipfile`` makes an object of each.
    """
    found = _directory(file)
    if found is None:
        return  # ``zipfile`` says that this is no archive
    start, end = found
    file.seek(start)
    count, held = 0, b""
    while start < end and (block := file.read(min(_BLOCK, end - start))):
        start += len(block)
        count += (held + block).count(_DIRECTORY)
        held = block[1 - len(_DIRECTORY) :]
    file.seek(0)
    if count > MOST_MEMBERS:
        raise TableFormatError(
            f"{path} has {count:,} members; {MOST_MEMBERS:,} are the most that are read: unpack it, or make "
            "an archive of the table alone"
        )


def _directory(file: BinaryIO) -> tuple[int, int] | None:
    """The bytes within which the directory lies; None if the archive has no end record."""
    size = file.seek(0, 2)
    tail_start = max(0, size - _END_SIZE - _LONGEST_COMMENT)
    file.seek(tail_start)
    tail = file.read()
    plain = tail[-_END_SIZE:]
    at = len(tail) - _END_SIZE if plain.startswith(_END) and plain.endswith(b"\0\0") else tail.rfind(_END)
    if at < 0 or at + _END_SIZE > len(tail):
        return None
    end = tail_start + at
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    if tail[max(0, at - _END_64_SIZE) : at].startswith(_END_64):
        length = int.from_bytes(tail[at - 36 : at - 28], "little")
    return max(0, end - _END_64_SIZE - length), end
