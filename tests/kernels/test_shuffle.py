"""The compiled shuffle is NumPy's, bit for bit."""

import numpy as np
import pytest

from tokenspace.kernels.shuffle import shuffle


@pytest.mark.parametrize("drawn", [0, 1, 2], ids="{} numbers drawn before".format)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 64, 65, 1000, 300_000])
def test_it_is_numpys(size, drawn):
    ours, theirs = np.arange(size, dtype=np.int32), np.arange(size, dtype=np.int32)
    for items, shuffled in ((ours, shuffle), (theirs, lambda items, rng: rng.shuffle(items))):
        rng = np.random.default_rng(size)
        rng.random(drawn, np.float32)  # each takes half of a random word
        shuffled(items, rng)
    np.testing.assert_array_equal(ours, theirs)
