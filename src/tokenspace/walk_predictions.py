"""The way out of the walk: a score for each token of the vocabulary, at each position."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.mapped import release
from tokenspace.reference import LMHead
from tokenspace.shapes import Array, Float, Int
from tokenspace.vocab import Vocab
from tokenspace.walk_gradient import score_blocks

_NUMBERS_AT_ONCE = 1 << 22


class Candidate(NamedTuple):
    """A token that a head proposes, with its logit and its share of the softmax."""

    token: str
    id: int
    logit: float
    probability: float


def candidates(
    head: LMHead, hidden: Float[Array, "T D"], vocab: Vocab, k: int, untrained: Int[Array, " rows"]
) -> list[list[Candidate]]:
    """For each of ``hidden`` the ``k`` tokens that ``head`` scores highest, those of the rows ``untrained``
    left out of the softmax.

    ``ShapeError`` if the head takes another width, ``TableFormatError`` if a score is NaN or infinite, or
    every row is untrained.
    """
    rows = len(head.weight)
    if len(untrained) == rows:
        raise TableFormatError(
            f"each of the {rows:,} rows that score is zero, so no token is preferred to another; "
            "train them first"
        )
    step = max(1, _NUMBERS_AT_ONCE // rows)
    found: list[list[Candidate]] = []
    for start in range(0, len(hidden), step):
        parts = [logits for _, _, logits in score_blocks(head, hidden[start : start + step])]
        logits = np.concatenate(parts, axis=1)
        logits[:, untrained] = -np.inf
        found += [_best(row, vocab, k) for row in logits]
    return found


def _best(logits: Float[Array, " V"], vocab: Vocab, k: int) -> list[Candidate]:
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    kth = np.partition(logits, -k)[-k] if k < logits.size else -np.inf
    ids = np.flatnonzero((logits >= kth) & (logits > -np.inf))  # with all that tie for the last place
    best = ids[np.argsort(-logits[ids], kind="stable")][:k].tolist()
    return [Candidate(vocab[i], i, float(logits[i]), float(shares[i])) for i in best]


def zero_rows(weight: Float[Array, "V D"]) -> Int[Array, " rows"]:
    """The ids of the rows of zeros. A step of training on a softmax gives every row a gradient, so these were
    never trained, and their score, 0, says nothing: among negative scores it would be the highest.
    """
    step = max(1, _NUMBERS_AT_ONCE // weight.shape[1])
    found = []
    for start in range(0, len(weight), step):
        block = weight[start : start + step]
        found.append(start + np.flatnonzero(~(block != 0).any(axis=1)))
        release(block, weight)
    return np.concatenate(found)
