"""The one decorator of the compiled functions: ``@kernel``.

It is numba's ``njit`` with the project's choices. The GIL is released, so that ``threads.share`` runs
kernels on several cores. Division by zero gives what IEEE 754 says, as NumPy does. The machine code is kept
for later processes in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__``, else in the user's cache
folder. Where none of them can be written, the functions work all the same and each process compiles anew.

Compiling takes seconds, so the first one in a process says so on stderr. Loading machine code is silent.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile ``function`` at its first call with each combination of argument types.

    ``options`` are numba's: ``fastmath={"reassoc", "contract"}`` where the order of a sum is free (never
    ``fastmath=True``: NaN and infinity must survive), ``inline="always"`` for a piece of other kernels.

    >>> @kernel
    ... def half(x):
    ...     return x / 2
    >>> half(3)
    1.5
    """
    if function is None:
        return functools.partial(kernel, **options)
    try:
        return numba.njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # no folder to keep the machine code in can be written
        return numba.njit(**_OPTIONS, **options)(function)


class _Note(event.Listener):
    """Explains the wait when a function of this package is compiled; says nothing of anyone else's."""

    said = False

    def on_start(self, event: event.Event) -> None:
        if self.said or sys.stderr is None:
            return
        if event.data["dispatcher"].py_func.__module__.startswith("tokenspace.kernels."):
            sys.stderr.write("tokenspace: compiling its kernels for this CPU, once; they are kept\n")
            self.said = True

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Note())
