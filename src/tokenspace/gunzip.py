"""gzip, read in order: its members' bytes, one after another, with any zeros between and after them.

``gzip.GzipFile`` reads such padding a byte at a time, which takes a second for a few megabytes of it.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Any, BinaryIO

_BLOCK = 1 << 16
_WITH_HEADER = 16 + zlib.MAX_WBITS  # zlib reads a member's header, and checks its checksum and length


class Gunzipped:
    """The unpacked bytes of ``stream``. ``readinto1`` raises ``gzip.BadGzipFile`` or ``zlib.error`` for
    damage, ``EOFError`` for a member that is cut off.

    >>> import gzip, io
    >>> packed = io.BytesIO(gzip.compress(b"one") + bytes(5) + gzip.compress(b"two"))
    >>> file, buffer = Gunzipped(packed), bytearray(8)
    >>> [bytes(buffer[: file.readinto1(buffer)]) for _ in range(3)]
    [b'one', b'two', b'']
    """

    def __init__(self, stream: BinaryIO | Any) -> None:
        self._stream = stream
        self._packed = b""  # read and not unpacked yet
        self._member: Any = None
        self._first = True

    def readinto1(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as one step of unpacking does; return the number of bytes, 0 at the end."""
        while buffer:
            if self._member is None and not self._begin():
                return 0
            if not self._packed and not self._fill():
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            unpacked = self._member.decompress(self._packed, len(buffer))
            self._packed = self._member.unconsumed_tail
            if self._member.eof:
                self._packed, self._member = self._member.unused_data, None
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)
        return 0

    def _fill(self) -> bool:
        self._packed += self._stream.read(_BLOCK)
        return bool(self._packed)

    def _begin(self) -> bool:
        """Begin the next member, if there is one."""
        while True:
            if not self._first:
                self._packed = self._packed.lstrip(b"\0")
            if self._packed:
                break
            if not self._fill():
                return False
        if len(self._packed) < 2:
            self._packed += self._stream.read(_BLOCK)
        if not self._packed.startswith(b"\x1f\x8b"):
            raise gzip.BadGzipFile(f"Not a gzipped file ({self._packed[:2]!r})")
        self._first, self._member = False, zlib.decompressobj(_WITH_HEADER)
        return True
