import json

import numpy as np
import pytest

from tokenspace.errors import TableFormatError
from tokenspace.web.answers import as_json, packed, unpacked


@pytest.mark.parametrize(("kind", "dtype"), [("f32", "<f4"), ("f16", "<f2"), ("i32", "<i4"), ("u8", "u1")])
def test_numbers_come_back(kind, dtype):
    values = np.array([[0, 1, 200], [3, 4, 5]])
    back = unpacked(json.loads(as_json(packed(values, kind))))
    assert back.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(back, values.ravel())


def test_a_column_is_packed_in_its_order():
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(unpacked(packed(values.T[1])), [1, 3, 5])


def test_lone_bytes_become_replacement_characters_and_the_rest_stays():
    assert json.loads(as_json({"\udcff": ["é\udce9", "👩"]})) == {"\ufffd": ["é\ufffd", "👩"]}


def test_numbers_that_are_none_are_not_json():
    with pytest.raises(TableFormatError, match="NaN or infinity"):
        as_json(float("nan"))
