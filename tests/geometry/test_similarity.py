import numpy as np
import pytest
import torch

from tokenspace.errors import ShapeError, VocabError
from tokenspace.geometry import cosine, similarities, similarity
from tokenspace.table import Table
from tokenspace.vocab import Vocab


def test_two_words_of_a_real_table(minilm):
    result = similarity(minilm, "king", "kings")
    assert round(result.cosine, 3) == 0.690
    assert (result.a, result.b) == (("king",), ("kings",))


def test_pieces_are_shown(minilm):
    result = similarity(minilm, "unhappiness", "happiness")
    assert result.a == ("un", "##ha", "##pp", "##iness")
    assert result.b == ("happiness",)
    mean = sum(minilm[piece] for piece in result.a) / 4
    assert result.cosine == pytest.approx(cosine(mean, minilm["happiness"]), abs=1e-6)


def test_a_word_that_can_not_be_composed(minilm):
    with pytest.raises(VocabError):
        similarity(minilm, "king", "\N{NAZAR AMULET}")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_with_each_is_torchs(rng, count, dtype):
    weight = rng.normal(size=(7, 5)).astype(dtype)
    weight[2] = 0
    words = [*"abcdefg"][:count]
    found = similarities(Table(weight, Vocab([*"abcdefg"])), words)
    rows = torch.from_numpy(weight[:count].astype(np.float64))
    assert found.words == tuple(words)
    assert found.pieces == tuple((word,) for word in words)
    expected = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    for matrix, right in (
        (found.cosine, expected),
        (found.dot, rows @ rows.T),
        (found.l2, torch.cdist(rows, rows)),
    ):
        assert matrix.shape == (count, count)
        assert matrix == pytest.approx(right.numpy(), abs=1e-6)
        assert np.array_equal(matrix, matrix.T)


@pytest.mark.parametrize("switches", [{}, {"center": True}, {"remove": 2}])
def test_each_with_each_is_similarity_of_each_pair(minilm, switches):
    words = ["king", 2, "unhappiness"]
    found = similarities(minilm, words, **switches)
    assert found.pieces[2] == ("un", "##ha", "##pp", "##iness")
    for i, a in enumerate(words):
        for j, b in enumerate(words):
            pair = similarity(minilm, a, b, **switches)
            numbers = (found.cosine[i, j], found.dot[i, j], found.l2[i, j])
            assert numbers == pytest.approx((pair.cosine, pair.dot, pair.l2), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("words", ["king", [], ()])
def test_words_that_are_no_list(minilm, words):
    with pytest.raises(ShapeError, match="a list of one word or more"):
        similarities(minilm, words)
