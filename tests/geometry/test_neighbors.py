import sys
import time

import ml_dtypes
import numpy as np
import pytest
from gensim.models import KeyedVectors

from tokenspace.errors import ShapeError, TableFormatError, VocabError
from tokenspace.geometry import Hit, View, neighbors
from tokenspace.subwords import Subwords
from tokenspace.table import Table
from tokenspace.vocab import Vocab, placeholder


def random_table(rng, rows=500, width=8, dtype=np.float32):
    return Table(rng.normal(size=(rows, width)).astype(dtype), Vocab([f"w{i}" for i in range(rows)]))


def expected(table, query, score, k):
    """Every row scored in float64, sorted: what a loop would say."""
    rows = table.weight.astype(np.float64)
    scores = [(-score(row, rows[query]), i) for i, row in enumerate(rows) if i != query]
    return [(i, -s) for s, i in sorted(scores)[:k]]


SCORES = {
    "cosine": lambda row, query: row @ query / np.linalg.norm(row) / np.linalg.norm(query),
    "dot": lambda row, query: row @ query,
    "l2": lambda row, query: -np.linalg.norm(row - query),
}


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_neighbors_are_the_best_of_all_rows(rng, metric, dtype):
    table = random_table(rng, dtype=dtype)
    hits = neighbors(table, "w7", k=20, metric=metric)
    wanted = expected(table, 7, SCORES[metric], 20)
    assert [hit.id for hit in hits] == [i for i, _ in wanted]
    np.testing.assert_allclose([hit.score for hit in hits], [s for _, s in wanted], rtol=1e-5)
    assert [hit.token for hit in hits] == [f"w{hit.id}" for hit in hits]


@pytest.mark.parametrize("metric", SCORES)
def test_centering_subtracts_the_mean_row(rng, metric):
    table = random_table(rng)
    table.weight[:, 0] += 20
    centered = Table(table.weight - table.weight.mean(axis=0), table.vocab)
    hits, wanted = (
        neighbors(table, "w7", metric=metric, center=True),
        neighbors(centered, "w7", metric=metric),
    )
    assert [hit.id for hit in hits] == [hit.id for hit in wanted]
    np.testing.assert_allclose(
        [hit.score for hit in hits], [hit.score for hit in wanted], rtol=1e-3, atol=1e-5
    )
    if metric == "cosine":
        assert [hit.id for hit in hits] != [hit.id for hit in neighbors(table, "w7")]


def test_blocks_give_what_one_block_gives(rng, monkeypatch):
    table = random_table(rng)
    whole = neighbors(table, "w7", k=499, center=True)
    monkeypatch.setattr(sys.modules["tokenspace.geometry.rows"], "BLOCK", 24)
    assert neighbors(table, "w7", k=499, center=True) == whole


def test_word_id_and_vector_ask_the_same(rng):
    table = random_table(rng)
    by_word = neighbors(table, "w7")
    assert neighbors(table, 7) == by_word
    assert neighbors(table, table.weight[7], k=11) == [Hit("w7", 7, 1.0), *by_word]
    assert neighbors(table, "w7", k=11, exclude_query=False) == [Hit("w7", 7, 1.0), *by_word]


@pytest.mark.parametrize("metric", SCORES)
def test_equal_rows_score_equal_and_come_in_id_order(rng, metric):
    table = random_table(rng, rows=1003, width=37)
    same = [5, 6, 331, 500, 777, 1001, 1002]
    table.weight[same] = table.weight[9]
    hits = neighbors(table, table.weight[8], k=1003, metric=metric)
    found = [hit for hit in hits if hit.id in same]
    assert [hit.id for hit in found] == same
    assert len({hit.score for hit in found}) == 1


def test_a_tie_for_the_last_place_goes_to_the_lower_ids():
    table = Table(np.ones((50, 3), np.float32), Vocab([f"w{i}" for i in range(50)]))
    assert [hit.id for hit in neighbors(table, "w3", k=5)] == [0, 1, 2, 4, 5]


