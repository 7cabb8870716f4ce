"""A block is used again exactly when nothing refers to it any more, in whatever way something did."""

import gc
import mmap
import os
import subprocess
import sys
import textwrap
import threading

import ml_dtypes
import numpy as np
import pytest

from tokenspace.kernels import memory

MB = 1 << 20

needs_blocks = pytest.mark.skipif(
    not hasattr(mmap, "MAP_ANONYMOUS"), reason="this system maps no private memory, so nothing is pooled"
)


@pytest.fixture(autouse=True)
def no_block_lies_free():
    memory.empty_cache()
    yield
    memory.empty_cache()


def free_bytes() -> int:
    return sum(block.size for block in memory._free.values())


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64], ids=str)
@pytest.mark.parametrize(
    "shape", [(), (0,), (0, 7), (7, 0), (1,), (3, 5), (300, 1001), (5_000, 1, 333)], ids=str
)
def test_arrays_are_aligned_contiguous_and_writable(shape, dtype):
    array = memory.empty(shape, dtype)
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address(array) % 64 == 0 or not array.size
    array[...] = 3
    assert (array == 3).all()


def test_a_negative_size_is_numpys_error():
    with pytest.raises(ValueError, match="negative"):
        memory.empty((-1, 3), np.float32)


@needs_blocks
def test_a_block_is_used_again_by_arrays_of_about_its_size():
    first = memory.empty((5, MB), np.float32)
    place = address(first)
    del first
    assert address(memory.empty((5 * MB - 1000,), np.float32)) == place
    assert address(memory.empty((11 * MB,), np.uint8)) == place
    assert address(memory.empty((20 * MB + 1,), np.int8)) != place  # too small
    assert address(memory.empty((8 * MB,), np.int8)) != place  # more than twice as big, and 2 MiB
    assert len(memory._free) == 3


@needs_blocks
def test_the_smallest_block_that_fits_is_taken():
    small, large = memory.empty((4 * MB,), np.uint8), memory.empty((6 * MB,), np.uint8)
    small_place = address(small)
    del large, small
    assert address(memory.empty((4 * MB,), np.uint8)) == small_place


@needs_blocks
def test_small_arrays_take_no_block():
    del [memory.empty((MB - 1,), np.uint8)][0]
    assert free_bytes() == 0


REFERENCES = {
    "view": lambda array: array[1:, 3],
    "view of a view": lambda array: array.T[2:].view(np.uint32)[:, ::-1],
    "other dtype": lambda array: array.view(np.uint8).reshape(-1)[-4:],
    "memoryview": lambda array: memoryview(array)[1:],
    "array of a memoryview": lambda array: np.asarray(memoryview(array))[0],
    "subclass": lambda array: array.view(np.matrix)[1:],
    "cycle": lambda array: (cycle := [array[:1]], cycle.append(cycle)),
}
TENSORS = {
    "tensor": lambda tensor: tensor,
    "view": lambda tensor: tensor[1:, 3],
    "other dtype": lambda tensor: tensor.view(-1).view(tensor.dtype)[5:],
    "detached": lambda tensor: tensor.requires_grad_().detach()[:1],
    "back in NumPy": lambda tensor: tensor[1:].numpy().T[:5],
    "dlpack": lambda tensor: np.from_dlpack(tensor[2:]),
    "storage": lambda tensor: tensor.untyped_storage(),
}


def assert_kept(make_reference):
    """The block is out of reach while the reference lives, and free right after."""
    array = memory.empty((1000, 512), np.float32)
    place = address(array)
    reference = make_reference(array)
    del array
    gc.collect()
    assert free_bytes() == 0
    assert address(memory.empty((1000, 512), np.float32)) != place
    memory.empty_cache()
    del reference
    gc.collect()
    assert address(memory.empty((1000, 512), np.float32)) == place


@needs_blocks
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("make_reference", REFERENCES.values(), ids=REFERENCES)
def test_an_arrays_block_waits_for_the_last(make_reference):
    assert_kept(make_reference)


