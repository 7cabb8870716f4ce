"""Bad ids: what stops where nobody reads the ids back, and what raises where they are read."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tokenspace.errors import TokenIdError
from tokenspace.ids import checked_ids
from tokenspace.nn.ids import check_ids, check_labels

DEVICE = os.environ.get("TOKENSPACE_TEST_DEVICE", "cuda")  # as in conftest.py, for a module's fixture
ROWS = 5
SETUP = """
import sys, torch
from tokenspace.nn import LMHead, LearnedPositionalEmbedding, TokenEmbedding, TransformerInput
device = sys.argv[1]
token = TokenEmbedding(5, 4, device=device)
layer = TransformerInput(token, position=LearnedPositionalEmbedding(3, 4, device=device))
head, hidden = LMHead(token), torch.zeros(1, 2, 4, device=device)
def ids(*values):
    return torch.tensor([values], device=device)
"""
STOPPED = {
    "too large": "token(ids(1, 5))",
    "negative": "token(ids(-1, 2))",
    "compiled": "torch.compile(token)(ids(1, 5))",
    "compiled, negative": "torch.compile(token)(ids(1, -1))",
    "in a whole input": "layer(ids(1, 5))",
    "position": "layer(ids(1, 2), position_ids=ids(0, 3))",
    "row-sparse backward": "token.sparse = True; token(ids(1, 7)).sum().backward()",
    "label": "head.loss(hidden, ids(1, 5))",
    "negative label": "head.loss(hidden, ids(-1, 2))",
    "label, unchunked": "head.loss(hidden, ids(1, 5), chunked=False)",
}


@pytest.fixture(scope="module")
def run(request):
    """``run(code)``: how it ends in a process of its own; on a GPU no fork, which may not use one."""
    if DEVICE == "cpu":
        forks = request.getfixturevalue("torch_forks")
        return lambda code: forks.run("-c", SETUP + code, DEVICE)
    command = [sys.executable, "-c"]
    return lambda code: subprocess.run([*command, SETUP + code, DEVICE], capture_output=True, check=False)


@pytest.fixture(scope="module")
def stopped(run):
    """How each bad call ended: a device assertion leaves its process no GPU."""

    def end(call):
        return run(f"{call}\nif device == 'cuda': torch.cuda.synchronize()\nprint('went on')")

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(STOPPED, pool.map(end, STOPPED.values()), strict=True))


@pytest.mark.parametrize("name", STOPPED)
def test_a_bad_id_stops_the_program(name, device, stopped):
    result = stopped[name]
    assert result.returncode != 0
    assert b"went on" not in result.stdout
    expected = "device-side assert" if device == "cuda" else "TokenIdError"
    assert expected in result.stderr.decode()


def test_good_ids_stop_nothing(device, run):
    done = run("layer(ids(1, 4)); head.loss(hidden, ids(0, -100)).backward(); print('went on')")
    assert done.returncode == 0
    assert b"went on" in done.stdout


def test_asked_to_wait_it_raises_what_the_cpu_raises(device):
    ids = torch.tensor([[1, 4], [7, 0]], device=device)
    with pytest.raises(TokenIdError) as error:
        check_ids(ids, ROWS, synchronize=True)
    with pytest.raises(TokenIdError) as theirs:
        checked_ids(np.array([[1, 4], [7, 0]]), ROWS)
    assert str(error.value) == str(theirs.value)
    assert torch.equal(check_ids(ids.clamp(max=4), ROWS, synchronize=True), ids.clamp(max=4))


def test_nothing_is_read_back_unless_asked(device, no_waiting):
    ids = torch.ones(2, 2, dtype=torch.int64, device=device)
    with no_waiting():
        assert check_ids(ids, ROWS) is ids
        check_labels(ids, ROWS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_types_are_checked_all_the_same(dtype, device):
    with pytest.raises(TokenIdError, match="token ids must be integers"):
        check_ids(torch.ones(2, dtype=dtype, device=device), ROWS)
