"""When the parts of a ``TransformerInput`` may be computed as one, without anyone being able to tell.

A part that something was done to is called as the module it is: a hook, a parametrization, a wrapper in its
place, a ``forward`` of its own, a subclass. Then all of them are, one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from tokenspace.nn import ops
from tokenspace.nn.embedding import TokenEmbedding
from tokenspace.nn.output import checked_output
from tokenspace.nn.positional import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from tokenspace.nn.segment import SegmentEmbedding

TABLES = (TokenEmbedding, LearnedPositionalEmbedding, SegmentEmbedding)

_KINDS = (*TABLES, SinusoidalPositionalEncoding, nn.LayerNorm, nn.Dropout)
_FORWARDS: dict[type, object] = {kind: kind.forward for kind in _KINDS}
_CALL = nn.Module.__call__


def is_plain(module: nn.Module) -> bool:
    """Whether calling ``module`` does what its class, one of ours or torch's, does, and nothing else.

    >>> embedding = TokenEmbedding(3, 2)
    >>> is_plain(embedding)
    True
    >>> handle = embedding.register_forward_hook(lambda module, args, out: out * 2)
    >>> is_plain(embedding)
    False
    """
    kind = type(module)
    return (
        _FORWARDS.get(kind) is kind.forward
        and "forward" not in module.__dict__
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module._backward_pre_hooks
        and module._compiled_call_impl is None
        and nn.Module.__call__ is _CALL
        and not _has_any_global_hook()
    )


def embed(
    token: TokenEmbedding,
    ids: Tensor,
    added: Sequence[ops.Rows],
    layer_norm: nn.LayerNorm | None,
    dropout: nn.Dropout | None,
    out: Tensor | None = None,
) -> Tensor | None:
    """All of it as one computation; None where the kernels can't, and the parts have to be called.

    ``may_fuse`` must have said yes to the parts.
    """
    rows = [token.rows_for(ids), *added]
    width = token.weight.shape[-1]
    tables = [part.table for part in rows]
    if any(table.shape[1:] != (width,) for table in tables):
        return None
    norm = None
    if layer_norm is not None:
        norm = ops.Norm(layer_norm.weight, layer_norm.bias, layer_norm.eps)
        if layer_norm.normalized_shape != (width,):
            return None
        tables += [parameter for parameter in norm[:2] if parameter is not None]
    if not ops.on_kernels(tables, [part.ids for part in rows]):
        return None
    if out is not None:
        shape, needs = (*ids.shape, width), any(table.requires_grad for table in tables)
        sources = [*tables, *(part.ids for part in rows)]
        checked_output(out, shape, token.weight.dtype, sources, needs)
    p = dropout.p if dropout is not None and dropout.training else 0.0
    return ops.embed(rows, token.factor, norm, p, sparse=token.sparse, out=out)


def pays(token: TokenEmbedding, ids: Tensor, others: Iterable[nn.Module | None]) -> bool:
    """Whether the input is large enough, see ``ops.pays``; ``may_fuse`` must have said yes."""
    trained = [parameter for part in others if part is not None for parameter in part.parameters(False)]
    return ops.pays([token.weight, *trained], ids, sparse=token.sparse)


def may_fuse(token: nn.Module, others: Iterable[nn.Module | None]) -> bool:
    """Whether a lookup in ``token``, and all that is done afterwards, is what the classes say."""
    if type(token) not in TABLES or not is_plain(token) or not token.has_plain_numbers:
        return False
    return all(part is None or (is_plain(part) and _is_as_made(part)) for part in others)


def _is_as_made(part: nn.Module) -> bool:
    """Whether nobody gave an added table a scale or a row-sparse gradient, or dropout no share at all."""
    if isinstance(part, TokenEmbedding):
        return part.scale is None and not part.sparse
    return not isinstance(part, nn.Dropout) or 0.0 <= part.p <= 1.0


def drop(dropout: nn.Module, x: Tensor) -> Tensor:
    """``dropout(x)``; where that is torch's own, on a CPU, the numbers dropped are those of `embed`."""
    if isinstance(dropout, nn.Dropout) and is_plain(dropout) and _is_as_made(dropout) and ops.drops(x):
        return ops.dropout(x, dropout.p) if dropout.training and dropout.p else x
    return dropout(x)