def test_a_zero_row_scores_zero():
    table = Table(np.array([[1, 0], [0, 0], [-1, 0]], np.float32), Vocab(["a", "zero", "b"]))
    assert neighbors(table, "a") == [Hit("zero", 1, 0.0), Hit("b", 2, -1.0)]
    assert [hit.score for hit in neighbors(table, "zero")] == [0.0, 0.0]


def test_large_float16_rows_do_not_overflow():
    table = Table(np.full((3, 400), 60000, np.float16), Vocab(["a", "b", "c"]))
    assert [round(hit.score, 5) for hit in neighbors(table, "a")] == [1.0, 1.0]
    assert neighbors(table, "a", metric="dot")[0].score == pytest.approx(400 * 60000.0**2, rel=1e-6)


def test_rows_that_no_token_names_do_not_compete_and_unused_tokens_do():
    tokens = ["a", "[unused1]", placeholder(2), "[unused-row-7]", placeholder(4)]
    table = Table(np.ones((5, 2), np.float32), Vocab(tokens, special=[1]))
    assert [hit.id for hit in neighbors(table, "a")] == [1, 3]


def test_fewer_rows_than_k_are_all_given(rng):
    assert len(neighbors(random_table(rng, rows=4), "w0", k=10)) == 3


@pytest.mark.parametrize("k", [0, -1, True])
def test_k_must_be_at_least_one(rng, k, monkeypatch):
    monkeypatch.setattr(View, "scan", None)  # no row has been read by then
    with pytest.raises(ShapeError, match="k must be"):
        neighbors(random_table(rng), "w0", k=k)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_table_with_nan_is_refused(rng, bad):
    table = random_table(rng)
    table.weight[123, 4] = table.weight[300, 0] = bad
    with pytest.raises(
        TableFormatError, match=r"row 123 of the table, token 'w123', holds NaN .*and 1 more of"
    ):
        neighbors(table, "w0")


def test_a_vector_that_leaves_float32_is_refused_as_rows_are(rng):
    table = random_table(rng)
    with pytest.raises(ShapeError, match=r"a number of size 2e\+16; above 1e\+15"):
        neighbors(table, np.full(8, 2e16))
    composed = Table(table.weight, table.vocab, subwords=Subwords(np.full((50, 8), 1e20, np.float32), 3, 4))
    with pytest.raises(TableFormatError, match=r"the vector of 'unknown' holds .* scale the table down"):
        neighbors(composed, "unknown", metric="l2")


def test_an_equal_row_is_zero_away_and_not_minus_zero():
    table = Table(np.ones((2, 2), np.float32), Vocab(["a", "b"]))
    assert str(neighbors(table, "a", metric="l2")[0].score) == "0.0"


def test_a_word_that_is_not_there(rng):
    with pytest.raises(VocabError, match=r"'w5x' is not one of .* close spellings: 'w5'"):
        neighbors(random_table(rng), "w5x")


def test_king_in_a_real_model(minilm):
    first, second = neighbors(minilm, "king", k=2)
    assert (first.token, round(first.score, 3)) == ("kings", 0.690)
    assert (second.token, round(second.score, 3)) == ("queen", 0.627)


@pytest.mark.parametrize("word", ["king", "three", "paris", "##ing"])
def test_real_neighbors_match_gensim(minilm, word):
    vectors = KeyedVectors(minilm.dim)
    vectors.add_vectors(list(minilm.vocab), np.asarray(minilm.weight))
    hits = neighbors(minilm, word, k=10)
    assert [(hit.token, round(hit.score, 4)) for hit in hits] == [
        (token, round(score, 4)) for token, score in vectors.most_similar(word, topn=10)
    ]


def test_a_composed_word_does_not_find_its_own_pieces(minilm):
    found = {hit.token for hit in neighbors(minilm, "unhappiness", k=50)}
    assert not found & {"un", "##ha", "##pp", "##iness"}


@pytest.mark.alone
def test_a_table_of_33000_rows_answers_at_once(rng):
    table = random_table(rng, rows=33_000, width=100, dtype=np.float16)
    neighbors(table, "w7")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        neighbors(table, "w7")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.1  # about 0.01 on a quiet machine
