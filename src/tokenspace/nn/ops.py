"""The kernels as torch operators, with their gradients.

    x[n] = scale · E[ids[n]] + T1[ids1[n]] + …  -> LayerNorm -> dropout

Eager code on a CPU goes through a ``torch.autograd.Function``; compiled and exported code through operators
of ``torch.library``, whose Python costs some 50 µs a call more. Both hand the tensors' memory to the kernels
in ``tokenspace.nn.kernel_calls``. Where ``dispatch`` says no, the caller takes torch's own operations
(``tokenspace.nn.plain``), and so does the gradient of a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from tokenspace.nn import dispatch, kernel_calls, pending_rows, plain
from tokenspace.nn.kernel_calls import How, Left


class Rows(NamedTuple):
    """Rows of a table (R, D), one for each id. A table's ids serve the positions again and again, in order.

    ``padding`` is the row that gets no gradient, or -1. ``name`` is what errors call the ids; ids without one
    were made to fit, and are not checked.
    """

    table: Tensor
    ids: Tensor
    padding: int = -1
    name: str = ""


class Norm(NamedTuple):
    """A LayerNorm over D: its parameters, if it has them, and what is added to the variance."""

    gamma: Tensor | None
    beta: Tensor | None
    eps: float


def _is_batched(tensor: Tensor) -> bool:
    """Whether it stands for many, as ``torch.autograd.grad(is_grads_batched=True)`` has them."""
    return not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.CPU)


def embed(
    rows: Sequence[Rows],
    scale: float | None = None,
    norm: Norm | None = None,
    p: float = 0.0,
    *,
    sparse: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The input (\\*axes, D) of the first rows' ids (\\*axes), with the others' added.

    ``scale`` multiplies the first ones, and ``sparse`` is about their table's gradient. ``dispatch`` must
    have said yes. ``TokenIdError`` for an id that is no row. ``out`` is written and returned; the caller has
    checked it.

    >>> table, positions = torch.eye(3), torch.full((2, 3), 0.5)
    >>> embed([Rows(table, torch.tensor([[2, 0]])), Rows(positions, torch.tensor([[0, 1]]))])
    tensor([[[0.5000, 0.5000, 1.5000],
             [1.5000, 0.5000, 0.5000]]])
    """
    tables, ids = [part.table for part in rows], [part.ids for part in rows]
    gamma, beta, eps = (None, None, None) if norm is None else norm
    how = How(scale, eps, p, [part.padding for part in rows], [part.name for part in rows], sparse)
    if torch.compiler.is_compiling():
        seed = draw_seed() if p else None
        made = _embed(tables, ids, gamma, beta, seed, *how)[0]
        return made if out is None else out.copy_(made)
    number = int(draw_seed()) if p else 0
    if out is None and torch.is_grad_enabled() and dispatch.any_requires_grad(gamma, beta, *tables):
        return Embed.apply(how, number, len(tables), gamma, beta, *tables, *ids)
    made = kernel_calls.forward(tables, ids, gamma, beta, number, how, out)[0]
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)  # autograd doesn't see what is written through NumPy
    return made


def dropout(x: Tensor, p: float) -> Tensor:
    """``x`` (\\*axes, D) with a share ``p`` of its numbers zero and the others over 1 - p, as in `embed`.

    `drops` must have said yes.
    """
    if torch.compiler.is_compiling():
        return plain.dropout(x, draw_seed(), p) if dispatch._kernels_are_off else _dropout(x, draw_seed(), p)
    number = int(draw_seed())
    if dispatch._kernels_are_off:
        return plain.dropout(x, number, p)
    if dispatch.factors_are_kept(x):
        return x * kernel_calls.dropout_factors(x, number, p)
    return Drop.apply(x, number, p)


def drops(x: Tensor) -> bool:
    """Whether `dropout` takes it: on a CPU, a plain tensor, and nothing watches operations."""
    return x.dtype in dispatch.DTYPES and x.ndim > 0 and dispatch.unwatched(x)


def draw_seed() -> Tensor:
    """A seed from torch's generator, which ``torch.manual_seed`` sets."""
    return torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64, device="cpu")


def caught_up(hidden: Tensor, weight: Tensor) -> Tensor:
    """``hidden``, once all rows of ``weight`` are what they are meant to be (``nn.pending_rows``)."""
    if torch.compiler.is_compiling() and dispatch.on_kernels([weight]):
        return _caught_up(hidden, weight)
    catch_up(weight)
    return hidden


