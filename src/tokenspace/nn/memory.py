"""Memory for the tensors that kernels return: torch's own, so that it can be resized, in huge pages, reused.

``torch.from_numpy`` makes a tensor whose storage can't be resized. FSDP, activation checkpointing, ``out=``
and the addition of sparse gradients resize the storages of outputs and gradients, so those are allocated by
torch.

Fresh memory costs more than a kernel needs to fill it (see ``tokenspace.kernels.memory``). So storages of a
megabyte and more are kept as *blocks*, up to the same number of bytes, and handed out again once nothing else
holds them: torch counts the holders of a storage. A block has exactly the bytes of its tensor, because
pickling, copying and sharing between processes treat a storage as a whole. A storage that was shared, resized
or seen by NumPy can't be handed out again, so the pool lets go of it: a shared one is an open file.

Nothing here takes a lock (``tokenspace.kernels.memory`` has the reasons). The thread that pops a block
from the dict owns it, and puts it back when it has looked at it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import mmap
import os
import sys
import weakref
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from tokenspace.kernels import memory as arrays_memory
from tokenspace.kernels.memory import SMALLEST_POOLED

_PAGE = mmap.PAGESIZE
_HUGE_PAGE = 2 << 20


class _Block(NamedTuple):
    storage: torch.UntypedStorage
    address: int
    size: int  # bytes

    def is_held(self) -> bool:
        """Return whether something besides the pool holds the storage, or its one Python object."""
        return (
            torch._C._storage_Use_Count(self.storage._cdata) != 1
            or sys.getrefcount(self.storage) != _REFERENCES
        )

    def is_as_made(self) -> bool:
        """Return whether the storage still has the memory that it was made with, and can be resized.

        Resizing it, or sharing it with another process, gives it other memory; ``Tensor.numpy`` marks it.
        """
        return not self.is_changed() and self.storage.data_ptr() == self.address

    def is_changed(self) -> bool:
        """Return whether the storage was shared, given to NumPy, or has another size.

        Unlike ``data_ptr``, this copies no memory that a lazy clone has, so held blocks can be asked.
        """
        storage = self.storage
        return storage.is_shared() or not storage.resizable() or storage.nbytes() != self.size


def _references_to_a_block() -> int:
    """Return what ``is_held`` counts where the pool alone holds a block."""

    class Counted(NamedTuple):
        storage: torch.UntypedStorage

        def references(self) -> int:
            return sys.getrefcount(self.storage)

    return Counted(torch.UntypedStorage(1, device="cpu")).references()


_REFERENCES = _references_to_a_block()
_blocks: dict[int, _Block] = {}  # the oldest first
_tensors: dict[int, weakref.ref[Tensor]] = {}  # by the same keys, as long as they live
_serial = itertools.count()


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return an uninitialized contiguous CPU tensor whose storage has its size and can be resized.

    >>> tensor = empty((3, 5), torch.float32)
    >>> tensor.shape, tensor.untyped_storage().nbytes(), tensor.untyped_storage().resizable()
    (torch.Size([3, 5]), 60, True)
    """
    size = math.prod(shape) * dtype.itemsize
    if not SMALLEST_POOLED <= size <= arrays_memory._most_free:
        return torch.empty(shape, dtype=dtype, device="cpu")
    block = _take(size) or _new(size)
    # No view of another tensor: autograd lets the caller change this tensor in place.
    tensor = torch.empty(0, dtype=dtype, device="cpu")
    tensor.set_(block.storage, 0, shape)  # type: ignore[call-overload]  # strides may be left out
    _keep(block, tensor)
    return tensor


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros, as `empty` allocates; `untouched_zeros` if there are more bytes than may be kept.

    >>> zeros((2, 2), torch.int64)
    tensor([[0, 0],
            [0, 0]])
    """
    if math.prod(shape) * dtype.itemsize > arrays_memory._most_free:
        return untouched_zeros(shape, dtype)
    return empty(shape, dtype).zero_()


def untouched_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros of which the system provides each page when it is first used, and the pool none.

    For a gradient of which a batch touches few rows, and for an optimizer's state.

    >>> untouched_zeros((2,), torch.float32)
    tensor([0., 0.])
    """
    tensor = torch.empty(shape, dtype=dtype, device="cpu")
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    first, last = -(-start // _PAGE) * _PAGE, end // _PAGE * _PAGE
    # A few thousand rows that lie apart would have all huge pages cleared.
    if tensor.nbytes < SMALLEST_POOLED or not (
        _advise(first, last - first, "MADV_NOHUGEPAGE") and _advise(first, last - first, "MADV_DONTNEED")
    ):
        return tensor.zero_()
    ctypes.memset(start, 0, first - start)
    ctypes.memset(last, 0, end - last)
    return tensor


def empty_cache() -> None:
    """Give the free blocks back to the system, and those of ``tokenspace.kernels.memory``.

    >>> empty_cache()
    """
    _drop_free(0)
    arrays_memory.empty_cache()


def _take(size: int) -> _Block | None:
    """Return a free block of ``size`` bytes, no longer in the pool."""
    for key, block in _blocks.copy().items():
        if key not in _tensors and block.storage.is_shared():
            _blocks.pop(key, None)
        elif block.size == size and not block.is_held() and _blocks.pop(key, None) is not None:
            if not block.is_as_made():
                continue
            if not block.is_held():
                return block
            _blocks[key] = block  # another thread took it in between
    return None


def _new(size: int) -> _Block:
    storage = torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()
    address = storage.data_ptr()
    first, last = -(-address // _HUGE_PAGE) * _HUGE_PAGE, (address + size) // _HUGE_PAGE * _HUGE_PAGE
    _advise(first, last - first, "MADV_HUGEPAGE")
    return _Block(storage, address, size)


def _keep(block: _Block, tensor: Tensor) -> None:
    """Put a block back while its tensor lives, unless that would keep more than may be kept."""
    _drop_free(arrays_memory._most_free - block.size)
    if sum(each.size for each in _blocks.copy().values()) + block.size <= arrays_memory._most_free:
        key = next(_serial)
        _blocks[key] = block
        _tensors[key] = weakref.ref(tensor, partial(_drop_changed, key))


def _drop_changed(key: int, tensor: object) -> None:
    """Drop the block of a tensor that is gone, if it can't be handed out again.

    A queue shares its tensors in a thread of its own, maybe after the last call of `empty`.
    """
    _tensors.pop(key, None)
    block = _blocks.get(key)
    if block is not None and block.is_changed():
        _blocks.pop(key, None)


def _drop_free(most: int) -> None:
    """Drop free blocks, the oldest first, until at most ``most`` bytes are kept."""
    blocks = _blocks.copy()
    kept = sum(block.size for block in blocks.values())
    for key, block in blocks.items():
        if kept <= most:
            break
        if not block.is_held() and _blocks.pop(key, None) is not None:
            kept -= block.size


def _advise(start: int, size: int, advice: str) -> bool:
    """Give the system advice on whole pages of memory; return whether it was taken."""
    if size <= 0 or _madvise is None or not hasattr(mmap, advice):
        return False
    return _madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), getattr(mmap, advice)) == 0


_madvise = None
with contextlib.suppress(OSError, TypeError, AttributeError):  # Windows
    _madvise = ctypes.CDLL(None).madvise

if hasattr(os, "register_at_fork"):
    # Writing to a block that the parent holds, too, would first copy it: a fresh one costs less.
    os.register_at_fork(after_in_child=_blocks.clear)
    os.register_at_fork(after_in_child=_tensors.clear)
