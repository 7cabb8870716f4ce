"""How the facts about a model's embedding layer are stated: a recipe (the numbers) and a family (the names).

Every number carries its source. They are defaults: what a checkpoint's ``config.json`` says goes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True)
class Recipe:
    """How an embedding layer is put together and drawn, whatever its sizes.

    ``positions``: sinusoidal, learned (``max_positions`` of them), or None where the layer adds none.
    ``token_std``: the standard deviation of new token rows; None is D^-1/2. ``truncated``: draws beyond 2 std
    are drawn again, the std not corrected for it. ``padding_zeroed``: the padding token's row starts at zero,
    and so does its row of positions where padding has one. ``scaled``: looked-up rows are multiplied by
    sqrt(D). ``sources`` says where each number is from.
    """

    name: str
    sources: Mapping[str, str]
    positions: Literal["sinusoidal", "learned"] | None = None
    max_positions: int | None = None
    segments: int = 0
    scaled: bool = False
    layer_norm_eps: float | None = None
    dropout: float = 0.0
    token_std: float | None = None
    position_std: float | None = None
    segment_std: float | None = None
    truncated: bool = False
    padding_zeroed: bool = False


class Extra(NamedTuple):
    """A further table whose rows are added: there from 2 rows on, unless ``switch_key`` is false."""

    tensor: str
    count_key: str
    switch_key: str


@dataclass(frozen=True)
class Family:
    """Where a family's checkpoints keep the embedding layer, and what holds where ``config.json`` is silent.

    Tensor names come without ``prefixes``: a file may put any one of those before all of them (the head
    excepted, which stands outside the part that the prefix names). A name ending in ``.weight`` is one
    tensor; ``layer_norm`` and ``projection`` name two, ``.weight`` and ``.bias`` (``.gamma`` and ``.beta`` in
    old files). Fields ending in ``_key`` name settings in ``config.json``.
    """

    name: str
    model_types: tuple[str, ...]  # config.json's "model_type"
    prefixes: tuple[str, ...]
    token: str
    head: str
    tied: bool
    recipe: Recipe
    source: str
    padding_id: int | None = None
    token_copies: tuple[str, ...] = ()
    """Further names of the same table: a file may hold it under one of these alone."""

    scale_key: str | None = None
    """A setting that is true for × sqrt(D), or the factor itself; where absent, ``recipe.scaled`` holds."""
    scale_in_weights_dtype: bool = False
    """Whether the factor is rounded to the table's dtype before it multiplies (Gemma)."""

    position: str | None = None
    position_offset: int = 0
    """Rows before the first position's."""
    position_padding: Literal["ids", "mask"] | None = None
    """Where padding is skipped in counting, and told by the ids or by the attention mask alone."""
    position_setting: tuple[str, Any] | None = None
    """A setting and its default: positions are added only where ``config.json`` agrees with it."""

    segment: str | None = None
    extras: Mapping[str, Extra] | None = None
    """Further tables, by name."""

    layer_norm: str | None = None
    layer_norm_bias: bool = True
    layer_norm_eps_key: str | None = None
    dropout_key: str | None = None

    projection: str | None = None
    """Between the table's width and the body's: there where the two differ, or the file holds it."""
    projection_bias: bool = True

    head_bias: str | None = None
    untied_head_bias: str | None = None
    """The name of an untied head's bias where it is another than a tied head's (BERT)."""
    head_bias_from_zero: bool = False
    """Whether a file may leave the head's bias out, which is then zero (BART's buffer)."""
    hidden_scale_keys: tuple[str, ...] = ()
    """Hidden states are multiplied by D^-1/2 unless the first of these settings that is there is false."""
    logit_scale_key: str | None = None
    logit_scale: float = 1.0
    logit_divisor_key: str | None = None
    soft_cap_key: str | None = None
    soft_cap: float | None = None
