"""Positional encodings that are added to the token rows: sinusoidal (a formula) and learned (a table).

A *position id* is what the encoding is asked for: a count from 0 for the sinusoidal one; for the learned one
a row of its table, offset included, as RoBERTa counts. Rotary and ALiBi positions live inside attention and
are no part of the embedding layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from tokenspace.errors import ShapeError
from tokenspace.initializers import Real, Whole, real, whole
from tokenspace.nn import dispatch, ops
from tokenspace.nn.arrays import checked_dtype
from tokenspace.nn.attributes import CHECKS, Check, rows_of
from tokenspace.nn.embedding import TokenEmbedding
from tokenspace.nn.ids import check_ids
from tokenspace.nn.initializers import Initializer, normal_
from tokenspace.nn.nested import nested_like, packed
from tokenspace.nn.traced import call_of
from tokenspace.reference.positional import ANY_COUNT, Layout, PaddingFrom

Start = int | Tensor
"""How many tokens stand before: one count, or one a text (B,)."""

_NOTHING_KEPT: tuple[Tensor, Any] = (torch.empty(0), None)

_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def sinusoidal(
    positions: Tensor,
    embedding_dim: Whole,
    layout: Layout = "paper",
    base: Real = 10_000.0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Sines and cosines (\\*axes, D) of positions (\\*axes); the layouts are ``reference.sinusoidal``'s.

    Computed in float64 and rounded to ``dtype`` last. Where positions are cast to bfloat16 first, those past
    256 fall together: of 4,096 rows 769 are left distinct.

    >>> sinusoidal(torch.tensor([0, 1]), 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    _check_layout(layout)
    width, base = whole("embedding_dim", embedding_dim, 1), real("base", base, positive=True)
    return _encoding(positions, width, layout, base, checked_dtype(dtype) or torch.get_default_dtype())


def _encoding(positions: Tensor, width: int, layout: Layout, base: float, dtype: torch.dtype) -> Tensor:
    """`sinusoidal` of settings that are checked already: torch.compile can't trace the checks."""
    half = width // 2 if layout == "tensor2tensor" else (width + 1) // 2
    exponents = torch.arange(half, dtype=torch.float64, device=positions.device)
    exponents = exponents / max(half - 1, 1) if layout == "tensor2tensor" else exponents * 2 / width
    angles = positions.to(torch.float64).unsqueeze(-1) * base**-exponents
    sines, cosines = angles.sin(), angles[..., : width // 2].cos()
    if layout == "paper":
        encoding = torch.empty((*positions.shape, width), dtype=torch.float64, device=positions.device)
        encoding[..., 0::2] = sines
        encoding[..., 1::2] = cosines
    else:
        parts = [sines, cosines]
        if layout == "tensor2tensor" and width % 2:
            parts.append(torch.zeros((*positions.shape, 1), dtype=torch.float64, device=positions.device))
        encoding = torch.cat(parts, dim=-1)
    return encoding.to(dtype)


def positions_from_mask(attention_mask: Tensor, padding_idx: int, start: Start = 0) -> Tensor:
    """Position ids (B, T) that count real tokens only, from padding_idx + 1; padding gets ``padding_idx``.

    What RoBERTa, XLM-R and OPT do, so that a text padded on the left has the positions that it has alone.
    ``attention_mask`` (B, T), of integers or booleans, is 1 at tokens and 0 at padding; ``start`` is the
    number of real tokens cached before.

    >>> positions_from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]), padding_idx=1)
    tensor([[1, 1, 2, 3],
            [2, 3, 4, 5]])
    """
    is_token = checked_mask(attention_mask)
    count = is_token.cumsum(dim=1) + checked_start(start, len(is_token))
    return torch.where(is_token, count + padding_idx, padding_idx)


class SinusoidalPositionalEncoding(torch.nn.Module):
    """The sinusoidal encoding as a module: any position, nothing learned, nothing in the state dict.

    Any position has a row. On a CPU, eager code keeps the rows that it computed, up to twice as many as it
    was asked for; elsewhere each forward computes its own. ``max_positions`` keeps exactly that many: one
    lookup, and a ``TokenIdError`` past them. Kept or not, they are rounded once: a change of dtype computes
    them afresh from float64, as does the move from the meta device.

    >>> encoding = SinusoidalPositionalEncoding(4, max_positions=512).to(torch.bfloat16)
    >>> encoding(torch.tensor([[0, 511]])).dtype
    torch.bfloat16
    """

    _kept: tuple[Tensor, Any]  # rows, and the settings that they were computed with

    def __init__(
        self,
        embedding_dim: Whole,
        layout: Layout = "paper",
        base: Real = 10_000.0,
        *,
        max_positions: Whole | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.layout = layout
        self.base = base
        self.max_positions = max_positions
        # Without max_positions it has no rows and only knows device and dtype.
        shape = (self.max_positions or 0, self.embedding_dim)
        empty = torch.empty(shape, device=device, dtype=checked_dtype(dtype))
        self.rows: Tensor
        self.register_buffer("rows", empty, persistent=False)
        self._compute_rows()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "layout":
            _check_layout(value)
        elif name == "base":
            value = real(name, value, positive=True)
        elif name == "embedding_dim" or (name == "max_positions" and value is not None):
            value = whole(name, value, 1)
        super().__setattr__(name, value)
        if name in ("layout", "base", "embedding_dim", "max_positions") and "rows" in self._buffers:
            self.rows = self.rows.new_empty((self.max_positions or 0, self.embedding_dim))
            self._compute_rows()

    def forward(self, position_ids: Tensor) -> Tensor:
        """One row (\\*axes, D) per position id (\\*axes), a count from 0."""
        if not isinstance(position_ids, Tensor) and (call := call_of(self, position_ids)) is not None:
            return call
        if isinstance(position_ids, Tensor) and position_ids.is_nested:
            return nested_like(self.forward(packed(position_ids)), position_ids)
        rows = self.rows_for(position_ids)
        if dispatch.on_kernels([rows.table], [rows.ids]):
            return ops.embed([rows])
        ids = check_ids(rows.ids, len(rows.table), rows.name) if rows.name else rows.ids
        return F.embedding(ids, rows.table)  # table[ids] would wrap a negative id that a device holds

    def rows_for(self, position_ids: Tensor) -> ops.Rows:
        """A table that has the rows of these positions, and their ids in it.

        ``TokenIdError`` for one that is no count; past ``max_positions`` the lookup says so.
        """
        if self.max_positions is not None:
            return ops.Rows(self.rows, position_ids, name="position id")
        position_ids = check_ids(position_ids, ANY_COUNT, "position id")
        kept = self._kept_rows(position_ids)
        if kept is not None:
            return ops.Rows(kept, position_ids)
        counted = torch.arange(position_ids.numel(), device=position_ids.device).view(position_ids.shape)
        return ops.Rows(self._encoded(position_ids.reshape(-1)), counted)

    def _kept_rows(self, position_ids: Tensor) -> Tensor | None:
        """Rows for the positions from 0 on, these included; None where they have to be computed each time.

        A forward that needs few rows far out computes these: it would cost more to keep all before them.
        """
        eager = not torch.compiler.is_compiling()
        if not eager or not position_ids.numel() or not dispatch.unwatched(self.rows, position_ids):
            return None
        needed = int(position_ids.max()) + 1
        made_as = (self.embedding_dim, self.layout, self.base, self.rows.dtype)
        kept, kept_as = self._kept
        have = len(kept) if kept_as == made_as else 0
        if needed > have:
            if needed > 2 * max(have, position_ids.numel()):
                return None
            with torch.inference_mode(False):  # a later forward may want gradients
                kept = self._encoded(torch.arange(max(needed, 2 * have)))
            self._kept = (kept, made_as)
        return kept

    def _encoded(self, positions: Tensor) -> Tensor:
        return _encoding(positions, self.embedding_dim, self.layout, self.base, self.rows.dtype)

    def position_ids(
        self,
        shape: tuple[int, int],
        start: Start = 0,
        attention_mask: Tensor | None = None,
        device: torch.device | None = None,
    ) -> Tensor:
        """0, 1, 2 … from ``start``, as (1, T), or (B, T) where each text has a start of its own."""
        return _counts(shape, start, device)

    def extra_repr(self) -> str:
        kept = "" if self.max_positions is None else f", max_positions={self.max_positions}"
        return f"{self.embedding_dim}, layout={self.layout!r}, base={self.base:g}{kept}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SinusoidalPositionalEncoding:
        super()._apply(fn, recurse)
        self._compute_rows()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": _NOTHING_KEPT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_kept": _NOTHING_KEPT, **state})

    def _compute_rows(self) -> None:
        self.rows = self._encoded(torch.arange(len(self.rows), device=self.rows.device))
        self._kept = _NOTHING_KEPT


