"""Memory-mapped arrays larger than memory: what was read of one can leave again."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from tokenspace.shapes import Array

_SMALL = 1 << 27  # bytes; a smaller map may stay: reading it again costs more than it takes


def release(block: Array, whole: Array) -> None:
    """Let the pages of ``block``, a part of the map ``whole``, leave this process's memory; they are read
    again when used. Nothing happens to an array that is no map, or a small one.

    The kernel keeps file pages cached as long as there is room, so that the next pass costs no disk.
    """
    if whole.nbytes < _SMALL or not np.may_share_memory(block, whole):
        return
    mapping = _mapping(whole)
    if mapping is None or not hasattr(mapping, "madvise"):
        return
    begin = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    first, last = (end - begin for end in np.lib.array_utils.byte_bounds(block))
    first -= first % mmap.PAGESIZE
    mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping(array: Array) -> mmap.mmap | None:
    """The read-only map under an array; None if it lies in memory or its pages may hold changes: those of a
    private map may (``np.load(…, mmap_mode="c")``), whatever the array's own flag says.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) and memoryview(base).readonly else None
