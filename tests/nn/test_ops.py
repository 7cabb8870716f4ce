"""The operators alone: what torch asks of one, and every kind of gradient."""

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace import reference
from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import TokenEmbedding, ops, plain, torch_only
from tokenspace.nn.ops import Norm, Rows

V, D = 7, 4
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
floats = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def make(dtype=torch.float64, batch=2, length=3, gradients=True, seed=0):
    """A token table with scale and padding, positions that skip a row, segments; a LayerNorm's parameters."""
    torch.manual_seed(seed)
    shape = (batch, length)
    tables = [torch.randn(n, D).to(dtype).requires_grad_(gradients) for n in (V, 5, 2)]
    ids = [torch.randint(0, V, shape), torch.randint(0, 5, (1, length)), torch.randint(0, 2, shape)]
    rows = [
        Rows(table, own, padding, name)
        for table, own, padding, name in zip(
            tables, ids, (2, 1, -1), ("token id", "position id", "segment id"), strict=True
        )
    ]
    gamma, beta = ((torch.rand(D) + 0.5).to(dtype).requires_grad_(gradients) for _ in range(2))
    return rows, Norm(gamma, beta, 1e-5)


def arguments(rows, norm=None, seed=None, p=0.0, scale=2.0, sparse=False):
    gamma, beta, eps = norm or (None, None, None)
    return (
        [part.table for part in rows], [part.ids for part in rows], gamma, beta, seed, scale, eps, p,
        [part.padding for part in rows], [part.name for part in rows], sparse,
    )  # fmt: skip


def leaves(rows, norm):
    return [part.table for part in rows] + ([] if norm is None else [norm.gamma, norm.beta])


class TestWhatTorchAsks:
    @floats
    @pytest.mark.parametrize("normed", [False, True])
    def test_of_the_input_and_its_gradients(self, dtype, normed):
        rows, norm = make(dtype)
        given = arguments(rows, norm if normed else None, torch.tensor(5), 0.25)
        torch.library.opcheck(torch.ops.tokenspace.embed, given)
        out, mean, rstd = torch.ops.tokenspace.embed(*given)
        tables, ids, gamma, beta, seed, scale, eps, p, padding, _, _ = given
        with torch.no_grad():
            for needs in ([normed, normed, True, True, True], [False, normed, False, True, False]):
                torch.library.opcheck(
                    torch.ops.tokenspace.embed_gradients,
                    (torch.randn_like(out), tables if normed else [], ids, gamma, beta, seed, mean, rstd,
                     [V, 5, 2], scale, eps, p, padding, False, needs),
                )  # fmt: skip

    def test_of_a_lookup_alone(self):
        rows, _ = make(torch.float32)
        torch.library.opcheck(torch.ops.tokenspace.embed, arguments(rows[:1], scale=None))

    def test_of_a_row_sparse_gradient(self):
        rows, _ = make(torch.float32)
        out, mean, rstd = torch.ops.tokenspace.embed(*arguments(rows, sparse=True))
        given = ([], [part.ids for part in rows], None, None, None, mean, rstd, [V, 5, 2], 2.0, None, 0.0,
                 [2, 1, -1], True, [False, False, True, False, True])  # fmt: skip
        names = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(
            torch.ops.tokenspace.embed_gradients, (torch.ones_like(out).detach(), *given), test_utils=names
        )

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda rows, norm: (rows, norm._replace(gamma=torch.ones(D + 1, dtype=torch.float64))),
            lambda rows, norm: (rows, norm._replace(beta=torch.ones(D))),
            lambda rows, norm: ([*rows, rows[1]._replace(table=torch.ones(5, D + 1))], norm),
            lambda rows, norm: ([*rows, rows[1]._replace(table=torch.ones(5, D))], norm),
            lambda rows, norm: ([*rows, rows[1]._replace(ids=torch.tensor([0, 1, 2, 3]))], norm),
            lambda rows, norm: ([*rows, rows[1]._replace(ids=torch.tensor([], dtype=torch.int64))], norm),
        ],
    )
    def test_what_does_not_fit_together_is_refused(self, spoil):
        with pytest.raises(ShapeError):
            torch.ops.tokenspace.embed(*arguments(*spoil(*make())))

    def test_operators_take_tables_in_any_order(self):
        rows, norm = make()
        expected, *_ = torch.ops.tokenspace.embed(*arguments(rows, norm))
        turned = [part._replace(table=part.table.detach().T.contiguous().T) for part in rows]
        assert torch.equal(torch.ops.tokenspace.embed(*arguments(turned, norm))[0], expected)

    def test_of_dropout_and_of_catching_up(self):
        x = torch.randn(3, 4, requires_grad=True)
        torch.library.opcheck(torch.ops.tokenspace.dropout, (x, torch.tensor(-3), 0.5))
        torch.library.opcheck(torch.ops.tokenspace.caught_up, (x, torch.randn(2, 4)))


