"""Writing a file, or a folder, so that there is always a whole one: the old, or the new.

What is written lies beside its place in a folder of its own, ``.name.xxxxxxxx.partial``, until it is whole
and on the disk; then it takes its name in one step. That folder is locked while its writer lives. One without
a lock was left by a process that was killed: the next who writes to the same place removes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tokenspace.errors import OutputError
from tokenspace.shown import shown

try:
    import fcntl
except ImportError:  # Windows: what a killed process left stays
    _fcntl: ModuleType | None = None
else:
    _fcntl = fcntl

_RANDOM = re.compile("[a-z0-9_]{8}")  # tempfile's
_LONGEST_NAME = 255 - len("..xxxxxxxx.partial")  # bytes


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a fresh path beside ``path`` to write to; on success it is synced and renamed to ``path``.

    On any failure, an interrupt included, what was written is removed and ``path`` is what it was; but for
    that of ``sync_name``. ``OutputError`` if the place can't be written.
    """
    check_writable(path)
    target = Path(path).resolve()  # through a link, so that the link stays one
    with _told(target), _partial(target) as fresh:
        fresh.touch()
        mode = fresh.stat().st_mode & 0o777  # safetensors puts a file of another mode there
        yield fresh
        with contextlib.suppress(FileNotFoundError):
            mode = target.stat().st_mode & 0o777
        fresh.chmod(mode)
        _sync(fresh)
        fresh.replace(target)
        sync_name(target)


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a fresh, empty folder to write files in; on success all of it is synced and renamed to ``path``.

    No system renames a folder over one that holds files, so there may be none: ``OutputError`` names it, as
    it names a place that can't be written. On any failure what was written is removed.
    """
    check_folder_free(path)
    target = Path(path).resolve()
    with _told(target), _partial(target) as fresh:
        fresh.mkdir()
        mode = fresh.stat().st_mode & 0o666
        yield fresh
        for folder, _, names in os.walk(fresh):
            for file in (Path(folder, name) for name in names):
                file.chmod(mode)
                _sync(file)
            _sync(Path(folder))
        check_folder_free(target)  # another process may have been first
        fresh.replace(target)
        sync_name(target)


def check_folder_free(path: str | os.PathLike[str]) -> None:
    """``OutputError`` now if ``replacing_folder`` can't write at ``path``: an empty folder may be there."""
    if not os.fspath(path):
        raise OutputError("no output was named; give a folder's name")
    target = Path(path)
    try:
        is_folder = target.is_dir()
        free = not any(target.iterdir()) if is_folder else not os.path.lexists(target)
    except OSError as error:
        raise OutputError(f"can't write {target}: {error.strerror}") from None
    if not free:
        what = "a folder that holds files can't be replaced in one step" if is_folder else "it is no folder"
        raise OutputError(f"can't write {target}: {what}; name another, or remove it first")
    _check_parent(target)


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
    _check_parent(target)


def _check_parent(target: Path) -> None:
    folder = target.resolve().parent  # through a link
    if not os.path.isdir(folder):
        raise OutputError(f"can't write {target}: there is no directory {folder}; make it first")
    try:
        tempfile.TemporaryFile(dir=folder).close()  # asking for permissions would not tell a full disk
    except FileNotFoundError:  # of the file: the folder is there
        raise OutputError(f"can't write {target}: no file can be made in {folder}") from None
    except OSError as error:
        raise OutputError(f"can't write {target}: {error.strerror}") from None


@contextmanager
def _told(target: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except OutputError:
        raise  # another file's, written while this one was
    except (OSError, SafetensorError) as error:  # the library's own error, for a full disk too, is no OSError
        reason = error.strerror if isinstance(error, OSError) else None
        raise OutputError(f"can't write {target}: {reason or error}") from None


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A path for ``target`` in a locked folder beside it, which is removed at the end with all that is in it.

    A folder, since who writes a file may himself put another in its place (safetensors does), and a lock
    would stay with the old one.
    """
    name = target.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    prefix = f".{name}."
    _remove_abandoned(target.parent, prefix)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=target.parent))
        with _locked(folder, wait=True) as mine:
            if mine:  # no other took it for abandoned before it was locked
                try:
                    yield folder / target.name
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                return


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the partial folders of this ``prefix`` whose writers are dead."""
    if _fcntl is None:
        return
    with os.scandir(parent) as entries:
        found = [Path(entry) for entry in entries if _is_partial(entry.name, prefix)]
    for folder in found:
        with _locked(folder, wait=False) as dead:
            if dead:
                shutil.rmtree(folder, ignore_errors=True)


def _is_partial(name: str, prefix: str) -> bool:
    if not (name.startswith(prefix) and name.endswith(".partial")):
        return False
    between = name.removeprefix(prefix).removesuffix(".partial")  # of "a.b", not of "a", if a dot is in it
    return _RANDOM.fullmatch(between) is not None


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[bool]:
    """Whether ``folder`` is there and is locked for this alone, other threads included."""
    if _fcntl is None:
        yield True
        return
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:  # a file or a link, too
        if wait and not isinstance(error, FileNotFoundError):
            raise
        yield False
        return
    try:
        yield _lock(_fcntl, handle, wait) and _is_at(handle, folder)
    finally:
        os.close(handle)


def _lock(fcntl: ModuleType, handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nothing can be told dead there
        return wait
    return True


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.lstat())
    except FileNotFoundError:
        return False


def sync_name(target: Path) -> None:
    """Have the disk hold the name that ``target`` has just got.

    ``OutputError`` if it can't: the file is there by then, and the message says so. A file system that syncs
    no folders is left alone.
    """
    try:
        _sync(target.parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOTSUP):
            return
        raise OutputError(
            f"{shown(str(target))} is written, but may be lost in a power cut: the folder can't be synced "
            f"({error.strerror or error}); check the disk"
        ) from None


def _sync(path: Path) -> None:
    """Have the disk hold what was written; of a folder, the names in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
