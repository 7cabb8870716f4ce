"""One optimizer step for some rows of a table: each touched row is read and written once.

    weight (V, D), state of its shape (or one number a row), rows (U,) distinct, d (U, D) their gradients

Each function changes its arrays in place. Rows are independent, so the bits are the same at any number of
threads. Tables may be float32, float64, bfloat16 or float16; the state is float32 (float64 for float64), the
arithmetic too, and a 16-bit weight is rounded once. `d` may be of another of these types. The rows are in the
table: nothing checks that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.half import bits, computed_in, narrow, widen
from tokenspace.kernels.threads import cut, share_ranges


def sgd(
    weight: np.ndarray,
    rows: np.ndarray,
    d: np.ndarray,
    *,
    rate: float,
    weight_decay: float = 0.0,
    threads: int = 1,
) -> None:
    """w ← w - rate · (g + weight_decay · w)

    >>> weight = np.ones((3, 2), np.float32)
    >>> sgd(weight, np.array([2]), np.array([[1.0, -1.0]], np.float32), rate=0.5)
    >>> weight
    array([[1. , 1. ],
           [1. , 1. ],
           [0.5, 1.5]], dtype=float32)
    """
    number = computed_in(weight)
    arguments = (bits(weight), rows, bits(d), number(rate), number(weight_decay))
    share_ranges(lambda start, stop: _sgd(start, stop, *arguments), cut(len(rows), d.size), threads)


@kernel(fastmath={"contract"})
def _sgd(start, stop, weight, rows, d, rate, weight_decay):
    for u in range(start, stop):
        w, g = weight[rows[u]], d[u]
        for z in range(w.shape[0]):
            x = widen(w[z])
            w[z] = narrow(x - rate * (widen(g[z]) + weight_decay * x), w)


def adagrad(
    weight: np.ndarray,
    sums: np.ndarray,
    rows: np.ndarray,
    d: np.ndarray,
    *,
    rate: float,
    eps: float,
    weight_decay: float = 0.0,
    threads: int = 1,
) -> None:
    """g ← g + weight_decay · w;  sums ← sums + g²;  w ← w - rate · g / (√sums + eps)

    Duchi, Hazan and Singer 2011, the diagonal form. ``sums``: (V, D).
    """
    number = computed_in(weight)
    arguments = (bits(weight), sums, rows, bits(d), number(rate), number(eps), number(weight_decay))
    share_ranges(lambda start, stop: _adagrad(start, stop, *arguments), cut(len(rows), d.size), threads)


@kernel(fastmath={"contract"})
def _adagrad(start, stop, weight, sums, rows, d, rate, eps, weight_decay):
    for u in range(start, stop):
        w, h, g = weight[rows[u]], sums[rows[u]], d[u]
        for z in range(w.shape[0]):
            x = widen(w[z])
            slope = widen(g[z]) + weight_decay * x
            h[z] += slope * slope
            w[z] = narrow(x - rate * slope / (np.sqrt(h[z]) + eps), w)


def row_wise_adagrad(
    weight: np.ndarray,
    sums: np.ndarray,
    rows: np.ndarray,
    d: np.ndarray,
    *,
    rate: float,
    eps: float,
    weight_decay: float = 0.0,
    threads: int = 1,
) -> None:
    """g ← g + weight_decay · w;  sums ← sums + mean of g²;  w ← w - rate · g / (√sums + eps)

    One number a row is kept, ``sums`` (V,): what FBGEMM calls exact row-wise Adagrad.
    """
    number = computed_in(weight)
    arguments = (bits(weight), sums, rows, bits(d), number(rate), number(eps), number(weight_decay))
    share_ranges(
        lambda start, stop: _row_wise_adagrad(start, stop, *arguments), cut(len(rows), d.size), threads
    )


@kernel(fastmath={"reassoc", "contract"})
def _row_wise_adagrad(start, stop, weight, sums, rows, d, rate, eps, weight_decay):
    for u in range(start, stop):
        w, g = weight[rows[u]], d[u]
        total = sums.dtype.type(0)
        for z in range(w.shape[0]):
            slope = widen(g[z]) + weight_decay * widen(w[z])
            total += slope * slope
        sums[rows[u]] += total / sums.dtype.type(w.shape[0])
        step = rate / (np.sqrt(sums[rows[u]]) + eps)
        for z in range(w.shape[0]):
            x = widen(w[z])
            w[z] = narrow(x - step * (widen(g[z]) + weight_decay * x), w)


class AdamStep(NamedTuple):
    """The numbers of one step of Adam, the same for all rows.

    - decay: what the weight is multiplied by first, 1 - lr · weight decay
    - first, second: 1 - β1 and 1 - β2
    - rate: what the first moment is multiplied by
    - root: what √(second moment) is multiplied by before eps is added
    - eps
    """

    decay: float
    first: float
    second: float
    rate: float
    root: float
    eps: float


def adam(
    weight: np.ndarray,
    exp_avg: np.ndarray,
    exp_avg_sq: np.ndarray,
    rows: np.ndarray,
    d: np.ndarray,
    step: AdamStep,
    *,
    threads: int = 1,
) -> None:
    """w ← decay · w - rate · m / (root · √v + eps), after the moments have taken in the gradients:

        m ← m + first · (g - m)        v ← (1 - second) · v + second · g²

    Kingma and Ba 2015, algorithm 1, with the decay of Loshchilov and Hutter 2019. ``exp_avg`` (m) and
    ``exp_avg_sq`` (v): (V, D).
    """
    number = computed_in(weight)
    kept = number(1.0 - step.second)
    arguments = (bits(weight), exp_avg, exp_avg_sq, rows, bits(d), kept, *map(number, step))
    share_ranges(lambda start, stop: _adam(start, stop, *arguments), cut(len(rows), d.size), threads)


@kernel(fastmath={"contract"})
def _adam(start, stop, weight, exp_avg, exp_avg_sq, rows, d, kept, decay, first, second, rate, root, eps):
    for u in range(start, stop):
        w, m, v, g = weight[rows[u]], exp_avg[rows[u]], exp_avg_sq[rows[u]], d[u]
        for z in range(w.shape[0]):
            slope = widen(g[z])
            m[z] += first * (slope - m[z])
            v[z] = kept * v[z] + second * (slope * slope)
            w[z] = narrow(decay * widen(w[z]) - rate * m[z] / (root * np.sqrt(v[z]) + eps), w)
