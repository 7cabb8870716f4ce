import numpy as np
import pytest
from gensim.models import KeyedVectors

from tokenspace.errors import ShapeError, TableFormatError, VocabError
from tokenspace.geometry import analogy
from tokenspace.table import Table
from tokenspace.vocab import Vocab

QUESTIONS = [("man", "king", "woman"), ("france", "paris", "italy"), ("good", "better", "bad")]


@pytest.fixture(scope="module")
def gensim(minilm):
    vectors = KeyedVectors(minilm.dim)
    vectors.add_vectors(list(minilm.vocab), np.asarray(minilm.weight))
    return vectors


@pytest.mark.parametrize(("a", "b", "c"), QUESTIONS)
def test_3cosadd_is_gensims(minilm, gensim, a, b, c):
    hits = analogy(minilm, a, b, c, k=10)
    wanted = gensim.most_similar(positive=[b, c], negative=[a], topn=10)
    assert [(hit.token, round(hit.score, 4)) for hit in hits] == [(t, round(s, 4)) for t, s in wanted]


@pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`")  # gensim calls it itself
@pytest.mark.parametrize(("a", "b", "c"), QUESTIONS)
def test_3cosmul_is_gensims_but_for_its_epsilon(minilm, gensim, a, b, c):
    hits = analogy(minilm, a, b, c, k=10, method="3cosmul")
    for hit in hits:
        near_a = (1 + gensim.similarity(hit.token, a)) / 2
        near_b = (1 + gensim.similarity(hit.token, b)) / 2
        near_c = (1 + gensim.similarity(hit.token, c)) / 2
        assert hit.score == pytest.approx(near_b * near_c / (near_a + 0.001), abs=1e-5)
    wanted = gensim.most_similar_cosmul(positive=[b, c], negative=[a], topn=10)  # its epsilon is 0.000001
    assert [hit.token for hit in hits] == [token for token, _ in wanted]


def test_3cosmul_by_hand():
    rows = np.array([[1, 0], [0.6, 0.8], [0, 1], [-1, 0], [0.8, 0.6]], np.float32)
    table = Table(rows, Vocab(["a", "b", "c", "x", "y"]))
    opposite, y = analogy(table, "a", "b", "c", method="3cosmul")
    assert (opposite.token, y.token) == ("x", "y")
    assert opposite.score == pytest.approx((0.4 / 2) * (1.0 / 2) / (0.0 / 2 + 0.001), rel=1e-4)
    assert y.score == pytest.approx((1.96 / 2) * (1.6 / 2) / (1.8 / 2 + 0.001), rel=1e-6)


@pytest.mark.parametrize("method", ["3cosadd", "3cosmul"])
def test_the_words_given_are_no_answers(minilm, method):
    answers = [hit.token for hit in analogy(minilm, "man", "king", "woman", k=3, method=method)]
    assert answers[0] == "queen"
    assert not {"man", "king", "woman"} & set(answers)


def test_case_is_what_the_tokenizer_makes_of_it(minilm):
    assert analogy(minilm, "Man", "King", "Woman") == analogy(minilm, "man", "king", "woman")


def test_a_word_of_several_pieces_is_refused_and_its_pieces_shown(minilm):
    with pytest.raises(VocabError, match=r"'unhappiness' is not one token but 4: un ##ha ##pp ##iness"):
        analogy(minilm, "happiness", "unhappiness", "joy")


def test_length_of_a_row_does_not_matter(minilm, rng):
    some = np.r_[[minilm.vocab.id(word) for word in ("man", "king", "woman")], 5000:5500]
    rows, vocab = minilm.lookup(some), Vocab([minilm.vocab[i] for i in some.tolist()])
    stretched = rows * rng.uniform(0.1, 10, (len(rows), 1)).astype(np.float32)
    for method in ("3cosadd", "3cosmul"):
        one = analogy(Table(rows, vocab), "man", "king", "woman", 10, method)
        other = analogy(Table(stretched, vocab), "man", "king", "woman", 10, method)
        assert [hit.id for hit in one] == [hit.id for hit in other]


def test_a_table_with_nan_is_refused(rng):
    table = Table(rng.normal(size=(9, 3)).astype(np.float32), Vocab(list("abcdefghi")))
    table.weight[7] = np.nan
    with pytest.raises(TableFormatError, match="token 'h'"):
        analogy(table, "a", "b", "c")


def test_k_must_be_at_least_one(minilm):
    with pytest.raises(ShapeError, match="k must be a whole number from 1 on"):
        analogy(minilm, "man", "king", "woman", k=0)