@needs_blocks
@pytest.mark.parametrize("make_reference", TENSORS.values(), ids=TENSORS)
def test_a_tensors_block_waits_for_the_last(make_reference):
    torch = pytest.importorskip("torch")
    assert_kept(lambda array: make_reference(torch.from_numpy(array)))
    assert_kept(lambda array: make_reference(torch.from_numpy(array[:, :])))


@needs_blocks
def test_a_gradient_graph_keeps_the_block_that_it_saved():
    torch = pytest.importorskip("torch")
    array = memory.empty((MB,), np.float32)
    array[:] = np.arange(MB)
    weight = torch.ones(MB, requires_grad=True)
    loss = (weight * torch.from_numpy(array)).sum()
    del array
    memory.empty((MB,), np.float32).fill(-1)
    loss.backward(retain_graph=True)
    np.testing.assert_array_equal(weight.grad, np.arange(MB, dtype=np.float32))
    assert free_bytes() == 4 * MB
    del loss
    assert free_bytes() == 8 * MB


@needs_blocks
def test_what_lies_free_is_bounded_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(memory, "_most_free", 10 * MB)
    arrays = [memory.empty((4 * MB,), np.uint8) for _ in range(4)]
    places = [address(array) for array in arrays]
    del arrays[0], arrays[0]
    assert free_bytes() == 8 * MB
    arrays.clear()
    assert free_bytes() == 8 * MB
    again = [memory.empty((4 * MB,), np.uint8) for _ in range(2)]
    assert {address(array) for array in again} == set(places[2:])


@needs_blocks
def test_a_block_beyond_the_bound_is_never_kept(monkeypatch):
    monkeypatch.setattr(memory, "_most_free", 5 * MB)
    kept = memory.empty((4 * MB,), np.uint8)
    del kept
    large = memory.empty((20 * MB,), np.uint8)
    del large
    assert free_bytes() == 4 * MB  # it pushed nothing out, either


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_empty_cache_gives_the_memory_back():
    array = memory.empty((64 * MB,), np.uint8)
    array.fill(1)
    before = resident()
    del array
    assert resident() > before - 2 * MB
    memory.empty_cache()
    assert resident() < before - 60 * MB


@pytest.mark.skipif(
    not os.path.exists("/sys/kernel/mm/transparent_hugepage"), reason="a kernel without huge pages"
)
def test_blocks_ask_for_huge_pages_and_start_on_one():
    array = memory.empty((5 * MB,), np.uint8)
    assert address(array) % (2 * MB) == 0
    with open("/proc/self/smaps") as file:
        for line in file:
            first, _, last = line.split()[0].partition("-")
            if last:
                inside = int(first, 16) <= address(array) < int(last, 16)
            elif line.startswith("VmFlags") and inside:
                assert "hg" in line.split()
                return
    raise AssertionError("the block isn't in smaps")


