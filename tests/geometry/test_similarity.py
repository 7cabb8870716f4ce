import pytest

from tokenspace.errors import VocabError
from tokenspace.geometry import cosine, similarity


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