@floats
@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("normed", [False, True])
def test_forward_and_gradients_are_torch_s(dtype, p, normed):
    rows, norm = make(dtype)
    norm = norm if normed else None
    found, expected = [], []
    for results, off in ((found, False), (expected, True)):
        torch.manual_seed(3)
        if off:
            how = ops.How(2.0, norm.eps if norm else None, p, [2, 1, -1], [], False)
            seed = int(ops.draw_seed()) if p else 0
            tables, ids = [part.table for part in rows], [part.ids for part in rows]
            out = plain.embed(tables, ids, *(norm[:2] if norm else (None, None)), seed, how)
        else:
            out = ops.embed(rows, 2.0, norm, p)
        torch.manual_seed(4)
        d_out = torch.randn(out.shape, dtype=torch.float64).to(dtype)
        results += [out, *torch.autograd.grad(out, leaves(rows, norm), d_out)]
    if not normed:
        assert torch.equal(found[0], expected[0])
    step = {torch.float64: 1e-12, torch.float32: 2e-6}.get(dtype, 8 * torch.finfo(dtype).eps)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=step, atol=step)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_gradients_and_their_gradients_are_finite_differences(normed, p):
    rows, norm = make()

    def call(*tensors):
        torch.manual_seed(1)  # the same mask at each call
        own = [part._replace(table=table) for part, table in zip(rows, tensors, strict=False)]
        return ops.embed(own, 2.0, Norm(*tensors[3:], 1e-5) if normed else None, p)

    tensors = leaves(rows, norm if normed else None)
    unpadded = [part._replace(padding=-1) for part in rows]  # a padding row's gradient is zero by decree
    rows[:] = unpadded
    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("loss", [torch.square, lambda out: out * torch.arange(D)], ids=["square", "linear"])
