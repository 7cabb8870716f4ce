"""Threads for compiled kernels: torch's where it has some, else one small pool.

A kernel releases the GIL and works on a range of the work, so plain Python threads run it on several cores.
numba's own ``prange`` is not used: its OpenMP layer kills a forked child once torch's OpenMP is alive, and
its workqueue layer aborts when two Python threads call at once.

Between two operations torch's OpenMP threads don't sleep: for some milliseconds they spin, waiting for the
next one. Threads of our own would have to share the cores with them, and a kernel of a millisecond would run
slower on two threads than on one. So where torch is loaded, with GNU's OpenMP as its wheels for Linux are,
the pieces are handed to those same threads. Not in a forked child, which has none of them.

Either way the caller works too. So a call makes progress however busy the threads are, calls may nest, one
thread needs no others at all, and Ctrl-C arrives where Python can see it: between two pieces of the caller's
work.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from tokenspace.errors import ShapeError

Body = Callable[[int, int], object]


def available() -> int:
    """How many threads this process may run at once (its CPU affinity, where the system tells)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share(body: Body, pieces: int, threads: int) -> None:
    """Call ``body(worker, piece)`` once for each piece ``0 … pieces-1``, on up to ``threads`` threads.

    Pieces are handed out in order, one at a time, to whichever worker is free; with one thread they simply
    run in order. No two running pieces share a ``worker`` (``0 … threads-1``), so it may index scratch
    memory. When a piece raises (or the caller is interrupted), no further piece starts; the running ones are
    waited for, and the first error is raised here.

    Handing out a piece takes about a microsecond, waking a helper some tens: pieces should take longer.

    >>> squares = [0] * 5
    >>> def square(worker, piece):
    ...     squares[piece] = piece**2
    >>> share(square, pieces=5, threads=2)
    >>> squares
    [0, 1, 4, 9, 16]
    """
    if threads < 1:
        raise ShapeError(f"threads must be at least 1, found {threads}; this machine offers {available()}")
    if min(threads, pieces) <= 1:
        for piece in range(pieces):
            body(0, piece)
        return
    job = _Job(body, pieces)
    (_run_on_pool if _openmp() is None else _run_on_openmp)(job, min(threads, pieces))
    if job.error is not None:
        raise job.error


def share_ranges(body: Body, cuts: list[int], threads: int) -> None:
    """Call ``body(start, stop)`` once for each range between two ``cuts``, on up to ``threads`` threads."""
    if len(cuts) == 2:
        body(*cuts)
    else:
        share(lambda _, k: body(cuts[k], cuts[k + 1]), len(cuts) - 1, threads)


def cut(count: int, numbers: int) -> list[int]:
    """Cut ``count`` things that hold ``numbers`` numbers in all into ranges of work, equal but for rounding.

    The cuts depend on nothing else, least of all on the number of threads: sums over a range have the same
    bits on any machine. A range has at least some 30,000 numbers, which take longer than waking a thread; and
    there are at most 64, which keep as many threads busy.

    >>> cut(8, 1_000), cut(8, 100_000)
    ([0, 8], [0, 2, 5, 8])
    """
    pieces = max(1, min(64, count, numbers >> 15))
    return [count * k // pieces for k in range(pieces + 1)]


def _run_on_pool(job: _Job, workers: int) -> None:
    for worker in range(1, workers):
        _pool.submit(job, worker)
    try:
        job.work(worker=0)
    finally:
        job.finish()


def _run_on_openmp(job: _Job, workers: int) -> None:
    numbers = itertools.count()
    region = _REGION(lambda _: job.work(next(numbers)))
    try:
        _openmp().GOMP_parallel(region, None, workers, 0)  # returns when all have left
        job.work(worker=0)  # nothing, unless Ctrl-C hit before the caller's own work had begun
    finally:
        job.finish()


_REGION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _openmp() -> Any:
    """The OpenMP library that torch has loaded, or None; looked for until it is there."""
    global _library
    if _library is None and not _forked and "torch" in sys.modules:
        program = ctypes.CDLL(None) if os.name == "posix" else None
        _library = program if hasattr(program, "GOMP_parallel") else False
    return _library or None


_library: Any = None  # False if torch has another
_forked = False


class _Job:
    """The pieces of one call: which are left, how many helpers are at them, and the first error."""

    def __init__(self, body: Body, pieces: int) -> None:
        self._body: Body | None = body
        self._next = 0
        self._pieces = pieces
        self._helping = 0
        # Taken as a plain lock, not through the condition: between a plain lock and the block that it guards
        # there is no Python code, so Ctrl-C can't leave it taken.
        self._lock = threading.Lock()
        self._helped = threading.Condition(self._lock)
        self.error: BaseException | None = None

    def help(self, worker: int) -> None:
        """Work as a helper does, who may come when all is done, and counts until it has left."""
        with self._lock:
            if self._next >= self._pieces:
                return
            self._helping += 1
        self.work(worker)
        with self._lock:
            self._helping -= 1
            if self._helping == 0:
                self._helped.notify()

    def work(self, worker: int) -> None:
        """Run pieces until none is left. Errors are kept, for the caller's thread to raise."""
        try:
            while (piece := self._start()) is not None:
                self._body(worker, piece)  # type: ignore[misc]  # None only when no piece is left
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the caller's thread
            with self._lock:
                self._next = self._pieces
                self.error = self.error or error

    def finish(self) -> None:
        """Start nothing more, and wait until no helper runs anything."""
        with self._lock:
            self._next = self._pieces
        try:
            self._wait_for_helpers()
        except BaseException:  # Ctrl-C while waiting: the helpers still write to the caller's arrays
            self._wait_for_helpers()
            raise
        self._body = None  # the job may wait in the pool yet, and must keep no array of the caller alive

    def _wait_for_helpers(self) -> None:
        if self._helping:  # nobody new comes: no piece is left
            with self._helped:
                self._helped.wait_for(lambda: self._helping == 0)

    def _start(self) -> int | None:
        with self._lock:
            if self._next >= self._pieces:
                return None
            self._next += 1
            return self._next - 1


class _Pool:
    """Daemon threads that wait for jobs; started when first needed, as many as were ever asked for."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[_Job, int]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._growing = threading.Lock()

    def submit(self, job: _Job, worker: int) -> None:
        with self._growing:
            if len(self._threads) < worker:
                name = f"tokenspace-{worker}"
                thread = threading.Thread(target=self._serve, args=(self._waiting,), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        self._waiting.put((job, worker))

    @staticmethod
    def _serve(waiting: SimpleQueue[tuple[_Job, int]]) -> None:
        while True:
            job, worker = waiting.get()
            job.help(worker)
            del job  # with its error, whose traceback refers to the caller's arrays


def _start_afresh() -> None:
    """A forked child has none of its parent's threads, and locks in any state."""
    global _pool, _library, _forked
    _pool, _library, _forked = _Pool(), None, True


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
