"""Nested tensors, texts of different lengths in one: computed as their rows, one text after the other.

torch's own lookup takes both layouts, ``torch.jagged`` and ``torch.strided``. Of the first it makes a
row-sparse gradient that no optimizer reads, of the second no gradient at all; as packed rows, both train.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def packed(texts: Tensor, trailing: int = 0) -> Tensor:
    """Return the rows of a nested tensor in one plain tensor; the last ``trailing`` axes are one row.

    >>> packed(torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([3])], layout=torch.jagged))
    tensor([1, 2, 3])
    """
    if texts.layout == torch.jagged:
        return texts.values()
    parts = texts.unbind()
    return torch.cat([part.reshape(-1, *part.shape[part.ndim - trailing :]) for part in parts])


def nested_like(rows: Tensor, texts: Tensor, trailing: int = 0) -> Tensor:
    """Return rows (N, D), made from ``packed(texts, trailing)``, as a nested tensor of the same texts."""
    if texts.layout == torch.jagged:
        like: Any = texts
        return torch.nested.nested_tensor_from_jagged(
            rows, like.offsets(), like.lengths(), jagged_dim=like._ragged_idx
        )
    axes = [part.shape[: part.ndim - trailing] for part in texts.unbind()]
    parts = rows.split([math.prod(each) for each in axes])
    return torch.nested.as_nested_tensor(
        [part.reshape(*each, *rows.shape[1:]) for part, each in zip(parts, axes, strict=True)]
    )


def axes_of(texts: Tensor, trailing: int = 0) -> list[tuple[int, ...]]:
    """Return the shape of each text of a tensor, nested or not, without the last ``trailing`` axes."""
    if texts.is_nested and texts.layout == torch.strided:
        return [tuple(part.shape[: part.ndim - trailing]) for part in texts.unbind()]
    return [tuple(texts.shape[: texts.ndim - trailing])]
