import numpy as np
import pytest

from tokenspace import plots
from tokenspace.errors import ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.geometry import analogy, resolve
from tokenspace.geometry.cosine import unit_rows
from tokenspace.subwords import Subwords
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab


@pytest.fixture
def words(rng):
    tokenizer = Tokenizer.train_from_iterator(["The cat sat on the mat.", "a dog"])
    return Table(rng.normal(size=(len(tokenizer.vocab), 3)).astype(np.float16), tokenizer.vocab, tokenizer)


def test_a_word_in_the_vocabulary_is_its_row(words):
    found = resolve(words, "cat")
    assert found.ids == (words.vocab.id("cat"),)
    assert found.tokens == ("cat",)
    np.testing.assert_array_equal(found.vector, words["cat"])


def test_a_word_that_the_tokenizer_writes_otherwise_is_still_one_token(words):
    assert resolve(words, "CAT").tokens == ("cat",)
    with pytest.raises(VocabError):
        resolve(Table(words.weight, words.vocab), "CAT")


def test_a_word_of_several_pieces_is_the_mean_of_their_rows(minilm):
    found = resolve(minilm, "unhappiness")
    assert found.tokens == ("un", "##ha", "##pp", "##iness")
    np.testing.assert_allclose(
        found.vector, minilm.weight[list(found.ids)].mean(axis=0), rtol=1e-5, atol=1e-7
    )
    assert found.vector.dtype == np.float32


def test_byte_level_pieces_begin_a_word():
    tokenizer = Tokenizer.train_from_iterator(["a cat and a cat"] * 3, kind="bpe", vocab_size=300)
    vocab = tokenizer.vocab
    table = Table(np.ones((len(vocab), 2), np.float32), vocab, tokenizer)
    assert resolve(table, "cat").tokens == ("Ġcat",)
    assert resolve(table, "catx").tokens == ("Ġcat", "x")


@pytest.mark.parametrize("word", ["catt", "cat catt"])
def test_a_word_with_unknown_pieces_is_refused_with_close_spellings(words, word):
    with pytest.raises(VocabError, match=f"'{word}' is not one of"):
        resolve(words, word)
    with pytest.raises(VocabError, match="close spellings: 'cat'"):
        resolve(words, "catt")


@pytest.mark.parametrize("word", ["", "  "])
def test_an_empty_word_is_refused(words, word):
    with pytest.raises(VocabError, match="is not one of"):
        resolve(words, word)


@pytest.mark.parametrize("i", [2, np.int32(2), np.uint8(2)], ids=type)
def test_an_id_is_its_row(words, i):
    found = resolve(words, i)
    assert (found.word, found.ids) == (words.vocab[2], (2,))
    np.testing.assert_array_equal(found.vector, words.lookup(2))


@pytest.mark.parametrize("i", [-1, 10_000, True])
def test_an_id_outside_the_table_or_a_boolean(words, i):
    with pytest.raises(TokenIdError):
        resolve(words, i)


def test_a_vector_is_itself_and_has_no_rows(words):
    assert resolve(words, [1, 2, 3]).vector.tolist() == [1, 2, 3]
    assert resolve(words, np.ones(3)).ids == ()


NO_VECTORS = {
    r"shape \(2,\)": [1, 2],
    r"shape \(1, 3\)": [[1, 2, 3]],
    "NaN or infinity": [1, 2, np.nan],
    "found list$": ["cat", "dog", "cow"],
    "found set$": {"cat"},
    "found bytes$": b"cat",
    "found ndarray$": np.ones(3, complex),
    "found bool$": np.bool_(True),
    "a number of size 2e\\+39; above 1e\\+15 products leave float32": [0, 2e39, 0],
    "found tuple$": ([1, 2], [3]),
}


@pytest.mark.parametrize("found", NO_VECTORS)
def test_a_vector_that_is_none(words, found):
    with pytest.raises(ShapeError, match=f"a word, a row's id, or a vector of 3 finite numbers.*{found}"):
        resolve(words, NO_VECTORS[found])


def test_a_row_with_nan_is_named():
    table = Table(np.array([[1, 1], [np.nan, 1]], np.float32), Vocab(["a", "b"]))
    with pytest.raises(TableFormatError, match="row 1 of the table, token 'b'"):
        resolve(table, "b")


@pytest.fixture
def spelled(words, rng):
    """The same table, which knows unknown words by their characters too."""
    subwords = Subwords(rng.normal(size=(50, 3)).astype(np.float32), 3, 4)
    return Table(words.weight, words.vocab, words.tokenizer, subwords=subwords)


def test_a_word_outside_the_vocabulary_is_composed_of_its_ngrams(spelled):
    found = resolve(spelled, "catt")
    assert found.tokens == ("<ca", "<cat", "cat", "catt", "att", "att>", "tt>")
    assert found.ids == ()
    np.testing.assert_array_equal(found.vector, spelled.subwords.vector("catt"))


def test_the_vocabulary_comes_before_ngrams_and_ngrams_before_the_tokenizer(spelled, words):
    assert resolve(spelled, "cat").ids == resolve(words, "cat").ids != ()
    assert resolve(words, "CAT").tokens == ("cat",)
    assert resolve(spelled, "CAT").tokens == ("<CA", "<CAT", "CAT", "CAT>", "AT>")


def test_a_word_without_ngrams_is_left_to_the_tokenizer(words, rng):
    subwords = Subwords(rng.normal(size=(50, 3)).astype(np.float32), 9, 9)
    table = Table(words.weight, words.vocab, words.tokenizer, subwords=subwords)
    assert resolve(table, "CAT").tokens == ("cat",)
    with pytest.raises(VocabError, match="close spellings: 'cat'"):
        resolve(table, "catt")


def test_ngrams_with_nan_are_named(words):
    table = Table(words.weight, words.vocab, subwords=Subwords(np.full((5, 3), np.nan, np.float32), 3, 4))
    with pytest.raises(TableFormatError, match="n-grams of 'catt' hold NaN"):
        resolve(table, "catt")


def test_several_words_are_the_mean_of_theirs_where_ngrams_make_words():
    """No n-gram spans the space between two words."""
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    table = Table(np.eye(2, 4, dtype=np.float32), Vocab(["night", "day"]), subwords=Subwords(rows, 2, 3))
    found = resolve(table, "night days")
    expected = (table["night"] + table.subwords.vector("days")) / 2
    assert np.allclose(found.vector, expected)
    assert found.tokens == ("night", *table.subwords.ngrams("days"))


def test_a_word_of_ngrams_can_be_part_of_an_analogy():
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    table = Table(np.eye(3, dtype=np.float32), Vocab(["a", "b", "c"]), subwords=Subwords(rows, 2, 3))
    hits = analogy(table, "a", "b", "unknown", k=3)
    by_hand = unit_rows(unit_rows(table["b"]) - unit_rows(table["a"]) + unit_rows(table["unknown"]))
    assert [hit.token for hit in hits] == ["c"]
    assert hits[0].score == pytest.approx(by_hand[2])
    assert plots.Arrows.of(table, "a", "b", "unknown").words == ("a", "b", "unknown", "c")
    with pytest.raises(VocabError, match="an analogy is asked of single tokens"):
        analogy(table, "a", "b", "two unknowns")
