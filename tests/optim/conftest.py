"""``SparseAdamW(exact=True)`` against dense AdamW: the race that several files run."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tokenspace.nn import TokenEmbedding
from tokenspace.optim import SparseAdamW


@pytest.fixture
def start_race():
    """``start_race(V=200, …)`` gives a `Race`."""
    return Race


@pytest.fixture
def race(start_race):
    """A race five steps old, in which rows are behind."""
    race = start_race()
    for _ in range(5):
        race.step()
    stale = race.ours.weight.detach() - race.dense[torch.float32][0].detach()
    assert float(stale.abs().max()) > 1e-4, "steps are postponed"
    return race


class Race:
    """The same table trained by ours and by dense AdamW, on gradients that depend on the weights."""

    def __init__(self, V=200, D=16, N=64, *, std=0.1, dtype=torch.float32, steps=300, seed=0, **settings):
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.p = 1 / np.arange(1, V + 1)
        self.p /= self.p.sum()
        self.N, self.target, self.start = N, torch.randn(N, D), torch.randn(V, D) * std
        self.ours = TokenEmbedding.from_pretrained(self.start.to(dtype).clone(), freeze=False, sparse=True)
        self.optimizer = SparseAdamW(self.ours.parameters(), exact=True, **settings)
        self.dense = {kind: self._dense(kind, settings) for kind in (torch.float32, torch.float64)}
        self.all = [self.optimizer, *(optimizer for _, optimizer in self.dense.values())]
        self.schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, steps) for each in self.all]

    def _dense(self, kind, settings):
        weight = torch.nn.Parameter(self.start.to(kind, copy=True))
        return weight, torch.optim.AdamW([weight], **settings)

    def ids(self):
        return torch.from_numpy(self.rng.choice(len(self.p), self.N, p=self.p))

    def loss(self, rows):
        return F.mse_loss(torch.tanh(rows), self.target.to(rows.dtype)) * self.scale

    scale = 1.0

    def step(self, ids=None, schedule=True):
        ids = self.ids() if ids is None else ids
        self.optimizer.zero_grad()
        self.loss(self.ours(ids)).backward()
        self.optimizer.step()
        for weight, optimizer in self.dense.values():
            optimizer.zero_grad()
            self.loss(F.embedding(ids, weight)).backward()
            optimizer.step()
        if schedule:
            for each in self.schedules:
                each.step()

    def off(self):
        """The largest difference of ours and torch's float32, ours and float64, torch's and float64."""
        self.optimizer.flush()
        ours = self.ours.weight.detach().double()
        single, double = (weight.detach().double() for weight, _ in self.dense.values())
        return [float((a - b).abs().max()) for a, b in ((ours, single), (ours, double), (single, double))]
