"""The one decorator of the compiled functions: ``@kernel``.

It is numba's ``njit`` with the project's choices. The GIL is released, so that ``threads.share`` runs
kernels on several cores. Division by zero gives what IEEE 754 says, as NumPy does. The machine code is kept
for later processes in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__``, else in the user's cache
folder. Where none of them can be written, the functions work all the same and each process compiles anew.

Compiling takes seconds, so the first one in a process says so on stderr. Loading machine code is silent.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import importlib.util
import pickle
import re
import sys
import uuid
from collections.abc import Callable
from importlib.abc import InspectLoader
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.serialize import dumps

_ROOM = "tokenspace.kernels"
_DIGEST = 32  # bytes of a SHA-256


def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile ``function`` at its first call with each combination of argument types.

    ``options`` are numba's: ``fastmath={"reassoc", "contract"}`` where the order of a sum is free (never
    ``fastmath=True``: NaN and infinity must survive), ``inline="always"`` for a piece of other kernels. Only
    the code of this package's kernels is kept in a folder.

    >>> @kernel
    ... def half(x):
    ...     return x / 2
    >>> half(3)
    1.5
    """
    if function is None:
        return functools.partial(kernel, **options)
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
    if _is_ours(function):
        with contextlib.suppress(RuntimeError):  # no folder to keep the machine code in can be written
            dispatcher._cache = _KeptCode(function)
    return dispatcher


def _is_ours(function: Callable[..., Any]) -> bool:
    return str(function.__module__).startswith(f"{_ROOM}.")  # None for what exec made


class _KeptCode(FunctionCache):
    """numba's cache of one function, with three of its gaps closed.

    numba compiles a function anew when the function's own file has changed. The machine code also holds what
    the function calls, so here it is all modules of kernels that its module imports, directly or not. When
    the folder can't be read or written after all (a full disk), the price is to compile again. And so it is
    for a file that a crash has cut, or that has changed since: numba would run whatever bytes it holds.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CheckedFiles(
            self._cache_path, self._impl.filename_base, _sources_digest(function.__module__)
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except OSError:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class _CheckedFiles(IndexDataCacheFile):
    """The files of one function's machine code, one for each combination of argument types.

    A file is two SHA-256 digests and a pickle: the digest of what the code was compiled from and for, and the
    digest of the pickle. Neither a file that is out of date nor one that is damaged is ever unpickled.
    """

    def __init__(self, folder: str, base: str, sources: str) -> None:
        self._folder, self._base, self._sources = Path(folder), base, sources

    def load(self, key: Any) -> Any:
        """Return what was saved for ``key``; None if nothing was, or it can't be used any more."""
        path, made_for = self._place(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        head, data = content[: 2 * _DIGEST], content[2 * _DIGEST :]
        if head[_DIGEST:] != hashlib.sha256(data).digest():
            _note.say("again: what was kept of them is damaged")
            return None
        return pickle.loads(data) if head[:_DIGEST] == made_for else None

    def save(self, key: Any, data: Any) -> None:
        """Replace what was saved for ``key``."""
        path, made_for = self._place(key)
        pickled = dumps(data)
        fresh = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex[:16]}")
        try:
            fresh.write_bytes(made_for + hashlib.sha256(pickled).digest() + pickled)
            fresh.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise

    def flush(self) -> None:
        """Remove all that was saved."""
        for path in self._folder.glob(f"{glob.escape(self._base)}.*.nbc"):
            path.unlink(missing_ok=True)

    def _place(self, key: Any) -> tuple[Path, bytes]:
        """Return the file of ``key``, and the digest of what its code is compiled from and for."""
        name = hashlib.sha256(repr(key).encode()).hexdigest()
        made_for = f"{numba.__version__} {self._sources} {name}"
        return self._folder / f"{self._base}.{name[:16]}.nbc", hashlib.sha256(made_for.encode()).digest()


@functools.cache
def _sources_digest(module: str) -> str:
    digest, waiting, known = hashlib.sha256(), [module], {module}
    while waiting:
        source = _source(waiting.pop())
        digest.update(source.encode())
        imported = sorted({f"{_ROOM}.{name}" for name in _imports(source)} - known)
        waiting += imported
        known |= set(imported)
    return digest.hexdigest()


def _source(module: str) -> str:
    """The text of a module, wherever Python finds it (a zip file, too); empty if it's none or has no text."""
    spec = importlib.util.find_spec(module)
    if spec is None or not isinstance(spec.loader, InspectLoader):
        return ""
    return spec.loader.get_source(module) or ""


def _imports(source: str) -> list[str]:
    """The modules of this room that ``source`` imports; too many names do no harm."""
    room = re.escape(_ROOM)
    lists = re.findall(rf"from {room} import (\([^)]*\)|.*)", source)
    return re.findall(rf"\b{room}\.(\w+)", source) + re.findall(r"\w+", " ".join(lists))


class _Note(event.Listener):
    """Explains the wait when a function of this room is compiled; says nothing of anyone else's."""

    said = False

    def on_start(self, event: event.Event) -> None:
        dispatcher = event.data["dispatcher"]
        if not _is_ours(dispatcher.py_func):
            return
        if dispatcher.stats.cache_path is None:
            self.say("in each process: numba finds no folder to keep them in (set NUMBA_CACHE_DIR)")
        else:
            self.say("once")

    def say(self, how: str) -> None:
        """Say on stderr, once in a process, how kernels are compiled."""
        if self.said or sys.stderr is None:
            return
        self.said = True
        with contextlib.suppress(OSError):  # nobody reads it any more
            sys.stderr.write(f"tokenspace: compiling its kernels, {how}\n")

    def on_end(self, event: event.Event) -> None:
        pass


_note = _Note()
event.register("numba:compile", _note)
