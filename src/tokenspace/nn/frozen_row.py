"""One row of a parameter that training leaves as it is, whatever the optimizer does to the others.

A zero gradient alone does not hold a row: weight decay shrinks it, and momentum moves it on. So

- the row's gradient is zeroed where it arrives at the parameter, whoever adds to it (a tied head, say),
  before a clip or an optimizer sees it;
- the row is kept before every ``torch.optim.Optimizer`` step that has the parameter, and put back after it.

Both go with the ``Parameter`` object: whatever makes a new one calls `freeze_row` again. An edit of the row
by hand stays, and so does what a step does that is no ``torch.optim.Optimizer``'s.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.weak import WeakTensorKeyDictionary

_FROZEN = WeakTensorKeyDictionary()  # Parameter -> its row; None once it is released
_BEFORE: weakref.WeakKeyDictionary[Optimizer, list[tuple[Tensor, int, Tensor]]] = weakref.WeakKeyDictionary()


def freeze_row(weight: torch.nn.Parameter, row: int) -> None:
    """Hold ``weight[row]`` from now on; a second call for the same parameter holds that row instead.

    >>> weight = torch.nn.Parameter(torch.ones(2, 3))
    >>> freeze_row(weight, 0)
    >>> optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.5)
    >>> weight.sum().backward()
    >>> weight.grad
    tensor([[0., 0., 0.],
            [1., 1., 1.]])
    >>> optimizer.step()
    >>> weight.detach()
    tensor([[1.0000, 1.0000, 1.0000],
            [0.8500, 0.8500, 0.8500]])
    """
    hooked = weight in _FROZEN
    _FROZEN[weight] = row
    if hooked:
        return
    _watch_optimizers()
    needed = weight.requires_grad
    weight.requires_grad_(True)  # torch takes the hook only then, and keeps it through a change
    weight.register_post_accumulate_grad_hook(_mask_gradient)
    weight.requires_grad_(needed)


def release_row(weight: Tensor) -> None:
    """Undo `freeze_row`: the row is trained as the others are."""
    if weight in _FROZEN:
        _FROZEN[weight] = None


def row_held(weight: Tensor) -> int | None:
    """The row of ``weight`` that `freeze_row` holds, if any."""
    return _FROZEN.get(weight)


def _mask_gradient(weight: Tensor) -> None:
    gradient, row = weight.grad, _FROZEN.get(weight)
    if gradient is None or row is None:
        return
    if not gradient.is_sparse:
        gradient[row] = 0.0
        return
    # Not coalesced here: torch would round each partial sum of 16-bit numbers.
    others = gradient._indices()[0] != row
    weight.grad = torch.sparse_coo_tensor(
        gradient._indices()[:, others],
        gradient._values()[others],
        gradient.shape,
        is_coalesced=gradient.is_coalesced(),
        check_invariants=False,
    )


@functools.cache
def _watch_optimizers() -> None:
    """Once a process, and only in one that freezes a row."""
    register_optimizer_step_pre_hook(_keep)
    register_optimizer_step_post_hook(_put_back)


@torch.no_grad()
def _keep(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if not len(_FROZEN):
        return
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    held = [
        (weight, row, weight[row].clone())
        for weight, row in list(_FROZEN.items())
        if row is not None and id(weight) in own
    ]
    if held:
        _BEFORE[optimizer] = held


@torch.no_grad()
def _put_back(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for weight, row, before in _BEFORE.pop(optimizer, ()):
        weight[row] = before
