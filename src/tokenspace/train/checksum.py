"""Whether what a run left on disk is still what it wrote: CRC-32 over all of its bytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tokenspace.mapped import release
from tokenspace.shapes import Array

_BLOCK = 1 << 24  # bytes


class Summed:
    """A file that is written, and the checksum of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.sum = file, 0

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self.sum = zlib.crc32(data, self.sum)
        self._file.write(data)


def of_file(path: Path) -> int:
    """The checksum of a file's bytes.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x"
    >>> _ = path.write_bytes(b"123456789")
    >>> hex(of_file(path))                      # the check value that CRC-32 is known by
    '0xcbf43926'
    """
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found


def of_state(arrays: Mapping[str, Array], about: str) -> int:
    """The checksum of ``about``, and of each array's name, type, shape and numbers; maps leave memory again.

    >>> of_state({"a": np.zeros(2)}, "") == of_state({"a": np.zeros((1, 2))}, "")
    False
    """
    found = zlib.crc32(about.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), found)
        numbers = array.reshape(-1).view(np.uint8)
        for start in range(0, len(numbers), _BLOCK):
            block = numbers[start : start + _BLOCK]
            found = zlib.crc32(block.data, found)
            release(block, array)
    return found
