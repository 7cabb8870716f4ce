"""Skip-gram with negative sampling, compiled: the loops of Mikolov et al. 2013 (arXiv:1310.4546, section 2).

For each center word the words in its window are the *contexts*, and the center plus K drawn negatives are
the *targets*. Each context's input row is scored against each target's output row, and both matrices take
one step of gradient descent on

    loss = Σ_contexts [ -log σ(x·o_center) - Σ_negatives log σ(-x·o_negative) ]

The K negatives are drawn once for a center and shared by its whole window, so one small matrix product
scores them (as in Ji et al. 2016, arXiv:1604.04661). All scores of a center are taken before any row moves:
one call of ``step`` is an exact gradient step, which the tests hold equal to
``tokenspace.reference.skipgram``.

One thread gives the same bits on every run and on every CPU: sums go through ``vector.py``, random numbers
are integers, and nothing is compiled with fast-math. Axes: W the row's width padded to a multiple of 16.
"""

# mypy: check-untyped-defs=False
# (numba infers the types of the compiled functions, which carry no annotations)

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.vector import aligned_zeros, fma, load, padded_width, prefetch, splat, store, total

LONGEST_SENTENCE = 1024
NEGATIVES_TABLE = 1 << 22
_TOGETHER = 3  # targets whose sums are held in registers at a time
_SCORE_LIMIT = 8.0  # σ is within 3.4e-4 of 0 or 1 there; scores beyond are clamped
_KNOTS_PER_UNIT = 64  # linear interpolation between knots is then within 3e-6 of σ

inlined = kernel(inline="always")


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

    keep: np.ndarray  # (V,) int64: an occurrence stays if a random 32-bit number is below
    negatives: np.ndarray  # int32: ids, each as often as it is to be drawn, shuffled; read in order
    window: int


class Scratch(NamedTuple):
    """One worker's memory."""

    sentence: np.ndarray  # (LONGEST_SENTENCE,) int64
    contexts: np.ndarray  # (2 · window,) int64
    targets: np.ndarray  # (1 + K,) int64
    rows: np.ndarray  # (1 + K, padded to _TOGETHER; W) float32: the targets' rows before the step
    errors: np.ndarray  # (2 · window; 1 + K, padded to _TOGETHER) float32


def padded(rows: np.ndarray) -> np.ndarray:
    """``rows`` (V, D) as an aligned (V, W) copy; the added columns are zero, and stay zero in training."""
    result = aligned_zeros(len(rows), padded_width(rows.shape[1]))
    result[:, : rows.shape[1]] = rows
    return result


