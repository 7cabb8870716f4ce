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

from typing import NamedTuple

import numpy as np

from tokenspace.kernels import vector
from tokenspace.kernels.shuffle import shuffle
from tokenspace.kernels.skipgram_memory import (
    LONGEST_SENTENCE,
    Model,
    Scratch,
    inlined,
    kernel,
    padded,
    scratch,
)
from tokenspace.kernels.vector import aligned_zeros

if vector.compiles():
    from tokenspace.kernels.skipgram_vectors import prefetch_row, step
else:
    from tokenspace.kernels.skipgram_loops import prefetch_row, step

__all__ = [
    "LONGEST_SENTENCE",
    "Corpus",
    "Draws",
    "Model",
    "Scratch",
    "aligned_zeros",
    "draws",
    "padded",
    "scratch",
    "step",
    "train_sentences",
]

NEGATIVES_TABLE = 1 << 22


class Corpus(NamedTuple):
    """Sentence s is ``ids[offsets[s] : offsets[s + 1]]``, at most LONGEST_SENTENCE ids."""

    ids: np.ndarray  # (N,) int32
    offsets: np.ndarray  # (sentences + 1,) int64


class Draws(NamedTuple):
    """What the random choices are made from."""

    keep: np.ndarray  # (V,) uint32: an occurrence stays if a random 32-bit number is no greater
    negatives: np.ndarray  # int32: ids, each as often as it is to be drawn, shuffled; read in order
    window: int


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
    shuffle(negatives, rng)
    return Draws(keep=np.maximum(np.ceil(keep) - 1, 0).astype(np.uint32), negatives=negatives, window=window)


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
        prefetch_row(model.outputs, scratch.sentence[center], scratch)
        for k in range(scratch.targets.shape[0] - 1):
            prefetch_row(model.outputs, draws.negatives[drawn + k], scratch)
    if center + draws.window < length:
        prefetch_row(model.inputs, scratch.sentence[center + draws.window], scratch)


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
