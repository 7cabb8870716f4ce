"""The transformer's input by a recipe: made of a real checkpoint's arrays, or around a plain table.

`head_from_checkpoint` makes the other end, from the same files.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from tokenspace.errors import CheckpointError
from tokenspace.initializers import Generator, checked_rng, normal, truncated_normal
from tokenspace.models.families import FAMILIES, RECIPES, Family, Recipe
from tokenspace.models.family import Extra
from tokenspace.models.open import Checkpoint
from tokenspace.models.safetensors import listed, read
from tokenspace.reference.dropout import Dropout
from tokenspace.reference.embedding import Embedding
from tokenspace.reference.layer_norm import LayerNorm
from tokenspace.reference.lm_head import LMHead
from tokenspace.reference.positional import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from tokenspace.reference.projection import Projection
from tokenspace.reference.segment import SegmentEmbedding
from tokenspace.reference.transformer_input import TransformerInput
from tokenspace.shapes import Array, Float
from tokenspace.table import Table


def from_checkpoint(checkpoint: Checkpoint, rng: Generator | None = None) -> TransformerInput:
    """The input layer of a model of a known family: its own arrays, memory-mapped, in its own dtype.

    ``rng`` draws the dropout of training; without one the layer has none. The padding row stays as it is. An
    encoder-decoder's layer is its encoder's. ``CheckpointError`` if the family is unknown, or the folder
    lacks a tensor that the family adds.
    """
    if rng is not None:
        checked_rng(rng)
    family = known_family(checkpoint)
    token = _token(checkpoint, family)
    dropout = None
    if rng is not None and family.dropout_key:
        dropout = Dropout(_number(checkpoint, family.dropout_key, family.recipe.dropout), rng)
    return TransformerInput(
        token,
        _position(checkpoint, family),
        _segment(checkpoint, family),
        _extras(checkpoint, family),
        layer_norm=_layer_norm(checkpoint, family),
        projection=_projection(checkpoint, family, token),
        dropout=dropout,
    )


def head_from_checkpoint(checkpoint: Checkpoint, token: Embedding | None = None) -> LMHead:
    """The head of a model of a known family: tied to ``token`` (the checkpoint's own table if left out), or
    untied where the files hold a table of its own; with its bias, scales and soft-cap.

    It takes what the last product takes: after BERT's transform, after OPT-350m's projection; in T5 the
    decoder's output, which the head scales. ``CheckpointError`` if the family is unknown, or the folder holds
    no head: neither a table for it, nor the word that it is tied, or not its bias.
    """
    family = known_family(checkpoint)
    table = checkpoint.head
    if table is None and not checkpoint.tied:
        raise CheckpointError(
            f"{checkpoint.folder} holds no head: it has no tensor {family.head!r}, and is not tied; "
            "was it saved without one?"
        )
    if table is not None:
        token = Embedding.from_weight(read(table))
    elif token is None:
        token = _token(checkpoint, family)
    divisor = _number(checkpoint, family.logit_divisor_key, 1.0)
    if divisor == 0:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: {family.logit_divisor_key} must be a number but 0"
        )
    return LMHead(
        token,
        bias=_head_bias(checkpoint, family),
        hidden_scale="rsqrt" if _scales_hidden(checkpoint, family) else 1.0,
        logit_scale=_number(checkpoint, family.logit_scale_key, family.logit_scale) / divisor,
        soft_cap=_soft_cap(checkpoint, family),
    )


def known_family(checkpoint: Checkpoint) -> Family:
    """The checkpoint's family; ``CheckpointError`` if it is not known, or the table is missing."""
    if checkpoint.family is None:
        if any(checkpoint.config.get("model_type") in family.model_types for family in FAMILIES):
            _ = checkpoint.input_embedding  # raises where the table is missing
        raise CheckpointError(
            f"{checkpoint.folder}: {checkpoint.why_unknown}, so what it adds to its rows is not known; set "
            f"its table under a recipe instead: {', '.join(RECIPES)}"
        )
    return checkpoint.family


def from_table(table: Table, recipe: str, rng: Generator) -> TransformerInput:
    """A plain table's rows under a recipe ("original", "bert", "gpt2", "llama").

    What the recipe learns besides the rows (positions, segments) is drawn afresh, so it is untrained: whoever
    shows its numbers should say so. A checkpoint has its own: ``from_checkpoint``.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.eye(4, dtype=np.float32), Vocab(["the", "cat", "sat", "down"]))
    >>> layer = from_table(table, "original", np.random.default_rng(0))
    >>> layer.forward([[0, 1]]).round(2)
    array([[[2.  , 1.  , 0.  , 1.  ],
            [0.84, 2.54, 0.01, 1.  ]]], dtype=float32)
    """
    known, rng = _known(recipe), checked_rng(rng)
    pad_id = table.tokenizer.pad_id if table.tokenizer else None
    token = Embedding.from_weight(
        table.weight,
        scale="sqrt" if known.scaled else None,
        padding_id=pad_id if pad_id is not None and pad_id < len(table) else None,
    )
    position: LearnedPositionalEmbedding | SinusoidalPositionalEncoding | None = None
    if known.positions == "sinusoidal":
        position = SinusoidalPositionalEncoding(table.dim)
    elif known.max_positions:
        rows = _drawn(known, known.max_positions, table.dim, known.position_std, rng)
        position = LearnedPositionalEmbedding.from_weight(rows)
    segment = layer_norm = None
    if known.segments:
        rows = _drawn(known, known.segments, table.dim, known.segment_std, rng)
        segment = SegmentEmbedding.from_weight(rows)
    if known.layer_norm_eps is not None:
        layer_norm = LayerNorm(table.dim, known.layer_norm_eps)
    dropout = Dropout(known.dropout, rng) if known.dropout else None
    return TransformerInput(token, position, segment, layer_norm=layer_norm, dropout=dropout)


def _known(recipe: str) -> Recipe:
    if recipe not in RECIPES:
        raise CheckpointError(f"recipe {recipe!r} is not known; allowed: {', '.join(RECIPES)}")
    return RECIPES[recipe]


def _drawn(
    recipe: Recipe, rows: int, width: int, std: float | None, rng: np.random.Generator
) -> Float[Array, "V D"]:
    draw = truncated_normal if recipe.truncated else normal
    return draw((rows, width), rng, std=std)


def _token(checkpoint: Checkpoint, family: Family) -> Embedding:
    weight = read(checkpoint.input_embedding)
    default = family.recipe.scaled
    found = checkpoint.setting(family.scale_key, default) if family.scale_key else default
    scale: float | Literal["sqrt"] | None = None
    if found is True:
        scale = "sqrt"
    elif found is not False:
        scale = _number(checkpoint, family.scale_key, 1.0)
    return Embedding.from_weight(
        weight,
        scale=scale,
        scale_dtype=weight.dtype if family.scale_in_weights_dtype else None,
        padding_id=_padding_id(checkpoint),
    )


def _position(checkpoint: Checkpoint, family: Family) -> LearnedPositionalEmbedding | None:
    if family.position is None:
        return None
    if family.position_setting:
        key, added = family.position_setting
        if checkpoint.setting(key, added) != added:  # BERT's relative variants keep the table, unused
            return None
    offset, padding_id = family.position_offset, None
    if family.position_padding == "ids":  # real tokens' rows begin after padding's
        padding_id = _padding_id(checkpoint)
        offset = 0 if padding_id is None else padding_id + 1
    elif family.position_padding == "mask":
        padding_id = offset - 1
    return LearnedPositionalEmbedding.from_weight(
        _part(checkpoint, family.position),
        offset=offset,
        padding_id=padding_id,
        padding_from=family.position_padding,
    )


def _segment(checkpoint: Checkpoint, family: Family) -> SegmentEmbedding | None:
    if family.segment is None or not _number(checkpoint, "type_vocab_size", family.recipe.segments):
        return None
    return SegmentEmbedding.from_weight(_part(checkpoint, family.segment))


def _extras(checkpoint: Checkpoint, family: Family) -> dict[str, SegmentEmbedding]:
    return {
        name: SegmentEmbedding.from_weight(_part(checkpoint, extra.tensor), name=name)
        for name, extra in (family.extras or {}).items()
        if _adds(checkpoint, extra)
    }


def _adds(checkpoint: Checkpoint, extra: Extra) -> bool:
    stored = checkpoint.find(extra.tensor)
    rows = stored.shape[0] if stored else 1
    return checkpoint.setting(extra.switch_key, True) is not False and (
        _number(checkpoint, extra.count_key, rows) > 1
    )


def _layer_norm(checkpoint: Checkpoint, family: Family) -> LayerNorm | None:
    if family.layer_norm is None:
        return None
    weight = _part(checkpoint, f"{family.layer_norm}.weight", f"{family.layer_norm}.gamma")
    bias = None
    if family.layer_norm_bias or checkpoint.find(f"{family.layer_norm}.bias"):
        bias = _part(checkpoint, f"{family.layer_norm}.bias", f"{family.layer_norm}.beta")
    eps = _number(checkpoint, family.layer_norm_eps_key, family.recipe.layer_norm_eps)
    return LayerNorm.from_weight(weight, bias, eps)


def _projection(checkpoint: Checkpoint, family: Family, token: Embedding) -> Projection | None:
    if family.projection is None:
        return None
    width = _number(checkpoint, "hidden_size", token.embedding_dimension)
    if width == token.embedding_dimension and checkpoint.find(f"{family.projection}.weight") is None:
        return None
    bias = _part(checkpoint, f"{family.projection}.bias") if family.projection_bias else None
    return Projection.from_weight(_part(checkpoint, f"{family.projection}.weight"), bias)


def _head_bias(checkpoint: Checkpoint, family: Family) -> Float[Array, " V"] | None:
    name = checkpoint.head_bias_name
    if name is None or (family.head_bias_from_zero and checkpoint.find(name) is None):
        return None
    if (bias := checkpoint.find(name)) is None:
        whole = checkpoint.prefix + name
        raise CheckpointError(
            f"{checkpoint.folder} holds no head: it has no tensor {whole!r}, a head's bias; "
            "was it saved without one?"
        )
    return read(bias).reshape(-1)  # BART's is (1, V)


def _scales_hidden(checkpoint: Checkpoint, family: Family) -> bool:
    for key in family.hidden_scale_keys:
        found = checkpoint.setting(key)
        if found is not None:
            return found is not False
    return bool(family.hidden_scale_keys)


def _soft_cap(checkpoint: Checkpoint, family: Family) -> float | None:
    key = family.soft_cap_key
    if key is None or checkpoint.setting(key, family.soft_cap) is None:
        return None
    return _number(checkpoint, key, family.soft_cap)


def _part(checkpoint: Checkpoint, *names: str) -> Array:
    """The first of these tensors that is there."""
    for name in names:
        if found := checkpoint.find(name):
            return read(found)
    raise CheckpointError(
        f"{checkpoint.folder} has no tensor {checkpoint.prefix + names[0]!r}, which its family needs; "
        f"it has {listed(checkpoint.tensors)}"
    )


def _padding_id(checkpoint: Checkpoint) -> int | None:
    """``pad_token_id`` where it is a row of the table (some files say -1), else what the family says."""
    found = checkpoint.setting("pad_token_id", checkpoint.family.padding_id if checkpoint.family else None)
    return found if type(found) is int and 0 <= found < checkpoint.input_embedding.shape[0] else None


def _number(checkpoint: Checkpoint, key: str | None, default: float | int | None) -> float:
    found = checkpoint.setting(key or "", default)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
        raise CheckpointError(f"{checkpoint.folder / 'config.json'}: {key} must be a number, found {found!r}")
    return float(found)