def hammer(seed: int, rounds: int, failures: list) -> None:
    """Make and drop arrays at random; each holds its own number, which must still be there at its end."""
    rng = np.random.default_rng(seed)
    alive: list[tuple[int, np.ndarray]] = []
    for n in range(rounds):
        number = 2 * n + seed
        array = memory.empty((int(rng.integers(MB // 16, MB)), 8), np.uint16)
        array[:: rng.integers(1, 1000)] = 0  # different parts are touched
        array[:, :2] = number
        alive.append((number, array[rng.integers(2) :]))
        del array
        while len(alive) > rng.integers(5):
            number, view = alive.pop(rng.integers(len(alive)))
            if not (view[:, :2] == number).all():
                failures.append(number)
            for _, other in alive:
                if np.may_share_memory(view, other):
                    failures.append(number)


@pytest.mark.parametrize("most_free", [0, 20 * MB, 1 << 30])
def test_live_arrays_never_share_memory(most_free, monkeypatch):
    monkeypatch.setattr(memory, "_most_free", most_free)
    failures: list[int] = []
    hammer(0, 150, failures)
    assert not failures
    assert free_bytes() <= most_free


def test_two_threads_hammer_it(monkeypatch):
    monkeypatch.setattr(memory, "_most_free", 20 * MB)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    failures: list[int] = []
    try:
        workers = [threading.Thread(target=hammer, args=(seed, 100, failures)) for seed in (0, 1)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(timeout=120)
    finally:
        sys.setswitchinterval(interval)
    assert not any(worker.is_alive() for worker in workers)
    assert not failures
    assert free_bytes() <= 20 * MB


@needs_blocks
def test_arrays_that_the_garbage_collector_frees_while_blocks_are_taken():
    class Holder:
        def __del__(self):  # an allocation inside an allocation
            memory.empty((MB,), np.uint8)

    thresholds = gc.get_threshold()
    gc.set_threshold(1)  # it runs all the time, also inside `empty`
    try:
        for n in range(200):
            holder = Holder()
            holder.itself, holder.array = holder, memory.empty((MB + n,), np.uint8)
            del holder
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert memory._free  # and nothing hung, or failed inside a destructor (pytest turns that into an error)


def run_in_subprocess(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_parent_and_child_share_no_block():
    run_in_subprocess(
        """
        import os
        import numpy as np
        from tokenspace.kernels import memory
        alive, waiting = memory.empty((1 << 22,), np.uint8), memory.empty((1 << 22,), np.uint8)
        alive.fill(1)
        waiting.fill(1)
        del waiting
        child = os.fork()
        if child == 0:
            assert (alive == 1).all() and not memory._free
            for _ in range(3):
                memory.empty((1 << 22,), np.uint8).fill(2)
            alive.fill(2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (alive == 1).all()
        assert (memory.empty((1 << 22,), np.uint8) == 1).all()
        """
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
def test_free_blocks_go_before_memory_runs_out():
    run_in_subprocess(
        """
        import resource
        import numpy as np
        from tokenspace.kernels import memory
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (200 << 20),) * 2)
        del [memory.empty((120 << 20,), np.uint8)][0]
        memory._most_free = 1 << 30
        del [memory.empty((120 << 20,), np.uint8)][0]
        assert memory._free
        memory.empty((180 << 20,), np.uint8).fill(1)
        try:
            memory.empty((300 << 20,), np.uint8)
        except MemoryError as error:
            assert "no 3" in str(error), error
        else:
            raise SystemExit(1)
        """
    )


def test_arrays_that_outlive_the_program_keep_their_blocks_to_the_end():
    run_in_subprocess(
        """
        import atexit
        @atexit.register  # called last
        def check():
            memory.empty((1 << 22,), np.uint8).fill(2)
            assert (kept == 1).all()

        import numpy as np
        from tokenspace.kernels import memory
        kept = memory.empty((1 << 22,), np.uint8)
        kept.fill(1)
        """
    )


def test_without_private_mappings_arrays_are_numpys_own(monkeypatch):
    monkeypatch.delattr(mmap, "MAP_ANONYMOUS", raising=False)
    array = memory.empty((4 * MB,), np.uint8)
    assert address(array) % 64 == 0
    array.fill(1)
    del array
    assert free_bytes() == 0


@needs_blocks
def test_without_huge_pages_blocks_are_used_again_all_the_same(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    place = address(memory.empty((4 * MB,), np.uint8))
    assert address(memory.empty((4 * MB,), np.uint8)) == place


def test_the_bound_follows_the_machine(monkeypatch):
    page = 4096
    for machine, bound in (((8 << 30), 512 * MB), ((1 << 40), 1024 * MB)):
        monkeypatch.setattr(
            os, "sysconf", {"SC_PHYS_PAGES": machine // page, "SC_PAGE_SIZE": page}.__getitem__, raising=False
        )
        assert memory._limit() == bound
    monkeypatch.delattr(os, "sysconf")
    assert memory._limit() == 256 * MB
