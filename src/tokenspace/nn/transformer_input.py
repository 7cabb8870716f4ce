"""The transformer's input, whole, as a torch module: ids (B, T) to vectors (B, T, D).

    ids -> lookup -> × scale -> + position -> + segment -> + extras -> LayerNorm -> dropout -> projection

Each part after the lookup is there only if the recipe has it: BERT has all but scale and projection, GPT-2
positions and dropout, LLaMA none. A projection comes last, as in ALBERT and ELECTRA; where the tables that
are added have the projection's width already, it comes before them, as in OPT-350m.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from tokenspace.errors import ShapeError
from tokenspace.nn import dispatch, fusion, recipes, unfused
from tokenspace.nn.embedding import PaddingOnLoad, TokenEmbedding
from tokenspace.nn.output import written
from tokenspace.nn.positional import (
    LearnedPositionalEmbedding,
    SinusoidalPositionalEncoding,
    Start,
)
from tokenspace.nn.segment import SegmentEmbedding
from tokenspace.nn.sharded import distributed_like
from tokenspace.nn.traced import call_of

Position = LearnedPositionalEmbedding | SinusoidalPositionalEncoding

_PARTS = ("token", "position", "segment", "extras", "layer_norm", "projection")


class _Told(NamedTuple):
    """What a forward is told, checked as far as that needs no part."""

    ids: Tensor | None
    shape: tuple[int, int]
    segment_ids: Tensor | None
    position_ids: Tensor | None
    start: Start
    attention_mask: Tensor | None
    extra_ids: Mapping[str, Tensor]


class TransformerInput(nn.Module):
    """The parts of one recipe, composed; ``extras`` are further tables by name (language, role, modality).

    The parts are children of these names, so the state dict reads ``token.weight``, ``position.weight``,
    ``segment.weight``, ``extras.language.weight``, ``layer_norm.bias``, ``projection.weight``.
    ``ShapeError`` if the parts' widths don't fit each other.

    >>> bert = TransformerInput(
    ...     TokenEmbedding(100, 8, padding_idx=0),
    ...     position=LearnedPositionalEmbedding(16, 8),
    ...     segment=SegmentEmbedding(2, 8),
    ...     layer_norm=torch.nn.LayerNorm(8, eps=1e-12),
    ...     dropout=torch.nn.Dropout(0.1),
    ... )
    >>> segment_ids = torch.tensor([[0, 0, 1], [0, 0, 0]])
    >>> bert(torch.tensor([[5, 7, 7], [9, 0, 0]]), segment_ids=segment_ids).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        token: TokenEmbedding,
        position: Position | None = None,
        segment: SegmentEmbedding | None = None,
        extras: Mapping[str, SegmentEmbedding] | None = None,
        layer_norm: nn.LayerNorm | None = None,
        projection: nn.Linear | None = None,
        dropout: nn.Dropout | None = None,
    ) -> None:
        super().__init__()
        self.token = token
        self.position = position
        self.segment = segment
        self.extras: Mapping[str, SegmentEmbedding]
        self.extras = nn.ModuleDict(_checked_names(extras or {}))  # type: ignore[assignment]
        self.layer_norm = layer_norm
        self.projection = projection
        self.dropout = dropout
        self._projects_first = self._checked_widths()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _PARTS and "_projects_first" in self.__dict__:
            with contextlib.suppress(
                AttributeError, ShapeError
            ):  # a wrapper; a part of more that will change
                self._projects_first = self._checked_widths()

    @classmethod
    def from_recipe(
        cls,
        name: str,
        vocab_size: int | None = None,
        d_model: int | None = None,
        *,
        max_positions: int | None = None,
        padding_idx: int | None = None,
        freeze_padding: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> TransformerInput:
        """A new layer of a family ("bert", "original", …) or a named model ("bert-base-uncased").

        A named model brings its own sizes; a family needs ``vocab_size`` and ``d_model``. What is given goes
        before what the model says: ``max_positions`` counts tokens, without the rows that a family leaves
        before them. RoBERTa's positions begin at ``padding_idx`` + 1, whatever the padding id is. The padding
        row is zero (the original BERT alone draws it). ``torch.manual_seed`` repeats the draws.
        ``CheckpointError`` for a name that is neither, ``ShapeError`` for a family without sizes, and for a
        padding id that leaves none of a named model's position rows.

        >>> gpt2 = TransformerInput.from_recipe("gpt2", vocab_size=300, d_model=16)
        >>> list(gpt2.state_dict())
        ['token.weight', 'position.weight']
        >>> TransformerInput.from_recipe("bert-base-uncased", device="meta").token
        TokenEmbedding(30522, 768, padding_idx=0)
        """
        parts = recipes.drawn_parts(
            name, vocab_size, d_model, max_positions, padding_idx, freeze_padding, device=device, dtype=dtype
        )
        return cls(**parts)

    @classmethod
    def from_checkpoint(
        cls,
        folder: str | os.PathLike[str],
        dtype: torch.dtype | None = None,
        padding: PaddingOnLoad = "keep",
    ) -> TransformerInput:
        """The input layer of a model of a known family: its own numbers, in their own dtype if none is given.

        Only the layer's tensors are read. The padding row is kept as the file has it, or set to zero; the
        choice also goes for state dicts that are loaded later. Errors as for
        ``reference.recipes.from_checkpoint``.
        """
        return cls(**recipes.checkpoint_parts(folder, dtype, padding))

    def forward(
        self,
        ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        start: Start = 0,
        attention_mask: Tensor | None = None,
        extra_ids: Mapping[str, Tensor] | None = None,
        inputs_embeds: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """What the transformer's first layer gets, (B, T, D).

        - ids: (B, T)
        - segment_ids: (B, T), (1, T) or (T,); all 0 if left out
        - position_ids: (B, T), (1, T) or (T,); counted from ``start`` if left out, see `position_ids`
        - start: how many tokens were cached before these, one count or one a text (B,)
        - attention_mask: (B, T), 1 at tokens, 0 at padding; read only where positions skip padding
        - extra_ids: (B, T), (1, T) or (T,) under the name of each extra table
        - inputs_embeds: (B, T, table's width) instead of ids: what ``token(ids)`` would be, scaled already
        - out: a contiguous tensor like the result, to write it to and return; where no gradient is needed

        ``TokenIdError`` for ids that are no rows (``tokenspace.nn.ids`` says what is checked where),
        ``ShapeError`` for what has another shape, or a text longer than the positions.
        """
        if type(ids) is not Tensor and not isinstance(ids, Tensor):  # a torch.fx.Proxy, perhaps
            rest = segment_ids, position_ids, start, attention_mask, extra_ids, inputs_embeds, out
            if (call := call_of(self, ids, *rest)) is not None:
                return call
        if (ids is None) == (inputs_embeds is None):
            raise ShapeError("give either ids or inputs_embeds, and not both")
        if ids is not None:
            if type(ids) is not Tensor or ids.is_nested:
                _check_tensor(ids, "ids")
                self._check_nested(ids)
            if ids.ndim != 2:
                raise ShapeError(f"ids are (B, T), texts by positions; found shape {tuple(ids.shape)}")
            shape = (ids.shape[0], ids.shape[1])
        else:
            if isinstance(inputs_embeds, Tensor):
                self._check_nested(inputs_embeds)
            inputs_embeds = self._checked_embeds(inputs_embeds)
            shape = (inputs_embeds.shape[0], inputs_embeds.shape[1])
        if attention_mask is not None:
            _check_tensor(attention_mask, "attention mask")
        if attention_mask is not None and tuple(attention_mask.shape) != shape:
            raise ShapeError(
                f"the attention mask must be {shape}, as the ids are; found {tuple(attention_mask.shape)}"
            )
        if extra_ids or len(self._modules["extras"]._modules):  # type: ignore[union-attr]
            extra_ids = self._checked_extras(extra_ids)
        told = _Told(ids, shape, segment_ids, position_ids, start, attention_mask, extra_ids or {})
        x = None if ids is None else self._at_once(ids, told, out)
        if x is None:
            x = self._by_parts(self.token(ids) if inputs_embeds is None else inputs_embeds, told)
        if self.projection is not None and not self._projects_first:
            x = self.projection(x)
        return x if out is None or x is out else written(x, out, self.parameters())

    def _at_once(self, ids: Tensor, told: _Told, out: Tensor | None) -> Tensor | None:
        """Sum, LayerNorm and dropout as one computation, where nobody can tell (``nn.fusion``); else None."""
        parts: dict[str, Any] = self._modules
        token, layer_norm, dropout = parts["token"], parts.get("layer_norm"), parts.get("dropout")
        extras = parts["extras"]._modules.values()
        after = (parts.get("position"), parts.get("segment"), *extras, layer_norm, dropout)
        if self._projects_first or (trained := fusion.parameters(token, after)) is None:
            return None
        if out is None and dispatch.torch_makes(trained, ids, layer_norm is not None, token.sparse):
            added = self._added(told, ids.device, as_ranges=True)
            try:
                return unfused.embed(token, ids, added, layer_norm, dropout)
            except (IndexError, RuntimeError):
                return None  # the parts, called one by one, say what is wrong, or take other types of ids
        if dispatch.is_watched(is_compiling()):
            return None
        rows = [part.rows_for(own) for part, own in self._added(told, ids.device)]
        out = None if self.projection is not None else out
        return fusion.embed(token, ids, rows, layer_norm, dropout, out)

    def _by_parts(self, x: Tensor, told: _Told) -> Tensor:
        """The same, each part called as a module."""
        if self.projection is not None and self._projects_first:
            x = self.projection(x)
        for part, own in self._added(told, x.device):
            if not isinstance(part, SinusoidalPositionalEncoding):  # that has no sharded rows to read
                own = distributed_like(own, x)
            x = x + distributed_like(part(own), x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return x if self.dropout is None else fusion.drop(self.dropout, x)

    def _added(
        self, told: _Told, device: torch.device, *, as_ranges: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """What is added to the tokens' rows: each part, and its ids, (B, T) or those of one text.

        ``as_ranges``: ids that the caller left out come as a range of rows where they are one, one for each
        position, or one for all.
        """
        own: Any = told.position_ids
        shape, position = told.shape, self._modules.get("position")
        if own is not None:
            own = _per_token(own, shape, "position ids")
        elif position is not None:
            if as_ranges:
                own = _counted(position, told.start, shape[1])
            if own is None:
                rest = (told.ids, shape, told.start, told.attention_mask, device)
                own = self._positions(_adapted(position), *rest)
        if position is not None:
            yield position, own
        segment, own = self._modules.get("segment"), told.segment_ids
        if segment is not None:
            if own is not None:
                own = _per_token(own, shape, "segment ids")
            else:
                own = range(1) if as_ranges else torch.zeros((1, shape[1]), dtype=torch.int64, device=device)
            yield segment, own
        for name, table in self._modules["extras"]._modules.items():  # type: ignore[union-attr]
            yield table, _per_token(told.extra_ids[name], shape, f"{name} ids")

    def position_ids(self, ids: Tensor, start: Start = 0, attention_mask: Tensor | None = None) -> Tensor:
        """The position id of each token of ids (B, T), ``start`` tokens having come before; (1, T) or (B, T).

        Where positions skip padding, the table's ``padding_from`` says what tells it: ``attention_mask``, or
        the ids that equal the token table's ``padding_idx``. ``ShapeError`` if the recipe adds no positions,
        or its table is too short.
        """
        if self.position is None:
            raise ShapeError("this recipe adds no positions to its tokens")
        shape = (ids.shape[0], ids.shape[1])
        position = _adapted(self.position)
        return self._positions(position, ids, shape, start, attention_mask, ids.device)

    def reset_parameters(self) -> None:
        """Draw every part anew, each as its recipe says (after ``to_empty``, say)."""
        for part in (self.token, self.position, self.segment, *self.extras.values(), self.layer_norm):
            if part is not None and not isinstance(part, SinusoidalPositionalEncoding):
                part.reset_parameters()
        if self.projection is not None:
            self.projection.reset_parameters()

    def _positions(
        self,
        position: Position,
        ids: Tensor | None,
        shape: tuple[int, int],
        start: Start,
        attention_mask: Tensor | None,
        device: torch.device,
    ) -> Tensor:
        if isinstance(position, LearnedPositionalEmbedding) and position.padding_idx is not None:
            attention_mask = self._told_padding(position, ids, attention_mask)
        return position.position_ids(shape, start, attention_mask, device)

    def _told_padding(
        self, position: LearnedPositionalEmbedding, ids: Tensor | None, attention_mask: Tensor | None
    ) -> Tensor | None:
        """The mask that ``position`` counts by; embedded inputs have no ids to tell padding by, so none."""
        if position.padding_from == "mask" or (position.padding_from is None and attention_mask is not None):
            return attention_mask
        padding_idx = _adapted(self.token).padding_idx
        return None if ids is None or padding_idx is None else ids != padding_idx

    def _check_nested(self, given: Tensor) -> None:
        """Refuse nested tensors, but jagged ones where the tokens' rows alone are needed."""
        if not given.is_nested:
            return
        added = self.position is not None or self.segment is not None or len(self.extras) > 0
        if added or given.layout != torch.jagged:
            taken = (
                "no nested tensor, as it adds rows per position" if added else "jagged nested tensors only"
            )
            raise ShapeError(
                f"this layer takes {taken}; found layout {given.layout}. Pad the texts to one length: "
                "torch.nested.to_padded_tensor(ids, padding_id)"
            )

    def _checked_embeds(self, inputs_embeds: Tensor | None) -> Tensor:
        width = _adapted(self.token).embedding_dim
        if inputs_embeds is None or inputs_embeds.ndim != 3 or inputs_embeds.shape[2] != width:
            found = None if inputs_embeds is None else tuple(inputs_embeds.shape)
            raise ShapeError(f"inputs_embeds are (B, T, {width}); found shape {found}")
        return inputs_embeds

    def _checked_extras(self, extra_ids: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
        given = {} if extra_ids is None else extra_ids
        if set(given) != set(self.extras.keys()):
            raise ShapeError(
                f"extra_ids must have ids for exactly {sorted(self.extras)}; found {sorted(given)}"
            )
        return given

    def _checked_widths(self) -> bool:
        """Whether the projection comes before the sum; ``ShapeError`` for a part that fits nowhere."""
        width = self.token.embedding_dim
        tables: dict[str, Any] = {"position": self.position, "segment": self.segment, **self.extras}
        widths = {name: table.embedding_dim for name, table in tables.items() if table is not None}
        if self.layer_norm is not None:
            widths["layer norm"] = self.layer_norm.normalized_shape[-1]
        projects_first = False
        if self.projection is not None:
            if self.projection.in_features != width:
                raise ShapeError(
                    f"the projection takes width {self.projection.in_features:,}, tokens have {width:,}"
                )
            output = self.projection.out_features
            projects_first = output != width and bool(widths) and set(widths.values()) == {output}
            width = output if projects_first else width
        for name, found in widths.items():
            if found != width:
                raise ShapeError(
                    f"the {name} has width {found:,} where tokens have {width:,}; make them equal"
                )
        return projects_first


def _counted(position: nn.Module, start: Start, length: int) -> range | None:
    """The rows of ``length`` positions from ``start`` on; None where they are not neighbors in a table."""
    if type(position) is not LearnedPositionalEmbedding or type(start) is not int or start < 0:
        return None
    if position.padding_idx is not None:
        return None
    first = start + position.offset
    return range(first, first + length)


def _adapted(part: Any) -> Any:
    """Return the module that a wrapper of PEFT's in its place holds, or the part itself."""
    for name in ("original_module", "base_layer"):
        while isinstance(inside := getattr(part, name, None), nn.Module):
            part = inside
    return part


def _check_tensor(value: Any, what: str) -> None:
    if not isinstance(value, Tensor):
        raise ShapeError(
            f"the {what} must be a tensor, found {type(value).__name__}; torch.tensor(...) makes one"
        )


def _per_token(ids: Tensor, shape: tuple[int, int], what: str) -> Tensor:
    """``ids`` as they are, if they serve texts of ``shape`` (B, T); those of one text serve every text."""
    _check_tensor(ids, what)
    if tuple(ids.shape) not in (shape, (1, shape[1]), (shape[1],)):
        raise ShapeError(f"{what} must be {shape} or {shape[1:]}; found {tuple(ids.shape)}")
    return ids


def _checked_names(extras: Mapping[str, SegmentEmbedding]) -> dict[str, SegmentEmbedding]:
    """``extras``, if torch can hold them by their names; ``ShapeError`` otherwise."""
    for name in extras:
        if not isinstance(name, str) or not name or "." in name or hasattr(nn.ModuleDict(), name):
            raise ShapeError(
                f"an extra table can't be named {name!r}: torch takes names without a dot that are "
                "no attributes of ModuleDict"
            )
    return dict(extras)
