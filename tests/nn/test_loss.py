import itertools

import pytest
import torch
import torch.nn.functional as F

from tokenspace.errors import TokenspaceError
from tokenspace.nn import loss as loss_module
from tokenspace.nn.loss import Terms, chunked_summed_loss, summed_loss, token_losses, torch_chunked_loss
from tokenspace.reference.cross_entropy import CrossEntropy

N, D, V = 37, 16, 50
TERMS = [
    Terms(cap, smoothing, masked)
    for cap, smoothing, masked in itertools.product((None, 5.0), (0.0, 0.1), (None, 3))
]
every_term = pytest.mark.parametrize("terms", TERMS, ids=str)


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK_NUMBERS", 7 * V)  # 37 positions: five chunks of 7, one of 2


@pytest.fixture
def batch():
    def make(dtype, bias=True):
        torch.manual_seed(0)
        parts = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((N, D), (V, D), (V,))]
        labels = torch.randint(4, V, (N,))
        return (*parts[:2], parts[2] if bias else None, labels, torch.rand(N) > 0.3)

    return make


def naive(hidden, weight, bias, labels, counted, terms):
    """As it is written by hand: the masked row's column is left out of the logits."""
    logits = F.linear(hidden, weight, bias)
    if terms.soft_cap:
        logits = terms.soft_cap * torch.tanh(logits / terms.soft_cap)
    if terms.masked is not None:
        logits = torch.cat([logits[:, : terms.masked], logits[:, terms.masked + 1 :]], 1)
        labels = labels - (labels > terms.masked).long()
    labels = labels.where(counted, -100)
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=terms.label_smoothing)


@every_term
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("of", [summed_loss, chunked_summed_loss])
@pytest.mark.parametrize(("dtype", "off"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
def test_loss_and_gradients_equal_the_naive_ones(terms, bias, of, dtype, off, batch):
    arguments = batch(dtype, bias)
    trained = [part for part in arguments[:3] if part is not None]
    mean = arguments[4].sum()
    found, expected = (f(*arguments, terms) / mean for f in (of, naive))
    torch.testing.assert_close(found, expected, rtol=off, atol=off)
    for ours, theirs in zip(
        torch.autograd.grad(found, trained), torch.autograd.grad(expected, trained), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=off, atol=off)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_each_position_is_what_the_reference_says(smoothing, rng):
    scores, labels = rng.standard_normal((5, V)), rng.integers(0, V, 5)
    losses = token_losses(
        torch.from_numpy(scores), torch.from_numpy(labels), Terms(label_smoothing=smoothing)
    )
    expected = CrossEntropy(label_smoothing=smoothing).forward(scores, labels)
    assert float(losses.mean()) == pytest.approx(expected, abs=1e-12)


@every_term
def test_only_what_needs_a_gradient_gets_one(terms, batch):
    hidden, weight, bias, labels, counted = batch(torch.float32)
    weight, bias = weight.detach(), bias.detach()
    loss = chunked_summed_loss(hidden, weight, bias, labels, counted, terms)
    loss.backward()
    assert hidden.grad.shape == (N, D)
    assert torch.equal(hidden.grad[~counted], torch.zeros(int((~counted).sum()), D))
    with torch.no_grad():
        again = chunked_summed_loss(hidden, weight, bias, labels, counted, terms)
    assert not again.requires_grad
    assert torch.equal(again, loss)


@every_term
@pytest.mark.parametrize("positions", ["none", "all ignored"])
def test_with_nothing_counted_loss_and_gradients_are_zero(terms, positions, batch):
    hidden, weight, bias, labels, counted = batch(torch.float32)
    if positions == "none":
        hidden, labels, counted = hidden[:0], labels[:0], counted[:0]
    loss = chunked_summed_loss(hidden, weight, bias, labels, counted & False, terms)
    assert not loss.any()
    for gradient in torch.autograd.grad(loss, (hidden, weight, bias)):
        assert not gradient.any()


def test_torchs_own_chunks_are_the_same_loss(batch):
    """What runs off the CPU."""
    arguments = batch(torch.float32)
    found, expected = (
        torch_chunked_loss(*arguments) / 20,
        chunked_summed_loss(*arguments, Terms()) / 20,
    )
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, arguments[:3]), torch.autograd.grad(expected, arguments[:3]), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    rounded = [part.bfloat16() for part in arguments[:3]]
    lower = torch_chunked_loss(*rounded, *arguments[3:])
    assert lower.dtype == torch.float32
    torch.testing.assert_close(
        lower, chunked_summed_loss(*rounded, *arguments[3:], Terms()), rtol=1e-3, atol=0.0
    )


@pytest.mark.parametrize("terms", [Terms(), Terms(5.0, 0.1)], ids=str)
def test_half_precision_sums_in_float32(terms, batch):
    exact = batch(torch.float64)
    rounded = [part.detach().bfloat16().requires_grad_() for part in exact[:3]]
    loss = chunked_summed_loss(*rounded, *exact[3:], terms)
    widened = [part.detach().double().requires_grad_() for part in rounded]
    expected = naive(*widened, *exact[3:], terms)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-2, atol=0.0)
    for ours, theirs in zip(
        torch.autograd.grad(loss, rounded), torch.autograd.grad(expected, widened), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-2, atol=5e-2)


