"""Small files that would take gigabytes, or minutes, are read or refused for little."""

import inspect

import pytest

from . import bombs
from .peak import Loader

LOADED = {"npz_of_many_arrays", "gzip_and_padding", "fasttext_of_short_words"}
MEGABYTES = 200  # unpacked, where a bomb lets one choose: three times what a load of it may hold


@pytest.fixture(scope="module")
def loader():
    loader = Loader()
    yield loader
    loader.close()


@pytest.mark.slow
@pytest.mark.parametrize("make", bombs.BOMBS, ids=lambda make: make.__name__)
def test_a_small_file_takes_little_memory_and_time(make, loader, tmp_path):
    chosen = {"megabytes": MEGABYTES} if "megabytes" in inspect.signature(make).parameters else {}
    path = make(tmp_path, **chosen)
    files = [path] if path.is_file() else path.rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    size = max(size, bombs.UNPACKED.get(make.__name__, 0))
    cost = loader.cost(path)
    assert cost.said.startswith(
        "Table(" if make.__name__ in LOADED else ("TableFormatError", "CheckpointError")
    )
    assert "\n" not in cost.said
    assert cost.seconds < 50  # 5, and ten times that where others work
    assert cost.grown < 4 * size + (64 << 20), cost
