from pathlib import Path

import gensim
import ml_dtypes
import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tokenspace as ts
from tokenspace.errors import TableFormatError, VocabError
from tokenspace.formats import word2vec
from tokenspace.table import Table
from tokenspace.vocab import Vocab

DATA = Path(gensim.__file__).parent / "test" / "test_data"
TINY = Table(np.array([[1, -2], [0.1, -0.0]], np.float32), Vocab(["a", "é"]))
TEXT = b"2 2\na 1.0 -2.0\n\xc3\xa9 0.1 -0.0\n"
BINARY = b"2 2\na \x00\x00\x80?\x00\x00\x00\xc0\n\xc3\xa9 \xcd\xcc\xcc=\x00\x00\x00\x80\n"


def bits(table: Table) -> list:
    return np.asarray(table.weight, np.float32).view(np.uint32).tolist()


@pytest.mark.parametrize(
    ("save", "data"), [(word2vec.save_text, TEXT), (word2vec.save_binary, BINARY)], ids=["text", "binary"]
)
def test_these_bytes(save, data, tmp_path):
    save(TINY, tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == data
    again = word2vec.load(tmp_path / "t")
    assert list(again.vocab) == ["a", "é"]
    assert bits(again) == bits(TINY)


@pytest.mark.parametrize(
    "data",
    [
        TEXT.replace(b"\n", b" \n"),
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.removesuffix(b"\n"),
        TEXT + b"\n \n",
        BINARY.replace(b"\xc0\n", b"\xc0").removesuffix(b"\n"),
    ],
    ids=[
        "space before the newline",
        "carriage returns",
        "no last newline",
        "blank lines at the end",
        "binary: no newlines",
    ],
)
def test_variants_that_other_programs_write(data, write):
    again = word2vec.load(write("t", data))
    assert list(again.vocab) == ["a", "é"]
    assert bits(again) == bits(TINY)


FIXTURES = {
    "high_precision.kv.txt": False,
    "high_precision.kv.bin": True,
    "euclidean_vectors.bin": True,
    "poincare_vectors.bin": True,
    "crime-and-punishment.vec": False,
    "lee_fasttext.vec": False,
    "toy-model.vec": False,
    "word2vec_pre_kv_c": False,
    "EN.1-10.cbow1_wind5_hs0_neg10_size300_smpl1e-05.txt": False,
    "IT.1-10.cbow1_wind5_hs0_neg10_size300_smpl1e-05.txt": False,
}


@pytest.mark.parametrize(("name", "binary"), FIXTURES.items())
def test_gensims_files_load_as_gensim_loads_them(name, binary):
    theirs = KeyedVectors.load_word2vec_format(DATA / name, binary=binary)
    ours = word2vec.load(DATA / name)
    assert list(ours.vocab) == theirs.index_to_key
    assert np.array_equal(ours.weight, theirs.vectors)


def test_a_token_that_is_no_utf8_is_named_or_read_on_request():
    path = DATA / "w2v_keyedvectors_load_test.modeldata"
    with pytest.raises(TableFormatError, match=r"line 2 \(byte 4\): the token b'\\xe3.* is not UTF-8"):
        word2vec.load(path)
    theirs = KeyedVectors.load_word2vec_format(path, binary=False, unicode_errors="replace")
    ours = word2vec.load(path, errors="replace")
    assert list(ours.vocab) == theirs.index_to_key
    assert np.array_equal(ours.weight, theirs.vectors)
    kept = word2vec.load(path, errors="surrogateescape")
    assert kept.vocab[0].encode("utf-8", "surrogateescape") == path.read_bytes()[4:21]


def test_tokens_that_replacing_makes_equal_are_counted(write):
    table = word2vec.load(write("t", b"2 1\na\xff 1\na\xfe 2\n"), errors="replace")
    assert table.provenance["read_from"]["repeated_tokens"] == 1


def test_repeated_tokens_keep_their_rows(write):
    table = word2vec.load(write("t", b"3 1\na 1\nb 2\na 3\n"))
    assert table.vocab.ids("a") == [0, 2]
    assert table.weight[:, 0].tolist() == [1, 2, 3]
    assert table.provenance["read_from"]["repeated_tokens"] == 1


def test_only_ascii_blanks_separate_and_the_last_numbers_are_the_vector(write):
    data = "3 2\n\u00a0 1 2\n. . . 3 4\n\u2028\ta 5 6\n".encode()
    assert list(word2vec.load(write("t", data)).vocab) == ["\u00a0", ". . .", "\u2028\ta"]


@pytest.mark.parametrize("save", [word2vec.save_text, word2vec.save_binary], ids=["text", "binary"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_numbers_are_the_same_values(dtype, save, rng, tmp_path):
    weight = rng.normal(size=(50, 7)).astype(dtype)
    save(Table(weight, Vocab([f"t{i}" for i in range(50)])), tmp_path / "t")
    assert np.array_equal(word2vec.load(tmp_path / "t").weight, weight.astype(np.float32))


@pytest.mark.parametrize("save", [word2vec.save_text, word2vec.save_binary], ids=["text", "binary"])
def test_every_kind_of_float32_comes_back(save, rng, tmp_path):
    patterns = rng.integers(0, 2**32, 60_000, np.uint32).view(np.float32)
    edges = np.array([0, -0.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 1e16, 16777216])
    numbers = np.concatenate([edges.astype(np.float32), patterns[np.isfinite(patterns)]])
    weight = numbers[: numbers.size // 30 * 30].reshape(-1, 30)
    table = Table(weight, Vocab([str(i) for i in range(len(weight))]))
    save(table, tmp_path / "t")
    assert bits(word2vec.load(tmp_path / "t")) == bits(table)
    theirs = KeyedVectors.load_word2vec_format(tmp_path / "t", binary=save is word2vec.save_binary)
    assert theirs.vectors.view(np.uint32).tolist() == bits(table)


TOKENS = st.text(st.characters(codec="utf-8", exclude_characters=" \n"), min_size=1, max_size=8)


@pytest.mark.parametrize("save", [word2vec.save_text, word2vec.save_binary], ids=["text", "binary"])
@settings(deadline=None, max_examples=50)  # each is a file on a disk that may be busy
@given(
    tokens=st.lists(TOKENS, min_size=1, max_size=8),
    numbers=arrays(np.float32, (8, 3), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
)
def test_whatever_can_be_written_comes_back(save, tokens, numbers, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "t"
    table = Table(numbers[: len(tokens)], Vocab(tokens))
    try:
        save(table, path)
    except (TableFormatError, VocabError) as error:
        # three numbers whose bytes are text; a tab, which ends a token in text as a space does
        assert save is word2vec.save_binary or any("\t" in token for token in tokens)
        assert "would not be read back" in str(error)  # noqa: PT017
        return
    again = word2vec.load(path)
    assert list(again.vocab) == tokens
    assert bits(again) == bits(table)


@pytest.mark.parametrize("save", [word2vec.save_text, word2vec.save_binary], ids=["text", "binary"])
@pytest.mark.parametrize(
    ("token", "message"),
    [
        (
            "a b",
            r"token 'a b' at id 1 would not be read back: it holds a space.* glove, numpy, npz, gguf and",
        ),
        ("at 5", r"token 'at 5' .* a space, which ends a token; numpy, npz, gguf and native can"),
        ("a \0", r"a space, which ends a token; numpy, npz, gguf and native can"),
        ("a\n", r"'a\\n' .* a newline; npz, gguf and native can"),
        ("", "'' at id 1 .* empty; numpy, npz, gguf and native can"),
        ("\udcff", "not UTF-8; npz and native can"),
    ],
    ids=["space", "space and number", "space and NUL", "newline", "empty", "bytes"],
)
def test_a_token_that_would_not_come_back_is_refused(save, token, message, tmp_path):
    (tmp_path / "t").write_bytes(b"old")
    table = Table(np.ones((2, 1), np.float32), Vocab(["ok", token]))
    with pytest.raises(VocabError, match=message):
        save(table, tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == b"old"


@pytest.mark.parametrize("save", [word2vec.save_text, word2vec.save_binary], ids=["text", "binary"])
def test_nan_is_not_written(save, tmp_path):
    table = Table(np.array([[1], [np.nan]], np.float32), Vocab(["a", "b"]))
    with pytest.raises(TableFormatError, match="row 1 of the table, token 'b', holds NaN"):
        save(table, tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"line 1 \(byte 0\): no word2vec header"),
        (b"king 0.5\n", "no word2vec header"),
        (b"2 2\na 1 2\nb 1\n", r"line 3 \(byte 10\): a token and 1 number, where 2"),
        (b"2 2\na 1 2\nb 1 2 3\n", r"line 3 \(byte 10\): a token and more than the 2 numbers"),
        (b"2 2\na 1 2\n\nb 1 2\n", r"line 3 \(byte 10\): a token and 0 numbers"),
        (b"2 2\na 1 2\nb 1 two\n", r"line 3 \(byte 10\): b'two' is not a number"),
        (b"2 2\na 1 2\nb 1 2_0\n", "b'2_0' is not a number"),
        (b"2 2\na 1 2\nb  2\n", r"line 3 .*: an empty field, between two"),
        (b"2 2\na 1 2\nb 1 nan\n", r"line 3 \(byte 10\): a number is NaN"),
        (b"2 2\na 1 2\nb 1 1e39\n", "too large for float32"),
        (b"3 2\na 1 2\nb 1 2\nccc", r"line 4 \(byte 16\): a token and 0 numbers"),
        (b"3 2\na 1 2\nb 1.000000 2\n", r"line 4 \(byte 23\): the file ends after 2 rows; 3 are needed"),
        (b"1 2\na 1 2\nb 1 2\n", r"line 3 \(byte 10\): the file goes on after 1 row;"),
        (b"99999999999999999999 300\na 1 2\n", "99,999,999,999,999,999,999 rows of 300 numbers, which"),
        (b"2 99999999999999999999\na 1 2\n", "which the 29 bytes of this file can't hold"),
        (b"0 2\n", "0 rows of 2 numbers"),
        (b"2 0\na\nb\n", "2 rows of 0 numbers"),
        (BINARY[:-3], r"row 2 \(byte 15\): no token, space and 2 float32 in the 9 bytes left"),
        (BINARY[:20], r"which the 20 bytes of this file can't hold"),
        (b"3 1\na \0\0\0\0\nb \0\0\0\0c \0\0\0\0\n", r"row 3 \(byte 17\): no newline after the vector"),
        (BINARY.replace(b"\x80?", b"\xc0\x7f"), r"row 1 \(byte 4\): the vector of b'a' holds NaN"),
        (BINARY + b"more", r"\(byte 26\): 5 bytes after the last of 2 rows"),
        (BINARY.replace(b"\xc3\xa9", b"\xc3"), r"row 2 \(byte 15\): the token b'\\xc3' is not UTF-8"),
    ],
)
def test_damage_is_named_with_its_place(data, message, write):
    path = write("t", data)
    with pytest.raises(TableFormatError, match=message) as error:
        word2vec.load(path)
    assert str(path) in str(error.value)


TYPO = b"5 300\n" + b"".join(b"w%d" % i + b" 0.1" * 299 + b" 1.%c\n" % b"O23"[min(i, 2)] for i in range(5))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"2 3\na 1,0 2,0 3,0\nb 4,0 5,0 6,0\n", r"line 2 \(byte 4\): b'1,0' is not a number"),
        (b"2 3\na nan 2.0 3.0\nb 4.0 5.0 6.0", r"line 2 \(byte 4\): a number is NaN"),
        (b"2 3\na inf inf inf\nb inf inf inf\n", r"line 2 \(byte 4\): a number is NaN, infinite"),
        (b"2 3\n\na 1.0 2.0 3.0\nb 4.0 5.0 6.0", r"line 2 \(byte 4\): a token and 0 numbers"),
        (b"2 2\na 1.0  2.0\nb 3.0 4.0", r"line 2 \(byte 4\): an empty field, between two spaces"),
        (b"2 3\na x,y z,w q,r\nb x,y z,w q,r\n", r"line 2 \(byte 4\): b'x,y' is not a number"),
        (b"2 3\na abc def ghi\n\x01 4.0 5.0 6.0\n", r"line 2 \(byte 4\): b'abc' is not a number"),
        (b"2 3\na 1,0 2,0 3,0\n\xe9 4,0 5,0 6,0\n", r"line 2 \(byte 4\): b'1,0' is not a number"),
        (TYPO, r"line 2 \(byte 6\): b'1.O' is not a number"),
        (b"2 2\n\n 0.125 0.25\nb 0.5 0.75\n", r"line 2 \(byte 4\): a token and 0 numbers"),
        (b"1 1\na 1,25\n", r"line 2 \(byte 4\): b'1,25' is not a number"),
    ],
)
def test_a_damaged_text_is_not_taken_for_binary(data, message, write):
    path = write("t", data)
    for read in (word2vec.load, ts.load):
        with pytest.raises(TableFormatError, match=message):
            read(path)


def test_rows_of_one_number_are_no_header(write):
    for content in (b"1 2\n3 4\n5 6", b"1 2\n3 4\n5 6\n", b"9 300\n8 200\n7 5\n"):
        table = ts.load(write("t", content))
        assert table.provenance["read_from"]["format"] == "glove"
        assert list(table.vocab) == [line.split()[0].decode() for line in content.splitlines()]
    with pytest.raises(TableFormatError, match="a header of 2 rows of 3 numbers"):
        ts.load(write("t", b"2 3\na 1\nb 2\n"))


@pytest.mark.parametrize("numbers", [b"1.25", b"a\x20bc", b"1,25"])
def test_one_number_that_reads_as_text_is_refused_or_comes_back(numbers, tmp_path):
    table = Table(np.frombuffer(numbers, np.float32).reshape(1, 1), Vocab(["a"]))
    try:
        word2vec.save_binary(table, tmp_path / "t")
    except TableFormatError as error:
        assert "would not be read back" in str(error)  # noqa: PT017
        assert not (tmp_path / "t").exists()
    else:
        assert bits(ts.load(tmp_path / "t")) == bits(table)


def test_numbers_that_read_as_text_are_not_written_as_binary(tmp_path):
    table = Table(np.frombuffer(b"1.25-0.5 1.0 12 ", np.float32).reshape(2, 2), Vocab(["a", "b"]))
    with pytest.raises(
        TableFormatError, match=r"its first numbers read as text, .* npz and native can hold it"
    ):
        word2vec.save_binary(table, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_token_with_control_characters_comes_back(tmp_path):
    table = Table(np.ones((3, 2), np.float32), Vocab(["a\x01", "\0", "\x7f"]))
    word2vec.save_binary(table, tmp_path / "t")
    assert list(word2vec.load(tmp_path / "t").vocab) == ["a\x01", "\0", "\x7f"]


def test_numbers_that_seem_a_token_with_a_space_are_not_written(tmp_path):
    """The first vector's bytes are ``b c `` and, but for the last of them, two ordinary numbers."""
    first = b"bc " + np.array([0.5, 0.25], "<f4").tobytes() + b"="
    table = Table(np.frombuffer(first * 2, np.float32).reshape(2, 3), Vocab(["a", "bé"]))
    with pytest.raises(TableFormatError, match=r"not be read back: row 1 .* or b'a bc'.*; npz and native"):
        word2vec.save_binary(table, tmp_path / "t")
    assert not (tmp_path / "t").exists()


@settings(deadline=None, max_examples=50)  # each is a file on a disk that may be busy
@given(data=st.data())
@pytest.mark.parametrize("whole", [TEXT, BINARY], ids=["text", "binary"])
def test_a_mutated_file_loads_or_is_refused(whole, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("t") / "t"
    mutated = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(mutated[: data.draw(st.integers(0, len(whole)))])
    try:
        table = word2vec.load(path, errors="surrogateescape")
        assert np.isfinite(table.weight).all()
    except TableFormatError:
        pass
