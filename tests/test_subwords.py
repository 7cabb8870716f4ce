import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.subwords import Subwords, composed, fnv1a, mean, ngram_ids, ngrams

ROWS = np.arange(24, dtype=np.float32).reshape(12, 2)

# What fastText 0.9.2 itself gives (its Python package's get_subwords, on gensim's crime-and-punishment.bin:
# 291 words, 100 buckets, 3 to 6 characters): n-grams, and their rows less the 291 of words
FASTTEXT = {
    "ЛИЦ": (["<ЛИ", "<ЛИЦ", "<ЛИЦ>", "ЛИЦ", "ЛИЦ>", "ИЦ>"], [70, 72, 50, 98, 32, 27]),
    "не": (["<не", "<не>", "не>"], [15, 75, 81]),
    "a": (["<a>"], [0]),
    "unknownword": (
        [
            "<un",
            "<unk",
            "<unkn",
            "<unkno",
            "unk",
            "unkn",
            "unkno",
            "unknow",
            "nkn",
            "nkno",
            "nknow",
            "nknown",
        ],
        [72, 53, 61, 54, 79, 83, 84, 17, 28, 81, 50, 80],
    ),
}


def laid_out(words: list[bytes]):
    offsets = np.cumsum([0, *map(len, words)])
    return np.frombuffer(b"".join(words), np.uint8), offsets


@pytest.mark.parametrize("word", FASTTEXT)
def test_ngrams_and_their_rows_are_fasttexts(word):
    subwords = Subwords(np.ones((100, 2), np.float32), 3, 6)
    names, ids = FASTTEXT[word]
    assert subwords.ngrams(word)[: len(names)] == names
    assert subwords.ids(word)[: len(ids)].tolist() == ids


@pytest.mark.parametrize(
    ("word", "minn", "maxn", "expected"),
    [
        ("é", 1, 2, ["<é", "é", "é>"]),  # neither "<" nor ">" alone
        ("ab", 1, 1, ["a", "b"]),
        ("ab", 0, 1, ["a", "b"]),
        ("ab", 4, 4, ["<ab>"]),
        ("ab", 5, 9, []),
        ("", 1, 3, ["<>"]),
        ("</s>", 6, 6, ["<</s>>"]),
        ("\udca2\udca2", 2, 2, ["<\udca2\udca2>"]),  # bytes that continue what is before them
    ],
)
def test_where_ngrams_begin_and_end(word, minn, maxn, expected):
    assert [n.decode("utf-8", "surrogateescape") for n in ngrams(_bytes(word), minn, maxn)] == expected


def _bytes(word):
    return word.encode("utf-8", "surrogateescape")


# FNV-1a's own test vectors (http://www.isthe.com/chongo/src/fnv/test_fnv.c)
@pytest.mark.parametrize(
    ("data", "hash"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)], ids=repr
)
def test_the_hash_is_fnv_1a(data, hash):
    assert fnv1a(data) == hash


def test_the_hash_widens_bytes_as_signed_numbers():
    assert fnv1a(b"\x80") == (0x811C9DC5 ^ 0xFFFFFF80) * 0x01000193 % 2**32
    assert fnv1a(b"\x7f") == (0x811C9DC5 ^ 0x7F) * 0x01000193 % 2**32


WORDS = st.lists(
    st.one_of(
        st.text(st.sampled_from("abé ж😀<>"), max_size=9).map(str.encode),
        st.binary(max_size=9),
        st.just(b"</s>"),
    ),
    min_size=1,
    max_size=12,
)


@given(WORDS, st.integers(0, 4), st.integers(1, 12), st.integers(1, 2_000_000), st.integers(0, 3))
def test_all_words_at_once_are_each_word_alone(words, minn, maxn, buckets, skipped):
    data, offsets = laid_out([b"x" * skipped, *words])  # a block of a vocabulary does not begin at byte 0
    ids, counts = ngram_ids(data, offsets[1:], minn, maxn, buckets)
    alone = [[fnv1a(ngram) % buckets for ngram in ngrams(word, minn, maxn)] for word in words]
    assert counts.tolist() == [len(each) for each in alone]
    assert ids.tolist() == [i for each in alone for i in each]


@given(WORDS, st.integers(1, 3), st.integers(3, 6))
def test_composed_words_are_the_means_of_their_rows(words, minn, maxn):
    data, offsets = laid_out(words)
    own = np.linspace(-3, 5, 2 * len(words), dtype=np.float32).reshape(-1, 2)
    found = np.concatenate(list(composed(own, Subwords(ROWS, minn, maxn), data, offsets)))
    for row, word, vector in zip(own, words, found, strict=True):
        ids = [fnv1a(ngram) % len(ROWS) for ngram in ngrams(word, minn, maxn)]
        np.testing.assert_array_equal(vector, mean(np.vstack([row, ROWS[ids]]), ""))


