from pathlib import Path

import gensim
import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tokenspace as ts
from tokenspace.errors import TableFormatError, VocabError
from tokenspace.formats import glove
from tokenspace.table import Table
from tokenspace.vocab import Vocab

DATA = Path(gensim.__file__).parent / "test" / "test_data"


def test_these_bytes(tmp_path):
    table = Table(np.array([[1, -2], [0.1, -0.0]], np.float32), Vocab(["a", "é"]))
    glove.save(table, tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == b"a 1.0 -2.0\n\xc3\xa9 0.1 -0.0\n"
    again = glove.load(tmp_path / "t")
    assert list(again.vocab) == ["a", "é"]
    assert again.weight.view(np.uint32).tolist() == table.weight.view(np.uint32).tolist()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim leaves it open
def test_gensims_file_loads_as_gensim_loads_it():
    theirs = KeyedVectors.load_word2vec_format(DATA / "test_glove.txt", binary=False, no_header=True)
    ours = glove.load(DATA / "test_glove.txt")
    assert list(ours.vocab) == theirs.index_to_key
    assert np.array_equal(ours.weight, theirs.vectors)


def test_tokens_may_hold_spaces_wherever_they_stand(write):
    data = b". . . 1 2\nat name@domain.com 3 4\nking 5 6\n7 8 9\n"
    table = glove.load(write("t", data))
    assert list(table.vocab) == [". . .", "at name@domain.com", "king", "7"]
    assert table.weight[3].tolist() == [8, 9]


@pytest.mark.parametrize("tail", [b"\n", b"\n\n", b" \r\n\n  \n", b"\n" * 300_000])
def test_blank_lines_at_the_end_are_no_rows_and_elsewhere_are_none(tail, write):
    assert list(glove.load(write("t", b"a 1 2\nb 3 4" + tail)).vocab) == ["a", "b"]
    with pytest.raises(TableFormatError, match=r"line [23] .*: a token and 0 numbers, where 2 are needed"):
        glove.load(write("t", b"a 1 2\nb 3 4\n" + tail + b"c 5 6\n"), limit=4)


def test_integers_alone_on_a_line_are_a_row_of_width_1(write):
    table = glove.load(write("t", b"5 3\n7 4"))
    assert (list(table.vocab), table.weight[:, 0].tolist()) == (["5", "7"], [3, 4])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"line 1 \(byte 0\): no row"),
        (b"just words\n", r"line 1 \(byte 0\): no row"),
        (b"2 2\na 1 2\nb 1 2\n", r"line 1 \(byte 0\): a header, which GloVe files lack"),
        (b"a 1 2\nb 1\nc 1 2\n", r"line 2 \(byte 6\): a token and 1 number, where 2 are needed"),
        (b"a 1\nb 1 2\nc 1 2\n", r"line 1 \(byte 0\): a token and 1 number"),
        (b"a 1 2\nb 1 2 3\nc 1 2\n", r"line 2 \(byte 6\): a token and more than the 2 numbers"),
        (b"a 1 2\nb 1 x\nc 1 2\n", r"line 2 \(byte 6\): b'x' is not a number"),
        (b"a 1.0 2\n\nc 1 2\n", r"line 2 \(byte 8\): a token and 0 numbers"),
        (b"\xef\xbb\xbfa 1 2\nb 1 2\n", r"line 1 \(byte 0\): a UTF-8 byte order mark; take"),
        (b"4  5 6\n7 8 9\n", r"line 1 \(byte 0\): an empty field, between two spaces"),
        (b"a 1 2\nb 1 inf\nc 1 2\n", r"line 2 \(byte 6\): a number is NaN, infinite"),
        (b"a 1 2\nb\xff 1 2\n", r"line 2 \(byte 6\): the token b'b\\xff' is not UTF-8"),
        (b"a 1 2 3 4 5\n" + b"b\n" * 20 + b"c\n", r"no row"),
        (b"a 1 2 3 4 5\n" * 100 + b"b\n" * 2000, r"line 101 \(byte 1,200\): a token and 0 numbers, where 5"),
    ],
)
def test_damage_is_named_with_its_place(data, message, write):
    path = write("t", data)
    with pytest.raises(TableFormatError, match=message) as error:
        glove.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("token", ["a\n", "", "New 1", "\udcff", "abcd\0\0\0\0{", "PK\3\4", "\ufeffa"])
def test_a_token_that_would_not_come_back_is_refused(token, tmp_path):
    with pytest.raises(VocabError, match=r"at id 0 would not be read back: .* native can hold it"):
        glove.save(Table(np.ones((1, 1), np.float32), Vocab([token])), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_what_a_file_can_not_begin_with_may_come_later(tmp_path):
    tokens = ["a", "PK\3\4", "b\0", "\0", "\ufeffa"]
    glove.save(Table(np.ones((5, 1), np.float32), Vocab(tokens)), tmp_path / "t")
    assert list(ts.load(tmp_path / "t").vocab) == tokens


@pytest.mark.parametrize("limit", [1, 2, None])
def test_the_width_is_that_of_most_lines_whatever_the_limit(limit, write):
    path = write("t", b"a 1 2 3\nat 5 1 2 3\n" + b"the 1 2 3\n" * 5)
    if limit == 1:
        assert glove.load(path, limit=limit).dim == 3
    else:
        with pytest.raises(TableFormatError, match=r"line 2 .*: a token and more than the 3 numbers"):
            glove.load(path, limit=limit)
    path = write("t", b"at 5 1 2 3\n" + b"the 1 2 3\n" * 5)
    with pytest.raises(TableFormatError, match=r"line 1 .*: a token and more than the 3 numbers"):
        glove.load(path, limit=limit)


@settings(deadline=None, max_examples=50)  # each is a file on a disk that may be busy
@given(
    tokens=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=8).filter(
            lambda token: glove.refusal(token.encode()) is None
        ),
        max_size=7,
    ),
    numbers=arrays(np.float32, (8, 2), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
)
def test_whatever_can_be_written_comes_back(tokens, numbers, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "t"
    tokens = ["a", *tokens]  # what the first can't be: above
    table = Table(numbers[: len(tokens)], Vocab(tokens))
    glove.save(table, path)
    again = glove.load(path)
    assert list(again.vocab) == tokens
    assert again.weight.view(np.uint32).tolist() == table.weight.view(np.uint32).tolist()
