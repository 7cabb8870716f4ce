import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.reference import Embedding, one_hot

IDS = {
    "distinct": [[0, 1]],
    "repeated": [[2, 2, 2]],
    "both": [[1, 0, 1], [1, 2, 4]],
    "single": [[3]],
    "one text": [4, 0, 4],
    "scalar": 2,
    "empty": [[]],
    "no text": [],
}
each_ids = pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
scales = pytest.mark.parametrize("scale", [None, "sqrt", 0.5])


@each_ids
@scales
def test_gradient_matches_finite_differences(ids, scale, rng, numeric_gradient):
    embedding = Embedding.from_weight(rng.normal(size=(5, 3)), scale=scale)
    upstream = rng.normal(size=embedding.forward(ids).shape)
    expected = numeric_gradient(lambda: float((embedding.forward(ids) * upstream).sum()), embedding.weight)
    embedding.forward(ids)
    assert embedding.backward(upstream) == pytest.approx(expected, abs=1e-7)


@each_ids
@pytest.mark.parametrize("padding_id", [None, 2])
def test_gradient_matches_torch(ids, padding_id, rng):
    weight = rng.normal(size=(5, 3)).astype(np.float32)
    embedding = Embedding.from_weight(weight, padding_id=padding_id)
    theirs = torch.nn.Embedding.from_pretrained(torch.tensor(weight), freeze=False, padding_idx=padding_id)
    output = theirs(torch.tensor(ids, dtype=torch.int64))
    upstream = rng.normal(size=output.shape).astype(np.float32)
    output.backward(torch.tensor(upstream))
    assert np.array_equal(embedding.forward(ids), output.detach().numpy())
    assert embedding.backward(upstream) == pytest.approx(theirs.weight.grad.numpy(), abs=1e-6)


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 5))
def test_lookup_and_its_gradient_are_the_one_hot_products(ids, width):
    rng = np.random.default_rng(len(ids))
    embedding = Embedding.from_weight(rng.normal(size=(7, width)), scale="sqrt")
    hot = one_hot(ids, 7)
    assert embedding.forward_one_hot(ids) == pytest.approx(embedding.forward(ids), abs=1e-12)
    upstream = rng.normal(size=(len(ids), width))
    assert embedding.backward(upstream) == pytest.approx(hot.T @ upstream * width**0.5, abs=1e-12)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", ">i4"])
def test_any_integer_type_is_an_id(dtype, rng):
    embedding = Embedding(200, 4, rng)
    ids = np.array([[127, 0], [0, 5]], dtype)
    assert np.array_equal(embedding.forward(ids), embedding.weight[[[127, 0], [0, 5]]])
    assert embedding.backward(np.ones((2, 2, 4)))[0, 0] == 2


@pytest.mark.parametrize("ids", [[5], [-1], [[0, 1.0]], [True]])
def test_a_bad_id_is_refused(ids, rng):
    embedding = Embedding(5, 4, rng)
    for call in (embedding.forward, embedding.lookup, embedding.forward_one_hot):
        with pytest.raises(TokenIdError):
            call(ids)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_gradients_add_up_in_float32_at_least(dtype):
    embedding = Embedding.from_weight(np.zeros((3, 2), dtype))
    embedding.forward(np.ones(5_000, np.int64))
    gradient = embedding.backward(np.ones((5_000, 2), dtype))  # as bfloat16 the sum would stop at 256
    assert gradient.dtype == np.float32
    assert gradient.tolist() == [[0, 0], [5_000, 5_000], [0, 0]]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_table_is_looked_up_as_float32_and_stays_narrow(dtype, rng):
    weight = rng.normal(size=(4, 3)).astype(dtype)
    embedding = Embedding.from_weight(weight)
    rows = embedding.forward([1, 3])
    assert rows.dtype == np.float32
    assert np.array_equal(rows, weight[[1, 3]].astype(np.float32))
    embedding.backward(np.ones((2, 3)))
    embedding.step(0.5)
    assert embedding.weight.dtype == dtype
    assert np.array_equal(embedding.weight[1], (rows[0] - 0.5).astype(dtype))