def test_a_gradient_penalty_is_torch_s(loss):
    rows, norm = make()
    penalties = []
    for off in (False, True):
        torch.manual_seed(2)
        if off:
            how = ops.How(2.0, norm.eps, 0.25, [2, 1, -1], [], False)
            tables, ids = [part.table for part in rows], [part.ids for part in rows]
            out = plain.embed(tables, ids, *norm[:2], int(ops.draw_seed()), how)
        else:
            out = ops.embed(rows, 2.0, norm, 0.25)
        first = torch.autograd.grad(loss(out).sum(), leaves(rows, norm), create_graph=True)
        total = sum(each.square().sum() for each in first)
        second = torch.autograd.grad(total, leaves(rows, norm), materialize_grads=True)
        penalties.append([total, *second])
    for ours, theirs in zip(*penalties, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_small_integers_are_ids_of_a_gradient_with_a_graph_too():
    rows, norm = make()
    small = [part._replace(ids=part.ids.to(torch.uint8)) for part in rows]
    found = [
        torch.autograd.grad(ops.embed(each, 2.0, norm).square().sum(), leaves(rows, norm), create_graph=True)
        for each in (rows, small)
    ]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_one_tensor_in_two_places_gets_the_sum_of_both():
    rows, norm = make()
    shared = [rows[0], rows[2]._replace(table=rows[0].table)]
    for create_graph in (False, True):
        out = ops.embed(shared, 2.0, norm)
        (found,) = torch.autograd.grad(out.square().sum(), rows[0].table, create_graph=create_graph)
        how = ops.How(2.0, norm.eps, 0.0, [2, -1], [], False)
        twin = plain.embed([part.table for part in shared], [part.ids for part in shared], *norm[:2], 0, how)
        (expected,) = torch.autograd.grad(twin.square().sum(), rows[0].table)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("needed", [0, 1, 2])
def test_dropout_reaches_the_one_table_that_is_trained(needed):
    rows, _ = make()
    for k, part in enumerate(rows):
        part.table.requires_grad_(k == needed)
    torch.manual_seed(0)
    out = ops.embed(rows, 1.0, p=0.5)
    out.backward(torch.ones_like(out))
    kept = torch.where(out == 0, 0.0, 2.0).double()
    ids = rows[needed].ids.expand(2, 3).flatten()
    expected = torch.zeros_like(rows[needed].table).index_add_(0, ids, kept.flatten(0, 1))
    if rows[needed].padding >= 0:
        expected[rows[needed].padding] = 0
    torch.testing.assert_close(rows[needed].table.grad, expected)


def test_only_gradients_that_are_needed_are_computed():
    rows, norm = make()
    rows[0].table.requires_grad_(False)
    norm.beta.requires_grad_(False)
    ops.embed(rows, 2.0, norm).sum().backward()
    assert rows[0].table.grad is None
    assert norm.beta.grad is None
    assert all(each.grad is not None for each in (rows[1].table, rows[2].table, norm.gamma))


ARRIVALS = {
    "expanded": lambda d: d[:1, :1].expand(d.shape),
    "transposed": lambda d: d.transpose(0, 1).contiguous().transpose(0, 1),
    "every other": lambda d: torch.stack([d, d], dim=-1)[..., 0],
    "conjugate's imaginary part": lambda d: torch.complex(d, d).conj().imag,
    "negated when read": torch._neg_view,
}


@pytest.mark.parametrize("arrange", ARRIVALS.values(), ids=ARRIVALS)
@pytest.mark.parametrize("normed", [False, True])
def test_an_incoming_gradient_may_lie_anyhow_and_stays_as_it_is(arrange, normed):
    rows, norm = make()
    norm = norm if normed else None
    d_out = arrange(torch.randn(2, 3, D, dtype=torch.float64))
    before = d_out.clone()
    found = torch.autograd.grad(ops.embed(rows, 2.0, norm), leaves(rows, norm), d_out)
    expected = torch.autograd.grad(ops.embed(rows, 2.0, norm), leaves(rows, norm), before.contiguous())
    assert torch.equal(d_out, before)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


@st.composite
def lookups(draw):
    rows, width = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    axes = draw(st.lists(st.integers(0, 6), min_size=0, max_size=3))
    kind = draw(st.sampled_from(["any", "all equal", "all padding"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    padding = draw(st.none() | st.integers(0, rows - 1))
    ids = rng.integers(0, rows, axes)
    if kind != "any":
        ids = np.full(axes, padding if kind == "all padding" and padding is not None else rows - 1)
    return rng.normal(size=(rows, width)), ids, padding, draw(st.sampled_from([None, "sqrt", 0.3]))


@settings(deadline=None, max_examples=60)
@given(lookups(), st.sampled_from([np.float32, np.float64]), st.booleans(), st.booleans())
def test_any_lookup_is_the_references(drawn, dtype, sparse, apart):
    weight, ids, padding, scale = drawn
    weight = weight.astype(dtype)
    module = TokenEmbedding.from_pretrained(
        torch.tensor(weight), freeze=False, padding_idx=padding, scale=scale, sparse=sparse
    )
    truth = reference.Embedding.from_weight(weight, padding_id=padding, scale=scale)
    given_ids = torch.tensor(ids)
    if apart and ids.ndim:  # ids with gaps between them
        given_ids = torch.stack([given_ids, given_ids + 1], dim=-1)[..., 0]
    out = module(given_ids)
    np.testing.assert_array_equal(out.detach().numpy(), truth.forward(ids))
    upstream = np.random.default_rng(1).normal(size=out.shape).astype(dtype)
    out.backward(torch.tensor(upstream))
    found = module.weight.grad
    if sparse:
        assert found.is_coalesced()
        distinct = np.unique(ids[ids != padding]) if padding is not None else np.unique(ids)
        np.testing.assert_array_equal(found.indices()[0].numpy(), distinct)
        found = found.to_dense()
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(found.numpy(), truth.backward(upstream), rtol=tolerance, atol=tolerance)


def test_many_incoming_gradients_at_once():
    rows, norm = make()
    many = torch.randn(5, 2, 3, D, dtype=torch.float64)
    for own in (None, norm):
        out = ops.embed(rows, 2.0, own, 0.25)
        at_once = torch.autograd.grad(out, leaves(rows, own), many, is_grads_batched=True, retain_graph=True)
        one = torch.autograd.grad(out, leaves(rows, own), many[3])
        for batched, alone in zip(at_once, one, strict=True):
            torch.testing.assert_close(batched[3], alone)


class TestDropout:
    def test_the_mask_in_torch_is_the_kernel_s(self):
        x = torch.rand(5, 7, 33) + 1
        for seed in (0, 1, -1, 2**63 - 1, -(2**63)):
            for p in (0.1, 0.5, 1.0):
                assert torch.equal(plain.dropout(x, seed, p), ops.kernel_calls.dropout(x, seed, p))

    def test_is_repeated_by_the_seed_and_differs_without(self):
        x = torch.ones(50, 20, requires_grad=True)
        torch.manual_seed(0)
        one, two = ops.dropout(x, 0.3), ops.dropout(x, 0.3)
        torch.manual_seed(0)
        again = ops.dropout(x, 0.3)
        assert torch.equal(one, again)
        assert not torch.equal(one, two)
        assert (one != 0).float().mean().item() == pytest.approx(0.7, abs=0.05)
        (gradient,) = torch.autograd.grad(one.sum(), x)
        assert torch.equal(gradient, one.detach())

    def test_many_incoming_gradients_at_once(self):
        x = torch.ones(3, 4, requires_grad=True)
        out, many = ops.dropout(x, 0.5), torch.randn(5, 3, 4)
        (at_once,) = torch.autograd.grad(out, x, many, is_grads_batched=True)
        assert torch.equal(at_once, many * out.detach())

    def test_in_torch_only_and_compiled_too(self):
        x = torch.ones(4, 5)
        torch.manual_seed(0)
        expected = ops.dropout(x, 0.5)
        torch.manual_seed(0)
        with torch_only():
            assert torch.equal(ops.dropout(x, 0.5), expected)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_a_table_of_no_numbers_is_torch_s(shape):
    weight = torch.empty(shape, requires_grad=True)
    ids = torch.zeros((2, 0 if shape[0] == 0 else 4), dtype=torch.int64)
    out = torch.func.functional_call(TokenEmbedding(3, 3), {"weight": weight}, (ids,))
    out.sum().backward()
    assert out.shape == (*ids.shape, shape[1])
    assert weight.grad.shape == shape


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
@pytest.mark.parametrize("bad", [[[0, 7, 1]], [[-1, 0, 0]], [[2**14, 0, 0]]])
def test_a_bad_id_in_any_place_is_told_before_anything_is_read(bad, dtype):
    rows, _ = make()
    for k, name in enumerate(("token id", "position id", "segment id")):
        wrong = list(rows)
        wrong[k] = rows[k]._replace(ids=torch.tensor(bad, dtype=dtype).expand(2 if k != 1 else 1, 3))
        with pytest.raises(TokenIdError, match=f"{name}s? (is|are) outside this table"):
            ops.embed(wrong)


def test_results_may_be_changed_in_place_and_share_no_memory():
    for dtype in FLOATS:
        module = TokenEmbedding(V, D, dtype=dtype)
        one, two = module(torch.tensor([[1, 2]])), module(torch.tensor([[1, 2]]))
        assert not one._is_view()
        one += 1
        one.sum().backward()
        assert (module.weight.grad[1] == 1).all()
        assert torch.equal(two, module.weight[torch.tensor([[1, 2]])])


def test_big_results_live_as_long_as_anyone_holds_them():
    module = TokenEmbedding(1000, 512, dtype=torch.bfloat16)
    ids = torch.randint(0, 1000, (4, 600))
    with torch.no_grad():
        kept = module(ids)[1]
        for _ in range(4):
            module(torch.zeros_like(ids))
        assert torch.equal(kept, module.weight[ids[1]])


def test_changing_the_table_between_forward_and_backward_is_fine_for_a_sum_and_told_with_a_norm():
    rows, norm = make()
    out = ops.embed(rows, 2.0)
    with torch.no_grad():
        rows[0].table.mul_(2)
    out.sum().backward()
    out = ops.embed(rows, 2.0, norm)
    with torch.no_grad():
        rows[0].table.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_ids_changed_between_forward_and_backward_are_told():
    module, ids = TokenEmbedding(V, D), torch.tensor([1, 2])
    out = module(ids)
    ids.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_torch_only_ends_with_its_block():
    module, ids = TokenEmbedding(V, D), torch.tensor([1])
    for error in (None, KeyError):
        with contextlib.suppress(KeyError), torch_only():
            assert "EmbeddingBackward" in module(ids).grad_fn.name()
            with torch_only():
                pass
            assert "EmbeddingBackward" in module(ids).grad_fn.name()
            if error:
                raise error
        assert module(ids).grad_fn.name() == "EmbedBackward"


def test_a_checkpointed_block_drops_the_same_numbers_again():
    rows, norm = make()
    results = []
    for checkpointed in (False, True):
        torch.manual_seed(0)

        def block(x):
            return ops.embed(rows, 2.0, norm, 0.5) * x

        x = torch.ones((), dtype=torch.float64, requires_grad=True)
        out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves(rows, norm))])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))
