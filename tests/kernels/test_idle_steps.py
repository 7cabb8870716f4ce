"""The closed form of any number of missed AdamW steps, against the sum itself in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.kernels import idle_steps

EPS = 1e-8
U = np.logspace(-14, 4, 37)  # √v of any size beside eps


class Idle:
    """A row idle since step 0, its missed steps summed up and by the rule."""

    def __init__(self, betas, after=0, capacity=6000):
        self.betas, self.t, self.k = betas, after, 0
        self.kept, self.oldest = idle_steps.history(capacity), 0
        self.sum, self.decay = np.zeros_like(U), 1.0

    def miss(self, rate, decay=1 - 1e-5, eps=EPS):
        self.t, self.k = self.t + 1, self.k + 1
        beta1, beta2 = self.betas
        root = math.sqrt(1 - beta2**self.t)
        c, e = rate * root / (1 - beta1**self.t), root * eps / EPS
        self.sum = self.sum * decay + c * beta1**self.k / (beta2 ** (self.k / 2) * U + e * EPS)
        self.decay *= decay
        idle_steps.record(self.kept, self.k - 1, decay, beta1, beta2, c, e)
        self.oldest = idle_steps.advance(self.kept, self.oldest, self.k)

    def rule(self):
        out, done = np.zeros((self.k + 1, 12)), np.full(self.k + 1, -1)
        idle_steps.rules(self.kept, self.oldest, self.k, EPS, np.array([0, 0]), done, out)
        assert done[0] == self.k
        return out[0]

    def error(self):
        """What the rule is off by, times u, to the largest movement (times u) of any number."""
        points = self.rule()[3:].reshape(3, 3)
        found = sum(weight / (root * U + eps) for weight, root, eps in points)
        return np.abs((found - self.sum) * U).max() / (self.sum * U).max()


SMOOTH = [(0.9, 0.999), (0.9, 0.95), (0.95, 0.98), (0.99, 0.999), (0.5, 0.9), (0.8, 0.9), (0.9, 0.9999)]


@pytest.mark.parametrize("betas", SMOOTH, ids=str)
@pytest.mark.parametrize("after", [0, 1, 20, 1000])
def test_the_rule_is_the_sum(betas, after):
    assert idle_steps.is_smooth(*betas)
    idle, errors = Idle(betas, after), {}
    for k in range(1, 1001):
        idle.miss(1e-3)
        if k in (1, 2, 3, 4, 5, 10, 30, 100, 300, 1000):
            errors[k] = idle.error()
    assert max(errors[k] for k in (1, 2, 3)) < 1e-9, "three points are three steps"
    assert max(errors.values()) < 1e-3
    if betas == (0.9, 0.999):
        assert max(errors.values()) < (2e-5 if after < 20 else 5e-8)


@settings(max_examples=40, deadline=None)
@given(
    betas=st.sampled_from(SMOOTH),
    after=st.integers(0, 50),
    rates=st.lists(st.sampled_from([0.0, 1e-6, 1e-4, 1e-3, 1.0]), min_size=1, max_size=40),
    repeat=st.integers(1, 5),
)
def test_rates_decays_and_eps_may_be_others_at_each_step(betas, after, rates, repeat):
    idle = Idle(betas, after)
    for n, rate in enumerate(rates * repeat):
        idle.miss(rate, decay=1 - rate * 0.01, eps=EPS * (1 + n % 3))
    if max(rates) == 0:
        assert not idle.rule()[3::3].any()
    else:
        assert idle.error() < 2e-3


def test_betas_may_change_from_step_to_step():
    idle, first, second = Idle((0.9, 0.999), after=100), 1.0, 1.0
    expected = np.zeros_like(U)
    for k in range(1, 151):
        beta1, beta2 = 0.9 + 0.05 * math.sin(k), 0.999 - 0.004 * (k % 2)
        first, second = first * beta1, second * beta2
        idle_steps.record(idle.kept, k - 1, 1.0, beta1, beta2, 1e-3, 0.5)
        idle.oldest = idle_steps.advance(idle.kept, idle.oldest, k)
        expected += 1e-3 * first / (math.sqrt(second) * U + 0.5 * EPS)
    idle.k, idle.sum = 150, expected
    assert idle.error() < 1e-5
    np.testing.assert_allclose(idle.rule()[:3], [1.0, first, second], rtol=1e-12)


def test_what_a_row_keeps_is_its_decays_and_powers():
    idle = Idle((0.9, 0.999))
    for _ in range(5):
        idle.miss(0.1, decay=0.99)
    np.testing.assert_allclose(idle.rule()[:3], [0.99**5, 0.9**5, 0.999**5], rtol=1e-12)


def test_a_step_costs_the_window_not_the_past():
    idle = Idle((0.9, 0.999))
    for _ in range(1000):
        idle.miss(1e-3)
    assert idle.k - idle.oldest == 197  # (0.9 / √0.999)^198 < 1e-9: the 198th has just left
    assert idle.error() < 2e-5


@pytest.mark.parametrize("decay", [1e-3, 1 - 1e-8])
def test_nothing_underflows(decay):
    idle = Idle((0.9, 0.999))
    for _ in range(5000):
        idle.miss(1e-3, decay=decay)
    rule = idle.rule()
    assert np.isfinite(rule).all()
    assert rule[0] == pytest.approx(decay**5000)
    assert rule[1] == 0  # and no denormal number
    assert rule[2] == pytest.approx(0.999**5000)


@pytest.mark.parametrize("betas", [(0.0, 0.999), (0.0, 0.0), (0.9, 0.95)], ids=str)
def test_betas_of_zero_leave_the_decay_alone(betas):
    idle = Idle(betas)
    for _ in range(4):
        idle.miss(1e-3, decay=0.9)
    rule = idle.rule()
    assert np.isfinite(rule).all()
    assert rule[0] == pytest.approx(0.9**4)
    assert rule[1] == pytest.approx(betas[0] ** 4)


def test_which_betas_the_rule_is_for():
    assert [idle_steps.is_smooth(0.9, beta2) for beta2 in (0.94, 0.95, 0.999, 1.0)] == [
        False,
        True,
        True,
        True,
    ]
