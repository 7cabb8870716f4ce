"""Memory-mapped arrays: releasing pages that were read, and noticing that the file changed underneath.

A page of a mapped file that was cut off can't be read: the kernel ends the process with SIGBUS. A query
therefore looks at the file first (``check_unchanged``); one that is cut off during a query still ends it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Any, NamedTuple

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.shapes import Array

_SMALL = 1 << 27  # bytes; a smaller map may stay: reading it again costs more than it takes


class _File(NamedTuple):
    """A mapped file as it was when its array was first seen."""

    path: str
    device: int
    inode: int
    size: int
    modified: int  # nanoseconds


_watched: dict[int, tuple[weakref.ref[Any], _File]] = {}  # by the id of what holds the map


def watch(array: Array | None, path: str | os.PathLike[str] | None = None) -> None:
    """Remember the file under an array, if it is a memory map, for ``check_unchanged``. ``path`` is given
    where the map is not NumPy's own.
    """
    if array is None:
        return
    owner, found = _owner(array)
    path = found if path is None else path
    if owner is None or path is None or id(owner) in _watched:
        return
    try:
        status = os.stat(path)
    except OSError:
        return
    key = id(owner)
    file = _File(str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    _watched[key] = weakref.ref(owner, lambda _: _watched.pop(key, None)), file


def check_unchanged(*arrays: Array | None) -> None:
    """``TableFormatError`` if a file under one of the arrays was cut off or written to since ``watch``.

    A file that was replaced (renamed over, removed) is no fault: the map keeps the old one. Nor are changes
    through a map that can be written.
    """
    checked = set()
    for array in arrays:
        owner = None if array is None else _owner(array)[0]
        if id(owner) not in _watched or (file := _watched[id(owner)][1]) in checked:
            continue
        checked.add(file)
        by_path = _status(file)
        size = owner.size() if isinstance(owner, mmap.mmap) else by_path[0]  # whatever the path now names
        is_writable = isinstance(owner, mmap.mmap) and not memoryview(owner).readonly
        if size < file.size or (by_path != (file.size, file.modified) and not is_writable):
            what = (
                f"had {file.size:,} bytes and has {size:,}"
                if size != file.size
                else "has a new time of change"
            )
            raise TableFormatError(
                f"{file.path} changed after it was opened (it {what}); open it again, and replace a file "
                "that is in use by another of its name instead of writing into it"
            )


def _status(file: _File) -> tuple[int, int]:
    """Size and time of change of the file at its path; as they were, if another file or none is there."""
    try:
        status = os.stat(file.path)
    except OSError:
        return file.size, file.modified
    if (status.st_dev, status.st_ino) != (file.device, file.inode):
        return file.size, file.modified
    return status.st_size, status.st_mtime_ns


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
    owner = _owner(array)[0]
    return owner if isinstance(owner, mmap.mmap) and memoryview(owner).readonly else None


def _owner(array: Array) -> tuple[Any, Any]:
    """The object that holds an array's memory, None if that is an array; and the path of a NumPy map."""
    base: Any = array
    path = None
    while isinstance(base, np.ndarray):
        path = getattr(base, "filename", path)
        base = base.base
    return base, path
