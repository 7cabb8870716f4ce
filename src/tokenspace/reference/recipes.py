"""The transformer's input by a recipe: made of a real checkpoint's arrays, or around a plain table."""

from __future__ import annotations

import math

import numpy as np

from tokenspace.errors import CheckpointError
from tokenspace.initializers import Generator, checked_rng, normal, truncated_normal
from tokenspace.models.families import RECIPES, Family, Recipe
from tokenspace.models.open import Checkpoint
from tokenspace.models.safetensors import listed, read
from tokenspace.reference.dropout import Dropout
from tokenspace.reference.embedding import Embedding
from tokenspace.reference.layer_norm import LayerNorm
from tokenspace.reference.positional import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from tokenspace.reference.segment import SegmentEmbedding
from tokenspace.reference.transformer_input import TransformerInput
from tokenspace.shapes import Array, Float
from tokenspace.table import Table


def from_checkpoint(checkpoint: Checkpoint, rng: Generator | None = None) -> TransformerInput:
    """The input layer of a model of a known family: its own arrays, memory-mapped, in its own dtype.

    ``rng`` draws the dropout of training; without one the layer has none. The padding row stays as it is.
    ``CheckpointError`` if the family is unknown, or the folder lacks a tensor that the family adds.
    """
    if rng is not None:
        checked_rng(rng)
    family = known_family(checkpoint)
    recipe = family.recipe
    token = Embedding.from_weight(
        read(checkpoint.input_embedding),
        scale="sqrt" if recipe.scaled else None,
        padding_id=_padding_id(checkpoint),
    )
    position = segment = layer_norm = dropout = None
    # BERT's relative variants keep the table of positions and don't add it.
    if family.position and checkpoint.setting("position_embedding_type", "absolute") == "absolute":
        rows = _part(checkpoint, family.position)
        position = LearnedPositionalEmbedding.from_weight(rows, offset=family.position_offset)
    if family.segment:
        segment = SegmentEmbedding.from_weight(_part(checkpoint, family.segment))
    if family.layer_norm:
        weight = _part(checkpoint, f"{family.layer_norm}.weight", f"{family.layer_norm}.gamma")
        bias = _part(checkpoint, f"{family.layer_norm}.bias", f"{family.layer_norm}.beta")
        layer_norm = LayerNorm.from_weight(
            weight, bias, _number(checkpoint, family.layer_norm_eps_key, recipe.layer_norm_eps)
        )
    if rng is not None and family.dropout_key:
        dropout = Dropout(_number(checkpoint, family.dropout_key, recipe.dropout), rng)
    return TransformerInput(token, position, segment, layer_norm=layer_norm, dropout=dropout)


def known_family(checkpoint: Checkpoint) -> Family:
    """The checkpoint's family; ``CheckpointError`` if it is not known."""
    if checkpoint.family is None:
        raise CheckpointError(
            f"{checkpoint.folder}: model type {checkpoint.config.get('model_type')!r} with these tensors is "
            "not a known family, so what it adds to its rows is not known; set its table under a recipe "
            f"instead: {', '.join(RECIPES)}"
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


def _number(checkpoint: Checkpoint, key: str | None, default: float | None) -> float:
    found = checkpoint.setting(key or "", default)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
        raise CheckpointError(f"{checkpoint.folder / 'config.json'}: {key} must be a number, found {found!r}")
    return float(found)