def catch_up(weight: Tensor, ids: Tensor | None = None) -> None:
    """Have postponed steps of all rows of ``weight`` done, or of ``ids``; compiled code has `caught_up`."""
    if torch.compiler.is_compiling():
        return
    while torch._C._functorch.is_functorch_wrapped_tensor(weight):
        weight = torch._C._functorch.get_unwrapped(weight)
    if type(weight) not in dispatch.PLAIN or not weight.is_cpu:
        return
    if dispatch.is_watched(False):  # the steps are no part of what is transformed or watched
        with temporarily_clear_interpreter_stack(), _disable_current_modes():
            pending_rows.read(weight)  # the ids may be wrapped
    else:
        pending_rows.read(weight, ids)


class Embed(torch.autograd.Function):
    """`embed` in eager code."""

    @staticmethod
    def forward(ctx: Any, how: How, seed: int, count: int, *tensors: Any) -> Tensor:
        gamma, beta = tensors[:2]
        tables, ids = tensors[2 : 2 + count], tensors[2 + count :]
        out, ctx.mean, ctx.rstd = kernel_calls.forward(tables, ids, gamma, beta, seed, how)
        # LayerNorm's backward computes its input again. A sum's needs no table, which may change meanwhile.
        ctx.save_for_backward(*ids, *((gamma, beta, *tables) if how.eps is not None else ()))
        ctx.how, ctx.seed, ctx.rows = how, seed, [table.shape[0] for table in tables]
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
        count = len(ctx.rows)
        saved = ctx.saved_tensors  # asked for once: activation checkpointing gives them once
        ids, kept = saved[:count], saved[count:]
        gamma, beta, *tables = kept or (None, None)
        left = Left(tables, ids, gamma, beta, ctx.seed, ctx.mean, ctx.rstd, ctx.rows)
        found = _gradients(d_out, left, ctx.how, ctx.needs_input_grad[3 : 5 + count])
        return (None, None, None, *found, *[None] * count)


