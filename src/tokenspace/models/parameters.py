"""How many parameters a model has, from its sizes alone, and what its embedding table's share is.

Letters: V rows, D width, E the table's width (D but for a few), F the feed-forward's width, H heads of size
A, G heads of keys and values.

===============  =====================================================================================
part             numbers
===============  =====================================================================================
``embedding``    V·E
``positions``    rows · E, of a learned table of absolute positions (rows · D where added after projection)
``segments``     rows · E
``projection``   E·D from the table into a body of another width, and D·E back where the head is plain
``attention``    a layer: D·H·A (queries) + 2·D·G·A (keys, values) + H·A·D (output), and their biases;
                 an encoder-decoder has three for each pair of layers; tables of relative positions
``feed_forward`` a layer: 2·D·F, or 3·D·F where gated, and biases
``state_space``  Mamba's block
``norms``        D for each scale, D for each shift
``transform``    what stands between the last layer and the scores: D·E + E and a norm
``head``         V·E unless tied, and V for a bias
===============  =====================================================================================

Kaplan et al. 2020 (Scaling Laws for Neural Language Models), eq. 2.1, count the same matrices as
2·D·layers·(2·D + F), leaving out the tables, biases and norms.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields, replace
from typing import SupportsIndex

from tokenspace.errors import ShapeError
from tokenspace.models.architectures import GPT2
from tokenspace.models.sizes import Model

LARGEST = 2**63 - 1  # no tensor has more numbers
_STATE, _CONVOLUTION, _EXPANSION = 16, 4, 2  # Gu & Dao 2023 (Mamba), section 3.4 and its code's defaults


@dataclass(frozen=True)
class Parameters:
    """How many numbers each part holds; what is shared is counted once."""

    embedding: int
    positions: int
    segments: int
    projection: int
    attention: int
    feed_forward: int
    state_space: int
    norms: int
    transform: int
    head: int

    @property
    def total(self) -> int:
        return sum(getattr(self, part.name) for part in fields(self))

    @property
    def body(self) -> int:
        """All but the tables at the input and the head at the output."""
        return self.total - self.embedding - self.positions - self.segments - self.head

    @property
    def fraction(self) -> float:
        """The embedding table's share of the whole."""
        return self.embedding / self.total


def count(model: Model) -> Parameters:
    """The parameters of ``model``, part by part.

    >>> from tokenspace.models.sizes import MODELS
    >>> gpt2 = count(MODELS["gpt2"])
    >>> gpt2.embedding, gpt2.total, f"{gpt2.fraction:.1%}"
    (38597376, 124439808, '31.0%')
    """
    kind, width = model.architecture, model.width
    stored = 1 if kind.shared_layers else model.layers
    stacks, attentions = (2, 3) if kind.encoder_decoder else (1, 1)
    if kind.state_space:
        attention, feed_forward, state_space = 0, 0, stored * _mamba_block(width)
    else:
        biases = (model.inner + 2 * model.kv_inner) * kind.qkv_bias + width * kind.output_bias
        attention = stored * attentions * (_attention_matrices(model) + biases)
        attention += stacks * kind.relative_buckets * model.heads + kind.relative_rows * width
        biases = (model.ffn * (1 + kind.gated) + width) * kind.ffn_bias
        feed_forward = stored * stacks * (_feed_forward_matrices(model) + biases)
        state_space = 0
    return Parameters(
        embedding=model.vocab * model.table_width,
        positions=model.position_rows * (width if kind.positions_in_body else model.table_width),
        segments=model.segments * model.table_width,
        projection=_projection_matrices(model) + width * (model.projected and kind.projection_bias),
        attention=attention,
        feed_forward=feed_forward,
        state_space=state_space,
        norms=_norms(model, stored, stacks),
        transform=_transform(model),
        head=model.vocab * (model.table_width * (model.tied is False) + kind.head_bias),
    )


def flops_per_token(model: Model) -> int:
    """Multiplications and additions that one token costs on the way forward: 2 for each number of a matrix.

    Kaplan et al. 2020, eq. 2.2, C ≈ 2·N, with the head's V·E numbers added, which that N leaves out, tied or
    not. The lookup costs none. Left out: attention's scores (2·layers·context·D, the same equation's second
    term), norms and biases. In an encoder-decoder it is what one token in and one token out cost together.

    >>> from tokenspace.models.sizes import MODELS
    >>> flops_per_token(MODELS["gpt2"]) == 2 * (12 * 12 * 768**2 + 50257 * 768)
    True
    """
    kind, width = model.architecture, model.width
    if kind.state_space:
        layer = _mamba_matrices(width)
    else:
        stacks, attentions = (2, 3) if kind.encoder_decoder else (1, 1)
        layer = attentions * _attention_matrices(model) + stacks * _feed_forward_matrices(model)
    head = {
        "plain": model.vocab * model.table_width,
        "transform": (model.vocab + width) * model.table_width,
        "detector": (width + 1) * width,
    }[kind.head]
    return 2 * (model.layers * layer + _projection_matrices(model) + head)


