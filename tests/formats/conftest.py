"""The fuzz's modules import each other by name, as a program's do: they are no tests. The hub's stand-in."""

import pytest

from . import hub_stand_in

collect_ignore = ["fuzz_seeds.py", "fuzzing.py", "mutations.py"]


@pytest.fixture(scope="module")
def _hub():
    stand_in = hub_stand_in.Hub()
    yield stand_in
    stand_in.server.shutdown()
    stand_in.server.server_close()


@pytest.fixture
def stand_in(_hub):
    _hub.repositories.clear()
    _hub.asked.clear()
    _hub.read.clear()
    return _hub


@pytest.fixture
def fetch(stand_in, tmp_path):
    """``fetch(name, files)``: what the stand-in's repository ``org/name`` of ``files`` gives."""
    from tokenspace.formats import hub

    from_hub = hub.fetch

    def fetch(name="hf:org/name", files=None):
        if files is not None:
            stand_in.repositories["org/name"] = files
        return from_hub(name, stand_in.address, tmp_path / "cache")

    return fetch
