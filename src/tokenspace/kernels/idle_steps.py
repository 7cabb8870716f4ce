r"""The AdamW steps of rows that get no gradient: any number of them, done at once.

An idle row still moves. With the moments m, v and u = √v of the last step s that touched it, dense AdamW
(Loshchilov and Hutter 2019, algorithm 2; the operations in the order of torch.optim.AdamW) does at a later
step j, the k-th that it misses:

    w ← w · d_j - c_j · β1^k · m / (f_k · u + e_j · eps)

    d_j = 1 - lr_j · weight decay                     f_k = β2^(k/2)
    c_j = lr_j · √(1 - β2^t) / (1 - β1^t)             e_j = √(1 - β2^t)           at the t-th step in all

After all of them the row is  w · Π d_j - m · S(u), and what takes the time is the sum over the missed steps

    S(u) = Σ_j  C_j / (f_k · u + e_j · eps)           C_j = c_j · β1^k · (the decays of the steps after j)

for every number of the row. C, f and e are the same for all rows last touched at s; only u differs. So one
asks for a formula with few terms that holds for every u.

**One number instead of two.** Each denominator is a positive factor times a function of y = ln(f/e):

    f · u + e · eps = √(f·e) · (exp(y/2) · u + exp(-y/2) · eps)

so that, with the weights a_j = C_j / √(f_k·e_j), all of them positive,

    S(u) = Σ_j  a_j · g(y_j)                          g(y) = 1 / (exp(y/2) · u + exp(-y/2) · eps)

g is 1 / (2·√(u·eps)) times the hyperbolic secant of (y - ln(eps/u)) / 2: smooth, its nearest poles a distance
of π away from the real numbers, whatever u is. And the y_j that matter lie close together, since each step
moves y by ln(β2)/2 and takes ln(β1) from the weights' logarithms.

**A Gauss rule instead of the sum.** For positive weights a_j at points y_j there are three points x_i and
weights w_i with Σ w_i · p(x_i) = Σ a_j · p(y_j) for every polynomial p up to degree 5 (Golub and Welsch
1969). They follow from the six moments  M_q = Σ_j a_j · (y_j - r)^q,  q = 0 … 5, about any reference r: here
the first y. Then, with 3 divisions for any number of missed steps, and no branch,

    S(u) ≈ Σ_i  w_i / (exp(x_i/2) · u + exp(-x_i/2) · eps)

Up to three missed steps that is the sum itself. One more step makes M_q ← M_q · d_j + a_j · (y_j - r)^q,
which is all that is kept of the past: six numbers for each s.

The points come from the recurrence of the polynomials that are orthogonal under the weights, with the central
moments μ_q (of weights that add up to 1):

    p1 = x     p2 = x² - A1·x - μ2     p3 = (x - A2)·p2 - B2·x
    A1 = μ3/μ2     N2 = Σ a·p2² = μ4 - A1·μ3 - μ2²     B2 = N2/μ2     A2 = Σ a·x·p2² / N2

The x_i are the roots of p3 (three real ones: Viète's cosines), and w_i = 1 / (1 + x_i²/μ2 + p2(x_i)²/N2).
Where N2 vanishes, two points are enough; where μ2 does, one.

**How near it is.** With β2 ≥ √β1 the rule is off by less than a thousandth of what the missed steps can move
a number, whatever u is; with the default β 0.9, 0.999 by less than 2e-5, and by 5e-8 after the first 20
steps, when √(1 - β2^t) moves slowly. With a β2 below √β1 the y_j spread too far: `is_smooth` is False, and
the steps are done one by one.

**Old steps.** A term is to the first one as (β1/√β2)^k or less. Once that is below 1e-9, a step adds nothing:
the rule of s is kept as it is then, and only the decays after it count. So a step costs as much as there are
s in this window (198 for β = 0.9, 0.999), however long the training. Powers and products are kept as sums of
logarithms, which don't underflow.

Rates, betas, eps and decay may be others at each step (e_j then holds the ratio of the eps too).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tokenspace.kernels.compiled import kernel

NEGLIGIBLE = 1e-9
CAPACITY = 1 << 14
"""Steps that a `History` holds; before the next one, all rows are brought up to date."""

_GONE = 1e-30  # of a moment
_ALMOST_ZERO = 1e-300  # has a logarithm


class History(NamedTuple):
    """What is kept of the steps 0 … h since all rows were up to date, by step. All float64.

    - decay, first, second: Σ ln d, Σ ln β1, Σ ln β2 up to step s
    - rate, eps: c and e of step s itself
    - reference: r, the y of the first step after s
    - moments: (…, 6), the M_q of the steps after s
    - points, weights: (…, 3), the x_i and w_i of an s that has left the window
    - left_at: Σ ln d when it left
    """

    decay: np.ndarray
    first: np.ndarray
    second: np.ndarray
    rate: np.ndarray
    eps: np.ndarray
    reference: np.ndarray
    moments: np.ndarray
    points: np.ndarray
    weights: np.ndarray
    left_at: np.ndarray


def history(capacity: int = CAPACITY) -> History:
    """Room for ``capacity`` steps after step 0, at which all rows are up to date."""
    shapes: list[tuple[int, ...]] = [(), (), (), (), (), (), (6,), (3,), (3,), ()]
    return History(*(np.zeros((capacity + 1, *shape)) for shape in shapes))


def is_smooth(beta1: float, beta2: float) -> bool:
    """Whether the rule is near enough for steps with these betas.

    >>> is_smooth(0.9, 0.999), is_smooth(0.9, 0.95), is_smooth(0.95, 0.95)
    (True, True, False)
    """
    return beta2**2 >= beta1


@kernel
def record(kept, step, decay, beta1, beta2, rate, eps):
    """Write down d, β1, β2, c and e of the step after ``step``."""
    now = step + 1
    kept.decay[now] = kept.decay[step] + math.log(decay)
    kept.first[now] = kept.first[step] + math.log(max(beta1, _ALMOST_ZERO))
    kept.second[now] = kept.second[step] + math.log(max(beta2, _ALMOST_ZERO))
    kept.rate[now] = rate
    kept.eps[now] = eps
    kept.moments[step] = 0


@kernel
def advance(kept, oldest, step):
    """Add step ``step``, recorded, to the moments of each s from ``oldest`` on; returns the new oldest."""
    decay = math.exp(kept.decay[step] - kept.decay[step - 1])
    log_eps = math.log(kept.eps[step])
    scale = kept.rate[step] / math.sqrt(kept.eps[step])
    for s in range(oldest, step):
        root = (kept.second[step] - kept.second[s]) / 2
        y = root - log_eps
        if s == step - 1:
            kept.reference[s] = y
        term = scale * math.exp(kept.first[step] - kept.first[s] - root / 2)
        for q in range(6):
            kept.moments[s, q] = kept.moments[s, q] * decay + term
            term *= y - kept.reference[s]
    while oldest < step and is_over(kept, oldest, step):
        gauss(kept.moments[oldest], kept.reference[oldest], kept.points[oldest], kept.weights[oldest])
        kept.left_at[oldest] = kept.decay[step]
        oldest += 1
    return oldest


@kernel
def is_over(kept, s, step):
    """Whether steps after ``step`` add nothing to a row last touched at ``s``, but for their decay."""
    first = kept.first[step] - kept.first[s]
    root = (kept.second[step] - kept.second[s]) / 2
    return first - root < math.log(NEGLIGIBLE) or first < math.log(_GONE)


@kernel
def rules(kept, oldest, step, eps, asked, done, out):
    """Fill ``out[s]`` for every s in ``asked`` (U,) whose ``done[s]`` is not yet ``step``, and mark it.

    ``out`` (…, 12): Π d, β1^k, β2^k, and of each of the three points w, exp(x/2), exp(-x/2) · eps.
    """
    points, weights = np.empty(3), np.empty(3)
    for u in range(asked.shape[0]):
        s = asked[u]
        if done[s] == step:
            continue
        done[s] = step
        later = 1.0  # the decays after the rule was made
        if s < oldest:
            points[:], weights[:] = kept.points[s], kept.weights[s]
            later = math.exp(kept.decay[step] - kept.left_at[s])
        else:
            gauss(kept.moments[s], kept.reference[s], points, weights)
        row = out[s]
        row[0] = math.exp(kept.decay[step] - kept.decay[s])
        row[1] = power(kept.first[step] - kept.first[s])
        row[2] = power(kept.second[step] - kept.second[s])
        for i in range(3):
            root = math.exp(points[i] / 2)
            row[3 + 3 * i] = weights[i] * later
            row[4 + 3 * i] = root
            row[5 + 3 * i] = eps / root


@kernel
def power(logarithm):
    """A moment's decay; 0 where only denormal numbers would be left, which are slow to compute with."""
    return math.exp(logarithm) if logarithm > math.log(_GONE) else 0.0


