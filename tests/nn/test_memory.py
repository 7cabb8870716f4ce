"""The storages of outputs and gradients are reused once nothing else holds them, and never before."""

import contextlib
import gc
import os
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tokenspace.kernels import memory as arrays_memory
from tokenspace.nn import TokenEmbedding, memory

SHAPE = (1000, 512)
REFERENCES = {
    "tensor": lambda tensor: tensor,
    "view": lambda tensor: tensor[1:, 3],
    "other dtype": lambda tensor: tensor.view(-1).view(torch.int32)[5:],
    "detached": lambda tensor: tensor.requires_grad_().detach()[:1],
    "parameter": torch.nn.Parameter,
    "NumPy": lambda tensor: tensor[1:].numpy().T[:5],
    "dlpack": lambda tensor: np.from_dlpack(tensor[2:]),
    "capsule": torch.utils.dlpack.to_dlpack,
    "storage": lambda tensor: tensor.untyped_storage(),
    "saved for backward": lambda tensor: (torch.ones(SHAPE, requires_grad=True) * tensor).sum(),
    "lazy clone": lambda tensor: tensor._lazy_clone(),
}


@pytest.fixture(autouse=True)
def no_blocks():
    memory.empty_cache()
    yield
    memory.empty_cache()


@pytest.mark.parametrize("make", REFERENCES.values(), ids=REFERENCES)
def test_a_block_waits_for_the_last_reference(make):
    tensor = memory.empty(SHAPE, torch.float32).fill_(7)
    place, reference = tensor.data_ptr(), make(tensor)
    del tensor
    gc.collect()
    others = [memory.empty(SHAPE, torch.float32).fill_(1) for _ in range(3)]
    if make is not REFERENCES["lazy clone"]:  # the clone takes the memory along
        assert place not in [other.data_ptr() for other in others]
    if isinstance(reference, torch.Tensor) and reference.ndim:
        assert (reference.detach().reshape(-1).contiguous().view(torch.float32) == 7).all()


@pytest.mark.parametrize(
    "name", [name for name in REFERENCES if name not in ("NumPy", "dlpack", "storage", "lazy clone")]
)
def test_a_block_waits_for_references_that_python_does_not_count(name, monkeypatch):
    """Torch may hold a storage without a reference to its Python object: the use count alone says so."""
    counts = SimpleNamespace(getrefcount=lambda storage: memory._REFERENCES)
    monkeypatch.setattr(memory, "sys", counts)
    test_a_block_waits_for_the_last_reference(REFERENCES[name])


def test_a_block_is_reused_once_its_tensors_are_gone():
    tensor = memory.empty(SHAPE, torch.float32)
    place = tensor.data_ptr()
    del tensor
    assert memory.empty(SHAPE, torch.float32).data_ptr() == place
    assert memory.empty((512, 2000), torch.bfloat16).data_ptr() == place


CHANGES = {
    "resized": lambda tensor: tensor.resize_(2000, 512),
    "emptied": lambda tensor: tensor.untyped_storage().resize_(0),
    "shared": lambda tensor: tensor.share_memory_(),
    "seen by NumPy": lambda tensor: tensor.numpy(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_storage_is_not_handed_out_again(change):
    tensor = memory.empty(SHAPE, torch.float32)
    change(tensor)
    del tensor
    again = memory.empty(SHAPE, torch.float32).fill_(1)
    assert again.untyped_storage().resizable()
    assert not again.is_shared()
    assert again.untyped_storage().nbytes() == again.nbytes


def open_shared_files():
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum("torch_" in link for link in links)


HOLDERS = {
    "the tensor": lambda tensor: tensor,
    "its storage": lambda tensor: tensor.untyped_storage(),
    "a view": lambda tensor: tensor[1:],
    "a detached tensor": lambda tensor: tensor.detach(),
    "a parameter": torch.nn.Parameter,
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_shared_outputs_that_are_gone_leave_no_open_file(holder):
    embedding, before = TokenEmbedding(100, 256), open_shared_files()
    with torch.no_grad():
        for n in range(10):
            tensor = embedding(torch.randint(100, (1300 + n,)))
            held = holder(tensor)
            del tensor
            (held.share_memory_ if isinstance(held, torch.Tensor) else held._share_fd_cpu_)()
            del held
    gc.collect()
    if holder is HOLDERS["the tensor"]:
        assert open_shared_files() == before
    memory.empty((1 << 20,), torch.uint8)
    assert open_shared_files() == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_outputs_sent_through_a_queue_leave_no_open_file():
    context = torch.multiprocessing.get_context("spawn")
    queue, embedding, before = context.Queue(), TokenEmbedding(100, 256), open_shared_files()
    with torch.no_grad():
        for n in range(5):
            queue.put(embedding(torch.randint(100, (1300 + n,))))
    for n in range(5):
        assert queue.get().shape == (1300 + n, 256)
    queue.close()
    queue.join_thread()
    gc.collect()
    assert open_shared_files() == before


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_storage_leaves_the_pool_with_its_tensor(change):
    tensor = memory.empty(SHAPE, torch.float32)
    change(tensor)
    del tensor
    assert not memory._blocks
    assert not memory._tensors


def test_a_storage_has_the_bytes_of_its_tensor():
    for size in (10, 1 << 18, (1 << 18) + 1, 1 << 20):
        tensor = memory.empty((size,), torch.float32)
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
        assert not tensor._is_view()


def test_kept_blocks_are_bounded_and_the_oldest_free_one_goes_first(monkeypatch):
    monkeypatch.setattr(arrays_memory, "_most_free", 10 << 20)
    tensors = [memory.empty((4 << 20,), torch.uint8) for _ in range(4)]
    places = [tensor.data_ptr() for tensor in tensors]
    assert sum(block.size for block in memory._blocks.values()) == 8 << 20
    tensors.clear()
    other = memory.empty((5 << 20,), torch.uint8)
    assert [block.address for block in memory._blocks.values()] == [places[1], other.data_ptr()]


@pytest.mark.parametrize("most_free", [1 << 20, 1 << 30], ids=["past the bound", "from the pool"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_zeros_are_zero_in_memory_that_was_used(most_free, dtype, monkeypatch):
    monkeypatch.setattr(arrays_memory, "_most_free", most_free)
    for _ in range(3):
        zeros = memory.zeros((1 << 20, 3), dtype)
        assert not zeros.any()
        zeros.fill_(1)
        del zeros
    assert not memory.untouched_zeros((1 << 20, 3), dtype).any()


def test_threads_never_share_a_block():
    failures = []
    gc.freeze()  # what pytest holds is not looked through at each collection

    def work(number):
        for n in range(200):
            tensor = memory.empty((1 << 20,), torch.uint8)
            tensor.fill_(number)
            if n % 7 == 0:
                gc.collect()
            if not (tensor == number).all():
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.unfreeze()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_without_blocks():
    tensor = memory.empty(SHAPE, torch.float32)
    assert memory._blocks
    child = os.fork()
    if child == 0:
        os._exit(len(memory._blocks))
    assert os.waitpid(child, 0)[1] == 0
    del tensor


def test_a_layers_outputs_and_gradients_come_from_blocks():
    embedding, ids = TokenEmbedding(5000, 64), torch.randint(5000, (8000,))
    places = set()
    for _ in range(3):
        embedding.weight.grad = None
        y = embedding(ids)
        y.sum().backward()
        places |= {y.data_ptr(), embedding.weight.grad.data_ptr()}
        del y
    assert len(places) == 2
