"""The kernels' helpers and torch's own threads: each works beside the other, and after a fork."""

import os
import textwrap

import pytest

# A torch whose OpenMP threads are alive, a product that needs them, and a kernel shared with helpers.
BESIDE_TORCH = """
    import os, threading, time, warnings
    import numpy as np, numba, torch
    from tokenspace.kernels.threads import share
    warnings.simplefilter("ignore")  # about fork beside threads, which is what is tested

    @numba.njit(nogil=True)
    def fill(out, piece):
        for n in range(out.shape[1]):
            out[piece, n] = piece * 0.5

    fill(np.zeros((1, 1)), 0)  # compiled now: a child forked while numba compiles would wait for its lock

    def work(threads=4):
        out, workers = np.full((64, 10_000), -1.0), set()

        def body(worker, piece):
            fill(out, piece)
            workers.add(worker)
            time.sleep(0.001)

        share(body, 64, threads)
        assert (out == np.arange(64.0)[:, None] * 0.5).all()
        assert len(workers) > 1  # helpers ran, rather than the caller alone

    torch.set_num_threads(2)
    torch.manual_seed(0)
    left, right = torch.randn(512, 512), torch.randn(512, 512)
    product = left @ right
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture
def run_beside_torch(forks):
    """Runs code in a process of its own, which loads ``threads`` itself, see test_threads.py."""
    started = forks("import torch; import numba; numba.njit(lambda: 0)()")

    def run(code):
        done = started.run("-c", textwrap.dedent(BESIDE_TORCH) + textwrap.dedent(code))
        assert (done.returncode, done.stderr) == (0, b"")

    return run


def test_torchs_products_keep_their_bits_before_between_and_after(run_beside_torch):
    run_beside_torch(
        """
        for _ in range(3):
            work()
            assert torch.equal(left @ right, product)
        assert torch.get_num_threads() == 2
        """
    )


def test_helpers_run_in_a_torch_of_one_thread_and_leave_it_at_one(run_beside_torch):
    run_beside_torch(
        """
        torch.set_num_threads(1)
        one = left @ right
        work()
        assert torch.get_num_threads() == 1
        assert torch.equal(left @ right, one)
        """
    )


def test_torch_runs_in_the_main_thread_while_another_shares_work(run_beside_torch):
    run_beside_torch(
        """
        other = threading.Thread(target=lambda: [work() for _ in range(5)])
        other.start()
        while other.is_alive():
            assert torch.equal(left @ right, product)
        """
    )


def test_backward_passes_of_two_python_threads_share_work_at_once(run_beside_torch):
    run_beside_torch(
        """
        class Half(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x / 2

            @staticmethod
            def backward(ctx, d_out):
                work()
                return d_out / 2

        gradients = []

        def train():
            for _ in range(5):
                x = torch.ones(3, requires_grad=True)
                Half.apply(x).sum().backward()
                gradients.append(x.grad.tolist())

        callers = [threading.Thread(target=train) for _ in range(2)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert gradients == [[0.5] * 3] * 10
        """
    )


@needs_fork
def test_a_forked_child_works_while_torchs_openmp_is_alive(run_beside_torch):
    run_beside_torch(
        """
        work()
        child = os.fork()
        if child == 0:
            work()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        work()
        assert torch.equal(left @ right, product)
        """
    )


@needs_fork
def test_a_child_forked_in_the_middle_of_another_threads_call_works(run_beside_torch):
    run_beside_torch(
        """
        other = threading.Thread(target=lambda: [work() for _ in range(10)])
        other.start()
        time.sleep(0.02)
        for _ in range(5):
            child = os.fork()
            if child == 0:
                work()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        other.join()
        """
    )


@needs_fork
def test_a_data_loaders_workers_share_work(run_beside_torch):
    run_beside_torch(
        """
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, n):
                work()
                return n

        work()
        loader = torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context="fork")
        assert sorted(int(n) for n in loader) == list(range(8))
        assert torch.equal(left @ right, product)
        """
    )
