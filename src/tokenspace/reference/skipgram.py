"""Skip-gram's two losses, exactly as written down, for pairs of a center word and a word near it.

Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality":

- equation 2, the full softmax:   log p(o | c) = u_o·v_c - log Σ_w exp(u_w·v_c)
- equation 4, negative sampling:  log σ(u_o·v_c) + Σ_k log σ(-u_k·v_c),  with K words k drawn from noise

v are rows of the center table, u of the context table. The losses are the negatives of these, summed (not
averaged) over the N pairs: a pair then moves its rows by the same amount in any batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.ids import checked_ids
from tokenspace.initializers import Generator, Whole, word2vec_uniform
from tokenspace.reference.cross_entropy import log_softmax
from tokenspace.reference.embedding import checked_table
from tokenspace.reference.precision import widened
from tokenspace.shapes import Array, ArrayLike, Float


class PairLoss(NamedTuple):
    """A loss summed over pairs, and its gradients with respect to both tables."""

    loss: float
    d_center: Float[Array, "V D"]
    d_context: Float[Array, "V D"]


class SkipGram:
    """A center table and a context table of V rows, D wide, started as word2vec does: U(±0.5/D), and zeros.

    >>> model = SkipGram.from_weights(np.array([[1.0], [2.0]]), np.array([[0.0], [0.0]]))
    >>> loss, d_center, d_context = model.negative_sampling_loss([0], [1], [[0]])
    >>> round(loss, 4)  # -2 log σ(0)
    1.3863
    >>> d_context
    array([[ 0.5],
           [-0.5]])
    """

    def __init__(self, vocabulary_size: Whole, embedding_dimension: Whole, rng: Generator):
        center = word2vec_uniform((vocabulary_size, embedding_dimension), rng)
        self._hold(center, np.zeros_like(center))

    @classmethod
    def from_weights(cls, center: ArrayLike, context: ArrayLike) -> SkipGram:
        """Hold two existing (V, D) tables, uncopied; ``ShapeError`` if their shapes differ."""
        self = cls.__new__(cls)
        self._hold(checked_table(center), checked_table(context))
        return self

    def _hold(self, center: np.ndarray, context: np.ndarray) -> None:
        if center.shape != context.shape:
            raise ShapeError(f"both tables have one shape; found {center.shape} and {context.shape}")
        self.center = center
        self.context = context

    def softmax_loss(self, centers: ArrayLike, contexts: ArrayLike) -> PairLoss:
        """The full-softmax loss of N pairs of ids, centers (N,) and contexts (N,): O(N·V·D)."""
        centers, contexts = self._checked_pairs(centers, contexts)
        v, u = widened(self.center[centers]), widened(self.context)
        log_p = log_softmax(v @ u.T)  # (N, V)
        pairs = np.arange(len(centers))
        loss = 0.0 - np.sum(log_p[pairs, contexts], dtype=np.float64)  # a negated 0 would be -0.0

        d_scores = np.exp(log_p)  # softmax, less 1 at the true word
        d_scores[pairs, contexts] -= 1.0
        d_center = np.zeros_like(widened(self.center))
        np.add.at(d_center, centers, d_scores @ u)
        return PairLoss(float(loss), d_center, d_scores.T @ v)

    def negative_sampling_loss(
        self, centers: ArrayLike, contexts: ArrayLike, negatives: ArrayLike
    ) -> PairLoss:
        """The negative-sampling loss of N pairs, each with its K noise words, negatives (N, K): O(N·K·D).

        Every negative counts, as in equation 4, also one that happens to be the pair's own context word (the
        word2vec program skips those: leave them out of ``negatives`` pair by pair to compare with it).
        """
        centers, contexts = self._checked_pairs(centers, contexts)
        negatives = checked_ids(negatives, len(self.context), "negative id")
        if negatives.ndim != 2 or len(negatives) != len(centers):
            raise ShapeError(
                f"negatives are (N, K) with N = {len(centers)} pairs; found shape {negatives.shape}"
            )
        words = np.concatenate([contexts[:, np.newaxis], negatives], axis=1)  # (N, 1 + K): true word first
        v, u = widened(self.center[centers]), widened(self.context[words])
        sign = np.ones(words.shape[1], v.dtype)
        sign[1:] = -1.0
        scores = sign * np.einsum("nd,nkd->nk", v, u)
        loss = np.sum(_softplus(-scores), dtype=np.float64)  # -log σ(s)

        d_scores = -sign * np.exp(-_softplus(scores))  # d(-log σ(s))/ds = -σ(-s)
        d_center, d_context = np.zeros_like(widened(self.center)), np.zeros_like(widened(self.context))
        np.add.at(d_center, centers, np.einsum("nk,nkd->nd", d_scores, u))
        np.add.at(d_context, words, d_scores[..., np.newaxis] * v[:, np.newaxis])
        return PairLoss(float(loss), d_center, d_context)

    def _checked_pairs(self, centers: ArrayLike, contexts: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        centers = checked_ids(centers, len(self.center), "center id")
        contexts = checked_ids(contexts, len(self.context), "context id")
        if centers.ndim != 1 or centers.shape != contexts.shape:
            raise ShapeError(
                f"pairs are two lists of ids of one length; found shapes {centers.shape} and {contexts.shape}"
            )
        return centers.astype(np.intp), contexts.astype(np.intp)


def _softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)) = -log σ(-x), without an exponential that overflows."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
