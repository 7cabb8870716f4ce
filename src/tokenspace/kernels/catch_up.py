"""Rows that are brought up to date when they are read: which steps each has missed, and doing them.

The formula is idle_steps'. Here are the rows it is used for, and the same steps done one by one.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from tokenspace.kernels import idle_steps
from tokenspace.kernels.compiled import kernel
from tokenspace.kernels.half import bits, computed_in, narrow, widen
from tokenspace.kernels.threads import cut, share_ranges
from tokenspace.kernels.update import AdamStep


class Behind(NamedTuple):
    """How many of some rows miss steps that would move them; the first of those, and how many steps."""

    rows: int
    first: int
    steps: int


class IdleRows:
    """What the V rows of a table have missed, in steps of AdamW, since all of them were up to date.

    A step of it: `catch_up` the rows that have gradients (and have been read), let ``update.adam`` move them,
    and `record` the step, which all other rows miss from then on.

    >>> weight, exp_avg, exp_avg_sq = np.ones((3, 2, 1), np.float32) * [[[1]], [[0]], [[0]]]
    >>> idle = IdleRows(weight, eps=1e-8)
    >>> step = AdamStep(decay=0.5, first=0.1, second=0.001, rate=1e-3, root=1.0, eps=1e-8)
    >>> idle.record(np.array([0]), step)
    >>> idle.catch_up(weight, exp_avg, exp_avg_sq, np.array([0, 1]))
    >>> weight.T
    array([[1. , 0.5]])
    """

    def __init__(self, weight: np.ndarray, eps: float, capacity: int = idle_steps.CAPACITY) -> None:
        self.step = 0
        self._last = np.zeros(len(weight), np.int32)  # the step that a row is at
        self._kept = idle_steps.history(capacity)
        self._oldest = 0
        self._smooth = True
        self._eps = eps
        self._number = computed_in(weight)
        self._rules = np.empty((capacity + 1, 12), self._number)
        self._made_at = np.full(capacity + 1, -1)  # the step for which each rule was made

    def __len__(self) -> int:
        return len(self._last)

    def has_room(self, step: AdamStep) -> bool:
        """Whether `record` takes this step; if not, `catch_up` all rows first."""
        smooth = idle_steps.is_smooth(*self._betas(step))
        return self.step == 0 or (self.step < len(self._made_at) - 1 and smooth == self._smooth)

    def record(self, touched: np.ndarray, step: AdamStep) -> None:
        """The rows ``touched`` (U,), which were up to date, are so again; all others have missed ``step``."""
        beta1, beta2 = self._betas(step)
        self._smooth = idle_steps.is_smooth(beta1, beta2)
        decay = float(self._number(step.decay))
        # rate · m / (root · u + eps), both sides of the fraction over root
        rate, eps = step.rate / step.root, step.eps / step.root / self._eps
        idle_steps.record(self._kept, self.step, decay, beta1, beta2, rate, eps)
        self.step += 1
        if self._smooth:
            self._oldest = idle_steps.advance(self._kept, self._oldest, self.step)
        self._last[touched] = self.step

    def catch_up(
        self,
        weight: np.ndarray,
        exp_avg: np.ndarray,
        exp_avg_sq: np.ndarray,
        ids: np.ndarray | None = None,
        threads: int = 1,
    ) -> None:
        """Do the missed steps of the rows ``ids`` (N,), which may repeat, or of all rows; in place.

        Arrays as for ``update.adam``. What is no row is passed over. Interrupted, it can be called again.
        """
        if self.step:
            self._catch_up(weight, exp_avg, exp_avg_sq, ids, threads)
            if ids is None:
                self._start_anew()

    def _catch_up(
        self,
        weight: np.ndarray,
        exp_avg: np.ndarray,
        exp_avg_sq: np.ndarray,
        ids: np.ndarray | None,
        threads: int,
    ) -> None:
        ids = np.arange(len(self)) if ids is None else ids
        rows, since = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        try:
            count = _claim(ids, self._last, self.step, rows, since)
            rows, since = rows[:count], since[:count]
            arrays = bits(weight), exp_avg, exp_avg_sq, rows, since, self._last, self.step
            if self._smooth:
                idle_steps.rules(
                    self._kept, self._oldest, self.step, self._eps, since, self._made_at, self._rules
                )
                body = functools.partial(_by_rule, *arrays, self._rules)
            else:
                body = functools.partial(_by_steps, *arrays, self._kept, self._eps)
            share_ranges(body, cut(count, count * weight.shape[1]), threads)
        except BaseException:
            _give_back(self._last)
            raise

    def behind(self, ids: np.ndarray, exp_avg: np.ndarray) -> Behind:
        """Which of the rows ``ids`` (U,) would `catch_up` give other weights?"""
        return Behind(*_behind(ids, self._last, self.step, exp_avg, self._kept))

    def _betas(self, step: AdamStep) -> tuple[float, float]:
        """As a touched row meets them: 0.999 in float32 is 0.99900001, and 300 steps make that 4e-6."""
        return 1 - float(self._number(step.first)), float(self._number(1 - step.second))

    def _start_anew(self) -> None:
        self._last[:] = 0
        self._made_at[:] = -1
        self.step = self._oldest = 0


@kernel
def _claim(ids, last, step, rows, since):
    """List the ids that are behind, each once, and their steps; mark them as claimed. Returns how many."""
    count = 0
    for n in range(ids.shape[0]):
        row = ids[n]
        if 0 <= row < last.shape[0] and 0 <= last[row] < step:
            rows[count], since[count] = row, last[row]
            last[row] = -1 - last[row]
            count += 1
    return count


@kernel
def _give_back(last):
    """Rows that are still claimed are where they were."""
    for row in range(last.shape[0]):
        if last[row] < 0:
            last[row] = -1 - last[row]


@kernel
def _behind(ids, last, step, exp_avg, kept):
    count, first, missed = 0, -1, 0
    for u in range(ids.shape[0]):
        row = ids[u]
        s = last[row]
        if s < step and (
            kept.decay[step] != kept.decay[s] or _moves(exp_avg[row], kept.rate[s + 1 : step + 1])
        ):
            if count == 0:
                first, missed = row, step - s
            count += 1
    return count, first, missed


@kernel
def _moves(m, rates):
    for j in range(rates.shape[0]):
        if rates[j] > 0:
            return np.any(m != 0)
    return False


@kernel(fastmath={"contract"})
def _by_rule(weight, exp_avg, exp_avg_sq, rows, since, last, step, rules, start, stop):
    for u in range(start, stop):
        row = rows[u]
        w, m, v, rule = weight[row], exp_avg[row], exp_avg_sq[row], rules[since[u]]
        decay, first, second = rule[0], rule[1], rule[2]
        weight1, root1, eps1 = rule[3], rule[4], rule[5]
        weight2, root2, eps2 = rule[6], rule[7], rule[8]
        weight3, root3, eps3 = rule[9], rule[10], rule[11]
        for z in range(w.shape[0]):
            x, y = m[z], np.sqrt(v[z])
            total = weight1 / (root1 * y + eps1) + weight2 / (root2 * y + eps2) + weight3 / (root3 * y + eps3)
            w[z] = narrow(decay * widen(w[z]) - x * total, w)
            m[z] = first * x
            v[z] = second * v[z]
        last[row] = step


@kernel(fastmath={"contract"})
def _by_steps(weight, exp_avg, exp_avg_sq, rows, since, last, step, kept, eps, start, stop):
    """What `_by_rule` sums up, step after step, in the order of torch.optim.AdamW."""
    number = exp_avg.dtype.type
    x, y = np.empty(weight.shape[1], exp_avg.dtype), np.empty(weight.shape[1], exp_avg.dtype)
    for u in range(start, stop):
        row, s = rows[u], since[u]
        w, m, v = weight[row], exp_avg[row], exp_avg_sq[row]
        for z in range(w.shape[0]):
            x[z], y[z] = widen(w[z]), np.sqrt(v[z])
        j = s
        while j < step and not idle_steps.is_over(kept, s, j):
            j += 1
            decay = number(np.exp(kept.decay[j] - kept.decay[j - 1]))
            rate = number(kept.rate[j] * np.exp(kept.first[j] - kept.first[s]))
            root = number(np.exp((kept.second[j] - kept.second[s]) / 2))
            added = number(kept.eps[j] * eps)
            for z in range(w.shape[0]):
                x[z] = decay * x[z] - rate * m[z] / (root * y[z] + added)
        later = number(np.exp(kept.decay[step] - kept.decay[j]))
        first = number(idle_steps.power(kept.first[step] - kept.first[s]))
        second = number(idle_steps.power(kept.second[step] - kept.second[s]))
        for z in range(w.shape[0]):
            w[z] = narrow(later * x[z], w)
            m[z] *= first
            v[z] *= second
        last[row] = step
