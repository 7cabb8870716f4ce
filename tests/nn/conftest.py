"""Here even the smallest input goes to the kernels, which these tests are about."""

import pytest

from tokenspace.nn import dispatch

INSTALLED = {
    name: getattr(dispatch, name)
    for name in ("KEPT_BYTES", "SUMMED_BYTES", "NORMED_BYTES", "DROPPED_NUMBERS")
}


@pytest.fixture(autouse=True, scope="module")
def kernels_for_every_input():
    with pytest.MonkeyPatch.context() as patch:
        for name in INSTALLED:
            patch.setattr(dispatch, name, -1)
        yield


@pytest.fixture
def as_installed(monkeypatch):
    """The thresholds that users have: what is small is done by torch's own operations."""
    for name, value in INSTALLED.items():
        monkeypatch.setattr(dispatch, name, value)
