"""Stochastic gradient descent over the rows that have gradients.

w ← w - lr · (g + weight_decay · w)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tokenspace.kernels import update
from tokenspace.optim.row_optimizer import RowOptimizer, setting
from tokenspace.optim.touched import Touched, array_of, wrote


class _Settings(NamedTuple):
    lr: float
    weight_decay: float


class SparseSGD(RowOptimizer):
    """``torch.optim.SGD`` for row-sparse gradients (and dense ones, which it updates as that does).

    ``weight_decay`` is L2, and reaches a row in the steps that touch it. There is no momentum: a row that
    coasts through the steps without a gradient would have to be moved in all of them. No state is kept.

    ``params`` and groups are torch's; ``lr`` may be a tensor of one number; ``maximize`` ascends. ``others``
    are torch's further options: ``ShapeError`` for one that is switched on, and for an invalid setting.

    >>> weight = torch.nn.Parameter(torch.ones(4, 2))
    >>> optimizer = SparseSGD([weight], lr=0.5)
    >>> torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True).sum().backward()
    >>> optimizer.step()
    >>> weight.detach().T
    tensor([[1., 0., 1., 1.],
            [1., 0., 1., 1.]])
    """

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-3,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "maximize": maximize}, others)

    def settings_of(self, group: dict[str, Any]) -> _Settings:
        return _Settings(setting(group, "lr"), setting(group, "weight_decay"))

    def update(self, touched: Touched, settings: _Settings) -> None:
        if touched.fits_kernels():
            update.sgd(
                array_of(touched.weight),
                touched.rows(),
                touched.gradients(),
                rate=settings.lr,
                weight_decay=settings.weight_decay,
                threads=torch.get_num_threads(),
            )
            wrote(touched.weight)
            return
        w = touched.read()
        touched.write(w - settings.lr * (touched.d + settings.weight_decay * w))
