"""What a step of skip-gram works on: both matrices, one worker's memory, and σ as a table.

Axes: V vocabulary rows, W the row's width padded to whole blocks (``block.py``), K negatives.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from tokenspace.kernels import compiled
from tokenspace.kernels.block import block_size, row_width
from tokenspace.kernels.vector import LANES, aligned_zeros, padded_width

LONGEST_SENTENCE = 1024
KNOTS_PER_UNIT = 64  # linear interpolation between knots is then within 3e-6 of σ
_SCORE_LIMIT = 8.0  # σ is within 3.4e-4 of 0 or 1 there; scores beyond are clamped
BOTTOM, TOP = np.float32(-_SCORE_LIMIT), np.float32(_SCORE_LIMIT)
# A pair whose score is right by this much moves no row (σ is within 1e-14 of its label there). The clamped σ
# alone would pull such a pair on for ever, and the rows of a text of one or two words would grow without end.
SATURATED = np.float32(32.0)

# No kernel here makes or keeps an array, so numba need not count references to them (a third of the time).
kernel = partial(compiled.kernel, _nrt=False)
inlined = partial(kernel, inline="always")


class Model(NamedTuple):
    """The two matrices that are trained, in rows padded with zeros (``padded``)."""

    inputs: np.ndarray  # (V, W) float32: the table
    outputs: np.ndarray  # (V, W) float32: the context matrix


class Scratch(NamedTuple):
    """One worker's memory."""

    sentence: np.ndarray  # (LONGEST_SENTENCE,) int64
    contexts: np.ndarray  # (2 · window,) int64
    targets: np.ndarray  # (1 + K,) int64
    rows: np.ndarray  # (1 + K, W) float32: the targets' rows before the step
    sums: np.ndarray  # (P, 16) float32, P the pairs of a context and a target: 2 · window · (1 + K) at most
    labels: np.ndarray  # (1, P) float32: 1 where the target is the true word
    errors: np.ndarray  # (1, P) float32
    losses: np.ndarray  # (1, P) float32
    block: tuple[int, ...]  # as many members as a block of a row has vectors


def padded(rows: np.ndarray) -> np.ndarray:
    """``rows`` (V, D) as an aligned (V, W) copy; the added columns are zero, and stay zero in training."""
    result = aligned_zeros(len(rows), row_width(rows.shape[1]))
    result[:, : rows.shape[1]] = rows
    return result


def scratch(width: int, window: int, negative: int) -> Scratch:
    """Memory for one worker: rows of ``width`` numbers, ``negative`` negatives."""
    targets = 1 + negative
    pairs = padded_width(2 * window * targets)
    labels = aligned_zeros(1, pairs)
    labels[0, ::targets] = 1
    return Scratch(
        sentence=np.zeros(LONGEST_SENTENCE, np.int64),
        contexts=np.zeros(2 * window, np.int64),
        targets=np.zeros(targets, np.int64),
        rows=aligned_zeros(targets, row_width(width)),
        sums=aligned_zeros(pairs, LANES),
        labels=labels,
        errors=aligned_zeros(1, pairs),
        losses=aligned_zeros(1, pairs),
        block=(0,) * block_size(width),
    )


def _pieces() -> np.ndarray:
    """For each piece between two knots: σ(s) and -log σ(s) where it begins, and by how much each changes."""
    scores = np.arange(-_SCORE_LIMIT * KNOTS_PER_UNIT, _SCORE_LIMIT * KNOTS_PER_UNIT + 1) / KNOTS_PER_UNIT
    sigmoid = np.array([1.0 / (1.0 + math.exp(-score)) for score in scores], np.float32)
    surprise = np.array([math.log1p(math.exp(-score)) for score in scores], np.float32)
    return np.stack([sigmoid[:-1], np.diff(sigmoid), surprise[:-1], np.diff(surprise)], axis=1)


CURVES = _pieces()
