"""Loads jaxtyping before tokenspace, so that every annotated shape is checked at every call in the tests."""

from jaxtyping import install_import_hook

ROOMS = ("formats", "geometry", "ids", "initializers", "models", "reference", "table", "tokenizer", "vocab")
install_import_hook([f"tokenspace.{room}" for room in ROOMS], "beartype.beartype")  # numba compiles kernels itself

import numpy as np  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