class LearnedPositionalEmbedding(TokenEmbedding):
    """A table with a row per position (Gehring et al. 2017, section 3.1; BERT, GPT-2).

    ``offset`` rows stand before the first position's: with ``offset=2`` (RoBERTa, BART, OPT) 514 rows hold
    512 positions. With ``padding_idx``, positions count real tokens only and padding reads that row, which
    gets no gradient (RoBERTa, OPT: ``offset=2, padding_idx=1``). `TransformerInput` tells padding by
    ``padding_from``: the token "ids" alone (RoBERTa), the attention "mask" alone (OPT), or None: the mask if
    there is one, else the ids.

    >>> roberta = LearnedPositionalEmbedding(514, 8, padding_idx=1, offset=2)
    >>> roberta.usable_length
    512
    >>> roberta.position_ids((1, 4), attention_mask=torch.tensor([[1, 1, 1, 0]]))
    tensor([[2, 3, 4, 1]])
    >>> roberta.position_ids((1, 513))
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: 513 positions are needed and this table of 514 rows holds 512 \
(2 rows stand before the first); shorten the text
    """

    id_name = "position id"
    _checks: ClassVar[Mapping[str, Check]]  # at the end of this file

    def __init__(
        self,
        num_embeddings: Whole,
        embedding_dim: Whole,
        padding_idx: Whole | None = None,
        *,
        offset: Whole = 0,
        padding_from: PaddingFrom | None = None,
        initializer: Initializer = normal_,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, initializer=initializer, device=device, dtype=dtype
        )
        self.padding_from = padding_from
        self.offset = offset

    @property
    def usable_length(self) -> int:
        """How many positions the table holds: its rows less the offset."""
        return len(self.weight) - self.offset

    def position_ids(
        self,
        shape: tuple[int, int],
        start: Start = 0,
        attention_mask: Tensor | None = None,
        device: torch.device | None = None,
    ) -> Tensor:
        """Rows for B texts of T tokens, as (1, T) where all texts have the same ones, else (B, T).

        The mask counts only where padding is skipped (``padding_idx``); without one, every token is real.
        ``ShapeError`` if the table is too short; where that depends on the values of a tensor, the lookup's
        ``TokenIdError`` in compiled code.
        """
        if self.padding_idx is not None and attention_mask is not None:
            ids = positions_from_mask(attention_mask, self.padding_idx, start)
        else:
            ids = _counts(shape, start, device, self.offset)
        if isinstance(start, Tensor) or start + shape[1] > self.usable_length:
            depends = isinstance(start, Tensor) or (
                self.padding_idx is not None and attention_mask is not None
            )
            self._check_length(ids if depends else None, start, shape[1])
        return ids

    def _check_length(self, ids: Tensor | None, start: Start, length: int) -> None:
        """``ids`` are read where the length depends on their values and they can be read for free."""
        if ids is None:
            needed = start + length
        elif torch.compiler.is_compiling() or not ids.is_cpu or not ids.numel():
            return
        else:
            needed = int(ids.max()) + 1 - self.offset
        if needed > self.usable_length:
            before = f" ({self.offset} rows stand before the first)" if self.offset else ""
            raise ShapeError(
                f"{needed:,} positions are needed and this table of {len(self.weight):,} rows holds "
                f"{self.usable_length:,}{before}; shorten the text"
            )


