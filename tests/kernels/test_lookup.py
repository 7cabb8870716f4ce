"""The fused input and its backward, held to the reference layer and to torch's own operations."""

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.kernels import lookup, memory
from tokenspace.kernels.dropout import Dropout, dropout
from tokenspace.kernels.gradient import group, segment_sum
from tokenspace.kernels.input_gradient import input_gradient
from tokenspace.kernels.lookup import Norm, embed
from tokenspace.nn.arrays import tensor_of

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


class Case(NamedTuple):
    weight: np.ndarray
    ids: np.ndarray
    scale: float | None
    added: list
    norm: Norm | None
    drop: Dropout | None


def case(seed, texts, length, width, tables, norm, p, scale, dtype):
    """A small layer and a batch for it, drawn at random."""
    rng = np.random.default_rng(seed)

    def rows(count):
        return rng.standard_normal((count, width)).astype(dtype)

    n = texts * length
    added = {
        "position": (rows(length + 2), rng.permutation(length + 2)[:length]),
        "segment": (rows(2), rng.integers(0, 2, n)),
        "many": (rows(30), rng.integers(0, 30, n)),
        "one segment": (rows(2), np.zeros(length, np.int64)),
    }
    return Case(
        rows(11),
        rng.integers(0, 11, n),
        scale,
        [added[name] for name in tables],
        Norm(*(rng.standard_normal(width).astype(dtype) for _ in range(2)), 1e-5) if norm else None,
        Dropout(p, seed) if p else None,
    )


TABLES = [
    [],
    ["position"],
    ["segment"],
    ["position", "segment"],
    ["position", "one segment", "many", "segment"],
]
cases = st.builds(
    case,
    st.integers(0, 2**32),
    st.integers(0, 5),
    st.integers(1, 9),
    st.sampled_from([1, 3, 16, 33]),
    st.sampled_from(TABLES),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([None, 2.7]),
    st.just(np.float64),
)