@every_term
def test_it_may_be_walked_back_twice(terms, batch):
    arguments = batch(torch.float32)
    loss = chunked_summed_loss(*arguments, terms)
    once, twice = (torch.autograd.grad(loss, arguments[:3], retain_graph=True) for _ in range(2))
    for first, second in zip(once, twice, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("terms", [Terms(), Terms(5.0)], ids=str)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own forward mode
def test_transforms_are_refused_rather_than_answered_wrongly(terms, batch):
    hidden, weight, bias, labels, counted = batch(torch.float32)

    def loss(weight, of=chunked_summed_loss):
        return of(hidden, weight, bias, labels, counted, terms)

    def forward_mode():
        with torch.autograd.forward_ad.dual_level():
            loss(torch.autograd.forward_ad.make_dual(detached, detached))

    detached = weight.detach()
    for transform in (
        lambda: torch.func.grad(loss)(detached),
        lambda: torch.func.jvp(loss, (detached,), (detached,)),
        forward_mode,
    ):
        with pytest.raises(TokenspaceError, match="chunked=False"):
            transform()
    direct = torch.autograd.grad(loss(weight), weight)[0]
    torch.testing.assert_close(
        torch.func.grad(lambda w: loss(w, summed_loss))(detached), direct, rtol=1e-5, atol=1e-5
    )


def second(loss, hidden):
    gradient = torch.autograd.grad(loss(hidden), hidden, create_graph=True)[0]
    return (gradient.square().sum() + loss(hidden)).backward()


@pytest.mark.parametrize("terms", [Terms(), Terms(5.0)], ids=str)
@pytest.mark.parametrize(
    "differentiate",
    [
        second,
        lambda loss, x: torch.autograd.grad(
            loss(x), x, grad_outputs=torch.ones(3), is_grads_batched=True
        ),
        lambda loss, x: torch.autograd.functional.jacobian(loss, x, vectorize=True),
        lambda loss, x: torch.autograd.functional.hessian(loss, x),
        lambda loss, x: torch.autograd.functional.hvp(loss, x, torch.ones_like(x)),
        lambda loss, x: torch.autograd.functional.jvp(loss, x, torch.ones_like(x)),
        lambda loss, x: torch.func.vmap(loss)(x[None].detach()),
        lambda loss, x: torch.func.hessian(loss)(x.detach()),
    ],
    ids=["penalty", "batched", "vectorized", "hessian", "hvp", "jvp", "vmap", "func.hessian"],
)  # fmt: skip
def test_every_other_derivative_is_refused_in_one_sentence(differentiate, terms, batch):
    hidden, weight, bias, labels, counted = batch(torch.float32)

    def loss_of(summed):
        return lambda x: summed(x, weight, bias, labels, counted, terms)

    with pytest.raises(TokenspaceError, match=r"is_grads_batched.*call loss\(\.\.\., chunked=False\)"):
        differentiate(loss_of(chunked_summed_loss), hidden)
    differentiate(loss_of(summed_loss), hidden)  # as the sentence advises


def test_a_graph_of_the_gradient_that_nobody_differentiates_does_no_harm(batch):
    hidden, *others = batch(torch.float32)
    plain = torch.autograd.grad(chunked_summed_loss(hidden, *others, Terms()), hidden)[0]
    kept = torch.autograd.grad(chunked_summed_loss(hidden, *others, Terms()), hidden, create_graph=True)[0]
    assert torch.equal(kept, plain)
    assert kept.requires_grad


@pytest.mark.parametrize("label", [-1, -100, V])
def test_a_label_that_nobody_checked_is_never_ignored(label):
    labels = torch.tensor([1, label, 2])
    with pytest.raises((RuntimeError, IndexError), match=f"{V} is out of bounds"):
        torch_chunked_loss(torch.ones(3, D), torch.ones(V, D), None, labels, torch.tensor([True] * 3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own forward mode
def test_a_bias_with_a_tangent_is_refused(batch):
    hidden, weight, bias, labels, counted = batch(torch.float32)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(bias.detach(), torch.ones(V))
        with pytest.raises(TokenspaceError, match="chunked=False"):
            chunked_summed_loss(hidden, weight, dual, labels, counted, Terms())