@kernel
def gauss(moments, reference, points, weights):
    """Fill the three points (3,) and weights (3,) of the moments (6,) about ``reference``."""
    points[:], weights[:] = reference, 0
    total = moments[0]
    if not total > 0:  # every rate was 0
        return
    mean = moments[1] / total
    c2, c3, c4, c5 = moments[2] / total, moments[3] / total, moments[4] / total, moments[5] / total
    center = reference + mean
    mu2 = c2 - mean**2
    if mu2 <= 1e-15:
        points[0], weights[0] = center, total
        return
    mu3 = c3 - 3 * mean * c2 + 2 * mean**3
    mu4 = c4 - 4 * mean * c3 + 6 * mean**2 * c2 - 3 * mean**4
    a1 = mu3 / mu2
    n2 = mu4 - a1 * mu3 - mu2**2
    if n2 <= 1e-7 * mu2**2:
        half = a1 / 2
        apart = math.sqrt(half**2 + mu2)
        low, high = half - apart, half + apart
        points[0], weights[0] = center + low, total * high / (high - low)
        points[1], weights[1] = center + high, -total * low / (high - low)
        return
    mu5 = c5 - 5 * mean * c4 + 10 * mean**2 * c3 - 10 * mean**3 * c2 + 4 * mean**5
    a2 = (mu5 - 2 * a1 * mu4 + (a1**2 - 2 * mu2) * mu3 + 2 * a1 * mu2**2) / n2
    # p3 = x³ + p·x² + q·x + r
    p, q, r = -(a1 + a2), a1 * a2 - mu2 - n2 / mu2, a2 * mu2
    spread = math.sqrt(max(p**2 - 3 * q, 0.0)) / 3
    cosine = (2 * p**3 - 9 * p * q + 27 * r) / (54 * spread**3)
    angle = math.acos(max(-1.0, min(1.0, cosine)))
    for i in range(3):
        x = -2 * spread * math.cos((angle + 2 * math.pi * (i - 1)) / 3) - p / 3
        points[i] = center + x
        weights[i] = total / (1 + x**2 / mu2 + (x**2 - a1 * x - mu2) ** 2 / n2)
