import ml_dtypes
import numpy as np
import pytest

from tokenspace.kernels import half
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.half import narrow, rounded, widen

DTYPES = [ml_dtypes.bfloat16, np.float16, np.float32, np.float64]
SHORT = DTYPES[:2]


@kernel
def widen_all(numbers, out):
    for i in range(numbers.shape[0]):
        out[i] = widen(numbers[i])


@kernel
def narrow_all(numbers, out):
    for i in range(numbers.shape[0]):
        out[i] = narrow(numbers[i], out)


@kernel
def round_all(numbers, like, out):
    for i in range(numbers.shape[0]):
        out[i] = rounded(numbers[i], like)


@kernel
def widen_by_integers(numbers, out):
    for i in range(numbers.shape[0]):
        out[i] = half.widened_float16(numbers[i])


@kernel
def narrow_by_integers(numbers, out):
    for i in range(numbers.shape[0]):
        out[i] = half.narrowed_float16(numbers[i])


def narrowed(numbers, dtype):
    out = np.empty(len(numbers), dtype)
    narrow_all(numbers, half.bits(out))
    return out


def same(found, expected):
    """Equal numbers of equal signs, and NaN where NaN is."""
    nan = np.isnan(expected)
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[expected.dtype.itemsize]
    assert (np.isnan(found) == nan).all()
    np.testing.assert_array_equal(found[~nan].view(unsigned), expected[~nan].view(unsigned))


@pytest.mark.parametrize("dtype", SHORT)
def test_every_number_is_widened_exactly(dtype):
    numbers = np.arange(65_536, dtype=np.uint16).view(dtype)
    out = np.empty(len(numbers), np.float32)
    widen_all(half.bits(numbers), out)
    same(out, numbers.astype(np.float32))


def hard_numbers(dtype, wide, rng):
    """All numbers of ``dtype``, the ties between neighbors, and what lies a hair beside both."""
    with np.errstate(invalid="ignore"):  # signaling NaNs are among them
        exact = np.arange(65_536, dtype=np.uint16).view(dtype).astype(wide)
    exact = np.sort(exact[np.isfinite(exact)])
    ties = exact[1:] / 2 + exact[:-1] / 2
    beside = [np.nextafter(ties, wide(np.inf)), np.nextafter(ties, -wide(np.inf))]
    anywhere = rng.standard_normal(50_000).astype(wide) * np.exp2(rng.integers(-40, 40, 50_000)).astype(wide)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65_504, 65_519.996, 65_520, 1e38, 3.4e38], wide)
    return np.concatenate([exact, ties, *beside, anywhere, special, -special]).astype(wide)


@pytest.mark.parametrize("dtype", SHORT)
def test_float32_is_rounded_to_nearest_even(dtype, rng):
    numbers = hard_numbers(dtype, np.float32, rng)
    with np.errstate(over="ignore"):
        same(narrowed(numbers, dtype), numbers.astype(dtype))


def test_float16_needs_no_instruction_of_its_own(rng):
    every = np.arange(65_536, dtype=np.uint16).view(np.float16)
    wide = np.empty(len(every), np.float32)
    widen_by_integers(every.view(np.int16), wide)
    same(wide, every.astype(np.float32))
    numbers = hard_numbers(np.float16, np.float32, rng)
    short = np.empty(len(numbers), np.float16)
    narrow_by_integers(numbers, short.view(np.int16))
    with np.errstate(over="ignore"):
        same(short, numbers.astype(np.float16))


def test_float64_is_rounded_once_to_float16(rng):
    numbers = np.concatenate([hard_numbers(np.float16, np.float64, rng), [1e300, -1e300, 1e-300]])
    with np.errstate(over="ignore"):
        same(narrowed(numbers, np.float16), numbers.astype(np.float16))


def test_float64_is_rounded_once_to_bfloat16(rng):
    numbers = hard_numbers(ml_dtypes.bfloat16, np.float64, rng)
    numbers = numbers[np.isfinite(numbers) & (np.abs(numbers) < 3e38)]
    found = narrowed(numbers, ml_dtypes.bfloat16).astype(np.float64)
    # ml_dtypes goes through float32, so the truth is made here: no neighbor is nearer, and ties are even.
    steps = narrowed(numbers, ml_dtypes.bfloat16).view(np.int16)
    error = np.abs(found - numbers)
    for neighbor in (steps + 1, steps - 1):
        other = neighbor.astype(np.int16).view(ml_dtypes.bfloat16).astype(np.float64)
        other_error = np.where(np.isnan(other), np.inf, np.abs(other - numbers))
        assert (error <= other_error).all()
        assert (steps[error == other_error] % 2 == 0).all()


def test_a_double_just_above_a_tie_is_not_rounded_twice():
    hair = 2.0**-40  # float32 doesn't see it
    found = narrowed(np.array([1 + 2.0**-8 + hair, 1 + 2.0**-8]), ml_dtypes.bfloat16).astype(float)
    np.testing.assert_array_equal(found, [1 + 2.0**-7, 1.0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounded_is_there_and_back(dtype, rng):
    wide = half.computed_in(np.empty(0, dtype))
    numbers = rng.standard_normal(1_000).astype(wide)
    out = np.empty_like(numbers)
    round_all(numbers, half.bits(np.empty(0, dtype)), out)
    np.testing.assert_array_equal(out, numbers.astype(dtype).astype(wide))