def test_composing_goes_in_blocks_and_the_rows_need_not_be_aligned(monkeypatch, rng):
    words = [bytes(rng.integers(97, 123, rng.integers(0, 9)).astype(np.uint8)) for _ in range(300)]
    data, offsets = laid_out(words)
    held = np.zeros(1 + 400 * 8, np.uint8)
    rows = held[1:].view("<f4").reshape(400, 2)
    rows[:] = rng.normal(size=rows.shape)
    own = rng.normal(size=(300, 2)).astype(np.float32)
    whole = list(composed(own, Subwords(rows, 2, 3), data, offsets))
    monkeypatch.setattr("tokenspace.subwords._NGRAMS_AT_ONCE", 200)
    monkeypatch.setattr("tokenspace.subwords._NUMBERS_AT_ONCE", 20)
    parts = list(composed(own, Subwords(rows, 2, 3), data, offsets))
    assert (len(whole), max(map(len, parts))) == (1, 10)
    np.testing.assert_array_equal(np.concatenate(parts), np.concatenate(whole))
    strided = Subwords(np.asfortranarray(rows), 2, 3)
    np.testing.assert_array_equal(np.concatenate(list(composed(own, strided, data, offsets))), whole[0])


def test_a_long_words_ngrams_are_added_in_the_same_order(rng, monkeypatch):
    monkeypatch.setattr("tokenspace.subwords._NUMBERS_AT_ONCE", 100)
    rows = rng.normal(size=(1000, 2)).astype(np.float32)
    words = [b"ab", bytes(rng.integers(97, 123, 2000).astype(np.uint8)), b"cde"]
    found = np.concatenate(list(composed(rows[:3], Subwords(rows, 2, 3), *laid_out(words))))
    for own, word, vector in zip(rows, words, found, strict=False):
        ids = [fnv1a(ngram) % 1000 for ngram in ngrams(word, 2, 3)]
        np.testing.assert_array_equal(vector, mean(np.vstack([own, rows[ids]]), ""))


def test_a_word_longer_than_a_block_is_a_block(monkeypatch):
    monkeypatch.setattr("tokenspace.subwords._NGRAMS_AT_ONCE", 4)
    data, offsets = laid_out([b"a", b"bcdefghij", b"", b"", b"k"])
    blocks = list(composed(np.ones((5, 2), np.float32), Subwords(ROWS, 3, 3), data, offsets))
    assert sum(map(len, blocks)) == 5


def test_a_vector_is_the_mean_of_the_ngrams_rows():
    subwords = Subwords(ROWS, 3, 3)
    ids = subwords.ids("cats")
    assert ids.size == 4
    np.testing.assert_allclose(subwords.vector("cats"), ROWS[ids].mean(axis=0), rtol=1e-6)
    assert subwords.vector("cats").dtype == np.float32


@pytest.mark.parametrize("word", ["", " ", "\u3000", "</s>", "\ud800", "a"])
def test_words_without_ngrams_have_no_vector(word):
    assert Subwords(ROWS, 4, 6).vector(word) is None
    if word != "a":
        assert Subwords(ROWS, 1, 6).vector(word) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_a_vector_that_is_not_finite_is_named(bad):
    with pytest.raises(TableFormatError, match=r"n-grams of 'cat' hold NaN or infinity"):
        Subwords(np.full((3, 2), bad, np.float32), 3, 4).vector("cat")


@pytest.mark.parametrize(
    ("rows", "minn", "maxn", "message"),
    [
        (ROWS.astype(np.float64), 3, 6, "found float64"),
        (ROWS[0], 3, 6, r"found float32 \(2,\)"),
        (ROWS[:0], 3, 6, "at least one row"),
        (ROWS, 3, 2, "found minn 3, maxn 2"),
        (ROWS, 0, 0, "found minn 0, maxn 0"),
        (ROWS, -1, 2, "found minn -1"),
        (ROWS, 3, 101, "1 to 100 characters"),
    ],
)
def test_what_subwords_can_not_be(rows, minn, maxn, message):
    with pytest.raises(ShapeError, match=message):
        Subwords(rows, minn, maxn)


def test_a_memory_map_stays_one(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    assert isinstance(Subwords(np.load(tmp_path / "rows.npy", mmap_mode="r"), 3, 6).rows, np.memmap)
    assert repr(Subwords(ROWS, 3, 6)) == "Subwords(12 × 2, 3 to 6 characters)"
