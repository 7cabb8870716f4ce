"""The pool: every piece once, errors raised in the caller, and Ctrl-C."""

import textwrap
import threading
import time
import weakref

import pytest
import torch  # noqa: F401 - its threads are the ones to work on

from tokenspace.errors import ShapeError
from tokenspace.kernels import threads


@pytest.fixture(params=["pool", "openmp"], autouse=True)
def whose_threads(request, monkeypatch):
    """Every test of this process twice: on threads of our own, and on torch's. Others choose as users' do."""
    if request.param == "pool":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip("torch has no GNU OpenMP here")
    return request.param


@pytest.fixture
def run(forks, whose_threads):
    """``run(code)``: how it ends in a process of its own, which has torch if torch's threads are to work.

    It loads ``threads`` itself: in a fork of a process that has, torch's threads are never used.
    """
    loads_torch = "import torch; " * (whose_threads == "openmp")
    started = forks(f"{loads_torch}import numba; numba.njit(lambda: 0)()")
    return lambda code: started.run("-c", textwrap.dedent(code))


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("pieces", [0, 1, 3, 200])
def test_every_piece_runs_once(pieces, workers):
    ran = []
    threads.share(lambda worker, piece: ran.append(piece), pieces, workers)
    assert sorted(ran) == list(range(pieces))


def test_one_thread_runs_the_pieces_in_order_in_the_callers_thread():
    ran = []
    threads.share(lambda worker, piece: ran.append((piece, threading.get_ident())), 50, threads=1)
    assert ran == [(piece, threading.get_ident()) for piece in range(50)]


def test_no_two_running_pieces_share_a_worker():
    busy = [threading.Lock() for _ in range(4)]
    used, all_here = set(), threading.Barrier(4)

    def body(worker, piece):
        assert busy[worker].acquire(blocking=False)
        if worker not in used:
            used.add(worker)
            all_here.wait(timeout=60)  # however long a busy machine takes to start the others
        time.sleep(0.0005)
        busy[worker].release()

    threads.share(body, 400, threads=4)
    assert used == {0, 1, 2, 3}


@pytest.mark.parametrize("raising", ["caller", "helper"])
def test_an_error_stops_the_rest_and_is_raised_by_the_call(raising):
    ran = []
    caller = threading.get_ident()

    def body(worker, piece):
        ran.append(piece)
        time.sleep(0.002)
        if (threading.get_ident() == caller) == (raising == "caller"):
            raise ValueError(raising)

    with pytest.raises(ValueError, match=raising):
        threads.share(body, 1000, threads=2)
    assert len(ran) < 500  # how soon the other thread is woken is the system's choice
    threads.share(lambda worker, piece: None, 10, threads=2)  # the pool is whole after it


def test_calls_nest():
    ran = []

    def outer(worker, piece):
        threads.share(lambda _, inner: ran.append((piece, inner)), 3, threads=2)

    threads.share(outer, 4, threads=2)
    assert sorted(ran) == [(outer, inner) for outer in range(4) for inner in range(3)]


def test_two_python_threads_may_call_at_once():
    results: dict[int, list[int]] = {0: [], 1: []}

    def call(which):
        for _ in range(50):
            threads.share(lambda _, piece: results[which].append(piece), 20, threads=3)

    callers = [threading.Thread(target=call, args=(which,)) for which in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    assert all(sorted(ran) == sorted(list(range(20)) * 50) for ran in results.values())


def test_both_errors_at_once_raise_the_first():
    helper_is_running, helper_has_failed = threading.Event(), threading.Event()

    def body(worker, piece):
        if worker == 0:
            assert helper_is_running.wait(timeout=30)
            assert helper_has_failed.wait(timeout=30)
            time.sleep(0.05)
            raise ValueError("the second")
        helper_is_running.set()
        try:
            raise ValueError("the first")
        finally:
            helper_has_failed.set()

    with pytest.raises(ValueError, match="the first"):
        threads.share(body, 2, threads=2)


def test_a_call_that_is_over_keeps_nothing_alive_though_its_helper_never_came():
    release = threading.Event()
    occupied = threading.Barrier(2, timeout=30)

    def occupy(worker, piece):
        if worker == 0:
            occupied.wait()
            try:
                kept_while_the_helper_is_busy()
            finally:
                release.set()
        else:
            occupied.wait()
            assert release.wait(timeout=30)

    def kept_while_the_helper_is_busy():
        class Body:
            def __call__(self, worker, piece):
                assert worker == 0

        body = Body()
        watched = weakref.ref(body)
        threads.share(body, 5, threads=2)
        del body
        assert watched() is None

    pool, threads._pool = threads._pool, threads._Pool()  # with exactly one helper
    try:
        threads.share(occupy, 2, threads=2)
    finally:
        threads._pool = pool


def test_zero_threads_are_refused():
    with pytest.raises(ShapeError, match="at least 1, found 0"):
        threads.share(lambda worker, piece: None, 1, threads=0)


def test_ctrl_c_ends_the_call_soon_and_leaves_no_helper_running(run):
    done = run(
        """
        import os, signal, threading, time
        from tokenspace.kernels.threads import share
        caller = threading.get_ident()  # with OpenMP any number may be the caller's
        helping = False

        def body(worker, piece):
            global helping
            if threading.get_ident() == caller:
                time.sleep(0.02)
                return
            helping = True
            time.sleep(0.02)
            helping = False

        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        began = time.monotonic()
        try:
            share(body, 10_000, threads=2)
        except KeyboardInterrupt:
            assert time.monotonic() - began < 2
            assert helping is False
            raise SystemExit(5)
        """
    )
    assert done.returncode == 5, done.stderr


def test_ctrl_c_while_waiting_for_a_helper_waits_until_it_is_done(run):
    done = run(
        """
        import os, signal, threading, time
        from tokenspace.kernels.threads import share
        caller = threading.get_ident()  # with OpenMP any number may be the caller's
        helping = False
        came = threading.Event()

        def body(worker, piece):
            global helping
            if threading.get_ident() == caller:
                assert came.wait(timeout=30)
                return
            helping = True
            came.set()
            time.sleep(1)
            helping = False

        threading.Timer(0.4, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            share(body, 2, threads=2)
        except KeyboardInterrupt:
            assert helping is False
            raise SystemExit(5)
        """
    )
    assert done.returncode == 5, done.stderr
