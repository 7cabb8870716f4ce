"""A folder that one process at a time works in."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from tokenspace.errors import OutputError
from tokenspace.shown import shown

try:
    import fcntl
except ImportError:  # Windows: two processes are then not told apart
    _fcntl: ModuleType | None = None
else:
    _fcntl = fcntl


def made_folder(folder: Path) -> bool:
    """Whether the folder had to be made."""
    try:
        folder.mkdir()
    except FileExistsError:
        if folder.is_dir():
            return False
        raise OutputError(
            f"can't make the folder {shown(str(folder))}: a file has that name; choose another output"
        ) from None
    except OSError as error:
        raise OutputError(f"can't make the folder {shown(str(folder))}: {error.strerror}") from None
    return True


def locked(folder: Path, name: str) -> int:
    """A handle on the lock, held until it is closed. It is this folder's own: another run may remove both."""
    path = folder / name
    for _ in range(100):
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(f"can't write {shown(str(path))}: {error.strerror}") from None
        try:
            _lock(handle)
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise OutputError(
                f"another process is at the run in {shown(str(folder))}; "
                "wait for it, or choose another output"
            ) from None
        except FileNotFoundError:
            pass
        os.close(handle)
        made_folder(folder)
    raise OutputError(f"other processes keep removing {shown(str(folder))}; choose another output")


def _lock(handle: int) -> None:
    """``BlockingIOError`` if another process has the lock."""
    if _fcntl is None:
        return
    try:
        _fcntl.flock(handle, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks, as some that lie on other machines
        pass
