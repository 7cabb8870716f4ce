"""Skip-gram with negative sampling, compiled: the loops of Mikolov et al. 2013 (arXiv:1310.4546, section 2).

For each center word the words in its window are the *contexts*, and the center plus K drawn negatives are
the *targets*. Each context's input row is scored against each target's output row, and both matrices take
one step of gradient descent on

    loss = Σ_contexts [ -log σ(x·o_center) - Σ_negatives log σ(-x·o_negative) ]

The K negatives are drawn once for a center and shared by its whole window, so one small matrix product
scores them (as in Ji et al. 2016, arXiv:1604.04661). All scores of a center are taken before any row moves:
one call of ``step`` is an exact gradient step, which the tests hold equal to
``tokenspace.reference.skipgram``.

One thread gives the same bits on every run and on every CPU: sums go through ``vector.py`` and ``block.py``,
random numbers are integers, and nothing is compiled with fast-math. Axes: W the row's width padded to whole
blocks.
"""

# mypy: check-untyped-defs=False
# (numba infers the types of the compiled functions, which carry no annotations)

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from tokenspace.kernels.block import block_size, dot, put, row_width, scale_add, take, zero
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.vector import (
    LANES,
    add,
    aligned_zeros,
    between,
    bounded,
    first_lanes,
    load,
    multiply,
    padded_width,
    prefetch_second,
    splat,
    store,
    subtract,
    total,
    totals,
)

LONGEST_SENTENCE = 1024
NEGATIVES_TABLE = 1 << 22
_SCORE_LIMIT = 8.0  # σ is within 3.4e-4 of 0 or 1 there; scores beyond are clamped
_KNOTS_PER_UNIT = 64  # linear interpolation between knots is then within 3e-6 of σ

# Nothing here makes or keeps an array, so numba need not count the references to them (a third of the time).
kernel = partial(kernel, _nrt=False)
inlined = partial(kernel, inline="always")


class Corpus(NamedTuple):
    """Sentence s is ``ids[offsets[s] : offsets[s + 1]]``, at most LONGEST_SENTENCE ids."""

    ids: np.ndarray  # (N,) int32
    offsets: np.ndarray  # (sentences + 1,) int64


class Model(NamedTuple):
    """The two matrices that are trained, in rows padded with zeros (``padded``)."""

    inputs: np.ndarray  # (V, W) float32: the table
    outputs: np.ndarray  # (V, W) float32: the context matrix


class Draws(NamedTuple):
    """What the random choices are made from."""

    keep: np.ndarray  # (V,) uint32: an occurrence stays if a random 32-bit number is no greater
    negatives: np.ndarray  # int32: ids, each as often as it is to be drawn, shuffled; read in order
    window: int


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


def draws(counts: np.ndarray, sample: float, window: int, rng: np.random.Generator) -> Draws:
    """The subsampling thresholds and the table of negatives for tokens that occur ``counts`` times.

    A token of relative frequency f is kept with probability √(t/f) + t/f, t = ``sample`` (word2vec.c; the
    paper's equation 5 is a simpler form); ``sample=0`` keeps all. Negatives follow counts^0.75. Only √ and
    sums in a fixed order are used, which every CPU rounds alike.
    """
    counts = np.asarray(counts, np.float64)
    frequency = counts / max(counts.sum(), 1.0)
    with np.errstate(divide="ignore"):
        ratio = sample / frequency if sample > 0 else np.full(len(counts), np.inf)
    ratio[counts == 0] = 0.0
    keep = np.minimum(np.sqrt(ratio) + ratio, 1.0) * 2.0**32
    weight = np.sqrt(counts) * np.sqrt(np.sqrt(counts))
    share = np.cumsum(weight)
    ends = np.rint(share / share[-1] * NEGATIVES_TABLE).astype(np.int64)
    negatives = np.repeat(np.arange(len(counts), dtype=np.int32), np.diff(ends, prepend=0))
    rng.shuffle(negatives)
    return Draws(keep=np.maximum(np.ceil(keep) - 1, 0).astype(np.uint32), negatives=negatives, window=window)


def _pieces() -> np.ndarray:
    """For each piece between two knots: σ(s) and -log σ(s) where it begins, and by how much each changes."""
    scores = np.arange(-_SCORE_LIMIT * _KNOTS_PER_UNIT, _SCORE_LIMIT * _KNOTS_PER_UNIT + 1) / _KNOTS_PER_UNIT
    sigmoid = np.array([1.0 / (1.0 + math.exp(-score)) for score in scores], np.float32)
    surprise = np.array([math.log1p(math.exp(-score)) for score in scores], np.float32)
    return np.stack([sigmoid[:-1], np.diff(sigmoid), surprise[:-1], np.diff(surprise)], axis=1)


