"""Work that takes longer than a request should: done once, one at a time, in a thread, and polled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from tokenspace.errors import TokenspaceError

Progress = Callable[[int, int], None]
_WAITING = 8  # jobs that may wait: each is a click on the page


class Running(NamedTuple):
    """A job that is not done; ``fraction`` of it is, where that is known."""

    fraction: float | None


class _Job:
    def __init__(self, compute: Callable[[Progress], Any]):
        self.compute = compute
        self.finished = threading.Event()
        self.fraction: float | None = None
        self.asked = time.monotonic()
        self.result: Any = None
        self.error: BaseException | None = None

    def progress(self, done: int, total: int) -> None:
        self.fraction = done / total if total else None


class Jobs:
    """Results by key: the first who asks starts the work, and the ``kept`` last asked for stay.

    >>> jobs = Jobs()
    >>> jobs.result("sum", lambda progress: 1 + 1, wait=10)
    2
    """

    def __init__(self, kept: int = 16):
        self._kept = kept
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, _Job] = {}  # the last asked for comes last
        self._waiting: dict[Hashable, _Job] = {}
        self._working = False

    def result(self, key: Hashable, compute: Callable[[Progress], Any], wait: float = 0.3) -> Any | Running:
        """What ``compute`` gives, if it does within ``wait`` seconds; what it raises is raised here, once.

        The job that was asked for last is the next to run. ``TokenspaceError`` if too many wait.
        """
        with self._lock:
            job = self._jobs.pop(key, None)
            if job is None:
                if len(self._waiting) >= _WAITING:
                    raise TokenspaceError("too many projections and clusterings wait already; try again")
                job = self._waiting[key] = _Job(compute)
            job.asked = time.monotonic()
            self._jobs[key] = job
            self._forget_oldest()
            if self._waiting and not self._working:
                self._working = True
                threading.Thread(target=self._work, name="tokenspace jobs", daemon=True).start()
        if not job.finished.wait(wait):
            return Running(job.fraction)
        if job.error is not None:
            with self._lock:
                self._jobs.pop(key, None)
            raise job.error
        return job.result

    def done(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """For a job that needs another's result: the one there is, or made here and kept."""
        with self._lock:
            job = self._jobs.get(key)
        if job is not None and job.finished.is_set() and job.error is None:
            return job.result
        made = _Job(lambda progress: None)
        made.result = compute()
        made.finished.set()
        with self._lock:
            self._waiting.pop(key, None)
            self._jobs.pop(key, None)
            self._jobs[key] = made
        if job is not None:  # whoever waits for it gets the same
            job.result = made.result
            job.finished.set()
        return made.result

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working = False
                    return
                key = max(self._waiting, key=lambda key: self._waiting[key].asked)
                job = self._waiting.pop(key)
            try:
                job.result = job.compute(job.progress)
            except BaseException as error:  # noqa: BLE001  whatever it is, who asks must learn of it
                job.error = error
            job.finished.set()

    def _forget_oldest(self) -> None:
        old = [key for key, job in self._jobs.items() if job.finished.is_set()]
        for key in old[: max(0, len(old) - self._kept)]:
            del self._jobs[key]
