"""Cross entropy of a vocabulary head, a chunk of positions at a time: of (N, V) logits 2^25 at most exist.

    forward    s = cap · tanh((h Eᵀ + b) / cap)                         (no cap: s = h Eᵀ + b)
               loss = Σ_n  log Σ_v exp s[n, v] - (1-ε) · s[n, label] - ε · mean_v s[n, v]
    backward   d_s = softmax(s) - (1-ε) · onehot(label) - ε / V,  × (1 - (s / cap)²)
               dh = d_s E     dE = Σ d_sᵀ h     db = Σ d_s

The forward keeps no numbers; the backward makes each chunk's scores again (one matrix product more than the
naive loss) and adds up one (V, D) gradient. Off the CPU the plain case (no cap, smoothing or masked row) is
left to torch's own ``linear_cross_entropy``, which was made for GPUs: on a CPU its (V, D) gradient is there
twice before it reaches ``.grad`` (benchmarks/lm_head_loss.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import LinearCrossEntropyOptions

from tokenspace.errors import TokenspaceError
from tokenspace.nn.sharded import distributed_like, is_distributed

CHUNK_NUMBERS = 2**25
"""Scores in a chunk: 128 MB of float32. Smaller chunks would read the whole table too often."""


_PLAIN_ONLY = (
    "the chunked loss has a plain backward only: no second derivatives, no batched gradients "
    "(is_grads_batched), no torch.func and no forward-mode differentiation; call loss(..., chunked=False)"
)


class Terms(NamedTuple):
    """What bends the plain loss: ``soft_cap``; ``label_smoothing`` ε; ``masked``, a row no label names."""

    soft_cap: float | None = None
    label_smoothing: float = 0.0
    masked: int | None = None


def token_losses(scores: Tensor, labels: Tensor, terms: Terms) -> Tensor:
    """The loss of each position: scores (N, V) before the cap, labels (N,) that are all rows -> (N,) float32.

    >>> token_losses(torch.zeros(2, 4), torch.tensor([0, 3]), Terms())  # ln 4
    tensor([1.3863, 1.3863])
    """
    scores = _bent(scores, terms)
    spread = _spread(scores, terms) if terms.label_smoothing else 0.0
    if terms.masked is not None:
        scores = without_row(scores, terms.masked)
    if is_distributed(scores):  # whose gather takes fewer placements than torch's own loss
        plain = F.cross_entropy(scores, labels, reduction="none")
        if not terms.label_smoothing:
            return plain
        smooth = scores.logsumexp(1) - spread
        return (1.0 - terms.label_smoothing) * plain + terms.label_smoothing * smooth
    picked = scores.gather(1, labels[:, None])[:, 0]
    return scores.logsumexp(1) - (1.0 - terms.label_smoothing) * picked - terms.label_smoothing * spread


def summed_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, terms: Terms
) -> Tensor:
    """Sum of `token_losses` over the ``counted`` positions: hidden (N, D), weight (V, D), bias (V,)."""
    losses = token_losses(F.linear(hidden, weight, bias), labels, terms)
    return torch.where(counted, losses, 0.0).sum()


def chunked_summed_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, terms: Terms
) -> Tensor:
    """`summed_loss`, its (N, V) numbers made and dropped a chunk at a time; first-order gradients only."""
    _refuse_transforms(hidden, weight, bias)
    if not len(hidden) or is_distributed(hidden) or is_distributed(weight):
        return summed_loss(hidden, weight, bias, labels, counted, terms)
    if terms == Terms() and not (hidden.is_cpu or hidden.is_meta):
        return torch_chunked_loss(hidden, weight, bias, labels, counted)
    return _ChunkedLoss.apply(hidden, weight, bias, labels, counted, terms)


def torch_chunked_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor
) -> Tensor:
    """`summed_loss` without terms, through ``torch.nn.functional.linear_cross_entropy``."""
    # On a device nobody has read the labels: -1 could be one, and be ignored. The row V stops the kernel.
    rows, ignored = len(weight), -1
    labels = labels.where((labels >= 0) & (labels < rows), rows)
    options = LinearCrossEntropyOptions(
        batch_chunk_size=_chunk(len(hidden), len(weight)),
        chunking_method=None,
        allow_retain_graph=torch.compiler.is_compiling(),  # torch would set it, with a warning
    )
    # In bfloat16 torch adds the losses up in bfloat16 too, unless it is asked for each.
    by_position = hidden.dtype == torch.bfloat16
    loss = F.linear_cross_entropy(
        hidden,
        weight,
        labels.where(counted, ignored),
        linear_bias=bias,
        reduction="none" if by_position else "sum",
        ignore_index=ignored,
        options=options,
    )
    loss = loss.to(torch.promote_types(loss.dtype, torch.float32))
    return loss.sum() if by_position else loss


def _refuse_transforms(*given: Tensor | None) -> None:
    """torch's chunked loss answers forward-mode differentiation with a tangent of 0, and others obscurely."""
    if torch.compiler.is_compiling():
        return
    dual = any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in given)
    if dual or torch._C._are_functorch_transforms_active():
        raise TokenspaceError(_PLAIN_ONLY)