_CURVES = _pieces()
_BOTTOM, _TOP = np.float32(-_SCORE_LIMIT), np.float32(_SCORE_LIMIT)


@kernel
def train_sentences(first, last, corpus, model, draws, rate, seed, scratch):
    """Train on sentences ``first … last-1`` at learning rate ``rate``; returns (summed loss, pairs)."""
    negative = scratch.targets.shape[0] - 1
    state = seed
    loss, pairs = 0.0, 0
    for sentence in range(first, last):
        state, length = _subsample(corpus, sentence, draws.keep, state, scratch.sentence)
        state = _next(state)
        drawn = _below(state, draws.negatives.shape[0] - negative * LONGEST_SENTENCE)
        for center in range(length):
            _prefetch_next(center + 1, length, drawn + negative, model, draws, scratch)
            state = _next(state)
            reach = 1 + _below(state, draws.window)  # nearer words are seen more often
            contexts = _look_around(center, reach, length, scratch)
            scratch.targets[0] = scratch.sentence[center]
            for k in range(negative):
                scratch.targets[1 + k] = draws.negatives[drawn + k]
            drawn += negative
            loss += step(model, contexts, rate, scratch)
            pairs += contexts
    return loss, pairs


@kernel
def step(model, contexts, rate, scratch):
    """One gradient step for ``scratch.contexts[:contexts]`` and ``scratch.targets``; returns the loss before.

    ``targets[0]`` is the true word; a negative that equals it is left out.
    """
    _gather_targets(model.outputs, scratch)
    _score(model.inputs, contexts, scratch)
    loss = _errors(contexts, rate, scratch)
    _move_outputs(model, contexts, scratch)
    _move_inputs(model.inputs, contexts, scratch)
    return loss


@inlined
def _gather_targets(outputs, scratch):
    block = scratch.block
    for k in range(scratch.targets.shape[0]):
        for column in range(0, outputs.shape[1], LANES * len(block)):
            put(scratch.rows, k, column, take(outputs, scratch.targets[k], column, block))


@inlined
def _score(inputs, contexts, scratch):
    """sums[c · targets + k]: its lanes add up to the input row of context c · the output row of target k.

    Two contexts at a time, so that each target's row is read once for both.
    """
    block, rows, sums = scratch.block, scratch.rows, scratch.sums
    targets = scratch.targets.shape[0]
    for column in range(0, inputs.shape[1], LANES * len(block)):
        for c in range(0, contexts, 2):
            x = take(inputs, scratch.contexts[c], column, block)
            if c + 1 < contexts:
                y = take(inputs, scratch.contexts[c + 1], column, block)
                for k in range(targets):
                    n, m = c * targets + k, (c + 1) * targets + k
                    store(sums, n, 0, dot(x, rows, k, column, _so_far(sums, n, column)))
                    store(sums, m, 0, dot(y, rows, k, column, _so_far(sums, m, column)))
            else:
                for k in range(targets):
                    n = c * targets + k
                    store(sums, n, 0, dot(x, rows, k, column, _so_far(sums, n, column)))


@inlined
def _so_far(sums, n, column):
    if column == 0:
        return splat(np.float32(0))
    return load(sums, n, 0)


@inlined
def _errors(contexts, rate, scratch):
    """errors[c · targets + k] = rate · (label - σ(score)), minus the loss's gradient; returns the loss."""
    sums, labels, errors, losses, targets = (
        scratch.sums,
        scratch.labels,
        scratch.errors,
        scratch.losses,
        scratch.targets,
    )
    pairs = contexts * targets.shape[0]
    lost = splat(np.float32(0))
    for first in range(0, pairs, LANES):
        score = bounded(totals(sums, first), _BOTTOM, _TOP)
        place = multiply(add(score, splat(_TOP)), splat(np.float32(_KNOTS_PER_UNIT)))
        sigmoid, surprise = between(_CURVES, place)
        label = load(labels, 0, first)
        store(errors, 0, first, multiply(splat(rate), subtract(label, sigmoid)))
        # -log σ(s) of a true word, -log σ(-s) = s - log σ(s) of a negative
        loss = add(multiply(subtract(splat(np.float32(1)), label), score), surprise)
        store(losses, 0, first, loss)
        lost = add(lost, first_lanes(loss, pairs - first))
    loss = np.float64(total(lost))
    for k in range(1, targets.shape[0]):
        if targets[k] == targets[0]:
            for n in range(k, pairs, targets.shape[0]):
                errors[0, n] = np.float32(0)
                loss -= losses[0, n]
    return loss


