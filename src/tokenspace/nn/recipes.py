"""The parts of a transformer's input by a recipe: drawn as a family draws them, or a checkpoint's own."""

from __future__ import annotations

import difflib
import functools
import os
import re
from typing import Any

import numpy as np
import torch
from torch import nn

from tokenspace import reference
from tokenspace.errors import CheckpointError, ShapeError
from tokenspace.initializers import checked_padding_id, whole
from tokenspace.models import families, sizes
from tokenspace.models.families import FAMILIES, RECIPES, Family, Recipe
from tokenspace.models.open import open_checkpoint
from tokenspace.models.sizes import MODELS, Model
from tokenspace.nn.arrays import tensor_of
from tokenspace.nn.embedding import PaddingOnLoad, TokenEmbedding
from tokenspace.nn.initializers import Initializer, normal_, truncated_normal_
from tokenspace.nn.positional import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from tokenspace.nn.projection import Projection
from tokenspace.nn.segment import SegmentEmbedding
from tokenspace.reference.recipes import from_checkpoint, known_family

_FAMILY_OF = {"GPT-3": "gpt2", "Phi-3": "llama"}  # whose input layers are these; they are no families here


def drawn_parts(
    name: str,
    vocab_size: int | None = None,
    d_model: int | None = None,
    max_positions: int | None = None,
    padding_idx: int | None = None,
    freeze_padding: bool = False,
    **factory: Any,
) -> dict[str, Any]:
    """``TransformerInput``'s arguments for a family or a named model; ``factory`` is device and dtype."""
    if max_positions is not None:
        max_positions = whole("max_positions", max_positions, 1)
    model, family, recipe = _known(name)
    if model is None and (vocab_size is None or d_model is None):
        raise ShapeError(
            f"{name!r} names a family, which has no sizes; give vocab_size and d_model, or name a model "
            "(`tokenspace params` lists them)"
        )
    rows = vocab_size if vocab_size is not None or model is None else model.vocab
    width = d_model if d_model is not None or model is None else model.width
    table_width = width if d_model is not None or model is None else model.table_width
    if rows is None or width is None or table_width is None:
        raise ShapeError("vocab_size and d_model must be integers")
    rows = whole("vocab_size", rows, 1)
    if padding_idx is None and family and family.padding_id is not None and family.padding_id < rows:
        padding_idx = family.padding_id
    padding_idx = checked_padding_id(padding_idx, rows)
    token = TokenEmbedding(
        rows,
        table_width,
        padding_idx,
        scale="sqrt" if recipe.scaled else None,
        scale_dtype="weight" if family and family.scale_in_weights_dtype else None,
        initializer=_draw(recipe, recipe.token_std),
        freeze_padding=freeze_padding,
        **factory,
    )
    projected = table_width != width
    sum_width = width if projected and model and model.architecture.positions_in_body else table_width
    position: nn.Module | None = None
    if recipe.positions == "sinusoidal":
        position = SinusoidalPositionalEncoding(sum_width, max_positions=max_positions, **factory)
    elif recipe.positions == "learned":
        offset, position_padding = _before_positions(family, padding_idx)
        known = recipe.max_positions or 0
        if max_positions is None and model and model.position_rows:  # the rows stay the model's own
            known = model.position_rows - offset
            if known < 1:
                raise ShapeError(
                    f"padding_idx={padding_idx:,} leaves none of the {model.position_rows:,} position rows "
                    f"of {model.name}: they begin at padding_idx + 1; give max_positions for more rows"
                )
        position = LearnedPositionalEmbedding(
            offset + (max_positions or known),
            sum_width,
            position_padding,
            offset=offset,
            padding_from=family.position_padding if family else None,
            initializer=_draw(recipe, recipe.position_std),
            **factory,
        )
    segments = model.segments if model and family and family.segment else recipe.segments
    parts: dict[str, Any] = {"token": token, "position": position}
    if segments:
        draw = _draw(recipe, recipe.segment_std)
        parts["segment"] = SegmentEmbedding(segments, sum_width, initializer=draw, **factory)
    if recipe.layer_norm_eps is not None:
        bias = family.layer_norm_bias if family else True
        parts["layer_norm"] = nn.LayerNorm(sum_width, recipe.layer_norm_eps, bias=bias, **factory)
    if projected:
        bias = family.projection_bias if family else True
        draw = _draw(recipe, recipe.token_std)
        parts["projection"] = Projection(table_width, width, bias, initializer=draw, **factory)
    if recipe.dropout:
        parts["dropout"] = nn.Dropout(recipe.dropout)
    return parts