def doubled(model: Model) -> Model:
    """``model`` twice as wide: every width doubles, as do the heads, which keep their size.

    The table then doubles, and the matrices of the body have four times the numbers.

    >>> from tokenspace.models.sizes import MODELS
    >>> gpt2 = MODELS["gpt2"]
    >>> count(doubled(gpt2)).embedding / count(gpt2).embedding
    2.0
    >>> round(count(doubled(gpt2)).body / count(gpt2).body, 3)
    3.997
    """
    return replace(
        model,
        width=2 * model.width,
        ffn=2 * model.ffn,
        heads=2 * model.heads,
        kv_heads=2 * model.kv_heads if model.kv_heads else None,
        own_table_width=2 * model.own_table_width if model.own_table_width else None,
    )


def table_parameters(vocab: SupportsIndex, dim: SupportsIndex) -> int:
    """V·D, the numbers of a table by itself; ``ShapeError`` for sizes that no table has, or that are no
    integers.

    >>> table_parameters(50_000, 64)
    3200000
    >>> table_parameters(0, 64)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: vocab is 0; it must be at least 1
    """
    rows, width = _sizes(vocab=vocab, dim=dim)
    return rows * width


def gpt2_shaped(
    vocab: SupportsIndex,
    dim: SupportsIndex,
    layers: SupportsIndex,
    ffn: SupportsIndex | None = None,
    tied: bool = True,
) -> Model:
    """A decoder of any size, built as GPT-2: 1,024 learned positions, biases, LayerNorm; F is 4·D by default.

    The number of heads changes no count. ``ShapeError`` for sizes that no model has, or that are no integers.

    >>> count(gpt2_shaped(50257, 768, 12)).total
    124439808
    """
    rows, width, depth = _sizes(vocab=vocab, dim=dim, layers=layers)
    (inner,) = (4 * width,) if ffn is None else _sizes(ffn=ffn)
    model = Model(
        "a decoder shaped as GPT-2",
        width,
        depth,
        1,
        inner,
        family="own",
        architecture=GPT2,
        vocab=rows,
        tokens=rows,
        tokenizer="any tokenizer",
        tied=tied,
        position_rows=1024,
        source="the sizes given",
    )
    if (total := count(model).total) > LARGEST:
        raise ShapeError(f"a model of {total:.3g} parameters can't be indexed; give smaller sizes")
    return model


def _sizes(**given: SupportsIndex) -> list[int]:
    """The sizes as Python's integers, which don't overflow."""
    sizes: dict[str, int] = {}
    for name, value in given.items():
        try:
            if isinstance(value, bool):
                raise TypeError
            sizes[name] = size = operator.index(value)
        except TypeError:
            raise ShapeError(f"{name} must be an integer, found {value!r}; it counts something") from None
        if size < 1:
            raise ShapeError(f"{name} is {size:,}; it must be at least 1")
        if size > LARGEST:
            raise ShapeError(f"{name} is too large to index ({len(str(size))} digits); at most {LARGEST:,}")
    if sizes.get("vocab", 0) * sizes.get("dim", 0) > LARGEST:
        raise ShapeError(
            f"a table of {sizes['vocab']:,} × {sizes['dim']:,} numbers can't be indexed; "
            f"at most {LARGEST:,} can: give a smaller vocab or dim"
        )
    return list(sizes.values())


def _attention_matrices(model: Model) -> int:
    return 2 * model.width * (model.inner + model.kv_inner)


def _feed_forward_matrices(model: Model) -> int:
    return (3 if model.architecture.gated else 2) * model.width * model.ffn


def _projection_matrices(model: Model) -> int:
    """E·D, once on the way in, and again on the way out unless a transform or a detector stands there."""
    ways = 2 if model.architecture.head == "plain" else 1
    return ways * model.table_width * model.width * model.projected


def _norms(model: Model, stored: int, stacks: int) -> int:
    kind = model.architecture
    cross_attentions = stacks - 1
    norms = stored * (stacks * kind.norms_per_layer + cross_attentions) + stacks * kind.final_norm
    norms += kind.relative_rows > 0
    numbers = kind.norm_vectors * (norms * model.width + kind.embedding_norm * model.table_width)
    return numbers + kind.query_key_norm * stored * 2 * model.head_size


def _transform(model: Model) -> int:
    width, out = model.width, model.table_width
    if model.architecture.head == "transform":
        return width * out + out + model.architecture.norm_vectors * out
    if model.architecture.head == "detector":
        return width * width + width + width + 1
    return 0


def _mamba_sizes(width: int) -> tuple[int, int]:
    """The block's inner width, and the rank of its time step: D / 16, rounded up."""
    return _EXPANSION * width, -(-width // 16)


def _mamba_matrices(width: int) -> int:
    inner, rank = _mamba_sizes(width)
    return 2 * width * inner + inner * (rank + 2 * _STATE) + rank * inner + inner * width


def _mamba_block(width: int) -> int:
    """Gu & Dao 2023, algorithm 2 and figure 3: the matrices; a convolution of 4 taps with bias; A (inner ×
    state), D (inner) and the time step's bias.
    """
    inner, _ = _mamba_sizes(width)
    return _mamba_matrices(width) + inner * (_CONVOLUTION + 1) + inner * (_STATE + 1) + inner
