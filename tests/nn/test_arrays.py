import ml_dtypes
import numpy as np
import pytest
import torch

from tokenspace.nn.arrays import tensor_of


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_a_copy_bit_for_bit(dtype):
    array = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    array.flags.writeable = False
    tensor = tensor_of(array)
    assert str(tensor.dtype) == f"torch.{array.dtype.name}"
    np.testing.assert_array_equal(tensor.double().numpy(), array.astype(np.float64))
    tensor.zero_()
    assert array.any()
    assert tensor_of(array, torch.float16).dtype == torch.float16
    assert tensor_of(array.T).shape == (4, 3)