def test_a_memory_mapped_file_is_read_and_never_written(tmp_path, rng):
    weight = rng.normal(size=(4, 3)).astype(np.float16)
    np.save(tmp_path / "weight.npy", weight)
    embedding = Embedding.from_weight(np.load(tmp_path / "weight.npy", mmap_mode="r"))
    assert np.array_equal(embedding.forward([3]), weight[[3]].astype(np.float32))
    embedding.backward(np.ones((1, 3)))
    assert embedding.step(1.0).tolist() == [3]
    assert not np.array_equal(embedding.weight[3], weight[3])
    assert np.array_equal(np.load(tmp_path / "weight.npy"), weight)


def test_the_incoming_gradient_and_the_ids_are_left_alone(rng):
    embedding = Embedding(4, 3, rng, scale="sqrt", padding_id=0)
    ids, upstream = np.array([0, 1, 1]), rng.normal(size=(3, 3)).astype(np.float32)
    kept = upstream.copy()
    embedding.forward(ids)
    ids[:] = 3  # a caller may reuse its buffer: the gradient is that of the ids that were looked up
    gradient = embedding.backward(upstream)
    assert np.array_equal(upstream, kept)
    assert np.flatnonzero(gradient.any(axis=1)).tolist() == [1]


def test_a_step_changes_only_the_rows_used(rng):
    embedding = Embedding(6, 3, rng)
    before = embedding.weight.copy()
    embedding.forward([[4, 1, 4]])
    embedding.backward(np.ones((1, 3, 3)))
    assert embedding.step(0.1).tolist() == [1, 4]
    assert embedding.weight[1] == pytest.approx(before[1] - 0.1)
    assert embedding.weight[4] == pytest.approx(before[4] - 0.2)
    assert np.array_equal(embedding.weight[[0, 2, 3, 5]], before[[0, 2, 3, 5]])
    assert embedding.gradient is None
    assert embedding.step(0.1).size == 0


def test_gradients_add_up_over_backwards_until_they_are_forgotten(rng):
    embedding = Embedding(3, 2, rng)
    for ids in ([0], [0, 2]):
        embedding.forward(ids)
        part = embedding.backward(np.ones((len(ids), 2)))
    assert part[:, 0].tolist() == [1, 0, 1]
    assert embedding.gradient[:, 0].tolist() == [2, 0, 1]
    assert embedding.gradients()["weight"] is embedding.gradient
    embedding.zero_gradient()
    assert embedding.gradients() == {}


