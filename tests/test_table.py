import ml_dtypes
import numpy as np
import pytest

from tokenspace.errors import ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.subwords import Subwords
from tokenspace.table import Table, check_finite
from tokenspace.vocab import Vocab

VOCAB = Vocab(["a", "cat", "sat"])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_rows_come_as_float32_whatever_the_table_holds(dtype):
    table = Table(np.array([[1, 2], [3, 4], [5, 6]], dtype), VOCAB)
    assert table.weight.dtype == dtype
    assert table["cat"].dtype == np.float32
    assert table.lookup([[0, 2], [2, 2]]).tolist() == [[[1, 2], [5, 6]], [[5, 6], [5, 6]]]
    assert table.lookup(np.uint8([1])).dtype == np.float32
    assert (len(table), table.dim) == (3, 2)


def test_a_lookup_is_a_copy():
    table = Table(np.ones((3, 2), np.float32), VOCAB)
    table.lookup([0])[:] = 9
    table["a"][:] = 9
    assert (table.weight == 1).all()


def test_a_memory_map_stays_one(tmp_path):
    np.save(tmp_path / "weight.npy", np.ones((3, 2), np.float32))
    weight = np.load(tmp_path / "weight.npy", mmap_mode="r")
    assert isinstance(Table(weight, VOCAB).weight, np.memmap)


@pytest.mark.parametrize(
    ("weight", "output", "message"),
    [
        (np.zeros((2, 2), np.float32), None, "weight has 2 rows for a vocabulary of 3 tokens"),
        (np.zeros((3, 2), np.float32), np.zeros((3, 4), np.float32), "output has width 4, weight 2"),
        (np.zeros((3, 2), np.float32), np.zeros((4, 2), np.float32), "output has 4 rows"),
        (np.zeros((3, 2)), None, "must be float32, float16 or bfloat16, found float64"),
        (np.zeros((3, 0), np.float32), None, "at least one row and column"),
        (np.zeros(3, np.float32), None, "must be a (V, D) array"),
        ([[1], [2], [3]], None, "found int64"),
    ],
)
def test_parts_that_do_not_fit(weight, output, message):
    with pytest.raises(ShapeError) as error:
        Table(weight, VOCAB, output=output)
    assert message in str(error.value)


def test_bad_lookups():
    table = Table(np.ones((3, 2), np.float32), VOCAB)
    with pytest.raises(TokenIdError):
        table.lookup([3])
    with pytest.raises(VocabError, match="close spellings: 'cat'"):
        table["cats"]


def test_a_word_outside_the_vocabulary_comes_from_its_characters():
    rows = np.arange(40, dtype=np.float32).reshape(20, 2)
    table = Table(np.ones((3, 2), np.float32), VOCAB, subwords=Subwords(rows, 3, 6))
    assert table["cat"].tolist() == [1, 1]
    np.testing.assert_array_equal(table["cats"], table.subwords.vector("cats"))
    with pytest.raises(VocabError, match="is not one of the 3 tokens"):
        table[""]
    assert repr(table) == "Table(3 × 2 float32, subwords)"
    with pytest.raises(ShapeError, match="subwords have width 2, weight 3"):
        Table(np.ones((3, 3), np.float32), VOCAB, subwords=Subwords(rows, 3, 6))


def test_nan_is_named_by_row_and_token():
    table = Table(np.array([[1, 2], [np.inf, 0], [np.nan, 1]], np.float32), VOCAB)
    with pytest.raises(
        TableFormatError, match=r"row 1 of the table, token 'cat', holds NaN .*\(and 1 more of"
    ):
        check_finite(table, table.lookup([0, 1, 2]))
