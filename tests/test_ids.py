import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenspace.errors import TokenIdError, TokenspaceError
from tokenspace.ids import checked_ids

INTEGERS = [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_type_indexes(dtype):
    ids = checked_ids(np.array([[0, 4], [2, 2]], dtype), rows=5)
    assert np.arange(5)[ids].tolist() == [[0, 4], [2, 2]]


@pytest.mark.parametrize("empty", [[], [[]], np.zeros((0, 7))], ids=["list", "nested", "float array"])
def test_no_ids_are_fine_whatever_their_type(empty):
    assert checked_ids(empty, rows=5).dtype == np.int64


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            [[1, 2], [3, 5]],
            "1 of 4 token ids is outside this table of 5 rows; the first is 5 at batch 1, pos",
        ),
        ([7], "the first is 7 at position 0 (valid: 0 to 4). Is the tokenizer larger than the table?"),
        ([-1, 0], "A negative id would wrap"),
        ([0, -100], "labels that the loss ignores"),
        (9, "the first is 9 (valid: 0 to 4)"),
        ([[[0, 8]]], "at index (0, 0, 1)"),
        (np.array([2**63], np.uint64), "the first is 9,223,372,036,854,775,808"),
        ([1.0, 2.0], "must be integers, found float64 (first value: 1.0)"),
        ([True, False], "must be integers, found bool"),
        (["1"], "must be integers, found <U1"),
        ([[1], [1, 2]], "rectangular"),
        ([2**70], "must be integers, found object"),
        ([float("nan")], "must be integers, found float64"),
    ],
)
def test_bad_ids_are_named(ids, message):
    with pytest.raises(TokenIdError) as error:
        checked_ids(ids, rows=5)
    assert message in str(error.value)
    assert isinstance(error.value, IndexError)
    assert isinstance(error.value, TokenspaceError)


def test_an_empty_table_has_no_valid_id():
    with pytest.raises(TokenIdError, match="none is valid"):
        checked_ids([0], rows=0)


@given(st.lists(st.integers(-300, 300), min_size=1), st.integers(1, 300))
def test_ids_pass_exactly_when_all_are_in_range(ids, rows):
    if all(0 <= i < rows for i in ids):
        assert checked_ids(ids, rows).tolist() == ids
    else:
        with pytest.raises(TokenIdError, match=f"{sum(not 0 <= i < rows for i in ids)} of {len(ids)} "):
            checked_ids(ids, rows)