class Drop(torch.autograd.Function):
    """`dropout` in eager code: linear, so its own backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, p: float) -> Tensor:
        ctx.seed, ctx.p = seed, p
        return kernel_calls.dropout(x, seed, p)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, None, None]:
        compiling = torch.compiler.is_compiling()
        if not compiling and drops(d_out) and not _is_batched(d_out):
            return Drop.apply(d_out, ctx.seed, ctx.p), None, None
        return plain.dropout(d_out, ctx.seed, ctx.p), None, None


def _gradients(
    d_out: Tensor, left: Left, how: How, needs: Sequence[bool], by_operator: bool = False
) -> list[Tensor | None]:
    """The gradients of gamma, beta and each table where ``needs`` has them, from kernels or from torch."""
    differentiable = torch.is_grad_enabled() and (d_out.requires_grad or how.eps is not None)
    if differentiable or torch._C._are_functorch_transforms_active():
        return plain.embed_gradients(d_out, left, how, needs)
    if not (by_operator or torch.compiler.is_compiling()):
        if dispatch.is_watched(False) or not dispatch.is_plain(d_out, False) or _is_batched(d_out):
            return plain.embed_gradients(d_out, left, how, needs)
        return kernel_calls.gradients(d_out, left, how, needs)
    seed = torch.tensor(left.seed) if isinstance(left.seed, int) else left.seed
    settings = (how.scale, how.eps, how.p, how.padding, how.sparse)
    flat = _embed_gradients(d_out, *left._replace(seed=seed), *settings, list(needs))
    found = iter(flat)
    gradients = [next(found) if needed else None for needed in needs]
    if how.sparse and needs[2]:
        gradients[2] = kernel_calls.row_sparse(flat[-1], flat[sum(needs[:2])], left.rows[0])
    return gradients


# --- the operators of compiled code

_HOW = "float? scale, float? eps, float p, int[] padding"


@torch.library.custom_op(
    "tokenspace::embed",
    mutates_args=(),
    schema="(Tensor[] tables, Tensor[] ids, Tensor? gamma, Tensor? beta, Tensor? seed, "
    f"{_HOW}, str[] names, bool sparse) -> (Tensor, Tensor, Tensor)",
)
def _embed(tables, ids, gamma, beta, seed, *how):
    tables, gamma, beta = _in_order(tables, gamma, beta)
    kernel_calls.check_fit(tables, ids, gamma, beta)
    number = 0 if seed is None else int(seed)
    out, mean, rstd = kernel_calls.forward(tables, ids, gamma, beta, number, How(*how))
    wide = torch.float64 if tables[0].dtype == torch.float64 else torch.float32
    moments = (torch.empty(0, dtype=wide, device="cpu") if each is None else each for each in (mean, rstd))
    return out, *moments


def _in_order(tables, gamma, beta):
    """The same without gaps, should a compiler have arranged what it computed in another order."""
    parameters = (None if each is None else each.contiguous() for each in (gamma, beta))
    return [table.contiguous() for table in tables], *parameters


@_embed.register_fake
def _(tables, ids, gamma, beta, seed, *how):
    how = How(*how)
    moments = ids[0].numel() if how.eps is not None else 0  # shape.numel() would fix a dynamic one
    wide = torch.float64 if tables[0].dtype == torch.float64 else torch.float32
    out = tables[0].new_empty((*ids[0].shape, tables[0].shape[1]))
    return out, *(tables[0].new_empty(moments, dtype=wide) for _ in range(2))


@torch.library.custom_op(
    "tokenspace::embed_gradients",
    mutates_args=(),
    schema="(Tensor d_out, Tensor[] tables, Tensor[] ids, Tensor? gamma, Tensor? beta, Tensor? seed, "
    f"Tensor? mean, Tensor? rstd, SymInt[] rows, {_HOW}, bool sparse, bool[] needs) -> Tensor[]",
)
def _embed_gradients(d_out, *rest):
    """The gradients that are needed; of a row-sparse one its values here, and its rows at the end."""
    left, how, needs = _unpacked(rest)
    tables, gamma, beta = _in_order(left.tables, left.gamma, left.beta)
    seed = 0 if left.seed is None else int(left.seed)
    left = left._replace(tables=tables, gamma=gamma, beta=beta, seed=seed)
    found = kernel_calls.gradients(d_out, left, how, needs)
    flat = [each for each in found if each is not None]
    if how.sparse and needs[2]:
        token = flat[sum(needs[:2])]
        flat[sum(needs[:2])] = token._values()
        flat.append(token._indices()[0].clone())  # an operator's outputs share no memory
    return flat


@_embed_gradients.register_fake
def _(d_out, *rest):
    left, how, needs = _unpacked(rest)
    shapes = [(d_out.shape[-1],), (d_out.shape[-1],), *((count, d_out.shape[-1]) for count in left.rows)]
    ids = []
    if how.sparse and needs[2]:
        distinct = torch.library.get_ctx().new_dynamic_size()
        shapes[2] = (distinct, d_out.shape[-1])
        ids = [d_out.new_empty((distinct,), dtype=torch.int64)]
    found = [d_out.new_empty(shape) for shape, needed in zip(shapes, needs, strict=True) if needed]
    return [*found, *ids]


def _unpacked(rest):
    *left, scale, eps, p, padding, sparse, needs = rest
    return Left(*left), How(scale, eps, p, padding, (), sparse), needs


def _keep(ctx, inputs, output):
    tables, ids, gamma, beta, seed, *how = inputs
    ctx.how, ctx.rows = How(*how), [table.shape[0] for table in tables]
    kept = (gamma, beta, *tables) if ctx.how.eps is not None else ()
    ctx.save_for_backward(seed, *output[1:], *ids, *kept)
    ctx.mark_non_differentiable(*output[1:])


def _embed_backward(ctx, d_out, *_):
    seed, mean, rstd, *saved = ctx.saved_tensors
    ids, kept = saved[: len(ctx.rows)], saved[len(ctx.rows) :]
    gamma, beta, *tables = kept or (None, None)
    left = Left(tables, ids, gamma, beta, seed, mean, rstd, ctx.rows)
    needs = [*ctx.needs_input_grad[2:4], *ctx.needs_input_grad[0]]
    found = _gradients(d_out, left, ctx.how, needs, by_operator=True)
    return found[2:], [None] * len(ids), found[0], found[1], *[None] * (len(ctx.needs_input_grad) - 4)


_embed.register_autograd(_embed_backward, setup_context=_keep)


@torch.library.custom_op("tokenspace::dropout", mutates_args=())
def _dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    return kernel_calls.dropout(x, int(seed), p)


@_dropout.register_fake
def _(x, seed, p):
    return x.new_empty(x.shape)


_dropout.register_autograd(
    lambda ctx, d_out: (_dropout(d_out, ctx.saved_tensors[0], ctx.p), None, None),
    setup_context=lambda ctx, inputs, output: _keep_dropout(ctx, *inputs),
)


def _keep_dropout(ctx, x, seed, p):
    ctx.save_for_backward(seed)
    ctx.p = p


@torch.library.custom_op("tokenspace::caught_up", mutates_args=())
def _caught_up(hidden: Tensor, weight: Tensor) -> Tensor:
    """A copy of ``hidden``: what reads the table afterwards takes it, and so comes afterwards."""
    pending_rows.read(weight)
    return hidden.clone()


@_caught_up.register_fake
def _(hidden, weight):
    return torch.empty_like(hidden)


_caught_up.register_autograd(lambda ctx, d_hidden: (d_hidden, None))
