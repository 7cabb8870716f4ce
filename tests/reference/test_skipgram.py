import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.reference import SkipGram

V, D = 6, 4
PAIRS = {
    "distinct": ([0, 1], [2, 3], [[4, 5], [4, 0]]),
    "repeated": ([1, 1, 1], [2, 2, 1], [[3, 3], [2, 3], [1, 1]]),
    "single": ([0], [0], [[0, 1]]),
    "no negatives": ([0, 1], [2, 3], np.zeros((2, 0), np.int64)),
    "empty": ([], [], np.zeros((0, 2), np.int64)),
}
each_batch = pytest.mark.parametrize(("centers", "contexts", "negatives"), PAIRS.values(), ids=PAIRS)


@pytest.fixture
def model(rng):
    return SkipGram.from_weights(rng.normal(size=(V, D)), rng.normal(size=(V, D)))


def leaves(model):
    return (torch.tensor(array, requires_grad=True) for array in (model.center, model.context))


def index(ids):
    return torch.tensor(np.asarray(ids, np.int64))


@each_batch
def test_the_full_softmax_matches_torch_and_finite_differences(
    model, centers, contexts, negatives, numeric_gradient
):
    v, u = leaves(model)
    theirs = functional.cross_entropy(v[index(centers)] @ u.T, index(contexts), reduction="sum")
    theirs.backward()
    ours = model.softmax_loss(centers, contexts)
    assert ours.loss == pytest.approx(theirs.item())
    for found, their, array in ((ours.d_center, v, model.center), (ours.d_context, u, model.context)):
        assert found == pytest.approx(their.grad.numpy())
        expected = numeric_gradient(lambda: model.softmax_loss(centers, contexts).loss, array)
        assert found == pytest.approx(expected, abs=1e-7)


@each_batch
def test_negative_sampling_matches_torch_and_finite_differences(
    model, centers, contexts, negatives, numeric_gradient
):
    v, u = leaves(model)
    at_center = v[index(centers)]
    true = (at_center * u[index(contexts)]).sum(-1)
    noise = (at_center[:, None] * u[index(negatives)]).sum(-1)
    theirs = -functional.logsigmoid(true).sum() - functional.logsigmoid(-noise).sum()
    theirs.backward()
    ours = model.negative_sampling_loss(centers, contexts, negatives)
    assert ours.loss == pytest.approx(theirs.item())
    for found, their, array in ((ours.d_center, v, model.center), (ours.d_context, u, model.context)):
        assert found == pytest.approx(their.grad.numpy())
        expected = numeric_gradient(
            lambda: model.negative_sampling_loss(centers, contexts, negatives).loss, array
        )
        assert found == pytest.approx(expected, abs=1e-7)


def test_a_batch_is_the_sum_of_its_pairs(model):
    centers, contexts, negatives = PAIRS["repeated"]
    batch = model.negative_sampling_loss(centers, contexts, negatives)
    singles = [
        model.negative_sampling_loss([c], [o], [n])
        for c, o, n in zip(centers, contexts, negatives, strict=True)
    ]
    for field in range(3):
        assert batch[field] == pytest.approx(sum(single[field] for single in singles))


def test_a_new_model_starts_as_word2vec_does(rng):
    model = SkipGram(1_000, 50, rng)
    assert not model.context.any()
    assert 0.0099 < abs(model.center).max() <= 0.01
    pairs = rng.integers(0, 1_000, (2, 30))
    assert model.softmax_loss(*pairs).loss == pytest.approx(30 * np.log(1_000), rel=1e-6)
    negatives = rng.integers(0, 1_000, (30, 5))
    assert model.negative_sampling_loss(*pairs, negatives).loss == pytest.approx(30 * 6 * np.log(2), rel=1e-6)


def test_descending_the_gradient_learns_the_pairs(rng):
    model = SkipGram(4, 8, rng)
    centers, contexts = np.array([0, 1, 2, 3]), np.array([1, 0, 3, 2])
    for _ in range(300):
        _, d_center, d_context = model.softmax_loss(centers, contexts)
        model.center -= 0.5 * d_center
        model.context -= 0.5 * d_context
    assert (model.center @ model.context.T).argmax(axis=1).tolist() == contexts.tolist()


def test_no_pairs_cost_nothing(model):
    nothing = PAIRS["empty"]
    assert repr(model.softmax_loss(*nothing[:2]).loss) == "0.0"  # not -0.0
    assert repr(model.negative_sampling_loss(*nothing).loss) == "0.0"


@pytest.mark.parametrize("size", [0, 2.0, True])
def test_sizes_are_positive_integers(size, rng):
    with pytest.raises(ShapeError, match="two positive integers"):
        SkipGram(size, 4, rng)


def test_extreme_scores_stay_finite():
    model = SkipGram.from_weights(np.array([[1e3], [1e3]]), np.array([[1e3], [-1e3]]))
    for loss in (model.softmax_loss([0], [1]), model.negative_sampling_loss([0], [1], [[0]])):
        assert loss.loss == pytest.approx(2e6)
        assert np.isfinite(loss.d_center).all()


def test_narrow_tables_have_float32_gradients(rng):
    weights = rng.normal(size=(2, V, D)).astype(ml_dtypes.bfloat16)
    model = SkipGram.from_weights(*weights)
    for loss in (model.softmax_loss([0], [1]), model.negative_sampling_loss([0], [1], [[2]])):
        assert loss.d_center.dtype == loss.d_context.dtype == np.float32


def test_nan_shows_in_the_loss(model):
    model.center[0, 0] = np.nan
    assert np.isnan(model.softmax_loss([0], [1]).loss)
    assert np.isnan(model.negative_sampling_loss([0], [1], [[2]]).loss)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (([6], [0], [[0]]), "center id"),
        (([0], [-1], [[0]]), "context id"),
        (([0], [0], [[6]]), "negative id"),
    ],
)
def test_an_error_says_which_ids_are_wrong(model, pairs, message):
    with pytest.raises(TokenIdError, match=message):
        model.negative_sampling_loss(*pairs)


def test_shapes_that_do_not_fit(model):
    with pytest.raises(ShapeError, match="one length"):
        model.softmax_loss([0, 1], [0])
    with pytest.raises(ShapeError, match=r"negatives are \(N, K\)"):
        model.negative_sampling_loss([0, 1], [0, 1], [[0]])
    with pytest.raises(ShapeError, match="both tables have one shape"):
        SkipGram.from_weights(np.ones((2, 3)), np.ones((3, 3)))
