"""One small pool of threads for compiled kernels.

A kernel is ``njit(nogil=True)`` over a range of its work, so plain Python threads run it on several cores.
numba's own ``prange`` is not used: its OpenMP layer kills a forked child once torch's OpenMP is alive, and
its workqueue layer aborts when two Python threads call at once.

The caller works too, as worker 0. So a call makes progress however busy the pool is, calls may nest, one
thread needs no pool at all, and Ctrl-C arrives where Python can see it: between two pieces of the caller's
work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from tokenspace.errors import ShapeError

Body = Callable[[int, int], None]


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

    >>> squares = [0] * 5
    >>> def square(worker, piece):
    ...     squares[piece] = piece**2
    >>> share(square, pieces=5, threads=2)
    >>> squares
    [0, 1, 4, 9, 16]
    """
    if threads < 1:
        raise ShapeError(f"threads must be at least 1, found {threads}; this machine offers {available()}")
    job = _Job(body, pieces)
    for worker in range(1, min(threads, pieces)):
        _pool.submit(job, worker)
    try:
        job.work(worker=0)
    finally:
        job.finish()
    if job.error is not None:
        raise job.error


class _Job:
    """The pieces of one call: which are left, how many helpers run now, and the first error."""

    def __init__(self, body: Body, pieces: int) -> None:
        self._body = body
        self._next = 0
        self._pieces = pieces
        # Pieces that helpers run now. The caller's own isn't counted: Ctrl-C could hit before it counts down.
        self._helping = 0
        self._changed = threading.Condition()
        self.error: BaseException | None = None

    def work(self, worker: int) -> None:
        """Run pieces until none is left. Errors of helper threads are kept for the caller."""
        while (piece := self._start(worker)) is not None:
            try:
                self._body(worker, piece)
            except BaseException as error:  # noqa: BLE001 - it is raised again, in the caller's thread
                self._stop(error)
            finally:
                self._end(worker)

    def finish(self) -> None:
        """Start nothing more, and wait for what other threads are running."""
        with self._changed:
            self._next = self._pieces
            self._changed.wait_for(lambda: self._helping == 0)

    def _start(self, worker: int) -> int | None:
        with self._changed:
            if self._next >= self._pieces:
                return None
            self._next += 1
            self._helping += worker > 0
            return self._next - 1

    def _end(self, worker: int) -> None:
        with self._changed:
            self._helping -= worker > 0
            if self._helping == 0:
                self._changed.notify_all()

    def _stop(self, error: BaseException) -> None:
        with self._changed:
            self._next = self._pieces
            self.error = self.error or error


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
            job.work(worker)
            del job  # a waiting thread keeps no caller's arrays alive


def _start_afresh() -> None:
    """A forked child has none of its parent's threads, and locks in any state."""
    global _pool
    _pool = _Pool()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
