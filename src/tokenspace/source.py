"""The bytes of a table's file, wherever they lie: in a plain file, in gzip, or in a zip archive's member.

What is compressed is told by its first bytes, never by its name. Nothing is unpacked to disk, and nothing is
allocated because a header says so: memory grows with what is really read.
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

from tokenspace.errors import TableFormatError
from tokenspace.shapes import Array, Int

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
_BLOCK = 1 << 20  # bytes read at once
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Source:
    """One table file's bytes. ``Source("x.bin.gz")``, ``Source("all.zip/x.txt")``, ``Source("x.npy")``.

    ``path`` is how messages call it, ``file`` what lies on disk. ``size`` is the number of bytes, None for
    gzip, whose end alone tells.
    A zip archive named without a member is itself the bytes (``.npz`` and torch's files are such): see
    ``members``. ``TableFormatError`` if there is no such file or member, or it can't be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.file, self._member = self.path, None
        with _told(self.path):
            if not self.path.exists() and (archive := archive_of(self.path)):
                self.file, self._member = archive, self.path.relative_to(archive).as_posix()
            if not self.file.is_file():
                what = "is not a regular file" if self.file.exists() else "does not exist"
                raise TableFormatError(f"{self.path} {what}; a table's file is needed")
            self.size: int | None = self.file.stat().st_size
            with self.file.open("rb") as file:
                self._gzipped = file.read(2) == GZIP
        if self._member is not None:
            self.size, self._gzipped = self._checked_member().file_size, False
            with self.open() as inner:
                self._gzipped = inner.read(2) == GZIP
        if self._gzipped:
            self.size = None

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
                stream: Any = opened.enter_context(self.file.open("rb"))
                if self._member is not None:
                    archive = opened.enter_context(zipfile.ZipFile(stream))
                    stream = opened.enter_context(archive.open(self._checked_member()))
                if self._gzipped:
                    stream = opened.enter_context(gzip.GzipFile(fileobj=stream))
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
            with zipfile.ZipFile(file) as archive:
                return _files(archive)

    def beside(self, name: str) -> Path:
        """Where the file ``name`` of the same folder, or of the same archive, would be."""
        return self.path.with_name(name)

    def _checked_member(self) -> zipfile.ZipInfo:
        with _told(self.path), zipfile.ZipFile(self.file) as archive:
            try:
                member = archive.getinfo(str(self._member))
            except KeyError:
                names = _files(archive)
                some = ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")
                raise TableFormatError(
                    f"{self.file} has no member {self._member!r}; it has {some or 'none'}"
                ) from None
        if member.flag_bits & 1:
            raise TableFormatError(f"{self.path} is encrypted; unpack it first")
        if member.compress_type not in _METHODS:
            raise TableFormatError(f"{self.path} is compressed in a way not read here; unpack it first")
        return member


def _files(archive: zipfile.ZipFile) -> list[str]:
    """The names of an archive's files; a damaged name may be empty, and is nobody's."""
    return [each.filename for each in archive.infolist() if each.filename and not each.is_dir()]


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
