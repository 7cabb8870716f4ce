"""One step of skip-gram as plain loops over single numbers: what ``skipgram_vectors.py`` does, and its bits.

It is taken where the vectors don't compile, some ten times slower, and it shows the order of every sum:
sixteen partial sums, one for each place in a vector, then the halves of these until one number is left.
"""

# mypy: check-untyped-defs=False
# (numba infers the types of the compiled functions, which carry no annotations)

from __future__ import annotations

import numpy as np

from tokenspace.kernels.skipgram_memory import BOTTOM, CURVES, KNOTS_PER_UNIT, SATURATED, TOP, inlined, kernel

_LANES = 16


@kernel
def step(model, contexts, rate, scratch):
    """One gradient step for ``scratch.contexts[:contexts]`` and ``scratch.targets``; returns the loss before.

    ``targets[0]`` is the true word; a negative that equals it is left out.
    """
    inputs, outputs, rows, errors = model.inputs, model.outputs, scratch.rows, scratch.errors
    targets, width = scratch.targets.shape[0], model.inputs.shape[1]
    for k in range(targets):
        for d in range(width):
            rows[k, d] = outputs[scratch.targets[k], d]
    loss = _errors(inputs, contexts, rate, scratch)
    for k in range(targets):
        for d in range(width):
            move = np.float32(0)
            for c in range(contexts):
                move = _fma(errors[0, c * targets + k], inputs[scratch.contexts[c], d], move)
            outputs[scratch.targets[k], d] += move
    for c in range(contexts):
        for d in range(width):
            for k in range(targets):
                row = scratch.contexts[c]
                inputs[row, d] = _fma(errors[0, c * targets + k], rows[k, d], inputs[row, d])
    return loss


@inlined
def _errors(inputs, contexts, rate, scratch):
    """errors[c · targets + k] = rate · (label - σ(score)), minus the loss's gradient; returns the loss."""
    targets = scratch.targets.shape[0]
    sums, losses = scratch.sums, scratch.losses
    for n in range(contexts * targets):
        k = n % targets
        raw = _dot(inputs, scratch.contexts[n // targets], scratch.rows, k, sums)
        score = _bounded(raw, BOTTOM, TOP)
        place = (score + TOP) * np.float32(KNOTS_PER_UNIT)
        piece = min(np.int64(place), CURVES.shape[0] - 1)
        rest = place - np.float32(piece)
        sigmoid = CURVES[piece, 0] + rest * CURVES[piece, 1]
        surprise = CURVES[piece, 2] + rest * CURVES[piece, 3]
        right = raw if k == 0 else -raw
        pull = _bounded(SATURATED - right, np.float32(0), np.float32(1))  # 1, then 0 beyond
        scratch.errors[0, n] = rate * (scratch.labels[0, n] - sigmoid) * pull
        # -log σ(s) of a true word, -log σ(-s) = s - log σ(s) of a negative
        losses[0, n] = surprise if k == 0 else score + surprise
    for lane in range(_LANES):
        sums[0, lane] = np.float32(0)
        for n in range(lane, contexts * targets, _LANES):
            sums[0, lane] += losses[0, n]
    loss = np.float64(_total(sums))
    for k in range(1, targets):
        if scratch.targets[k] == scratch.targets[0]:
            for n in range(k, contexts * targets, targets):
                scratch.errors[0, n] = np.float32(0)
                loss -= losses[0, n]
    return loss


@inlined
def _dot(x, i, y, j, sums):
    """Row i of x · row j of y."""
    for lane in range(_LANES):
        sums[0, lane] = np.float32(0)
        for d in range(lane, x.shape[1], _LANES):
            sums[0, lane] = _fma(x[i, d], y[j, d], sums[0, lane])
    return _total(sums)


@inlined
def _total(sums):
    """The sum of ``sums[0]``, which it overwrites."""
    half = _LANES // 2
    while half > 0:
        for lane in range(half):
            sums[0, lane] += sums[0, lane + half]
        half //= 2
    return sums[0, 0]


@inlined
def _bounded(number, low, high):
    if number >= high:
        return high
    if number > low:
        return number
    return low  # NaN comes here, too


@kernel
def _fma(x, y, z):
    """x·y + z in float32, rounded once.

    In float64 the product is exact, and the sum is rounded to odd: to the neighbor whose last bit is one,
    unless it is exact. Rounding that to float32 is then right (Boldo and Melquiond 2008, "Emulation of FMA").
    """
    product, addend = np.float64(x) * np.float64(y), np.float64(z)
    whole = product + addend
    part = whole - product
    rest = (product - (whole - part)) + (addend - part)  # what the sum lost (Knuth's TwoSum)
    bits = np.float64(whole).view(np.int64)
    if abs(rest) > 0 and bits & 1 == 0:
        bits += 1 if (rest > 0) == (whole > 0) else -1
    return np.float32(np.int64(bits).view(np.float64))


@inlined
def prefetch_row(matrix, row, scratch):
    """Nothing: only a vector's address can be asked for early."""
