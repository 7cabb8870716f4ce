"""Here even the smallest input goes to the kernels, which these tests are about."""

import pytest

from tokenspace.nn import ops


@pytest.fixture(autouse=True, scope="module")
def kernels_for_every_input():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "SMALL_INPUT", -1)
        yield
