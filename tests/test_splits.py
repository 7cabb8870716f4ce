import numpy as np
import pytest

import tokenspace as ts
from tokenspace import formats
from tokenspace.errors import CheckpointError, VocabError
from tokenspace.splits import Split, splits, tokenizer_at


@pytest.fixture
def pieces() -> ts.Tokenizer:
    return ts.Tokenizer.train_from_iterator(["the cats and the cat"] * 5, kind="wordpiece")


def test_each_tokenizer_s_tokens_and_what_it_adds(pieces):
    words = ts.Tokenizer.train_from_iterator(["the cat"])
    one, two = splits("The cat [MASK]", {"a": words, "b": pieces}, pair="the")
    assert one.tokens == ["the", "cat", "[UNK]", "[UNK]", "[UNK]", "[SEP]", "the", "[SEP]"]
    assert (one.name, one.kind, one.added) == ("a", "word", ["[SEP]", "[SEP]"])
    assert two == Split(
        "b",
        "wordpiece",
        ["[CLS]", "the", "cat", "[MASK]", "[SEP]", "the", "[SEP]"],
        [pieces.vocab.id(token) for token in two.tokens],
        ["[CLS]", "[SEP]", "[SEP]"],  # the text's own [MASK] is not added
    )


def test_a_tokenizer_is_found_where_it_is(pieces, write, tmp_path, minilm_folder):
    table = ts.Table(np.ones((len(pieces.vocab), 1), np.float32), pieces.vocab, pieces)
    ts.save(table, tmp_path / "table")
    for source in (tmp_path / "table", write("tokenizer.json", pieces.to_json()), tmp_path):
        assert tokenizer_at(source).to_json() == pieces.to_json()
    assert tokenizer_at("wordnet").kind == "word"
    assert tokenizer_at(str(minilm_folder)).kind == "wordpiece"


def test_where_there_is_none(tmp_path, write):
    ts.save(ts.Table(np.ones((1, 1), np.float32), ts.Vocab(["a"])), tmp_path / "table")
    with pytest.raises(VocabError, match="table has no tokenizer; name one that has"):
        tokenizer_at(tmp_path / "table")
    with pytest.raises(CheckpointError, match="no tokenizer at"):
        tokenizer_at(tmp_path / "nothing")


WITHOUT = [name for name in formats.WRITABLE if "tokenizer" not in formats.FORMATS[name].keeps]


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.parametrize("file", ["s.vec", "s.txt", "s"])
def test_a_table_of_any_format_has_none(name, file, tmp_path):
    ts.save(ts.Table(np.ones((2, 2), np.float32), ts.Vocab(["a", "b"])), tmp_path / file, name)
    with pytest.raises(VocabError, match=r"the table .*/s.* has no tokenizer; name one that has"):
        tokenizer_at(tmp_path / file)


def test_files_of_tokenizers_that_look_like_rows_are_no_tables(write):
    for name in ("m.txt", "merges.txt"):
        with pytest.raises(CheckpointError, match=r"no tokenizer at .*vocab\.json"):
            tokenizer_at(write(name, "#version: 0.2\n1 2\n"))
    with pytest.raises(CheckpointError, match=r"vocab\.txt has no line \[UNK\]"):
        tokenizer_at(write("vocab.txt", "a 1\nb 2\n"))


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_no_file_is_named(name):
    with pytest.raises(CheckpointError, match=r"no tokenizer (was named|at .*: no file has such a name)"):
        tokenizer_at(name)
