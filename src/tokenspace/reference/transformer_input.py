"""The transformer's input, whole: ids (B, T) to vectors (B, T, D).

    ids -> lookup -> × scale -> + position -> + segment -> + extras -> LayerNorm -> dropout -> projection

Each part after the lookup is there only if the recipe has it: BERT has all but scale and projection, GPT-2
positions and dropout, LLaMA none. A projection comes last, as in ALBERT and ELECTRA; where the tables that
are added have the projection's width already, it comes before them, as in OPT-350m.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.ids import checked_ids
from tokenspace.reference.dropout import Dropout
from tokenspace.reference.embedding import Embedding
from tokenspace.reference.layer_norm import LayerNorm
from tokenspace.reference.positional import (
    ANY_COUNT,
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    checked_mask,
    checked_start,
)
from tokenspace.reference.precision import widened
from tokenspace.reference.projection import Projection
from tokenspace.reference.segment import SegmentEmbedding
from tokenspace.reference.upstream import checked_gradient
from tokenspace.shapes import Array, ArrayLike, Float, Int

Position = LearnedPositionalEmbedding | SinusoidalPositionalEncoding


class TransformerInput:
    """The parts of one recipe, composed; ``extras`` are further tables by name (language, role, modality).

    ``ShapeError`` if the parts' widths don't fit each other.

    >>> rng = np.random.default_rng(0)
    >>> bert = TransformerInput(
    ...     Embedding(100, 8, rng, padding_id=0),
    ...     position=LearnedPositionalEmbedding(16, 8, rng),
    ...     segment=SegmentEmbedding(2, 8, rng),
    ...     layer_norm=LayerNorm(8),
    ...     dropout=Dropout(0.1, rng),
    ... )
    >>> bert.forward([[5, 7, 7], [9, 0, 0]], segment_ids=[[0, 0, 1], [0, 0, 0]]).shape
    (2, 3, 8)
    >>> list(bert.steps([[5, 7, 7]]))
    ['lookup', 'position', 'segment', 'normalized', 'dropout', 'output']
    """

    def __init__(
        self,
        token: Embedding,
        position: Position | None = None,
        segment: SegmentEmbedding | None = None,
        extras: Mapping[str, SegmentEmbedding] | None = None,
        layer_norm: LayerNorm | None = None,
        projection: Projection | None = None,
        dropout: Dropout | None = None,
    ):
        self.token = token
        self.position = position
        self.segment = segment
        self.extras = dict(extras or {})
        self.layer_norm = layer_norm
        self.projection = projection
        self.dropout = dropout
        self._projects_first = self._checked_widths()
        self._output_shape: tuple[int, ...] | None = None

    def forward(
        self,
        ids: ArrayLike,
        segment_ids: ArrayLike | None = None,
        position_ids: ArrayLike | None = None,
        start: ArrayLike = 0,
        attention_mask: ArrayLike | None = None,
        extra_ids: Mapping[str, ArrayLike] | None = None,
        training: bool = False,
    ) -> Float[Array, "B T D"]:
        """What the transformer's first layer gets; see `steps` for the arguments."""
        walk = self.steps(ids, segment_ids, position_ids, start, attention_mask, extra_ids, training)
        return walk["output"]

    def steps(
        self,
        ids: ArrayLike,
        segment_ids: ArrayLike | None = None,
        position_ids: ArrayLike | None = None,
        start: ArrayLike = 0,
        attention_mask: ArrayLike | None = None,
        extra_ids: Mapping[str, ArrayLike] | None = None,
        training: bool = False,
    ) -> dict[str, np.ndarray]:
        """Every intermediate by name, in order: only the steps that this recipe has, "output" last.

        "lookup", "scaled", "normalized", "dropout" and "projected" hold what a token's vector is after that
        step; "position", "segment" and the extras hold the rows that are added there.

        - ids: (B, T)
        - segment_ids: (B, T) or (T,); all 0 if left out
        - position_ids: (B, T) or (T,); counted from ``start`` if left out, see `position_ids`
        - attention_mask: (B, T), 1 at tokens, 0 at padding; read only where positions skip padding
        - extra_ids: (B, T) or (T,) under the name of each extra table
        - training: whether dropout drops

        What the recipe has no use for is checked all the same, then left alone.
        """
        self._output_shape = None  # after a forward that fails half-way there is nothing to go back through
        token_ids = self._batch(ids)
        mask = None if attention_mask is None else _mask(attention_mask, token_ids)
        checked_start(start, len(token_ids))
        if position_ids is not None:
            position_ids = _per_token(position_ids, token_ids, self.position, "position id")
        segment_ids = np.zeros_like(token_ids) if segment_ids is None else segment_ids
        segment_ids = _per_token(segment_ids, token_ids, self.segment, "segment id")
        extra_ids = self._checked_extras(extra_ids, token_ids)
        steps: dict[str, np.ndarray] = {}

        x = steps["lookup"] = self.token.lookup(token_ids)
        if self.token.scale is not None:
            x = steps["scaled"] = x * self.token.scale
        if self.projection is not None and self._projects_first:
            x = steps["projected"] = self.projection.forward(x)
        if self.position is not None:
            if position_ids is None:
                position_ids = self.position_ids(token_ids, start, mask)
            steps["position"] = self.position.forward(position_ids)
            x = x + steps["position"]
        if self.segment is not None:
            steps["segment"] = self.segment.forward(segment_ids)
            x = x + steps["segment"]
        for name, table in self.extras.items():
            steps[name] = table.forward(extra_ids[name])
            x = x + steps[name]
        if self.layer_norm is not None:
            x = steps["normalized"] = self.layer_norm.forward(x)
        if self.dropout is not None:
            x = steps["dropout"] = self.dropout.forward(x, training)
        if self.projection is not None and not self._projects_first:
            x = steps["projected"] = self.projection.forward(x)
        steps["output"] = x
        self._output_shape = x.shape
        return steps

    def backward(self, upstream_gradient: ArrayLike) -> None:
        """Take the gradient (B, T, D) of the last output back through every step, into `gradients`.

        ``ShapeError`` if it has another shape; nothing is added then.
        """
        d_x = checked_gradient(upstream_gradient, self._output_shape)
        if self.projection is not None and not self._projects_first:
            d_x = self.projection.backward(d_x)
        if self.dropout is not None:
            d_x = self.dropout.backward(d_x)
        if self.layer_norm is not None:
            d_x = self.layer_norm.backward(d_x)
        for table in self.extras.values():  # a sum hands its gradient to each of its terms
            table.backward(d_x)
        if self.segment is not None:
            self.segment.backward(d_x)
        if self.position is not None:
            self.position.backward(d_x)
        if self.projection is not None and self._projects_first:
            d_x = self.projection.backward(d_x)
        self.token.backward(d_x)  # through the scale and the lookup

    def position_ids(
        self,
        ids: ArrayLike,
        start: ArrayLike = 0,
        attention_mask: ArrayLike | None = None,
    ) -> Int[Array, "B T"]:
        """The position id of each token of ids (B, T), ``start`` tokens having come before.

        Where positions skip padding, the table's ``padding_from`` says what tells it: ``attention_mask``, or
        the ids that equal the token table's ``padding_id``. ``ShapeError`` if the recipe adds no positions,
        or its table is too short.
        """
        if self.position is None:
            raise ShapeError("this recipe adds no positions to its tokens")
        token_ids = self._batch(ids)
        mask = None if attention_mask is None else _mask(attention_mask, token_ids)
        if isinstance(self.position, LearnedPositionalEmbedding):
            mask = self._told_padding(self.position, token_ids, mask)
        return self.position.position_ids(token_ids.shape, start, mask)

    def _told_padding(
        self, position: LearnedPositionalEmbedding, token_ids: np.ndarray, mask: np.ndarray | None
    ) -> np.ndarray | None:
        if position.padding_from == "mask" or (position.padding_from is None and mask is not None):
            return mask
        return None if self.token.padding_id is None else token_ids != self.token.padding_id

    def zero_gradient(self) -> None:
        """Forget every part's gradients."""
        for part in self._parts().values():
            if not isinstance(part, SinusoidalPositionalEncoding):
                part.zero_gradient()

    def parameters(self) -> dict[str, np.ndarray]:
        """Every array that training changes, as "part.name": "token.weight", "layer_norm.bias", …"""
        return {
            f"{part}.{name}": array
            for part, layer in self._parts().items()
            for name, array in layer.parameters().items()
        }

    def gradients(self) -> dict[str, np.ndarray]:
        """The gradients under the same names, summed over the backwards since `zero_gradient`."""
        return {
            f"{part}.{name}": array
            for part, layer in self._parts().items()
            for name, array in layer.gradients().items()
        }

    def _parts(self) -> dict[str, Embedding | Position | LayerNorm | Projection]:
        parts = {
            "token": self.token,
            "position": self.position,
            "segment": self.segment,
            **self.extras,
            "layer_norm": self.layer_norm,
            "projection": self.projection,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _checked_widths(self) -> bool:
        """Whether the projection comes before the sum; ``ShapeError`` for a part that fits nowhere."""
        taken = {"token", "position", "segment", "layer_norm", "projection", "dropout"}
        taken |= {"lookup", "scaled", "normalized", "projected", "output"}
        if clash := taken & set(self.extras):
            raise ShapeError(
                f"an extra table can't be named {sorted(clash)[0]!r}: a step or part has that name"
            )
        width = self.token.embedding_dimension
        widths = {
            name: part.embedding_dimension
            for name, part in self._parts().items()
            if name != "token" and not isinstance(part, Projection)
        }
        projects_first = False
        if self.projection is not None:
            if self.projection.input_width != width:
                raise ShapeError(
                    f"the projection takes width {self.projection.input_width:,}, tokens have {width:,}"
                )
            output = self.projection.output_width
            projects_first = output != width and bool(widths) and set(widths.values()) == {output}
            width = output if projects_first else width
        for name, found in widths.items():
            if found != width:
                raise ShapeError(
                    f"the {name} has width {found:,} where tokens have {width:,}; make them equal"
                )
        return projects_first

    def _batch(self, ids: ArrayLike) -> np.ndarray:
        token_ids = checked_ids(ids, self.token.vocabulary_size, self.token.id_name)
        if token_ids.ndim != 2:
            raise ShapeError(f"ids are (B, T), texts by positions; found shape {token_ids.shape}")
        return token_ids

    def _checked_extras(
        self, extra_ids: Mapping[str, ArrayLike] | None, token_ids: np.ndarray
    ) -> dict[str, np.ndarray]:
        given = {} if extra_ids is None else extra_ids
        if set(given) != set(self.extras):
            raise ShapeError(
                f"extra_ids must have ids for exactly {sorted(self.extras)}; found {sorted(given)}"
            )
        return {
            name: _per_token(given[name], token_ids, table, f"{name} id")
            for name, table in self.extras.items()
        }


def _per_token(
    ids: ArrayLike, token_ids: np.ndarray, table: Embedding | Position | None, what: str
) -> np.ndarray:
    """``ids`` of ``table``'s rows as (B, T); those of one text, (T,), serve every text."""
    rows = table.vocabulary_size if isinstance(table, Embedding) else ANY_COUNT
    return _broadcast(checked_ids(ids, rows, what), token_ids, f"{what}s")


def _mask(attention_mask: ArrayLike, token_ids: np.ndarray) -> np.ndarray:
    values = widened(attention_mask, "an attention mask")
    return checked_mask(_broadcast(values, token_ids, "attention mask values"))


def _broadcast(array: np.ndarray, token_ids: np.ndarray, what: str) -> np.ndarray:
    if array.shape not in (token_ids.shape, token_ids.shape[1:]):
        raise ShapeError(f"{what} must be {token_ids.shape} or {token_ids.shape[1:]}; found {array.shape}")
    return np.broadcast_to(array, token_ids.shape)