def checkpoint_parts(
    folder: str | os.PathLike[str], dtype: torch.dtype | None, padding: PaddingOnLoad
) -> dict[str, Any]:
    """``TransformerInput``'s arguments with a checkpoint's numbers: those of the NumPy layer, as tensors."""
    checkpoint = open_checkpoint(folder)
    layer = from_checkpoint(checkpoint, np.random.default_rng(0))  # a generator, for the dropout's rate
    rounded = known_family(checkpoint).scale_in_weights_dtype
    token = TokenEmbedding.from_pretrained(
        tensor_of(layer.token.weight, dtype),
        freeze=False,
        padding_idx=layer.token.padding_id,
        scale="sqrt" if rounded else layer.token.scale,
        scale_dtype="weight" if rounded else None,
        padding_on_load=padding,
    )
    if padding == "zero":
        token.zero_padding_row()
    parts: dict[str, Any] = {"token": token, "position": _position(layer.position, dtype)}
    if layer.segment is not None:
        parts["segment"] = _segment(layer.segment, "segment", dtype)
    parts["extras"] = {name: _segment(table, name, dtype) for name, table in layer.extras.items()}
    if layer.layer_norm is not None:
        parts["layer_norm"] = _layer_norm(layer.layer_norm, dtype)
    if layer.projection is not None:
        parts["projection"] = _projection(layer.projection, dtype)
    if layer.dropout is not None:
        parts["dropout"] = nn.Dropout(layer.dropout.rate)
    return parts


def _known(name: str) -> tuple[Model | None, Family | None, Recipe]:
    """What ``name`` says: a model with its family, a family, or a recipe of no family."""
    if not isinstance(name, str):
        raise CheckpointError(f"a recipe is the name of a family or a model; found {name!r}")
    try:
        model = sizes.find(name)
    except CheckpointError:
        model = None
    if model is not None:
        family = families.find(_FAMILY_OF.get(model.family) or _model_type(model))
        return model, family, family.recipe
    if name in RECIPES and RECIPES[name] not in [family.recipe for family in FAMILIES]:
        return None, None, RECIPES[name]
    names = [
        *RECIPES,
        *(family.name for family in FAMILIES),
        *(kind for f in FAMILIES for kind in f.model_types),
    ]
    if name in names:
        family = families.find(name)
        return None, family, family.recipe
    close = difflib.get_close_matches(name, [*dict.fromkeys(names), *MODELS], n=4)
    hint = (
        f"close names: {', '.join(map(repr, close))}"
        if close
        else f"families: {', '.join(dict.fromkeys(names))}"
    )
    raise CheckpointError(f"{name!r} is neither a known model nor a family; {hint}")


def _model_type(model: Model) -> str:
    """The family's ``model_type`` that transformers' class for ``model`` bears in its name."""
    kind = re.sub(r"(For[A-Z]|LMHead).*", "", model.architecture.counted_as or "").lower()
    for family in FAMILIES:
        for known in family.model_types:
            if re.sub(r"[^a-z0-9]", "", known) == kind:
                return known
    raise CheckpointError(
        f"{model.name!r} is of a family ({model.family}) whose embedding layer is not known; families: "
        f"{', '.join(family.name for family in FAMILIES)}"
    )


def _before_positions(family: Family | None, padding_idx: int | None) -> tuple[int, int | None]:
    """Return the number of rows before the first position's, and the row of padding.

    Where padding is found by the ids (RoBERTa), both follow from the padding id, as in ``from_checkpoint``;
    where it is found by the attention mask (OPT), they are the family's.
    """
    if family is None:
        return 0, None
    if family.position_padding == "ids":
        return (0, None) if padding_idx is None else (padding_idx + 1, padding_idx)
    offset = family.position_offset
    return offset, offset - 1 if family.position_padding == "mask" else None


def _draw(recipe: Recipe, std: float | None) -> Initializer:
    return functools.partial(truncated_normal_ if recipe.truncated else normal_, std=std)


def _position(
    position: reference.LearnedPositionalEmbedding | reference.SinusoidalPositionalEncoding | None,
    dtype: torch.dtype | None,
) -> nn.Module | None:
    if isinstance(position, reference.LearnedPositionalEmbedding):
        return LearnedPositionalEmbedding.from_pretrained(
            tensor_of(position.weight, dtype),
            freeze=False,
            padding_idx=position.padding_id,
            offset=position.offset,
            padding_from=position.padding_from,
        )
    if position is None:
        return None
    return SinusoidalPositionalEncoding(
        position.embedding_dimension, position.layout, position.base, dtype=dtype or torch.float32
    )


def _segment(table: reference.SegmentEmbedding, name: str, dtype: torch.dtype | None) -> nn.Module:
    return SegmentEmbedding.from_pretrained(tensor_of(table.weight, dtype), freeze=False, name=name)


def _layer_norm(norm: reference.LayerNorm, dtype: torch.dtype | None) -> nn.LayerNorm:
    made = nn.LayerNorm(norm.embedding_dimension, norm.eps, bias=norm.bias is not None, device="meta")
    made.weight = nn.Parameter(tensor_of(norm.weight, dtype))
    if norm.bias is not None:
        made.bias = nn.Parameter(tensor_of(norm.bias, dtype))
    return made


def _projection(projection: reference.Projection, dtype: torch.dtype | None) -> Projection:
    made = Projection(
        projection.input_width, projection.output_width, projection.bias is not None, device="meta"
    )
    made.weight = nn.Parameter(tensor_of(projection.weight, dtype))
    if projection.bias is not None:
        made.bias = nn.Parameter(tensor_of(projection.bias, dtype))
    return made