def scratch(width: int, window: int, negative: int) -> Scratch:
    """Memory for one worker: rows of ``width`` numbers, ``negative`` negatives."""
    rows = -(-(1 + negative) // _TOGETHER) * _TOGETHER
    return Scratch(
        sentence=np.zeros(LONGEST_SENTENCE, np.int64),
        contexts=np.zeros(2 * window, np.int64),
        targets=np.zeros(1 + negative, np.int64),
        rows=aligned_zeros(rows, padded_width(width)),
        errors=np.zeros((2 * window, rows), np.float32),
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
    return Draws(keep=np.ceil(keep).astype(np.int64), negatives=negatives, window=window)


def _knots() -> tuple[np.ndarray, np.ndarray]:
    scores = np.arange(-_SCORE_LIMIT * _KNOTS_PER_UNIT, _SCORE_LIMIT * _KNOTS_PER_UNIT + 1) / _KNOTS_PER_UNIT
    sigmoid = [1.0 / (1.0 + math.exp(-score)) for score in scores]
    surprise = [math.log1p(math.exp(-score)) for score in scores]
    return np.array(sigmoid, np.float32), np.array(surprise, np.float32)


_SIGMOID, _SURPRISE = _knots()  # σ(s) and -log σ(s)
_LAST_KNOT = len(_SIGMOID) - 2


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
    for k in range(scratch.targets.shape[0]):
        for column in range(0, outputs.shape[1], 16):
            store(scratch.rows, k, column, load(outputs, scratch.targets[k], column))


@inlined
def _score(inputs, contexts, scratch):
    """errors[c, k] = input row of context c · output row of target k, for now."""
    rows = scratch.rows
    for c in range(contexts):
        context = scratch.contexts[c]
        for k in range(0, rows.shape[0], 3):
            sum_0 = sum_1 = sum_2 = splat(np.float32(0))
            for column in range(0, inputs.shape[1], 16):
                x = load(inputs, context, column)
                sum_0 = fma(x, load(rows, k, column), sum_0)
                sum_1 = fma(x, load(rows, k + 1, column), sum_1)
                sum_2 = fma(x, load(rows, k + 2, column), sum_2)
            scratch.errors[c, k] = total(sum_0)
            scratch.errors[c, k + 1] = total(sum_1)
            scratch.errors[c, k + 2] = total(sum_2)


@inlined
def _errors(contexts, rate, scratch):
    """Turn the scores into rate · (label - σ(score)), minus the loss's gradient; returns the loss."""
    loss = 0.0
    for c in range(contexts):
        for k in range(scratch.targets.shape[0]):
            score = _clamped(scratch.errors[c, k])
            sigmoid, surprise = _interpolated(score)
            if k == 0:
                scratch.errors[c, k] = rate * (np.float32(1) - sigmoid)
                loss += surprise
            elif scratch.targets[k] == scratch.targets[0]:
                scratch.errors[c, k] = np.float32(0)
            else:
                scratch.errors[c, k] = -rate * sigmoid
                loss += score + surprise  # -log σ(-s) = s - log σ(s)
    return loss


@inlined
def _clamped(score):
    if score >= np.float32(_SCORE_LIMIT):
        return np.float32(_SCORE_LIMIT)
    if score > np.float32(-_SCORE_LIMIT):
        return score
    return np.float32(-_SCORE_LIMIT)  # NaN comes here, too: it must not become an index


@inlined
def _interpolated(score):
    """σ(score) and -log σ(score) for a clamped score."""
    place = (score + np.float32(_SCORE_LIMIT)) * np.float32(_KNOTS_PER_UNIT)
    knot = min(np.int64(place), _LAST_KNOT)
    part = place - np.float32(knot)
    sigmoid = _SIGMOID[knot] + part * (_SIGMOID[knot + 1] - _SIGMOID[knot])
    surprise = _SURPRISE[knot] + part * (_SURPRISE[knot + 1] - _SURPRISE[knot])
    return sigmoid, surprise


@inlined
def _move_outputs(model, contexts, scratch):
    """Each target's output row += Σ_contexts error · input row. A target that occurs twice moves twice."""
    errors = scratch.errors
    one = splat(np.float32(1))
    for k in range(0, scratch.targets.shape[0], 3):
        for column in range(0, model.outputs.shape[1], 16):
            move_0 = move_1 = move_2 = splat(np.float32(0))
            for c in range(contexts):
                x = load(model.inputs, scratch.contexts[c], column)
                move_0 = fma(splat(errors[c, k]), x, move_0)
                move_1 = fma(splat(errors[c, k + 1]), x, move_1)
                move_2 = fma(splat(errors[c, k + 2]), x, move_2)
            target = scratch.targets[k]
            store(model.outputs, target, column, fma(one, move_0, load(model.outputs, target, column)))
            if k + 1 < scratch.targets.shape[0]:
                target = scratch.targets[k + 1]
                store(model.outputs, target, column, fma(one, move_1, load(model.outputs, target, column)))
            if k + 2 < scratch.targets.shape[0]:
                target = scratch.targets[k + 2]
                store(model.outputs, target, column, fma(one, move_2, load(model.outputs, target, column)))


@inlined
def _move_inputs(inputs, contexts, scratch):
    """Each context's input row += Σ_targets error · output row as it was before the step."""
    for c in range(contexts):
        context = scratch.contexts[c]
        for column in range(0, inputs.shape[1], 16):
            x = load(inputs, context, column)
            for k in range(scratch.targets.shape[0]):
                x = fma(splat(scratch.errors[c, k]), load(scratch.rows, k, column), x)
            store(inputs, context, column, x)


@inlined
def _subsample(corpus, sentence, keep, state, kept):
    """Copy the sentence's ids that stay to ``kept``; returns the random state and how many stayed."""
    length = 0
    for n in range(corpus.offsets[sentence], corpus.offsets[sentence + 1]):
        state = _next(state)
        kept[length] = corpus.ids[n]
        length += np.int64(state >> np.uint64(32)) < keep[corpus.ids[n]]
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
    for column in range(0, matrix.shape[1], 16):
        prefetch(matrix, row, column)


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
