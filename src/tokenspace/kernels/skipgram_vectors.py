"""One step of skip-gram, on vectors of sixteen numbers: scores, errors, and both matrices moved.

Rows are worked on in blocks that stay in registers (``block.py``), two at a time, so that what both are
multiplied with is read once. ``skipgram_loops.py`` is the same step without any of this, to the same bits.
"""

# mypy: check-untyped-defs=False
# (numba infers the types of the compiled functions, which carry no annotations)

from __future__ import annotations

import numpy as np

from tokenspace.kernels.block import ask, dot, put, scale_add, take, zero
from tokenspace.kernels.skipgram_memory import BOTTOM, CURVES, KNOTS_PER_UNIT, SATURATED, TOP, inlined, kernel
from tokenspace.kernels.vector import (
    LANES,
    add,
    between,
    bounded,
    first_lanes,
    load,
    multiply,
    splat,
    store,
    subtract,
    total,
    totals,
)


@kernel(forceinline=True)
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
        raw = totals(sums, first)
        score = bounded(raw, BOTTOM, TOP)
        place = multiply(add(score, splat(TOP)), splat(np.float32(KNOTS_PER_UNIT)))
        sigmoid, surprise = between(CURVES, place)
        label = load(labels, 0, first)
        sign = subtract(add(label, label), splat(np.float32(1)))
        right = multiply(sign, raw)  # the score of a true word, minus that of a negative
        pull = bounded(subtract(splat(SATURATED), right), np.float32(0), np.float32(1))  # 1, then 0 beyond
        store(errors, 0, first, multiply(multiply(splat(rate), subtract(label, sigmoid)), pull))
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
def prefetch_row(matrix, row, scratch):
    """Ask for a row that the next center needs: a row is too short for the CPU to see a pattern in it."""
    for column in range(0, matrix.shape[1], LANES * len(scratch.block)):
        ask(matrix, row, column, scratch.block)
