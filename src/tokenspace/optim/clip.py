"""The norm of all gradients together, dense and row-sparse, held to a maximum."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from tokenspace.errors import TokenspaceError
from tokenspace.initializers import Real, real
from tokenspace.optim.gradients import RowGradient, row_gradient, wide

_SAFE_POWER = 80  # powers of two around 1 in which sums of powers are exact to rounding in float32
_BLOCK = 1 << 20  # numbers that are scaled at a time where they are not


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: Real,
    norm_type: Real = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """``torch.nn.utils.clip_grad_norm_``, for row-sparse gradients too: gradients are scaled where they are.

    Returns the norm of all gradients, as one vector, before the scaling: in float32 at least, and in float64
    where it passes float32's range; powers that leave that range on the way do no harm. Where ids repeat in a
    gradient, it is the summed rows' norm, and the gradient holds the summed rows from then on. The cost is
    that of the numbers that are there.

    ``ShapeError`` for a norm that is none. With ``error_if_nonfinite``, ``TokenspaceError`` for a total that
    is infinite or NaN; nothing is scaled then.

    >>> weight = torch.nn.Parameter(torch.zeros(4, 1))
    >>> (3.0 * torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True)).sum().backward()
    >>> clip_grad_norm_([weight], max_norm=1.0)
    tensor(6.)
    >>> weight.grad.to_dense().T
    tensor([[0.0000, 1.0000, 0.0000, 0.0000]])
    """
    max_norm = real("max_norm", max_norm, positive=True)
    norm_type = norm_type if norm_type in (math.inf, "inf") else real("norm_type", norm_type, positive=True)
    owners = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    owners = [owner for owner in owners if owner.grad is not None]
    if not owners:
        return torch.tensor(0.0)
    gradients = [owner.grad for owner in owners if owner.grad is not None]
    rows = [None if gradient.layout == torch.strided else row_gradient(gradient) for gradient in gradients]
    numbers = [gradient if row is None else row.values for gradient, row in zip(gradients, rows, strict=True)]
    total = _norm(numbers, float(norm_type))
    if error_if_nonfinite and not bool(total.isfinite()):
        raise TokenspaceError(
            f"the gradients' total norm of order {norm_type} is {total.item()}, so they can't be scaled to "
            f"{max_norm:g}; nothing was changed. Look for the first gradient that is not finite"
        )
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    if factor.is_cpu and factor == 1.0:
        return total
    for owner, row in zip(owners, rows, strict=True):
        _scale(owner, row, factor)
    return total


def _norm(numbers: list[Tensor], order: float) -> Tensor:
    """The norm of all ``numbers`` as one vector, on the first one's device."""
    plain = all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in numbers)
    if order == math.inf or not plain:
        return _combined([_norm_of(tensor, order) for tensor in numbers], order)
    if all(tensor.is_cpu for tensor in numbers):  # elsewhere reading the result would wait for the device
        total = _combined([_norm_of(tensor, order) for tensor in numbers], order)
        if total > 0 and abs(order * math.log2(total)) < _SAFE_POWER:
            return total
    unit = _combined([_norm_of(tensor, math.inf) for tensor in numbers], math.inf)
    unit = torch.where(unit.isfinite() & (unit > 0), unit, 1.0)
    blocks = [block for tensor in numbers for block in tensor.reshape(-1).split(_BLOCK)]
    scaled = _combined([_norm_of(block, order, unit) for block in blocks], order)
    total = scaled * unit
    if total.is_cpu and total.isinf() and scaled.isfinite():
        return scaled.double() * unit.double()
    return total


def _norm_of(tensor: Tensor, order: float, unit: Tensor | None = None) -> Tensor:
    """The norm of one tensor, divided by ``unit`` first if it is given."""
    kind = wide(tensor.dtype)
    if not tensor.numel():  # of which torch knows no maximum
        return tensor.new_zeros((), dtype=kind)
    if unit is not None:
        tensor = tensor.to(kind) / unit.to(tensor.device, kind)
    return torch.linalg.vector_norm(tensor, order, dtype=kind)


def _combined(norms: list[Tensor], order: float) -> Tensor:
    kind = torch.float64 if any(norm.dtype == torch.float64 for norm in norms) else torch.float32
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device, kind) for norm in norms]), order)


def _scale(owner: Tensor, sparse: RowGradient | None, factor: Tensor) -> None:
    gradient = owner.grad
    assert gradient is not None
    factor = factor.to(gradient.device)
    if sparse is None:
        gradient.mul_(factor)
    elif gradient.is_coalesced():
        gradient._values().mul_(factor)
    else:  # not in place: torch's lookup shares these numbers with the gradient of its output
        owner.grad = torch.sparse_coo_tensor(
            sparse.ids[None],
            (sparse.values * factor.to(wide(sparse.values.dtype))).to(sparse.values.dtype),
            gradient.shape,
            is_coalesced=True,
            check_invariants=False,
        )
