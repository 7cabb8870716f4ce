"""A table of plain words without a tokenizer, walked by its words."""

import unicodedata

import numpy as np
import pytest

import tokenspace as ts
from tokenspace.encoding_notes import dropped_words, normalized_text, unknown_words
from tokenspace.errors import CorpusError
from tokenspace.plots import Heatmap
from tokenspace.tokenizer import Tokenizer
from tokenspace.walk import Pipeline
from tokenspace.web.walks import Walks
from tokenspace.word_lookup import WordLookup

WORDS = ["a", "cat", "sat", "on", "mat"]
ROWS = np.arange(1, 21, dtype=np.float32).reshape(5, 4) / 10
FORMATS = {"word2vec-text": "t.vec", "glove": "t.txt", "native": "t", "static-embedding": "folder/"}


@pytest.mark.parametrize("name", FORMATS)
def test_the_five_words_walk_from_a_file_of_any_format(name, tmp_path):
    place = f"{tmp_path}/{FORMATS[name]}"
    ts.save(ts.Table(ROWS, ts.Vocab(WORDS)), place, name)
    (walk,) = Pipeline.open(place).walk("A cat sat on the mat")
    assert [(token.token, token.id) for token in walk.tokens] == [(word, i) for i, word in enumerate(WORDS)]
    np.testing.assert_array_equal(walk.steps["lookup"], ROWS)
    assert (walk.unknown, walk.dropped, walk.normalized) == ([], ["the"], "a cat sat on the mat")
    assert Heatmap.of_text(ts.load(place), "a cat").labels == ["a", "cat"]


@pytest.mark.parametrize(
    ("words", "text", "tokens", "dropped"),
    [
        (["the", "cat"], "The cat.", ["the", "cat"], ["."]),
        (["the", "cat", "."], "The cat.", ["the", "cat", "."], []),
        (["The", "cat"], "the Cat The cat", ["The", "cat"], ["the", "Cat"]),
        (["<s>", "[X]", "cat"], "Cat", ["cat"], []),
        (["New York", "new", "York"], "new  York New\tYork", ["new", "York", "New York"], []),
        (
            ["well-fed", "well", "cat"],
            "well-fed well-bred cat-fed",
            ["well-fed", "well", "cat"],
            ["-bred", "-fed"],
        ),
        (["don't", "stop"], "don't stop!", ["don't", "stop"], ["!"]),
        (["cat", "cat"], "cat", ["cat"], []),
        (["café"], unicodedata.normalize("NFD", "café"), ["café"], []),
        ([unicodedata.normalize("NFD", "café")], "café", [unicodedata.normalize("NFD", "café")], []),
        (["می\u200cروم"], "می\u200cروم", ["می\u200cروم"], []),
        (["λόγος"], "ΛΌΓΟΣ", ["λόγος"], []),
        (["猫", "坐"], "猫 坐", ["猫", "坐"], []),
        (["cat"], "catalog cat", ["cat"], ["catalog"]),
        (["3.14", "x"], "x = 3.14", ["x", "3.14"], ["="]),
    ],
)
def test_the_longest_words_are_found(words, text, tokens, dropped):
    lookup = WordLookup(ts.Vocab(words, encoding="word"))
    one = lookup.encode(text)
    assert one.tokens == tokens
    assert dropped_words(text, one) == dropped
    assert [words[i] for i in one.ids] == tokens


def test_an_unknown_row_stands_in_where_there_is_one():
    lookup = WordLookup(ts.Vocab(["<unk>", "<pad>", "the", "cat"], encoding="word"))
    long, short = lookup.encode_batch(["the black-and-white cat", "cat"])
    assert long.tokens == ["the", "<unk>", "cat"]
    assert unknown_words(lookup, "the black-and-white cat", long) == ["black-and-white"]
    assert dropped_words("the black-and-white cat", long) == []
    assert (short.tokens, short.mask.tolist()) == (["cat", "<pad>", "<pad>"], [1, 0, 0])


def test_a_batch_without_a_padding_token_is_padded_all_the_same():
    pipeline = Pipeline.under(ts.Table(ROWS, ts.Vocab(WORDS)))
    _, short = pipeline.walk(["a cat sat", "mat"])
    assert [token.token for token in short.tokens] == ["mat", "(padding)", "(padding)"]
    assert short.mask == [1, 0, 0]
    (walk,) = pipeline.walk("a cat", pair="the mat")
    assert [token.segment for token in walk.tokens] == [0, 0, 1]
    assert walk.dropped == ["the"]


def test_a_text_of_unknown_words_is_refused_by_name():
    pipeline = Pipeline.under(ts.Table(ROWS, ts.Vocab(WORDS)))
    for texts in ("zebra gnu", ["a cat", "zebra gnu"]):
        with pytest.raises(CorpusError, match="no word of a text is in the vocabulary: zebra, gnu; give at"):
            pipeline.walk(texts)


def test_the_page_walks_it_and_names_what_it_left_out():
    document = Walks(ts.Table(ROWS, ts.Vocab(WORDS))).document("The cat sat", predict=True, gradient=True)
    assert [token["token"] for token in document["tokens"]] == ["cat", "sat"]
    assert (document["dropped"], document["normalized"]) == (["The"], "the cat sat")
    assert document["left_out"] == {}


def test_a_folders_own_tokenizer_shows_words_as_the_vocabulary_spells_them(tmp_path):
    ts.save(ts.Table(ROWS, ts.Vocab(WORDS)), f"{tmp_path}/folder/")
    table = ts.load(tmp_path / "folder")
    table.tokenizer = Tokenizer.load(tmp_path / "folder")  # it writes "a" as "a</w>", and drops other words
    assert table.tokenizer.encode("a mat").tokens == ["a", "mat"]
    (walk,) = Pipeline.under(table).walk("The cat sat on a mat")
    assert [token.token for token in walk.tokens] == ["cat", "sat", "on", "a", "mat"]
    assert walk.dropped == ["The"]


def test_a_list_of_words_is_a_tokenizer_with_the_tables_ids(tmp_path):
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = Tokenizer.load(tmp_path / "words.txt")
    assert list(tokenizer.vocab) == WORDS
    table = ts.Table(ROWS, ts.Vocab(WORDS), tokenizer)
    ts.save(table, tmp_path / "with.safetensors")
    pipeline = Pipeline.open(tmp_path / "with.safetensors")
    (walk,) = pipeline.walk("a cat sat on the mat")
    assert [token.id for token in walk.tokens] == [0, 1, 2, 3, 4]
    assert walk.dropped == ["the"]
    assert pipeline.tokenizer.encode("a cat").tokens == ["a", "cat"]


@pytest.mark.parametrize(
    ("kind", "text", "normalized"),
    [
        ("word", "The Cat", "the cat"),
        ("word", "the cat", None),
        ("wordpiece", "the [MASK] Cat", "the [MASK] cat"),
        ("bpe", "the cat", None),
        ("unigram", "the cat", None),
    ],
)
def test_what_a_normalizer_changes_is_said(kind, text, normalized):
    tokenizer = Tokenizer.train_from_iterator(["the cat and the cats"] * 9, kind=kind)
    assert normalized_text(tokenizer, text) == normalized


def test_bert_folds_case_and_accents(minilm_folder):
    assert normalized_text(Tokenizer.load(minilm_folder), "The Café [SEP]") == "the cafe [SEP]"
