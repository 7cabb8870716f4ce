"""The wait for the compiler at a kernel's first call on a machine, explained while it lasts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def explained(kernel: str) -> Iterator[None]:
    """Say on stderr that ``kernel`` is being compiled, if it is; loading it from numba's cache is silent.

    Wrap the kernel's first call, with no work to do, in it. numba keeps the result for later processes in
    ``__pycache__``, or where ``NUMBA_CACHE_DIR`` says.

    >>> with explained("skip-gram"):
    ...     pass  # nothing is compiled: nothing is said
    """
    from numba.core import event

    class Note(event.Listener):
        said = False

        def on_start(self, event: event.Event) -> None:
            if not self.said and sys.stderr is not None:
                sys.stderr.write(f"compiling the {kernel} kernel, once\n")
                self.said = True

        def on_end(self, event: event.Event) -> None:
            pass

    with event.install_listener("numba:compile", Note()):
        yield
