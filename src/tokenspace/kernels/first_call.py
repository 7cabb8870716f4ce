"""The wait at a kernel's first call on a machine, explained while it lasts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGER_THAN_A_CACHED_LOAD = 0.6  # seconds


@contextmanager
def explained(kernel: str) -> Iterator[None]:
    """Say on stderr that ``kernel`` is being compiled, if the body takes longer than loading from the cache.

    Wrap the kernel's first call, with no work to do, in it. numba keeps the result for later processes in
    ``__pycache__`` (or ``NUMBA_CACHE_DIR``).

    >>> with explained("skip-gram"):
    ...     pass  # fast: nothing is said
    """
    note = threading.Timer(
        _LONGER_THAN_A_CACHED_LOAD, sys.stderr.write, [f"compiling the {kernel} kernel, once\n"]
    )
    note.daemon = True
    note.start()
    try:
        yield
    finally:
        note.cancel()
