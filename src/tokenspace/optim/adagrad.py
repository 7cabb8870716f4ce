"""Adagrad over the rows that have gradients: a sum of squares for each number, or one for each row.

g ← g + weight_decay · w        h ← h + g², or the mean of the row's g²        w ← w - lr · g / (√h + eps)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tokenspace.kernels import update
from tokenspace.nn.arrays import array_over
from tokenspace.optim.row_optimizer import RowOptimizer, setting, steps_taken, zeros_for
from tokenspace.optim.touched import Touched, array_of, wrote


class _Settings(NamedTuple):
    lr: float
    lr_decay: float
    eps: float
    weight_decay: float
    start: float


class SparseAdagrad(RowOptimizer):
    """``torch.optim.Adagrad`` (Duchi, Hazan and Singer 2011), row-sparse gradients at the cost of their rows.

    The state is torch's: ``step`` and ``sum`` (V, D). Torch refuses ``weight_decay`` with sparse gradients;
    here it reaches a row in the steps that touch it. ``lr_decay``: lr / (1 + (step - 1) · lr_decay).

    ``params`` and groups are torch's; ``lr`` may be a tensor of one number; ``maximize`` ascends. ``others``
    are torch's further options: ``ShapeError`` for one that is switched on, and for an invalid setting.

    >>> weight = torch.nn.Parameter(torch.ones(4, 2))
    >>> optimizer = SparseAdagrad([weight], lr=0.5)
    >>> torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True).sum().backward()
    >>> optimizer.step()
    >>> weight.detach().T
    tensor([[1.0000, 0.5000, 1.0000, 1.0000],
            [1.0000, 0.5000, 1.0000, 1.0000]])
    """

    state_names = ("sum",)

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "maximize": maximize,
            },
            others,
        )

    def settings_of(self, group: dict[str, Any]) -> _Settings:
        names = "lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value"
        return _Settings(*(setting(group, name) for name in names))

    def update(self, touched: Touched, settings: _Settings) -> None:
        state = self.fitting_state(touched.weight)
        if "sum" not in state:
            state["sum"] = zeros_for(touched.weight)
            if settings.start:
                state["sum"].fill_(settings.start)
        rate = settings.lr / (1.0 + (steps_taken(state) - 1) * settings.lr_decay)
        sums, eps, decay = state["sum"], settings.eps, settings.weight_decay
        if touched.fits_kernels():
            update.adagrad(
                array_of(touched.weight),
                array_of(sums),
                touched.rows(),
                touched.gradients(),
                rate=rate,
                eps=eps,
                weight_decay=decay,
                threads=torch.get_num_threads(),
            )
            wrote(touched.weight)
            return
        w, h = touched.read(), touched.read(sums)
        g = touched.d + decay * w
        h = h + g * g
        touched.write(h, sums)
        touched.write(w - rate * g / (h.sqrt() + eps))


class SparseRowWiseAdagrad(RowOptimizer):
    """Adagrad with one number a row: the mean of the row's squared gradients, added up.

    That is FBGEMM's EXACT_ROWWISE_ADAGRAD, with 1/D of Adagrad's state: ``sum`` (V,). A dense gradient
    updates all rows in the same way; of a vector, such as a bias, each number is a row. ``weight_decay`` is
    L2, and reaches a row in the steps that touch it.

    ``params`` and groups are torch's; ``lr`` may be a tensor of one number; ``maximize`` ascends. ``others``
    are torch's further options: ``ShapeError`` for one that is switched on, and for an invalid setting.

    >>> weight = torch.nn.Parameter(torch.ones(4, 2))
    >>> optimizer = SparseRowWiseAdagrad([weight], lr=0.5)
    >>> torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True).sum().backward()
    >>> optimizer.step()
    >>> optimizer.state[weight]["sum"]
    tensor([0., 4., 0., 0.])
    """

    state_names = ("sum",)
    state_by_row = True

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-2,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **others: Any,
    ) -> None:
        defaults = {"lr": lr, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, others)

    def settings_of(self, group: dict[str, Any]) -> _Settings:
        return _Settings(
            setting(group, "lr"), 0.0, setting(group, "eps"), setting(group, "weight_decay"), 0.0
        )

    def update(self, touched: Touched, settings: _Settings) -> None:
        state = self.fitting_state(touched.weight)
        if "sum" not in state:
            state["sum"] = zeros_for(touched.weight, by_row=True)
        rate, sums, eps, decay = settings.lr, state["sum"], settings.eps, settings.weight_decay
        if touched.fits_kernels():
            update.row_wise_adagrad(
                array_of(touched.weight),
                array_over(sums).reshape(-1),
                touched.rows(),
                touched.gradients(),
                rate=rate,
                eps=eps,
                weight_decay=decay,
                threads=torch.get_num_threads(),
            )
            wrote(touched.weight)
            return
        w, h = touched.read(), touched.read(sums)
        g = touched.d + decay * w
        h = h + (g * g).flatten(h.ndim).mean(-1) if g.ndim > h.ndim else h + g * g
        touched.write(h, sums)
        step = rate / (h.sqrt() + eps)
        touched.write(w - step.view(*step.shape, *(1,) * (g.ndim - step.ndim)) * g)
