"""One step of gradient descent on a walked text, through the lookup and through the head.

    logits = head(hidden)                     loss = mean cross entropy of each next token
    dE[v]  = Σ d_x[t] over the positions t of v      (the lookup's part; none for the padding row)
           + Σ d_logits[n, v] · hidden[n]            (the head's part, where the head is E itself)

Both are computed in float64. The head's rows are visited in blocks, twice: once for the softmax's sums, once
for the gradients (the sums of Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"), so
that neither the logits (N, V) nor a gradient (V, D) is ever held whole.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tokenspace.errors import ShapeError, TableFormatError, TokenIdError
from tokenspace.geometry import cosine
from tokenspace.reference import Embedding, LMHead, TransformerInput
from tokenspace.shapes import Array, Float, Int
from tokenspace.vocab import Vocab

_NUMBERS_AT_ONCE = 1 << 22  # of the head's rows, and of the logits


class MovedRow(NamedTuple):
    """One row's part in a step of descent.

    ``gradient`` is the Euclidean length of the row's gradient, the sum of two: what the lookup passes on from
    ``positions`` (of length ``gradient_lookup``) and what a tied head passes on from every position that it
    scored (of length ``gradient_head``, 0 if the head has its own rows). The vectors add, their lengths do
    not. ``cosine`` compares the row before and after the step; None if either is all zeros, which have no
    direction.
    """

    token: str
    id: int
    positions: list[int]
    gradient_lookup: float
    gradient_head: float
    gradient: float
    cosine: float | None


class Costliest(NamedTuple):
    """The position whose next token cost most: ``loss`` nats. The head scored the token ``best`` highest
    there, ``margin`` above the next token.
    """

    position: int
    next: str
    loss: float
    best: str
    margin: float


@dataclass(frozen=True)
class Gradient:
    """One step of descent on the mean cross entropy (nats) of each next token.

    ``loss`` is the mean of all but the last position's, of which ``costliest`` is the largest. ``rows`` are
    those of the text's tokens, U of them. ``rows_moved`` of ``rows_in_table`` move through the
    lookup, ``rows_moved_by_head`` through a tied head, which scores every token.

    ``by_position`` (T, D) is the gradient that each position passes to its token's row: the lookup's part of
    a row is their sum. ``by_head`` (U, D) is the head's part of each of ``rows``, all zeros if the head has
    its own; ``after`` (U, D) is each of them after the step. All are float64.
    """

    loss: float
    costliest: Costliest
    learning_rate: float
    rows: list[MovedRow]
    rows_moved: int
    rows_moved_by_head: int
    rows_in_table: int
    by_position: Float[Array, "T D"] = field(compare=False, repr=False)
    by_head: Float[Array, "U D"] = field(compare=False, repr=False)
    after: Float[Array, "U D"] = field(compare=False, repr=False)


class Inputs(NamedTuple):
    """The ids (1, T) of one text, without padding, for each table that its layer reads."""

    tokens: Int[Array, "1 T"]
    positions: Int[Array, "1 T"]
    segments: Int[Array, "1 T"] | None
    extras: dict[str, Int[Array, "1 T"]]


def descend(
    layer: TransformerInput, head: LMHead, inputs: Inputs, vocab: Vocab, learning_rate: float
) -> Gradient:
    """Take one step of plain gradient descent on the rows of ``layer.token``; the layer keeps its rows.

    ``ShapeError`` if the head takes another width than the layer gives, ``TableFormatError`` if a score is
    NaN or infinite.
    """
    ids = inputs.tokens[0]
    apart = _with_a_row_for_each_position(layer, ids)
    hidden = apart.forward(
        np.arange(len(ids))[None],
        segment_ids=inputs.segments,
        position_ids=inputs.positions,
        extra_ids=inputs.extras,
    )[0]
    used = np.array(list(dict.fromkeys(ids.tolist())))
    scored = score_gradient(head, hidden[:-1], ids[1:], used)  # the last token has no next one

    d_hidden = np.append(scored.d_hidden, np.zeros_like(hidden[:1]), axis=0)
    apart.zero_gradient()
    apart.backward(d_hidden[None])
    by_position = apart.gradients()["token.weight"]
    apart.zero_gradient()  # the other parts are the layer's own
    by_position = np.where((ids == layer.token.padding_id)[:, None], 0.0, by_position)

    tied = head.embedding is layer.token
    by_lookup = np.stack([by_position[ids == i].sum(axis=0) for i in used])
    by_head = scored.d_rows if tied else np.zeros_like(by_lookup)
    total = by_lookup + by_head
    before = layer.token.weight[used].astype(np.float64)
    after = before - learning_rate * total
    rows = [
        MovedRow(
            vocab[i],
            i,
            np.flatnonzero(ids == i).tolist(),
            float(np.linalg.norm(by_lookup[n])),
            float(np.linalg.norm(by_head[n])),
            float(np.linalg.norm(total[n])),
            float(cosine(before[n], after[n])) if before[n].any() and after[n].any() else None,
        )
        for n, i in enumerate(used.tolist())
    ]
    most = int(scored.losses.argmax())
    return Gradient(
        float(scored.losses.mean()),
        Costliest(
            most,
            vocab[int(ids[most + 1])],
            float(scored.losses[most]),
            vocab[int(scored.best[most])],
            float(scored.margins[most]),
        ),
        learning_rate,
        rows,
        int((by_lookup != 0).any(axis=1).sum()),
        scored.rows_moved if tied else 0,
        layer.token.vocabulary_size,
        by_position,
        by_head,
        after,
    )


def _with_a_row_for_each_position(layer: TransformerInput, ids: Int[Array, " T"]) -> TransformerInput:
    """A copy of ``layer`` whose table has one row for each position, so that no two gradients are summed."""
    token = layer.token
    apart = copy.copy(layer)
    apart.token = Embedding.from_weight(token.weight[ids].astype(np.float64), scale=token.scale)
    return apart


class ScoreGradient(NamedTuple):
    """The cross entropy of each of N labels, and the gradients of their mean; ``rows_moved`` of the head's V
    rows have one. ``best`` are the ids scored highest, by ``margins`` above the labels.
    """

    losses: Float[Array, " N"]
    best: Int[Array, " N"]
    margins: Float[Array, " N"]
    d_hidden: Float[Array, "N D"]
    d_rows: Float[Array, "U D"]
    rows_moved: int


def score_gradient(
    head: LMHead, hidden: Float[Array, "N D"], labels: Int[Array, " N"], rows: Int[Array, " U"]
) -> ScoreGradient:
    """The loss of ``hidden`` for ``labels``, with the gradients of ``hidden`` and of the head's ``rows``."""
    frozen = head.embedding.padding_id if head.embedding.freeze_padding else None
    if frozen is not None and (labels == frozen).any():
        raise TokenIdError(
            f"the padding token (id {frozen:,}) is a next token in this text, but its row is frozen and its "
            "score masked; give a text without it"
        )
    largest, total = np.full(len(hidden), -np.inf), np.zeros(len(hidden))
    at_label, best = np.zeros(len(hidden)), np.zeros(len(hidden), np.int64)
    for start, _, logits in score_blocks(head, hidden):
        best = np.where(logits.max(axis=1) > largest, start + logits.argmax(axis=1), best)
        before, largest = largest, np.maximum(largest, logits.max(axis=1))
        total = total * np.exp(before - largest) + np.exp(logits - largest[:, None]).sum(axis=1)
        here = np.flatnonzero((labels >= start) & (labels < start + logits.shape[1]))
        at_label[here] = logits[here, labels[here] - start]
    log_total = largest + np.log(total)

    d_hidden, d_rows, moved = np.zeros_like(hidden), np.zeros((len(rows), hidden.shape[1])), 0
    for start, block, logits in score_blocks(head, hidden):
        d_logits = np.exp(logits - log_total[:, None])
        here = np.flatnonzero((labels >= start) & (labels < start + logits.shape[1]))
        d_logits[here, labels[here] - start] -= 1.0
        d_hidden += block.backward(d_logits / len(hidden))
        d_block = block.gradients()["weight"]
        moved += int((d_block != 0).any(axis=1).sum())
        here = np.flatnonzero((rows >= start) & (rows < start + len(d_block)))
        d_rows[here] = d_block[rows[here] - start]
    return ScoreGradient(log_total - at_label, best, largest - at_label, d_hidden, d_rows, moved)