def test_the_returned_gradient_is_the_callers_own(rng):
    embedding = Embedding(3, 2, rng)
    embedding.forward([0])
    embedding.backward(np.ones((1, 2)))[:] = 7
    assert embedding.gradient[:, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_inf_survive_and_stay_in_their_row(value):
    embedding = Embedding.from_weight(np.array([[value, 1.0], [2.0, 3.0]]), scale="sqrt")
    rows = embedding.forward([0, 1])
    assert rows[0, 0] == pytest.approx(value, nan_ok=True)
    assert np.isfinite(rows[1]).all()
    embedding.backward([[1.0, value], [1.0, 1.0]])
    assert embedding.step(0.1).tolist() == [0, 1]
    assert not np.isfinite(embedding.weight[0]).all()
    assert np.isfinite(embedding.weight[1]).all()


@pytest.mark.parametrize(
    ("width", "exact", "in_bfloat16"),
    [
        (768, 27.7128, 27.75),
        (2048, 45.2548, 45.25),
        (2304, 48.0, 48.0),
        (3072, 55.4256, 55.5),
        (3584, 59.8665, 59.75),
        (4608, 67.8823, 68.0),
    ],
)
def test_the_square_root_of_the_width_in_either_precision(width, exact, in_bfloat16):
    weight = np.ones((1, width), np.float32)
    assert Embedding.from_weight(weight, scale="sqrt").forward(0)[0] == pytest.approx(exact, abs=1e-4)
    gemma = Embedding.from_weight(weight, scale="sqrt", scale_dtype=ml_dtypes.bfloat16)
    assert gemma.forward(0)[0] == in_bfloat16


class TestPadding:
    def test_a_new_padding_row_is_zero_and_an_old_one_kept(self, rng):
        assert not Embedding(4, 3, rng, padding_id=1).weight[1].any()
        weight = rng.normal(size=(4, 3))
        assert Embedding.from_weight(weight, padding_id=1).weight[1].all()

    def test_the_lookup_gives_it_no_gradient_but_another_use_may(self, rng):
        embedding = Embedding(4, 3, rng, padding_id=1)
        embedding.forward([1, 2])
        assert not embedding.backward(np.ones((2, 3)))[1].any()
        embedding.add_gradient(np.ones((4, 3), np.float32))
        assert embedding.gradient[:, 0].tolist() == [1, 1, 2, 1]

    def test_a_frozen_one_takes_none_and_no_step_moves_it(self, rng):
        embedding = Embedding.from_weight(rng.normal(size=(4, 3)), padding_id=1, freeze_padding=True)
        before = embedding.weight[1].copy()
        embedding.add_gradient(np.ones((4, 3)))
        assert embedding.gradient[:, 0].tolist() == [1, 0, 1, 1]
        assert embedding.step(0.1).tolist() == [0, 2, 3]
        assert np.array_equal(embedding.weight[1], before)

    def test_freezing_needs_a_row(self, rng):
        with pytest.raises(ShapeError, match="needs the padding_id"):
            Embedding(4, 3, rng, freeze_padding=True)

    @pytest.mark.parametrize("padding_id", [4, -1, 1.0, True, "a", [0, 1], [0], []])
    def test_it_is_one_row_of_the_table(self, padding_id, rng):
        for make in (
            lambda: Embedding.from_weight(np.zeros((4, 3)), padding_id=padding_id),
            lambda: Embedding(4, 3, rng, padding_id=padding_id),
        ):
            with pytest.raises(TokenIdError, match="padding id"):
                make()


@pytest.mark.parametrize(
    "weight", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((2, 2), int), [["a"]], np.zeros((0, 2))]
)
def test_a_table_is_rows_of_floats(weight):
    with pytest.raises(ShapeError, match=r"\(rows, width\) array of floats"):
        Embedding.from_weight(weight)


def test_a_ragged_table_is_refused():
    with pytest.raises(ShapeError, match="a table must be a rectangular array"):
        Embedding.from_weight([[1.0, 2.0], [3.0]])


@pytest.mark.parametrize("scale", [np.nan, np.inf, "foo", True, 1e39, [1.0, 2.0]])
def test_a_scale_is_a_finite_number_or_the_root(scale, rng):
    with pytest.raises(ShapeError, match="scale must be"):
        Embedding(4, 3, rng, scale=scale)


def test_a_scale_that_its_dtype_cannot_hold_is_refused(rng):
    with pytest.raises(ShapeError, match="scale in float16 must be a finite number"):
        Embedding(4, 3, rng, scale=1e6, scale_dtype=np.float16)
    for dtype in (np.int32, "foo"):
        with pytest.raises(ShapeError, match="scale_dtype must be a floating-point type"):
            Embedding(4, 3, rng, scale="sqrt", scale_dtype=dtype)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "2", None])
def test_sizes_are_positive_integers(size, rng):
    for make in (lambda: Embedding(size, 3, rng), lambda: Embedding(3, size, rng)):
        with pytest.raises(ShapeError, match="two positive integers"):
            make()
    with pytest.raises(ShapeError, match="vocabulary_size must be an integer, 1 or more"):
        one_hot([], size)


@pytest.mark.parametrize("rate", [np.nan, "fast", None])
def test_a_step_needs_a_finite_learning_rate(rate, rng):
    embedding = Embedding(4, 3, rng)
    embedding.forward([0])
    embedding.backward(np.ones((1, 3)))
    before = embedding.weight.copy()
    with pytest.raises(ShapeError, match="learning_rate must be a finite number"):
        embedding.step(rate)
    assert np.array_equal(embedding.weight, before)


def test_a_share_of_the_gradient_has_the_tables_shape(rng):
    embedding = Embedding(4, 3, rng)
    for shape in ((1, 3), (4, 1), (3,)):
        with pytest.raises(ShapeError, match=r"the table \(4, 3\); they must be equal"):
            embedding.add_gradient(np.ones(shape))
    assert embedding.gradient is None
