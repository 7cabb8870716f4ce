"""The layer on a GPU, where no kernel of ours runs, against the NumPy truth or the CPU.

make test-gpu                                  # where there is CUDA; elsewhere all of it is skipped
TOKENSPACE_TEST_DEVICE=cpu pytest tests/gpu    # the same on a CPU, so that the tests are known to run
"""

import contextlib
import os
from pathlib import Path

import pytest
import torch

from tokenspace.nn import torch_only

DEVICE = os.environ.get("TOKENSPACE_TEST_DEVICE", "cuda")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("gpu")
            item.add_marker(pytest.mark.filterwarnings("default"))  # a GPU's own warnings depend on the GPU
            if DEVICE == "cuda" and not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture
def device():
    """Where the modules live: "cuda", or what TOKENSPACE_TEST_DEVICE says. On a CPU, kernels are off too."""
    torch.manual_seed(0)
    with contextlib.nullcontext() if DEVICE == "cuda" else torch_only():
        yield DEVICE


@pytest.fixture
def no_waiting(device):
    """``with no_waiting():`` makes an error of what makes the CPU wait for the GPU; on a CPU nothing does."""

    @contextlib.contextmanager
    def block():
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("default")

    return block


@pytest.fixture
def compiled():
    """torch.compile in one graph, nothing kept of what was compiled before."""
    torch.compiler.reset()
    return lambda called: torch.compile(called, fullgraph=True)
