"""Annotations are checked at every call in the tests, with shapes and without: see conftest.py."""

import numpy as np
import pytest

from tokenspace.geometry.cosine import norms
from tokenspace.geometry.projection import Projection
from tokenspace.vocab import Vocab


def test_types_are_checked():
    with pytest.raises(TypeError, match=r"parameter word=3 violates type hint <class 'str'>"):
        Vocab(["a"]).close(3)


def test_what_is_returned_is_checked(monkeypatch):
    vocab = Vocab(["a"])
    monkeypatch.setattr(vocab, "_first", {"a": "no number"})
    with pytest.raises(TypeError, match="return 'no number' violates"):
        vocab._lowest("a")


def test_shapes_are_checked():
    with pytest.raises(TypeError, match="Type-check error"):
        norms(np.ones(3, np.float32))


def test_what_a_dataclass_is_made_of_is_checked():
    with pytest.raises(TypeError, match="Type-check error"):
        Projection(np.ones(3, np.float32), "pca", 0, {}, (), {})
