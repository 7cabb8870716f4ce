"""The wait for the compiler is short, said, and paid once."""

import os
import subprocess
import sys
import textwrap

import pytest

FIRST_CALL = """
    import time
    import numba
    from tokenspace.kernels import skipgram as kernel
    import numpy as np
        corpus = kernel.Corpus(np.zeros(2, np.int32), np.array([0, 2]))
    draws = kernel.draws(np.array([2]), 1e-3, 5, np.random.default_rng(0))
    model = kernel.Model(kernel.padded(np.zeros((1, 100))), kernel.padded(np.zeros((1, 100))))
    scratch = kernel.scratch(100, 5, 5)
    numba.njit(lambda: 0)()  # numba's own first use, which imports scipy where it is installed
    began = time.process_time()  # a busy machine doesn't count
    kernel.train_sentences(0, 0, corpus, model, draws, np.float32(0), np.uint64(1), scratch)
    print(time.process_time() - began)
"""


def first_call(cache) -> tuple[float, str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FIRST_CALL)],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout), done.stderr


@pytest.mark.slow
def test_the_skipgram_kernel_compiles_once_with_a_note_and_loads_fast_afterwards(tmp_path):
    seconds, said = first_call(tmp_path)
    assert said == "tokenspace: compiling its kernels for this CPU, once; they are kept\n"
    assert seconds <= 5
    loads = [first_call(tmp_path) for _ in range(5)]
    assert {said for _, said in loads} == {""}
    assert min(seconds for seconds, _ in loads) <= 0.3
