"""The whole input by torch's own operations, each on the numbers that the one before it left.

What a kernel does in one pass, for inputs so small that its call would cost more than it saves. Rows that
follow each other in their table, as positions do, are read where they lie, without a lookup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tokenspace.nn import dispatch, ops, row_sums
from tokenspace.nn.embedding import TokenEmbedding
from tokenspace.nn.positional import SinusoidalPositionalEncoding


def embed(
    token: TokenEmbedding,
    ids: Tensor,
    added: Iterable[tuple[Any, Tensor | range]],
    layer_norm: nn.LayerNorm | None,
    dropout: nn.Dropout | None,
) -> Tensor:
    """The input (B, T, D) of ids (B, T), on parts that do what their classes say (``fusion.parameters``).

    ``added`` are the tables of the rows to add, each with its ids, or with a range of rows, one for each
    position, or one for all. ``IndexError`` or ``RuntimeError``, torch's own, for ids that it can't take;
    nothing is drawn before.
    """
    x = looked_up(token, ids)
    if token.scale is not None:
        x = x.mul_(token.factor)  # type: ignore[arg-type]
    for part, own in added:
        if type(own) is range:
            rows = neighbors(part, own)
        elif type(part) is SinusoidalPositionalEncoding:
            encoded = part.rows_for(own)
            rows = torch.embedding(encoded.table, encoded.ids)
        else:
            rows = looked_up(part, own)
        x = x.add_(rows) if rows.dtype == x.dtype else x + rows
    if layer_norm is not None:
        x = torch.layer_norm(
            x, layer_norm.normalized_shape, layer_norm.weight, layer_norm.bias, layer_norm.eps
        )
    if dropout is None or not (dropout.training and dropout.p):
        return x
    return ops.dropout(x, dropout.p) if x.is_cpu and x.dtype in dispatch.DTYPES else dropout(x)


def looked_up(table: TokenEmbedding, ids: Tensor) -> Tensor:
    """The rows (\\*axes, D) of ids (\\*axes), unscaled; errors are torch's.

    >>> looked_up(TokenEmbedding.from_pretrained(torch.eye(2)), torch.tensor([1]))
    tensor([[0., 1.]])
    """
    padding = -1 if table.padding_idx is None else table.padding_idx
    weight: Any = table._parameters["weight"]
    if dispatch.kernels_sum(weight, table.sparse):
        return row_sums.lookup(weight, ids, padding, None, table.sparse)
    return torch.embedding(weight, ids, padding, False, table.sparse)


def neighbors(table: TokenEmbedding, rows: range) -> Tensor:
    """These rows (count, D) of the table, which follow each other, as a view.

    ``IndexError`` if the table has not all of them, or if one is the padding row, which a view can't keep
    from getting a gradient.
    """
    weight: Any = table._parameters["weight"]
    padding = table.padding_idx
    if padding is not None and padding in rows:  # a range looks for None number by number
        raise IndexError(f"row {padding} is the padding row")
    if rows.stop > weight.shape[0]:
        raise IndexError(f"row {rows.stop - 1} is none of {weight.shape[0]}")
    return weight[rows.start : rows.stop]  # narrow() does the same, and takes twice as long
