"""When the parts of a ``TransformerInput`` may be computed as one, without anyone being able to tell.

A part that something was done to is called as the module it is: a hook, a parametrization, a wrapper in its
place, a ``forward`` of its own, a subclass. Then all of them are, one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from tokenspace.nn import dispatch, ops
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
    return _is_called_as_made() and _is_untouched(module)


def _is_called_as_made() -> bool:
    """Whether nobody changed how all modules are called."""
    return nn.Module.__call__ is _CALL and not _has_any_global_hook()


def _is_untouched(module: nn.Module) -> bool:
    """Whether nothing was done to this very module. Its dict is read: this is asked at each call."""
    kind, own = type(module), module.__dict__
    return (
        _FORWARDS.get(kind) is kind.forward
        and "forward" not in own
        and not (own["_forward_hooks"] or own["_forward_pre_hooks"])
        and not (own["_backward_hooks"] or own["_backward_pre_hooks"])
        and module._compiled_call_impl is None
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

    `parameters` must have found the parts to be what their classes say.
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
    if not dispatch.on_kernels(tables, [part.ids for part in rows]):
        return None
    if out is not None:
        shape, needs = (*ids.shape, width), any(table.requires_grad for table in tables)
        sources = [*tables, *(part.ids for part in rows)]
        checked_output(out, shape, token.weight.dtype, sources, needs)
    p = dropout.p if dropout is not None and dropout.training else 0.0
    return ops.embed(rows, token.factor, norm, p, sparse=token.sparse, out=out)


def parameters(token: nn.Module, others: Iterable[nn.Module | None]) -> list[Tensor] | None:
    """The token table, and all that is trained besides; None unless each part does what its class says.

    Nobody gave an added table a scale or a row-sparse gradient, or dropout no share at all.
    """
    if type(token) not in TABLES or not _is_called_as_made() or not _is_untouched(token):
        return None
    if not token.has_plain_numbers:
        return None
    weight = token._parameters.get("weight")
    if weight is None:  # a plain tensor stands in its place
        return None
    found: list[Tensor] = [weight]
    for part in others:
        if part is None:
            continue
        if not _is_untouched(part):
            return None
        kind, own = type(part), part.__dict__
        if kind is nn.Dropout:
            if not 0.0 <= own["p"] <= 1.0:
                return None
            continue
        trained = own["_parameters"]
        if kind in TABLES and (own.get("scale", 0.0) is not None or own["sparse"] or "weight" not in trained):
            return None
        for parameter in trained.values():
            if parameter is not None:
                found.append(parameter)
    return found


def drop(dropout: nn.Module, x: Tensor) -> Tensor:
    """``dropout(x)``; where that is torch's own, on a CPU, the numbers dropped are those of `embed`."""
    if isinstance(dropout, nn.Dropout) and is_plain(dropout) and 0.0 <= dropout.p <= 1.0 and ops.drops(x):
        return ops.dropout(x, dropout.p) if dropout.training and dropout.p else x
    return dropout(x)