def _padding_from(module: Any, value: Any) -> Any:
    if value is not None and value not in get_args(PaddingFrom):
        raise ShapeError(f"padding_from must be 'ids', 'mask' or None; found {value!r}")
    return value


def _offset(module: Any, value: Any) -> int:
    offset, rows = whole("the offset", value, 0), rows_of(module)
    if offset >= rows:
        raise ShapeError(f"the offset is {offset}; a table of {rows:,} rows allows 0 to {rows - 1:,}")
    _check_padding(module.padding_idx, offset)
    return offset


def _padding_idx(module: Any, value: Any) -> int | None:
    padding_idx = CHECKS["padding_idx"](module, value)
    if "offset" in module.__dict__:
        _check_padding(padding_idx, module.offset)
    return padding_idx


def _check_padding(padding_idx: int | None, offset: int) -> None:
    if padding_idx is not None and padding_idx != offset - 1:
        raise ShapeError(f"positions after padding_idx start at the offset {padding_idx + 1}; found {offset}")


LearnedPositionalEmbedding._checks = {
    **CHECKS,
    "padding_from": _padding_from,
    "offset": _offset,
    "padding_idx": _padding_idx,
}


def checked_start(start: Start, batch: int) -> int | Tensor:
    """``start`` as a count, or as (B, 1); ``ShapeError`` unless it is one count, or one for each text."""
    if isinstance(start, Tensor):
        if start.ndim > 1 or start.numel() not in (1, batch):
            raise ShapeError(
                f"start is one count, or one for each of {batch:,} texts; found shape {tuple(start.shape)}"
            )
        return check_ids(start, ANY_COUNT, "start").reshape(-1, 1)
    if type(start) is not int and not torch.compiler.is_compiling():
        return whole("start", start, 0)
    if start < 0:
        raise ShapeError(f"start must be an integer, 0 or more; found {start}")
    return start


def checked_mask(attention_mask: Tensor) -> Tensor:
    """An attention mask (B, T) as booleans, True at tokens; ``ShapeError`` for another shape or type.

    ``TokenIdError`` where its values are checked (see ``tokenspace.nn.ids``) and are not 1 and 0.
    """
    if attention_mask.ndim != 2 or attention_mask.dtype not in _WHOLE:
        raise ShapeError(
            "an attention mask is (B, T), of booleans or integers, 1 at tokens and 0 at padding; found shape "
            f"{tuple(attention_mask.shape)}, {attention_mask.dtype} (a mask of numbers to add is (mask == 0))"
        )
    if attention_mask.dtype == torch.bool:
        return attention_mask
    return check_ids(attention_mask, 2, "attention mask value") == 1


def _counts(shape: tuple[int, int], start: Start, device: torch.device | None, offset: int = 0) -> Tensor:
    batch, length = shape
    first = checked_start(start, batch) + offset
    if isinstance(first, Tensor):
        return first + torch.arange(length, device=device).unsqueeze(0)
    return torch.arange(first, first + length, device=device).unsqueeze(0)


def _check_layout(layout: str) -> None:
    if layout not in get_args(Layout):
        raise ShapeError(f"the layout {layout!r} is unknown; there are {', '.join(get_args(Layout))}")
