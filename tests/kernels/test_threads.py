"""The pool: every piece once, errors raised in the caller, and the three ways in which a pool often fails."""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tokenspace.errors import ShapeError
from tokenspace.kernels import threads


def run_in_subprocess(code: str, timeout: float = 60) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=timeout
    )


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
    used = set()

    def body(worker, piece):
        assert busy[worker].acquire(blocking=False)
        used.add(worker)
        time.sleep(0.002)
        busy[worker].release()

    threads.share(body, 100, threads=4)
    assert used == {0, 1, 2, 3}


@pytest.mark.parametrize("raising", ["caller", "helper"])
def test_an_error_stops_the_rest_and_is_raised_by_the_call(raising):
    ran = []

    def body(worker, piece):
        ran.append(piece)
        time.sleep(0.002)
        if (worker == 0) == (raising == "caller"):
            raise ValueError(raising)

    with pytest.raises(ValueError, match=raising):
        threads.share(body, 1000, threads=2)
    assert len(ran) < 10
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


def test_zero_threads_are_refused():
    with pytest.raises(ShapeError, match="at least 1, found 0"):
        threads.share(lambda worker, piece: None, 1, threads=0)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works_while_torchs_openmp_is_alive():
    done = run_in_subprocess(
        """
        import os, time, warnings
        import numpy as np, numba, torch
        from tokenspace.kernels.threads import share
        warnings.simplefilter("ignore")

        @numba.njit(nogil=True)
        def fill(out, piece):
            for n in range(out.shape[1]):
                out[piece, n] = piece

        def work():
            out = np.full((64, 10_000), -1.0)
            workers = set()

            def body(worker, piece):
                fill(out, piece)
                workers.add(worker)
                time.sleep(0.002)

            share(body, 64, threads=4)
            assert (out == np.arange(64.0)[:, None]).all()
            assert len(workers) > 1  # helpers run in the child, too, rather than the caller alone

        torch.set_num_threads(2)
        torch.randn(512, 512) @ torch.randn(512, 512)  # OpenMP's threads start
        work()                                         # and ours
        child = os.fork()
        if child == 0:
            work()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        work()
        torch.randn(512, 512) @ torch.randn(512, 512)
        """
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_the_call_soon_and_leaves_no_helper_running():
    done = run_in_subprocess(
        """
        import os, signal, threading, time
        from tokenspace.kernels.threads import share
        running = [False, False]

        def body(worker, piece):
            running[worker] = True
            time.sleep(0.02)
            running[worker] = False

        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        began = time.monotonic()
        try:
            share(body, 10_000, threads=2)
        except KeyboardInterrupt:
            assert time.monotonic() - began < 2
            assert running[1] is False
            raise SystemExit(5)
        """
    )
    assert done.returncode == 5, done.stderr
