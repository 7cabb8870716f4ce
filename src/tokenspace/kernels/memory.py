"""Memory for what kernels write: aligned, in huge pages, and used again.

The system hands out fresh memory page by page, zeroed, at the first write to each page. For a fresh output of
50 MB that costs more time than a kernel needs to fill it. So arrays of a megabyte and more live in *blocks*
that stay with the process: when an array, its views and the tensors made of it are all gone, its block waits
for the next ``empty``. A block is private, anonymous memory: a forked child gets a copy of what its parent
had, never the memory itself.

A block asks for huge pages (2 MiB: 512 times fewer faults and address translations). Where the system has
none it is made of ordinary ones; where it can't map private memory (Windows), ``empty`` is ``np.empty``,
aligned.

Nothing here takes a lock. Arrays die whenever the garbage collector says so, even while this code runs, and a
signal handler or a forked child may call it at any point. The free blocks are one dict instead, changed by
single operations that no thread can interrupt: whoever pops a block owns it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import os
import weakref
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SMALLEST_POOLED = 1 << 20
_LINE = 64  # bytes in a cache line, and in the widest vector register
_HUGE_PAGE = 2 << 20


class _Block(NamedTuple):
    memory: mmap.mmap
    start: int  # bytes before the first huge page
    size: int  # bytes from there


def _limit() -> int:
    """How many bytes may lie free: a sixteenth of the machine's memory, at most 1 GiB."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows; a system that doesn't say
        machine = 4 << 30
    return min(machine // 16, 1 << 30)


_free: dict[int, _Block] = {}  # the one that was given back first comes first
_serial = itertools.count()
_most_free = _limit()


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """An uninitialized C-contiguous array that starts on a 64-byte boundary.

    Its memory is used again after the last reference to it is gone: the array, a view of it, or a tensor that
    ``torch.from_numpy`` made of either. ``MemoryError`` if the system has none left.

    >>> x = empty((3, 5), np.float32)
    >>> x.shape, x.dtype, x.ctypes.data % 64
    ((3, 5), dtype('float32'), 0)
    """
    dtype = np.dtype(dtype)
    size = int(math.prod(shape)) * dtype.itemsize
    if size < SMALLEST_POOLED or not hasattr(mmap, "MAP_ANONYMOUS"):
        return _aligned(np.empty(size + _LINE, np.uint8), shape, dtype)
    block = _take(size) or _new(size)
    # NumPy lets views refer to the first array whose base is no array. That is this one: it dies last.
    array: np.ndarray = np.ndarray(shape, dtype, buffer=block.memory, offset=block.start)
    weakref.finalize(array, _give_back, block).atexit = False
    return array


def empty_cache() -> None:
    """Give the free blocks back to the system.

    >>> empty_cache()
    """
    _keep_at_most(0)


def _aligned(raw: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.ndarray(shape, dtype, buffer=raw, offset=-raw.ctypes.data % _LINE)


def _take(size: int) -> _Block | None:
    """The smallest free block that holds ``size`` bytes and isn't more than twice as big."""
    for key, block in sorted(_free.copy().items(), key=lambda item: item[1].size):
        if size <= block.size <= 2 * size + _HUGE_PAGE and _free.pop(key, None) is not None:
            return block
    return None


def _new(size: int) -> _Block:
    # One of eight sizes between 2^n and 2^(n+1), so that outputs that vary a little from step to step fit the
    # same block. What an array leaves untouched of its block takes no memory.
    step = max(_HUGE_PAGE, 1 << (size.bit_length() - 4))
    size = -(-size // step) * step
    memory = _map(size + _HUGE_PAGE)
    address = np.ndarray(0, np.uint8, buffer=memory).ctypes.data
    return _Block(memory, -address % _HUGE_PAGE, size)


def _map(size: int) -> mmap.mmap:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        memory = mmap.mmap(-1, size, flags=flags)
    except OSError:
        empty_cache()
        try:
            memory = mmap.mmap(-1, size, flags=flags)
        except OSError as error:
            raise MemoryError(f"the system has no {size:,} bytes left for an array ({error})") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _give_back(block: _Block) -> None:
    if block.size <= _most_free:  # one that is larger goes back to the system at once
        _free[next(_serial)] = block
        _keep_at_most(_most_free)


def _keep_at_most(most: int) -> None:
    blocks = _free.copy()
    held = sum(block.size for block in blocks.values())
    for key, block in blocks.items():
        if held <= most:
            break
        _free.pop(key, None)
        held -= block.size


if hasattr(os, "register_at_fork"):
    # Writing to a block that the parent holds, too, would first copy it: a fresh one costs less.
    os.register_at_fork(after_in_child=_free.clear)
