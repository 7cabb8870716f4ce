"""Writing a file so that there is always a whole one: the old, or the new."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenspace.errors import OutputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a fresh path beside ``path`` to write to; on success it is synced and renamed to ``path``.

    On any failure, an interrupt included, the fresh file is removed and ``path`` is what it was.
    ``OutputError`` if the place can't be written.
    """
    from safetensors import SafetensorError

    check_writable(path)
    target = Path(path).resolve()  # through a link, so that the link stays one
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise OutputError(f"can't write {target}: {error.strerror}") from None
    fresh = Path(name)
    try:
        yield fresh
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        fresh.chmod(mode)
        fresh.replace(target)
        _sync_folder(target.parent)
    except OutputError:
        raise  # another file's, written while this one was
    except (OSError, SafetensorError) as error:  # the library's own error, for a full disk too, is no OSError
        reason = error.strerror if isinstance(error, OSError) else None
        raise OutputError(f"can't write {target}: {reason or error}") from None
    finally:
        fresh.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """``OutputError`` now rather than after an hour's work if a file can't be written at ``path``."""
    if not os.fspath(path):
        raise OutputError("no output was named; give a file's name")
    target = Path(path)
    try:
        kind = target.stat().st_mode
    except FileNotFoundError:
        kind = stat.S_IFREG
    except OSError as error:
        raise OutputError(f"can't write {target}: {error.strerror}") from None
    if stat.S_ISDIR(kind):
        raise OutputError(f"can't write {target}: it is a directory; name a file in it")
    if not stat.S_ISREG(kind):
        raise OutputError(f"can't write {target}: it is not a regular file")
    folder = target.resolve().parent  # through a link
    if not os.path.isdir(folder):
        raise OutputError(f"can't write {target}: there is no directory {folder}; make it first")
    try:
        tempfile.TemporaryFile(dir=folder).close()  # asking for permissions would not tell a full disk
    except OSError as error:
        raise OutputError(f"can't write {target}: {error.strerror}") from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