def by_torch(it: Case, d_out=None):
    """The same by torch's operations, one by one; with ``d_out``, the gradients too."""
    leaves = [tensor_of(a).requires_grad_() for a in (it.weight, *(t for t, _ in it.added))]
    norm = () if it.norm is None else tuple(tensor_of(a).requires_grad_() for a in it.norm[:2])
    x = leaves[0][torch.from_numpy(it.ids)]
    if it.scale is not None:
        x = x * it.scale
    for leaf, (_, ids) in zip(leaves[1:], it.added, strict=True):
        own = np.tile(ids, len(it.ids) // len(ids)) if len(ids) else ids
        x = x + leaf[torch.from_numpy(own)]
    if norm:
        x = torch.nn.functional.layer_norm(x, x.shape[1:], *norm, it.norm.eps)
    if it.drop is not None:
        mask = dropout(np.ones(tuple(x.shape), it.weight.dtype), it.drop)
        x = x * tensor_of(mask)
    if d_out is None:
        return x.detach()
    x.backward(tensor_of(d_out))
    return [np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy() for leaf in (*leaves, *norm)]


@settings(deadline=None, max_examples=80)
@given(cases)
def test_forward_equals_torch(it):
    np.testing.assert_allclose(embed(*it).out, by_torch(it), rtol=1e-11, atol=1e-11)


@settings(deadline=None, max_examples=80)
@given(cases, st.integers(1, 3))
def test_backward_equals_torch(it, threads):
    forward = embed(*it)
    d_out = np.random.default_rng(1).standard_normal(forward.out.shape)
    before = d_out.copy()
    found = input_gradient(d_out, *it, forward.mean, forward.rstd, threads=threads)
    groups = group(it.ids)
    token = np.zeros_like(it.weight)
    scale = 1.0 if it.scale is None else it.scale
    segment_sum(found.dx, groups, scale=scale, out=token, rows=groups.ids)
    parameters = [] if it.norm is None else [found.gamma, found.beta]
    for mine, theirs in zip([token, *found.added, *parameters], by_torch(it, d_out), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(d_out, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tables", TABLES)
def test_sums_have_the_bits_of_eager_torch(dtype, tables):
    it = case(3, 4, 50, 48, tables, False, 0.0, 27.75, dtype)
    found, expected = tensor_of(embed(*it).out), by_torch(it)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_is_as_near_as_torch_to_float64(dtype):
    it = case(4, 4, 50, 300, ["position"], True, 0.0, 3.0, dtype)
    found, theirs = tensor_of(embed(*it).out).double(), by_torch(it).double()
    s = torch.from_numpy(embed(*it[:4]).out.astype(np.float64))
    gamma, beta = (torch.from_numpy(a.astype(np.float64)) for a in it.norm[:2])
    truth = torch.nn.functional.layer_norm(s, (300,), gamma, beta, it.norm.eps)
    assert (found - truth).abs().max() <= 1.1 * (theirs - truth).abs().max() + 1e-14


def test_a_norm_without_parameters():
    it = case(5, 3, 7, 20, ["position"], True, 0.0, None, np.float64)._replace(norm=Norm(None, None, 1e-6))
    s = torch.from_numpy(embed(*it[:4]).out)
    np.testing.assert_allclose(embed(*it).out, torch.layer_norm(s, (20,), eps=1e-6), rtol=1e-11)


def large(dtype=np.float32):
    """Past every threshold: several pieces, streamed, several chunks a group."""
    return case(6, 80, 128, 448, ["position", "segment"], True, 0.1, 2.0, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_are_the_same_at_any_thread_count(dtype):
    it = large(dtype)
    one = embed(*it)
    d_out = one.out[::-1].copy()
    back = input_gradient(d_out, *it, one.mean, one.rstd)
    for threads in (2, 5):
        other = embed(*it, threads=threads)
        assert other.out.tobytes() == one.out.tobytes()
        again = input_gradient(d_out, *it, one.mean, one.rstd, threads=threads)
        for a, b in zip((back.dx, *back.added, *back[2:]), (again.dx, *again.added, *again[2:]), strict=True):
            assert a.tobytes() == b.tobytes()


def test_streaming_changes_no_bit(monkeypatch):
    it = large()
    assert embed(*it).out.nbytes >= lookup.STREAMED
    streamed = embed(*it).out
    monkeypatch.setattr(lookup, "STREAMED", 1 << 60)
    np.testing.assert_array_equal(embed(*it).out, streamed)
    monkeypatch.setattr(lookup, "STREAMED", 0)
    unaligned = memory.empty((len(streamed) + 1, 448), np.float32).reshape(-1)[1:][: streamed.size]
    np.testing.assert_array_equal(embed(*it, out=unaligned.reshape(streamed.shape)).out, streamed)


def test_only_needed_gradients_are_made():
    it = case(7, 4, 6, 8, ["position", "segment"], False, 0.0, None, np.float32)
    d_out = np.ones((24, 8), np.float32)
    found = input_gradient(d_out, *it, needed=[False, True])
    assert found.added[0] is None
    assert found.added[1].sum() == 24 * 8
    assert found.dx is d_out


@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_16_bit_gradients_of_few_rows_are_rounded_once(dtype, rng):
    """5,000 texts share one position and one segment: torch's sum stalls long before."""
    texts = 5_000
    d_out = rng.standard_normal((texts, 4)).astype(dtype)
    position, segment = np.zeros((1, 4), dtype), np.zeros((2, 4), dtype)
    added = [(position, np.zeros(1, np.int64)), (segment, np.ones(texts, np.int64))]
    weight = np.zeros((1, 4), dtype)
    found = input_gradient(d_out, weight, np.zeros(texts, np.int64), None, added)
    truth = segment_sum(d_out, group(np.zeros(texts, np.int64)))
    for gradient in (found.added[0][0], found.added[1][1]):
        assert gradient.tobytes() == truth[0].tobytes()