@inlined
def _move_outputs(model, contexts, scratch):
    """Each target's output row += Σ_contexts error · input row. A target that occurs twice moves twice.

    Two targets at a time, so that each context's row is read once for both.
    """
    inputs, outputs = model.inputs, model.outputs
    block, errors, ids = scratch.block, scratch.errors, scratch.contexts
    targets = scratch.targets.shape[0]
    for column in range(0, outputs.shape[1], LANES * len(block)):
        for k in range(0, targets, 2):
            x = zero(block)
            if k + 1 < targets:
                y = zero(block)
                for c in range(contexts):
                    n = c * targets + k
                    x = scale_add(splat(errors[0, n]), inputs, ids[c], column, x)
                    y = scale_add(splat(errors[0, n + 1]), inputs, ids[c], column, y)
                _add_to(outputs, scratch.targets[k], column, x)
                _add_to(outputs, scratch.targets[k + 1], column, y)
            else:
                for c in range(contexts):
                    x = scale_add(splat(errors[0, c * targets + k]), inputs, ids[c], column, x)
                _add_to(outputs, scratch.targets[k], column, x)


@inlined
def _add_to(matrix, row, column, block):
    put(matrix, row, column, scale_add(splat(np.float32(1)), matrix, row, column, block))


@inlined
def _move_inputs(inputs, contexts, scratch):
    """Each context's input row += Σ_targets error · output row as it was before the step.

    Two contexts at a time, so that each target's row is read once for both; but a context that occurs twice
    in a row moves twice.
    """
    block, errors, rows, ids = scratch.block, scratch.errors, scratch.rows, scratch.contexts
    targets = scratch.targets.shape[0]
    for column in range(0, inputs.shape[1], LANES * len(block)):
        c = 0
        while c < contexts:
            x = take(inputs, ids[c], column, block)
            if c + 1 < contexts and ids[c + 1] != ids[c]:
                y = take(inputs, ids[c + 1], column, block)
                for k in range(targets):
                    n, m = c * targets + k, (c + 1) * targets + k
                    x = scale_add(splat(errors[0, n]), rows, k, column, x)
                    y = scale_add(splat(errors[0, m]), rows, k, column, y)
                put(inputs, ids[c], column, x)
                put(inputs, ids[c + 1], column, y)
                c += 2
            else:
                for k in range(targets):
                    x = scale_add(splat(errors[0, c * targets + k]), rows, k, column, x)
                put(inputs, ids[c], column, x)
                c += 1


@inlined
def _subsample(corpus, sentence, keep, state, kept):
    """Copy the sentence's ids that stay to ``kept``; returns the random state and how many stayed."""
    length = 0
    for n in range(corpus.offsets[sentence], corpus.offsets[sentence + 1]):
        state = _next(state)
        kept[length] = corpus.ids[n]
        length += np.uint32(state >> np.uint64(32)) <= keep[corpus.ids[n]]
    return state, length


@inlined
def _look_around(center, reach, length, scratch):
    """Fill ``scratch.contexts`` with the ids at most ``reach`` away from the center; returns how many."""
    contexts = 0
    for n in range(max(0, center - reach), min(length, center + reach + 1)):
        scratch.contexts[contexts] = scratch.sentence[n]
        contexts += n != center
    return contexts


@inlined
def _prefetch_next(center, length, drawn, model, draws, scratch):
    """Ask for the rows that the next center will need and this one doesn't."""
    if center < length:
        _prefetch_row(model.outputs, scratch.sentence[center])
        for k in range(scratch.targets.shape[0] - 1):
            _prefetch_row(model.outputs, draws.negatives[drawn + k])
    if center + draws.window < length:
        _prefetch_row(model.inputs, scratch.sentence[center + draws.window])


@inlined
def _prefetch_row(matrix, row):
    for column in range(0, matrix.shape[1], LANES):
        prefetch_second(matrix, row, column)


@inlined
def _next(state):
    """Marsaglia's 64-bit xorshift (2003): never zero if it doesn't start so."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@inlined
def _below(state, bound):
    """A random integer in 0 … bound-1, from the state's high half."""
    return np.int64(((state >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))
