"""The bytes of a table's file, wherever they lie: in a plain file, in gzip, or in a zip archive's member.

What is compressed is told by its first bytes, never by its name. Nothing is unpacked to disk, and nothing is
allocated because a header says so: memory grows with what is really read. What is packed is unpacked as far
as its header promises and no further, so that a small file can't unpack into gigabytes.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tokenspace.archive import Archive
from tokenspace.errors import TableFormatError
from tokenspace.gunzip import Gunzipped
from tokenspace.shapes import Array, Int

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
LONGEST_LINE = 1 << 24  # bytes of a packed text's line
_BLOCK = 1 << 20  # bytes read at once


class Source:
    """One table file's bytes. ``Source("x.bin.gz")``, ``Source("all.zip/x.txt")``, ``Source("x.npy")``.

    ``path`` is how messages call it, ``file`` what lies on disk. ``size`` is the number of bytes, None for
    gzip, whose end alone tells.
    A zip archive named without a member is itself the bytes (``.npz`` and torch's files are such): see
    ``members``. ``TableFormatError`` if there is no such file or member, or it can't be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.file = self.path
        self._member: str | None = None
        self._archive: Archive | None = None
        with _told(self.path):
            if not self.path.exists() and (archive := archive_of(self.path)):
                self.file = archive
                self._set_member(Archive(archive), self.path.relative_to(archive).as_posix())
                return
            if not self.file.is_file():
                what = "is not a regular file" if self.file.exists() else "does not exist"
                raise TableFormatError(f"{self.path} {what}; a table's file is needed")
            self.size: int | None = self.file.stat().st_size
            with self.file.open("rb") as file:
                self._gzipped = file.read(2) == GZIP
        if self._gzipped:
            self.size = None

    def member(self, name: str) -> Source:
        """The member ``name`` of this zip archive, whose directory is not read again; ``TableFormatError`` if
        there is no such member.
        """
        found = Source.__new__(Source)
        found.path, found.file = self.path / name, self.file
        if self.path not in found.path.parents:  # an absolute name
            raise TableFormatError(f"{self.path}: its member {name!r} is named as if it lay elsewhere")
        with _told(found.path):
            found._set_member(self._directory(), name)
        return found

    def _set_member(self, archive: Archive, name: str) -> None:
        self._archive, self._member, self._gzipped = archive, name, False
        self.size = archive.entry(name).file_size
        with self.open() as inner:
            self._gzipped = inner.read(2) == GZIP
        if self._gzipped:
            self.size = None

    def _directory(self) -> Archive:
        if self._archive is None:
            self._archive = Archive(self.file)
        return self._archive

    def __repr__(self) -> str:
        return f"Source({str(self.path)!r})"

    @property
    def packed(self) -> bool:
        """Whether the bytes must be unpacked: they can be read in order, but not mapped."""
        return self._gzipped or self._member is not None

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """The bytes from the first on, to be read in order; ``TableFormatError`` from ``read`` as soon as
        what was packed proves damaged.
        """
        with ExitStack() as opened:
            with _told(self.path):
                stream: Any
                if self._archive is not None and self._member is not None:
                    stream = opened.enter_context(self._archive.open(self._member))
                else:
                    stream = opened.enter_context(self.file.open("rb"))
                if self._gzipped:
                    stream = Gunzipped(stream)
            yield io.BufferedReader(_Told(self.path, stream), _BLOCK)

    def content(self) -> Int[Array, " bytes"]:
        """All bytes: a read-only memory map where they lie in a plain file, else unpacked into memory."""
        if not self.packed and self.size:
            with _told(self.path):
                return np.memmap(self.file, np.uint8, "r")
        held = bytearray()
        with self.open() as stream:
            while block := stream.read(_BLOCK):
                held += block
        content = np.frombuffer(held, np.uint8)
        content.flags.writeable = False
        return content

    def members(self) -> list[str]:
        """What a zip archive holds: the names of its files; empty if this is no zip archive."""
        with _told(self.path), self.file.open("rb") as file:
            if self.packed or file.read(4) != ZIP:
                return []
            return self._directory().names

    def stored_at(self) -> int | None:
        """The byte of the archive at which this member begins; None if it does not lie there as it is."""
        if self._archive is None or self._member is None or self._gzipped:
            return None
        entry = self._archive.entry(self._member)
        if entry.compress_type != zipfile.ZIP_STORED:
            return None
        with _told(self.path), self.file.open("rb") as file:
            start = self._archive.start(file, self._member)
            size = file.seek(0, os.SEEK_END)
        if start + entry.file_size > size:
            raise TableFormatError(
                f"{self.path} is cut off: it ends at byte {start + entry.file_size:,} of {size:,}"
            )
        return start

    def beside(self, name: str) -> Path:
        """Where the file ``name`` of the same folder, or of the same archive, would be."""
        return self.path.with_name(name)


def read_up_to(file: io.BufferedReader, size: int) -> bytearray:
    """``size`` bytes, or as many as there are: memory is taken for what comes, not for what was promised."""
    held = bytearray()
    while len(held) < size and (block := file.read(min(_BLOCK, size - len(held)))):
        held += block
    return held


def lines_of(source: Source, most: int, cut: bool) -> bytearray:
    """Return the bytes of a text of at most ``most`` lines; with ``cut``, as far as so many lines reach.

    ``TableFormatError`` if a packed one has more lines, or a line of more than ``LONGEST_LINE`` bytes: gzip
    packs gigabytes into little.
    """
    held, lines, last = bytearray(), 0, 0
    with source.open() as file:
        while (not cut or lines < most) and (block := file.read1(_BLOCK)):
            held += block
            lines += block.count(b"\n")
            end = block.rfind(b"\n")
            last = len(block) - end - 1 if end >= 0 else last + len(block)
            if source.packed and ((lines > most and not cut) or last > LONGEST_LINE):
                what = (
                    f"more than {most:,} lines" if lines > most else f"a line of over {LONGEST_LINE:,} bytes"
                )
                raise TableFormatError(f"{source.path} has {what}, where a token a line is needed")
    return held


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is such a file, or such a member of an archive."""
    try:
        Source(path)
    except TableFormatError:
        return False
    return True


def archive_of(path: Path) -> Path | None:
    """The part of ``path`` that is a zip archive; None if none is."""
    for parent in path.parents:
        if parent.is_file():
            with parent.open("rb") as file:
                return parent if file.read(4) == ZIP else None
    return None


class _Told(io.RawIOBase):
    """What a file or a decompressor gives, its errors told as ours."""

    def __init__(self, path: Path, stream: Any) -> None:
        self._path, self._stream = path, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _told(self._path):
            return self._stream.readinto1(buffer)  # what is there, not more, so that damage further on waits


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system or a decompressor says of a file that it can't give, as an error of ours."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise TableFormatError(f"{path} is damaged: {error}; get or make it again") from None
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, TableFormatError):
            raise
        raise TableFormatError(f"there can be no file {str(path)!r}: {error}") from None