def _is_batched(tensor: Tensor) -> bool:
    """Whether it stands for many, as ``torch.autograd.grad(is_grads_batched=True)`` has them."""
    functorch = torch._C._functorch
    return functorch.is_legacy_batchedtensor(tensor) or functorch.is_batchedtensor(tensor)


class _FirstOrder(torch.autograd.Function):
    """The identity of ``gradients``, which depend on ``sources``, but can't be differentiated."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *sources: Tensor | None) -> tuple[Tensor, ...]:
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise TokenspaceError(_PLAIN_ONLY)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, terms: Terms
    ) -> Tensor:
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        for rows in _chunks(len(hidden), len(weight)):
            total += summed_loss(hidden[rows], weight, bias, labels[rows], counted[rows], terms)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        hidden, weight, bias, labels, counted, ctx.terms = inputs
        ctx.save_for_backward(hidden, weight, bias, labels, counted)

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        if torch.compiler.is_compiling():
            return _ChunkedLoss._gradients(ctx, d_loss)
        if _is_batched(d_loss):
            raise TokenspaceError(_PLAIN_ONLY)
        with torch.no_grad():
            gradients = _ChunkedLoss._gradients(ctx, d_loss)
        if not torch.is_grad_enabled():
            return gradients
        found = [each for each in gradients if each is not None]  # create_graph=True
        marked = iter(_FirstOrder.apply(found, d_loss, *ctx.saved_tensors[:3]))
        return tuple(None if each is None else next(marked) for each in gradients)

    @staticmethod
    def _gradients(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, counted = ctx.saved_tensors
        wide = d_loss.dtype  # float32 at least: sums over positions lose nothing to half precision
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        d_hidden = torch.empty_like(hidden) if needs_hidden else None
        d_weight = torch.zeros_like(weight, dtype=wide) if needs_weight else None
        d_bias = torch.zeros_like(bias, dtype=wide) if needs_bias else None
        with without_autocast(hidden):
            for rows in _chunks(len(hidden), len(weight)):
                d_scores = _d_scores(
                    F.linear(hidden[rows], weight, bias), labels[rows], counted[rows] * d_loss, ctx.terms
                )
                if d_hidden is not None:
                    d_hidden[rows] = d_scores.to(weight.dtype) @ weight
                if d_weight is not None:
                    d_weight.addmm_(d_scores.T, hidden[rows].to(wide))
                if d_bias is not None:
                    d_bias += d_scores.sum(0)
                del d_scores  # before the next chunk's are made
        d_weight = None if d_weight is None else d_weight.to(weight.dtype)
        d_bias = None if d_bias is None else d_bias.to(bias.dtype)
        return d_hidden, d_weight, d_bias, None, None, None


def _d_scores(scores: Tensor, labels: Tensor, d_losses: Tensor, terms: Terms) -> Tensor:
    """The gradient of `token_losses` before the cap, written over the scores (N, V) themselves."""
    d_scores = _bent(scores, terms)
    slope = None if terms.soft_cap is None else 1.0 - (d_scores / terms.soft_cap) ** 2
    masked, smoothing = terms.masked, terms.label_smoothing
    if masked is not None:
        d_scores[:, masked] = float("-inf")
    d_scores.sub_(d_scores.amax(1, keepdim=True)).exp_()
    d_scores.div_(d_scores.sum(1, keepdim=True))
    if smoothing:
        d_scores.sub_(smoothing / (d_scores.shape[1] - (masked is not None)))
    at_label = d_scores.new_full((len(labels), 1), smoothing - 1.0)
    d_scores.scatter_add_(1, labels[:, None], at_label).mul_(d_losses[:, None])
    if slope is not None:
        d_scores.mul_(slope)
    if masked is not None:
        d_scores[:, masked] = 0.0
    return d_scores


def _bent(scores: Tensor, terms: Terms) -> Tensor:
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores if terms.soft_cap is None else terms.soft_cap * torch.tanh(scores / terms.soft_cap)


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Autocast off for the tensor's device; meta, where torch knows no autocast, has none to turn off."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def _spread(scores: Tensor, terms: Terms) -> Tensor:
    """The mean score of the rows that can be predicted."""
    if terms.masked is None:
        return scores.mean(1)
    return (scores.sum(1) - scores[:, terms.masked]) / (scores.shape[1] - 1)


def without_row(scores: Tensor, row: int) -> Tensor:
    """Scores (\\*axes, V) with -Inf at one row of the table; made on the device, so nothing waits for it."""
    here = torch.arange(scores.shape[-1], device=scores.device) == row
    return scores.masked_fill(distributed_like(here, scores), float("-inf"))


def _chunk(positions: int, rows: int) -> int:
    """How many positions are scored at a time."""
    return max(1, min(positions, CHUNK_NUMBERS // rows))


def _chunks(positions: int, rows: int) -> Iterator[slice]:
    size = _chunk(positions, rows)
    return (slice(start, start + size) for start in range(0, positions, size))