def score_blocks(
    head: LMHead, hidden: Float[Array, "N D"]
) -> Iterator[tuple[int, LMHead, Float[Array, "N block"]]]:
    """Score ``hidden`` against the head's rows, block by block: the first row's id, a head over that block in
    float64, and its logits. ``TableFormatError`` at a NaN or infinity.
    """
    rows, width = head.weight.shape
    if hidden.shape[1] != width:
        raise ShapeError(
            f"this head takes hidden states of width {width:,}; found shape {hidden.shape}: a transformer's "
            "body or a projection belongs between; score that body's own hidden states with "
            "tokenspace.nn.LMHead.from_checkpoint(folder), or take a model whose table is as wide as its body"
        )
    frozen = head.embedding.padding_id if head.embedding.freeze_padding else None
    step = max(1, _NUMBERS_AT_ONCE // max(width, len(hidden)))
    for start in range(0, rows, step):
        block = LMHead.untied(
            head.weight[start : start + step].astype(np.float64),
            bias=None if head.bias is None else head.bias[start : start + step].astype(np.float64),
            hidden_scale=head.hidden_scale,
            logit_scale=head.logit_scale,
            soft_cap=head.soft_cap,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # said just below
            logits = block.forward(hidden)
        if not np.isfinite(logits).all():
            raise TableFormatError("the head's scores hold NaN or infinity: its rows do, or are too large")
        if frozen is not None and start <= frozen < start + step:
            logits[:, frozen - start] = -np.inf
        yield start, block, logits
