"""The wait for the compiler is short, said, and paid once."""

import os
import subprocess
import sys

import pytest

# What a process does before it is timed, and then the first call of the kernel, as `call`.
FIRST_CALLS = {
    "skipgram": """
from tokenspace.kernels import skipgram
corpus = skipgram.Corpus(np.zeros(2, np.int32), np.array([0, 2]))
draws = skipgram.draws(np.array([2]), 1e-3, 5, np.random.default_rng(0))
model = skipgram.Model(skipgram.padded(np.zeros((1, 100))), skipgram.padded(np.zeros((1, 100))))
scratch = skipgram.scratch(100, 5, 5)
call = lambda: skipgram.train_sentences(
    0, 0, corpus, model, draws, np.float32(0), np.uint64(1), scratch
)
""",
}
TIMED = """
import time
import numba
import numpy as np
{setup}
numba.njit(lambda: 0)()  # numba's own first use, which imports scipy where it is installed
began = time.process_time()  # a busy machine doesn't count
call()
print(time.process_time() - began)
"""


def first_call(kernel: str, cache) -> tuple[float, str]:
    """Seconds and stderr of the first call in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(setup=FIRST_CALLS[kernel])],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kernel", FIRST_CALLS)
def test_a_kernel_compiles_once_with_a_note_and_loads_fast_afterwards(kernel, tmp_path):
    seconds, said = first_call(kernel, tmp_path)
    assert said == "tokenspace: compiling its kernels, once\n"
    assert seconds <= 5
    loads = [first_call(kernel, tmp_path) for _ in range(3)]
    assert {said for _, said in loads} == {""}
    assert min(seconds for seconds, _ in loads) <= 0.3
